"""New rows of a table have the columns that were fitted: these by default, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError
from bigembed.jobs.extend import extend, plan_extension
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.rows.formats.registry import ingest
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array
from bigembed.store.attributes import columns_of
from tests.unit.rows.written import annotated, quiet

pytestmark = pytest.mark.filterwarnings(  # arrays given to a model of a table, to compare with
    "ignore:X does not have valid feature names:bigembed.errors.FeatureNamesWarning"
)
FITTED = ("x4", "x0", "x3")
POSITIONS = [4, 0, 3]


def rows_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(200, 6)) * [1, 2, 3, 4, 5, 6]


def write(path: Path, rows: np.ndarray, names: Any = tuple(f"x{j}" for j in range(6))) -> None:
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rows, columns=list(names))
    table.insert(2, "cell", [f"cell {number}" for number in range(len(rows))])
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)


def fit(folder: Path, source: str) -> Path:
    text = f'[input]\n{source}\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "job.zarr"\n'
    (folder / "job.toml").write_text(text + 'model = "model.zarr"\n')
    run_job(read_job(folder / "job.toml"))
    return folder / "model.zarr"


@pytest.fixture(params=["csv", "parquet"])
def model(request: Any, tmp_path: Path) -> Path:
    """Fitted by a job on three columns of a table, in an order of their own."""
    write(tmp_path / f"rows.{request.param}", rows_of())
    return fit(tmp_path, f'path = "rows.{request.param}"\ncolumns = {list(FITTED)}')


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_columns_that_were_fitted_are_the_default(kind: str, model: Path, tmp_path: Path) -> None:
    assert list(be.load(model).feature_names_in_) == list(FITTED)
    new = rows_of(1)
    write(tmp_path / f"new.{kind}", new[:, ::-1], [f"x{j}" for j in range(6)][::-1])
    wanted = be.load(model).transform(new[:, POSITIONS])
    extend(model, tmp_path / f"new.{kind}", tmp_path / "out.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), wanted)
    extend(model, tmp_path / f"new.{kind}", tmp_path / "same.zarr", choice=Choice(columns=FITTED))
    np.testing.assert_array_equal(read_array(tmp_path / "same.zarr"), wanted)
    extend(model, tmp_path / f"new.{kind}", tmp_path / "ids.zarr", aligned={"ids": "cell"})
    np.testing.assert_array_equal(read_array(tmp_path / "ids.zarr"), wanted)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("x0", "x3", "x4"), "in the same order"),
        (("x4", "x0", "x1"), "(?s)unseen at fit time:\n- x1\n.*now missing:\n- x3"),
        (("x5", "x1", "x2"), "unseen at fit time:\n- x5\n- x1\n- x2"),
    ],
)
def test_other_columns_are_refused_before_anything_is_written(
    columns: tuple[str, ...], message: str, model: Path, tmp_path: Path
) -> None:
    write(tmp_path / "new.parquet", rows_of(1))
    for refused in (extend, plan_extension):
        with pytest.raises(InputError, match=message):
            refused(model, tmp_path / "new.parquet", tmp_path / "out.zarr", choice=Choice(columns=columns))
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_that_lacks_a_column_is_refused(kind: str, model: Path, tmp_path: Path) -> None:
    write(tmp_path / f"new.{kind}", rows_of(1), ["x0", "x1", "x2", "y", "x4", "x5"])
    with pytest.raises(InputError, match=r"no columns x3; there are x0.*The model was fitted with them"):
        extend(model, tmp_path / f"new.{kind}", tmp_path / "out.zarr")
    with pytest.raises(InputError, match=r"no columns z; there are [^.]*$"):
        extend(model, tmp_path / f"new.{kind}", tmp_path / "out.zarr", choice=Choice(columns=("x4", "x0", "z")))


def test_rows_without_names_are_taken_as_they_are(model: Path, tmp_path: Path) -> None:
    new = rows_of(1)[:, POSITIONS]
    np.save(tmp_path / "new.npy", new)
    np.savetxt(tmp_path / "bare.csv", new, delimiter=",", fmt="%.17g")
    for name in ("new.npy", "bare.csv"):
        extend(model, tmp_path / name, tmp_path / f"{name}.zarr")
        np.testing.assert_array_equal(read_array(tmp_path / f"{name}.zarr"), be.load(model).transform(new))


def test_a_model_without_names_takes_any_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", rows_of()[:, :3])
    model = fit(tmp_path, 'path = "rows.npy"')
    assert not hasattr(be.load(model), "feature_names_in_")
    write(tmp_path / "new.csv", rows_of(1))
    extend(model, tmp_path / "new.csv", tmp_path / "out.zarr", choice=Choice(columns=FITTED))
    wanted = be.load(model).transform(rows_of(1)[:, POSITIONS])
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), wanted)


def test_names_go_with_an_ingested_copy(tmp_path: Path) -> None:
    write(tmp_path / "rows.parquet", rows_of())
    ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", Choice(columns=FITTED))
    ingest(tmp_path / "rows.parquet", tmp_path / "other.zarr", Choice(columns=FITTED[::-1]))
    ingest(tmp_path / "other.zarr", tmp_path / "again.zarr")
    model = fit(tmp_path, 'path = "rows.zarr"')
    assert list(be.load(model).feature_names_in_) == list(FITTED)
    for name in ("other.zarr", "again.zarr"):
        with pytest.raises(InputError, match="in the same order"):
            extend(model, tmp_path / name, tmp_path / "out.zarr")
        with pytest.raises(InputError, match="in the same order"):
            be.load(model).transform(str(tmp_path / name))
    extend(model, tmp_path / "rows.zarr", tmp_path / "out.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), be.load(model).embedding_)


def test_netcdf_variables_are_names(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4")
    with netcdf.Dataset(tmp_path / "rows.nc", "w") as file:
        file.createDimension("point", 200)
        for name, values in zip("uvw", rows_of().T[:3], strict=True):
            file.createVariable(name, "f8", ("point",))[:] = values
    model = fit(tmp_path, 'path = "rows.nc"\narray = ["u", "v"]')
    with pytest.raises(InputError, match="in the same order"):
        extend(model, tmp_path / "rows.nc", tmp_path / "out.zarr", choice=Choice(array=("v", "u")))
    extend(model, tmp_path / "rows.nc", tmp_path / "out.zarr", choice=Choice(array=("u", "v")))


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_var_names_are_names(suffix: str, layout: str, tmp_path: Path) -> None:
    pytest.importorskip("anndata")

    def annotate(name: str, genes: Any) -> None:
        found = annotated(rows_of(), [f"cell {number}" for number in range(200)], layout=layout)
        if genes is not None:
            found.var_names = list(genes)
        with quiet():
            (found.write_h5ad if suffix == "h5ad" else found.write_zarr)(tmp_path / f"{name}.{suffix}")

    for name, genes in {"rows": "abcdef", "other": "abcdfe", "plain": None}.items():
        annotate(name, genes)
    model = fit(tmp_path, f'path = "rows.{suffix}"')
    assert "".join(be.load(model).feature_names_in_) == "abcdef"
    with pytest.raises(InputError, match="in the same order"):
        extend(model, tmp_path / f"other.{suffix}", tmp_path / "out.zarr")
    for name in ("rows", "plain"):
        extend(model, tmp_path / f"{name}.{suffix}", tmp_path / f"{name}-out.zarr")
    ingest(tmp_path / f"rows.{suffix}", tmp_path / "obsm.zarr", Choice(array=("obsm/X_two",)))
    assert columns_of(tmp_path / "obsm.zarr") == ()
