"""Modified and Hessian LLE and tangent space alignment against scikit-learn, against loops over rows, and the truth."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.linalg import eigh, qr, subspace_angles, svd
from sklearn.datasets import make_s_curve, make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding as Reference
from sklearn.neighbors import NearestNeighbors

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, LocalizedWarning, MapWarning
from bigembed.maps.lle.locally_linear import several_weights_block
from bigembed.maps.lle.tangents import hessian_block, tangent_block
from tests.some import a_few

K = 10


@cache
def curve() -> np.ndarray:
    return np.asarray(make_s_curve(450, random_state=0)[0])


@pytest.mark.parametrize(
    ("ours", "method"), [(be.ModifiedLLE(), "modified"), (be.LocalTangentSpaceAlignment(own_row=False), "ltsa")]
)
def test_coordinates_are_those_of_scikit_learn(ours: Any, method: str) -> None:
    X = curve()
    asked: dict[str, Any] = {"n_components": 2, "method": method, "eigen_solver": "dense"}
    found = ours.set_params(n_neighbors=K).fit(X)
    theirs = Reference(n_neighbors=K, **asked).fit(X)
    assert subspace_angles(found.embedding_, theirs.embedding_).max() < 1e-6
    assert found.reconstruction_error_ == pytest.approx(theirs.reconstruction_error_, rel=1e-6)
    other = Reference(n_neighbors=K + 1, **asked).fit(X)
    assert subspace_angles(found.embedding_, other.embedding_).max() > 1e-4  # a control


@cache
def aligned(own_row: bool, local: Any) -> np.ndarray:
    """Eigenvectors of Σ_i S_i local(X_i) S_iᵀ, row after row."""
    X = curve()
    near = NearestNeighbors(n_neighbors=K).fit(X).kneighbors(return_distance=False)
    total = np.zeros((len(X), len(X)))
    for i, ids in enumerate(near):
        inside = [i, *ids] if own_row else list(ids)
        total[np.ix_(inside, inside)] += local(X[inside] - X[inside].mean(axis=0))
    return np.asarray(eigh(total, subset_by_index=[1, 2])[1])


def tangent_matrix(rows: np.ndarray) -> np.ndarray:
    """I − G Gᵀ (Zhang & Zha 2004)."""
    g = np.column_stack([np.full(len(rows), len(rows) ** -0.5), svd(rows)[0][:, :2]])
    return np.asarray(np.eye(len(rows)) - g @ g.T)


def hessian_matrix(rows: np.ndarray) -> np.ndarray:
    """H Hᵀ by Gram–Schmidt on 1, U, U² (Donoho & Grimes 2003)."""
    u, v = svd(rows)[0][:, :2].T
    h = qr(np.column_stack([np.ones(len(rows)), u, v, u * u, u * v, v * v]), mode="economic")[0][:, 3:]
    return np.asarray(h @ h.T)


@a_few(1, "own_row", [True, False])
@pytest.mark.parametrize(
    ("ours", "local", "wrong"),
    [(be.HessianLLE, hessian_matrix, tangent_matrix), (be.LocalTangentSpaceAlignment, tangent_matrix, hessian_matrix)],
)
def test_coordinates_are_those_of_the_formula(ours: Any, local: Any, wrong: Any, own_row: bool) -> None:
    found = ours(n_neighbors=K, own_row=own_row).fit(curve()).embedding_
    assert subspace_angles(found, aligned(own_row, local)).max() < 1e-6
    assert subspace_angles(found, aligned(own_row, wrong)).max() > 1e-4  # a control


def test_with_as_few_neighbors_as_can_be_the_hessian_is_the_alignment() -> None:
    rng = np.random.default_rng(0)
    rows, near = rng.normal(size=(20, 3)), rng.normal(size=(20, 6, 3))
    for own_row, points in ((False, near), (True, near[:, :5])):
        a, b = (block(rows, points, m=2, own_row=own_row) for block in (hessian_block, tangent_block))
        np.testing.assert_allclose(a.transpose(0, 2, 1) @ a, b.transpose(0, 2, 1) @ b, atol=1e-12)


def test_a_swiss_roll_becomes_a_rectangle() -> None:
    X, t = make_swiss_roll(1_200, random_state=1)
    true = np.column_stack([(t * np.sqrt(1 + t * t) + np.arcsinh(t)) / 2, X[:, 1]])

    def left(embedding: np.ndarray) -> float:
        basis = np.column_stack([embedding, np.ones(len(X))])
        rest = true - basis @ np.linalg.lstsq(basis, true, rcond=None)[0]
        return float((rest.var(axis=0) / true.var(axis=0)).max())

    for ours in (be.ModifiedLLE, be.HessianLLE, be.LocalTangentSpaceAlignment):
        assert left(ours(n_neighbors=8).fit_transform(X)) < 0.01
    few = be.LocalTangentSpaceAlignment(n_neighbors=8, solver="landmarks", n_landmarks=700)
    assert left(few.fit_transform(X)) < 0.01
    assert left(be.LocallyLinearEmbedding(n_neighbors=8).fit_transform(X)) > 0.05  # a control


@a_few(1, "ours", [be.HessianLLE, be.LocalTangentSpaceAlignment])
def test_a_row_that_is_nobodys_neighbor_is_held_by_its_own_neighborhood(ours: Any) -> None:
    X = make_swiss_roll(1_200, random_state=0)[0]
    near = NearestNeighbors(n_neighbors=8).fit(X).kneighbors(return_distance=False)
    [alone] = np.setdiff1d(np.arange(len(X)), near)
    held = ours(n_neighbors=8).fit(X)
    assert held.eigenvalues_[0] > 1e-9
    with pytest.warns(
        LocalizedWarning, match=f"coordinate 1 is carried by few rows: 1 above a tenth .* row {alone} against"
    ):
        assert ours(n_neighbors=8, own_row=False).fit(X).eigenvalues_[0] < 1e-20


def test_neighbors_that_repeat_or_lie_on_a_line_leave_finite_conditions() -> None:
    near = np.zeros((3, 7, 3))
    near[1, :, 0], near[2] = np.arange(7), 1.0
    rows = np.zeros((3, 3))
    for found in (
        hessian_block(rows, near, m=2, own_row=True),
        tangent_block(rows, near, m=2, own_row=True),
        several_weights_block(rows, near, m=2, reg=1e-3, level=0.1),
    ):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.sum(axis=2), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (be.HessianLLE(3, n_neighbors=9), r"more than m\(m \+ 3\)/2 = 9 neighbors, .* got n_neighbors=9"),
        (be.HessianLLE(4, n_neighbors=40), r"4 columns of the rows; .* and 3 columns"),
        (be.LocalTangentSpaceAlignment(3, n_neighbors=3), "more neighbors; got 3 columns and n_neighbors=3"),
        (be.ModifiedLLE(3, n_neighbors=3), "need more neighbors and as many columns; got n_neighbors=3 and 3 columns"),
    ],
)
def test_too_few_neighbors_or_columns_are_refused(estimator: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        estimator.fit(curve())
    if estimator.n_components < 4:
        with pytest.raises(InputError, match=said):
            estimator.fit(be.build_neighbor_graph(curve(), estimator.n_neighbors))


def test_conditions_that_leave_coordinates_open_are_said_to() -> None:
    angle = np.linspace(0, np.pi, 100)
    arc = np.column_stack([np.cos(angle), np.sin(angle)])
    said = "3 or more independent coordinates meet all local conditions"
    with pytest.warns(MapWarning), pytest.warns(DegenerateWarning, match=said):
        found = be.HessianLLE(n_components=1, n_neighbors=4, own_row=True).fit(arc)
    assert abs(np.corrcoef(found.embedding_[:, 0], angle)[0, 1]) < 0.5
    determined = be.HessianLLE(n_components=1, n_neighbors=4).fit(arc)
    assert abs(np.corrcoef(determined.embedding_[:, 0], angle)[0, 1]) > 0.999
    assert not any(determined.certificate_["warnings"].values())
