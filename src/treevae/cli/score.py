"""The command that scores: how well a model explains samples, from its ELBO to bits per dimension."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Drop, OtherData, Root, RunPath
from .outputs import check_parent
from .words import count, say_note, say_written

PAPERS_DRAWS = 1000
DRAWS = 10  # as behind an ELBO: each runs all decoders on all samples, which for photographs is dear
ERRORS = "± is the standard error of the mean over these samples."


def score(
    run: RunPath,
    data: OtherData = None,
    root: Root = None,
    drop: Drop = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Behind an estimate of log p(x); time grows with them. The paper has 1,000.")
    ] = DRAWS,
    most: Annotated[
        int | None, typer.Option(min=1, help="Score at most so many samples, drawn at random; by default all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to write the figures as JSON too.")
    ] = None,
) -> None:
    """Score samples by how well the model explains them: ELBO, RL, log p(x); bits per dimension for images of bytes.

    The samples are those that RUN was fitted on, where they still lie, or others that --data names; of a data set its
    test samples. All figures are means over samples, in nats; bits per dimension are given where a Gaussian explains
    images that are uint8, or bytes divided by 255.

    Every draw runs all decoders on all samples: where they are large, as those of photographs, take a GPU, or
    few samples with --most. Means are then less sure; with few --draws the bound is lower than it need be.

    \b
    Example:
      treevae score demo
      treevae score runs/cifar10 --draws 100 --most 1000 -o score.json
      treevae score photos-tree --data other-photos/
    """
    from sklearn.utils import resample

    from ..progress import Progress
    from ..records import record_of_scoring
    from ..run import Run
    from ..storage.writing import write_whole
    from ..subject import subject_of

    fitted = Run(run)
    model = fitted.model()
    check_parent(out)
    subject = subject_of(model, fitted, data, root, drop)
    say_note(subject.note)
    X, n = subject.X, subject.X.shape[0]
    if most is not None and most < n:
        X = resample(X, replace=False, n_samples=most, random_state=0)
    typer.echo(f"Scoring {X.shape[0]:,} of {count(n, 'sample')}: {subject.title}; {count(draws, 'draw')} each")
    with Progress(wanted=True) as progress:
        terms = f"{count(draws, 'draw')} each"
        record = record_of_scoring(model.fitted_, X, draws, lambda done: progress.at(done, "scoring", terms))
    typer.echo("\n".join(_lines(record)))
    if out is not None:
        about = {
            "command": _command(run, data, root, drop, draws, most),
            "model": str(fitted.model_file()),
            "data": subject.origin,
            "n_scored": X.shape[0],
            "n_samples": n,  # of which those were drawn
        }
        write_whole(out, json.dumps(about | record, indent=1) + "\n")
        say_written([out])


def _command(
    run: Path, data: str | None, root: Path | None, drop: list[str] | None, draws: int, most: int | None
) -> str:
    """The command that gives the same figures."""
    given: dict[str, list[Any]] = {
        "--data": [data],
        "--root": [root],
        "--drop": drop or [],
        "--draws": [draws],
        "--most": [most],
    }
    words = [str(word) for name, values in given.items() for one in values if one is not None for word in (name, one)]
    return shlex.join(["treevae", "score", str(run), *words])


def _lines(record: dict[str, Any]) -> list[str]:
    """The figures, each with what it is."""
    elbo, likelihood = record["elbo"], record["likelihood"]
    draws = likelihood["draws"]
    beside = "as in the paper" if draws == PAPERS_DRAWS else f"the paper has {PAPERS_DRAWS:,}"
    lines = [
        f"ELBO      {elbo['ELBO']:.2f} nats a sample",
        f"RL        {elbo['RL']:.2f}, the reconstruction loss, less is better: ELBO = −RL − KL",
        f"ll_iwae   {_with_error(likelihood['ll_iwae'])}, a lower bound of log p(x) that rises with --draws",
        f"ll_paper  {_with_error(likelihood['ll_paper'])}, what the paper calls LL, of {count(draws, 'draw')} "
        f"({beside}); it is no bound",
    ]
    if "bits_per_dimension" in likelihood:
        lines.append(f"bits      {likelihood['bits_per_dimension']:.4f} per dimension, from ll_iwae")
    return [*lines, ERRORS] if likelihood["ll_iwae"]["standard_error"] is not None else lines


def _with_error(estimate: dict[str, float | None]) -> str:
    """A mean, with its standard error over samples where there are several."""
    error = estimate["standard_error"]
    return f"{estimate['mean']:.2f}" if error is None else f"{estimate['mean']:.2f} ± {error:.2f}"
