"""Structured logs of a run: one JSON object a line, placed by run, stage and block."""

from __future__ import annotations

import json
import logging
import time

import numpy as np
import pytest

from bigembed.errors import BigembedWarning, InterruptedRun
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching import logs as places
from bigembed.jobs.watching.logs import JsonLines, logs
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.runtime.runtime import Event


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_keeps_its_log_and_goes_on_with_it(write_job, rows, tmp_path):
    root = tmp_path / "run.zarr"
    with pytest.warns(BigembedWarning, match="mind"):
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
    with pytest.raises(InterruptedRun):
        run_job(
            read_job(
                write_job("pause = 9.0\nn_components = 3"),
            ),
            RunOptions(deadline=time.time()),
            fresh=True,
        )
    assert len(lines_of(root / "log.jsonl")) == len(lines)  # over before it began
    with pytest.raises(InterruptedRun):
        run_job(read_job(write_job("pause = 9.0")), RunOptions(deadline=time.time() + 3), fresh=True)
    last = lines_of(root / "log.jsonl")[-1]
    assert (last["event"], last["exit_status"], last["stage"]) == ("interrupted", 5, "mean")


def test_stderr_is_a_place_and_handlers_do_not_stay(capsys, tmp_path):
    before = list(logging.getLogger("bigembed").handlers)
    with logs(tmp_path, "-", None) as told:
        told.event(Event("start", "search"))
        logging.getLogger("distributed.worker").warning("lost %s", "x", extra={"block": 7})
        told.say("odd", value=np.float64("nan"), count=np.int64(3))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["message"], line["stage"], line["block"]) for line in lines] == [
        ("stage start", "search", None), ("lost x", "search", 7), ("odd", "search", None),
    ]  # fmt: skip
    assert (lines[2]["value"], lines[2]["count"]) == (None, 3)
    assert logging.getLogger("bigembed").handlers == before


def test_blocks_are_told_now_and_then(tmp_path, monkeypatch):
    with logs(tmp_path, tmp_path / "log") as told:
        told.event(Event("start", "search"))
        told.progress("near", 1, 9)
        monkeypatch.setattr(places, "SECONDS", 0.0)
        told.progress("near", 2, 9)
    assert [(line["block"], line.get("total")) for line in lines_of(tmp_path / "log")] == [(None, None), (2, 9)]


def test_a_traceback_stays_in_its_line():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        import sys

        record = logging.LogRecord("bigembed", logging.ERROR, "f", 1, "bad %d", (3,), sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    assert "ValueError: two" in json.loads(line)["traceback"]


def test_a_cluster_that_silences_its_loggers_does_not_silence_a_log(tmp_path):
    from distributed.utils import silence_logging_cmgr

    with logs(tmp_path, tmp_path / "log.jsonl") as told, silence_logging_cmgr(logging.CRITICAL):
        told.say("stage done")
        logging.getLogger("distributed.scheduler").warning("lost")
    assert [line["message"] for line in lines_of(tmp_path / "log.jsonl")] == ["stage done", "lost"]


def test_a_torn_line_is_ended_before_others_follow(tmp_path):
    path = tmp_path / "log.jsonl"
    for before, lines in (("", 1), ('{"whole": 1}\n', 2), ('{"torn": ', 2)):
        path.write_text(before)
        with logs("run", path) as told:
            told.say("hello")
        found = path.read_text().splitlines()
        assert len(found) == lines
        assert json.loads(found[-1])["message"] == "hello"
