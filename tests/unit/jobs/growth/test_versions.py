"""A growing embedding: versions, ranges, exactly once, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.errors import (
    ChangedInputError,
    DamageWarning,
    ExistingOutputError,
    InputError,
    InterruptedRun,
    JobError,
    LockedError,
    MissingPathError,
    PlanError,
)
from bigembed.jobs.growth import extend as growth_extend
from bigembed.jobs.growth import refresh as growth_refresh
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.repair import verify_growth
from bigembed.jobs.growth.versions import open_growth
from bigembed.jobs.spec import parse_job
from bigembed.rows.growing import append_rows
from bigembed.store.arrays import write_array
from bigembed.store.locks import hold

METHODS = {
    "pca": {},
    "diffusion_map": {"n_neighbors": 8},
    "isomap": {"n_neighbors": 8},
    "kernel_pca": {},
    "landmark_diffusion_map": {},
    "landmark_mds": {},
    "classical_mds": {},
    "linearized_diffusion_map": {},
    "linearized_kernel_pca": {},
    "linearized_diffusion_nmf": {},
    "nmf": {},
}


@pytest.fixture
def rows():
    return np.random.default_rng(0).uniform(1, 2, size=(900, 4))


@pytest.fixture
def job(tmp_path, rows):
    """A job of a method on the first 400 rows in ``x.zarr``."""
    write_array(tmp_path / "x.zarr", rows[:400], chunk_rows=128)

    def make(method="pca", output=None, **parameters):
        tables = {
            "input": {"path": "x.zarr"},
            "method": {"name": method, "n_components": 2, **METHODS[method], **parameters},
            "output": {"path": "out.zarr", **(output or {})},
        }
        return parse_job(tables, tmp_path / "job.toml")

    return make


def current(tmp_path):
    return open_growth(tmp_path / "out.zarr").current


@pytest.mark.parametrize("method", METHODS)
def test_every_row_has_the_coordinates_of_the_one_model(job, rows, tmp_path, method):
    asked = job(method)
    assert refresh(asked)["fitted"] == 400
    append_rows(tmp_path / "x.zarr", rows[400:401])
    assert extend(asked)["placed"] == 1
    append_rows(tmp_path / "x.zarr", rows[401:700])
    assert extend(asked)["placed"] == 299
    version = current(tmp_path)
    model = be.load(version.model)
    found = version.coordinates.compute()
    np.testing.assert_array_equal(found[:400], np.asarray(model.embedding_))
    np.testing.assert_array_equal(found[400:], model.transform(rows[400:700]))
    assert [(part.start, part.stop, part.how) for part in version.ranges] == [
        (0, 400, "fitted"),
        (400, 401, "placed"),
        (401, 700, "placed"),
    ]
    assert len({part.model for part in version.ranges}) == 1
    assert len({part.rows for part in version.ranges}) == 3


def test_after_a_refresh_all_rows_are_of_the_new_model_and_the_last_version_stays(job, rows, tmp_path):
    asked = job()
    refresh(asked)
    append_rows(tmp_path / "x.zarr", rows[400:600])
    extend(asked)
    before = current(tmp_path)
    old = before.coordinates  # a reader that goes on reading
    found = refresh(asked)
    version = current(tmp_path)
    assert (found["fitted"], found["rows"], version.covered) == (600, 600, 600)
    assert {part.model for part in version.ranges}.isdisjoint({part.model for part in before.ranges})
    assert old.compute().shape == (600, 2)
    append_rows(tmp_path / "x.zarr", rows[600:650])
    refresh(asked)
    kept = sorted(path.name for path in (tmp_path / "out.zarr" / "versions").iterdir())
    assert [name[:9] for name in kept] == ["0002-600-", "0003-650-"]
    append_rows(tmp_path / "x.zarr", rows[650:660])
    refresh(asked, keep=0)
    assert [path.name[:9] for path in (tmp_path / "out.zarr" / "versions").iterdir()] == ["0004-660-"]


def files(folder):
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in Path(folder).rglob("*")
        if path.is_file() and "hold" not in path.parts and path.name not in ("status.json", "rows.json", "log.jsonl")
    }


def test_nothing_is_done_where_nothing_has_changed(job, rows, tmp_path):
    asked = job()
    refresh(asked)
    before = files(tmp_path)
    assert refresh(asked)["unchanged"]
    assert extend(asked)["unchanged"]
    assert files(tmp_path) == before
    assert not refresh(job(whiten=True))["unchanged"]  # other parameters
    assert not refresh(job(whiten=True), fresh=True)["unchanged"]


def test_other_parameters_are_told_and_the_current_model_goes_on(job, rows, tmp_path):
    refresh(job())
    append_rows(tmp_path / "x.zarr", rows[400:500])
    found = extend(job(whiten=True))
    assert found["other_parameters"]
    assert not extend(job())["other_parameters"]
    assert len({part.model for part in current(tmp_path).ranges}) == 1


def test_rows_appended_while_a_refresh_runs_are_left_to_extend(job, rows, tmp_path, monkeypatch):
    asked, run = job("diffusion_map"), growth_refresh.run_job

    def and_grow(*arguments, **named):
        append_rows(tmp_path / "x.zarr", rows[400:500])
        return run(*arguments, **named)

    monkeypatch.setattr(growth_refresh, "run_job", and_grow)
    assert refresh(asked)["fitted"] == 400
    monkeypatch.undo()
    assert extend(asked)["placed"] == 100
    alone = be.DiffusionMap(n_components=2, n_neighbors=8).fit(rows[:400])
    np.testing.assert_allclose(current(tmp_path).coordinates[:400], alone.embedding_, atol=1e-9)


def test_rows_changed_while_a_refresh_runs_are_noticed(job, rows, tmp_path, monkeypatch):
    asked, run = job(), growth_refresh.run_job
    refresh(asked)

    def and_change(*arguments, **named):
        found = run(*arguments, **named)
        zarr.open_array(str(tmp_path / "x.zarr"))[10] = 0
        return found

    append_rows(tmp_path / "x.zarr", rows[400:500])
    monkeypatch.setattr(growth_refresh, "run_job", and_change)
    with pytest.raises(ChangedInputError, match="0:"):
        refresh(asked)
    assert current(tmp_path).fitted == 400
    assert len(list((tmp_path / "out.zarr" / "versions").iterdir())) == 1


@pytest.mark.parametrize("what", ["changed", "shrunk"])
def test_changed_and_shrunk_input_is_named_with_the_remedy(job, rows, tmp_path, what):
    asked = job()
    refresh(asked)
    array = zarr.open_array(str(tmp_path / "x.zarr"))
    array.resize((300, 4)) if what == "shrunk" else array.__setitem__(10, 0)
    before = current(tmp_path)
    for call in (extend, refresh):
        with pytest.raises(ChangedInputError, match=r"(are gone|0:400 of 400).*bigembed refresh .*job\.toml --fresh"):
            call(asked)
    assert current(tmp_path) == before
    found = refresh(asked, fresh=True)
    assert found["fitted"] == (300 if what == "shrunk" else 400)
    assert extend(asked)["unchanged"]


def test_an_unfinished_version_is_gone_on_with_or_forgotten(job, rows, tmp_path, monkeypatch):
    asked = job("diffusion_map")
    monkeypatch.setattr(growth_refresh, "_publish", stopped)
    with pytest.raises(InterruptedRun):
        refresh(asked)
    monkeypatch.undo()
    with pytest.raises(MissingPathError, match=r"Run bigembed refresh"):
        extend(asked)
    append_rows(tmp_path / "x.zarr", rows[400:500])
    found = refresh(asked)
    assert (found["fitted"], found["version"][:4]) == (400, "0001")  # on its own rows
    monkeypatch.setattr(growth_refresh, "_publish", stopped)
    with pytest.raises(InterruptedRun):
        refresh(asked)
    monkeypatch.undo()
    append_rows(tmp_path / "x.zarr", rows[500:520])
    assert refresh(job("diffusion_map", alpha=0.5))["fitted"] == 520  # asked for otherwise: it is forgotten
    names = sorted(path.name for path in (tmp_path / "out.zarr" / "versions").iterdir())
    assert [name[:9] for name in names] == ["0001-400-", "0002-520-"]


def stopped(*arguments):
    raise InterruptedRun("stopped")


def test_a_range_that_was_cut_is_taken_up_as_it_was(job, rows, tmp_path, monkeypatch):
    asked = job("diffusion_map")
    refresh(asked)
    append_rows(tmp_path / "x.zarr", rows[400:500])
    monkeypatch.setattr(growth_extend, "append_source", stopped)
    with pytest.raises(InterruptedRun):
        extend(asked)
    monkeypatch.undo()
    assert current(tmp_path).covered == 400
    append_rows(tmp_path / "x.zarr", rows[500:600])
    told = []
    from bigembed.jobs.watching.reporter import RunOptions

    extend(asked, RunOptions(lambda event: told.append((event.kind, event.stage))))
    assert ("reused", "extend") in told  # computed before, not again
    assert [part.stop for part in current(tmp_path).ranges] == [400, 500, 600]


def test_many_rows_are_placed_range_by_range(job, rows, tmp_path, monkeypatch):
    asked = job()
    refresh(asked)
    append_rows(tmp_path / "x.zarr", rows[400:900])
    monkeypatch.setattr(growth_extend, "RANGE_ROWS", 200)
    extend(asked)
    version = current(tmp_path)
    assert [part.stop for part in version.ranges] == [400, 600, 800, 900]
    model = be.load(version.model)
    np.testing.assert_array_equal(version.coordinates[400:], model.transform(rows[400:]))


def test_rows_that_cannot_be_placed_are_named_and_leave_nothing(job, rows, tmp_path):
    asked = job("diffusion_map")
    refresh(asked)
    bad = rows[400:500].copy()
    bad[7, 1] = np.nan
    append_rows(tmp_path / "x.zarr", bad)
    with pytest.raises(InputError, match=r"in rows 400:500 \(numbered from 400 as 0\).*\[7\]"):
        extend(asked)
    assert not list((current(tmp_path).root / "placing").iterdir())
    zarr.open_array(str(tmp_path / "x.zarr"))[407] = rows[407]  # not placed yet, so it may be mended
    assert extend(asked)["placed"] == 100
    zarr.open_array(str(tmp_path / "x.zarr"))[407] = 0
    with pytest.raises(ChangedInputError):
        extend(asked)


def test_what_cannot_grow_is_refused(job, tmp_path):
    with pytest.raises(JobError, match=r"\[output\] model"):
        refresh(job(output={"model": "m.zarr"}))
    tables = {
        "input": {"path": "x.zarr", "weights": "w.npy"},
        "method": {"name": "pca"},
        "output": {"path": "out.zarr"},
    }
    with pytest.raises(JobError, match=r"\[input\] weights"):
        refresh(parse_job(tables, tmp_path / "job.toml"))
    with pytest.raises(JobError, match=r"\[input\] dataset"):
        refresh(parse_job(tables | {"input": {"path": "x.zarr", "dataset": "plane"}}, tmp_path / "job.toml"))
    shutil.rmtree(tmp_path / "x.zarr")
    with pytest.raises(MissingPathError):
        refresh(parse_job(good(), tmp_path / "job.toml"))
    assert not (tmp_path / "out.zarr").exists()
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    (tmp_path / "out.zarr").mkdir()
    (tmp_path / "out.zarr" / "mine.txt").write_text("x")
    with pytest.raises(ExistingOutputError):
        refresh(parse_job(good() | {"input": {"path": "x.npy"}}, tmp_path / "job.toml"))
    with pytest.raises(InputError, match="not a growing embedding"):
        open_growth(tmp_path / "out.zarr")
    with pytest.raises(MissingPathError):
        open_growth(tmp_path / "none")


def good():
    return {"input": {"path": "x.zarr"}, "method": {"name": "pca"}, "output": {"path": "out.zarr"}}


def test_one_at_a_time(job, tmp_path):
    asked = job()
    refresh(asked)
    with hold(tmp_path / "out.zarr"):
        for call in (refresh, extend):
            with pytest.raises(LockedError, match=r"held by .*process \d+"):
                call(asked)


def test_the_status_and_the_picture(job, tmp_path):
    asked = job(output={"picture": "map.png"})
    refresh(asked)
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
    status = json.loads((tmp_path / "out.zarr" / "status.json").read_text())
    assert status["state"] == "done"
    assert "publish" in status["finished_stages"]


def test_too_little_memory_is_refused(job, rows, tmp_path):
    asked = job()
    refresh(asked)
    append_rows(tmp_path / "x.zarr", rows[400:500])
    cluster = asked.cluster.model_copy(update={"workers": 1, "memory": 1 << 20})
    with pytest.raises(PlanError):
        refresh(asked.model_copy(update={"cluster": cluster}))
    assert current(tmp_path).fitted == 400


STEPS = [{"name": "missing", "action": "fill"}, {"name": "standardize"}, {"name": "pca", "n_components": 3}]


@pytest.mark.parametrize("method", ["pca", "diffusion_map"])
def test_rows_that_come_go_through_the_steps_of_the_model(job, rows, tmp_path, method):
    rows[::37, 1] = np.nan
    write_array(tmp_path / "x.zarr", rows[:400], chunk_rows=128)
    asked = job(method)
    tables = {"steps": STEPS, "input": {"path": "x.zarr"}, "output": {"path": "out.zarr"}}
    asked = parse_job(tables | {"method": {"name": method, **asked.method.parameters}}, tmp_path / "job.toml")
    refresh(asked)
    append_rows(tmp_path / "x.zarr", rows[400:700])
    assert extend(asked)["placed"] == 300
    version = current(tmp_path)
    model, found = be.load(version.model), version.coordinates.compute()
    steps = [be.Missing("fill"), be.StandardScaler(), be.PCA(3)]
    expected = be.Pipeline([*steps, type(model)(**asked.method.parameters)]).fit(rows[:400])
    np.testing.assert_array_equal(found[:400], expected.embedding_)
    np.testing.assert_array_equal(found[400:], expected.transform(rows[400:700]))
    report = audit(asked)
    assert (report["due"], report["rows"]["judged"]) == ([], 300)
    assert refresh(parse_job(tables | {"steps": STEPS[:2], "method": {"name": "pca"}}, asked.file))["fitted"] == 700


@pytest.mark.parametrize("method", ["pca", "diffusion_map"])
def test_rows_with_missing_values_keep_their_places_and_are_said(job, rows, tmp_path, method):
    rows[::37, 1] = np.nan
    there = ~np.isnan(rows).any(axis=1)
    write_array(tmp_path / "x.zarr", rows[:400], chunk_rows=128)
    asked = job(method)
    steps = [{"name": "missing"}, {"name": "standardize"}, {"name": "pca", "n_components": 3}]
    tables = {"steps": steps, "input": {"path": "x.zarr"}, "output": {"path": "out.zarr"}}
    asked = parse_job(tables | {"method": {"name": method, **asked.method.parameters}}, tmp_path / "job.toml")
    assert refresh(asked)["left_out"] == (~there[:400]).sum()
    append_rows(tmp_path / "x.zarr", rows[400:700])
    done = extend(asked)
    assert (done["placed"], done["rows"], done["left_out"]) == (300, 700, (~there[:700]).sum())
    version = current(tmp_path)
    assert [part.left_out for part in version.ranges] == [(~there[:400]).sum(), (~there[400:700]).sum()]
    found = version.coordinates.compute()
    kind = type(be.load(version.model))
    made = be.Pipeline([be.Missing(), be.StandardScaler(), be.PCA(3), kind(**asked.method.parameters)])
    expected = made.fit(rows[:400])
    np.testing.assert_array_equal(np.isnan(found).any(axis=1), ~there[:700])
    np.testing.assert_array_equal(found[:400][there[:400]], expected.embedding_)
    np.testing.assert_array_equal(found[400:], expected.transform(rows[400:700]))
    report = audit(asked)
    assert (report["due"], report["rows"]["new"]) == ([], 300)
    place = next(path for path in sorted((version.array / "c").rglob("*")) if path.is_file())
    place.write_bytes(place.read_bytes()[::-1])
    with pytest.warns(DamageWarning, match="damaged"):
        extend(asked)
    np.testing.assert_array_equal(version.coordinates.compute(), found)
    assert (verify_growth(tmp_path / "out.zarr")["problems"], refresh(asked)["left_out"]) == ([], (~there[:700]).sum())
