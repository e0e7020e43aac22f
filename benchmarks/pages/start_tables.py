"""The tables of the page of starts: our default beside what is cheap, and the trials that it was chosen by."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ..record import RESULTS
from ..studies.gains import markdown, mean

SCORES = ("DP", "ACC", "NMI")
OWN_NUMBER = ("umap + hdbscan",)  # of clusters: its scores are not those of as many as ours
Groups = dict[str, dict[str, list[Mapping[str, Any]]]]  # rows by set, then by way or method


def of_record(name: str, key: str) -> Groups:
    """The rows of a record by their set and their way, or method."""
    groups: Groups = defaultdict(lambda: defaultdict(list))
    for row in json.loads((RESULTS / name).read_text(encoding="utf-8"))["rows"]:
        groups[row["data"]][row[key]].append(row)
    return groups


def scores(rows: Iterable[Mapping[str, Any]]) -> str:
    """Means of the three scores."""
    of = list(rows)
    return " / ".join(mean([row[score] for row in of], 1) for score in SCORES)


def worth(rows: Iterable[Mapping[str, Any]]) -> float:
    """The mean of DP and NMI over seeds, by which ways are compared."""
    values = [(row["DP"] + row["NMI"]) / 2 for row in rows]
    return sum(values) / len(values)


def defaults() -> list[str]:
    """For each set the default, and the best of the cheap methods by the mean of DP and NMI."""
    ours, cheap = of_record("start.json", "way"), of_record("start_cheap.json", "method")
    rows = []
    for name, ways in ours.items():
        if "default" not in ways or name not in cheap:
            continue
        as_many = {method: of for method, of in cheap[name].items() if method not in OWN_NUMBER}
        best = max(as_many, key=lambda method: worth(as_many[method]))
        lead = worth(ways["default"]) - worth(as_many[best])
        rows.append(
            [name, scores(ways["default"]), f"{best}: {scores(as_many[best])}", f"{lead:+.1f}".replace("-", "−")]
        )
    return markdown("set | default | best cheap method | lead", rows)


def cheap_methods() -> list[str]:
    """All that was run of the cheap methods."""
    cheap = of_record("start_cheap.json", "method")
    names = list(dict.fromkeys(method for of in cheap.values() for method in of))
    rows = [[name, *(scores(of[method]) if method in of else "–" for method in names)] for name, of in cheap.items()]
    return markdown(" | ".join(["set", *names]), rows)


def trials() -> list[str]:
    """The trials on a GPU, in the order in which they were made."""
    rows = []
    for row in json.loads((RESULTS / "start_trials.json").read_text(encoding="utf-8"))["rows"]:
        of = [dict(zip((*SCORES, "LP", "ELBO"), one, strict=True)) for one in row["DP_ACC_NMI_LP_ELBO_of_seeds"]]
        start = "splits" if row["start"] == "splits" else " + ".join(row["guides"])
        weights = f"{row['agreement']:g}" + ("" if start == "splits" else f", {row['guidance_per_feature']:g}")
        rows.append([row["data"], start, weights, str(row["epochs"]), scores(of), mean([one["ELBO"] for one in of], 1)])
    return markdown("set | start | weights | epochs | DP / ACC / NMI | ELBO", rows)


def races() -> list[str]:
    """What racing candidates cost and give on the digits."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for seed in ("seed0", "seed2", "seed4"):
        record = json.loads((RESULTS / f"racing-fits-digits-{seed}.json").read_text(encoding="utf-8"))
        for name, fits in record["fits"].items():
            groups[name] += fits
    one = sum(row["cpu_seconds"] for row in groups["one"]) / len(groups["one"])
    rows = []
    for name, of in groups.items():
        price = sum(row["cpu_seconds"] for row in of) / len(of) / one
        rows.append([name, f"{price:.2f}", scores(of)])
    return markdown("plan | price | DP / ACC / NMI", rows)
