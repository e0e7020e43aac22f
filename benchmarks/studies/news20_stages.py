"""Where does TreeVAE on 20Newsgroups begin to overfit, and does another final stage repair it?

    python -m benchmarks.studies.news20_stages --root DATA [--seed 0] [--scale 1.0] [--leaves 20] [--leave-frozen] \
        [--whole-drop 100] [--weight-decay 1e-5] [--only NAME …]

One tree by the paper's recipe, its ELBO on training and test texts after every stage of growing; then the final stage
several times from the same grown tree, by the paper's schedule and by others. Left frozen, the tree is never trained as
a whole before its final stage. The authors' TensorFlow code lowers the learning rate of those stages after 40 epochs
instead of 100, i.e. never, and has no weight decay.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treevae import TreeVAE
from treevae.data import load
from treevae.fitting import Seeds
from treevae.metrics import accuracy, nmi
from treevae.model.elbo import TERMS
from treevae.model.module import TreeVAEModule
from treevae.model.scoring import score_terms
from treevae.parameters import device_of
from treevae.preparing import prepare
from treevae.starting import plan_of
from treevae.training.events import EpochEnded, TreeChanged
from treevae.training.grove import Grove
from treevae.training.growing import Given
from treevae.training.plan import Stage
from treevae.training.samples import Samples, over

from .. import record
from .plans import with_weight_decay

EVERY = 20  # epochs of a final stage between two looks


def finals(paper: Stage) -> dict[str, Stage]:
    """Schedules of the final stage to compare."""
    return {
        "paper": paper,
        "rate kept": replace(paper, drop_after=paper.epochs),
        "whole KL from the start": replace(paper, kl_start=1.0),
        "whole KL from the start, rate kept": replace(paper, kl_start=1.0, drop_after=paper.epochs),
        "500 epochs, rate kept": replace(paper, epochs=paper.epochs * 5 // 2, drop_after=paper.epochs * 5 // 2),
    }


class Looker:
    """Judges a model on both parts of the data, whose classes it knows."""

    def __init__(self, train: tuple[Samples, np.ndarray], test: tuple[Samples, np.ndarray]) -> None:
        self._parts = {"train": train, "test": test}

    def __call__(self, module: TreeVAEModule) -> dict[str, Any]:
        """The mean terms of the ELBO on each part, of one draw, and what its leaves tell of the classes."""
        was_training = module.training
        module.eval()
        judged: dict[str, Any] = {"leaves": len(module.tree.leaves)}
        for name, (samples, y) in self._parts.items():
            leaves = over(module, samples, lambda x: module.reach(x).argmax(1)).cpu().numpy()
            terms = over(module, samples, lambda x: score_terms(module, x, 1).values.T).mean(0)
            named = dict(zip(TERMS, terms.tolist(), strict=True))
            kl = sum(value for term, value in named.items() if term != "reconstruction")
            scores = {"ELBO": named["reconstruction"] - kl, "ACC": accuracy(leaves, y), "NMI": nmi(leaves, y)}
            judged[name] = named | scores
        module.train(was_training)
        return judged


def looks(grove: Grove, look: Looker, every: int | None = None) -> Iterator[dict[str, Any]]:
    """Train what a grove of one run has to train, and look after every stage, or every so many epochs of one."""
    (run,) = grove.runs
    for told in grove.events():
        event = told[1] if told is not None else None
        if isinstance(event, EpochEnded):
            last = event
            often = every is not None and event.epoch % every == 0
            due = event.leaf is None and (often or event.epoch == event.epochs)
        else:
            due = isinstance(event, TreeChanged) and last.leaf is not None  # a trained subtree is part of it now
        if due:
            yield {"stage": last.stage, "epoch": last.epoch, **look(run.module)}


def main() -> None:
    """Grow, look, train the last stage in several ways; print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="of the schedule")
    parser.add_argument("--leaves", type=int, default=20, help="of the paper's Table 1; its Table 2 is of 10")
    parser.add_argument("--leave-frozen", action="store_true", help="no whole-tree stages after every third split")
    parser.add_argument(
        "--whole-drop",
        type=int,
        default=100,
        help="epochs of a whole-tree stage, at scale 1, after which its learning rate falls",
    )
    parser.add_argument("--weight-decay", type=float, default=Stage.weight_decay)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the final stages")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = load("news20", given.root)
    model = TreeVAE.recipe("news20", n_leaves=given.leaves)
    model.set_params(epochs=max(1, round(model.epochs * given.scale)))
    parameters = model.get_params(deep=False)
    prepared = prepare("TreeVAE", parameters, data.x_train)
    arch = prepared.arch
    assert data.y_train is not None
    assert data.y_test is not None
    device = device_of("auto")
    samples = Samples(prepared.x, device, largest=arch.largest_activation)
    test = Samples(torch.from_numpy(data.x_test), device, largest=arch.largest_activation)
    look = Looker((samples, data.y_train), (test, data.y_test))
    plan = with_weight_decay(plan_of(parameters, len(samples)), given.weight_decay)
    assert plan.whole is not None
    plan = replace(plan, whole=replace(plan.whole, drop_after=max(1, round(given.whole_drop * given.scale))))
    assert plan.final is not None
    stages = finals(plan.final)
    if unknown := set(given.only or ()) - set(stages):
        parser.error(f"--only {', '.join(sorted(unknown))}: allowed are {', '.join(stages)}")
    seeds = Seeds.of([given.seed]).numbers

    def show(name: str, one: dict[str, Any]) -> dict[str, Any]:
        figures = {
            part: f"{one[part]['ELBO']:.2f} (RL {-one[part]['reconstruction']:.2f}, NMI {one[part]['NMI']:.3f})"
            for part in ("train", "test")
        }
        print(name, one["stage"], one["epoch"], one["leaves"], figures, flush=True)
        return one

    growing = replace(plan, final=None, whole=None if given.leave_frozen else plan.whole)
    grove = Grove(arch, samples, growing, seeds)
    grown = [show("growing", one) for one in looks(grove, look)]
    figures: dict[str, Any] = {"seed": given.seed, "growing": grown, "final": {}}
    for name in given.only or stages:
        stage = stages[name]
        one_stage = replace(plan, first=stage, final=None)  # all that a given tree is trained for
        again = Grove(arch, samples, one_stage, seeds, start=Given(grove.runs[0].module.tree))
        again.runs[0].module = TreeVAEModule.of([(grove.runs[0].module, 0)])
        figures["final"][name] = [show(name, one) for one in looks(again, look, EVERY)]
    record.write(given.out, figures, str(device))


if __name__ == "__main__":
    main()
