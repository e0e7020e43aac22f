"""Cells, records and a table of seconds, for the tests of the paper's tables."""

from collections.abc import Iterable, Iterator

from typer.testing import CliRunner

from treevae.cli.app import app
from treevae.data import DataSet
from treevae.experiments.cells import Cell, Job
from treevae.experiments.methods import METHODS, FitPlace
from treevae.experiments.printed import PaperFigure
from treevae.experiments.running import Begun, JobEvent
from treevae.experiments.store import Store
from treevae.experiments.tables import SCORES, PaperEntry, PaperRow, PaperTable

SMALL = {"network": "mlp", "latent_dim": 2, "hidden_dim": 8, "n_leaves": 2}
CPU = FitPlace(device="cpu")
TINY = PaperTable(
    "tiny",
    "A table that takes seconds",
    ("DP", "ACC"),
    (
        PaperRow(
            "digits",
            "agg",
            (PaperEntry(SCORES["DP"], PaperFigure.of("50.0±0.0"), {"n_leaves": 4}), PaperEntry(SCORES["ACC"], None)),
        ),
        PaperRow(
            "digits",
            "treevae",
            tuple(PaperEntry(SCORES[name], PaperFigure.of("0.0±0.0"), SMALL) for name in ("DP", "ACC")),
        ),
    ),
)
SCALE = 0.02  # three epochs of a growth stage


def cell_of(seed: int = 0, scale: float = 1.0, data: str = "fashion", method: str = "treevae", **changes) -> Cell:
    return METHODS[method].cell(data, changes, scale, seed)


def small(seed: int, **changes) -> Cell:
    return cell_of(seed, SCALE, "digits", **SMALL | changes)


def records_of(job: Job, data: DataSet, place: FitPlace = CPU) -> Iterator[tuple[Cell, dict]]:
    """What the method of a job yields."""
    method = METHODS[job.method]
    return method.fit(method.make(job.cells[0], data, place), job, data, place)


def ended(events: Iterable[JobEvent]) -> list[JobEvent]:
    """What came of the jobs, without that they began."""
    return [one for one in events if not isinstance(one, Begun)]


def fabricate(here: Store, cell: Cell, **scores: float) -> None:
    elbo = {name: scores.pop(name) for name in ("ELBO", "RL") if name in scores}
    here.write(cell, {"scores_percent": scores, "elbo": elbo})


def whole_record() -> dict:
    """With every score of a table but the attributes."""
    scores = dict.fromkeys(("DP", "LP", "ACC", "NMI"), 1.0)
    return {"scores_percent": scores, "elbo": {"ELBO": -2.0, "RL": 1.0}, "likelihood": {"ll_paper": {"mean": -1.5}}}


def treevae(*arguments, code: int = 0) -> str:
    """All that a command printed; its exit code must be the given one."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result.output
