"""How far a training run has come, read from the states that it saves, without its lock and without its weights."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import ModelFileError
from ..storage.states import STATES, peek
from ..tree import Tree
from .messages import Growing, TreeShape

MODEL = "model.safetensors"
MOST_LOSSES = 300


def finished(run: Path) -> bool:
    """Whether the run has ended with a model."""
    return (run / MODEL).is_file() and not any((run / name).exists() for name in STATES)


def look(run: Path) -> tuple[TreeShape | None, Growing]:
    """The tree and the course of training, as last saved; nothing is known before the first save."""
    found = peek(run)
    if found is None:
        return None, Growing()
    number, about, saved = found
    try:
        tree = Tree.from_json(about["grove"]["runs"][0]["trees"][0])
        history = about["histories"][0]
        epochs = [event for event in history if event["event"] == "EpochEnded"]
        losses = [_loss(event) for event in epochs]
        last = epochs[-1] if epochs else {}
        keep = range(0, len(losses), -(-len(losses) // MOST_LOSSES) or 1)
        begun = [i for i, at in enumerate(keep) if any(event["epoch"] == 1 for event in epochs[at : at + keep.step])]
        growing = Growing(
            **{name: last.get(name) for name in ("stage", "leaf", "epoch", "epochs")},
            loss=losses[-1] if losses else None,
            progress=last.get("progress", 0.0),
            seconds=round(float(about["spent"]), 1),
            saves=number,
            saved_at=datetime.fromtimestamp(saved, UTC).isoformat(timespec="seconds"),
            losses=[losses[i] for i in keep],
            stages=begun,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ModelFileError(f"the state of the run in {run} does not hold together: {error!r}") from error
    return shape_of(tree), growing


def shape_of(tree: Tree) -> TreeShape:
    """The nodes of a tree and their parents."""
    return TreeShape(nodes=list(tree.nodes), parents=[tree.parent(node) for node in tree.nodes])


def _loss(event: dict[str, Any]) -> float:
    """What the epoch minimised, but for a contrastive loss."""
    kl = event["kl_root"] + event["kl_nodes"] + event["kl_decisions"]
    return round(event["kl_weight"] * kl - event["reconstruction"], 3)
