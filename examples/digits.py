"""Handwritten digits, sorted by a model that is never told what a digit is.

    python examples/digits.py                     # some minutes on two cores
    python examples/digits.py --epochs 15         # a quick look

Prints the tree and how well its groups match the digits; writes tree.png and report.html.
"""

import argparse
from pathlib import Path

from sklearn.datasets import load_digits

import treevae


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--groups", type=int, default=10, help="how many to grow to")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--candidates", type=int, default=3, help="guides to begin with, of which the best is kept")
    asked.add_argument("--out", type=Path, default=Path("digits-tree"), help="the folder to write into")
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    X, y = digits.images / 16, digits.target  # 1,797 pictures of 8 × 8 in [0, 1]; y is for scores and names alone
    model = treevae.TreeVAE(args.groups, epochs=args.epochs, n_init=args.candidates, random_state=0, verbose=True)
    labels = model.fit_predict(X)

    print(model.tree_)
    print(f"share of digits in the group that matches theirs: {treevae.metrics.accuracy(labels, y):.0%}")
    print(f"dendrogram purity: {treevae.metrics.dendrogram_purity(model.tree_, labels, y):.0%}")
    treevae.plot.tree(model, X, y).savefig(args.out / "tree.png")
    page = treevae.report(model, X, y, args.out / "report.html", title="Handwritten digits")
    print(f"look at {args.out / 'tree.png'}, and open {page} in a browser")


if __name__ == "__main__":
    main()
