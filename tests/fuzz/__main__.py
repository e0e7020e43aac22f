"""Give every loader bad files, and see that each is refused or read: no crash, no hang, no flood of memory.

    python tests/fuzz --inputs 100000 --seed 0 --out docs/runs/fuzz.json
    python tests/fuzz --loader npz --inputs 2000        # one loader alone
    python tests/fuzz --loader npz --only 17            # one input again, in this process, with what it says

Findings are kept with their files in the folder that --keep names. Linux only: memory is limited and measured there.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loaders import LOADERS
from watching import MEMORY, OUTCOMES, SECONDS, Tally, attempt, make, put, run

from treevae import __version__

LIBRARIES = ("torch", "numpy", "safetensors", "pandas", "pyarrow", "pillow")


def write_valid(names: list[str], folder: Path) -> None:
    """Valid files for each loader, written by a process of its own: threads that a writer starts end with it."""
    child = os.fork()
    if child == 0:
        try:
            for name in names:
                (folder / name).mkdir(parents=True)
                LOADERS[name].valid(folder / name)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("valid files could not be made")


def shares(names: list[str], inputs: int) -> dict[str, int]:
    """How many inputs each loader gets."""
    total = sum(LOADERS[name].share for name in names)
    counts = {name: int(inputs * LOADERS[name].share / total) for name in names}
    counts[names[0]] += inputs - sum(counts.values())
    return counts


def fuzz(names: list[str], inputs: int, seed: int, jobs: int, keep: Path) -> dict[str, Tally]:
    """Run them all, and give what came of each loader's inputs."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as room:
        valid = Path(room, "valid")
        write_valid(names, valid)
        return run(names, valid, seed, shares(names, inputs), jobs, Path(room, "rooms"), keep)


def again(name: str, seed: int, number: int) -> None:
    """One input, in this process."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as room:
        write_valid([name], Path(room, "valid"))
        put(make(LOADERS[name], Path(room, "valid", name), seed, number), Path(room, "input"))
        os.chdir(room)
        outcome, said = attempt(LOADERS[name], Path(room, "input"))
        print(outcome, said, sep="\n")
        os.chdir("/")


def report(tallies: dict[str, Tally], seed: int, inputs: int, seconds: float) -> dict[str, Any]:
    """The record of a run."""
    loaders = {
        name: {"tried": tally.counts.total()}
        | {outcome: tally.counts[outcome] for outcome in OUTCOMES}
        | {"largest_rise_mb": round(tally.largest_rise / 1e6, 1), "slowest_seconds": round(tally.slowest, 3)}
        for name, tally in tallies.items()
    }
    total = {key: sum(row[key] for row in loaders.values()) for key in ("tried", *OUTCOMES)}
    return {
        "command": f"python tests/fuzz --inputs {inputs} --seed {seed}",
        "date": datetime.now(UTC).date().isoformat(),
        "seed": seed,
        "limits": {"seconds": SECONDS, "memory_bytes": MEMORY},
        "seconds": round(seconds),
        "versions": {"treevae": __version__, "python": platform.python_version()}
        | {library: version(library) for library in LIBRARIES},
        "total": total,
        "loaders": loaders,
    }


def main() -> None:
    """Run, print, and end with code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loader", action="append", choices=list(LOADERS))
    parser.add_argument("--only", type=int, help="this input alone; needs --loader")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    names = given.loader or list(LOADERS)
    if given.only is not None:
        again(names[0], given.seed, given.only)
        return
    began = time.monotonic()
    tallies = fuzz(names, given.inputs, given.seed, given.jobs, given.keep.resolve())
    found = report(tallies, given.seed, given.inputs, time.monotonic() - began)
    for name, row in found["loaders"].items():
        print(f"{name:9}", "  ".join(f"{key} {value}" for key, value in row.items()), tallies[name].findings[:12])
    print("total    ", found["total"], f"{found['seconds']} s")
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    bad = sum(found["total"][outcome] for outcome in ("crashed", "hung", "over_memory"))
    sys.exit(f"{bad} findings, kept in {given.keep}" if bad else 0)


if __name__ == "__main__":
    main()
