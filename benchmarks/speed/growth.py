"""How do time and memory grow with the samples, and how fast is `predict`?

    python -m benchmarks.speed.growth [--device cpu] [--out benchmarks/results/growth-cpu.json]

A short fit on random images of 28x28 with more and more samples: seconds of an epoch, peak memory beyond the samples.
The same fit with its samples in host memory, visiting the device in pieces. `predict` in samples a second.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treevae import TreeVAE
from treevae.model.module import TreeVAEModule
from treevae.training.engine import keep_memory
from treevae.training.loop import Training
from treevae.training.objectives import WholeTree
from treevae.training.plan import Stage
from treevae.training.samples import Samples
from treevae.tree import balanced

from .. import record
from .step import PAPER

STAGE = Stage("whole tree", 2, kl_step=0.01, learning_rate=1e-3, drop_after=100)


def epoch(x: torch.Tensor, device: torch.device, budget: int | None) -> dict[str, Any]:
    """Seconds of the second epoch of a ten-leaf tree, and the peak of memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    samples = Samples(x, device, budget)
    module = TreeVAEModule(PAPER, [balanced(10)], torch.Generator().manual_seed(0)).to(device)
    moments = []
    for done in Training(WholeTree(module, samples), samples, STAGE, 256, [0]).run():
        if done is not None:
            moments.append(time.perf_counter())
    row: dict[str, Any] = {"samples": len(x), "resident": samples.resident, "seconds": moments[1] - moments[0]}
    if device.type == "cuda":
        held = x.numel() * 4 if samples.resident else 0
        row["peak_mb_beyond_samples"] = (torch.cuda.max_memory_allocated() - held) / 1e6
    else:
        row["peak_mb_of_process_so_far"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return row


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device, rows = torch.device(given.device), []
    on_gpu = device.type == "cuda"
    keep_memory()
    x = torch.rand(480_000 if on_gpu else 8_000, 784, generator=torch.Generator().manual_seed(0))

    def note(what: str, **figures: Any) -> None:
        rows.append({"what": what, **figures})
        print(what, figures, flush=True)

    for n in (60_000, 120_000, 240_000, 480_000) if on_gpu else (2_000, 4_000, 8_000):
        note("epoch", **epoch(x[:n], device, None))
    note("epoch in pieces", **epoch(x[: 240_000 if on_gpu else 8_000], device, (200 << 20) if on_gpu else 12 << 20))
    images = (x[: 60_000 if on_gpu else 2_000].numpy() * 255).astype(np.uint8).reshape(-1, 28, 28)
    for n_leaves in (10, 100):
        model = TreeVAE(tree=balanced(n_leaves), max_depth=7, epochs=1, batch_size=256, device=str(device))
        model.fit(images[:2560])
        model.predict(images)
        start = time.perf_counter()
        model.predict(images)
        note("predict", leaves=n_leaves, samples_a_second=len(images) / (time.perf_counter() - start))
    record.write(given.out, {"rows": rows}, given.device)


if __name__ == "__main__":
    main()
