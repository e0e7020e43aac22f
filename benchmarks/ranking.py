"""Does the paper's ranking hold, TreeVAE > LadderVAE + Ward > VAE + Ward? How many figures differ from the paper's?

    python benchmarks/ranking.py [--results FOLDER]

From the records of Table 1. A gain is the difference of two means over seeds, its standard error stands in brackets. In
bold are those that Benjamini and Hochberg's rule keeps when all are tested at once; a dagger has what Welch's test,
which knows how few seeds there are, gives p < 0.05 by itself alone. Of the figures of both tables beside the paper's it
counts those that are clear by themselves, as the filled marks are, and those that stay when all are tested at once.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from gains import gain
from scipy.stats import false_discovery_control

from treevae.experiments.cells import of_other_data
from treevae.experiments.chance import CLEAR, Mean, by_chance
from treevae.experiments.methods import METHODS
from treevae.experiments.showing import chance_of, mixture
from treevae.experiments.store import Store
from treevae.experiments.tables import DATA_TITLES, Row, table_of

RESULTS = Path(__file__).parents[1] / "results"
DATA = ("mnist", "fashion", "news20", "omniglot5")
PAIRS = (("treevae", "laddervae"), ("laddervae", "vae"), ("treevae", "vae"), ("treevae", "deepect"))


def row_of(data: str, method: str) -> Row:
    """The row of a method on a data set in Table 1, with DP, LP, ACC and NMI."""
    (row,) = [row for row in table_of("clustering").rows if (row.data, row.method) == (data, method)]
    return row


def records_of(store: Store, row: Row) -> list[dict[int, dict[str, Any]]]:
    """Of each score of a row of a table the records by seed; refused where the table would not average them."""
    found = [store.seeds(METHODS[row.method].cell(row.data, entry.changes, 1.0, 0)) for entry in row.entries]
    for records in found:
        if mixed := mixture(row, records):
            raise ValueError(mixed[1])
    return found


def read(store: Store, row: Row) -> list[list[float]]:
    """Of each score of a row of a table the values over seeds."""
    pairs = zip(row.entries, records_of(store, row), strict=True)
    found = ((entry.score.read(one) for one in records.values()) for entry, records in pairs)
    return [[value for value in values if value is not None] for values in found]


def refuse_other_samples(store: Store, rows: Sequence[Row]) -> None:
    """Raise where the records of methods that are compared are not of the same samples."""
    records = [one for row in rows for of in records_of(store, row) for one in of.values()]
    if any(of_other_data(one, other) for one, other in combinations(records, 2)):
        raise ValueError(f"the records of {' and '.join(row.title for row in rows)} are not of the same samples")


class Gain(NamedTuple):
    """A gain of one method over another in a score, as written, and its p-values: by itself, and among all tests."""

    text: str
    alone: float
    together: float = 1.0

    @property
    def marked(self) -> str:
        """The gain: in bold if it is clear among all, with a dagger if it is so by itself alone."""
        return f"**{self.text}**" if self.together < CLEAR else self.text + "†" * (self.alone < CLEAR)


def gains(results: Path = RESULTS) -> dict[tuple[str, str, str], list[Gain]]:
    """By data set and pair of methods the gains in DP, LP, ACC and NMI."""
    store, found = Store(results), dict[tuple[str, str, str], list[Gain]]()
    for data in DATA:
        for pair in PAIRS:
            compared = [row_of(data, method) for method in pair]
            refuse_other_samples(store, compared)
            both = zip(*(read(store, row) for row in compared), strict=True)
            found[data, *pair] = [Gain(gain(*of), by_chance(*map(Mean.of, of))) for of in both]
    together = iter(false_discovery_control([one.alone for row in found.values() for one in row]).tolist())
    return {about: [one._replace(together=next(together)) for one in row] for about, row in found.items()}


def rows(results: Path = RESULTS) -> Iterator[str]:
    """The table in Markdown, line by line."""
    yield "| data | gain of | over | DP | LP | ACC | NMI |"
    yield "| --- " * 7 + "|"
    for (data, better, other), row in gains(results).items():
        titles = (row_of(data, method).title for method in (better, other))
        cells = [DATA_TITLES[data], *titles, *(one.marked for one in row)]
        yield f"| {' | '.join(cells)} |"


def multiplicity(results: Path = RESULTS) -> str:
    """How many tests between methods are clear, of how many."""
    return f"Of {clear([one.alone for row in gains(results).values() for one in row])}."


def beside_the_paper(results: Path = RESULTS) -> list[str]:
    """How many of the figures of both tables differ clearly from the paper's, where more than one seed tells.

    A line that counts them, and a list of the rows with those that stay when all are asked at once.
    """
    store, rows, found = Store(results), list[str](), list[float]()
    for row in (row for name in ("clustering", "generative") for row in table_of(name).rows):
        for entry, values in zip(row.entries, read(store, row), strict=True):
            if len(values) > 1 and entry.paper is not None and entry.paper.sd is not None:
                rows.append(f"{DATA_TITLES[row.data]}, {row.title}")
                found.append(chance_of(Mean.of(values), entry.paper))
    stay = Counter(row for row, p in zip(rows, false_discovery_control(found), strict=True) if p < CLEAR)
    return [f"Beside the paper's figures, of {clear(found)}:", "", *(f"- {row}: {n}" for row, n in stay.items())]


def clear(ps: Sequence[float]) -> str:
    """How many tests are clear, how many would be by chance, and how many are if all are asked at once."""
    together = false_discovery_control(ps)
    alone, stay = sum(p < CLEAR for p in ps), sum(together < CLEAR)
    return (
        f"{len(ps)} tests {alone} are clear by themselves. Chance alone would make {CLEAR * len(ps):.0f} so, on "
        f"average; {stay} stay by Benjamini and Hochberg's rule"
    )


def main() -> None:
    """Print the table, and what is to be expected of so many tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the store of records")
    results = parser.parse_args().results
    print("\n".join([*rows(results), "", multiplicity(results), *beside_the_paper(results)]))


if __name__ == "__main__":
    main()
