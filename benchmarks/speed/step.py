"""How long does a training step take, and how does it grow with the tree?

    python -m benchmarks.speed.step [--device cpu] [--quick] [--out benchmarks/results/step-cpu.json]

A step is forward, backward and Adam with the paper's networks for 28x28 images: of a whole tree, of a subtree (with 1
and 8 candidates), of several runs side by side. Beside it, in the same run of this script, the plain twin of the tests:
node by node, torch's own layers and optimiser; in a subtree step it runs the whole frozen tree, as the authors' code
does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.subtree import Subtree
from treevae.training.engine import Stepper, keep_memory
from treevae.training.objectives import Objective, SubtreeOnSubset, WholeTree
from treevae.training.samples import Samples
from treevae.tree import balanced

from .. import record

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from twin import Twin

ARCH = Architecture((1, 28, 28), "cnn", "bernoulli", (8,) * 8, (128,) * 7)  # 8 levels: room for 100 leaves
PAPER = Architecture((1, 28, 28), "cnn", "bernoulli", (8,) * 6, (128,) * 5)


def timed(works: Sequence[Callable[[int], None]], device: torch.device, seconds: float) -> list[float]:
    """Milliseconds of a step of each work: the median of seven stretches, in turns, all on the same machine."""

    def stretch(work: Callable[[int], None], n: int) -> float:
        start = time.perf_counter()
        work(n)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / n

    for work in works:
        stretch(work, 2)
    lengths = [max(1, min(500, int(seconds / 7 / stretch(work, 3)))) for work in works]
    rounds = [[stretch(work, n) for work, n in zip(works, lengths, strict=True)] for _ in range(7)]
    return [1e3 * statistics.median(times) for times in zip(*rounds, strict=True)]


def ours(objective: Objective, batch_size: int) -> Callable[[int], None]:
    """Takes steps with the engine."""
    objective.hold_all()
    runs = len(objective.n_samples)
    stepper = Stepper(objective, batch_size, list(range(runs)), 1e-5)
    for run, n in enumerate(objective.n_samples):
        stepper.order[run, :n] = torch.randperm(n, device=stepper.order.device)
    stepper.kl_weight.fill_(0.1)
    stepper.adam.learning_rate.fill_(1e-3)
    per_epoch = min(objective.n_samples) // batch_size

    def steps(n: int) -> None:
        while n > 0:
            stepper.cursor.zero_()
            stepper.steps(min(n, per_epoch))
            n -= per_epoch

    return steps


def plain(module: TreeVAEModule, samples: Samples, batch_size: int, trained: set[int] | None) -> Callable[[int], None]:
    """Takes steps with the twin; only the networks of ``trained`` nodes learn, if given."""
    twin = Twin(module)
    if trained is None:
        twin.train(True)
    else:
        twin.train(False)
        for parameter in twin.parameters():
            parameter.requires_grad_(False)
        for nets in twin.nets.values():
            for node in trained & set(nets):
                nets[node].train(True).requires_grad_(True)
    learning = [parameter for parameter in twin.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, weight_decay=1e-5)

    def steps(n: int) -> None:
        for _ in range(n):
            x = samples.x[torch.randint(len(samples), (batch_size,), device=samples.device)]
            dims = twin.arch.latent_dims
            noise = {
                node: torch.randn(batch_size, dims[twin.tree.depth(node)], device=samples.device)
                for node in twin.tree.nodes
            }
            kl_root, terms = twin.elbo(x, noise)
            optimizer.zero_grad()
            (0.1 * (kl_root + terms.kl_nodes + terms.kl_decisions) - terms.reconstruction).mean().backward()
            optimizer.step()

    return steps


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="ten leaves at batch 256 only")
    given = parser.parse_args()
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    keep_memory()
    samples = Samples(torch.rand(16384 if on_gpu else 4096, 784, generator=torch.Generator().manual_seed(0)), device)
    rows: list[dict[str, Any]] = []

    def note(what: str, work: Callable[[int], None], twin: Callable[[int], None] | None, **about: int) -> None:
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        ms, *twin_ms = timed([work] if twin is None else [work, twin], device, 4)
        row: dict[str, Any] = {"what": what, **about, "ms": ms}
        if on_gpu:
            row["peak_mb"] = torch.cuda.max_memory_allocated() / 1e6
        if twin_ms:
            row |= {"twin_ms": twin_ms[0], "ratio": twin_ms[0] / ms}
        rows.append(row)
        print(", ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)

    def module(n_leaves: int) -> TreeVAEModule:
        arch = PAPER if n_leaves <= 32 else ARCH
        return TreeVAEModule(arch, [balanced(n_leaves)], torch.Generator().manual_seed(0)).to(device)

    for batch_size in (256,) if given.quick else (256, 2048):
        for n_leaves in (10,) if given.quick else (2, 10, 20, 50, 100):
            one = module(n_leaves)
            twin = plain(one, samples, batch_size, None) if n_leaves <= 20 and batch_size == 256 else None
            about = {"leaves": n_leaves, "batch": batch_size}
            if on_gpu or batch_size == 256 or n_leaves == 10:
                note("whole tree", ours(WholeTree(one, samples), batch_size), twin, **about)
    for n_leaves in (10, 20):
        for candidates in (1, 8):
            one = module(n_leaves)
            leaf = min(one.tree.leaves, key=one.tree.depth)
            depth = one.tree.depth(leaf)
            subtree = Subtree.new(one.arch, one.bottom_up.d_dims, depth, candidates, torch.Generator()).to(device)
            every = torch.arange(len(samples), device=device)
            objective = SubtreeOnSubset([one], [leaf], subtree, samples, [every])
            twin = None
            if candidates == 1:
                whole = module(n_leaves)
                whole.attach(leaf, subtree)
                twin = plain(whole, samples, 256, {leaf, *whole.tree.children(leaf)})
            note("subtree", ours(objective, 256), twin, leaves=n_leaves, batch=256, n_init=candidates)
    if on_gpu:
        for runs in (1, 2, 5, 10, 20):
            forest = TreeVAEModule(PAPER, [balanced(10)] * runs, torch.Generator().manual_seed(0)).to(device)
            note("runs side by side", ours(WholeTree(forest, samples), 256), None, leaves=10, batch=256, runs=runs)
    record.write(given.out, {"rows": rows}, given.device)


if __name__ == "__main__":
    main()
