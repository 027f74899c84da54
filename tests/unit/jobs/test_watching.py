"""What a running job says, and what stops it."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import bigembed as be
from bigembed import errors
from bigembed.cli import app
from bigembed.jobs import parse_deadline
from bigembed.jobs.extend import extend, status_path
from bigembed.jobs.places import ClusterTable
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching import Metrics, Reporter, RunOptions
from bigembed.jobs.watching import logs as places
from bigembed.jobs.watching.console import Console
from bigembed.jobs.watching.logs import Logs, logs
from bigembed.jobs.watching.status import Status, Stopped, check, read_status, stoppable
from bigembed.runtime import Event, moment
from bigembed.runtime.outages import Outage, stores
from bigembed.store.locks import Owner, hold
from tests.job_files import job_file
from tests.some import a_few

ROOT = Path(__file__).parents[4]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.unit.jobs.small_cli", *map(str, arguments)]


def in_terminal(*arguments: object, stop: bool = False) -> tuple[str, int]:
    """What a command writes into a terminal of 80 columns, and its exit status; ``stop``: Ctrl-C when it has begun."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ |= {"COLUMNS": "80", "TERM": "xterm"}
        os.execv(sys.executable, command(*arguments))
    said = b""
    while True:
        try:
            said += os.read(terminal, 65536)
        except OSError:
            break
        if stop and b"mean" in said:
            os.write(terminal, b"\x03")
            stop = False
    os.close(terminal)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def stop_by_deadline(job, metrics=None, fresh=False):
    """Stop a job by its deadline while it is at its first stage: a busy machine needs a longer one to come there."""
    for seconds in (0.7, 4.0, 60.0):
        with pytest.raises(errors.InterruptedRun, match="stopped by its deadline"):
            run_job(read_job(job), RunOptions(metrics=metrics, deadline=time.time() + seconds), fresh=fresh)
        found = read_status(job.parent / "run.zarr")
        if (found.get("stage"), found.get("finished_stages")) == ("mean", []):
            return
    pytest.fail(f"the first stage never began: {found}")


def test_below_a_file_there_is_no_status(tmp_path):
    (tmp_path / "file").write_text("text")
    assert read_status(tmp_path / "file") == {}


class TestConsole:
    """What a command prints: on a terminal, into a pipe, and where nobody reads it."""

    @a_few(1, "redirected", ["2>&1 | head -1", "<&- >&- 2>&-"])
    def test_a_job_ends_well_though_nobody_reads_what_it_prints(self, write_job, rows, tmp_path, redirected):
        job = write_job("pause = 0.1")
        script = f"{' '.join(command('run', job))} {redirected}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert read_status(tmp_path / "run.zarr")["state"] == "done"

    def test_a_result_that_a_full_disk_loses_is_an_error_and_the_job_is_done(self, write_job, rows, tmp_path):
        with open("/dev/full", "w") as full:
            done = subprocess.run(command("run", write_job()), cwd=ROOT, stdout=full, stderr=-1, text=True, check=False)
        assert done.returncode == 1
        assert re.fullmatch("error: standard output: No space left on device; .* is lost\n", done.stderr)
        assert read_status(tmp_path / "run.zarr")["state"] == "done"

    def test_elsewhere_a_stage_has_a_line_if_it_takes_a_second(self, capsys, monkeypatch):
        with Console() as console:
            for name, seconds in (("survey", 0.01), ("solve", 3.21)):
                console.event(Event("start", name))
                console.event(Event("note", name, message="iteration 1"))
                console.progress("pass", 1, 4)
                console.event(Event("done", name, seconds))
            console.event(Event("reused", "graph"))
            warnings.warn("careful", errors.BigembedWarning, stacklevel=1)
            monkeypatch.setattr("bigembed.jobs.watching.console.PLAIN_SECONDS", 0.0)
            console.progress("pass", 2, 4)
        said = capsys.readouterr()
        assert said.out == "solve: done in 3.2 s\ngraph: pass: 2 of 4\n"
        assert said.err == "warning: careful\n"

    def test_on_a_terminal_one_line_moves_and_is_gone_at_the_end(self, write_job, rows, tmp_path):
        said, status = in_terminal("run", write_job("pause = 0.3"))
        assert status == 0
        moving, end = said.rsplit("\x1b[2K", 1)
        assert re.search("mean", moving)
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", moving)
        assert plain.count("\n") <= 2
        assert max(map(len, re.split(r"[\r\n]", plain))) <= 80
        assert "stages, 0 of them reused" in end
        assert "started" not in said
        assert "done in" not in said
        lines = [json.loads(line) for line in (tmp_path / "run.zarr" / "log.jsonl").read_text().splitlines()]
        events = [
            (line["stage"], line["event"]) for line in lines if line.get("event") in ("start", "done") and line["stage"]
        ]
        assert events[:2] == [("mean", "start"), ("mean", "done")]

    def test_ctrl_c_in_a_terminal_leaves_the_line_and_says_why(self, write_job, rows):
        said, status = in_terminal("run", write_job("pause = 9.0"), stop=True)
        assert status == 5
        assert "Traceback" not in said
        assert said.rstrip().endswith("the same command goes on from there")
        assert "mean" in said.rsplit("^C", 1)[-1]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestLogs:
    """Structured logs of a run: one JSON object a line, placed by run, stage and block."""

    def test_a_run_keeps_its_log_and_goes_on_with_it(self, write_job, rows, tmp_path):
        root = tmp_path / "run.zarr"
        with pytest.warns(errors.BigembedWarning, match="mind"):
            run_job(read_job(write_job('warns = "mind"')), RunOptions(log=str(tmp_path / "deep" / "copy.jsonl")))
        lines = lines_of(root / "log.jsonl")
        assert lines == lines_of(tmp_path / "deep" / "copy.jsonl")
        assert all({"time", "level", "run", "stage", "block", "message"} <= set(line) for line in lines)
        assert {line["run"] for line in lines} == {str(root)}
        assert [(line["event"], line["stage"]) for line in lines if line["level"] == "info"] == [
            ("started", None), ("planned", None), ("start", "mean"), ("done", "mean"), ("start", "center"),
            ("done", "center"), ("done", "center"),
        ]  # fmt: skip
        [warning] = [line for line in lines if line["level"] == "warning"]
        assert (warning["message"], warning["category"], warning["stage"]) == ("mind", "BigembedWarning", "center")
        with pytest.raises(errors.InterruptedRun):
            run_job(read_job(write_job("pause = 9.0\nn_components = 3")), RunOptions(deadline=time.time()), fresh=True)
        assert len(lines_of(root / "log.jsonl")) == len(lines)  # over before it began

    def test_blocks_are_told_now_and_then(self, tmp_path, monkeypatch):
        with logs(tmp_path, tmp_path / "log") as told:
            told.event(Event("start", "search"))
            told.progress("near", 1, 9)
            monkeypatch.setattr(places, "SECONDS", 0.0)
            told.progress("near", 2, 9)
        assert [(line["block"], line.get("total")) for line in lines_of(tmp_path / "log")] == [(None, None), (2, 9)]

    @pytest.mark.parametrize("place", ["disk", "objects"])
    def test_a_log_is_rotated_and_the_newest_lines_are_kept_in_their_order(self, place, tmp_path, monkeypatch):
        path = tmp_path / "log.jsonl"
        monkeypatch.setattr(places, "LARGEST", 2_000)
        monkeypatch.setattr(places, "is_url", lambda _: place == "objects")  # (whose log is written whole, here too)
        for start in range(20):
            with logs("run", path) as told:
                for line in range(10):
                    told.say(f"{10 * start + line}")
        names = [f"{path}.{number}" for number in (4, 3, 2, 1)] + [str(path)]
        texts = [Path(name).read_text() for name in names]
        assert all(len(text) < 2_400 for text in texts)
        found = [int(json.loads(line)["message"]) for text in texts for line in text.splitlines()]
        assert found == list(range(found[0], 200))
        assert len(found) > 40
        assert not Path(f"{path}.5").exists()

    def test_what_is_logged_without_a_file_is_not_printed_beside_the_error(self, monkeypatch, capsys):
        for name in ("", "bigembed", "bigembed.jobs"):
            monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        logging.getLogger("bigembed.jobs").error("seen")  # (a control: Python prints what nobody handles)
        Logs("run").say("not seen", logging.ERROR)
        assert capsys.readouterr().err == "seen\n"

    def test_a_log_waits_for_no_store_that_is_away(self, tmp_path, monkeypatch):
        waited = []
        monkeypatch.setattr(places, "LARGEST", 100)
        monkeypatch.setattr(places, "is_url", lambda _: True)
        monkeypatch.setattr(places, "put", lambda *given: waited.append(stores.patient))
        with logs("run", tmp_path / "log.jsonl") as told:
            told.say("hello " * 50)
        assert len(waited) >= 2
        assert not any(waited)

    def test_a_torn_line_is_ended_before_others_follow(self, tmp_path):
        path = tmp_path / "log.jsonl"
        for before, lines in (("", 1), ('{"whole": 1}\n', 2), ('{"torn": ', 2)):
            path.write_text(before)
            with logs("run", path) as told:
                told.say("hello")
            found = path.read_text().splitlines()
            assert len(found) == lines
            assert json.loads(found[-1])["message"] == "hello"


def samples(path):
    """Values by name and the labels that are not the run's."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("run", "method")}
            found[sample.name.removeprefix("bigembed_"), *labels.values()] = sample.value
    return found


class TestMetrics:
    """The Prometheus text file of a run, and Dask's performance report."""

    def test_memory_of_a_command(self, rows, tmp_path):
        """In a process of its own: with that of the tests its children are counted, those of other tests, too."""
        path = tmp_path / "bigembed.prom"
        np.save(tmp_path / "rows.npy", rows)
        job = str(job_file(tmp_path))
        subprocess.run([sys.executable, "-m", "bigembed.cli", "run", job, "--metrics", str(path)], check=True)
        found = samples(path)
        assert 0 < found["memory_bytes", "measured", "total"] <= found["memory_bytes", "planned", "total"]

    def test_of_a_run(self, write_job, rows, tmp_path):
        path = tmp_path / "metrics" / "bigembed.prom"
        states = []
        options = RunOptions(lambda _: states.append(samples(path)), metrics=path)
        began = time.time()
        run_job(read_job(write_job()), options)
        assert all(state["run_state", "running"] == 1 and ("run_exit_status",) not in state for state in states)
        found = samples(path)
        assert (found["run_state", "done"], found["run_state", "running"], found["run_exit_status",]) == (1, 0, 0)
        assert (found["run_rows",], found["run_passes",]) == (3000, 2)
        assert found["stage_seconds", "mean"] > 0
        assert found["run_last_success_time_seconds",] >= began
        record = json.loads((tmp_path / "run.zarr" / "job.json").read_text())
        for kind, name in (("measured", "measured"), ("planned", "predicted")):
            assert found["memory_bytes", kind, "total"] == record[name]["total"] > 0
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        assert 'run="' + str(tmp_path / "run.zarr") in path.read_text()

    def test_the_last_success_outlives_failures(self, write_job, rows, tmp_path):
        path = tmp_path / "m.prom"
        options = RunOptions(metrics=path)
        with pytest.raises(errors.PlanError):
            run_job(read_job(write_job(f"memory = {1 << 50}")), options)
        assert (samples(path)["run_exit_status",], samples(path)["run_state", "failed"]) == (3, 1)
        assert ("run_last_success_time_seconds",) not in samples(path)
        run_job(read_job(write_job()), options)
        success = samples(path)["run_last_success_time_seconds",]
        (tmp_path / "rows.npy").rename(tmp_path / "away.npy")  # (a start that comes to nothing, not to its status)
        with pytest.raises(errors.MissingPathError):
            run_job(read_job(write_job()), options)
        assert samples(path)["run_exit_status",] == 2
        assert samples(path)["run_last_success_time_seconds",] == success
        (tmp_path / "away.npy").rename(tmp_path / "rows.npy")
        stop_by_deadline(write_job("pause = 90.0"), metrics=path, fresh=True)
        found = samples(path)
        assert (found["run_exit_status",], found["run_state", "interrupted"]) == (5, 1)
        assert found["run_last_success_time_seconds",] == pytest.approx(success, abs=1.1)
        before = path.read_text()
        with hold(tmp_path / "run.zarr"), pytest.raises(errors.LockedError):
            run_job(read_job(write_job()), options)
        assert path.read_text() == before

    def test_a_performance_report_needs_a_cluster_and_bokeh(self, write_job, rows, tmp_path, monkeypatch):
        pytest.importorskip("bokeh")
        page = tmp_path / "report.html"
        with pytest.warns(errors.BigembedWarning, match="runs in this process"):
            run_job(read_job(write_job()), RunOptions(performance_report=page))
        assert not page.exists()
        monkeypatch.setitem(sys.modules, "bokeh", None)
        with pytest.raises(errors.MissingExtraError, match=r"bigembed\[performance\]"):
            run_job(read_job(write_job()), RunOptions(performance_report=page))

    @pytest.mark.cluster
    def test_a_performance_report_of_workers(self, write_job, rows, tmp_path):
        pytest.importorskip("bokeh")
        page = tmp_path / "pages" / "report.html"
        # (the method of these tests is not known in workers: its tasks are importable there, which is enough)
        run_job(read_job(write_job(cluster='workers = 1\nmemory = "1 GiB"')), RunOptions(performance_report=page))
        assert "Dask Performance Report" in page.read_text()
        assert [entry.name for entry in page.parent.iterdir()] == ["report.html"]


def hold_of(out):
    """Another one that writes the same."""
    from bigembed.stages.runs import Run
    from bigembed.stages.stage import locked

    return locked(Run(f"{out}.partial"))


class TestStatus:
    """status.json: true while a job runs, and after it ended in any way."""

    def test_of_a_run_that_ends_well(self, write_job, rows, tmp_path):
        seen = []

        def look(event):
            seen.append(json.loads((tmp_path / "run.zarr" / "status.json").read_text()))

        run_job(read_job(write_job()), RunOptions(look))
        assert [(s["state"], s["stage"], s["finished_stages"]) for s in seen] == [
            ("running", "mean", []),
            ("running", "mean", ["mean"]),
            ("running", "center", ["mean"]),
            ("running", "center", ["mean", "center"]),
        ]
        assert seen[0]["stages"] == ["mean", "center"]
        assert {"user", "pid", "host", "since"} == set(seen[0]["owner"])
        last = read_status(tmp_path / "run.zarr")
        assert (last["state"], last["error"], last["deadline"]) == ("done", None, None)
        assert last["started"] <= last["updated"]
        run_job(read_job(write_job()))
        assert read_status(tmp_path / "run.zarr") == last

    def test_of_failures(self, write_job, rows, tmp_path, monkeypatch):
        root = tmp_path / "run.zarr"

        def broken(*_):
            raise ZeroDivisionError("oh")

        run_job(read_job(write_job()))
        with pytest.raises(errors.PlanError):
            run_job(read_job(write_job(f"n_components = 1\nmemory = {1 << 50}")))
        found = read_status(root)
        assert (found["state"], found["error"]["status"], found["error"]["kind"]) == ("failed", 3, "PlanError")
        with pytest.raises(errors.InputError):
            run_job(read_job(write_job("n_components = 7")))
        assert read_status(root)["error"]["status"] == 2
        with monkeypatch.context() as patch:
            patch.setattr("tests.unit.jobs.small_method.Small._set_fitted", broken)
            with pytest.raises(ZeroDivisionError):
                run_job(read_job(write_job("n_components = 3")))
        assert read_status(root)["error"] == {"status": 1, "kind": "ZeroDivisionError", "message": "oh"}
        assert run_job(read_job(write_job()))["finished"]
        assert read_status(root)["state"] == "done"

    def test_a_deadline_leaves_a_resumable_run_and_says_so(self, write_job, rows, tmp_path):
        stop_by_deadline(write_job("pause = 90.0"))
        found = read_status(tmp_path / "run.zarr")
        assert (found["state"], found["stage"], found["error"]["status"]) == ("interrupted", "mean", 5)
        assert "deadline" in found["error"]["message"]
        assert found["deadline"] is not None
        last = lines_of(tmp_path / "run.zarr" / "log.jsonl")[-1]
        assert (last["event"], last["exit_status"], last["stage"]) == ("interrupted", 5, "mean")
        assert run_job(read_job(write_job()))["finished"]

    def test_of_a_run_that_was_killed(self, write_job, rows, tmp_path):
        command = [sys.executable, "-m", "tests.unit.jobs.small_cli", "run", str(write_job("pause = 30.0"))]
        process = subprocess.Popen(command, cwd=ROOT)
        while read_status(tmp_path / "run.zarr").get("state") != "running":
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        assert json.loads((tmp_path / "run.zarr" / "status.json").read_text())["state"] == "running"
        found = read_status(tmp_path / "run.zarr")
        assert (found["state"], found["stage"], found["error"]["status"]) == ("interrupted", "mean", 5)
        done = CliRunner().invoke(app, ["status", str(tmp_path / "run.zarr")])
        assert (done.exit_code, "run.zarr: interrupted" in done.output) == (5, True)

    def test_the_command_says_how_a_job_stands_and_its_warnings(self, write_job, rows, tmp_path):
        run = tmp_path / "run.zarr"

        def said(path=run):
            done = CliRunner().invoke(app, ["status", str(path), "--json"])
            return done.exit_code, json.loads(done.output.splitlines()[-1])

        assert CliRunner().invoke(app, ["status", str(run)]).exit_code == 2
        metrics = RunOptions(metrics=tmp_path / "run.prom")
        with pytest.warns(errors.BigembedWarning, match="mind"):
            run_job(read_job(write_job('warns = "mind"')), metrics)
        status, found = said()
        assert (status, found["state"]) == (0, "done")
        assert [one["category"] for one in found["warnings"]] == ["BigembedWarning"]
        assert "mind" in found["warnings"][0]["message"]
        assert 'bigembed_run_warnings{category="BigembedWarning"' in (tmp_path / "run.prom").read_text()
        run_job(read_job(write_job('warns = "mind"')), metrics)  # (nothing is left to do)
        assert len(said()[1]["warnings"]) == 1
        with hold(run) as lock, Status(run / "status.json", lock.owner) as working:
            working.event(Event("start", "search"))
            status, found = said()
            assert (status, found["stage"], found["warnings"]) == (4, "search", [])
        run_job(read_job(write_job("warns = ''")), metrics)
        assert said()[1]["warnings"] == []
        assert "BigembedWarning" not in (tmp_path / "run.prom").read_text()

    def test_progress_is_written_now_and_then(self, tmp_path, monkeypatch):
        with hold(tmp_path) as lock, Status(tmp_path / "status.json", lock.owner) as status:
            status.event(Event("start", "search"))
            status.progress("near", 1, 9)
            assert read_status(tmp_path)["done"] == 0
            monkeypatch.setattr("bigembed.jobs.watching.status.SECONDS", 0.0)
            status.progress("near", 2, 9)
            found = read_status(tmp_path)
            assert (found["stage"], found["label"], found["done"], found["total"]) == ("search", "near", 2, 9)
        assert not list(tmp_path.glob("*.partial"))
        assert read_status(tmp_path / "none") == {}

    def test_of_an_extension(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(300, 4))
        np.save(tmp_path / "new.npy", X)
        be.PCA(n_components=2).fit(X).save(tmp_path / "model.zarr")
        out = tmp_path / "out.zarr"
        with pytest.raises(errors.PlanError):
            extend(tmp_path / "model.zarr", tmp_path / "new.npy", out, ClusterTable(workers=2, memory=1 << 20))
        assert not status_path(out).exists()
        with hold_of(out), pytest.raises(be.errors.LockedError, match="held by"):
            extend(tmp_path / "model.zarr", tmp_path / "new.npy", out)
        assert not status_path(out).exists()
        extend(tmp_path / "model.zarr", tmp_path / "new.npy", out)
        found = json.loads(status_path(out).read_text())
        assert (found["state"], found["finished_stages"]) == ("done", ["extend"])
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "model.zarr",
            "new.npy",
            "out.zarr",
            status_path(out).name,
        ]


NOON = datetime(2026, 11, 21, 12, 0).timestamp()


class TestStopping:
    """Deadlines: how they are written, and that they stop a job as a signal does."""

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("6h", 21600), ("45m", 2700), ("45min", 2700), ("1h30m", 5400), ("1d 2h", 93600), ("0.5h", 1800), ("90s", 90)],
    )
    def test_durations(self, text, seconds):
        assert parse_deadline(text, NOON) == NOON + seconds

    @pytest.mark.parametrize(
        ("text", "hours"),
        [("12:30", 0.5), ("11:59", 23 + 59 / 60), ("6:30", 18.5), ("12:00:30", 30 / 3600), ("12:00", 24)],
    )
    def test_times_of_day_are_the_next_ones(self, text, hours):
        assert parse_deadline(text, NOON) == pytest.approx(NOON + 3600 * hours, abs=1e-3)

    def test_dates(self):
        assert parse_deadline("2026-11-21T13:00", NOON) == NOON + 3600
        assert parse_deadline("1970-01-01T01:00:00+00:00", NOON) == 3600

    @pytest.mark.parametrize("text", ["", "6", "6x", "h", "25:00", "tomorrow", "-5m", "1h 30", "2026-13-01"])
    def test_what_is_no_deadline_is_refused(self, text):
        with pytest.raises(errors.JobError, match="a duration such as"):
            parse_deadline(text, NOON)

    def test_a_deadline_stops_what_waits(self, tmp_path):
        before, began = signal.getsignal(signal.SIGTERM), time.time()
        stopped = pytest.raises(errors.InterruptedRun, match=r"stopped by its deadline, 20.*the same command goes on")
        with stopped, stoppable(tmp_path, began + 0.3):
            threading.Event().wait(20)
        assert 0.2 < time.time() - began < 10
        assert signal.getsignal(signal.SIGTERM) is before

    def test_a_deadline_that_is_over_starts_nothing(self, tmp_path):
        ran = []
        with pytest.raises(errors.InterruptedRun, match="deadline"), stoppable(tmp_path, time.time() - 1):
            ran.append(1)
        assert not ran

    def test_a_signal_is_told_by_its_name_although_there_is_a_deadline(self, tmp_path):
        with pytest.raises(errors.InterruptedRun, match="stopped by SIGHUP"), stoppable(tmp_path, time.time() + 60):
            signal.raise_signal(signal.SIGHUP)

    def test_a_signal_within_a_finalizer_is_not_lost(self, tmp_path, monkeypatch):
        class Closed:
            def __init__(self, act):
                self.act = act

            def __del__(self):
                self.act()

        told = []
        hook = lambda lost: told.append(lost.exc_type)  # noqa: E731
        monkeypatch.setattr("sys.unraisablehook", hook)
        stopped = pytest.raises(errors.InterruptedRun, match="stopped by SIGTERM")
        with stopped, stoppable(tmp_path):
            Closed(lambda: 1 / 0)
            Closed(lambda: signal.raise_signal(signal.SIGTERM))
            check("out", None)
        check("out", None)
        assert told == [ZeroDivisionError]  # (of the signal no traceback is printed)
        assert sys.unraisablehook is hook

    def test_outside_of_the_main_thread_the_deadline_counts_between_tasks(self, tmp_path):
        caught = []

        def work():
            deadline = time.time() + 0.1
            try:
                with stoppable(tmp_path, deadline):
                    for _ in range(200):
                        time.sleep(0.01)
                        check(tmp_path, deadline)
            except errors.InterruptedRun as error:
                caught.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(20)
        assert "deadline" in caught[0]
        with pytest.raises(Stopped):
            check(tmp_path, time.time() - 1)

    def test_a_signal_that_comes_twice_is_one_and_a_later_one_acts_at_once(self, tmp_path, interruptible):

        @contextmanager
        def disturbed(pause):
            try:
                yield
            finally:
                time.sleep(pause)
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(errors.InterruptedRun, match="stopped by SIGTERM"), stoppable(tmp_path), disturbed(0.0):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), stoppable(tmp_path), disturbed(1.1):
            signal.raise_signal(signal.SIGTERM)


class TestOutages:
    """Object stores that are away, as several processes tell of them."""

    @pytest.fixture
    def heard(self, tmp_path):
        events = []
        owner = Owner("somebody", 1, "here", 0.0)
        status = Status(tmp_path / "run.zarr" / "status.json", owner)
        sinks = status, Logs("run.zarr"), Metrics(None, "run.zarr")
        return Reporter(RunOptions(events.append), "run.zarr", *sinks), events

    def test_an_outage_is_said_once_whoever_meets_it(self, heard):
        reporter, events = heard
        for since in (100.0, 103.0, 101.0):
            reporter.hear(Outage("s3://a", since, since + 180, "refused"))
        reporter(Outage("s3://b", 102.0, 282.0, "503").event())
        for ended in (160.0, 161.0):
            reporter.hear(Outage("s3://a", 103.0, 283.0, "refused", ended))
        assert [(one.results["store"], one.results["since"], one.results["ended"]) for one in events] == [
            ("s3://a", 100.0, None),
            ("s3://b", 102.0, None),
            ("s3://a", 100.0, 160.0),
        ]
        assert (reporter.metrics.away, reporter.metrics.outages) == (1, [60.0])
        standing = json.loads(reporter.status.path.read_text())["outages"]
        assert [(one["store"], one["ended"]) for one in standing] == [("s3://b", None), ("s3://a", moment(160.0))]
        assert standing[1]["since"] == moment(100.0)

    def test_who_comes_late_does_not_bring_an_outage_back_that_was_over(self, heard):
        reporter, events = heard
        reporter.hear(Outage("s3://a", 100.0, 280.0, "refused"))
        reporter.hear(Outage("s3://a", 100.0, 280.0, "refused", 160.0))
        reporter.hear(Outage("s3://a", 101.0, 281.0, "refused"))  # (without an answer to this process since)
        assert [one.results["since"] for one in events] == [100.0, 100.0, 160.0]
