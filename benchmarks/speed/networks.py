"""How long does a training step take with the paper's larger networks, with augmentation and the contrastive loss?

    python -m benchmarks.speed.networks [--device cuda] [--out benchmarks/results/networks-cuda.json]

A step is forward, backward and Adam at batch 256 (with a contrastive loss: 128 images, each seen twice), of a whole
tree and of a subtree, with the recipes of CIFAR-10, Omniglot and 20Newsgroups on random samples. Beside it, in the same
run of this script, the plain twin of the tests without any augmentation or contrastive loss; in a subtree step it runs
the whole frozen tree.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from treevae.data.augment import AUGMENTATIONS
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.subtree import Subtree
from treevae.recipes import RECIPES
from treevae.training.engine import keep_memory
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.samples import Samples
from treevae.training.terms import Contrast
from treevae.training.views import Views
from treevae.tree import balanced

from .. import record
from .step import ours, plain, timed

SHAPES = {"cifar10": (3, 32, 32), "omniglot": (1, 28, 28), "news20": (2000,)}
LEAVES = {"cifar10": (2, 10), "omniglot": (2, 10), "news20": (2, 20)}


def architecture(name: str) -> Architecture:
    """The networks of a recipe."""
    recipe, shape = RECIPES[name], SHAPES[name]
    levels, contrastive = recipe["max_depth"] + 1, "contrastive_weight" in recipe
    return Architecture(
        shape,
        recipe["network"],
        recipe["likelihood"],
        (recipe["latent_dim"],) * levels,
        (recipe["hidden_dim"],) * (levels - 1),
        n_projections=levels if contrastive else 0,
    )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=2, help="to spend on each figure")
    given = parser.parse_args()
    device, rows = torch.device(given.device), []
    keep_memory()

    def note(data: str, what: str, work: Callable[[int], None], twin: Callable[[int], None]) -> None:
        ms, twin_ms = timed([work, twin], device, given.seconds)
        rows.append({"data": data, "what": what, "ms": ms, "twin_ms": twin_ms, "ratio": twin_ms / ms})
        print(f"{data}, {what}: {ms:.2f} ms, twin {twin_ms:.2f} ms, × {twin_ms / ms:.1f}")

    for name, arch in ((name, architecture(name)) for name in SHAPES):
        augment = RECIPES[name].get("augment")
        terms = (Contrast("both", RECIPES[name]["contrastive_weight"]),) if arch.n_projections else ()
        n_views = max((term.views for term in terms), default=1)
        batch = 256 // n_views

        def views(augment: Any = augment, arch: Architecture = arch, n_views: int = n_views) -> Views | None:
            return None if augment is None else Views(AUGMENTATIONS[augment], arch.input_shape, n_views)

        features = torch.Size(arch.input_shape).numel()
        samples = Samples(torch.rand(4096, features, generator=torch.Generator().manual_seed(0)), device)
        for n in LEAVES[name]:
            module = TreeVAEModule(arch, [balanced(n)], torch.Generator().manual_seed(0)).to(device)
            tree = module.tree
            work = ours(WholeTree(module, samples, views(), terms), batch)
            note(name, f"whole tree, {n} leaves", work, plain(module, samples, 256, None))
        leaf = tree.leaves[0]
        depth, few = tree.depth(leaf), torch.arange(2048, device=device)
        subtree = Subtree.new(arch, module.bottom_up.d_dims, depth, 1, torch.Generator().manual_seed(0)).to(device)
        objective = SubtreeOnSubset([module], [leaf], subtree, samples, [few], views(), terms)
        grown = TreeVAEModule(arch, [tree.split(leaf)], torch.Generator().manual_seed(0)).to(device)
        children = {leaf, *grown.tree.children(leaf)}
        twin = plain(grown, samples, 256, children)
        note(name, f"subtree in a tree of {len(tree.leaves)} leaves", ours(objective, batch), twin)
    record.write(given.out, {"steps": rows}, given.device)


if __name__ == "__main__":
    main()
