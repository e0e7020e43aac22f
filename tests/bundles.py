"""A model of digits, and what its bundle says of nodes and samples."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from treevae import Tree, TreeVAE

X = (load_digits().images[:240] / 16).astype(np.float32)
Y = load_digits().target[:240]
TREE = Tree().split(0).split(1).split(3)  # leaves 5, 6, 4, 2


def fitted(X: Any, tree: Tree = TREE, **how: Any) -> TreeVAE:
    given = {"network": "mlp", "hidden_dim": 16, "epochs": 1, "batch_size": 24, "random_state": 0, "device": "cpu"}
    return TreeVAE(tree=tree, **given | how).fit(X)


def node_of(bundle: dict, node: int) -> dict:
    (found,) = [one for one in bundle["nodes"] if one["id"] == node]
    return found


def members(model: TreeVAE, node: int) -> list[int]:
    """The samples whose most probable leaf lies below a node."""
    below = model.tree_.leaves_below(node)
    return [i for i, k in enumerate(model.predict(X)) if model.tree_.leaves[k] in below]


def reach_of(model: TreeVAE, node: int) -> np.ndarray:
    proba = model.predict_proba(X).astype(np.float64)
    return sum(proba[:, k] for k, leaf in enumerate(model.tree_.leaves) if leaf in model.tree_.leaves_below(node))


def tile(bundle: dict, number: int) -> np.ndarray:
    """The pixels of a sprite, (h, w, 3), read back from its sheet by Pillow."""
    sprites = bundle["sprites"]
    sheet, place = divmod(number, sprites["per_sheet"])
    file = io.BytesIO(base64.b64decode(sprites["sheets"][sheet].removeprefix("data:image/png;base64,")))
    height, width = sprites["tile"]
    y, x = place // sprites["columns"] * height, place % sprites["columns"] * width
    return np.asarray(Image.open(file).convert("RGB"))[y : y + height, x : x + width] / 255


def fitted_well() -> TreeVAE:
    """A model that has samples in every leaf."""
    found = fitted(X, epochs=8, learning_rate=8e-3)
    assert set(found.predict(X).tolist()) == {0, 1, 2, 3}
    return found
