"""What a fitted map has stored, as one array."""

from __future__ import annotations

from typing import Any

import numpy as np


def dense(fitted: Any, stage: str = "kernel", values: str = "weights", edges: str = "") -> np.ndarray:
    """Values of a stage on the edges of its graph, in the order of the input."""
    name = edges or ("weights" if fitted._run.has("weights") else "graph")
    matrix = fitted._run.matrix(name, values, stage)
    starts = np.concatenate([[0], np.cumsum(matrix.rows)])
    ids = np.arange(starts[-1]) if name == "weights" else fitted.graph_.original_ids()
    out = np.zeros((starts[-1], starts[-1]))
    for b in range(len(matrix.rows)):
        block = matrix.block(b)
        out[ids[starts[b] + block.row], ids[block.ids(b, starts)[block.indices]]] = block.data
    return out
