"""Block tasks on real clusters of processes: order, loss of workers, no workers, access, TLS addresses."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial

import dask
import numpy as np
import psutil
import pytest

from bigembed.errors import ClusterError, InterruptedRun, WorkerAccessError
from bigembed.jobs import planning as machine
from bigembed.jobs.places import ClusterTable, prove_access
from bigembed.jobs.places.cluster import choose, cluster
from bigembed.runtime import client_executor
from bigembed.runtime.blocks import map_blocks
from bigembed.runtime.client_executor import Advice, TaskMap
from tests.conformance.test_places import PlaceContract
from tests.executors import executor
from tests.integration import block_tasks as tasks
from tests.some import a_few

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def place():
    """Two worker processes."""
    with cluster(ClusterTable(workers=2, memory=1 << 30), "embedded") as found:
        yield found


@pytest.fixture(scope="module")
def of_a_running_scheduler(tmp_path_factory):
    """A scheduler, one worker, and who uses them."""
    folder = tmp_path_factory.mktemp("running")
    with (
        running(folder) as (_, address),
        working(folder, address),
        cluster(ClusterTable(address=address), "remote") as found,
    ):
        yield found


class TestEmbedded(PlaceContract):
    """Worker processes of this machine."""

    kind = "embedded"

    @pytest.fixture
    def place(self, place):
        return place


class TestRunningScheduler(PlaceContract):
    """A scheduler and a worker that were started by somebody."""

    kind = "remote"

    @pytest.fixture
    def place(self, of_a_running_scheduler):
        return of_a_running_scheduler


def test_one_thread_of_everything(place):
    with executor(place.executor):
        assert map_blocks(tasks.threads, [()]) == [("1", "1")]


def test_only_this_host_is_listened_to(place):
    ours = [one for one in psutil.Process().children(recursive=True) if one.pid not in STARTED]
    processes = [psutil.Process(), *ours]
    listening = [c.laddr.ip for p in processes for c in p.net_connections() if c.status == "LISTEN"]
    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_more_is_in_flight_when_workers_join_and_less_when_they_go(place, monkeypatch):
    there, seen = [1], []

    def progress(label, done, total):
        seen.append((done, len(tasks_of_map.pending)))
        there[0] = 5 if 10 <= done < 40 else 1

    monkeypatch.setattr(client_executor, "TICK", 0.01)
    monkeypatch.setattr(client_executor, "LEAST", 0.0)  # (a call a task)
    calls = [partial(tasks.square, i, 0.02) for i in range(120)]
    tasks_of_map = TaskMap(place.client, calls, "square", 60, progress, Advice(), place.monitor)
    monkeypatch.setattr(tasks_of_map, "_count_workers", lambda: there[0])
    assert tasks_of_map.run() == [i * i for i in range(120)]
    assert max(flying for done, flying in seen if done < 10) <= client_executor.A_WORKER
    assert max(flying for done, flying in seen) == 5 * client_executor.A_WORKER
    # (a busy machine hears of twenty tasks at once, and hands out twenty more before it counts again)
    assert max(flying for done, flying in seen if done > 100) <= client_executor.A_WORKER


def test_calls_that_take_little_go_together_and_the_last_ones_alone(place, monkeypatch):
    sizes, run = [], TaskMap._submit
    monkeypatch.setattr(TaskMap, "_submit", lambda self, tasks: sizes.extend(map(len, tasks)) or run(self, tasks))
    with executor(place.executor):
        for seconds, label in ((0.01, "short"), (0.2, "long")):
            sizes.clear()
            given = [(i, seconds) for i in range(40)]
            assert map_blocks(tasks.square, given, label=label) == [i * i for i in range(40)]
            assert sum(sizes) == 40
            assert sizes[0] == sizes[-1] == 1
            assert (max(sizes) > 1) == (seconds < client_executor.LEAST)


def test_results_are_kept_while_a_map_is_at_work_and_not_at_its_end_only(place, monkeypatch):
    kept, ahead = [], []
    monkeypatch.setattr(client_executor, "TICK", 0.05)
    calls = [partial(tasks.square, i, 0.1) for i in range(20)]

    def progress(label, done, total):
        ahead.append(done - len(kept))

    place.executor.run(calls, "kept", progress, lambda number, result: kept.append(number))
    assert sorted(kept) == list(range(20))
    assert max(ahead) <= 2 * client_executor.A_WORKER  # (what is in flight may come at once on a busy machine)


def test_where_handing_out_takes_longer_than_a_call_several_are_one_task(place, monkeypatch, tmp_path):
    monkeypatch.setattr(client_executor, "HANDED_OUT", 1e3)
    sizes, run = [], TaskMap._submit
    monkeypatch.setattr(TaskMap, "_submit", lambda self, tasks: sizes.extend(map(len, tasks)) or run(self, tasks))
    with executor(place.executor):
        given = [(i, 0.02) for i in range(60)]
        assert map_blocks(tasks.square, given, label="first") == [i * i for i in range(60)]
        assert sizes[0] == 1  # (nothing is known of them yet)
        assert max(sizes) > 2
        assert sum(sizes) == 60
        sizes.clear()
        map_blocks(tasks.square, [(3,)], label="failing")
        given = {"label": "failing", "folder": str(tmp_path)}
        assert map_blocks(tasks.fail_twice, [(i,) for i in range(8)], **given) == list(range(8))
        assert sizes[:2] == [1, 2]


@a_few(1, "size", [0, 100_000])
def test_tasks_that_kill_their_worker_once_are_repeated(place, tmp_path, size):
    """With them goes what a worker held for all tasks: large arguments are sent once."""
    given = {"folder": str(tmp_path), "table": np.zeros(size)}
    with executor(place.executor):
        assert map_blocks(tasks.die_once, [(i,) for i in range(6)], **given) == list(range(6))


def test_a_worker_that_takes_long_to_start_again_is_not_given_up(tmp_path):
    given = {"folder": str(tmp_path)}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),  # (of others' clusters)
        cluster(ClusterTable(workers=1, memory=1 << 30, no_workers_timeout=200), "embedded") as small,
        executor(small.executor),
    ):
        assert map_blocks(tasks.die_once, [(0,)], **given) == [0]


def test_a_worker_that_sees_another_file_system_is_named(place, tmp_path, monkeypatch):
    cut = tmp_path / "mine"
    cut.mkdir()
    monkeypatch.setattr("pathlib.Path.write_text", lambda self, text: len(text))
    with pytest.raises(WorkerAccessError, match="coordinating process wrote"):
        prove_access(place.client, cut, None)


def test_a_cluster_that_loses_its_workers_ends_with_an_error(place):
    with cluster(ClusterTable(workers=1, memory=1 << 30, no_workers_timeout=1), "embedded") as small:
        timer = threading.Timer(1.0, lambda: small.client.cluster.scale(0))
        timer.start()
        with executor(small.executor), pytest.raises(ClusterError, match=r"no worker for 1 s.*processes of this job"):
            map_blocks(tasks.square, [(i, 0.3) for i in range(100)])


def test_tasks_that_always_kill_are_given_up(place):
    with executor(place.executor), pytest.raises(ClusterError, match="out of memory"):
        map_blocks(tasks.die_always, [(1,)])


LEFT = """
from pathlib import Path
import dask
from distributed.diskutils import WorkSpace
from bigembed.jobs.places import ClusterTable
from bigembed.jobs.places.cluster import cluster
if __name__ == "__main__":
    with cluster(ClusterTable(workers=1, memory=1 << 30), "embedded"):
        left = WorkSpace(dask.config.get("temporary-directory")).new_work_dir(prefix="scheduler-")
        assert Path(left.dir_path).exists()
    assert not Path(left.dir_path).exists()
"""
"""A folder that is not released, as that of a scheduler that was stopped while it started."""


@pytest.mark.slow
def test_a_folder_that_dask_did_not_release_is_no_error_at_the_end(tmp_path):
    (tmp_path / "left.py").write_text(LEFT)
    done = subprocess.run([sys.executable, str(tmp_path / "left.py")], capture_output=True, text=True, check=True)
    assert done.stderr == ""


STARTED = set()
"""Processes of a scheduler and workers that stand for somebody else's."""


def start(*arguments):
    command = [sys.executable, "-m", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    STARTED.add(process.pid)
    return process


@contextmanager
def running(folder, file="scheduler.json"):
    """A scheduler process: it and its address."""
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(folder / file)]
    scheduler = start("distributed.cli.dask_scheduler", *options)
    try:
        deadline = time.monotonic() + 200
        while not (folder / file).exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.2)
        yield scheduler, json.loads((folder / file).read_text())["address"]
    finally:
        scheduler.kill()
        scheduler.wait()


@contextmanager
def working(folder, address):
    """A worker process of that scheduler."""
    options = ["--nthreads", "1", "--memory-limit", "700MiB", "--no-nanny", "--no-dashboard"]
    worker = start("distributed.cli.dask_worker", address, *options, "--local-directory", str(folder))
    try:
        with cluster(ClusterTable(address=address, no_workers_timeout=200), "remote"):
            pass  # (it is there)
        yield worker
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("bigembed.runtime.client_executor.ANSWER", 2.0)
    with ExitStack() as stack:
        scheduler, address = stack.enter_context(running(tmp_path))
        stack.enter_context(working(tmp_path, address))
        table = ClusterTable(address=address, no_workers_timeout=2)
        place = stack.enter_context(cluster(table, "remote"))
        stack.enter_context(executor(place.executor))
        threading.Timer(1.0, lambda: scheduler.send_signal(signal.SIGSTOP)).start()
        with pytest.raises(InterruptedRun, match=r"scheduler at tcp://.* does not answer.*run again"):
            map_blocks(tasks.square, [(i, 0.5) for i in range(100)])


def test_no_scheduler_at_the_address():
    table = ClusterTable(address="tcp://127.0.0.1:9", no_workers_timeout=1)
    with pytest.raises(ClusterError, match="no scheduler answers"), cluster(table, "remote"):
        pass


def test_choice():
    assert choose(ClusterTable(), (1000, 10), 40_000) == "process"
    assert choose(ClusterTable(workers=1), (1000, 10), 40_000) == "embedded"
    assert choose(ClusterTable(), (1000, 100_000), 400 << 20) == "embedded"
    assert choose(ClusterTable(), (10**6, 3), 12 * 10**6) == "embedded"
    assert choose(ClusterTable(address="tcp://x:1"), (10, 10), 100) == "remote"


@pytest.mark.slow
def test_a_cluster_that_does_not_close_leaves_the_loggers_of_others_as_they_were(monkeypatch):
    from distributed import LocalCluster

    close, left = LocalCluster.close, []

    def stuck(self, timeout=None):
        left.append(self)
        raise TimeoutError

    stream = logging.StreamHandler()
    logging.getLogger("distributed").addHandler(stream)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(LocalCluster, "close", stuck)
            with cluster(ClusterTable(workers=1, memory=1 << 30), "embedded"):
                assert stream.level > logging.CRITICAL
        assert stream.level == logging.NOTSET
    finally:
        logging.getLogger("distributed").removeHandler(stream)
        for each in left:
            close(each, 10)


def test_what_workers_print_is_logged_and_not_shown(capfd, caplog):
    with cluster(ClusterTable(workers=1, memory=1 << 30), "embedded") as found, executor(found.executor):
        caplog.set_level(logging.WARNING)
        assert map_blocks(tasks.cry, [(1,)]) == [1]
    assert "Traceback" not in capfd.readouterr().err
    assert "the worker processes printed:" in caplog.text
    assert "MemoryError: Unable to allocate internal buffer." in caplog.text


def test_what_workers_together_write_is_measured_and_remembered(of_a_running_scheduler, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = machine.shared_bandwidth(of_a_running_scheduler.client, tmp_path)
    assert 1e5 < found < 1e12
    monkeypatch.setattr(of_a_running_scheduler.client, "run", None)
    assert machine.shared_bandwidth(of_a_running_scheduler.client, tmp_path) == found
    monkeypatch.setattr(of_a_running_scheduler.client, "run", lambda *given, **named: {"a": 1.0, "b": OSError("no")})
    assert machine.shared_bandwidth(of_a_running_scheduler.client, tmp_path, renew=True) is None
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
