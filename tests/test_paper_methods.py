"""The methods of the tables: what is fitted for a cell, and what its record says."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cells import CPU, SCALE, SMALL, cell_of, records_of

from treevae import Tree, TreeVAE
from treevae.baselines.deepect import DeepECT
from treevae.baselines.ladder import VAE, LadderVAE, path
from treevae.baselines.ward import Ward
from treevae.data import DataSet, load
from treevae.experiments.cells import Job, other_parameters
from treevae.experiments.methods import METHODS, FitPlace
from treevae.experiments.running import jobs_of, wanted
from treevae.experiments.store import Store
from treevae.experiments.tables import TABLES
from treevae.model.module import TreeVAEModule
from treevae.preparing import prepare
from treevae.recipes import RECIPES
from treevae.records import clustering, parameters_of
from treevae.tree import balanced


def test_deepect_gives_a_record_for_its_cell():
    data = load("digits")
    cell = cell_of(data="digits", method="deepect", scale=0.005, n_leaves=6, network="mlp", batch_size=128)
    ((_, found),) = records_of(Job((cell,)), data, CPU)
    assert len(found["test_leaf_by_class"]) == 6  # in one epoch, where the paper has a split in two
    assert set(found["scores_percent"]) == {"DP", "LP", "ACC", "NMI", "ARI"}
    assert np.sum(found["test_leaf_by_class"]) == len(data.x_test)
    told = {"n_clusters": 6, "latent_dim": 10, "network": "mlp", "likelihood": "bernoulli", "augment": None,
            "pretrain_epochs": 1, "epochs": 1, "split_every": 0.01, "prune_below": 0.1, "batch_size": 128,
            "learning_rate": 1e-4, "pretrain_learning_rate": 1e-3}  # fmt: skip
    assert found["parameters"] == told  # all that it has but device, verbosity and seed
    assert found["seconds"] > 0
    json.dumps(found)


@pytest.mark.parametrize(("name", "told"), [("agg", {"n_clusters": 4}), ("bisecting", {"n_clusters": 4, "n_init": 10})])
def test_a_record_of_test_samples_tells_all_parameters(name, told):
    cell = cell_of(3, data="digits", method=name, n_leaves=4)
    ((_, found),) = records_of(Job((cell,)), load("digits"), CPU)
    assert found["parameters"] == told
    assert found["seconds"] > 0


def test_a_record_of_treevae_tells_all_parameters_but_the_seed():
    ((_, found),) = records_of(Job((cell_of(3, SCALE, "digits", **SMALL),)), load("digits"), CPU)
    named = set(TreeVAE().get_params()) - {"device", "verbose", "random_state"}
    assert set(found["parameters"]) == named
    assert (found["parameters"]["learning_rate"], found["parameters"]["epochs"]) == (1e-3, 3)


def test_new_fits_have_the_parameters_of_the_records_in_the_repository():
    """Else `treevae paper run` would refuse to add seeds to them."""
    here, data = Store(Path(__file__).parents[1] / "results"), load("digits")
    compared = 0
    for cell in {cell for table in TABLES.values() for cell in wanted(table, 1, 1.0)}:
        for kept in here.seeds(cell).values():
            if "parameters" in kept:
                now = {"parameters": parameters_of(METHODS[cell.method].make(cell, data, CPU))}
                assert other_parameters(kept, now) == []
                compared += len(set(kept["parameters"]) & set(now["parameters"])) >= 9
    assert compared > 90


@pytest.fixture
def made_deepect(monkeypatch):
    """The DeepECT that is made for a cell, before it is fitted."""
    made = []

    def enough(model, X, **options):
        made.append(model)
        raise ValueError("enough")

    def of(data, scale=1.0):
        with pytest.raises(ValueError, match="enough"):
            list(records_of(Job((cell_of(data=data, method="deepect", scale=scale),)), load("digits"), CPU))
        return made[-1]

    monkeypatch.setattr(DeepECT, "fit", enough)
    return of


@pytest.mark.parametrize(("scale", "expected"), [(1.0, (50, 200, 2)), (0.1, (5, 20, 0.2)), (1e-3, (1, 1, 0.01))])
def test_a_shortened_deepect_is_shortened_in_all_its_parts(made_deepect, scale, expected):
    model = made_deepect("mnist", scale)
    assert (model.pretrain_epochs, model.epochs, model.split_every) == pytest.approx(expected)


def test_deepect_is_extended_by_augmentation_in_contrastive_experiments_alone(made_deepect):
    """The paper uses its own kind of contrast "for the contrastive clustering experiments"."""
    assert [made_deepect(data).augment for data in ("omniglot5", "cifar10", "mnist")] == [None, "cifar", None]
    assert "augment" not in METHODS["deepect"].cell("omniglot5", {}, 1.0, 0).settings  # a record says what was done
    assert RECIPES["omniglot5"]["augment"] == "omniglot"  # which TreeVAE learns from


@pytest.mark.parametrize("name", ["agg", "bisecting", "hdbscan"])
def test_a_method_gives_a_record_for_its_cells(name):
    data = load("digits")
    ((cell, found),) = records_of(Job((cell_of(data="digits", method=name),)), data, FitPlace(command="a command"))
    assert cell.method == name
    assert found["command"] == "a command"
    assert set(found["scores_percent"]) == {"LP", "ACC", "NMI", "ARI"} | ({"DP"} if name != "hdbscan" else set())
    assert 20 < found["scores_percent"]["ACC"] <= 100
    assert np.sum(found["test_leaf_by_class"]) == len(data.x_test)
    json.dumps(found)


@pytest.mark.parametrize(
    ("n_noise", "counts"), [(10, [[10, 0], [20, 0], [0, 60], [0, 60]]), (0, [[20, 0], [0, 60], [0, 60]])]
)
def test_hdbscan_has_no_settings_and_its_noise_is_one_more_cluster(n_noise, counts):
    chance = np.random.default_rng(0)
    groups = [chance.normal(centre, 0.01, (n, 2)) for centre, n in ((0, 60), (5, 60), (10, 20))]
    noise = 1000 * chance.normal(size=(n_noise, 2))
    x, y = np.concatenate([*groups, noise]), np.repeat([1, 0], [120, 20 + n_noise])
    cell = cell_of(data="digits", method="hdbscan")
    assert cell.settings == {}  # scikit-learn's defaults
    ((_, found),) = records_of(Job((cell,)), DataSet("made up", x, y, x, y, ("few", "many")), FitPlace())
    assert found["noise_samples"] == n_noise
    assert found["test_leaf_by_class"] == counts  # noise first


@pytest.mark.parametrize("name", ["vae", "laddervae", "laddervae-matched"])
def test_latents_give_a_record_for_their_cells(name):
    data, method = load("digits"), METHODS[name]
    changes = {"max_depth": 2, "network": "mlp", "hidden_dim": 16, "batch_size": 64}
    cells = [method.cell("digits", changes | {"n_leaves": n}, 0.004, seed) for n in (4, 10) for seed in (0, 1)]
    cells = cells if "matched" not in name else cells[:2]
    found = dict(records_of(Job(tuple(cells)), data, CPU))
    assert set(found) == set(cells)
    for cell, kept in found.items():
        assert kept["elbo"]["ELBO"] < 0
        assert kept["likelihood"]["draws"] == 4
        assert kept["seed"] == cell.seed
        assert kept["parameters"] == parameters_of(method.make(cell, data, CPU))
        of_the_tree = ("n_leaves",) if name != "laddervae-matched" else ("n_leaves", "max_depth", "hidden_dim")
        said = {setting: value for setting, value in cell.settings.items() if setting not in of_the_tree}
        assert said.items() <= kept["parameters"].items()
        assert kept["parameters"]["epochs"] == (2 if name == "vae" else 4)
        assert not {"n_leaves", "tree", "random_state"} & set(kept["parameters"])  # which no VAE has, or the seed
        assert not {"nodes", "train_leaf_sizes"} & set(kept)  # of the one leaf of the model
        assert len(kept["test_leaf_by_class"]) == cell.settings["n_leaves"]  # Ward's method on the latents
        assert len(Tree.from_json(json.dumps(kept["tree"])).leaves) == cell.settings["n_leaves"]
        assert kept["scores_percent"]["ACC"] > 10
        json.dumps(kept)
    if name == "laddervae-matched":
        tree = TreeVAE(**RECIPES["digits"] | changes | {"tree": balanced(4)})
        arch = prepare("TreeVAE", tree.get_params(deep=False), data.x_train).arch
        in_training = sum(w.numel() for w in TreeVAEModule(arch, [balanced(4)], torch.Generator()).parameters())
        assert in_training <= kept["n_weights"] < 1.03 * in_training


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("vae", "fashion", {"epochs": 500, "max_depth": 5, "latent_dim": 8, "network": "cnn", "batch_size": 256}),
        ("vae", "omniglot", {"epochs": 500, "augment": "omniglot", "contrastive_weight": 0.0, "network": "deep_cnn"}),
        ("vae", "cifar10", {"augment": "cifar", "contrastive_weight": 100.0, "contrastive_loss": "bottom_up"}),
        ("laddervae", "news20", {"epochs": 1000, "max_depth": 5, "latent_dim": 4, "hidden_dim": 128}),
        ("laddervae", "mnist", {"epochs": 1000, "max_depth": 5, "likelihood": "bernoulli"}),
        (
            "laddervae",
            "cifar100",
            {"epochs": 1000, "max_depth": 5, "hidden_dim": 512, "augment": "cifar", "contrastive_weight": 100.0,
             "contrastive_loss": "bottom_up", "layer_defaults": "tensorflow", "likelihood": "gaussian"},
        ),
        ("laddervae-matched", "fashion", {"epochs": 1000, "max_depth": 5, "latent_dim": 8}),
    ],
)  # fmt: skip
def test_latents_are_of_the_papers_models(name, data, expected, monkeypatch):
    """A VAE for 500 epochs, a LadderVAE of depth 5 for 1,000, with the contrastive loss on photographs."""
    made, samples = [], load("digits")

    def enough(model, X, seeds, **options):
        made.append(model)
        assert X is samples.x_train
        raise ValueError("enough")

    monkeypatch.setattr(LadderVAE, "fit_seeds", enough)
    for scale in (1.0, 0.1):
        with pytest.raises(ValueError, match="enough"):
            list(records_of(Job((cell_of(data=data, method=name, scale=scale),)), samples, CPU))
    whole, short = (model._as_for_treevae() for model in made)
    assert (expected | {"n_init": 1}).items() <= whole.items()  # nothing is split, whatever TreeVAE's default
    assert short["epochs"] == whole["epochs"] / 10
    assert whole["tree"] == (Tree() if name == "vae" else path(whole["max_depth"]))
    assert made[0]._schedule == whole["epochs"]  # of the plan that a VAE or a LadderVAE has


def test_ward_merges_the_latents_of_the_test_samples(monkeypatch):
    data, cells = load("digits"), [cell_of(seed, data="digits", method="vae", n_leaves=n)
                                   for n in (4, 10) for seed in (0, 1)]  # fmt: skip

    def latents(X, seed):
        return X[:, seed * 4 :].reshape(len(X), -1)

    def fitted(model, X, seeds, **options):
        given = {"fitted_": None, "get_params": lambda deep: {}}
        return [SimpleNamespace(**given, transform=lambda X, seed=seed: latents(X, seed)) for seed in seeds]

    monkeypatch.setattr(VAE, "fit_seeds", fitted)
    monkeypatch.setattr("treevae.records.record_of_density", lambda *_: {})
    found = dict(records_of(Job(tuple(cells)), data, CPU))
    assert list(found) == sorted(cells, key=lambda cell: cell.seed)
    for cell, kept in found.items():
        ward = Ward(cell.settings["n_leaves"]).fit(latents(data.x_test, cell.seed))
        expected = clustering(ward.tree_, ward.labels_, data)
        for part in ("tree", "scores_percent", "test_leaf_by_class"):
            assert kept[part] == expected[part]


@pytest.mark.parametrize("method", ["vae", "laddervae"])
def test_one_fit_serves_both_tables(method):
    clusters, densities = (
        set(wanted(TABLES[name], 2, 1.0, ["mnist"], [method])) for name in ("clustering", "generative")
    )
    assert len(clusters) == 4  # two numbers of leaves, two seeds
    assert densities < clusters
    assert len(jobs_of(Store(Path("nowhere")), sorted(clusters, key=str))) == 1


@pytest.mark.parametrize("method", ["vae", "laddervae"])
def test_ladders_are_as_deep_as_the_papers_on_every_data_set(method):
    assert RECIPES["news20"]["max_depth"] == 6
    settings = cell_of(data="news20", method=method).settings
    assert (settings["depth"], "max_depth" in settings) == (5, False)


def test_a_fixed_tree_is_trained_and_recorded():
    data = load("digits")
    tree = Tree().split(0).split(1)
    cell = cell_of(data="digits", scale=SCALE, **SMALL, tree=json.loads(tree.to_json()))
    ((_, found),) = records_of(Job((cell,)), data, CPU)
    assert found["tree"] == found["parameters"]["tree"] == json.loads(tree.to_json())
    json.dumps(found)


def test_frequencies_of_attributes_in_each_leaf():
    x = np.zeros((4, 2))
    has = np.array([[1, 0], [1, 1], [0, 1], [0, 1]], dtype=bool)
    data = DataSet("faces", x, None, x, None, attributes_test=has, attribute_names=("Male", "Bangs"))
    found = clustering(Tree().split(0).split(1), np.array([0, 0, 0, 2]), data)
    assert found["leaf_attributes_percent"] == {
        "Male": [pytest.approx(200 / 3), None, 0], "Bangs": [pytest.approx(200 / 3), None, 100]
    }  # fmt: skip
    assert "scores_percent" not in found


def test_hair_loss_and_beard_are_what_the_paper_says():
    """Its section on CelebA: balding or a receding hairline; a beard or 5 o'clock shadow. Table 3 reads just these."""
    names = ("Bald", "Receding_Hairline", "No_Beard", "5_o_Clock_Shadow")
    has = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=bool)
    x = np.zeros((5, 2))
    data = DataSet("faces", x, None, x, None, attributes_test=has, attribute_names=names)
    found = clustering(Tree().split(0), np.array([0, 0, 0, 1, 1]), data)
    hair, beard = (row for row in TABLES["celeba-attributes"].rows if row.title in ("Hair Loss", "Beard"))
    assert [entry.score.read(found) for entry in hair.entries[:2]] == pytest.approx([100, 0])
    assert [entry.score.read(found) for entry in beard.entries[:2]] == pytest.approx([200 / 3, 50])
