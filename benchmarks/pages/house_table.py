"""The table of the house: what a rework changed, counted on the checkout before it and after it."""

from __future__ import annotations

import json

from ..record import RESULTS
from ..studies.gains import markdown

ROWS = (
    ("private_reaches", "uses of another module's private names"),
    ("run_time_patches_in_benchmarks", "functions, classes and settings of the package replaced at run time"),
    ("type_names_with_two_meanings", "type names that mean two things"),
    ("frames_from_fit_to_the_posterior", "frames from `fit` to the posterior"),
    ("files_from_fit_to_the_posterior", "files on that way"),
    ("words_of_the_readme", "words of the README, fenced code apart"),
    ("imports_of_the_estimator", "imports of `estimator.py` from the package"),
    ("files_over_400_lines", "files of the package over 400 lines"),
    ("found_in_the_package", "the word `found` in the package"),
)


def house() -> list[str]:
    """What was counted, before and after."""
    before, after = (json.loads((RESULTS / f"house-{when}.json").read_text()) for when in ("before", "after"))
    rows = []
    for name, what in ROWS:
        counts = [one[name] if isinstance(one[name], int) else len(one[name]) for one in (before, after)]
        rows.append([what, *(f"{n:,}" for n in counts)])
    return markdown("counted | before | after", rows)
