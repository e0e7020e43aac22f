"""What all tests share."""

import pytest
import torch
from cells import TINY
from kinds import GREY, SMALL, VECTORS

import treevae  # its TreeVAE takes a second to import: only fixtures ask for it
from treevae.experiments.methods import METHODS
from treevae.experiments.tables import TABLES, Table

torch.set_num_threads(1)  # the tests' tensors are small; two threads would only wait for each other


@pytest.fixture
def tiny(monkeypatch) -> Table:
    monkeypatch.delitem(METHODS, "deepect")  # as if nobody had written it yet
    monkeypatch.setitem(TABLES, "tiny", TINY)
    return TINY


@pytest.fixture(scope="module")
def grey() -> "treevae.TreeVAE":
    return treevae.TreeVAE(tree=treevae.Tree().split(0).split(1), **SMALL).fit(GREY)


@pytest.fixture(scope="module")
def vectors() -> "treevae.TreeVAE":
    return treevae.TreeVAE(tree=treevae.Tree().split(0).split(1), **SMALL).fit(VECTORS)
