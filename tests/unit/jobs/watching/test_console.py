"""What a command prints: on a terminal, into a pipe, and where nobody reads it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from bigembed.errors import BigembedWarning
from bigembed.jobs.watching.console import Console
from bigembed.jobs.watching.status import read_status
from bigembed.runtime.runtime import Event

ROOT = Path(__file__).parents[4]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.unit.jobs.small_cli", *map(str, arguments)]


@pytest.mark.parametrize("redirected", ["2>&1 | head -1", "<&- >&- 2>&-"])
def test_a_job_ends_well_though_nobody_reads_what_it_prints(write_job, rows, tmp_path, redirected):
    job = write_job("pause = 0.1")
    script = f"{' '.join(command('run', job))} {redirected}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_status(tmp_path / "run.zarr")["state"] == "done"


@pytest.mark.parametrize(("arguments", "status"), [(("methods",), 0), (("plan", "no"), 2)])
def test_a_command_whose_reader_left_keeps_its_exit_status(write_job, rows, tmp_path, arguments, status):
    write_job()
    script = f"{' '.join(command(*arguments))} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (status, b"")


def test_a_result_that_a_full_disk_loses_is_an_error_and_the_job_is_done(write_job, rows, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(command("run", write_job()), cwd=ROOT, stdout=full, stderr=-1, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch("error: standard output: No space left on device; .* is lost\n", done.stderr)
    assert read_status(tmp_path / "run.zarr")["state"] == "done"


def test_elsewhere_a_stage_has_a_line_if_it_takes_a_second(capsys, monkeypatch):
    with Console() as console:
        for name, seconds in (("survey", 0.01), ("solve", 3.21)):
            console.event(Event("start", name))
            console.event(Event("note", name, message="iteration 1"))
            console.progress("pass", 1, 4)
            console.event(Event("done", name, seconds))
        console.event(Event("reused", "graph"))
        warnings.warn("careful", BigembedWarning, stacklevel=1)
        monkeypatch.setattr("bigembed.jobs.watching.console.PLAIN_SECONDS", 0.0)
        console.progress("pass", 2, 4)
    said = capsys.readouterr()
    assert said.out == "solve: done in 3.2 s\ngraph: pass: 2 of 4\n"
    assert said.err == "warning: careful\n"


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


def test_on_a_terminal_one_line_moves_and_is_gone_at_the_end(write_job, rows, tmp_path):
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


def test_ctrl_c_in_a_terminal_leaves_the_line_and_says_why(write_job, rows):
    said, status = in_terminal("run", write_job("pause = 9.0"), stop=True)
    assert status == 5
    assert "Traceback" not in said
    assert said.rstrip().endswith("the same command goes on from there")
    assert "mean" in said.rsplit("^C", 1)[-1]


@pytest.mark.cluster
def test_a_cluster_leaves_nothing_in_the_temporary_folder_and_is_stopped_without_a_word(write_job, rows, tmp_path):
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    started = command("run", write_job(), "--workers", 1, "--memory", "1 GiB")
    done = subprocess.run(started, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, os.listdir(tmp_path / "tmp")) == (0, []), done.stderr
    process = subprocess.Popen(
        [*started, "--fresh"], cwd=ROOT, env=environment, stderr=-1, stdout=-1, text=True, start_new_session=True
    )
    while not any("workers" in name for name in os.listdir(tmp_path / "tmp")):
        assert process.poll() is None
    timer = threading.Timer(0.4, os.killpg, (process.pid, signal.SIGINT))  # (its worker is starting)
    timer.start()
    _, errors = process.communicate()
    assert (process.returncode, len(errors.splitlines())) == (5, 1), errors
    assert os.listdir(tmp_path / "tmp") == []
