"""Candidates that race: the worse half leaves as a stage goes by."""

import dataclasses
import json

import pytest
import torch
from small_groves import ARCH, THREE, assert_same_weights, data, grown, shape_of, story, tiny

from treevae.model.module import TreeVAEModule
from treevae.training import choosing, loop
from treevae.training.choosing import Choices, compare
from treevae.training.events import CandidatesCompared, EpochEnded, from_dict
from treevae.training.grove import Grove
from treevae.training.growing import Splits
from treevae.training.plan import Plan, Work
from treevae.tree import Tree

HALVES = (0.25, 0.5, 0.75)


def racing(**changes) -> Plan:
    """A plan whose stages have four epochs and more, with five candidates."""
    plan = dataclasses.replace(Plan.paper(epochs=4, n_leaves=4, batch_size=16), n_init=5, race=HALVES)
    return dataclasses.replace(plan, **changes)


# -- the plan -----------------------------------------------------------------------------------------------------


def heats(plan: Plan) -> list[tuple[int, int, int]]:
    """The heats of the first stage: from which epoch until which, of how many."""
    first, candidates, told = 0, plan.n_init, []
    while first < plan.first.epochs:
        last, keep = plan.heat(plan.first, first, candidates)
        told.append((first, last, candidates))
        first, candidates = last, keep
    return told


@pytest.mark.parametrize(
    ("epochs", "n_init", "race", "expected"),
    [
        (32, 16, (1 / 16, 1 / 8, 1 / 4, 1 / 2), [(0, 2, 16), (2, 4, 8), (4, 8, 4), (8, 16, 2), (16, 32, 1)]),
        (32, 16, (1 / 8, 1 / 8, 1 / 2), [(0, 4, 16), (4, 16, 4), (16, 32, 2)]),  # two are compared at the end
        (32, 5, (1 / 8, 1 / 4, 1 / 2), [(0, 4, 5), (4, 8, 3), (8, 16, 2), (16, 32, 1)]),
        (32, 2, (1 / 8, 1 / 4, 1 / 2), [(0, 4, 2), (4, 32, 1)]),
        (2, 16, (1 / 16, 1 / 8, 1 / 4, 3 / 4), [(0, 1, 16), (1, 2, 2)]),  # three halvings at once
        (1, 16, (1 / 16, 1 / 2), [(0, 1, 16)]),
        (32, 16, (), [(0, 32, 16)]),
        (32, 1, (1 / 8,), [(0, 32, 1)]),
    ],
)
def test_the_worse_half_leaves_at_each_share_of_a_stage(epochs, n_init, race, expected):
    assert heats(dataclasses.replace(Plan.paper(epochs), n_init=n_init, race=race)) == expected


@pytest.mark.parametrize("race", [(0.0,), (0.5, 1.0), (0.5, 0.25)])
def test_shares_that_are_none_are_refused(race):
    with pytest.raises(ValueError, match="must be shares of a stage, between 0 and 1, the smallest first"):
        tiny(race=race)


def test_a_race_is_written_down_and_read_back():
    plan = racing()
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert "race" not in tiny().to_dict()  # states of earlier versions have none
    assert Plan.from_dict(tiny().to_dict()) == tiny()


def test_a_race_is_less_work():
    plan = dataclasses.replace(Plan.paper(epochs=32), n_init=16)
    race = dataclasses.replace(plan, race=(1 / 16, 1 / 8, 1 / 4, 1 / 2))
    one = dataclasses.replace(plan, n_init=1)
    share = [Work(each, None).add(1.0) for each in (plan, race, one)]
    assert share == sorted(share)  # of which one unit is the larger share


# -- what is told and kept ------------------------------------------------------------------------------------------


def test_events_tell_of_each_heat():
    events = grown(data(160), racing(n_leaves=3))
    compared = [event for event in events if isinstance(event, CandidatesCompared)]
    assert [len(event.losses) for event in compared] == [5, 3, 2] * 2
    assert [event.leaf is None for event in compared] == [True] * 3 + [False] * 3
    for event in compared:
        assert len(set(event.kept)) == len(event.kept) == {5: 3, 3: 2, 2: 0}[len(event.losses)]
        assert event.kept == () or event.kept[0] == event.chosen
        assert from_dict(json.loads(json.dumps(event.to_dict()))) == event
    epochs = [event for event in events if isinstance(event, EpochEnded)]
    for stage in ("first tree", "subtree"):
        assert [event.epoch for event in epochs if event.stage == stage] == [1, 2, 3, 4]
        assert len({event.kl_weight for event in epochs if event.stage == stage}) == 4  # it rises on
    progress = [event.progress for event in epochs]
    assert progress == sorted(progress)
    assert 0 < progress[0] < progress[-1] <= 1


def test_without_a_race_nothing_is_told_of_one():
    (first, *_) = (e for e in grown(data(160), tiny(n_init=3)) if isinstance(e, CandidatesCompared))
    assert first.kept == ()
    assert "kept" not in first.to_dict()


def test_those_kept_are_the_best_then_the_best_of_the_others(monkeypatch):
    monkeypatch.setattr(choosing, "evaluate", lambda *_: torch.tensor([1.0, 2.0, 3.0, 0.0, 4.0]))
    right = torch.tensor([[0.4, 0.6], [0.11, 0.89], [0.9, 0.1], [0.01, 0.01], [0.69, 0.31]])
    objective = type("Stub", (), {"right": lambda self: right})()
    # 3 looks sure, but has an empty child; 1 is nearly as sure as 2 and better; of the others 4 is surer than 0
    for keep, kept in ((2, (1, 2)), (3, (1, 2, 4)), (5, (1, 2, 4, 0, 3))):
        told = compare(objective, data(), tiny().subtree, 7, 0, tiny(), keep)
        assert (told.chosen, told.kept) == (kept[0], kept)


def still(plan: Plan) -> Plan:
    """The plan with no learning and no splits, so that what a race keeps can be told by its weights."""
    first = dataclasses.replace(plan.first, learning_rate=0.0, weight_decay=0.0)
    return dataclasses.replace(plan, first=first, subtree=None, whole=None, final=None)


def test_a_race_of_sixteen_keeps_the_one_that_is_clear():
    samples = data(160)
    good = Grove(ARCH, samples, dataclasses.replace(Plan.paper(epochs=40, n_leaves=2, batch_size=16), final=None), [3])
    list(good.events())
    plan = still(racing(n_init=16, race=(0.25, 0.25, 0.5, 0.75), min_share=0.0))
    grove = Grove(ARCH, samples, plan, [0])
    (run,) = grove.runs
    run.plant([Tree().split(0)] * 16)
    trees = [(run.module, i) for i in range(16)]
    trees[11] = (good.runs[0].module, 0)
    run.module = TreeVAEModule.of(trees, 16)
    compared = [event for _, event in filter(None, grove.events()) if isinstance(event, CandidatesCompared)]
    assert [len(event.losses) for event in compared] == [16, 4, 2]
    ours, theirs = dict(run.module.named_parameters()), dict(good.runs[0].module.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_first_trees_of_several_shapes_race():
    shapes = [Tree().split(0), THREE, THREE.split(2), THREE.split(3)]

    @dataclasses.dataclass(frozen=True)
    class Shapes(Splits):
        def choose(self, run, samples):
            if not run.planted:
                run.plant(shapes)
            yield from super().choose(run, samples)

    def third(objective, samples, stage, leaf, seed, plan, keep=1):
        seen.append((stage.epochs, keep))
        told = compare(objective, samples, stage, leaf, seed, plan, keep)
        places = [tree.to_json() for tree in objective.network.nodes.layout.trees]
        chosen = places.index(shapes[2].to_json())
        others = [i for i in range(len(places)) if i != chosen]
        return dataclasses.replace(told, chosen=chosen, kept=(chosen, *others)[:keep] if keep > 1 else ())

    seen = []
    plan = dataclasses.replace(racing(n_init=4), subtree=None, whole=None)
    events = grown_by(plan, Shapes(Choices(compare=third)))
    assert seen == [(1, 2), (2, 1)]
    assert events[-1].tree == shapes[2]


def grown_by(plan: Plan, start: Splits) -> list:
    return [event for _, event in filter(None, Grove(ARCH, data(160), plan, [0], start).events())]


def test_a_rule_that_knows_no_races_is_refused():
    def without(objective, samples, stage, leaf, seed, plan, keep=1):
        return compare(objective, samples, stage, leaf, seed, plan)

    with pytest.raises(ValueError, match=r"kept \(\); in a race it must keep 3"):
        grown_by(racing(), Splits(Choices(compare=without)))


# -- side by side, and going on -----------------------------------------------------------------------------------


def test_races_side_by_side_equal_each_alone():
    plan = racing(n_leaves=5)
    told, weights = story(Grove(ARCH, data(160), plan, [0, 1, 2]))
    for r in range(3):
        alone, (own,) = story(Grove(ARCH, data(160), plan, [r]))
        assert [shape_of(event) for run, event in told if run == r] == [shape_of(event) for _, event in alone]
        for name, value in own.items():
            torch.testing.assert_close(weights[r][name], value, rtol=1e-3, atol=5e-4)  # a step moves by 1e-3


def test_heats_of_different_length_are_run_together():
    grove, shared = Grove(ARCH, data(160), racing(n_leaves=5), [0, 1, 2]), set()
    for happened in grove.events():
        if happened is None and grove._training is not None and len(grove._members) > 1:
            objective = grove._training.objective
            shared |= {objective.n_trees // len(grove._members)} if len(set(objective.n_samples)) > 1 else set()
    assert shared == {5, 3, 2, 1}


@pytest.mark.parametrize(("seeds", "budget"), [([0], None), ([0, 1, 2], None), ([0, 1], 5 * 4 * 64)])
def test_a_race_goes_on_from_any_pause_to_the_same_end(seeds, budget, monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0)
    plan = racing(n_leaves=5)
    grove, states, told = Grove(ARCH, data(160, budget), plan, seeds), [], []
    for happened in grove.events():
        if happened is not None:
            told.append(happened)
            continue
        about, tensors = grove.state()
        kind = (grove._tasks[0].leaf is None, grove._tasks[0].first, bool(grove._ended))
        states.append((kind, len(told), json.dumps(about), {name: value.clone() for name, value in tensors.items()}))
    weights = [run.module.state_dict() for run in grove.runs]
    of_kind = {state[0]: state for state in states}  # the last of each
    assert {kind[:2] for kind in of_kind} >= {(whole, first) for whole in (True, False) for first in range(4)}
    assert any(kind[2] for kind in of_kind) == (len(seeds) == 3)  # some run waits for the others
    for _, so_far, about, tensors in [*of_kind.values(), *states[:: len(states) // 4]]:
        other = Grove(ARCH, data(160, budget), plan, seeds)
        other.restore(json.loads(about), tensors)
        rest, end = story(other)
        assert rest == told[so_far:]
        for ours, theirs in zip(end, weights, strict=True):
            assert_same_weights(ours, theirs)
