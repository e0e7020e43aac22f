"""A short, seeded part of the fuzz (tests/fuzz), and that the fuzz sees what it is there to see."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited and measured there")
FUZZ = Path(__file__).parent / "fuzz"
RECORD = Path(__file__).parents[1] / "docs" / "runs" / "fuzz.json"


def test_a_few_hundred_bad_files_are_refused_or_read(tmp_path):
    command = [sys.executable, FUZZ, "--inputs", "300", "--seed", "1", "--jobs", "2"]
    found = subprocess.run(
        [*command, "--keep", tmp_path / "kept", "--out", tmp_path / "found.json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-2000:]
    total = json.loads((tmp_path / "found.json").read_text())["total"]
    assert total["tried"] == 300
    assert total["refused"] > 150  # most of them are bad indeed
    assert total["crashed"] == total["hung"] == total["over_memory"] == 0


ODD = """
import json, os, sys, time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
sys.path.insert(0, sys.argv[1])
import watching
from loader import Loader
from treevae.data.files import read
from treevae.errors import DataFileError

def fail():
    raise DataFileError("right, but not raised by the package")

def hide():
    try:
        bytearray(3 << 30)
    except MemoryError as error:
        read("nothing")

def spin():
    while True:
        pass

DEEDS = {"read": list, "refused": lambda: read("nothing"), "crashed": os.abort, "hung": spin, "over_memory": hide}
MORE = {
    "fail": fail,
    "name": lambda: read(3),
    "key": lambda: {}["a"],
    "flood": lambda: bytes(900 << 20) + bytes(900 << 20),
    "exit": lambda: os._exit(0),
    "wait": lambda: time.sleep(60),
}
NAMES = [*DEEDS, *MORE]
MEANS = dict.fromkeys(("fail", "name", "key", "exit"), "crashed") | {"flood": "over_memory", "wait": "hung"}

def spoil(files, chance):
    return {"x": chance.choice(NAMES).encode()}

def load(folder):
    (DEEDS | MORE)[(folder / "x").read_text()]()

watching.SECONDS = 0.5
watching.LOADERS["odd"] = Loader("odd", 1, None, spoil, load, (DataFileError,))
with TemporaryDirectory() as room:
    (Path(room) / "valid" / "odd").mkdir(parents=True)
    (Path(room) / "valid" / "odd" / "x").write_text("read")
    found = watching.run({"odd": range(30)}, Path(room, "valid"), 0, 2, Path(room, "rooms"), Path(room, "kept"))
    kept = len(list(Path(room, "kept").iterdir()))
told = [Random(f"0 odd {i}").choice(NAMES) for i in range(30)]
expected = Counter(MEANS.get(name, name) for name in told)
print(json.dumps({"found": found["odd"].counts, "expected": expected, "kinds": len(set(told)), "kept": kept}))
"""


def test_the_fuzz_sees_crashes_hangs_and_floods_of_memory():
    found = subprocess.run([sys.executable, "-c", ODD, FUZZ], capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr[-3000:]
    told = json.loads(found.stdout.splitlines()[-1])
    assert told["kinds"] == 11
    assert told["found"] == told["expected"]
    assert told["kept"] == sum(told["found"][name] for name in ("crashed", "hung", "over_memory"))


ALL = """
import hashlib, json, sys
from pathlib import Path
from tempfile import TemporaryDirectory
sys.path.insert(0, sys.argv[1])
from loaders import LOADERS
from watching import make

digests = {}
with TemporaryDirectory() as room:
    for name in list(LOADERS)[:: int(sys.argv[2])]:
        valid = Path(room, name)
        valid.mkdir()
        LOADERS[name].valid(valid)
        inputs = [sorted(make(LOADERS[name], valid, 3, number).items()) for number in range(40)]
        digests[name] = hashlib.sha256(repr(inputs).encode()).hexdigest()
print(json.dumps(digests, sort_keys=True))
"""


def test_an_input_is_a_function_of_loader_number_and_seed():
    """Two processes, one after the other, with the loaders in another order, make the same files."""
    commands = [[sys.executable, "-c", ALL, FUZZ, order] for order in ("1", "-1")]
    first, second = (subprocess.run(one, capture_output=True, text=True, timeout=200, check=True) for one in commands)
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert len(json.loads(first.stdout)) >= 16


def test_one_input_again_is_read_under_the_same_limits(tmp_path):
    command = [sys.executable, FUZZ, "--loader", "npy", "--only", "3", "--keep", tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert found.returncode == 0
    outcome, *said = found.stdout.splitlines()
    assert re.fullmatch(r"(refused|read) after \d\.\d\d s, with \d+ MB", outcome)
    assert outcome.startswith("read") or said[0].startswith("DataFileError: ")


ASK = """
import contextlib, io, json, runpy, sys
folder, cases = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, folder)
arguments = runpy.run_path(f"{folder}/__main__.py")["arguments"]
said = []
for case in cases:
    sys.argv[1:] = case
    with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.suppress(SystemExit):
        arguments()
    said.append(" ".join(text.getvalue().split()))
print(json.dumps(said))
"""
REFUSED = {
    "--inputs -5": "argument --inputs: '-5' must be a whole number, 1 or more",
    "--jobs 0": "argument --jobs: '0' must be a whole number, 1 or more",
    "--seed x": "argument --seed: 'x' must be a whole number, 0 or more",
    "--loader exe": "argument --loader: invalid choice: 'exe' (choose from",
    "--only 3": "--only 3 is a number of one loader's; name it with --loader, one of model, state",
    "--only 3 --loader npy --out a.json": "--out a.json is for a run of many inputs; leave it out with --only",
    "--out nowhere/found.json": "make it first",
    "--out .": "--out . is a folder; name a file in it",
}


SHARE = """
import json, runpy, sys
sys.path.insert(0, sys.argv[1])
shares = runpy.run_path(f"{sys.argv[1]}/__main__.py")["shares"]
from loaders import LOADERS
print(json.dumps([{name: len(numbers) for name, numbers in shares(list(LOADERS), n).items()} for n in (5, 1000)]))
"""


def test_few_inputs_go_to_the_loaders_with_the_largest_shares():
    found = subprocess.run([sys.executable, "-c", SHARE, FUZZ], capture_output=True, text=True, timeout=200, check=True)
    few, many = json.loads(found.stdout)
    assert set(few.values()) == {1}
    assert len(few) == 5
    assert {"idx", "npy"} <= few.keys()
    assert re.search(r"too few inputs for .*omniglot", found.stderr)
    assert sum(many.values()) == 1000
    assert (many["idx"], many["omniglot"]) == (100, 10)


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from watching import limit_memory
resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
limit_memory(1 << 50)
assert resource.getrlimit(resource.RLIMIT_AS) == (1 << 40, 1 << 40)
limit_memory(1 << 30)
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
assert soft < hard == 1 << 40
"""


def test_a_limit_of_the_machines_own_stays():
    subprocess.run([sys.executable, "-c", LIMITED, FUZZ], timeout=200, check=True)


def test_arguments_that_mean_nothing_are_refused():
    cases = json.dumps([case.split() for case in (*REFUSED, "--inputs 5 --loader npy")])
    found = subprocess.run([sys.executable, "-c", ASK, FUZZ, cases], capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr[-2000:]
    *said, nothing = json.loads(found.stdout)
    for message, expected in zip(said, REFUSED.values(), strict=True):
        assert expected in message
    assert nothing == ""


def test_the_recorded_run_is_of_100_000_files_without_a_finding():
    recorded = json.loads(RECORD.read_text())
    assert {"command", "date", "seed", "versions", "source", "limits"} <= recorded.keys()
    assert recorded["limits"] == {"seconds": 5.0, "seconds_by_the_clock": 20.0, "memory_bytes": 1 << 30}
    assert recorded["total"]["tried"] == 100_000 == sum(row["tried"] for row in recorded["loaders"].values())
    assert all(row["read"] + row["refused"] == row["tried"] for row in recorded["loaders"].values())
    page = (RECORD.parents[1] / "evidence" / "reliability.md").read_text()
    for name, row in recorded["loaders"].items():
        figures = (f"{row[key]:,}" for key in ("tried", "refused", "read", "crashed", "hung", "over_memory"))
        assert f"| {name} | {' | '.join(figures)} |" in page
