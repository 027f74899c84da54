"""The night in small: a store grows, jobs are called as a scheduler calls them, and are killed; nothing is lost,
nothing is placed twice, nothing differs from an undisturbed night."""

from __future__ import annotations

import signal
import time

import pytest

from bigembed.store.locks import holder
from tests.fault.night import STEPS, Call, Cluster, Killer, found, grow, insist, write_job

pytestmark = [pytest.mark.cluster]


@pytest.mark.slow
def test_an_undisturbed_night_extends_and_refreshes(undisturbed):
    due = [night[0] for night in undisturbed]
    assert 2 <= sum(due) < STEPS - 2, due  # both ways of a night are taken
    assert len(undisturbed[-1][2]) >= 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_night_with_kills(undisturbed, tmp_path):
    folder = tmp_path / "night"
    job = write_job(folder)
    statuses = []
    with Cluster(tmp_path) as cluster:
        killer = Killer(cluster, seed=20)
        for step in range(STEPS):
            grow(folder, step)
            if not step:
                statuses += insist("refresh", job, cluster.address, killer, ("job", "scheduler"), 8)[1]
            kinds = [("job", "worker"), ("scheduler",), ("worker", "job")][step % 3]
            statuses += insist("extend", job, cluster.address, killer, kinds)[1]
            code, seen = insist("audit", job, cluster.address, killer, ("job",) if step % 4 == 1 else (), 4)
            statuses += seen
            assert (code == 7) == undisturbed[step][0], step
            if code == 7:
                kinds = ("job", "worker", "scheduler")
                statuses += insist("refresh", job, cluster.address, killer, kinds, 9)[1]
            assert found(folder) == undisturbed[step][1:], step
        assert cluster.started["scheduler"] > killer.kills["scheduler"] > 0
    assert min(killer.kills.values()) >= 4, killer.kills
    assert statuses.count(-signal.SIGKILL) == killer.kills["job"]
    print(
        f"\nkills {killer.kills}, calls {len(statuses)}, statuses { {code: statuses.count(code) for code in statuses} }"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_overlapping_starts(undisturbed, tmp_path):
    folder = tmp_path / "twice"
    job = write_job(folder)
    grow(folder, 0)
    with Cluster(tmp_path) as cluster:
        for script in ("refresh", "extend"):
            if script == "extend":
                grow(folder, 1)
            first = Call(script, job, "--scheduler", cluster.address)
            deadline = time.monotonic() + 60
            while (owner := holder(folder / "growing.zarr")) is None and time.monotonic() < deadline:
                time.sleep(0.01)
            first.process.send_signal(signal.SIGSTOP)  # so that it is at work while the second one starts, however slow
            assert owner is not None
            assert owner.pid == first.process.pid
            for other in ("refresh", "extend"):
                if (folder / "growing.zarr" / "current.json").exists() or other == "refresh":
                    code, last, problems = Call(other, job, "--scheduler", cluster.address).finish()
                    assert code == 4, problems
                    assert f"process {first.process.pid}" in problems
                    assert last["status"] == 4
            first.process.send_signal(signal.SIGCONT)
            assert first.finish()[0] == 0
    coordinates, ranges, _ = found(folder)
    assert [part[:3] for part in ranges] == [(0, 600, "fitted"), (600, 930, "placed")]
    assert coordinates == undisturbed[1][1]
