"""The site: it builds, its links lead somewhere, every public name and every command has its place, pages are short."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer.main
from filelock import FileLock
from test_prose import MOST_NUMBERS, MOST_WORDS, numbers, sentences, words

import treevae
from treevae.cli.app import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = ("data", "plot", "metrics", "baselines", "guides", "errors")  # the public ones below treevae


@pytest.fixture(scope="session")
def make_site():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("make_site")


@pytest.fixture(scope="session")
def site(make_site, tmp_path_factory) -> Path:
    """The folder of the site, built strictly, so that a broken link ends it; once for all processes that test."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "html").exists():
            make_site.build(folder)
    return folder


# -- links --------------------------------------------------------------------------------------------------------


def in_the_menu(entry: dict | str | list) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    below = entry.values() if isinstance(entry, dict) else entry
    return [page for one in below for page in in_the_menu(one)]


def test_every_page_is_in_the_menu_and_there(site):
    menu = in_the_menu(tomllib.loads((DOCS / "zensical.toml").read_text())["project"]["nav"])
    assert all((site / "html" / page).with_suffix(".html").exists() for page in menu)
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} <= set(menu)


def test_records_that_pages_name_are_in_the_site(site):
    there = site / "html" / "repository" / "benchmarks" / "results" / "spread-mnist.jsonl"
    assert there.read_bytes() == (ROOT / "benchmarks" / "results" / "spread-mnist.jsonl").read_bytes()
    assert "repository/benchmarks/results/spread-mnist.jsonl" in (site / "html/evidence/spread.html").read_text()


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[x](there.md#a-title)", None),
        ("[x](gone.md)", "index.md links to gone.md, which is not in the repository"),
        ("![x](gone.png)", "index.md links to gone.png, which is not in the repository"),
        ("[x](../../outside.md)", "index.md links to ../../outside.md, which is not in the repository"),
        ("[x](there.md#no-title)", "non-zero exit status"),
        ("[x](#no-title)", "non-zero exit status"),
    ],
)
def test_a_broken_link_ends_the_build(make_site, tmp_path, link, said):
    docs, outside = tmp_path / "clone" / "docs", tmp_path / "outside.md"
    docs.mkdir(parents=True)
    outside.write_text("# Outside\n")
    for name in ("zensical.toml", "roles.py"):
        text = (DOCS / name).read_text()
        (docs / name).write_text(re.sub(r"nav = \[.*?^\]\n", "", text, flags=re.DOTALL | re.MULTILINE))
    (docs / "index.md").write_text(f"# Home\n\n{link}\n\n```\n[no](link.md)\n```\n")
    (docs / "there.md").write_text("# There\n\n## A title\n")
    if said is None:
        make_site.build(tmp_path / "site", tmp_path / "clone")
    else:
        with pytest.raises((make_site.BrokenLinkError, subprocess.CalledProcessError), match=said):
            make_site.build(tmp_path / "site", tmp_path / "clone")


def test_pages_ask_nothing_of_the_network(site):
    for page in (site / "html").rglob("*.html"):
        assert (
            re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//[^>]*", page.read_text())
            == []
        )


# -- every public name --------------------------------------------------------------------------------------------


def public_names() -> set[str]:
    modules = {name: importlib.import_module(f"treevae.{name}") for name in MODULES}
    names = {f"treevae.{name}" for name in treevae.__all__ if name not in modules}
    return names | {f"treevae.{name}.{inner}" for name, module in modules.items() for inner in module.__all__}


def test_every_public_name_has_its_place_in_the_reference_and_no_other_has(site):
    pages = {page: page.read_text() for page in (DOCS / "use" / "api").glob("*.md")}
    written = [name for text in pages.values() for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    assert sorted(written) == sorted(public_names())
    for page, text in pages.items():
        html = (site / "html" / page.relative_to(DOCS)).with_suffix(".html").read_text()
        assert all(f'id="{name}"' in html for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE))
        assert not re.search(r":(class|func|meth|mod):", html)


def test_the_list_of_public_names_has_all_of_them():
    page = (DOCS / "use" / "api" / "index.md").read_text()
    listed = re.findall(r"\[`(treevae\.[\w.]+)`\]\(\w[\w-]*\.md#\1\)", page)
    assert sorted(listed) == sorted(public_names())


# -- every command ------------------------------------------------------------------------------------------------


def commands() -> dict:
    """All commands by what is typed, those of groups too."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {below}": one for below, one in inner.items()}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_documented(make_site, name):
    (section,) = re.findall(rf"^## treevae {name}\n(.*?)(?=^## |\Z)", make_site.commands(), re.DOTALL | re.MULTILINE)
    command = commands()[name]
    about, _, example = command.help.partition("Example:")
    assert about.split()[0] in section
    assert example.strip().splitlines()[0] in section
    for option in command.params:
        if option.param_type_name == "option":
            assert option.help, option.name
            assert any(option.opts[-1] in row.split(" | ")[0] for row in section.splitlines()), option.name


@pytest.mark.parametrize("name", commands())
def test_every_command_is_in_the_guide(name):
    assert f"`treevae {name}" in (DOCS / "use" / "commands.md").read_text()


def test_the_reference_of_the_commands_is_written_when_the_site_is_built(site):
    html = (site / "html" / "use" / "command-reference.html").read_text()
    assert all(f'id="treevae-{name.replace(" ", "-")}"' in html for name in commands())


# -- short pages --------------------------------------------------------------------------------------------------


def test_the_readme_is_short():
    """As ``wc -w`` counts it without its fenced code, so tables and addresses count too."""
    readme = (ROOT / "README.md").read_text()
    assert len(re.sub(r"^```.*?^```$", "", readme, flags=re.MULTILINE | re.DOTALL).split()) <= 500


PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", DOCS / "index.md",
         *sorted((DOCS / "use").rglob("*.md")), *sorted((DOCS / "understand").glob("*.md")),
         *(DOCS / "evidence" / f"{name}.md" for name in ("baselines", "reliability", "records"))]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page):
    text = page.read_text()
    assert [one for one in sentences(text) if words(one) > MOST_WORDS] == []
    assert [one for one in sentences(text, footnotes=False) if len(numbers(one)) > MOST_NUMBERS] == []


# -- what it is called --------------------------------------------------------------------------------------------


def test_the_citation_and_the_changes_are_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {treevae.__version__}\n" in citation
    assert "title: Tree Variational Autoencoders" in citation
    assert f"\n## {treevae.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_make_docs_says_where_a_link_is_broken(tmp_path):
    """As the command does it: one line, and an exit code."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[x](gone.md)\n")
    script = tmp_path / "docs" / "make_site.py"
    script.write_text((DOCS / "make_site.py").read_text())
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stderr == "The site was not built: docs/index.md links to gone.md, which is not in the repository\n"
