"""Vectors in memory and in files: the same bytes on any scheduler; a solve that ended goes on in the other place."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import bigembed as be
from bigembed.estimator import graph_input as given_weights
from bigembed.linalg import lobpcg
from bigembed.linalg.operator import SparseOperator
from bigembed.maps.walk import spectral
from bigembed.runtime.executors import LocalPool, executor_now
from bigembed.runtime.runtime import using
from bigembed.store import spaces as held_space
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import CSRBlock, MappedMatrix
from bigembed.store.spaces import Checkpoints, StoredSpace, held, in_memory
from bigembed.store.vector_space import MemorySpace, copy_vectors
from tests.blocks import blocks_of
from tests.executors import GivenExecutor, executor, maps

FILES, MEMORY = 0, 1 << 30


class Ended(Exception):
    """The process ends here."""


def solved(graphs: Any, folder: Path, weights: Any, place: str) -> tuple[Any, bytes]:
    """The result, and the bytes of V."""
    operator = operator_of(graphs, folder, weights, place)
    result = lobpcg.solve(operator, lobpcg.init(operator, 5, deflate="trivial"))
    return result, graphs.vectors(operator).tobytes()


def operator_of(graphs: Any, folder: Path, weights: Any, place: str, empty: bool = False) -> SparseOperator:
    """S over blocks of 500 rows, with its vectors "scale" and "trivial"."""
    given = graphs.operator(weights)
    exchange = Exchange(str(folder))
    matrix: Any = in_memory(given.matrix) if place == "memory" else MappedMatrix(given.matrix, exchange)
    space: Any = MemorySpace(matrix) if place == "memory" else StoredSpace(matrix, exchange)
    if not empty:
        copy_vectors(given.space, space, ["scale", "trivial"], posts=["scale"])
    return SparseOperator(matrix, space)


def test_the_same_bytes_in_memory_and_in_files_on_any_scheduler(graphs: Any, tmp_path: Path) -> None:
    weights = graphs.swiss_roll(3000)
    found = []
    for place, scheduler in (("memory", "synchronous"), ("memory", "threads"), ("files", "threads")):
        with dask.config.set(scheduler=scheduler):
            found.append(solved(graphs, tmp_path, weights, place))
    (first, vectors), *others = found
    assert first.converged
    for result, other in others:
        assert other == vectors
        assert result.eigenvalues.tobytes() == first.eigenvalues.tobytes()
        assert (result.passes, result.bytes_moved) == (first.passes, first.bytes_moved)
    assert solved(graphs, tmp_path / "b", weights * 1.5, "memory")[1] != vectors  # control


def test_a_mapped_matrix_is_the_one_in_memory_and_is_made_anew_where_it_is_damaged(graphs: Any, tmp_path: Path) -> None:
    given = graphs.operator(graphs.swiss_roll(1200)).matrix
    mapped, expected = MappedMatrix(given, Exchange(str(tmp_path))), in_memory(given)
    assert mapped.rows == expected.rows
    for damage in (lambda file: file, lambda file: file.write_bytes(file.read_bytes()[:-40]), Path.unlink):
        for b in range(len(mapped.rows)):
            for field in fields(CSRBlock):
                part, wanted = getattr(mapped.block(b), field.name), getattr(expected.block(b), field.name)
                assert (part.dtype, part.tolist()) == (wanted.dtype, wanted.tolist())
            pairs = zip(mapped.outbox(b), expected.outbox(b), strict=True)
            assert all(one == other and rows.tolist() == wanted.tolist() for (one, rows), (other, wanted) in pairs)
            damage(tmp_path / "matrix" / str(b))


@pytest.mark.parametrize("then", ["memory", "files"])
def test_a_solve_that_ended_goes_on_from_its_checkpoint(graphs: Any, tmp_path: Path, then: str) -> None:
    weights = graphs.swiss_roll(2000)
    _, whole = solved(graphs, tmp_path / "whole", weights, "memory")
    operator = operator_of(graphs, tmp_path / "run", weights, "memory")
    stored = StoredSpace(operator.matrix, Exchange(str(tmp_path / "run")))
    checkpoints, texts = Checkpoints(operator.space, stored), []

    def publish(state: lobpcg.State) -> None:
        if state.iteration in (0, 3):
            names = lobpcg.vectors_of(state, "scale")
            checkpoints.save(names)
            texts.append(json.dumps(state.to_json()))
            checkpoints.published(names)
        if state.iteration == 5:
            raise Ended

    with suppress(Ended):
        lobpcg.solve(operator, lobpcg.init(operator, 5, deflate="trivial"), publish)
    assert len(texts) == 3  # (two of the third iteration: before its pass and after it)
    assert stored.has("X.3")
    assert not stored.has("X.0")  # (of the checkpoint before)
    state = lobpcg.State.from_json(json.loads(texts[-1]))
    again = operator_of(graphs, tmp_path / "run", weights, then, empty=True)
    Checkpoints(again.space, stored).restore(lobpcg.vectors_of(state, "scale"))
    result = lobpcg.solve(again, state)
    assert result.iterations > 3
    assert graphs.vectors(again).tobytes() == whole


def published(texts: list[str], state: lobpcg.State) -> None:
    """Keep a state as it would be written."""
    texts.append(json.dumps(state.to_json()))


def test_a_solve_through_files_goes_on_wherever_it_was_ended(
    graphs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a file of a step is written, or deleted: in the middle of a block, or between two."""
    weights, left = graphs.swiss_roll(1500), list[None]()
    whole, vectors = solved(graphs, tmp_path / "whole", weights, "memory")

    def ending(call: Any) -> Any:
        def counted(*given: Any) -> None:
            if not left:
                raise Ended
            left.pop()
            call(*given)

        return counted

    for count in (40, 101, 113, 124):  # (an iteration has some 48)
        texts: list[str] = []
        operator = operator_of(graphs, tmp_path / str(count), weights, "files")
        state = lobpcg.init(operator, 5, deflate="trivial")
        left[:] = [None] * count
        with suppress(Ended), monkeypatch.context() as patch, dask.config.set(scheduler="synchronous"):
            for name in ("put", "drop_block"):
                patch.setattr(Exchange, name, ending(getattr(Exchange, name)))
            lobpcg.solve(operator, state, partial(published, texts))
        assert 1 < len(texts) < whole.iterations
        again = operator_of(graphs, tmp_path / str(count), weights, "files", empty=True)
        result = lobpcg.solve(again, lobpcg.State.from_json(json.loads(texts[-1])))
        assert (result.passes, result.eigenvalues.tolist()) == (whole.passes, whole.eigenvalues.tolist())
        assert graphs.vectors(again).tobytes() == vectors
        assert len([path for path in (tmp_path / str(count)).iterdir() if "." in path.name]) == 1  # the last X


def test_a_solve_takes_no_more_of_the_disk_than_was_planned(
    graphs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_weights, "MAX_BLOCK_ROWS", 500)
    sizes, n, asked = [0], 6000, spectral.Spectrum(10, "all", 1e-4, 200, 0)

    def look(event: Any) -> None:
        there = tmp_path.glob("exchange/solve/component0/*/*")
        sizes.append(sum(file.stat().st_size for file in there))

    with blocks_of(500), using(observer=look, vector_memory=FILES):
        be.LaplacianEigenmaps(10, random_state=0, tol=1e-4, workdir=str(tmp_path)).fit(graphs.swiss_roll(n))
    planned = spectral.solve_cost(asked, n, 15, 500).scratch
    generation = 5.5 * 8 * n * spectral.block_width(10)
    assert 1.1 * generation < max(sizes) < min(planned, 2.4 * generation)


def test_nothing_can_be_written_into_what_a_space_holds(graphs: Any) -> None:
    space = graphs.operator(graphs.ring(1000)).space
    with pytest.raises(ValueError, match="read-only"):
        space.read("scale", 0)[0] = 1


def test_memory_is_taken_where_tasks_are_in_this_process_or_beside_it_and_there_is_room() -> None:
    ready: list[str] = []

    def taken(need: int) -> tuple[bool, bool]:
        """Whether vectors are in memory, and tasks then in this process."""
        with held(need) as (inside, _):
            return inside, executor_now().in_this_process

    assert taken(1 << 20) == (True, True)
    assert taken(1 << 60) == (False, True)
    with using(vector_memory=5):
        assert (taken(5), taken(6)) == ((True, True), (False, True))
        with executor(maps()[0]):  # (which may be anywhere)
            assert taken(5) == (False, False)
    free = partial(ready.append, "ready")
    with LocalPool(2) as pool, using(executor=GivenExecutor(maps()[0], pool, free), vector_memory=5):
        assert (taken(6), ready) == ((False, False), [])
        assert (taken(5), ready) == ((True, True), ["ready"])
    with using(vector_memory=1 << 60):  # (more is planned than is free)
        assert taken(1 << 50) == (False, True)


def test_threads_keep_the_order_and_end_with_the_first_error() -> None:
    heard: list[int] = []
    with LocalPool(2) as pool:
        calls = [partial(abs, -i) for i in range(9)]
        assert pool.run(calls, "abs", lambda label, done, total: heard.append(done)) == list(range(9))
    assert heard == list(range(10))
    begun: list[int] = []

    def fail(i: int) -> None:
        begun.append(i)
        raise Ended(i)

    for threads in (1, 2):
        with LocalPool(threads) as pool, pytest.raises(Ended):
            pool.run([partial(fail, i) for i in range(200)], "fail")
    assert len(begun) < 200


@pytest.mark.parametrize("then", [FILES, MEMORY])
def test_a_fit_goes_on_from_the_last_checkpoint_in_either_place(
    graphs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: int
) -> None:
    monkeypatch.setattr(held_space, "SECONDS", 0.0)
    monkeypatch.setattr(held_space, "TIMES", 0.0)
    weights, notes = graphs.swiss_roll(2500), []
    asked: dict[str, Any] = {"n_components": 4, "random_state": 0}
    with using(vector_memory=FILES):
        expected = be.LaplacianEigenmaps(**asked).fit(weights).embedding_

    def end(event: Any) -> None:
        if "iteration 3" in event.message:
            raise Ended

    run = str(tmp_path / "run")
    with suppress(Ended), using(observer=end, vector_memory=MEMORY):
        be.LaplacianEigenmaps(**asked, workdir=run).fit(weights)
    with using(observer=lambda event: notes.append(event.message), vector_memory=then):
        found = be.LaplacianEigenmaps(**asked, workdir=run).fit(weights).embedding_
    assert "component 0 of the graph: going on from step 3" in notes
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
