"""Rows that repeat: equal rows are one point, and come back when they are transformed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import bigembed as be
from bigembed.maps.walk import stages as affinity
from bigembed.runtime.runtime import Event, using
from bigembed.stages.stage import Stage
from tests.blocks import blocks_of

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")
K = 6


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of at most 300 rows."""
    with blocks_of(300):
        yield


def repeated(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows on a circle with noise, some twice, some three times, two of them more than k times; and which is which."""
    generator = np.random.default_rng(0)
    angle = generator.uniform(0, 2 * np.pi, 400)
    points = np.column_stack([np.cos(angle), np.sin(angle), 0.05 * generator.normal(size=400)])
    which = np.concatenate([np.arange(400), np.arange(60), np.arange(30), np.full(2 * K, 70), np.full(K + 1, 71)])
    which = generator.permutation(which)
    return points[which] * scale, which


def fitted(X: Any, **asked: Any) -> be.DiffusionMap:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return be.DiffusionMap(4, tol=1e-9, **{"n_neighbors": K} | asked).fit(X)


ASKED = [
    {},
    {"bandwidth": "fixed"},
    {"target": "laplace-beltrami"},
    {"metric": "cosine"},
    {"components": "largest"},
    {"n_neighbors": None},
    {"radius": 0.3, "epsilon": 0.02},
    {"solver": "landmarks", "n_landmarks": 100},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_equal_rows_have_equal_coordinates_and_get_them_back(asked: dict[str, Any]) -> None:
    X, which = repeated()
    dm = fitted(X, **asked)
    _, first = np.unique(which, return_index=True)
    np.testing.assert_array_equal(dm.embedding_, dm.embedding_[first][which])
    scale = np.abs(dm.embedding_).max(axis=0)
    np.testing.assert_allclose(dm.transform(X) / scale, dm.embedding_ / scale, atol=1e-5)
    assert len(np.unique(dm.embedding_[first], axis=0)) > 380  # a control: rows that differ are distinguished


def test_rows_without_a_repetition_keep_what_the_solve_gave() -> None:
    X, which = repeated()
    alone = fitted(X[np.unique(which, return_index=True)[1]])
    assert alone._run.results("coordinates")["repeated_rows"] == 0
    assert fitted(X)._run.results("coordinates")["repeated_rows"] == len(X) - 400


def test_rows_that_repeat_are_no_island_of_the_map() -> None:
    """Sixteen of the binary digits are one row, each with the others as its 15 neighbors; it is where its digit is."""
    digits = load_digits()
    rows = (digits.data > 7).astype(np.float32)
    _, which, times = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    copies = which.ravel() == times.argmax()
    assert times.max() > 15
    with blocks_of(4_096), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        map_ = be.DiffusionMap(metric="jaccard").fit(csr_array(rows))
    ends = np.abs(np.asarray(map_.embedding_)).max(axis=0)
    assert (ends < 5).all()  # (of a mean square of 1)
    assert (np.abs(map_.transform(csr_array(rows[copies])) - np.asarray(map_.embedding_)[copies]) < 0.05 * ends).all()


def earlier_stage(*args: Any, **rest: Any) -> Stage:
    """The kernel before rows that repeat got the median scale."""
    stage = Stage(*args)

    def run(context: Any) -> dict[str, Any]:
        return {name: value for name, value in stage.run(context).items() if name != "floored_to"}

    return Stage(stage.name, stage.inputs, stage.parameters, run, stage.cost)


@pytest.mark.parametrize("copies", [True, False])
def test_a_kernel_of_the_earlier_rule_is_made_anew_where_rows_repeat(copies: bool, tmp_path: Path) -> None:
    """And used again where none do, with all that follows."""
    X, which = repeated()
    rows = X if copies else X[np.unique(which, return_index=True)[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(affinity, "own_scales", np.maximum)
        patch.setattr(affinity, "Stage", earlier_stage)
        before = fitted(rows, workdir=str(tmp_path / "run.zarr"))
    assert "floored_to" not in before._run.results("kernel")
    events: list[Event] = []
    with using(observer=events.append):
        dm = fitted(rows, workdir=str(tmp_path / "run.zarr"))
    done = {event.stage for event in events if event.kind == "done"}
    assert done == ({"kernel", "components", "solve", "coordinates", "judgement"} if copies else set())
    np.testing.assert_array_equal(dm.embedding_, fitted(rows).embedding_)
    assert np.array_equal(before.embedding_, dm.embedding_) != copies
