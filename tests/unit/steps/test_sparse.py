"""Steps on sparse rows: what they make of the same rows dense, never dense on the way; what they refuse."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import bigembed as be
from bigembed.errors import InputError, InputTypeError
from bigembed.jobs.extend import extend
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.rows.derived import MappedSource
from bigembed.rows.sparse import write_csr
from bigembed.steps.columns import normalized_dispersion
from bigembed.store.arrays import read_array
from bigembed.store.paths import at
from tests.blocks import blocks_of

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N, D = 600, 90
_RANDOM = np.random.default_rng(2)
_KINDS = np.where(_RANDOM.random((3, D)) < 0.1, 6.0, 1.0)[_RANDOM.integers(0, 3, N)]
COUNTS = _RANDOM.poisson(_RANDOM.gamma(0.4, 0.6, D) * _KINDS).astype("f4")
COUNTS[:, 5] = 0
ROWS = sparse.csr_array(COUNTS)
HOLES = sparse.csr_array(ROWS, copy=True)
HOLES.data[[3, 700, 701]] = np.nan
STEPS: dict[str, Any] = {
    "normalize": be.Normalizer("total"),
    "lengths": be.Normalizer(),
    "sums": be.Normalizer("l1"),
    "largest": be.Normalizer("max"),
    "log1p": be.Log1p(),
    "some": be.Columns([7, 2, 30]),
    "variance": be.Columns(most_variable=20),
    "dispersion": be.Columns(most_variable=20, by="dispersion"),
    "scale": be.StandardScaler(with_mean=False),
    "clip": be.Clip(low=-1, high=2),
}
RECIPE = [
    be.Normalizer("total", target=1e4),
    be.Columns(most_variable=40, by="dispersion"),
    be.Log1p(),
    be.StandardScaler(with_mean=False),
    be.Clip(high=10),
    be.PCA(n_components=6),
]
TABLES = [
    {"name": "normalize", "norm": "total", "target": 1e4},
    {"name": "columns", "most_variable": 40, "by": "dispersion"},
    {"name": "log1p"},
    {"name": "standardize", "with_mean": False},
    {"name": "clip", "high": 10.0},
    {"name": "pca", "n_components": 6},
]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_leaves_rows_sparse_and_makes_the_same_of_them(name: str) -> None:
    step, expected = STEPS[name], STEPS[name].fit_transform(COUNTS)
    found = step.fit_transform(ROWS)
    assert sparse.issparse(found)
    assert found.nnz <= ROWS.nnz
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)
    assert abs(found.toarray() - COUNTS[:, : found.shape[1]]).max() > 0.1
    np.testing.assert_array_equal(step.transform(ROWS[50:53]).toarray(), found[50:53].toarray())


def test_missing_values_among_stored_entries() -> None:
    dense, there = HOLES.toarray(), ~np.isnan(HOLES.toarray()).any(axis=1)
    found = be.Missing().fit(HOLES)
    np.testing.assert_array_equal(found.embedding_.toarray(), COUNTS[there])
    np.testing.assert_array_equal(found.rows_, np.flatnonzero(there))
    with blocks_of(100):
        filled = be.Missing("fill").fit(HOLES)
    np.testing.assert_allclose(filled.embedding_.toarray(), be.Missing("fill").fit_transform(dense), rtol=1e-6)
    assert filled.missing_.sum() == 3
    with pytest.raises(InputError, match=r'medians of sparse.*fill with "mean"'):
        be.Missing("fill", fill="median").fit(HOLES)


def recipe_of_scikit_learn() -> tuple[Any, Any]:
    """Components of the recipe on dense rows, and the columns that Scanpy's formula chooses."""
    shares = COUNTS * (1e4 / COUNTS.sum(axis=1, keepdims=True, dtype="f8"))
    mean, variance = shares.mean(axis=0), shares.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(np.where(variance > 0, variance / mean, np.nan))
    size = np.log1p(mean)
    edges = np.linspace(size.min(), size.max(), 21)
    edges[0] -= 1e-3
    score = np.full(D, -np.inf)
    for low, high in pairwise(edges):
        inside = (size > low) & (size <= high) & np.isfinite(log)
        if inside.sum() > 1:
            score[inside] = (log[inside] - log[inside].mean()) / log[inside].std(ddof=1)
        elif inside.any():
            score[inside] = 1.0
    chosen = np.sort(np.argsort(-score, kind="stable")[:40])
    scaled = StandardScaler(with_mean=False).fit_transform(np.log1p(shares[:, chosen])).clip(max=10)
    return PCA(6, svd_solver="full").fit_transform(scaled), chosen


def test_the_recipe_is_that_of_scikit_learn_on_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, chosen = recipe_of_scikit_learn()
    dense: list[Any] = []
    of_block = MappedSource.read
    monkeypatch.setattr(MappedSource, "read", lambda self, a, b: dense.append(of_block(self, a, b)) or dense[-1])
    with blocks_of(150):
        found = be.Pipeline([*RECIPE[:-1], be.PCA(n_components=6)]).fit(ROWS)
    assert all(sparse.issparse(rows) for rows in dense)
    assert dense
    np.testing.assert_array_equal(found.steps_[1].columns_, chosen)
    np.testing.assert_allclose(found.embedding_, expected, atol=2e-5 * np.abs(expected).max())
    np.testing.assert_allclose(found.transform(COUNTS), found.embedding_, atol=1e-5)
    other = be.Pipeline([*RECIPE[2:5], be.PCA(n_components=6)]).fit(ROWS).embedding_
    assert np.abs(other - expected).max() > 0.1
    with pytest.raises(InputError, match="negative mean"):
        be.Columns(most_variable=2, by="dispersion").fit(-COUNTS)
    assert np.isnan(normalized_dispersion(np.array([0.0, 1.0]), np.array([0.0, 1.0]))[0])


def test_all_kinds_of_sparse_rows_make_the_same_bytes(tmp_path: Path) -> None:
    write_csr(at(tmp_path / "rows.zarr"), ROWS)
    write_csr(at(tmp_path / "new.zarr"), ROWS[:40])
    method = be.PCA(n_components=2)
    expected = be.Pipeline([*RECIPE, method]).fit(ROWS)
    blocks = da.from_array(COUNTS, chunks=(170, D)).map_blocks(sparse.csr_array)
    for rows in (tmp_path / "rows.zarr", blocks):
        found = be.Pipeline([*RECIPE, method]).fit(rows)
        np.testing.assert_array_equal(np.asarray(found.embedding_), expected.embedding_)
    lazy = be.Log1p().fit(tmp_path / "rows.zarr").transform(tmp_path / "rows.zarr")
    assert sparse.issparse(lazy.compute())
    tables = {"input": {"path": "rows.zarr"}, "method": {"name": "pca", "n_components": 2}, "steps": TABLES}
    job = parse_job(tables | {"output": {"path": "run.zarr", "model": "model"}}, tmp_path / "job.toml")
    assert dict(make_plan(job).stages)["step4-standardize-moments"].read < 2 * 12 * (ROWS.nnz + 2 * N)
    run_job(job)
    assert not (tmp_path / "run-input.zarr").exists()
    found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
    np.testing.assert_array_equal(found, expected.embedding_)
    extend(tmp_path / "model", tmp_path / "new.zarr", tmp_path / "placed.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "placed.zarr"), expected.transform(ROWS[:40]))


REFUSED = {
    "mean": ([be.StandardScaler(), be.PCA(2)], InputError, "with_mean=False.*A PCA that follows.*ingest --dense"),
    "median": ([be.RobustScaler(), be.PCA(2)], InputError, "take standardize with_mean=False"),
    "bounds": ([be.Clip(low=1), be.PCA(2)], InputError, "low ≤ 0 ≤ high"),
    "categories": ([be.OneHotEncoder([1]), be.PCA(2)], InputError, "leave the step out"),
    "method": ([be.Log1p(), be.ClassicalMDS(2)], InputTypeError, "ClassicalMDS takes dense rows.*Add a PCA"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_make_rows_dense_is_refused(case: str) -> None:
    steps, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        be.Pipeline(steps).fit(ROWS)
    model = be.Pipeline(steps).fit(COUNTS)
    with pytest.raises(error, match=message):
        model.transform(ROWS)


def test_steps_alone_write_no_sparse_array(tmp_path: Path) -> None:
    write_csr(at(tmp_path / "rows.zarr"), ROWS)
    with pytest.raises(InputError, match="an array is dense"):
        be.Log1p().fit_transform_to(tmp_path / "rows.zarr", tmp_path / "out.zarr")


def test_a_square_matrix_is_rows_where_steps_go_before() -> None:
    square = ROWS[:D]
    found = be.Pipeline([be.Log1p(), be.DiffusionMap(n_components=2, n_neighbors=5)]).fit(square)
    dense = be.Pipeline([be.Log1p(), be.DiffusionMap(n_components=2, n_neighbors=5)]).fit(square.toarray())
    np.testing.assert_allclose(np.abs(found.embedding_), np.abs(dense.embedding_), atol=1e-4)
