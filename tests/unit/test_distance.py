"""Distances of rows, dense and sparse."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from bigembed.distance import METRICS, NAMES, PAIRS, SETS, Metric, checked_metric, known, refuse_square, wrong_entries
from bigembed.distance.metrics import RowMetric
from bigembed.distance.sparse_compiled import CODES
from bigembed.errors import InputError
from bigembed.neighbors import empty_lists
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.quality.passes import counts_block, nearest_block
from bigembed.rows.row_maps import mapped_rows
from bigembed.runtime.parameters import function_of, importable
from tests.unit.block_functions import WORDS, manhattan, word_distance

NEEDED: dict[str, dict[str, Any]] = {
    "seuclidean": {"V": np.array([1.0, 4.0, 9.0])},
    "mahalanobis": {"VI": np.eye(3) / 2},
}


def blocks() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((9, 3), np.float32), rng.random((5, 3), np.float32)


class TestDistances:
    """Distances of blocks: by name, by function, by ids; what is refused, and how it is named."""

    @pytest.mark.parametrize("name", NAMES)
    def test_every_name_is_what_scipy_calls_so(self, name: str) -> None:
        a, b = blocks()
        metric = checked_metric(name, NEEDED.get(name))
        found = metric.between(a, b)
        np.testing.assert_allclose(found, cdist(a, b, name, **NEEDED.get(name, {})), atol=1e-15)
        alone = np.concatenate([metric.between(a[i : i + 1], b) for i in range(len(a))])
        np.testing.assert_array_equal(found, alone)  # a row gets the same in any block

    def test_rounding_below_zero_is_zero_and_nan_stays(self) -> None:
        row = np.array([[1.0, 1.0 / 3, 0.1]])
        assert Metric("cosine").between(row, 3 * row).min() >= 0
        assert np.isnan(Metric("cosine").between(np.zeros((1, 3)), row)).all()

    def test_a_function_gets_blocks_of_rows_or_of_ids(self) -> None:
        a, b = blocks()
        for metric in (manhattan, "tests.unit.block_functions:manhattan"):
            np.testing.assert_allclose(checked_metric(metric, None).between(a, b), cdist(a, b, "cityblock"), rtol=1e-6)
        words = checked_metric(word_distance, None, ids=True)
        ids = np.arange(len(WORDS), dtype=np.float64)[:, None]
        found = words.between(ids, ids[:2])
        assert found[WORDS.index("share"), WORDS.index("stone")] == 3
        assert found[1, 0] == 1
        np.testing.assert_array_equal(np.concatenate([part for _, part in words.tiles(ids, ids[:2])]), found)

    def test_functions_are_found_by_their_names(self) -> None:
        assert function_of("tests.unit.block_functions:manhattan") is manhattan
        assert importable(manhattan)
        assert not importable(lambda a, b: a @ b.T)
        assert Metric(manhattan).key() != Metric(word_distance).key()
        assert "abs" in Metric(manhattan).key()["source"]

    @pytest.mark.parametrize(
        ("metric", "parameters", "ids", "message"),
        [
            ("cityblok", None, False, "did you mean 'cityblock'"),
            ("mahalanobis", None, False, r"needs metric_params=\{'VI': …\}"),
            ("seuclidean", {}, False, "property of all rows"),
            ("euclidean", {"q": 3}, False, "q"),
            ("euclidean", None, True, "ids=True"),
            (3, None, False, "metric=3"),
            ("nowhere.at.all:function", None, False, "cannot be imported"),
            ("tests.unit.block_functions:WORDS", None, False, "is list, not a function"),
        ],
    )
    def test_what_is_no_metric_is_refused(self, metric: Any, parameters: Any, ids: bool, message: str) -> None:
        with pytest.raises(InputError, match=message):
            checked_metric(metric, parameters, ids)

    @pytest.mark.parametrize("function", [lambda a, b: np.zeros(len(a)), lambda a, b: np.full((len(a), len(b)), "far")])
    def test_what_a_function_returns_is_looked_at(self, function: Any) -> None:
        with pytest.raises(InputError, match=r"a block function returns real distances of shape \(9, 5\)"):
            Metric(function).between(*blocks())

    def test_a_function_of_two_rows_is_told_from_one_of_blocks(self) -> None:
        def pair(x: Any, y: Any) -> float:
            return 0.0 if (x == y).all() else float(np.linalg.norm(x - y))

        def choosing(x: Any, y: Any) -> float:
            return 1.0 if x[0] > y[0] else 2.0

        a, b = blocks()
        for function in (pair, choosing):
            with pytest.raises(InputError, match=r"A function of two rows becomes one as lambda a, b: .*cdist"):
                Metric(function).between(a[:5], b)
        np.testing.assert_allclose(Metric(lambda a, b: cdist(a, b, pair)).between(a, b), cdist(a, b))

    @pytest.mark.parametrize("name", ["jaccard", "rogerstanimoto", "sokalsneath", "tanimoto"])
    def test_marks_are_compared_as_scipy_compares_them(self, name: str) -> None:
        marks = np.random.default_rng(0).random((40, 70)) < np.linspace(0.02, 0.9, 40)[:, None]
        wanted = cdist(marks, marks[::-1], "jaccard" if name == "tanimoto" else name)
        for rows in (marks, marks.astype("u1"), marks.astype("f4")):
            np.testing.assert_array_equal(checked_metric(name, None).between(rows, rows[::-1]), wanted)
        other = np.where(marks, 2.5, 0.0)
        np.testing.assert_array_equal(checked_metric(name, None).between(other, 3 * other[::-1]), wanted)

    def test_wrong_entries_are_named(self) -> None:
        good = np.zeros((3, 4))
        assert wrong_entries(good) == []
        assert wrong_entries(np.zeros((0, 4))) == []
        for value in (np.inf, -1.0):
            bad = good.copy()
            bad[2, 1] = value
            assert wrong_entries(bad, 100, 7) == [(102, 8, value)]
        bad[0, 0] = np.nan
        assert [(i, j) for i, j, _ in wrong_entries(bad)] == [(0, 0), (2, 1)]

    @pytest.mark.parametrize(
        ("i", "j", "value", "message"),
        [
            (1, 2, 9.0, "not symmetric: between rows 1 and 2 they are 9 and 1"),
            (3, 3, 0.5, "distance of a row to itself is 0; 1 of 4 rows"),
            (0, 1, np.nan, r"\(0, 1\): nan"),
            (0, 1, -2.0, r"\(0, 1\): -2"),
        ],
    )
    def test_a_square_of_distances_is_checked(self, i: int, j: int, value: float, message: str) -> None:
        square = 1.0 - np.eye(4)
        refuse_square(square + 1e-7 * np.arange(16).reshape(4, 4) * (1 - np.eye(4)), "metric=x")  # rounding is let pass
        square[i, j] = value
        with pytest.raises(InputError, match=message):
            refuse_square(square, "metric=x")


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


class TestSparseLists:
    """Lists, counts and histograms of sparse rows are those of their exact distances, whatever bounds decide first."""

    @pytest.mark.parametrize("name", CODES)
    def test_bounds_change_nothing(self, name: str) -> None:
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

    def test_every_metric_of_graphs_has_a_code(self) -> None:
        """The compiled functions take a metric by its number; one without would be taken for another."""
        assert {name for name, one in METRICS.items() if one.graphs in (PAIRS, SETS)} <= {*CODES}
        assert CODES["spearmanr"] == CODES["correlation"]  # (of ranks)

    assert len({*CODES.values()}) == len(CODES) - 1
