"""Every estimator gives the same bytes for any chunking of the rows, on any scheduler, in this process or in others."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pytest
import zarr
from scipy import sparse
from threadpoolctl import threadpool_limits

from bigembed.maps import REGISTRY
from bigembed.rows.graph_source import GraphSource
from tests.blocks import limits_for, on_workers
from tests.cases import CASES, Case, apart, by_default
from tests.conformance.digest import digests
from tests.conformance.every_place import PLACES, fitted_everywhere
from tests.conformance.large import DEFAULT, LARGE

pytestmark = pytest.mark.filterwarnings("ignore")
N = 300
PLAIN = [
    "classical_mds", "diffusion_map", "diffusion_map weighed galerkin", "isomap", "isomap lists", "kernel_pca",
    "landmark_mds", "linearized_diffusion_map", "locally_linear_embedding", "nmf", "pca", "tsne", "umap",
]  # fmt: skip
"""Those that run by default: of every solver and every kind of graph one."""
"""The first case of each method, and some of other rows, of weights and labels, of landmarks."""
OF_A_FAMILY = {
    "alternating_diffusion_map", "classical_mds", "hessian_lle", "kernel_pca", "landmark_mds", "laplacian_eigenmaps",
    "linear_discriminant", "linearized_diffusion_map", "linearized_diffusion_nmf", "linearized_kernel_pca",
    "local_tangent_space_alignment", "modified_lle", "pacmap", "phate", "spectral_clustering", "truncated_svd", "tsne",
}  # fmt: skip
"""Methods whose tasks are those of another one; each has its own in threads, too."""


def of_rows(case: Case, X: Any) -> dict[str, str]:
    return digests(case.fit(X), case.new(N))


@cache
def in_order(name: str) -> dict[str, str]:
    """In this thread, of an array in memory."""
    with limits_for(CASES[name], N), dask.config.set(scheduler="synchronous"):
        return of_rows(CASES[name], CASES[name].X(N))


def ragged(X: Any) -> Any:
    """Chunks of one row at both ends, and of a few columns."""
    n, d = X.shape
    return da.from_array(X, chunks=((1, n // 2, n - n // 2 - 2, 1), (2, d - 2)))


def stored(X: Any, folder: Path) -> str:
    """Chunks that end in the middle of blocks, on a disk."""
    array = zarr.create_array(folder / "rows.zarr", shape=X.shape, chunks=(97, X.shape[1] // 2 + 1), dtype=X.dtype)
    array[...] = X
    return str(folder / "rows.zarr")


@pytest.mark.parametrize("name", by_default(CASES, only=PLAIN))
def test_any_chunks_and_threads(name: str, tmp_path: Path) -> None:
    """Threads of BLAS, too: where a fit leaves it more than one, it rounds differently."""
    case = CASES[name]
    X, wanted = case.X(N), in_order(name)
    with limits_for(case, N), dask.config.set(scheduler="threads", num_workers=3), threadpool_limits(2, "blas"):
        assert of_rows(case, X if sparse.issparse(X) or isinstance(X, GraphSource) else ragged(X)) == wanted
        if case.rows is apart:  # (columns are rows there)
            assert of_rows(case, stored(X, tmp_path)) == wanted


@pytest.mark.cluster
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in OF_A_FAMILY else name for name in sorted(REGISTRY)]
)
def test_worker_processes_and_chunks_on_a_disk(name: str, client: Any, tmp_path: Path) -> None:
    case = CASES[name]
    wanted = in_order(name)
    with limits_for(case, N):
        on_workers(client)
        assert of_rows(case, stored(case.X(N), tmp_path)) == wanted


@pytest.mark.cluster
@pytest.mark.parametrize(
    "name", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in LARGE]
)
def test_large_data_on_worker_processes(name: str, client: Any) -> None:
    with dask.config.set(scheduler="synchronous"):
        here = digests(LARGE[name].fit())
    assert digests(LARGE[name].fit()) == here


@pytest.mark.slow
@pytest.mark.cluster
def test_large_data_in_threads_processes_and_with_tls() -> None:
    names = ["diffusion_map", "diffusion_map weights", "isomap landmarks", "nmf sparse", "pca"]
    assert fitted_everywhere(names) == {name: {place: [] for place in PLACES} for name in names}
