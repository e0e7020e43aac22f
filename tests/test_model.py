"""The batched model against the recursive twin, in float64: values, gradients, running statistics."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from twin import Twin, plain

from treevae.model import descent
from treevae.model.elbo import TERMS
from treevae.model.module import TreeVAEModule
from treevae.model.networks import Architecture
from treevae.model.stack import NodeStack, NormLeaky, frozen_row, gather
from treevae.model.subtree import FrozenPath, Subtree
from treevae.tree import Tree

BATCH = 12
UNEVEN = Tree().split(0).split(1).split(3).split(2)
TREES = {
    "two leaves": Tree().split(0),
    "uneven": UNEVEN,
    "one-child nodes": UNEVEN.prune(8).prune(5),
    "one-child root": Tree().split(0).split(1).prune(2),
    "lone root": Tree(),
    "a chain": Tree().split(0).prune(1).split(2).prune(4),
}
ARCHITECTURES = {
    "mlp": Architecture((7,), "mlp", "bernoulli", (3,) * 4, (6,) * 3),
    "mlp of TensorFlow": Architecture((7,), "mlp", "bernoulli", (3,) * 4, (6,) * 3, layer_defaults="tensorflow"),
    "levels of many sizes": Architecture((5,), "mlp", "gaussian", (5, 4, 3, 2), (7, 6, 5), 2, 1),
    "cnn": Architecture((1, 28, 28), "cnn", "bernoulli", (4,) * 4, (8,) * 3),
    "colour, odd sides": Architecture((2, 9, 14), "cnn", "gaussian_learnt", (3,) * 4, (6,) * 3, 1, 3),
}
LARGE = {  # run node by node, and slow: on fewer trees
    "deep_cnn": Architecture((1, 28, 28), "deep_cnn", "bernoulli", (3,) * 4, (6,) * 3),
    "resnet": Architecture((3, 8, 8), "resnet", "gaussian", (4,) * 4, (6,) * 3, layer_defaults="tensorflow"),
    "resnet, odd sides": Architecture((2, 9, 7), "resnet", "gaussian_learnt", (3,) * 4, (6,) * 3),
    "resnet that never halves": Architecture((1, 4, 6), "resnet", "bernoulli", (3,) * 4, (6,) * 3),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def in_double() -> Iterator[None]:
    """Inside, networks are made in float64 from the start, the constants of their resampling too."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def random_module(arch: Architecture, trees: list[Tree], training: bool) -> TreeVAEModule:
    """A float64 module whose norms, running statistics included, are not at their trivial start."""
    with in_double():
        module = TreeVAEModule(arch, trees, generator(1))
    draw = generator(2)
    for part in module.modules():
        for value in part.state_dict().values() if isinstance(part, NormLeaky) else ():
            value.copy_(0.5 + torch.rand(value.shape, generator=draw, dtype=torch.float64))
    return module.train(training)


def random_x(arch: Architecture) -> torch.Tensor:
    features = int(torch.tensor(arch.input_shape).prod())
    return torch.rand(BATCH, features, generator=generator(3), dtype=torch.float64)


def noise_by_node(module: TreeVAEModule, noise: list[torch.Tensor], tree: int = 0) -> dict[int, torch.Tensor]:
    rows = [row for level in noise for row in level]
    return {key.node: row for key, row in zip(module.nodes.layout.nodes, rows, strict=True) if key.tree == tree}


def assert_same_networks(stack: NodeStack, row: int, twin: torch.nn.Module, what: str) -> None:
    """Gradients and running statistics of a row equal those of its plain twin."""
    own = gather([(stack, row)])
    for (name, param), (_, source) in zip(own.named_parameters(), stack.named_parameters(), strict=True):
        param.grad = torch.zeros_like(param) if source.grad is None else source.grad[row : row + 1].clone()
        assert param.grad.shape == param.shape, name
    mirror = plain(own, 0)
    for p, q in zip(mirror.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    grads = plain(_of_gradients(own), 0)
    for p, q in zip(grads.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.data, torch.zeros_like(q) if q.grad is None else q.grad, msg=lambda m: what + m)
    for (name, p), (_, q) in zip(mirror.named_buffers(), twin.named_buffers(), strict=True):
        if "running" in name:
            torch.testing.assert_close(p, q)


def _of_gradients(stack: NodeStack) -> NodeStack:
    """The stack with its gradients in the place of its parameters, so that they can be read like weights."""
    for param in stack.parameters():
        assert param.grad is not None
        param.data = param.grad
    return stack


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_elbo_equals_the_recursive_twin(tree, arch, training, samples):
    assert_elbo_and_gradients_are_the_twins(tree, arch, training, samples)


@pytest.mark.parametrize(("training", "samples"), [(True, 2), (False, 1)], ids=["train", "eval"])
@pytest.mark.parametrize("arch", LARGE.values(), ids=LARGE.keys())
def test_elbo_of_large_networks_equals_the_recursive_twin(arch, training, samples):
    assert_elbo_and_gradients_are_the_twins(TREES["one-child nodes"], arch, training, samples)


def assert_elbo_and_gradients_are_the_twins(tree: Tree, arch: Architecture, training: bool, samples: int) -> None:
    module, x = random_module(arch, [tree], training), random_x(arch)
    twin = Twin(module)
    noise = descent.noise_for(module.nodes, samples * BATCH, generator(4))

    terms = module.elbo(x, noise, samples)
    kl_root, below = twin.elbo(x, noise_by_node(module, noise), samples)
    torch.testing.assert_close(terms.kl_root, kl_root[None])
    for name in ("reconstruction", "kl_nodes", "kl_decisions"):
        torch.testing.assert_close(getattr(terms, name), getattr(below, name)[None], msg=lambda m, n=name: n + m)

    terms.loss(0.7).backward()
    kl = kl_root + below.kl_nodes + below.kl_decisions
    (0.7 * kl - below.reconstruction).mean().backward()
    assert_same_networks(module.bottom_up.encoder, 0, twin.encoder, "encoder")
    for k, step in enumerate(module.bottom_up.steps):
        assert_same_networks(step, 0, twin.steps[k], f"bottom-up step {k}")
    for kind, rows in module.nodes.rows().items():
        for key, row in rows.items():
            assert_same_networks(*row, twin.nets[kind][key.node], f"{kind} of node {key.node}")


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ["mlp", "levels of many sizes", "resnet, odd sides"])
def test_trees_side_by_side_equal_each_alone(name, training):
    arch, trees = (ARCHITECTURES | LARGE)[name], [TREES["two leaves"], UNEVEN, TREES["one-child nodes"]]
    module, x = random_module(arch, trees, training), random_x(arch)
    alone = [TreeVAEModule.of([(module, r)]) for r in range(len(trees))]
    noise = descent.noise_for(module.nodes, BATCH, generator(5))
    terms = module.elbo(x, noise)
    for r, candidate in enumerate(alone):
        assert candidate.tree == trees[r]
        of_tree = noise_by_node(module, noise, r)
        own = [torch.stack([of_tree[node] for node in level]) for level in trees[r].levels]
        for name in TERMS:
            torch.testing.assert_close(getattr(terms, name)[r], getattr(candidate.elbo(x, own), name)[0])


def test_reach_sums_to_one_and_follows_the_routers():
    module, x = random_module(ARCHITECTURES["mlp"], [TREES["one-child nodes"]], False), random_x(ARCHITECTURES["mlp"])
    reach, twin = module.reach(x), Twin(module)
    torch.testing.assert_close(reach.sum(1), torch.ones(BATCH, dtype=torch.float64))
    d = twin.bottom_up(x)
    expected = []
    for leaf in module.tree.leaves:
        path, probability = module.tree.path(leaf), torch.ones(BATCH).double()
        for above, below in pairwise(path):
            if len(module.tree.children(above)) == 2:
                right = twin.nets["router_q"][above](d[module.tree.depth(above)])[:, 0].sigmoid()
                probability = probability * (right if module.tree.children(above)[1] == below else 1 - right)
        expected.append(probability)
    torch.testing.assert_close(reach, torch.stack(expected, 1))


def path_noise(path: FrozenPath, arch: Architecture) -> list[torch.Tensor]:
    draw = generator(7)
    return [torch.randn(1, BATCH, dim, generator=draw).double() for dim in arch.latent_dims[: path.depth + 1]]


@pytest.mark.parametrize("arch", (ARCHITECTURES | LARGE).values(), ids=(ARCHITECTURES | LARGE).keys())
@pytest.mark.parametrize("leaf", [2, 4])
def test_subtree_equals_its_share_of_the_attached_tree(arch, leaf):
    """Each candidate's ELBO is what the twin finds below the leaf once that candidate is attached."""
    tree = Tree().split(0).split(1)
    module, x = random_module(arch, [tree], False), random_x(arch)
    with in_double():
        subtree = Subtree.new(arch, module.bottom_up.d_dims, tree.depth(leaf), 2, generator(6)).eval()
    path = module.path_to(leaf)
    evidence = path.unpacked(path.packed(module.d(x))[None])
    _, noise = descent.noise_for(subtree.nodes, BATCH, generator(8))  # the z of the roots is given
    z = path.sample(evidence.heads, path_noise(path, arch))
    terms = descent.elbo(subtree.nodes, subtree.descend(evidence, z, [noise]), x[None])
    assert terms.kl_root.abs().max() == 0

    before = module.state_dict()
    for candidate in (0, 1):
        grown = random_module(arch, [tree], False)
        grown.attach(leaf, subtree, candidate)
        assert grown.tree == tree.split(leaf)
        twin = Twin(grown)
        twin.d, twin.x, twin.samples = twin.bottom_up(x), x, 1
        children = grown.tree.children(leaf)
        twin.noise = {child: noise[2 * candidate + side] for side, child in enumerate(children)}
        found = twin.below(leaf, z[0], evidence.log_reach[0].exp())
        for name in ("reconstruction", "kl_nodes", "kl_decisions"):
            torch.testing.assert_close(getattr(terms, name)[candidate], getattr(found, name))
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_path_sample_is_what_the_descent_draws():
    arch = ARCHITECTURES["levels of many sizes"]
    module, x = random_module(arch, [TREES["one-child nodes"]], False), random_x(arch)
    noise = descent.noise_for(module.nodes, BATCH, generator(9))
    found = descent.infer(module.nodes, module.d(x), noise)
    rows = noise_by_node(module, noise)
    drawn = {key.node: z for level, zs in zip(module.nodes.layout.levels, found.z, strict=True)
             for key, z in zip(level, zs, strict=True)}  # fmt: skip
    for node in module.tree.nodes:
        path = module.path_to(node)
        own = [rows[above][None] for above in module.tree.path(node)]
        evidence = path.unpacked(path.packed(module.d(x))[None])
        torch.testing.assert_close(path.sample(evidence.heads, own)[0], drawn[node])
        row = module.nodes.layout.nodes.index((0, node))
        torch.testing.assert_close(evidence.log_reach[0], descent.log_reach(module.nodes, found.logit_q)[row])
        for k, at in enumerate(evidence.d):
            torch.testing.assert_close(at, module.d(x)[path.depth + k])


@pytest.mark.parametrize("name", ["mlp", "deep_cnn", "resnet"])
def test_pruning_keeps_every_other_network(name):
    module = random_module((ARCHITECTURES | LARGE)[name], [UNEVEN], False)
    before = {kind: {k.node: gather([row]) for k, row in rows.items()} for kind, rows in module.nodes.rows().items()}
    module.prune(7)
    after = module.nodes.rows()
    assert {key.node for key in after["router_q"]} == {0, 1, 3}  # node 2 lost its router, not its latent
    assert {key.node for key in after["dense"]} == set(UNEVEN.nodes) - {7}
    for kind, rows in after.items():
        for key, row in rows.items():
            for name, value in gather([row]).state_dict().items():
                assert torch.equal(value, before[kind][key.node].state_dict()[name])


@pytest.mark.parametrize("arch", (ARCHITECTURES | LARGE).values(), ids=(ARCHITECTURES | LARGE).keys())
def test_rows_of_stacks_are_networks_of_their_own(arch):
    """Gathered in any order, twice, from several stacks, or alone and frozen: a row says what its twin says."""
    modules = [random_module(arch, [TREES["two leaves"]] * 2, False) for _ in range(2)]
    with torch.no_grad():
        for value in modules[1].state_dict().values():
            value.add_(0.1)
    encoders = [module.bottom_up.encoder for module in modules]
    decoders = [next(iter(module.nodes.decoder.stacks.values())) for module in modules]
    x = random_x(arch)
    z = torch.randn(BATCH, arch.latent_dims[1], generator=generator(5)).double()
    for stacks, given in ((encoders, x), (decoders, z)):
        rows = [(stacks[1], 1), (stacks[0], 0), (stacks[1], 0), (stacks[1], 1)]
        with torch.no_grad():
            expected = torch.stack([plain(*row).eval()(given) for row in rows])
            gathered = gather(rows)
            assert all(part.n == 4 for part in gathered.modules() if isinstance(part, NodeStack))
            torch.testing.assert_close(gathered.eval()(given.expand(4, *given.shape)), expected)
            stacks[1].train()  # frozen rows are in eval mode all the same
            alone = torch.cat([frozen_row(*row)(given[None]) for row in rows])
        torch.testing.assert_close(alone, expected)


@pytest.mark.parametrize("name", ["deep_cnn", "resnet, odd sides"])
def test_reconstructions_and_draws_are_the_twins(name):
    arch = LARGE[name]
    module, x = random_module(arch, [TREES["one-child nodes"]], False), random_x(arch)
    with torch.no_grad():  # every router sends half of the samples to either side, surely
        logits = descent.posterior_logits(module.nodes, module.d(x))
        for key, logit in zip(module.nodes.layout.routers, logits, strict=True):
            stack, row = module.nodes.rows()["router_q"][key]
            steep = 20 / logit.std()
            stack.head.weight[row] *= steep
            stack.head.bias[row] = steep * (stack.head.bias[row] - logit.median())
    twin, leaves, reach = Twin(module), module.tree.leaves, module.reach(x)
    twin.d, twin.samples = twin.bottom_up(x), 1
    means = module.arch.likelihood_model.mean

    def decoded(leaf: int) -> torch.Tensor:
        z = None
        for node in module.tree.path(leaf):
            z = twin.posterior(node, z)[0].mean
        return means(twin.nets["decoder"][leaf](z))

    with torch.no_grad():
        every = torch.stack([decoded(leaf) for leaf in leaves], 1)
        torch.testing.assert_close(module.reconstruct(x), (reach[..., None] * every).sum(1))
        best = reach.argmax(1)
        assert len(best.unique()) > 1
        torch.testing.assert_close(module.reconstruct_best(x), every[torch.arange(BATCH), best])

        z = descent.generate(module.nodes, descent.noise_for(module.nodes, 5, generator(2)))
        everywhere = module.generate_all(5, generator(2))
        for i, leaf in enumerate(leaves):
            expected = means(twin.nets["decoder"][leaf](module._z_of(z, leaf)[0]))
            torch.testing.assert_close(everywhere[:, i], expected)
        drawn = module.generate(5, generator(2))
        gaps = (drawn[:, None] - everywhere).abs().amax(2)  # the same draws, each sent to one of the leaves
        torch.testing.assert_close(gaps.amin(1), torch.zeros(5).double())
