"""The Prometheus text file of a run, and Dask's performance report."""

from __future__ import annotations

import sys
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bigembed.errors import BigembedWarning, InterruptedRun, LockedError, MissingExtraError, PlanError
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.store.locks import hold


def samples(path):
    """Values by name and the labels that are not the run's."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("run", "method")}
            found[sample.name.removeprefix("bigembed_"), *labels.values()] = sample.value
    return found


def test_of_a_run(write_job, rows, tmp_path):
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
    assert 0 < found["memory_bytes", "measured", "total"] <= found["memory_bytes", "planned", "total"]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert 'run="' + str(tmp_path / "run.zarr") in path.read_text()


def test_the_last_success_outlives_failures(write_job, rows, tmp_path):
    path = tmp_path / "m.prom"
    options = RunOptions(metrics=path)
    with pytest.raises(PlanError):
        run_job(read_job(write_job(f"memory = {1 << 50}")), options)
    assert (samples(path)["run_exit_status",], samples(path)["run_state", "failed"]) == (3, 1)
    assert ("run_last_success_time_seconds",) not in samples(path)
    run_job(read_job(write_job()), options)
    success = samples(path)["run_last_success_time_seconds",]
    with pytest.raises(InterruptedRun):
        run_job(read_job(write_job("pause = 9.0")), RunOptions(metrics=path, deadline=time.time() + 0.7), fresh=True)
    found = samples(path)
    assert (found["run_exit_status",], found["run_state", "interrupted"]) == (5, 1)
    assert found["run_last_success_time_seconds",] == pytest.approx(success, abs=1.1)
    before = path.read_text()
    with hold(tmp_path / "run.zarr"), pytest.raises(LockedError):
        run_job(read_job(write_job()), options)
    assert path.read_text() == before


def test_a_performance_report_needs_a_cluster_and_bokeh(write_job, rows, tmp_path, monkeypatch):
    pytest.importorskip("bokeh")
    page = tmp_path / "report.html"
    with pytest.warns(BigembedWarning, match="runs in this process"):
        run_job(read_job(write_job()), RunOptions(performance_report=page))
    assert not page.exists()
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(MissingExtraError, match=r"bigembed\[performance\]"):
        run_job(read_job(write_job()), RunOptions(performance_report=page))


@pytest.mark.cluster
def test_a_performance_report_of_workers(write_job, rows, tmp_path):
    pytest.importorskip("bokeh")
    page = tmp_path / "pages" / "report.html"
    # (the method of these tests is not known in workers: its tasks are importable there, which is enough)
    run_job(read_job(write_job(cluster='workers = 1\nmemory = "1 GiB"')), RunOptions(performance_report=page))
    assert "Dask Performance Report" in page.read_text()
    assert [entry.name for entry in page.parent.iterdir()] == ["report.html"]
