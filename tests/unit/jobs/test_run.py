"""Running a job in this process: results, records, outputs."""

from __future__ import annotations

import contextvars
import errno
import logging
import shutil
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed import errors
from bigembed.cli import app
from bigembed.jobs import extend as extension
from bigembed.jobs import planning as calibrate
from bigembed.jobs import run as run_module
from bigembed.jobs.extend import extend
from bigembed.jobs.places import ClusterTable, redacted
from bigembed.jobs.places.cluster import cluster
from bigembed.jobs.record import read_record
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.spec import parse_job, read_job
from bigembed.jobs.verify import certify_paths, verify
from bigembed.jobs.watching import RunOptions, status
from bigembed.jobs.watching.status import read_status, stoppable
from bigembed.rows.formats import ingest
from bigembed.store.arrays import read_array, write_array
from bigembed.store.files import read_sealed
from bigembed.store.locks import hold, output_lock
from tests.job_files import job_in
from tests.some import a_few
from tests.unit.jobs.small_method import mean_of

BROKEN = {
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "gone": lambda path: path.unlink(),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "another": lambda path: path.write_text('{"attributes": {"bigembed": "rvn", "format": 1}}'),
}


class TestRun:
    """Running a job in this process: results, record, resuming, refusals."""

    def test_run_writes_everything_and_its_record(self, write_job, rows, tmp_path):
        job = read_job(write_job("n_components = 3", 'picture = "pictures/map.png"\nmodel = "model.zarr"'))
        events = []
        found = run_job(job, RunOptions(observer=events.append))
        embedding = read_array(tmp_path / "run.zarr" / "stages" / "center" / "embedding")
        np.testing.assert_allclose(embedding, (rows - rows.mean(axis=0, dtype="f8"))[:, :3], atol=1e-12)
        np.testing.assert_allclose(mean_of(tmp_path / "model.zarr"), rows.mean(axis=0, dtype="f8"), atol=1e-12)
        assert (tmp_path / "pictures" / "map.png").read_bytes().startswith(b"\x89PNG")
        assert [(event.kind, event.stage) for event in events] == [
            (kind, stage) for stage in ("mean", "center", "model", "picture") for kind in ("start", "done")
        ]
        assert found == read_sealed(tmp_path / "run.zarr" / "job.json") | {"unchanged": False}
        assert found["finished"]
        assert found["certificate"]["mean"] == pytest.approx(rows[:, 0].mean(), abs=1e-6)
        assert found["measured"]["total"] > 0
        assert found["predicted"] == found["plan"]["memory"]
        assert not list(tmp_path.rglob("*partial*"))

    def test_again_is_a_no_op_and_changes_compute_only_what_depends_on_them(self, write_job, rows, tmp_path):
        run_job(read_job(write_job()))
        again = run_job(read_job(write_job()))
        assert again["unchanged"]
        other = run_job(read_job(write_job("n_components = 4")))
        assert [(stage["name"], stage["reused"]) for stage in other["stages"]] == [("mean", True), ("center", False)]
        assert read_array(tmp_path / "run.zarr" / "stages" / "center" / "embedding").shape == (3000, 4)
        np.save(tmp_path / "rows.npy", rows + 1)
        changed = run_job(read_job(write_job("n_components = 4")))
        assert not any(stage["reused"] for stage in changed["stages"])

    def test_an_output_that_is_something_else_is_untouched(self, write_job, rows, tmp_path):
        (tmp_path / "run.zarr").mkdir()
        (tmp_path / "run.zarr" / "mine.txt").write_text("mine")
        for fresh in (False, True):
            with pytest.raises(errors.ExistingOutputError, match="not a bigembed run"):
                run_job(read_job(write_job()), fresh=fresh)
        assert (tmp_path / "run.zarr" / "mine.txt").read_text() == "mine"

    @pytest.mark.parametrize(("name", "file"), [("picture", "mine"), ("model", "mine"), ("table", "mine.csv")])
    def test_an_output_of_somebody_else_is_untouched(self, write_job, rows, tmp_path, name, file):
        (tmp_path / file).write_text("mine")
        with pytest.raises(errors.ExistingOutputError, match="did not write it"):
            run_job(read_job(write_job(output=f'{name} = "{file}"')))
        assert (tmp_path / file).read_text() == "mine"

    def test_a_run_in_use_is_locked(self, write_job, rows, tmp_path):
        job = read_job(write_job())
        run_job(job)
        before = read_status(tmp_path / "run.zarr")
        with (
            hold(tmp_path / "run.zarr"),
            pytest.raises(errors.LockedError, match=r"held by .* \(process \d+ on .*\) since 20"),
        ):
            run_job(job)
        assert read_status(tmp_path / "run.zarr") == before

    def test_the_plan_is_asked_first(self, write_job, rows, tmp_path):
        with pytest.raises(errors.PlanError, match="larger machine"):
            run_job(read_job(write_job(f"memory = {1 << 50}")))
        assert not (tmp_path / "run.zarr").exists()
        run_job(read_job(write_job()))
        before = read_record(tmp_path / "run.zarr")
        with pytest.raises(errors.PlanError, match="larger machine"):
            run_job(read_job(write_job(f"n_components = 3\nmemory = {1 << 50}")))
        assert read_record(tmp_path / "run.zarr") == before
        run_job(read_job(write_job(f"memory = {1 << 50}")))  # (nothing is left to do that would not fit)

    def test_a_data_set_is_generated_once(self, write_job, tmp_path):
        source = 'dataset = "swiss_roll"\nn = 500\nseed = 3'
        found = run_job(read_job(write_job(source=source, output='picture = "p.png"')))
        assert found["stages"][0]["name"] == "input"
        again = run_job(read_job(write_job("n_components = 1", source=source)))
        assert "input" not in [stage["name"] for stage in again["stages"]]
        said = (
            r"holds the data set swiss_roll \(500 × 3, seed=3.*\); the job would write the data set .* seed=4.* there"
        )
        named = f'path = "mine.zarr"\n{source}'
        run_job(read_job(write_job("n_components = 1", source=named)))
        with pytest.raises(errors.ExistingOutputError, match=said):
            run_job(read_job(write_job(source=named.replace("3", "4"))))

    def test_warnings_are_shown_and_recorded(self, write_job, rows):
        with pytest.warns(errors.BigembedWarning, match="mind the gap"):
            found = run_job(read_job(write_job('warns = "mind the gap"')))
        assert found["warnings"] == ["mind the gap"]

    def test_verify_finds_every_damage(self, write_job, rows, tmp_path):
        run_job(read_job(write_job()))
        root = tmp_path / "run.zarr"
        found = verify(root)
        assert (found["problems"], found["finished"], found["kind"]) == ([], True, "run")
        shard = next(path for path in (root / "stages/center/embedding/c").rglob("*") if path.is_file())
        content = bytearray(shard.read_bytes())
        content[100] ^= 1
        shard.write_bytes(content)
        (root / "stages" / "mean" / "extra").write_text("x")
        assert verify(root, deep=False)["problems"] == []
        found = verify(root)
        assert found["problems"] == [
            f"center/{shard.relative_to(root / 'stages/center')}: not the bytes that were published"
        ]
        assert found["unlisted"] == ["mean/extra: not in the manifest"]
        shard.write_bytes(content[:-1])
        assert "bytes, and" in verify(root, deep=False)["problems"][0]
        (root / "manifest" / "mean.json").unlink()
        assert any("gone now" in text for text in verify(root)["problems"])
        (root / "manifest" / "center.json").write_text("{")
        assert any("center.json: damaged: not valid JSON" in text for text in verify(root)["problems"])

    @pytest.mark.parametrize(
        "name", ["stages/center/embedding/c/0/0", "stages/center/embedding/zarr.json", "manifest/mean.json", "job.json"]
    )
    def test_damage_of_equal_size_is_found_and_repaired(self, write_job, rows, tmp_path, name):
        job, path = read_job(write_job()), tmp_path / "run.zarr" / name
        run_job(job)
        before, content = path.read_bytes(), bytearray(path.read_bytes())
        middle = range(len(content) // 2, len(content))  # (the last digit of a number may change no number)
        content[next(place for place in middle if not chr(content[place]).isdigit())] ^= 1
        path.write_bytes(content)
        assert verify(tmp_path / "run.zarr")["problems"]
        assert name == "job.json" or name.split("/")[1].removesuffix(".json") in str(plan_job(job).damaged)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert not run_job(job)["unchanged"]
        assert any("it is made anew" in str(one.message) for one in said)
        assert verify(tmp_path / "run.zarr")["problems"] == []
        assert name.startswith(("manifest", "job")) or path.read_bytes() == before
        assert run_job(job)["unchanged"]

    @a_few(1, "name", ["manifest/mean.json", "job.json", "status.json", "zarr.json"])
    def test_broken_metadata_stop_nothing_for_good(self, write_job, rows, tmp_path, name):
        """Broken in one way after the other: each time the same job mends it."""
        job, root = read_job(write_job(output='picture = "map.png"')), tmp_path / "run.zarr"
        run_job(job)
        for how, broken in BROKEN.items():
            broken(root / name)
            if (name, how) not in {("job.json", "gone"), ("status.json", "gone")}:
                assert any(Path(name).stem in problem for problem in verify(root)["problems"]), how
            with warnings.catch_warnings(action="ignore", category=errors.DamageWarning):
                run_job(job)
            found = verify(root)
            assert (found["problems"], found["finished"]) == ([], True), how

    def test_exchanges_lie_where_the_job_says(self, write_job, rows, tmp_path):

        plain = run_job(read_job(write_job("pause = 0.0")))
        asked = read_job(write_job("pause = 0.0", 'scratch = "fast/scratch"', name="other.toml"))
        assert asked.output.scratch == str(tmp_path / "fast" / "scratch")
        assert run_job(asked)["unchanged"]  # what comes out is the same wherever they lie
        again = run_job(asked, fresh=True)
        assert again["certificate"] == plain["certificate"]
        assert [path.name[:9] for path in (tmp_path / "fast" / "scratch").iterdir()] == ["exchange-"]
        assert not list((tmp_path / "fast" / "scratch").glob("*/*"))  # a finished stage leaves nothing
        assert not (tmp_path / "run.zarr" / "exchange").exists()

    @a_few(1, "refused", ["memory", "scheduler"])
    def test_a_fresh_start_that_is_refused_takes_nothing_away(self, write_job, rows, tmp_path, refused):
        from bigembed.errors import BigembedError

        job = read_job(write_job("", 'model = "model.zarr"'))
        run_job(job)
        before = {file: file.read_bytes() for file in (tmp_path / "run.zarr" / "stages").rglob("*") if file.is_file()}
        cluster = {
            "memory": 'workers = 1\nmemory = "50 MB"',
            "scheduler": 'address = "tcp://127.0.0.1:9"\nno_workers_timeout = 1.0',
        }
        with pytest.raises(BigembedError):
            run_job(read_job(write_job("", 'model = "model.zarr"', cluster[refused], name="other.toml")), fresh=True)
        assert {file: file.read_bytes() for file in before} == before
        assert run_job(job)["unchanged"]
        assert not run_job(job, fresh=True)["unchanged"]  # and what it wrote is still its own
        assert run_job(job)["unchanged"]


class Stopped(BaseException):
    """No handler knows it."""


def job(home, path="run.zarr", source="points.zarr", components=2, **outputs):
    outputs = {"path": path, **outputs}
    tables = {"input": {"path": source}, "method": {"name": "pca", "n_components": components}, "output": outputs}
    return parse_job(tables, home / "job.toml")


@contextmanager
def elsewhere(path):
    """Held as another process would."""
    held, context = output_lock(path), contextvars.Context()
    context.run(held.__enter__)
    yield
    context.run(held.__exit__, None, None, None)


class TestFruitless:
    """Starts that are stopped, and have or have not come further."""

    def start(self, asked, stop_in=""):
        def progress(label, done, total):
            if label == stop_in:
                raise status.Stopped("stopped")

        with stoppable(str(asked.output_path)):
            return run_job(asked, RunOptions(progress=progress))

    def test_after_three_that_have_left_nothing_new_the_status_is_another(self, tmp_path):
        write_array(tmp_path / "points.zarr", np.random.default_rng(0).normal(size=(500, 6)), chunk_rows=100)
        asked = job(tmp_path)
        kinds = []
        for _ in range(5):
            with pytest.raises(errors.InterruptedRun) as found:
                self.start(asked, "moments")
            kinds.append(type(found.value))
        assert kinds == [errors.InterruptedRun] * 3 + [errors.StalledRun] * 2
        assert "4 starts in a row have left nothing new" in str(found.value)
        assert "of stage 'moments'" in str(found.value)
        assert read_status(tmp_path / "run.zarr")["error"]["status"] == 8
        with pytest.raises(errors.InterruptedRun) as found:
            self.start(asked, "rows-survey")  # (of a later stage)
        assert type(found.value) is errors.InterruptedRun
        assert self.start(asked)["finished"]
        assert read_status(tmp_path / "run.zarr")["fruitless"] is None


class TestOutputs:
    """Outputs: one process makes each at a time; killed between two of them a call goes on; none lies inside an
    input."""

    @pytest.fixture
    def rows(self, tmp_path):
        values = np.random.default_rng(0).normal(size=(60, 4)) * [9, 5, 2, 1]
        write_array(tmp_path / "points.zarr", values, chunk_rows=16)
        return values

    @a_few(1, "output", [{"model": "model.zarr"}, {"table": "table.csv"}, {"report": "page.html"}])
    def test_two_jobs_of_one_output(self, tmp_path, rows, output):
        [name] = output.values()
        with elsewhere(tmp_path / name), pytest.raises(errors.LockedError, match=rf"{name}.*held by"):
            run_job(job(tmp_path, "one.zarr", **output))
        run_job(job(tmp_path, "one.zarr", **output))
        with pytest.raises(errors.ExistingOutputError, match="this run did not write it"):
            run_job(job(tmp_path, "two.zarr", **output))
        assert not list(tmp_path.glob(".*making"))

    @pytest.mark.parametrize("before", ["_report", "_view"])
    def test_a_changed_job_stopped_before_its_last_outputs_makes_them_anew(self, tmp_path, rows, monkeypatch, before):
        outputs = {"report": "page.html", "view": "every"}
        run_job(job(tmp_path, **outputs))
        changed = job(tmp_path, components=1, **outputs)

        def stopped(*_):
            raise Stopped

        with monkeypatch.context() as patch:
            patch.setattr(run_module, before, stopped)
            with pytest.raises(Stopped):
                run_job(changed)
        assert not run_job(changed)["unchanged"]
        assert "coordinate 2" not in (tmp_path / "page.html").read_text()
        assert "coordinate 2" not in (tmp_path / "every" / "about.js").read_text()
        assert run_job(changed)["unchanged"]

    def test_an_extension_stopped_before_its_table(self, tmp_path, rows, monkeypatch):
        run_job(job(tmp_path, model="model.zarr"))
        call = (tmp_path / "model.zarr", tmp_path / "points.zarr", tmp_path / "out.zarr")

        def stopped(*_, **__):
            raise Stopped

        export_as_it_is = extension.export
        monkeypatch.setattr(extension, "export", stopped)
        with pytest.raises(Stopped):
            extend(*call, results=tmp_path / "table.csv")
        monkeypatch.setattr(extension, "export", export_as_it_is)
        assert (tmp_path / "out.zarr").exists()
        assert not (tmp_path / "table.csv").exists()
        with pytest.raises(errors.ExistingOutputError):  # another extension
            extend(*call, results=tmp_path / "other.csv")
        extend(*call, results=tmp_path / "table.csv")
        assert len((tmp_path / "table.csv").read_text().splitlines()) == 61
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), be.load(call[0]).transform(rows))
        assert not (tmp_path / "out.zarr.partial").exists()
        assert extend(*call, results=tmp_path / "table.csv")["unchanged"]
        with pytest.raises(errors.ExistingOutputError):
            extend(*call, results=tmp_path / "other.csv")

    def test_an_output_inside_what_is_read_is_refused(self, tmp_path, rows):
        before = sorted(path.name for path in (tmp_path / "points.zarr").rglob("*"))
        for outputs in ({"path": "points.zarr/run.zarr"}, *({n: "points.zarr/x.csv"} for n in ("table", "model"))):
            with pytest.raises(errors.InputError, match=r"lies inside .*points\.zarr"):
                run_job(job(tmp_path, **{"path": "run.zarr", **outputs}))
        (tmp_path / "link").symlink_to(tmp_path / "points.zarr")
        with pytest.raises(errors.InputError, match="lies inside"):
            run_job(job(tmp_path, "link/run.zarr"))
        run_job(job(tmp_path, model="model.zarr"))
        inside = tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding"
        with pytest.raises(errors.InputError, match="lies inside the output"):
            run_job(job(tmp_path, source=str(inside)))
        calls = [
            lambda: extend(tmp_path / "model.zarr", tmp_path / "points.zarr", tmp_path / "points.zarr" / "out.zarr"),
            lambda: extend(tmp_path / "model.zarr", tmp_path / "points.zarr", tmp_path / "model.zarr" / "out.zarr"),
            lambda: ingest(tmp_path / "points.zarr", tmp_path / "points.zarr" / "copy.zarr"),
            lambda: export(inside, inside / "x.csv"),
            lambda: certify_paths(tmp_path / "points.zarr", inside, tmp_path / "points.zarr" / "page.html"),
        ]
        for call in calls:
            with pytest.raises(errors.InputError, match="lies inside"):
                call()
        assert sorted(path.name for path in (tmp_path / "points.zarr").rglob("*")) == before


def page_of(home):
    write_report(home / "run.zarr", home / "page.html")
    return (home / "page.html").read_text()


class TestOlderRecord:
    """An older ``job.json``, or a whole older stage, put back in a run: not taken for what belongs to the
    coordinates."""

    @a_few(1, "stage", ["solve", "coordinates"])
    def test_a_whole_older_stage_is_not_taken(self, tmp_path, stage):
        """With its own manifest, so that every digest fits its file."""
        np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)) * [4, 3, 2, 1])
        run, older, job = tmp_path / "run.zarr", tmp_path / "older", job_in(tmp_path)
        run_job(job_in(tmp_path, 'name = "pca"\nn_components = 3'))
        shutil.copytree(run, older)
        run_job(job)
        whole, record = read_array(run / "stages" / "coordinates" / "embedding"), (run / "job.json").read_bytes()
        shutil.copy(older / "job.json", run / "job.json")
        with pytest.warns(errors.StaleWarning, match=r"job.json is not of the job that made the coordinates"):
            export(run, tmp_path / "numbered.csv")
        assert (tmp_path / "numbered.csv").read_text().startswith("coordinate0,coordinate1\n")
        assert "is not of the job that made the coordinates" in page_of(tmp_path)
        (run / "job.json").write_bytes(record)
        shutil.rmtree(run / "stages" / stage)
        shutil.copytree(older / "stages" / stage, run / "stages" / stage)
        shutil.copy(older / "manifest" / f"{stage}.json", run / "manifest" / f"{stage}.json")
        for read in (
            lambda: export(run, tmp_path / "table.csv"),
            lambda: np.asarray(be.open_array(run / "stages" / "coordinates" / "embedding")),
        ):
            with pytest.raises(errors.DamagedError, match=r"'coordinates' is damaged .was made from another 'solve'"):
                read()
        assert verify(run)["problems"]
        assert "was made from another &#39;solve&#39;" in page_of(tmp_path)
        assert not run_job(job)["unchanged"]
        assert verify(run)["problems"] == []
        np.testing.assert_array_equal(read_array(run / "stages" / "coordinates" / "embedding"), whole)


class TestStorageErrors:
    """Full disks, closed folders and absent libraries: one clear line, the right exit status, and known before the
    run."""

    @pytest.mark.parametrize(
        ("code", "status", "line"),
        [
            (errno.ENOSPC, 1, "the disk is full"),
            (errno.EROFS, 2, "may not be written"),
            (errno.EACCES, 2, "permissions"),
        ],
    )
    def test_what_the_operating_system_refuses_is_one_line(
        self, code: int, status: int, line: str, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*given: Any, **named: Any) -> Any:
            raise OSError(code, "refused", "run.zarr")

        monkeypatch.setattr("bigembed.stages.stage.manifests.publish", refused)
        found = CliRunner().invoke(app, ["run", str(job)])
        assert found.exit_code == status
        [said] = [one for one in found.output.splitlines() if one.startswith("error:")]
        assert line in said
        assert "--debug" not in said

    def test_a_disk_that_is_too_full_to_be_measured_is_planned_all_the_same(
        self, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(folder: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(calibrate, "_storage", full)
        monkeypatch.setattr(calibrate, "read_measurements", lambda kind: {})
        assert plan_job(read_job(job)).seconds is not None
        assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml", "rows.npy"]

    def test_a_plan_lacks_what_the_run_would_lack(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job.write_text(job.read_text() + 'table = "rows.parquet"\n')

        def absent(name: str) -> Any:
            raise ImportError(name)

        monkeypatch.setattr("bigembed.errors.import_module", absent)
        with pytest.raises(errors.MissingExtraError, match="pyarrow"):
            plan_job(read_job(job))


SECRET = "hunter2"
ADDRESSES = [
    f"tcp://user:{SECRET}@127.0.0.1:1",
    f"tcp://user:p@{SECRET}/?@127.0.0.1:1",
    f"tls://{SECRET}@127.0.0.1:1",
    f"tls://127.0.0.1:1?token={SECRET}",
    f"user:{SECRET}@127.0.0.1:1",
    f"wss://user:{SECRET}@127.0.0.1:1/path?key={SECRET}",
]


def written(folder: Path) -> bytes:
    """All that a job left but the job file."""
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "job.toml")


class TestSecrets:
    """A secret in an address, an error or a warning is in nothing that a job writes or says."""

    @pytest.mark.parametrize("address", ADDRESSES)
    def test_an_address_with_credentials_is_refused_and_not_quoted(self, job, address, tmp_path):
        more = ["--json", "--debug", "--metrics", str(tmp_path / "run.prom"), "--log", str(tmp_path / "log")]
        found = CliRunner().invoke(app, ["run", str(job), "--scheduler", address, *more])
        assert found.exit_code == 2
        assert "carries credentials or options" in found.output
        job.write_text(f'{job.read_text()}[cluster]\naddress = "{address}"\n')
        inside = CliRunner().invoke(app, ["run", str(job), *more])
        assert inside.exit_code == 2
        assert SECRET not in found.output + inside.output
        assert SECRET.encode() not in written(tmp_path)

    @pytest.mark.parametrize("address", ADDRESSES)
    def test_one_that_no_job_file_has_seen_is_refused_too(self, job, address, tmp_path):
        asked = read_job(job)
        asked = asked.model_copy(update={"cluster": asked.cluster.model_copy(update={"address": address})})
        with pytest.raises(errors.JobError, match="carries credentials or options") as caught:
            run_job(asked)
        assert SECRET not in str(caught.value)
        assert SECRET.encode() not in written(tmp_path)
        with pytest.raises(errors.JobError), cluster(ClusterTable(address=address), "remote"):
            pass

    def test_what_others_quote_is_not_passed_on(self, job, tmp_path, monkeypatch):
        """Errors and warnings of other libraries, with a URL in them: in no file and on no stream."""

        def wrong(*_: object) -> None:
            logging.getLogger("distributed.core").warning("lost %s", ADDRESSES[0])
            warnings.warn(f"slow: {ADDRESSES[2]}", errors.BigembedWarning, stacklevel=1)
            raise RuntimeError(
                f"no answer from {ADDRESSES[0]} by way of http://me:{SECRET}@proxy:3128/, s3://b/k?sig={SECRET}"
            )

        monkeypatch.setattr("bigembed.jobs.run._save", wrong)
        more = ["--debug", "--metrics", str(tmp_path / "run.prom"), "--log", "-"]
        found = CliRunner().invoke(app, ["run", str(job), *more])
        assert found.exit_code == 1
        assert "no answer from tcp://…@127.0.0.1:1 by way of http://…@proxy:3128/" in found.output
        assert SECRET not in found.output
        assert b"no answer from" in written(tmp_path)
        assert SECRET.encode() not in written(tmp_path)

    def test_plain_addresses_and_paths_stay(self, tmp_path):
        for text in (
            "tcp://node7:8786",
            "tls://10.0.0.7:8786",
            "abfs://box@account/rows",
            "what? a@b.c",
            "s3://b/k: why?",
        ):
            assert redacted(text) == text
        value = {"input": {"path": "r.npy"}, "method": {"name": "pca"}, "output": {"path": "o"}}
        assert (
            parse_job({**value, "cluster": {"address": "node7:8786"}}, tmp_path / "job.toml").cluster.address
            == "node7:8786"
        )
