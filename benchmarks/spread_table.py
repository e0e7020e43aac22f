"""The tables of docs/spread.md, from what spread.py has written.

python benchmarks/spread_table.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gains import gain

from treevae.training.choosing import sure_enough
from treevae.training.plan import Plan

RESULTS = Path(__file__).parent / "results"
LABELS = {"digits": "Digits", "mnist": "MNIST", "fashion": "Fashion"}
SIGNS = {"loss": -1, "elbo": -1, "confidence": 1, "agreement": 1}  # losses are better when they are low
RULES = (*SIGNS, "loss_if_sure")


def lines(results: Path = RESULTS) -> Iterator[dict[str, Any]]:
    """All settings that were run, data set by data set; where seeds were added later, all of them together."""
    for name in LABELS:
        path = results / f"spread-{name}.jsonl"
        found: dict[tuple[str, int], dict[str, Any]] = {}
        seeds: dict[tuple[str, int], set[int]] = {}
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.exists() else ()):
            of = named(line), line["epochs"]
            known, start = seeds.setdefault(of, set()), line.get("first_seed", 0)
            if twice := known.intersection(range(start, start + line["seeds"])):
                raise ValueError(f"{path.name}: {of[0]}, {of[1]} epochs: the seeds {sorted(twice)} stand in two lines")
            known.update(range(start, start + line["seeds"]))
            if (first := found.setdefault(of, line)) is not line:
                first["runs"] += line["runs"]
                first["compared"] += line["compared"]
        yield from found.values()


def named(line: dict[str, Any]) -> str:
    """A setting, with whose norms and first weights if they are not torch's."""
    return line["setting"] if line["framework"] == "torch" else f"{line['setting']} ({line['framework']})"


def by_setting() -> dict[tuple[str, int, str], dict[str, Any]]:
    """What was run, by data set, epochs and setting."""
    return {(line["data"], line["epochs"], named(line)): line for line in lines()}


def settings_row(line: dict[str, Any]) -> str:
    """A setting's mean and standard deviation over seeds, and its trees' leaves; * where the schedule differed."""
    leaves = sorted({run["leaves"] for run in line["runs"]})
    other_schedule = line["epochs"] == 38 and "source" not in line
    cells = [LABELS[line["data"]], named(line) + " *" * other_schedule, str(line["epochs"]), str(len(line["runs"]))]
    cells.append(f"{leaves[0]} to {leaves[-1]}" if len(leaves) > 1 else str(leaves[0]))
    for score in ("ACC", "NMI", "DP", "ELBO"):
        values = [run[score] for run in line["runs"]]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.1f}{spread}".replace("-", "−"))
    return f"| {' | '.join(cells)} |"


def gains() -> Iterator[tuple[str, str]]:
    """What the page compares, and the gain: sixteen candidates with one and four, levels, other ways with one."""
    found = by_setting()
    sixteen, four = "16 candidates, loss_if_sure", "4 candidates, loss_if_sure"
    pairs = [
        (name, 38, sixteen, other, score)
        for name in ("mnist", "fashion")
        for other in ("paper", four)
        for score in ("ACC", "DP")
    ]
    pairs += [("mnist", epochs, f"{sixteen}, 7 levels", sixteen, "ACC") for epochs in (38, 150)]
    pairs += [("fashion", 38, f"{sixteen}, 7 levels", sixteen, score) for score in ("ACC", "NMI")]
    pairs += [("fashion", 38, f"{sixteen}, 7 levels", "paper", score) for score in ("ACC", "NMI")]
    unweighted = "paper, subtrees not weighted by reach"
    pairs += [("mnist", 38, way, "paper", "ACC") for way in ("paper (tensorflow)", unweighted)]
    pairs += [("fashion", 38, way, "paper", "ACC") for way in (unweighted, "4 candidates, held_out")]
    pairs += [("digits", 75, f"leaf by gain{trials}", "paper", "ACC") for trials in ("", ", short trials")]
    pairs += [("mnist", 38, f"{way}, short trials", "paper", "ACC") for way in ("leaf by gain", "repairs")]
    for name, epochs, setting, other, score in pairs:
        about = f"{LABELS[name]}, {epochs} epochs: {setting}, against {other}: {score}"
        yield about, gain(*([run[score] for run in found[name, epochs, one]["runs"]] for one in (setting, other)))
    at_whole = [line for line in lines() if line["epochs"] == 150 and judged(line)]
    for name, better, other in (("mnist", "loss", "loss_if_sure"), ("fashion", "loss_if_sure", "loss")):
        about = f"{LABELS[name]}, 150 epochs: {better} ahead of {other}, nats"
        yield about, ahead([line for line in at_whole if line["data"] == name], better, other)


def kept(compared: dict[str, Any]) -> dict[str, float]:
    """What a candidate tells of the classes, in nats: one taken blindly, the one that each rule keeps, the best."""
    told, unsure = compared["information"], [1 - sure for sure in compared["confidence"]]
    alive = [i for i, share in enumerate(compared["smaller"]) if share >= Plan.min_share]
    bound = sure_enough(min(unsure[i] for i in alive)) if alive else 1.0
    alive = alive or list(range(len(told)))
    found = {"blindly": statistics.mean(told[i] for i in alive)}
    for rule in RULES:
        among = [i for i in alive if unsure[i] <= bound] if rule == "loss_if_sure" else alive
        values, sign = (compared["loss"], -1) if rule == "loss_if_sure" else (compared[rule], SIGNS[rule])
        found[rule] = told[max(among, key=[sign * value for value in values].__getitem__)]
    return found | {"the best": max(told[i] for i in alive)}


def judged(line: dict[str, Any]) -> bool:
    """Whether a setting compared candidates on all samples of a split: on few, any split seems to tell more."""
    return bool(line["compared"]) and "held_out" not in line["setting"]


def ahead(settings: Iterable[dict[str, Any]], rule: str, other: str) -> str:
    """How many nats more the candidates kept by a rule tell than those kept by another; the standard error in brackets.

    The mean over all comparisons of some settings, weighted by their samples; the error as if they were independent,
    which those of one tree are not quite.
    """
    compared = [one for line in settings for one in line["compared"]]
    total = sum(one["samples"] for one in compared)
    pairs = [(one["samples"] / total, kept(one)[rule] - kept(one)[other]) for one in compared]
    mean = sum(weight * more for weight, more in pairs)
    error = sum((weight * (more - mean)) ** 2 for weight, more in pairs) ** 0.5
    return f"{mean:.3f} ({error:.3f})"


def rules_row(line: dict[str, Any]) -> str:
    """The mean over all comparisons of a setting, weighted by their samples."""
    found, total = [kept(compared) for compared in line["compared"]], sum(c["samples"] for c in line["compared"])
    weights = [compared["samples"] / total for compared in line["compared"]]
    cells = [LABELS[line["data"]], named(line), str(line["epochs"]), str(len(found))]
    cells += [f"{sum(w * f[name] for w, f in zip(weights, found, strict=True)):.3f}" for name in found[0]]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print both tables, and the gains with their standard errors."""
    print("| data | setting | epochs | seeds | leaves | ACC | NMI | DP | ELBO |\n" + "| --- " * 9 + "|")
    for line in lines():
        print(settings_row(line))
    print(f"\n| data | candidates grown with | epochs | comparisons | blindly | {' | '.join(RULES)} | the best |")
    print("| --- " * (6 + len(RULES)) + "|")
    for line in lines():
        if judged(line):
            print(rules_row(line))
    print()
    for about, found in gains():
        print(about, found)


if __name__ == "__main__":
    main()
