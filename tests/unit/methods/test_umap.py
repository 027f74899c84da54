"""UMAP: the forces of its formulas, the same bytes in memory and by blocks, as good as umap-learn's, new rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

import bigembed as be
from bigembed.blocks.rows import executor
from bigembed.embedding.sampling import options, pool
from bigembed.errors import DegenerateWarning, InputError, InputTypeError
from bigembed.kernels.sampling import has_turn, number_of, step
from bigembed.neighbors.order import Ordered
from tests.blocks import blocks_for
from tests.cases import FEW_EPOCHS, ring

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")


def digits(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(X))[:n]
    return X[chosen], y[chosen]


def log_similarity(one: np.ndarray, other: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """log φ and log(1 − φ), with what softens the latter."""
    squared = ((one - other) ** 2).sum()
    phi = 1 / (1 + a * squared**b)
    return float(np.log(phi)), float(np.log(1 - phi))


def test_a_step_is_along_the_gradient_of_the_cross_entropy() -> None:
    """Two edges, one of which has its turn, and one row of the pool: by differences of the logarithms."""
    a, b, points = 1.58, 0.9, np.array([[0.3, -0.2], [1.5, 0.4], [-1.0, 2.0]])
    drawn = np.array([[3.0, 1.0]])
    indptr, columns, weights = np.array([0, 2]), np.array([1, 2]), np.array([1.0, 0.4], np.float32)
    moved = np.empty((1, 2))
    step(0, 1, 0, 0, indptr, columns, weights, points, drawn, 5, np.array([a, b, 1.0, 3, 1.0, 0, 0.5]), moved)
    gradient, h = np.zeros(2), 1e-6
    for k in range(2):
        shift = h * np.eye(2)[k]
        for sign in (1, -1):
            near = log_similarity(points[0] + sign * shift, points[1], a, b)[0]
            far = log_similarity(points[0] + sign * shift, drawn[0], a, b)[1]
            gradient[k] += sign * (2 * near + 3 * far) / (2 * h)
    expected = points[0] + 0.5 * gradient / (2 * 1.4)
    np.testing.assert_allclose(moved[0], expected, atol=1e-4)
    assert np.abs(moved[0] - (2 * points[0] - expected)).max() > 0.1


def test_an_edge_takes_part_in_its_share_of_the_epochs_and_rows_are_drawn_evenly() -> None:
    for share in (1.0, 0.37, 0.005, 0.001):
        assert sum(has_turn(epoch, share) for epoch in range(500)) == int(500 * share)
    found = np.array([int(number_of(np.uint64(state * 77))) >> 60 for state in range(16_000)])
    assert np.abs(np.bincount(found, minlength=16) - 1_000).max() < 150


def test_it_keeps_neighbors_as_umap_learn_does() -> None:
    """Of these rows umap-learn 0.5.12 has trustworthiness .9861 to .9865 (three seeds, 16 neighbors with the row)."""
    X, y = digits(1_000)
    umap = be.UMAP().fit(X)
    kept = trustworthiness(X, umap.embedding_, n_neighbors=15)
    assert kept > 0.9861 - 0.01
    assert trustworthiness(X, be.PCA(2).fit_transform(X), n_neighbors=15) < kept - 0.1
    near = ((umap.embedding_[:, None] - umap.embedding_[None]) ** 2).sum(axis=-1) + np.diag(np.full(len(y), np.inf))
    assert (y[near.argmin(axis=1)] == y).mean() > 0.93
    assert umap.cross_entropies_[-1] < umap.cross_entropies_[0]
    assert umap.certificate_["start"] == "spectral"


class Killed(Exception):
    """The process ends here."""


def dying(label: str, at: int) -> Callable[..., list[Any]]:
    """An executor that ends the process in a map of this label."""
    made = iter(range(1_000_000))

    def run(calls: Sequence[Callable[[], Any]], name: str) -> list[Any]:
        if name == label and next(made) == at:
            calls[0]()
            raise Killed
        return [call() for call in calls]

    return run


def test_memory_and_blocks_have_the_same_bytes_killed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of fewer rows than there are, so that each block has a share of it."""
    monkeypatch.setattr(pool, "POOL", 100)
    monkeypatch.setattr(options, "REPORT", 7)
    X = digits(400)[0].astype("f4")

    def fit(in_memory: bool, place: str, seed: int = 0) -> Any:
        umap = be.UMAP(n_neighbors=8, n_epochs=12, in_memory=in_memory, random_state=seed, workdir=tmp_path / place)
        return umap.fit(X)

    with blocks_for(400):
        whole = fit(True, "memory")
        assert len(Ordered.open(whole._run.path("order")).starts) > 3
        for label, at in (("move_block", 3), ("pool_block", 3), ("move_block", 1), ("cross_entropy_block", 0)):
            with pytest.raises(Killed), executor(dying(label, at)):
                fit(False, "blocks")
        with pytest.raises(Killed), executor(dying("epochs", 0)):  # (in memory now)
            fit(True, "blocks")
        again = fit(False, "blocks")
        other = fit(True, "other", seed=1)
    assert (whole.embedding_ == again.embedding_).all()
    assert (whole.cross_entropies_ == again.cross_entropies_).all()
    assert len(whole.cross_entropies_) == 2
    assert np.abs(whole.embedding_ - other.embedding_).max() > 0.01


def test_a_new_row_is_placed_by_itself_among_its_kind(tmp_path: Path) -> None:
    X, y = digits(700)
    umap = be.UMAP(n_epochs=200).fit(X[:500])
    before = umap.embedding_.copy()
    placed = umap.transform(X[500:])
    assert (placed[7:9] == umap.transform(X[507:509])).all()
    assert (umap.embedding_ == before).all()
    assert (umap.transform(X[:20]) == before[:20]).all()
    apart = ((placed[:, None] - before[None]) ** 2).sum(axis=-1)
    assert (y[:500][apart.argmin(axis=1)] == y[500:]).mean() > 0.9
    assert (y[:500][apart.argmax(axis=1)] == y[500:]).mean() < 0.3
    umap.save(tmp_path / "model.zarr")
    assert (be.load(tmp_path / "model.zarr").transform(X[500:]) == placed).all()


@pytest.mark.parametrize("start", ["pca", "random", "array"])
def test_every_start_leads_to_a_map(start: str) -> None:
    X = digits(150)[0]
    init = 3 * np.random.default_rng(0).normal(size=(150, 2)) if start == "array" else start
    umap = be.UMAP(init=init, n_neighbors=10, n_epochs=200).fit(X)
    assert trustworthiness(X, umap.embedding_, n_neighbors=10) > 0.93
    assert umap.certificate_["start"] == start


def test_parts_start_from_principal_coordinates_and_stay_apart() -> None:
    X = digits(200)[0]
    X = np.concatenate([X[:100], X[100:] + 200])
    umap = be.UMAP(n_neighbors=8, n_epochs=100).fit(X)
    assert umap.certificate_["start"] == "pca"
    left, right = umap.embedding_[:100], umap.embedding_[100:]
    assert np.linalg.norm(left.mean(axis=0) - right.mean(axis=0)) > left.std() + right.std()


def test_what_cannot_be_mapped_is_said() -> None:
    X = digits(40)[0]
    with pytest.warns(DegenerateWarning, match="n_neighbors=50, and there are 40 rows: 39 were taken"):
        umap = be.UMAP(n_neighbors=50, n_epochs=5).fit(X)
    assert umap.n_neighbors_ == 39
    with pytest.raises(InputTypeError, match="a graph of a radius may join a row to none"):
        be.UMAP().fit(be.build_neighbor_graph(X, radius=20.0))
    for wrong, said in (
        ({"min_dist": 2.0}, "min_dist=2.0; allowed: at most spread, which is 1"),
        ({"local_connectivity": 0.5}, "local_connectivity=0.5; allowed: a number ≥ 1"),
        ({"init": None}, "init=None; allowed: 'pca', 'spectral', 'random'"),
        ({"n_neighbors": 1}, "n_neighbors=1; allowed"),
    ):
        with pytest.raises(InputError, match=said):
            be.UMAP(**wrong).fit(X)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"init has shape \(30, 2\).*\(n, m\) = \(40, 2\)"):
        be.UMAP(init=np.zeros((30, 2))).fit(X)
    assert be.UMAP(n_neighbors=2, n_epochs=5).fit(X[:3]).embedding_.shape == (3, 2)
    with pytest.warns(DegenerateWarning, match="there are 2 rows: 1 were taken"):
        assert be.UMAP(n_epochs=5).fit(X[:2]).certificate_["start"] == "pca"
    same = np.concatenate([X, X[:3], np.repeat(X[:1], 30, axis=0)])
    with pytest.warns(DegenerateWarning, match="33 rows repeat another one"):
        umap = be.UMAP(**FEW_EPOCHS).fit(same)
    assert (umap.embedding_[40:43] == umap.embedding_[:3]).all()
    assert np.isfinite(umap.embedding_).all()


def test_a_users_weights_are_the_memberships() -> None:
    """A ring stays one: neighbors on it are nearest on the map."""
    umap = be.UMAP().fit(ring(200))
    points = np.asarray(umap.embedding_)
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.diag(np.full(len(points), np.inf))
    near = np.abs(apart.argmin(axis=1) - np.arange(len(points)))
    assert (np.minimum(near, len(points) - near) <= 3).all()
    assert umap.n_neighbors_ is None
    with pytest.raises(InputTypeError, match="a user's graph"):
        umap.transform(points)
