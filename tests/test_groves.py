"""Several runs side by side, samples in pieces, and going on from a pause."""

import json

import pytest
import torch
from small_groves import ARCH, assert_same_weights, data, shape_of, story, tiny

from treevae.training import loop
from treevae.training.grove import Grove
from treevae.training.growth import Task
from treevae.tree import Tree


@pytest.mark.parametrize("n_init", [1, 2])
def test_runs_side_by_side_equal_each_alone(n_init):
    """The same samples, noise and trees, whoever stands beside; the weights up to rounding."""
    plan = tiny(n_init=n_init, n_leaves=5)
    told, weights = story(Grove(ARCH, data(160), plan, [0, 1, 2]))
    for r in range(3):
        alone, (own,) = story(Grove(ARCH, data(160), plan, [r]))
        assert [shape_of(event) for run, event in told if run == r] == [shape_of(event) for _, event in alone]
        for name, value in own.items():
            torch.testing.assert_close(weights[r][name], value, rtol=1e-3, atol=2e-4)  # a step moves by 1e-3


def test_runs_of_different_length_are_trained_together():
    """Subtrees on different numbers of samples: at least once several runs share a training."""
    grove, shared = Grove(ARCH, data(160), tiny(n_leaves=5), [0, 1, 2]), []
    for happened in grove.events():
        if happened is None and grove._training is not None and len(grove._members) > 1:
            shared.append((grove._tasks[0].leaf is None, tuple(grove._training.objective.n_samples)))
    assert any(whole for whole, _ in shared)
    assert any(len(set(sizes)) > 1 for whole, sizes in shared if not whole)


def test_subtrees_of_different_depth_are_not_trained_together():
    grove = Grove(ARCH, data(160), tiny(), [0, 1, 2])
    for run in grove.runs:
        run.plant([Tree().split(0)])
    depths = dict.fromkeys(range(3), 1)
    for depths[2] in (1, 2):
        for run, depth in zip(grove.runs, depths.values(), strict=True):
            run.task = Task(tiny().subtree, 0, 1, depth, torch.arange(40))
        assert grove._together() == [r for r, depth in depths.items() if depth == 1]


@pytest.mark.parametrize("n_init", [1, 2])
def test_samples_that_visit_in_pieces_train_the_same_model(n_init):
    plan = tiny(n_init=n_init)
    told, (weights,) = story(Grove(ARCH, data(160), plan, [0]))
    pieces = data(160, budget=5 * 4 * 64)
    assert pieces.window(0, 16) == 32  # a whole tree's; less where a subtree's evidence is kept as well
    again, (in_pieces,) = story(Grove(ARCH, pieces, plan, [0]))
    assert [shape_of(event) for _, event in told] == [shape_of(event) for _, event in again]
    for name, value in weights.items():
        torch.testing.assert_close(in_pieces[name], value, rtol=1e-3, atol=2e-4)  # a step moves by 1e-3


@pytest.mark.parametrize(
    ("seeds", "budget", "n_init"), [([0], None, 1), ([0], 5 * 4 * 64, 1), ([0, 1, 2], None, 1), ([0, 1], 5 * 4 * 64, 2)]
)
def test_a_grove_goes_on_from_any_pause_to_the_same_end(seeds, budget, n_init, monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    plan = tiny(n_init=n_init)
    grove, states, told = Grove(ARCH, data(160, budget), plan, seeds), [], []
    for happened in grove.events():
        if happened is not None:
            told.append(happened)
        else:
            about, tensors = grove.state()
            states.append((len(told), json.dumps(about), {name: value.clone() for name, value in tensors.items()}))
    weights = [run.module.state_dict() for run in grove.runs]
    assert len(states) > 50
    for i in range(0, len(states), len(states) // 4):
        so_far, about, tensors = states[i]
        other = Grove(ARCH, data(160, budget), plan, seeds)
        other.restore(json.loads(about), tensors)
        rest, end = story(other)
        assert rest == told[so_far:]
        for ours, theirs in zip(end, weights, strict=True):
            assert_same_weights(ours, theirs)
