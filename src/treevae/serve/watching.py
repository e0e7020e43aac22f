"""How far a run in training has come, as the page of a run in training shows it."""

from __future__ import annotations

from datetime import UTC, datetime

from ..run import Run
from ..tree import Tree
from .messages import Growing, TreeShape

MOST_LOSSES = 300


def look(run: Run) -> tuple[TreeShape | None, Growing]:
    """The tree and the course of training, as last saved; nothing is known before the first save."""
    course = run.course()
    if course is None:
        return None, Growing()
    epochs, losses = course.epochs, course.losses
    keep = range(0, len(losses), -(-len(losses) // MOST_LOSSES) or 1)
    now = ("stage", "leaf", "epoch", "epochs", "progress")
    growing = Growing(
        **({name: getattr(epochs[-1], name) for name in now} if epochs else {}),
        loss=losses[-1] if losses else None,
        seconds=round(course.seconds, 1),
        saves=course.saves,
        saved_at=datetime.fromtimestamp(course.saved_at, UTC).isoformat(timespec="seconds"),
        losses=[losses[i] for i in keep],
        stages=[n for n, at in enumerate(keep) if any(one.epoch == 1 for one in epochs[at : at + keep.step])],
    )
    return None if course.tree is None else shape_of(course.tree), growing


def shape_of(tree: Tree) -> TreeShape:
    """The nodes of a tree and their parents."""
    return TreeShape(nodes=list(tree.nodes), parents=[tree.parent(node) for node in tree.nodes])
