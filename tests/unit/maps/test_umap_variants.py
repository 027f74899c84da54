"""UMAP that follows more than rows: labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

import bigembed as be
from bigembed.errors import InputError, MapWarning
from bigembed.estimator.pipeline import Pipeline
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.store.arrays import read_array
from tests.blocks import blocks_for
from tests.cases import FEW_EPOCHS
from tests.unit.maps.digits import digits


def dense(umap: Any, stage: str = "kernel") -> np.ndarray:
    """The weights of a stage in the order of the input."""
    run = umap._run
    name = "weights" if run.has("weights") else "graph"
    weights, out = run.matrix(name, "weights", stage), np.zeros((len(umap.embedding_),) * 2)
    starts = np.concatenate([[0], np.cumsum(weights.rows)])
    ids = umap.graph_.original_ids() if name == "graph" else np.arange(starts[-1])
    for b in range(len(weights.rows)):
        block = weights.block(b)
        row = starts[b] + np.repeat(np.arange(weights.rows[b]), np.diff(block.indptr))
        out[ids[row], ids[block.ids(b, starts)[block.indices]]] = block.data
    return out


def by_formula(w: np.ndarray, y: np.ndarray, far: float) -> np.ndarray:
    """Weights that follow labels, of all pairs."""
    distance = np.where(y[:, None] == y, 0.0, far)
    distance[(y[:, None] == -1) | (y == -1)] = 1.0
    v = w * np.exp(-distance)
    a = v / v.max(axis=1, keepdims=True)
    return a + a.T - a * a.T


UMAP_LEARN = {
    0: {8: 0.7416733, 12: 0.6923266, 13: 1.0, 18: 0.3629346, 20: 0.4098854, 30: 1.0, 36: 0.6336426},
    17: {1: 0.0141431, 10: 0.0137545, 14: 1.0, 15: 0.0111548, 21: 1.0, 32: 1.0},
    19: {2: 0.0069949, 22: 1.0, 25: 0.6472754, 31: 0.7856023, 34: 1.0},
}
"""Rows of ``discrete_metric_simplicial_set_intersection`` of umap-learn 0.5.12 at target_weight .5, of the lists and
labels of the test."""
FOLLOWS: dict[str, Any] = {"target_metric": "categorical"}


class TestLabels:
    """Supervised and semi-supervised UMAP: umap-learn's weights; y is read only where that is asked for."""

    def test_weights_are_those_of_the_formula_for_any_blocks_and_graph(self) -> None:
        X, y = digits(300)
        y = np.where(np.arange(300) % 3 == 0, -1, y)
        with blocks_for(300):
            asked: dict[str, Any] = {**FOLLOWS, "n_neighbors": 8, "n_epochs": 1, "target_weight": 0.3, "init": "random"}
            fitted = be.UMAP(**asked).fit(X, y)
            graph = be.build_neighbor_graph(X, 8)
            again = be.UMAP(**asked).fit(graph, np.where(y < 0, np.nan, y))
            plain = be.UMAP(n_neighbors=8, n_epochs=1, init="random").fit(X)
        assert len(fitted._run.results("kernel")["rows"]) > 2
        before, found = dense(fitted, "memberships"), dense(fitted)
        np.testing.assert_allclose(found, by_formula(before, y, 2.5 / 0.7), atol=1e-6)
        assert (found == found.T).all()
        of_graph = by_formula(dense(again, "memberships"), y, 2.5 / 0.7)
        np.testing.assert_allclose(dense(again), of_graph, atol=1e-6)
        assert (dense(plain) == before).all()
        assert abs(found - by_formula(before, y, 2.5 / 0.5)).max() > 0.01
        assert abs(found - by_formula(before, y[::-1], 2.5 / 0.7)).max() > 0.5
        ring = be.datasets.ring_graph(60)
        kept = dense(be.UMAP(**asked).fit(ring, np.arange(60) // 30))
        assert 0 < kept[29, 30] < 0.1 < kept[28, 29]

    def test_weights_are_umap_learns(self) -> None:
        X, y = np.random.default_rng(7).normal(size=(40, 3)) * [3.0, 1.0, 0.3], np.arange(40) % 3
        y[::7] = -1
        found = dense(be.UMAP(n_neighbors=5, n_epochs=1, init="random", **FOLLOWS).fit(X, y))
        for row, stored in UMAP_LEARN.items():
            assert np.flatnonzero(found[row]).tolist() == list(stored)
            np.testing.assert_allclose(found[row, list(stored)], list(stored.values()), atol=1e-5)

    def test_labels_are_read_where_that_is_asked_for(self) -> None:
        X, y = digits(200)
        plain = be.UMAP(**FEW_EPOCHS).fit(X).embedding_
        assert (be.UMAP(**FEW_EPOCHS).fit(X, y).embedding_ == plain).all()
        assert (Pipeline([be.UMAP(**FEW_EPOCHS)]).fit(X, y).method_.embedding_ == plain).all()
        follows = be.UMAP(**FEW_EPOCHS, **FOLLOWS).fit(X, y).embedding_
        assert abs(follows - plain).max() > 0.1
        named = np.array(["unknown", *"abcdefghij"], object)[y + 1]
        assert (be.UMAP(**FEW_EPOCHS, **FOLLOWS).fit_transform(X, named) == follows).all()
        scaled = Pipeline([be.StandardScaler(), be.UMAP(**FEW_EPOCHS, **FOLLOWS)]).fit(X, y)
        assert scaled.method_.certificate_["labels"]["classes"] == 10
        with pytest.raises(
            InputError, match=r"target_metric='categorical' needs a label for each row .*\[input\] labels"
        ):
            be.UMAP(**FOLLOWS).fit(X)
        with pytest.raises(InputError, match=r"labels have shape \(199,\)"):
            be.UMAP(**FOLLOWS).fit(X, y[1:])
        with pytest.raises(InputError, match="no row has a label"):
            be.UMAP(**FOLLOWS).fit(X, np.full(200, -1))
        with pytest.raises(InputError, match="target_weight=2; allowed: a number in \\[0, 1\\]"):
            be.UMAP(target_weight=2, **FOLLOWS).fit(X, y)

    def test_classes_part_new_rows_find_theirs_and_labels_that_say_nothing_are_told(self) -> None:
        X, y = digits(700)
        asked: dict[str, Any] = {"n_epochs": 200, **FOLLOWS}
        plain, random = be.UMAP(n_epochs=200).fit(X[:500]), np.random.default_rng(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", MapWarning)
            fitted = be.UMAP(**asked).fit(X[:500], y[:500])
            some = be.UMAP(**asked).fit(X[:500], np.where(random.random(500) < 0.5, y[:500], -1))
        parted = [silhouette_score(one.embedding_, y[:500]) for one in (plain, some, fitted)]
        assert parted[0] + 0.02 < parted[1] < parted[2] - 0.05
        apart = ((fitted.transform(X[500:])[:, None] - fitted.embedding_[None]) ** 2).sum(axis=-1)
        assert (y[:500][apart.argmin(axis=1)] == y[500:]).mean() > 0.9
        with pytest.warns(MapWarning, match="neighbors share their label in .* the labels say next to nothing"):
            be.UMAP(**asked).fit(X[:500], random.permutation(y[:500]))

    def test_a_job_follows_its_labels(self, tmp_path: Path) -> None:
        X, y = digits(200)
        np.save(tmp_path / "rows.npy", X)
        np.save(tmp_path / "labels.npy", y)
        rows, method = {"path": "rows.npy"}, {"name": "umap", "n_neighbors": 6, "n_epochs": 9, **FOLLOWS}

        def job(out: str, **labels: str) -> Any:
            return parse_job({"input": rows | labels, "method": method, "output": {"path": out}}, tmp_path / "job.toml")

        run_job(job("run.zarr", labels="labels.npy"))
        made = be.UMAP(**FEW_EPOCHS, **FOLLOWS).fit(X, y).embedding_
        np.testing.assert_array_equal(read_array(tmp_path / "run.zarr" / "coordinates"), made)
        with pytest.raises(InputError, match=r"needs a label for each row .* in a job \[input\] labels"):
            run_job(job("other.zarr"))
        assert not (tmp_path / "other.zarr").exists()
