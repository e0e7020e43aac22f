"""Give every loader bad files, and see that each is refused or read: no crash, no hang, no flood of memory.

    python tests/fuzz --inputs 100000 --seed 0          # all loaders
    python tests/fuzz --loader npz --inputs 2000        # one loader alone
    python tests/fuzz --loader npz --only 17            # one input again, under the same limits, with what it says

An input is a valid file, or a few, made bad by chance. It is a function of loader, number and seed, so what is found
can be made again. It is refused (with the error that the loader's documentation names), read (the change did not
matter), or a finding: crashed, hung (more than 5 s of a processor's time, or 20 by the clock) or over memory (more than
1 GiB). The files of a finding go into fuzz-findings in the current folder, as LOADER-SEED-NUMBER-OUTCOME: --loader,
--seed and --only with these three make it again. --only also writes valid files and reads them first, which takes some
seconds. The code at the end is 1 if there are findings, and 2 if the fuzz itself failed.

Linux only: memory is limited and measured there.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loaders import LOADERS
from watching import MEMORY, OUTCOMES, OWN_FAULT, PATIENCE, SECONDS, Tally, run

from treevae import __version__
from treevae.records import source

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
        print("valid files could not be made", file=sys.stderr)
        sys.exit(OWN_FAULT)


def shares(names: list[str], inputs: int) -> dict[str, range]:
    """The inputs that each loader gets, the last by the largest remainders; some get none of a few."""
    total = sum(LOADERS[name].share for name in names)
    exact = {name: inputs * LOADERS[name].share / total for name in names}
    counts = {name: int(share + 1e-9) for name, share in exact.items()}
    for name in sorted(names, key=lambda name: counts[name] - exact[name])[: inputs - sum(counts.values())]:
        counts[name] += 1
    if without := [name for name, count in counts.items() if not count]:
        print(f"too few inputs for {', '.join(without)}", file=sys.stderr)
    return {name: range(count) for name, count in counts.items() if count}


def fuzz(inputs: dict[str, range], seed: int, jobs: int, keep: Path) -> dict[str, Tally]:
    """Run the inputs of these numbers, and give what came of each loader's."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as room:
        write_valid(list(inputs), Path(room, "valid"))
        return run(inputs, Path(room, "valid"), seed, jobs, Path(room, "rooms"), keep)


def report(tallies: dict[str, Tally], given: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The record of a run."""
    asked = "".join(f" --loader {name}" for name in given.loader or ())
    loaders = {
        name: {"tried": tally.counts.total()}
        | {outcome: tally.counts[outcome] for outcome in OUTCOMES}
        | {"largest_rise_mb": round(tally.largest_rise / 1e6, 1), "slowest_seconds": round(tally.slowest, 3)}
        for name, tally in tallies.items()
    }
    total = {key: sum(row[key] for row in loaders.values()) for key in ("tried", *OUTCOMES)}
    return {
        "command": f"python tests/fuzz --inputs {given.inputs} --seed {given.seed}{asked}",
        "date": datetime.now(UTC).date().isoformat(),
        "seed": given.seed,
        "source": source(),
        "limits": {"seconds": SECONDS, "seconds_by_the_clock": PATIENCE * SECONDS, "memory_bytes": MEMORY},
        "seconds": round(seconds),
        "versions": {"treevae": __version__, "python": platform.python_version()}
        | {library: version(library) for library in LIBRARIES},
        "total": total,
        "loaders": loaders,
    }


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers that are not below ``least``."""

    def read(text: str) -> int:
        try:
            if (value := int(text)) >= least:
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, {least} or more")

    return read


def arguments() -> argparse.Namespace:
    """What was asked for on the command line."""
    names = ", ".join(LOADERS)
    parser = argparse.ArgumentParser(
        "python tests/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--inputs", type=whole(1), default=100_000, metavar="N", help="inputs in all, shared out (default: 100000)")
    add("--seed", type=whole(0), default=0, help="other seeds make other inputs (default: 0)")
    add(
        *("--loader",),
        action="append",
        choices=list(LOADERS),
        metavar="NAME",
        help=f"only this loader; may be given again. There are {names}",
    )
    add(
        "--only", type=whole(0), metavar="N", help="input number N alone, and what is said about it; needs one --loader"
    )
    add(
        "--jobs",
        type=whole(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes at a time (default: all cores)",
    )
    add(
        *("--keep",),
        type=Path,
        default=Path("fuzz-findings"),
        metavar="FOLDER",
        help="where the files of findings go, with what was said (default: fuzz-findings)",
    )
    add("--out", type=Path, metavar="FILE", help="write the counts there as JSON, as in docs/runs/fuzz.json")
    given = parser.parse_args()
    if given.only is not None and len(given.loader or ()) != 1:
        parser.error(f"--only {given.only} is a number of one loader's; name it with --loader, one of {names}")
    if given.only is not None and given.out is not None:
        parser.error(f"--out {given.out} is for a run of many inputs; leave it out with --only")
    if given.out is not None and given.out.is_dir():
        parser.error(f"--out {given.out} is a folder; name a file in it")
    if given.out is not None and not given.out.resolve().parent.is_dir():
        parser.error(f"--out {given.out}: there is no folder {given.out.resolve().parent}; make it first")
    return given


def main() -> None:
    """Run, print, and end with code 1 if anything was found."""
    given = arguments()
    names = list(dict.fromkeys(given.loader or LOADERS))
    one = given.only is not None
    inputs = {names[0]: range(given.only, given.only + 1)} if one else shares(names, given.inputs)
    began = time.monotonic()
    tallies = fuzz(inputs, given.seed, given.jobs, given.keep.resolve())
    found = report(tallies, given, time.monotonic() - began)
    if one:
        print(tallies[names[0]].last)
    else:
        for name, row in found["loaders"].items():
            print(f"{name:9}", "  ".join(f"{key} {value}" for key, value in row.items()), tallies[name].findings[:12])
        print("total    ", found["total"], f"{found['seconds']} s")
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    bad = sum(found["total"][outcome] for outcome in ("crashed", "hung", "over_memory"))
    sys.exit(f"{bad} findings, kept in {given.keep}" if bad else 0)


if __name__ == "__main__":
    main()
