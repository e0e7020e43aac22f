"""Adam for a forest: all parameters in one vector, and a learning rate for every tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from ..model import kernels
from ..model.stack import NodeStack

ALIGNMENT = 16  # floats: every parameter starts on a cache line, as matrix products like it


class Adam:
    """Adam with L2 decay (Kingma and Ba, 2015), as torch's, but with one learning rate for each tree.

    The parameters become views of one vector, so that a step is one kernel on a GPU and a state is three vectors.

    Parameters
    ----------
    stacks : iterable of (NodeStack, tuple of int)
        What is trained, with the tree of every row.
    n_trees : int
        Trees in the forest.
    weight_decay : float
        L2.
    """

    def __init__(self, stacks: Iterable[tuple[NodeStack, tuple[int, ...]]], n_trees: int, weight_decay: float) -> None:
        trained = [(parameter, trees) for stack, trees in stacks for parameter in stack.parameters()]
        self.parameters = [parameter for parameter, _ in trained]
        device = self.parameters[0].device
        self._weight_decay = weight_decay
        starts, size = [], 0
        for parameter in self.parameters:
            starts.append(size)
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self._values = self.parameters[0].new_zeros(size)
        self.mean, self.square = torch.zeros_like(self._values), torch.zeros_like(self._values)
        self.learning_rate = torch.zeros(n_trees, device=device)
        self.count = torch.zeros(1, device=device)  # steps taken

        def views(vector: Tensor) -> list[Tensor]:
            return [
                vector[start : start + parameter.numel()].view_as(parameter)
                for start, parameter in zip(starts, self.parameters, strict=True)
            ]

        with torch.no_grad():
            for view, parameter in zip(views(self._values), self.parameters, strict=True):
                view.copy_(parameter)
                parameter.data = view
        self._fused = kernels.fused(self._values)
        if self._fused:
            tree_of = torch.zeros(size, dtype=torch.int16)
            for start, (parameter, trees) in zip(starts, trained, strict=True):
                rows = torch.tensor(trees, dtype=torch.int16).repeat_interleave(parameter.numel() // len(trees))
                tree_of[start : start + parameter.numel()] = rows
            self._tree_of = tree_of.to(device)
            self._gradient = torch.zeros_like(self._values)
            self._gradients = views(self._gradient)
        else:  # by tree: its rows of parameters, means and squares; of gradients later, by the same slices
            self._slices = [_rows_of(tree, [trees for _, trees in trained]) for tree in range(n_trees)]
            sources = (views(self._values), views(self.mean), views(self.square))
            self._parts = [[_cut(source, slices) for source in sources] for slices in self._slices]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters, given the gradient of each."""
        self.count += 1
        if self._fused:
            torch._foreach_copy_(self._gradients, list(gradients))
            kernels.adam(
                self._values,
                self._gradient,
                self.mean,
                self.square,
                self.count,
                self.learning_rate,
                self._tree_of,
                self._weight_decay,
            )
            return
        for rate, slices, (values, means, squares) in zip(
            self.learning_rate.tolist(), self._slices, self._parts, strict=True
        ):
            adam(
                values,
                _cut(gradients, slices),
                means,
                squares,
                [],
                list((self.count - 1).repeat(len(values)).unbind()),  # torch counts the step itself
                fused=True,
                amsgrad=False,
                beta1=kernels.ADAM_BETAS[0],
                beta2=kernels.ADAM_BETAS[1],
                lr=rate,
                weight_decay=self._weight_decay,
                eps=kernels.ADAM_EPSILON,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """The state, without the parameters; the tensors themselves, not copies."""
        return {"mean": self.mean, "square": self.square, "count": self.count}


def give_back(module: nn.Module) -> None:
    """Let a trained module own its memory: of parameters that are views of one vector, pickle writes it for each."""
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


Slices = list[tuple[int, int, int]]  # (parameter, first row, row after the last)


def _rows_of(tree: int, trees_of: Sequence[tuple[int, ...]]) -> Slices:
    """Where a tree's rows stand in each parameter, as runs of neighbouring rows."""
    slices: Slices = []
    for i, trees in enumerate(trees_of):
        first = None
        for row, owner in enumerate((*trees, None)):
            if owner == tree and first is None:
                first = row
            elif owner != tree and first is not None:
                slices.append((i, first, row))
                first = None
    return slices


def _cut(tensors: Sequence[Tensor] | Sequence[nn.Parameter], slices: Slices) -> list[Tensor]:
    return [tensors[i][first:last] for i, first, last in slices]
