"""Every place where the tasks of a job run: what it says of itself, its executor, access, and that nothing stays.

A new kind of place inherits :class:`PlaceContract` beside its own tests: the embedded cluster and a running scheduler
in ``tests/integration/test_cluster.py``, the workers that Slurm queues, where it is installed, in
``tests/deploy/test_slurm.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bigembed.errors import WorkerAccessError
from bigembed.jobs.places import ClusterTable, Place
from bigembed.jobs.places.cluster import KINDS, cluster
from bigembed.runtime import using
from bigembed.runtime.blocks import map_blocks
from tests.integration import block_tasks as tasks


class PlaceContract:
    """What every place keeps; a subclass gives its ``kind`` and the fixture ``place``."""

    kind = ""

    @pytest.fixture
    def place(self) -> Any:
        raise NotImplementedError

    def test_it_is_of_its_kind_and_says_what_a_plan_needs(self, place: Place) -> None:
        known = KINDS[self.kind]
        assert place.kind == self.kind
        assert place.workers >= 1
        assert place.memory_limit is None or place.memory_limit > 0
        assert (place.client is None) == known.inside == place.executor.in_this_process == (known.start is None)
        assert str(place.workers) in known.words.format(workers=place.workers) or known.inside
        assert "{" not in known.more.format(mib=700)
        known.require()

    def test_its_executor_runs_tasks_in_order(self, place: Place) -> None:
        with using(executor=place.executor):
            assert map_blocks(tasks.square, [(number,) for number in range(12)]) == [n * n for n in range(12)]

    def test_access_is_proved_leaves_nothing_and_names_what_is_not_there(self, place: Place, tmp_path: Path) -> None:
        source = tmp_path / "rows.npy"
        source.write_bytes(b"x")
        place.prove_access(tmp_path, str(source))
        assert list(tmp_path.iterdir()) == [source]
        if not KINDS[self.kind].inside:
            with pytest.raises(WorkerAccessError, match=r"(?s)worker (tcp|tls).*nothing\.npy: cannot read the input"):
                place.prove_access(tmp_path, str(tmp_path / "nothing.npy"))
            with pytest.raises(WorkerAccessError, match="cannot write"):
                place.prove_access(tmp_path / "nowhere", None)
            assert list(tmp_path.iterdir()) == [source]


class TestThisProcess(PlaceContract):
    """Small jobs without a cluster."""

    kind = "process"

    @pytest.fixture
    def place(self) -> Any:
        with cluster(ClusterTable(), "process") as found:
            yield found
