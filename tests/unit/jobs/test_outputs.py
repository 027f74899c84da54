"""The outputs in the root of a run, as any reader of Zarr finds them: named dimensions, shared chunks, never stale."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.errors import ExistingOutputError, InputError, InterruptedRun
from bigembed.jobs.extend import extend
from bigembed.jobs.run import run_job
from bigembed.jobs.scene import export
from bigembed.jobs.watching import RunOptions
from bigembed.runtime import Event
from tests.job_files import job_in

N = 300
ROWS = np.random.default_rng(0).normal(size=(N, 4)) * [4, 3, 2, 1]
IDS = np.array([f"row {number}" for number in range(N)])


@pytest.fixture
def job(tmp_path):
    """A function that writes a job on some rows and reads it."""
    np.save(tmp_path / "rows.npy", ROWS)
    np.save(tmp_path / "ids.npy", IDS)
    np.save(tmp_path / "labels.npy", np.arange(N) % 3)

    def write(method="pca", count=2, labels="", steps=""):
        source = f'path = "rows.npy"\nids = "ids.npy"\n{labels}\n{steps}'
        return job_in(tmp_path, f'name = "{method}"\nn_components = {count}', source)

    return write


def outputs(root: Path) -> dict[str, zarr.Array]:
    """The arrays in the root, as consolidated metadata name them."""
    return dict(zarr.open_consolidated(str(root)).arrays())


def test_a_table_that_somebody_changed_is_neither_taken_for_its_own_nor_overwritten(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    asked = job_in(tmp_path, 'name = "pca"', output='table = "table.csv"')
    run_job(asked)
    whole = (tmp_path / "table.csv").read_bytes()
    assert run_job(asked)["unchanged"]
    (tmp_path / "table.csv").write_text("junk")
    for _ in range(2):
        with pytest.raises(ExistingOutputError, match="changed since"):
            run_job(asked)
    np.save(tmp_path / "rows.npy", ROWS + 1)
    with pytest.raises(ExistingOutputError, match="changed since"):
        run_job(asked)
    assert (tmp_path / "table.csv").read_text() == "junk"
    np.save(tmp_path / "rows.npy", ROWS)
    (tmp_path / "table.csv").unlink()
    run_job(asked)
    assert (tmp_path / "table.csv").read_bytes() == whole


def test_each_has_named_dimensions_and_shares_the_chunks_of_its_stage(job, tmp_path):
    run_job(job("diffusion_map"))
    root = tmp_path / "run.zarr"
    found = outputs(root)
    assert {name: array.metadata.dimension_names for name, array in found.items()} == {
        "coordinates": ("row", "coordinate"),
        "ids": ("row",),
        "component": ("row",),
        "eigenvalues": ("coordinate",),
    }
    export(root, tmp_path / "table.npy")
    assert np.array_equal(found["coordinates"][...], np.load(tmp_path / "table.npy"))
    assert list(found["ids"][...]) == list(IDS)
    assert found["coordinates"].attrs["names"] == ["diffusionmap0", "diffusionmap1"]
    assert found["coordinates"].attrs["method"] == "diffusion_map"
    stage = root / "stages" / "coordinates" / "embedding"
    chunks = [file.relative_to(stage) for file in stage.rglob("*") if file.is_file() and file.name != "zarr.json"]
    assert chunks
    assert all(os.path.samefile(stage / name, root / "coordinates" / name) for name in chunks)
    assert zarr.open_group(str(root))["stages/coordinates/embedding"].shape == (N, 2)
    assert "dimension_names" not in (stage / "zarr.json").read_text()  # (what is published stays as it is)


def test_xarray_shows_coordinates_ids_and_labels(job, tmp_path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    run_job(job("linear_discriminant", labels='labels = "labels.npy"'))
    with xr.open_zarr(tmp_path / "run.zarr") as found:
        assert found.sizes == {"row": N, "coordinate": 2}
        assert {*found.coords} == {"ids", "labels"}
        assert list(found.labels.values) == list(np.arange(N) % 3)
        assert found.coordinates.sel(coordinate=0).shape == (N,)


def test_rows_that_are_left_out_have_no_place(job, tmp_path):
    rows = ROWS.copy()
    rows[[3, 50], 1] = np.nan
    asked = job(steps='[[steps]]\nname = "missing"')
    np.save(tmp_path / "rows.npy", rows)
    run_job(asked)
    found = outputs(tmp_path / "run.zarr")
    kept = np.delete(np.arange(N), [3, 50])
    assert found["row"][...].tolist() == kept.tolist()
    assert list(found["ids"][...]) == list(IDS[kept])
    assert found["coordinates"].shape == (N - 2, 2)


class TestNeverStale:
    """As soon as a stage of a run is another one, or none, nothing in its root shows what was there."""

    def shown(self, root):
        return sorted(path.parent.name for path in root.glob("*/zarr.json"))

    def test_a_run_that_begins_anew_and_is_stopped(self, job, tmp_path):
        root = tmp_path / "run.zarr"
        run_job(job())
        assert self.shown(root) == ["coordinates", "eigenvalues", "ids"]

        def stop(event: Event) -> None:
            if event.kind == "start" and event.stage == "solve":
                raise InterruptedRun("stopped")

        with pytest.raises(InterruptedRun):
            run_job(job(count=3), RunOptions(observer=stop))
        assert self.shown(root) == []
        assert zarr.open_group(str(root)).metadata.consolidated_metadata is None
        run_job(job(count=3))
        assert outputs(root)["coordinates"].shape == (N, 3)

    def test_a_fit_in_the_same_folder(self, job, tmp_path):
        root = tmp_path / "run.zarr"
        run_job(job())
        be.PCA(n_components=1, workdir=root).fit(ROWS)
        assert self.shown(root) == []

    @pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
    def test_a_start_that_was_killed_leaves_nothing_and_what_is_not_ours_stays(self, job, tmp_path, monkeypatch):
        def kill(*given):
            raise KeyboardInterrupt

        root = tmp_path / "run.zarr"
        with monkeypatch.context() as patched:
            patched.setattr("bigembed.jobs.run.publish_dataset", kill)
            with pytest.raises(KeyboardInterrupt):
                run_job(job("diffusion_map"))
        assert self.shown(root) == ["component", "coordinates", "eigenvalues", "ids"]
        zarr.create_array(str(root / "mine"), data=np.arange(3))
        run_job(job("tsne"))
        assert self.shown(root) == ["coordinates", "ids", "mine"]
        zarr.consolidate_metadata(str(root))
        run_job(job("pca"))
        assert self.shown(root) == ["coordinates", "eigenvalues", "ids", "mine"]


def test_a_table_of_somebody_else_is_refused_and_no_folder_is_made(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(ExistingOutputError, match="this run did not write it"):
        run_job(job_in(tmp_path, 'name = "pca"', output='table = "out.csv"'))
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert not (tmp_path / "run.zarr").exists()


def test_an_error_about_rows_names_the_file_that_holds_them(tmp_path):
    holes = ROWS.copy()
    holes[7, 2] = np.nan
    np.save(tmp_path / "holes.npy", holes)
    for method in ("pca", "diffusion_map"):
        wrong = job_in(tmp_path, f'name = "{method}"', source='path = "holes.npy"', path=f"{method}.zarr")
        with pytest.raises(InputError, match=r"holes\.npy: Input X contains NaN: 1 of 300 rows do, .* rows \[7\]"):
            run_job(wrong)
    np.save(tmp_path / "rows.npy", ROWS)
    run_job(job_in(tmp_path, 'name = "pca"', source='path = "rows.npy"', output='model = "m.zarr"'))
    with pytest.raises(InputError, match=r"holes\.npy: Input X contains NaN"):
        extend(tmp_path / "m.zarr", tmp_path / "holes.npy", tmp_path / "placed.zarr")


def test_a_run_is_no_model_and_its_reader_is_told_what_is(job, tmp_path):
    run_job(job())
    with pytest.raises(InputError, match=r"run\.zarr: a run, not a saved model\. Give what \[output\] model"):
        be.load(tmp_path / "run.zarr")


def test_a_run_on_a_file_system_without_links(job, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "bigembed.store.attributes.os.link", lambda old, new: (_ for _ in ()).throw(OSError("no links"))
    )
    run_job(job())
    found = outputs(tmp_path / "run.zarr")["coordinates"]
    assert np.array_equal(found[...], be.open_array(tmp_path / "run.zarr/stages/coordinates/embedding").compute())
