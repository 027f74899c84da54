"""Rows of every kind become one source; sparse ones and labels too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from anndata import AnnData, read_h5ad
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import bigembed as be
from bigembed import plotting
from bigembed.errors import DamagedError, InputError, InputTypeError, PlanError
from bigembed.rows import labels as module
from bigembed.rows.input import StreamedRows, row_source
from bigembed.rows.labels import read_labels
from bigembed.rows.sparse import write_csr
from bigembed.store import arrays
from bigembed.store.arrays import write_array

try:
    import dask.dataframe as dd
except ImportError:
    dd = None
try:
    import xarray as xr
except ImportError:
    xr = None
ROWS = np.random.default_rng(0).normal(size=(401, 7)).astype("f4")


@pytest.fixture(scope="module")
def places(tmp_path_factory: Any) -> dict[str, str]:
    """The same rows in chunks of whole rows, in tiles, and in Zarr format 2; and a group that xarray opens."""
    folder = tmp_path_factory.mktemp("rows")
    made = {"rows": (90, 7), "tiles": (50, 3), "old": (90, 7)}
    for name, chunks in made.items():
        stored = zarr.create_array(
            str(folder / name), shape=ROWS.shape, chunks=chunks, dtype="f4", zarr_format=2 if name == "old" else 3
        )
        stored[...] = ROWS
    if xr is not None:
        xr.Dataset({"x": (("a", "b"), ROWS)}).to_zarr(folder / "group", zarr_format=2)
    return {name: str(folder / name) for name in (*made, "group")}


def opened(places: dict[str, str], kind: str) -> Any:
    """A lazy array of the rows."""
    return {
        "open_array": lambda: be.open_array(places["rows"]),
        "from_zarr": lambda: da.from_zarr(places["rows"]),
        "tiles": lambda: da.from_zarr(places["tiles"]),
        "chunks of its own": lambda: da.from_zarr(places["rows"], chunks=(77, 5)),
        "inline": lambda: da.from_array(zarr.open_array(places["rows"]), chunks=(90, 7), inline_array=True),
        "format 2": lambda: be.open_array(places["old"]),
        "xarray": lambda: xr.open_zarr(places["group"], chunks=None, consolidated=False)["x"],
        "xarray of Dask": lambda: xr.open_zarr(places["group"], consolidated=False)["x"],
    }[kind]()


KINDS = ("open_array", "from_zarr", "tiles", "chunks of its own", "inline", "format 2")
if xr is not None:
    KINDS += ("xarray", "xarray of Dask")


class Asked:
    """As AnnData is: it has a length and a shape, and makes another of itself for any index."""

    shape = (50, 3)

    def __init__(self) -> None:
        self.times = 0

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: Any) -> Asked:
        self.times += 1
        return self


READERS: dict[str, Any] = {
    "rows": lambda given: be.PCA(1).fit(given),
    "rows for a graph": lambda given: be.DiffusionMap(1).fit(given),
    "distances": lambda given: be.ClassicalMDS(1, metric="precomputed").fit(given),
    "new rows": lambda given: be.PCA(1).fit(ROWS).transform(given),
    "coordinates": lambda given: be.PCA(1).fit(ROWS).inverse_transform(given),
    "labels": lambda given: be.LinearDiscriminantAnalysis().fit(ROWS, given),
    "a lazy array": be.open_array,
    "a graph": be.open_graph,
    "points to draw": lambda given: plotting.scatter("never.png", given),
}
FRACTION = np.array([[0.0, 1.0], [1 / 3, 2.0]])
LOST: dict[str, tuple[str, np.ndarray]] = {
    "a fraction": ("u1", FRACTION),
    "a fraction in single precision": ("i8", FRACTION.astype("f4")),
    "nearly a whole number": ("u1", np.array([[0.0, 1.0], [3 - 1e-12, 2.0]])),
    "more digits": ("f2", FRACTION.astype("f4")),
    "too large": ("f2", np.array([[0.0, 1.0], [1e6, 2.0]])),
    "no truth value": ("?", np.array([[0, 1], [2, 1]])),
    "out of range": ("i1", np.array([[0, 1], [200, 2]])),
    "negative": ("u2", np.array([[0, 1], [-1, 2]], "i2")),
    "missing": ("i4", np.array([[0, 1], [np.nan, 2]])),
    "complex": ("f8", np.array([[0, 1], [1j, 2]])),
}
"""Rows, and a dtype in which they would be others."""
HELD: dict[str, tuple[str, np.ndarray]] = {
    "rounded as float32 is": ("f4", FRACTION),
    "whole numbers": ("u1", FRACTION.round()),
    "small numbers": ("i1", np.array([[0, 1], [-100, 2]])),
    "few digits": ("f2", np.array([[0.0, 1.0], [0.25, np.nan]])),
    "narrower": ("f8", FRACTION.astype("f4")),
    "truth values": ("u1", FRACTION > 0.5),
    "objects": ("f4", FRACTION.astype(object)),
}
"""Rows that are the same in a dtype that is not theirs."""
KINDS_OF_NA = ("Int64", "Float32", "boolean", "int64[pyarrow]", "double[pyarrow]", "bool[pyarrow]", "object")


class TestInput:
    """Rows of every kind: stored ones are read where they lie, others by the tasks that need them."""

    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data(), kind=st.sampled_from(KINDS))
    def test_slices_of_a_stored_array_are_windows_of_it(self, places: dict[str, str], data: Any, kind: str) -> None:
        X, wanted = opened(places, kind), ROWS
        for _ in range(data.draw(st.integers(1, 2))):
            low = [data.draw(st.integers(0, size - 1)) for size in wanted.shape]
            high = [data.draw(st.integers(first + 1, size)) for first, size in zip(low, wanted.shape, strict=True)]
            index = tuple(slice(*span) for span in zip(low, high, strict=True))
            X, wanted = X[index], wanted[index]
        source, _ = row_source(X, Path("/nowhere"))
        assert source.path is not None
        assert source.shape == wanted.shape
        assert source.read(0, len(wanted)).tobytes() == wanted.tobytes()
        cut = tuple(slice(data.draw(st.integers(0, size - 1)), None) for size in wanted.shape)
        spans = tuple((part.start, size) for part, size in zip(cut, wanted.shape, strict=True))
        assert source.window(*spans).tobytes() == wanted[cut].tobytes()

    @pytest.mark.parametrize(
        "other",
        [
            lambda X: X + 0, lambda X: X[::2], lambda X: X[::-1], lambda X: X[[3, 1, 2]], lambda X: X.T,
            lambda X: X.astype("f8"), lambda X: da.concatenate([X[200:], X[:200]]), lambda X: da.concatenate([X, X]),
            lambda X: X.map_blocks(np.negative), lambda X: X[:, [0, 2]],
        ],
    )  # fmt: skip
    def test_what_is_no_window_is_computed(self, places: dict[str, str], other: Any, tmp_path: Path) -> None:
        for kind in ("open_array", "tiles"):
            X = other(opened(places, kind))
            source, _ = row_source(X, tmp_path)
            assert isinstance(source, StreamedRows)
            assert source.read(2, X.shape[0]).tobytes() == X.compute()[2:].tobytes()

    def test_chunks_that_were_never_written_are_what_zarr_makes_of_them(self, tmp_path: Path) -> None:
        stored = zarr.create_array(str(tmp_path / "rows"), shape=(9, 2), chunks=(3, 2), dtype="f4", fill_value=7)
        stored[:3] = 1
        assert row_source(da.from_zarr(stored), tmp_path)[0].read(2, 5).tolist() == [[1, 1], [7, 7], [7, 7]]

    def test_an_array_of_one_pass_is_not_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arrays, "create_rows", None)
        X = da.from_array(ROWS, chunks=(70, 4)) * 2
        found = be.PCA(2).fit(X)
        assert np.array_equal(found.components_, be.PCA(2).fit(ROWS * 2).components_)
        assert np.array_equal(np.asarray(found.embedding_), be.PCA(2).fit(ROWS * 2).embedding_)
        assert be.build_neighbor_graph(X, 5).edges == be.build_neighbor_graph(ROWS * 2, 5).edges

    def test_an_array_of_many_passes_is_written_once_where_there_is_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, calls = da.from_array(np.abs(ROWS), chunks=(70, 4)) + 1, []
        write = arrays.write_rows
        monkeypatch.setattr(arrays, "write_rows", lambda *given: calls.append(given[1]) or write(*given))
        found = be.NMF(2, random_state=0, max_iter=3, tol=0.9).fit(X)
        assert calls == [0]
        held = be.NMF(2, random_state=0, max_iter=3, tol=0.9).fit(np.abs(ROWS) + 1)
        assert np.array_equal(found.components_, held.components_)
        monkeypatch.setattr("bigembed.store.free_bytes", lambda path: 100)
        with pytest.raises(PlanError, match=r"takes 11,228 bytes in .*, where 100 are free. Give workdir"):
            be.NMF(2, random_state=0, max_iter=3, tol=0.9).fit(X)

    def test_a_chunk_is_computed_once_by_a_task_of_a_pass(self) -> None:
        n, seen = 200_003, []

        def made(block: Any, block_info: Any = None) -> Any:
            seen.append(block_info[None]["array-location"][0])
            start, stop = seen[-1]
            return np.arange(2.0 * start, 2.0 * stop).reshape(-1, 2) % 1013

        X = da.zeros((n, 2), chunks=(99_000, 2)).map_blocks(made, dtype="f8", meta=np.zeros((0, 2)))
        be.PCA(1).fit(X)
        assert sorted(set(seen)) == [(0, 99_000), (99_000, 198_000), (198_000, n)]
        # The moments: two tasks take two canonical blocks each, and need the second chunk both. The judgement: each
        # of four blocks by itself, two of them in two chunks.
        assert len(seen) == 4 + 6

    @pytest.mark.skipif(xr is None, reason="xarray is not installed")
    def test_xarray_that_is_not_in_memory_stays_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        xr.Dataset({"x": (("a", "b"), ROWS)}).to_netcdf(tmp_path / "rows.nc")
        monkeypatch.setattr(xr.DataArray, "__array__", None)
        wanted = be.PCA(2).fit(ROWS).components_
        for X in (
            xr.open_dataset(tmp_path / "rows.nc")["x"],
            xr.DataArray(da.from_array(ROWS, chunks=(70, 4)), dims=("a", "b")),
        ):
            assert np.array_equal(be.PCA(2).fit(X).components_, wanted)
            assert np.array_equal(be.open_array(X)[3:5].compute(), ROWS[3:5])

    def test_masked_entries_are_no_data(self) -> None:
        values = np.where(np.arange(401)[:, None] % 50 == 49, np.float32(-1e34), ROWS)
        masked = np.ma.masked_less(values, -1e30)
        message = r"masked entries, which are not numbers: 56 in 8 rows; the first are rows \[49, 99, 149"
        with pytest.raises(InputError, match=message):
            be.PCA(2).fit(masked)
        with pytest.raises(InputError, match=message):
            be.build_neighbor_graph(masked)
        with pytest.raises(InputError, match="masked entries"):
            be.PCA(2).fit(ROWS).transform(masked)
        for X in (da.from_array(masked, chunks=(60, 7)), be.open_array(masked)):
            for method in (be.PCA(2), be.NMF(2)):
                with pytest.raises(InputError, match="masked entries"):
                    method.fit(X)
        with pytest.raises(InputError, match="weights hold masked entries"):
            be.PCA(2).fit(ROWS, sample_weight=np.ma.masked_equal(np.ones(401), 1))
        whole = np.ma.array(ROWS, mask=False)
        assert np.array_equal(be.PCA(2).fit(whole).components_, be.PCA(2).fit(ROWS).components_)

    def test_masked_vectors_and_starts_are_no_data(self, tmp_path: Path) -> None:
        labels = np.ma.masked_equal(np.arange(401) % 5, 4)
        for y in (labels, da.from_array(labels, chunks=100)):
            with pytest.raises(InputError, match=r"labels hold masked entries.*rows \[4, 9, 14"):
                be.LinearDiscriminantAnalysis(1).fit(ROWS, y)
        weights = da.from_array(np.ma.masked_equal(np.arange(401.0), 7), chunks=100)
        with pytest.raises(InputError, match=r"weights hold masked entries.*rows \[7\]"):
            be.PCA(2).fit(ROWS, sample_weight=weights)
        start = np.ma.masked_less(np.arange(1.0, 15.0).reshape(2, 7), 2)
        with pytest.raises(InputError, match=r"init: starting components hold masked entries.*rows \[0\]"):
            be.NMF(2, init=start).fit(np.abs(ROWS))
        write_array(tmp_path / "grown.zarr", np.zeros((3, 2)))
        with pytest.raises(InputError, match=r"rows hold masked entries.*rows \[1\]"):
            be.append_rows(tmp_path / "grown.zarr", np.ma.array(np.ones((2, 2)), mask=[[0, 0], [0, 1]]))
        assert be.append_rows(tmp_path / "grown.zarr", np.ma.array(np.ones((2, 2)), mask=False)) == 5

    @pytest.mark.parametrize("reader", READERS)
    def test_an_object_that_is_no_array_is_refused_before_it_is_asked_for_entries(self, reader: str) -> None:
        for one in (asked := Asked(), [asked], {"a": ROWS}, {1.0}, iter(ROWS)):
            name = "Asked" if one == [asked] else type(one).__name__
            with pytest.raises(InputTypeError, match=f"got {name}, which is no array"):
                READERS[reader](one)
        assert asked.times <= (reader == "points to draw")  # (a slice)

    def test_what_holds_several_arrays_is_refused_with_how_to_take_one(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            for one, said in (
                (AnnData(ROWS), r"AnnData.* adata\.X or adata\.obsm\[.X_pca.\]; of a file .*ingest, reads it"),
                (file, r"File.*file\["),
                (zarr.create_group({}), r"Group.*group\["),
            ):
                with pytest.raises(InputTypeError, match=f"rows: got {said}"):
                    be.PCA(1).fit(one)

    def test_tables_of_arrow_have_the_names_of_their_columns(self) -> None:
        frame = pd.DataFrame(ROWS[:, :3], columns=["a", "b", "c"])
        table = pa.Table.from_pandas(frame)
        fitted = be.PCA(2).fit(table)
        assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(fitted.transform(table), be.PCA(2).fit(frame).transform(frame))
        with pytest.raises(InputError, match="same order"):
            fitted.transform(table.select(["b", "a", "c"]))
        coded = table.append_column("kind", pa.array(["x", "y"] * (len(frame) // 2) + ["x"] * (len(frame) % 2)))
        assert be.OneHotEncoder(["kind"]).fit(coded).categories_ == [["x", "y"]]

    @pytest.mark.recipes
    def test_queries_and_streams_say_what_to_give(self) -> None:
        polars, duckdb = (pytest.importorskip(name, reason="extra: recipes") for name in ("polars", "duckdb"))
        xarray = pytest.importorskip("xarray", reason="extra: recipes")
        frame = polars.DataFrame(ROWS)
        table = frame.to_arrow()
        each = xarray.Dataset({"a": ("row", ROWS[:, 0]), "b": ("row", ROWS[:, 1])})
        for query, said, found in (
            (frame.lazy(), r"LazyFrame.*collect\(\)", lambda query: query.collect()),
            (duckdb.sql("SELECT * FROM range(5) a(x), range(7) b(y)"), r"Relation.*pl\(\) or df\(\)", lambda q: q.df()),
            (pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), "read_all", lambda q: q.read_all()),
            (each, r"ds\.to_array\(\)\.T", lambda ds: ds.to_array().T),
        ):
            with pytest.raises(InputTypeError, match=said):
                be.PCA(2).fit(query)
            assert be.PCA(2).fit_transform(found(query)).shape[1] == 2
        with pytest.raises(InputError, match=r"array\.reshape\(len\(array\), -1\)"):
            be.PCA(2).fit(np.zeros((4, 3, 2)))

    def test_sparse_rows_of_anndata_in_its_file_and_in_a_view(self, tmp_path: Path) -> None:
        matrix = sparse.random_array((90, 8), density=0.4, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
        cells = AnnData(sparse.csr_matrix(matrix))
        cells.write_h5ad(tmp_path / "cells.h5ad")
        backed = read_h5ad(tmp_path / "cells.h5ad", backed="r")
        wanted = be.PCA(3).fit_transform(matrix)
        np.testing.assert_allclose(be.PCA(3).fit(backed.X).embedding_.compute(), wanted, atol=1e-5)
        view = cells[::2]
        assert "View" in type(view.X).__name__
        np.testing.assert_allclose(be.PCA(3).fit_transform(view.X), be.PCA(3).fit_transform(matrix[::2]), atol=1e-5)

    @pytest.mark.parametrize("kind", KINDS_OF_NA)
    def test_na_of_pandas_is_nan(self, kind: str) -> None:
        values = [1, None, 0] * 20
        frame = pd.DataFrame({"a": np.arange(60.0), "b": pd.array(values, dtype=kind), "c": [True, False] * 30})
        plain = np.column_stack([frame["a"], [np.nan if one is None else one for one in values], frame["c"]]).astype(
            float
        )
        for step in (be.Missing(), be.Missing(action="fill")):
            found, expected = step.fit_transform(frame), step.transform(frame[:9])
            np.testing.assert_array_equal(found, step.fit_transform(plain))
            np.testing.assert_array_equal(expected, step.transform(plain[:9]))
        with pytest.raises(InputError, match=r"contains NaN: 20 of 60 rows do, the first are rows \[1, 4, 7"):
            be.PCA(1).fit(frame)
        encoded = be.OneHotEncoder(["kind"]).fit(frame.assign(kind=pd.array(["x", None, "y"] * 20, dtype="string")))
        assert encoded.categories_ == [["x", "y"]]
        assert np.isnan(np.asarray(encoded.embedding_)).any(axis=1).sum() == 20

    def test_columns_that_are_no_numbers_are_named(self) -> None:
        frame = pd.DataFrame(ROWS[:, :3], columns=list("abc"))
        wrong = frame.assign(kind="foo", when=pd.Timestamp(0), group=pd.Categorical(["x"] * len(frame)))
        said = (
            r"in the columns kind \(could not convert.*foo.*\), when \(dates.*\), group .*OneHotEncoder.*step 'one_hot'"
        )
        with pytest.raises(InputError, match=said):
            be.PCA(1).fit(wrong)
        with pytest.raises(InputError, match=r"in the columns, counted from 0, 1 \(.*foo"):
            be.PCA(1).fit(np.array([[1.0, "foo"], [2.0, "foo"]], object))
        with pytest.raises(InputError, match=r"columns when \(dates"):
            be.OneHotEncoder(["kind", "group"]).fit(wrong)
        with pytest.raises(InputError, match="Complex data not supported"):
            be.PCA(1).fit(frame.assign(z=1j, kind="foo"))
        with pytest.raises(InputError, match=r"row 3 holds the integer 9007199254740993"):
            be.PCA(1).fit(frame[:4].assign(big=pd.Series([0, None, 2, (1 << 53) + 1], dtype=object)))
        texts = frame.astype(str)
        np.testing.assert_array_equal(be.PCA(1).fit_transform(texts), be.PCA(1).fit_transform(texts.astype(float)))

    @pytest.mark.parametrize("kind", ["int64", "uint64", "Int64", "int64 with gaps"])
    @pytest.mark.parametrize("beside", [0.5, True, "0.5"])
    def test_integers_beside_other_numbers_are_not_rounded(self, kind: str, beside: Any) -> None:
        gap = kind.endswith("gaps")
        for first in (1 << 53, 0):
            whole = pd.Series(np.arange(60) + first, dtype="Int64" if gap else kind)
            if gap:
                whole[7] = pd.NA
            frame = pd.DataFrame({"x": [beside] * 60, "big": whole})
            given = [frame, pa.Table.from_pandas(frame)]
            given += [dd.from_pandas(frame, npartitions=3)] if dd is not None and not isinstance(beside, str) else []
            for one in given:
                if first:
                    with pytest.raises(InputError, match=r"(column big|row 1 holds).*beyond 2\^53"):
                        be.Missing(fill="median").fit(one)
                else:
                    assert be.Missing(fill="median").fit(one).transform(frame)[59, 1] == 59


def computed(rows: Any, dtype: str, sparsely: bool = False) -> Any:
    """A Dask array that says that it has this dtype, and computes these rows."""
    meta = sparse.csr_array((0, 0), dtype=dtype) if sparsely else np.empty((0, 0), dtype)
    lazy = da.from_array(rows, chunks=(1, 2)).map_blocks(sparse.csr_array if sparsely else np.asarray, meta=meta)
    assert lazy.dtype == dtype
    return lazy


class TestDeclared:
    """What the dtype that a Dask array declares does not hold is refused wherever its rows are computed."""

    @pytest.mark.parametrize("kind", LOST)
    def test_rows_that_would_be_others_are_refused(self, kind: str, tmp_path: Path) -> None:
        dtype, rows = LOST[kind]
        row = "[01]" if kind == "complex" else 1  # (of complex rows none is taken, and blocks come in any order)
        source, _ = row_source(computed(rows, dtype), tmp_path)
        said = rf"declared as {source.dtype}, and hold other numbers as {rows.dtype}.*in row {row}, .*meta="
        with pytest.raises(InputError, match=said):
            source.read(0, 2)
        with pytest.raises(InputError, match=said):
            source.window((0, 2), (0, 1))
        with pytest.raises(InputError, match=said):
            source.stored_copy(tmp_path)
        if dtype != "f2":  # (which SciPy has no sparse rows of)
            with pytest.raises(InputError, match=said):
                row_source(computed(rows, dtype, sparsely=True), tmp_path, sparse=True)
        assert not [*tmp_path.glob("*.zarr/*.json")]

    @pytest.mark.parametrize("kind", HELD)
    def test_rows_that_are_the_same_are_worked_on(self, kind: str, tmp_path: Path) -> None:
        dtype, rows = HELD[kind]
        expected = rows.astype(np.float64 if dtype == "f8" else np.float32)
        source, _ = row_source(computed(rows, dtype), tmp_path)
        for one in (source, source.stored_copy(tmp_path)):
            assert one.dtype == dtype
            np.testing.assert_array_equal(one.matrix(0, 2), expected)
        if dtype != "f2" and rows.dtype != object:
            found, _ = row_source(computed(rows, dtype, sparsely=True), tmp_path, sparse=True)
            np.testing.assert_array_equal(found.matrix(0, 2).toarray(), expected)

    def test_a_graph_of_fractions_that_are_declared_as_pixels_is_refused(self) -> None:
        pixels = da.from_array(np.random.default_rng(0).integers(0, 255, (300, 4), np.uint8), chunks=(100, 4))
        with pytest.raises(InputError, match=r"declared as uint8.*float64"):
            be.build_neighbor_graph(pixels.map_blocks(lambda block: block / 255.0, dtype=pixels.dtype), 5)

    def test_sparse_blocks_that_are_declared_as_dense_are_named(self, tmp_path: Path) -> None:
        lazy = da.from_array(ROWS, chunks=(90, 7)).map_blocks(sparse.csr_array, meta=np.empty((0, 0), "f4"))
        source, _ = row_source(lazy, tmp_path)
        for read in (lambda: source.read(0, 5), lambda: source.stored_copy(tmp_path)):
            with pytest.raises(InputTypeError, match=r"sparse blocks.*meta=scipy"):
                read()


def dask_of(matrix, chunks):
    blocks = da.from_array(matrix.toarray(), chunks=chunks)
    return blocks.map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0), dtype=matrix.dtype))


class TestSparse:
    """Sparse rows from memory, Dask and Zarr."""

    @pytest.fixture
    def matrix(self):
        return sparse.random(500, 40, density=0.1, random_state=0, format="csr", dtype="f4")

    def test_version_two_groups_are_read(self, matrix, tmp_path):
        group = zarr.open_group(str(tmp_path / "v2"), mode="w", zarr_format=2)
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [500, 40]})
        for name in ("indptr", "indices", "data"):
            array = group.create_array(
                name, shape=getattr(matrix, name).shape, chunks=(100,), dtype=getattr(matrix, name).dtype
            )
            array[...] = getattr(matrix, name)
        source, _ = row_source(tmp_path / "v2", tmp_path, sparse=True)
        np.testing.assert_array_equal(source.matrix(3, 300).toarray(), matrix[3:300].toarray())

    def test_what_is_no_csr_group_is_refused(self, matrix, tmp_path):
        write_csr(tmp_path / "group", matrix)
        zarr.open_group(str(tmp_path / "group")).attrs["encoding-type"] = "csc_matrix"
        with pytest.raises(InputError, match="tocsr"):
            row_source(tmp_path / "group", tmp_path, sparse=True)

    def test_columns_out_of_range_are_damage(self, matrix, tmp_path):
        write_csr(tmp_path / "group", matrix)
        zarr.open_group(str(tmp_path / "group")).attrs["shape"] = [500, 30]
        source, _ = row_source(tmp_path / "group", tmp_path, sparse=True)
        with pytest.raises(DamagedError, match="out of range"):
            source.read(0, 500)

    def test_methods_for_dense_rows_refuse_sparse_ones(self, matrix, tmp_path):
        write_csr(tmp_path / "group", matrix)
        for form in (matrix, tmp_path / "group", dask_of(matrix, (77, 40))):
            with pytest.raises(InputTypeError, match=r"dense|sparse"):
                row_source(form, tmp_path)


NUMBERS = np.random.default_rng(0).choice([3, -1, 7, 12], 500)
WORDS = np.array([f"class {number}" for number in NUMBERS])


class TestLabels:
    """Labels of any kind become the same class numbers."""

    @pytest.mark.parametrize("values", [NUMBERS, WORDS, NUMBERS > 3, NUMBERS.astype(float), WORDS.astype(object)])
    def test_every_container_gives_the_same(
        self, values: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "PIECE_ROWS", 64)
        classes, codes = np.unique(values, return_inverse=True)
        given = [values, values.tolist(), pd.Series(values), da.from_array(values, chunks=37)]
        if values.dtype != object:
            np.save(tmp_path / "y.npy", values)
            given += [tmp_path / "y.npy"]
        text = values.dtype.kind in "OU"
        array = zarr.create_array(tmp_path / "y.zarr", shape=(500,), chunks=(64,), dtype=str if text else values.dtype)
        array[:] = values
        given += [array, str(tmp_path / "y.zarr")]
        for y in given:
            found = read_labels(y)
            assert found.classes.tolist() == classes.tolist()
            np.testing.assert_array_equal(found.codes, codes)
            assert not len(found.missing)

    @pytest.mark.parametrize(
        "y",
        [
            [1.0, np.nan, 2.0, 1.0],
            np.array([1, None, 2, 1], dtype=object),
            ["a", None, "b", "a"],
            np.array(["a", np.nan, "b", "a"], dtype=object),
            pd.Series([1, pd.NA, 2, 1], dtype="Int64"),
            np.array(["2020-01-01", "NaT", "2021-01-01", "2020-01-01"], dtype="datetime64[D]"),
            da.from_array(np.array([1.0, np.nan, 2.0, 1.0]), chunks=1),
        ],
    )
    def test_what_is_no_label(self, y: object) -> None:
        found = read_labels(y)
        assert found.codes.tolist() == [0, -1, 1, 0]
        assert found.missing.tolist() == [1]
        assert read_labels([-1, 0, -1]).codes.tolist() == [0, 1, 0]  # −1 is a class like any other

    @pytest.mark.parametrize(
        ("y", "error", "said"),
        [
            (None, InputError, "requires y to be passed, but the target y is None"),
            ([], InputError, "no labels|y should be"),
            (np.zeros((3, 2)), InputError, r"shape \(3, 2\)"),
            ([0.5, 1.0], InputError, "Unknown label type: continuous.*0.5"),
            (np.array([0.5, 1.0], object), InputError, "Unknown label type: continuous"),
            ([1.0, np.inf], InputError, "contains infinity"),
            ([1, "a", None], InputTypeError, "int.*str"),
            (da.from_array(np.array([1, "a"], object), chunks=1), InputTypeError, "numbers in one place and text"),
            (np.array([1j, 2]), InputError, "complex"),
        ],
    )
    def test_what_cannot_be_labels(self, y: object, error: type[Exception], said: str) -> None:
        with pytest.raises(error, match=said):
            read_labels(y)
