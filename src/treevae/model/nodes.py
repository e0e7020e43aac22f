"""The networks of all nodes of a forest: which node has which, and in which stack it stands.

Networks of one kind and shape share a :class:`~treevae.model.stack.NodeStack` wherever they stand in the tree, so that
they run in one call; transformations alone go level by level, because each level needs the sample of the one above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from . import kernels
from .layout import Layout, NodeKey, RowSums
from .networks import Architecture, Mlp, make_decoder
from .stack import Linear, NodeStack, gather, layers_like

Row = tuple[NodeStack, int]
Rows = Mapping[str, Mapping[NodeKey, Row]]  # by kind, then by node: where a network stands
Make = Callable[[str, Sequence[NodeKey], int], NodeStack]  # (kind, nodes, their depth) -> their networks
Levels = Sequence[Tensor] | Mapping[int, Tensor]  # by depth: one row for every d, or every node, there

KINDS = ("dense", "transformation", "router_p", "router_q", "decoder")


class Input(NamedTuple):
    """What a family reads: how many rows a level has, and which of them is a node's."""

    n_rows: Callable[[int], int]
    row: Callable[[NodeKey], int]


class Family(nn.Module):
    """The networks of one kind, one for each of ``keys``, run together where they have the same shape."""

    def __init__(
        self, kind: str, keys: Sequence[NodeKey], layout: Layout, shape: Callable[[int], str], make: Make, reads: Input
    ) -> None:
        super().__init__()
        self._depth = {key: layout.depth(key) for key in keys}
        self.groups: dict[str, list[NodeKey]] = {}
        for key in keys:
            self.groups.setdefault(shape(self._depth[key]), []).append(key)
        self.stacks = nn.ModuleDict(
            {name: make(kind, group, self._depth[group[0]]) for name, group in self.groups.items()}
        )
        self.picks = nn.ModuleDict()
        for name, group in self.groups.items():
            self.register_buffer(
                f"run_of_{name}", torch.tensor([layout.run_of(key) for key in group]), persistent=False
            )
            offset, rows = {}, 0
            for depth in self._depths(name):
                offset[depth] = rows
                rows += reads.n_rows(depth)
            self.picks[name] = RowSums([[offset[self._depth[key]] + reads.row(key)] for key in group], rows)
        place = {key: i for i, key in enumerate(key for group in self.groups.values() for key in group)}
        self.order = RowSums([[place[key]] for key in keys], len(keys))

    def rows(self) -> dict[NodeKey, Row]:
        """Where each node's network stands."""
        return {key: (self._stack(name), i) for name, group in self.groups.items() for i, key in enumerate(group)}

    def forward(self, levels: Levels, then: Callable[[Tensor, Tensor], Tensor] | None = None) -> Tensor:
        """The outputs of all nodes, in order: (node, batch, ...).

        ``then`` is applied to what a stack puts out and to the run of each of its nodes.
        """
        outputs = [self._run(name, levels) for name in self.groups]
        if then is not None:
            outputs = [
                then(output, self.get_buffer(f"run_of_{name}"))
                for name, output in zip(self.groups, outputs, strict=True)
            ]
        return self.order(outputs[0] if len(outputs) == 1 else torch.cat(outputs))

    def by_depth(self, levels: Levels) -> dict[int, Tensor]:
        """The outputs of the nodes of each depth; their sizes may differ from depth to depth."""
        outputs: dict[int, Tensor] = {}
        for name, group in self.groups.items():
            depths = self._depths(name)
            counts = [sum(self._depth[key] == depth for key in group) for depth in depths]
            outputs.update(zip(depths, self._run(name, levels).split(counts), strict=True))
        return outputs

    def at(self, depth: int, x: Tensor) -> Tensor:
        """The outputs of one depth alone, given its nodes' inputs, where they are a stack of their own."""
        (name,) = (name for name in self.groups if self._depths(name) == [depth])
        return self._stack(name)(x)

    def _depths(self, name: str) -> list[int]:
        return sorted({self._depth[key] for key in self.groups[name]})

    def _run(self, name: str, levels: Levels) -> Tensor:
        parts = [levels[depth] for depth in self._depths(name)]
        fused = kernels.fused(parts[0])
        parts = parts if fused else [part.mT for part in parts]  # on the CPU the batch is innermost in memory
        picked = self.picks[name](parts[0] if len(parts) == 1 else torch.cat(parts))
        return self._stack(name)(picked if fused else picked.mT)

    def _stack(self, name: str) -> NodeStack:
        stack = self.stacks[name]
        assert isinstance(stack, NodeStack)
        return stack


class Nodes(nn.Module):
    """The networks of a forest's nodes.

    All nodes but given roots have a dense head, all but roots a transformation, nodes with two children both routers,
    leaves a decoder. ``make`` supplies them: :func:`new_networks` or :func:`copied_networks`.
    """

    def __init__(self, arch: Architecture, d_dims: Sequence[int], layout: Layout, make: Make) -> None:
        super().__init__()
        self.arch, self.layout = arch, layout
        z_dims, hidden = arch.latent_dims, arch.hidden_dims
        below_roots = layout.select(lambda tree, node: node != 0)
        with_head = layout.nodes if layout.top == 0 else below_roots  # a subtree is given the z of its root
        place = {key: i for level in layout.levels for i, key in enumerate(level)}
        d = Input(lambda depth: layout.n_d, layout.d_row)
        z = Input(lambda depth: len(layout.levels[depth - layout.top]), lambda key: place[key])
        self.dense = Family("dense", with_head, layout, lambda k: f"{d_dims[k]}-{z_dims[k]}", make, d)
        self.transformation = Family("transformation", below_roots, layout, lambda k: f"depth{k}", make, z)
        self.router_p = Family("router_p", layout.routers, layout, lambda k: f"{z_dims[k]}-{hidden[k]}", make, z)
        self.router_q = Family("router_q", layout.routers, layout, lambda k: f"{d_dims[k]}-{hidden[k]}", make, d)
        self.decoder = Family("decoder", layout.leaves, layout, lambda k: f"{z_dims[k]}", make, z)

    def rows(self) -> dict[str, dict[NodeKey, Row]]:
        """Where each node's networks stand, by kind."""
        return {kind: family.rows() for kind, family in self._families()}

    def stacks(self) -> Iterator[tuple[NodeStack, tuple[int, ...]]]:
        """All stacks, each with the tree of every one of its rows."""
        for _, family in self._families():
            for name, group in family.groups.items():
                yield family._stack(name), tuple(key.tree for key in group)

    def _families(self) -> Iterator[tuple[str, Family]]:
        for kind in KINDS:
            family = self.get_submodule(kind)
            assert isinstance(family, Family)
            yield kind, family


def new_networks(arch: Architecture, d_dims: Sequence[int], generator: torch.Generator) -> Make:
    """Makes networks with random weights."""

    def make(kind: str, keys: Sequence[NodeKey], depth: int) -> NodeStack:
        n, z_dims = len(keys), arch.latent_dims
        if kind == "decoder":
            return make_decoder(arch, n, depth, generator)
        with layers_like(arch.layers):
            if kind == "dense":
                return Linear(n, d_dims[depth], 2 * z_dims[depth], generator)
            if kind == "transformation":
                widths = [arch.hidden_dims[depth - 1]] * arch.transformation_layers
                return Mlp(n, z_dims[depth - 1], widths, generator, 2 * z_dims[depth])
            n_in = (z_dims if kind == "router_p" else d_dims)[depth]
            return Mlp(n, n_in, [arch.hidden_dims[depth]] * arch.router_layers, generator, 1)

    return make


def copied_networks(rows: Rows) -> Make:
    """Makes copies of networks that stand in other stacks."""
    return lambda kind, keys, depth: gather([rows[kind][key] for key in keys])
