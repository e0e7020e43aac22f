"""A fit that is watched in TensorBoard, and that may end when its time is up.

    pip install tensorboard
    python examples/tensorboard_log.py --minutes 10 &
    tensorboard --logdir tensorboard-log          # and open the address that it prints

``fit(X, callback=f)`` calls ``f`` with each event as it happens: here the ELBO's terms of every epoch, and every new
tree. Where ``f`` returns False the fit stops, and the model keeps the tree so far.
"""

import argparse
import time
from itertools import count
from pathlib import Path

from sklearn.datasets import load_digits
from torch.utils.tensorboard import SummaryWriter

import treevae
from treevae.training.events import EpochEnded, Event, TreeChanged


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--groups", type=int, default=10, help="how many to grow to")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--minutes", type=float, default=30, help="after which the fit stops, once there is a tree")
    asked.add_argument("--out", type=Path, default=Path("tensorboard-log"), help="the folder for TensorBoard")
    args = asked.parse_args()

    X = load_digits().images / 16
    model = treevae.TreeVAE(args.groups, epochs=args.epochs, random_state=0)
    began, epochs, trees = time.monotonic(), count(1), count(1)
    with SummaryWriter(args.out) as writer:

        def log(event: Event) -> bool:
            """Whether to go on."""
            if isinstance(event, EpochEnded):
                epoch = next(epochs)  # over all stages
                for name in ("elbo", "reconstruction", "kl_root", "kl_nodes", "kl_decisions", "kl_weight"):
                    writer.add_scalar(name, getattr(event, name), epoch)
                writer.add_scalar("progress", event.progress, epoch)
            if isinstance(event, TreeChanged):
                n = next(trees)
                writer.add_scalar("leaves", len(event.tree.leaves), n)
                writer.add_text("tree", f"```\n{event.tree}\n```", n)
                return time.monotonic() - began < 60 * args.minutes
            return True

        model.fit(X, callback=log)
    print(model.tree_)
    print(f"tensorboard --logdir {args.out}")


if __name__ == "__main__":
    main()
