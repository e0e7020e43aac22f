"""Records, jobs and settings of runs that lie."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from lies import refused

from treevae.cli import fit as cli_fit
from treevae.data.files import read
from treevae.experiments import showing
from treevae.experiments.methods import METHODS
from treevae.experiments.store import DamagedRecordError, Store
from treevae.experiments.tables import TABLES
from treevae.run import Run, Settings

ROOT = Path(__file__).parents[1]
CELL = METHODS["treevae"].cell("mnist", {}, 1.0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"scores_percent": {"ACC": "high"}},
        {"scores_percent": {"ACC": {"mean": 1}}},
        {"scores_percent": [1, 2]},
        {"scores_percent": {"ACC": 10**400}},
        {"elbo": {"ELBO": -(10**301)}},
        {"elbo": {"ELBO": float("nan")}},
        {"elbo": {"ELBO": [1]}},
        {"likelihood": {"ll_paper": {"mean": "x"}}},
        {"leaf_attributes_percent": {"a": "bc"}},
        {"note": {"a": 1}},
        {"source": ["a"]},
        {"device": {}},
    ],
)
def test_records_that_lie(tmp_path: Path, change: dict[str, Any]) -> None:
    record = json.loads((ROOT / "results" / "records" / f"{CELL.name}.json").read_text()) | change
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"{CELL.name}.json").write_text(json.dumps(record))
    with refused("is damaged: its", kind=DamagedRecordError):
        Store(tmp_path).read(CELL)
    shown = [one for line in showing.lines(TABLES["clustering"], Store(tmp_path), 1.0) for one in line.figures]
    assert any(one.ours == showing.DAMAGED and "is damaged: its" in one.notes[0] for one in shown)


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"cells": [asdict(CELL) | lie]}
            for lie in (
                {"data": -1},
                {"data": "moon"},
                {"settings": [1]},
                {"scale": -1},
                {"scale": "1"},
                {"seed": [1]},
                {"seed": 10**250},
                {"settings": {"n_init": 10**250}},
                {"method": None},
                {"more": 1},
            )
        ),
        {"cells": 3},
        {"cells": ["fashion"]},
        {"replaces": ["a"]},
        {"replaces": {CELL.name: 1}},
        {"replaces": {"another": "0123abcd"}},
        {"more": 1},
    ],
    ids=str,
)
def test_jobs_that_lie(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "running" / "job").mkdir(parents=True)
    (tmp_path / "running" / "job" / "state").touch()
    (tmp_path / "running" / "job" / "job.json").write_text(
        json.dumps({"cells": [asdict(CELL)], "replaces": {}} | change)
    )
    with refused("job.json cannot be read", kind=DamagedRecordError):
        Store(tmp_path).started()


def test_a_job_without_cells(tmp_path: Path) -> None:
    (tmp_path / "running" / "job").mkdir(parents=True)
    (tmp_path / "running" / "job" / "state").touch()
    (tmp_path / "running" / "job" / "job.json").write_text('{"cells": [], "replaces": {}}')
    with refused("it names no cell", kind=DamagedRecordError):
        Store(tmp_path).started()


@pytest.mark.parametrize("text", ["[" * 10**5, "9" * 5000, '{"data": "\\ud800"', "[]"])
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"{CELL.name}.json").write_text(text)
    with refused("is damaged", kind=DamagedRecordError):
        Store(tmp_path).read(CELL)
    (tmp_path / "run.json").write_text(text)
    with refused(r"run\.json cannot be read", kind=ValueError):
        Run(tmp_path).to_resume()


@pytest.mark.parametrize(
    "change",
    [{"data": 1}, {"found_at": ["a"]}, {"drop": 3}, {"drop": [1]}, {"options": "x"}, {"options": {"n_leafs": 3}}],
)
def test_settings_of_a_run_that_lie(tmp_path: Path, change: dict[str, Any]) -> None:
    settings = {"data": "x.npy", "found_at": "x.npy", "drop": [], "options": {}} | change
    (tmp_path / "run.json").write_text(json.dumps(settings))
    with refused(r"run\.json cannot be read", kind=ValueError):
        Run(tmp_path).to_resume()


def test_samples_under_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with refused("there is no file or folder yyy"):
        read("y" * 5000)
    settings = Settings("nowhere.npy", "y" * 5000, (), {})
    with refused("there is no file or folder nowhere.npy"):
        cli_fit._fit_in(Run(tmp_path), settings, 30.0, start=False)
