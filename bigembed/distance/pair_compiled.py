"""Compiled distances of pairs of rows by functions of two rows, ours and the user's. Importing this imports numba.

A pair of sparse rows is brought to the columns in which either has an entry, a pair of dense rows has all columns; one
function then serves both. Nothing is compiled with fast-math: a pair has the same bits in every task, and whichever of
the two rows comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from bigembed.distance import FUNCTIONS, named
from bigembed.errors import InputError
from bigembed.runtime.blocks import Array, is_sparse

CODES = {name: code for code, name in enumerate(named(FUNCTIONS))}
EPSILON = float(np.finfo(np.float32).eps)
"""What "symmetric_kl" adds to every number, so that proportions of 0 have a logarithm (as pynndescent does)."""
TEN_DEGREES = np.pi / 18
_NAMES = list(named(FUNCTIONS))
SQUARED, ANGLE, AREAS, SHANNON, LEIBLER, TRANSPORT, CIRCULAR, MATCHING, KULSINSKI, RAO, YULE, BITS, BIT_SETS, GOWER = (
    _NAMES.index(name)
    for name in (
        "sqeuclidean", "true_angular", "tsss", "jensenshannon", "symmetric_kl", "wasserstein_1d",
        "circular_kantorovich", "matching", "kulsinski", "russellrao", "yule", "bit_hamming", "bit_jaccard",
        "gower",
    )
)  # fmt: skip


def every_pair(rows: Any, others: Any, metric: str) -> Array:
    """Return the distances (m, N) of all pairs of rows (m, d) and (N, d), dense or CSR."""
    out = np.empty((rows.shape[0], others.shape[0]))
    if is_sparse(rows):
        _every_sparse(*_parts(rows), *_parts(others), CODES[metric], rows.shape[1], out)
    else:
        _every_dense(np.ascontiguousarray(rows), np.ascontiguousarray(others), CODES[metric], out)
    return out


def squared_pairs(rows: tuple[Array, ...], a: Array, b: Array, metric: str, width: int, out: Array) -> None:
    """Fill ``out`` with squared distances of the rows ``a`` and ``b`` of dense rows, or of the parts of CSR ones."""
    if len(rows) == 1:
        _pairs_dense(rows[0], a, b, CODES[metric], out)
    else:
        parts: tuple[Any, ...] = (*rows, a, b, CODES[metric], width, out)
        _pairs_sparse(*parts)


def _parts(rows: Any) -> tuple[Array, Array, Array]:
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), np.ascontiguousarray(rows.data)


@njit(cache=True, nogil=True)
def _every_dense(rows: Array, others: Array, code: int, out: Array) -> None:
    columns = np.arange(rows.shape[1])
    for i in range(out.shape[0]):
        x = rows[i].astype(np.float64)
        for j in range(out.shape[1]):
            out[i, j] = distance(code, x, others[j].astype(np.float64), columns, rows.shape[1])


@njit(cache=True, nogil=True)
def _pairs_dense(rows: Array, a: Array, b: Array, code: int, out: Array) -> None:
    columns, one = np.arange(rows.shape[1]), out.dtype.type
    for e in range(a.shape[0]):
        x, y = rows[a[e]].astype(np.float64), rows[b[e]].astype(np.float64)
        found = distance(code, x, y, columns, rows.shape[1])
        out[e] = one(found * found)


@njit(cache=True, nogil=True)
def _every_sparse(
    starts: Array, columns: Array, values: Array, starts2: Array, columns2: Array, values2: Array,
    code: int, width: int, out: Array,
) -> None:  # fmt: skip
    for i in range(out.shape[0]):
        low, high = starts[i], starts[i + 1]
        for j in range(out.shape[1]):
            low2, high2 = starts2[j], starts2[j + 1]
            x, y, at = _together(columns[low:high], values[low:high], columns2[low2:high2], values2[low2:high2])
            out[i, j] = distance(code, x, y, at, width)


@njit(cache=True, nogil=True)
def _pairs_sparse(
    starts: Array, columns: Array, values: Array, a: Array, b: Array, code: int, width: int, out: Array
) -> None:  # fmt: skip
    one = out.dtype.type
    for e in range(a.shape[0]):
        i, j, k, m = starts[a[e]], starts[a[e] + 1], starts[b[e]], starts[b[e] + 1]
        x, y, at = _together(columns[i:j], values[i:j], columns[k:m], values[k:m])
        found = distance(code, x, y, at, width)
        out[e] = one(found * found)


@njit(cache=True, nogil=True)
def _together(columns: Array, values: Array, columns2: Array, values2: Array) -> tuple[Array, Array, Array]:
    """Bring two sparse rows to the ascending columns ``at`` in which either has an entry."""
    room = columns.shape[0] + columns2.shape[0]
    x, y, at = np.zeros(room), np.zeros(room), np.empty(room, np.int64)
    i, j, count = 0, 0, 0
    while i < columns.shape[0] or j < columns2.shape[0]:
        first = i < columns.shape[0] and (j == columns2.shape[0] or columns[i] <= columns2[j])
        at[count] = columns[i] if first else columns2[j]
        if j < columns2.shape[0] and columns2[j] == at[count]:
            y[count] = values2[j]
            j += 1
        if first:
            x[count] = values[i]
            i += 1
        count += 1
    return x[:count], y[:count], at[:count]


@njit(cache=True, nogil=True)
def distance(code: int, x: Array, y: Array, at: Array, width: int) -> float:
    """One distance: of the entries x and y in the ascending columns ``at``; in all others of ``width`` both are 0."""
    if code == SQUARED:
        total = 0.0
        for c in range(x.shape[0]):
            total += (x[c] - y[c]) * (x[c] - y[c])
        return total
    if code == ANGLE:
        return _angle(x, y) / np.pi
    if code == AREAS:
        return _areas(x, y)
    if code == SHANNON:
        return _shannon(x, y)
    if code == LEIBLER:
        return _leibler(x, y, width)
    if code in (TRANSPORT, CIRCULAR):
        return _transport(x, y, at, width, code == CIRCULAR)
    if code == GOWER:
        return _gower(x, y, at, width)
    if code in (BITS, BIT_SETS):
        return _bits(x, y, code == BIT_SETS)
    return _of_sets(code, x, y, width)


@njit(cache=True, nogil=True)
def _length(x: Array) -> float:
    """The length of a row; of its largest entry and the rest, so that no square overflows."""
    top = np.abs(x).max() if x.shape[0] else 0.0
    if top == 0.0:
        return 0.0
    total = 0.0
    for c in range(x.shape[0]):
        total += (x[c] / top) * (x[c] / top)
    return float(top * np.sqrt(total))


@njit(cache=True, nogil=True)
def _angle(x: Array, y: Array) -> float:
    """The angle of two rows: 2 atan(‖u − v‖/‖u + v‖) of their directions, which is exact for small ones (Kahan)."""
    p, q = _length(x), _length(y)
    apart, together = 0.0, 0.0
    for c in range(x.shape[0]):
        u, v = x[c] / p, y[c] / q
        apart += (u - v) * (u - v)
        together += (u + v) * (u + v)
    return float(2.0 * np.arctan2(np.sqrt(apart), np.sqrt(together)))


@njit(cache=True, nogil=True)
def _areas(x: Array, y: Array) -> float:
    """The triangle of two rows times their sector, ten degrees added to their angle (Heidarian & Dinneen 2016)."""
    p, q, theta = _length(x), _length(y), _angle(x, y) + TEN_DEGREES
    reach = _length(x - y) + abs(p - q)
    return (p * q * np.sin(theta) / 2.0) * (reach * reach * theta / 2.0) if reach > 0.0 else 0.0


@njit(cache=True, nogil=True)
def _shannon(x: Array, y: Array) -> float:
    """The root of the Jensen–Shannon divergence of proportions, in nats."""
    p, q, total = x.sum(), y.sum(), 0.0
    for c in range(x.shape[0]):
        u, v = x[c] / p, y[c] / q
        mean = (u + v) / 2.0
        total += (u * np.log(u / mean) if u > 0.0 else 0.0) + (v * np.log(v / mean) if v > 0.0 else 0.0)
    return float(np.sqrt(max(total, 0.0) / 2.0))


@njit(cache=True, nogil=True)
def _leibler(x: Array, y: Array, width: int) -> float:
    """Kullback and Leibler's divergence of proportions in both directions, :data:`EPSILON` added to every number."""
    p, q, total = x.sum() + EPSILON * width, y.sum() + EPSILON * width, 0.0
    for c in range(x.shape[0]):
        u, v = (x[c] + EPSILON) / p, (y[c] + EPSILON) / q
        total += (u - v) * (np.log(u) - np.log(v))
    u, v = EPSILON / p, EPSILON / q
    return float(max(total + (width - x.shape[0]) * ((u - v) * (np.log(u) - np.log(v))), 0.0))


@njit(cache=True, nogil=True)
def _transport(x: Array, y: Array, at: Array, width: int, circular: bool) -> float:
    """What it takes to move one histogram onto the other along the columns: Σ|F − G|, on a circle Σ|F − G − μ| with μ
    the median of F − G."""
    count, p, q = x.shape[0], x.sum(), y.sum()
    gaps, apart, above, below = np.empty(count + 1), np.zeros(count + 1), 0.0, 0.0
    gaps[0] = at[0]  # the columns before the first entry, in which F = G = 0
    for c in range(count):
        above += x[c] / p
        below += y[c] / q
        gaps[c + 1] = (at[c + 1] if c + 1 < count else width) - at[c]
        apart[c + 1] = above - below if c + 1 < count else 0.0  # (of all columns F = G = 1)
    middle = _median(apart, gaps, width) if circular else 0.0
    total = 0.0
    for c in range(count + 1):
        total += gaps[c] * abs(apart[c] - middle)
    return total


@njit(cache=True, nogil=True)
def _median(values: Array, counts: Array, width: int) -> float:
    """The median of ``width`` values, each there ``counts`` times."""
    order = np.argsort(values)
    passed, low, high, found = 0.0, 0.0, 0.0, 0
    for place in order:
        passed += counts[place]
        if found == 0 and passed > (width - 1) // 2:
            low, found = values[place], 1
        if found == 1 and passed > width // 2:
            high, found = values[place], 2
    return (low + high) / 2.0


@njit(cache=True, nogil=True)
def _of_sets(code: int, x: Array, y: Array, width: int) -> float:
    """A distance of rows as the sets of the columns in which they are not 0."""
    both, first, second = 0.0, 0.0, 0.0
    for c in range(x.shape[0]):
        if x[c] != 0.0 and y[c] != 0.0:
            both += 1.0
        elif x[c] != 0.0:
            first += 1.0
        elif y[c] != 0.0:
            second += 1.0
    differ = first + second
    if differ == 0.0:
        return 0.0
    if code == MATCHING:
        return differ / width
    if code == KULSINSKI:
        return (differ - both + width) / (differ + width)
    if code == RAO:
        return (width - both) / width
    neither = width - both - differ
    return 2.0 * first * second / (both * neither + first * second) if first > 0.0 and second > 0.0 else 0.0


@njit(cache=True, nogil=True)
def _gower(x: Array, y: Array, at: Array, width: int) -> float:
    """Gower's distance (1971) of the columns of the step "gower": values u_j, v_j, then how much each counts.

    Σ_j c_j min(1, |u_j − v_j|)/Σ_j c_j, c_j the lesser of both counts; 1 where the rows share no column.
    """
    d = width // 2
    apart, counts = np.zeros(d), np.zeros(d)
    for e in range(x.shape[0]):
        c = at[e]
        if c < d:
            apart[c] = min(1.0, abs(x[e] - y[e]))
        elif c < 2 * d:
            counts[c - d] = min(x[e], y[e])
    total, count = 0.0, 0.0
    for c in range(d):
        total += counts[c] * apart[c]
        count += counts[c]
    return total / count if count > 0.0 else 1.0


@njit(cache=True, nogil=True)
def _bits(x: Array, y: Array, sets: bool) -> float:
    """Bits that differ of packed rows, or their share of the bits that either has."""
    differ, either = 0, 0
    for c in range(x.shape[0]):
        p, q = int(x[c]), int(y[c])
        differ += _ones(p ^ q)
        either += _ones(p | q)
    if not sets:
        return float(differ)
    return differ / either if either > 0 else 0.0


@njit(cache=True, nogil=True)
def _ones(byte: int) -> int:
    count = 0
    while byte:
        byte &= byte - 1
        count += 1
    return count


def function_of_rows(metric: str, sparse: bool, width: int) -> Any:
    """Compile a metric as a function of two rows (x, y), or of (columns, values, columns, values) of sparse ones."""
    code, every = CODES[metric], np.arange(width)
    if sparse:

        @njit(nogil=True)
        def of_sparse(columns: Array, values: Array, columns2: Array, values2: Array) -> float:
            x, y, at = _together(columns, values, columns2, values2)
            return float(distance(code, x, y, at, width))

        return of_sparse

    @njit(nogil=True)
    def of_dense(x: Array, y: Array) -> float:
        return float(distance(code, x.astype(np.float64), y.astype(np.float64), every, width))

    return of_dense


# -------------------------------------------------------------------------------------------- a function of the user


def user_pairs(rows: Any, others: Any, function: Callable[..., float], name: str, swapped: Array | None) -> Array:
    """Distances (m, N) by a function of two rows; of CSR rows one of indices, values, indices, values."""
    from numba.core.errors import NumbaError

    out = np.empty((rows.shape[0], others.shape[0]))
    turned = np.zeros((1, 1), bool) if swapped is None else np.ascontiguousarray(swapped)
    try:
        if is_sparse(rows):
            _user_sparse(compiled(function), *_parts(rows), *_parts(others), turned, out)
        else:
            contiguous = np.ascontiguousarray(rows), np.ascontiguousarray(others)
            _user_dense(compiled(function), *contiguous, turned, out)
    except NumbaError as error:
        what = "(indices, values, indices, values) of two sparse rows" if is_sparse(rows) else "(x, y) of two rows"
        raise InputError(
            f"metric={name}: numba cannot compile it as a function of {what} that returns a number: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    return out


@lru_cache(maxsize=8)
def compiled(function: Callable[..., float]) -> Any:
    """The function compiled, unless it is already."""
    return function if hasattr(function, "py_func") else njit(function)


@njit(nogil=True)
def _user_dense(function: Any, rows: Array, others: Array, swapped: Array, out: Array) -> None:
    turns = swapped.shape == out.shape
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            other_first = turns and swapped[i, j]
            out[i, j] = function(others[j], rows[i]) if other_first else function(rows[i], others[j])


@njit(nogil=True)
def _user_sparse(
    function: Any, starts: Array, columns: Array, values: Array, starts2: Array, columns2: Array, values2: Array,
    swapped: Array, out: Array,
) -> None:  # fmt: skip
    turns = swapped.shape == out.shape
    for i in range(out.shape[0]):
        own, held = columns[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]]
        for j in range(out.shape[1]):
            theirs, others = columns2[starts2[j] : starts2[j + 1]], values2[starts2[j] : starts2[j + 1]]
            other_first = turns and swapped[i, j]
            out[i, j] = function(theirs, others, own, held) if other_first else function(own, held, theirs, others)
