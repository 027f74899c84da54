"""Where the tasks of a job run: the table [cluster], who may speak to it, workers that fall silent."""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
import warnings
from dataclasses import asdict
from pathlib import Path

import dask
import pytest

from bigembed import errors
from bigembed.jobs.places import ClusterTable, parse_walltime
from bigembed.jobs.places.cluster import choose, client_security, cluster, is_open, no_security
from bigembed.jobs.places.slurm import lifetime
from bigembed.jobs.spec import parse_job
from bigembed.runtime import worker_monitor as module
from bigembed.runtime.outages import Outage
from bigembed.runtime.worker_monitor import WorkerMonitor

FILE = Path("/jobs/job.toml")
JOB = {"input": {"dataset": "digits"}, "method": {"name": "pca"}, "output": {"path": "run.zarr"}}
QUEUE = {"manager": "slurm", "workers": 4, "memory": "2 GiB", "walltime": "4h"}


def table(**keys):
    return parse_job(JOB | {"cluster": keys}, FILE).cluster


def problems_of(**keys):
    with pytest.raises(errors.JobError) as caught:
        table(**keys)
    return str(caught.value)


class TestClusterTable:
    """The table [cluster]: what goes together, and workers in a queue as far as no Slurm is needed."""

    def test_a_queue(self):
        found = table(
            **QUEUE, partition="long", workers_per_job=2, directives=["--qos=high", "-C avx512"], scratch="$TMP"
        )
        assert (found.walltime, found.patience, found.scratch) == (14_400, 3600.0, "$TMP")
        assert found.shared_folder == "/jobs"
        assert table(**QUEUE, shared_folder="../all").shared_folder == "/all"
        assert table(**QUEUE, no_workers_timeout=5).patience == 5
        assert table(workers=2).patience == 60
        assert choose(found, (10, 10), 100) == "slurm"

    def test_every_offender_is_listed(self):
        text = problems_of(
            manager="slurm", memory="2 GiB", workers=5, workers_per_job=2, address="tls://host:1", tls_ca="ca.pem",
            directives=["--mem=3G", "-p short", "-n4", "qos=high", "--time 3"],
        )  # fmt: skip
        for part in (
            "address, manager: one of them",
            "walltime: must be given with manager",
            "workers: a multiple of workers_per_job = 2, not 5",
            "directives: '--mem=3G'; say it with memory",
            "directives: '-p short'; say it with partition",
            "directives: '-n4'; say it with workers_per_job",
            "directives: 'qos=high'; one option of sbatch each",
            "directives: '--time 3'; say it with walltime",
        ):
            assert part in text
        assert "'--qos" not in problems_of(**QUEUE, directives=["--qos=high", "4"])
        text = problems_of(workers=2, partition="long", walltime="4h")
        assert 'partition, walltime: only with manager = "slurm"' in text
        assert "manager: input should be 'slurm', not 'pbs'" in problems_of(**QUEUE | {"manager": "pbs"})
        assert "'queue': unknown" in problems_of(**QUEUE, queue="long")
        assert "a manager's cluster makes its own" in problems_of(**QUEUE, tls_key="key.pem")

    def test_no_second_line_gets_into_a_job_script(self):
        assert "directives" in problems_of(**QUEUE, directives=["--qos=x\nrm -rf /"])
        assert "partition" in problems_of(**QUEUE, partition="x\ny")

    @pytest.mark.parametrize("text", ["1m", "20m", "1h", "1-00:00:00"])
    def test_workers_retire_before_the_wall_time(self, text):
        walltime = parse_walltime(text)
        mean, stagger = (int(word.removesuffix("s")) for word in lifetime(walltime)[1::2])
        assert 0.6 * walltime <= mean - stagger
        assert mean + stagger <= walltime - min(60, walltime // 10)

    def test_the_command_line_leads_to_a_running_cluster_instead(self, monkeypatch):
        from bigembed.jobs.arguments import Machines

        given = table(**QUEUE, partition="long").model_dump(exclude_unset=True)
        found = Machines(scheduler="tls://host:1").cluster(given)
        assert (found.manager, found.partition, found.address, found.workers) == (None, None, "tls://host:1", 4)
        assert Machines(workers=8).cluster(given).workers == 8
        with pytest.raises(errors.JobError, match="multiple"):
            Machines(workers=7).cluster(given | {"workers_per_job": 2})

    @pytest.mark.parametrize("module", ["dask_jobqueue", "cryptography"])
    def test_what_is_not_installed_is_named_with_its_extra(self, module, monkeypatch):
        monkeypatch.setitem(sys.modules, module, None)
        with (
            pytest.raises(errors.MissingExtraError, match=r'pip install "bigembed\[slurm\]"'),
            cluster(table(**QUEUE), "slurm"),
        ):
            pass

    def test_the_keyboard_stays_with_the_job(self):
        import signal

        from bigembed.jobs.places.slurm import _jobqueue

        before = signal.getsignal(signal.SIGINT)
        for name in [name for name in sys.modules if name.split(".")[0] == "dask_jobqueue"]:
            del sys.modules[name]
        assert _jobqueue().SLURMCluster
        assert signal.getsignal(signal.SIGINT) is before


class TestSecurity:
    """Who may speak to a running cluster: TLS from the job, the command line and Dask's settings; a warning without
    it."""

    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("tcp://10.0.0.7:8786", True),
            ("10.0.0.7:8786", True),
            ("tcp://scheduler:8786", True),
            ("tcp://localhost.example.org:8786", True),
            ("tcp://[fe80::1]:8786", True),
            ("tcp://0.0.0.0:8786", True),
            ("ws://scheduler:8786", True),
            ("ucx://scheduler:8786", True),
            ("tls://scheduler:8786", False),
            ("TLS://scheduler:8786", False),
            ("wss://scheduler:8786", False),
            ("inproc://10.0.0.7/1/1", False),
            ("tcp://127.0.0.1:8786", False),
            ("tcp://127.0.1.1:8786", False),
            ("tcp://[::1]:8786", False),
            ("localhost:8786", False),
        ],
    )
    def test_which_addresses_are_open(self, address, expected):
        assert is_open(address) is expected

    def test_an_open_cluster_is_a_warning_that_says_what_to_do(self):
        with pytest.warns(
            errors.OpenClusterWarning, match=r"can execute code.*make-certificates\.sh.*tls://.*--tls-ca"
        ) as caught:
            client_security(ClusterTable(address="tcp://192.0.2.1:8786"))
        assert len(caught) == 1
        assert issubclass(errors.OpenClusterWarning, errors.BigembedWarning)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client_security(ClusterTable(address="tcp://127.0.0.1:8786"))

    def test_the_warning_comes_before_anything_is_sent(self):
        table = ClusterTable(address="tcp://192.0.2.1.invalid:8786", no_workers_timeout=0.5)
        with pytest.warns(errors.OpenClusterWarning), pytest.raises(errors.ClusterError), cluster(table, "remote"):
            pass

    def test_what_the_job_does_not_give_comes_from_dask(self, tmp_path):
        for name in ("ca", "mine", "theirs", "key"):
            (tmp_path / name).write_text(name)
        theirs = {
            "distributed.comm.tls.ca-file": str(tmp_path / "ca"),
            "distributed.comm.tls.client.cert": str(tmp_path / "theirs"),
            "distributed.comm.tls.client.key": str(tmp_path / "key"),
        }
        address = "tls://scheduler:8786"
        with dask.config.set(theirs):
            found = client_security(ClusterTable(address=address))
            assert found.get_tls_config_for_role("client") == {
                "ca_file": str(tmp_path / "ca"),
                "cert": str(tmp_path / "theirs"),
                "key": str(tmp_path / "key"),
                "ciphers": None,
            }
            found = client_security(ClusterTable(address=address, tls_cert=str(tmp_path / "mine")))
            assert (found.tls_client_cert, found.tls_ca_file) == (str(tmp_path / "mine"), str(tmp_path / "ca"))
            assert found.require_encryption

    def test_certificates_that_are_not_there_are_named_before_a_connection_is_tried(self, tmp_path):
        (tmp_path / "ca.pem").write_text("")
        with pytest.raises(
            errors.JobError, match=r"needs certificates: tls_ca is not given; tls_cert is not given\. Give"
        ) as raised:
            client_security(ClusterTable(address="tls://scheduler:8786"))
        assert "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY" in str(raised.value)
        with pytest.raises(errors.JobError, match=r"tls_cert = .*nothing.pem: No such file.*"):
            client_security(
                ClusterTable(
                    address="tls://scheduler:8786",
                    tls_ca=str(tmp_path / "ca.pem"),
                    tls_cert=str(tmp_path / "nothing.pem"),
                )
            )

    def test_settings_for_clusters_beyond_this_host_do_not_reach_one_inside_it(self, tmp_path):
        elsewhere = str(tmp_path / "nothing.pem")
        settings = {"ca-file": elsewhere, "min-version": 1.3} | {
            f"{role}.{part}": elsewhere for role in ("scheduler", "worker", "client") for part in ("cert", "key")
        }
        with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in settings.items()}):
            found = no_security()
            for role in ("scheduler", "worker", "client"):
                assert found.get_connection_args(role)["ssl_context"] is None
            assert not found.require_encryption
            assert found.tls_min_version == ssl.TLSVersion.TLSv1_3

    @pytest.mark.cluster
    def test_an_embedded_cluster_starts_where_encryption_is_required(self, monkeypatch, tmp_path):
        settings = {
            "distributed.comm.require-encryption": True,
            "distributed.comm.tls.ca-file": str(tmp_path / "nothing.pem"),
            "distributed.comm.tls.worker.cert": str(tmp_path / "nothing.pem"),
            "distributed.comm.tls.scheduler.cert": str(tmp_path / "nothing.pem"),
        }
        for name, value in settings.items():
            monkeypatch.setenv("DASK_" + name.upper().replace(".", "__").replace("-", "_"), str(value))
        with dask.config.set(settings), cluster(ClusterTable(workers=1, memory=1 << 30), "embedded") as place:
            assert place.client.submit(pow, 2, 3).result(timeout=280) == 8


class Watched(WorkerMonitor):
    """A monitor over two workers that are not there: their heartbeats and their processor time are set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout: float = 40.0) -> None:
        self.clock, self.beats, self.times, self.asked, self.told = 0.0, {"a": 1.0, "b": 1.0}, {}, [], []
        monkeypatch.setattr(module.time, "monotonic", lambda: self.clock)
        known = {"status": "running", "scheduler": type("S", (), {"restart_workers": None})}
        client = type("Client", (), {**known, "subscribe_topic": print})
        super().__init__(
            client, timeout, lambda event: self.told.append((event.results["worker"], event.results["state"]))
        )

    def _heartbeats(self) -> dict[str, float]:
        return dict(self.beats)

    def _used(self, worker: str) -> float | None:
        return self.times.get(worker)

    def _ask(self, what: object, **named: object) -> None:
        self.asked.append(named["workers"])

    def passes(self, seconds: float, step: float = 5.0, busy: str = "", lively: str = "b") -> None:
        """Time, with a look every step; ``lively`` sends heartbeats meanwhile, ``busy`` uses its processor."""
        for _ in range(round(seconds / step)):
            self.clock += step
            self.beats |= dict.fromkeys(lively, self.clock)
            self.times |= dict.fromkeys(busy, self.clock)
            self.look()


class TestWorkerMonitor:
    """Which workers are taken for frozen, and what is reported and done then."""

    def test_a_silent_worker_is_reported_and_then_given_up(self, monkeypatch):
        watched = Watched(monkeypatch)
        watched.passes(10, lively="ab")
        watched.passes(5)
        assert watched.told == []
        watched.passes(10)
        assert watched.told == [("a", "silent")]
        assert watched.workers["a"].reported.endswith("Z")
        watched.passes(30)
        assert watched.told == [("a", "silent"), ("a", "given up")]
        assert watched.asked == [["a"]]
        del watched.beats["a"]
        watched.passes(60)
        assert len(watched.told) == 2
        assert len(watched.asked) == 1

    def test_one_that_computes_without_heartbeats_is_alive(self, monkeypatch):
        watched = Watched(monkeypatch)
        watched.times["a"] = 0.0
        watched.passes(600, busy="a")
        assert (watched.told, watched.asked) == ([], [])
        watched.passes(600)  # and then it is stuck
        assert watched.told[:2] == [("a", "silent"), ("a", "given up")]

    @pytest.mark.parametrize(("silent", "told"), [(0, []), (5, []), (10, [("a", "gone")]), (25, [("a", "gone")])])
    def test_one_whose_connection_breaks_before_it_is_reported_is_named(self, monkeypatch, silent, told):
        watched = Watched(monkeypatch, timeout=120.0)
        watched.passes(10, lively="ab")
        watched.passes(silent)
        del watched.beats["a"]
        watched.passes(5)
        assert watched.told == told
        watched.beats["a"] = watched.clock  # it is there again, as another process
        watched.passes(20, lively="ab")
        assert watched.told == told
        assert watched.asked == []

    def test_a_job_that_was_suspended_itself_accuses_nobody(self, monkeypatch):
        watched = Watched(monkeypatch)
        watched.passes(10, lively="ab")
        watched.clock += 3600
        watched.look()
        watched.passes(10, lively="ab")
        assert (watched.told, watched.asked) == ([], [])

    def test_two_monitors_of_one_client_hear_of_an_outage(self):
        class Client:
            """Like Dask's, one keeps the last handler of a topic only."""

            status, handler = "closed", staticmethod(print)

            def subscribe_topic(self, topic, handler):
                self.handler = handler

        client, heard = Client(), ([], [])
        monitors = [WorkerMonitor(client, 40.0, observer=events.append) for events in heard]
        client.handler((0.0, {"outage": asdict(Outage("s3://rows", 0.0, 180.0, "no answer"))}))
        for monitor in monitors:
            monitor.look()
        assert [len(events) for events in heard] == [1, 1]

    def test_an_answer_that_never_comes_is_not_waited_for_where_the_cluster_is_gone(self, monkeypatch):
        """Such as results that are fetched while the scheduler is stopped: whoever waits looks, and gives up."""
        monkeypatch.setattr(module, "TICK", 0.02)
        loop, ended = asyncio.new_event_loop(), threading.Event()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        looks = []

        async def never() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        def look() -> None:
            looks.append(len(looks))
            if len(looks) == 3:
                raise errors.InterruptedRun("gone")

        known = {"status": "running", "subscribe_topic": print, "loop": type("Loop", (), {"asyncio_loop": loop})}
        client = type("Client", (), known)
        with pytest.raises(errors.InterruptedRun, match="gone"):
            WorkerMonitor(client, 40.0).awaited(never, look)
        assert ended.wait(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        assert looks == [0, 1, 2]
