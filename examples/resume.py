"""A fit that is killed goes on where it was, and ends with the tree that it would have had.

    python examples/resume.py                     # about a minute on two cores

Starts a fit in another process, kills that (as a crash or a cluster would), and calls ``fit`` again with the same
folder: the same words start a fit and go on with one. Prints how far the killed one had come, and compares the trees.
"""

import argparse
import logging
import subprocess
import sys
import time
from pathlib import Path

from sklearn.datasets import load_digits

import treevae

X = load_digits().images / 16


def fit(epochs: int, checkpoint: Path | None) -> treevae.TreeVAE:
    """A tree of the digits; with a folder its state is saved there, and a fit that was begun there goes on."""
    model = treevae.TreeVAE(4, epochs=epochs, n_init=1, random_state=0, device="cpu")
    return model.fit(X, checkpoint=checkpoint, save_every=0.2)  # seconds; by default 30, which is plenty


def kill_one(epochs: int, folder: Path) -> None:
    """Start this script in another process, to fit alone, and kill it once it has saved its state twice."""
    other = subprocess.Popen([sys.executable, __file__, "--epochs", str(epochs), "--out", str(folder), "--die"])
    while other.poll() is None and len(list(folder.glob("state-*.safetensors"))) < 2:
        time.sleep(0.02)
    other.kill()
    other.wait()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--epochs", type=int, default=30, help="of the fit")
    asked.add_argument("--out", type=Path, default=Path("resumed"), help="the folder for the state of the fit")
    asked.add_argument("--die", action="store_true", help=argparse.SUPPRESS)  # the process that is to be killed
    args = asked.parse_args()
    if args.die:
        fit(args.epochs, args.out)
        return
    if args.out.exists():
        asked.error(f"{args.out} is there already; name another folder with --out")
    args.out.mkdir(parents=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # treevae says which state it goes on from

    print("a fit begins, and is killed")
    kill_one(args.epochs, args.out)
    began = time.perf_counter()
    model = fit(args.epochs, args.out)
    here = time.perf_counter() - began
    print(f"it went on after {model.seconds_[-1] - here:.1f} s of {model.seconds_[-1]:.1f} s")
    print(model.tree_)
    whole = fit(args.epochs, None)
    print(f"the same labels as without the crash: {bool((model.labels_ == whole.labels_).all())}")


if __name__ == "__main__":
    main()
