"""Closed forms against torch.distributions, likelihoods against theirs, and a tree whose log p(x) is known exactly."""

import itertools

import pytest
import torch
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence

from treevae.model.elbo import ElboTerms, Gaussian, kl_decision, kl_gaussian, precision_weighted
from treevae.model.likelihoods import LEARNT_VARIANCE_FLOOR, LIKELIHOODS
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture, Mlp
from treevae.model.scoring import fingerprint, score_terms
from treevae.model.stack import Linear
from treevae.tree import Tree


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_kl_of_gaussians(draw):
    q, p = (Gaussian(draw(3, 5, 4), draw(3, 5, 4).exp()) for _ in range(2))
    expected = kl_divergence(Normal(q.mean, q.variance.sqrt()), Normal(p.mean, p.variance.sqrt())).sum(-1)
    torch.testing.assert_close(kl_gaussian(q, p), expected)


def test_kl_of_decisions_also_far_out(draw):
    q, p = 5 * draw(4, 6), 5 * draw(4, 6)
    torch.testing.assert_close(kl_decision(q, p), kl_divergence(Bernoulli(logits=q), Bernoulli(logits=p)))
    far = torch.tensor([1e4, -1e4], dtype=torch.float32, requires_grad=True)
    kl_decision(far, -far.detach() / 1e3).sum().backward()
    assert torch.isfinite(kl_decision(far, -far)).all()
    assert torch.isfinite(far.grad).all()


def test_precision_weighted_is_the_normalised_product_of_densities(draw):
    q_hat, p = (Gaussian(draw(1, 1, 1), draw(1, 1, 1).exp()) for _ in range(2))
    q, z = precision_weighted(q_hat, p), torch.linspace(-3, 3, 7, dtype=torch.float64)

    def log_density(g):
        return Normal(g.mean.squeeze(), g.variance.sqrt().squeeze()).log_prob(z)

    gap = log_density(q_hat) + log_density(p) - log_density(q)
    torch.testing.assert_close(gap, gap[:1].expand(7))  # equal up to the normalisation


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods(name, draw):
    """Two leaves that explain the samples of the same run, and of different ones."""
    likelihood, both = LIKELIHOODS[name], draw(2, 6, 5).sigmoid()
    output = 3 * draw(2, 6, 5 * likelihood.outputs)
    for x, run_of in ((both[:1], torch.tensor([0, 0])), (both, torch.tensor([1, 0]))):
        check_likelihood(likelihood, x, output, run_of)


def check_likelihood(likelihood, given, output, run_of):
    x = given[run_of]
    if likelihood is LIKELIHOODS["bernoulli"]:
        p = output.sigmoid()
        expected = (x * p.log() + (1 - x) * (1 - p).log()).sum(-1)
        exact = Bernoulli(logits=output).log_prob(x.round()).sum(-1)
        torch.testing.assert_close(likelihood.log_prob(given.round(), output, run_of), exact)
    else:
        mean, raw = output[..., :5], output[..., 5:]
        variance = torch.nn.functional.softplus(raw) + LEARNT_VARIANCE_FLOOR if likelihood.outputs == 2 else 1.0
        expected = Normal(mean, torch.as_tensor(variance, dtype=torch.float64).sqrt()).log_prob(x).sum(-1)
        torch.testing.assert_close(likelihood.mean(output), mean)
    torch.testing.assert_close(likelihood.log_prob(given, output, run_of), expected)


def test_loss_at_weight_one_is_minus_the_elbo(draw):
    terms = ElboTerms(draw(4, 1, 9))
    torch.testing.assert_close(terms.loss(), -terms.elbo.mean())
    torch.testing.assert_close(terms.loss(0.25), 0.25 * terms.kl.mean() - terms.reconstruction.mean())


# -- a linear-Gaussian tree: every network affine, so that p(x) is a mixture of Gaussians ---------------------------

LEAKY = 1.3  # leaky(u) - leaky(-u) = (1 + 0.3) u, so that a pair of hidden units makes an exactly linear map


def set_affine(mlp: Mlp, row: int, matrix: torch.Tensor, offset: torch.Tensor) -> None:
    """Make a one-hidden-layer network of a stack compute ``matrix @ input + offset``."""
    (dense,), (n_out, n_in) = mlp.hidden, matrix.shape
    with torch.no_grad():
        dense.norm.running_var.fill_(1 - 1e-5)  # eval-mode batch norm is then the identity
        dense.linear.weight[row] = 0
        for j in range(n_in):
            dense.linear.weight[row, j, 2 * j], dense.linear.weight[row, j, 2 * j + 1] = 1, -1
        mlp.head.weight[row] = 0
        for i in range(n_out):
            for j in range(n_in):
                mlp.head.weight[row, 2 * j, i] = matrix[i, j] / LEAKY
                mlp.head.weight[row, 2 * j + 1, i] = -matrix[i, j] / LEAKY
        mlp.head.bias[row, 0] = offset


def inverse_softplus(value: float) -> float:
    return float(torch.tensor(value - 1e-7, dtype=torch.float64).expm1().log())


class LinearGaussianTree:
    """z0 ~ N(0,1), z_i = a_i z_pa + b_i + N(0, s_i), x = w_l z_l + N(0, I_2); constant routers; exact posteriors
    where a single Gaussian can be exact."""

    def __init__(self, tree: Tree, edges: dict, weights: dict, right: dict, monkeypatch) -> None:
        monkeypatch.setitem(__import__("treevae.model.networks", fromlist=["x"]).MLP_WIDTHS, "mlp", (4,))
        arch = Architecture((2,), "mlp", "gaussian", (1,) * (tree.height + 1), (4,) * tree.height, 1, 1)
        self.module = TreeVAEModule(arch, [tree], torch.Generator().manual_seed(0)).double().eval()
        self.tree, self.edges, self.weights, self.right = tree, edges, weights, right
        rows = self.module.nodes.rows()
        for key, (stack, i) in rows["transformation"].items():
            a, b, s = edges[key.node]
            set_affine(stack, i, torch.tensor([[a], [0.0]]), torch.tensor([b, inverse_softplus(s)]))
        for key, (stack, i) in rows["decoder"].items():
            set_affine(stack, i, weights[key.node][:, None], torch.zeros(2))
        for kind in ("router_p", "router_q"):
            for key, (stack, i) in rows[kind].items():
                set_affine(stack, i, torch.zeros(1, 1), torch.tensor([right[key.node]]).logit())

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        """log p(x), exactly: a mixture with one Gaussian for each leaf."""
        parts = []
        for leaf in self.tree.leaves:
            mean, variance, log_weight = 0.0, 1.0, 0.0
            path = self.tree.path(leaf)
            for above, node in itertools.pairwise(path):
                a, b, s = self.edges[node]
                mean, variance = a * mean + b, a * a * variance + s
                if len(children := self.tree.children(above)) == 2:
                    right = self.right[above]
                    log_weight += float(torch.tensor(right if children[1] == node else 1 - right).log())
            w = self.weights[leaf]
            covariance = variance * torch.outer(w, w) + torch.eye(2, dtype=torch.float64)
            parts.append(MultivariateNormal(mean * w, covariance).log_prob(x) + log_weight)
        return torch.logsumexp(torch.stack(parts), 0)

    def sample(self, n: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return self.module.generate(n, generator) + torch.randn(n, 2, generator=generator, dtype=torch.float64)

    def elbo(self, x: torch.Tensor) -> torch.Tensor:
        """The ELBO with its expectation taken exactly: all terms are quadratic in the noise, so that noise of +1 and
        -1 in all combinations over the levels has every moment that matters."""
        levels = self.module.nodes.layout.levels
        signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * len(levels)).T
        noise = [
            sign.repeat_interleave(len(x)).reshape(1, -1, 1).expand(len(level), -1, -1)
            for level, sign in zip(levels, signs, strict=True)
        ]
        with torch.no_grad():
            return self.module.elbo(x, noise, samples=signs.shape[1]).elbo[0]

    def set_exact_evidence(self, w: torch.Tensor) -> None:
        """Let d be (x, -x) at every depth, and the dense heads the exact message from x, where all leaves share w."""
        bottom_up = self.module.bottom_up
        with torch.no_grad():
            for dense in (bottom_up.encoder.hidden[0], *(step.hidden[0] for step in bottom_up.steps)):
                dense.norm.running_var.fill_(1 - 1e-5)
                dense.linear.weight.zero_()
            first = bottom_up.encoder.hidden[0].linear.weight[0]
            first[0, 0], first[0, 1], first[1, 2], first[1, 3] = 1, -1, 1, -1  # hidden: leaky of x1, -x1, x2, -x2
            scale = 1.0
            scales = [scale]
            for step in bottom_up.steps:  # leaky(u) - leaky(-u) = 1.3 u again, and again
                weight = step.hidden[0].linear.weight[0]
                for j in (0, 2):
                    weight[j, j], weight[j + 1, j] = 1, -1
                    weight[j, j + 1], weight[j + 1, j + 1] = -1, 1
                scale *= LEAKY
                scales.insert(0, scale)
            for key, (head, i) in self.module.nodes.rows()["dense"].items():
                assert isinstance(head, Linear)
                precision, offset = float(w @ w), 0.0  # x says: z_leaf ~ N(w.x / w.w, 1 / w.w)
                slope, variance = 1.0 / precision, 1.0 / precision
                below = self.tree.leaves_below(key.node)[0]
                for node in reversed(self.tree.path(below)[self.tree.depth(key.node) + 1 :]):
                    a, b, s = self.edges[node]  # z_pa = (z - b) / a
                    slope, offset, variance = slope / a, (offset - b) / a, (variance + s) / a**2
                depth_scale = scales[self.tree.depth(key.node)] * LEAKY
                head.weight[i] = 0
                for j in (0, 1):
                    head.weight[i, 2 * j, 0] = slope * w[j] / depth_scale
                    head.weight[i, 2 * j + 1, 0] = -slope * w[j] / depth_scale
                head.bias[i, 0] = torch.tensor([offset, inverse_softplus(variance)])


W = torch.tensor([1.5, -0.7], dtype=torch.float64)


AGREEING = {
    "a chain": Tree().split(0).prune(1).split(2).prune(4),
    "two equal leaves": Tree().split(0),
    "four equal leaves": Tree().split(0).split(1).split(2),
}


def off_posterior(monkeypatch) -> LinearGaussianTree:
    """A tree whose leaves differ and whose posteriors are as they were initialised: wrong."""
    tree = Tree().split(0).split(1)
    edges = {node: (0.9 - 0.3 * node, 0.5 * node - 1, 0.4) for node in tree.nodes if node != 0}
    weights = {leaf: torch.tensor([0.5 * leaf, 1.0 - leaf], dtype=torch.float64) for leaf in tree.leaves}
    return LinearGaussianTree(tree, edges, weights, {0: 0.4, 1: 0.7}, monkeypatch)


def at_posterior(tree: Tree, monkeypatch) -> LinearGaussianTree:
    """A tree whose leaves agree, so that p(z | x) is one Gaussian, and whose q is it: the bound is tight."""
    by_depth = {1: (0.8, 0.3, 0.5), 2: (-1.2, 0.1, 0.7)}
    edges = {node: by_depth[tree.depth(node)] for node in tree.nodes if node != 0}
    right = dict.fromkeys(tree.routers, 0.3)
    model = LinearGaussianTree(tree, edges, dict.fromkeys(tree.leaves, W), right, monkeypatch)
    model.set_exact_evidence(W)
    return model


@pytest.mark.parametrize("tree", AGREEING.values(), ids=AGREEING.keys())
def test_elbo_reaches_log_p_at_the_true_posterior(tree, monkeypatch):
    model = at_posterior(tree, monkeypatch)
    x = model.sample(50)
    torch.testing.assert_close(model.elbo(x), model.log_prob(x), atol=1e-5, rtol=0)


def test_elbo_stays_below_log_p(monkeypatch):
    model = off_posterior(monkeypatch)
    x = model.sample(64)
    gap = model.log_prob(x) - model.elbo(x)
    assert gap.min() > 0


def test_score_of_a_sample_does_not_depend_on_its_company():
    arch = Architecture((6,), "mlp", "bernoulli", (3,) * 3, (8,) * 2)
    module = TreeVAEModule(arch, [Tree().split(0)], torch.Generator().manual_seed(0)).eval()
    x = torch.rand(40, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = score_terms(module, x, 5).elbo
        alone = torch.cat([score_terms(module, row[None], 5).elbo for row in x.flip(0)]).flip(0)
    torch.testing.assert_close(together, alone)
    assert len(set(fingerprint(x).tolist())) == 40
