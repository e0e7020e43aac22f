"""The tables of docs/evidence/spread.md, from what spread.py has written.

python benchmarks/spread_table.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gains import gain
from rules import RULES, alive, kept
from scipy.stats import false_discovery_control

from treevae.experiments.chance import Mean, by_chance

RESULTS = Path(__file__).parent / "results"
LABELS = {"mnist": "MNIST", "fashion": "Fashion", "digits": "Digits"}
SIXTEEN, FOUR = "16 candidates, loss_if_sure", "4 candidates, loss_if_sure"
DEFAULT = f"{SIXTEEN}, 7 levels"
MAIN = ("paper", FOUR, SIXTEEN, DEFAULT)  # the way to the defaults; what led nowhere has a table of its own


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
        yield from sorted(found.values(), key=_order)


def _order(line: dict[str, Any]) -> tuple[int, str, int]:
    """Settings of a table in their order: those of the first one as they lead to the defaults."""
    name = named(line)
    return (MAIN.index(name) if name in MAIN else len(MAIN), name, line["epochs"])


def is_main(line: dict[str, Any]) -> bool:
    """Whether a setting is on the way to the defaults."""
    return named(line) in MAIN


def named(line: dict[str, Any]) -> str:
    """A setting, with whose norms and first weights if they are not torch's."""
    return line["setting"] if line["framework"] == "torch" else f"{line['setting']} ({line['framework']})"


def by_setting() -> dict[tuple[str, int, str], dict[str, Any]]:
    """What was run, by data set, epochs and setting."""
    return {(line["data"], line["epochs"], named(line)): line for line in lines()}


def settings_row(line: dict[str, Any]) -> str:
    """A setting's mean and standard deviation over seeds, and its trees' leaves; * where the schedule differed."""
    leaves = sorted({run["leaves"] for run in line["runs"]})
    setting = named(line) + " *" * ("earlier_schedule" in line)
    cells = [LABELS[line["data"]], setting, str(line["epochs"]), str(len(line["runs"]))]
    cells.append(f"{leaves[0]} to {leaves[-1]}" if len(leaves) > 1 else str(leaves[0]))
    for score in ("ACC", "NMI", "DP", "ELBO"):
        values = [run[score] for run in line["runs"]]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.1f}{spread}".replace("-", "−"))
    return f"| {' | '.join(cells)} |"


def gains() -> Iterator[tuple[str, str, float | None]]:
    """What the page compares, the gain and Welch's p: candidates with each other, levels, other ways with one.

    Gains in nats, over comparisons instead of trees, have no p.
    """
    found = by_setting()
    both = ("mnist", "fashion")
    pairs = [(name, 38, SIXTEEN, other, score) for name in both for other in ("paper", FOUR) for score in ("ACC", "DP")]
    pairs += [("mnist", 38, setting, "paper", "ACC") for setting in (FOUR, DEFAULT)]
    pairs += [("mnist", 38, "paper", "paper, an earlier schedule", "ACC")]
    pairs += [("mnist", epochs, DEFAULT, SIXTEEN, "ACC") for epochs in (38, 150)]
    pairs += [("fashion", 38, DEFAULT, other, score) for other in (SIXTEEN, "paper") for score in ("ACC", "NMI")]
    ways = (
        "paper (tensorflow)",
        "paper, subtrees not weighted by reach",
        "4 candidates, held_out",
        "leaf by gain",
        "repairs",
    )
    pairs += [(name, 38, way, "paper", "ACC") for name in both for way in ways]
    pairs += [("mnist", 38, "4 candidates, held_out", FOUR, "ACC"), ("digits", 75, "leaf by gain", "paper", "ACC")]
    pairs += [
        (name, 75 if name == "digits" else 38, "leaf by gain, short trials", "paper", "ACC")
        for name in ("mnist", "digits")
    ]
    for name, epochs, setting, other, score in pairs:
        about = f"{LABELS[name]}, {epochs} epochs: {setting}, against {other}: {score}"
        ours, theirs = ([run[score] for run in found[name, epochs, one]["runs"]] for one in (setting, other))
        yield about, gain(ours, theirs), by_chance(Mean.of(ours), Mean.of(theirs))
    at_whole = [line for line in lines() if line["epochs"] == 150 and judged(line)]
    for name, better, other in (("mnist", "loss", "loss_if_sure"), ("fashion", "loss_if_sure", "loss")):
        about = f"{LABELS[name]}, 150 epochs: {better} ahead of {other}, nats"
        yield about, ahead([line for line in at_whole if line["data"] == name], better, other), None


def gains_together() -> list[tuple[str, str, float | None, float | None]]:
    """:func:`gains`, each p also as Benjamini and Hochberg's rule has it where all of them are asked at once."""
    found = list(gains())
    together = iter(false_discovery_control([p for *_, p in found if p is not None]).tolist())
    return [(about, text, p, None if p is None else next(together)) for about, text, p in found]


def told(compared: dict[str, Any]) -> dict[str, float]:
    """What a candidate tells of the classes, in nats: one taken blindly, the one that each rule keeps, the best."""
    nats = compared["information"]
    of_alive = [nats[i] for i in alive(compared)]
    by_rule = {rule: nats[kept(rule, compared)] for rule in RULES}
    return {"blindly": statistics.mean(of_alive), **by_rule, "the best": max(of_alive)}


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
    pairs = [(one["samples"] / total, told(one)[rule] - told(one)[other]) for one in compared]
    mean = sum(weight * more for weight, more in pairs)
    error = sum((weight * (more - mean)) ** 2 for weight, more in pairs) ** 0.5
    return f"{mean:.3f} ({error:.3f})"


def rules_row(line: dict[str, Any]) -> str:
    """The mean over all comparisons of a setting, weighted by their samples."""
    found, total = [told(compared) for compared in line["compared"]], sum(c["samples"] for c in line["compared"])
    weights = [compared["samples"] / total for compared in line["compared"]]
    cells = [LABELS[line["data"]], named(line), str(line["epochs"]), str(len(found))]
    cells += [f"{sum(w * f[name] for w, f in zip(weights, found, strict=True)):.3f}" for name in found[0]]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the tables, and the gains with their standard errors."""
    head = "| data | setting | epochs | seeds | leaves | ACC | NMI | DP | ELBO |\n" + "| --- " * 9 + "|"
    print(head, *(settings_row(line) for line in lines() if is_main(line)), sep="\n", end="\n\n")
    print(f"| data | candidates grown with | epochs | comparisons | blindly | {' | '.join(RULES)} | the best |")
    print("| --- " * (6 + len(RULES)) + "|")
    print(*(rules_row(line) for line in lines() if judged(line)), sep="\n", end="\n\n")
    print(head, *(settings_row(line) for line in lines() if not is_main(line)), sep="\n", end="\n\n")
    for about, found, p, together in gains_together():
        print(about, found, "" if p is None else f"p = {p:.2g}, among all tests {together:.2g}")


if __name__ == "__main__":
    main()
