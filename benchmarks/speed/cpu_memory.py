"""What does keeping freed memory save in a training step on the CPU?

    python -m benchmarks.speed.cpu_memory [--out benchmarks/results/cpu_memory.json]

A step is forward, backward and Adam on a batch of 28x28 images with the paper's sizes, on all cores. Each setting runs
in a process of its own, because glibc's thresholds cannot be taken back; the ratio is of the same run of this script.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.training.engine import keep_memory
from treevae.training.objectives import WholeTree
from treevae.training.samples import Samples
from treevae.tree import balanced

from .. import record
from .step import ours, timed

BATCH = 256


def milliseconds(network: str, n_leaves: int) -> float:
    """The median step of a tree with this many leaves."""
    arch = Architecture((1, 28, 28), network, "bernoulli", (8,) * 6, (128,) * 5)
    module = TreeVAEModule(arch, [balanced(n_leaves)], torch.Generator().manual_seed(0))
    cpu = torch.device("cpu")
    (milliseconds,) = timed([ours(WholeTree(module, Samples(torch.rand(16 * BATCH, 784), cpu)), BATCH)], cpu, 3)
    return milliseconds


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "cpu_memory.json")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # network, leaves, keep memory: one process's share
    given = parser.parse_args()
    if given.one:
        if given.one[2] == "keep":
            keep_memory()
        print(milliseconds(given.one[0], int(given.one[1])))
        return
    rows, alone = [], [sys.executable, "-m", "benchmarks.speed.cpu_memory", "--one"]
    for network in ("cnn", "mlp"):
        for n_leaves in (2, 10):
            plain, kept = (
                float(subprocess.check_output([*alone, network, str(n_leaves), memory])) for memory in ("plain", "keep")
            )
            rows.append({"network": network, "leaves": n_leaves, "plain_ms": plain, "kept_ms": kept})
            print(f"{network} {n_leaves:3} leaves  {plain:6.1f} ms  memory kept {kept:6.1f} ms  x {plain / kept:.2f}")
    record.write(given.out, {"batch": BATCH, "rows": rows})


if __name__ == "__main__":
    main()
