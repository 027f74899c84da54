"""A job that condenses: cells, a map of them, places for all rows; and the command that condenses alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.errors import InputError, JobError
from bigembed.jobs.condense import doubts, scale_of, subspace_angle
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.neighbors.condensed import Condensed
from bigembed.store.arrays import read_array
from tests.job_files import job_file, job_in

N = 3_000


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """An uneven arc in three dimensions: its rows lie close together at one end."""
    along = np.random.default_rng(0).beta(1, 3, N) * np.pi
    noise = np.random.default_rng(1).normal(size=(N, 3))
    return (np.column_stack([np.cos(along), np.sin(along), 0 * along]) + 0.01 * noise).astype(np.float32)


@pytest.fixture
def job(tmp_path: Path, rows: np.ndarray) -> Any:
    """Write the rows and a job that condenses them."""
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "ids.csv").write_text("id\n" + "\n".join(f"n{i}" for i in range(N)))
    np.save(tmp_path / "ids.npy", np.arange(N) + 7)

    def write(condense: str = "rows = 300", method: str = 'name = "pca"\nn_components = 2', more: str = "") -> Path:
        return job_file(tmp_path, method, f'path = "rows.npy"\nids = "ids.npy"\n[condense]\n{condense}', more)

    return write


def test_all_rows_are_placed_on_the_map_of_the_cells(job: Any, rows: np.ndarray, tmp_path: Path) -> None:
    file = read_job(job('rows = 300\ndtype = "float32"', more='table = "map.parquet"\nmodel = "model.zarr"'))
    names = [name for name, _ in plan_job(file).stages]
    assert {"condense", "placed"} <= {*names}
    done = run_job(file)
    placed = read_array(tmp_path / "run.zarr" / "placed")
    assert (placed.shape, placed.dtype) == ((N, 2), np.float32)
    cells = Condensed.open(tmp_path / "run.zarr" / "condensed")
    fitted = be.PCA(2).fit(np.asarray(cells.rows), sample_weight=np.asarray(cells.counts))
    np.testing.assert_allclose(placed, fitted.transform(rows), atol=1e-6)
    exact, uneven = be.PCA(2).fit(rows), be.PCA(2).fit(np.asarray(cells.rows))
    off = [1 - abs(float(one.components_[0] @ exact.components_[0])) for one in (fitted, uneven)]
    assert off[0] < 1e-4 < off[1]  # (without counts it is another map)
    found = done["certificate"]["condense"]
    assert found["kept"] == pytest.approx(found["kept_without"], abs=0.03)
    assert found["angle"] < 0.05
    assert found["warnings"] == []
    assert run_job(file)["unchanged"]
    assert verify(tmp_path / "run.zarr")["finished"]
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "map.parquet")
    assert table["id"].to_pylist() == list(range(7, N + 7))
    np.testing.assert_array_equal(table["pca0"].to_numpy(), placed[:, 0])


def test_changed_it_makes_anew_what_depends(job: Any, tmp_path: Path) -> None:
    run_job(read_job(job()))
    first, cells = read_array(tmp_path / "run.zarr" / "placed"), tmp_path / "run.zarr" / "condensed" / "manifest"
    made = (cells / "cells.json").stat().st_mtime_ns
    run_job(read_job(job(method='name = "pca"\nn_components = 1')))
    assert (cells / "cells.json").stat().st_mtime_ns == made
    assert read_array(tmp_path / "run.zarr" / "placed").shape == (N, 1)
    run_job(read_job(job("radius = 0.3")))
    assert (cells / "cells.json").stat().st_mtime_ns != made
    assert not np.array_equal(read_array(tmp_path / "run.zarr" / "placed"), first)


def test_the_command(job: Any, tmp_path: Path) -> None:
    job()
    source, out = str(tmp_path / "rows.npy"), str(tmp_path / "cells.zarr")
    runner = CliRunner()
    planned = runner.invoke(app, ["condense", source, out, "--cells", "200", "--plan"])
    assert planned.exit_code == 0, planned.output
    assert "cells" in planned.output
    assert not Path(out).exists()
    done = runner.invoke(app, ["condense", source, out, "--cells", "200", "--cell", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output.splitlines()[-1])
    assert (found["n"], found["weight"]) == (N, N)
    assert runner.invoke(app, ["verify", out]).exit_code == 0
    of_cells = tmp_path / "of-cells.zarr"
    run_job(job_in(tmp_path, source=f'path = "{out}"', path=str(of_cells)))
    cells = Condensed.open(out)
    weighted = be.PCA(2).fit(np.asarray(cells.rows), sample_weight=np.asarray(cells.counts))
    stored = read_array(tmp_path / "of-cells.zarr" / "coordinates")
    np.testing.assert_allclose(stored, weighted.embedding_, atol=1e-6)
    assert not np.allclose(stored, be.PCA(2).fit(np.asarray(cells.rows)).embedding_, atol=1e-3)
    with pytest.raises(InputError, match="takes no weights"):
        run_job(job_in(tmp_path, 'name = "pacmap"\nn_components = 2', f'path = "{out}"', path=str(of_cells)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"condense": ""}, "one alone"),
        ({"condense": "rows = 5\nradius = 1.0"}, "one alone"),
        ({"condense": "rows = 0"}, r"\[condense\] rows"),
        ({"method": 'name = "pacmap"'}, "takes no weights"),
        ({"more": '[[steps]]\nname = "normalize"\n'}, r"\[\[steps\]\]: rows are condensed as they are"),
        ({"more": "[sweep]\nn_components = [1, 2]\n"}, r"\[condense\]: a sweep maps rows"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], words: str, job: Any) -> None:
    with pytest.raises(JobError, match=words):
        read_job(job(**given))


def test_a_diffusion_map_of_cells_is_that_of_the_rows(job: Any, rows: np.ndarray, tmp_path: Path) -> None:
    """Cells of one width, which hold one row or many; without their counts the map is another one."""
    method = 'name = "diffusion_map"\nn_components = 2\nn_neighbors = 40\n'
    done = run_job(read_job(job("radius = 0.02", method)))
    assert done["certificate"]["condense"]["warnings"] == []
    placed = read_array(tmp_path / "run.zarr" / "placed")
    cells = Condensed.open(tmp_path / "run.zarr" / "condensed")
    exact = be.DiffusionMap(2, n_neighbors=400).fit(rows).embedding_
    assert subspace_angle(placed, exact) < 0.05
    alike = be.DiffusionMap(2, n_neighbors=40).fit(np.asarray(cells.rows))
    assert subspace_angle(alike.transform(rows), exact) > 0.1


def test_doubts() -> None:
    good = {"radius_over_scale": 0.1, "kept": 0.4, "kept_without": 0.42, "kept_error": 0.01, "comparable": True}
    good |= {"angle": 0.2, "compared": 4_000}
    assert doubts(good) == []
    assert "wide beside the kernel" in doubts({**good, "radius_over_scale": 1.4})[0]
    assert "keep 0.20 of their neighbors" in doubts({**good, "kept": 0.2})[0]
    assert "span another space" in doubts({**good, "angle": 0.8})[0]
    assert doubts({**good, "kept": 0.2, "angle": 0.8, "comparable": False}) == []
    assert len(doubts({name: one for name, one in {**good, "kept": 0.2}.items() if name != "angle"})) == 1
    assert scale_of({}) is None
    assert scale_of({"bandwidth": {"epsilon": 2.0, "median_kth": 5.0}}) == 2.0
    a = np.random.default_rng(0).normal(size=(50, 2))
    turned = a @ np.array([[0.6, -0.8], [0.8, 0.6]]) * 3 + 4
    assert subspace_angle(a, turned) < 1e-7
    assert subspace_angle(a, np.column_stack([a[:, 0], np.arange(50)])) > 0.5
