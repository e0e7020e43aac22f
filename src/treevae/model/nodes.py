"""The networks of all nodes of a forest: which node has which, and in which stack it stands.

Networks of one kind and shape share a :class:`~treevae.model.stack.NodeStack` wherever they stand in the tree, so that
they run in one call; transformations alone go level by level, because each level needs the sample of the one above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .layout import Layout, NodeKey
from .networks import Architecture, Mlp, make_decoder
from .stack import Linear, NodeStack, gather

Row = tuple[NodeStack, int]
Rows = Mapping[str, Mapping[NodeKey, Row]]  # by kind, then by node: where a network stands
Make = Callable[[str, Sequence[NodeKey], int], NodeStack]  # (kind, nodes, their depth) -> their networks

KINDS = ("dense", "transformation", "router_p", "router_q", "decoder")


class Family(nn.Module):
    """The networks of one kind, one for each of ``keys``, run together where they have the same shape."""

    def __init__(
        self, kind: str, keys: Sequence[NodeKey], layout: Layout, shape: Callable[[int], str], make: Make
    ) -> None:
        super().__init__()
        self._depth = {key: layout.depth(key) for key in keys}
        self._groups: dict[str, list[NodeKey]] = {}
        for key in keys:
            self._groups.setdefault(shape(self._depth[key]), []).append(key)
        self.stacks = nn.ModuleDict(
            {name: make(kind, group, self._depth[group[0]]) for name, group in self._groups.items()}
        )

    def rows(self) -> dict[NodeKey, Row]:
        """Where each node's network stands."""
        return {key: (self._stack(name), i) for name, group in self._groups.items() for i, key in enumerate(group)}

    def forward(self, inputs: Mapping[int, Tensor], then: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
        """The outputs at each depth that has such nodes, root first.

        ``inputs`` holds, by depth, one (batch, feature) matrix for each node of this family there. ``then`` is
        applied to what a stack puts out, before it is parted by depth.
        """
        outputs: dict[int, Tensor] = {}
        for name, group in self._groups.items():
            depths = sorted({self._depth[key] for key in group})
            parts = [inputs[depth] for depth in depths]
            out = self._stack(name)(parts[0] if len(parts) == 1 else torch.cat(parts))
            out = out if then is None else then(out)
            outputs.update(zip(depths, out.split([len(part) for part in parts]), strict=True))
        return [outputs[depth] for depth in sorted(outputs)]

    def at(self, depth: int, x: Tensor) -> Tensor:
        """The outputs of one depth alone, where its nodes are a stack of their own."""
        (out,) = [self._stack(name)(x) for name, group in self._groups.items() if self._depth[group[0]] == depth]
        return out

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
        self.dense = Family("dense", with_head, layout, lambda k: f"{d_dims[k]}-{z_dims[k]}", make)
        self.transformation = Family("transformation", below_roots, layout, lambda k: f"depth{k}", make)
        self.router_p = Family("router_p", layout.routers, layout, lambda k: f"{z_dims[k]}-{hidden[k]}", make)
        self.router_q = Family("router_q", layout.routers, layout, lambda k: f"{d_dims[k]}-{hidden[k]}", make)
        self.decoder = Family("decoder", layout.leaves, layout, lambda k: f"{z_dims[k]}", make)

    def rows(self) -> dict[str, dict[NodeKey, Row]]:
        """Where each node's networks stand, by kind."""
        families = {kind: self.get_submodule(kind) for kind in KINDS}
        return {kind: family.rows() for kind, family in families.items() if isinstance(family, Family)}


def new_networks(arch: Architecture, d_dims: Sequence[int], generator: torch.Generator) -> Make:
    """Makes networks with random weights."""

    def make(kind: str, keys: Sequence[NodeKey], depth: int) -> NodeStack:
        n, z_dims = len(keys), arch.latent_dims
        if kind == "decoder":
            return make_decoder(arch, n, depth, generator)
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
