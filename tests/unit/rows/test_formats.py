"""Formats of rows: what is read, and what is refused."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from PIL import Image

import bigembed as be
from bigembed import PCA
from bigembed.errors import DamagedError, ExistingOutputError, InputError, MissingPathError
from bigembed.rows import arrow, reader
from bigembed.rows.formats import binary as idx
from bigembed.rows.formats import copying, delimited, ingest, open_reader, quotes, shape_note, tables
from bigembed.rows.formats.copying import write_dask
from bigembed.rows.formats.delimited import DelimitedReader
from bigembed.rows.formats.quotes import Quotes, line_of, records
from bigembed.rows.opening import open_zarr
from bigembed.rows.reader import Choice
from bigembed.rows.sparse import group_source
from bigembed.store.arrays import read_array, write_array
from bigembed.store.attributes import source_of
from tests.some import a_few
from tests.unit.rows import written


def choice_of(name, **more):
    return Choice(columns=written.COLUMNS if name in written.TABLES else (), **more)


class TestEveryFormat:
    """What a format lets choose, and what is bad in it, named before work; what all keep: tests/conformance."""

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch):
        """Blocks of 100 rows, so that little data have many; one after the other."""
        for module in (copying, tables):
            monkeypatch.setattr(module, "block_rows", lambda d, itemsize: 100)
        monkeypatch.setattr(copying, "VECTOR_ROWS", 70)
        monkeypatch.setattr(reader, "BLOCK_BYTES", 60 * written.D * 8)
        with dask.config.set(scheduler="synchronous"):
            yield

    @a_few(1, "writer", [written.h5ad_file, written.anndata_zarr])
    def test_anndata_arrays_are_chosen(self, writer, tmp_path):
        written.libraries("rows.h5ad")
        path = tmp_path / ("a.h5ad" if writer is written.h5ad_file else "a.zarr")
        writer(path, written.rows_of(), written.names_of(), "dense")
        for name, wanted in {
            "X": written.rows_of(),
            "layers/twice": 2 * written.rows_of(),
            "obsm/X_two": written.rows_of()[:, :2],
        }.items():
            found = open_reader(path, Choice(array=(name,), fill_absent=True))
            np.testing.assert_array_equal(np.concatenate(list(found.stream(0, written.N))), wanted)
        with pytest.raises(InputError, match=r"no array layers/none; there are X \(517, 6\) float64, layers/twice"):
            open_reader(path, Choice(array=("layers/none",)))
        with pytest.raises(InputError, match="columns cannot be chosen in AnnData; in it can be chosen: array"):
            open_reader(path, Choice(columns=("a",)))

    @a_few(1, "writer", [written.h5ad_file, written.anndata_zarr])
    def test_sparse_rows_stay_sparse_unless_dense_is_asked(self, writer, tmp_path):
        written.libraries("rows.h5ad")
        path = tmp_path / ("a.h5ad" if writer is written.h5ad_file else "a.zarr")
        writer(path, written.rows_of(), written.names_of())
        ingest(path, tmp_path / "sparse.zarr")
        source = group_source(tmp_path / "sparse.zarr")
        assert source.entries == np.count_nonzero(written.rows_of())
        ingest(path, tmp_path / "dense.zarr", Choice(dense=True))
        np.testing.assert_array_equal(read_array(tmp_path / "dense.zarr"), written.rows_of())
        ingest(tmp_path / "sparse.zarr", tmp_path / "again.zarr", Choice(dense=True))
        np.testing.assert_array_equal(read_array(tmp_path / "again.zarr"), written.rows_of())

    def test_rows_by_columns_are_refused_with_what_to_do(self, tmp_path):
        written.libraries("rows.h5ad")
        written.h5ad_file(tmp_path / "a.h5ad", written.rows_of(), written.names_of(), "csc")
        with pytest.raises(InputError, match=r"csc_matrix.*tocsr\(\)"):
            open_reader(tmp_path / "a.h5ad")

    def test_obs_columns_are_vectors(self, tmp_path):
        written.libraries("rows.h5ad")
        written.h5ad_file(tmp_path / "a.h5ad", written.rows_of(), written.names_of())
        ingest(tmp_path / "a.h5ad", tmp_path / "out.zarr", aligned={"labels": "kind", "weights": "depth"})
        assert read_array(tmp_path / "out-labels.zarr").tolist() == [
            f"kind {number % 3}" for number in range(written.N)
        ]
        assert read_array(tmp_path / "out-weights.zarr").tolist() == list(range(written.N))
        found = written.annotated(written.rows_of(), written.names_of())
        found.obs["kind"] = found.obs["kind"].where(np.arange(written.N) != 5)
        with written.quiet():
            found.write_h5ad(tmp_path / "b.h5ad")
        with pytest.raises(InputError, match="obs/kind has no value in 1"):
            ingest(tmp_path / "b.h5ad", tmp_path / "b.zarr", aligned={"labels": "kind"})
        assert not (tmp_path / "b.zarr").exists()

    # ----------------------------------------------------------------- .npy in folders, several axes

    def test_a_folder_of_npy_is_one_file_after_another(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(300, 7, 3)).astype("f4")
        (tmp_path / "parts").mkdir()
        for name, part in (("a0", rows[:100]), ("a1", rows[100:130].astype("f8")), ("a2", rows[130:])):
            np.save(tmp_path / "parts" / f"{name}.npy", part)
        assert ingest(tmp_path / "parts", tmp_path / "out.zarr") == (300, 21)
        copied = read_array(tmp_path / "out.zarr")
        assert copied.dtype == np.float64
        np.testing.assert_array_equal(copied, rows.reshape(300, 21))
        np.testing.assert_array_equal(
            np.concatenate([*open_reader(tmp_path / "parts").stream(95, 215)]), rows.reshape(300, 21)[95:215]
        )
        np.save(tmp_path / "parts" / "b.npy", rows[:, :6])
        with pytest.raises(InputError, match=r"a0\.npy has shape \(100, 7, 3\), b\.npy \(300, 6, 3\)"):
            open_reader(tmp_path / "parts")
        with pytest.raises(InputError, match="columns"):
            open_reader(tmp_path / "parts", Choice(columns=("a",)))

    @pytest.mark.parametrize("form", ["npy", "zarr", "hdf5"])
    def test_leading_axes_make_the_rows(self, form, tmp_path):
        cube = np.random.default_rng(0).normal(size=(50, 7, 3)).astype("f4")
        path = tmp_path / f"cube.{form}"
        if form == "hdf5":
            with h5py.File(path, "w") as file:
                file["cube"] = cube
        else:
            np.save(path, cube) if form == "npy" else zarr.save(path, cube)
        reader = open_reader(path, Choice(rows=("2",)))
        assert reader.shape == (350, 3)
        np.testing.assert_array_equal(np.concatenate([*reader.stream(10, 333)]), cube.reshape(350, 3)[10:333])
        np.testing.assert_array_equal(np.concatenate([*reader.stream(15, 16)]), cube.reshape(350, 3)[15:16])
        assert ingest(path, tmp_path / "out.zarr", Choice(rows=("2",))) == (350, 3)
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), cube.reshape(350, 3))
        assert open_reader(path).shape == (50, 21)  # (the control)
        assert shape_note(open_reader(path)).endswith("rows = 2 would make 350 rows of 3 (pixels of bands, say)")
        assert not shape_note(reader)
        for wrong in ("0", "3", "y", "-1"):
            with pytest.raises(InputError, match=f"rows = {wrong}; of an array of shape .50, 7, 3. .* from 1 to 2"):
                open_reader(path, Choice(rows=(wrong,)))
        with pytest.raises(InputError, match=r"rows = 2; of an array of shape \(350, 3\)"):
            open_reader(tmp_path / "out.zarr", Choice(rows=("2",)))

    def test_each_file_of_a_folder_is_a_row(self, tmp_path):
        images = np.arange(5 * 4 * 3).reshape(5, 4, 3).astype("u1")
        for number, image in enumerate(images):
            np.save(tmp_path / f"{number}.npy", image)
        reader = open_reader(tmp_path, Choice(rows=("0",)))
        np.testing.assert_array_equal(np.concatenate([*reader.stream(1, 4)]), images.reshape(5, 12)[1:4])
        assert open_reader(tmp_path).shape == (20, 3)  # (the control)

    def test_arrays_of_a_group_are_chosen_and_other_folders_say_what_they_hold(self, tmp_path):
        group = zarr.create_group(tmp_path / "ome.zarr")
        group["0"] = rows = np.arange(60.0).reshape(12, 5)
        group["1"] = rows[::2]
        np.testing.assert_array_equal(
            np.concatenate([*open_reader(tmp_path / "ome.zarr", Choice(array=("1",))).stream(0, 6)]), rows[::2]
        )
        with pytest.raises(InputError, match=r"a group of arrays; choose one \(array = '0', say\). There are 0, 1"):
            open_reader(tmp_path / "ome.zarr")
        with pytest.raises(InputError, match=r"array: 2 is not one of its arrays\. There are 0, 1"):
            open_reader(tmp_path / "ome.zarr", Choice(array=("2",)))
        with pytest.raises(InputError, match=r"array: 1 is not one of its arrays\. There are none: an array is chosen"):
            open_reader(tmp_path / "ome.zarr/0", Choice(array=("1",)))
        (tmp_path / "empty").mkdir()
        with pytest.raises(InputError, match=r"an empty folder. Give a Zarr array"):
            open_reader(tmp_path / "empty")
        (tmp_path / "empty/a.docx").touch()
        with pytest.raises(InputError, match=r"a folder of .docx. Give a Zarr array"):
            open_reader(tmp_path / "empty")

    # ------------------------------------------------------------------------------------------ pictures

    def test_pictures_of_a_folder_are_rows_called_as_the_files(self, tmp_path):
        (folder := tmp_path / "pictures").mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3)).astype("u1")
        for number, one in enumerate(pixels):
            Image.fromarray(one).save(folder / f"p{number}.{'png' if number % 2 else 'TIFF'}")
        (folder / "notes.txt").write_text("no picture")
        assert ingest(folder, tmp_path / "out.zarr") == (6, 60)
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), pixels.reshape(6, 60))
        names = read_array(copying.aligned_of(tmp_path / "out.zarr")["ids"]).tolist()
        assert names == ["p0.TIFF", "p1.png", "p2.TIFF", "p3.png", "p4.TIFF", "p5.png"]
        assert not shape_note(open_reader(folder))
        reader = open_reader(folder, Choice(rows=("3",)))
        np.testing.assert_array_equal(np.concatenate([*reader.stream(3, 99)]), pixels.reshape(-1, 3)[3:99])
        one = open_reader(folder / "p1.png", Choice(rows=("3",)))
        np.testing.assert_array_equal(np.concatenate([*one.stream(0, 20)]), pixels[1].reshape(-1, 3))

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            (np.zeros((5, 5), "u1"), r"b.png: 5 × 5 pixels of mode L; the first, a.png, is 4 × 5 pixels of mode L"),
            (np.zeros((5, 4, 4), "u1"), "b.png: 4 × 5 pixels of mode RGBA; .* one size and one mode"),
            (b"nothing", "b.png: not readable as a picture"),
        ],
    )
    def test_pictures_of_another_size_mode_or_none_are_named(self, other, says, tmp_path):
        (folder := tmp_path / "pictures").mkdir()
        Image.fromarray(np.ones((5, 4), "u1")).save(folder / "a.png")
        if isinstance(other, bytes):
            (folder / "b.png").write_bytes(other)
        else:
            Image.fromarray(other).save(folder / "b.png")
        with pytest.raises((InputError, DamagedError), match=says):
            ingest(folder, tmp_path / "out.zarr")
        assert not (tmp_path / "out.zarr").exists()

    @pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "I;16", "F", "1", "P"])
    def test_pixels_are_those_that_pillow_shows(self, mode, tmp_path):
        values = np.random.default_rng(1).integers(0, 200, (4, 6)).astype({"I;16": "u2", "F": "f4"}.get(mode, "u1"))
        made = Image.fromarray(values) if mode in ("I;16", "F") else Image.fromarray(values).convert(mode)
        made.save(tmp_path / "a.tif")
        wanted = np.asarray(made.convert("RGB") if mode == "P" else made)
        found = np.concatenate([*open_reader(tmp_path).stream(0, 1)])
        np.testing.assert_array_equal(found, wanted.reshape(1, -1))

    def test_a_folder_of_csv_is_one_file_after_another(self, tmp_path):
        nights = tmp_path / "nights"
        nights.mkdir()
        (nights / "2026-01.csv").write_text("name,a,b,kind\nx,1,2.5,oak\ny,3,,7\n")
        (nights / "2026-02.csv").write_bytes(b"kind,b,a,name\n7,6,5,z\n")
        (nights / "2026-03.csv.gz").write_bytes(gzip.compress(b"name,a,b,kind\nw,7,8,ash\n"))
        (nights / "README.txt").write_text("no table")
        choice = Choice(columns=("a", "b", "kind"), missing=True, text=True)
        reader = open_reader(nights, choice)
        assert reader.features == ("a", "b", "kind")
        assert reader.categories == {"kind": ("7", "ash", "oak")}
        wanted = [[1, 2.5, 2], [3, np.nan, 0], [5, 6, 0], [7, 8, 1]]
        np.testing.assert_array_equal(np.concatenate([*reader.stream(0, 4)]), wanted)
        np.testing.assert_array_equal(np.concatenate([*reader.stream(1, 3)]), wanted[1:3])
        assert ingest(nights, tmp_path / "a.zarr", Choice(columns=("a",)), {"ids": "name", "weights": "a"}) == (4, 1)
        assert read_array(tmp_path / "a.zarr").ravel().tolist() == [1, 3, 5, 7]
        assert read_array(copying.aligned_of(tmp_path / "a.zarr")["ids"]).tolist() == ["x", "y", "z", "w"]
        assert read_array(copying.aligned_of(tmp_path / "a.zarr")["weights"]).tolist() == [1, 3, 5, 7]
        with pytest.raises(InputError, match=r"2026-01\.csv: values are missing in the columns b \(1\)"):
            ingest(nights, tmp_path / "b.zarr", Choice(columns=("a", "b")))
        (nights / "2026-04.csv").write_text("name,a,b,kind,extra\nx,1,2,oak,0\n")
        with pytest.raises(InputError, match=r"2026-04\.csv: other columns than in .*2026-01\.csv \(extra: extra\)"):
            open_reader(nights, Choice(text=True, aligned=("name",)))
        assert open_reader(nights, Choice(columns=("a",))).shape == (5, 1)

    @pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
    def test_rows_of_several_axes_are_rows_of_numbers(self, tmp_path, kind):
        rows = np.random.default_rng(0).normal(size=(50, 4, 3))
        if kind == "npy":
            np.save(tmp_path / "rows.npy", rows)
        elif kind == "h5":
            with pytest.importorskip("h5py").File(tmp_path / "rows.h5", "w") as file:
                file["positions"], file["time"] = rows, np.arange(50.0)
        else:
            write_array(tmp_path / "rows.zarr", rows)
        assert ingest(tmp_path / f"rows.{kind}", tmp_path / "out.zarr") == (50, 12)
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), rows.reshape(50, 12))

    # ---------------------------------------------------------------------------------------- HDF5

    def test_hdf5_refusals(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        path = tmp_path / "rows.h5"
        with h5py.File(path, "w") as file:
            file["a/three"], file["two"], file["other"] = np.zeros((2, 3, 4)), np.zeros((5, 2)), np.zeros((4, 2))
            file["text"] = np.array([["a", "b"]], dtype="S1")
            file["none"] = np.zeros((0, 3))
        with pytest.raises(
            InputError, match=r"3 datasets could be the rows; choose one \(array\).*a/three \(2, 3, 4\)"
        ):
            open_reader(path)
        with pytest.raises(InputError, match=r"no dataset b; there are a/three"):
            open_reader(path, Choice(array=("b",)))
        assert open_reader(path, Choice(array=("a/three",))).shape == (2, 12)
        with pytest.raises(InputError, match=r"text holds \(1, 2\) \|S1; rows are numbers"):
            open_reader(path, Choice(array=("text",)))
        with pytest.raises(InputError, match="at least one row"):
            open_reader(path, Choice(array=("none",)))
        whole = tmp_path / "whole.h5"
        written.hdf5_file(whole, written.rows_of(), written.names_of())
        content = whole.read_bytes()
        (tmp_path / "short.h5").write_bytes(content[: len(content) // 2])
        with pytest.raises(DamagedError, match="truncated or damaged HDF5"):
            open_reader(tmp_path / "short.h5")
        (tmp_path / "other.h5").write_bytes(b"not at all")
        with pytest.raises(InputError, match="not an HDF5 file"):
            open_reader(tmp_path / "other.h5")
        damaged = bytearray(content)
        with h5py.File(whole) as file:
            place = file["group/rows"].id.get_chunk_info(3)
        damaged[place.byte_offset : place.byte_offset + place.size] = bytes(place.size)
        (tmp_path / "damaged.h5").write_bytes(damaged)
        with pytest.raises(DamagedError, match="of group/rows cannot be read"):
            ingest(tmp_path / "damaged.h5", tmp_path / "out.zarr")
        assert not (tmp_path / "out.zarr").exists()

    def test_an_h5ad_of_somebody_else(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "a.h5ad", "w") as file:
            file["X"] = written.rows_of()
        found = open_reader(tmp_path / "a.h5ad")
        assert (found.shape, found.row_ids) == ((written.N, written.D), None)

    # ------------------------------------------------------------------------------------------ CSV

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("1,2\n3,4\n", [[1, 2], [3, 4]]),
            ("a,b\r\n1,2\r\n3,4", [[1, 2], [3, 4]]),
            ("a;b\n1;2\n\n3;4\n", [[1, 2], [3, 4]]),
            ('\ufeff"a, x","b\ny"\n1,2\n3,4e-3\n', [[1, 2], [3, 0.004]]),
            ("a;b\n1;2\n1,5;-2,5\n", [[1, 2], [1.5, -2.5]]),
            ("a;b\n1e3;2\n1;2.5\n", [[1000, 2], [1, 2.5]]),
        ],
    )
    def test_csv_with_and_without_names(self, text, wanted, tmp_path):
        pytest.importorskip("pyarrow")
        (tmp_path / "rows.csv").write_bytes(text.encode())
        found = open_reader(tmp_path / "rows.csv")
        assert found.shape == (2, 2)
        np.testing.assert_array_equal(np.concatenate(list(found.stream(0, 2))), wanted)

    @pytest.mark.parametrize("fixed", [False, True])
    def test_a_column_of_lists_is_as_many_columns(self, fixed, tmp_path):
        """Embeddings often lie so in a table."""
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        folder = tmp_path / "parts"
        folder.mkdir()
        rows = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)
        lists = pyarrow.array(list(rows), pyarrow.list_(pyarrow.float32(), 5 if fixed else -1))
        for number, part in enumerate((slice(0, 40), slice(40, 90))):
            own = np.arange(90)[part]
            table = pyarrow.table({"name": [f"n{row}" for row in own], "vector": lists[part], "year": own})
            parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=17)
        found = open_reader(folder, Choice(columns=("year", "vector")))
        wanted = np.column_stack([np.arange(90), rows])
        assert found.features == ("year", *(f"vector_{place}" for place in range(5)))
        for start, stop in ((0, 90), (12, 71), (89, 90)):
            np.testing.assert_array_equal(np.concatenate(list(found.stream(start, stop))), wanted[start:stop])
        ingest(folder, tmp_path / "rows.zarr", Choice(columns=("vector",)), {"ids": "name"})
        np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), rows)
        again = open_reader(folder, Choice(aligned=("name",), expected=found.features))
        assert again.features == found.features

    def test_lists_of_other_lengths_and_of_text_are_refused(self, tmp_path):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

        def written(lists):
            parquet.write_table(pyarrow.table({"column": lists}), tmp_path / "rows.parquet")
            return tmp_path / "rows.parquet"

        found = open_reader(written([[1.0, 2.0], [3.0, 4.0], [5.0]]))
        with pytest.raises(InputError, match=r"column: 1 numbers in row 2 of the table .*, 2 in the first.*numpy\.st"):
            list(found.stream(0, 3))
        with pytest.raises(InputError, match=r"not numbers: column \(list<.*numpy\.stack"):
            open_reader(written([["a"], ["b"]]))
        missing = written([[1.0, 2.0], None, [3.0, None], [5.0, 6.0]])
        with pytest.raises(InputError, match=r"missing in the columns column \(2\): in 2 of 4 rows, which are 1, 2"):
            list(open_reader(missing).stream(0, 4))
        rows = np.concatenate(list(open_reader(missing, Choice(missing=True)).stream(0, 4)))
        np.testing.assert_array_equal(rows, [[1, 2], [np.nan, np.nan], [3, np.nan], [5, 6]])

    def test_lists_in_memory_are_refused_with_what_to_do(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"vector": list(np.ones((9, 3))), "year": range(9)})
        for given, what in ((frame["vector"], "the rows are"), (frame, "column vector holds")):
            with pytest.raises(InputError, match=rf"{what} a list for each row\. numpy\.stack"):
                be.PCA().fit(given)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "empty"),
            ("\n", "empty"),
            ("a,b\n", "at least one row"),
            ("a,b\n1,2\n3\n", "(?s)Expected 2 columns.*needs 2 fields"),
            ("a,a\n1,2\n", "several columns are called a"),
            ("a,\n1,2\n", "column 2 has no name"),
            ("a,b\n1,x\n", "(?s)In column b: Row #2: .*invalid value 'x'.*choose columns.*'one_hot'"),
            ('"a,b\n' + 40_000 * "1,2\n", r"no lines of a table .*Is a quote never closed\?"),
            ("a,b\n1,2\n3,\n", r"values are missing in the columns b \(1\): in 1 of 2 rows, which are 1 "),
            ("a,b\n1,2\nNaN,2\n", r"in the columns a \(1\)"),
        ],
    )
    def test_csv_refusals(self, text, message, tmp_path):
        pytest.importorskip("pyarrow")
        (tmp_path / "rows.csv").write_text(text)
        with pytest.raises(InputError, match=message):
            ingest(tmp_path / "rows.csv", tmp_path / "out.zarr")
        assert not (tmp_path / "out.zarr").exists()

    @pytest.mark.parametrize("piece", [4, 7, 1 << 20])
    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ('a,b\n1,"x\n2,y\n3,z\n', 6),  # (up to the end)
            ('a,b\n1,"x\n2,y\n3,"z"\n', 6),  # (up to the quote that opens another)
            ('a,b\r1,"x""\r2,y\r3,"z"\r', 6),
            ('\ufeff"a,b\n1,2\n', 3),
            ('a,b\n1,x\n2,"y', 10),
            ('a,b\n1,"x\ny"\n2,"p, q"\n3,"""r"""\n4,""\n', None),
            ('a,b\n1,5" pipe\n2,"x"y\n3, "z\n4,""""\n', None),  # (no field goes over lines)
            ('\ufeff"a","b"', None),
        ],
    )
    def test_quotes_that_are_never_closed(self, text, place, piece):
        found, data = Quotes(","), text.encode()
        assert b"".join(records(BytesIO(data), found, piece)) == data
        assert found.wrong == place
        assert place is None or line_of(BytesIO(data), place) == 1 + data[:place].count(b"\n") + data[:place].count(
            b"\r"
        )

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("piece", [1, 5, 64, 1 << 20])
    def test_pieces_of_a_text_end_where_a_record_does(self, piece, end, tmp_path, monkeypatch):
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(DelimitedReader, "piece", piece)
        lines = ["name,a,b", *(f'"n{end}""{row}"", {row}",{row},{row / 4}' for row in range(40))]
        (tmp_path / "rows.csv").write_text(end.join(lines), newline="")
        found = open_reader(tmp_path / "rows.csv", Choice(columns=("b", "a")))
        np.testing.assert_array_equal(np.concatenate(list(found.stream(0, 40)))[:, 1], np.arange(40.0))
        lines[31] = "text,30,--"
        (tmp_path / "rows.csv").write_text(end.join(lines), newline="")
        with pytest.raises(
            InputError, match=r"In column b: Row #32: invalid value '--'\. .*missing number is an empty field"
        ):
            list(open_reader(tmp_path / "rows.csv", Choice(columns=("b", "a"))).stream(0, 40))
        lines[31] = "text,30"
        (tmp_path / "rows.csv").write_text(end.join(lines), newline="")
        with pytest.raises(InputError, match="Row #32: Expected 3 columns, got 2"):
            open_reader(tmp_path / "rows.csv", Choice(columns=("a",)))

    def test_a_record_without_an_end_is_not_held(self, tmp_path, monkeypatch):
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(quotes, "LONGEST", 100)
        monkeypatch.setattr(DelimitedReader, "piece", 10)
        (tmp_path / "rows.csv").write_text('a,b\n1,2\n3,"x' + 50 * "\n4,5")
        with pytest.raises(InputError, match="a record of more than 100 bytes"):
            open_reader(tmp_path / "rows.csv", Choice(columns=("a",)))

    def test_a_text_is_read_by_the_thread_that_asks(self, tmp_path, monkeypatch):
        """One that read ahead went on after an error: such processes aborted at their end, or never came to it."""
        pytest.importorskip("pyarrow")
        (tmp_path / "rows.csv").write_text("a,b\n1,x\n" + 1000 * "1,2\n")
        unpacked, threads = delimited._unpacked, []

        @contextmanager
        def seen(path):
            with unpacked(path) as file:
                yield SimpleNamespace(read=lambda size: threads.append(threading.get_ident()) or file.read(size))

        found = open_reader(tmp_path / "rows.csv")
        monkeypatch.setattr(delimited, "_unpacked", seen)
        monkeypatch.setattr(DelimitedReader, "piece", 100)
        with pytest.raises(InputError, match="In column b"):
            list(found.stream(0, 9))
        assert set(threads) == {threading.get_ident()}

    def test_what_is_no_rows_says_what_to_do(self, tmp_path):
        """An unknown format before what was chosen in it; named fields; a file in place of an array."""
        (tmp_path / "rows.fits").write_bytes(b"SIMPLE")
        with pytest.raises(InputError, match="not a format that is known"):
            open_reader(tmp_path / "rows.fits", Choice(columns=("ra",)))
        fields = np.zeros(3, [("ra", "f8"), ("dec", "f8")])
        np.save(tmp_path / "rows.npy", fields)
        for given in (fields, str(tmp_path / "rows.npy")):
            with pytest.raises(InputError, match=r"fields ra, dec; take those .*DataFrame"):
                PCA(2).fit(given)
        with pytest.raises(InputError, match=r"not a Zarr array, which is a folder.*bigembed ingest"):
            PCA(2).fit(str(tmp_path / "rows.fits"))

    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
    @pytest.mark.parametrize("places", [[60], [60, 80], [99], [0]])
    def test_rows_behind_an_open_quote_are_not_lost(self, places, name, tmp_path):
        pytest.importorskip("pyarrow")
        lines = [
            "a,b,name",
            *(f"{number},{number % 11},{chr(34) * (number in places)}n{number}" for number in range(100)),
        ]
        opened = gzip.open if name.endswith(".gz") else open
        with opened(tmp_path / name, "wt") as file:
            file.write("\n".join(lines) + "\n")
        with pytest.raises(
            InputError, match=f"line {places[0] + 2}: the quote that opens a field there is never closed"
        ):
            ingest(tmp_path / name, tmp_path / "out.zarr", Choice(columns=("a", "b")), {"ids": "name"})
        assert not (tmp_path / "out.zarr").exists()

    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet", "folder"])
    def test_all_that_is_missing_in_a_table_is_counted(self, name, tmp_path, monkeypatch):
        """Of every batch and every file, not of the one in which it is met; only in the columns that are wanted."""
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(delimited, "PIECE_BYTES", 1 << 10)
        rows = written.rows_of()
        rows[[150, 151, *range(200, 255)], 3] = np.nan
        rows[[7, 151, 400], 1] = np.nan
        rows[:, 0] = np.nan
        if name == "folder":
            (tmp_path / name).mkdir()
            for number, part in enumerate(np.array_split(np.arange(written.N), 3)):
                table = written.frame(rows[part], list(np.array(written.names_of())[part]))
                table.to_parquet(tmp_path / name / f"{number}.parquet", row_group_size=50)
        else:
            written.FORMATS[name](tmp_path / name, rows, written.names_of())
        said = r"x1 \(3\), x3 \(57\): in 59 of 517 rows, which are 7, 150, 151, 200, 201, … \(counted from 0\)"
        with pytest.raises(InputError, match=said) as error:
            ingest(tmp_path / name, tmp_path / "out.zarr", Choice(columns=("x1", "x2", "x3")))
        assert error.value.args[0].count(".parquet") == {"rows.parquet": 1, "folder": 3}.get(name, 0)
        ingest(tmp_path / name, tmp_path / "out.zarr", Choice(columns=("x2",)))

    # --------------------------------------------------------------------------------------- netCDF

    @pytest.fixture(params=["NETCDF3_CLASSIC", "NETCDF4"])
    def grid(self, request, tmp_path):
        """Two fields (time, lat, lon), one of them packed; a third one with a missing value."""
        netcdf = pytest.importorskip("netCDF4")
        generator = np.random.default_rng(0)
        u, v = generator.normal(size=(7, 5, 11)).astype("f4"), generator.integers(-900, 900, (7, 5, 11)) / 100
        with netcdf.Dataset(tmp_path / "grid.nc", "w", format=request.param) as file:
            for name, size in (("time", 7), ("lat", 5), ("lon", 11)):
                file.createDimension(name, size)
            dimensions = ("time", "lat", "lon")
            file.createVariable("u", "f4", dimensions)[:] = u
            packed = file.createVariable("v", "i2", dimensions)
            packed.scale_factor, packed.add_offset = 0.01, 1.0
            packed[:] = v
            holed = file.createVariable("w", "f4", dimensions, fill_value=-99)
            holed[:] = np.ma.masked_where(u > 1.5, u)
            file.createVariable("lat", "f4", ("lat",))[:] = np.arange(5)
        return tmp_path / "grid.nc", u, v, int((u > 1.5).sum())

    def test_netcdf_variables_become_columns_scaled(self, grid):
        path, u, v, _ = grid
        found = open_reader(path, Choice(array=("u", "v")))
        assert found.shape == (385, 2)
        for start, stop in ((0, 385), (3, 60), (54, 56), (384, 385)):
            rows = np.concatenate(list(found.stream(start, stop)))
            np.testing.assert_array_equal(rows[:, 0], u.ravel()[start:stop])
            np.testing.assert_allclose(rows[:, 1], v.ravel()[start:stop], atol=1e-9)
            assert np.abs(rows[:, 1] - v.ravel()[start:stop] * 100).max() > 1  # the packed numbers are not those

    @pytest.mark.parametrize(("rows", "shape"), [(("time",), (7, 55)), (("time", "lat"), (35, 11))])
    def test_netcdf_dimensions_make_the_rows(self, grid, rows, shape):
        path, u, _, _ = grid
        found = open_reader(path, Choice(array=("u",), rows=rows))
        assert found.shape == shape
        np.testing.assert_array_equal(np.concatenate(list(found.stream(0, shape[0]))), u.reshape(shape))
        np.testing.assert_array_equal(np.concatenate(list(found.stream(2, 5))), u.reshape(shape)[2:5])

    def test_netcdf_refusals(self, grid, tmp_path):
        path, _, _, missing = grid
        with pytest.raises(InputError, match=rf"{missing} of 385 values of w are missing"):
            ingest(path, tmp_path / "out.zarr", Choice(array=("u", "w")))
        assert not (tmp_path / "out.zarr").exists()
        with pytest.raises(InputError, match=r"choose the variables \(array\).*u \(time 7, lat 5, lon 11\) float32"):
            open_reader(path)
        with pytest.raises(InputError, match=r"u has the dimensions \(time 7, lat 5, lon 11\).*rows = 'time'"):
            open_reader(path, Choice(array=("u",)))
        with pytest.raises(InputError, match="rows lon are not such"):
            open_reader(path, Choice(array=("u",), rows=("lon",)))
        with pytest.raises(InputError, match="if they have one shape"):
            open_reader(path, Choice(array=("u", "lat")))
        with pytest.raises(InputError, match="no variables of numbers none"):
            open_reader(path, Choice(array=("none",)))
        (tmp_path / "bad.nc").write_bytes(b"no such format")
        with pytest.raises(InputError, match="not readable as netCDF"):
            open_reader(tmp_path / "bad.nc")

    # ----------------------------------------------------------------------------------------- vecs

    def test_vecs_refusals(self, tmp_path):
        path = tmp_path / "rows.fvecs"
        written.vecs_file(path, written.rows_of(), written.names_of())
        content = path.read_bytes()
        path.write_bytes(content[:-3])
        with pytest.raises(DamagedError, match="not a whole number of rows of 6"):
            open_reader(path)
        path.write_bytes(b"")
        with pytest.raises(InputError, match="not a fvecs file"):
            open_reader(path)
        damaged = bytearray(content)
        damaged[28 * 300] = 7
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match="row 300 says that it has 7 entries"):
            ingest(path, tmp_path / "out.zarr")

    # ------------------------------------------------------------------------------------------ ids

    def test_ids_that_repeat_or_are_missing_are_an_error_before_the_rows(self, tmp_path):
        pytest.importorskip("pyarrow")
        for number, (names, message) in enumerate(
            [
                (
                    [*written.names_of()[:-1], written.names_of()[3]],
                    rf"1 of them name several rows: '{written.names_of()[3]}' \(rows 3, 516\)",
                ),
                ([*written.names_of()[:-1], ""], "missing"),
            ]
        ):
            written.csv_file(tmp_path / f"{number}.csv", written.rows_of(), names)
            with pytest.raises(InputError, match=message):
                ingest(tmp_path / f"{number}.csv", tmp_path / "out.zarr", choice_of("rows.csv"), {"ids": "cell"})
            assert sorted(path.name for path in tmp_path.glob("out*")) == []

    def test_ids_of_numbers_and_from_a_file_of_their_own(self, tmp_path):
        np.save(tmp_path / "rows.npy", written.rows_of())
        np.save(tmp_path / "ids.npy", np.arange(written.N)[::-1])
        ingest(tmp_path / "rows.npy", tmp_path / "out.zarr", aligned={"ids": str(tmp_path / "ids.npy")})
        assert read_array(tmp_path / "out-ids.zarr").tolist() == list(range(written.N))[::-1]
        np.save(tmp_path / "short.npy", np.arange(written.N - 1))
        with pytest.raises(InputError, match=r"one entry for each of the 517 rows"):
            ingest(tmp_path / "rows.npy", tmp_path / "two.zarr", aligned={"ids": str(tmp_path / "short.npy")})
        with pytest.raises(MissingPathError, match="no such path"):
            ingest(tmp_path / "rows.npy", tmp_path / "two.zarr", aligned={"ids": str(tmp_path / "none.npy")})
        np.save(tmp_path / "halves.npy", np.arange(written.N) / 2)
        with pytest.raises(InputError, match="text or whole numbers"):
            ingest(tmp_path / "rows.npy", tmp_path / "two.zarr", aligned={"ids": str(tmp_path / "halves.npy")})
        with pytest.raises(ExistingOutputError, match=r"out-ids\.zarr"):
            ingest(tmp_path / "rows.npy", tmp_path / "out.zarr", aligned={"ids": str(tmp_path / "ids.npy")})

    def test_a_name_that_is_not_there_lists_those_that_are(self, tmp_path):
        written.libraries("rows.parquet")
        written.frame(written.rows_of(), written.names_of()).to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(MissingPathError, match=r"ids 'nme': no such path.*cell .*string, x0 double"):
            ingest(tmp_path / "rows.parquet", tmp_path / "out.zarr", choice_of("rows.parquet"), {"ids": "nme"})


def rows_of_formats(dtype, n=1037, d=5):
    return np.arange(n * d).reshape(n, d).__mod__(120).astype(dtype)


def idx_bytes(array):
    codes = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
    code = codes[array.dtype.kind + str(array.dtype.itemsize)]
    head = struct.pack(">BBBB", 0, 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


class TestFormats:
    """Readers of input formats, and the copy into a checksummed array."""

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch):
        """Blocks of 100 rows, so that little data have many; one after the other."""
        for module in (copying, idx, tables):
            monkeypatch.setattr(module, "block_rows", lambda d, itemsize: 100)
        with dask.config.set(scheduler="synchronous"):
            yield

    def test_absent_chunks_are_refused_or_filled_on_demand(self, tmp_path):
        source = zarr.create_array(str(tmp_path / "raw.zarr"), shape=(30, 2), dtype="f4", chunks=(10, 2), fill_value=7)
        source[:10] = 1.0
        with pytest.raises(DamagedError, match="--fill-absent"):
            ingest(tmp_path / "raw.zarr", tmp_path / "rows.zarr")
        assert not (tmp_path / "rows.zarr").exists()
        ingest(tmp_path / "raw.zarr", tmp_path / "rows.zarr", Choice(fill_absent=True))
        assert read_array(tmp_path / "rows.zarr").sum() == 20 + 40 * 7

    @pytest.mark.parametrize("kind", ["float", "double", "halffloat", "int8", "int64", "uint64", "bool", "string"])
    def test_values_of_a_column_are_those_of_arrow(self, kind):
        pa = pytest.importorskip("pyarrow")
        some = {"bool": [True, None, False], "string": ["a", None, "b"]}.get(kind, [1, None, 3])
        for column in (pa.array(some, kind), pa.array(some, kind)[1:], pa.array(some, kind)[2:], pa.array([], kind)):
            found, wanted = arrow.values_of(column), column.to_numpy(zero_copy_only=False)
            assert found.tolist() == pytest.approx(wanted.tolist(), nan_ok=True)
            assert found.dtype == wanted.dtype

    def test_tables_are_read_without_pandas(self, tmp_path):
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pa.table({"name": ["x", "y"], "a": [1.5, 2.0], "b": [1, 2], "c": [True, False]})
        pq.write_table(table, tmp_path / "rows.parquet")
        (tmp_path / "rows.csv").write_text("name,a,b\nx,1.5,1\ny,,2\n")
        code = (
            "import sys\n"
            "from bigembed.rows.formats import ingest\n"
            "from bigembed.rows.reader import Choice\n"
            "for name in ('rows.parquet', 'rows.csv'):\n"
            "    ingest(name, name + '.zarr', Choice(missing=True), {'ids': 'name'})\n"
            "print('pandas' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"

    def test_parquet_refusals_name_every_column(self, tmp_path):
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"a": ["x", "y"], "b": [1, 2], "c": [["u"], ["v"]]}), tmp_path / "text.parquet")
        with pytest.raises(InputError, match=r"a \(string\), c \(list"):
            open_reader(tmp_path / "text.parquet")
        pq.write_table(pa.table({"a": [1, None], "b": [1, 2]}), tmp_path / "null.parquet")
        with pytest.raises(InputError, match="missing"):
            ingest(tmp_path / "null.parquet", tmp_path / "rows.zarr")
        with pytest.raises(InputError, match="no columns q; there are a int64, b int64"):
            open_reader(tmp_path / "null.parquet", Choice(columns=("a", "q")))
        pq.write_table(pa.table({"parallax": [1.0], "ra": [2.0]}), tmp_path / "named.parquet")
        with pytest.raises(InputError, match=r"no columns paralax \(did you mean 'parallax'\?\); there are"):
            open_reader(tmp_path / "named.parquet", Choice(columns=("ra", "paralax")))
        (tmp_path / "bad.parquet").write_bytes(b"nothing")
        with pytest.raises(InputError, match="not readable as Parquet"):
            open_reader(tmp_path / "bad.parquet")

    @pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
    @pytest.mark.parametrize("packed", [True, False])
    def test_idx_items_become_rows(self, tmp_path, dtype, packed):
        images = rows_of_formats(dtype, 512, 12).reshape(512, 3, 4)
        path = tmp_path / ("train-images-idx3-ubyte" + (".gz" if packed else ""))
        path.write_bytes(gzip.compress(idx_bytes(images)) if packed else idx_bytes(images))
        assert ingest(path, tmp_path / "rows.zarr") == (512, 12)
        np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), images.reshape(512, 12))
        assert open_zarr(tmp_path / "rows.zarr").dtype == np.dtype(dtype)

    def test_refusals(self, tmp_path):
        with pytest.raises(MissingPathError, match="no such path"):
            ingest(tmp_path / "none.npy", tmp_path / "out")
        np.savez(tmp_path / "a.npz", x=np.ones(3))
        with pytest.raises(InputError, match=r"numpy\.save"):
            ingest(tmp_path / "a.npz", tmp_path / "out")
        (tmp_path / "a.txt").write_text("1,2\n")
        with pytest.raises(InputError, match="Known"):
            ingest(tmp_path / "a.txt", tmp_path / "out")
        np.save(tmp_path / "empty.npy", np.ones((0, 3)))
        with pytest.raises(InputError, match="at least one row"):
            ingest(tmp_path / "empty.npy", tmp_path / "out")
        np.save(tmp_path / "one.npy", np.ones(3))
        with pytest.raises(InputError, match="2-dimensional"):
            ingest(tmp_path / "one.npy", tmp_path / "out")
        np.save(tmp_path / "complex.npy", np.ones((3, 3), complex))
        with pytest.raises(InputError, match="complex"):
            ingest(tmp_path / "complex.npy", tmp_path / "out")
        np.save(tmp_path / "object.npy", np.array([[object()]]), allow_pickle=True)
        with pytest.raises(InputError, match="Python objects in dtype"):
            ingest(tmp_path / "object.npy", tmp_path / "out")
        (tmp_path / "text.npy").write_text("garbage")
        with pytest.raises(InputError, match=r"does not begin as such a file does\)"):
            ingest(tmp_path / "text.npy", tmp_path / "out")
        (tmp_path / "cut.npy").write_bytes((tmp_path / "one.npy").read_bytes()[:-3])
        with pytest.raises(InputError):
            ingest(tmp_path / "cut.npy", tmp_path / "out")
        zarr.create_group(str(tmp_path / "group.zarr"))
        with pytest.raises(InputError, match="not a Zarr array"):
            ingest(tmp_path / "group.zarr", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet", ".h5ad", ".NC"])
    def test_an_array_of_zarr_is_not_called_a_file_of_another_format(self, suffix, tmp_path):
        np.save(tmp_path / "a.npy", np.ones((3, 2)))
        fitted = PCA(1).fit(tmp_path / "a.npy")
        out = tmp_path / f"out{suffix}"
        for write in (ingest, fitted.transform_to, PCA(1).fit_transform_to):
            with pytest.raises(InputError, match=r"an array of Zarr is written there.*ends in \.zarr"):
                write(tmp_path / "a.npy", out)
        assert not out.exists()

    def test_existing_destination_is_untouched(self, tmp_path):
        np.save(tmp_path / "a.npy", np.ones((3, 2)))
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("x")
        with pytest.raises(ExistingOutputError):
            ingest(tmp_path / "a.npy", tmp_path / "out")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]

    def test_damage_of_the_source_is_found_and_nothing_is_left(self, tmp_path):
        np.save(tmp_path / "a.npy", rows_of_formats("f4"))
        ingest(tmp_path / "a.npy", tmp_path / "a.zarr")
        chunk = next(path for path in (tmp_path / "a.zarr" / "c").rglob("*") if path.is_file())
        content = bytearray(chunk.read_bytes())
        content[40] ^= 1
        chunk.write_bytes(content)
        with pytest.raises(DamagedError):
            ingest(tmp_path / "a.zarr", tmp_path / "b.zarr")
        assert not (tmp_path / "b.zarr").exists()
        assert not (tmp_path / "b.zarr.partial").exists()

    @pytest.mark.parametrize("chunks", [(1037, 5), (7, 2), (250, 1), ((1000, 37), (1, 4))])
    @pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
    def test_write_dask_whatever_the_chunks(self, tmp_path, chunks, scheduler):
        rows = rows_of_formats("f4")
        with dask.config.set(scheduler=scheduler):
            write_dask(da.from_array(rows, chunks=chunks), tmp_path / "rows.zarr")
        np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), rows)
        assert source_of(tmp_path / "rows.zarr") is None

    def test_write_dask_keeps_what_is_whole_and_refuses_what_is_other(self, tmp_path):
        path = tmp_path / "rows.zarr"
        write_dask(da.ones((300, 2), chunks=50), path)
        stamp = (path / "zarr.json").stat().st_mtime_ns
        write_dask(da.ones((300, 2), chunks=70), path)
        assert (path / "zarr.json").stat().st_mtime_ns == stamp
        with pytest.raises(ExistingOutputError, match="holds"):
            write_dask(da.ones((301, 2)), path)


ROWS = np.random.default_rng(0).normal(size=(6, 3))


def read(path: Path, choice: Choice | None = None) -> np.ndarray:
    reader = open_reader(path, choice)
    return np.concatenate(list(reader.stream(0, reader.shape[0])))


def vector(path: Path, name: str) -> list[Any]:
    reader: Any = open_reader(path)
    return np.concatenate(list(reader.vector(name).stream(0, 6))).tolist()


def early(path: Path, sparse: bool) -> Path:
    """As AnnData 0.6 wrote it: compound tables, categories in uns, attributes of h5sparse."""
    with h5py.File(path, "w") as file:
        if sparse:
            group = file.create_group("X")
            group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = b"csr", np.array([6, 3])
            group["indptr"], group["indices"] = np.arange(0, 19, 3), np.tile(np.arange(3), 6)
            group["data"] = ROWS.ravel()
        else:
            file["X"] = ROWS
        obs = np.zeros(6, [("index", "S4"), ("depth", "f4"), ("kind", "i1")])
        obs["index"], obs["depth"], obs["kind"] = [b"c%d" % i for i in range(6)], np.arange(6), [0, 1, 0, 1, 1, 0]
        file["obs"], file["uns/kind_categories"] = obs, np.array([b"left", b"right"])
        var = np.zeros(3, [("index", "S4")])
        var["index"] = [b"g0", b"g1", b"g2x"]
        obsm = np.zeros(6, [("X_pca", "f8", (2,)), ("X_one", "f8", (1,))])
        obsm["X_pca"] = ROWS[:, :2]
        file["var"], file["obsm"] = var, obsm
    return path


class TestEarlyFiles:
    """Files as other programs, and earlier versions of them, write them."""

    @pytest.mark.parametrize("sparse", [False, True])
    def test_compound_tables_of_early_anndata(self, sparse: bool, tmp_path: Path) -> None:
        path = early(tmp_path / "old.h5ad", sparse)
        assert np.array_equal(read(path), ROWS)
        assert np.array_equal(read(path, Choice(array=("obsm/X_pca",))), ROWS[:, :2])
        assert vector(path, "obs_names") == [f"c{i}" for i in range(6)]
        assert vector(path, "depth") == list(range(6))
        assert vector(path, "kind") == ["left", "right", "left", "right", "right", "left"]
        reader: Any = open_reader(path)
        assert reader.features == ("g0", "g1", "g2x")
        with pytest.raises(InputError, match=r"no array Z; there are X .*, obsm/X_pca \(6, 2\) float64"):
            open_reader(path, Choice(array=("Z",)))

    @pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.zip"])
    def test_tables_as_pandas_writes_them(self, suffix: str, tmp_path: Path) -> None:
        pd = pytest.importorskip("pandas")
        path = tmp_path / f"rows{suffix}"
        pd.DataFrame(ROWS, columns=["a", "b", "c"], index=[f"r{i}" for i in range(6)]).to_csv(path)
        reader: Any = open_reader(path)
        assert reader.features == ("a", "b", "c")
        assert np.allclose(read(path), ROWS)
        assert vector(path, "index") == [f"r{i}" for i in range(6)]
        assert np.allclose(read(path, Choice(columns=("c", "a"))), ROWS[:, [2, 0]])

    def test_what_was_taken_for_separators_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("x;y\n1.5;2\n3,4;5\n")
        with pytest.raises(InputError, match=r"2 fields with ';' between them, .* numbers with '.' before decimals"):
            read(tmp_path / "rows.csv")

    def test_idx_files_are_labels_and_weights(self, tmp_path: Path) -> None:
        labels = np.array([0, 1, 0, 1, 1, 0], "u1")
        (tmp_path / "labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 6) + labels.tobytes())
        path = str(tmp_path / "labels-idx1-ubyte")
        found = be.LinearDiscriminantAnalysis().fit(ROWS, path)
        assert np.array_equal(found.transform(ROWS), be.LinearDiscriminantAnalysis().fit(ROWS, labels).transform(ROWS))
        weighted = be.PCA(2).fit(ROWS, sample_weight=path)
        assert np.array_equal(weighted.components_, be.PCA(2).fit(ROWS, sample_weight=labels).components_)
