"""What every record says besides its figures."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from treevae import __version__


def write(out: Path | None, found: dict[str, Any], device: str = "cpu") -> None:
    """Write figures with their command, device, threads and versions; by default into results/, named by both."""
    script, on_gpu = Path(sys.argv[0]), device.startswith("cuda")
    out = out or Path(__file__).parent / "results" / f"{script.stem}-{'cuda' if on_gpu else 'cpu'}.json"
    about = {
        "command": " ".join(["python", f"benchmarks/{script.name}", *(Path(word).name for word in sys.argv[1:])]),
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {"treevae": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(about | found, indent=2) + "\n")
    print(f"wrote {out}")
