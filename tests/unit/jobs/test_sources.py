"""Sources of a job that change between two runs."""

from __future__ import annotations

import os
import warnings
from errno import EROFS
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed import errors
from bigembed.cli import app
from bigembed.jobs.extend import extend
from bigembed.jobs.report import RunSummary
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.verify import require_undamaged, verify
from bigembed.jobs.watching import RunOptions
from bigembed.jobs.watching.status import read_status
from bigembed.maps import REGISTRY
from bigembed.rows.reader import Choice
from bigembed.stages.runs import Run
from bigembed.store.superseded import superseded
from tests.job_files import job_in
from tests.some import a_few

TABLE = 'path = "rows.csv"\ncolumns = ["a", "b", "c"]'


def table(folder: Path, rows: int, at: int) -> None:
    values = np.random.default_rng(rows).normal(size=(rows, 3))
    lines = [f"n{number},{','.join(map(str, row))}" for number, row in enumerate(values.tolist())]
    (folder / "rows.csv").write_text("name,a,b,c\n" + "\n".join(lines) + "\n")
    os.utime(folder / "rows.csv", (at, at))


class TestChangedSources:
    """Copies that jobs make of sources that change: replaced, never in the way, and the old run says what it is of."""

    @pytest.fixture
    def write(self, tmp_path: Path) -> Any:
        """Write a job on some input; a table of rows beside it."""

        def job(source: str = TABLE) -> Any:
            return job_in(tmp_path, source=source)

        return job

    def test_an_old_run_says_that_its_source_was_written_anew(self, write: Any, tmp_path: Path) -> None:
        table(tmp_path, 30, at=1_000_000)
        job = write('path = "rows.csv"\nids = "name"')
        run_job(job)
        assert verify(tmp_path / "run.zarr")["older"] == ""
        table(tmp_path, 30, at=2_000_000)  # the same rows
        assert "rows.csv held before" in "\n".join(verify_lines(verify(tmp_path / "run.zarr")))
        assert run_job(job)["unchanged"]
        assert verify(tmp_path / "run.zarr")["older"] == ""
        table(tmp_path, 40, at=3_000_000)
        found = verify(tmp_path / "run.zarr")
        assert found["problems"] == []
        assert found["finished"]
        assert "rows.csv held before" in found["older"]
        assert RunSummary.read(tmp_path / "run.zarr").extra["older"]
        assert run_job(job)["n"] == 40
        assert verify(tmp_path / "run.zarr")["older"] == ""

    def test_whatever_changes_in_a_source_its_copy_is_made_anew(self, write: Any, tmp_path: Path) -> None:
        path, steps = tmp_path / "rows.csv", '\n[[steps]]\nname = "one_hot"\ncolumns = ["kind"]'
        lines = ["a,b,kind", *(f"{number % 7},{number % 5}.25,{'xy'[number % 2]}" for number in range(40))]
        path.write_text("\n".join(lines))
        job = write(f'path = "rows.csv"{steps}')
        run_job(job)
        changes = {
            "the last rows are gone": lines[:-3],
            "rows are there again": lines,
            "a cell of the same size, at the old time": ["a,b,kind", "9,0.25,x", *lines[2:]],
            "other names of columns": ["c,b,kind", *lines[1:]],
            "other texts of categories": ["c,b,kind", *(line.replace("y", "z") for line in lines[1:])],
        }
        for what, now in changes.items():
            at = path.stat().st_mtime_ns
            path.write_text("\n".join(now))
            if "old time" in what:
                os.utime(path, ns=(at, at))
            assert verify(tmp_path / "run.zarr")["older"], what
            found = run_job(job)
            assert not found.get("unchanged"), what
            assert found["n"] == len(now) - 1, what
        assert run_job(job)["unchanged"]

    def test_what_a_job_copied_or_generated_never_blocks_the_next(self, write: Any, tmp_path: Path) -> None:
        table(tmp_path, 30, at=1_000_000)
        mixture = 'dataset = "mixture"\nn = 200\nd = 3\nintrinsic = 2'
        for source, n in ((TABLE, 30), (mixture, 200), (mixture.replace("200", "300"), 300), (TABLE, 30)):
            plan_job(write(source)).refuse()
            assert run_job(write(source))["n"] == n
        named = f'path = "mine.zarr"\n{mixture}'
        run_job(write(named))
        with pytest.raises(errors.ExistingOutputError, match="holds the data set mixture") as error:
            run_job(write(named.replace("200", "300")))
        assert "{" not in str(error.value)


pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
N = 400
JOB = 'path = "rows.parquet"\ncolumns = ["a", "b", "c"]\nids = "name"'


def agrees(table, source):
    """Whether each id of a table stands beside the coordinates of its own row."""
    if set(table["id"]) != set(source["name"]):
        return False
    rows = source.set_index("name").loc[table["id"], list("abc")].to_numpy()
    expected = be.PCA(n_components=2).fit(source[list("abc")].to_numpy()).transform(rows)
    found = table.drop(columns="id").to_numpy()
    return len(table) == len(source) and np.allclose(np.abs(found), np.abs(expected), atol=1e-6)


def exported(folder, name="table.csv"):
    export(folder / "run.zarr", folder / name)
    return pd.read_csv(folder / name)


def with_gaps(frame):
    return frame.assign(a=frame["a"].where(~frame.index.isin([5, 70])))


class TestRepairedSources:
    """Rows and their ids are one: whatever happened to the source between two runs, an id names its own row."""

    @pytest.fixture
    def frame(self):
        table = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)) * [3, 2, 1], columns=list("abc"))
        return table.assign(name=[f"row {number:04d}" for number in range(N)])

    @pytest.fixture
    def job(self, tmp_path):
        return job_in(tmp_path, source=JOB, output='model = "model.zarr"')

    def test_a_file_that_was_repaired_after_a_failed_run(self, job, frame, tmp_path):
        with_gaps(frame).to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(errors.BigembedError, match="missing"):
            run_job(job)
        repaired = with_gaps(frame).dropna()
        repaired.to_parquet(tmp_path / "rows.parquet")
        run_job(job)
        table = exported(tmp_path)
        assert agrees(table, repaired)
        for wrong in (frame["name"][: len(table)], np.roll(repaired["name"], 1)):
            assert not agrees(table.assign(id=np.asarray(wrong)), repaired)

    def test_a_foreign_file_in_the_place_of_the_ids_is_left(self, job, frame, tmp_path):
        from bigembed.store.arrays import read_array, write_array

        write_array(tmp_path / "run-input-ids.zarr", np.arange(N))
        frame.to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(errors.ExistingOutputError, match="not a copy of ids that this job made"):
            run_job(job)
        assert read_array(tmp_path / "run-input-ids.zarr").tolist() == list(range(N))

    def test_new_rows_that_were_repaired(self, job, frame, tmp_path):
        frame.to_parquet(tmp_path / "rows.parquet")
        run_job(job)
        new = frame.assign(name=[f"new {number}" for number in range(N)])[::-1].reset_index(drop=True)
        choice = Choice(columns=("a", "b", "c"))
        arguments = tmp_path / "model.zarr", tmp_path / "new.parquet", tmp_path / "out.zarr"
        with_gaps(new).to_parquet(tmp_path / "new.parquet")
        with pytest.raises(errors.BigembedError, match="missing"):
            extend(*arguments, aligned={"ids": "name"}, choice=choice)
        repaired = with_gaps(new).dropna()
        repaired.to_parquet(tmp_path / "new.parquet")
        extend(*arguments, aligned={"ids": "name"}, choice=choice)
        export(tmp_path / "out.zarr", tmp_path / "new.csv")
        table = pd.read_csv(tmp_path / "new.csv")
        assert table["id"].tolist() == repaired["name"].tolist()
        expected = be.load(tmp_path / "model.zarr").transform(repaired[list("abc")])
        np.testing.assert_allclose(table.drop(columns="id").to_numpy(), expected, atol=1e-9)


KEPT = ["survey", "partition", "order", "shortlist"]
"""Stages that do not depend on the number of neighbors."""
SOLVED = ["witness", "search", "graph", "recall", "dimension", "bandwidth", "kernel", "components", "solve"]
LAST = ["coordinates", "judgement"]
REST = [*SOLVED, *LAST]
STAGES = [*KEPT, *REST]


def flat(seed):
    """300 rows near a plane, which two coordinates show well."""
    return np.random.default_rng(seed).uniform(size=(300, 4)) * [1, 0.6, 0.01, 0.01]


def stopped_after(job, stage, kind="done"):
    """Run the job, and stop it when this stage is published (or begins)."""

    def stop(event):
        if (event.kind, event.stage) == (kind, stage):
            raise errors.InterruptedRun("stopped")

    with pytest.raises(errors.InterruptedRun):
        run_job(job, RunOptions(observer=stop))


def refused_by_all(root, tmp_path, why):
    """No reader takes what is old; each says of what it is."""
    for out in ("out.csv", "out.npy"):
        with pytest.raises(errors.StaleError, match=rf"'coordinates' is superseded \({why}"):
            export(root, tmp_path / out)
        assert not (tmp_path / out).exists()
    with pytest.raises(errors.StaleError, match=why):
        be.open_array(root / "stages" / "coordinates" / "embedding")
    found = verify(root)
    assert (found["problems"], found["finished"]) == ([], False)
    assert why in found["superseded"]["coordinates"]
    told = CliRunner().invoke(app, ["verify", str(root)])
    assert told.exit_code == 5
    assert f"'coordinates' is superseded ({why}" in told.stdout
    page = tmp_path / "page.html"
    assert write_report(root, page)["points"] == 0
    text = page.read_text()
    assert '<section id="map">' not in text
    assert why in text.replace("&#39;", "'")


class TestSuperseded:
    """A run that begins anew with other parameters and is stopped: what is old is old for every reader, by name."""

    @pytest.fixture
    def job(self, tmp_path):
        """A function that writes a diffusion map of 300 rows as a job, with a model."""
        np.save(tmp_path / "rows.npy", flat(0))

        def write(k=8, t=1, name="run.zarr"):
            asked = f'name = "diffusion_map"\nn_neighbors = {k}\nt = {t}'
            return job_in(tmp_path, asked, output=f'model = "model-{name}"', path=name, name=f"job-{name}.toml")

        return write

    def test_what_is_old_is_old_for_every_reader(self, job, tmp_path):
        """Stopped after each of its stages, the run put back each time."""
        run_job(job())
        root = tmp_path / "run.zarr"
        copytree(root, tmp_path / "whole")
        for stage in SOLVED[::2]:
            rmtree(root)
            copytree(tmp_path / "whole", root)
            with warnings.catch_warnings(action="ignore", category=errors.StaleWarning):
                stopped_after(job(k=12), stage)
            assert sorted(superseded(root)) == sorted(REST[REST.index(stage) + 1 :])
            refused_by_all(root, tmp_path, "made with n_neighbors=8, now 12")

    def test_it_is_old_before_anything_is_computed_and_the_model_says_so(self, job, tmp_path):
        run_job(job())
        stopped_after(job(k=12), "survey", kind="reused")
        refused_by_all(tmp_path / "run.zarr", tmp_path, "made with n_neighbors=8, now 12")
        with pytest.warns(
            errors.StaleWarning, match="begun anew and not ended yet; it was made with n_neighbors=8, now 12"
        ):
            be.load(tmp_path / "model-run.zarr")
        paths = [str(tmp_path / name) for name in ("model-run.zarr", "rows.npy", "placed.zarr")]
        assert "warning: " in (told := CliRunner().invoke(app, ["extend", *paths]).stderr)
        assert "it was made with n_neighbors=8, now 12" in told
        assert verify(tmp_path / "model-run.zarr")["superseded"] == {"model": "made with n_neighbors=8, now 12"}

    def test_the_reason_is_a_parameter_of_the_job(self, tmp_path):
        """With 20 neighbors for 15 blocks are smaller: what a user has changed is said, not what follows from it."""
        np.save(tmp_path / "rows.npy", flat(0))
        run_job(job_in(tmp_path, 'name = "umap"\nn_epochs = 2\nn_neighbors = 15'))
        stopped_after(job_in(tmp_path, 'name = "umap"\nn_epochs = 2\nn_neighbors = 20'), "partition")
        assert {*superseded(tmp_path / "run.zarr").values()} == {"made with n_neighbors=15, now 20"}

    def test_coordinates_that_cannot_be_leave_the_map_that_is_there(self, tmp_path):
        np.save(tmp_path / "rows.npy", flat(0))
        write = partial(job_in, tmp_path, output='model = "model.zarr"')
        run_job(write('name = "diffusion_map"'))
        for name in ("diffusion_map", "laplacian_eigenmaps", "isomap", "alternating_diffusion_map"):
            landmarks = "\nn_landmarks = 400" if name == "isomap" else ""
            job = write(f'name = "{name}"\nn_components = 300{landmarks}')
            for start in (plan_job, run_job):
                with pytest.raises(errors.InputError, match=r"needs at least 30[12] rows; got n_samples = 300"):
                    start(job)
            assert verify(tmp_path / "run.zarr")["finished"]

    def test_after_a_start_that_was_refused_nobody_says_to_run_the_job_again(self, tmp_path):
        np.save(tmp_path / "rows.npy", flat(0) - 0.5)
        run_job(job_in(tmp_path, 'name = "pca"'))
        with pytest.raises(errors.InputError, match="Negative values"):
            run_job(job_in(tmp_path, 'name = "nmf"'))
        told = CliRunner().invoke(app, ["verify", str(tmp_path / "run.zarr")])
        assert told.exit_code == 2
        assert "nothing is damaged, but its last start was refused: " in told.stderr
        with pytest.raises(errors.StaleError, match=r"refused: .*Negative.*run it again, or run the one before again"):
            export(tmp_path / "run.zarr", tmp_path / "out.csv")
        run_job(job_in(tmp_path, 'name = "pca"'))
        assert CliRunner().invoke(app, ["verify", str(tmp_path / "run.zarr")]).exit_code == 0
        export(tmp_path / "run.zarr", tmp_path / "out.csv")

    def test_the_job_before_is_named_only_where_its_stages_are_there(self, tmp_path):
        np.save(tmp_path / "rows.npy", flat(0) - 0.5)
        root = tmp_path / "run.zarr"

        def told(error):
            with pytest.raises(errors.InputError, match="Negative values"):
                run_job(job_in(tmp_path, 'name = "nmf"'))
            for tell in (partial(export, root, tmp_path / "out.csv"), partial(require_undamaged, verify(root))):
                with pytest.raises(error, match=r"refused: .*Negative.*Correct the job and run it again") as caught:
                    tell()
            return str(caught.value)

        assert "the one before" not in told((errors.InputError, errors.JobError))
        run_job(job_in(tmp_path, 'name = "pca"'))
        assert "the one before" in told((errors.StaleError, errors.JobError))
        rmtree(root / "stages" / "solve")
        assert "the one before" not in told((errors.StaleError, errors.JobError))

    @pytest.mark.parametrize("error", [errors.StoreAccessError, errors.WorkerAccessError, partial(OSError, EROFS)])
    def test_what_its_surroundings_refuse_is_no_fault_of_the_job(self, job, tmp_path, error):
        def refuse(event):
            if event.kind == "done":
                raise error("may not be written")

        with pytest.raises(OSError, match="may not be written"):
            run_job(job(), RunOptions(observer=refuse))
        root = tmp_path / "run.zarr"
        assert (read_status(root)["error"]["status"], verify(root)["refused"]) == (2, "")
        told = CliRunner().invoke(app, ["verify", str(root)])
        assert told.exit_code == 5
        assert "Run the job again" in told.stderr

    def test_what_is_open_is_old_too(self, job, tmp_path):
        rows, place = str(tmp_path / "rows.npy"), tmp_path / "work"
        opened = be.DiffusionMap(n_neighbors=8, workdir=place).fit(rows)
        before, lazy = opened.embedding_.compute(), opened.embedding_
        be.DiffusionMap(n_neighbors=8, t=2, workdir=place).fit(rows)
        for reads in (lazy.compute, lambda: opened.transform(rows), lambda: opened.save(tmp_path / "saved")):
            with pytest.raises(errors.StaleError, match="since it was opened"):
                reads()
        be.DiffusionMap(n_neighbors=8, workdir=place).fit(rows)
        np.testing.assert_array_equal(lazy.compute(), before)

    def test_a_record_is_not_of_what_was_fitted_over_it(self, job, tmp_path):
        run_job(job())
        root = tmp_path / "run.zarr"
        be.PCA(n_components=2, workdir=root).fit(str(tmp_path / "rows.npy"))
        assert not verify(root)["finished"]
        assert verify(root)["problems"] == []
        with pytest.raises((errors.StaleError, ValueError)):
            export(root, tmp_path / "out.csv")

    def test_a_plan_knows_what_will_be_used_again(self, job, tmp_path):
        assert plan_job(job()).published == ()
        run_job(job())
        whole = plan_job(job())
        assert set(whole.published) == set(STAGES)
        assert set(plan_job(job(t=2)).published) == set(STAGES) - {*LAST}
        other = plan_job(job(k=12))
        assert set(other.published) == set(KEPT)
        assert other.seconds > plan_job(job(t=2)).seconds > whole.seconds
        assert Run(tmp_path / "run.zarr").published() == sorted(STAGES)  # nothing was written
        shown = CliRunner().invoke(app, ["plan", str(job(k=12).file)])
        assert "order *" in shown.stdout
        assert "search *" not in shown.stdout
        np.save(tmp_path / "rows.npy", np.zeros((300, 4)))
        assert plan_job(job()).published == ()

    @pytest.mark.parametrize(
        "name",
        [pytest.param(name, marks=pytest.mark.slow if turn % 4 else ()) for turn, name in enumerate(sorted(REGISTRY))],
    )
    def test_the_keys_of_a_plan_are_those_of_the_run(self, name, tmp_path):
        """Of every method, with every aligned vector that it takes."""
        from bigembed.jobs.inputs import find_input
        from bigembed.maps import method

        rng = np.random.default_rng(0)
        kind = method(name)
        np.save(tmp_path / "rows.npy", rng.uniform(1, 2, size=(60, 5)))
        aligned = {name: rng.uniform(1, 2, size=60) for name in ("weights", "target_density")}
        aligned |= {"labels": np.arange(60) % 3, "epsilons": np.full(60, 50.0)}
        for what in kind.aligned:
            np.save(tmp_path / f"{what}.npy", aligned[what])
        given = "".join(f'{what} = "{what}.npy"\n' for what in kind.aligned)
        job = job_in(tmp_path, f'name = "{name}"', f'path = "rows.npy"\n{given}')
        with warnings.catch_warnings(action="ignore"):
            run_job(job)
        assert find_input(job).written
        assert set(plan_job(job).published) == set(Run(tmp_path / "run.zarr").published())

    @a_few(1, ("step", "half"), [(5, False), (0, False), (8, True)])
    def test_killed_while_it_is_superseded(self, job, tmp_path, monkeypatch, step, half):
        """Before or after a mark is written, whose manifest is still there: the last stages go first."""
        from bigembed.store import superseded as module

        run_job(job())
        root, real, calls = tmp_path / "run.zarr", module.write_json, []

        def write(path, value):
            calls.append(path)
            if len(calls) == step + 1 and not half:
                raise errors.InterruptedRun("killed")
            real(path, value)
            if len(calls) == step + 1:
                raise errors.InterruptedRun("killed")

        monkeypatch.setattr(module, "write_json", write)
        with pytest.raises(errors.InterruptedRun):
            run_job(job(k=12))
        monkeypatch.setattr(module, "write_json", real)
        if step:
            assert [*superseded(root)] == sorted(REST[len(REST) - step :])
            with pytest.raises(errors.StaleError, match="n_neighbors=8, now 12"):
                export(root, tmp_path / "out.npy")
            assert not verify(root)["finished"]
        else:
            assert not superseded(root)
            assert export(root, tmp_path / "out.npy")["n"] == 300
        assert verify(root)["problems"] == []
        again = run_job(job())  # the earlier parameters: all is there
        assert again["unchanged"] or all(stage["reused"] for stage in again["stages"] if stage["name"] in STAGES)
        assert not superseded(root)
        run_job(job(k=12))
        assert verify(root)["finished"]
