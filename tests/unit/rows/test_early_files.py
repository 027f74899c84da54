"""Files as other programs, and earlier versions of them, write them."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError
from bigembed.rows.formats.registry import open_reader
from bigembed.rows.reader import Choice

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


@pytest.mark.parametrize("sparse", [False, True])
def test_compound_tables_of_early_anndata(sparse: bool, tmp_path: Path) -> None:
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
def test_tables_as_pandas_writes_them(suffix: str, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    path = tmp_path / f"rows{suffix}"
    pd.DataFrame(ROWS, columns=["a", "b", "c"], index=[f"r{i}" for i in range(6)]).to_csv(path)
    reader: Any = open_reader(path)
    assert reader.features == ("a", "b", "c")
    assert np.allclose(read(path), ROWS)
    assert vector(path, "index") == [f"r{i}" for i in range(6)]
    assert np.allclose(read(path, Choice(columns=("c", "a"))), ROWS[:, [2, 0]])


def test_archives_of_several_tables_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.csv.zip", "w") as archive:
        archive.writestr("a.csv", "1,2\n")
        archive.writestr("b.csv", "1,2\n")
    with pytest.raises(InputError, match=r"holds a.csv, b.csv; one table is needed"):
        open_reader(tmp_path / "rows.csv.zip")
    (tmp_path / "no.csv.zip").write_bytes(b"1,2\n")
    with pytest.raises(InputError, match="not readable"):
        open_reader(tmp_path / "no.csv.zip")


@pytest.mark.parametrize(
    "text",
    [
        "x;y\n1,5;2\n3;4,25\n",
        "1,5;2\n3;4,25\n",
        "x;y\n1.5;2\n3;4.25\n",
        "x,y\n1.5,2\n3,4.25\n",
        '"x;u",y\n1.5,2\n3,4.25\n',
    ],
)
def test_what_separates_fields_and_decimals_is_seen(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    assert read(tmp_path / "rows.csv").tolist() == [[1.5, 2.0], [3.0, 4.25]]


def test_what_was_taken_for_separators_is_said(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x;y\n1.5;2\n3,4;5\n")
    with pytest.raises(InputError, match=r"2 fields with ';' between them, .* numbers with '.' before decimals"):
        read(tmp_path / "rows.csv")


def test_idx_files_are_labels_and_weights(tmp_path: Path) -> None:
    labels = np.array([0, 1, 0, 1, 1, 0], "u1")
    (tmp_path / "labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 6) + labels.tobytes())
    path = str(tmp_path / "labels-idx1-ubyte")
    found = be.LinearDiscriminantAnalysis().fit(ROWS, path)
    assert np.array_equal(found.transform(ROWS), be.LinearDiscriminantAnalysis().fit(ROWS, labels).transform(ROWS))
    weighted = be.PCA(2).fit(ROWS, sample_weight=path)
    assert np.array_equal(weighted.components_, be.PCA(2).fit(ROWS, sample_weight=labels).components_)
