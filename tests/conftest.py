"""What all tests share."""

import pytest
import torch
from cells import TINY

from treevae.experiments.methods import METHODS
from treevae.experiments.tables import TABLES, Table

torch.set_num_threads(1)  # the tests' tensors are small; two threads would only wait for each other


@pytest.fixture
def tiny(monkeypatch) -> Table:
    monkeypatch.delitem(METHODS, "deepect")  # as if nobody had written it yet
    monkeypatch.setitem(TABLES, "tiny", TINY)
    return TINY
