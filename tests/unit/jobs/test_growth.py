"""A growing embedding: versions, ledger, audit."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from scipy import sparse
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed import errors
from bigembed.jobs.growth import extend as growth_extend
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth import refresh as growth_refresh
from bigembed.jobs.growth.account import Ledger, check, doubted_entries, new_ledger, snapshot, with_new_rows
from bigembed.jobs.growth.audit import Limits, audit, compared, found_lists, misfit_of, reasons, search_index
from bigembed.jobs.growth.extend import export_any, extend
from bigembed.jobs.growth.frames import MovementLimits
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.repair import verify_growth
from bigembed.jobs.spec import parse_job
from bigembed.jobs.watching import RunOptions
from bigembed.rows import growing
from bigembed.rows.appending import append_rows
from bigembed.rows.formats import ingest
from bigembed.store import files
from bigembed.store.arrays import write_array
from bigembed.store.locks import hold
from tests.executors import executor
from tests.some import a_few
from tests.unit.jobs.test_staying import current, job_in

METHODS = (
    "pca", "isomap", "landmark_mds", "diffusion_map", "kernel_pca", "landmark_diffusion_map", "classical_mds",
    "linearized_diffusion_map", "linearized_kernel_pca", "linearized_diffusion_nmf", "nmf",
)  # fmt: skip


def times_of_files(folder):
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in Path(folder).rglob("*")
        if path.is_file() and "hold" not in path.parts and path.name not in ("status.json", "rows.json", "log.jsonl")
    }


def stopped(*arguments):
    raise errors.InterruptedRun("stopped")


def good():
    return {"input": {"path": "x.zarr"}, "method": {"name": "pca"}, "output": {"path": "out.zarr"}}


class TestVersions:
    """A growing embedding: versions, ranges, exactly once, and what is refused."""

    @pytest.fixture
    def rows(self):
        return np.random.default_rng(0).uniform(1, 2, size=(900, 4))

    @pytest.fixture
    def job(self, tmp_path, rows):
        """A job of a method on the first 400 rows in ``x.zarr``."""
        write_array(tmp_path / "x.zarr", rows[:400], chunk_rows=128)
        return partial(job_in, tmp_path)

    @a_few(3, "method", METHODS)
    def test_every_row_has_the_coordinates_of_the_one_model(self, job, rows, tmp_path, method):
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

    def test_after_a_refresh_all_rows_are_of_the_new_model_and_the_last_version_stays(self, job, rows, tmp_path):
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

    def test_nothing_is_done_where_nothing_has_changed(self, job, rows, tmp_path):
        asked = job()
        refresh(asked)
        before = times_of_files(tmp_path)
        assert refresh(asked)["unchanged"]
        assert extend(asked)["unchanged"]
        assert times_of_files(tmp_path) == before
        assert not refresh(job(whiten=True))["unchanged"]  # other parameters
        assert not refresh(job(whiten=True), fresh=True)["unchanged"]

    def test_other_parameters_are_told_and_the_current_model_goes_on(self, job, rows, tmp_path):
        refresh(job())
        append_rows(tmp_path / "x.zarr", rows[400:500])
        found = extend(job(whiten=True))
        assert found["other_parameters"]
        assert not extend(job())["other_parameters"]
        assert len({part.model for part in current(tmp_path).ranges}) == 1

    def test_rows_appended_while_a_refresh_runs_are_left_to_extend(self, job, rows, tmp_path, monkeypatch):
        asked, run = job(), growth_refresh.run_job

        def and_grow(*arguments, **named):
            append_rows(tmp_path / "x.zarr", rows[400:500])
            return run(*arguments, **named)

        monkeypatch.setattr(growth_refresh, "run_job", and_grow)
        assert refresh(asked)["fitted"] == 400
        monkeypatch.undo()
        assert extend(asked)["placed"] == 100
        alone = be.PCA(n_components=2).fit(rows[:400])
        np.testing.assert_allclose(current(tmp_path).coordinates[:400], alone.embedding_, atol=1e-9)

    def test_rows_changed_while_a_refresh_runs_are_noticed(self, job, rows, tmp_path, monkeypatch):
        asked, run = job(), growth_refresh.run_job
        refresh(asked)

        def and_change(*arguments, **named):
            found = run(*arguments, **named)
            zarr.open_array(str(tmp_path / "x.zarr"))[10] = 0
            return found

        append_rows(tmp_path / "x.zarr", rows[400:500])
        monkeypatch.setattr(growth_refresh, "run_job", and_change)
        with pytest.raises(errors.ChangedInputError, match="0:"):
            refresh(asked)
        assert current(tmp_path).fitted == 400
        assert len(list((tmp_path / "out.zarr" / "versions").iterdir())) == 1

    @pytest.mark.parametrize("what", ["changed", "shrunk"])
    def test_changed_and_shrunk_input_is_named_with_the_remedy(self, job, rows, tmp_path, what):
        asked = job()
        refresh(asked)
        array = zarr.open_array(str(tmp_path / "x.zarr"))
        array.resize((300, 4)) if what == "shrunk" else array.__setitem__(10, 0)
        before = current(tmp_path)
        for call in (extend, refresh):
            with pytest.raises(
                errors.ChangedInputError, match=r"(are gone|0:400 of 400).*bigembed refresh .*job\.toml --fresh"
            ):
                call(asked)
        assert current(tmp_path) == before
        found = refresh(asked, fresh=True)
        assert found["fitted"] == (300 if what == "shrunk" else 400)
        assert extend(asked)["unchanged"]

    def test_an_unfinished_version_is_gone_on_with_or_forgotten(self, job, rows, tmp_path, monkeypatch):
        asked = job()
        monkeypatch.setattr(growth_refresh, "_publish", stopped)
        with pytest.raises(errors.InterruptedRun):
            refresh(asked)
        monkeypatch.undo()
        with pytest.raises(errors.MissingPathError, match=r"Run bigembed refresh"):
            extend(asked)
        append_rows(tmp_path / "x.zarr", rows[400:500])
        found = refresh(asked)
        assert (found["fitted"], found["version"][:4]) == (400, "0001")  # on its own rows
        monkeypatch.setattr(growth_refresh, "_publish", stopped)
        with pytest.raises(errors.InterruptedRun):
            refresh(asked)
        monkeypatch.undo()
        append_rows(tmp_path / "x.zarr", rows[500:520])
        assert refresh(job(whiten=True))["fitted"] == 520  # asked for otherwise: it is forgotten
        names = sorted(path.name for path in (tmp_path / "out.zarr" / "versions").iterdir())
        assert [name[:9] for name in names] == ["0001-400-", "0002-520-"]

    def test_a_range_that_was_cut_is_taken_up_as_it_was(self, job, rows, tmp_path, monkeypatch):
        asked = job()
        refresh(asked)
        append_rows(tmp_path / "x.zarr", rows[400:500])
        monkeypatch.setattr(growth_extend, "append_source", stopped)
        with pytest.raises(errors.InterruptedRun):
            extend(asked)
        monkeypatch.undo()
        assert current(tmp_path).covered == 400
        append_rows(tmp_path / "x.zarr", rows[500:600])
        told = []
        from bigembed.jobs.watching import RunOptions

        extend(asked, RunOptions(lambda event: told.append((event.kind, event.stage))))
        assert ("reused", "extend") in told  # computed before, not again
        assert [part.stop for part in current(tmp_path).ranges] == [400, 500, 600]

    def test_what_a_stopped_append_left_beside_the_coordinates_is_removed(self, job, rows, tmp_path, monkeypatch):
        asked = job()
        refresh(asked)
        append_rows(tmp_path / "x.zarr", rows[400:500])
        array = current(tmp_path).array

        def write_and_stop(path, data):
            files.write_json(path, data)
            if path == array / "zarr.json":
                stopped()

        monkeypatch.setattr(growing, "write_json", write_and_stop)
        with pytest.raises(errors.InterruptedRun):
            extend(asked)
        monkeypatch.undo()
        left = array.with_name(f"{array.name}.growing") / "rows"
        assert left.exists()
        assert current(tmp_path).covered == 500
        assert extend(asked)["placed"] == 0
        assert not left.exists()

    def test_many_rows_are_placed_range_by_range(self, job, rows, tmp_path, monkeypatch):
        asked = job()
        refresh(asked)
        append_rows(tmp_path / "x.zarr", rows[400:900])
        monkeypatch.setattr(growth_extend, "RANGE_ROWS", 200)
        extend(asked)
        version = current(tmp_path)
        assert [part.stop for part in version.ranges] == [400, 600, 800, 900]
        model = be.load(version.model)
        np.testing.assert_array_equal(version.coordinates[400:], model.transform(rows[400:]))

    def test_rows_that_cannot_be_placed_are_named_and_leave_nothing(self, job, rows, tmp_path):
        asked = job("diffusion_map")
        refresh(asked)
        bad = rows[400:500].copy()
        bad[7, 1] = np.nan
        append_rows(tmp_path / "x.zarr", bad)
        with pytest.raises(errors.InputError, match=r"in rows 400:500 \(numbered from 400 as 0\).*\[7\]"):
            extend(asked)
        assert not list((current(tmp_path).root / "placing").iterdir())
        zarr.open_array(str(tmp_path / "x.zarr"))[407] = rows[407]  # not placed yet, so it may be mended
        assert extend(asked)["placed"] == 100
        zarr.open_array(str(tmp_path / "x.zarr"))[407] = 0
        with pytest.raises(errors.ChangedInputError):
            extend(asked)

    def test_what_cannot_grow_is_refused(self, job, tmp_path):
        with pytest.raises(errors.JobError, match=r"\[output\] model"):
            refresh(job(output={"model": "m.zarr"}))
        for key, given in (("weights", "w.npy"), ("dataset", "plane")):
            with pytest.raises(errors.JobError, match=rf"\[input\] {key}"):
                refresh(parse_job(good() | {"input": {"path": "x.zarr", key: given}}, tmp_path / "job.toml"))
        shutil.rmtree(tmp_path / "x.zarr")
        with pytest.raises(errors.MissingPathError):
            refresh(parse_job(good(), tmp_path / "job.toml"))
        assert not (tmp_path / "out.zarr").exists()
        np.save(tmp_path / "x.npy", np.ones((3, 2)))
        (tmp_path / "out.zarr").mkdir()
        (tmp_path / "out.zarr" / "mine.txt").write_text("x")
        with pytest.raises(errors.ExistingOutputError):
            refresh(parse_job(good() | {"input": {"path": "x.npy"}}, tmp_path / "job.toml"))
        with pytest.raises(errors.InputError, match="not a growing embedding"):
            open_growth(tmp_path / "out.zarr")
        with pytest.raises(errors.MissingPathError):
            open_growth(tmp_path / "none")

    def test_one_at_a_time(self, job, tmp_path):
        asked = job()
        refresh(asked)
        with hold(tmp_path / "out.zarr"):
            for call in (refresh, extend):
                with pytest.raises(errors.LockedError, match=r"held by .*process \d+"):
                    call(asked)

    def test_each_line_of_the_log_stands_there_once(self, job, tmp_path):
        refresh(job("pca"), RunOptions(log=str(tmp_path / "log.jsonl")))
        lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        for event in ("start", "done"):
            said = [line["stage"] for line in lines if line.get("event") == event]
            assert [said.count(stage) for stage in ("moments", "solve", "judgement", "coordinates")] == [1] * 4

    def test_the_status_and_the_picture(self, job, tmp_path):
        asked = job(output={"picture": "map.png"})
        refresh(asked)
        assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
        status = json.loads((tmp_path / "out.zarr" / "status.json").read_text())
        assert status["state"] == "done"
        assert "publish" in status["finished_stages"]

    @pytest.mark.parametrize("method", ["pca", pytest.param("diffusion_map", marks=pytest.mark.slow)])
    def test_rows_with_missing_values_keep_their_places_and_are_said(self, job, rows, tmp_path, method):
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
        with pytest.warns(errors.DamageWarning, match="damaged"):
            extend(asked)
        np.testing.assert_array_equal(version.coordinates.compute(), found)
        far = MovementLimits(moved=1.0, drift=1.0)  # (few rows: the map of twice as many is another one)
        assert (verify_growth(tmp_path / "out.zarr")["problems"], refresh(asked, limits=far)["left_out"]) == (
            [],
            (~there[:700]).sum(),
        )


class TestTable:
    """All coordinates of a growing store in one file."""

    def job(self, tmp_path, **output):
        return job_in(tmp_path, output=output)

    def test_fitted_and_placed_rows_are_written_and_marked(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(900, 4))
        np.save(tmp_path / "first.npy", rows[:600])
        np.save(tmp_path / "ids.npy", np.array([f"r{i}" for i in range(600)]))
        ingest(tmp_path / "first.npy", tmp_path / "x.zarr", aligned={"ids": str(tmp_path / "ids.npy")})
        asked = self.job(tmp_path, table="all.parquet")
        refresh(asked)
        assert pq.read_table(tmp_path / "all.parquet").num_rows == 600
        append_rows(tmp_path / "x.zarr", rows[600:], ids=[f"r{i}" for i in range(600, 900)])
        extend(asked)
        found = pq.read_table(tmp_path / "all.parquet")
        assert found.schema.names == ["id", "placed", "pca0", "pca1"]
        assert found["id"].to_pylist() == [f"r{i}" for i in range(900)]
        assert found["placed"].to_pylist() == [0] * 600 + [1] * 300
        version = open_growth(tmp_path / "out.zarr").current
        np.testing.assert_array_equal(found["pca1"], np.asarray(version.coordinates)[:, 1])
        written = (tmp_path / "all.parquet").stat().st_mtime_ns
        extend(asked)
        assert (tmp_path / "all.parquet").stat().st_mtime_ns == written

    def test_a_table_of_somebody_else_stays_when_a_store_is_to_write_it_later(self, tmp_path):
        write_array(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(300, 4)), chunk_rows=100)
        refresh(self.job(tmp_path))
        (tmp_path / "mine.csv").write_text("mine")
        for work in (refresh, extend):
            with pytest.raises(errors.ExistingOutputError, match="did not write it"):
                work(self.job(tmp_path, table="mine.csv"))
        assert (tmp_path / "mine.csv").read_text() == "mine"
        for extra, name in (("picture", "mine.png"), ("report", "mine.html")):
            (tmp_path / name).write_text("mine")
            with pytest.raises(errors.ExistingOutputError, match="did not write it"):
                refresh(self.job(tmp_path, **{extra: name}))
            assert (tmp_path / name).read_text() == "mine"
        refresh(self.job(tmp_path, picture="ours.png"))  # (which makes the picture that is wanted now)
        assert (tmp_path / "ours.png").read_bytes()[:4] == b"\x89PNG"
        with pytest.raises(errors.ExistingOutputError, match=r"mine\.png: exists, and this store did not write it"):
            refresh(self.job(tmp_path, picture="mine.png"))
        assert (tmp_path / "mine.png").read_text() == "mine"
        (tmp_path / "ours.png").write_bytes(b"half")
        assert refresh(self.job(tmp_path, picture="ours.png"))["unchanged"]
        assert (tmp_path / "ours.png").read_bytes()[:4] == b"\x89PNG"
        for name in ("a.csv", "b.csv", "a.csv"):
            assert refresh(self.job(tmp_path, table=name))["unchanged"]
        assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()

    def test_a_part_is_not_written_in_silence(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(900, 4))
        write_array(tmp_path / "x.zarr", rows[:600], chunk_rows=100)
        asked = self.job(tmp_path)
        with pytest.raises(errors.MissingPathError):
            export_any(tmp_path / "out.zarr", tmp_path / "t.csv")
        refresh(asked)
        run = open_growth(tmp_path / "out.zarr").current.run
        assert export_any(run, tmp_path / "fitted.npy")["n"] == 600
        append_rows(tmp_path / "x.zarr", rows[600:])
        extend(asked)
        with pytest.raises(errors.InputError, match="the 600 rows that were fitted, of 900"):
            export_any(run, tmp_path / "part.npy")
        assert not (tmp_path / "part.npy").exists()
        assert export_any(tmp_path / "out.zarr", tmp_path / "t.csv") | {"output": ""} == {
            "source": str(tmp_path / "out.zarr"), "output": "", "n": 900, "n_components": 2, "ids": False,
        }  # fmt: skip
        lines = (tmp_path / "t.csv").read_text().splitlines()
        assert lines[0] == "row,placed,pca0,pca1"
        assert [line.split(",")[:2] for line in (lines[600], lines[601])] == [["599", "0"], ["600", "1"]]


def taken(path):
    there = snapshot(path)
    return with_new_rows(new_ledger(there), there)


def read_by(call):
    """How many units were read, and what came out."""
    read = []

    def run(calls, label):
        read.extend(calls)
        return [each() for each in calls]

    with executor(run):
        return call(), len(read)


class TestLedger:
    """The ledger: what was there, and every way in which it may not be there any more."""

    @pytest.fixture
    def rows(self):
        return np.random.default_rng(0).normal(size=(1000, 3))

    @pytest.fixture
    def path(self, tmp_path, rows):
        array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(250, 3), dtype="f8", chunks=(100, 3))
        array[:] = rows[:250]
        return tmp_path / "x.zarr"

    def test_nothing_is_read_where_nothing_was_written(self, path):
        ledger = taken(path)
        assert (ledger.n, [entry.stop for entry in ledger.entries]) == (250, [100, 200, 250])
        assert Ledger.from_dict(ledger.as_dict()) == ledger
        assert read_by(lambda: check(ledger, snapshot(path))) == (ledger, 0)
        assert read_by(lambda: check(ledger, snapshot(path), verify=True)) == (ledger, 3)

    def test_only_the_last_unit_and_new_ones_are_read_after_an_append(self, path, rows):
        ledger = taken(path)
        append_rows(path, rows[250:420])
        there = snapshot(path)
        assert [entry.start for entry in doubted_entries(ledger, there)] == [200]
        checked, count = read_by(lambda: check(ledger, there))
        assert (checked.content, count) == (ledger.content, 1)
        whole, count = read_by(lambda: with_new_rows(checked, there))
        assert (whole.n, count) == (420, 3)
        assert whole == taken(path)
        assert whole.content != ledger.content

    def test_rewritten_in_other_chunks_or_touched_the_rows_are_the_same(self, path, rows, tmp_path):
        ledger = taken(path)
        for file in (path / "c").rglob("0"):
            os.utime(file)
        assert check(ledger, snapshot(path)).content == ledger.content
        array = zarr.create_array(str(path), shape=(250, 3), dtype="f8", chunks=(70, 3), overwrite=True)
        array[:] = rows[:250]
        assert check(ledger, snapshot(path)).content == ledger.content

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda z: z.__setitem__((150, 1), 0.0), r"in rows 100:200 of 250 \(shard c/1/0\)"),
            (lambda z: z.__setitem__((slice(150, 250), 1), 0.0), r"in rows 100:250 of 250 \(shards c/1/0, c/2/0\)"),
            (lambda z: z.resize((240, 3)), r"240 rows are there, and 250 were: rows 240:250 are gone \(shard c/2/0\)"),
            (lambda z: z.resize((90, 3)), r"rows 90:250 are gone \(shards c/0/0, c/1/0, c/2/0\)"),
        ],
    )
    def test_changed_and_missing_rows_are_named(self, path, damage, message):
        ledger = taken(path)
        damage(zarr.open_array(str(path)))
        with pytest.raises(errors.ChangedInputError, match=message):
            check(ledger, snapshot(path))

    def test_a_change_behind_unchanged_times_is_found_by_verify_alone(self, tmp_path, rows):
        path = tmp_path / "plain.zarr"
        array = zarr.create_array(str(path), shape=(250, 3), dtype="f8", chunks=(100, 3), compressors=None)
        array[:] = rows[:250]
        ledger, file = taken(path), path / "c" / "1" / "0"
        stat = file.stat()
        array[120] = 7.0
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        there = snapshot(path)
        assert check(ledger, there).content == ledger.content  # by size and time all is as it was
        with pytest.raises(errors.ChangedInputError, match="100:200"):
            check(ledger, there, verify=True)

    def test_other_columns_other_dtype_and_absent_chunks(self, path, rows, tmp_path):
        ledger = taken(path)
        for name, array, message in (
            ("d", rows[:250, :2], "2 columns now, and had 3"),
            ("t", rows[:250].astype("f4"), "float32 now, and were float64"),
        ):
            np.save(tmp_path / f"{name}.npy", array)
            with pytest.raises(errors.ChangedInputError, match=message):
                check(ledger, snapshot(tmp_path / f"{name}.npy"))
        (path / "c" / "1" / "0").unlink()
        with pytest.raises(errors.DamagedError, match="1 chunks are missing"):
            snapshot(path)

    def test_files_of_numpy_have_a_ledger_too(self, tmp_path, rows):
        np.save(tmp_path / "x.npy", rows[:300])
        ledger = taken(tmp_path / "x.npy")
        np.save(tmp_path / "x.npy", rows)
        there = snapshot(tmp_path / "x.npy")
        assert with_new_rows(check(ledger, there), there) == taken(tmp_path / "x.npy")
        np.save(tmp_path / "x.npy", rows + 1)
        with pytest.raises(errors.ChangedInputError, match=r"x\.npy"):
            check(ledger, snapshot(tmp_path / "x.npy"))


def draw(n, seed, shift=0.0):
    """A plane in five dimensions, with noise; shifted out of it."""
    generator = np.random.default_rng(seed)
    rows = np.c_[generator.uniform(0, 3, size=(n, 2)), np.zeros((n, 3))] + 0.02 * generator.normal(size=(n, 5))
    rows[:, 4] += shift
    return rows.astype("f4")


class TestAudit:
    """Audits: rows of the same kind fit, others do not, for each kind of drift and of method."""

    @pytest.fixture
    def job(self, tmp_path):
        write_array(tmp_path / "x.zarr", draw(800, 0), chunk_rows=128)
        return partial(job_in, tmp_path)

    @a_few(1, "method", ["pca", "diffusion_map", "isomap", "linearized_diffusion_map"])
    def test_rows_of_the_same_kind_fit_and_others_do_not(self, job, tmp_path, method):
        asked = job(method)
        refresh(asked)
        append_rows(tmp_path / "x.zarr", draw(300, 1))
        fine = audit(asked)
        assert fine["due"] == []
        assert fine["rows"] == {"fitted": 800, "new": 300, "judged": 300}
        assert 0.8 < fine["figures"]["distance"]["ratio"] < 1.25
        append_rows(tmp_path / "x.zarr", draw(100, 2, shift=0.5))
        found = audit(asked)
        assert any("distance that only 1 %" in reason for reason in found["due"])
        assert found["figures"]["distance"]["beyond"] == pytest.approx(0.25, abs=0.05)
        if method in ("pca", "diffusion_map"):
            assert any("misfit" in reason for reason in found["due"])
            assert found["figures"]["misfit"]["beyond"] == pytest.approx(0.25, abs=0.05)
        assert json.loads((tmp_path / "out.zarr" / "audit.json").read_text()) == found
        assert not (tmp_path / "out.zarr" / "audit" / "exchange").exists()
        extend(asked)  # coordinates change nothing for an audit
        assert audit(asked)["figures"] == found["figures"]
        refresh(asked)
        assert audit(asked)["due"] == []

    def test_figures_are_those_of_direct_computation(self, job, tmp_path):
        asked = job("diffusion_map")
        refresh(asked)
        new = draw(150, 3, shift=0.05)
        append_rows(tmp_path / "x.zarr", new)
        found, fitted = audit(asked, sample=800)["figures"], draw(800, 0)
        apart = np.linalg.norm(new[:, None].astype(float) - fitted[None], axis=2)
        nearest = apart.min(axis=1)
        assert found["distance"]["new"]["0.5"] == pytest.approx(np.median(nearest), rel=1e-4)
        among = np.linalg.norm(fitted[:, None].astype(float) - fitted[None], axis=2) + np.diag(np.full(800, np.inf))
        assert found["distance"]["held"]["0.9"] == pytest.approx(np.quantile(among.min(axis=1), 0.9), rel=1e-3)
        model = be.load(next((tmp_path / "out.zarr" / "versions").iterdir()) / "model.zarr")
        joined = (apart <= np.sort(apart, axis=1)[:, 7:8]) | (apart <= np.sort(among, axis=1)[None, :, 7])
        scale = np.sort(among, axis=1)[None, :, 7] ** 2  # of the fitted row: that of a new one would grow as it goes
        mass = np.where(joined, np.exp(-(apart**2) / scale / model.epsilon_), 0).sum(axis=1)
        assert found["misfit"]["new"]["0.5"] == pytest.approx(np.median(1 / (1 + mass)), rel=1e-4)
        assert found["recall"]["recall"] == 1.0
        index, misfit = search_index(model), misfit_of(model)
        assert misfit.function(new[:20]).shape == (20,)
        assert (misfit.function(new[:20] + 100) == 1.0).all()  # out of reach
        assert (np.sum(found_lists(new[:20], index) >= 0, axis=1) >= 8).all()

    def test_distances_and_recall_are_those_of_the_metric(self, tmp_path):
        generator = np.random.default_rng(0)
        families = generator.random((12, 120)) < 0.2

        def bits(count):
            """Rows that have most marks of their family and a few of their own, some rows far more than others."""
            own = generator.random((count, 120)) < 0.15 * generator.random((count, 1))
            marks = families[generator.integers(0, 12, count)] & (generator.random((count, 120)) < 0.8)
            return (own | marks).astype("f4")

        fitted, new = bits(500), bits(200)
        write_array(tmp_path / "x.zarr", fitted, chunk_rows=128)
        asked = job_in(tmp_path, "umap", metric="jaccard", n_neighbors=10)
        refresh(asked)
        append_rows(tmp_path / "x.zarr", new)
        found = audit(asked)
        apart = cdist(new.astype(bool), fitted.astype(bool), "jaccard")
        assert found["figures"]["distance"]["new"]["0.5"] == pytest.approx(np.median(apart.min(axis=1)), abs=1e-6)
        assert found["figures"]["recall"]["recall"] > 0.99
        assert found["due"] == []
        near, other = (np.argsort(each, axis=1)[:, :10] for each in (apart, cdist(new, fitted)))
        assert np.mean([len({*one} & {*two}) / 10 for one, two in zip(near, other, strict=True)]) < 0.9
        be.delete_rows(tmp_path / "x.zarr", rows=np.arange(500, 580))
        assert audit(asked)["rows"] == {"fitted": 500, "new": 200, "judged": 120}

    def test_chance_is_no_drift(self):
        generator = np.random.default_rng(0)
        limits = Limits()
        fine = [
            reasons({"growth": {"share": 0}, "distance": compared(*generator.exponential(size=(2, 200)))}, limits)
            for _ in range(200)
        ]
        assert sum(map(bool, fine)) <= 2
        far = compared(generator.exponential(size=200) * 1.6, generator.exponential(size=2000))
        assert reasons({"growth": {"share": 0}, "distance": far}, limits)
        low = {"growth": {"share": 0}, "recall": {"recall": 0.85, "standard_error": 0.01}}
        assert reasons(low, limits)
        assert not reasons(low | {"recall": {"recall": 0.85, "standard_error": 0.03}}, limits)
        assert compared(np.ones(5), np.zeros(5))["ratio"] is None

    def test_what_cannot_be_audited(self, job, tmp_path):
        asked = job()
        with pytest.raises(errors.MissingPathError, match="no model is there yet"):
            audit(asked)
        refresh(asked)
        bad = draw(150, 1)
        bad[3] = np.nan
        append_rows(tmp_path / "x.zarr", bad)
        with pytest.raises(errors.InputError, match=r"rows \[803\] hold NaN"):
            audit(asked)
        with pytest.raises(errors.InputError, match="sample=1"):
            audit(asked, sample=1)
        array = zarr.open_array(str(tmp_path / "x.zarr"))
        array[3] = 0
        with pytest.raises(errors.ChangedInputError, match="in rows 0:800 of 800"):
            audit(asked)
        array[3] = draw(800, 0)[3]
        with hold(tmp_path / "out.zarr" / "audit"), pytest.raises(errors.LockedError):
            audit(asked)
        with hold(tmp_path / "out.zarr"):  # a refresh at work is no obstacle
            assert audit(asked, limits=Limits(least=1000))["due"] == []


@pytest.mark.parametrize("command", [refresh, extend, audit])
def test_sparse_rows_are_refused_by_every_command(command, tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(30))
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_array(np.eye(30)))
    ingest(tmp_path / "x.npz", tmp_path / "x.zarr", aligned={"ids": str(tmp_path / "ids.npy")})
    with pytest.raises(errors.InputError, match=r"x\.zarr: holds sparse rows.*ingest FILE NEW.zarr --dense"):
        command(job_in(tmp_path))
    assert not (tmp_path / "out.zarr" / "versions").exists()
