"""How a checkout is built: reaches and patches, type names, the way from fit to the posterior, words, long files.

    python -m benchmarks.house.measure [--root CHECKOUT] [--out FILE]

Run it with the Python of this checkout. ``--root`` may be another one, of any version; its code is counted and run.
The counting is that of tests/test_architecture.py.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parents[2]
LONG = 400  # lines of a file
FRAMES = """
import json, sys
from pathlib import Path
import numpy as np
import treevae
ROOM, frames = Path(treevae.__file__).parent, []
def look(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "posterior" and not frames:
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(ROOM):
                frames.append([str(file.relative_to(ROOM)), frame.f_code.co_name])
            frame = frame.f_back
sys.setprofile(look)
X = np.random.default_rng(0).random((40, 5))
treevae.TreeVAE(n_leaves=2, n_init=1, epochs=1, hidden_dim=4, network="mlp", random_state=0, device="cpu").fit(X)
sys.setprofile(None)
print(json.dumps(frames[::-1]))
"""


def rules() -> ModuleType:
    """The test that holds these rules, as a module."""
    spec = importlib.util.spec_from_file_location("test_architecture", HERE / "tests" / "test_architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(text: str) -> int:
    """The words of a page as ``wc -w`` counts them, fenced code apart: tables and addresses count too."""
    return len(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split())


def imports_of(path: Path) -> int:
    """The statements that import from the package itself."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return sum(isinstance(node, ast.ImportFrom) and node.level > 0 for node in nodes)


def measure(root: Path) -> dict[str, Any]:
    """The figures of a checkout."""
    held = rules()
    source, benchmarks = sorted((root / "src").rglob("*.py")), sorted((root / "benchmarks").rglob("*.py"))
    ours = [*source, *benchmarks]
    types = Counter(name for path in ours for name in held.types_of(path))
    frames = json.loads(
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FRAMES],
            env={"PYTHONPATH": str(root / "src"), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    lines = {str(path.relative_to(root)): len(path.read_text().splitlines()) for path in source}
    return {
        "commit": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=root, text=True).strip(),
        "private_reaches": sum(len(held.private_reaches(path.read_text())) for path in ours),
        "run_time_patches_in_benchmarks": sum(len(held.patches(path.read_text())) for path in benchmarks),
        "type_names_with_two_meanings": sorted(name for name, n in types.items() if n > 1),
        "frames_from_fit_to_the_posterior": len(frames),
        "files_from_fit_to_the_posterior": len({file for file, _ in frames}),
        "way": [f"{file}: {name}" for file, name in frames],
        "words_of_the_readme": words((root / "README.md").read_text()),
        "imports_of_the_estimator": imports_of(root / "src" / "treevae" / "estimator.py"),
        "files_over_400_lines": {name: n for name, n in lines.items() if n > LONG},
        "found_in_the_package": sum(len(re.findall(r"\bfound\b", path.read_text())) for path in source),
        "files": len(source),
        "lines": sum(lines.values()),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = json.dumps(measure(given.root.resolve()), indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
