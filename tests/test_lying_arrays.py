"""Arrays that lie, in npy and npz files; and that a flood of memory would be seen."""

import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from lies import MB, refused, resident_below

from treevae.data import download
from treevae.data.files import read


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is measured there")
def test_a_flood_of_memory_is_seen() -> None:
    with pytest.raises(AssertionError, match="resident"), resident_below(100):
        torch.ones(200 * MB, dtype=torch.uint8)


def npy(header: str, content: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes((version, 0)) + length + header.encode() + content


def about(shape: str, kind: str = "<f8") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (npy(about("(1000000000000, 10)"), bytes(80)), "takes 80,000,000,000,000 bytes"),
        (npy(about("(100000000, 2)"), bytes(80)), "takes 1,600,000,000 bytes"),
        (npy(about("(5, -3)"), bytes(120)), "no plain array"),
        (npy(about("(2, 2", "<f8"), bytes(32)), "damaged"),
        (npy(about("(" * 400), bytes(32)), "no plain array"),
        (npy(about("(2, 2)", "|V1000000000"), bytes(32)), "dtype"),
        (npy(about("('a', 2)"), bytes(32)), "damaged"),
        (npy(about("(2, 2)"), bytes(31)), "cut short: it holds 31 of 32 bytes"),
        (npy(" " * 60_000), "no plain array"),
        (npy("9" * 900), "damaged"),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_array_headers_that_lie(tmp_path: Path, ending: str, content: bytes, why: str) -> None:
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr("x.npy", content)
    with refused(f"{path}.*({why})"):
        read(path)


def test_arrays_of_other_writers_are_read(tmp_path: Path) -> None:
    values = np.arange(6.0).reshape(2, 3)
    (tmp_path / "a.npy").write_bytes(npy('{"shape":(2,3),"fortran_order":False,"descr":"<f8"}', values.tobytes(), 2))
    np.save(tmp_path / "b.npy", np.asfortranarray(values.astype(">f4")))
    np.savez_compressed(tmp_path / "c.npz", values)
    for name in ("a.npy", "b.npy", "c.npz"):
        np.testing.assert_array_equal(read(tmp_path / name).X, values)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_npz_packed_as_numpy_does_not(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as zipped:
        zipped.writestr("x.npy", npy(about("(2, 2)"), bytes(32)))
    with refused("a way that numpy does not write"):
        read(tmp_path / "x.npz")


def test_npz_with_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        zipped.writestr("x", "hello")
    with refused("is no numpy file"):
        read(tmp_path / "x.npz")


def test_zips_of_a_version_yet_to_come(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.zeros((2, 2)))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 109  # the version that is needed to unpack it
    (tmp_path / "x.npz").write_bytes(content)
    (tmp_path / "x.zip").write_bytes(content)
    with refused("zip file version 10.9"):
        read(tmp_path / "x.npz")
    with refused("zip file version 10.9"):
        download._unpack(tmp_path / "x.zip")


def test_npz_of_many_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        for i in range(500):
            zipped.writestr(f"{'m' * 5000}{i}.npy", b"")
    with refused("and 490 more; save one alone") as said:
        read(tmp_path / "x.npz")
    assert len(str(said.value)) < 2000


def test_npz_that_is_a_bomb(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        zipped.writestr("x.npy", npy(about("(18000, 1000)"), bytes(144_000_000)))
    with refused("would take 144,000,000 in memory, more than 200 times as much"):
        read(tmp_path / "x.npz")
