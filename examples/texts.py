"""Texts, grouped by the words in them: TF-IDF by scikit-learn, and a tree with words at its leaves.

    python examples/texts.py reviews.txt          # a text a line
    python examples/texts.py                      # takes what scipy says of its own functions, some 1,000 texts

Prints the words of each group; writes words.png and report.html.
"""

import argparse
import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import treevae

ROOMS = ("linalg", "ndimage", "optimize", "signal", "special", "stats")  # of scipy
TOLD = 6  # words that are told of a group


def scipys_texts() -> tuple[list[str], list[str]]:
    """The docstrings of scipy's functions, and the part of scipy that each is from."""
    texts, parts = [], []
    for part in ROOMS:
        module = import_module(f"scipy.{part}")
        about = {inspect.getdoc(getattr(module, name)) or "" for name in module.__all__}
        said = sorted(text for text in about if len(text) > 200)
        texts += said
        parts += [part] * len(said)
    return texts, parts


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("texts", type=Path, nargs="?", help="a file with a text a line; without one, scipy's own")
    asked.add_argument("--groups", type=int, default=8, help="how many to grow to")
    asked.add_argument("--words", type=int, default=1000, help="the most frequent ones, which the model sees")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--out", type=Path, default=Path("texts-tree"), help="the folder to write into")
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    texts, y = (args.texts.read_text().splitlines(), None) if args.texts else scipys_texts()

    weigh = TfidfVectorizer(
        max_features=args.words, stop_words="english", token_pattern=r"[a-zA-Z]{3,}", dtype=np.float32
    )
    X = weigh.fit_transform(texts).toarray()
    words = weigh.get_feature_names_out()
    model = treevae.TreeVAE(
        args.groups, latent_dim=4, network="deep_mlp", epochs=args.epochs, random_state=0, verbose=True
    )
    labels = model.fit_predict(X)  # weights in [0, 1] are taken as probabilities of words, as in the paper

    print(model.tree_)
    for group in np.unique(labels):
        inside, outside = X[labels == group], X[labels != group]
        first = np.argsort(outside.mean(0) - inside.mean(0))[:TOLD]
        print(f"group {group}, {len(inside)} texts: {', '.join(words[first])}")
    if y is not None:
        print(f"agreement with the parts of scipy (NMI): {treevae.metrics.nmi(labels, y):.2f}")
    treevae.plot.words(model, X, words, y).savefig(args.out / "words.png")
    page = treevae.report(model, X, y, args.out / "report.html", names=list(words), kind="words", title="Texts")
    print(f"look at {args.out / 'words.png'}, and open {page} in a browser")


if __name__ == "__main__":
    main()
