"""What does saving the state of training cost?

    python -m benchmarks.speed.saving [--device cpu] [--epochs 6] [--out benchmarks/results/saving-cpu.json]

The share of a fit's time that goes into gathering and writing its state: saved as often as is allowed, and with the
default of 30 seconds. Of the first and the last state, which no clock calls for, writing alone is counted. 20,000
random images of 28x28 on a GPU, 2,000 on the CPU, four leaves.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from treevae import TreeVAE
from treevae.fitting import SHARE
from treevae.storage.clock import Every
from treevae.storage.states import StateFolder

from .. import record


class TimedFolder(StateFolder):
    """A folder of states that notes the seconds of each save, from the moment when it says that it is time for one."""

    def __init__(self, path: str, every: Every) -> None:
        super().__init__(path, every)
        self.spent: list[float] = []
        self._called_for: float | None = None

    def due(self) -> bool:
        """Whether it is time to save; what is gathered from here on counts."""
        is_time = super().due()
        self._called_for = time.perf_counter() if is_time else None
        return is_time

    def save(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> int:
        """Save, and note the seconds."""
        began, self._called_for = self._called_for or time.perf_counter(), None
        number = super().save(about, tensors)
        self.spent.append(time.perf_counter() - began)
        return number


def fitted_with(save_every: float, images: np.ndarray, epochs: int, device: str) -> dict[str, Any]:
    """What saving costs in one fit."""
    with tempfile.TemporaryDirectory() as path, TimedFolder(path, Every(save_every, SHARE)) as folder:
        start = time.perf_counter()
        model = TreeVAE(4, max_depth=5, n_init=1, epochs=epochs, device=device, random_state=0)
        model.fit(images, checkpoint=lambda: folder)
        seconds = time.perf_counter() - start
    saves, saving = len(folder.spent), sum(folder.spent)
    return {"save_every": save_every, "seconds": seconds, "saves": saves, "saving": saving, "share": saving / seconds}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    on_gpu = given.device.startswith("cuda")
    images = np.random.default_rng(0).integers(256, size=(20_000 if on_gpu else 2_000, 28, 28), dtype=np.uint8)
    warnings.simplefilter("ignore")
    rows = []
    for save_every in (0.0, 30.0):
        rows.append(fitted_with(save_every, images, given.epochs, given.device))
        print(rows[-1], flush=True)
    record.write(given.out, {"rows": rows}, given.device)


if __name__ == "__main__":
    main()
