"""Runs loaders on bad files in processes of their own: a crash, a hang or a flood of memory is seen and survived.

A process gets 1 GiB of address space above what it had after reading a valid file, and for each file 5 seconds of a
processor's time, but no more than 20 by the clock, so that one that waits for nothing hangs too. Every file is a
function of (seed, loader, number) and nothing else, so a finding can be made again from these three.
"""

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from loader import Loader
from loaders import LOADERS

import treevae

SECONDS = 5.0  # of a processor's time for one file
PATIENCE = 4  # times as many by the clock, for a busy machine
MEMORY = 1 << 30  # bytes above what a valid file takes
START = 60.0  # in which a process must have read a valid file, or made a bad one
CHUNK = 1000  # files for one process
MOST_SAID = 2000  # letters of a message that are passed on
PACKAGE = str(Path(treevae.__file__).parent)
MOST_KEPT = 30  # findings of one loader whose files are kept
OWN_FAULT = 2  # the code at the end where the fuzz itself failed; 1 is for findings
OUTCOMES = ("read", "refused", "crashed", "hung", "over_memory")


@dataclass
class Tally:
    """What came of the files that one loader was given."""

    counts: Counter = field(default_factory=Counter)
    largest_rise: int = 0  # bytes of memory that one file took at most
    slowest: float = 0.0  # seconds
    findings: list[str] = field(default_factory=list)
    last: str = ""  # what came of the last file, and what was said


def make(loader: Loader, valid: Path, seed: int, number: int) -> dict[str, bytes]:
    """The files of an input: valid ones, of which one or a few are changed."""
    return loader.spoil(make_valid(valid), Random(f"{seed} {loader.name} {number}"))


def make_valid(valid: Path) -> dict[str, bytes]:
    """The valid files, in order."""
    paths = sorted(path for path in valid.rglob("*") if path.is_file())
    return {path.relative_to(valid).as_posix(): path.read_bytes() for path in paths}


def put(files: dict[str, bytes], folder: Path) -> None:
    """The files, and nothing else, in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def attempt(loader: Loader, folder: Path) -> tuple[str, str]:
    """What comes of reading a folder, and what was said."""
    try:
        loader.load(folder)
    except BaseException as error:  # whatever it is, it is counted
        if _lacks_memory(error):
            return "over_memory", traceback.format_exc()
        if type(error) in loader.refuses and str(error) and _is_ours(error):
            return "refused", f"{type(error).__name__}: {error}"
        return "crashed", traceback.format_exc()
    return "read", ""


def _is_ours(error: BaseException) -> bool:
    """Whether an error was raised by the package itself, and did not only pass through it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code.co_filename.startswith(PACKAGE)


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether memory ran out somewhere on the way to an error."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "Unable to allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def in_this_process(loader: Loader, valid: Path, seed: int, numbers: range, folder: Path, out: int) -> None:
    """Read one input after the other, and write a line about each to a file descriptor."""
    quiet()
    put(make_valid(valid), folder)
    os.chdir(folder.parent)
    loader.load(folder)  # what is loaded on first use does not count
    limit_memory(loader.address_space)
    os.write(out, b"ready\n")
    for number in numbers:
        put(make(loader, valid, seed, number), folder)
        os.write(out, b"begin\n")
        before, began = _resident("VmRSS"), time.monotonic()
        _forget_peak()
        outcome, said = attempt(loader, folder)
        took, rise = time.monotonic() - began, max(0, _resident("VmHWM") - before)
        if rise > MEMORY:
            outcome = "over_memory"
        if outcome not in ("read", "refused"):
            (folder.parent / f"said-{number}.txt").write_text(said, encoding="utf-8", errors="backslashreplace")
        os.write(out, f"{number} {outcome} {took:.4f} {rise} {json.dumps(said[-MOST_SAID:])}\n".encode())


def quiet() -> None:
    """What libraries print about bad files is not wanted, and threads' arenas of memory would count."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-8, 1)  # M_ARENA_MAX


def limit_memory(above: int) -> None:
    """No more address space than so many bytes above what is taken now."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)  # a limit of the machine's own stays
    room = taken + above if hard == resource.RLIM_INFINITY else min(taken + above, hard)
    resource.setrlimit(resource.RLIMIT_AS, (room, hard))


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


class Process:
    """A child that reads a stretch of inputs."""

    def __init__(self, loader: Loader, valid: Path, seed: int, numbers: range, room: Path) -> None:
        self.loader, self.numbers, self.room = loader, numbers, room
        self.valid, self.seed = valid, seed
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        self.out, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.out)
            try:
                in_this_process(loader, valid, seed, numbers, room / "input", out)
                os._exit(0)
            except BaseException:  # a fault of the fuzz itself
                (room / "fault.txt").write_text(traceback.format_exc())
                os._exit(70)
        os.close(out)
        self.next = numbers.start
        self._rest = b""
        self.expect(START, START)

    def expect(self, seconds: float, latest: float) -> None:
        """Something is to be heard of the child in so many seconds of a processor's time, and by the clock."""
        self.deadline = time.monotonic() + seconds
        self._latest, self._worked, self._seconds = time.monotonic() + latest, self._work(), seconds

    def waits(self) -> bool:
        """Whether the child has had less of a processor's time, as on a busy machine; it gets the rest of it."""
        left = self._seconds - (self._work() - self._worked)
        if left <= 0 or time.monotonic() >= self._latest:
            return False
        self.deadline = min(time.monotonic() + left, self._latest)
        return True

    def _work(self) -> float:
        """Seconds of a processor that the child has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lines(self) -> Iterator[str]:
        """What the child wrote since it was asked last; ends with an empty line when it has ended."""
        found = os.read(self.out, 65536)
        *whole, self._rest = (self._rest + found).split(b"\n")
        yield from (line.decode() for line in whole)
        if not found:
            yield ""

    def end(self) -> int:
        """Wait for the child, and give how it ended."""
        os.close(self.out)
        return os.waitpid(self.pid, 0)[1]


def run(inputs: dict[str, range], valid: Path, seed: int, jobs: int, rooms: Path, keep: Path) -> dict[str, Tally]:
    """Give each loader the inputs of these numbers, in as many processes at a time as there are jobs."""
    waiting = [
        (LOADERS[name], numbers[start : start + CHUNK])
        for name, numbers in inputs.items()
        for start in range(0, len(numbers), CHUNK)
    ]
    tallies = {name: Tally() for name in inputs}
    running: list[Process] = []
    started = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            loader, numbers = waiting.pop(0)
            running.append(Process(loader, valid / loader.name, seed, numbers, rooms / str(started)))
            started += 1
        patience = max(0.0, min(process.deadline for process in running) - time.monotonic())
        ready, _, _ = select.select([process.out for process in running], [], [], patience)
        for process in list(running):
            tally = tallies[process.loader.name]
            ended = None
            if process.out in ready:
                ended = _listen(process, tally, keep)
            elif time.monotonic() >= process.deadline and not process.waits():
                os.kill(process.pid, signal.SIGKILL)
                process.end()
                ended = "hung"
            if ended is not None:
                running.remove(process)
                if ended:  # it did not get to its last input
                    _note(process, tally, ended, process.next, keep)
                    waiting.insert(0, (process.loader, range(process.next + 1, process.numbers.stop)))
                shutil.rmtree(process.room, ignore_errors=True)
    return tallies


def _listen(process: Process, tally: Tally, keep: Path) -> str | None:
    """Take in what a child says; once it has ended, how: "" is well."""
    for line in process.lines():
        process.expect(*((SECONDS, PATIENCE * SECONDS) if line == "begin" else (START, START)))
        if line in ("ready", "begin"):
            continue
        if line:
            number, outcome, took, rise, said = line.split(maxsplit=4)
            tally.last = f"{outcome} after {float(took):.2f} s, with {int(rise) / 1e6:.0f} MB\n{json.loads(said)}"
            process.next = int(number) + 1
            tally.largest_rise, tally.slowest = max(tally.largest_rise, int(rise)), max(tally.slowest, float(took))
            if outcome in ("read", "refused"):
                tally.counts[outcome] += 1
            else:
                _note(process, tally, outcome, int(number), keep)
            continue
        status = process.end()
        if (process.room / "fault.txt").exists():
            fault = (process.room / "fault.txt").read_text()
            print(f"the fuzz of {process.loader.name} itself failed:\n{fault}", file=sys.stderr)
            sys.exit(OWN_FAULT)
        return "" if status == 0 and process.next >= process.numbers.stop else "crashed"
    return None


def _note(process: Process, tally: Tally, outcome: str, number: int, keep: Path) -> None:
    """Count a finding, and keep its files and what was said."""
    tally.counts[outcome] += 1
    tally.findings.append(f"{outcome} {number}")
    tally.last = tally.last or f"{outcome}, and the process with it"
    if len(tally.findings) <= MOST_KEPT:
        kept = keep / f"{process.loader.name}-{process.seed}-{number}-{outcome}"
        put(make(process.loader, process.valid, process.seed, number), kept / "input")
        said = process.room / f"said-{number}.txt"
        if said.exists():
            shutil.move(said, kept / "said.txt")
