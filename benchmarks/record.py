"""What every record says besides its figures."""

from __future__ import annotations

import json
import platform
import sys
from itertools import count
from pathlib import Path
from typing import Any

import torch

from treevae.records import source, versions

RESULTS = Path(__file__).parent / "results"


def write(out: Path | None, figures: dict[str, Any], device: str = "cpu") -> None:
    """Write figures with their command, device, threads and versions; by default into results/, named by both.

    By default nothing is written over: where there is a record already, perhaps of other options, a number is added.
    """
    script, on_gpu = Path(sys.argv[0]), device.startswith("cuda")
    words = [Path(word).name for word in sys.argv[1:]]
    out = out or _free(RESULTS / f"{script.stem}-{'cuda' if on_gpu else 'cpu'}.json")
    about = {
        "command": " ".join([f"python -m benchmarks.{script.parent.name}.{script.stem}", *words]),
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "source": source(),
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(about | figures, indent=2) + "\n")
    print(f"wrote {out}")


def _free(path: Path) -> Path:
    """The path, or the first with a number that is free."""
    numbered = (path.with_stem(f"{path.stem}-{k}") for k in count(2))
    return path if not path.exists() else next(one for one in numbered if not one.exists())
