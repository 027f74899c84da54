"""Files as they are published: winds and ocean climatology in netCDF-3, digits in a packed CSV without names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bigembed.errors import InputError
from bigembed.rows.formats.registry import ingest, open_reader
from bigembed.rows.opening import open_zarr
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array

ENVIRONMENT = "BIGEMBED_DATA"


def file_of(name: str) -> Path:
    """Where a data set lies, or a skipped test."""
    given = os.environ.get(ENVIRONMENT)
    if given is None or not (Path(given) / name).is_file():
        pytest.skip(f"set {ENVIRONMENT} to a folder with {name} in it: bigembed downloads nothing")
    return Path(given) / name


def fields(path: Path, *names: str) -> np.ndarray:
    """Variables of a netCDF-3 file as columns, by SciPy."""
    from scipy.io import netcdf_file

    with netcdf_file(path, mmap=False) as file:
        return np.stack([file.variables[name].data.ravel() for name in names], axis=1).astype("f4")


def test_winds(tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    path = file_of("navy_winds/monthly_navy_winds.cdf")
    assert ingest(path, tmp_path / "winds.zarr", Choice(array=("UWND", "VWND"))) == (132 * 73 * 144, 2)
    np.testing.assert_array_equal(read_array(tmp_path / "winds.zarr"), fields(path, "UWND", "VWND"))
    assert open_zarr(tmp_path / "winds.zarr").dtype == np.float32
    months = open_reader(path, Choice(array=("UWND",), rows=("TIME",)))
    assert months.shape == (132, 73 * 144)
    with pytest.raises(InputError, match=r"UWND \(TIME 132, .* 73, .* 144\) float32"):
        open_reader(path)


def test_an_ocean_with_land_in_it(tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    path = file_of("levitus/levitus_climatology.cdf")
    missing = int((fields(path, "TEMP") < -1e9).sum())
    assert missing > 500_000
    with pytest.raises(InputError, match=rf"{missing} of 1296000 values of TEMP are missing"):
        ingest(path, tmp_path / "ocean.zarr", Choice(array=("TEMP", "SALT")))
    assert not list(tmp_path.iterdir())


def test_digits_without_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = file_of("digits/digits.csv.gz")
    pixels = Choice(columns=tuple(str(j) for j in range(64)))
    assert ingest(path, tmp_path / "digits.zarr", pixels, {"labels": "64"}) == (1797, 64)
    whole = np.loadtxt(path, delimiter=",")
    np.testing.assert_array_equal(read_array(tmp_path / "digits.zarr"), whole[:, :64])
    assert [int(label) for label in read_array(tmp_path / "digits-labels.zarr")] == whole[:, 64].tolist()
