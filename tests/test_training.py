"""The stages of the recipe and the loop that trains one."""

import dataclasses

import pytest
import torch
from small_groves import ARCH, CPU, data, fixed_module, trained

from treevae.training.loop import DivergedError, Training
from treevae.training.objectives import WholeTree
from treevae.training.plan import Plan, Stage
from treevae.training.samples import Samples
from treevae.training.terms import Contrast

# -- schedules ----------------------------------------------------------------------------------------------------


def test_the_papers_stages():
    plan = Plan.paper()
    assert (plan.first.epochs, plan.subtree.epochs, plan.whole.epochs, plan.final.epochs) == (150, 150, 80, 200)
    assert plan.whole_every == 3
    assert [plan.first.kl_weight(e) for e in (0, 1, 149)] == pytest.approx([0, 0.001, 0.149])
    assert [plan.final.kl_weight(e) for e in (0, 50, 100, 199)] == pytest.approx([0, 0.5, 1, 1])
    assert [plan.first.rate(e) for e in (0, 99, 100, 149)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    assert plan.first.weight_decay == 1e-5


@pytest.mark.parametrize("epochs", [15, 30, 300])
def test_other_lengths_keep_the_proportions(epochs):
    short, paper = Plan.paper(epochs), Plan.paper()
    scale = epochs / 150
    for name in ("first", "subtree", "whole", "final"):
        ours, theirs = getattr(short, name), getattr(paper, name)
        assert ours.epochs == pytest.approx(theirs.epochs * scale, abs=0.5)
        assert ours.drop_after == pytest.approx(100 * scale, abs=1)
        assert ours.kl_weight(round(theirs.epochs * scale / 2)) == pytest.approx(
            theirs.kl_weight(theirs.epochs // 2), abs=0.01 / scale
        )


@pytest.mark.parametrize("epochs", [1, 2, 5, 8, 20, 38, 50, 150, 200])
def test_the_rate_drops_once_in_the_final_stage(epochs):
    final = Plan.paper(epochs).final
    rates = [final.rate(epoch) for epoch in range(final.epochs)]
    assert min(rates) == pytest.approx(1e-4 if final.epochs > 1 else 1e-3)


def test_contrastive_stages_start_with_some_kl_and_never_train_the_whole_tree():
    plan = Plan.paper(contrast=Contrast("both", 100.0))
    for stage in (plan.first, plan.subtree):
        assert [stage.kl_weight(e) for e in (0, 1, 98, 99, 149)] == pytest.approx([0.01, 0.02, 0.99, 1, 1])
    assert (plan.whole, plan.final) == (None, None)


def test_steps_of_a_stage_on_the_papers_mnist():
    """The whole schedule takes 201,540 steps; first tree, two fine-tunes and the final stage make 119,340."""
    plan, per_epoch = Plan.paper(), 60_000 // 256
    assert per_epoch * (plan.first.epochs + 2 * plan.whole.epochs + plan.final.epochs) == 119_340


# -- the loop -----------------------------------------------------------------------------------------------------


def test_a_short_last_batch_is_dropped_and_rates_are_followed(monkeypatch):
    samples = data(50)
    objective, seen = WholeTree(fixed_module(), samples), []
    stage = Stage("s", 3, kl_step=0.25, learning_rate=1e-3, drop_after=2)
    training = Training(objective, samples, stage, 16, [0])
    stepper, plain = training._stepper, objective.terms

    def terms(index, noise):
        seen.append((index, stepper.kl_weight.item(), stepper.adam.learning_rate.item()))
        return plain(index, noise)

    monkeypatch.setattr(objective, "terms", terms)
    epochs = [done for done in training.run() if done is not None]
    assert [tuple(index.shape) for index, _, _ in seen] == [(1, 16)] * 9
    assert [weight for _, weight, _ in seen] == [0] * 3 + [0.25] * 3 + [0.5] * 3
    assert [rate for _, _, rate in seen] == pytest.approx([1e-3] * 6 + [1e-4] * 3)
    for epoch in range(3):
        rows = torch.cat([index.flatten() for index, _, _ in seen[3 * epoch : 3 * epoch + 3]])
        assert len(set(rows.tolist())) == 48  # no sample twice in an epoch
    assert [(done.epoch, done.last) for done in epochs] == [(0, False), (1, False), (2, True)]


def test_training_improves_the_elbo():
    samples = data()
    stage = Stage("s", 30, kl_step=0.0, learning_rate=1e-2, drop_after=100)
    means = [done.means for done in trained(WholeTree(fixed_module(), samples), samples, stage)]
    assert means[-1]["reconstruction"] > means[0]["reconstruction"] + 1


def test_a_loss_that_is_not_finite_names_stage_epoch_and_term():
    module = fixed_module(arch=dataclasses.replace(ARCH, likelihood="gaussian"))
    samples = Samples(data().x * 1e30, CPU)
    stage = Stage("first tree", 2, kl_step=0.0, learning_rate=1e-3, drop_after=100)
    with pytest.raises(DivergedError, match=r"stage 'first tree', epoch 1 of 2: reconstruction = -?(inf|nan)"):
        trained(WholeTree(module, samples), samples, stage)
