"""Every method and its variants on small data: the one table from which the suites of estimators take their cases.

A method of the registry without a line here is fitted as it comes, to positive rows, with labels if it needs them: the
suites find it without a line anywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.maps import REGISTRY, method

N = 1_200
FEW_ROWS = 240
_RANDOM = np.random.default_rng(0)
ROWS = np.abs(_RANDOM.normal(size=(N, 20)) * np.linspace(6, 0.5, 20)).astype("f4")
NEW = np.abs(_RANDOM.normal(size=(50, 20)) * np.linspace(6, 0.5, 20)).astype("f4")


def plain(n: int) -> Any:
    return ROWS[:n]


def three(n: int) -> Any:
    """Three columns."""
    return ROWS[:n, :3]


def apart(n: int) -> Any:
    """Distances between all pairs."""
    return cdist(ROWS[:n], ROWS[:n])


def csr(n: int) -> Any:
    return sparse.csr_array(ROWS[:n])


def twice(n: int) -> Any:
    """Some rows stand there twice."""
    return np.concatenate([ROWS[: n // 30], ROWS[: n // 30], ROWS[:n] + 0.25])


def islands(n: int) -> Any:
    """Two large parts, and three rows far from all."""
    return np.concatenate([ROWS[: n // 2], ROWS[n // 2 : n] + 60, ROWS[:3] + 200])


def ring(n: int) -> Any:
    """A ring with random weights."""
    n = n * 7 // 12
    weights = np.random.default_rng(1).random(n) + 0.5
    i = np.arange(n)
    j = np.roll(i, -1)
    return sparse.csr_array((np.tile(weights, 2), (np.r_[i, j], np.r_[j, i])))


def lists(n: int) -> Any:
    """Lists of neighbors that were made elsewhere, of rows on a line."""
    rows = np.linspace(0, 6, n)[:, None] + np.random.default_rng(2).random((n, 1)) / n
    near = np.arange(n)[:, None] + [0, 1, 2, 3, -1, -2]
    near[(near < 0) | (near >= n)] = -1
    return be.open_graph(near, distances=np.abs(rows[near][..., 0] - rows))


@dataclass(frozen=True)
class Case:
    """A method, the parameters that it is given, and rows for it."""

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rows: Callable[[int], Any] = plain
    most: int = N
    """Rows at the most, where more say nothing else and take long."""
    returns: float | None = None
    """How near fitted rows come back by ``transform``, over the largest coordinate; by default to the last bit where a
    coordinate is a function of the row, and to 1e-5 where neighbors place it."""
    weighed: bool = False
    """Whether its rows have weights, from 1 to 4."""
    weights: str = ""
    """Where these lie; by default they are an array."""

    @property
    def plain(self) -> bool:
        """Whether it is the first case of its method, not a variant."""
        return CASES.get(self.method) is self

    def X(self, n: int = N) -> Any:
        """Rows, of about n."""
        return self.rows(min(n, self.most))

    def new(self, n: int = N) -> Any:
        """New rows for a fit of about n; None where a fit takes none."""
        if self.rows in (ring, lists) or (self.method == "classical_mds" and self.rows is apart):
            return None
        return cdist(NEW, ROWS[: min(n, self.most)]) if self.rows is apart else NEW[:, : self.X(n).shape[1]]

    def estimator(self, **more: Any) -> Any:
        """Not fitted, with three coordinates if nothing else is said."""
        cls = method(self.method)
        known = {"n_components": 3} if "n_components" in inspect.signature(cls).parameters else {}
        return cls(**known | dict(self.parameters) | more)

    def aligned(self, X: Any) -> dict[str, Any]:
        """The labels of five classes, if the method needs them, or follows them; weights of the rows, if these have
        any."""
        asked = "labels" in method(self.method).needs or "target_metric" in self.parameters
        n = X.shape[0] if hasattr(X, "shape") else be.open_array(X).shape[0] if asked or self.weighed else 0
        labels = {"y": np.arange(n) % 5} if asked else {}
        weights = self.weights or np.random.default_rng(3).integers(1, 5, n)
        density = {"target_density": weights} if "target" in self.parameters else {}
        return labels | ({"sample_weight": weights, **density} if self.weighed else {})

    def stored(self, X: Any, folder: Path) -> Case:
        """The same, the weights of its rows in a file."""
        if not self.weighed:
            return self
        np.save(folder / "weights.npy", self.aligned(X)["sample_weight"])
        return replace(self, weights=str(folder / "weights.npy"))

    def fit(self, X: Any = None, **more: Any) -> Any:
        """Fitted to rows, by default all of its own."""
        X = self.X() if X is None else X
        return self.estimator(**more).fit(X, **self.aligned(X))


@cache
def fitted(name: str) -> Any:
    """The case of this name, fitted to few of its rows once a process; not to be changed."""
    return CASES[name].fit(CASES[name].X(FEW_ROWS))


def twin(made: Any) -> Any:
    """Another estimator with what was fitted, for a test that changes it."""
    found = object.__new__(type(made))
    vars(found).update(vars(made))
    return found


GRAPH = {"n_neighbors": 8}
FEW = {**GRAPH, "solver": "landmarks", "n_landmarks": 60}
FEW_STEPS = {"n_components": 2, "perplexity": 5, "early_exaggeration_iter": 5, "n_iter": 8}
FEW_EPOCHS = {"n_components": 2, "n_neighbors": 6, "n_epochs": 9}
FEW_PAIRS = {"n_components": 2, "n_neighbors": 6, "num_iters": (3, 3, 12)}
TABLE: dict[str, Case] = {
    "alternating_diffusion_map": Case("alternating_diffusion_map", {"n_neighbors": 8, "view_columns": 9}),
    "alternating_diffusion_map repeated rows": Case(
        "alternating_diffusion_map", {"n_neighbors": 8, "bandwidth": "fixed", "t": 2}, twice, most=400
    ),
    "classical_mds cityblock": Case("classical_mds", {"metric": "cityblock"}, returns=1e-6),
    "classical_mds weighed": Case("classical_mds", {"metric": "cityblock"}, weighed=True, most=400, returns=1e-6),
    "classical_mds minkowski": Case("classical_mds", {"metric": "minkowski", "metric_params": {"p": 3}}, returns=1e-6),
    "classical_mds precomputed": Case("classical_mds", {"metric": "precomputed"}, apart),
    "diffusion_map repeated rows": Case("diffusion_map", rows=twice),
    "diffusion_map fixed": Case("diffusion_map", {**GRAPH, "bandwidth": "fixed", "t": 2}),
    "diffusion_map bistochastic": Case("diffusion_map", {**GRAPH, "normalization": "bistochastic"}, twice),
    "diffusion_map target": Case("diffusion_map", {"target": "laplace-beltrami"}, three),
    "diffusion_map bridge": Case("diffusion_map", {"components": "bridge"}, islands, returns=5e-5),
    "diffusion_map joint": Case("diffusion_map", rows=islands),
    "diffusion_map weighed": Case("diffusion_map", GRAPH, weighed=True),
    "diffusion_map weighed target": Case("diffusion_map", {"target": "laplace-beltrami"}, three, weighed=True),
    "diffusion_map weighed nodes": Case("diffusion_map", {"alpha": 0}, ring, weighed=True),
    "diffusion_map weighed galerkin": Case("diffusion_map", FEW, weighed=True),
    "diffusion_map galerkin": Case("diffusion_map", FEW),
    "diffusion_map nystrom": Case("diffusion_map", {**FEW, "extension": "nystrom"}),
    "diffusion_map all pairs": Case("diffusion_map", {"n_neighbors": None}, most=300),
    "diffusion_map radius": Case(
        "diffusion_map", {"n_neighbors": None, "radius": 5.0, "epsilon": 4.0, "components": "largest"}, three
    ),
    "diffusion_map precomputed": Case("diffusion_map", {**GRAPH, "metric": "precomputed"}, apart),
    "diffusion_map weights": Case("diffusion_map", {"alpha": 0}, ring),
    "diffusion_map lists": Case("diffusion_map", rows=lists),
    "isomap lists": Case("isomap", {"solver": "landmarks", "n_landmarks": 20}, lists),
    "isomap": Case("isomap", {**GRAPH, "solver": "exact"}),
    "isomap landmarks": Case("isomap", {**GRAPH, "solver": "landmarks", "n_landmarks": 20}),
    "isomap weighed": Case("isomap", {**GRAPH, "solver": "exact"}, weighed=True, most=400),
    "isomap weighed landmarks": Case("isomap", {**GRAPH, "solver": "landmarks", "n_landmarks": 20}, weighed=True),
    "isomap radius": Case("isomap", {"n_neighbors": None, "radius": 4.0, "components": "largest"}, three),
    "isomap radius landmarks": Case(
        "isomap",
        {"n_neighbors": None, "radius": 4.0, "components": "largest", "solver": "landmarks", "n_landmarks": 20},
        three,
    ),
    "isomap precomputed": Case("isomap", {**GRAPH, "metric": "precomputed"}, apart),
    "kernel_pca": Case("kernel_pca", {"gamma": 0.02}),
    "kernel_pca weighed": Case("kernel_pca", {"gamma": 0.02}, weighed=True, most=400),
    "kernel_pca inverse": Case("kernel_pca", {"gamma": 0.02, "fit_inverse_transform": True}),
    "kernel_pca sparse": Case("kernel_pca", {"gamma": 0.02}, csr, most=400),
    "kernel_pca nystrom sparse": Case("kernel_pca", {"gamma": 0.02, "solver": "nystrom", "n_landmarks": 99}, csr),
    "kernel_pca nystrom": Case("kernel_pca", {"gamma": 0.02, "solver": "nystrom", "n_landmarks": 99}),
    "landmark_diffusion_map": Case("landmark_diffusion_map", {"n_landmarks": 100}),
    "landmark_mds": Case("landmark_mds", {"n_landmarks": 50}),
    "landmark_mds weighed": Case("landmark_mds", {"n_landmarks": 50}, weighed=True, most=400),
    "landmark_mds max-min": Case("landmark_mds", {"n_landmarks": 50, "landmarks": "max-min"}),
    "landmark_mds precomputed": Case(
        "landmark_mds", {"n_landmarks": 50, "metric": "precomputed"}, apart, returns=1e-12
    ),
    "laplacian_eigenmaps binary": Case("laplacian_eigenmaps", {"weights": "binary"}, islands),
    "laplacian_eigenmaps radius": Case(
        "laplacian_eigenmaps", {"n_neighbors": None, "radius": 5.0, "components": "largest"}, three
    ),
    "landmark_diffusion_map weighed": Case("landmark_diffusion_map", {"n_landmarks": 40}, weighed=True),
    "laplacian_eigenmaps weights": Case("laplacian_eigenmaps", rows=ring),
    "laplacian_eigenmaps weighed": Case("laplacian_eigenmaps", {**GRAPH, "weights": "binary"}, weighed=True),
    "linearized_diffusion_map": Case("linearized_diffusion_map", {"alpha": 0.5}),
    "linearized_diffusion_map density": Case(
        "linearized_diffusion_map", {"epsilon": "density", "normalization": "asymmetric"}
    ),
    "linearized_diffusion_map lanczos": Case("linearized_diffusion_map", {"solver": "lanczos"}),
    "linearized_diffusion_nmf": Case("linearized_diffusion_nmf", {"max_iter": 3}, returns=0.1),
    "linearized_diffusion_nmf density": Case(
        "linearized_diffusion_nmf", {"max_iter": 3, "alpha": 0.5, "epsilon": "density"}, returns=0.1
    ),
    "linearized_kernel_pca": Case("linearized_kernel_pca", {"epsilon": "auto"}),
    "hessian_lle": Case("hessian_lle"),
    "local_tangent_space_alignment": Case("local_tangent_space_alignment", GRAPH),
    "modified_lle": Case("modified_lle", GRAPH),
    "locally_linear_embedding": Case("locally_linear_embedding", GRAPH),
    "locally_linear_embedding landmarks": Case("locally_linear_embedding", FEW),
    "locally_linear_embedding weighed": Case("locally_linear_embedding", GRAPH, weighed=True, most=400),
    "locally_linear_embedding weighed landmarks": Case("locally_linear_embedding", FEW, weighed=True),
    "locally_linear_embedding islands": Case("locally_linear_embedding", GRAPH, islands),
    "locally_linear_embedding repeated rows": Case("locally_linear_embedding", GRAPH, twice),
    "nmf": Case("nmf", {"n_components": 4, "max_iter": 4}),
    "nmf random sparse": Case("nmf", {"init": "random", "max_iter": 4}, csr),
    "phate": Case("phate", {"n_landmarks": 60}),
    "phate every row": Case("phate", {"t": 4, "mds": "classical"}, most=400),
    "phate weighed": Case("phate", {"n_landmarks": 60}, weighed=True, most=400),
    "phate lists": Case("phate", {"n_neighbors": 2, "n_landmarks": 60}, lists),
    "phate precomputed": Case("phate", {"n_landmarks": 60, "gamma": 0.0, "metric": "precomputed"}, apart),
    "phate repeated rows": Case("phate", {"n_landmarks": 60, "metric": "cosine"}, twice),
    "spectral_clustering": Case("spectral_clustering", {"n_clusters": 4}),
    "spectral_clustering weighed": Case("spectral_clustering", {"n_clusters": 4, **GRAPH}, weighed=True),
    "spectral_clustering islands": Case(
        "spectral_clustering", {"n_clusters": 4, "normalize_rows": False, "n_neighbors": 8}, islands
    ),
    "tsne": Case("tsne", FEW_STEPS),
    "tsne by blocks": Case("tsne", {**FEW_STEPS, "in_memory": False, "dof": 0.5}, rows=twice, most=400),
    "tsne precomputed": Case("tsne", {**FEW_STEPS, "metric": "precomputed"}, apart),
    "tsne weights": Case("tsne", FEW_STEPS, ring),
    "pacmap": Case("pacmap", FEW_PAIRS),
    "pacmap by blocks": Case("pacmap", {**FEW_PAIRS, "in_memory": False}, rows=twice, most=400),
    "pacmap cosine sparse": Case("pacmap", {**FEW_PAIRS, "metric": "cosine"}, csr, most=400),
    "tsne weighed": Case("tsne", FEW_STEPS, weighed=True, most=400),
    "tsne weighed nodes": Case("tsne", {**FEW_STEPS, "in_memory": False}, ring, weighed=True, most=400),
    "umap": Case("umap", FEW_EPOCHS),
    "umap by blocks": Case("umap", {**FEW_EPOCHS, "in_memory": False, "init": "pca"}, rows=twice, most=400),
    "umap densities": Case("umap", {**FEW_EPOCHS, "densmap": True, "dens_frac": 0.7}),
    "umap labels": Case("umap", {**FEW_EPOCHS, "target_metric": "categorical"}, rows=twice, most=400),
    "umap target": Case("umap", {**FEW_EPOCHS, "target_metric": "l2"}, rows=twice, most=400),
    "umap weighed": Case("umap", {**FEW_EPOCHS, "in_memory": False}, weighed=True, most=400),
    "umap weighed densities": Case("umap", {**FEW_EPOCHS, "densmap": True, "dens_frac": 0.7}, weighed=True, most=400),
    "umap views": Case("umap", {**FEW_EPOCHS, "view_columns": 8}, rows=twice, most=400),
    "umap views united": Case(
        "umap",
        {**FEW_EPOCHS, "view_columns": 8, "views": "union", "in_memory": False, "target_metric": "categorical"},
        weighed=True,
        most=400,
    ),
    "umap lists": Case("umap", FEW_EPOCHS, lists),
    "umap weights": Case("umap", FEW_EPOCHS, ring),
    "pca whitened": Case("pca", {"n_components": 0.9, "whiten": True}),
}
CASES: dict[str, Case] = dict(sorted(({name: Case(name) for name in REGISTRY} | TABLE).items()))
EACH = [name for name, case in CASES.items() if case.plain or issubclass(method(case.method), RowwiseEstimator)]
"""Cases that keep what was fitted each in its way: variants of a graph's map differ in what is fitted only."""
VARIED = (
    "diffusion_map bistochastic", "diffusion_map bridge", "diffusion_map weighed galerkin", "isomap lists",
    "isomap radius landmarks", "kernel_pca nystrom sparse", "laplacian_eigenmaps weights", "pca whitened",
    "phate precomputed", "tsne weighed nodes", "umap weighed densities",
)  # fmt: skip
"""Variants in which every kind of rows, weights, labels and solvers comes at least once."""


WAYS = ("diffusion_map", "kernel_pca", "landmark_mds", "nmf", "pca", "umap")
"""A method of every way to fit rows, to give out coordinates and to place new rows: of what the base does for all."""


def by_default(names: Iterable[str], *more: Any, only: Iterable[str] = ()) -> list[Any]:
    """All of these cases: by default the first one of every method and those of ``VARIED``, or ``only`` some, others by
    ``-m slow``."""
    ran = {*(only or (*VARIED, *(name for name in CASES if CASES[name].plain)))}
    return [pytest.param(name, *more, marks=() if name in ran else pytest.mark.slow) for name in names]


# ------------------------------------------------------------------------------- jobs of any size

SIZES = {"classical_mds": (2_000, 6_000), "kernel_pca": (2_000, 6_000), "isomap": (12_000, 30_000)}
"""Rows of the methods that look at all pairs, or at paths from every landmark."""
JOB_PARAMETERS = {
    "diffusion_map": 'components = "largest"\nn_neighbors = 10',
    "isomap": 'components = "largest"\nn_neighbors = 10',
    "laplacian_eigenmaps": 'components = "largest"\nn_neighbors = 10',
    "spectral_clustering": 'components = "largest"\nn_neighbors = 10',
}


def sizes(name: str) -> tuple[int, int]:
    """Rows, small and large."""
    return SIZES.get(name, (12_000, 100_000))


def write_job(folder: Path, name: str, n: int) -> Path:
    """A job of the method on n positive rows in twelve overlapping clusters, with their labels."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 12, n)
    centers = 0.7 * random.normal(size=(12, 24))
    np.save(folder / "rows.npy", np.abs(12 + centers[labels] + random.normal(size=(n, 24))).astype("f4"))
    np.save(folder / "labels.npy", labels)
    column = 'labels = "labels.npy"' if "labels" in method(name).needs else ""
    asked = f'name = "{name}"\nn_components = 3\n{JOB_PARAMETERS.get(name, "")}'
    (folder / "job.toml").write_text(
        f'[input]\npath = "rows.npy"\n{column}\n[method]\n{asked}\n'
        '[output]\npath = "run.zarr"\nmodel = "model.zarr"\n[cluster]\nworkers = 2\nmemory = "2 GiB"\n'
    )
    return folder / "job.toml"
