"""Arrays whose attributes say that stored numbers are packed or missing: decoded where they are copied, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.errors import InputError
from bigembed.jobs.run import run_job
from bigembed.rows.formats import ingest, open_reader
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array
from tests.job_files import job_in


class TestPacked:
    """Stored numbers that are values only by what their attributes say, as netCDF and xarray write them."""

    RAW = np.random.default_rng(0).integers(-500, 500, (60, 4)).astype("i2")
    ABOUT: ClassVar = {"scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -32768, "units": "K"}

    def written(self, kind: str, folder: Path, missing: bool) -> tuple[Path, Any]:
        raw = self.RAW.copy()
        raw[7, 3] = raw[9, 0] = -32768 if missing else 0
        values = np.where(raw == -32768, np.nan, raw * 0.01 + 5.0)
        path = folder / f"packed.{'h5' if kind == 'hdf5' else 'zarr'}"
        if kind == "hdf5":
            with h5py.File(path, "w") as file:
                file.create_dataset("u", data=raw).attrs.update(
                    {name: np.array([value]) for name, value in self.ABOUT.items() if name != "units"}
                )
        elif kind == "zarr 2":
            plain = {name: value for name, value in self.ABOUT.items() if name != "_FillValue"}
            about = plain | {"_ARRAY_DIMENSIONS": ["time", "place"]}
            zarr.create_array(path, data=raw, zarr_format=2, fill_value=-32768, attributes=about)
        else:
            zarr.create_array(path, data=raw, attributes=self.ABOUT)
        return path, values

    @pytest.mark.parametrize("kind", ["zarr 3", "zarr 2", "hdf5"])
    def test_a_job_decodes_them(self, kind: str, tmp_path: Path) -> None:
        path, values = self.written(kind, tmp_path, missing=True)
        with pytest.raises(
            InputError, match=r"values are missing \(-32768 as its attributes say\), the first in row 7"
        ):
            ingest(path, tmp_path / "rows.zarr")
        steps = '[[steps]]\nname = "missing"\n'
        run_job(job_in(tmp_path, source=f'path = "{path.name}"', more=steps))
        expected = be.PCA(n_components=2).fit(values[np.isfinite(values).all(axis=1)]).embedding_
        found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        with pytest.raises(AssertionError):  # (the control: the numbers as they are stored)
            np.testing.assert_allclose(found, be.PCA(n_components=2).fit(self.RAW[:58]).embedding_, rtol=1e-3)

    @pytest.mark.parametrize("kind", ["zarr 3", "zarr 2", "hdf5"])
    def test_python_refuses_them_as_they_are_stored(self, kind: str, tmp_path: Path) -> None:
        path, values = self.written(kind, tmp_path, missing=False)
        given = h5py.File(path)["u"] if kind == "hdf5" else path
        with pytest.raises(InputError, match=r"packed.*scale_factor.*xarray\.open_dataset"):
            be.PCA().fit(given)
        ingest(path, tmp_path / "rows.zarr")
        np.testing.assert_array_equal(read_array(tmp_path / "rows.zarr"), values)

    def test_other_attributes_change_nothing(self, tmp_path: Path) -> None:
        rows = self.RAW.astype("f4")
        for name, about in (
            ("plain", {"units": "m"}), ("one", {"scale_factor": 1.0, "add_offset": 0}),
            ("nan", {"_FillValue": "AAAAAAAA+H8=", "_ARRAY_DIMENSIONS": ["a", "b"]}),
        ):  # fmt: skip
            zarr.create_array(tmp_path / name, data=rows, attributes=about)
            np.testing.assert_array_equal(np.asarray(be.open_array(tmp_path / name)), rows)

    def test_fill_values_are_those_that_the_dtype_holds(self, tmp_path: Path) -> None:
        """Of integers every bit; one that they cannot hold stands nowhere."""
        fill = -(2**63) + 2
        rows = np.array([[fill, fill + 1], [5, fill - 1]], np.int64)
        zarr.create_array(tmp_path / "a", data=rows, attributes={"_FillValue": fill})
        found = np.concatenate(list(open_reader(tmp_path / "a", Choice(missing=True)).stream(0, 2)))
        assert np.isnan(found).tolist() == [[True, False], [False, False]]
        small = np.array([[0, -32768], [32767, 5]], "i2")
        for number, strange in enumerate((1e20, 70000, 0.5)):
            zarr.create_array(tmp_path / f"b{number}", data=small, attributes={"_FillValue": strange})
            with np.errstate(all="raise"):
                found = np.concatenate(list(open_reader(tmp_path / f"b{number}").stream(0, 2)))
            np.testing.assert_array_equal(found, small)
        wide = np.array([[9.96921e36, 1.0]], "f4")
        zarr.create_array(tmp_path / "c", data=wide, attributes={"missing_value": 9.96921e36})
        assert np.isnan(next(iter(open_reader(tmp_path / "c", Choice(missing=True)).stream(0, 1))))[0, 0]
