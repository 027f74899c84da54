"""A solve whose vectors are in the coordinating process while the workers idle, or in the workers: the same bytes,
stopped, resumed, whatever becomes of a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from scipy import sparse

import bigembed as be
from bigembed.errors import ClusterError, ComponentsWarning
from bigembed.estimator import graph_input as given_weights
from bigembed.jobs.places import ClusterTable, Place
from bigembed.jobs.places.cluster import cluster
from bigembed.maps.walk import spectral
from bigembed.runtime import using
from bigembed.runtime.blocks import pinned
from bigembed.runtime.client_executor import ClientExecutor
from bigembed.store import exchange as exchanges
from bigembed.store import spaces as held_space
from bigembed.store.exchange import Exchange
from bigembed.store.worker_space import WorkerSpace
from tests.blocks import blocks_of
from tests.conformance import test_spaces as suite
from tests.operator_views import memory_matrix

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
ROOM = 1 << 30
HERE, WORKERS, FILES = "in the memory of this process", "in the memory of the workers", "in files"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Two worker processes."""
    with cluster(ClusterTable(workers=2, memory=1 << 30), "embedded") as found:
        yield found


@pytest.fixture(scope="module")
def rows() -> Any:
    """A ring in the plane, 2200 points of some width."""
    random = np.random.default_rng(0)
    angle = random.uniform(0, 2 * np.pi, 2200)
    return ((1 + 0.1 * random.random(2200)) * np.stack([np.cos(angle), np.sin(angle)])).T.astype(np.float32)


@pytest.fixture(scope="module")
def weights(rows: Any) -> Any:
    """Heat kernel weights of its nearest neighbors."""
    from scipy.spatial import cKDTree

    near, ids = cKDTree(rows).query(rows, 9)
    source = np.repeat(np.arange(len(rows)), 9)
    half = sparse.csr_array((np.exp(-((near / 0.05) ** 2)).ravel(), (source, ids.ravel())), shape=2 * (len(rows),))
    return half.maximum(half.T)


def fitted(weights: Any, event: Any = lambda message: None, workdir: str | None = None) -> tuple[bytes, str]:
    """The coordinates, and the notes of the fit."""
    notes: list[str] = []

    def observe(one: Any) -> None:
        notes.append(one.message)
        event(one.message)

    with blocks_of(700), pytest.MonkeyPatch.context() as patch, using(observer=observe):
        patch.setattr(given_weights, "MAX_BLOCK_ROWS", 700)
        map_ = be.LaplacianEigenmaps(3, random_state=0, workdir=workdir).fit(weights)
    assert len(map_._run.results("kernel")["rows"]) > 2
    return np.asarray(map_.embedding_).tobytes(), "\n".join(notes)


@pytest.fixture(scope="module")
def expected(weights: Any) -> bytes:
    """The coordinates, computed in one thread."""
    with dask.config.set(scheduler="synchronous"):
        return fitted(weights)[0]


def test_the_same_bytes_beside_workers_and_through_files_whatever_becomes_of_a_worker(
    place: Place, weights: Any, expected: bytes
) -> None:
    killed: list[int] = []

    def kill(message: str) -> None:
        if "iteration 2" in message and not killed:
            killed.extend(place.client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    with dask.config.set(scheduler="threads"):
        assert fitted(weights)[0] == expected
    with using(executor=ClientExecutor(place.client, 60), worker_memory=0):
        found, notes = fitted(weights)
        assert (found == expected, FILES in notes) == (True, True)
    with using(executor=place.executor, vector_memory=ROOM):
        found, notes = fitted(weights, kill)
    assert (found == expected, HERE in notes) == (True, True)
    assert killed


@pytest.mark.parametrize("room", [160_000, 300_000])
def test_the_same_bytes_with_a_part_of_the_vectors_in_memory_stopped_and_resumed(
    place: Place, weights: Any, expected: bytes, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_space, "SECONDS", 0.0)
    monkeypatch.setattr(held_space, "TIMES", 0.0)
    spills: list[Path] = []

    def stop(message: str) -> None:
        if "iteration 4" in message:
            spills.extend(tmp_path.rglob(f"*{held_space.SPILL}"))
            assert spills[0].stat().st_size > 100_000
            raise KeyError("stopped")

    with using(executor=place.executor, vector_memory=room), pytest.raises(KeyError, match="stopped"):
        fitted(weights, stop, str(tmp_path / "run"))
    assert not spills[0].exists()
    spills[0].write_bytes(b"left by a process that was killed")
    with using(executor=place.executor, vector_memory=room):
        found, notes = fitted(weights, workdir=str(tmp_path / "run"))
    assert (found == expected, "and the rest in a file" in notes, "going on from step 4" in notes) == (True,) * 3
    assert [*tmp_path.rglob(f"*{held_space.SPILL}")] == []
    for scheduler in ("threads", "synchronous"):
        with dask.config.set(scheduler=scheduler), using(vector_memory=room):
            found, notes = fitted(weights)
        assert (found == expected, "and the rest in a file" in notes) == (True, True)
    with using(executor=place.executor, vector_memory=50_000):  # control: less than a sixteenth
        found, notes = fitted(weights)
    assert (found == expected, "and the rest in a file" in notes, FILES in notes) == (True, False, True)


def test_components_are_solved_on_their_own_blocks(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two rings, eigenvalues cos(2πl/n) twice each, joined by edges too weak to count: here, in files, in workers."""
    sizes, walked, step = (2100, 1400), [], spectral._solve
    i = np.arange(sum(sizes))
    after = np.where(np.isin(i, np.cumsum(sizes) - 1), i + 1 - np.repeat(sizes, sizes), i + 1)
    half = sparse.coo_array((np.ones(len(i)), (i, after)), shape=2 * (len(i),)).tocsr()
    weak = sparse.coo_array(([1e-17] * 2, ([5, 2000], [2105, 3400])), shape=half.shape)
    whole = half + half.T + weak + weak.T
    monkeypatch.setattr(spectral, "_solve", lambda *given: walked.append(len(given[1].rows)) or step(*given))
    monkeypatch.setattr(spectral, "DENSE_ROWS", 100)
    monkeypatch.setattr(spectral, "GATHERED_ROWS", 100)
    monkeypatch.setattr(given_weights, "MAX_BLOCK_ROWS", 700)
    found = []

    def stop(event: Any) -> None:
        if "component 1 of the graph: matrix" in event.message:
            raise KeyError("stopped")

    for executor, memory in (
        (place.executor, ROOM), (place.executor, 120_000), (place.executor, 0), (ClientExecutor(place.client, 60), ROOM)
    ):  # fmt: skip
        with blocks_of(700), using(executor=executor, vector_memory=memory), pytest.warns(ComponentsWarning):
            map_ = be.LaplacianEigenmaps(4, components="per-component", random_state=0).fit(whole)
        found.append(np.asarray(map_.embedding_).tobytes())
        for n, values in zip(sizes, map_.eigenvalues_, strict=True):
            np.testing.assert_allclose(1 - values, np.cos(2 * np.pi * np.array([1, 1, 2, 2]) / n), atol=1e-9)
        assert (walked[-2:], len(map_._run.results("kernel")["rows"])) == ([4, 3], 7)
    assert len(set(found)) == 1
    for number, memory in enumerate((ROOM, 120_000, 0)):  # (stopped when the first was solved, they go on)
        with blocks_of(700), using(executor=place.executor, vector_memory=memory, observer=stop), suppress(KeyError):
            be.LaplacianEigenmaps(4, components="per-component", random_state=0, workdir=tmp_path / str(number)).fit(
                whole
            )
        walked.clear()
        again = be.LaplacianEigenmaps(4, components="per-component", random_state=0, workdir=tmp_path / str(number))
        with blocks_of(700), using(executor=place.executor, vector_memory=memory), pytest.warns(ComponentsWarning):
            map_ = again.fit(whole)
        assert (np.asarray(map_.embedding_).tobytes() == found[0], walked) == (True, [3])


def test_vectors_are_read_and_written_as_a_whole_by_a_file_for_each_worker(place: Place, tmp_path: Path) -> None:
    half = sparse.random_array((suite.N, suite.N), density=0.1, rng=np.random.default_rng(1)).tocsr()
    matrix, exchange = memory_matrix((half + half.T).tocsr(), suite.CUTS), Exchange(str(tmp_path / "held"))
    executor = ClientExecutor(place.client, 60)
    place.client.wait_for_workers(2, timeout=60)
    with using(executor=executor), WorkerSpace.open(matrix, exchange, pinned(executor, matrix.rows)) as space:
        space.sweep(suite.fill, writes=["x"])
        suite.check_as_a_whole(space)
        space.write_all("w", space.read_all("x"))
        (folder,) = (tmp_path / "held").glob("w-*")
        assert len({*space.vectors.home}) == len([*folder.iterdir()]) == 2
    assert not (tmp_path / "held").exists()


def test_an_error_waits_for_no_tasks_that_delete_and_nothing_takes_its_place(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[str] = []

    def gone(*arguments: Any, **named: Any) -> None:
        tasks.append("delete")
        raise ClusterError("no worker")

    def fail(space: WorkerSpace) -> None:
        space.sweep(suite.fill, writes=["x"])
        space.write_all("w", space.read_all("x"))
        assert (tmp_path / "held").exists()
        monkeypatch.setattr(exchanges, "map_blocks", gone)
        raise KeyError("ended")

    half = sparse.random_array((suite.N, suite.N), density=0.1, rng=np.random.default_rng(1)).tocsr()
    matrix, executor = memory_matrix((half + half.T).tocsr(), suite.CUTS), ClientExecutor(place.client, 60)
    place.client.wait_for_workers(2, timeout=60)
    monkeypatch.setattr(exchanges, "DELETED_TOGETHER", 1)
    opened = partial(WorkerSpace.open, matrix, Exchange(str(tmp_path / "held")), pinned(executor, matrix.rows))
    with using(executor=executor), pytest.raises(KeyError, match="ended"), opened() as space:
        fail(space)
    assert not (tmp_path / "held").exists()
    assert (tasks, held(place)) == ([], 0)


def held(place: Place) -> int:
    """How many blocks of vectors all workers hold."""

    def count() -> int:
        from bigembed.store import worker_space

        return sum(len(one) for one in worker_space._held.values())

    return sum(place.client.run(count).values())


@pytest.mark.slow
@pytest.mark.parametrize("checkpoints", [True, False])
def test_the_same_bytes_from_the_memory_of_workers_one_of_which_dies(
    place: Place, weights: Any, expected: bytes, checkpoints: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the last checkpoint, or where none is kept from the start; what crosses between workers is boundary rows."""
    monkeypatch.setattr(held_space, "SECONDS", 0.0)
    monkeypatch.setattr(held_space, "TIMES", 0.0)
    killed: list[int] = []

    def kill(message: str) -> None:
        if "iteration 3" in message and not killed:
            assert held(place) > 20
            killed.extend(place.client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    with using(executor=ClientExecutor(place.client, 60)):
        found, notes = fitted(weights, kill, str(tmp_path / "run") if checkpoints else None)
    assert found == expected
    assert notes.count(WORKERS) == 2
    assert ("going on from step 3" in notes) is checkpoints
    assert FILES not in notes
    assert held(place) == 0


def test_workers_hold_nothing_after_a_fit_that_ended_with_an_error(place: Place, weights: Any) -> None:
    def fail(message: str) -> None:
        if "iteration 2" in message:
            assert held(place) > 20
            raise KeyError("ended")

    with using(executor=ClientExecutor(place.client, 60)), pytest.raises(KeyError, match="ended"):
        fitted(weights, fail)
    assert held(place) == 0
