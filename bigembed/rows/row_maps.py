"""Maps of rows, affine or number by number: each row comes out the same to the last bit whatever rows are beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.errors import InputError
from bigembed.rows.categories import unknown_category
from bigembed.rows.reader import columns_named
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.store.arrays import read_array, write_array

# ----------------------------------------------------------------------------------------------------- mapped rows
# Rows as metrics compare them: mapped one by one, so that Euclidean distances between them are those of the metric.


def mapped_rows(rows: Any, metric: str, dtype: Any) -> Any:
    """Rows (m, d), dense or CSR, as they are compared, in ``dtype``.

    Of length one for "cosine"; less their mean, then of length one, for "correlation"; √(x / 2Σx) for "hellinger";
    the point of the unit sphere of a latitude and a longitude in radians for "haversine"; for "spearmanr" the ranks of
    their entries, as for "correlation". Rows that a metric does not
    admit (:func:`inadmissible`) become zeros. CSR rows have no stored zeros; for "correlation" and
    "spearmanr" see :func:`centered_csr`.

    >>> mapped_rows(np.array([[3.0, 4.0]]), "cosine", "f8").tolist()
    [[0.6, 0.8]]
    """
    if is_sparse(rows):
        return _mapped_csr(rows, metric, dtype)
    rows = np.ascontiguousarray(rows, dtype=dtype)
    if metric == "cosine":
        return _unit(rows, dtype)
    if metric in ("correlation", "spearmanr"):
        wide = rows.astype(np.float64) if metric == "correlation" else _ranks(rows)
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
    elif metric in ("correlation", "spearmanr"):
        return centered_csr(found, wide if metric == "correlation" else _ranks_csr(found), dtype)
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


def _ranks(rows: Array) -> Array:
    """Ranks of the entries of each row, equal ones the mean of theirs."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(rows, axis=1), np.float64)


def _ranks_csr(rows: Any) -> Array:
    """Ranks of the entries of CSR rows without stored zeros, less the rank that the zeros of the row share; in a row
    without zeros less a number that is no rank, so that no entry becomes 0."""
    d, indptr, values = rows.shape[1], rows.indptr, rows.data
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((values, row))
    row, ascending = row[order], values[order]
    place = np.arange(len(row)) - indptr[row] + 1.0
    first = np.flatnonzero(np.diff(row, prepend=-1) | (np.diff(ascending, prepend=np.nan) != 0))
    size = np.diff(first, append=len(row))
    zeros = (d - np.diff(indptr)).astype(np.float64)
    rank = np.repeat(place[first] + (size - 1) / 2, size) + np.where(ascending > 0, zeros[row], 0.0)
    middle = row_sums((values < 0).astype(np.float64), indptr) + np.where(zeros > 0, (zeros + 1) / 2, 0.25)
    out = np.empty(len(row))
    out[order] = rank - middle[row]
    return out


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
    if metric in ("cosine", "true_angular", "tsss"):
        advice = "Leave them out (the step 'missing' does with zeros=True), or use metric='euclidean'"
        return empty(rows), "rows of zeros", advice
    if metric in ("bit_hamming", "bit_jaccard"):
        entries = rows.data if is_sparse(rows) else rows
        wrong = any_in_row(rows, ~((entries >= 0) & (entries <= 255) & (entries == np.floor(entries))))
        return wrong, "rows of other than bytes, whole numbers from 0 to 255", "Pack bits by np.packbits(rows, axis=1)"
    if metric in ("correlation", "spearmanr"):
        constant = constant_csr(_no_zeros(rows)) if is_sparse(rows) else (rows == rows[:, :1]).all(axis=1)
        return constant, "rows whose entries are all equal", "Drop them, or use metric='euclidean'"
    if metric in ("hellinger", "jensenshannon", "symmetric_kl", "wasserstein_1d", "circular_kantorovich"):
        wrong = empty(rows) | any_in_row(rows, rows.data < 0 if is_sparse(rows) else rows < 0)
        return wrong, "rows of zeros or with negative entries", "It compares proportions, such as counts"
    if metric == "gower":
        counts = rows[:, rows.shape[1] // 2 :]
        wrong = any_in_row(counts, (counts.data if is_sparse(counts) else counts) < 0)
        wrong |= ~np.asarray(counts.sum(axis=1) > 0).ravel()
        return wrong, "rows of which no column counts, or one less than 0", "Put the step 'gower' before"
    if metric == "haversine":
        low, high = np.abs(rows[:, 0]) <= np.pi / 2 + 1e-6, np.abs(rows[:, 1]) <= 2 * np.pi + 1e-6
        return ~(low & high), "rows other than latitude and longitude in radians", "Take np.radians of degrees"
    return np.zeros(n, bool), "", ""


def _no_zeros(rows: Any) -> Any:
    found = sparse.csr_array(rows, copy=True)
    found.eliminate_zeros()
    return found


def empty(rows: Any) -> Array:
    """Rows (m,), dense or CSR, that hold zeros only."""
    return ~any_in_row(rows, rows.data != 0 if is_sparse(rows) else rows != 0)


def any_in_row(rows: Any, entries: Array) -> Array:
    """Rows (m,) of which some of the ``entries``, of a dense array or stored in CSR rows, are true."""
    if not is_sparse(rows):
        return np.asarray(entries.any(axis=1))
    return row_sums(entries.astype(np.float64), rows.indptr) > 0


# ---------------------------------------------------------------------------------------------------------- affine
# Affine maps of rows: (x − m) A, each row the same to the last bit whatever rows stand beside it.

TILE = 256
"""Rows of a product. A matrix product rounds by its shape, so every product has this one, padded with zeros."""
COLUMNS = 16
"""Columns are padded to a multiple of this, so that all go through the same kernel."""


def affine_block(rows: Any, mean: Array, matrix: Array) -> Array:
    """(x − m) A for dense or CSR rows (n, d), m (d,), A (d, k), in float64; CSR rows by x A − m A.

    >>> affine_block(np.array([[1.0, 2.0]]), np.array([1.0, 0.0]), np.array([[3.0], [5.0]])).tolist()
    [[10.0]]
    """
    if is_sparse(rows):
        return np.asarray(rows.astype(np.float64) @ matrix - mean @ matrix)
    n, d = rows.shape
    k = matrix.shape[1]
    padded = np.zeros((d, -(-k // COLUMNS) * COLUMNS))
    padded[:, :k] = matrix
    out = np.empty((n, k))
    tile, product = np.zeros((TILE, d)), np.empty((TILE, padded.shape[1]))
    for start in range(0, n, TILE):
        part = rows[start : start + TILE]
        tile[: len(part)] = part
        tile[: len(part)] -= mean
        tile[len(part) :] = 0.0
        np.matmul(tile, padded, out=product)
        out[start : start + TILE] = product[: len(part), :k]
    return out


@dataclass(frozen=True)
class Affine:
    """y = (φ − mean) A + b of features φ of a row: the row itself, its squared distances, its kernel values."""

    mean: Array | None
    """(d,); None for zero."""
    matrix: Array
    """A (d, m)."""
    offset: Array | None = None
    """b (m,); None for zero."""

    def __call__(self, features: Any) -> Array:
        """Coordinates (n, m) of features (n, d), each row the same whatever the batch."""
        mean = np.zeros(len(self.matrix)) if self.mean is None else self.mean
        linear = affine_block(features, mean, self.matrix)
        return linear if self.offset is None else np.asarray(linear + self.offset)

    def then(self, matrix: Array, offset: Array) -> Affine:
        """The map followed by y ↦ y matrix + offset."""
        moved = offset if self.offset is None else self.offset @ matrix + offset
        return Affine(self.mean, self.matrix @ matrix, moved)


# ----------------------------------------------------------------------------------------------------- elementwise
# Maps of rows, number by number or row by row: each row the same whatever rows stand beside it.
#
# CSR rows come out as CSR rows: of what leaves 0 as it is, only the stored entries are computed.

NAMED = 5


def as_typed(rows: Any, dtype: Any) -> Any:
    """Dense or CSR rows in a dtype."""
    return rows.astype(dtype, copy=False) if is_sparse(rows) else np.asarray(rows, dtype)


def on_entries(function: Callable[[Array], Array], rows: Any, columns: Array | None = None) -> Any:
    """``function`` of all numbers of a dense block, or of the stored entries of CSR rows.

    ``columns`` (d,), bool: those that it is of; the others stay as they are, and so does the dtype.

    >>> on_entries(np.negative, np.array([[1.0, 2.0]]), np.array([False, True])).tolist()
    [[1.0, -2.0]]
    """
    values = rows.data if is_sparse(rows) else rows
    if columns is None:
        found = function(values)
    else:
        chosen, found = columns[rows.indices] if is_sparse(rows) else columns, np.array(values)
        found[..., chosen] = function(values[..., chosen])
    return with_entries(rows, found) if is_sparse(rows) else found


def with_entries(rows: Any, values: Array) -> Any:
    """CSR rows with these values where the rows have their entries."""
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def shift_and_scale(rows: Any, model: tuple[Array | None, Array | None]) -> Any:
    """(x − m)/s in float64; None for no shift, as CSR rows need it, or no scale.

    >>> shift_and_scale(np.array([[1.0, 4.0]]), (np.array([1.0, 2.0]), np.array([1.0, 4.0]))).tolist()
    [[0.0, 0.5]]
    """
    shift, scale = model
    if is_sparse(rows):
        assert shift is None
        return with_entries(rows, rows.data / (1.0 if scale is None else scale[rows.indices]))
    out = rows.astype(np.float64)
    if shift is not None:
        out -= shift
    if scale is not None:
        out /= scale
    return out


def clipped(rows: Any, model: tuple[float, float, Array | None]) -> Any:
    """Numbers below and above the bounds as the bounds; NaN stays. For CSR rows 0 must lie between them.

    ``model``: the bounds, and the columns (see :func:`on_entries`).
    """
    low, high, columns = model
    return on_entries(lambda values: np.clip(values, low, high), rows, columns)


def marked(rows: Any, model: tuple[Array, Array | None]) -> Any:
    """NaN in place of some numbers; for CSR rows 0 must not be one of them.

    ``model``: the numbers, and the columns (see :func:`on_entries`).
    """
    numbers, columns = model
    return on_entries(lambda held: np.where(np.isin(held, numbers.astype(held.dtype)), np.nan, held), rows, columns)


def log1p_block(rows: Any, model: tuple[Array | None, Sequence[str]], start: int = 0) -> Any:
    """log(1 + x) in float64; InputError that names rows and columns where x ≤ −1.

    ``model``: the columns (see :func:`on_entries`), and the names of all of them.
    """
    columns, names = model
    wrong = on_entries(lambda values: values <= -1, rows)
    row, column = wrong.nonzero()
    if columns is not None:
        row, column = row[columns[column]], column[columns[column]]
    if len(row):
        bad = np.unique(row)
        first = column[row == bad[0]]
        raise InputError(
            f"log1p is of numbers > −1; {len(bad)} of the rows {start}:{start + rows.shape[0]} hold others in "
            f"{columns_named(np.unique(column), names)}, the first are rows {(bad[:NAMED] + start).tolist()}, with "
            f"{min(rows[bad[0], one] for one in first):g}. Clip them before, or leave these columns out"
        )
    return on_entries(lambda values: np.asarray(np.log1p(values, dtype=np.float64)), rows, columns)


def sizes_of(rows: Any, norm: str) -> Array:
    """What each row (m,) is divided by: its sum, its length, the sum or the largest of its absolute values.

    Sums are taken row by row, in an order that depends on the number of columns alone.

    >>> sizes_of(np.array([[3.0, -4.0]]), "l2").tolist(), sizes_of(np.array([[3.0, -4.0]]), "total").tolist()
    ([5.0], [-1.0])
    """
    if is_sparse(rows):
        return _sizes_of_csr(rows, norm)
    given = np.ascontiguousarray(rows, np.float64)
    if norm == "total":
        return np.asarray(given.sum(axis=1))
    if norm == "max":
        return np.asarray(np.abs(given).max(axis=1))
    if norm == "l1":
        return np.asarray(np.abs(given).sum(axis=1))
    return np.asarray(np.sqrt((given * given).sum(axis=1)))


def _sizes_of_csr(rows: Any, norm: str) -> Array:
    wide = rows.data.astype(np.float64)
    if norm == "total":
        return row_sums(wide, rows.indptr)
    if norm == "max":
        largest, some = np.zeros(rows.shape[0]), np.diff(rows.indptr) > 0
        largest[some] = np.maximum.reduceat(np.abs(wide), rows.indptr[:-1][some]) if some.any() else 0
        return largest
    return row_sums(np.abs(wide), rows.indptr) if norm == "l1" else np.sqrt(row_sums(wide * wide, rows.indptr))


def normalized(rows: Any, model: tuple[str, float], start: int = 0) -> Any:
    """Rows over their size, times the target; rows of size 0 as they are. InputError where a total is negative."""
    norm, target = model
    sizes = sizes_of(rows, norm)
    if len(bad := np.flatnonzero(sizes < 0)):
        raise InputError(
            f"rows are divided by their totals, and {len(bad)} of the rows {start}:{start + rows.shape[0]} have a "
            f"negative one, the first are rows {(bad[:NAMED] + start).tolist()}. Use norm='l1' or 'l2'"
        )
    shares = np.where(sizes == 0, 1, sizes / target)
    if is_sparse(rows):
        return with_entries(rows, rows.data / np.repeat(shares, np.diff(rows.indptr)))
    return np.asarray(rows / shares[:, None])


def picked(rows: Any, model: Array) -> Any:
    """Columns of these numbers."""
    found = rows[:, model]
    if is_sparse(found):
        found.sort_indices()
    return found


def indicators(rows: Array, model: tuple[Sequence[Array | None], bool, Sequence[str], str], start: int = 0) -> Array:
    """Each column that has categories as a column of 0 and 1 for each of them; NaN as NaN in all of them.

    ``model``: the categories of each column, None for one that stays; whether others are an InputError (which names
    rows and column); the names of the columns; what ``unknown`` of the step could be instead.

    >>> model = [None, np.array([2.0, 3.0])], True, ["height", "kind"], "zeros"
    >>> indicators(np.array([[5.0, 2.0], [5.0, 3.0]]), model).tolist()
    [[5.0, 1.0, 0.0], [5.0, 0.0, 1.0]]
    """
    categories, strict, names, instead = model
    parts = []
    for number, known in enumerate(categories):
        column = rows[:, number]
        if known is None:
            parts.append(column[:, None])
            continue
        found, missing = column[:, None] == known, np.isnan(column)
        bad = np.flatnonzero(~found.any(axis=1) & ~missing)
        if len(bad) and strict:
            what = f"{column[bad[0]]:g}"
            raise unknown_category(columns_named([number], names), bad, start, len(rows), what, instead)
        parts.append(np.where(missing[:, None], np.nan, found).astype(rows.dtype))
    return np.concatenate(parts, axis=1)


# ---------------------------------------------------------------------------------------------------------- affine
# Affine maps of rows, or of features of rows, by the paths of their arrays: y = (φ − mean) A + b.


@dataclass(frozen=True)
class AffineMap:
    """Where a task finds an affine map. Small and picklable."""

    matrix: str
    """A (d, m); (m, d) where it is ``transposed``."""
    mean: str = ""
    """(d,); none for zero."""
    offset: str = ""
    """b (m,); none for zero."""
    transposed: bool = False
    scale: Array | None = None
    """(m,): what the columns of A are multiplied by."""

    @classmethod
    def within(cls, folder: str, component: int | None = None) -> AffineMap:
        """The map with the arrays ``matrix``, ``mean`` and ``offset`` of a folder, or of one component in it."""
        part = "" if component is None else f"/{component}"
        folder = folder.rstrip("/")
        return cls(f"{folder}/matrix{part}", f"{folder}/mean{part}", f"{folder}/offset{part}")

    def write(self, found: Affine) -> None:
        """Keep a map here."""
        for path, array in ((self.mean, found.mean), (self.matrix, found.matrix), (self.offset, found.offset)):
            assert array is not None
            write_array(path, array)

    def read(self, start: int = 0, stop: int | None = None) -> Affine:
        """The map; of the features ``start:stop`` only, of which the results add up (without ``transposed``)."""
        matrix = read_array(self.matrix, start, stop)
        matrix = matrix.T if self.transposed else matrix
        matrix = matrix if self.scale is None else matrix * self.scale
        mean = read_array(self.mean, start, stop) if self.mean else None
        return Affine(mean, matrix, read_array(self.offset) if self.offset else None)


def project(rows: Any, model: AffineMap) -> Array:
    """Coordinates (n, m) of rows (n, d), dense or CSR."""
    return model.read()(rows)
