"""Does the explorer hold under load? Many clients over loopback, mixed calls, malformed ones and slow clients too.

    python -m benchmarks.speed.serve_load [--clients 200] [--seconds 60] [--out benchmarks/results/serve_load.json]

A model of the digits is fitted and served by `treevae explore`. Before the load every question of a fixed list is asked
alone; under load every answer must be the same to the byte. A tenth of the questions are malformed and must be answered
with 4xx. Some clients only hold connections: they send one byte a second, or never read their answer. A client asks
again as soon as it has its answer, so times are those of a server that always has as many questions as clients; clients
and server share the machine. The exit code is 1 if anything was lost, differed, or failed with 5xx.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .. import record

SLOW_CLIENTS = 20
PATIENCE = 120.0  # seconds that a client waits for an answer
COMMAND = [sys.executable, "-c", "from treevae.cli.app import app; app()"]
FIT = ["fit", "digits", "--n-leaves", "10", "--epochs", "6", "--network", "mlp"]


@dataclass(frozen=True)
class LoadQuestion:
    """A request, and which of the kinds of calls it is."""

    kind: str
    raw: bytes
    status: int  # the class of the answer's status that is right: 2 or 4


@dataclass
class Tally:
    """What the clients saw."""

    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    differ: int = 0
    wrong: list[str] = field(default_factory=list)  # the first few answers of the wrong class
    memory: list[float] = field(default_factory=list)


def request(
    method: str, path: str, body: bytes = b"", kind: str = "application/json", host: str = "127.0.0.1"
) -> bytes:
    """The bytes of a request."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\n"
    if method == "POST":
        head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def asked(kind: str, path: str, ask: Any, status: int = 2) -> LoadQuestion:
    """A question in JSON."""
    return LoadQuestion(kind, request("POST", f"/api/{path}", json.dumps(ask).encode()), status)


def upload(data: bytes, status: int = 2, kind: str = "place image") -> LoadQuestion:
    """A picture to place."""
    body = b'--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n\r\n' + data + b"\r\n--x--\r\n"
    return LoadQuestion(kind, request("POST", "/api/place/image", body, "multipart/form-data; boundary=x"), status)


def questions(nodes: list[int], n_samples: int, n_features: int) -> list[LoadQuestion]:
    """What is asked, again and again; each as often as the others of its kind."""
    rng = np.random.default_rng(0)
    asking = [
        asked("generate", "generate", {"node": node, "n": 12, "seed": node, "temperature": 0.8}) for node in nodes
    ]
    asking += [asked("walk", "walk", {"seed": seed}) for seed in range(4)]
    asking += [asked("walk", "walk", {"sample": int(i)}) for i in rng.integers(n_samples, size=4)]
    asking += [asked("place row", "place", {"row": rng.random(n_features).round(3).tolist()}) for _ in range(6)]
    pairs = rng.integers(n_samples, size=(6, 2)).tolist()
    asking += [asked("interpolate", "interpolate", {"a": a, "b": b, "steps": 8}) for a, b in pairs]
    for side in (8, 100, 600):
        file = io.BytesIO()
        Image.fromarray(rng.integers(256, size=(side, side, 3)).astype(np.uint8)).save(file, "JPEG")
        asking.append(upload(file.getvalue()))
    asking += [LoadQuestion("status", request("GET", "/api/status"), 2)] * 3
    asking += [LoadQuestion("bundle", request("GET", "/api/bundle"), 2), LoadQuestion("page", request("GET", "/"), 2)]
    return asking


def malformed() -> list[LoadQuestion]:
    """What must be refused."""
    bad = "malformed"
    return [
        asked(bad, "generate", {"node": 10**6}, 4),
        asked(bad, "generate", {"node": 0, "n": 10**9}, 4),
        asked(bad, "generate", {"node": 0, "temperature": "hot"}, 4),
        asked(bad, "place", {"row": [1.0]}, 4),
        asked(bad, "interpolate", {"a": -1, "b": 0}, 4),
        LoadQuestion(bad, request("POST", "/api/walk", b"{"), 4),
        LoadQuestion(bad, request("POST", "/api/walk", b"[" * 50_000), 4),
        LoadQuestion(bad, request("POST", "/api/walk", b" " * (1 << 21)), 4),
        upload(b"GIF89a, but no more", 4, bad),
        LoadQuestion(bad, request("GET", "/../../etc/passwd"), 4),
        LoadQuestion(bad, request("GET", "/", host="evil.example"), 4),
        LoadQuestion(bad, request("DELETE", "/api/bundle"), 4),
        LoadQuestion(bad, b"\x16\x03\x01 hello\r\n\r\n", 4),
    ]


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes) -> tuple[int, bytes, bool]:
    """Status and body of an answer, and whether the connection stays open."""
    writer.write(raw)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), None)
    body = await (reader.read() if length is None else reader.readexactly(length))
    return int(head.split(" ")[1]), body, "connection: close" not in head


async def client(port: int, ask: list[LoadQuestion], bad: list[LoadQuestion], until: float, tally: Tally, seed: int,
                 expected: dict[bytes, bytes]) -> None:  # fmt: skip
    """One client: asks, waits, asks again; opens a new connection where the old one was closed."""
    chance, stream = random.Random(seed), None
    kinds = sorted({question.kind for question in ask})
    while time.monotonic() < until:
        kind = chance.choice(kinds)
        one = chance.choice(bad if chance.random() < 0.1 else [question for question in ask if question.kind == kind])
        began = time.perf_counter()
        for attempt in range(2):
            try:
                stream = stream or await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
                status, body, stays = await asyncio.wait_for(exchange(*stream, one.raw), PATIENCE)
                break
            except (OSError, asyncio.IncompleteReadError) as error:
                fresh = stream is None
                if stream is not None:
                    stream[1].close()
                stream = None
                if attempt or fresh:  # a connection that was kept may have been closed meanwhile; a new one not
                    tally.statuses[one.kind][type(error).__name__] += 1
                    break
            except TimeoutError:
                tally.statuses[one.kind]["no answer"] += 1
                stream = None
                break
        else:
            continue
        if stream is None:
            continue
        tally.times[one.kind].append(time.perf_counter() - began)
        tally.statuses[one.kind][str(status)] += 1
        if status // 100 != one.status and len(tally.wrong) < 10:
            tally.wrong.append(f"{one.raw[:80]!r} -> {status} {body[:120]!r}")
        if status == 200 and expected.get(one.raw, body) != body:
            tally.differ += 1
        if not stays:
            stream[1].close()
            stream = None
    if stream is not None:
        stream[1].close()


async def slow_client(port: int, until: float, seed: int) -> None:
    """One that holds connections: headers or bodies byte by byte, or an answer that nobody reads."""
    whole = [request("GET", "/api/status"), request("POST", "/api/walk", b" " * 5000), request("GET", "/") * 50][
        seed % 3
    ]
    while time.monotonic() < until:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            if seed % 3 == 2:
                writer.write(whole)
                await asyncio.sleep(max(0.0, min(45.0, until - time.monotonic())))
            else:
                for byte in whole:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(1.0)
                    if time.monotonic() > until or writer.is_closing():
                        break
            writer.close()
        except OSError:
            await asyncio.sleep(1.0)


def megabytes(pid: int) -> float:
    """The memory that a process has in use."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def load(port: int, pid: int, clients: int, seconds: float) -> Tally:
    """Ask everything once, then everything at once."""
    tally = Tally()
    stream = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    _, body, _ = await exchange(*stream, request("GET", "/api/bundle"))
    bundle = json.loads(body)
    ask = questions([node["id"] for node in bundle["nodes"]], bundle["n_shown"], bundle["n_features"])
    expected = {}
    for question in ask:
        status, expected[question.raw], _ = await exchange(*stream, question.raw)
        assert status == 200, (question, expected[question.raw])
    stream[1].close()
    tally.memory.append(megabytes(pid))
    until = time.monotonic() + seconds
    tasks = [client(port, ask, malformed(), until, tally, seed, expected) for seed in range(clients)]
    tasks += [slow_client(port, until, seed) for seed in range(SLOW_CLIENTS)]

    async def watch() -> None:
        while time.monotonic() < until:
            await asyncio.sleep(min(seconds / 10, 10.0))
            tally.memory.append(megabytes(pid))

    await asyncio.gather(watch(), *tasks)
    await asyncio.sleep(2)
    tally.memory.append(megabytes(pid))
    stream = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    for question in ask:  # and all is as before
        _, body, _ = await exchange(*stream, question.raw)
        tally.differ += body != expected[question.raw]
    stream[1].close()
    return tally


def report(tally: Tally, seconds: float) -> dict[str, Any]:
    """The figures, printed and as a record."""
    rows = {}
    for kind, times in sorted(tally.times.items()):
        p50, p99 = (float(value) for value in np.percentile(times, [50, 99]))
        rows[kind] = {
            "answers": len(times),
            "p50_ms": round(1e3 * p50, 1),
            "p99_ms": round(1e3 * p99, 1),
            "statuses": dict(sorted(tally.statuses[kind].items())),
        }
        line = f"{kind:12} {len(times):7} answers   p50 {1e3 * p50:7.0f} ms   p99 {1e3 * p99:7.0f} ms"
        print(f"{line}   {rows[kind]['statuses']}")
    answers = sum(map(len, tally.times.values()))
    failed = sum(
        n for kind, of in tally.statuses.items() for status, n in of.items()
        if not status.startswith("4" if kind == "malformed" else "2")
    )  # fmt: skip
    memory = [round(value, 1) for value in tally.memory]
    print(f"{answers / seconds:.0f} answers a second; {failed} failed, {tally.differ} differed; memory {memory} MB")
    return {
        "calls": rows,
        "answers_per_second": round(answers / seconds, 1),
        "failed": failed,
        "differed": tally.differ,
        "wrong": tally.wrong,
        "memory_mb": {"before": memory[0], "during": memory[1:-1], "after": memory[-1]},
    }


def main() -> None:
    """Fit, serve, load, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=record.RESULTS / "serve_load.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        subprocess.run([*COMMAND, *FIT, "-o", run], check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen(
            [*COMMAND, "explore", run, "--port", "0", "--no-open"], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "http://" in line)
            port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
            tally = asyncio.run(load(port, server.pid, given.clients, given.seconds))
        finally:
            server.send_signal(2)
            code = server.wait(30)
    print(f"the server ended with code {code}")
    about = {"clients": given.clients, "slow_clients": SLOW_CLIENTS, "seconds": given.seconds, "cores": os.cpu_count()}
    row = report(tally, given.seconds)
    record.write(given.out, about | row)
    sys.exit(bool(row["failed"] or row["differed"] or code))


if __name__ == "__main__":
    main()
