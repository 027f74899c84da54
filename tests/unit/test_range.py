"""Rows whose squares are no numbers of their dtype, and integers that float64 would round: refused, or right."""

from __future__ import annotations

import inspect
import warnings
from functools import cache

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import bigembed as be
from bigembed.errors import BigembedError, InputError
from bigembed.maps import REGISTRY, method
from bigembed.rows import as_worked
from bigembed.rows.formats import ingest
from bigembed.rows.reader import Choice
from tests.cases import WAYS
from tests.some import a_few

BASE = np.abs(np.random.default_rng(0).normal(size=(120, 4)) * [3, 1, 1, 1]) + 0.1
SINGLE = {"overflow": 2.0**64, "largest": 2.0**122, "underflow": 2.0**-76, "least": 2.0**-118}
DOUBLE = {"overflow": 2.0**511, "largest": 2.0**1018, "underflow": 2.0**-531, "least": 2.0**-960}
SCALE_FREE = set(REGISTRY) - {"kernel_pca", "nmf"}
"""Methods whose map of c·X is that of X, up to size (of NMF up to where its descent ends)."""


def fitted(name: str, rows: np.ndarray) -> np.ndarray:
    """Sizes of the coordinates, over the largest."""
    cls = method(name)
    known = inspect.signature(cls).parameters
    asked = {"n_components": 1 if name == "linear_discriminant" else 2, "n_landmarks": 40}
    made = cls(**{key: value for key, value in asked.items() if key in known})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.abs(np.asarray(made.fit_transform(rows, (BASE[:, 0] > 2).astype(int))))
    assert np.isfinite(found).all()
    assert found.any()
    return found / found.max()


@cache
def in_range(name: str) -> np.ndarray:
    return fitted(name, BASE)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in WAYS else pytest.mark.slow) for name in sorted(SCALE_FREE)],
)
def test_rows_out_of_range_are_refused_or_right(name):
    wanted = in_range(name)
    said: list[str] = []
    for dtype, scales in (("f4", SINGLE), ("f8", DOUBLE)):
        for scale in scales.values():
            try:
                found = fitted(name, (BASE.astype(dtype) * np.dtype(dtype).type(scale)))
            except InputError as error:
                said.append(str(error))
            else:
                np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert len(said) >= 4
    assert all("Multiply all rows by 2**" in one for one in said), said


@a_few(2, "scale", [2.0**50, 2.0**-40, 2.0**200, 2.0**-200])
def test_rows_in_range_are_right(scale):
    """The control; in float64 far beyond what float32 holds."""
    for name in ("diffusion_map", "pca", *(["isomap"] if 2.0**-60 < scale < 2.0**60 else [])):
        np.testing.assert_allclose(fitted(name, BASE * scale), in_range(name), atol=1e-6)


def test_new_rows_out_of_range():
    rows = BASE.astype("f4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = be.DiffusionMap(2).fit(rows)
    for new in (np.full((2, 4), 3e38, "f4"), np.full((2, 4), 1e25, "f4")):
        with pytest.raises(InputError, match="the squares of the rows overflow"):
            model.transform(new)
    with pytest.raises(InputError, match="the squares of the rows overflow"):
        be.PCA(2).fit(BASE).transform(BASE * 2.0**600)


def test_neighbors_and_distances_out_of_range():
    for rows in (BASE * 2.0**511, BASE * 2.0**-531, (BASE * 2.0**70).astype("f4"), (BASE * 2.0**-70).astype("f4")):
        with pytest.raises(InputError, match=r"the squares of the (rows|distances between rows) (over|under)flow"):
            be.build_neighbor_graph(rows, 5)
    with pytest.raises(InputError, match="underflow"):
        be.ClassicalMDS(2, metric="euclidean").fit(BASE * 2.0**-531)


def test_the_advice_helps():
    small = BASE * 2.0**-531
    with pytest.raises(InputError, match=r"Multiply all rows by 2\*\*(\d+)") as caught:
        fitted("pca", small)
    power = int(str(caught.value).split("2**")[1].split(",")[0])
    np.testing.assert_allclose(fitted("pca", small * 2.0**power), in_range("pca"), atol=1e-9)


def test_a_spectrum_whose_values_are_all_equal():
    """The kernel of rows that are far apart is the identity: LAPACK then finds fewer eigenvalues than asked."""
    rows = (BASE * 2.0**60).astype("f4")
    assert np.isfinite(be.KernelPCA(2).fit_transform(rows)).all()


# ------------------------------------------------------------------------------------- integers

BEYOND = np.array([[1, 2], [(1 << 53) + 1, 5], [7, 8]], "i8")


def test_integers_that_float64_would_round_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", BEYOND)
    zarr.create_array(tmp_path / "a.zarr", data=BEYOND)
    sources = [BEYOND, BEYOND.astype("u8"), -BEYOND, BEYOND.astype(object), str(tmp_path / "a.npy"),
               str(tmp_path / "a.zarr"), da.from_array(BEYOND, chunks=2), sparse.csr_array(BEYOND)]  # fmt: skip
    for rows in sources:
        with pytest.raises(InputError, match="float64 would round"):
            be.PCA(1).fit(rows)
    with pytest.raises(InputError, match=r"rows \[11\]"):
        as_worked(BEYOND, "f8", 10)
    with pytest.raises(InputError, match=r"rows \[11\]"):
        as_worked(sparse.csr_array(BEYOND), "f8", 10)
    exact = np.array([[1 << 60, -(1 << 63)], [0, 3 << 55]])
    np.testing.assert_array_equal(as_worked(exact, "f8").astype("i8"), exact)
    with pytest.raises(InputError, match="would round"):
        as_worked(np.array([[2**64 - 1]], "u8"), "f8")
    assert ingest(tmp_path / "a.npy", tmp_path / "copy.zarr") == (3, 2)  # (a copy keeps the dtype)


def test_integers_that_tables_would_round(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": BEYOND[:, 0], "b": np.ones(3)}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in BEYOND.tolist()))
    (tmp_path / "b.csv").write_text("a,b\n9007199254740994,1e300\n1e17,-9007199254740992\n")
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(InputError, match=r"9007199254740993.*would round|would round"):
            ingest(tmp_path / name, tmp_path / "out.zarr")
        assert ingest(tmp_path / name, tmp_path / f"{name}.zarr", Choice(columns=("b",))) == (3, 1)
    assert ingest(tmp_path / "b.csv", tmp_path / "out.zarr") == (2, 2)


# --------------------------------------------------------------------------------------- dtypes

TAKEN = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">f4", ">i8")
REFUSED = ("c8", "c16", "M8[s]", "m8[s]", "U3", "S3", "V4", "g")


def hdf5(path, rows):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file["rows"] = rows


def parquet(path, rows):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1]}), path)


def netcdf(path, rows):
    with pytest.importorskip("netCDF4").Dataset(path, "w") as file:
        file.createDimension("r", 12)
        file.createDimension("c", 2)
        file.createVariable("rows", rows.dtype, ("r", "c"))[:] = rows


WRITERS = {
    "a.npy": np.save,
    "a.zarr": lambda path, rows: zarr.create_array(path, data=rows),
    "b.zarr": lambda path, rows: zarr.create_array(path, data=rows, zarr_format=2),
    "a.h5": hdf5,
    "a.parquet": parquet,
    "a.nc": netcdf,
}
NOT_HELD = {
    "a.zarr": {"g": ValueError},
    "b.zarr": {"g": ValueError},
    "a.h5": dict.fromkeys(("M8[s]", "m8[s]", "U3"), TypeError),
    "a.parquet": dict.fromkeys((">f4", ">i8", "c8", "c16", "V4", "g"), NotImplementedError),
    "a.nc": dict.fromkeys(("c8", "c16"), ValueError)
    | dict.fromkeys(("?", "f2", "M8[s]", "m8[s]", "V4", "g"), TypeError),
}
"""Dtypes that the library of a format does not write, and what it raises."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("dtype", [*TAKEN, *REFUSED])
def test_every_dtype_in_every_format_is_taken_or_refused(dtype, name, tmp_path):
    whole = (np.arange(24) % 5).reshape(12, 2)
    rows = np.zeros((12, 2), dtype) if np.dtype(dtype).kind == "V" else whole.astype(dtype)
    if error := NOT_HELD.get(name, {}).get(dtype):
        with pytest.raises(error):
            WRITERS[name](tmp_path / name, rows)
        return
    WRITERS[name](tmp_path / name, rows)
    if dtype in TAKEN:
        assert ingest(tmp_path / name, tmp_path / "out.zarr") == (12, 2)
        found = np.asarray(zarr.open_array(tmp_path / "out.zarr", mode="r"))
        np.testing.assert_array_equal(found.astype("f8"), rows.astype("f8"))
    else:
        with pytest.raises(BigembedError):
            ingest(tmp_path / name, tmp_path / "out.zarr")
