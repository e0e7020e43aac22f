"""Training on augmented samples: which views are seen, and by whom."""

import dataclasses

import pytest
import torch
from contrastive_groves import PIECES, contrastive, grove, identity, noisy
from small_groves import ARCH, data, shape_of, story
from torch import Tensor

from treevae.model.module import TreeVAEModule
from treevae.training.events import EpochEnded, LeafChosen
from treevae.training.loop import Training
from treevae.training.objectives import WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.views import Views
from treevae.tree import Tree

# -- views ----------------------------------------------------------------------------------------------------------


def test_views_follow_each_other_and_their_seeds():
    views, x = Views(noisy, (2, 3), 2), torch.rand(3, 4, 6)
    views.draw(x, [1, 2, 1])
    first = views.held.clone()
    assert first.shape == (3, 8, 6)
    one, other = first.unflatten(1, (2, 4)).unbind(1)
    assert (one != other).flatten(1).any(1).all()  # two views of every sample
    torch.manual_seed(2)
    expected = [noisy(x[1].unflatten(1, (2, 3))).flatten(1) for _ in range(2)]  # all first views before all second ones
    assert torch.equal(first[1], torch.cat(expected))
    place = views.held.data_ptr()
    views.draw(x, [1, 2, 3])
    assert torch.equal(views.held[:2], first[:2])
    assert not torch.equal(views.held[2], first[2])
    assert views.held.data_ptr() == place  # where a captured step reads them


def test_an_augmentation_sees_samples_in_their_own_shape_and_may_change_them_in_place():
    seen = []

    def blacken(x: Tensor) -> Tensor:
        seen.append(x.shape)
        return x.zero_()

    x = torch.rand(2, 4, 6)
    before = x.clone()
    Views(blacken, (1, 2, 3), 2).draw(x, [0, 1])
    assert seen == [(4, 1, 2, 3)] * 4
    assert torch.equal(x, before)


def test_views_differ_also_where_an_augmentation_draws_once_for_a_batch():
    views = Views(lambda x: x * torch.rand(()), (6,), 2)
    views.draw(torch.rand(1, 4, 6), [0])
    one, other = views.held[0].chunk(2)
    assert (one != other).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: x[:, :1], r"\(4, 2, 3\); it returned \(4, 1, 3\)"),
        (lambda x: x[:2], r"it returned \(2, 2, 3\)"),
        (lambda x: x.numpy(), "it returned ndarray"),
        (lambda x: None, "it returned NoneType"),
    ],
)
def test_an_augmentation_that_returns_something_else_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Views(wrong, (2, 3), 1).draw(torch.rand(1, 4, 6), [0])


def test_training_on_views_leaves_the_users_random_numbers_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    list(grove(contrastive(n_leaves=2), [0]).events())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("n_init", "budget"), [(1, None), (2, PIECES)], ids=["resident", "in pieces"])
def test_views_that_change_nothing_change_nothing(n_init, budget):
    """The whole schedule: what a subtree knows of a sample is computed at every step, as it was once for all."""
    plan = dataclasses.replace(Plan.paper(epochs=2, n_leaves=4, batch_size=16), n_init=n_init)
    told, (weights,) = story(grove(plan, [0], None, budget))
    again, (viewed,) = story(grove(plan, [0], identity, budget))
    assert {event.stage for _, event in told if isinstance(event, EpochEnded)} >= {"first tree", "subtree", "final"}
    assert [shape_of(event) for _, event in told] == [shape_of(event) for _, event in again]
    for (_, ours), (_, theirs) in zip(again, told, strict=True):
        if isinstance(ours, EpochEnded):
            assert dataclasses.astuple(ours)[4:-2] == pytest.approx(dataclasses.astuple(theirs)[4:-2], rel=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(viewed[name], value, rtol=1e-3, atol=2e-4)  # a step moves by 1e-3


def test_a_step_sees_other_views_than_the_one_before():
    samples, views = data(16), Views(lambda x: x + 0.1 * torch.randn_like(x), (5,), 1)
    objective = WholeTree(TreeVAEModule(ARCH, [Tree().split(0)], torch.Generator()), samples, views)
    seen, plain_terms = [], objective.terms

    def terms(index, noise):
        order = index[0].argsort()
        seen.append(objective.views.held[0, order].clone())
        return plain_terms(index, noise)

    objective.terms = terms
    stage = Stage("s", 3, kl_step=0.1, learning_rate=1e-3, drop_after=9)
    list(Training(objective, samples, stage, 16, [0]).run())
    assert len(seen) == 3  # steps on the same 16 samples
    assert all((a != b).any(1).all() for a, b in ((seen[0], seen[1]), (seen[1], seen[2])))
    assert (torch.stack(seen) - samples.x).abs().max() < 0.6  # views of these samples, not of others


# -- several runs, windows, going on ----------------------------------------------------------------------------------


def views_seen(plan: Plan, seeds: list[int], monkeypatch) -> dict[int, list[Tensor]]:
    """The views of each run, by the seeds they were drawn with."""
    seen: dict[int, list[Tensor]] = {}
    plain_draw = Views.draw

    def draw(self, x, drawn_with):
        plain_draw(self, x, drawn_with)
        for seed, held in zip(drawn_with, self.held, strict=True):
            seen.setdefault(seed, []).append(held.clone())

    with monkeypatch.context() as patched:
        patched.setattr(Views, "draw", draw)
        views_seen.told, _ = story(grove(plan, seeds))
    return seen


def test_runs_side_by_side_see_the_same_views_as_each_alone(monkeypatch):
    plan = contrastive(n_leaves=3)
    together, told = views_seen(plan, [0, 1], monkeypatch), views_seen.told
    for r in (0, 1):
        alone, own = views_seen(plan, [r], monkeypatch), views_seen.told
        mine = [event for run, event in told if run == r]
        assert [shape_of(event) for event in mine] == [shape_of(event) for _, event in own]
        for ours, (_, theirs) in zip(mine[:2], own, strict=False):  # the epochs of the first tree
            numbers = [[part for part in one.to_dict().values() if isinstance(part, float)] for one in (ours, theirs)]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-3)
        assert alone.keys() <= together.keys()
        for seed, views in alone.items():
            assert all(torch.equal(a, b) for a, b in zip(together[seed], views, strict=True))


def test_views_of_samples_that_visit_in_pieces():
    plan = contrastive(n_init=2)
    told, (weights,) = story(grove(plan, [0]))
    again, (in_pieces,) = story(grove(plan, [0], budget=PIECES))
    assert any(isinstance(event, LeafChosen) for _, event in told)
    assert [shape_of(event) for _, event in told] == [shape_of(event) for _, event in again]
    for name, value in weights.items():
        torch.testing.assert_close(in_pieces[name], value, rtol=1e-3, atol=2e-4)  # a step moves by 1e-3
