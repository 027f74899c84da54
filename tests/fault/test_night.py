"""The night in small: a store grows, jobs are called as a scheduler calls them, and are killed; nothing is lost,
nothing is placed twice, nothing differs from an undisturbed night."""

from __future__ import annotations

import signal

import pytest

from tests.fault.night import STEPS, Cluster, Killer, found, grow, insist, write_job

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
