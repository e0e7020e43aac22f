"""Fits a data set by the paper's recipe and records what comes out.

    python -m treevae.experiments.runs NAME --root DATA [--seeds 3] [--draws 1000] [--out results] [--checkpoint FOLDER]

All seeds are trained side by side. Each gives a record, results/NAME-LEAVES-seedN.json; the first one also a picture of
its tree. With --checkpoint a run that is killed goes on where it was when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import DataSet, load
from ..estimator import TreeVAE
from .records import record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 1000  # behind every estimate of log p(x), as in the paper


def run(
    name: str,
    seeds: Sequence[int],
    root: Path | None,
    out: Path,
    changes: dict[str, Any],
    checkpoint: Path | None = None,
    command: str = "",
    draws: int = DRAWS,
) -> list[Path]:
    """The files written: a record for each seed, and a picture."""
    data = load(name, root)
    models = TreeVAE.recipe(name, **changes, verbose=True).fit_seeds(data.x_train, seeds, checkpoint=checkpoint)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for seed, model in zip(seeds, models, strict=True):
        path = out / f"{name}-{model.n_leaves}-seed{seed}.json"
        path.write_text(json.dumps(record(model, data, seed, command, draws), indent=1) + "\n", encoding="utf-8")
        written.append(path)
    written.append(out / f"{name}-{models[0].n_leaves}-seed{seeds[0]}.png")
    picture(models[0], data).savefig(written[-1])
    return written


def picture(model: TreeVAE, data: DataSet) -> Figure:
    """The tree with what the data set has to show at its leaves: attributes, words or images of the test samples."""
    from ..view import attribute_picture, tree_picture, word_picture

    x, y, names = data.x_test, data.y_test, data.class_names
    if data.attributes_test is not None and data.attribute_names is not None:
        return attribute_picture(model, x, data.attributes_test, data.attribute_names)
    if data.feature_names is not None:
        return word_picture(model, x, data.feature_names, y, names)
    return tree_picture(model, x, y, names)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--seeds", type=int, default=1, help="how many, side by side")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--n-leaves", type=int, help="other than the recipe's")
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
    parser.add_argument("--draws", type=int, default=DRAWS, help="behind each estimate of log p(x); 0: no estimates")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--checkpoint", type=Path)
    given = parser.parse_args()
    changes = {name: value for name in ("n_leaves", "epochs") if (value := getattr(given, name)) is not None}
    options = {"seeds": given.seeds, "first_seed": given.first_seed, "draws": given.draws} | changes
    words = [f"--{option.replace('_', '-')} {value}" for option, value in options.items()]
    command = " ".join(["python -m treevae.experiments.runs", given.name, *words])
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for path in run(given.name, seeds, given.root, given.out, changes, given.checkpoint, command, given.draws):
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
