"""The night in small in an object store, on a real S3 server that goes away for ten seconds and more."""

from __future__ import annotations

import time

import pytest

from bigembed.store import at, stored
from tests.fault.night import Call, Cluster, Killer, found, grow, insist, write_job
from tests.s3 import ABSENT, KEY, S3, SECRET, serving, weed

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.skipif(weed() is None, reason=ABSENT)]
STEPS = 7
OUTAGE = 10.0
OUTAGES = {0: "refresh", 2: "extend", 5: "audit"}
"""In which steps the server goes away while this script is at work."""


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path) as found:
        yield found


def outlive(script: str, job, address: str, server: S3) -> int:
    """Call a script, take the server away while it works, and see it through: no second call is needed."""
    call = Call(script, job, "--scheduler", address)
    assert call.at_work(60)
    began = time.monotonic()
    with server.away(OUTAGE):
        assert call.process.poll() is None, call.problems  # it waits
    away = time.monotonic() - began
    code, _, problems = call.finish()
    print(f"{script}: away for {away:.0f} s, exit status {code}, {time.monotonic() - began - away:.0f} s after")
    assert code in (0, 7), problems
    return code


@pytest.mark.timeout(1800)
def test_a_night_in_an_object_store(undisturbed, tmp_path, server):
    home = f"{server.url}/night"
    job = write_job(tmp_path / "night", home=home)
    with Cluster(tmp_path) as cluster:
        killer = Killer(cluster, seed=7)
        for step in range(STEPS):
            grow(home, step)
            outage = OUTAGES.get(step)
            if outage == "refresh":
                outlive("refresh", job, cluster.address, server)
            if outage == "extend":
                outlive("extend", job, cluster.address, server)
            kinds = [("job", "worker"), ("scheduler",), ("worker", "job")][step % 3]
            insist("extend", job, cluster.address, killer, kinds)
            code = outlive("audit", job, cluster.address, server) if outage == "audit" else None
            code = insist("audit", job, cluster.address)[0] if code is None else code
            assert (code == 7) == undisturbed[step][0], step
            if code == 7:
                insist("refresh", job, cluster.address, killer, ("job", "worker"), 9)
            assert found(home) == undisturbed[step][1:], step
    assert sum(killer.kills.values()) >= 8, killer.kills
    print(f"kills {killer.kills}")
    for file in stored(server.url):
        content = (at(server.url) / file.name).read_bytes()
        assert SECRET.encode() not in content
        assert KEY.encode() not in content
