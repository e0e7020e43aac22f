"""TreeVAEModule: a tree and its networks; what can be asked of them, and how they grow and shrink."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..tree import Tree
from . import descent
from .elbo import ElboTerms, Gaussian, precision_weighted
from .layout import Layout, NodeKey
from .networks import Architecture, BottomUp
from .nodes import KINDS, Make, Nodes, Row, Rows, copied_networks, new_networks
from .stack import NodeStack, Trainable, frozen_row, shapes_only
from .subtree import FrozenPath, Subtree

MOST_NODES = 1 << 13  # of all trees of a module; the order of nodes takes memory by their square
GENERATE_BLOCK = 256  # draws made at a time; bounds the memory of generating


class TreeVAEModule(Trainable):
    """A TreeVAE as a torch module.

    It usually holds one tree. While several candidates for a first tree compete, or several runs are trained together,
    it holds them all, side by side and without any shared parameter; :meth:`of` puts trees together and takes them out.

    Parameters
    ----------
    arch : Architecture
        The shapes of all networks.
    trees : sequence of Tree
        The tree, or the candidates.
    generator : torch.Generator
        Where the first weights come from.
    candidates : int
        So many trees in a row see the same samples.
    """

    def __init__(
        self, arch: Architecture, trees: Sequence[Tree], generator: torch.Generator, candidates: int = 1
    ) -> None:
        super().__init__()
        _check_trees(arch, trees)
        self.arch = arch
        self.bottom_up = BottomUp(arch, len(trees), generator)
        self._plant(trees, new_networks(arch, self.bottom_up.d_dims, generator), candidates)

    @property
    def tree(self) -> Tree:
        """The tree of a module that holds one."""
        (tree,) = self.nodes.layout.trees
        return tree

    # -- asking; x is (batch, features), the same for all trees, or (run, batch, features) ----------------------------

    def d(self, x: Tensor) -> list[Tensor]:
        """The bottom-up's d of every depth, each (tree, batch, hidden)."""
        x, layout = _per_run(x), self.nodes.layout
        per_tree = x.expand(len(layout.trees), -1, -1) if len(x) == 1 else x.repeat_interleave(layout.candidates, 0)
        return self.bottom_up(per_tree)

    def elbo(self, x: Tensor, noise: Sequence[Tensor], samples: int = 1) -> ElboTerms:
        """The ELBO's terms; ``noise`` as :func:`descent.noise_for` draws it."""
        x_of_runs = _per_run(x).expand(self.nodes.layout.n_runs, -1, -1)
        return descent.elbo(self.nodes, descent.infer(self.nodes, self.d(x), noise, samples), x_of_runs)

    def reach(self, x: Tensor) -> Tensor:
        """q(leaf | x) of the leaves from left to right, tree after tree: (batch, leaf). Runs no decoder."""
        return descent.route(self.nodes, self.d(x))[self.nodes.layout.shown_rows].exp().T

    def embed(self, x: Tensor, node: int = 0) -> Tensor:
        """The posterior mean of a node's z, given those above it: (batch, latent)."""
        path = self.path_to(node)
        return path.sample(path.heads(self.d(x)))[0]

    def reconstruct(self, x: Tensor) -> Tensor:
        """The expected x given all leaves' posterior means, weighted by their reach: (batch, features)."""
        descended = descent.infer(self.nodes, self.d(x), noise=None)
        means = descent.decode(self.nodes, descended.z, self._expected)
        reach = descent.log_reach(self.nodes, descended.logit_q)[self.nodes.layout.leaf_rows].exp()
        return torch.einsum("lb,lbf->bf", reach, means)

    def reconstruct_best(self, x: Tensor) -> Tensor:
        """The expected x given the most probable leaf's posterior mean; each sample sees one path and one decoder."""
        d, tree, rows_of = self.d(x), self.tree, self.nodes.rows()
        reach = descent.route(self.nodes, d)[self.nodes.layout.shown_rows]
        leaf = reach.argmax(0)  # from left to right
        result = torch.empty_like(x)

        def send(node: int, rows: Tensor, above: Tensor) -> None:
            """Take samples into a node, given their z above it, and on to the children they are bound for."""
            key, k = NodeKey(0, node), tree.depth(node)
            q_hat = Gaussian.from_head(frozen_row(*rows_of["dense"][key])(d[k][:, rows]))
            if node == 0:
                p = Gaussian.standard_like(q_hat)
            else:
                p = Gaussian.from_head(frozen_row(*rows_of["transformation"][key])(above))
            z = precision_weighted(q_hat, p).mean
            if tree.is_leaf(node):
                output = frozen_row(*rows_of["decoder"][key])(z)
                result[rows] = self.arch.likelihood_model.mean(output)[0]
            for child in tree.children(node):
                below = [tree.leaves.index(i) for i in tree.leaves_below(child)]  # contiguous
                bound = ((leaf[rows] >= below[0]) & (leaf[rows] <= below[-1])).nonzero().squeeze(1)
                if len(bound):
                    send(child, rows[bound], z[:, bound])

        send(0, torch.arange(len(x), device=x.device), torch.empty(0))
        return result

    def generate(self, n: int, generator: torch.Generator, node: int | None = None, temperature: float = 1.0) -> Tensor:
        """The expected x of n draws from the prior: (n, features).

        Each draw goes down the tree as the prior routers decide. With a ``node`` only draws that pass through it, or
        end there, are wanted: n of 64 n draws are taken, in proportion to the probability that the routers send them
        there. ``temperature`` scales the spread of every z around its mean; the routers judge what comes of it.
        """
        if n > GENERATE_BLOCK:
            sizes = [min(GENERATE_BLOCK, n - done) for done in range(0, n, GENERATE_BLOCK)]
            return torch.cat([self.generate(size, generator, node, temperature) for size in sizes])
        node = None if node == 0 else node  # every draw passes through the root
        layout, draws = self.nodes.layout, n if node is None else 64 * n
        noise = [temperature * level for level in descent.noise_for(self.nodes, draws, generator)]
        z = descent.generate(self.nodes, noise)
        log_reach = descent.log_reach(self.nodes, descent.prior_logits(self.nodes, z))  # (node, draws)
        at_leaves = log_reach[layout.leaf_rows]
        if node is None:
            taken = torch.arange(n, device=log_reach.device)
        else:
            through = log_reach[layout.nodes.index(NodeKey(0, node))]
            taken = torch.multinomial(through.softmax(0), n, generator=generator)
            below = {NodeKey(0, leaf) for leaf in self.tree.leaves_below(node)}
            outside = torch.tensor([key not in below for key in layout.leaves], device=log_reach.device)
            at_leaves = at_leaves.masked_fill(outside[:, None], -torch.inf)
        if node is not None and self.tree.is_leaf(node):  # nothing left to decide
            where = torch.full_like(taken, layout.leaves.index(NodeKey(0, node)))
        else:
            where = torch.multinomial(at_leaves[:, taken].softmax(0).T, 1, generator=generator).squeeze(1)
        result = torch.empty(n, math.prod(self.arch.shown.shape), device=log_reach.device, dtype=log_reach.dtype)
        decoders = self.nodes.rows()["decoder"]
        for i in where.unique().tolist():
            rows, key = (where == i).nonzero().squeeze(1), layout.leaves[i]
            decoder = frozen_row(*decoders[key])
            result[rows] = self.arch.likelihood_model.mean(decoder(self._z_of(z, key.node)[:, taken[rows]]))[0]
        return result

    def generate_all(self, n: int, generator: torch.Generator) -> Tensor:
        """The expected x of n draws of the root, each sent to every leaf, from left to right: (n, leaf, features)."""
        if n > GENERATE_BLOCK:
            sizes = [min(GENERATE_BLOCK, n - done) for done in range(0, n, GENERATE_BLOCK)]
            return torch.cat([self.generate_all(size, generator) for size in sizes])
        z = descent.generate(self.nodes, descent.noise_for(self.nodes, n, generator))
        means = descent.decode(self.nodes, z, self._expected)
        return means[self.nodes.layout.shown_leaves].transpose(0, 1)

    def walk_draws(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What every leaf makes of n draws of the root, (n, leaf, features), and the prior routers' (n, leaf)."""
        z = descent.generate(self.nodes, descent.noise_for(self.nodes, n, generator))
        return self._walked(z, descent.prior_logits(self.nodes, z))

    def walk(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What every leaf makes of samples, from posterior means: (batch, leaf, features), and reach (batch, leaf)."""
        descended = descent.infer(self.nodes, self.d(x), noise=None)
        return self._walked(descended.z, descended.logit_q)

    def _walked(self, z: Sequence[Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
        layout = self.nodes.layout
        means = descent.decode(self.nodes, z, self._expected)[layout.shown_leaves].transpose(0, 1)
        return means, descent.log_reach(self.nodes, logits)[layout.shown_rows].exp().T

    def interpolate(self, x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """The way from the first to the second row of x: expected x (steps, features) and reach (steps, leaf).

        The posterior mean of every node's z and the posterior routers' log-odds go in straight lines; each step shows
        what its most probable leaf decodes. So the ends are what :meth:`reconstruct_best` makes of the two.
        """
        descended = descent.infer(self.nodes, self.d(x), noise=None)
        t = torch.linspace(0, 1, steps, device=x.device, dtype=x.dtype)
        z = [torch.lerp(at[:, :1], at[:, 1:], t[:, None]) for at in descended.z]  # (node, steps, latent)
        logits = torch.lerp(descended.logit_q[:, :1], descended.logit_q[:, 1:], t)
        reach = descent.log_reach(self.nodes, logits)[self.nodes.layout.shown_rows].exp().T
        means = descent.decode(self.nodes, z, self._expected)[self.nodes.layout.shown_leaves]  # (leaf, steps, features)
        return means[reach.argmax(1), torch.arange(steps, device=x.device)], reach

    def _expected(self, output: Tensor, run_of: Tensor) -> Tensor:
        return self.arch.likelihood_model.mean(output)

    def _z_of(self, z: Sequence[Tensor], node: int) -> Tensor:
        """The z of one node, (1, batch, latent), out of all levels'."""
        depth = self.tree.depth(node)
        place = self.nodes.layout.levels[depth].index(NodeKey(0, node))
        return z[depth][place : place + 1]

    # -- growing and shrinking ------------------------------------------------------------------------------------

    @classmethod
    def of(cls, trees: Sequence[tuple[TreeVAEModule, int]], candidates: int = 1) -> TreeVAEModule:
        """A module whose i-th tree is tree ``trees[i][1]`` of ``trees[i][0]``, values copied."""
        first, _ = trees[0]
        module = cls.__new__(cls)
        nn.Module.__init__(module)
        module.arch = first.arch
        module.bottom_up = first.bottom_up.like([(source.bottom_up, r) for source, r in trees])
        rows: dict[str, dict[NodeKey, Row]] = {kind: {} for kind in KINDS}
        for i, (source, r) in enumerate(trees):
            for kind, of_kind in source.nodes.rows().items():
                rows[kind].update({NodeKey(i, key.node): row for key, row in of_kind.items() if key.tree == r})
        module._plant([source.nodes.layout.trees[r] for source, r in trees], copied_networks(rows), candidates)
        return module.train(first.training)

    def stacks(self) -> Iterator[tuple[NodeStack, tuple[int, ...]]]:
        """All stacks, each with the tree of every one of its rows."""
        for stack in self.bottom_up.stacks():
            yield stack, tuple(range(stack.n))
        yield from self.nodes.stacks()

    def attach(self, leaf: int, subtree: Subtree, candidate: int = 0) -> None:
        """Put a trained subtree in the place of a leaf; the leaf's decoder goes."""
        tree = self.tree.split(leaf)
        place = dict(zip((0, 1, 2), (leaf, *tree.children(leaf)), strict=True))
        rows = {
            kind: self.nodes.rows()[kind]
            | {NodeKey(0, place[key.node]): row for key, row in of_kind.items() if key.tree == candidate}
            for kind, of_kind in subtree.nodes.rows().items()
        }
        self._replant(tree, rows)

    def prune(self, leaf: int) -> None:
        """Remove a leaf and what led only to it."""
        self._replant(self.tree.prune(leaf), self.nodes.rows())

    def path_to(self, node: int) -> FrozenPath:
        """What leads to a node, as it is now."""
        return FrozenPath([(self.nodes, node)])

    def _replant(self, tree: Tree, rows: Rows) -> None:
        self._plant([tree], copied_networks(rows))
        self.nodes.train(self.training)

    def _plant(self, trees: Sequence[Tree], make: Make, candidates: int = 1) -> None:
        like = next(self.bottom_up.parameters())
        nodes = Nodes(self.arch, self.bottom_up.d_dims, Layout(trees, candidates), make)
        self.nodes = nodes.to(device=like.device, dtype=like.dtype)


def _per_run(x: Tensor) -> Tensor:
    return x if x.dim() == 3 else x.unsqueeze(0)


def weight_shapes(arch: Architecture, tree: Tree) -> dict[str, torch.Size]:
    """The shapes of all that a module of one tree would load, by name; nothing is allocated."""
    with shapes_only():
        module = TreeVAEModule(arch, [tree], torch.Generator())
    return {name: value.shape for name, value in module.state_dict().items()}


def _check_trees(arch: Architecture, trees: Sequence[Tree]) -> None:
    if (tallest := max(tree.height for tree in trees)) >= arch.n_levels:
        raise ValueError(f"a tree of height {tallest} needs {tallest + 1} levels of latents, there are {arch.n_levels}")
    if (n := sum(len(tree.nodes) for tree in trees)) > MOST_NODES:
        raise ValueError(f"trees with {n:,} nodes are too large; at most {MOST_NODES:,} are possible")
