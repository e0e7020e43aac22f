"""The tables of docs/evidence/spread.md, from what spread.py has written.

python -m benchmarks.studies.spread_table
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import false_discovery_control

from treevae.experiments.chance import CLEAR, Mean, by_chance

from ..record import RESULTS
from .gains import gain, markdown, mean
from .rules import RULES, alive, kept

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


def settings_row(line: dict[str, Any]) -> list[str]:
    """A setting's mean and standard deviation over seeds, and its trees' leaves; * where the schedule differed."""
    leaves = sorted({run["leaves"] for run in line["runs"]})
    setting = named(line) + " *" * ("earlier_schedule" in line)
    cells = [LABELS[line["data"]], setting, str(line["epochs"]), str(len(line["runs"]))]
    cells.append(f"{leaves[0]} to {leaves[-1]}" if len(leaves) > 1 else str(leaves[0]))
    cells += [mean([run[score] for run in line["runs"]]) for score in ("ACC", "NMI", "DP", "ELBO")]
    return cells


class SpreadGain(NamedTuple):
    """A gain of one setting over another, as the page has it."""

    about: tuple[str, str, str, str, str]  # data, epochs, setting, against which other, score
    text: str
    p: float | None = None  # Welch's; gains in nats, over comparisons instead of trees, have none
    together: float | None = None  # where all are asked at once, by Benjamini and Hochberg's rule


def gains() -> Iterator[SpreadGain]:
    """What the page compares: candidates with each other, levels, other ways with one candidate, rules with rules."""
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
        ours, theirs = ([run[score] for run in found[name, epochs, one]["runs"]] for one in (setting, other))
        about = (LABELS[name], str(epochs), setting, other, score)
        yield SpreadGain(about, gain(ours, theirs), by_chance(Mean.of(ours), Mean.of(theirs)))
    at_whole = [line for line in lines() if line["epochs"] == 150 and judged(line)]
    for name, better, other in (("mnist", "loss", "loss_if_sure"), ("fashion", "loss_if_sure", "loss")):
        of = [line for line in at_whole if line["data"] == name]
        yield SpreadGain((LABELS[name], "150", f"*{better}*", f"*{other}*", "nats"), ahead(of, better, other))


def gains_together() -> list[SpreadGain]:
    """:func:`gains`, each also as Benjamini and Hochberg's rule has it where all of them are asked at once."""
    found = list(gains())
    together = iter(false_discovery_control([one.p for one in found if one.p is not None]).tolist())
    return [one if one.p is None else one._replace(together=next(together)) for one in found]


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


def rules_row(line: dict[str, Any]) -> list[str]:
    """The mean over all comparisons of a setting, weighted by their samples."""
    found, total = [told(compared) for compared in line["compared"]], sum(c["samples"] for c in line["compared"])
    weights = [compared["samples"] / total for compared in line["compared"]]
    cells = [LABELS[line["data"]], named(line), str(line["epochs"]), str(len(found))]
    cells += [f"{sum(w * f[name] for w, f in zip(weights, found, strict=True)):.3f}" for name in found[0]]
    return cells


SETTINGS = "data | setting | epochs | seeds | leaves | ACC | NMI | DP | ELBO"
GOALS = (
    ("mnist", "MNIST: ACC at least 95, sd at most 3", 95.0, 3.0),
    ("fashion", "Fashion: ACC at least 66", 66.0, None),
)
SANDALS, DRESSES = 5, 3  # of the classes of Fashion


def settings() -> list[str]:
    """The settings on the way to the defaults."""
    return markdown(SETTINGS, (settings_row(line) for line in lines() if is_main(line)))


def others() -> list[str]:
    """The settings that led nowhere."""
    return markdown(SETTINGS, (settings_row(line) for line in lines() if not is_main(line)))


def rules() -> list[str]:
    """By how much the candidate that each rule keeps tells of the classes."""
    head = f"data | candidates grown with | epochs | comparisons | blindly | {' | '.join(RULES)} | the best"
    return markdown(head, (rules_row(line) for line in lines() if judged(line)))


def goals() -> list[str]:
    """What was to be reached, and what the defaults reach."""
    rows = []
    for data, goal, least, widest in GOALS:
        whole, quarter = ([run["ACC"] for run in by_setting()[data, n, DEFAULT]["runs"]] for n in (150, 38))
        narrow = widest is None or statistics.stdev(whole) <= widest
        met = "met" if statistics.mean(whole) >= least and narrow else "**missed**"
        rows.append([goal, *(f"{mean(of)} ({len(of)} seeds)" for of in (whole, quarter)), met])
    return markdown("goal | the whole schedule | a quarter of it | reached", rows)


def gains_table() -> list[str]:
    """The gains: in bold those that stay where all are asked at once; and how many these are."""
    found = gains_together()
    tested = [one for one in found if one.p is not None]
    rows = [
        [*one.about, f"**{one.text}**" if (one.together or 1.0) < CLEAR else one.text, written_p(one.p)]
        for one in found
    ]
    clear = sum((one.p or 0.0) < CLEAR for one in tested)
    stay = sum((one.together or 0.0) < CLEAR for one in tested)
    said = (
        f"Of {len(tested)} gains over trees {clear} are clear by themselves. Chance alone would make "
        f"{CLEAR * len(tested):.0f} so, on average; {stay} stay by Benjamini and Hochberg's rule."
    )
    return [*markdown("data | epochs | setting | over | score | gain | p", rows), "", said]


def written_p(p: float | None) -> str:
    """A p-value as the tables have it."""
    if p is None or p < 0.001:
        return "–" if p is None else "< 0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def costs() -> list[str]:
    """Seconds of the settings on the way to the defaults; where seeds were added later, of each command."""
    rows = []
    for name in LABELS:
        text = (RESULTS / f"spread-{name}.jsonl").read_text(encoding="utf-8")
        for line in sorted(filter(is_main, map(json.loads, text.splitlines())), key=_order):
            about = [LABELS[name], named(line), str(line["epochs"]), str(line["seeds"]), line["device"]]
            rows.append([*about, f"{line['seconds']:,.0f}"])
    return markdown("data | setting | epochs | seeds side by side | device | seconds", rows)


def costs_on_a_cpu() -> list[str]:
    """How many times as long as one candidate more of them take on two CPU cores, and one level more."""
    times = json.loads((RESULTS / "candidates-cpu.json").read_text(encoding="utf-8"))["times_one"]
    rows = [[f"{n} candidates, a fit", f"{times[n]:.1f}"] for n in ("4", "16")]
    levels = json.loads((RESULTS / "levels-cpu.json").read_text(encoding="utf-8"))["rows"]
    rows += [[f"7 levels, a step: {row['what']}", f"{row['ratio']:.2f}"] for row in levels]
    return markdown("on two CPU cores | times as long", rows)


def trees() -> list[str]:
    """The trees that the defaults grow on Fashion, by where two of its classes are."""
    rows = []
    for seed, run in enumerate(by_setting()["fashion", 150, DEFAULT]["runs"]):
        table = run["test_leaf_by_class"]
        purest = max(100 * row[SANDALS] / sum(row) for row in table)
        dresses = sorted((row[DRESSES] for row in table), reverse=True)
        rows.append([str(seed), f"{run['ACC']:.1f}", f"{purest:.0f}", f"{100 * dresses[1] / sum(dresses):.0f}"])
    head = "seed | ACC | sandals in the leaf that has most of them, % of it | dresses in their second leaf, % of them"
    return markdown(head, rows)


def main() -> None:
    """Print the tables."""
    for table in (goals, settings, costs, costs_on_a_cpu, trees, rules, others, gains_table):
        print(*table(), sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
