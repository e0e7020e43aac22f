"""The command line: its help, and how it is started and speaks."""

import inspect
import subprocess
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from cells import treevae

from treevae import Tree, TreeVAE, __version__
from treevae.cli import fit as cli_fit
from treevae.cli.words import drawing
from treevae.model.likelihoods import LIKELIHOODS
from treevae.model.networks import NETWORKS
from treevae.model.stack import LAYER_DEFAULTS
from treevae.training.choosing import LEAF_RULES

# -- help -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["demo", "fit", "predict", "score", "sample", "info", "report"])
def test_help_shows_an_example(command: str) -> None:
    assert command in treevae("--help")
    assert f"treevae {command} " in treevae(command, "--help").split("Example:")[1]


def test_fit_offers_the_parameters_of_the_estimator_with_their_defaults() -> None:
    ours = {name: parameter.default for name, parameter in inspect.signature(cli_fit.fit).parameters.items()}
    theirs = {name: parameter.default for name, parameter in inspect.signature(TreeVAE).parameters.items()}
    not_offered = {"tree", "transformation_layers", "router_layers", "verbose", "random_state"}
    assert not not_offered & set(ours)
    for name in set(theirs) - not_offered:
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize(
    ("option", "allowed"),
    [("likelihood", LIKELIHOODS), ("network", NETWORKS), ("layer_defaults", LAYER_DEFAULTS), ("leaf_rule", LEAF_RULES)],
)
def test_help_names_all_that_is_allowed(option: str, allowed: Iterable[str]) -> None:
    text = get_type_hints(cli_fit.fit, include_extras=True)[option].__metadata__[0].help
    assert all(name in text for name in allowed)


# -- demo -------------------------------------------------------------------------------------------------------


def test_the_package_is_the_command_too() -> None:
    done = subprocess.run([sys.executable, "-m", "treevae", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: treevae" in done.stdout


def test_a_node_with_one_child_says_why() -> None:
    tree = Tree().split(0).split(1).prune(3)
    sizes = {node: (2 if node == 1 else 1) for node in tree.nodes} | {0: 3}
    model = SimpleNamespace(tree_=tree, fitted_=SimpleNamespace(sizes=sizes))
    first, second, *_ = drawing(model).splitlines()
    assert first == "3 samples"
    assert second.endswith("2 samples (its other child was pruned)")


def test_the_version_is_told() -> None:
    assert treevae("--version").strip() == f"treevae {__version__}"
