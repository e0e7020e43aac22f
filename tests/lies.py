"""What a file that lies is met with: its message, soon, and in little memory; and the vectors of small fits."""

import ctypes
import re
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treevae.errors import DataFileError
from treevae.recipes import PAPER

MB = 1 << 20


@contextmanager
def refused(message: str, megabytes: int = 20, seconds: float = 5, kind: type = DataFileError) -> Iterator[Any]:
    """Inside, the message comes soon, and little memory is asked for: of Python, and of the system."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        with resident_below(megabytes + 80), pytest.raises(kind, match=message) as said:  # what is imported counts
            yield said
        assert tracemalloc.get_traced_memory()[1] < megabytes * MB
        assert time.monotonic() - began < seconds
    finally:
        tracemalloc.stop()


@contextmanager
def resident_below(megabytes: int) -> Iterator[None]:
    """Inside, the process's memory rises by no more, also that which Python does not trace, as torch's and Arrow's."""
    if not sys.platform.startswith("linux"):
        yield
        return
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # what earlier tests freed would be taken again, and no rise be seen
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is forgotten
    before = resident("VmRSS")
    yield
    assert resident("VmHWM") - before < megabytes * MB, "resident memory"


def resident(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


CHANCE = np.random.default_rng(0)
TINY = {
    "n_leaves": 2,
    "n_init": 2,
    "max_depth": 2,
    "latent_dim": 2,
    "hidden_dim": 4,
    "epochs": 1,
    "device": "cpu",
    "random_state": 0,
    **PAPER,
}
X = CHANCE.normal(size=(60, 5))
