"""The compiled search gives the lists of the NumPy reference, bit for bit, for any pieces."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigembed.distance.pairwise import paired_squared
from bigembed.neighbors.exact import empty_lists, exact_block, update_lists
from bigembed.neighbors.partition import cells_block
from bigembed.neighbors.search.local import Cells, search_cells, search_own, search_rows
from bigembed.neighbors.search.probes import asking_cells, group_probes, nearest_cells, probe_block, probe_ranks

from .test_exact import DTYPES, KINDS, draw_rows


def ordered_cells(rows, size):
    order, offsets, centers = cells_block(rows, size, seed=0)
    rows = np.ascontiguousarray(rows[order])
    return rows, Cells(np.arange(len(centers)), offsets, rows, np.arange(len(rows)), centers)


def probes_of(rows, cells, n_probes, length):
    c = len(cells.centers)
    numbers = nearest_cells(cells.centers, cells.centers, cells.numbers, min(c, length))
    return numbers, probe_block(rows, cells.offsets, numbers, cells.centers, min(n_probes, c))


def reference(rows, cells, probes, k):
    """Row by row, the candidates of its probed cells through the NumPy lists."""
    ids, squared = empty_lists(len(rows), k, rows.dtype)
    home = np.repeat(np.arange(len(cells.numbers)), np.diff(cells.offsets))
    for i in range(len(rows)):
        chosen = np.flatnonzero(np.isin(home, probes[i]))
        part = slice(i, i + 1)
        update_lists(ids[part], squared[part], rows[part], np.array([i]), rows[chosen], chosen)
    return ids, squared


@settings(max_examples=25)
@given(st.integers(0, 99), st.integers(20, 300), st.sampled_from([1, 3, 21]), KINDS, DTYPES, st.integers(1, 12))
def test_search_is_the_reference_in_any_pieces(seed, n, d, kind, dtype, k):
    rows, cells = ordered_cells(draw_rows(seed, n, d, kind, dtype), 24)
    _, probes = probes_of(rows, cells, 3, 5)
    probing = group_probes(probes)
    expected = reference(rows, cells, probes, k)
    row_ids = np.arange(n)
    own = empty_lists(n, k, rows.dtype)
    search_own(*own, rows, row_ids, probing, cells)
    pieces = empty_lists(n, k, rows.dtype)
    generator = np.random.default_rng(seed)
    for part in np.array_split(generator.permutation(len(cells.numbers)), 3):
        spans = [np.arange(cells.offsets[c], cells.offsets[c + 1]) for c in part]
        members = np.concatenate([np.zeros(0, int), *spans])
        starts = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
        piece = Cells(part, starts, rows[members], members, cells.centers[part])
        search_cells(*pieces, rows, row_ids, probing, piece)
    for got in (own, pieces):
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


@settings(max_examples=15)
@given(st.integers(0, 99), KINDS, DTYPES, st.integers(1, 40))
def test_search_rows_is_update_lists(seed, kind, dtype, k):
    rows = draw_rows(seed, 1300, 5, kind, dtype)
    got, expected = empty_lists(70, k, rows.dtype), empty_lists(70, k, rows.dtype)
    numbers = np.arange(1300)
    search_rows(*got, rows[:70], numbers[:70], rows, numbers)
    update_lists(*expected, rows[:70], numbers[:70], rows, numbers)
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])


def test_all_cells_probed_is_exact():
    rows, cells = ordered_cells(draw_rows(0, 900, 6, "normal"), 32)
    probes = np.tile(np.arange(len(cells.numbers), dtype=np.int32), (900, 1))
    ids, squared = empty_lists(900, 7, rows.dtype)
    pairs = search_own(ids, squared, rows, np.arange(900), group_probes(probes), cells)
    expected = exact_block(rows, 7)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(squared, expected[1])
    assert pairs <= 900 * 900


@pytest.mark.parametrize("scale", [1e-19, 1e-3, 1e15, 3e18])
def test_scale_does_not_lose_neighbors(scale):
    """Where squares leave the range of float32 the lists are still ordered by (distance, id)."""
    rows, cells = ordered_cells((draw_rows(1, 200, 4, "normal") * np.float32(scale)).astype(np.float32), 16)
    probes = np.tile(np.arange(len(cells.numbers), dtype=np.int32), (200, 1))
    ids, squared = empty_lists(200, 5, rows.dtype)
    search_own(ids, squared, rows, np.arange(200), group_probes(probes), cells)
    with np.errstate(over="ignore"):
        expected = exact_block(rows, 5)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(squared, expected[1])


@pytest.mark.parametrize("kind", ["normal", "grid", "equal"])
def test_probes_are_the_nearest_cells_of_the_shortlist(kind):
    """The T least (‖x − center‖², cell number) among the shortlist; the same for one row as for all."""
    rows, cells = ordered_cells(draw_rows(2, 400, 3, kind), 16)
    shortlist, probes = probes_of(rows, cells, 4, 9)
    home = np.repeat(np.arange(len(cells.numbers)), np.diff(cells.offsets))
    for i in range(0, 400, 7):
        listed = shortlist[home[i]]
        squared = paired_squared(np.broadcast_to(rows[i], (len(listed), 3)), cells.centers[listed])
        order = listed[np.lexsort((listed, squared))]
        np.testing.assert_array_equal(probes[i], np.sort(order[:4]))
        alone = probe_block(rows[i : i + 1], np.array([0, 1]), shortlist[home[i]][None], cells.centers, 4)
        np.testing.assert_array_equal(alone[0], probes[i])
        ranks = probe_ranks(rows[i], listed, cells.centers, order)
        np.testing.assert_array_equal(ranks, np.arange(len(listed)))
    missing = np.setdiff1d(cells.numbers, shortlist[0])[:2]
    assert (probe_ranks(rows[0], shortlist[0], cells.centers, missing) == np.iinfo(np.int32).max).all()


def test_small_cells_raise_the_number_of_probes():
    """Any T cells of the shortlist hold k + 1 rows: sizes 1, 2, 4, 9 and k + 1 = 5 need three of them."""
    rows, centers = np.arange(3.0)[:, None], np.array([[0.0], [1.0], [2.0], [3.0]])
    shortlist, sizes = np.array([[0, 1, 2, 3], [0, 1, 3, -1]]), np.array([1, 2, 4, 9])
    probes = probe_block(rows, np.array([0, 2, 3]), shortlist, centers, 1, sizes, 5)
    np.testing.assert_array_equal(probes, [[0, 1, 2], [0, 1, 2], [0, 1, 3]])
    plain = probe_block(rows, np.array([0, 2, 3]), shortlist, centers, 1, sizes, 1)
    np.testing.assert_array_equal(plain, [[0], [1], [1]])  # 2 is as near to 1 as to 3


def test_group_probes_turns_the_relation_round():
    probes = np.array([[7, 9], [3, 9], [-1, 7]], np.int32)
    probing = group_probes(probes)
    np.testing.assert_array_equal(probing.cells, [3, 7, 9])
    np.testing.assert_array_equal(probing.of(7), [0, 2])
    np.testing.assert_array_equal(probing.of(9), [0, 1])
    assert len(probing.of(4)) == 0
    assert len(group_probes(np.full((2, 3), -1, np.int32)).cells) == 0


def test_asking_cells_are_the_distinct_pairs():
    generator = np.random.default_rng(0)
    probes = np.array([generator.permutation(12)[:3] for _ in range(50)], np.int32) + 5
    offsets = np.array([0, 10, 11, 30, 50])
    home = np.repeat(np.arange(4), np.diff(offsets))
    expected = {(h, c) for h, row in zip(home.tolist(), probes.tolist()) for c in row}
    pairs = asking_cells(group_probes(probes), offsets)
    assert [tuple(pair) for pair in pairs.tolist()] == sorted(expected, key=lambda pair: pair[::-1])


def test_small_problems_never_import_numba():
    code = (
        "import sys, numpy as np; from bigembed.neighbors import exact;"
        "from bigembed.neighbors import partition; from bigembed.neighbors.search import local, probes;"
        "x = np.random.default_rng(0).random((500, 3)); exact.exact_block(x, 5);"
        "partition.cells_block(x, 64, 0);"
        "s = probes.nearest_cells(x[:8], x[:8], np.arange(8), 4);"
        "probes.probe_block(x[:8], np.arange(9), s, x[:8], 2);"
        "import bigembed as be; be.build_neighbor_graph(x, 5);"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
