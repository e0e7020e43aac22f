"""What does one level more cost? Steps of trees that may have six and seven levels, in turns.

    python -m benchmarks.speed.levels [--device cpu] [--out FILE]

Ten leaves and the paper's networks for 28x28 images, batches of 256: a step of the whole tree, and of the first tree
with sixteen candidates. A level more is one more step of the bottom-up, whether a leaf stands there or not; a subtree
does not train the bottom-up.
"""

from __future__ import annotations

import argparse
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

LEVELS = (6, 7)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = torch.device(given.device)
    keep_memory()
    samples = Samples(torch.rand(4096, 784, generator=torch.Generator().manual_seed(0)), device)
    rows = []
    for what, n_leaves, candidates in (("whole tree", 10, 1), ("first tree", 2, 16)):
        works = []
        for levels in LEVELS:
            arch = Architecture((1, 28, 28), "cnn", "bernoulli", (8,) * levels, (128,) * (levels - 1))
            module = TreeVAEModule(arch, [balanced(n_leaves)] * candidates, torch.Generator().manual_seed(0))
            works.append(ours(WholeTree(module.to(device), samples), 256))
        ms = timed(works, device, 10)
        row = {
            "what": what,
            "leaves": n_leaves,
            "n_init": candidates,
            "levels": LEVELS,
            "ms": ms,
            "ratio": ms[1] / ms[0],
        }
        rows.append(row)
        print(row, flush=True)
    record.write(given.out, {"rows": rows}, given.device)


if __name__ == "__main__":
    main()
