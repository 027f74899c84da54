"""The same rows in every format, each written by its own library."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

N, D = 517, 6


def rows_of(n: int = N, d: int = D, dtype: str = "f8") -> np.ndarray:
    """Rows with many zeros, of numbers that float32 holds exactly, so that every format can keep them."""
    values = np.random.default_rng(0).integers(-40, 40, (n, d)) / 8
    return np.where(np.abs(values) < 2, 0, values).astype(dtype)


def names_of(n: int = N) -> list[str]:
    """Names of the rows, of several lengths, in no order."""
    return [f"cell-{number * 13 % n}{'é' * (number % 3)}" for number in range(n)]


def frame(rows: np.ndarray, names: list[str]) -> Any:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rows, columns=[f"x{j}" for j in range(rows.shape[1])])
    table.insert(0, "cell", names)
    table["kind"] = [f"kind {number % 3}" for number in range(len(rows))]
    return table


def csv_file(path: Path, rows: np.ndarray, names: list[str]) -> None:
    frame(rows, names).to_csv(path, index=False)


def parquet_file(path: Path, rows: np.ndarray, names: list[str]) -> None:
    pytest.importorskip("pyarrow")
    frame(rows, names).to_parquet(path, row_group_size=100 if len(rows) < 10_000 else 20_000)


def hdf5_file(path: Path, rows: np.ndarray, names: list[str], chunks: Any = (50, 3)) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("group/rows", data=rows, chunks=chunks, compression="gzip" if chunks else None)
        file["cell"] = np.array(names, dtype=object)
        file["kind"] = np.arange(len(rows)) % 3


def annotated(rows: np.ndarray, names: list[str], *, layout: str = "csr") -> Any:
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    from scipy import sparse

    kinds = pd.Categorical([f"kind {number % 3}" for number in range(len(rows))])
    obs = pd.DataFrame({"kind": kinds, "depth": np.arange(len(rows))}, index=names)
    X = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "dense": np.asarray}[layout](rows)
    found = ad.AnnData(X, obs=obs)
    found.layers["twice"] = 2 * rows
    found.obsm["X_two"] = rows[:, :2]
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """What AnnData has to say of its own defaults and of pandas is no matter of these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def h5ad_file(path: Path, rows: np.ndarray, names: list[str], layout: str = "csr") -> None:
    with quiet():
        annotated(rows, names, layout=layout).write_h5ad(path)


def anndata_zarr(path: Path, rows: np.ndarray, names: list[str], layout: str = "csr", version: int = 3) -> None:
    ad = pytest.importorskip("anndata")
    with quiet(), ad.settings.override(zarr_write_format=version):
        annotated(rows, names, layout=layout).write_zarr(path, chunks=(100, rows.shape[1]))


def anndata_zarr_2(path: Path, rows: np.ndarray, names: list[str]) -> None:
    anndata_zarr(path, rows, names, version=2)


def netcdf_file(path: Path, rows: np.ndarray, names: list[str]) -> None:
    netcdf = pytest.importorskip("netCDF4")
    with netcdf.Dataset(path, "w") as file:
        file.createDimension("row", len(rows))
        file.createDimension("column", rows.shape[1])
        file.createVariable("rows", rows.dtype, ("row", "column"), chunksizes=(50, 2), zlib=True)[:] = rows
        file.createVariable("cell", str, ("row",))[:] = np.array(names, dtype=object)


def vecs_file(path: Path, rows: np.ndarray, names: list[str]) -> None:
    body = np.zeros(len(rows), np.dtype([("length", "<i4"), ("values", "<f4", (rows.shape[1],))]))
    body["length"], body["values"] = rows.shape[1], rows
    path.write_bytes(body.tobytes())


def packed_csv(path: Path, rows: np.ndarray, names: list[str]) -> None:
    path.write_bytes(gzip.compress(frame(rows, names).to_csv(index=False).encode()))


COLUMNS = tuple(f"x{j}" for j in range(D))
FORMATS: dict[str, Any] = {
    "rows.csv": csv_file,
    "rows.csv.gz": packed_csv,
    "rows.parquet": parquet_file,
    "rows.h5": hdf5_file,
    "rows.h5ad": h5ad_file,
    "rows.zarr": anndata_zarr,
    "rows2.zarr": anndata_zarr_2,
    "rows.nc": netcdf_file,
    "rows.fvecs": vecs_file,
}
"""Each format's file name and its writer."""
TABLES = ("rows.csv", "rows.csv.gz", "rows.parquet")
NAMED = (*TABLES, "rows.h5", "rows.nc")
"""Formats in which a vector ``cell`` names the rows."""
BARE = ("rows.fvecs",)
"""Formats of float32 rows without any names."""


def libraries(name: str) -> None:
    """Skip where what reads the format is not installed."""
    needed = {".csv": "pyarrow", ".gz": "pyarrow", ".parquet": "pyarrow", ".h5": "h5py", ".h5ad": "anndata"}
    library = {**needed, ".zarr": "anndata", ".nc": "netCDF4"}.get(Path(name).suffix)
    if library:
        pytest.importorskip(library, reason=f'pip install "bigembed[all]" brings {library}')
