"""Labels of any kind become the same class numbers."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr

from bigembed.errors import DamagedError, InputError, InputTypeError, MissingPathError
from bigembed.rows import labels as module
from bigembed.rows.labels import read_labels

NUMBERS = np.random.default_rng(0).choice([3, -1, 7, 12], 500)
WORDS = np.array([f"class {number}" for number in NUMBERS])


@pytest.mark.parametrize("values", [NUMBERS, WORDS, NUMBERS > 3, NUMBERS.astype(float), WORDS.astype(object)])
def test_every_container_gives_the_same(values: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_is_no_label(y: object) -> None:
    found = read_labels(y)
    assert found.codes.tolist() == [0, -1, 1, 0]
    assert found.missing.tolist() == [1]
    assert read_labels([-1, 0, -1]).codes.tolist() == [0, 1, 0]  # −1 is a class like any other


def test_the_fingerprint_tells_labels_apart() -> None:
    prints = [read_labels(y).fingerprint() for y in ([0, 1, 1], [0, 1, 2], [1, 2, 2], ["0", "1", "1"])]
    assert len(set(prints)) == 4
    assert read_labels(np.array([0, 1, 1])).fingerprint() == prints[0]


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
def test_what_cannot_be_labels(y: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        read_labels(y)


def test_a_column_is_taken() -> None:
    assert read_labels(np.array([[1], [0]])).codes.tolist() == [1, 0]
    assert read_labels(da.from_array(np.array([[1], [0]]), chunks=1)).codes.tolist() == [1, 0]


def test_labels_that_are_not_there(tmp_path: Path) -> None:
    for name in ("y.npy", "y.zarr"):
        with pytest.raises(MissingPathError, match=name):
            read_labels(tmp_path / name)
    array = zarr.create_array(tmp_path / "half.zarr", shape=(10,), chunks=(5,), dtype=int)
    array[:5] = 1
    with pytest.raises(DamagedError, match="missing"):
        read_labels(tmp_path / "half.zarr")
