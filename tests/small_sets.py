"""Small data sets in the published layouts, how loading one is refused, and a server that offers them."""

import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from treevae.data import idx, load, omniglot
from treevae.data.download import Download
from treevae.data.sets import SOURCES
from treevae.errors import DataFileError

CHANCE = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return CHANCE.integers(256, size=shape, dtype=np.uint8)


def write_idx(path: Path, values: np.ndarray) -> None:
    content = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def make_idx(root: Path, folder: str, ending: str = "") -> None:
    arrays = noise(7, 28, 28), noise(7) % 10, noise(3, 28, 28), noise(3) % 10
    for file, values in zip(idx.FILES, arrays, strict=True):
        write_idx(root / folder / (file + ending), values)


def make_news20(root: Path) -> None:
    for part, n in (("train", 3), ("test", 2)):
        for group, words in (("sci.space", "orbit moon"), ("rec.autos", "engine wheel caf\xe9")):
            folder = root / "20news-bydate" / f"20news-bydate-{part}" / group
            folder.mkdir(parents=True)
            for i in range(n):
                text = f"From: someone@{group}\n\n> quoted\n{words} number{i}\n"
                (folder / str(100 + i)).write_text(text, encoding="latin-1")


def make_omniglot(root: Path) -> None:
    for part, alphabets in (
        ("images_background", ("Braille", "Latin", "Bengali")),
        ("images_evaluation", omniglot.FIVE[2:]),
    ):
        for alphabet in alphabets:
            for character in ("character01", "character02"):
                folder = root / "omniglot-py" / part / alphabet / character
                folder.mkdir(parents=True)
                for drawer in range(20):
                    Image.fromarray(noise(105, 105) > 99).save(folder / f"0001_{drawer:02d}.png")


def make_cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        write_pickle(folder / name, {b"data": noise(4, 3072), b"labels": [0, 9, 3, 1], b"batch_label": b"one"})
    write_pickle(folder / "batches.meta", {b"label_names": [f"class {i}".encode() for i in range(10)]})


def make_cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, n in (("train", 6), ("test", 2)):
        labels = {b"fine_labels": list(range(94, 94 + n)), b"coarse_labels": list(range(n))}
        write_pickle(folder / name, {b"data": noise(n, 3072)} | labels)
    names = {
        b"fine_label_names": [b"f%d" % i for i in range(100)],
        b"coarse_label_names": [b"c%d" % i for i in range(20)],
    }
    write_pickle(folder / "meta", names)


def write_pickle(path: Path, content: Any) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))  # as Python 2 did


def make_celeba(root: Path, ending: str = "png", size: tuple[int, int] = (64, 64), partition: str = "0" * 10) -> None:
    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{i:06d}.jpg" for i in range(1, 11)]
    for name in names:
        picture = Image.fromarray(noise(size[1], size[0], 3))
        picture.save((folder / "img_align_celeba" / name).with_suffix(f".{ending}"))
    rows = [f"{name}  " + "  ".join("1" if (i + a) % 3 else "-1" for a in range(40)) for i, name in enumerate(names)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(["10", " ".join(f"A{a}" for a in range(40)), *rows]) + "\n")
    lines = [f"{name} {part}\n" for name, part in zip(names, partition, strict=True)]
    (folder / "list_eval_partition.txt").write_text("".join(lines))


MAKERS: dict[str, Callable[[Path], None]] = {
    "mnist": lambda root: make_idx(root, "MNIST/raw"),
    "fashion": lambda root: make_idx(root, "FashionMNIST/raw", ".gz"),
    "news20": make_news20,
    "omniglot": make_omniglot,
    "omniglot5": make_omniglot,
    "cifar10": make_cifar10,
    "cifar100": make_cifar100,
    "celeba": make_celeba,
}


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refusal(name: str, root: Path, remedy: str = "download=True") -> str:
    """What loading a set is refused with; the message must say how to get it."""
    with pytest.raises(DataFileError) as caught:
        load(name, root)
    message = str(caught.value)
    assert remedy in message
    assert "$TREEVAE_DATA" in message
    return message


class Server:
    """Answers on this machine: files by path, some of them cut off in the middle."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if self.path in server.cut else content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def offer(self, file: str, content: bytes, kind: str = "md5", **of_archive: Any) -> Download:
        """A download of that content."""
        self.files[f"/{file}"] = content
        return Download(
            f"{self.address}/{file}", file, f"{kind}:{hashlib.new(kind, content).hexdigest()}", **of_archive
        )


def packed(folder: Path, names: tuple[str, ...], kind: str) -> bytes:
    """Folders and files as an archive."""
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as archive:
            for file in sorted(path for name in names for path in (folder / name).rglob("*")):
                archive.write(file, file.relative_to(folder))
    else:
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for name in names:
                archive.add(folder / name, name)
    return content.getvalue()


def offer(server: Server, name: str, made: Path) -> tuple[Download, ...]:
    """Downloads of a small set, in the form of the published ones."""
    official, offered = SOURCES[name].downloads, []
    for one in official:
        if name in ("mnist", "fashion"):
            file = made / SOURCES[name].folders[0] / one.file
            content = file.read_bytes() if file.exists() else gzip.compress(file.with_suffix("").read_bytes())
        else:
            kind = "zip" if one.file.endswith(".zip") else "tar"
            folder = made if one.inside else made / SOURCES[name].folders[0]
            content = packed(folder, (one.inside,) if one.inside else one.gives, kind)
        kind = one.checksum.split(":")[0]
        offered.append(server.offer(one.file, content, kind, gives=one.gives, inside=one.inside))
    return tuple(offered)


def advertise(monkeypatch: pytest.MonkeyPatch, name: str, *downloads: Download) -> None:
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], downloads=downloads))


def left_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))
