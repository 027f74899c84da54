"""PaCMAP: its pairs and its loss by their formulas, one step by Adam's, maps of real rows, and what turns amber."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

import bigembed as be
from bigembed.errors import ConvergenceWarning, InputError, InputTypeError, MapWarning
from bigembed.maps import pacmap as pairs_module
from bigembed.maps.pacmap import pool_rows, pool_sizes
from bigembed.maps.pacmap.compiled import loss, second_nearest, step
from bigembed.maps.pacmap.descent import PairOptions
from bigembed.neighbors.order import Ordered
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from tests.blocks import blocks_of
from tests.executors import executor
from tests.some import a_few

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
ROWS = np.random.default_rng(0).normal(size=(700, 6))
QUICK = {"num_iters": (2, 2, 4)}


def near_pairs(X: Any, near: int) -> set[tuple[int, int]]:
    """By the definition of Wang et al. (2021), §4.1, from all distances."""
    distances = cdist(X, X)
    np.fill_diagonal(distances, np.inf)
    k = min(near + 50, len(X) - 1)
    lists = np.argsort(distances, axis=1)[:, :k]
    sigma = np.sort(distances, axis=1)[:, 3:6].mean(axis=1)
    found = set()
    for i, listed in enumerate(lists):
        scaled = distances[i, listed] ** 2 / (sigma[i] * sigma[listed])
        found |= {(i, int(j)) for j in listed[np.argsort(scaled)[:near]]}
    return found


def stored_pairs(made: Any) -> tuple[dict[tuple[int, int], float], dict[str, list[tuple[int, int]]]]:
    """The near pairs with what they weigh, and the others, as a fit has stored them, by the numbers of the input."""
    run = made._run
    ordered, near = Ordered.open(run.path("order")), run.matrix("kernel", "weights")
    ids = np.concatenate([ordered.ids(b) for b in range(len(ordered.blocks))])
    weights, others = {}, {"mid": [], "far": []}
    for b, start in enumerate(ordered.starts[:-1]):
        block = near.block(b)
        columns = block.ids(b, ordered.starts)[block.indices]
        for row, column, weight in zip(block.row, columns, block.data, strict=True):
            weights[int(ids[start + row]), int(ids[column])] = float(weight)
        for name, known in others.items():
            starts, partners = (read_array(run.path("pairs", f"{part}/{b}")) for part in (f"{name}_starts", name))
            row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            known += zip(ids[start + row].tolist(), ids[partners].tolist(), strict=True)
    return weights, others


def reference(Y: Any, weights: Any, mid: Any, far: Any, options: Any) -> tuple[float, Any]:
    """The loss and its gradient by a loop over pairs that are listed at both ends, as their formulas have them."""
    near, middle, further = options[:3]
    total, gradient = 0.0, np.zeros_like(Y)
    kinds = [(near, 10.0, [(i, j, w) for (i, j), w in weights.items()])]
    kinds += [(middle, 1e4, [(i, j, 1.0) for i, j in mid])]
    for weight, constant, listed in kinds:
        for i, j, times in listed:
            d = 1 + ((Y[i] - Y[j]) ** 2).sum()
            total += 0.5 * times * weight * d / (constant + d)
            gradient[i] += times * weight * 2 * constant / (constant + d) ** 2 * (Y[i] - Y[j])
    for i, j in far:
        d = 1 + ((Y[i] - Y[j]) ** 2).sum()
        total += 0.5 * further / (1 + d)
        gradient[i] -= further * 2 / (1 + d) ** 2 * (Y[i] - Y[j])
    return total, gradient


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def whole(digits: Any) -> Any:
    return be.PaCMAP().fit(digits[0])


class TestPairs:
    """The three kinds of pairs, each by its definition."""

    @a_few(1, "rows", [1_000, 150])
    def test_pairs_are_those_of_the_definition(self, rows: int) -> None:
        with blocks_of(rows):
            made = be.PaCMAP(recall=1.0, **QUICK).fit(ROWS)
        weights, others = stored_pairs(made)
        wanted = near_pairs(ROWS, 10)
        assert wanted <= set(weights)
        assert sum(weights.values()) == 2 * len(wanted)
        assert all(weights[i, j] == ((i, j) in wanted) + ((j, i) in wanted) for i, j in weights)
        assert wanted != near_pairs(ROWS, 9)  # a control
        for name, count in (("mid", 5), ("far", 20)):
            listed = others[name]
            assert len(listed) == 2 * count * len(ROWS)
            assert sorted(listed) == sorted((j, i) for i, j in listed)  # both ends know it
            assert all(i != j for i, j in listed)

    def test_further_pairs_are_no_near_pairs_of_the_row_that_drew_them(self) -> None:
        made = be.PaCMAP(**QUICK).fit(ROWS)
        weights, others = stored_pairs(made)
        assert not set(others["far"]) & set(weights)
        places = np.bincount([j for _, j in others["far"]], minlength=len(ROWS))
        assert places.min() > 20  # (each row drew as many, and others drew it)

    def test_mid_near_pairs_are_second_nearest_of_six(self) -> None:
        found = second_nearest(
            np.array([[[7, 8, 9, 4, 5, 6]], [[1, 2, 3, 4, 5, 6]]], np.uint16),
            np.array([[[3.0, 1.0, 2.0, 9.0, 9.0, 9.0]], [[0.5, 0.1, 0.7, 0.3, 0.9, 0.8]]]),
        )
        assert found.tolist() == [[9], [4]]
        made = be.PaCMAP(**QUICK).fit(ROWS)
        distances = cdist(ROWS, ROWS)
        rank = np.argsort(np.argsort(distances, axis=1), axis=1) / len(ROWS)
        listed = pd.DataFrame(stored_pairs(made)[1]["mid"]).groupby(0)[1].apply(list)
        own, others = (np.concatenate([rank[i, part(known)] for i, known in listed.items()]) for part in (
            lambda known: known[:5], lambda known: known[5:]
        ))  # fmt: skip
        assert own.mean() == pytest.approx(2 / 7, abs=0.01)  # the second of six uniform numbers
        assert others.mean() > 0.3  # a control: of those that drew the row

    def test_of_many_rows_pairs_are_drawn_from_a_sample(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(pairs_module, "POOL", 300)
        monkeypatch.setattr("bigembed.maps.pacmap.descent.POOL", 300)
        with blocks_of(200):
            made = be.PaCMAP(**QUICK).fit(ROWS)
            again = be.PaCMAP(in_memory=False, **QUICK).fit(ROWS)
        np.testing.assert_array_equal(made.embedding_, again.embedding_)
        sizes = tuple(made._run.results("kernel")["rows"])
        assert len(sizes) > 1
        drawn = [len(pool_rows(b, sizes, 0)) for b in range(len(sizes))]
        assert drawn == pool_sizes(sizes)
        far = np.concatenate([read_array(made._run.path("pairs", f"far/{b}")) for b in range(len(sizes))])
        assert len(far) == 40 * len(ROWS)
        counts = np.bincount(far, minlength=sum(drawn))
        assert len(counts) == sum(drawn)
        assert 0.8 < counts.var() / counts.mean() < 1.25  # (each as likely as any other)

    @a_few(1, "metric", ["manhattan", "euclidean"])
    def test_the_task_of_a_block_opens_the_pool_in_pieces_not_what_each_block_left(
        self, metric: str, monkeypatch: Any, tmp_path: Any
    ) -> None:
        monkeypatch.setattr(pairs_module, "POOL", 50)
        monkeypatch.setattr("bigembed.maps.pacmap.descent.POOL", 50)
        read: list[tuple[str, int]] = []
        opened: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
        get_all = Exchange.get_all
        monkeypatch.setattr(Exchange, "get_all", lambda *at: read.append(at[1:]) or get_all(*at))

        def run(calls: Any, label: str) -> list[Any]:
            found = []
            for call in calls:
                read.clear()
                found.append(call())
                opened[label].append([*read])
            return found

        with blocks_of(60), executor(run):
            made = be.PaCMAP(metric=metric, workdir=str(tmp_path), **QUICK).fit(ROWS)
        sizes = made._run.results("kernel")["rows"]
        assert len(sizes) > 5
        pieces = [("pool", number) for number in range(-(-sum(pool_sizes(sizes)) // max(sizes)))]
        assert len(pieces) < len(sizes) / 3
        assert opened["draw_block"] == [pieces] * len(sizes)
        joined = [place for task in opened["join_pool"] for place in task]
        assert {*joined} == {("drawn", b) for b in range(len(sizes))}
        assert len(joined) < len(sizes) + len(pieces)


class TestDescent:
    """The loss and a step by their formulas."""

    @a_few(1, "m", [2, 3])
    def test_a_step_is_adams_along_the_gradient_of_the_loss(self, m: int) -> None:
        random = np.random.default_rng(1)
        made = be.PaCMAP(**QUICK).fit(ROWS[:120])
        weights, others = stored_pairs(made)
        Y, n = 3 * random.normal(size=(120, m)), 120
        near = sorted(weights)
        lists = {name: sorted(listed) for name, listed in others.items()}

        def pointers(listed: Any) -> Any:
            return np.concatenate([[0], np.cumsum(np.bincount([i for i, _ in listed], minlength=n))]).astype(np.int32)

        read = (
            pointers(near), np.array([j for _, j in near], np.int32), np.array([weights[pair] for pair in near], "f4"),
            Y, Y.copy(), pointers(lists["mid"]), np.array([j for _, j in lists["mid"]], np.uint16),
            pointers(lists["far"]), np.array([j for _, j in lists["far"]], np.uint16),
        )  # fmt: skip
        asked = PairOptions(m, (100, 100, 250), 1.0, 0)
        first, second = random.normal(size=(n, m)), random.random((n, m))
        for turn in (0, 40, 150, 320):
            options = asked.at(turn)
            total, gradient = reference(Y, weights, lists["mid"], lists["far"], options)
            assert loss(0, n, *read, options) / 2**24 == pytest.approx(total, rel=1e-6)
            out, one, two = (np.empty_like(Y) for _ in range(3))
            step(0, n, *read, first, second, options, out, one, two)
            moment, square = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            rate = np.sqrt(1 - 0.999 ** (turn + 1)) / (1 - 0.9 ** (turn + 1))
            np.testing.assert_allclose(out, Y - rate * moment / (np.sqrt(square) + 1e-7), rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(one, moment, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(two, square, rtol=1e-9, atol=1e-12)
            delta = 1e-5 * gradient
            lower = reference(Y - delta, weights, lists["mid"], lists["far"], options)[0]
            assert total - lower == pytest.approx((gradient * delta).sum(), rel=1e-2)  # it is the gradient

    def test_the_weights_are_those_of_the_three_phases(self) -> None:
        asked = PairOptions(2, (10, 5, 20), 0.5, 0)
        weights = np.array([asked.at(turn)[:3] for turn in range(35)])
        np.testing.assert_allclose(weights[:10, 1], np.linspace(1000, 3, 11)[:10])
        assert set(weights[:10, 0]) == {2.0}
        assert weights[10:15].tolist() == [[3.0, 3.0, 1.0]] * 5
        assert weights[15:].tolist() == [[1.0, 0.0, 1.0]] * 20
        assert asked.reports() == [10, 15, 25, 35]


class TestMaps:
    """Maps of real rows, new rows, and failures that are planted."""

    def test_a_map_of_digits_is_good_and_quiet(self, digits: Any, whole: Any) -> None:
        assert not any(whole.certificate_["warnings"].values())
        figures = whole.certificate_["judgement"]["map"]
        assert figures["trustworthiness"]["value"] > 0.97
        assert figures["preservation"]["value"] > 0.42
        assert whole.loss_ == pytest.approx(3347, rel=0.02)  # the loss of pacmap 0.9.1, of these rows with its defaults
        assert np.diff(whole.losses_[whole.reports_ > 200]).max() < 0
        assert whole.losses_[-1] != pytest.approx(whole.losses_[whole.reports_ == 250][0], rel=0.01)

    def test_new_rows_come_to_their_kind(self, digits: Any) -> None:
        X, y = digits
        made = be.PaCMAP().fit(X[:1400])
        placed = made.transform(X[1400:])
        nearest = cdist(placed, made.embedding_).argmin(axis=1)
        assert (y[:1400][nearest] == y[1400:]).mean() > 0.93
        np.testing.assert_array_equal(made.transform(X[1400:1410]), placed[:10])
        shuffled = np.random.default_rng(0).permutation(len(placed))
        assert (y[:1400][nearest[shuffled]] == y[1400:]).mean() < 0.2  # a control

    @a_few(
        2,
        ("planted", "warning"),
        [
            ({"num_iters": (100, 100, 5)}, ConvergenceWarning),
            ({"num_iters": (3, 3, 20)}, ConvergenceWarning),
            ({"num_iters": (0, 0, 250), "init": "random"}, MapWarning),  # (torn),
        ],
    )
    @pytest.mark.filterwarnings("default::bigembed.errors.BigembedWarning")
    def test_a_planted_failure_is_said(self, digits: Any, planted: dict[str, Any], warning: type[Warning]) -> None:
        with pytest.warns(warning):
            be.PaCMAP(**planted).fit(digits[0])

    def test_what_has_no_rows_is_refused(self) -> None:
        distances = cdist(ROWS[:50], ROWS[:50])
        with pytest.raises(InputTypeError, match="reads rows"):
            be.PaCMAP().fit(be.open_graph(np.argsort(distances, axis=1)[:, 1:6], distances=np.sort(distances)[:, 1:6]))
        with pytest.raises(InputError, match="metric"):
            be.PaCMAP(metric="precomputed").fit(distances)
        for wrong in ((1, 2), (0, 0, 0), (1, -1, 3), "all"):
            with pytest.raises(InputError, match="num_iters"):
                be.PaCMAP(num_iters=wrong).fit(ROWS[:50])
        with pytest.raises(InputError, match="init"):
            be.PaCMAP(init="spectral").fit(ROWS[:50])
