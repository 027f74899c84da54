"""Diffusion maps against closed forms and dense references."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import eigh, subspace_angles
from scipy.sparse import block_diag, csr_array

import bigembed as be
from bigembed.errors import (
    ComponentsWarning,
    ConvergenceWarning,
    DegenerateWarning,
    DisconnectedGraphError,
    InputError,
    InputTypeError,
    NotFittedError,
)
from tests.unit.maps.test_judgement import ring

# Formulas are tested on graphs that the certificate marks, and rightly: that is the subject of test_judgement.py.
pytestmark = [
    pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning"),
    pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning"),
]


def blobs(*sizes: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.normal(size=(size, 3)) + 60 * number for number, size in enumerate(sizes)])


def reference(X: np.ndarray, k: int, epsilon: float, alpha: float, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and RᵀΠR = I right eigenvectors of P by a dense eigensolver (seed 000, §9.2 and §9.6)."""
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    near = np.argsort(squared + np.where(np.eye(len(X)), np.inf, 0), axis=1, kind="stable")[:, :k]
    joined = np.eye(len(X), dtype=bool)
    np.put_along_axis(joined, near, True, axis=1)
    kernel = np.where(joined | joined.T, np.exp(-squared / epsilon), 0.0)
    q = kernel.sum(axis=1)
    weights = kernel / np.outer(q, q) ** alpha
    d = weights.sum(axis=1)
    values, vectors = eigh(weights / np.sqrt(np.outer(d, d)))
    return values[::-1][1 : m + 1], vectors[:, ::-1][:, 1 : m + 1] * np.sqrt(d.sum() / d)[:, None]


def test_ring_graph_is_mapped_to_a_circle() -> None:
    n = 60
    dm = be.DiffusionMap(n_components=4, t=0).fit(ring(n))
    np.testing.assert_allclose(dm.eigenvalues_, np.cos(2 * np.pi * np.array([1, 1, 2, 2]) / n), atol=1e-12)
    radius = np.hypot(dm.embedding_[:, 0], dm.embedding_[:, 1])
    np.testing.assert_allclose(radius, np.sqrt(2), atol=1e-9)  # RᵀΠR = I with π = 1/n


def test_large_ring_graph_by_the_iterative_solver() -> None:
    n = 2_500
    dm = be.DiffusionMap(n_components=4, t=0, tol=1e-9).fit(ring(n))
    np.testing.assert_allclose(dm.eigenvalues_, np.cos(2 * np.pi * np.array([1, 1, 2, 2]) / n), atol=1e-12)
    assert dm.certificate_["passes"] > 0


def test_complete_graph_is_a_simplex() -> None:
    n = 12
    dm = be.DiffusionMap(n_components=n - 1).fit(csr_array(np.ones((n, n)) - np.eye(n)))
    np.testing.assert_allclose(dm.eigenvalues_, -1 / (n - 1), atol=1e-12)
    lengths = np.linalg.norm(dm.embedding_[:, None] - dm.embedding_[None], axis=2)[~np.eye(n, dtype=bool)]
    np.testing.assert_allclose(lengths, lengths[0])


def test_two_disjoint_rings_are_told_apart_first() -> None:
    n1, n2 = 30, 20
    with pytest.warns(ComponentsWarning, match="2 components"):
        dm = be.DiffusionMap(n_components=5, t=0).fit(csr_array(block_diag([ring(n1), ring(n2)])))
    np.testing.assert_allclose(
        dm.eigenvalues_,
        [1, *np.cos(2 * np.pi * np.array([1, 1]) / n1), *sorted([np.cos(2 * np.pi / n2)] * 2)],
        atol=1e-12,
    )
    first = dm.embedding_[:, 0]
    np.testing.assert_allclose(first / first[0] * n2, np.r_[np.full(n1, n2), np.full(n2, -n1)])
    assert np.abs(dm.embedding_[n1:, 1:3]).max() < 1e-12  # then the larger ring
    assert dm.labels_.tolist() == [0] * n1 + [1] * n2


def test_a_shortcut_draws_its_ends_together() -> None:
    n = 100
    graph = ring(n).tolil()
    graph[0, n // 2] = graph[n // 2, 0] = 1
    plain, short = (be.DiffusionMap(n_components=2, t=0).fit(csr_array(g)).embedding_ for g in (ring(n), graph))
    assert np.linalg.norm(short[0] - short[n // 2]) < 0.3 * np.linalg.norm(plain[0] - plain[n // 2])


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, -0.3])
def test_agrees_with_a_dense_eigensolver(alpha: float) -> None:
    X = np.random.default_rng(0).normal(size=(400, 3))
    dm = be.DiffusionMap(n_components=5, n_neighbors=10, alpha=alpha, epsilon=0.7, t=0).fit(X)
    values, right = reference(X, 10, 0.7, alpha, 5)
    np.testing.assert_allclose(dm.eigenvalues_, values, atol=1e-7)
    assert subspace_angles(dm.embedding_, right).max() < 1e-5
    wrong = reference(X, 10, 0.7, alpha + 0.5, 5)[1]  # a control: another alpha is distinguished
    assert subspace_angles(dm.embedding_, wrong).max() > 1e-2


def test_normalization_is_that_of_the_source() -> None:
    X = np.random.default_rng(1).normal(size=(300, 3))
    dm = be.DiffusionMap(n_components=3, n_neighbors=10, alpha=0.0, epsilon=0.7, t=0).fit(X)
    values, right = reference(X, 10, 0.7, 0.0, 3)
    signs = np.sign((right * dm.embedding_).sum(axis=0))
    np.testing.assert_allclose(dm.embedding_, right * signs, atol=1e-5)
    scaled = be.DiffusionMap(n_components=3, n_neighbors=10, alpha=0.0, epsilon=0.7, t=3).fit(X)
    np.testing.assert_allclose(scaled.embedding_, dm.embedding_ * values**3, atol=1e-5)
    np.testing.assert_allclose(
        scaled.diffusion_distance(4, 9)[0], np.linalg.norm(scaled.embedding_[4] - scaled.embedding_[9])
    )


def test_complete_map_gives_diffusion_distances() -> None:
    """Seed 000 eqs. 23 and 25: with all coordinates, distances equal Σ_m (p_im − p_jm)²/π_m."""
    X = np.random.default_rng(2).normal(size=(40, 2))
    dm = be.DiffusionMap(n_components=39, n_neighbors=None, alpha=0.0, epsilon=1.5, t=2).fit(X)
    kernel = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / 1.5)
    pi = kernel.sum(axis=1) / kernel.sum()
    P = np.linalg.matrix_power(kernel / kernel.sum(axis=1, keepdims=True), 2)
    i, j = np.array([0, 5, 7]), np.array([3, 9, 30])
    wanted = np.sqrt(((P[i] - P[j]) ** 2 / pi).sum(axis=1))
    np.testing.assert_allclose(dm.diffusion_distance(i, j), wanted, rtol=1e-5)


def test_time_and_truncation_by_accuracy() -> None:
    X = np.random.default_rng(3).normal(size=(300, 3))
    values = be.DiffusionMap(n_components=4, n_neighbors=10, t=0).fit(X).eigenvalues_
    auto = be.DiffusionMap(n_components=4, n_neighbors=10, t="auto", delta=0.1).fit(X)
    assert (values[3] / values[0]) ** auto.t_ <= 0.1 < (values[3] / values[0]) ** (auto.t_ - 1)
    cut = be.DiffusionMap(n_components=4, n_neighbors=10, t=auto.t_, delta=0.3).fit(X)
    powers = (values / values[0]) ** auto.t_
    assert cut.n_components_ == (powers > 0.3).sum() == cut.embedding_.shape[1]


def test_equal_eigenvalues_leave_time_at_one_with_a_warning() -> None:
    with pytest.warns(DegenerateWarning, match="0/0"):
        dm = be.DiffusionMap(n_components=2, t="auto").fit(csr_array(np.ones((6, 6)) - np.eye(6)))
    assert dm.t_ == 1


def test_epsilon_rules() -> None:
    X = np.random.default_rng(4).normal(size=(300, 2))
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    nearest = np.sort(squared + np.where(np.eye(300), np.inf, 0), axis=1)

    def epsilon(**parameters: object) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (
                be.DiffusionMap(n_components=1, n_neighbors=8, components="joint")
                .set_params(**parameters)
                .fit(X)
                .epsilon_
            )

    assert epsilon(bandwidth="fixed") == pytest.approx(np.sort(nearest[:, 7])[149], rel=1e-6)
    assert epsilon(epsilon="auto") == 0.5  # times the scales of the rows
    assert epsilon(epsilon="auto", target="laplace-beltrami") == 1.0
    assert epsilon(epsilon="max-min") == pytest.approx(nearest[:, 0].max(), rel=1e-6)
    assert epsilon(epsilon="mean-min") == pytest.approx(2 * nearest[:, 0].mean(), rel=1e-6)
    assert epsilon(sigma=0.4) == pytest.approx(0.32)
    assert epsilon(epsilon="median", n_neighbors=None) == pytest.approx(
        np.median(squared[np.triu_indices(300, 1)]), rel=1e-4
    )
    assert epsilon(epsilon=0.25) == 0.25


def test_a_scale_that_a_graph_cannot_hold_names_both_routes() -> None:
    X = np.random.default_rng(5).normal(size=(300, 2))
    for rule in ("ksum", "median"):
        with pytest.raises(InputError, match=r"n_neighbors=None.*epsilon='auto'"):
            be.DiffusionMap(epsilon=rule).fit(X)
    with pytest.warns(DegenerateWarning, match="cuts the kernel off"):
        be.DiffusionMap(epsilon=1e3).fit(X)


def test_ksum_finds_the_dimension_of_a_sphere() -> None:
    X = np.random.default_rng(6).normal(size=(4000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    dm = be.DiffusionMap(n_components=3).fit(X)
    assert dm.certificate_["bandwidth"]["dimension"] == pytest.approx(2, abs=0.2)
    gaps = -np.log(dm.eigenvalues_)  # Laplace–Beltrami: l = 1 three times
    assert gaps.max() / gaps.min() < 1.25


def test_self_tuned_and_truncated_kernels() -> None:
    generator = np.random.default_rng(7)
    X = np.concatenate([generator.normal(size=(200, 2)) * 0.05, generator.normal(size=(200, 2)) * 2])
    tuned = be.DiffusionMap(n_components=2, n_neighbors=12, bandwidth="self-tuned").fit(X)
    assert tuned.epsilon_ == 1.0
    with pytest.warns(ComponentsWarning):
        truncated = be.DiffusionMap(
            n_components=2, n_neighbors=12, truncated=True, epsilon=0.02, components="joint"
        ).fit(X)
    assert truncated.certificate_["components"] > tuned.certificate_["components"]


@pytest.mark.parametrize("policy", ["largest", "per-component", "joint", "bridge"])
def test_every_row_has_coordinates_under_every_policy(policy: str) -> None:
    X = blobs(120, 60, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ComponentsWarning)
        dm = be.DiffusionMap(n_components=3, n_neighbors=8, components=policy, bandwidth="fixed").fit(X)
    assert dm.embedding_.shape == (192, 3)
    assert np.isfinite(dm.embedding_).all()
    if policy == "bridge":
        assert dm.certificate_["components"] == 1
        return
    assert np.bincount(dm.labels_).tolist() == [120, 60, 12]
    back = dm.transform(X)
    np.testing.assert_allclose(back, dm.embedding_, atol=1e-4 * np.abs(dm.embedding_).max())
    if policy == "largest":
        for row in (130, 185):
            squared = ((X[:120] - X[row]) ** 2).sum(axis=1)
            np.testing.assert_array_equal(dm.embedding_[row], dm.embedding_[np.argmin(squared)])
    if policy == "per-component":
        assert dm.eigenvalues_.shape == (3, 3)
        values, _ = reference(X[:120], 8, dm.epsilon_, 1.0, 3)
        np.testing.assert_allclose(dm.eigenvalues_[0], values, atol=1e-6)


def test_disconnected_rows_are_an_error_that_lists_the_sizes() -> None:
    with pytest.raises(DisconnectedGraphError, match=r"2 connected components, of 100, 50 rows.*'largest'"):
        be.DiffusionMap(n_neighbors=6, components="error").fit(blobs(100, 50))


def test_one_graph_serves_many_maps(tmp_path: Path) -> None:
    X = np.random.default_rng(11).normal(size=(500, 3))
    graph = be.build_neighbor_graph(X, 10, workdir=tmp_path / "graph.zarr")
    direct = be.DiffusionMap(n_components=2, n_neighbors=10, alpha=0.5).fit(X)
    shared = be.DiffusionMap(n_components=2, alpha=0.5).fit(graph)
    np.testing.assert_array_equal(shared.embedding_, direct.embedding_)
    np.testing.assert_array_equal(shared.transform(X[:9]), direct.transform(X[:9]))


def test_results_do_not_depend_on_the_order_of_the_rows() -> None:
    X = np.random.default_rng(12).normal(size=(400, 3))
    order = np.random.default_rng(13).permutation(400)
    first, second = (be.DiffusionMap(n_components=3, n_neighbors=9, t=0).fit(rows) for rows in (X, X[order]))
    np.testing.assert_allclose(first.eigenvalues_, second.eigenvalues_, atol=1e-7)
    assert subspace_angles(first.embedding_[order], second.embedding_).max() < 1e-4


def test_wrong_parameters_are_all_named() -> None:
    with pytest.raises(InputError, match=r"n_components=0.*epsilon='magic'.*t=-1"):
        be.DiffusionMap(n_components=0, epsilon="magic", t=-1).fit(np.zeros((20, 2)))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (csr_array(np.array([[0.0, 1.0], [2.0, 0.0]])), "not symmetric"),
        (csr_array(-np.ones((3, 3))), "negative"),
        (csr_array(np.full((2, 2), np.nan)), "NaN"),
        (csr_array(np.diag([1.0, 1.0, 0.0])), "no edge"),
    ],
)
def test_bad_weights_are_named(graph: csr_array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        be.DiffusionMap(n_components=1).fit(graph)


def test_degenerate_rows_have_a_clear_outcome() -> None:
    with pytest.raises(InputError, match="the rows are identical"):
        be.DiffusionMap(n_neighbors=5).fit(np.ones((50, 3)))
    X = np.random.default_rng(14).normal(size=(200, 1))
    assert be.DiffusionMap(n_neighbors=10, components="bridge").fit(X).embedding_.shape == (
        200,
        2,
    )  # one column
    constant = np.column_stack([X, np.full(200, 7.0)])
    dm = be.DiffusionMap(n_neighbors=10, components="bridge").fit(constant)
    assert dm.certificate_["input"]["constant_columns"] == 1


def test_what_was_not_fitted_says_so() -> None:
    with pytest.raises(NotFittedError):
        be.DiffusionMap().transform(np.zeros((2, 2)))
    dm = be.DiffusionMap().fit(ring(20))
    with pytest.raises(InputTypeError, match="user's weights"):
        dm.transform(np.zeros((2, 2)))


def test_a_solver_that_runs_out_of_passes_warns_and_certifies() -> None:
    with pytest.warns(ConvergenceWarning, match="max passes"):
        dm = be.DiffusionMap(n_components=4, tol=1e-12, max_passes=6).fit(ring(4_000))
    assert dm.certificate_["converged"] is False
    assert dm.residuals_.max() > 1e-12


def test_rows_that_change_places_take_their_coordinates_along(tmp_path):
    """Neighbors in the input, of different cells: the kernel is the same bytes, the order of the rows is not."""
    rows = np.random.default_rng(0).normal(size=(6000, 3))
    found = []
    for values in (rows, np.concatenate([rows[:500], rows[[501, 500]], rows[502:]])):
        np.save(tmp_path / "rows.npy", values)
        made = be.DiffusionMap(n_components=2, n_neighbors=10, random_state=0, workdir=tmp_path / "run")
        found.append(np.asarray(made.fit(tmp_path / "rows.npy").embedding_))
    np.testing.assert_array_equal(found[1][[501, 500]], found[0][[500, 501]])
    assert not np.array_equal(found[0][500], found[0][501])


def uneven_ring() -> csr_array:
    """A ring of 60 weights 1e-10, but for one of 1e3 far from nodes 5 and 6."""
    i = np.arange(60)
    weight = np.where(i == 30, 1e3, 1e-10)
    return csr_array((np.tile(weight, 2), (np.r_[i, (i + 1) % 60], np.r_[(i + 1) % 60, i])))


def test_symmetry_of_weights_is_judged_beside_their_neighbors() -> None:
    weights = uneven_ring().tolil()
    weights[5, 6] = 5e-10
    with pytest.raises(InputError, match=r"not symmetric: w\[5, 6\] and w\[6, 5\] differ by 0\.8 of"):
        be.DiffusionMap(2, alpha=0).fit(csr_array(weights))
    be.DiffusionMap(2, alpha=0).fit(uneven_ring())  # control


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scale", [2.0**-700, 1e-170, 1e170, 2.0**900])
def test_the_scale_of_weights_says_nothing(alpha: float, scale: float) -> None:
    """P of c·W is P of W, for any c and α."""
    i = np.arange(60)
    weight = 1 + np.random.default_rng(0).random(60)
    weights = csr_array((np.tile(weight, 2), (np.r_[i, (i + 1) % 60], np.r_[(i + 1) % 60, i])))
    wanted = be.DiffusionMap(4, alpha=alpha).fit(weights)
    found = be.DiffusionMap(4, alpha=alpha).fit(weights * scale)
    np.testing.assert_allclose(found.eigenvalues_, wanted.eigenvalues_, rtol=1e-12)
    assert found.certificate_["components"] == 1


def test_truncation_is_by_the_size_of_eigenvalues() -> None:
    """A ring of 40: cos(2πl/40), 24 of them beside λ_1 itself are beyond half of |−1|; the last are negative."""
    i = np.arange(40)
    ring = csr_array((np.ones(80), (np.r_[i, (i + 1) % 40], np.r_[(i + 1) % 40, i])))
    whole = be.DiffusionMap(39, alpha=0, t=1).fit(ring)
    found = be.DiffusionMap(39, alpha=0, t=1, delta=0.5).fit(ring)
    large = np.abs(whole.eigenvalues_) > 0.5
    assert found.n_components_ == large.sum() == 25
    np.testing.assert_allclose(found.embedding_, whole.embedding_[:, large])


def test_the_time_of_a_graph_with_negative_eigenvalues() -> None:
    """Eq. 29 by |λ|: K(3, 3) has −1 and zeros, so that t = 1 leaves the first alone; 0/0 is not met."""
    blank = np.zeros((6, 6))
    blank[:3, 3:] = blank[3:, :3] = 1
    found = be.DiffusionMap(5, alpha=0, t="auto").fit(csr_array(blank))
    np.testing.assert_allclose(found.eigenvalues_, [0, 0, 0, 0, -1], atol=1e-12)
    assert found.t_ == 1
    assert found.certificate_["warnings"]["degenerate"] == []
    path = csr_array(np.eye(9, k=1) + np.eye(9, k=-1) + np.diag([1.0, *np.zeros(8)]))
    sizes = np.abs(be.DiffusionMap(8, alpha=0).fit(path).eigenvalues_)
    t = be.DiffusionMap(8, alpha=0, t="auto", delta=0.1).fit(path).t_
    assert (sizes.min() / sizes.max()) ** t <= 0.1 < (sizes.min() / sizes.max()) ** (t - 1)


def test_transform_keeps_the_columns_that_the_map_kept() -> None:
    """The complete kernel of few rows, with a truncation in between."""
    rows = np.random.default_rng(0).normal(size=(60, 2))
    found = be.DiffusionMap(6, n_neighbors=None, t=3, delta=0.2).fit(rows)
    np.testing.assert_allclose(found.transform(rows), found.embedding_, atol=1e-6)
