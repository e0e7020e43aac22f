"""What is done to a valid file of any kind to make it lie: to its bytes, and to JSON.

Every mutation takes the content and a random.Random, and gives the content of a bad file; the same numbers give the
same file.
"""

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
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


@lru_cache
def zeros(first: bytes, blocks: int) -> bytes:
    """Gzipped: some bytes, then so many MiB of zeros; a thousand times smaller."""
    packer, block = zlib.compressobj(1, zlib.DEFLATED, 31), bytes(1 << 20)
    return b"".join([packer.compress(first), *(packer.compress(block) for _ in range(blocks)), packer.flush()])


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
        action = chance.randrange(9)
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
        elif action == 5 and type(inside[key]) in (int, float):  # a number that no float holds, or nearly
            inside[key] = chance.choice((1, -1)) * 10 ** chance.randrange(290, 4290)
        elif action == 6 and isinstance(inside[key], list):
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
