"""The methods of the tables by name: on which settings each depends, what one fit serves, and how it is fitted.

Another method is one more entry of METHODS. Its ``make`` gives the estimator of a cell, whose parameters are compared
with those of records in the store before anything is fitted; its ``fit`` takes the estimator of a job's first cell and
yields a record for each of the job's cells. Where the scores stand in a record is what ``tables`` reads:
"scores_percent" with DP, LP, ACC and NMI, "elbo" with ELBO and RL, "likelihood" with ll_paper. What a method does not
give is left out.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.dataset import DataSet
from ..recipes import PAPER
from ..tree import Tree
from .cells import Cell, Job, scaled

if TYPE_CHECKING:
    from sklearn.cluster import HDBSCAN

    from ..baselines.bisecting import Bisecting
    from ..baselines.deepect import DeepECT
    from ..baselines.ladder import VAE, LadderVAE
    from ..baselines.ward import Ward
    from ..estimator import TreeVAE


@dataclass(frozen=True)
class FitPlace:
    """Where and how a job is fitted; none of it changes what comes out, but for the device's rounding."""

    root: Path | None = None  # of the data sets; None is what $TREEVAE_DATA says
    device: str = "auto"
    verbose: bool = False
    command: str = ""  # goes into the records
    folder: Path | None = None  # for the state of the fit, where one can be kept
    models: Path | None = None  # the folder for fitted TreeVAEs, where they are wanted


DRAWS = 1000  # behind an estimate of log p(x), at scale 1
OF_LATENTS = (
    "latent_dim",
    "hidden_dim",
    "network",
    "layer_defaults",
    "likelihood",
    "augment",
    "contrastive_weight",
    "batch_size",
    "n_leaves",  # of Ward's tree
)
DEPTH = {"depth": 5}  # of the paper's LadderVAE and VAE, also where its trees are deeper
OF_DEEPECT = ("n_leaves", "network", "likelihood", "augment", "contrastive_weight", "batch_size")
MakeEstimator = Callable[[Cell, DataSet, FitPlace], Any]
Records = Iterator[tuple[Cell, dict[str, Any]]]


@dataclass(frozen=True)
class Method:
    """How a method of the tables is fitted."""

    name: str
    make: MakeEstimator  # the estimator of a cell, whose parameters are so known before it is fitted
    fit: Callable[[Any, Job, DataSet, FitPlace], Records]  # given the estimator of the job's first cell
    uses: tuple[str, ...] | None = None  # of the recipe's parameters; None is all of them
    own: Mapping[str, Any] = field(default_factory=dict)  # settings that no recipe has
    if_contrastive: tuple[str, ...] = ()  # of these, those that it uses in contrastive experiments alone
    seeded: bool = True  # else one seed stands for all
    together: tuple[str, ...] = ()  # "seed" or settings: one fit serves cells that differ in nothing else
    keeps_state: bool = False  # whether a fit that was ended goes on where it was; else it starts anew
    gpu: bool = False  # whether it is faster on one
    lacks: tuple[str, ...] = ()  # scores that its records never have

    def gives(self, score: str | int) -> bool:
        """Whether its records have a score."""
        return score not in self.lacks

    def cell(self, data: str, changes: Mapping[str, Any], scale: float, seed: int) -> Cell:
        """The cell of a data set with changes to its recipe."""
        settings = scaled(data, changes, scale)
        used = settings if self.uses is None else {name: settings[name] for name in self.uses if name in settings}
        if not used.get("contrastive_weight"):
            used = {name: value for name, value in used.items() if name not in self.if_contrastive}
        return Cell(data, self.name, used | dict(self.own), float(scale), seed)


def make_treevae(cell: Cell, data: DataSet, place: FitPlace) -> TreeVAE:
    """The TreeVAE of a cell."""
    from ..estimator import TreeVAE

    settings = dict(cell.settings)
    if settings.get("tree") is not None:
        settings["tree"] = Tree.from_json(json.dumps(settings["tree"]))
    return TreeVAE(**PAPER | settings, device=place.device, verbose=place.verbose)


def fit_treevae(model: TreeVAE, job: Job, data: DataSet, place: FitPlace) -> Records:
    """A record of each cell, from trees that are grown side by side."""
    from ..records import parameters_of, record
    from .models import Models
    from .store import wrong_with

    with _fewer_leaves_allowed():
        models = model.fit_seeds(data.x_train, job.seeds, checkpoint=place.folder)
    by_seed = dict(zip(job.seeds, models, strict=True))
    for cell in job.cells:
        one = by_seed[cell.seed]
        kept = record(one.fitted_, parameters_of(one), data, cell.seed, place.command, _draws(cell))
        if place.models is not None and not wrong_with(kept):  # before the record, with which the cell counts as done
            Models(place.models).keep(cell, one)
        yield cell, kept


@contextmanager
def _fewer_leaves_allowed() -> Iterator[None]:
    """Inside, nobody is warned of fewer leaves than asked for: they are in the record."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        yield


def _epochs(paper: int, cell: Cell) -> int:
    """Epochs of a cell, given the paper's."""
    return max(1, round(paper * cell.scale))


def _draws(cell: Cell) -> int:
    """Draws behind an estimate of log p(x); none for photographs, of which the paper gives none."""
    return max(1, round(DRAWS * cell.scale)) if cell.settings["likelihood"] == "bernoulli" else 0


def make_vae(cell: Cell, data: DataSet, place: FitPlace) -> VAE:
    """The VAE of a cell."""
    from ..baselines.ladder import VAE

    return VAE(**_of_latents(cell, place), epochs=_epochs(VAE().epochs, cell))


def make_laddervae(cell: Cell, data: DataSet, place: FitPlace) -> LadderVAE:
    """The LadderVAE of a cell."""
    from ..baselines.ladder import LadderVAE

    return LadderVAE(**_of_latents(cell, place), epochs=_epochs(LadderVAE().epochs, cell))


def make_matched(cell: Cell, data: DataSet, place: FitPlace) -> LadderVAE:
    """As :func:`make_laddervae`, with as many weights as a TreeVAE of the recipe has in training."""
    return make_laddervae(cell, data, place).set_params(hidden_dim=_matched(cell, data))


def _of_latents(cell: Cell, place: FitPlace) -> dict[str, Any]:
    """What a VAE or a LadderVAE takes from a cell's settings, and where it is fitted."""
    settings = {name: value for name, value in cell.settings.items() if name not in ("n_leaves", "max_depth")}
    return {**settings, "device": place.device, "verbose": place.verbose}


def fit_latents(model: LadderVAE, job: Job, data: DataSet, place: FitPlace) -> Records:
    """A record of each cell, from models that are trained side by side, and of Ward's tree of the test latents."""
    from ..baselines.ward import Ward
    from ..records import clustering, parameters_of, record_of_density

    draws = _draws(job.cells[0])
    for seed, one in zip(job.seeds, model.fit_seeds(data.x_train, job.seeds, checkpoint=place.folder), strict=True):
        density = record_of_density(one.fitted_, parameters_of(one), data, seed, place.command, draws)
        latents = one.transform(data.x_test)
        for cell in job.cells:
            if cell.seed == seed:
                ward = Ward(cell.settings["n_leaves"]).fit(latents)
                yield cell, density | clustering(ward.tree_, ward.labels_, data)


def _matched(cell: Cell, data: DataSet) -> int:
    """The width at which a LadderVAE has as many weights as a TreeVAE of the recipe has in training."""
    from ..baselines.ladder import matched_hidden_dim
    from ..estimator import TreeVAE
    from ..preparing import prepare
    from ..tree import balanced

    left_out = ("augment", "contrastive_weight", "depth")
    model = TreeVAE(**PAPER | {name: value for name, value in cell.settings.items() if name not in left_out})
    arch = prepare("TreeVAE", model.get_params(deep=False), data.x_train[:1000]).arch
    return matched_hidden_dim(arch, balanced(cell.settings["n_leaves"]), cell.settings["depth"])


def make_deepect(cell: Cell, data: DataSet, place: FitPlace) -> DeepECT:
    """The DeepECT of a cell."""
    from ..baselines.deepect import DeepECT

    plain = DeepECT()
    settings = {name: value for name, value in cell.settings.items() if name not in ("n_leaves", "contrastive_weight")}
    epochs = _epochs(plain.epochs, cell)
    return DeepECT(
        cell.settings["n_leaves"],
        **settings,
        pretrain_epochs=_epochs(plain.pretrain_epochs, cell),
        epochs=epochs,
        split_every=plain.split_every * epochs / plain.epochs,  # a shortened run has as many splits
        device=place.device,
        random_state=cell.seed,
        verbose=place.verbose,
    )


def fit_deepect(model: DeepECT, job: Job, data: DataSet, place: FitPlace) -> Records:
    """The record of the cell; learnt from the training samples, the test samples are placed."""
    from ..records import clustering, origin, parameters_of

    (cell,) = job.cells
    with _fewer_leaves_allowed():
        model.fit(data.x_train, checkpoint=place.folder)
    device = next(model.module_.parameters()).device
    about = origin(parameters_of(model), data, cell.seed, place.command, model.seconds_[-1], device)
    yield cell, about | clustering(model.tree_, model.predict(data.x_test), data)


def make_ward(cell: Cell, data: DataSet, place: FitPlace) -> Ward:
    """Ward's method with the leaves of a cell."""
    from ..baselines.ward import Ward

    return Ward(cell.settings["n_leaves"])


def make_bisecting(cell: Cell, data: DataSet, place: FitPlace) -> Bisecting:
    """Bisecting k-means with the leaves and the seed of a cell."""
    from ..baselines.bisecting import Bisecting

    return Bisecting(cell.settings["n_leaves"], random_state=cell.seed)


def fit_test_samples(model: Ward | Bisecting, job: Job, data: DataSet, place: FitPlace) -> Records:
    """The record of the cell. The test samples themselves are clustered: Ward's method cannot place others."""
    from ..records import clustering, origin, parameters_of

    (cell,) = job.cells
    began = time.perf_counter()
    with _fewer_leaves_allowed():
        model.fit(data.x_test)
    about = origin(parameters_of(model), data, cell.seed, place.command, time.perf_counter() - began)
    yield cell, about | clustering(model.tree_, model.labels_, data)


def make_hdbscan(cell: Cell, data: DataSet, place: FitPlace) -> HDBSCAN:
    """HDBSCAN by scikit-learn's defaults."""
    from sklearn.cluster import HDBSCAN

    return HDBSCAN(copy=True)  # what it does by default, without a warning


def fit_hdbscan(model: HDBSCAN, job: Job, data: DataSet, place: FitPlace) -> Records:
    """The record of the cell, on the test samples. There is no tree, and what it calls noise is one more cluster."""
    import numpy as np

    from ..records import clustering, origin, parameters_of

    (cell,) = job.cells
    began = time.perf_counter()
    labels = model.fit_predict(np.asarray(data.x_test, dtype=np.float64).reshape(len(data.x_test), -1))
    about = origin(parameters_of(model), data, cell.seed, place.command, time.perf_counter() - began)
    _, clusters = np.unique(labels, return_inverse=True)  # noise, where there is some, comes first
    yield cell, about | clustering(None, clusters, data) | {"noise_samples": int((labels < 0).sum())}


LADDER = Method(
    "laddervae",
    make_laddervae,
    fit_latents,
    uses=OF_LATENTS,
    own=DEPTH,
    together=("seed", "n_leaves"),
    keeps_state=True,
    gpu=True,
)
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("treevae", make_treevae, fit_treevae, together=("seed",), keeps_state=True, gpu=True),
        replace(LADDER, name="vae", make=make_vae),
        LADDER,
        replace(  # hidden_dim, max_depth and n_leaves are of the TreeVAE that has as many weights
            LADDER,
            name="laddervae-matched",
            make=make_matched,
            uses=(*OF_LATENTS, "max_depth"),
            together=("seed",),
        ),
        # its extension by augmented samples is the paper's in the contrastive experiments alone
        Method(
            "deepect",
            make_deepect,
            fit_deepect,
            uses=OF_DEEPECT,
            if_contrastive=("augment",),
            keeps_state=True,
            gpu=True,
        ),
        Method("agg", make_ward, fit_test_samples, uses=("n_leaves",), seeded=False),
        Method("bisecting", make_bisecting, fit_test_samples, uses=("n_leaves",)),
        # by scikit-learn's defaults, as one would try it first
        Method("hdbscan", make_hdbscan, fit_hdbscan, uses=(), seeded=False, lacks=("DP",)),
    )
}
