"""Records of results and the settings of runs: JSON."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from loader import Loader, normal, one_of
from models import TINY
from mutations import any_json

from treevae.cli import fit as cli_fit
from treevae.errors import DataFileError
from treevae.experiments import showing
from treevae.experiments.folders import RECORDS
from treevae.experiments.methods import METHODS
from treevae.experiments.store import DamagedRecordError, Store
from treevae.experiments.tables import TABLES
from treevae.run import Run
from treevae.storage.states import STATES, StateFolder

RESULTS = Path(__file__).parents[2] / "results"
CELL = METHODS["treevae"].cell("mnist", {}, 1.0, 0)


def valid_records(folder: Path) -> None:
    (folder / RECORDS).mkdir()
    shutil.copy(RESULTS / RECORDS / f"{CELL.name}.json", folder / RECORDS)
    running = folder / "running" / "some-job"
    running.mkdir(parents=True)
    cell = {"data": CELL.data, "method": CELL.method, "settings": CELL.settings, "scale": 1.0, "seed": 1}
    job = {"cells": [cell, cell | {"seed": 2}], "replaces": {replace(CELL, seed=2).name: "0123abcd"}}
    (running / "job.json").write_text(json.dumps(job))
    (running / STATES[0]).write_bytes(b"a state")


def load_records(folder: Path) -> None:
    store = Store(folder)
    store.read(CELL)  # tables show "damaged" where this refuses
    for table in (TABLES["clustering"], TABLES["generative"]):
        showing.as_latex(table, lines := showing.lines(table, store, 1.0), 1.0)
        showing.as_text(table, lines, 1.0)
    for job in store.started():
        assert isinstance(job.name, str)
        assert job.seeds
        assert not store.has(job)


def valid_run(folder: Path) -> None:
    np.save(folder / "x.npy", normal(96, 5))
    options = TINY | {"random_state": 0, "network": "mlp"}
    settings = {"data": "input/x.npy", "found_at": "input/x.npy", "drop": [], "options": options}
    (folder / "run.json").write_text(json.dumps(settings))


class _Checked(BaseException):
    """The samples are checked, and the folder would be taken."""


def _checked(*_: object) -> None:
    raise _Checked


def load_run(folder: Path) -> None:
    """All that ``treevae fit --resume`` does before it trains."""
    StateFolder.__enter__ = _checked  # type: ignore[method-assign, assignment]
    run = Run(folder)
    with suppress(_Checked):
        cli_fit._fit_in(run, run.to_resume(), 30.0, start=False)


FILES = (f"{RECORDS}/{CELL.name}.json", "running/some-job/job.json")
LOADERS = (
    Loader("record", 0.05, valid_records, one_of(any_json, *FILES), load_records, (DamagedRecordError,)),
    Loader("run", 0.05, valid_run, one_of(any_json, "run.json"), load_run, (ValueError, DataFileError)),
)
