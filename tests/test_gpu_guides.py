"""On a GPU: captured steps with neighbours and labels, against the same steps one by one and against the CPU."""

import dataclasses

import numpy as np
import pytest
import torch
from gpu_steps import GPU, SMALL, samples, single_precision, weights

from treevae.guides import Guide, nearest
from treevae.model.module import TreeVAEModule
from treevae.model.subtree import Subtree
from treevae.training.engine import Stepper
from treevae.training.events import EpochEnded
from treevae.training.grove import Grove
from treevae.training.guided import Guided
from treevae.training.loop import Training
from treevae.training.objectives import SubtreeOnSubset, WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples
from treevae.training.terms import Agreement, Guidance
from treevae.tree import Tree

pytestmark = pytest.mark.gpu
TREE = Tree().split(0).split(1)
N = 640
LABELS = np.random.default_rng(0).integers(-1, 3, N)


@pytest.fixture(autouse=True)
def _single_precision():
    with single_precision():
        yield


def with_neighbours(device: torch.device) -> Samples:
    x = samples(N).x.cpu()
    return Samples(x, device, neighbours=nearest(x, 5))


@pytest.mark.parametrize("kind", ["guided", "stacked", "subtree"])
def test_a_captured_step_with_neighbours_is_the_step(kind, monkeypatch):
    data, found = with_neighbours(GPU), []
    terms = (Agreement(10.0),) if kind == "subtree" else (Guidance(5.0, 2), Agreement(10.0))
    stage = Stage("s", 2, kl_step=0.1, learning_rate=1e-3, drop_after=1, terms=terms)
    for captured in (True, False):
        runs = 3 if kind == "stacked" else 1
        module = TreeVAEModule(SMALL, [TREE] * runs, torch.Generator().manual_seed(0)).to(GPU)
        if kind == "subtree":
            new = Subtree.new(SMALL, module.bottom_up.d_dims, 1, 2, torch.Generator().manual_seed(1)).to(GPU)
            objective = SubtreeOnSubset([module], [2], new, data, [torch.arange(0, 512, device=GPU)], terms=terms)
        else:
            labels = torch.tensor(LABELS, device=GPU).expand(runs, N)
            objective = WholeTree(module, data, terms=terms, labels=labels)
        training = Training(objective, data, stage, 64, [7, 8, 9][:runs])
        if not captured:
            monkeypatch.setattr(Stepper, "_capture", lambda self: None)
        means = [done.means for done in training.run() if done is not None]
        assert (training._stepper._graph is not None) == captured
        found.append((weights(objective.network), means, objective.remembered["mass"].cpu()))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0][2], found[1][2], rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(found[0][1], found[1][1], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("way", ["guided", "splits"])
def test_the_parts_of_the_loss_are_those_of_the_cpu(way):
    """Up to the noise and the order, which each device draws its own way: means over an epoch are close."""
    guide = Guide(LABELS, TREE)
    plan, start = Plan.guided(6, 3, 64, 5.0, 10.0), Guided(lambda seed: [(guide, 1.0)])
    if way == "splits":
        plan, start = dataclasses.replace(Plan.paper(2, 3, 64, agreement=10.0), n_init=2), None
    told = []
    for device in (GPU, torch.device("cpu")):
        events = Grove(SMALL, with_neighbours(device), plan, [0], start).events()
        told.append([event for _, event in filter(None, events) if isinstance(event, EpochEnded)])
    ours, theirs = (epochs[0] for epochs in told)
    assert ours.more.keys() == theirs.more.keys()
    assert ours.more == pytest.approx(dict(theirs.more), rel=0.1, abs=0.1)
    assert ours.elbo == pytest.approx(theirs.elbo, rel=0.02)
    assert [event.stage for event in told[0]][:2] == [event.stage for event in told[1]][:2]
    assert all(np.isfinite(list(event.more.values())).all() for event in told[0])
