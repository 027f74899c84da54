"""Every method refuses parameters and rows that cannot be, and says which, what it got and what is allowed.

A line a case: the method, its parameters, what is fitted (rows, rows and labels, or a dict), and what is said. That any
parameter refuses a wrong type is in ``tests/unit/test_parameters.py``, bad rows of any method in ``test_rows.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from bigembed.errors import InputError, InputTypeError, KernelSignError
from bigembed.maps import method
from tests.unit.block_functions import word_distance

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")


def rows(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def repeated(n: int, times: int, d: int = 3) -> np.ndarray:
    return np.repeat(rows(n, d), times, axis=0)


def changed(array: np.ndarray, at: int, value: float) -> np.ndarray:
    """One row, changed."""
    return np.where(np.arange(len(array))[:, None] == at, value, array)


X, FEW, WIDE, POSITIVE = rows(500, 6), rows(60, 6), rows(600, 12), np.abs(rows(300, 20))
Y, TWO = np.arange(60) % 3, np.array([[0.0, 0.0], [2.0, 0.0]])
LANDMARKS = {"solver": "landmarks", "n_landmarks": 4}
TARGET = {"target": "random-walk"}
REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("classical_mds", {"n_components": 0}, X, "n_components=0"),
    ("classical_mds", {"metric": "precomputed"}, np.zeros((4, 3)), r"square array \(n, n\); got shape \(4, 3\)"),
    ("classical_mds", {"tol": 2.0, "max_passes": 1}, X, "tol=2.0.*max_passes=1"),
    ("classical_mds", {"squared": True}, X, "squared=True"),
    ("classical_mds", {"metric": "euclid"}, X, "did you mean 'euclidean'"),
    ("classical_mds", {}, np.ones((1, 3)), "minimum of 2"),
    ("classical_mds", {"metric": "precomputed"}, np.zeros((5, 5)), "no eigenvalue of B is positive"),
    ("classical_mds", {}, np.ones((5, 3)), "no eigenvalue of B is positive"),
    ("diffusion_map", {"n_components": 0, "epsilon": "magic", "t": -1}, X, r"n_components=0.*epsilon='magic'.*t=-1"),
    ("diffusion_map", {"n_neighbors": 5}, np.ones((50, 3)), "the rows are identical"),
    ("diffusion_map", {}, csr_array(np.array([[0.0, 1.0], [2.0, 0.0]])), "not symmetric"),
    ("diffusion_map", {}, csr_array(-np.ones((3, 3))), "negative"),
    ("diffusion_map", {}, csr_array(np.full((2, 2), np.nan)), "NaN"),
    ("diffusion_map", {}, csr_array(np.diag([1.0, 1.0, 0.0])), "no edge"),
    ("diffusion_map", {"radius": 0.5}, X, "epsilon='auto'.*number.*one scale"),
    ("diffusion_map", {"radius": 0.5, "epsilon": "median"}, X, "epsilon='median'.*number"),
    ("diffusion_map", {"radius": 0.5, "epsilon": 0.1, "bandwidth": "adaptive"}, X, "bandwidth='adaptive'.*one scale"),
    ("diffusion_map", {"radius": 0.5, "epsilon": 0.1, "bandwidth": "self-tuned", **TARGET}, X, "bandwidth"),
    ("diffusion_map", {"radius": -0.5, "epsilon": 0.1}, X, "radius=-0.5"),
    ("diffusion_map", {"target": "laplace"}, X, "target"),
    ("diffusion_map", {**TARGET, "alpha": 0.5}, X, "alpha"),
    ("diffusion_map", {**TARGET, "solver": "landmarks"}, X, "target"),
    ("diffusion_map", {"dimension": 0}, X, "dimension"),
    ("diffusion_map", {"dimension": "two"}, X, "dimension"),
    ("diffusion_map", {"n_components": "all"}, X, "n_components"),
    ("diffusion_map", {"bandwidth": "local"}, X, "bandwidth"),
    ("diffusion_map", {"n_components": 4, **LANDMARKS}, X, "n_landmarks=4; allowed: an integer > n_components"),
    ("diffusion_map", {"solver": "landmarks"}, csr_array(np.ones((6, 6))), "weights has none"),
    ("isomap", {"n_components": 0}, X, "n_components=0"),
    ("isomap", {"n_landmarks": 2}, X, "n_landmarks=2; allowed: an integer > n_components"),
    ("isomap", {"radius": 1.0}, X, "n_neighbors=None"),
    ("isomap", {"radius": -1.0, "n_neighbors": None}, X, "radius=-1.0"),
    ("isomap", {"n_neighbors": None}, X, "None with a radius"),
    ("isomap", {"solver": "dense"}, X, "solver='dense'"),
    ("isomap", {"landmarks": "given"}, X, "'max-min' or 'uniform'"),
    ("isomap", {"components": "joint"}, X, "'error', 'largest', 'per-component' or 'bridge'"),
    ("isomap", {"metric": "minkowski"}, X, "metric='minkowski'"),
    ("kernel_pca", {"n_components": 1, "solver": "exact"}, np.ones((30, 2)), "all 30 rows are the same"),
    ("kernel_pca", {"n_components": 1, "solver": "nystrom", "n_landmarks": 5}, np.ones((30, 2)), "different rows"),
    ("kernel_pca", {"n_components": 3, "solver": "nystrom", "n_landmarks": 3}, X, "n_landmarks=3; allowed: an integer"),
    ("kernel_pca", {"n_components": 3, "solver": "nystrom", "n_landmarks": 20}, repeated(3, 40),
     "only 3 different rows are among the 120 looked at, and 4 are needed"),
    ("landmark_diffusion_map", {"n_components": 2, "n_landmarks": 2}, X, "n_landmarks=2; allowed: an integer > n_comp"),
    ("landmark_diffusion_map", {"n_components": 2, "n_landmarks": 9}, repeated(2, 20), "only 2 different rows"),
    ("landmark_mds", {"n_components": 0, "n_landmarks": 1.5}, X, "n_components=0.*n_landmarks=1.5"),
    ("landmark_mds", {"landmarks": "corners"}, X, "landmarks='corners'"),
    ("landmark_mds", {"landmarks": [3, 500, -1]}, X, r"rows \[500, -1\] are outside 0 … 499"),
    ("landmark_mds", {"landmarks": np.ones((5, 2))}, X, "landmarks are rows of 2 columns; those of X have 6"),
    ("landmark_mds", {"landmarks": np.full((5, 6), np.nan)}, X, "finite rows"),
    ("landmark_mds", {"landmarks": [0.5, 1.0, 2.0]}, X, "integers"),
    ("landmark_mds", {"metric": "manhatan"}, X, "did you mean"),
    ("landmark_mds", {"metric": "precomputed"}, X, r"square array \(n, n\); got shape \(500, 6\)"),
    ("landmark_mds", {"metric": "precomputed", "landmarks": "k-means"}, X, "or numbers of rows with given distances"),
    ("landmark_mds", {"metric": "precomputed", "ids": True}, X, "X holds them, and no ids"),
    ("landmark_mds", {"ids": True, "metric": word_distance, "landmarks": "k-means"}, X, "objects have no mean"),
    ("landmark_mds", {"n_components": 3, "n_landmarks": 3}, X, "3 landmarks span at most 2 .*n_components=3 needs"),
    ("landmark_mds", {"n_components": 2, "landmarks": [4, 5]}, X, "2 landmarks span at most 1"),
    ("landmark_mds", {"n_components": 2, "n_landmarks": 10}, np.ones((50, 3)), "all rows are equal"),
    ("landmark_mds", {"n_landmarks": 10, "metric": "cityblock"}, np.ones((50, 3)), "all rows are equal"),
    ("laplacian_eigenmaps", {"n_neighbors": 600}, X, "n_neighbors=600 needs at least 601 rows"),
    ("pacmap", {}, X[:1], r"^a graph needs at least 2 rows; got n_samples = 1$"),
    ("phate", {}, X[:1], r"^a graph needs at least 2 rows; got n_samples = 1$"),
    ("laplacian_eigenmaps", {"weights": "binary", "epsilon": 2.0}, X, "'heat' where epsilon or bandwidth is given"),
    ("laplacian_eigenmaps", {"weights": "binary", "n_neighbors": None}, X, "all pairs would weigh the same"),
    ("laplacian_eigenmaps", {"radius": 1.0, "bandwidth": "adaptive"}, X, "'auto' or 'fixed' with a radius"),
    ("linear_discriminant", {}, (FEW, np.zeros(60)), "greater than one; the labels hold one class, 0.0"),
    ("linear_discriminant", {"missing_labels": "ignore"}, (FEW, np.full(60, np.nan)), "the labels hold none"),
    ("linear_discriminant", {}, (FEW, np.arange(60)), "more than the number of classes; got 60 labelled rows in 60"),
    ("linear_discriminant", {}, (FEW, Y[1:]), r"inconsistent numbers of samples: \[60, 59\]|labels have shape \(59,\)"),
    ("linear_discriminant", {}, (FEW, FEW[:, 0]), "Unknown label type: continuous"),
    ("linear_discriminant", {}, (changed(FEW, 7, np.nan), Y), r"contains NaN: 1 of 60 rows.*\[7\]"),
    ("linear_discriminant", {}, (changed(FEW, 7, np.inf), Y), "infinity"),
    ("linear_discriminant", {"n_components": 3}, (FEW, Y), r"min\(n_features, n_classes - 1\) = 2; got 3"),
    ("linear_discriminant", {"priors": [0.5, 0.5]}, (FEW, Y), r"shape \(2,\); there are 3 classes"),
    ("linear_discriminant", {"priors": [0.5, 0.7, -0.2]}, (FEW, Y), "priors=.*nonnegative"),
    ("linear_discriminant", {"shrinkage": 1.5}, (FEW, Y), r"shrinkage=1.5; allowed: 'auto', a number in \[0, 1\]"),
    ("linear_discriminant", {"shrinkage": "lots"}, (FEW, Y), "shrinkage='lots'"),
    ("linear_discriminant", {"missing_labels": "drop", "tol": -1}, (FEW, Y), "missing_labels='drop'.*tol=-1"),
    ("linearized_diffusion_map", {}, np.full((1000, 4), 0.1), "all rows are equal"),
    ("linearized_diffusion_map", {}, np.full((1000, 4), 1e8 + 0.1), "all rows are equal"),
    ("linearized_diffusion_map", {}, np.full((1000, 4), 1e-30), "all rows are equal"),
    ("linearized_diffusion_map", {"center": False}, np.zeros((50, 3)), "all rows are zero"),
    ("linearized_diffusion_map", {"n_components": 1}, np.ones((1, 3)), r"1 sample\(s\)"),
    ("linearized_diffusion_map", {"n_components": 2}, TWO, "no more eigenvalues besides the trivial one"),
    ("linearized_diffusion_map", {"epsilon": 3.0}, {"X": X, "epsilons": np.ones(500)}, "both given"),
    ("linearized_diffusion_nmf", {"epsilon": 1.0}, X, "."),
    ("linearized_diffusion_nmf", {}, np.ones((9, 2)), "all rows are equal"),
    ("linearized_diffusion_nmf", {"n_components": 10}, X[:9], "between 1 and n_samples"),
    ("linearized_diffusion_nmf", {"normalization": "no", "solver": "no", "init": "no"}, X,
     r"normalization=.*solver=.*init="),
    ("linearized_kernel_pca", {"epsilon": "auto"}, np.ones((10, 3)), "all rows are equal"),
    ("linearized_kernel_pca", {"n_components": 5}, rows(10, 3), "must be between 1 and"),
    ("linearized_kernel_pca", {"epsilon": -1, "scaling": "no"}, X, r"epsilon=.*scaling="),
    ("locally_linear_embedding", {"n_neighbors": 60}, FEW, r"n_neighbors=60 .* need at least 61 rows .* = 60"),
    ("locally_linear_embedding", {"n_components": 70}, rows(60, 80), "n_components=70 need at least 71 rows"),
    ("locally_linear_embedding", {"n_landmarks": 12}, FEW, "n_landmarks=12; allowed: an integer > n_neighbors"),
    ("locally_linear_embedding", {"solver": "landmarks"}, np.ones((60, 2)), "only 1 different rows .* 13 are needed"),
    ("nmf", {}, -POSITIVE, "Negative values in data passed to NMF"),
    ("nmf", {"n_components": 30, "init": "nndsvd"}, POSITIVE, "init='nndsvd' takes singular vectors"),
    ("nmf", {"n_components": 0, "init": "best", "tol": -1, "max_iter": 0}, POSITIVE, "init=.*n_comp.*tol=.*max_iter="),
    ("pca", {"n_components": 0}, WIDE, "n_components=0; allowed"),
    ("pca", {"n_components": True}, WIDE, "n_components=True; allowed"),
    ("pca", {"n_components": 1.5, "whiten": 3}, WIDE, r"n_components=1.5; allowed.*whiten=3; allowed"),
    ("pca", {"n_components": 13}, WIDE, "between 1 and min"),
    ("pca", {"n_components": "mle"}, WIDE[:5], "at least as many rows"),
    ("pca", {}, rows(1, 3), "minimum of 2"),
    ("pca", {}, np.full((4, 2), 1e200) * [[1], [-1], [1], [-1]], "overflow"),
    ("pca", {}, {"X": FEW, "sample_weight": np.zeros(60)}, "all are zero"),
    ("pca", {}, {"X": FEW, "sample_weight": np.ones(59)}, "one number a row"),
    ("pca", {}, {"X": FEW, "sample_weight": np.full(60, 0.01)}, "needs more than 1"),
    ("pca", {}, {"X": FEW, "sample_weight": np.r_[-1, np.ones(59)]}, r"the first of rows \[0\]"),
    ("spectral_clustering", {"n_clusters": 20, "n_neighbors": 3}, X[:10], "n_samples=10 should be >= n_clusters=20"),
    ("tsne", {"n_components": 4}, X, "n_components=4; allowed: 1, 2 or 3"),
    ("umap", {"min_dist": 2.0}, X, "min_dist=2.0; allowed: at most spread, which is 1"),
    ("umap", {"local_connectivity": 0.5}, X, "local_connectivity=0.5; allowed: a number ≥ 1"),
    ("umap", {"init": None}, X, "init=None; allowed: 'auto', 'pca', 'spectral', 'random'"),
    ("umap", {"n_neighbors": 1}, X, "n_neighbors=1; allowed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "given", "said"), REFUSED, ids=[f"{number}-{one[0]}" for number, one in enumerate(REFUSED)]
)
def test_what_cannot_be_is_refused(name: str, parameters: dict[str, Any], given: Any, said: str) -> None:
    rows, named = (given if isinstance(given, tuple) else (given,)), {}
    if isinstance(given, dict):
        rows, named = (), given
    with pytest.raises(KernelSignError if said == "." else (InputError, InputTypeError), match=said):
        method(name)(**parameters).fit(*rows, **named)


def test_all_parameters_out_of_range_are_listed_together() -> None:
    wrong = {
        "normalization": "both", "epsilon": "best", "beta": -1, "scaling": "no", "order": "up", "solver": "magic",
        "outside": "drop", "n_components": 0,
    }  # fmt: skip
    with pytest.raises(InputError) as caught:
        method("linearized_diffusion_map")(**wrong).fit(X)
    for name in wrong:
        assert f"{name}=" in str(caught.value)
