"""What all tests share."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import commands
import pytest
import torch
from cells import TINY
from kinds import GREY, SMALL, VECTORS
from numbered_states import save
from small_sets import MAKERS, Server

import treevae  # its TreeVAE takes a second to import: only fixtures ask for it
from treevae.experiments.tables import TABLES, PaperTable
from treevae.storage.states import StateFolder

torch.set_num_threads(1)  # the tests' tensors are small; two threads would only wait for each other


@pytest.fixture
def tiny(monkeypatch) -> PaperTable:
    monkeypatch.setitem(TABLES, "tiny", TINY)
    return TINY


@pytest.fixture(scope="module")
def grey() -> "treevae.TreeVAE":
    return treevae.TreeVAE(tree=treevae.Tree().split(0).split(1), **SMALL).fit(GREY)


@pytest.fixture(scope="module")
def vectors() -> "treevae.TreeVAE":
    return treevae.TreeVAE(tree=treevae.Tree().split(0).split(1), **SMALL).fit(VECTORS)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a small data set of each kind; not to be changed."""
    root = tmp_path_factory.mktemp("made")
    for name, make in MAKERS.items():
        if name != "omniglot5":
            make(root)
    return root


@pytest.fixture
def server() -> Iterator[Server]:
    """Answers on this machine with what a test offers for download."""
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Tells the warnings that were logged so far."""
    caplog.set_level(logging.WARNING, "treevae")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "treevae"]


@pytest.fixture
def two(tmp_path: Path) -> StateFolder:
    """A folder with states 1 and 2."""
    with StateFolder(tmp_path) as folder:
        save(folder, 1)
        save(folder, 2)
    return StateFolder(tmp_path)


# -- for the tests of the command line; each file has its own --------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small tables and arrays, for commands."""
    return commands.write_vectors(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A run of one of them, fitted by a command; not to be changed."""
    return commands.fit_table(data)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small pictures."""
    return commands.draw_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def picture_run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of them."""
    return commands.fit_pictures(pictures, tmp_path_factory.mktemp("picture_run"))
