"""deploy/tls/make-certificates.sh: what it writes, and a cluster that lets in nobody without a certificate."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from tests.deploy.processes import DEPLOY, command, free_port, listening, run, started, wait_until

SCRIPT = DEPLOY / "tls" / "make-certificates.sh"
pytestmark = [
    pytest.mark.skipif(not SCRIPT.exists(), reason="needs the repository"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"),
]


def make(folder, *hosts, **variables):
    return run([SCRIPT, folder, *hosts], folder.parent, **variables)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two authorities: the cluster's, and a stranger's."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ours", "other"):
        done = make(folder / name, "scheduler", "10.1.2.3", "fe80::1", "*.dask.svc")
        assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_shell_code_is_sound():
    done = run([command("shellcheck"), "--enable=all", "--exclude=SC2250", SCRIPT], DEPLOY)  # SC2250: $x, not ${x}
    assert done.returncode == 0, done.stdout


def test_certificate_of_the_hosts_by_an_authority_whose_key_is_gone(certificates):
    ours = certificates / "ours"
    assert sorted(path.name for path in ours.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    assert stat.S_IMODE((ours / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    show = run(["openssl", "x509", "-in", ours / "cert.pem", "-noout", "-ext", "subjectAltName"], ours).stdout
    names = {name.strip() for name in show.splitlines()[1].split(",")}
    assert names == {
        *("DNS:localhost", "IP Address:127.0.0.1", "DNS:scheduler", "IP Address:10.1.2.3"),
        *("IP Address:FE80:0:0:0:0:0:0:1", "DNS:*.dask.svc"),
    }
    checks = ["openssl", "verify", "-x509_strict", "-verify_hostname", "scheduler"]
    assert run([*checks, "-CAfile", ours / "ca.pem", ours / "cert.pem"], ours).returncode == 0
    assert run([*checks, "-CAfile", certificates / "other" / "ca.pem", ours / "cert.pem"], ours).returncode == 2
    assert run(["openssl", "x509", "-checkend", 824 * 86400, "-in", ours / "cert.pem"], ours).returncode == 0
    assert run(["openssl", "x509", "-checkend", 826 * 86400, "-in", ours / "cert.pem"], ours).returncode == 1


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem"])
def test_nothing_is_overwritten(tmp_path, name):
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / name).write_text("mine")
    done = make(tmp_path / "tls")
    assert done.returncode == 2
    assert f"{name} exists" in done.stderr
    assert [(path.name, path.read_text()) for path in (tmp_path / "tls").iterdir()] == [(name, "mine")]


@pytest.mark.parametrize("host", ["a b", "x,DNS:evil", "", "12", "a\nb", "$(id)", "1.2.3.4.5"])
def test_what_is_no_host_is_refused(tmp_path, host):
    done = make(tmp_path / "tls", host)
    assert done.returncode == 2
    assert done.stdout == ""
    assert not (tmp_path / "tls").exists() or not list((tmp_path / "tls").iterdir())


def test_days_and_usage(tmp_path):
    assert make(tmp_path / "tls", DAYS="soon").returncode == 2
    assert run([SCRIPT], tmp_path).returncode == run([SCRIPT, "--help"], tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []
    assert make(tmp_path / "tls", DAYS="2").returncode == 0
    end = ["openssl", "x509", "-in", tmp_path / "tls" / "cert.pem", "-checkend"]
    assert run([*end, 86400], tmp_path).returncode == 0
    assert run([*end, 3 * 86400], tmp_path).returncode == 1


# ------------------------------------------------------------------------------- a real cluster


@pytest.fixture(scope="module")
def cluster(certificates, tmp_path_factory):
    """Port of a scheduler with one worker that speak TLS on this host."""
    folder, ours, port = tmp_path_factory.mktemp("cluster"), certificates / "ours", free_port()
    tls = ["--tls-ca-file", ours / "ca.pem", "--tls-cert", ours / "cert.pem", "--tls-key", ours / "key.pem"]
    dask = [sys.executable, "-m", "dask"]
    bound = ["--host", "127.0.0.1", "--no-dashboard", *tls]
    with started([*dask, "scheduler", "--protocol", "tls", "--port", port, *bound], folder):
        wait_until(lambda: listening(port), "no scheduler", folder)
        address = f"tls://127.0.0.1:{port}"
        with started([*dask, "worker", address, "--nthreads", 1, "--memory-limit", "700MiB", *bound], folder):
            yield port


@pytest.fixture
def job(tmp_path):
    """A small job that takes any cluster."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(500, 2)).astype("f4"))
    (tmp_path / "job.toml").write_text(
        '[input]\npath = "rows.npy"\n[method]\nname = "pca"\nn_components = 2\n'
        '[output]\npath = "run.zarr"\n[cluster]\nno_workers_timeout = 200\n'
    )
    return tmp_path / "job.toml"


def options(folder):
    return ["--tls-ca", folder / "ca.pem", "--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"]


def bigembed(*words):
    """The command, in this process."""
    return CliRunner().invoke(app, [*map(str, words)])


def test_a_job_runs_over_tls(cluster, job, certificates):
    found = bigembed("run", job, "--scheduler", f"tls://127.0.0.1:{cluster}", *options(certificates / "ours"))
    assert found.exit_code == 0, found.stderr
    assert found.stderr == ""
    assert bigembed("verify", job.parent / "run.zarr").exit_code == 0


def test_without_a_certificate_and_with_a_strangers_the_job_does_not_begin(cluster, job, certificates):
    text = job.read_text().replace("timeout = 200", "timeout = 4")
    job.write_text(text)
    there = ["run", job, "--scheduler", f"tls://127.0.0.1:{cluster}"]
    found = bigembed(*there)
    assert found.exit_code == 2
    assert "tls_ca is not given; tls_cert is not given" in found.stderr
    found = bigembed(*there, *options(certificates / "other"))
    assert found.exit_code == 1
    assert "no scheduler answers" in found.stderr
    assert bigembed(*there[:-1], f"tcp://127.0.0.1:{cluster}").exit_code == 1
    assert not (job.parent / "run.zarr" / "manifest").exists()


def heard(port, folder=None):
    """What the scheduler says first to somebody with this certificate, whoever the scheduler is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if folder is not None:
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as sealed:
        return sealed.recv(1)


def test_the_scheduler_itself_refuses(cluster, certificates):
    with pytest.raises((ssl.SSLError, ConnectionError), match=r"(?i)certificate required|reset"):
        heard(cluster)
    with pytest.raises((ssl.SSLError, ConnectionError), match=r"(?i)unknown ca|reset"):
        heard(cluster, certificates / "other")
    assert heard(cluster, certificates / "ours")
