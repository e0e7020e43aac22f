"""Ways to start a tree, with and without neighbours: scores of test samples, three seeds side by side.

Every row is of one set, way and seed. Its scores are of test samples that nothing was fitted to; labels are looked at
for scores alone. The seconds are those of all its seeds together, with what is computed before training, neighbours
and guides; a first fit on a GPU compiles kernels too. What is recorded is not run again, so that a study may be ended
and gone on with.

python -m benchmarks.studies.start [NAME ...] [--kept FOLDER | --root DATA --vectors DIR ...] [--ways WAY ...]
    [--seeds 3] [--device auto] [--minutes M] [--out benchmarks/results/start.json] [--merge FILE ...] [--show]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from treevae import TreeVAE
from treevae.metrics import accuracy, dendrogram_purity, leaf_purity, nmi
from treevae.records import source, versions

from .. import record
from .start_data import CARDS, Folders, StartSet, add_places, kept, prepared

SCORES = ("DP", "ACC", "NMI", "LP")
KEY = ("data", "way", "seed")  # of a row
SCORED = 2000  # test samples, for the ELBO
WAYS: dict[str, dict[str, Any]] = {  # parameters, and "guide" of fit
    "default": {},
    "k-means alone": {"guide": "kmeans", "neighbours": 0},
    "k-means": {"guide": "kmeans"},
    "embedding alone": {"guide": "embedding", "neighbours": 0},
    "embedding": {"guide": "embedding"},
    "networks": {"guide": "networks"},
    "splits alone": {"start": "splits", "neighbours": 0, "epochs": 30, "n_init": 16},
    "splits, short": {"start": "splits", "epochs": 20, "n_init": 2},
    "splits": {"start": "splits", "epochs": 30, "n_init": 16},
}


def main() -> None:
    """Run what is asked for and not recorded yet, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all that can be carried as arrays")
    add_places(parser)
    parser.add_argument("--kept", type=Path, help="read the sets from here, as start_data --out has written them")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no fit after so many")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "start.json")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="first take over the rows of other records")
    parser.add_argument("--show", action="store_true", help="only print what is recorded, as a table")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in CARDS]:
        parser.error(f"{unknown[0]} is none of {', '.join(CARDS)}")
    rows = recorded(given.out)
    for path in given.merge:
        rows |= recorded(path)
    end, places = time.monotonic() + 60 * given.minutes, Folders(given.root, tuple(given.vectors))
    names = given.names or [name for name in CARDS if given.kept is None or (given.kept / f"{name}.npz").is_file()]
    for way in [] if given.show else given.ways:
        for name in names:
            if time.monotonic() > end or all((name, way, seed) in rows for seed in range(given.seeds)):
                continue
            data = prepared(name, places) if given.kept is None else kept(given.kept / f"{name}.npz")
            try:
                for row in run(name, data, way, given.seeds, given.device):
                    rows[tuple(row[key] for key in KEY)] = row
                    print(json.dumps(row), flush=True)
            except Exception as error:  # one set that cannot be fitted should not cost the others
                print(f"{name}, {way}: {error}", file=sys.stderr, flush=True)
            write(given.out, rows)
    write(given.out, rows)
    print("\n".join(table(list(rows.values()))))


def run(name: str, data: StartSet, way: str, seeds: int, device: str) -> list[dict[str, Any]]:
    """A row for each seed, of trees that are trained side by side."""
    parameters = dict(WAYS[way])
    guide = parameters.pop("guide", None)
    model = TreeVAE(data.n_leaves, device=device, **parameters)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer leaves are told by the row
        models = model.fit_seeds(data.X_train, range(seeds), guide=guide)
    seconds = time.perf_counter() - began
    return [
        {"data": name, "way": way, "seed": seed, **_told(one, data), "seconds": round(seconds, 2), **_where(device)}
        for seed, one in enumerate(models)
    ]


def _told(model: TreeVAE, data: StartSet) -> dict[str, Any]:
    """Scores of the test samples, and what the fit decided."""
    leaf, y = model.predict(data.X_test), data.y_test
    values = (dendrogram_purity(model.tree_, leaf, y), accuracy(leaf, y), nmi(leaf, y), leaf_purity(leaf, y))
    events = model.history_
    return {
        **{score: round(100 * float(value), 2) for score, value in zip(SCORES, values, strict=True)},
        "ELBO": round(model.score(data.X_test[:SCORED]), 3),
        "leaves": len(model.tree_.leaves),
        "guides": {event["name"]: round(event["agreement"], 4) for event in events if event["event"] == "GuideMade"},
        "epochs": sum(event["event"] == "EpochEnded" for event in events),
        "scale": model.scale_,
    }


def _where(device: str) -> dict[str, Any]:
    """Where a row was made."""
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return {"device": torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"}


def recorded(out: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a record by their keys; none if there is no record."""
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    return {tuple(row[key] for key in KEY): row for row in rows}


def write(out: Path, rows: Mapping[tuple[Any, ...], dict[str, Any]]) -> None:
    """Write all rows, in order, with what made them."""
    about = {
        "command": "python -m benchmarks.studies.start",
        "source": source(),
        "versions": versions(),
        "ways": WAYS,
        "sets": {name: {"about": card.about, "held_out": card.held_out} for name, card in CARDS.items()},
    }
    out.write_text(json.dumps(about | {"rows": [rows[key] for key in sorted(rows)]}, indent=1) + "\n")


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Means and sample standard deviations over seeds, a line for each set and way."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["way"]), []).append(row)
    lines = [f"| data | way | seeds | {' | '.join(SCORES)} | ELBO | seconds |", "| --- " * (len(SCORES) + 5) + "|"]
    for (name, way), some in groups.items():
        cells = [_spread([row[score] for row in some]) for score in (*SCORES, "ELBO")]
        seconds = max(row["seconds"] for row in some)
        lines.append(f"| {name} | {way} | {len(some)} | {' | '.join(cells)} | {seconds:.0f} |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
