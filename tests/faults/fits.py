"""A small fit, and a process that is killed in the middle of it again and again. Run by test_faults.py.

    python fits.py FOLDER KILLS SEED

The process itself never trains: it forks one child for each attempt, so that nothing has to be imported anew, and kills
the child with SIGKILL at a random moment. What is left, the folder, is all that the next child has.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from treevae import TreeVAE, fitting
from treevae.recipes import PAPER
from treevae.storage.states import StateFolder

SETTINGS = {
    "n_leaves": 4,
    "max_depth": 2,
    "latent_dim": 3,
    "hidden_dim": 16,
    "n_init": 2,
    "epochs": 16,
    "batch_size": 32,
    **PAPER,
}


def samples(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (480, 6)).astype(np.float32)


def fit(folder: Path | None) -> TreeVAE:
    torch.set_num_threads(1)
    fitting.SHARE = 1.0  # save at every pause, so that kills fall among saves however slow the machine is
    model = TreeVAE(**SETTINGS, random_state=0, device="cpu")
    return model.fit(samples(), checkpoint=folder, save_every=0)


def attempt(folder: Path) -> None:
    """In a child: fit, and leave the model beside the folder's state."""
    fit(folder).save(folder / "model.safetensors")


def main() -> None:
    root, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    done = fits = resumed = 0
    while True:  # fit after fit, each in a folder of its own, until enough were killed and the last one has ended
        folder = root / f"fit-{fits}"
        folder.mkdir()
        while not (folder / "model.safetensors").exists():
            found = StateFolder(folder).load()
            resumed += found is not None and found.about["grove"].get("training", {}).get("tick", 0) > 0
            child = os.fork()
            if child == 0:
                attempt(folder)
                os._exit(0)
            if done < kills:
                time.sleep(chance.uniform(0, 1))
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL, status
                done += 1
            else:
                assert os.WEXITSTATUS(status) == 0, status
        fits += 1
        if done >= kills:
            break
    print(f"{done} kills, {resumed} attempts resumed, {fits} fits")


if __name__ == "__main__":
    main()
