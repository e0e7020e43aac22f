"""How much memory does a fit take on more rows than one would like to copy?

    python -m benchmarks.speed.large_rows [--rows 10000000] [--batch-size 8192] [--out FILE]

Rows of 16 features in a numpy memory map (four groups of vectors, float32), two leaves, one epoch, on the CPU.
Anonymous memory is what the process asked for itself; pages of the map are the system's to give and take.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treevae import TreeVAE
from treevae.fitting import Seeds, fit_trees
from treevae.preparing import prepare, warn_of_other_units
from treevae.starting import plan_of

from .. import record

FEATURES = 16
BLOCK = 1 << 20  # rows written at a time


class PeakMemory:
    """The most anonymous memory that the process had, looked at 20 times a second."""

    def __init__(self) -> None:
        self.peak, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self.before = anonymous()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, anonymous())


def anonymous() -> int:
    """Bytes of anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def write_rows(path: Path, n: int) -> None:
    """Four groups of vectors, block after block."""
    chance = np.random.default_rng(0)
    centres = 3 * chance.normal(size=(4, FEATURES))
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, FEATURES))
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        rows[start : start + size] = centres[chance.integers(4, size=size)] + chance.normal(size=(size, FEATURES))
    rows.flush()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--likelihood", default="gaussian_learnt")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of fewer leaves
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.npy")
        write_rows(path, given.rows)
        X = np.load(path, mmap_mode="r")
        sizes: dict[str, Any] = {
            "n_leaves": 2,
            "max_depth": 1,
            "latent_dim": 4,
            "hidden_dim": 32,
            "epochs": 1,
        }
        model = TreeVAE(**sizes, likelihood=given.likelihood, batch_size=given.batch_size, device="cpu")
        parameters = model.get_params(deep=False)
        first_tree_alone = replace(plan_of(parameters, len(X)), final=None)
        with PeakMemory() as memory:
            start, begun = time.perf_counter(), time.process_time()
            prepared = prepare("TreeVAE", parameters, X)
            warn_of_other_units(prepared, stacklevel=1)  # it looks at all rows, as in TreeVAE.fit
            (fitted,) = fit_trees(prepared, first_tree_alone, Seeds.of([0]))
            seconds, worked = time.perf_counter() - start, time.process_time() - begun
        figures = {
            "rows": given.rows,
            "features": FEATURES,
            "likelihood": given.likelihood,
            "batch_size": given.batch_size,
            "file_bytes": path.stat().st_size,
            "bytes_before": memory.before,
            "bytes_peak": memory.peak,
            "bytes_above": memory.peak - memory.before,
            "seconds": seconds,
            "processor_seconds": worked,
            "epochs": len(fitted.epochs),
            "leaves": len(fitted.tree.leaves),
        }
    print(figures)
    record.write(given.out, figures)


if __name__ == "__main__":
    main()
