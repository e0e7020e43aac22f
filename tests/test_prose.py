"""The words of the pages of evidence: sentences are short, and none is heavy with numbers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("results.md", "results-history.md", "spread.md", "start-study.md", "decisions.md")
MOST_WORDS, MOST_NUMBERS = 25, 2
NO_PROSE = ("|", "#", "<!--", "![", "<")  # how lines of tables, headings, comments and pictures begin
NOTE = re.compile(r"\[\^[^\]]+\]:\s*")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?:(?<=[.!?])|(?<=[.!?][\"”)]))\s+")
A_NUMBER = r"[−+-]?\d+(?:[.,]\d+)*"
# a figure with its spread, or with its standard error, is one number; digits in a name are none
NUMBER = re.compile(rf"(?<![\w.-]){A_NUMBER}(?: ± {A_NUMBER}| \({A_NUMBER}\))?(?!\w)")


def blocks(markdown: str) -> Iterator[tuple[bool, str]]:
    """Paragraphs, items of lists and footnotes, each with whether it is a footnote; no code, no tables, no headings."""
    lines: list[str] = []
    is_note = in_code = after_blank = False
    for line in [*markdown.splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        if in_code or fence:
            in_code = in_code != fence
            line = ""
        begins = NOTE.match(line) or ITEM.match(line)
        if not line.strip() or line.startswith(NO_PROSE) or begins:
            if lines:
                yield is_note, " ".join(lines)
            lines = []
        if begins:
            is_note, lines = bool(NOTE.match(line)), [line[begins.end() :]]
        elif line.strip() and not line.startswith(NO_PROSE) and not (after_blank and line.startswith("    ")):
            is_note = is_note if lines else False
            lines.append(line.strip())
        after_blank = not line.strip() or (after_blank and line.startswith("    "))


def plain(text: str) -> str:
    """Without marks: links are their words, and code in a line is one word."""
    text = re.sub(r"\[\^[^\]]+\]|!\[[^\]]*\]\([^)]*\)|</?\w+[^>]*>", "", text)
    text = re.sub(r"`[^`]+`", "CODE", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"[*†]|\b_|_\b", "", text)


def sentences(markdown: str, footnotes: bool = True) -> list[str]:
    """The sentences of a page's prose, in their order."""
    kept = (plain(text) for is_note, text in blocks(markdown) if footnotes or not is_note)
    return [sentence for text in kept for sentence in END.split(text) if sentence.strip()]


def words(sentence: str) -> int:
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def numbers(sentence: str) -> list[str]:
    return NUMBER.findall(sentence)


@pytest.fixture(params=PAGES)
def page(request) -> str:
    (path,) = DOCS.rglob(request.param)
    return path.read_text(encoding="utf-8")


def test_no_sentence_is_long(page):
    assert [sentence for sentence in sentences(page) if words(sentence) > MOST_WORDS] == []


def test_no_sentence_is_heavy_with_numbers(page):
    """Footnotes may be: they are for those who want the figures."""
    assert [one for one in sentences(page, footnotes=False) if len(numbers(one)) > MOST_NUMBERS] == []


def test_every_footnote_is_told_and_asked_for_once(page):
    asked = re.findall(r"(\[\^[^\]]+\])(?!:)", page)
    assert sorted(asked) == sorted(re.findall(r"^(\[\^[^\]]+\]):", page, re.MULTILINE))


def test_what_is_a_sentence():
    text = """# Title, no sentence. At all

One [link](a.b.c), **bold**. Two! *lower* begins three.[^a] Of `code. here`, e.g. four (so.) Five?

    code. of a block

- An item
  over lines. Two of it.
- Another: "quoted." End.

| a table. | no |
<!-- table: x -->

```
fenced. code
```
1. First.

[^a]: A note,
    over lines. Its end.
"""
    prose = [
        *("One link, bold.", "Two!", "lower begins three.", "Of CODE, e.g. four (so.)", "Five?"),
        *("An item over lines.", "Two of it.", 'Another: "quoted."', "End.", "First."),
    ]
    assert sentences(text, footnotes=False) == prose
    assert sentences(text) == [*prose, "A note, over lines.", "Its end."]


def test_what_is_a_number():
    said = "On CIFAR-10 and 20Newsgroups 97.9 ± 0.7 of 1,000, by −5.9 (2.2), on an H200, float32."
    assert numbers(said) == ["97.9 ± 0.7", "1,000", "−5.9 (2.2)"]
    assert words("± 97.9 – of 1,000") == 3
