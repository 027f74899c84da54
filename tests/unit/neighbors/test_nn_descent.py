"""NN-descent over blocks against exact neighbors; which algorithm is chosen, and that it is said."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import bigembed as be
from bigembed.distance import MAPPED, PAIRS, SETS, all_squared, named
from bigembed.distance.metrics import RowMetric
from bigembed.errors import DamageWarning, PlanError, RecallWarning
from bigembed.jobs.planning.notes import search_notes
from bigembed.maps.graph_rows import OrderedRows
from bigembed.neighbors import descent_rounds, exact_block, nn_descent
from bigembed.neighbors import descent_walk as walk
from bigembed.neighbors.graph_stages import neighbor_stages
from bigembed.neighbors.query import Joined, index_of, join_rows
from bigembed.neighbors.search import describe_search
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes as shortlist
from bigembed.neighbors.search.by_metric import ByMetric
from bigembed.neighbors.survey import compared_of, prepare
from bigembed.rows.row_maps import mapped_rows
from bigembed.runtime.blocks import Array
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from tests.executors import Killed, executor
from tests.some import a_few

from . import distance_functions

HIGH = np.random.default_rng(0).normal(size=(1000, 14)).astype(np.float32)


@pytest.fixture
def few_cells(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, and shortlists that hold a small part of the cells, as those of many rows do."""
    monkeypatch.setattr(shortlist, "SHORTLIST", 3)
    monkeypatch.setattr(expected_recall, "LONGER", (3,))
    for name in ("SEED_PROBES", "WALK_PROBES", "SEEDS_BY_PAIRS"):
        monkeypatch.setattr(nn_descent, name, 1)


def lists_by_block(graph: be.NeighborGraph) -> list[tuple[np.ndarray, np.ndarray]]:
    """Neighbors and squared distances of each block, by internal ids."""
    path = graph.run.path("search")
    return [
        (read_array(f"{path}/neighbors/{b}"), read_array(f"{path}/squared/{b}")) for b in range(len(graph.matrix.rows))
    ]


def lists_of(graph: be.NeighborGraph) -> tuple[np.ndarray, np.ndarray]:
    """Neighbors, as rows of the input, and squared distances, in the order of the graph."""
    ids, squared = (np.concatenate(parts) for parts in zip(*lists_by_block(graph), strict=True))
    return graph.original_ids()[ids], squared


def edges_of(joined: Joined, row: int) -> np.ndarray:
    """The fitted rows that a new row is joined to."""
    return joined.ids[joined.indptr[row] : joined.indptr[row + 1]]


def same_lists(one: be.NeighborGraph, other: be.NeighborGraph) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(lists_of(one), lists_of(other), strict=True))


build = partial(be.build_neighbor_graph, HIGH, 8, recall=0.97)


def test_it_goes_on_from_whichever_map_it_was_stopped_in(few_cells: None, tmp_path: Path) -> None:
    """Rounds drop what the coordinating process has read: what it knows of that is kept, too."""
    done: list[str] = []

    def run(calls: Any, label: str, last: int = 0) -> list[Any]:
        done.append(label)
        if len(done) == last:
            [call() for call in calls[: len(calls) // 2]]
            raise Killed
        return [call() for call in calls]

    asked: dict[str, Any] = {"n_neighbors": 8, "recall": 0.97, "algorithm": "nn-descent"}
    with executor(run):
        whole = be.build_neighbor_graph(HIGH, **asked, workdir=tmp_path / "whole")
    made = [*done]
    assert whole.run.results("search")["rounds"] > 1
    ends = [len(made) - made[::-1].index(label) for label in dict.fromkeys(made[made.index("merge_block") :])]
    for last in sorted({made.index("merge_block") + 1, *ends[::2]}):  # (the first merge, and some for the last time)
        done.clear()
        with executor(partial(run, last=last)), pytest.raises(Killed):
            be.build_neighbor_graph(HIGH, **asked, workdir=tmp_path / f"{last}")
        with executor(run), warnings.catch_warnings():
            warnings.simplefilter("error", DamageWarning)
            again = be.build_neighbor_graph(HIGH, **asked, workdir=tmp_path / f"{last}")
        assert same_lists(again, whole)
        for label in ("search_block", "join_block", "merge_block", "walk_length"):
            assert done.count(label) == made.count(label) + (label == made[last - 1])  # (the one that was stopped)
        shutil.rmtree(tmp_path / f"{last}")


@pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
def test_a_block_opens_what_was_found_for_it_not_what_all_blocks_found(
    few_cells: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of rows, far apart: most blocks have nothing for each other."""
    rows = np.concatenate([HIGH[:400] + 100 * shift for shift in range(4)])
    told: list[Array] = []
    opened: list[int] = []
    find, of_round = Exchange.find, descent_rounds.Found

    def found(self: Exchange, name: str, block: int, keys: Any) -> Any:
        opened.extend([block] if name == "found" else [])
        return find(self, name, block, keys)

    def kept(numbers: Array, bits: Array) -> Any:
        told.extend(np.unpackbits(bits, axis=1))
        return of_round(numbers, bits)

    monkeypatch.setattr(Exchange, "find", found)
    monkeypatch.setattr(descent_rounds, "Found", kept)
    graph = be.build_neighbor_graph(rows, 8, recall=0.97, algorithm="nn-descent")
    assert told
    assert 0 < len(opened) == sum(map(np.count_nonzero, told)) < len(told) * len(graph.matrix.rows) / 2


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
    monkeypatch.setattr(descent_rounds, "SEEN_BY_PRODUCTS", 64)
    assert same_lists(graph, build(algorithm="nn-descent"))
    assert not same_lists(graph, build(algorithm="nn-descent", random_state=1))  # a control


def test_cells_are_kept_where_they_meet_the_target(small_blocks: None) -> None:
    X = HIGH[:, :3]
    chosen = be.build_neighbor_graph(X, 8)
    assert "algorithm" not in chosen.run.results("recall")
    assert describe_search(chosen.run.results("witness")).startswith("neighbors by cells: recall 0.99")
    assert same_lists(chosen, be.build_neighbor_graph(X, 8, algorithm="cells"))


@pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")
def test_another_way_is_taken_where_cells_miss_the_target_and_it_is_said(few_cells: None) -> None:
    model = be.DiffusionMap(n_neighbors=8, recall=0.9).fit(HIGH)
    found = model.certificate_["recall"]
    assert found["algorithm"] == "nn-descent"
    assert "expected of all cells" in found["why"]
    assert found["recall"] >= 0.9


@a_few(
    3,
    ("metric", "kind"),
    [
        ("euclidean", np.asarray),
        ("manhattan", np.asarray),
        ("cosine", csr_array),
        (distance_functions.largest_step, np.asarray),
        (distance_functions.shared, csr_array),
    ],
)
def test_rows_of_any_kind_are_joined_as_brute_force_joins_them_and_new_ones_walk(
    few_cells: None, metric: Any, kind: Callable[..., Any]
) -> None:
    every = np.where(np.abs(HIGH[:640]) < 0.4, 0, HIGH[:640])
    rows, new = kind(every[:600]), kind(every[600:])
    graph = be.build_neighbor_graph(rows, 8, recall=0.93, metric=metric, algorithm="nn-descent")
    own, by = graph.original_ids(), graph.shape.compare
    mapped = compared_of(prepare(rows[own], graph.shape))
    exact = by.squared(mapped, mapped, np.tri(600, dtype=bool) if by.own else None).astype(np.float32)
    np.fill_diagonal(exact, np.inf)
    ids, squared = (np.concatenate(parts) for parts in zip(*lists_by_block(graph), strict=True))
    np.testing.assert_array_equal(squared, np.take_along_axis(exact, ids, 1))
    near = np.argsort(exact, axis=1, kind="stable")[:, :8]
    assert np.mean([len(np.intersect1d(a, b)) / 8 for a, b in zip(ids, near, strict=True)]) > 0.91

    index = index_of(graph.run, graph.shape)
    ready = prepare(new, graph.shape)
    joined = join_rows(ready, index)
    apart = by.squared(compared_of(ready), mapped).astype(np.float32)
    first = np.argsort(apart, axis=1, kind="stable")[:, :8]
    share, in_cells = (
        np.mean([len(np.intersect1d(edges_of(given, row), first[row])) / 8 for row in range(40)])
        for given in (joined, join_rows(ready, replace(index, walk=0)))
    )
    assert share > max(graph.run.results("recall")["recall_of_new_rows"] - 0.06, in_cells + 0.05)
    alone = join_rows(ready[7:8], index)
    assert alone.ids.tobytes() == edges_of(joined, 7).tobytes()
    assert alone.squared.tobytes() == joined.squared[slice(*joined.indptr[7:9])].tobytes()

    again = join_rows(prepare(rows, graph.shape), index)  # fitted rows have the edges that they have in the graph
    matrix = graph.to_scipy()
    for row in range(0, 600, 30):
        there = np.setdiff1d(own[edges_of(again, row)], row)
        np.testing.assert_array_equal(there, np.sort(matrix[[row]].nonzero()[1]))


def test_the_way_of_a_walk_does_not_depend_on_what_is_held(few_cells: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build(algorithm="nn-descent")
    new = np.random.default_rng(1).normal(size=(50, 14)).astype(np.float32)
    index = index_of(graph.run, graph.shape)
    held = join_rows(new, index)
    monkeypatch.setattr(walk, "HELD_BYTES", 4_000)
    monkeypatch.setattr(walk, "TOGETHER", 7)
    monkeypatch.setattr(walk, "SEEN", 64)
    read = join_rows(new, index)
    for name in ("indptr", "ids", "squared", "rho"):
        assert getattr(held, name).tobytes() == getattr(read, name).tobytes()
    other = join_rows(new, replace(index, walk=9))  # a control: shorter lists
    assert other.ids.tobytes() != held.ids.tobytes()


@pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")
def test_a_saved_model_has_what_its_new_rows_walk_along(few_cells: None, tmp_path: Path) -> None:
    model = be.DiffusionMap(n_neighbors=8, recall=0.9, algorithm="nn-descent").fit(HIGH[:900].astype(float))
    model.save(tmp_path / "model")
    again, expected = be.load(tmp_path / "model"), model.transform(HIGH[900:])
    np.testing.assert_array_equal(again.transform(HIGH[900:]), expected)
    np.testing.assert_array_equal(again.transform(HIGH[950:951])[0], expected[50])
    fitted, scale = np.asarray(model.embedding_), np.abs(model.embedding_).max(axis=0)
    apart = np.abs(model.transform(HIGH[:900]) - fitted)
    assert (apart <= 1e-8 * scale).all()  # (weights are in single precision)
    assert (np.abs(fitted[1:] - fitted[:-1]) <= 1e-8 * scale).mean() < 0.01  # a control: of other rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_pairs_have_the_bits_of_tiles(kind: Callable[..., Any], dtype: type) -> None:
    random = np.random.default_rng(2)
    rows = (np.round(random.normal(size=(60, 37)), 2) * (random.random((60, 37)) < 0.5)).astype(dtype)
    rows[[7, 9]], rows[3] = 0, rows[4]
    a, b = (part.astype(np.int32) for part in np.triu_indices(60, 1))
    for name in (*named(PAIRS), *named(SETS), *(named(MAPPED)[:3] if kind is csr_array else ())):
        by = ByMetric(RowMetric(name), np.dtype(dtype).name)
        mapped = mapped_rows(kind(rows), name, by.dtype)
        wanted = by.squared(mapped, mapped)[a, b]
        limit = np.quantile(wanted, 0.3)
        found = by.of_pairs(mapped)(a, b, np.full(len(a), limit, dtype))
        np.testing.assert_array_equal(found[wanted <= limit], wanted[wanted <= limit])
        assert ((found == wanted) | (found == np.inf)).all()
        assert not np.array_equal(by.of_pairs(mapped)(b[::-1], a, wanted), wanted)  # a control: other pairs


@pytest.mark.parametrize(
    ("shrunk", "whole"), [(descent_rounds.shrunk_by(14, np.dtype(np.float32)), True), (1.2, False)]
)
def test_what_the_join_finds_is_what_is_within_reach(shrunk: float, whole: bool) -> None:
    """In two panels; ``shrunk`` that is no bound loses some of it."""
    from bigembed.neighbors.descent_compiled import join

    rows, candidates = HIGH[:60], np.arange(60)
    reach = np.linspace(5, 15, 60, dtype=np.float32)
    room = 2 * 60 * 60
    row, other, squared = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.float32)
    starts, new, seen = np.array([0, 60]), np.array([40]), np.zeros(1 << 14, np.uint64)
    done, found = join(0, starts, new, candidates, rows, reach, shrunk, seen, row, other, squared)
    exact = all_squared(rows).astype(np.float32)
    near = exact <= reach[:, None]
    np.fill_diagonal(near, False)
    near[40:, 40:] = False  # both were candidates before
    pairs = {*zip(row[:found].tolist(), other[:found].tolist())}
    assert done == 1
    assert (pairs == {*zip(*(x.tolist() for x in np.nonzero(near)))}) == whole
    np.testing.assert_array_equal(squared[:found], exact[row[:found], other[:found]])


@pytest.mark.parametrize("most", [3, 50])
def test_candidates_are_the_first_of_a_list_and_the_nearest_that_have_the_row(most: int) -> None:
    """Each once, fresh ones first; none of a row of which nothing is fresh."""
    from bigembed.neighbors.descent_compiled import candidates, sources_of

    random = np.random.default_rng(4)
    n, width = 6, 4
    ids = np.stack([random.permutation(40)[:7] for _ in range(n)])
    fresh = random.integers(0, 2, ids.shape).astype(np.uint8)
    ids[0, 2:], fresh[1] = -1, 0
    who, row = (part.ravel() for part in np.meshgrid(np.arange(40), np.arange(n)))
    listed = np.flatnonzero(random.random(len(who)) < np.array([0.02, 0, 0.1, 0.3, 0.5, 0.9])[row])
    who, row, squared = who[listed], row[listed].astype(np.int32), random.integers(0, 9, len(listed)).astype(np.float32)
    marks = random.integers(0, 2, len(who))
    offsets, sources = sources_of(row, 2 * who + marks, squared, n, most)
    out = np.empty(n * width + len(sources), np.int64)
    starts, new = candidates(ids, fresh, width, offsets, sources, out)
    for i in range(n):
        own = np.flatnonzero(row == i)
        near = own[np.lexsort((2 * who[own] + marks[own], squared[own]))][:most]
        wanted = dict(zip(who[near].tolist(), marks[near].tolist(), strict=True))
        wanted |= {int(x): int(y) for x, y in zip(ids[i, :width], fresh[i, :width], strict=True) if x >= 0}
        wanted = wanted if any(wanted.values()) else {}
        found = out[starts[i] : starts[i + 1]].tolist()
        assert sorted(found) == sorted(wanted)
        assert [wanted[x] for x in found] == [1] * new[i] + [0] * (len(found) - new[i])
    assert starts[2] == starts[1]


def test_what_is_taken_makes_the_lists_of_all_candidates_and_is_marked() -> None:
    from bigembed.neighbors.descent_compiled import NEW, take

    random = np.random.default_rng(3)
    distance = random.integers(0, 40, (7, 90)).astype(np.float32)  # many ties
    ids, squared = np.full((7, 12), -1), np.full((7, 12), np.inf, np.float32)
    fresh = np.zeros(ids.shape, np.uint8)
    known = np.zeros(distance.shape, bool)
    for many in (20, 300, 900):
        rows, numbers = random.integers(0, 7, many).astype(np.int32), random.integers(0, 90, many)
        before, fresh[:] = ids.copy(), 0
        take(rows, numbers, distance[rows, numbers], ids, squared, fresh)
        known[rows, numbers] = True
        for row in range(7):
            candidates = np.flatnonzero(known[row])
            nearest = candidates[np.lexsort((candidates, distance[row, candidates]))][:12]
            np.testing.assert_array_equal(ids[row, : len(nearest)], nearest)
            np.testing.assert_array_equal(squared[row, : len(nearest)], distance[row, nearest])
            assert (ids[row, len(nearest) :] == -1).all()
            np.testing.assert_array_equal(fresh[row] == NEW, (ids[row] >= 0) & ~np.isin(ids[row], before[row]))


def test_a_disk_without_room_for_the_lists_leaves_cells_and_refuses_what_is_asked_for(
    few_cells: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build(algorithm="auto")
    monkeypatch.setattr(nn_descent, "free_bytes", lambda place: nn_descent.bytes_on_disk(1000, 8, 49, 4) - 1)
    with pytest.raises(PlanError, match=r"asked for.*4 MiB are free.*algorithm='cells'"):
        build(algorithm="nn-descent")
    with pytest.warns(RecallWarning, match=r"below the target.*NN-descent, which would be taken.*more than is free"):
        graph = build()
    found = graph.run.results("recall")
    assert (found["algorithm"], found["forced"]) == ("cells", True)
    with pytest.warns(RecallWarning):
        cells = build(algorithm="cells")
    assert same_lists(graph, cells)
    assert not same_lists(graph, whole)  # a control


@pytest.mark.parametrize(
    ("target", "said"), [(0.74, "The target is met"), (0.99, "Give what tasks exchange a larger disk")]
)
def test_lists_get_no_longer_than_the_disk_has_room_for_which_is_said(
    few_cells: None, monkeypatch: pytest.MonkeyPatch, target: float, said: str
) -> None:
    for name in ("MORE", "MORE_BY_PAIRS"):
        monkeypatch.setattr(nn_descent, name, 0)
    monkeypatch.setattr(descent_rounds, "CANDIDATES", 1)
    hard = np.random.default_rng(1).normal(size=(1000, 40)).astype(np.float32)
    search = partial(be.build_neighbor_graph, hard, 8, recall=target, algorithm="nn-descent")
    with warnings.catch_warnings(action="ignore", category=RecallWarning):
        whole = search()
    assert whole.run.results("search")["list_length"] == nn_descent.longest_list(1000, 8) == 18
    monkeypatch.setattr(nn_descent, "free_bytes", lambda place: nn_descent.bytes_on_disk(1000, 8, 18, 4) - 1)
    too_long = "lists longer than 12 would take .* MiB of disk .*, more than is free"
    with pytest.warns(RecallWarning, match=f"{too_long}.*{said}"):
        short = search()
    assert short.run.results("search")["list_length"] == 12
    assert short.run.results("recall")["forced"]
    assert "forced" not in whole.run.results("recall")
    assert not same_lists(short, whole)


def test_the_plan_says_which_way_it_may_be() -> None:
    def planned(n: int, **given: Any) -> list[Stage]:
        return neighbor_stages(OrderedRows((n, 64), np.dtype(np.float32)), 8, "euclidean", 0.9, 0, **given)

    assert search_notes(planned(1000), [], Run(None)) == []
    assert (
        "NN-descent (then search takes twice as long, or more, and up to 8.5 GiB more of the disk)"
        in (search_notes(planned(10**6), [], Run(None))[0])
    )
    assert search_notes(planned(1000, algorithm="cells"), [], Run(None)) == ["neighbors by cells: asked for"]
    cells, auto, asked = (planned(10**6, algorithm=name)[-3].cost for name in ("cells", "auto", "nn-descent"))
    assert cells.memory < auto.memory == asked.memory
    assert (cells.disk, cells.scratch) == (auto.disk, auto.scratch) < (asked.disk, asked.scratch)
    assert cells.scalar_ops == auto.scalar_ops < asked.scalar_ops
