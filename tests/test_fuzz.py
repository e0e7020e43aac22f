"""A short, seeded part of the fuzz (tests/fuzz), and that the fuzz sees what it is there to see."""

import json
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
import json, os, sys
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
sys.path.insert(0, sys.argv[1])
import watching
from loaders import Loader

def fail():
    raise ValueError("no")

def hide():
    try:
        bytearray(3 << 30)
    except MemoryError as error:
        raise ValueError("no") from error

def spin():
    while True:
        pass

DEEDS = {"accepted": list, "refused": fail, "crashed": os.abort, "hung": spin, "over_memory": hide}
MORE = {"key": lambda: {}["a"], "flood": lambda: bytes(900 << 20) + bytes(900 << 20), "exit": lambda: os._exit(0)}
NAMES = [*DEEDS, *MORE]
MEANS = {"key": "crashed", "flood": "over_memory", "exit": "crashed"}

def spoil(files, chance):
    return {"x": chance.choice(NAMES).encode()}

def load(folder):
    (DEEDS | MORE)[(folder / "x").read_text()]()

watching.SECONDS = 0.5
watching.LOADERS["odd"] = Loader("odd", 1, None, spoil, load, (ValueError,))
with TemporaryDirectory() as room:
    (Path(room) / "valid" / "odd").mkdir(parents=True)
    (Path(room) / "valid" / "odd" / "x").write_text("accepted")
    found = watching.run(["odd"], Path(room, "valid"), 0, {"odd": 24}, 2, Path(room, "rooms"), Path(room, "kept"))
    kept = len(list(Path(room, "kept").iterdir()))
told = [Random(f"0 odd {i}").choice(NAMES) for i in range(24)]
expected = Counter(MEANS.get(name, name) for name in told)
print(json.dumps({"found": found["odd"].counts, "expected": expected, "kinds": len(set(told)), "kept": kept}))
"""


def test_the_fuzz_sees_crashes_hangs_and_floods_of_memory():
    found = subprocess.run([sys.executable, "-c", ODD, FUZZ], capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr[-3000:]
    told = json.loads(found.stdout.splitlines()[-1])
    assert told["kinds"] == 8
    assert told["found"] == told["expected"]
    assert told["kept"] == sum(told["found"][name] for name in ("crashed", "hung", "over_memory"))


def test_the_recorded_run_is_of_100_000_files_and_found_nothing():
    recorded = json.loads(RECORD.read_text())
    assert {"command", "date", "seed", "versions", "limits"} <= recorded.keys()
    assert recorded["limits"] == {"seconds": 5.0, "memory_bytes": 1 << 30}
    assert recorded["total"]["tried"] == 100_000 == sum(row["tried"] for row in recorded["loaders"].values())
    assert recorded["total"]["accepted"] + recorded["total"]["refused"] == 100_000
    page = (RECORD.parents[1] / "reliability.md").read_text()
    for name, row in recorded["loaders"].items():
        assert f"| {name} | {row['tried']:,} | {row['refused']:,} | {row['accepted']:,} | 0 | 0 | 0 |" in page
