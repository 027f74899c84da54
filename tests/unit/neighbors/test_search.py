"""Exact lists, and the search in near cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigembed as be
from bigembed import neighbors
from bigembed.distance import every_squared, paired_squared
from bigembed.neighbors import compiled as nearest
from bigembed.neighbors.partition import assign_block, cells_block
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes as shortlist
from bigembed.neighbors.search.by_metric import Cells, search_cells, search_own
from bigembed.neighbors.search.ground_truth import better_curve, choose_probes, reaches_soon
from bigembed.neighbors.search.probes import group_probes, nearest_cells, probe_block, probe_ranks
from tests.some import a_few


def by_definition(rows, k):
    """Sort every row's pairs (squared distance, id) by brute force."""
    n = len(rows)
    left, right = np.divmod(np.arange(n * n), n)
    squared = paired_squared(rows[left], rows[right]).reshape(n, n).astype(rows.dtype)
    ids = np.full((n, k), -1)
    nearest = np.full((n, k), np.inf, rows.dtype)
    for i in range(n):
        others = np.delete(np.arange(n), i)
        order = others[np.lexsort((others, squared[i, others]))][:k]
        ids[i, : len(order)], nearest[i, : len(order)] = order, squared[i, order]
    return ids, nearest


def draw_rows(seed, n, d, kind, dtype=np.float32):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, d))
    if kind == "grid":
        rows = generator.integers(0, 3, size=(n, d))
    elif kind == "equal":
        rows = np.ones((n, d)) * 0.1
    elif kind == "offset":
        rows = rows * 1e-3 + 1e3
    elif kind == "duplicates":
        rows = rows[generator.integers(0, max(1, n // 4), n)]
    return rows.astype(dtype)


KINDS = st.sampled_from(["normal", "grid", "equal", "offset", "duplicates"])
DTYPES = st.sampled_from([np.float32, np.float64])


class TestExact:
    """Exact lists: the k smallest of (squared distance, id), whatever the tiles and the order of arrival."""

    @pytest.mark.parametrize("d", [1, 3, 7, 8, 9, 16, 65])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_paired_squared_sums_eight_lanes_and_a_tree(self, d, dtype):
        """s_l = Σ (a_j − b_j)² over j ≡ l mod 8, then ((s0+s4)+(s2+s6)) + ((s1+s5)+(s3+s7)); to the last bit."""
        a, b = np.random.default_rng(d).normal(size=(2, 20, d)).astype(dtype)
        for i in range(20):
            s = [0.0] * 8
            for j in range(d):
                t = float(a[i, j]) - float(b[i, j])
                s[j % 8] += t * t
            expected = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
            assert paired_squared(a[i : i + 1], b[i : i + 1])[0] == expected
            assert paired_squared(b, a)[i] == expected

    @settings(max_examples=20)
    @given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 20), KINDS, DTYPES, st.floats(-6, 6))
    def test_approximate_squared_is_within_its_bound(self, seed, n, d, kind, dtype, log_scale):
        rows = (draw_rows(seed, n, d, kind) * 10**log_scale).astype(dtype)
        approximate, slack = neighbors.approximate_squared(rows[:3], rows)
        for i in range(min(3, n)):
            exact = paired_squared(np.repeat(rows[i : i + 1], n, axis=0), rows)
            assert (np.abs(approximate[i] - exact) <= slack[i]).all()

    @settings(max_examples=20)
    @given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 12), st.integers(1, 8), KINDS, DTYPES)
    def test_exact_block_is_the_definition(self, seed, n, d, k, kind, dtype):
        rows = draw_rows(seed, n, d, kind, dtype)
        for got, expected in zip(neighbors.exact_block(rows, k), by_definition(rows, k)):
            np.testing.assert_array_equal(got, expected)

    @settings(max_examples=15)
    @given(st.integers(0, 99), KINDS, st.integers(1, 9))
    def test_lists_do_not_depend_on_pieces(self, seed, kind, k):
        rows = draw_rows(seed, 200, 3, kind)
        numbers = np.arange(200)
        generator = np.random.default_rng(seed)
        ids, squared = neighbors.empty_lists(200, k, rows.dtype)
        for part in np.array_split(generator.permutation(200), generator.integers(1, 9)):
            neighbors.update_lists(ids, squared, rows, numbers, rows[part], part)
            neighbors.update_lists(ids, squared, rows, numbers, rows[part[:5]], part[:5])  # given twice, taken once
        expected = neighbors.exact_block(rows, k)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(squared, expected[1])

    def test_fewer_rows_than_neighbors_leave_places_empty(self):
        ids, squared = neighbors.exact_block(np.arange(3.0)[:, None], 4)
        np.testing.assert_array_equal(ids, [[1, 2, -1, -1], [0, 2, -1, -1], [1, 0, -1, -1]])
        np.testing.assert_array_equal(squared[0], [1, 4, np.inf, np.inf])


def merged_lists(rows, k):
    """Lists of all pairs by merging: what is left where nothing is known to be complete."""
    ids, squared = neighbors.empty_lists(len(rows), k, rows.dtype)
    i, j = np.nonzero(~np.eye(len(rows), dtype=bool))
    with np.errstate(over="ignore"):
        neighbors.merge_pairs(ids, squared, i, j, paired_squared(rows[i], rows[j]).astype(rows.dtype))
    return ids, squared


class TestComplete:
    """Every pair of a few rows: bit by bit what the search with lists would find."""

    @pytest.mark.parametrize("dtype", ["f4", "f8"])
    @pytest.mark.parametrize("d", [1, 3, 8, 9, 17, 64, 130])
    def test_distances_are_those_of_pairs_bit_by_bit(self, dtype, d):
        rng = np.random.default_rng(d)
        a, b = rng.normal(size=(19, d)).astype(dtype), rng.normal(size=(530, d)).astype(dtype)
        i, j = np.indices((19, 530)).reshape(2, -1)
        np.testing.assert_array_equal(every_squared(a, b).ravel(), paired_squared(a[i], b[j]))

    @pytest.mark.parametrize("rows", ["normal", "ties", "far", "one", "two"])
    @pytest.mark.parametrize("more", [-3, 0, 4])
    def test_lists_are_those_of_the_general_way(self, rows, more):
        rng = np.random.default_rng(0)
        values = {
            "normal": rng.normal(size=(60, 5)),
            "ties": rng.integers(0, 2, size=(60, 3)).astype("f4"),
            "far": 1e200 * rng.normal(size=(20, 3)),  # squares beyond the largest number
            "one": rng.normal(size=(1, 2)),
            "two": rng.normal(size=(2, 2)),
        }[rows]
        k = max(1, len(values) - 1 + more)
        for found, wanted in zip(neighbors.exact_block(values, k), merged_lists(values, k), strict=True):
            np.testing.assert_array_equal(found, wanted)


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
    ids, squared = neighbors.empty_lists(len(rows), k, rows.dtype)
    home = np.repeat(np.arange(len(cells.numbers)), np.diff(cells.offsets))
    for i in range(len(rows)):
        chosen = np.flatnonzero(np.isin(home, probes[i]))
        part = slice(i, i + 1)
        neighbors.update_lists(ids[part], squared[part], rows[part], np.array([i]), rows[chosen], chosen)
    return ids, squared


class TestLocal:
    """The compiled search gives the lists of the NumPy reference, bit for bit, for any pieces."""

    @settings(max_examples=12)
    @given(st.integers(0, 99), st.integers(20, 300), st.sampled_from([1, 3, 21]), KINDS, DTYPES, st.integers(1, 12))
    def test_search_is_the_reference_in_any_pieces(self, seed, n, d, kind, dtype, k):
        rows, cells = ordered_cells(draw_rows(seed, n, d, kind, dtype), 24)
        _, probes = probes_of(rows, cells, 3, 5)
        probing = group_probes(probes)
        expected = reference(rows, cells, probes, k)
        row_ids = np.arange(n)
        own = neighbors.empty_lists(n, k, rows.dtype)
        search_own(*own, rows, row_ids, probing, cells)
        pieces = neighbors.empty_lists(n, k, rows.dtype)
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

    @pytest.mark.parametrize("scale", [1e-19, 1e-3, 1e15, 3e18])
    def test_scale_does_not_lose_neighbors(self, scale):
        """Where squares leave the range of float32 the lists are still ordered by (distance, id)."""
        rows, cells = ordered_cells((draw_rows(1, 200, 4, "normal") * np.float32(scale)).astype(np.float32), 16)
        probes = np.tile(np.arange(len(cells.numbers), dtype=np.int32), (200, 1))
        ids, squared = neighbors.empty_lists(200, 5, rows.dtype)
        search_own(ids, squared, rows, np.arange(200), group_probes(probes), cells)
        with np.errstate(over="ignore"):
            expected = neighbors.exact_block(rows, 5)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(squared, expected[1])

    @pytest.mark.parametrize("kind", ["normal", "grid", "equal"])
    def test_probes_are_the_nearest_cells_of_the_shortlist(self, kind):
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

    def test_small_cells_raise_the_number_of_probes(self):
        """Any T cells of the shortlist hold k + 1 rows: sizes 1, 2, 4, 9 and k + 1 = 5 need three of them."""
        rows, centers = np.arange(3.0)[:, None], np.array([[0.0], [1.0], [2.0], [3.0]])
        shortlist, sizes = np.array([[0, 1, 2, 3], [0, 1, 3, -1]]), np.array([1, 2, 4, 9])
        probes = probe_block(rows, np.array([0, 2, 3]), shortlist, centers, 1, sizes, 5)
        np.testing.assert_array_equal(probes, [[0, 1, 2], [0, 1, 2], [0, 1, 3]])
        plain = probe_block(rows, np.array([0, 2, 3]), shortlist, centers, 1, sizes, 1)
        np.testing.assert_array_equal(plain, [[0], [1], [1]])  # 2 is as near to 1 as to 3


def near_a_plane(seed, n=600, d=64, inside=6, noise=1e-3, dtype=np.float32, outliers=5):
    """Rows near a random plane, far from the origin, a few of them far off the plane, a few repeated."""
    generator = np.random.default_rng(seed)
    plane = np.linalg.qr(generator.normal(size=(d, inside)))[0]
    rows = generator.normal(size=(n, inside)) @ plane.T + noise * generator.normal(size=(n, d)) + 3
    rows[:outliers] += generator.normal(size=(outliers, d))
    rows[n - 7 :] = rows[0:7]
    return rows.astype(dtype)


@settings(max_examples=10)
@given(
    st.integers(0, 999),
    st.sampled_from([1e-6, 1e-2, 0.1]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_lists_of_rows_near_a_plane_are_those_of_all_pairs(seed, noise, dtype, scale):
    rows, cells = ordered_cells(near_a_plane(seed, noise=noise, dtype=dtype) * dtype(scale), 48)
    everywhere = np.tile(np.arange(len(cells.numbers), dtype=np.int32), (len(rows), 1))
    expected = neighbors.exact_block(rows, 9)
    own, foreign = neighbors.empty_lists(len(rows), 9, rows.dtype), neighbors.empty_lists(len(rows), 9, rows.dtype)
    search_own(*own, rows, np.arange(len(rows)), group_probes(everywhere), cells)
    search_cells(*foreign, rows, np.arange(len(rows)), group_probes(everywhere), cells)
    for got in (own, foreign):
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


def exact(rows, centers):
    return np.stack([paired_squared(rows, np.broadcast_to(c, rows.shape)) for c in centers], axis=1)


class TestNearest:
    """The compiled choice of nearest centers is the one by definition, bit for bit."""

    @settings(max_examples=20)
    @given(st.integers(0, 99), st.integers(1, 150), st.integers(1, 70), st.sampled_from([1, 3, 21]), KINDS, DTYPES)
    def test_the_nearest_center_is_that_of_the_exact_distances(self, seed, n, c, d, kind, dtype):
        rows = draw_rows(seed, n + c, d, kind, dtype)
        rows, centers = rows[:n], rows[n:]
        expected = exact(rows, centers).argmin(axis=1)  # ties to the lowest number
        np.testing.assert_array_equal(nearest.nearest(rows, centers), expected)
        numbers = np.arange(n)
        np.testing.assert_array_equal(
            assign_block(rows, numbers, centers, compiled=True), assign_block(rows, numbers, centers)
        )

    @pytest.mark.parametrize("tile", [1, 1 << 18])
    @settings(max_examples=12)
    @given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 80), st.sampled_from([1, 3, 21]), KINDS, DTYPES)
    def test_lists_are_those_of_the_reference_in_any_tiles(self, tile, seed, n, c, d, kind, dtype):
        rows = draw_rows(seed, n + c, d, kind, dtype)
        rows, centers = rows[:n], rows[n:]
        for k in {1, c, max(1, c // 3)}:
            expected, squared = neighbors.empty_lists(n, k, dtype)
            neighbors.update_lists(expected, squared, rows, np.full(n, -1), centers, np.arange(c))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(nearest, "_LIST_TILE_ENTRIES", tile)
                np.testing.assert_array_equal(nearest.nearest_lists(rows, centers, k), expected)

    def test_without_the_rounding_bound_rows_far_from_zero_go_wrong(self, monkeypatch):
        """A control: what the matrix product alone says is not enough."""
        generator = np.random.default_rng(0)
        centers = (generator.integers(-3, 4, size=(60, 3)) + 1000.0 * generator.integers(0, 2, size=(60, 1))).astype(
            "f4"
        )
        rows = (generator.integers(-3, 4, size=(500, 3)) + 1000.0).astype("f4")
        expected = exact(rows, centers).argmin(axis=1)
        np.testing.assert_array_equal(nearest.nearest(rows, centers), expected)
        monkeypatch.setattr(nearest, "rounding", lambda d, dtype: 0.0)
        assert (nearest.nearest(rows, centers) != expected).any()


class TestShortlist:
    """Shortlists look at near blocks only, and lose nothing that matters; they are longer where they would."""

    @pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
    def test_few_near_blocks_keep_the_recall(self, small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
        X = np.random.default_rng(0).uniform(size=(6000, 2))
        monkeypatch.setattr(shortlist, "NEAR_BLOCKS", 9)
        near = be.build_neighbor_graph(X, 8, algorithm="cells")
        assert len(near.matrix.rows) > 12
        assert near.recall >= 0.99
        monkeypatch.setattr(
            shortlist, "NEAR_BLOCKS", 1
        )  # a control: the own block alone loses the borders, and it is seen
        with pytest.raises(AssertionError):
            assert be.build_neighbor_graph(X, 8, algorithm="cells").recall >= 0.99

    @pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
    @a_few(1, ("longer", "found"), [((16,), 16), ((8,), None)])
    def test_lists_are_longer_where_rows_at_the_edge_of_a_cell_would_miss_neighbors(
        self, small_blocks: None, monkeypatch: pytest.MonkeyPatch, longer: tuple[int, ...], found: int | None
    ) -> None:
        """What is expected is found; a control without longer lists misses the target, and says so."""
        X = np.random.default_rng(0).normal(size=(6000, 6)).astype(np.float32)
        monkeypatch.setattr(shortlist, "SHORTLIST", 8)
        monkeypatch.setattr(expected_recall, "LONGER", longer)
        run = be.build_neighbor_graph(X, 8, recall=0.95, algorithm="cells").run
        witness, search, recall = (run.results(stage) for stage in ("witness", "search", "recall"))
        assert search.get("shortlist") == witness.get("shortlist") == found
        assert recall["recall"] == pytest.approx(witness["expected_recall"])
        assert (recall["recall"] >= 0.95) == (found is not None)
        assert recall["advice"].startswith(
            "" if found else f"{search['n_probes']} cells were searched for each row; all 8"
        )

    def test_a_search_stops_where_the_curve_is_flat(self) -> None:
        """Of 256 cells that find .9735 those that find as many within a standard error (.0013); of a target that is
        reached
        none less than it takes."""
        cells = np.arange(1, 257)
        curve = 0.9735 * (1 - np.exp(-cells / 15))
        few = choose_probes(curve, 0.99, 15_000)
        assert few < 110
        assert curve[few - 2] < curve[-1] - np.sqrt(0.9735 * 0.0265 / 15_000) <= curve[few - 1]
        assert curve[choose_probes(curve, 0.96, 15_000) - 2] < 0.9632 <= curve[choose_probes(curve, 0.96, 15_000)]
        assert choose_probes(curve, 1.0, 15_000) == 256

    def test_longer_lists_are_kept_where_they_save_cells(self) -> None:
        def curve(length: int, most: float, scale: float) -> np.ndarray:
            return most * (1 - np.exp(-np.arange(1, length + 1) / scale))

        given = 0.99, 15_000
        short, half, long = curve(256, 0.9735, 15), curve(512, 1.0, 16), curve(512, 1.0, 40)
        assert not reaches_soon(short, *given)
        assert reaches_soon(half, *given)
        assert not reaches_soon(long, *given)
        assert better_curve(short, half, *given) is half  # reaches the target
        assert better_curve(long, curve(1024, 1.0, 30), *given) is not long  # fewer cells
        assert better_curve(long, curve(1024, 1.0, 39), *given) is long  # (controls: hardly fewer; neither reaches it)
        assert better_curve(short, curve(512, 0.97, 15), *given) is short
