"""Writes the tables of the pages of evidence anew, from the records.

    python -m benchmarks.pages.write

A table's place on a page begins with a line ``<!-- table: NAME -->`` and ends with ``<!-- end -->``; what is between is
written by the function of that name. tests/test_results.py fails where a page and the records differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..studies import spread_table
from . import history_tables, house_table, results_tables, start_tables

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("results.md", "results-history.md", "spread.md", "start-study.md", "house.md")
PLACE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->", re.DOTALL)
TABLES: dict[str, Callable[[], list[str]]] = {
    "house": house_table.house,
    "defaults": results_tables.defaults,
    "leads": results_tables.leads,
    "recipes": results_tables.recipes,
    "marks": results_tables.marks,
    "likelihoods": results_tables.likelihoods,
    "times": results_tables.times,
    "demo": results_tables.demo,
    "clustering": partial(results_tables.written, "clustering"),
    "generative": partial(results_tables.written, "generative"),
    "between-methods": results_tables.between_methods,
    "digits": results_tables.digits,
    "ward-on-texts": history_tables.ward_on_texts,
    "texts": history_tables.texts,
    "texts-growing": history_tables.texts_growing,
    "texts-ends": history_tables.texts_ends,
    "texts-bounds": history_tables.texts_bounds,
    "tensorflow": history_tables.tensorflow,
    "omniglot": history_tables.omniglot,
    "bottom-up": history_tables.bottom_up,
    "draws": history_tables.draws,
    "hdbscan": history_tables.hdbscan,
    "goals": spread_table.goals,
    "settings": spread_table.settings,
    "costs": spread_table.costs,
    "costs-on-a-cpu": spread_table.costs_on_a_cpu,
    "trees": spread_table.trees,
    "rules": spread_table.rules,
    "others": spread_table.others,
    "gains": spread_table.gains_table,
    "start-defaults": start_tables.defaults,
    "start-cheap": start_tables.cheap_methods,
    "start-trials": start_tables.trials,
    "start-races": start_tables.races,
}


def page(name: str) -> Path:
    """Where a page of the documents is."""
    (found,) = DOCS.rglob(name)
    return found


def with_tables(text: str) -> str:
    """A page with its tables as the records have them."""

    def filled(place: re.Match[str]) -> str:
        return "\n".join([f"<!-- table: {place[1]} -->", "", *TABLES[place[1]](), "", "<!-- end -->"])

    return PLACE.sub(filled, text)


def main() -> None:
    """Write the pages."""
    for path in map(page, PAGES):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
