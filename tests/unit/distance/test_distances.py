"""Distances of blocks: by name, by function, by ids; what is refused, and how it is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bigembed.distance.pairwise import NAMES, Metric, checked_metric, refuse_square, wrong_entries
from bigembed.errors import InputError
from bigembed.runtime.parameters import function_of, importable
from tests.unit.block_functions import WORDS, manhattan, word_distance

NEEDED: dict[str, dict[str, Any]] = {
    "seuclidean": {"V": np.array([1.0, 4.0, 9.0])},
    "mahalanobis": {"VI": np.eye(3) / 2},
}


def blocks() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((9, 3), np.float32), rng.random((5, 3), np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_what_scipy_calls_so(name: str) -> None:
    a, b = blocks()
    metric = checked_metric(name, NEEDED.get(name))
    found = metric.between(a, b)
    np.testing.assert_allclose(found, cdist(a, b, name, **NEEDED.get(name, {})), atol=1e-15)
    alone = np.concatenate([metric.between(a[i : i + 1], b) for i in range(len(a))])
    np.testing.assert_array_equal(found, alone)  # a row gets the same in any block


def test_parameters_and_other_names_reach_scipy() -> None:
    a, b = blocks()
    cubes = checked_metric("minkowski", {"p": 3}).between(a, b)
    np.testing.assert_allclose(cubes, cdist(a, b, "minkowski", p=3))
    assert not np.allclose(cubes, cdist(a, b, "minkowski", p=2))
    np.testing.assert_array_equal(checked_metric("manhattan", None).between(a, b), cdist(a, b, "cityblock"))
    assert checked_metric("l2", None).euclidean
    assert not checked_metric("cityblock", None).euclidean
    assert not checked_metric("euclidean", {"w": np.ones(3)}).euclidean


def test_rounding_below_zero_is_zero_and_nan_stays() -> None:
    row = np.array([[1.0, 1.0 / 3, 0.1]])
    assert Metric("cosine").between(row, 3 * row).min() >= 0
    assert np.isnan(Metric("cosine").between(np.zeros((1, 3)), row)).all()


def test_a_function_gets_blocks_of_rows_or_of_ids() -> None:
    a, b = blocks()
    for metric in (manhattan, "tests.unit.block_functions:manhattan"):
        np.testing.assert_allclose(checked_metric(metric, None).between(a, b), cdist(a, b, "cityblock"), rtol=1e-6)
    words = checked_metric(word_distance, None, ids=True)
    ids = np.arange(len(WORDS), dtype=np.float64)[:, None]
    found = words.between(ids, ids[:2])
    assert found[WORDS.index("share"), WORDS.index("stone")] == 3
    assert found[1, 0] == 1
    np.testing.assert_array_equal(np.concatenate([part for _, part in words.tiles(ids, ids[:2])]), found)


def test_functions_are_found_by_their_names() -> None:
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
def test_what_is_no_metric_is_refused(metric: Any, parameters: Any, ids: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked_metric(metric, parameters, ids)


@pytest.mark.parametrize("function", [lambda a, b: np.zeros(len(a)), lambda a, b: np.full((len(a), len(b)), "far")])
def test_what_a_function_returns_is_looked_at(function: Any) -> None:
    with pytest.raises(InputError, match=r"a block function returns real distances of shape \(9, 5\)"):
        Metric(function).between(*blocks())


def test_wrong_entries_are_named() -> None:
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
def test_a_square_of_distances_is_checked(i: int, j: int, value: float, message: str) -> None:
    square = 1.0 - np.eye(4)
    refuse_square(square + 1e-7 * np.arange(16).reshape(4, 4) * (1 - np.eye(4)), "metric=x")  # rounding is let pass
    square[i, j] = value
    with pytest.raises(InputError, match=message):
        refuse_square(square, "metric=x")
