"""A worker that is frozen for good: told, given up, replaced; the results are the same bytes. A busy one is left."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import psutil
import pytest

from bigembed.jobs.places import ClusterTable
from bigembed.jobs.places.cluster import cluster
from bigembed.runtime import using
from bigembed.runtime.blocks import map_blocks
from tests.executors import executor
from tests.integration import block_tasks as tasks
from tests.integration.test_job_process import LONG, start, wait_for, write

pytestmark = pytest.mark.cluster


def workers(pid: int | None = None) -> list[psutil.Process]:
    """The worker processes of a job."""
    found = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # (one that ended has no command line)
            found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


@pytest.mark.slow
def test_results_that_a_frozen_worker_holds_are_computed_again_and_a_busy_worker_is_left():
    told, others = [], workers()
    with (
        using(observer=told.append),
        cluster(ClusterTable(workers=2, memory=1 << 30, frozen_timeout=2.0), "embedded") as place,
        executor(place.executor),
    ):
        assert map_blocks(tasks.hold_the_interpreter, [(2.5,)] * 2) == [True] * 2
        assert told == []
        mine = [worker for worker in workers() if worker not in others]
        seen = threading.Timer(1.0, mine[0].send_signal, [signal.SIGSTOP])
        seen.start()
        assert map_blocks(tasks.square, [(i, 0.1) for i in range(40)]) == [i * i for i in range(40)]
    [lost] = [event.results["worker"] for event in told if event.results["state"] == "given up"]
    assert [event.results["state"] for event in told if event.results["worker"] == lost] == ["silent", "given up"]


@pytest.mark.slow
def test_a_frozen_worker_does_not_outlive_its_job(tmp_path):
    job = start("run", write(tmp_path, 0.3))
    wait_for(job, tmp_path, "mean")
    found = workers(job.pid)
    found[0].send_signal(signal.SIGSTOP)
    job.kill()
    job.communicate()
    assert psutil.wait_procs(found, timeout=LONG)[1] == []
