"""Reads a pickle into arrays of bytes, bytes, strings, numbers, lists, tuples and dicts, and can build nothing else.

Python's own unpickler, however its classes are restricted, makes room for whatever sizes and places a file claims,
hashes any key, and calls what it is given. So the operations that such files need are carried out here, one by one:
every size is checked against the bytes that are there, keys are strings, and nothing is ever called.
"""

from __future__ import annotations

import pickletools
from math import prod
from typing import Any

import numpy as np

NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
OLD_STRINGS = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's, which are bytes; read as latin-1
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
MOST_SIDES = 4  # of an array
MOST_OPERATIONS = 1_000_000  # a second or two; the largest of CIFAR's files needs half as many, however it was written
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

ARRAY, KIND, ENCODE, NDARRAY = "_reconstruct", "dtype", "encode", "ndarray"
NAMES = {  # what a file may name -> what it stands for
    "numpy.core.multiarray _reconstruct": ARRAY,
    "numpy._core.multiarray _reconstruct": ARRAY,
    "numpy ndarray": NDARRAY,  # only ever handed to _reconstruct
    "numpy dtype": KIND,
    "_codecs encode": ENCODE,  # how Python 3 writes bytes for Python 2
}


class _Name:
    """What a file has named."""

    def __init__(self, named: str) -> None:
        if named not in NAMES:
            raise ValueError(f"it names {named.replace(' ', '.')[:80]}, which is not allowed")
        self.means = NAMES[named]


class _Kind:
    """The type of bytes, the only one that arrays have here."""


class _Array:
    """An array of bytes whose values come later."""

    values: np.ndarray | None = None


def read_pickle(content: bytes) -> Any:
    """What a pickle holds.

    Raises
    ------
    ValueError
        It is damaged, or holds something else.
    """
    machine = _Machine(len(content))
    try:
        for i, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if i == MOST_OPERATIONS:
                raise ValueError(f"it has more than {MOST_OPERATIONS:,} operations")
            machine.do(opcode.name, argument)
        (value,) = machine.stack
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"its operations do not fit together ({type(error).__name__})") from error
    return _finished(value)


class _Machine:
    """The stack, the marks on it and the memory of a pickle in progress, which has room for so many encoded bytes."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        """Carry out one operation."""
        stack = self.stack
        if name in NUMBERS or name in TEXTS or name in BYTES:
            stack.append(argument)
        elif name in OLD_STRINGS:
            stack.append(argument.encode("latin-1"))
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in PUTS:
            self._memory[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self._memory[len(self._memory)] = stack[-1]
        elif name in GETS:
            stack.append(self._memory[int(argument)])
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in TUPLES:
            stack.append(tuple(self._taken(len(stack) - TUPLES[name])))
        elif name in ("TUPLE", "LIST"):
            stack.append({"TUPLE": tuple, "LIST": list}[name](self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            _extend(stack, self._since_mark() if name == "APPENDS" else [stack.pop()])
        elif name in ("SETITEM", "SETITEMS"):
            _update(stack, self._since_mark() if name == "SETITEMS" else self._taken(len(stack) - 2))
        elif name == "DICT":
            values = self._since_mark()
            stack.append({})
            _update(stack, values)
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name == "STACK_GLOBAL":
            stack.append(_Name(" ".join(self._taken(len(stack) - 2))))
        elif name == "REDUCE":
            stack.append(_made(*self._taken(len(stack) - 2)))
            self._room -= len(stack[-1]) if type(stack[-1]) is bytes else 0
            if self._room < 0:
                raise ValueError("it makes more bytes than it has")
        elif name == "BUILD":
            state = stack.pop()
            _fill(stack[-1], state)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it uses the operation {name}, which is not allowed")

    def _since_mark(self) -> list[Any]:
        return self._taken(self._marks.pop())

    def _taken(self, first: int) -> list[Any]:
        """The end of the stack, taken off it; never beyond the last mark."""
        if first < (self._marks[-1] if self._marks else 0):
            raise IndexError
        taken = self.stack[first:]
        del self.stack[first:]
        return taken


def _extend(stack: list[Any], values: list[Any]) -> None:
    """Add values to the list on top of the stack."""
    if type(stack[-1]) is not list:
        raise TypeError
    stack[-1].extend(values)


def _update(stack: list[Any], values: list[Any]) -> None:
    """Add keys and values, by turns, to the dict on top of the stack."""
    keys = values[::2]
    if type(stack[-1]) is not dict:
        raise TypeError
    if len(values) % 2 or not all(type(key) in (str, bytes) for key in keys):
        raise ValueError("it has a dict whose keys are not strings")
    stack[-1].update(zip(keys, values[1::2], strict=True))


def _made(name: _Name, arguments: tuple[Any, ...]) -> Any:
    """What a name and its arguments stand for."""
    if name.means == ARRAY:
        return _Array()
    if name.means == KIND:
        if arguments[0] not in ("u1", "|u1", b"u1", b"|u1"):
            raise ValueError("it holds an array of something else than bytes")
        return _Kind()
    if name.means == ENCODE and arguments[1] in ("latin1", "latin-1"):
        return arguments[0].encode("latin-1")
    raise ValueError(f"it makes an object with {name.means}, which is not allowed")


def _fill(made: Any, state: Any) -> None:
    """Give an array its values; the byte order that the type of bytes is given means nothing."""
    if type(made) is _Kind:
        return
    if type(made) is not _Array:
        raise ValueError("it changes what is no array")
    _, shape, kind, columns_first, content = state
    if type(kind) is not _Kind or type(content) is not bytes:
        raise ValueError("it holds an array of something else than bytes")
    few = type(shape) is tuple and len(shape) <= MOST_SIDES  # and each short: the product of others takes long
    if not few or not all(type(n) is int and 0 <= n < 1 << 31 for n in shape) or prod(shape) != len(content):
        raise ValueError("it has an array that is not as long as its shape says")
    made.values = np.frombuffer(content, np.uint8).reshape(shape, order="F" if columns_first else "C")


def _finished(value: Any) -> Any:
    """Arrays in the place of what stood for them, in a dict or alone."""
    if isinstance(value, dict):
        return {key: inner.values if isinstance(inner, _Array) else inner for key, inner in value.items()}
    return value.values if isinstance(value, _Array) else value
