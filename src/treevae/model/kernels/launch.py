"""Where the kernels run and where the plain code does; how kernels are compiled, and in tiles of which size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None

BLOCK = 1024  # elements of a tile, except in the norm

_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
_plain: ContextVar[bool] = ContextVar("plain", default=False)
_fast: ContextVar[bool] = ContextVar("fast", default=False)


@contextmanager
def plain() -> Iterator[None]:
    """Inside, the plain torch code runs also where the kernels could."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def fused(x: Tensor) -> bool:
    """Whether the kernels serve this tensor."""
    reachable = triton is not None and (x.is_cuda or _interpreted)
    return reachable and x.dtype == torch.float32 and not _plain.get()


@contextmanager
def fast_products() -> Iterator[None]:
    """Inside, a GPU may multiply with fewer bits: matrices in TF32 (10 bits of mantissa), large images in bfloat16."""
    before, token = torch.get_float32_matmul_precision(), _fast.set(True)
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        _fast.reset(token)


def reduced(x: Tensor) -> bool:
    """Whether large convolutions of x are to be done in bfloat16."""
    return x.is_cuda and x.dtype == torch.float32 and _fast.get() and not _plain.get()


def fused_images(x: Tensor) -> bool:
    """Whether the norm's and the resampling kernel serve this tensor; they take bfloat16 too, and count in float32."""
    return fused(x) or (triton is not None and x.is_cuda and x.dtype == torch.bfloat16 and not _plain.get())


def kernel(*sizes: str) -> Callable[[Callable], Any]:
    """Triton's jit, where there is Triton; no value of the named sizes causes another compilation."""
    return lambda code: code if triton is None else triton.jit(code, do_not_specialize=sizes)


def power(n: int, most: int = BLOCK) -> int:
    """The least power of two that is not less than n, or ``most``."""
    return min(most, 1 << max(n - 1, 0).bit_length())


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
