"""Sparse rows as named arrays of one length each, which the exchange holds and which several blocks' are joined by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array, is_sparse

PARTS = ("counts", "indices", "data")


def row_parts(rows: Any, name: str = "rows") -> dict[str, Array]:
    """Dense rows under ``name``; of CSR rows how many entries each has, their columns and their values.

    >>> {key: part.tolist() for key, part in row_parts(sparse.csr_array([[0, 5], [0, 0]])).items()}
    {'rows-counts': [1, 0], 'rows-indices': [1], 'rows-data': [5]}
    """
    if not is_sparse(rows):
        return {name: rows}
    return dict(zip(part_names(name, True), (np.diff(rows.indptr), rows.indices, rows.data), strict=True))


def part_names(name: str, is_csr: bool) -> list[str]:
    """The keys of :func:`row_parts`."""
    return [f"{name}-{part}" for part in PARTS] if is_csr else [name]


def rows_of_parts(parts: Mapping[str, Array], columns: int, name: str = "rows") -> Any:
    """The rows that :func:`row_parts` took apart; ``columns`` of CSR rows."""
    if name in parts:
        return parts[name]
    counts, indices, data = (parts[key] for key in part_names(name, True))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return sparse.csr_array((data, indices, indptr), shape=(len(counts), columns))


def stacked(parts: Sequence[Any]) -> Any:
    """Rows of several parts, dense or CSR, one after another."""
    if is_sparse(parts[0]):
        return parts[0] if len(parts) == 1 else sparse.csr_array(sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)
