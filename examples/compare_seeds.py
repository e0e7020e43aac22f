"""How far a tree depends on luck: the same data, several seeds, and the tree that they agree on.

    python examples/compare_seeds.py              # some minutes on two cores
    python examples/compare_seeds.py --seeds 5 --candidates 6

Prints how well the groups of the seeds agree. Writes a picture of each tree and average.png, the dendrogram of the mean
edges between the clusters of those that have as many.
"""

import argparse
from collections import Counter
from itertools import combinations
from pathlib import Path

from sklearn.datasets import load_digits

import treevae


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", type=int, default=2, help="how many")
    asked.add_argument("--groups", type=int, default=10, help="how many to grow to")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--candidates", type=int, default=3, help="guides to begin with: more leave less to luck")
    asked.add_argument("--out", type=Path, default=Path("seeds"), help="the folder to write into")
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    X, y = digits.images / 16, digits.target
    model = treevae.TreeVAE(args.groups, epochs=args.epochs, n_init=args.candidates, verbose=True)
    models = model.fit_seeds(X, range(args.seeds))  # side by side

    for one in models:
        nmi, score = treevae.metrics.nmi(one.labels_, y), one.score(X)
        print(
            f"seed {one.random_state}: {len(one.tree_.leaves)} groups, ELBO {score:.2f}, NMI with the digits {nmi:.2f}"
        )
        treevae.plot.tree(one, X, y).savefig(args.out / f"seed-{one.random_state}.png")
    for one, other in combinations(models, 2):
        nmi = treevae.metrics.nmi(one.labels_, other.labels_)
        print(f"seeds {one.random_state} and {other.random_state}: NMI of their groups {nmi:.2f}")
    usual, n = Counter(len(one.tree_.leaves) for one in models).most_common(1)[0]
    if n > 1:
        alike = [one for one in models if len(one.tree_.leaves) == usual]
        treevae.plot.average_dendrogram(alike, X, y).savefig(args.out / "average.png")
        print(f"average.png is of the {n} trees with {usual} groups")
    else:
        print("no two trees have as many groups, so none are averaged; longer training prunes fewer")
    print(f"look at the pictures in {args.out}")


if __name__ == "__main__":
    main()
