"""Outages of a real S3 server, whole and in part: waited for, said while they last, and over when they are."""

from __future__ import annotations

import json
import signal
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

from bigembed.errors import InterruptedRun, UnreachableError
from bigembed.jobs.run import run_job
from bigembed.jobs.watching import RunOptions
from bigembed.jobs.watching.console import Console
from bigembed.jobs.watching.status import read_status
from bigembed.rows.opening import open_zarr
from bigembed.runtime import outages, using
from bigembed.runtime.blocks import map_blocks
from bigembed.runtime.client_executor import ClientExecutor
from bigembed.runtime.outages import stores
from bigembed.runtime.worker_monitor import WorkerMonitor
from bigembed.store import at, create, put, remove, requests, rewrite, stored
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from tests.job_files import job_in
from tests.s3 import ABSENT, proxied, weed
from tests.some import a_few

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(weed() is None, reason=ABSENT)]
ROWS = np.arange(40_000.0).reshape(-1, 8)


@pytest.fixture
def proxy(server, monkeypatch):
    monkeypatch.setattr(requests, "REPEATS", 0)  # (the library's own, which would take seconds)
    with proxied(server) as found:
        yield found
    stores.away.clear()


@pytest.fixture
def heard():
    found = []
    with stores.heard(found.append):
        yield found


def written_by_zarr(place):
    create_rows(place / "by_zarr", ROWS.shape, ROWS.dtype, 2_500)
    for start in (0, 2_500):
        write_rows(place / "by_zarr", start, ROWS[start : start + 2_500])
    return read_array(place / "by_zarr").tobytes()


REQUESTS = {
    "read": lambda place: read_array(place / "x.zarr").tobytes(),
    "opened": lambda place: open_zarr(place / "x.zarr").shape,
    "zarr writes": written_by_zarr,
    "list": lambda place: [file.name for file in stored(place / "x.zarr")],
    "folder": lambda place: sorted(map(str, (place / "x.zarr").iterdir())),
    "exists": lambda place: ((place / "x.zarr").is_dir(), (place / "none").exists()),
    "put": lambda place: put(place / "file", b"1") or (place / "file").read_bytes(),
    "create": lambda place: create(place / "new", b"1") or (place / "new").read_bytes(),
    "rewrite": lambda place: put(place / "old", b"1") or rewrite(place / "old", b"2") or (place / "old").read_bytes(),
    "delete": lambda place: put(place / "gone", b"1") or remove(place / "gone") or (place / "gone").exists(),
    "copy": lambda place: (place / "x.zarr/zarr.json").copy_to(place / "c") or len((place / "c").read_bytes()),
}


@a_few(2, "mode", ["503", "cut", "refuse", "429", "drop", "cut listings"])
def test_every_request_is_repeated_while_the_store_is_in_trouble(server, proxy, heard, mode):
    place = at(f"{server.url}/{mode.replace(' ', '-')}")
    write_array(place / "x.zarr", ROWS)
    expected = {name: request(place) for name, request in REQUESTS.items()}
    remove(place / "new")
    for name, request in REQUESTS.items():
        heard.clear()
        found = []
        with proxy.trouble(mode):
            thread = threading.Thread(target=lambda: found.append(request(place)))  # noqa: B023
            thread.start()
            end = time.monotonic() + 60
            while not heard and thread.is_alive() and time.monotonic() < end:
                time.sleep(0.02)
            if mode != "cut listings" or name in ("list", "folder", "exists", "delete"):
                assert heard, name
                assert thread.is_alive(), name
                assert heard[0].store == server.url
                assert heard[0].ended is None
                assert heard[0].until == pytest.approx(heard[0].since + 180)
                assert "retr" not in heard[0].error
        thread.join(60)
        assert found == [expected[name]], name
        assert not stores.away
        assert not heard or heard[-1].ended is not None, name


def test_a_store_that_says_nothing_is_away(server, proxy, heard, monkeypatch):
    monkeypatch.setattr(outages, "SILENT", 1.0)
    place = at(f"{server.url}/silent")
    put(place, b"1")
    threads = [threading.Thread(target=place.read_bytes) for _ in range(3)]
    with proxy.trouble("hang"):
        for thread in threads:
            thread.start()
        end = time.monotonic() + 30
        while not heard and time.monotonic() < end:
            time.sleep(0.05)
        monkeypatch.setattr(outages, "SILENT", 3600.0)  # (on a busy machine the last answer is late)
    for thread in threads:
        thread.join()
    assert heard[0].error == "no answer"
    assert [one.ended is None for one in heard] == [True, False]


def test_what_the_store_will_never_do_is_not_repeated(server, proxy, heard):
    with proxy.trouble("400"), pytest.raises(UnreachableError):
        put(at(f"{server.url}/x"), b"1")
    with proxy.trouble("501"), pytest.raises(UnreachableError):
        put(at(f"{server.url}/x"), b"1")
    assert not heard


def test_after_some_minutes_it_is_given_up_by_all_at_once(server, proxy, heard, monkeypatch):
    monkeypatch.setattr(outages, "PATIENCE", timedelta(seconds=3))
    with proxy.trouble("refuse"):
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(UnreachableError, match="does not answer"):
                put(at(f"{server.url}/x"), b"1")
            took = time.monotonic() - began
        assert took < 3  # (the second waits only for the library itself)
    put(at(f"{server.url}/x"), b"1")
    assert [one.ended is None for one in heard] == [True, False]


def test_whoever_does_not_wait_neither_waits_nor_says_anything(server, proxy, heard):
    with proxy.trouble("refuse"), stores.without_waiting(), pytest.raises(UnreachableError):
        put(at(f"{server.url}/x"), b"1")
    assert not heard


def test_an_outage_is_over_when_no_request_is_left_that_failed(server, proxy, heard):
    place = at(f"{server.url}/both")
    put(place, b"1")
    with proxy.trouble("cut listings"):
        listing = threading.Thread(target=lambda: stored(place))
        listing.start()
        end = time.monotonic() + 60
        while not heard and time.monotonic() < end:
            time.sleep(0.02)
        assert place.read_bytes() == b"1"
        assert [one.ended for one in heard] == [None]
        assert stores.away
    listing.join()
    assert [one.ended is None for one in heard] == [True, False]
    assert not stores.away


@pytest.mark.slow
def test_an_outage_that_only_a_worker_meets_is_told_by_it(server, proxy):
    from distributed import Client, LocalCluster

    write_array(f"{server.url}/x.zarr", ROWS)
    events = []

    def observe(event):
        events.append(event)
        if event.results["ended"] is None:
            proxy.listen()

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        executor = ClientExecutor(client, 60, monitor=WorkerMonitor(client, 120.0, observe))
        with using(executor=executor):
            map_blocks(read_array, [(f"{server.url}/x.zarr", 0, 10)])
            proxy.refuse()
            (rows,) = map_blocks(read_array, [(f"{server.url}/x.zarr", 0, 20)])
            end = time.monotonic() + 10
            while len(events) < 2 and time.monotonic() < end:
                executor.monitor.look()
                time.sleep(0.05)
    np.testing.assert_array_equal(rows, ROWS[:20])
    assert [event.results["ended"] is None for event in events] == [True, False]


@pytest.mark.parametrize("home", ["disk", "store"])
def test_a_job_that_is_stopped_while_it_waits_stops(server, proxy, tmp_path, home):
    rows = f"{server.url}/stopped-{home}.zarr"
    write_array(rows, ROWS)
    run = at(f"{server.url}/stopped-{home}") if home == "store" else tmp_path
    job = job_in(tmp_path, source=f'path = "{rows}"', path=f"{run}/run.zarr")

    def observe(event):
        if event.kind == "start" and event.stage == "moments":
            proxy.refuse()
        if event.kind == "store":
            signal.raise_signal(signal.SIGTERM)

    began = time.monotonic()
    with pytest.raises(InterruptedRun, match="stopped by SIGTERM"):
        run_job(job, RunOptions(observe, log=str(tmp_path / "copy.jsonl")))
    assert time.monotonic() - began < 60
    assert stores.patient
    proxy.listen()
    if home == "disk":  # (in the store nothing could be written; who looks finds that the process has ended)
        assert read_status(run / "run.zarr")["state"] == "interrupted"
        assert read_status(run / "run.zarr")["error"]["status"] == 5
        assert not run_job(job, RunOptions())["unchanged"]


@a_few(1, "home", ["store", "disk"])
def test_a_job_says_that_it_waits_while_it_waits(server, proxy, tmp_path, capsys, home):
    rows = f"{server.url}/rows-{home}.zarr"
    write_array(rows, ROWS)
    run = at(f"{server.url}/home-{home}") if home == "store" else tmp_path
    job = job_in(tmp_path, source=f'path = "{rows}"', path=f"{run}/run.zarr")
    events, standing, metrics, quiet = [], [], [], tmp_path / "job.prom"

    def both(event):
        console.event(event)
        observe(event)

    def observe(event):
        events.append(event)
        if event.kind == "start" and event.stage == "moments":
            proxy.refuse()
        if event.kind == "store" and event.results["ended"] is None:
            if home == "disk":
                standing.append(read_status(run / "run.zarr"))
            metrics.append(quiet.read_text())
            threading.Timer(1, proxy.listen).start()

    console = Console()
    options = RunOptions(both, metrics=quiet, log=str(tmp_path / "copy.jsonl"))
    run_job(job, options)
    assert capsys.readouterr().out.count("has not answered since") == 1
    away, back = [event for event in events if event.kind == "store"]
    assert away.message.startswith(f"{server.url} has not answered since ")
    assert "requests are repeated until" in away.message
    assert "answers again" in back.message
    (outage,) = read_status(run / "run.zarr")["outages"]
    assert outage["ended"]
    assert outage["store"] == server.url
    if home == "disk":
        assert standing[0]["outages"] == [outage | {"ended": None, "error": away.results["error"]}]
        assert standing[0]["state"] == "running"
    assert 'stores_away{method="pca"' in metrics[0]
    assert " 1.0" in next(line for line in metrics[0].splitlines() if line.startswith("bigembed_stores_away{"))
    logged = [json.loads(line) for line in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert [line["message"] for line in logged if line.get("event") == "store"] == [away.message, back.message]
    assert (run / "run.zarr/log.jsonl").read_text().count('"event": "store"') == 2
