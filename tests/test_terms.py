"""What a stage adds to the ELBO, and what a plan, a start and a state refuse."""

import dataclasses
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from kinds import SMALL, VECTORS
from small_groves import ARCH, data, tiny

from treevae import Tree, TreeVAE
from treevae.errors import ChangedRunError, ModelFileError
from treevae.fitting import Interrupted, Seeds, fit_trees
from treevae.model.module import TreeVAEModule
from treevae.preparing import prepare
from treevae.starting import plan_of
from treevae.training import events
from treevae.training.events import EpochEnded
from treevae.training.grove import Grove
from treevae.training.growing import Splits
from treevae.training.objectives import WholeTree
from treevae.training.plan import CHILDREN, Plan
from treevae.training.terms import Contrast, Pass, from_dict, to_dict


@dataclass(frozen=True)
class Leaning:
    """Pulls all routers to one side; fades, so that its weight is another in every epoch."""

    weight: float
    names: ClassVar[tuple[str, ...]] = ("leaning",)
    views: ClassVar[int] = 1
    pairs: ClassVar[bool] = False

    def weight_in(self, epoch: int) -> float:
        return self.weight / (1 + epoch)

    def loss(self, seen: Pass) -> torch.Tensor:
        by_tree = torch.zeros(len(seen.layout.trees)).index_add(0, seen.layout.tree_of_routers, -seen.logits.mean(1))
        return by_tree[None]


def with_terms(plan: Plan, *terms) -> Plan:
    stages = ("first", "subtree", "whole", "final")
    return dataclasses.replace(plan, **{name: dataclasses.replace(getattr(plan, name), terms=terms) for name in stages})


def epochs_of(plan: Plan) -> list[EpochEnded]:
    told = Grove(ARCH, data(160), plan, [0]).events()
    return [event for _, event in filter(None, told) if isinstance(event, EpochEnded)]


def test_a_term_without_views_counts_without_augmentation_and_is_told():
    weak, strong = (epochs_of(with_terms(tiny(n_leaves=2), Leaning(weight))) for weight in (1e-6, 100.0))
    assert {"leaning"} == set(weak[0].more) == set(strong[0].more)
    assert strong[-1].more["leaning"] < weak[-1].more["leaning"] - 0.1
    again = events.from_dict(strong[0].to_dict())
    assert again == strong[0]
    assert strong[0].to_dict()["leaning"] == strong[0].more["leaning"]
    assert strong[0].contrast_routers is None


def test_a_term_that_needs_views_is_refused_where_nothing_makes_them():
    with pytest.raises(ValueError, match=r"stage 'first tree' needs 2 views of each sample, and nothing makes views"):
        epochs_of(with_terms(tiny(), Contrast("both", 1.0)))


def test_parts_have_names_of_their_own():
    with pytest.raises(ValueError, match="parts of a loss have the same name"):
        epochs_of(with_terms(tiny(), Leaning(1.0), Leaning(2.0)))


def test_a_contrast_in_a_file_is_the_same_or_refused():
    assert from_dict(to_dict(Contrast("routers", 2.0))) == Contrast("routers", 2.0)
    for told in ({"term": "Other"}, {"term": "Contrast", "variant": "both", "weight": "x"}):
        with pytest.raises(ValueError, match=r"there is no term|must be a positive number"):
            from_dict(told)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: {"final": dataclasses.replace(plan.final, name="first tree")}, "stages have the same name"),
        (lambda plan: {"first": dataclasses.replace(plan.first, trains=CHILDREN)}, "trains the wrong part"),
        (lambda plan: {"first": dataclasses.replace(plan.first, terms=(Contrast("both", 1.0),)), "batch_size": 1},
         "batch_size=1 is less than the views"),
    ],
)  # fmt: skip
def test_plans_that_cannot_be_trained_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(tiny(), **change(tiny()))
    with pytest.raises(ValueError, match="drop_after=0"):
        dataclasses.replace(tiny().first, drop_after=0)


def test_candidates_for_a_first_tree_of_four_leaves_part_at_its_root():
    tree = Tree().split(0).split(1).split(2)
    module = TreeVAEModule(ARCH, [tree, tree], torch.Generator().manual_seed(0), candidates=2)
    samples = data()
    reach = module.eval().reach(samples.x).unflatten(1, (2, 4))
    torch.testing.assert_close(WholeTree(module, samples).right(), reach[:, :, 2:].sum(2).T)


def test_a_state_goes_on_with_its_own_plan_alone(tmp_path):
    given = TreeVAE(**SMALL).get_params(deep=False)
    prepared, seeds = prepare("TreeVAE", given, VECTORS), Seeds.of([0])
    plan = plan_of(given, len(VECTORS))
    fit_trees(prepared, plan, seeds, tmp_path)
    slower = dataclasses.replace(plan, final=dataclasses.replace(plan.final, learning_rate=1e-4))
    with pytest.raises(ChangedRunError, match=r"plan\.final\.learning_rate: 0\.001 before, now 0\.0001"):
        fit_trees(prepared, slower, seeds, tmp_path)
    with pytest.raises(ValueError, match="a start of one's own goes without a folder"):
        fit_trees(prepared, plan, seeds, tmp_path, start=Splits())


def test_pickles_of_this_version_open_and_earlier_ones_say_what_to_do():
    model = TreeVAE(**SMALL).fit(VECTORS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(VECTORS), model.predict(VECTORS))
    assert pickle.loads(pickle.dumps(Interrupted([]))).fitted == []
    with pytest.raises(ModelFileError, match=r"made by treevae 0\.1\.0, .* model\.save\(path\)"):
        TreeVAE().__setstate__({"module_": None})
