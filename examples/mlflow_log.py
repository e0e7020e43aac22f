"""Several seeds, logged with MLflow: their parameters, the course of each, its score, its tree and its model.

    pip install mlflow
    python examples/mlflow_log.py
    mlflow ui                                     # and open the address that it prints

``fit_seeds(X, seeds, callback=f)`` calls ``f`` with the events of all seeds, and each names its own.
"""

import argparse
from collections import Counter
from pathlib import Path

import mlflow
from sklearn.datasets import load_digits

import treevae
from treevae.training.events import EpochEnded, Event


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=2, help="how many")
    asked.add_argument("--groups", type=int, default=10, help="how many to grow to")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--out", type=Path, default=Path("mlflow-models"), help="the folder for the models")
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    X = load_digits().images / 16
    model = treevae.TreeVAE(args.groups, epochs=args.epochs, verbose=True)
    epochs: Counter[int | None] = Counter()  # of each seed, over all stages

    def log(event: Event) -> None:
        if isinstance(event, EpochEnded):
            epochs[event.seed] += 1
            for name in ("elbo", "reconstruction", "kl"):
                mlflow.log_metric(f"seed {event.seed}/{name}", getattr(event, name), step=epochs[event.seed])

    with mlflow.start_run(run_name="digits"):
        mlflow.log_params({"groups": args.groups, "epochs": args.epochs, "seeds": args.seeds})
        for one in model.fit_seeds(X, range(args.seeds), callback=log):
            name = f"seed {one.random_state}"
            mlflow.log_metric(f"{name}/score", one.score(X))
            mlflow.log_text(str(one.tree_), f"{name}/tree.txt")
            one.save(args.out / f"{name}.safetensors")
            mlflow.log_artifact(str(args.out / f"{name}.safetensors"), name)
    print("mlflow ui")


if __name__ == "__main__":
    main()
