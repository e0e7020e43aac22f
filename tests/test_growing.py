"""Growing a tree: what is frozen, what is pruned, what is told."""

import pytest
import torch
from small_groves import ARCH, CPU, THREE, data, fixed_module, grown, story, tiny, trained

from treevae.model.module import TreeVAEModule
from treevae.model.subtree import Subtree
from treevae.training.choosing import prune
from treevae.training.events import EpochEnded, LeafChosen, LeafPruned, TreeChanged
from treevae.training.grove import Grove
from treevae.training.objectives import SubtreeOnSubset
from treevae.training.samples import Samples
from treevae.tree import Tree

# -- growing ------------------------------------------------------------------------------------------------------


def test_everything_outside_the_subtree_is_frozen_to_the_byte():
    module = TreeVAEModule(ARCH, [THREE], torch.Generator().manual_seed(0))
    samples = data()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    subtree = Subtree.new(ARCH, module.bottom_up.d_dims, 1, 2, torch.Generator().manual_seed(0))
    fresh = {name: value.clone() for name, value in subtree.state_dict().items()}
    trained(SubtreeOnSubset([module], [2], subtree, samples, [torch.arange(40)]), samples, tiny().subtree)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module.training
    moved = {name for name, value in subtree.state_dict().items() if not torch.equal(value, fresh[name])}
    assert moved == set(fresh)  # every weight and running statistic of the subtree was trained

    module.attach(2, subtree, candidate=1)
    rows = module.nodes.rows()
    for kind, of_kind in subtree.nodes.rows().items():
        for key, (stack, i) in of_kind.items():
            if key.tree == 1:
                node = (2, *module.tree.children(2))[key.node]
                mine, j = rows[kind][(0, node)]
                for name, value in stack.state_dict().items():
                    assert torch.equal(mine.state_dict()[name][j], value[i])


@pytest.mark.parametrize("n_init", [1, 4])
def test_events_tell_the_whole_story(n_init):
    plan = tiny(n_init=n_init, whole_every=2)
    grove = Grove(ARCH, data(160), plan, [0])
    events = [event for _, event in filter(None, grove.events())]
    epochs = [e for e in events if isinstance(e, EpochEnded)]
    splits = [e for e in events if isinstance(e, LeafChosen)]
    assert [e.epoch for e in epochs if e.stage == "first tree"] == [1, 2]
    assert len([e for e in epochs if e.stage == "subtree"]) == 2 * len(splits)
    assert len([e for e in epochs if e.stage == "whole tree"]) == plan.whole.epochs * (len(splits) // 2) > 0
    assert [e.epoch for e in epochs if e.stage == "final"] == list(range(1, plan.final.epochs + 1))
    progress = [e.progress for e in epochs]
    assert progress == sorted(progress)
    assert 0 < progress[0] <= progress[-1] <= 1
    assert max(e.progress for e in epochs if e.stage != "final") < 0.9  # the last stage is not begun at "all is done"
    changes = [e.tree for e in events if isinstance(e, TreeChanged)]
    assert changes[0] == Tree().split(0)
    pruned = [e for e in events if isinstance(e, LeafPruned)]
    assert len(changes) == 1 + len(splits) + len(pruned) + 1  # the first tree, what changes it, and the finished one
    assert isinstance(events[-1], TreeChanged)
    (module,) = grove.modules
    assert events[-1].tree == module.tree
    assert not module.training


def test_a_fixed_tree_is_trained_as_it_is():
    events = grown(data(), tiny(), tree=THREE)
    assert {type(e) for e in events} == {EpochEnded, TreeChanged}
    assert {e.stage for e in events if isinstance(e, EpochEnded)} == {"first tree", "final"}
    assert events[-1].tree == THREE


def test_small_leaves_are_pruned_smallest_first(monkeypatch):
    four = Tree().split(0).split(1).split(2)
    module = TreeVAEModule(ARCH, [four], torch.Generator().manual_seed(0))
    share = {3: 0.006, 4: 0.5, 5: 0.004, 6: 0.49}

    def reach(x: torch.Tensor) -> torch.Tensor:
        """Every leaf wins its share of the samples, in order."""
        left = list(module.tree.leaves)
        bounds = torch.tensor([share[leaf] for leaf in left]).cumsum(0) * 1000
        winner = torch.bucketize(x[:, 0], bounds, right=True).clamp(max=len(left) - 1)
        return torch.nn.functional.one_hot(winner, len(left)).float()

    monkeypatch.setattr(module, "reach", reach)
    samples = Samples(torch.arange(1000.0)[:, None].expand(-1, 5), CPU)
    events = list(prune(module, samples, 0.01))
    assert [e for e in events if isinstance(e, LeafPruned)] == [LeafPruned(5, 0.004), LeafPruned(3, 0.006)]
    assert module.tree == four.prune(5).prune(3)


def test_what_has_grown_is_pruned_before_the_final_stage():
    plan = tiny(min_leaf=0.3)
    events = grown(data(160), plan)
    last_split = max(i for i, e in enumerate(events) if isinstance(e, LeafChosen))
    final = next(i for i, e in enumerate(events) if isinstance(e, EpochEnded) and e.stage == "final")
    pruned = [e for e in events[last_split:final] if isinstance(e, LeafPruned)]
    assert pruned
    assert events[last_split].uncounted > 0  # it was split past n_leaves for those that did not count
    assert all(e.share < plan.min_leaf for e in pruned)


def test_same_seed_same_weights_to_the_bit():
    def run(seed: int) -> dict[str, torch.Tensor]:
        _, (weights,) = story(Grove(ARCH, data(160), tiny(), [seed]))
        return weights

    first, again, other = run(0), run(0), run(1)
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert first.keys() != other.keys() or any(not torch.equal(first[name], other[name]) for name in first)


# -- what an experiment exchanges ---------------------------------------------------------------------------------


def test_samples_of_a_subtree_weigh_what_an_experiment_says():
    samples, module = data(), fixed_module()
    subtree = Subtree.new(ARCH, module.bottom_up.d_dims, 1, 1, torch.Generator().manual_seed(1))
    noise, index = None, torch.arange(40)[None]
    told = {}
    for name, weigh in (("reach", None), ("one", torch.zeros_like)):
        objective = SubtreeOnSubset([module], [2], subtree.eval(), samples, [torch.arange(40)], weigh=weigh)
        objective.hold_all()
        noise = [torch.zeros(len(runs), 40, dim) for runs, dim in objective.noise_rows]
        with torch.no_grad():
            told[name] = objective.terms(index, noise).elbo.reconstruction
    reach = module.reach(samples.x[:40])[:, 1]
    torch.testing.assert_close(told["reach"][0], told["one"][0] * reach, rtol=1e-4, atol=1e-4)
