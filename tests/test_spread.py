"""The rules by which the study of the spread keeps candidates."""

import importlib
from pathlib import Path

import pytest
import torch

from treevae.training import choosing
from treevae.training.plan import Plan

STAGE = Plan.paper(epochs=2).subtree
RIGHT = torch.tensor([[0.6, 0.6, 0.4, 0.4], [0.9, 0.1, 0.9, 0.1], [0.2, 0.3, 0.8, 0.9]])  # 0 and 2 part alike


@pytest.fixture
def rules(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    return importlib.import_module("benchmarks.studies.rules")


def test_each_rule_keeps_its_best(rules):
    told = {
        "smaller": [0.5, 0.5, 0.5, 0.01],  # the last has collapsed
        "loss": [1.0, 3.0, 2.0, 0.0],
        "elbo": [3.0, 2.0, 1.0, 0.0],
        "confidence": [0.8, 0.9, 0.89, 1.0],
        "agreement": [0.7, 0.6, 0.8, 1.0],
    }
    best = {"loss": 0, "elbo": 2, "confidence": 1, "agreement": 2, "loss_if_sure": 2}
    assert {rule: rules.kept(rule, told) for rule in rules.RULES} == best
    all_collapsed = told | {"smaller": [0.0] * 4}
    assert {rule: rules.kept(rule, all_collapsed) for rule in rules.RULES} == dict.fromkeys(rules.RULES, 3)


def test_agreement_is_the_share_that_others_part_alike_whatever_their_sides(rules):
    assert rules.agreement(RIGHT).tolist() == pytest.approx([0.75, 0.5, 0.75])


@pytest.mark.parametrize(("rule", "kept"), [("loss", 0), ("elbo", 2), ("confidence", 1), ("loss_if_sure", 1)])
def test_a_comparison_by_a_rule_notes_what_all_rules_say(rules, monkeypatch, rule, kept):
    weights = {STAGE.kl_weight(STAGE.epochs - 1): [1.0, 2.0, 3.0], 1.0: [3.0, 2.0, 1.0]}
    for module in (choosing, rules):
        monkeypatch.setattr(module, "evaluate", lambda _, __, weight, ___: torch.tensor(weights[weight]))
    objective = type("Stub", (), {"right": lambda self: RIGHT, "rows": lambda self, index: index + 10})()

    class WithRows(rules.ByRule):
        def more(self, right, rows):
            return {"rows": rows.tolist()}

    compare = WithRows(rule)
    assert compare(objective, None, STAGE, 7, 0, Plan.paper()).chosen == kept
    (told,) = compare.comparisons
    assert (told["loss"], told["elbo"]) == ((1.0, 2.0, 3.0), [3.0, 2.0, 1.0])
    assert told["confidence"] == pytest.approx([0.6, 0.9, 0.8])
    assert (told["leaf"], told["samples"], told["rows"]) == (7, 4, [10, 11, 12, 13])
