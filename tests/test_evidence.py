"""Estimates of log p(x) against exact ones, the weight of a draw against a recursion, and sums that need no memory."""

import math

import pytest
import torch
from test_elbo import AGREEING, at_posterior, off_posterior
from test_model import ARCHITECTURES, BATCH, TREES, generator, noise_by_node, random_module, random_x
from torch.distributions import Normal
from twin import Twin

from treevae.model import descent, evidence, scoring
from treevae.model.elbo import Gaussian
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.tree import Tree

NETWORKS = {
    "cnn, bernoulli": Architecture((1, 9, 11), "cnn", "bernoulli", (3,) * 4, (6,) * 3),
    "cnn, gaussian": Architecture((3, 8, 8), "cnn", "gaussian", (3,) * 4, (6,) * 3),
    "mlp, bernoulli": Architecture((7,), "mlp", "bernoulli", (3,) * 4, (6,) * 3),
    "mlp, gaussian": Architecture((7,), "mlp", "gaussian", (5, 4, 3, 2), (7, 6, 5)),
    "mlp, gaussian_learnt": Architecture((7,), "mlp", "gaussian_learnt", (3,) * 4, (6,) * 3),
}


def weight_of(nodes, d, found, x: torch.Tensor) -> torch.Tensor:
    """The importance weights of all draws, decoded here."""
    return evidence.importance_weight(nodes, d, found, descent.log_likelihood(nodes, found.z, found.each(x[None])))


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


# -- the importance-weighted bound --------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [1, 7])
@pytest.mark.parametrize("tree", AGREEING.values(), ids=AGREEING.keys())
def test_iwae_is_log_p_for_any_draws_at_the_true_posterior(tree, draws, monkeypatch):
    model = at_posterior(tree, monkeypatch)
    x = model.sample(50)
    torch.testing.assert_close(evidence.evidence(model.module, x, draws)[0], model.log_prob(x), atol=1e-5, rtol=0)


def test_iwae_rises_from_the_elbo_to_log_p(monkeypatch):
    model = off_posterior(monkeypatch)
    x = model.sample(400)
    log_p = model.log_prob(x).mean()
    bounds = [model.elbo(x).mean(), *(evidence.evidence(model.module, x, draws).mean() for draws in (1, 10, 100, 1000))]
    assert bounds == sorted(bounds)
    assert bounds[0] < log_p - 1
    assert log_p - 0.05 < bounds[-1] < log_p


def test_mean_weight_is_p_of_x(monkeypatch):
    """The weights are unbiased, which no error in a leaf, a turn or a ratio would survive, whatever q is."""
    model = off_posterior(monkeypatch)
    for head, i in model.module.nodes.rows()["dense"].values():
        head.weight[i] = 0
        head.bias[i, 0] = torch.tensor([0.5, 4.0])  # weak evidence: q is nearly as wide as p, and no weight is large
    x, draws = model.sample(5), 40_000
    noise = descent.noise_for(model.module.nodes, draws * len(x), generator(4))
    d = model.module.d(x)
    log_weight = weight_of(model.module.nodes, d, descent.infer(model.module.nodes, d, noise, draws), x)
    share = (log_weight.unflatten(0, (draws, -1)) - model.log_prob(x)).exp()  # of p(x)
    error = share.std(0) / math.sqrt(draws)
    assert error.max() < 0.02
    assert ((share.mean(0) - 1).abs() < 4 * error).all()


@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_weights_of_draws_equal_the_recursive_twin(tree, arch):
    module, x, draws = random_module(arch, [tree], training=False), random_x(arch), 3
    noise = descent.noise_for(module.nodes, draws * BATCH, generator(4))
    d = module.d(x)
    found = weight_of(module.nodes, d, descent.infer(module.nodes, d, noise, draws), x)
    by_node, twin = noise_by_node(module, noise), Twin(module)
    expected = [
        twin.log_weight(x, {node: rows[k * BATCH : (k + 1) * BATCH] for node, rows in by_node.items()})
        for k in range(draws)
    ]
    torch.testing.assert_close(found, torch.cat(expected))


@pytest.mark.parametrize("arch", NETWORKS.values(), ids=NETWORKS.keys())
def test_float32_is_enough_for_weights(arch):
    module, x = random_module(arch, [TREES["uneven"]], training=False), random_x(arch).float()
    noise = [level.float() for level in descent.noise_for(module.nodes, BATCH, generator(4))]

    def log_weight(kind: torch.dtype) -> torch.Tensor:
        nodes, d = module.to(kind).nodes, module.d(x.to(kind))
        found = descent.infer(nodes, d, [level.to(kind) for level in noise])
        return weight_of(nodes, d, found, x.to(kind)).double()

    torch.testing.assert_close(log_weight(torch.float32), log_weight(torch.float64), rtol=1e-5, atol=1e-4)


def test_density_of_gaussians():
    draw = generator()
    mean, z = torch.randn(2, 3, 5, 4, generator=draw, dtype=torch.float64)
    variance = torch.rand(3, 5, 4, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(Gaussian(mean, variance).log_prob(z), Normal(mean, variance.sqrt()).log_prob(z).sum(-1))


# -- the paper's figure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", NETWORKS.values(), ids=NETWORKS.keys())
def test_the_papers_figure_is_the_log_mean_exp_of_elbos(arch):
    module, x = random_module(arch, [TREES["one-child nodes"]], training=False), random_x(arch)
    place = scoring.place_in_pool(x)
    elbos = torch.stack([module.elbo(x, scoring.noise_of(module.nodes, place, [k])).elbo[0] for k in range(5)])
    torch.testing.assert_close(evidence.evidence(module, x, 5, ["paper"])[0], elbos.logsumexp(0) - math.log(5))


def test_the_papers_figure_exceeds_log_p_at_the_true_posterior(monkeypatch):
    """There the ELBO is log p(x) already, and the log-mean-exp of its draws is above their mean."""
    model = at_posterior(Tree().split(0), monkeypatch)
    x = model.sample(50)
    excess = evidence.evidence(model.module, x, 1000, ["paper"])[0] - model.log_prob(x)
    assert excess.min() > 0
    assert excess.mean() > 0.1


# -- draws and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", evidence.BOUNDS)
@pytest.mark.parametrize("arch", NETWORKS.values(), ids=NETWORKS.keys())
def test_neither_company_nor_chunks_change_a_value(arch, bound, monkeypatch):
    module = TreeVAEModule(arch, [TREES["uneven"]], generator()).eval()
    x = random_x(arch).float()
    together = evidence.evidence(module, x, 23, [bound])[0]
    alone = torch.cat([evidence.evidence(module, row[None], 23, [bound])[0] for row in x.flip(0)]).flip(0)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    assert torch.equal(together, evidence.evidence(module, x, 23, [bound])[0])
    for rows in (1, 5 * BATCH):
        monkeypatch.setattr(evidence, "ROWS", rows)
        torch.testing.assert_close(together, evidence.evidence(module, x, 23, [bound])[0], rtol=1e-5, atol=1e-5)


def test_the_sum_survives_weights_that_float32_cannot_hold(monkeypatch):
    """exp(-1000 k) is 0 for every k, and the largest weight may come last."""
    module = TreeVAEModule(NETWORKS["mlp, bernoulli"], [Tree()], generator()).eval()
    monkeypatch.setattr(evidence, "ROWS", 2)
    logs = iter([-3000.0, -1000.0, -1000.0, -2000.0])
    monkeypatch.setitem(evidence.BOUNDS, "iwae", lambda nodes, d, found, log_px: torch.full_like(log_px[0], next(logs)))
    (found,) = evidence.evidence(module, torch.rand(2, 7), 4)
    torch.testing.assert_close(found, torch.full((2,), -1000 + math.log(2 / 4)))


def test_bounds_of_the_same_draws_decode_once(monkeypatch):
    module = TreeVAEModule(NETWORKS["mlp, bernoulli"], [TREES["uneven"]], generator()).eval()
    x, decoded, decode = torch.rand(5, 7, generator=generator(1)), [], descent.decode
    alone = torch.cat([evidence.evidence(module, x, 6, [bound]) for bound in evidence.BOUNDS])
    monkeypatch.setattr(descent, "decode", lambda *given: decoded.append(1) or decode(*given))
    assert torch.equal(evidence.evidence(module, x, 6, list(evidence.BOUNDS)), alone)
    assert len(decoded) == 1


def test_memory_does_not_grow_with_draws(monkeypatch):
    module = TreeVAEModule(NETWORKS["mlp, bernoulli"], [TREES["uneven"]], generator()).eval()
    rows, drawn, infer = [], [], descent.infer

    def spy(nodes, d, noise, samples):
        rows.append(noise[0].shape[1])
        drawn.append(samples)
        return infer(nodes, d, noise, samples)

    monkeypatch.setattr(descent, "infer", spy)
    monkeypatch.setattr(evidence, "ROWS", 64)
    for n, draws in ((10, 7), (10, 333), (64, 5), (100, 5)):
        rows.clear()
        drawn.clear()
        evidence.evidence(module, torch.rand(n, 7, generator=generator(n)), draws)
        assert max(rows) <= max(64, n)
        assert sum(drawn) == draws


def test_bits_per_dimension():
    # pixels of which all 256 levels are equally likely: a density of 255/256 from half a level below 0 to half above 1
    assert evidence.bits_per_dimension(12 * math.log(255 / 256), 12) == pytest.approx(8)
    assert evidence.bits_per_dimension(12 * math.log(255 / 16), 12) == pytest.approx(4)  # one of 16 levels


BYTES = torch.arange(256).repeat(5, 1)


@pytest.mark.parametrize(
    "x",
    [
        BYTES / 255,
        BYTES * torch.tensor(1 / 255),
        (BYTES.double() / 255).float(),
        (BYTES > 100).float(),  # two levels that bytes have
    ],
    ids=["divided", "multiplied", "divided in float64", "black and white"],
)
def test_bytes_are_known_by_their_levels(x):
    assert evidence.on_byte_levels(x)


@pytest.mark.parametrize("rows", [1, 1024])
@pytest.mark.parametrize("value", [0.5, 1 / 255 + 3e-7, -1 / 255, 256 / 255, 1 / 16, -1e-6])
def test_one_value_between_the_levels_of_bytes_is_enough(value, rows, monkeypatch):
    monkeypatch.setattr(evidence, "ROWS", rows)
    x = BYTES / 255
    x[3, 7] = value
    assert not evidence.on_byte_levels(x)
