"""Every path through an optional library, with the library absent: an error that names the extra, before work."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import MissingExtraError
from bigembed.jobs.export import export
from bigembed.jobs.extend import extend
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.rows.formats.registry import open_reader

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {
    "rows.csv": ("pyarrow", "csv"),
    "rows.tsv": ("pyarrow", "csv"),
    "rows.parquet": ("pyarrow", "parquet"),
    "rows.h5": ("h5py", "hdf5"),
    "rows.h5ad": ("h5py", "anndata"),
    "rows.nc": ("netCDF4", "netcdf"),
}
"""Files, the library that reads each, and its extra."""


def hide(monkeypatch: Any, library: str) -> None:
    """As if it were not installed."""
    for name in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, name, None)


def rows_and_job(folder: Path, output: str = "") -> Any:
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(50, 3)))
    method = '[method]\nname = "pca"\nn_components = 2\n'
    (folder / "job.toml").write_text(f'[input]\npath = "rows.npy"\n{method}[output]\npath = "run.zarr"\n{output}\n')
    return read_job(folder / "job.toml")


@pytest.mark.parametrize("name", OPTIONAL)
def test_reading(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    library, extra = OPTIONAL[name]
    (tmp_path / name).write_bytes(b"1,2\n3,4\n")
    hide(monkeypatch, library)
    with pytest.raises(MissingExtraError, match=rf'needs {library}, .*pip install "bigembed\[{extra}\]"'):
        open_reader(tmp_path / name)
    done = CliRunner().invoke(app, ["ingest", str(tmp_path / name), str(tmp_path / "out.zarr")])
    assert done.exit_code == 2
    assert f"bigembed[{extra}]" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_tables(tmp_path: Path, monkeypatch: Any) -> None:
    run_job(rows_and_job(tmp_path, 'model = "model.zarr"'))
    hide(monkeypatch, "pyarrow")
    with pytest.raises(MissingExtraError, match=r"bigembed\[parquet\]"):
        export(tmp_path / "run.zarr", tmp_path / "out.parquet")
    with pytest.raises(MissingExtraError, match=r"bigembed\[parquet\]"):
        extend(tmp_path / "model.zarr", tmp_path / "rows.npy", tmp_path / "new.zarr", results=tmp_path / "new.parquet")
    assert not (tmp_path / "new.zarr").exists()
    export(tmp_path / "run.zarr", tmp_path / "out.csv")
    export(tmp_path / "run.zarr", tmp_path / "out.npy")


@pytest.mark.parametrize("output", ["model", "table", "picture", "report", "scratch"])
def test_object_stores(output: str, tmp_path: Path, monkeypatch: Any) -> None:
    """A plan says so, before anything is asked of the store."""
    name = {"table": "t.csv", "picture": "p.png", "report": "r.html"}.get(output, "place")
    job = rows_and_job(tmp_path, f'{output} = "s3://bucket/{name}"')
    hide(monkeypatch, "obstore")
    with pytest.raises(MissingExtraError, match=r"bigembed\[objects\]"):
        make_plan(job)


@pytest.mark.parametrize("library", ["anndata", "h5py"])
def test_anndata_to_write_to(library: str, tmp_path: Path, monkeypatch: Any) -> None:
    run_job(rows_and_job(tmp_path))
    (tmp_path / "a.h5ad").write_bytes(b"")
    hide(monkeypatch, library)
    with pytest.raises(MissingExtraError, match=r"bigembed\[anndata\]"):
        export(tmp_path / "run.zarr", tmp_path / "a.h5ad")


def test_performance_report(tmp_path: Path, monkeypatch: Any) -> None:
    hide(monkeypatch, "bokeh")
    with pytest.raises(MissingExtraError, match=r"bigembed\[performance\]"):
        run_job(rows_and_job(tmp_path), RunOptions(performance_report=tmp_path / "page.html"))
    assert not (tmp_path / "run.zarr").exists()


def test_the_main_job_needs_none_of_them(tmp_path: Path, monkeypatch: Any) -> None:
    for library in ("anndata", "bokeh", "dask_jobqueue", "h5py", "netCDF4", "obstore", "pandas", "pyarrow"):
        hide(monkeypatch, library)
    assert run_job(rows_and_job(tmp_path, 'table = "t.csv"\npicture = "p.png"\nmodel = "m.zarr"'))["finished"]


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the repository, not only the package")
def test_every_extra_that_an_error_names_is_one_and_in_all() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    code = "\n".join(path.read_text() for path in (ROOT / "bigembed").rglob("*.py"))
    found = set(re.findall(r'needed\([^"\n]*"[\w.]+", "(\w+)"', code)) - {"none"}  # (of an example)
    named = found | {extra for _, extra in OPTIONAL.values()}
    assert {"performance", "anndata", "parquet"} <= named
    assert named <= set(extras)
    match = re.fullmatch(r"bigembed\[([\w,]+)\]", extras["all"][0])
    assert match is not None
    assert set(match[1].split(",")) == set(extras) - {"all", "bench", "dev", "docs", "test"}
