"""The command line: exit statuses, messages, JSON lines, and that it starts quickly."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bigembed import errors
from bigembed.cli import app
from bigembed.jobs.arguments import Auditing, Movement
from bigembed.jobs.growth.audit import Limits
from bigembed.jobs.growth.frames import MovementLimits
from bigembed.jobs.watching.status import status_of
from bigembed.store.arrays import read_array
from bigembed.store.files import read_sealed, sealed, write_json
from tests.unit.jobs.conftest import rows, small, write_job

__all__ = ["rows", "small", "write_job"]

STATUSES = {
    "InputError": 2, "InputTypeError": 2, "MissingPathError": 2, "ExistingOutputError": 2, "JobError": 2,
    "WorkerAccessError": 2, "ChangedInputError": 2, "DisconnectedGraphError": 2, "KernelSignError": 2,
    "OutOfReachError": 2, "MissingExtraError": 2, "StoreAccessError": 2, "UnreachableError": 5, "StaleError": 2,
    "DroppedError": 2, "UndeclaredInputError": 1,
    "FullDiskError": 1, "ClusterError": 1,
    "PlanError": 3, "LockedError": 4, "InterruptedRun": 5, "StalledRun": 8, "MovedError": 9, "DamagedError": 6,
    "NotFittedError": 1, "BigembedError": 1,
}  # fmt: skip


def bigembed(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", [n for n in dir(errors) if isinstance(getattr(errors, n), type)])
def test_every_error_has_its_status(name):
    kind = getattr(errors, name)
    if issubclass(kind, errors.BigembedError):
        assert status_of(kind("x")) == STATUSES[name]


def test_run_plan_verify_again(write_job, rows, tmp_path):
    job = write_job('warns = "mind"', 'model = "model.zarr"')
    planned = bigembed("plan", job)
    assert planned.exit_code == 0
    assert "memory at the most" in planned.stdout
    first = bigembed("run", job)
    assert first.exit_code == 0
    assert "3 stages, 0 of them reused" in first.stdout
    assert "planned" in first.stdout
    assert first.stderr == "warning: mind\n"
    again = bigembed("run", job)
    assert again.exit_code == 0
    assert "nothing to do" in again.stdout
    assert bigembed("verify", tmp_path / "run.zarr").exit_code == 0


def test_json_is_one_object_a_line(write_job, rows):
    job = write_job()
    for command in ("plan", "run", "run"):
        done = bigembed(command, job, "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines[-1]["event"] == "result"
    assert lines[-1]["unchanged"]
    bad = bigembed("run", "none.toml", "--json")
    assert json.loads(bad.stdout)["status"] == bad.exit_code == 2


def test_bad_input_is_2_with_one_message(write_job, rows, tmp_path):
    for arguments in (
        ["run", tmp_path / "none.toml"], ["run", write_job("n_component = 2", name="a.toml")],
        ["run", write_job(source='path = "none"', name="b.toml")],
        ["plan", write_job("n_components = 9", name="c.toml")], ["run", write_job(), "--memory", "much"],
        ["ingest", tmp_path / "none.npy", tmp_path / "out"], ["verify", tmp_path], ["run"], ["walk"],
        ["extend", tmp_path / "none", tmp_path / "rows.npy", tmp_path / "out"], ["verify", tmp_path / "none"],
    ):  # fmt: skip
        done = bigembed(*arguments)
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output


def test_damage_is_6_and_an_unfinished_run_5(write_job, rows, tmp_path):
    bigembed("run", write_job())
    root = tmp_path / "run.zarr"
    record = read_sealed(root / "job.json")
    write_json(root / "job.json", sealed(record | {"finished": False}))
    assert bigembed("verify", root).exit_code == 5
    (root / "stages" / "center" / "embedding" / "zarr.json").unlink()
    done = bigembed("verify", root)
    assert done.exit_code == 6
    assert "center/embedding/zarr.json: missing" in done.stderr


def test_anything_else_is_1(write_job, rows, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("tests.unit.jobs.small_method.Small._set_fitted", broken)
    done = bigembed("run", write_job())
    assert done.exit_code == 1
    assert "ZeroDivisionError: oh (--debug shows where)" in done.stderr
    assert "Traceback" in bigembed("run", write_job(), "--debug").stderr


def test_ingest(tmp_path, rows):
    done = bigembed("ingest", tmp_path / "rows.npy", tmp_path / "rows.zarr")
    assert done.exit_code == 0
    assert "3,000 rows of 6 numbers" in done.stdout
    assert bigembed("ingest", tmp_path / "rows.npy", tmp_path / "rows.zarr").exit_code == 2


def test_how_an_array_of_several_axes_is_read_is_said(tmp_path):
    np.save(tmp_path / "cube.npy", np.zeros((6, 5, 4)))
    done = bigembed("ingest", tmp_path / "cube.npy", tmp_path / "a.zarr")
    assert "6 rows of 20 numbers" in done.output
    assert "rows = 2 would make 30 rows of 4" in " ".join(done.output.split())
    done = bigembed("ingest", tmp_path / "cube.npy", tmp_path / "b.zarr", "--rows", "2")
    assert "30 rows of 4 numbers" in done.output
    assert "would make" not in done.output


def test_append(tmp_path):
    frame = pd.DataFrame(np.arange(30.0).reshape(10, 3), columns=["a", "b", "c"]).assign(name=list("klmnopqrst"))
    frame.to_parquet(tmp_path / "first.parquet")
    store = tmp_path / "store.zarr"
    assert bigembed("append", store, tmp_path / "first.parquet").exit_code == 2
    assert bigembed("ingest", tmp_path / "first.parquet", store, "--ids", "name").exit_code == 0
    more = frame.assign(name=list("KLMNOPQRST"), a=frame.a + 100, other="text")
    more[["other", "c", "name", "a", "b"]].to_csv(tmp_path / "night.csv", index=False)
    done = bigembed("append", store, tmp_path / "night.csv", "--ids", "name")
    assert done.exit_code == 0, done.output
    assert "10 rows appended, 20 in all" in done.stdout
    np.testing.assert_array_equal(read_array(store), pd.concat([frame, more])[["a", "b", "c"]].to_numpy())
    assert list(read_array(tmp_path / "store-ids.zarr")) == [*"klmnopqrstKLMNOPQRST"]
    for arguments, said in (
        (["night.csv", "--ids", "name"], "name several rows"),
        (["night.csv"], "need them, too"),
        (["short.csv", "--ids", "name"], "c"),
        (["none.csv", "--ids", "name"], "no such path"),
    ):
        more.drop(columns="c").assign(name="new").to_csv(tmp_path / "short.csv", index=False)
        refused = bigembed("append", store, tmp_path / arguments[0], *arguments[1:])
        assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output
    assert len(read_array(store)) == 20
    assert not (tmp_path / "store.zarr.growing" / "file").exists()


def test_a_night_may_be_appended_again_or_be_empty(tmp_path):
    frame = pd.DataFrame(np.arange(30.0).reshape(10, 3), columns=["a", "b", "c"]).assign(name=list("klmnopqrst"))
    frame.to_parquet(tmp_path / "first.parquet")
    night = frame.assign(name=list("KLMNOPQRST"))
    night.to_csv(tmp_path / "night.csv", index=False)
    store, ids = tmp_path / "store.zarr", ("--ids", "name")
    assert bigembed("ingest", tmp_path / "first.parquet", store, *ids).exit_code == 0
    for said in ("10 rows appended, 0 known, 20 in all", "0 rows appended, 10 known, 20 in all"):
        done = bigembed("append", store, tmp_path / "night.csv", *ids, "--skip-known")
        assert (done.exit_code, said in done.stdout) == (0, True), done.output
    again = bigembed("append", store, tmp_path / "night.csv", *ids)
    assert (again.exit_code, "all 10 rows are in the store already" in again.stderr) == (2, True), again.output
    assert bigembed("append", store, tmp_path / "night.csv", "--skip-known").exit_code == 2
    night.head(0).to_csv(tmp_path / "empty.csv", index=False)
    night.head(0).to_parquet(tmp_path / "empty.parquet")
    pd.DataFrame(columns=list(night)).to_parquet(tmp_path / "objects.parquet")
    for name in ("empty.csv", "empty.parquet", "objects.parquet"):
        done = bigembed("append", store, tmp_path / name, *ids)
        assert (done.exit_code, "0 rows appended, 20 in all" in done.stdout) == (0, True), done.output
    for dropped in ("c", "name"):
        night.head(0).drop(columns=dropped).to_csv(tmp_path / "short.csv", index=False)
        assert bigembed("append", store, tmp_path / "short.csv", *ids).exit_code == 2
    night.head(0).to_parquet(tmp_path / "none.parquet")
    assert bigembed("ingest", tmp_path / "none.parquet", tmp_path / "none.zarr").exit_code == 2


def test_missing_values_are_ingested_and_appended_when_asked(tmp_path):
    (tmp_path / "gaps.csv").write_text("a,b\n1,2\n3,\n")
    store = tmp_path / "store.zarr"
    refused = bigembed("ingest", tmp_path / "gaps.csv", store)
    assert (refused.exit_code, "--allow-missing" in refused.stderr) == (2, True), refused.output
    assert bigembed("ingest", tmp_path / "gaps.csv", store, "--allow-missing").exit_code == 0
    assert bigembed("append", store, tmp_path / "gaps.csv").exit_code == 2
    assert bigembed("append", store, tmp_path / "gaps.csv", "--allow-missing").exit_code == 0
    np.testing.assert_array_equal(read_array(store), [[1, 2], [3, np.nan]] * 2)


def test_a_full_disk_is_named_where_rows_are_appended(tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    store = tmp_path / "store.zarr"
    assert bigembed("ingest", tmp_path / "rows.csv", store).exit_code == 0

    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("bigembed.rows.growing.write_json", full)
    failed = bigembed("append", store, tmp_path / "rows.csv")
    assert failed.exit_code == 1
    assert failed.stderr.startswith(f"error: {store}: the disk is full (No space left on device); "), failed.stderr


@pytest.mark.parametrize("option", ["--log", "--metrics"])
def test_no_folder_is_made_for_what_a_typo_names(tmp_path, small, rows, write_job, option):
    refused = bigembed("run", write_job(), option, tmp_path / "lgos" / "file")
    assert (refused.exit_code, f"there is no folder {tmp_path / 'lgos'}" in refused.stderr) == (2, True), refused.output
    assert not (tmp_path / "lgos").exists()
    (tmp_path / "lgos").mkdir()
    assert bigembed("run", write_job(), option, tmp_path / "lgos" / "file").exit_code == 0
    assert (tmp_path / "lgos" / "file").exists()


def test_methods_lists_parameters_and_their_meaning(monkeypatch):
    from bigembed.maps import REGISTRY, STEPS

    for name in [name for name in REGISTRY if name not in ("small", *STEPS)]:
        monkeypatch.delitem(REGISTRY, name)
    done = bigembed("methods")
    assert done.exit_code == 0
    assert "small: The first columns, centered." in done.stdout
    assert "n_components = 2  int. Columns kept." in done.stdout
    found = json.loads(bigembed("methods", "--json").stdout)
    entry = next(one for one in found["methods"] if one["name"] == "small")
    assert {one["name"]: one["parameters"][1]["name"] for one in found["steps"] if one["name"] == "missing"} == {
        "missing": "with"
    }
    first = {"name": "n_components", "default": 2, "allowed": "an integer", "meaning": "int. Columns kept."}
    assert entry["parameters"][0] == first


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from bigembed.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('numpy', 'scipy', 'zarr', 'dask', 'distributed', 'numba', 'pydantic', 'sklearn')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_small_jobs_load_no_cluster(write_job, rows, tmp_path):
    code = (
        "import sys; from tests.unit.jobs.small_method import register; register()\n"
        "from bigembed.cli import app\n"
        f"try: app(['run', {str(write_job())!r}])\nexcept SystemExit: pass\n"
        "print([m for m in ('distributed', 'numba', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert np.load(tmp_path / "rows.npy").shape == (3000, 6)


def test_limits_of_a_growing_store_are_those_asked_for() -> None:
    moved = Movement(moved=0.1, drift=0.2, moved_99=0.3, drift_99=0.4).limits
    assert moved == MovementLimits(moved=0.1, drift=0.2, moved_99=0.3, drift_99=0.4)
    asked = Auditing(growth=0.1, ratio=0.2, beyond=0.3, recall=0.4, least=5, sample=6, seed=7).options
    limits = Limits(growth=0.1, ratio=0.2, beyond=0.3, recall=0.4, least=5)
    assert asked == {"limits": limits, "sample": 6, "seed": 7}
    assert (Movement().limits, Auditing().options["limits"]) == (MovementLimits(), Limits())


def test_rows_are_deleted_by_id_file_or_number_and_erased(tmp_path):
    for name, ids in (("text", [f"c{i}" for i in range(10)]), ("numbers", np.arange(10) * 3)):
        np.save(tmp_path / "rows.npy", np.ones((10, 2)))
        np.save(tmp_path / "names.npy", ids)
        done = bigembed("ingest", tmp_path / "rows.npy", tmp_path / f"{name}.zarr", "--ids", tmp_path / "names.npy")
        assert done.exit_code == 0, done.output
    store, numbers = tmp_path / "text.zarr", tmp_path / "numbers.zarr"
    (tmp_path / "gone.txt").write_text("c3\nc4\n")
    (tmp_path / "gone.csv").write_text("name,id\nx,c5\n")
    for given, marked in (
        (("c1", "c2"), 2), (("--ids", tmp_path / "gone.txt"), 2), (("--ids", f"{tmp_path}/gone.csv:id"), 1),
        (("--rows", "5,8:10"), 2),
    ):  # fmt: skip
        done = bigembed("delete", store, *given)
        assert f"{marked} rows marked as deleted" in done.stdout, done.output
    assert "7 of 10 are in all" in done.stdout
    assert "bigembed refresh JOB.toml" in done.stdout
    assert "3 rows marked" not in bigembed("delete", numbers, "3", "27").stdout
    for wrong in ((), ("c1", "--rows", "1"), ("--rows", "a"), ("--rows", "1:b"), ("nobody",), ("--ids", "none.txt")):
        assert bigembed("delete", store, *wrong).exit_code == 2
    assert bigembed("delete", numbers, "c1").exit_code == bigembed("delete", tmp_path / "no.zarr", "a").exit_code == 2
    assert "2 of 10 rows are erased" in bigembed("purge", numbers).stdout
    done = bigembed("purge", store, "--json")
    assert json.loads(done.stdout.splitlines()[-1])["erased"] == 7
    assert read_array(store).sum(axis=1).tolist() == [2, 0, 0, 0, 0, 0, 2, 2, 0, 0]
