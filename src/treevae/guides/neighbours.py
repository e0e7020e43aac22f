"""The nearest neighbours of samples, searched in space or read from a user's graph."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

log = logging.getLogger("treevae")

EXACT_UP_TO = 50_000  # samples that the CPU compares pair by pair; a GPU does so with any number
BLOCK = 2**25  # distances held at once, 128 MiB


def nearest(x: Tensor, k: int) -> Tensor:
    """The k nearest other samples of each sample, nearest first: int64 (n, k), on the device of x.

    Distances are Euclidean. A sample is never its own neighbour; an equal one is. The search is exact, but on the CPU
    above 50,000 samples where ``pynndescent`` is installed.
    """
    n = len(x)
    if not 1 <= k < n:
        raise ValueError(f"neighbours={k} must be at least 1 and less than the number of samples, {n}")
    x = _flat(x)
    if n > EXACT_UP_TO and x.device.type == "cpu":
        try:
            return _approximate(x, k)
        except ImportError:
            log.warning(
                "comparing %d samples with each other takes a while; pip install 'treevae[neighbours]' to be faster", n
            )
    began = time.perf_counter()
    found = _searched(x, k)
    log.debug("the %d nearest neighbours of %d samples took %.1f s", k, n, time.perf_counter() - began)
    return found


def of_graph(graph: Any, k: int) -> Tensor:
    """The k heaviest neighbours of each sample in a graph: int64 (n, k), on the CPU.

    Parameters
    ----------
    graph : sparse matrix or array of shape (n, n)
        How close samples are, larger is closer, 0 is no neighbour; as scanpy's ``obsp["connectivities"]``.
    k : int
        How many neighbours a sample gets. One with fewer has them again and again; one with none is paired with itself.
    """
    if not sparse.issparse(graph):
        graph = np.asarray(graph)
    if len(graph.shape) != 2 or graph.shape[0] != graph.shape[1]:
        raise ValueError(f"graph has shape {graph.shape}; pass a matrix with one row and one column for each sample")
    if k < 1:
        raise ValueError(f"neighbours={k} must be at least 1")
    edges = sparse.coo_array(graph)
    edges.sum_duplicates()
    weights = edges.data.astype(np.float64)
    if not np.isfinite(weights).all():
        raise ValueError("graph has weights that are NaN or infinite; pass how close two samples are, 0 or more")
    if (weights < 0).any():
        raise ValueError(f"graph has the weight {weights.min():g}; pass how close two samples are, 0 or more")
    n = graph.shape[0]
    row, column = edges.coords
    real = (row != column) & (weights > 0)
    row, column, weights = row[real], column[real], weights[real]
    order = np.lexsort((column, -weights, row))  # by row, the heaviest first, equal ones from left to right
    row, column = row[order], column[order]
    count = np.bincount(row, minlength=n)
    first = np.cumsum(count) - count
    place = first[:, None] + np.arange(k) % np.maximum(count, 1)[:, None]
    alone = count == 0
    place[alone] = 0
    found = column[place] if len(column) else np.zeros((n, k), dtype=np.int64)
    found[alone] = np.flatnonzero(alone)[:, None]
    return torch.from_numpy(found.astype(np.int64))


def _flat(x: Tensor) -> Tensor:
    """The samples as rows of float32, all finite."""
    x = x.reshape(len(x), -1).float()
    if not bool(torch.isfinite(x).all()):
        raise ValueError("samples have values that are NaN or infinite, so that no distance is known")
    return x


def _searched(x: Tensor, k: int) -> Tensor:
    """Neighbours by comparison with every sample, a block of them at a time."""
    x = x - x.mean(0)  # distances stay the same, and their rounding is least about the middle
    square = torch.linalg.vector_norm(x, dim=1).square()
    found = torch.empty(len(x), k, dtype=torch.int64, device=x.device)
    step = max(1, BLOCK // len(x))
    for start in range(0, len(x), step):
        part = x[start : start + step]
        distance = torch.addmm(square, part, x.T, alpha=-2)  # but for the sample's own square, the same in its row
        here = torch.arange(len(part), device=x.device)
        distance[here, start + here] = torch.inf
        found[start : start + step] = distance.topk(k, largest=False).indices
    return found


def _approximate(x: Tensor, k: int) -> Tensor:
    """Neighbours found by pynndescent, nearly all of them right."""
    from pynndescent import NNDescent

    began = time.perf_counter()
    index, _ = NNDescent(x.numpy(), n_neighbors=k + 1, random_state=0).neighbor_graph
    own = index == np.arange(len(x))[:, None]
    own[~own.any(1), -1] = True  # where equal samples have pushed it out, the farthest goes
    log.info("pynndescent found the neighbours of %d samples in %.0f s", len(x), time.perf_counter() - began)
    return torch.from_numpy(index[~own].reshape(len(x), k).astype(np.int64))
