"""Who may speak to a running cluster: TLS from the job, the command line and Dask's settings; a warning without it."""

from __future__ import annotations

import ssl
import warnings

import dask
import pytest

from bigembed.errors import BigembedWarning, ClusterError, JobError, OpenClusterWarning
from bigembed.jobs.places.cluster import cluster
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.embedded import client_security, is_open, no_security


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
def test_which_addresses_are_open(address, expected):
    assert is_open(address) is expected


def test_an_open_cluster_is_a_warning_that_says_what_to_do():
    with pytest.warns(OpenClusterWarning, match=r"can execute code.*make-certificates\.sh.*tls://.*--tls-ca") as caught:
        client_security(ClusterTable(address="tcp://192.0.2.1:8786"))
    assert len(caught) == 1
    assert issubclass(OpenClusterWarning, BigembedWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client_security(ClusterTable(address="tcp://127.0.0.1:8786"))


def test_the_warning_comes_before_anything_is_sent():
    table = ClusterTable(address="tcp://192.0.2.1.invalid:8786", no_workers_timeout=0.5)
    with pytest.warns(OpenClusterWarning), pytest.raises(ClusterError), cluster(table, "remote"):
        pass


def test_what_the_job_does_not_give_comes_from_dask(tmp_path):
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


def test_certificates_that_are_not_there_are_named_before_a_connection_is_tried(tmp_path):
    (tmp_path / "ca.pem").write_text("")
    with pytest.raises(
        JobError, match=r"needs certificates: tls_ca is not given; tls_cert is not given\. Give"
    ) as raised:
        client_security(ClusterTable(address="tls://scheduler:8786"))
    assert "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY" in str(raised.value)
    with pytest.raises(JobError, match=r"tls_cert = .*nothing.pem: No such file.*"):
        client_security(
            ClusterTable(
                address="tls://scheduler:8786",
                tls_ca=str(tmp_path / "ca.pem"),
                tls_cert=str(tmp_path / "nothing.pem"),
            )
        )


def test_settings_for_clusters_beyond_this_host_do_not_reach_one_inside_it(tmp_path):
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
def test_an_embedded_cluster_starts_where_encryption_is_required(monkeypatch, tmp_path):
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
