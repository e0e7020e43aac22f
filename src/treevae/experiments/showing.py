"""A table with our figures beside the paper's: as text, as Markdown and as LaTeX."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from ..errors import DamagedRecordError
from .cells import (
    FINGERPRINTS,
    MADE_BY,
    PARAMETERS,
    SAID,
    SEEDS,
    leaves_of,
    of_other_data,
    other_parameters,
)
from .chance import CLEAR, Mean, by_chance
from .folders import STORE, options
from .methods import METHODS
from .printed import PaperFigure
from .store import Store
from .tables import DATA_TITLES, PaperEntry, PaperRow, PaperTable

NOT_RUN, NOT_RECORDED, DAMAGED, NONE = "not run", "not recorded", "damaged", "–"
MIXED, MIXED_PARAMETERS = "mixed data", "mixed parameters"
BETTER, WORSE, SAME = "▲", "▼", "="
PERHAPS_BETTER, PERHAPS_WORSE = "△", "▽"
LEGEND = (
    f"{BETTER} better than the paper, {WORSE} worse, by Welch's test over seeds (p < {CLEAR} however the paper's "
    f"figures were rounded; a method without luck as it is); {PERHAPS_BETTER} {PERHAPS_WORSE} so are the means, but "
    f"chance may explain it, or there is one seed; {SAME} the same as printed."
)
SPREAD = "± is one sd over seeds."
DIGITS = 1  # of figures that the paper does not have
LATEX_MARKS = {  # what every font of LaTeX has
    BETTER: r"$\uparrow$",
    WORSE: r"$\downarrow$",
    PERHAPS_BETTER: r"$\nearrow$",
    PERHAPS_WORSE: r"$\searrow$",
    SAME: "$=$",
}


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of ours beside the paper's."""

    ours: str
    mark: str  # of the comparison; empty where there is none
    paper: str
    seeds: int
    notes: tuple[str, ...] = ()  # what a reader must know of our fits
    samples: frozenset[str] = frozenset()  # the fingerprints of those that it is of, as far as records tell
    versions: frozenset[tuple[str, ...]] = frozenset()  # of the code, each with the device


@dataclass(frozen=True)
class Line:
    """A row with its figures."""

    data: str
    title: str
    figures: tuple[ComparedFigure, ...]

    @property
    def seeds(self) -> str:
        """How many seeds its figures have, where they have any."""
        return " or ".join(map(str, sorted({figure.seeds for figure in self.figures if figure.seeds}))) or NONE


def lines(table: PaperTable, store: Store, scale: float) -> list[Line]:
    """The rows of a table, from all seeds of one scale in the store; "damaged" stands where a record cannot be read."""
    return [
        Line(
            DATA_TITLES[row.data],
            row.title,
            tuple(compared_figure(table, row, entry, store, scale) for entry in row.entries),
        )
        for row in table.rows
    ]


def compared_figure(table: PaperTable, row: PaperRow, entry: PaperEntry, store: Store, scale: float) -> ComparedFigure:
    """A figure: mean and sd over the seeds in the store; at the paper's scale with its mark beside the paper's."""
    paper = NONE if entry.paper is None else _written(entry.paper.mean, entry.paper.sd, entry.paper.digits)
    method = METHODS[row.method]
    try:
        records = store.seeds(method.cell(row.data, entry.changes, scale, 0))
    except DamagedRecordError as error:
        return ComparedFigure(DAMAGED, "", paper, 0, (str(error),))
    if table.one_seed:
        records = dict(list(records.items())[:1])
    if not records:
        return ComparedFigure(NOT_RUN, "", paper, 0)
    if not method.gives(entry.score.where[-1]):
        return ComparedFigure(NONE, "", paper, 0)
    notes = tuple(_notes(table, row, entry, scale, records))
    if mixed := mixture(row, records):
        word, why = mixed
        return ComparedFigure(word, "", paper, 0, (why, *notes))
    having = [record for record in records.values() if entry.score.is_in(record)]
    values = [value for value in map(entry.score.read, having) if value is not None]
    if not values:  # not recorded, or of a leaf that is not there or holds no sample
        return ComparedFigure(NONE if having else NOT_RECORDED, "", paper, 0, notes)
    ours = Mean.of(values)
    if ours.sd is None and not method.seeded:
        ours = ours._replace(sd=0.0)
    digits = DIGITS if entry.paper is None else entry.paper.digits
    mark = compare(ours, entry.paper, entry.score.better, method.seeded) if scale == 1 else ""
    return ComparedFigure(
        _written(ours.mean, ours.sd, digits), mark, paper, len(values), notes, _samples(having), _versions(having)
    )


def mixture(row: PaperRow, records: Mapping[int, Mapping[str, Any]]) -> tuple[str, str] | None:
    """In a word and in a sentence, why the records of several seeds are not averaged; None if they may be."""
    if any(of_other_data(one, other) for one, other in combinations(records.values(), 2)):
        return MIXED, _mixture_of_data(row, records)
    if names := _mixed_parameters(records):
        return MIXED_PARAMETERS, _mixture_of_parameters(row, records, names)
    return None


def remarks(table: PaperTable, table_lines: Sequence[Line]) -> list[str]:
    """What a reader must know: the marks, what is particular to the table, to the data and to the fits."""
    figures = [one for line in table_lines for one in line.figures]
    legend = [LEGEND] if any(one.mark for one in figures) else []
    spread = [SPREAD] if any("±" in one.ours + one.paper for one in figures) else []
    notes = dict.fromkeys(f"{line.data}: {note}." for line in table_lines for one in line.figures for note in one.notes)
    return [
        *legend,
        *spread,
        *filter(None, [table.note]),
        *notes,
        *_different_samples(table_lines),
        *_mixed_versions(table_lines),
    ]


def _samples(records: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The fingerprints of the samples of records, of those that tell them."""
    prints = ([record[name] for name in FINGERPRINTS if record.get(name)] for record in records)
    return frozenset(" and ".join(each) for each in prints if each)


def _different_samples(table_lines: Sequence[Line]) -> Iterator[str]:
    """A sentence for each data set whose rows are not all of the same samples."""
    for data in dict.fromkeys(line.data for line in table_lines):
        methods: dict[str, dict[str, None]] = {}
        for line in (line for line in table_lines if line.data == data):
            for samples in sorted(frozenset().union(*(one.samples for one in line.figures))):
                methods.setdefault(samples, {})[line.title] = None
        if len(methods) > 1:
            each = "; ".join(f"{', '.join(titles)}: {samples}" for samples, titles in methods.items())
            yield f"{data}: the rows are not all of the same samples: {each}."


def _versions(records: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, ...]]:
    """By which versions of the code, and on which devices, records were made; earlier ones do not tell the former."""
    return frozenset(tuple(record.get(name) or "" for name in MADE_BY) for record in records)


def _mixed_versions(table_lines: Sequence[Line]) -> Iterator[str]:
    """A sentence with the rows of which a figure is a mean over several versions of the code, or several devices."""
    mixed: dict[str, list[str]] = {}
    for line in table_lines:
        if any(len(one.versions) > 1 for one in line.figures):
            mixed.setdefault(line.data, []).append(line.title)
    if mixed:
        rows = "; ".join(f"{data}: {', '.join(titles)}" for data, titles in mixed.items())
        yield f"Means over several versions of the code or devices (source and device of their records): {rows}."


def _notes(
    table: PaperTable, row: PaperRow, entry: PaperEntry, scale: float, records: Mapping[int, Mapping[str, Any]]
) -> Iterator[str]:
    """In what the data were not the published ones, and what else is to be said of the records behind a figure.

    No folder is named: the notes are written into tables, which are read on other machines too.
    """
    yield from dict.fromkeys(record["note"] for record in records.values() if record.get("note"))
    if lacking := [seed for seed, record in records.items() if not entry.score.is_in(record)]:
        rows = f"--data {row.data} --method {row.method} --seeds {max(lacking) + 1}"
        again = f"treevae paper run {table.name} {rows}{options(STORE, scale)} --again"
        yield f"{row.title}, {_seeds(lacking)}: recorded without a score of this table; to fit anew: {again}"
    untold = [seed for seed, record in records.items() if not any(record.get(name) for name in FINGERPRINTS)]
    if untold:
        yield f"{row.title}, {_seeds(untold)}: recorded before records told which samples they are of"
    settings = METHODS[row.method].cell(row.data, entry.changes, scale, 0).settings
    leaves = {seed: n for seed, record in records.items() if (n := leaves_of(record, settings)) is not None}
    asked = settings.get("n_leaves")
    if others := ", ".join(f"{seed} ({n})" for seed, n in leaves.items() if n != asked):
        yield f"{row.title}: trees of {asked} leaves were asked for, these seeds ended with others: {others}"


def _mixture_of_data(row: PaperRow, records: Mapping[int, Mapping[str, Any]]) -> str:
    """Which seeds are of which data."""
    seeds: dict[str, list[int]] = {}
    for seed, record in records.items():
        said = filter(None, (record.get(name) for name in SAID))
        seeds.setdefault(", ".join(said) or "data that it does not tell", []).append(seed)
    each = "; ".join(f"{_seeds(of_data)}: {data}" for data, of_data in seeds.items())
    return f"{row.title} has records of different data, which are not averaged: {each}; move all but one kind away"


def _mixed_parameters(records: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """The parameters in which any two records differ."""
    pairs = (other_parameters(one, other) for one, other in combinations(records.values(), 2))
    return list(dict.fromkeys(name for names in pairs for name in names))


def _mixture_of_parameters(row: PaperRow, records: Mapping[int, Mapping[str, Any]], names: Sequence[str]) -> str:
    """Which seeds were fitted with which parameters, of those in which records differ."""
    each = []
    for name in names:
        seeds: dict[str, list[int]] = {}
        for seed, record in records.items():
            if name in (told := record.get(PARAMETERS) or {}):
                seeds.setdefault(json.dumps(told[name]), []).append(seed)
        each.append(f"{name}: " + ", ".join(f"{value} ({_seeds(of_value)})" for value, of_value in seeds.items()))
    said = "; ".join(each)
    return (
        f"{row.title} has records of different parameters, which are not averaged: {said}; move all but one kind away"
    )


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    in_a_row = len(seeds) > 2 and all(after == one + 1 for one, after in pairwise(seeds))
    return f"seeds {seeds[0]} to {seeds[-1]}" if in_a_row else f"seeds {', '.join(map(str, seeds))}"


def compare(ours: Mean, paper: PaperFigure | None, better: int, seeded: bool = True) -> str:
    """The mark of a mean beside the paper's: better, worse, perhaps so, or the same once rounded to the paper's digits.

    Of a method that is not seeded one figure tells all, if it has no spread in the paper either.
    """
    if paper is None or better == 0:
        return ""
    if f"{ours.mean:.{paper.digits}f}" == f"{paper.mean:.{paper.digits}f}":
        return SAME
    without_luck = not seeded and ours.sd == paper.sd == 0
    sure = without_luck or chance_of(ours, paper) < CLEAR
    ahead = (ours.mean > paper.mean) == (better > 0)
    return (BETTER if ahead else WORSE) if sure else (PERHAPS_BETTER if ahead else PERHAPS_WORSE)


def chance_of(ours: Mean, paper: PaperFigure) -> float:
    """How often chance alone would part our mean and the paper's as far, however the paper's figures were rounded."""
    return max(by_chance(ours, one) for one in _printed_alike(paper, ours.mean))


def _printed_alike(paper: PaperFigure, to: float) -> list[Mean]:
    """Of all means that are printed as the paper's the one nearest to a mean, with the ends of its spread.

    A wider spread makes a difference less sure, but a narrow one counts for less beside few seeds of a wider one.
    """
    half = 0.5 * 10**-paper.digits
    mean = min(max(to, paper.mean - half), paper.mean + half)
    spreads = [None] if paper.sd is None else [max(paper.sd - half, 0.0), paper.sd + half]
    return [Mean(mean, sd, SEEDS) for sd in spreads]


def caption(table: PaperTable, scale: float) -> str:
    """The title, and the scale if it is not the paper's."""
    if scale == 1:
        return table.title
    length = "the paper's length, so the figures do not compare" if table.has_paper else "its whole length"
    return f"{table.title}. Every schedule is {scale:g} of {length}"


def _beside(table: PaperTable, ours: Iterable[str], papers: Iterable[str]) -> list[str]:
    """Our cells of a row, each followed by the paper's; by none where the paper has no figure of the table."""
    pairs = zip(ours, papers, strict=True)
    return [cell for pair in pairs for cell in (pair if table.has_paper else pair[:1])]


def as_text(table: PaperTable, table_lines: Sequence[Line], scale: float) -> str:
    """The table for a terminal: our figure, its mark, and the paper's in brackets."""

    def with_paper(ours: str, paper: str) -> str:
        return f"{ours} ({paper})" if table.has_paper else ours

    head = ["data", table.kind, "seeds", *(with_paper(column, "paper") for column in table.columns)]
    body = [
        [
            *(line.data, line.title, line.seeds),
            *(with_paper(f"{one.ours} {one.mark or ' '}", one.paper) for one in line.figures),
        ]
        for line in table_lines
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]

    def row(cells: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    return "\n".join([caption(table, scale), "", row(head), *map(row, body), "", *remarks(table, table_lines)])


def as_markdown(table: PaperTable, table_lines: Sequence[Line], scale: float) -> str:
    """The table in Markdown, the paper's figures in columns of their own."""
    head = ["data", table.kind, "seeds", *_beside(table, table.columns, ["paper"] * len(table.columns))]
    body = [
        [
            *(line.data, line.title, line.seeds),
            *_beside(table, map(_marked, line.figures), (one.paper for one in line.figures)),
        ]
        for line in table_lines
    ]
    rows = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body)]
    return f"**{caption(table, scale)}**\n\n" + "\n".join(rows) + f"\n\n{' '.join(remarks(table, table_lines))}\n"


def as_latex(table: PaperTable, table_lines: Sequence[Line], scale: float) -> str:
    """The table in LaTeX, with the booktabs package."""
    columns = _beside(table, table.columns, ["paper"] * len(table.columns))
    head = ["Data", table.kind.capitalize(), "Seeds", *columns]
    rows = [" & ".join(map(_tex, head)) + r" \\", r"\midrule"]
    for before, line in pairwise([None, *table_lines]):
        assert line is not None
        if before is not None and before.data != line.data:
            rows.append(r"\midrule")
        named = line.data if before is None or before.data != line.data else ""
        ours = (_tex_figure(one.ours, one.mark) for one in line.figures)
        figures = _beside(table, ours, (_tex_figure(one.paper) for one in line.figures))
        rows.append(" & ".join([_tex(named), _tex(line.title), _tex(line.seeds), *figures]) + r" \\")
    about = f"{caption(table, scale)}. " + " ".join(remarks(table, table_lines))
    return "\n".join([
        r"\begin{table}",
        rf"\caption{{{_tex(about)}}}",
        r"\centering",
        rf"\begin{{tabular}}{{lll{'r' * len(columns)}}}",
        r"\toprule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ])  # fmt: skip


def _written(mean: float, sd: float | None, digits: int) -> str:
    text = f"{mean:.{digits}f}".replace("-", "−")
    return text if sd is None else f"{text} ± {sd:.{digits}f}"


def _marked(one: ComparedFigure) -> str:
    return f"{one.ours} {one.mark}".strip()


def _tex_figure(text: str, mark: str = "") -> str:
    """A figure in LaTeX; words stay words."""
    if not text[-1].isdigit():
        return _tex(text)
    return "$" + text.replace("−", "-").replace("±", r"\pm") + "$" + (f" {LATEX_MARKS[mark]}" if mark else "")


def _tex(text: str) -> str:
    """Plain text with what LaTeX would read as its own escaped."""
    special = {**{sign: f"\\{sign}" for sign in "#%&_${}"}, "\\": r"\textbackslash{}", "^": r"\textasciicircum{}",
               "~": r"\textasciitilde{}", "±": r"$\pm$", "–": "--", "…": r"\ldots{}", "<": "$<$",
               **{mark: LATEX_MARKS[mark] for mark in (BETTER, WORSE, PERHAPS_BETTER, PERHAPS_WORSE)}}  # fmt: skip
    return text.translate({ord(sign): written for sign, written in special.items()})
