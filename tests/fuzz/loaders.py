"""Every loader of the package: valid files for it, how they are made to lie, how it reads them, what it may answer."""

import gzip
import io
import json
import pickle
import shutil
import struct
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas
import pyarrow
import torch
from mutations import EDGES, Mutation, any_bytes, any_json, any_npy, any_safetensors, inside_gzip
from PIL import Image
from pyarrow import parquet

from treevae import TreeVAE, cli, fitting, load
from treevae.data import DataFileError, download
from treevae.data import load as load_set
from treevae.data.files import read
from treevae.data.idx import FILES
from treevae.data.sets import survey
from treevae.experiments import showing
from treevae.experiments.methods import METHODS
from treevae.experiments.store import DamagedRecordError, Store
from treevae.experiments.tables import TABLES
from treevae.training import loop
from treevae.training.checkpoint import ModelFileError
from treevae.training.growing import Grove
from treevae.training.loop import DivergedError
from treevae.training.runfolder import STATES, ChangedRunError

RESULTS = Path(__file__).parents[2] / "results"
Spoil = Callable[[dict[str, bytes], Random], dict[str, bytes]]


@dataclass(frozen=True)
class Loader:
    """A way in which files come into the program."""

    name: str
    share: float  # of all inputs
    valid: Callable[[Path], None]  # writes valid files into a folder
    spoil: Spoil  # changes some of them
    load: Callable[[Path], Any]  # reads the folder
    refuses: tuple[type[BaseException], ...]  # with these errors, which its documentation names, and with OSError
    address_space: int = 1 << 30  # bytes above what a valid file takes; resident memory has the same limit everywhere


def one_of(mutation: Mutation, *names: str) -> Spoil:
    """Change one of the named files, by default of all."""

    def spoil(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
        name = chance.choice([name for name in files if not names or name in names])
        return files | {name: mutation(files[name], chance)}

    return spoil


# -- models and states --------------------------------------------------------------------------------------------

TINY = {"n_leaves": 3, "max_depth": 2, "latent_dim": 2, "hidden_dim": 4, "epochs": 1, "batch_size": 32, "device": "cpu"}
CHANCE = np.random.default_rng(0)
BITS = CHANCE.integers(0, 2, (96, 5)).astype(np.float32)
MODELS = {"vectors": CHANCE.normal(size=(96, 5)), "images": CHANCE.integers(0, 256, (96, 5, 5), dtype=np.uint8)}


def fitted(X: np.ndarray, **others: Any) -> TreeVAE:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TreeVAE(**TINY, random_state=0).fit(X, **others)


def valid_models(folder: Path) -> None:
    for name, X in MODELS.items():
        fitted(X).save(folder / f"{name}.safetensors")


def load_models(folder: Path) -> None:
    """A model that is accepted must also answer."""
    for path in folder.iterdir():
        model, X = load(path, device="cpu"), MODELS[path.stem]
        try:
            assert model.predict(X[:3]).shape == (3,)
        except ValueError as error:  # another scale than that of the samples is no fault of the file's
            if "overflow float32" not in str(error):
                raise RuntimeError("a model that cannot be asked") from error
        assert model.sample(2, random_state=0).shape == (2, *X.shape[1:])
        assert str(model.tree_)
        cli._drawing(model)


class _Stopped(BaseException):
    """In the place of a kill."""


def valid_states(folder: Path) -> None:
    """Two states from the middle of a fit."""
    events = Grove.events

    def cut_short(grove: Grove) -> Any:
        for seen, happened in enumerate(events(grove)):
            yield happened
            if seen == 17:
                raise _Stopped

    Grove.events, loop.PAUSE, fitting.SHARE = cut_short, 0, 1.0  # type: ignore[method-assign, assignment]
    try:
        fitted(BITS, checkpoint=folder, save_every=0)
    except _Stopped:
        pass
    finally:
        Grove.events = events  # type: ignore[method-assign]
    (folder / "lock").unlink(missing_ok=True)


def spoil_models(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """One model, alone."""
    name = chance.choice(list(files))
    return {name: any_safetensors(files[name], chance)}


def spoil_states(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    """One state alone, so that the other cannot stand in for it; now and then both."""
    name = chance.choice([name for name in files if name in STATES])
    bad = any_safetensors(files[name], chance)
    return files | {name: bad} if chance.random() < 0.1 else {name: bad}


def load_states(folder: Path) -> None:
    """A fit that goes on from a state, for a step or two."""
    events = Grove.events

    def few(grove: Grove) -> Any:
        for seen, happened in enumerate(events(grove)):
            yield happened
            if seen == 2:
                raise _Stopped

    torch.set_num_threads(1)
    Grove.events, loop.PAUSE = few, 0  # type: ignore[method-assign, assignment]
    try:
        TreeVAE(**TINY, random_state=0).fit(BITS, checkpoint=folder, save_every=1000)
    except _Stopped:
        return
    finally:
        Grove.events = events  # type: ignore[method-assign]


# -- records --------------------------------------------------------------------------------------------------------

CELL = METHODS["treevae"].cell("mnist", {}, 1.0, 0)


def valid_records(folder: Path) -> None:
    shutil.copy(RESULTS / f"{CELL.name}.json", folder)
    running = folder / "running" / "some-job"
    running.mkdir(parents=True)
    cell = {"data": CELL.data, "method": CELL.method, "settings": CELL.settings, "scale": 1.0, "seed": 1}
    (running / "job.json").write_text(json.dumps([cell, cell | {"seed": 2}]))
    (running / STATES[0]).write_bytes(b"a state")


def load_records(folder: Path) -> None:
    store = Store(folder)
    for table in (TABLES["clustering"], TABLES["generative"]):
        showing.as_latex(table, lines := showing.lines(table, store, 1.0), 1.0)
        showing.as_text(table, lines, 1.0)
    for job in store.started():
        assert isinstance(job.name, str)
        assert job.seeds


def valid_run(folder: Path) -> None:
    np.save(folder / "x.npy", MODELS["vectors"])
    options = TINY | {"random_state": 0, "network": "mlp"}
    settings = {"data": "input/x.npy", "found_at": "input/x.npy", "drop": [], "options": options}
    (folder / "run.json").write_text(json.dumps(settings))


def load_run(folder: Path) -> None:
    """All that ``treevae fit --resume`` does before it trains."""
    cli._fit_and_write = lambda *_: None  # type: ignore[assignment]
    cli.typer.echo = lambda *_, **__: None  # type: ignore[assignment]
    cli._fit_in(folder, cli._read_settings(folder), 30.0, start=False)


# -- data sets ------------------------------------------------------------------------------------------------------


def pixels(*shape: int) -> np.ndarray:
    return CHANCE.integers(256, size=shape, dtype=np.uint8)


def valid_idx(folder: Path, ending: str = "") -> None:
    arrays = pixels(3, 28, 28), pixels(3) % 10, pixels(2, 28, 28), pixels(2) % 10
    (folder / "MNIST/raw").mkdir(parents=True)
    for file, values in zip(FILES, arrays, strict=True):
        content = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
        path = folder / "MNIST/raw" / (file + ending)
        path.write_bytes(gzip.compress(content, mtime=0) if ending else content)


@lru_cache
def zeros(first: bytes, blocks: int) -> bytes:
    """Gzipped: some bytes, then so many MiB of zeros; a thousand times smaller."""
    packer, block = zlib.compressobj(1, zlib.DEFLATED, 31), bytes(1 << 20)
    return b"".join([packer.compress(first), *(packer.compress(block) for _ in range(blocks)), packer.flush()])


def spoil_gzipped_idx(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    if chance.random() < 0.97:
        return one_of(inside_gzip)(files, chance)
    blocks = chance.choice((1, 30, 300))
    name = chance.choice(list(files))
    n_axes = 3 if "idx3" in name else 1
    sides = [chance.choice(((blocks << 20) // 784, 2**32 - 1)), 28, 28][:n_axes]
    return files | {name: zeros(bytes((0, 0, 8, n_axes)) + np.array(sides, ">u4").tobytes(), blocks)}


def load_named(folder: Path, name: str) -> None:
    """A data set; what ``treevae data`` says about it must never fail."""
    survey(name, folder)
    load_set(name, folder)


def valid_cifar(folder: Path, name: str) -> None:
    below = folder / ("cifar-10-batches-py" if name == "cifar10" else "cifar-100-python")
    below.mkdir()
    if name == "cifar10":
        for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            one = {b"data": pixels(2, 3072), b"labels": [0, 9], b"batch_label": b"one", b"filenames": [b"a", b"b"]}
            (below / batch).write_bytes(pickle.dumps(one, protocol=2))
        meta = {b"label_names": [b"class %d" % i for i in range(10)], b"num_vis": 3072}
        (below / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))
        return
    for part in ("train", "test"):
        one = {b"data": pixels(2, 3072), b"fine_labels": [1, 99], b"coarse_labels": [0, 19]}
        (below / part).write_bytes(pickle.dumps(one, protocol=4))
    names = {
        b"fine_label_names": [b"f%d" % i for i in range(100)],
        b"coarse_label_names": [b"c%d" % i for i in range(20)],
    }
    (below / "meta").write_bytes(pickle.dumps(names, protocol=2))


def pickle_piece(chance: Random) -> bytes:
    """Operations that a damaged or a wicked pickle may hold."""
    size = chance.choice(EDGES)
    laughs = b"]q\x01" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(1, 60))
    tuples = b")q\x01" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(1, 60))
    pieces = (
        *(b"B" + struct.pack("<I", size % 2**32), b"\x8e" + struct.pack("<Q", size), b"\x95" + struct.pack("<Q", size)),
        *(b"r" + struct.pack("<I", size % 2**32), b"j" + struct.pack("<I", size % 2**32), b"q\xff", b"h\xff"),
        *(
            b"X" + struct.pack("<I", size % 2**32) + b"abc",
            b"\x8b" + struct.pack("<i", size % 2**31),
            b"I" + b"9" * 5000 + b"\n",
        ),
        *(
            b"(" * 5000,
            b"]" * 5000,
            b"}" * 3,
            b"a",
            b"e",
            b"s",
            b"u",
            b"0",
            b"1",
            b"2",
            b"R",
            b"b",
            b".",
            b"\x81",
            b"\x93",
        ),
        *(b"cos\nsystem\nU\x04echo\x85R", b"cbuiltins\neval\n", b"cnumpy\nndarray\n)R", b"c_codecs\nencode\n"),
        *(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x04\x00\x00\x00idnatR", b"p99999999\n", b"g7\n", b"P1\n", b"Q"),
        *(
            laughs,
            tuples,
            tuples + b"K\x01s",
            laughs + b"cnumpy\ndtype\nh\x3b\x85R",
            b"\x98",
            b"\x96" + struct.pack("<Q", size),
        ),
        *(
            b"(cnumpy\ndtype\nU\x02u1o",
            b"(U\x02u1inumpy\ndtype\n",
            b"}U\x01aU\x01bsb",
            b"\x82\x01",
            b"\x84\xff\xff\xff\x7f",
        ),
    )
    return chance.choice(pieces)


def any_pickle(content: bytes, chance: Random) -> bytes:
    if chance.random() < 0.5:
        return any_bytes(content, chance)
    places = (2, len(content) - 1, chance.randrange(len(content)), chance.randrange(min(200, len(content))))
    for _ in range(chance.choice((1, 1, 2))):
        place = chance.choice(places)
        content = content[:place] + pickle_piece(chance) + content[place + chance.choice((0, 0, 1, 8)) :]
    return content


def valid_celeba(folder: Path) -> None:
    below = folder / "celeba"
    (below / "img_align_celeba").mkdir(parents=True)
    names = [f"{i:06d}.jpg" for i in range(1, 7)]
    for name in names:
        Image.fromarray(pixels(64, 64, 3)).save(below / "img_align_celeba" / name)
    rows = [f"{name} " + " ".join(["1", "-1"] * 20) for name in names]
    (below / "list_attr_celeba.txt").write_text("\n".join(["6", " ".join(f"A{a}" for a in range(40)), *rows]) + "\n")
    (below / "list_eval_partition.txt").write_text("".join(f"{name} {2 * (i > 3)}\n" for i, name in enumerate(names)))


# -- tables, arrays, pictures -----------------------------------------------------------------------------------------


def load_each(folder: Path) -> None:
    """Every file of a folder by itself; the first that is refused ends it."""
    for path in sorted(folder.iterdir()):
        read(path)


def valid_csv(folder: Path) -> None:
    rows = "".join(f"{a:.3f},{b:.3f},{i}\n" for i, (a, b) in enumerate(CHANCE.normal(size=(6, 2))))
    (folder / "x.csv").write_text("a,b,c\n" + rows)


def any_csv(content: bytes, chance: Random) -> bytes:
    if chance.random() < 0.7:
        return any_bytes(content, chance)
    columns, rows = chance.choice((1, 3, 1000, 30_000)), chance.choice((1, 2, 1000, 30_000))
    pieces = (
        *(
            b",".join(b"c%d" % i for i in range(columns)) + b"\n" + b"1\n" * rows,
            b'"' + content,
            content.replace(b",", b"\x00"),
        ),
        *(
            b"\n" * rows,
            b"a" * rows + b"\n" + b"1\n" * columns,
            content.replace(b"\n", b"\r"),
            b"\xef\xbb\xbf" + content,
        ),
        *(
            content.replace(b"a,", b"a,a,a,"),
            b"1" * 4999 + b"\n2\n",
            b"a\n1e400\n-1e400\n",
            b"a\n" + b"9" * 30 + b"\n3\n",
        ),
        *(
            b"a\nTrue\nFalse\n",
            b"a\n1+2j\n1\n",
            b"," * columns + b"\n" + b"1\n" * rows,
            b"a\n0x10\n1_000\n",
            b"\xff\xfe" + content,
        ),
        *(
            b'a,b\n"' + b"x\n" * rows + b'",1\n',
            b"a\n2020-01-01\n",
            b"#\n#\n",
            b"a,b\n1,2,3\n",
            b"a;b\n1;2\n",
            b"nan,inf\nnan,inf\n",
        ),
    )
    return chance.choice(pieces)


def valid_parquet(folder: Path) -> None:
    frame = pandas.DataFrame({"a": CHANCE.normal(size=50), "b": np.arange(50) % 3, "c": np.arange(50) > 20})
    for name, how in (("x", {"compression": "snappy"}), ("y", {"compression": "zstd", "use_dictionary": False})):
        frame.to_parquet(folder / f"{name}.parquet", **how)


def any_parquet(content: bytes, chance: Random) -> bytes:
    if chance.random() < 0.6:
        return any_bytes(content, chance)
    (size,) = struct.unpack("<I", content[-8:-4])
    footer = any_bytes(content[-8 - size : -8], chance)
    claimed = chance.choice((len(footer), len(footer), len(footer), size, *EDGES)) % 2**32
    return content[: -8 - size] + footer + struct.pack("<I", claimed) + content[-4:]


@lru_cache
def repeated(rows: int) -> bytes:
    """A parquet table with one value again and again: a few bytes for any number of rows."""
    out = io.BytesIO()
    same = pyarrow.array(np.zeros(1 << 16))
    with parquet.ParquetWriter(out, pyarrow.schema([("a", pyarrow.float64())]), compression="zstd") as writer:
        for _ in range(rows >> 16):
            writer.write_table(pyarrow.table({"a": same}))
    return out.getvalue()


def valid_npy(folder: Path) -> None:
    np.save(folder / "x.npy", CHANCE.normal(size=(5, 3)))
    np.save(folder / "y.npy", pixels(4, 6, 6))


def valid_npz(folder: Path) -> None:
    np.savez(folder / "x.npz", X=CHANCE.normal(size=(5, 3)), y=np.arange(5))
    np.savez_compressed(folder / "y.npz", pixels(4, 6, 6))


@lru_cache
def npz_bomb() -> bytes:
    """An array of 320 MB of zeros, packed to 320 kB."""
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000, 40000)}".ljust(117) + "\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + bytes(320_000_000))
    return out.getvalue()


def any_npz(content: bytes, chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.4:
        return any_bytes(content, chance)
    if kind > 0.98:
        return chance.choice((any_bytes, lying_zip, lambda bomb, _: bomb))(npz_bomb(), chance)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(out, "w") as after:
        for name in before.namelist():
            method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
            array = any_npy(before.read(name), chance)
            after.writestr(chance.choice((name, name, "X", "../x.npy")), array, method)
    return lying_zip(out.getvalue(), chance) if kind > 0.8 else out.getvalue()


def lying_zip(content: bytes, chance: Random) -> bytes:
    """A zip whose headers claim other sizes, methods or flags."""
    spots = [i for sign in (b"PK\x01\x02", b"PK\x03\x04") for i in find_all(content, sign)]
    spot = chance.choice(spots or [0])
    shift = 0 if content[spot : spot + 4] == b"PK\x03\x04" else 2
    field, width = chance.choice(((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)))
    value = struct.pack("<Q", chance.choice((1, 9, 12, 14, *EDGES)))[:width]
    place = spot + field + shift
    return content[:place] + value + content[place + width :]


def find_all(content: bytes, sign: bytes) -> list[int]:
    found, place = [], content.find(sign)
    while place >= 0:
        found.append(place)
        place = content.find(sign, place + 1)
    return found


def valid_pictures(folder: Path) -> None:
    grey, colour = Image.fromarray(pixels(9, 11)), Image.fromarray(pixels(9, 11, 3))
    turned = colour.getexif()
    turned[0x0112] = 1
    grey.save(folder / "a.png")
    colour.save(folder / "b.jpg", exif=turned)
    colour.save(folder / "c.bmp")
    colour.quantize(8).save(folder / "d.png", transparency=0)
    grey.convert("1").save(folder / "e.png")


def png_chunks(content: bytes) -> list[bytearray]:
    found, place = [], 8
    while place + 12 <= len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        found.append(bytearray(content[place : place + 12 + size]))
        place += 12 + size
    return found


def any_picture(content: bytes, chance: Random) -> bytes:
    """Bytes changed; of a png also chunks with a right checksum, as a header of a thousand million pixels."""
    if not content.startswith(b"\x89PNG") or chance.random() < 0.3:
        return any_bytes(content, chance)
    chunks = png_chunks(content)
    chunk = chance.choice((chunks[0], chance.choice(chunks)))
    if chunk[4:8] == b"IHDR" and chance.random() < 0.7:
        sides = [chance.choice((0, 1, 9, 11, 5000, 13_000, 2**16, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        chunk[8:16] = struct.pack(">II", *sides)
        chunk[16:18] = bytes((chance.choice((1, 8, 16)), chance.choice((0, 2, 3, 4, 6, 7))))
    elif len(chunk) > 12:
        inside = any_bytes(bytes(chunk[8:-4]), chance)
        chunk[:] = struct.pack(">I", len(inside)) + chunk[4:8] + inside + b"1234"
    if chance.random() < 0.2:
        text = (
            b"k\x00\x00" + zlib.compress(bytes(50_000_000), 1)
            if chance.random() < 0.1
            else b"k\x00\x00" + chance.randbytes(9)
        )
        kind = chance.choice((b"zTXt", b"iCCP", b"iTXt", b"eXIf", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"gAMA", b"cHRM"))
        chunks.insert(chance.randrange(1, len(chunks)), bytearray(struct.pack(">I", len(text)) + kind + text + b"1234"))
    for one in chunks:
        one[-4:] = struct.pack(">I", zlib.crc32(bytes(one[4:-4])))
    return content[:8] + b"".join(map(bytes, chunks))


FOREIGN = (  # pictures of kinds that are not read, under an ending that is
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n",
    b"GIF89a\x0a\x00\x0a\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x0a\x00\x0a\x00\x00\x02\x00;",
    b"P6\n30000 30000\n255\n",
    b"#define im_width 60000\n#define im_height 60000\nstatic char im_bits[] = {\n0x00",
)


def spoil_pictures(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    if chance.random() < 0.05:
        return files | {chance.choice(list(files)): chance.choice(FOREIGN)}
    return one_of(any_picture)(files, chance)


# -- archives ---------------------------------------------------------------------------------------------------------

NAMES = (
    "part/a",
    "part",
    "../evil",
    "/evil",
    "part/../../evil",
    "a" * 300,
    "part/b/c",
    "\\evil",
    "C:\\evil",
    ".",
    "",
    "part//a",
    "é",
)
KINDS = (
    tarfile.REGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.GNUTYPE_SPARSE,
)


def make_tar(chance: Random, members: int) -> bytes:
    """An archive of odd members."""
    out = io.BytesIO()
    form = chance.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT))
    with tarfile.open(fileobj=out, mode="w:", format=form, errors="surrogateescape") as archive:
        for _ in range(members):
            member = tarfile.TarInfo(chance.choice(NAMES))
            member.type, member.linkname = chance.choice(KINDS[:6]), chance.choice(NAMES)
            member.mode, member.mtime = chance.choice((0o644, 0o000, 0o4777)), chance.choice((0, 2**31, -1, 1.5))
            member.size = 5 if member.type == tarfile.REGTYPE else 0
            if form == tarfile.PAX_FORMAT and chance.random() < 0.5:
                member.pax_headers = {
                    chance.choice(
                        ("size", "path", "GNU.sparse.map", "GNU.sparse.realsize", "hdrcharset")
                    ): chance.choice(("1", "9" * 20, "x", "0,1", "../../evil", "-1"))
                }
            try:
                archive.addfile(member, io.BytesIO(b"hello"))
            except (ValueError, UnicodeError):
                continue
    return out.getvalue()


def tar_header(name: bytes, size: int, kind: bytes) -> bytes:
    """A header alone, with a right checksum and any size."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108], block[124:136], block[136:148] = b"0000644\0", b"%011o\0" % (size % 8**11), b"00000000000\0"
    block[156:157], block[257:265] = kind, b"ustar  \0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def spoil_tar(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    (name,) = files
    kind = chance.random()
    if kind < 0.35:
        bad = inside_gzip(files[name], chance)
    elif kind < 0.95:
        bad = gzip.compress(make_tar(chance, chance.randrange(1, 5)), 1, mtime=0)
    else:  # bombs: a large member, a large header of a header, a claim of 8 GB
        first = tar_header(
            b"part/a", chance.choice((300 << 20, 8**11 - 512)), chance.choice((b"0", b"x", b"g", b"L", b"K", b"S"))
        )
        bad = zeros(first, chance.choice((0, 10, 300)))
    return {name: bad}


def make_zip(chance: Random) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # of names that come twice
        for _ in range(chance.randrange(1, 5)):
            member = zipfile.ZipInfo(chance.choice([name for name in NAMES if name]))
            member.external_attr = chance.choice((0o644, 0o120777, 0o060644, 0o4777)) << 16
            method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            content = bytes(200 << 20) if chance.random() < 0.001 else b"../../evil"
            archive.writestr(member, content, zipfile.ZIP_DEFLATED if len(content) > 99 else method)
    return out.getvalue()


def spoil_zip(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    (name,) = files
    kind = chance.random()
    bad = (
        any_bytes(files[name], chance)
        if kind < 0.3
        else make_zip(chance)
        if kind < 0.6
        else lying_zip(make_zip(chance), chance)
    )
    return {name: bad}


def valid_archive(folder: Path, name: str) -> None:
    content = pixels(3000).tobytes()
    if name.endswith(".zip"):
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("part/a", content)
            archive.writestr("part/b", b"text" * 100)
        return
    with tarfile.open(folder / name, "w:gz") as archive:
        member = tarfile.TarInfo("part/a")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def unpack(folder: Path) -> None:
    """Unpack; whatever comes of it, nothing may lie outside of the folder, and no link inside."""
    (file,) = folder.iterdir()
    try:
        download._unpack(file)
    finally:
        around = {path.name for path in (*folder.iterdir(), *folder.parent.iterdir())}
        strange = {name for name in around if not name.startswith("said-")} - {file.name, "unpacked", folder.name}
        inside = list((folder / "unpacked").rglob("*"))
        links = [path for path in inside if path.is_symlink()]
        size = sum(path.stat().st_size for path in inside if path.is_file())
        if strange or links or size > 1 << 30:
            raise SystemError(f"unpacked outside: {strange}, links: {links}, bytes: {size}")


# -- all of them ------------------------------------------------------------------------------------------------------


def spoil_parquet(files: dict[str, bytes], chance: Random) -> dict[str, bytes]:
    if chance.random() < 0.003:
        return {"x.parquet": repeated(1 << 26)}
    return one_of(any_parquet)(files, chance)


DATA, MODEL = (DataFileError, OSError), (ModelFileError, OSError)
LOADERS = {
    loader.name: loader
    for loader in (
        Loader("model", 0.05, valid_models, spoil_models, load_models, MODEL),
        Loader("state", 0.03, valid_states, spoil_states, load_states, (*MODEL, ChangedRunError, DivergedError)),
        Loader(
            "record",
            0.05,
            valid_records,
            one_of(any_json, f"{CELL.name}.json", "running/some-job/job.json"),
            load_records,
            (DamagedRecordError, OSError),
        ),
        Loader("run", 0.05, valid_run, one_of(any_json, "run.json"), load_run, (ValueError, OSError)),
        Loader("idx", 0.11, valid_idx, one_of(any_bytes), partial(load_named, name="mnist"), DATA),
        Loader(
            "idx.gz", 0.07, partial(valid_idx, ending=".gz"), spoil_gzipped_idx, partial(load_named, name="mnist"), DATA
        ),
        Loader(
            "cifar10",
            0.08,
            partial(valid_cifar, name="cifar10"),
            one_of(any_pickle),
            partial(load_named, name="cifar10"),
            DATA,
        ),
        Loader(
            "cifar100",
            0.06,
            partial(valid_cifar, name="cifar100"),
            one_of(any_pickle),
            partial(load_named, name="cifar100"),
            DATA,
        ),
        Loader("celeba", 0.04, valid_celeba, one_of(any_bytes), partial(load_named, name="celeba"), DATA),
        Loader("csv", 0.07, valid_csv, one_of(any_csv), load_each, DATA),
        Loader("parquet", 0.06, valid_parquet, spoil_parquet, load_each, DATA, 4 << 30),
        Loader("npy", 0.11, valid_npy, one_of(any_npy), load_each, DATA),
        Loader("npz", 0.07, valid_npz, one_of(any_npz), load_each, DATA),
        Loader("pictures", 0.06, valid_pictures, spoil_pictures, read, DATA),
        Loader("tar", 0.05, partial(valid_archive, name="a.tar.gz"), spoil_tar, unpack, DATA),
        Loader("zip", 0.04, partial(valid_archive, name="a.zip"), spoil_zip, unpack, DATA),
    )
}
assert abs(sum(loader.share for loader in LOADERS.values()) - 1) < 1e-9
sys.setrecursionlimit(1000)
