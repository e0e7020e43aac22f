"""What the program is made of and whom it talks to: exact versions, licences kept, no word to the network unasked."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "treevae"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# -- versions -----------------------------------------------------------------------------------------------------


def pinned() -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines if line), "constraints are exact versions"
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines if line}


def needed() -> set[str]:
    """All packages that an installation with all extras has here, also those that others of them need."""
    extras = PROJECT["optional-dependencies"]
    waiting = [Requirement(text) for text in (*PROJECT["dependencies"], *(one for of in extras.values() for one in of))]
    found: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if name == "treevae" or (name, extra) in found:
                continue
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            found.add((name, extra))
            try:
                below = distribution(name).requires or []
            except PackageNotFoundError:  # an extra that is not installed
                continue
            for requirement in map(Requirement, below):
                if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                    requirement.marker = None
                    waiting.append(requirement)
    return {name for name, _ in found}


UNPINNED = {"igraph", "leidenalg"}  # of the extra "graph", which make does not install: not every index has them


def test_everything_that_is_installed_has_an_exact_version():
    assert {"torch", "numpy", "pillow", "markupsafe"} <= needed()  # also what is needed by what is needed
    assert not needed() - pinned().keys() - UNPINNED


@pytest.mark.parametrize("name", sorted(pinned()))
def test_installed_versions_are_the_pinned_ones(name):
    try:
        found = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert found.partition("+")[0] == pinned()[name]  # torch adds what it was built for, as +cpu


# -- licences -----------------------------------------------------------------------------------------------------


def vendored() -> list[Path]:
    """Files that others made: those in folders called vendor, packed scripts, and data."""
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".LICENSE", ".pyc")]
    return [path for path in files if path.parent.name == "vendor" or path.name.endswith((".min.js", ".npz", ".woff2"))]


def test_vendored_files_are_found():
    assert SOURCE / "data" / "fashion_sample.npz" in vendored()


@pytest.mark.parametrize("path", vendored(), ids=lambda path: path.name)
def test_every_vendored_file_has_its_licence_beside_it(path):
    licence = path.with_name(path.name.split(".")[0] + ".LICENSE")
    text = licence.read_text()
    assert "Copyright" in text
    assert len(text) > 500
    assert licence.relative_to(ROOT).as_posix() in PROJECT["license-files"]


# -- the network --------------------------------------------------------------------------------------------------

QUIET = """
import io, json, os, pkgutil, re, signal, sys, tempfile, threading, time, urllib.request, warnings
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

asked = []

def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"):
        where = str(arguments[1][0] if event == "socket.connect" else arguments[0])
        if re.match(r"(http://)?127\\.0\\.0\\.1\\b", where):  # this machine, and no name that is looked up
            return
        asked.append(event)
        raise PermissionError(f"the network was asked: {event}")

sys.addaudithook(hear)
warnings.simplefilter("ignore")
import treevae
for module in pkgutil.walk_packages(treevae.__path__, "treevae."):
    __import__(module.name)
import numpy as np
from typer.testing import CliRunner
from treevae.cli import demo
from treevae.cli.app import app
from treevae.data import fashion_sample, load
from treevae.errors import DataFileError
from treevae.page import snapshot

folder = Path(tempfile.mkdtemp())
np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(60, 4)))
model = treevae.TreeVAE(2, max_depth=1, epochs=1, random_state=0, device="cpu").fit(np.load(folder / "x.npy"))
model.save(folder / "m.safetensors")
treevae.load(folder / "m.safetensors").predict(np.load(folder / "x.npy"))
load("digits")
run, shown = str(folder / "run"), folder / "demo"
commands = (
    ["fit", str(folder / "x.npy"), "-o", run, "--n-leaves", "2", "--epochs", "1", "--device", "cpu"],
    ["predict", run, str(folder / "x.npy")],
    ["sample", run, "-o", str(folder / "s.npy")],
    ["info", run],
    ["report", run, "--map", "pca"],
    ["data", "--root", str(folder)],
    ["paper", "list"],
    ["--help"],
)
for command in commands:
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, (command, found.output)

whole = fashion_sample.load()
few = replace(whole, x_train=whole.x_train[:300], x_test=whole.x_test[:200], y_test=whole.y_test[:200])
fashion_sample.load = lambda: few
snapshot.map_of = lambda _: "pca"  # UMAP takes long to compile
shown.mkdir()
demo.run(shown, {"n_leaves": 2, "epochs": 1, "device": "cpu"})

said, answers = io.StringIO(), []

def ask_and_stop():
    for _ in range(600):  # until the server says where it is
        if found := re.search(r"http://127\\S+/", said.getvalue()):
            break
        time.sleep(0.05)
    headers, question = {"Content-Type": "application/json"}, json.dumps({"node": 0, "n": 2}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(found[0] + "api/generate", question, headers)) as answer:
            answers.append(len(json.loads(answer.read())["samples"]))
    finally:
        os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C would

threading.Thread(target=ask_and_stop).start()
with redirect_stdout(said):
    app(["explore", str(shown), "--port", "0", "--no-open", "--map", "pca"], standalone_mode=False)
unasked = list(asked)
try:
    load("mnist", folder, download=True)
except DataFileError as error:
    last = str(error)
heard = {"unasked": unasked, "with_download": asked[len(unasked):], "said": last, "answers": answers}
print(json.dumps(heard | {"demo": sorted(path.name for path in shown.iterdir()), "explored": said.getvalue()}))
"""


def test_the_network_is_asked_only_for_a_download():
    found = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert found.returncode == 0, found.stderr[-3000:]
    heard = json.loads(found.stdout.splitlines()[-1])
    assert heard["unasked"] == []
    assert heard["with_download"]  # so the ear works
    assert "cannot be fetched" in heard["said"]
    assert {"model.safetensors", "report.html", "metrics.json"} <= set(heard["demo"])
    assert heard["answers"] == [2]  # samples that the explorer generated
    assert heard["explored"].endswith("Ended.\n")
