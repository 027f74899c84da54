"""Pseudotime, smoothing and geometric harmonics of a fitted walk, against dense formulas written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse
from scipy.stats import spearmanr

import bigembed as be
from bigembed.errors import InputError, InputTypeError
from tests.blocks import blocks_for

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = 300


def branching(n: int, seed: int = 0, noise: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """Cells of two branches that leave a stem, and how far each has come."""
    rng = np.random.default_rng(seed)
    time, branch = rng.random(n), rng.integers(0, 2, n)
    side = np.where(branch == 1, 1.0, -1.0) * np.maximum(time - 0.4, 0)
    return np.column_stack([time, side]) @ rng.normal(size=(2, 6)) + noise * rng.normal(size=(n, 6)), time


def knn_weights(rows: np.ndarray, k: int) -> Any:
    """Symmetric weights of a graph of nearest neighbors, as somebody else would make them."""
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(rows, k, mode="distance")
    graph.data = np.exp(-np.square(graph.data / np.median(graph.data)))
    return sparse.csr_array(graph.maximum(graph.T))


def dense_pseudotime(weights: Any, root: int, count: int) -> np.ndarray:
    """The formula of Haghverdi et al. and of scanpy: W/(q_i q_j), made symmetric by its degrees; λ/(1 − λ) of each."""
    w = weights.toarray()
    w = w / np.outer(w.sum(axis=1), w.sum(axis=1))
    d = np.sqrt(w.sum(axis=1))
    values, vectors = np.linalg.eigh(w / np.outer(d, d))
    values, vectors = values[::-1][1 : count + 1], vectors[:, ::-1][:, 1 : count + 1]
    scaled = vectors * values / (1 - values)
    return np.linalg.norm(scaled - scaled[root], axis=1)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return branching(N)[0]


@pytest.fixture(scope="module")
def fitted(rows: np.ndarray) -> Any:
    """Of several blocks, so that rows change places."""
    with blocks_for(N):
        return be.DiffusionMap(n_components=8, n_neighbors=10).fit(rows)


def test_pseudotime_of_a_graph_is_the_closed_form(rows: np.ndarray) -> None:
    root = 123
    weights = knn_weights(rows, 10)
    walk = be.DiffusionMap(n_components=14, alpha=1.0, tol=1e-10).fit(be.open_graph(weights))
    found, wanted = be.diffusion_pseudotime(walk, root), dense_pseudotime(weights, root, 14)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * wanted.max())
    assert np.abs(found - dense_pseudotime(weights, root, 13)).max() > 1e-4 * wanted.max()  # (a control)


def test_pseudotime_of_rows_is_how_far_they_came(tmp_path: Path) -> None:
    rows, time = branching(N)
    rows = np.concatenate([rows, rows[[7]]])
    with blocks_for(N):
        fitted = be.DiffusionMap(n_components=8, n_neighbors=10).fit(rows)
        root = int(np.argmin(time))
        found = be.diffusion_pseudotime(fitted, root, workdir=tmp_path / "time")
        assert spearmanr(found[:N], time).statistic > 0.97
        assert found[root] == 0
        assert found[-1] == found[7]
        right = be.diffusion_pseudotime(fitted, root, eigenvectors="right")
        values = fitted.eigenvalues_
        scaled = fitted.embedding_ / (1 - values)
        np.testing.assert_allclose(right, np.linalg.norm(scaled - scaled[root], axis=1), rtol=1e-10)


@pytest.mark.parametrize("t", [0, 3])
def test_smoothing_is_the_power_of_the_walk(rows: np.ndarray, t: int, tmp_path: Path) -> None:
    weights = knn_weights(rows, 8)
    columns = np.random.default_rng(1).normal(size=(N, 5))
    walk = (weights / weights.sum(axis=1)[:, None]).toarray()
    wanted = np.linalg.matrix_power(walk, t) @ columns
    with blocks_for(N), pytest.MonkeyPatch.context() as patch:
        patch.setattr("bigembed.maps.walk.smoothing.BLOCK_BYTES", 8 * 2 * N)  # (several panels)
        graph = be.DiffusionMap(alpha=0.0).fit(be.open_graph(weights))
        found = be.smooth(graph, columns, t)
        np.testing.assert_allclose(found, wanted, atol=1e-12)
        np.testing.assert_array_equal(be.smooth(graph, columns[:, 2], t), found[:, 2])
        np.testing.assert_array_equal(be.smooth(graph, sparse.csr_array(columns), t), found)
        lazy = be.smooth(graph, da.from_array(columns, chunks=(70, 2)), t, workdir=tmp_path / "smooth")
        assert isinstance(lazy, da.Array)
        np.testing.assert_array_equal(lazy, found)
        array = zarr.create_array(tmp_path / "c.zarr", data=columns[:, 2].astype("f4"), chunks=(33,))
        assert array.shape == (N,)
        assert be.smooth(graph, tmp_path / "c.zarr", t).dtype == np.float32


def test_smoothing_rows_that_changed_places(rows: np.ndarray, fitted: Any) -> None:
    with blocks_for(N):
        once = be.smooth(fitted, np.eye(N), 1)
        assert abs(once.sum(axis=1) - 1).max() < 1e-12
        near = np.argsort(((rows[:, None] - rows) ** 2).sum(axis=2), axis=1)[:, :5]
        assert all((once[i, near[i]] > 0).all() for i in range(N))
        np.testing.assert_allclose(be.smooth(fitted, np.eye(N), 2), once @ once, atol=1e-12)


def test_harmonics_extend_functions_and_cut_noise(fitted: Any, rows: np.ndarray) -> None:
    new, later = branching(60, 5)
    _, time = branching(N)
    new = new @ np.linalg.pinv(_plane(5)) @ _plane(0)
    rng = np.random.default_rng(2)
    functions = np.column_stack([time, np.sin(5 * time), 3 + rng.normal(size=(N, 20))])
    found = be.geometric_harmonics(fitted, functions)
    assert found.error[0] < 0.02
    assert found.error[1] < 0.1
    assert found.error[2:].min() > 0.9
    assert np.median(found.cut[2:]) <= 3 < found.cut[1]
    values = found.predict(new)
    assert np.corrcoef(values[:, 0], later)[0, 1] > 0.99
    assert abs(values[:, 2:].mean(axis=1) - 3).max() < 0.3
    basis = np.column_stack([np.ones(N), fitted.embedding_])
    wanted = basis @ np.linalg.lstsq(basis, functions[:, 0], rcond=None)[0]
    whole = be.geometric_harmonics(fitted, functions[:, 0], cut=8)
    np.testing.assert_allclose(whole.fitted_values(), wanted, atol=1e-9)
    assert whole.predict(da.from_array(new, chunks=(20, 6))).compute().shape == (60,)


def _plane(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n = 60 if seed else N
    rng.random(n), rng.integers(0, 2, n)
    return rng.normal(size=(2, 6))


def test_what_cannot_be_used_is_said(fitted: Any, rows: np.ndarray, tmp_path: Path) -> None:
    for root in (-1, N, 2.5):
        with pytest.raises((InputError, InputTypeError), match="root="):
            be.diffusion_pseudotime(fitted, root)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\(299,\); one number a row is needed, so shape \(300,\)"):
        be.smooth(fitted, np.ones(N - 1))
    with pytest.raises(InputError, match=r"the columns have 299 rows, the map has 300"):
        be.geometric_harmonics(fitted, np.ones((N - 1, 2)))
    bad = np.ones((N, 2))
    bad[[5, 9], 1] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinity.*\[5, 9\]"):
        be.smooth(fitted, bad)
    with pytest.raises(InputError, match="NaN"):
        be.geometric_harmonics(fitted, bad)
    with pytest.raises(InputError, match=r"cut=9; the map has 8 coordinates"):
        be.geometric_harmonics(fitted, np.ones(N), cut=9)
    with pytest.raises(InputTypeError, match="t=-1"):
        be.smooth(fitted, np.ones(N), -1)
    fitted.save(tmp_path / "model")
    for use in (lambda one: be.smooth(one, np.ones(N)), lambda one: be.diffusion_pseudotime(one, 0)):
        with pytest.raises(InputTypeError, match="a saved model does not hold its walk"):
            use(be.load(tmp_path / "model"))
        with pytest.raises(InputTypeError, match="PCA has none"):
            use(be.PCA(n_components=1).fit(rows))


def test_other_components_and_islands() -> None:
    apart = np.concatenate([np.arange(40.0), 1e3 + np.arange(50.0), [1e6, 1e6 + 1, 1e6 + 2]])[:, None]
    joint = be.DiffusionMap(n_components=6, n_neighbors=2, components="joint").fit(apart)
    time = be.diffusion_pseudotime(joint, 45)
    assert np.isfinite(time).tolist() == [40 <= row < 90 for row in range(93)]


def test_pseudotime_equals_that_of_scanpy() -> None:
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    rows, time = branching(3_000, noise=0.1)
    cells = anndata.AnnData(rows.astype("f4"))
    scanpy.pp.neighbors(cells, n_neighbors=15, use_rep="X")
    scanpy.tl.diffmap(cells, n_comps=15)
    cells.uns["iroot"] = int(np.argmin(time))
    scanpy.tl.dpt(cells, n_dcs=15)
    walk = be.DiffusionMap(n_components=14, alpha=1.0).fit(cells.obsp["connectivities"])
    found = be.diffusion_pseudotime(walk, cells.uns["iroot"])
    assert spearmanr(found, cells.obs["dpt_pseudotime"]).statistic >= 0.999
