"""What is done to a valid file to make it lie: to its bytes, to JSON, and to the parts of safetensors files and arrays.

Every mutation takes the content and a random.Random, and gives the content of a bad file; the same numbers give the
same file.
"""

import gzip
import json
import re
import struct
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

EDGES = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**24, 2**27, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1)
DEEP = 100_000  # levels of nesting
WORDS = ("", "x", "\x00", "NaN", "../../etc", "🌳" * 20, "y" * 5000, "0", "-1", "\\ud800")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308),
    *(float("nan"), float("inf"), -float("inf"), *WORDS, [], [[]], {}, {"": {}}, [0] * 3000, [None, "a", 1.5]),
)


# -- bytes --------------------------------------------------------------------------------------------------------


def flip(content: bytes, chance: Random) -> bytes:
    """Some bits turned over."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8, 64)) if changed else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def flip_early(content: bytes, chance: Random) -> bytes:
    """Bits turned over where headers are."""
    head = chance.choice((16, 64, 256))
    return flip(content[:head], chance) + content[head:]


def truncate(content: bytes, chance: Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def insert(content: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + chance.randbytes(chance.choice((1, 2, 4, 8, 100))) + content[place:]


def delete(content: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + content[place + chance.choice((1, 2, 4, 8, 100, 1000)) :]


def repeat(content: bytes, chance: Random) -> bytes:
    """A stretch that comes again, or many times."""
    first, size = chance.randrange(len(content) + 1), chance.choice((1, 4, 16, 256))
    return content[:first] + content[first : first + size] * chance.choice((2, 3, 50)) + content[first + size :]


def fill(content: bytes, chance: Random) -> bytes:
    """A stretch of one byte."""
    place, size = chance.randrange(len(content) + 1), chance.choice((1, 4, 8, 64, 512))
    piece = content[place : place + size]
    return content[:place] + bytes([chance.choice((0, 0xFF, 0x20, 0x7F))]) * len(piece) + content[place + size :]


def number(content: bytes, chance: Random) -> bytes:
    """A number at the edge, of any width, in the place of others; early in the file half of the time."""
    width, order = chance.choice((1, 2, 4, 8)), chance.choice("<>")
    value = struct.pack(f"{order}Q", chance.choice(EDGES))
    value = value[:width] if order == "<" else value[-width:]
    place = chance.randrange(max(1, min(len(content), 64) if chance.random() < 0.5 else len(content)))
    return content[:place] + value + content[place + width :]


def text_number(content: bytes, chance: Random) -> bytes:
    """Another number where one stands in text."""
    places = [match.span() for match in re.finditer(rb"\d+", content[:20_000])]
    if not places:
        return number(content, chance)
    first, last = chance.choice(places)
    value = chance.choice((*map(str, EDGES), "-1", "1e999", "nan", "9" * 5000, "0x10", "1_0"))
    return content[:first] + value.encode() + content[last:]


BYTES: tuple[Mutation, ...] = (
    *(flip, flip, flip_early, truncate, insert, delete, repeat, fill, number, number, text_number),
)


def any_bytes(content: bytes, chance: Random) -> bytes:
    """One to three of the above."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = chance.choice(BYTES)(content, chance)
    return content


def inside_gzip(content: bytes, chance: Random) -> bytes:
    """A gzipped file whose inside lies, or that is itself damaged."""
    if chance.random() < 0.4:
        return any_bytes(content, chance)
    return gzip.compress(any_bytes(gzip.decompress(content), chance), 1, mtime=0)


# -- JSON ---------------------------------------------------------------------------------------------------------


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All (container, key) of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        found.append((value, key))
        places(below, found)
    return found


def change_value(value: Any, chance: Random) -> None:
    """Change a JSON object in place: a value replaced, lost, doubled or exchanged, or a key renamed or added."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        level, found = value, []
        for _ in range(chance.randrange(1, 6)):  # an even chance for every level, however long a list at the end is
            pairs = list(level.items()) if isinstance(level, dict) else list(enumerate(level))
            if not pairs:
                break
            key, below = chance.choice(pairs)
            found.append((level, key))
            if not isinstance(below, dict | list):
                break
            level = below
        if not found:
            return
        inside, key = found[-1] if chance.random() < 0.8 else chance.choice(found)
        action = chance.randrange(8)
        if action == 0:
            del inside[key]
        elif action == 1 and isinstance(inside, dict):
            inside[chance.choice(WORDS)] = inside.pop(key)
        elif action == 2 and isinstance(inside, dict):
            inside[chance.choice((*WORDS, "__class__"))] = deepcopy(chance.choice(VALUES))
        elif action == 3:
            inside[key] = [inside[key], deepcopy(inside[key])]
        elif action == 4 and isinstance(inside[key], int | float) and abs(inside[key]) < 1e9:
            inside[key] = inside[key] * chance.choice((-1, 2, 1000, 10**6)) + chance.choice((0, 1, -1, 0.0))
        elif action == 5 and isinstance(inside[key], list):
            inside[key] = inside[key] * chance.choice((0, 2, 30))
        else:
            inside[key] = deepcopy(chance.choice(VALUES))


def json_text(value: Any, chance: Random) -> str:
    """A changed JSON object as text that may itself be odd: doubled keys, deep nests, numbers of a thousand digits."""
    odd = chance.random()
    if odd < 0.8:
        change_value(value, chance)
    text = json.dumps(value)
    if odd > 0.75:
        spots = [match.end() for match in re.finditer(r":", text[:50_000])] or [len(text)]
        spot = chance.choice(spots)
        pieces = (
            *("[" * DEEP + "]" * DEEP + ",", '{"a":' * DEEP + "1" + "}" * DEEP + ",", "9" * 5000 + ",", "1e999999,"),
            *("NaN,", "-Infinity,", '"\\ud800",', "[" * DEEP, "\x00", '{"format": 1, "format": {}}, "format":'),
        )
        text = text[:spot] + chance.choice(pieces) + text[spot:]
    return text


def any_json(content: bytes, chance: Random) -> bytes:
    """A JSON file changed by meaning, or its bytes."""
    if chance.random() < 0.3:
        return any_bytes(content, chance)
    return json_text(json.loads(content), chance).encode("utf-8", "surrogatepass")


# -- safetensors ----------------------------------------------------------------------------------------------------


def _safetensors_header(content: bytes, chance: Random) -> bytes:
    """The header's JSON changed, or the length that it says it has."""
    (size,) = struct.unpack("<Q", content[:8])
    text = json_text(json.loads(content[8 : 8 + size]), chance).encode("utf-8", "surrogatepass")
    claimed = chance.choice((len(text), len(text), len(text), len(text) + 1, size, *EDGES))
    return struct.pack("<Q", claimed) + text + content[8 + size :]


def _safetensors_inside(content: bytes, chance: Random) -> bytes:
    """A file with a right checksum whose JSON or tensors are changed: what an adversary would write."""
    import torch
    from safetensors.torch import load, save

    from treevae.training.checkpoint import CHECKSUM, KEY, _checksum

    (size,) = struct.unpack("<Q", content[:8])
    about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"][KEY])
    tensors = load(content)
    text = json.dumps(about)
    if chance.random() < 0.6:
        text = _with_inner_json(about, chance)
    else:
        name = chance.choice(list(tensors))
        value = tensors[name]
        action = chance.randrange(9)
        if action == 0:
            del tensors[name]
        elif action == 1:
            tensors[chance.choice((*WORDS, f"{name}.more"))] = value.clone()
        elif action == 2:
            tensors[name] = value.to(chance.choice((torch.float64, torch.int8, torch.bool, torch.bfloat16)))
        elif action == 3:
            tensors[name] = value.reshape(-1)[: chance.randrange(value.numel() + 1)].clone()
        elif action == 4:
            tensors[name] = value[None].clone() if chance.random() < 0.5 else value.reshape(-1).clone()
        elif action == 5:
            tensors[name] = torch.empty(0)
        elif action == 6:
            tensors[name] = torch.zeros(1).expand(chance.choice((10, 100_000))).clone()
        else:
            spoilt = value.clone()
            wrong = (float("nan"), float("inf"), 1e38, -1) if spoilt.is_floating_point() else (-1, 100, 2**31 - 1)
            wrong = (0, 100, 255) if spoilt.dtype == torch.uint8 else wrong
            spoilt.reshape(-1)[: max(1, spoilt.numel() // 3)] = chance.choice(wrong)
            tensors[name] = spoilt
    try:
        return save(tensors, {KEY: text, CHECKSUM: _checksum(text, tensors)})
    except (UnicodeEncodeError, TypeError):  # lone surrogates cannot be written
        return any_bytes(content, chance)


def _with_inner_json(about: dict[str, Any], chance: Random) -> str:
    """JSON changed, also where JSON stands in a string, as trees do."""
    inner = [(inside, key) for inside, key in places(about, []) if str(inside[key]).startswith('{"children')]
    if inner and chance.random() < 0.3:
        inside, key = chance.choice(inner)
        inside[key] = json_text(json.loads(inside[key]), chance)
        return json.dumps(about)
    return json_text(about, chance)


def any_safetensors(content: bytes, chance: Random) -> bytes:
    kind = chance.random()
    if kind < 0.25:
        return any_bytes(content, chance)
    return _safetensors_header(content, chance) if kind < 0.5 else _safetensors_inside(content, chance)


# -- numpy ----------------------------------------------------------------------------------------------------------

NPY_TYPES = (
    "<f8",
    ">f4",
    "|u1",
    "<i8",
    "|b1",
    "<c16",
    "|O",
    "|S4",
    "<U5",
    "|V100000000",
    "<f2",
    "<M8[ns]",
    "[('a', '<f8')]",
)


def any_npy(content: bytes, chance: Random) -> bytes:
    """An array file whose header claims another shape or type, or is none."""
    if chance.random() < 0.4:
        return any_bytes(content, chance)
    start = 10 + struct.unpack("<H", content[8:10])[0]
    sides = [chance.choice((0, 1, 2, 3, 5, 2**20, 2**31, 2**40, 2**62, -1)) for _ in range(chance.randrange(5))]
    shape = chance.choice((f"({', '.join(map(str, sides))},)", "()", "(3)", "'abc'", "(5, 3)", "(" * 300, "9" * 5000))
    kind = chance.choice(NPY_TYPES)
    kind = kind if kind.startswith("[") else repr(kind)
    header = (
        f"{{'descr': {kind}, 'fortran_order': {chance.choice(('False', 'True', '1', 'None'))}, 'shape': {shape}, }}"
    )
    header += chance.choice(("", "", "\n", " " * 70_000, "\x00"))
    size = chance.choice((len(header), len(header), len(header), 0, 2**16 - 1)) % 2**16
    version = chance.choice((1, 1, 1, 2, 3, 9))
    length = struct.pack("<H", size) if version == 1 else struct.pack("<I", size)
    return b"\x93NUMPY" + bytes((version, 0)) + length + header.encode("latin-1") + content[start:]
