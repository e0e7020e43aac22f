"""Does the paper's ranking hold, TreeVAE > LadderVAE + Ward > VAE + Ward? Gains between them, with their errors.

    python benchmarks/ranking.py [--results FOLDER]

From the records of Table 1. A gain is the difference of two means over seeds, its standard error stands in brackets; in
bold those of which one can say that one method is ahead: Welch's test, which knows how few seeds are, has p < 0.05. Of
so many tests some are so by chance: a sentence says how many are to be expected, and which stay if all are asked.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from gains import gain
from scipy.stats import false_discovery_control

from treevae.experiments.chance import CLEAR, Mean, by_chance
from treevae.experiments.methods import METHODS
from treevae.experiments.store import Store
from treevae.experiments.tables import DATA_TITLES, table_of

RESULTS = Path(__file__).parents[1] / "results"
DATA = ("mnist", "fashion", "news20", "omniglot5")
PAIRS = (("treevae", "laddervae"), ("laddervae", "vae"), ("treevae", "vae"), ("treevae", "deepect"))
TITLES = {"treevae": "TreeVAE", "laddervae": "LadderVAE + Ward", "vae": "VAE + Ward", "deepect": "DeepECT"}


def scores(store: Store, data: str, method: str) -> list[list[float]]:
    """DP, LP, ACC and NMI of a method on a data set: of each the values over seeds."""
    (row,) = [row for row in table_of("clustering").rows if (row.data, row.method) == (data, method)]
    records = [store.seeds(METHODS[method].cell(data, entry.changes, 1.0, 0)).values() for entry in row.entries]
    found = ((entry.score.read(one) for one in of) for entry, of in zip(row.entries, records, strict=True))
    return [[value for value in values if value is not None] for values in found]


def marked(ours: list[float], theirs: list[float]) -> str:
    """The gain, in bold if it is clear."""
    clear = by_chance(Mean.of(ours), Mean.of(theirs)) < CLEAR
    return f"**{gain(ours, theirs)}**" if clear else gain(ours, theirs)


def rows(results: Path = RESULTS) -> Iterator[str]:
    """The table in Markdown, line by line."""
    store = Store(results)
    yield "| data | gain of | over | DP | LP | ACC | NMI |"
    yield "| --- " * 7 + "|"
    for data in DATA:
        for better, other in PAIRS:
            both = zip(scores(store, data, better), scores(store, data, other), strict=True)
            cells = [DATA_TITLES[data], TITLES[better], TITLES[other], *(marked(*pair) for pair in both)]
            yield f"| {' | '.join(cells)} |"


def multiplicity(results: Path = RESULTS) -> str:
    """How many tests are clear, how many would be if no methods differed, and which are not if all are asked."""
    store, found = Store(results), dict[str, float]()
    for data in DATA:
        for pair in PAIRS:
            both = (scores(store, data, method) for method in pair)
            for name, ours, theirs in zip(table_of("clustering").columns, *both, strict=True):
                about = f"{DATA_TITLES[data]}, {' over '.join(TITLES[method] for method in pair)}, {name}"
                found[about] = by_chance(Mean.of(ours), Mean.of(theirs))
    clear = {about for about, p in found.items() if p < CLEAR}
    together = zip(found, false_discovery_control(list(found.values())), strict=True)
    gone = [about for about, p in together if p >= CLEAR and about in clear]
    return (
        f"Of {len(found)} tests {len(clear)} have p < {CLEAR}, where chance alone would give {CLEAR * len(found):.0f}. "
        f"Benjamini and Hochberg's rule, by which at most one in {1 / CLEAR:.0f} of those kept is to be expected "
        f"wrong, keeps {len(clear) - len(gone)}; it lets go: {'; '.join(gone)}."
    )


def main() -> None:
    """Print the table, and what is to be expected of so many tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the store of records")
    results = parser.parse_args().results
    print("\n".join([*rows(results), "", multiplicity(results)]))


if __name__ == "__main__":
    main()
