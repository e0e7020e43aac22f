"""How a step runs fast: batches drawn on the device, the whole step captured in a CUDA graph, memory kept.

Every random number of a stage is a function of the stage's seed and of when it is needed, so that a stage can be left
and taken up again with a handful of numbers.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial

import torch
from torch import Tensor

from ..model import kernels
from ..model.kernels import fast_products
from .adam import Adam
from .objectives import NoiseRows, Objective
from .views import AUGMENTATION

log = logging.getLogger("treevae")
WARM_UP = 3  # steps before a capture


def mixed(*numbers: int) -> int:
    """A seed made of several numbers, each of which changes it beyond recognition (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & (2**64 - 1)
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        state ^= state >> 31
    return state >> 1


class Noise:
    """Standard normal noise for every step, the same for a run whoever is trained beside it."""

    def __init__(self, seeds: Sequence[int], rows: NoiseRows, batch_size: int, device: torch.device) -> None:
        self._seeds, self._rows, self._batch_size = list(seeds), rows, batch_size
        self._device, self._generator, self._next = device, torch.Generator(device), 0
        self._fused = kernels.fused(torch.empty(0, device=device))
        if self._fused:
            self._tick = torch.zeros(1, dtype=torch.long, device=device)
            self._seed_of_run = torch.tensor(self._seeds, device=device)
            self._blocks = self._numbered()

    def _numbered(self) -> list[tuple[int, list[int], Tensor, Tensor]]:
        """For each stretch of rows of one latent size: it, their counts, their runs and their places in the run."""
        rows_so_far = [0] * len(self._seeds)
        blocks: list[tuple[int, list[int], list[int], list[int]]] = []
        for runs, dim in self._rows:
            if not blocks or blocks[-1][0] != dim:
                blocks.append((dim, [], [], []))
            _, counts, run_of, place = blocks[-1]
            counts.append(len(runs))
            for run in runs:
                run_of.append(run)
                place.append(rows_so_far[run])
                rows_so_far[run] += 1
        as_tensor = partial(torch.tensor, dtype=torch.int32, device=self._device)
        return [(dim, counts, as_tensor(run_of), as_tensor(place)) for dim, counts, run_of, place in blocks]

    def seek(self, tick: int) -> None:
        """Continue with the noise of a step."""
        if self._fused:
            self._tick.fill_(tick)
        self._next = tick

    def changed(self) -> list[Tensor]:
        """What a draw changes on the device."""
        return [self._tick] if self._fused else []

    def draw(self) -> list[Tensor]:
        """The noise of the next step, a tensor (row, batch, latent) for each entry of the rows."""
        return self._draw_fused() if self._fused else self._draw_plain()

    def _draw_fused(self) -> list[Tensor]:
        noise: list[Tensor] = []
        for dim, counts, run_of, place in self._blocks:
            values = kernels.noise(self._seed_of_run, self._tick, run_of, place, self._batch_size, dim)
            noise += values.split(counts)
        self._tick += 1
        return noise

    def _draw_plain(self) -> list[Tensor]:
        parts: list[list[Tensor]] = [[] for _ in self._rows]
        for run, seed in enumerate(self._seeds):
            self._generator.manual_seed(mixed(seed, self._next))
            for of_entry, (runs, dim) in zip(parts, self._rows, strict=True):
                shape = (runs.count(run), self._batch_size, dim)
                of_entry.append(torch.randn(shape, generator=self._generator, device=self._device))
        self._next += 1
        return [of_entry[0] if len(of_entry) == 1 else torch.cat(of_entry) for of_entry in parts]


class Stepper:
    """Takes training steps on an objective: on a GPU by replaying a captured graph, elsewhere one by one.

    What the host may change between steps are tensors on the device: ``kl_weight``, ``term_weights`` and the learning
    rate of each tree, the order of each run's samples, and where in it the run stands.

    Parameters
    ----------
    objective : Objective
        What is minimised.
    batch_size : int
        Samples in a step.
    seeds : sequence of int
        One for each run.
    weight_decay : float
        L2.
    fast : bool
        Whether products on a GPU may be rounded for speed.
    """

    def __init__(
        self, objective: Objective, batch_size: int, seeds: Sequence[int], weight_decay: float, fast: bool = True
    ) -> None:
        self._objective, self._network = objective, objective.network
        self._seeds, self.tick, self._fast = list(seeds), 0, fast
        n_runs, n_trees = len(objective.n_samples), objective.n_trees
        device = next(self._network.parameters()).device
        self._batch = torch.arange(batch_size, device=device)
        self.kl_weight = torch.zeros(n_trees, device=device)
        self.term_weights = torch.zeros(len(objective.terms_beside), n_trees, device=device)
        self.adam = Adam(self._network.stacks(), n_trees, weight_decay)
        views = 1 if objective.views is None else objective.views.n
        self._noise = Noise(seeds, objective.noise_rows, views * batch_size, device)
        self.order = torch.zeros(n_runs, max(objective.n_samples), dtype=torch.long, device=device)
        self.cursor = torch.zeros(n_runs, 1, dtype=torch.long, device=device)
        self.totals = torch.zeros(len(objective.names), n_trees, device=device)  # sums of the terms' batch means
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured = False

    def seek(self, tick: int) -> None:
        """Continue with the random numbers of a step."""
        self.tick = tick
        self._noise.seek(tick)

    def steps(self, n: int) -> None:
        """Take n steps."""
        self._network.train()
        if not self._captured:
            self._captured = True
            if self.order.is_cuda:
                self._look()
                self._graph = self._capture()
        with self._products():
            for _ in range(n):
                self._look()
                if self._graph is None:
                    self._step()
                else:
                    self._graph.replay()
                self.tick += 1

    def _products(self) -> AbstractContextManager[None]:
        """How products are rounded, inside."""
        return fast_products() if self._fast and self.order.is_cuda else nullcontext()

    def _look(self) -> None:
        if self._objective.views is not None:
            seeds = [mixed(seed, AUGMENTATION, self.tick) for seed in self._seeds]
            self._objective.look(self._index(), seeds)

    def _index(self) -> Tensor:
        return self.order.gather(1, self.cursor + self._batch)

    def _step(self) -> None:
        terms = self._objective.terms(self._index(), self._noise.draw())
        loss = terms.total(self.kl_weight, self.term_weights)
        self.adam.step(torch.autograd.grad(loss, self.adam.parameters))
        self.totals += terms.means()
        self.cursor += len(self._batch)

    def _capture(self) -> torch.cuda.CUDAGraph | None:
        """The step as a graph; None, with a line in the log, where that is impossible."""
        if not kernels.fused(self.adam.mean):
            log.warning("training without a CUDA graph, which is slower: Triton cannot be used here")
            return None
        before = [(tensor, tensor.clone()) for tensor in self._changed()]
        tried = torch.backends.cudnn.benchmark
        try:
            torch.backends.cudnn.benchmark = True  # the warm-up finds out which convolutions are fastest
            side = _side_stream(self.order.device)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), self._products():
                for _ in range(WARM_UP):
                    self.cursor.zero_()  # an epoch may be shorter than the warm-up
                    self._step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph), self._products():
                self._step()
        except Exception as error:  # whatever cannot be captured: an operation of a newer torch, an odd driver, …
            torch.cuda.synchronize()
            log.warning("training without a CUDA graph, which is slower: %s", str(error).splitlines()[0])
            return None
        finally:
            torch.backends.cudnn.benchmark = tried
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
        return graph

    def _changed(self) -> Iterator[Tensor]:
        """All that a step changes."""
        yield from (parameter.data for parameter in self.adam.parameters)
        yield from (buffer for buffer in self._network.buffers() if buffer.is_floating_point())
        yield from (*self.adam.tensors().values(), self.cursor, self.totals)
        yield from self._noise.changed()
        yield from self._objective.remembered.values()


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream to warm up on; always the same, because cuBLAS keeps memory for every stream it has seen."""
    return torch.cuda.Stream(device)


def keep_memory() -> None:
    """Tell glibc to keep freed memory for the next step instead of giving it back to the system.

    A step's tensors are large enough that malloc would map and unmap each one, and faulting the pages in anew takes a
    good part of a step (benchmarks/speed/cpu_memory.py). Does nothing on other systems.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3  # names of glibc's <malloc.h>
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
