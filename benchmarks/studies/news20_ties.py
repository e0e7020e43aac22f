"""How much do Ward's scores on 20 Newsgroups depend on which of equally frequent words are among the 2,000?

    python -m benchmarks.studies.news20_ties --root DATA [--out FILE]

Of the 15 words that are as frequent as the 2,000th, 11 have a place. scikit-learn's TfidfVectorizer(max_features=2000)
leaves the choice to a sort that differs between processors; each choice here goes without other four words.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from treevae.baselines import Ward
from treevae.data import news20
from treevae.data.sets import read_source
from treevae.scores import scores

from .. import record

CHOICES = {  # the words left out
    "of the records on the GPU; scikit-learn with AVX-512": ("copies", "document", "livesey", "possibility"),
    "scikit-learn with AVX2": ("3rd", "follows", "m3", "philadelphia"),
    "scikit-learn without either": ("68", "document", "philadelphia", "possibility"),
    "the first by the alphabet": ("philadelphia", "possibility", "riding", "urbana"),
}


def main() -> None:
    """Score each choice, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where the data sets lie; by default what $TREEVAE_DATA says")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for name, left_out in CHOICES.items():
        by_choice = partial(news20.read, not_taken=frozenset(left_out))
        data = read_source(replace(news20.NEWS20, read=by_choice), given.root)
        assert data.y_test is not None
        large, small = (Ward(n).fit(data.x_test) for n in (30, 20))
        of_large, of_small = (scores(ward.tree_, ward.labels_, data.y_test) for ward in (large, small))
        row = {key: of_large[key] for key in ("DP", "LP")} | {key: of_small[key] for key in ("ACC", "NMI")}
        rows.append({"choice": name, "left_out": left_out, **row})
        print(name, {key: round(value, 2) for key, value in row.items()}, flush=True)
    record.write(given.out, {"ward_percent": rows}, "cpu")


if __name__ == "__main__":
    main()
