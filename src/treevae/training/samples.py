"""The samples, and which of them the device holds.

Data that fit are on the device from the start, and a step is told which rows to use. Larger data stay where they are,
in host memory or in a memory map, and visit the device in large pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor, nn

CHUNK = {"cpu": 1024, "cuda": 8192}  # samples in a batch of evaluation; bounds the memory of a pass over all data
LIGHT_CHUNK = {"cpu": 4096, "cuda": 16384}  # the same for what runs at most one decoder a sample
LARGEST_PIECE = 1 << 28  # numbers, 1 GiB, that one activation of a piece may have
CPU_BUDGET = 4 << 30  # bytes that what is derived from the samples may take, beside the samples themselves


class Samples:
    """A matrix of samples (sample, feature) and the device that will see them.

    Parameters
    ----------
    x : Tensor
        The samples, on the CPU or already on the device.
    device : torch.device
        Where training runs.
    budget : int, optional
        Bytes of the device's memory that samples and what is derived from them may take; by default half of what is
        free on a CUDA GPU, and elsewhere all samples and 4 GiB of derived values.
    largest : int
        Numbers in the largest activation that a network has for a sample; bounds the pieces that are asked about.
    neighbours : Tensor, optional
        The rows of each sample's nearest neighbours: (sample, neighbour).
    """

    def __init__(
        self,
        x: Tensor,
        device: torch.device,
        budget: int | None = None,
        largest: int = 1,
        neighbours: Tensor | None = None,
    ) -> None:
        self.n, self.n_features, self.device = *x.shape, device
        self._most = max(1, LARGEST_PIECE // largest)
        if budget is None:
            on_gpu = device.type == "cuda"
            budget = torch.cuda.mem_get_info(device)[0] // 2 if on_gpu else CPU_BUDGET + self._bytes(x)
        self._budget = budget
        self.resident = self._bytes(x) <= budget
        self.x = x.to(device) if self.resident else x
        self.neighbours: Tensor | None = None  # rows of each sample's: (sample, neighbour)
        if neighbours is not None:
            self.pair(lambda x: neighbours)

    def __len__(self) -> int:
        return self.n

    def pair(self, search: Callable[[Tensor], Tensor]) -> None:
        """Search the rows of each sample's nearest neighbours, (sample, neighbour), where the samples are."""
        if not self.resident:
            raise MemoryError(
                "neighbours need all samples in the device's memory; set neighbours=0 and start='splits', or take fewer"
            )
        self.neighbours = search(self.x).to(self.device)

    def window(self, derived: int, batch_size: int) -> int | None:
        """How many samples to hold at a time, a multiple of the batch size, if each has so many derived numbers.

        None: all of them, once and for all.
        """
        each = 4 * (self.n_features + derived)
        if self.resident and each * self.n <= self._budget:
            return None
        return max(1, self._budget // (2 * each * batch_size)) * batch_size

    def chunk(self, sizes: dict[str, int] = CHUNK) -> int:
        """How many samples to ask about at a time on this device."""
        return min(sizes.get(self.device.type, sizes["cpu"]), self._most)

    def chunks(self, sizes: dict[str, int] = CHUNK) -> Iterator[Tensor]:
        """All samples in order, piece by piece, on the device."""
        for part in self.x.split(self.chunk(sizes)):
            yield part.to(self.device)

    def rows(self, index: Tensor) -> Tensor:
        """Some of the samples, on the device; ``index`` is on the CPU or on the device."""
        return self.x[index.to(self.x.device)].to(self.device)

    @staticmethod
    def _bytes(x: Tensor) -> int:
        return x.numel() * x.element_size()


class Ahead:
    """Fetches pieces of samples one ahead of their use, through pinned memory if the device is a GPU."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="treevae-samples")
        self._next: tuple[tuple[int, ...], Future[Tensor]] | None = None

    def get(self, key: tuple[int, ...], rows: Tensor) -> Tensor:
        """The samples ``rows``, on the device; ``key`` names the piece."""
        ready = self._next is not None and self._next[0] == key
        piece = self._next[1].result() if ready and self._next is not None else self._fetch(rows)
        self._next = None
        return piece.to(self._samples.device, non_blocking=True)

    def prepare(self, key: tuple[int, ...], rows: Tensor) -> None:
        """Begin to fetch a piece in the background."""
        self._next = key, self._pool.submit(self._fetch, rows)

    def _fetch(self, rows: Tensor) -> Tensor:
        piece = self._samples.x[rows.to(self._samples.x.device)]
        pin = self._samples.device.type == "cuda" and not piece.is_cuda
        return piece.pin_memory() if pin else piece


@torch.no_grad()
def over(module: nn.Module, samples: Samples, ask: Callable[[Tensor], Tensor], chunk: dict[str, int] = CHUNK) -> Tensor:
    """``ask`` of all samples, piece by piece, with the module in eval mode; pieces are joined along the first axis."""
    module.eval()
    answers, done = torch.empty(0), 0
    for part in samples.chunks(chunk):
        answer = ask(part)
        if done == 0:  # room for all of them at once: joined at the end, they would take twice as much
            answers = answer.new_empty(len(samples), *answer.shape[1:])
        answers[done : done + len(answer)] = answer
        done += len(answer)
    return answers
