"""CIFAR's batches: pickles."""

import pickle
import struct
from functools import partial
from pathlib import Path
from random import Random

from attacks import encoded_again, images_claimed, many_sides, operations
from loader import Loader, load_named, one_of, pixels
from mutations import EDGES, any_bytes

from treevae.errors import DataFileError


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
        *(b"X" + struct.pack("<I", size % 2**32) + b"abc", b"\x8b" + struct.pack("<i", size % 2**31)),
        *(b"I" + b"9" * 5000 + b"\n", b"(" * 5000, b"]" * 5000, b"}" * 3),
        *(bytes((operation,)) for operation in b"aesu012Rb.\x81\x93"),
        *(b"cos\nsystem\nU\x04echo\x85R", b"cbuiltins\neval\n", b"cnumpy\nndarray\n)R", b"c_codecs\nencode\n"),
        *(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x04\x00\x00\x00idnatR", b"p99999999\n", b"g7\n", b"P1\n", b"Q"),
        *(laughs, tuples, tuples + b"K\x01s", laughs + b"cnumpy\ndtype\nh\x3b\x85R"),
        *(b"\x98", b"\x96" + struct.pack("<Q", size), b"(cnumpy\ndtype\nU\x02u1o", b"(U\x02u1inumpy\ndtype\n"),
        *(b"}U\x01aU\x01bsb", b"\x82\x01", b"\x84\xff\xff\xff\x7f"),
    )
    return chance.choice(pieces)


def any_pickle(content: bytes, chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.01:
        return encoded_again(chance.choice((10, 1000, 100_000, 400_000)), chance.choice((3, 300, 3000, 30_000)))
    if kind < 0.02:
        return many_sides(chance.choice((1, 4, 5, 300, 5000)), chance.choice((1, 4, 5, 300, 20_000)))
    if kind < 0.03:
        return images_claimed(chance.choice((1, 2, 4, 300, 3000)), chance.choice((0, 127, 255)))
    if kind < 0.032:
        return operations(
            chance.choice((b"N", b"}", b"]", b"K\x05", b"(", b")\x85")), chance.choice((10**4, 2 * 10**6))
        )
    if kind < 0.5:
        return any_bytes(content, chance)
    places = (2, len(content) - 1, chance.randrange(len(content)), chance.randrange(min(200, len(content))))
    for _ in range(chance.choice((1, 1, 2))):
        place = chance.choice(places)
        content = content[:place] + pickle_piece(chance) + content[place + chance.choice((0, 0, 1, 8)) :]
    return content


LOADERS = tuple(
    Loader(
        name,
        share,
        partial(valid_cifar, name=name),
        one_of(any_pickle),
        partial(load_named, name=name),
        (DataFileError,),
    )
    for name, share in (("cifar10", 0.08), ("cifar100", 0.06))
)
