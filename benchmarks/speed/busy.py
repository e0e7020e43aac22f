"""How much slower is a fit on a machine that is busy with other work, and does waiting less eagerly help?

    python -m benchmarks.speed.busy [--out benchmarks/results/busy-cpu.json]

A short fit in a process of its own, on idle cores, beside as many busy loops as there are cores and beside three times
as many: with the number of spins for which treevae lets OpenMP's threads wait, with OpenMP's own, and on one thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from .. import record

LIMIT = 60  # seconds, after which a fit is given up
FIT = """
import time, warnings
from sklearn.datasets import load_digits
from treevae import TreeVAE
warnings.simplefilter("ignore")
X = load_digits().images / 16
began = time.perf_counter()
TreeVAE(n_leaves=3, epochs=10, n_init=4, random_state=0).fit(X)
print(time.perf_counter() - began)
"""
WAYS = {  # what is set before anything is imported
    "as treevae sets it": {},
    "OpenMP's own": {"GOMP_SPINCOUNT": "300000"},
    "no spins": {"GOMP_SPINCOUNT": "0"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def seconds(environment: dict[str, str]) -> float | None:
    """How long a fit takes in a process of its own; None if it was given up."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", FIT], env=plain | environment, timeout=LIMIT, check=True, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return None
    return float(done.stdout)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out: Path | None = parser.parse_args().out
    times_of = {}
    cores = os.cpu_count() or 1
    for name, loops in (("idle", 0), ("busy", cores), ("crowded", 3 * cores)):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
        try:
            for way, environment in WAYS.items():
                times = [seconds(environment) for _ in range(3)]
                known = [time for time in times if time is not None]
                median = statistics.median(known) if len(known) == len(times) else None
                times_of[f"{name}, {way}"] = {"seconds": times, "median": median}
                print(name, way, times, flush=True)
        finally:
            for other in others:
                other.kill()
    record.write(out, {"cores": cores, "given_up_after": LIMIT, "found": times_of})


if __name__ == "__main__":
    main()
