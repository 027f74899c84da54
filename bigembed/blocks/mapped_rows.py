"""Rows as metrics compare them: mapped one by one, so that Euclidean distances between them are those of the metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from bigembed.blocks.rows import Array, is_sparse


def mapped_rows(rows: Any, metric: str, dtype: Any) -> Any:
    """Rows (m, d), dense or CSR, as they are compared, in ``dtype``.

    Of length one for "cosine"; less their mean, then of length one, for "correlation"; √(x / 2Σx) for "hellinger";
    the point of the unit sphere of a latitude and a longitude in radians for "haversine". Rows that a metric does not
    admit (:func:`inadmissible`) become zeros. CSR rows have no stored zeros; for "correlation" see
    :func:`centered_csr`.

    >>> mapped_rows(np.array([[3.0, 4.0]]), "cosine", "f8").tolist()
    [[0.6, 0.8]]
    """
    if is_sparse(rows):
        return _mapped_csr(rows, metric, dtype)
    rows = np.ascontiguousarray(rows, dtype=dtype)
    if metric == "cosine":
        return _unit(rows, dtype)
    if metric == "correlation":
        wide = rows.astype(np.float64)
        return _unit(wide - wide.mean(axis=1, keepdims=True), dtype)
    if metric == "hellinger":
        wide = np.maximum(rows.astype(np.float64), 0)
        return np.sqrt(wide / (2 * _nonzero(wide.sum(axis=1)))[:, None]).astype(dtype)
    if metric == "haversine":
        latitude, longitude = rows.astype(np.float64).T
        around = np.cos(latitude)
        return np.column_stack([around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude)]).astype(dtype)
    return rows


def _unit(rows: Array, dtype: Any) -> Array:
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return np.asarray((rows / _nonzero(length)[:, None]).astype(dtype))


def _nonzero(values: Array) -> Array:
    return np.asarray(np.where(values > 0, values, 1))


def _mapped_csr(rows: Any, metric: str, dtype: Any) -> Any:
    found = sparse.csr_array(rows, dtype=dtype, copy=True)
    found.sum_duplicates()
    found.eliminate_zeros()
    wide, per_row = found.data.astype(np.float64), np.diff(found.indptr)
    if metric == "cosine":
        wide /= np.repeat(_nonzero(np.sqrt(row_sums(wide**2, found.indptr))), per_row)
    elif metric == "hellinger":
        wide = np.sqrt(np.maximum(wide, 0) / np.repeat(2 * _nonzero(row_sums(wide, found.indptr)), per_row))
    elif metric == "correlation":
        return centered_csr(found, wide, dtype)
    found.data = wide.astype(dtype)
    return found


def centered_csr(rows: Any, values: Array, dtype: Any) -> Any:
    """Rows for "correlation": a/s, s = ‖a − ā‖, and one more column √d ā/s.

    ‖(a − ā)/s − (b − b̄)/t‖² is the squared distance of the d columns less that of the last one.
    """
    n, d = rows.shape
    mean = row_sums(values, rows.indptr) / d
    spread = np.maximum(row_sums(values**2, rows.indptr) - d * mean**2, 0)
    spread = np.where(constant_csr(rows), 0.0, spread)
    scale = _nonzero(np.sqrt(spread))
    last = sparse.csr_array((np.sqrt(d) * mean / scale)[:, None])
    body = sparse.csr_array((values / np.repeat(scale, np.diff(rows.indptr)), rows.indices, rows.indptr), shape=(n, d))
    return sparse.csr_array(sparse.hstack([body, last], format="csr").astype(dtype))


def constant_csr(rows: Any) -> Array:
    """Rows whose entries are all equal, (m,)."""
    full = np.diff(rows.indptr) == rows.shape[1]
    first = np.zeros(rows.shape[0], rows.dtype)
    some = np.diff(rows.indptr) > 0
    first[some] = rows.data[rows.indptr[:-1][some]]
    other = row_sums((rows.data != np.repeat(first, np.diff(rows.indptr))).astype(np.float64), rows.indptr) > 0
    return np.asarray(~some | (full & ~other))


def row_sums(values: Array, indptr: Array) -> Array:
    """Σ of the entries of each CSR row, float64."""
    of_row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.bincount(of_row, values, minlength=len(indptr) - 1)


def inadmissible(rows: Any, metric: str) -> tuple[Array, str, str]:
    """Rows (m,) for which a metric is not defined, of what kind these are, and what to do."""
    n = rows.shape[0]
    if metric == "cosine":
        return _empty(rows), "rows of zeros", "Drop them, or use metric='euclidean'"
    if metric == "correlation":
        constant = constant_csr(_no_zeros(rows)) if is_sparse(rows) else (rows == rows[:, :1]).all(axis=1)
        return constant, "rows whose entries are all equal", "Drop them, or use metric='euclidean'"
    if metric == "hellinger":
        wrong = _empty(rows) | any_in_row(rows, rows.data < 0 if is_sparse(rows) else rows < 0)
        return wrong, "rows of zeros or with negative entries", "It compares proportions, such as counts"
    if metric == "haversine":
        low, high = np.abs(rows[:, 0]) <= np.pi / 2 + 1e-6, np.abs(rows[:, 1]) <= 2 * np.pi + 1e-6
        return ~(low & high), "rows other than latitude and longitude in radians", "Take np.radians of degrees"
    return np.zeros(n, bool), "", ""


def _no_zeros(rows: Any) -> Any:
    found = sparse.csr_array(rows, copy=True)
    found.eliminate_zeros()
    return found


def _empty(rows: Any) -> Array:
    return ~any_in_row(rows, rows.data != 0 if is_sparse(rows) else rows != 0)


def any_in_row(rows: Any, entries: Array) -> Array:
    """Rows (m,) of which some of the ``entries``, of a dense array or stored in CSR rows, are true."""
    if not is_sparse(rows):
        return np.asarray(entries.any(axis=1))
    return row_sums(entries.astype(np.float64), rows.indptr) > 0
