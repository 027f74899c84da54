"""Lists, counts and histograms of sparse rows are those of their exact distances, whatever bounds decide first."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from bigembed.distance.compiled import CODES
from bigembed.distance.metrics import RowMetric
from bigembed.distance.names import METRICS, PAIRS, SETS, known
from bigembed.neighbors.exact import empty_lists
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.quality.passes import counts_block, nearest_block
from bigembed.rows.row_maps import mapped_rows

SIGNED = ("euclidean", "cosine", "correlation", "manhattan", "chebyshev", "canberra", "hamming")


def _rows(signed: bool) -> sparse.csr_array:
    """With ties, copies, and many pairs that share no column."""
    rng = np.random.default_rng(0)
    rows = sparse.random_array((260, 60), density=0.06, rng=rng, format="csr", dtype=np.float32)
    rows.data = np.round(rows.data * 4) / 4 + np.float32(0.25)
    if signed:
        rows.data *= rng.choice(np.array([-1, 1], np.float32), rows.nnz)
    rows = rows[np.diff(rows.indptr) > 0]
    return sparse.csr_array(sparse.vstack([rows, rows[:30]]))


@pytest.mark.parametrize("name", CODES)
def test_bounds_change_nothing(name: str) -> None:
    rows, metric, k = mapped_rows(_rows(name in SIGNED), name, "float32"), RowMetric(name), 12
    n, by, every = rows.shape[0], ByMetric(metric, "float32"), np.arange(rows.shape[0])
    exact = metric.squared(rows, rows)
    np.testing.assert_array_equal(exact, exact.T)
    if known(name).graphs == PAIRS:
        dense, called = rows.toarray().astype(np.float64), cast(Any, known(name).scipy)
        np.testing.assert_allclose(np.sqrt(exact), cdist(dense, dense, called), atol=1e-12)
    ids, squared = empty_lists(n, k, np.dtype("float32"))
    by.update_lists(ids, squared, rows, every, rows, every)
    kept = exact.astype(np.float32)
    np.fill_diagonal(kept, np.inf)
    np.testing.assert_array_equal(ids, np.argsort(kept, axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(squared, np.sort(kept, axis=1)[:, :k])

    rng = np.random.default_rng(1)
    asked = np.sort(rng.choice(n, 40, replace=False))
    others = rng.integers(0, n - 1, (40, 9))
    others += others >= asked[:, None]
    far = exact[asked]
    far[np.arange(40), asked] = np.inf
    limits = np.take_along_axis(far, others, 1)
    before = far[:, None] < limits[:, :, None]
    before |= (far[:, None] == limits[:, :, None]) & (every < others[:, :, None])
    counts = counts_block(rows[asked], asked, others, limits, rows, 0, False, metric)
    np.testing.assert_array_equal(counts, before.sum(axis=2))
    near = nearest_block(rows[asked], asked, rows, 0, k, False, metric)
    np.testing.assert_array_equal(near[0], np.argsort(far, axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(near[1], np.sort(far, axis=1)[:, :k])

    bits = np.where(np.isinf(far), 0, far.astype(np.float32) / 4).astype(np.float32).view(np.uint32) >> 16
    bins = by.counts(rows[asked], asked, rows, every, 1, 1 << 16)
    np.testing.assert_array_equal(bins, np.bincount(bits.ravel(), minlength=1 << 16))

    a, b = np.sort(rng.integers(0, n, 900)).astype(np.int32), rng.integers(0, n, 900).astype(np.int32)
    limit = np.full(900, np.quantile(exact, 0.3), np.float32)
    found, true = by.of_pairs(rows)(a, b, limit), exact[a, b].astype(np.float32)
    assert np.all(found[true <= limit] == true[true <= limit])
    assert np.all((found == true) | np.isinf(found))


def test_every_metric_of_graphs_has_a_code() -> None:
    """The compiled functions take a metric by its number; one without would be taken for another."""
    assert {name for name, one in METRICS.items() if one.graphs in (PAIRS, SETS)} <= {*CODES}
    assert len({*CODES.values()}) == len(CODES)
