"""NN-descent over blocks against exact neighbors; which algorithm is chosen, and that it is said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.blocks.rows import executor
from bigembed.blocks.squared import all_squared, rounding
from bigembed.embedding.graph.ordered_rows import OrderedRows
from bigembed.errors import InputError, RecallWarning
from bigembed.jobs.planning.search_note import search_notes
from bigembed.neighbors import descent_rounds, nn_descent, search
from bigembed.neighbors.algorithms import said
from bigembed.neighbors.exact import exact_block
from bigembed.neighbors.graph_stages import neighbor_stages
from bigembed.neighbors.query import index_of, join_rows
from bigembed.runs import Run
from bigembed.stages import Stage
from bigembed.store.arrays import read_array

HIGH = np.random.default_rng(0).normal(size=(1000, 14)).astype(np.float32)


@pytest.fixture
def few_cells(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, and shortlists that hold a small part of the cells, as those of many rows do."""
    monkeypatch.setattr(search, "SHORTLIST", 3)
    monkeypatch.setattr(nn_descent, "SEED_PROBES", 1)


def lists_of(graph: be.NeighborGraph) -> tuple[np.ndarray, np.ndarray]:
    """Neighbors, as rows of the input, and squared distances, in the order of the graph."""
    blocks, path = range(len(graph.matrix.rows)), graph.run.path("search")
    parts = [[read_array(f"{path}/{name}/{b}") for b in blocks] for name in ("neighbors", "squared")]
    ids, squared = (np.concatenate(part) for part in parts)
    return graph.original_ids()[ids], squared


def same_lists(one: be.NeighborGraph, other: be.NeighborGraph) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(lists_of(one), lists_of(other), strict=True))


build = partial(be.build_neighbor_graph, HIGH, 8, recall=0.97)


def test_the_target_is_met_where_cells_cannot(few_cells: None) -> None:
    with pytest.warns(RecallWarning):
        cells = build(algorithm="cells")
    assert cells.recall < 0.9
    graph = build(algorithm="nn-descent")
    assert len(graph.matrix.rows) > 3
    assert graph.recall >= 0.97
    near, squared = lists_of(graph)
    own = graph.original_ids()
    true, _ = exact_block(HIGH, 8)
    shares = [len(np.intersect1d(a, b)) / 8 for a, b in zip(near, true[own], strict=True)]
    assert abs(np.mean(shares) - graph.recall) < 0.02  # what was measured on sampled rows holds for all
    distances = all_squared(HIGH).astype(np.float32)
    np.testing.assert_array_equal(squared, distances[own[:, None], near])
    assert (np.diff(squared, axis=1) >= 0).all()
    assert all(len({*row}) == 8 and i not in row for i, row in zip(own.tolist(), near.tolist(), strict=True))


def test_the_lists_are_the_same_however_the_work_is_divided(few_cells: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def reverse(calls: Any, label: str) -> list[Any]:
        return [call() for call in calls[::-1]][::-1]

    graph = build(algorithm="nn-descent")
    with executor(reverse):
        assert same_lists(graph, build(algorithm="nn-descent"))
    monkeypatch.setattr(descent_rounds, "ROWS_BYTES", 20_000)
    monkeypatch.setattr(descent_rounds, "FEWEST", 30)
    monkeypatch.setattr(descent_rounds, "FOUND", 20_000)
    monkeypatch.setattr(descent_rounds, "SEEN", 64)
    assert same_lists(graph, build(algorithm="nn-descent"))
    assert not same_lists(graph, build(algorithm="nn-descent", random_state=1))  # a control


def test_cells_are_kept_where_they_meet_the_target(small_blocks: None) -> None:
    X = HIGH[:, :3]
    chosen = be.build_neighbor_graph(X, 8)
    assert "algorithm" not in chosen.run.results("recall")
    assert said(chosen.run.results("witness")).startswith("neighbors by cells: recall 0.99")
    assert same_lists(chosen, be.build_neighbor_graph(X, 8, algorithm="cells"))


@pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")
def test_another_way_is_taken_where_cells_miss_the_target_and_it_is_said(few_cells: None) -> None:
    model = be.DiffusionMap(n_neighbors=8, recall=0.9).fit(HIGH)
    found = model.certificate_["recall"]
    assert found["algorithm"] == "nn-descent"
    assert "expected of all cells" in found["why"]
    assert found["recall"] >= 0.9


def test_new_rows_are_joined_in_the_cells_with_the_recall_that_is_said(few_cells: None) -> None:
    graph = build(recall=0.9, algorithm="nn-descent")
    joined = join_rows(HIGH[graph.original_ids()], index_of(graph.run, graph.shape))
    true = exact_block(HIGH, 8)[0][graph.original_ids()]
    found = [graph.original_ids()[joined.ids[a:b]] for a, b in zip(joined.indptr, joined.indptr[1:])]
    share = np.mean([len(np.intersect1d(a, b)) / 8 for a, b in zip(found, true, strict=True)])
    assert share >= graph.run.results("recall")["recall_of_new_rows"] - 0.03


def test_a_target_out_of_reach_is_a_warning_that_says_what_was_done(
    few_cells: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn_descent, "ROUNDS", 1)
    with pytest.warns(RecallWarning, match="NN-descent made 1 rounds with lists of up to 33 rows"):
        build(recall=1.0, algorithm="nn-descent")


def test_lists_are_lengthened_where_they_have_settled(few_cells: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn_descent, "MORE", 3)
    graph = build(recall=0.93, algorithm="nn-descent")
    assert graph.run.results("search")["list_length"] > 11
    assert graph.recall >= 0.93


@pytest.mark.parametrize("make", [build, lambda **given: be.DiffusionMap(**given).fit(HIGH)])
def test_another_name_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="algorithm='trees'"):
        make(algorithm="trees")


def test_what_the_join_finds_is_what_is_within_reach() -> None:
    from bigembed.neighbors.local_join import join

    rows, candidates = HIGH[:60], np.arange(60)[None]
    reach = np.full(60, 12.0, np.float32)
    room = 2 * 60 * 60
    row, other, squared = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.float32)
    counts, factor = np.array([[20, 60]]), rounding(14, rows.dtype)
    done, found = join(0, candidates, counts, rows, reach, factor, np.zeros(1 << 14, np.uint64), row, other, squared)
    exact = all_squared(rows).astype(np.float32)
    near = exact <= 12.0
    np.fill_diagonal(near, False)
    near[20:, 20:] = False  # both were candidates before
    assert done == 1
    assert {*zip(row[:found].tolist(), other[:found].tolist())} == {*zip(*(x.tolist() for x in np.nonzero(near)))}
    np.testing.assert_array_equal(squared[:found], exact[row[:found], other[:found]])


def test_the_plan_says_which_way_it_may_be() -> None:
    def planned(n: int, **given: Any) -> list[Stage]:
        return neighbor_stages(OrderedRows((n, 64), np.dtype(np.float32)), 8, "euclidean", 0.9, 0, **given)

    assert search_notes(planned(1000), [], Run(None)) == []
    assert "NN-descent" in search_notes(planned(10**6), [], Run(None))[0]
    assert search_notes(planned(1000, algorithm="cells"), [], Run(None)) == ["neighbors by cells: asked for"]
    cells, auto, asked = (planned(10**6, algorithm=name)[-3].cost for name in ("cells", "auto", "nn-descent"))
    assert cells.memory < auto.memory == asked.memory
    assert cells.scalar_ops == auto.scalar_ops < asked.scalar_ops
