"""Hosts that share nothing but an object store: the cables between them, and jobs on them."""

from __future__ import annotations

import json

import pytest

from tests.fault.deployment import Reference, deployed
from tests.fault.hosts import ROOT, Network, lacking, wait_until
from tests.s3 import ABSENT, weed

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(lacking() is not None, reason=str(lacking()))]
RATE, LATENCY, BYTES = 1e8, 0.02, 2 << 20
LISTEN = """
import socket
with socket.create_server(("0.0.0.0", 5000)) as server:
    print("listens", flush=True)
    for _ in range(3):
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            continue
        connection.sendall(b"all")
"""
SEND = """
import json, socket, sys, time
found = []
for count in (0, 0, int(sys.argv[2])):
    began = time.perf_counter()
    with socket.create_connection((sys.argv[1], 5000)) as connection:
        found.append(time.perf_counter() - began)
        connection.sendall(bytes(count))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(3)
    found.append(time.perf_counter() - began)
print(json.dumps(found))
"""
REACH = "import socket, sys; socket.create_connection((sys.argv[1], 5000), timeout=0.5)"
LOOK = """
import os, socket, sys
seen = []
for folder in (".", "/dev/shm", "/tmp"):
    seen.append("mine" in os.listdir(folder))
    open(os.path.join(folder, "mine"), "w").close()
processes = [name for name in os.listdir("/proc") if name.isdigit()]
print(socket.gethostname(), *seen, os.access(sys.argv[1], os.W_OK), len(processes) < 10)
"""


def test_a_cable_has_its_rate_and_latency_and_a_host_its_own_folder(tmp_path):
    with Network(tmp_path, RATE, LATENCY) as network:
        one, other = network.host("one"), network.host("other")
        server = one.python("server", "-c", LISTEN)
        wait_until(lambda: "listens" in server.said(), "the server listens", 20, server)
        *_, connected, _, _, sent = json.loads(other.does("-c", SEND, one.address, str(BYTES)))
        assert connected >= 2 * LATENCY  # (how much later it comes, is up to this machine)
        assert sent > 8 * BYTES / RATE + 3 * LATENCY  # (there, and the answer; connected before)
        assert BYTES < network.switch.bytes["other", "one"] < 1.1 * BYTES
        assert network.switch.bytes["one", "other"] < 0.1 * BYTES
        other.cut()
        with pytest.raises(RuntimeError, match="timed out"):
            other.does("-c", REACH, one.address)
        assert network.switch.dropped["no cable"]
        for host in (one, other):
            said = host.does("-c", LOOK, str(ROOT)).split()
            assert said == [host.name, "False", "False", "False", "False", "True"]
        assert (one.own / "mine").exists()
        assert not (tmp_path / "hosts" / "mine").exists()
    assert not server.runs()


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.skipif(weed() is None, reason=ABSENT)
@pytest.mark.timeout(900)
def test_a_job_by_the_store_alone_and_without_one_of_its_workers(tmp_path, request):
    compiled = request.config.cache.mkdir("compiled-for-hosts")
    reference = Reference(tmp_path / "reference", 1_200, 400, compiled)
    expected = {name: reference.run(name) for name in ("pca", "diffusion_map")}
    (tmp_path / "net").mkdir()
    with deployed(tmp_path / "net", reference, 2, 1e9, 1e-3) as deployment:
        for name, digests in expected.items():
            job = deployment.run(name, name)
            assert job.end()[0] == 0, job.messages()
            assert deployment.published(job) == digests
        lost = deployment.workers[0]
        deployment.cluster["frozen_timeout"] = 20
        job = deployment.run("diffusion_map", "without-one")
        job.reaches("solve")
        lost.cut()
        assert job.end()[0] == 0, job.messages()
        assert deployment.published(job) == expected["diffusion_map"]
        assert f"worker tcp://{lost.address}:" in job.messages()
