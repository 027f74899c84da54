"""Graphs by every metric, of dense and of sparse rows, against distances that are written out here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.stats import entropy, spearmanr, wasserstein_distance

import bigembed as be
from bigembed.distance import FUNCTIONS, every_squared, named, pair_compiled
from bigembed.distance.metrics import NAMES, RowMetric
from bigembed.distance.pair_compiled import every_pair
from bigembed.errors import InputError, InputTypeError
from bigembed.neighbors import empty_lists
from bigembed.neighbors.order import Ordered
from bigembed.neighbors.query import index_of, join_rows
from bigembed.neighbors.search import every_block as search
from bigembed.neighbors.search import ground_truth
from bigembed.neighbors.search.by_metric import ByMetric, take_tile
from bigembed.neighbors.survey import prepare
from bigembed.rows.input import row_source
from bigembed.rows.row_maps import inadmissible, mapped_rows
from bigembed.store import at
from tests.executors import executor
from tests.some import a_few, these

from . import distance_functions

SPARSE = [name for name in NAMES if name != "haversine"]


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


def symmetric_kl(x: np.ndarray, y: np.ndarray) -> float:
    """As pynndescent has it: the precision of float32 is added to every number."""
    u, v = ((z + np.finfo("f4").eps) / (z + np.finfo("f4").eps).sum() for z in (x, y))
    return float(entropy(u, v) + entropy(v, u))


def angle(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.arccos(min(x @ y / np.linalg.norm(x) / np.linalg.norm(y), 1.0)))


def areas(x: np.ndarray, y: np.ndarray) -> float:
    """TS-SS of Heidarian & Dinneen: the triangle times the sector."""
    p, q, theta = np.linalg.norm(x), np.linalg.norm(y), angle(x, y) + np.radians(10)
    sector = (np.linalg.norm(x - y) + abs(p - q)) ** 2 * theta / 2
    return float(p * q * np.sin(theta) / 2 * sector)


def gower(x: np.ndarray, y: np.ndarray) -> float:
    """Values, then how much each counts."""
    (u, one), (v, other) = np.split(x, 2), np.split(y, 2)
    counts = np.minimum(one, other)
    return float((counts * np.minimum(np.abs(u - v), 1)).sum() / counts.sum()) if counts.any() else 1.0


def bits(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.unpackbits(x.astype(np.uint8)))


def distance(name: str, x: np.ndarray, y: np.ndarray) -> float:
    """The definition."""
    p, q = x != 0, y != 0
    apart = np.cumsum(x) / (x.sum() or 1) - np.cumsum(y) / (y.sum() or 1)
    both, differ, d = (p & q).sum(), (p ^ q).sum(), len(x)
    with np.errstate(invalid="ignore"):
        terms = np.nan_to_num(np.abs(x - y) / (np.abs(x) + np.abs(y)))
    unit = {
        "cosine": lambda v: v / np.linalg.norm(v),
        "correlation": lambda v: (v - v.mean()) / np.linalg.norm(v - v.mean()),
    }
    if name in unit:
        return float(np.linalg.norm(unit[name](x) - unit[name](y)))
    return float(
        {
            "euclidean": lambda: np.linalg.norm(x - y),
            "hellinger": lambda: np.sqrt(max(1 - (np.sqrt(x * y) / np.sqrt(x.sum() * y.sum())).sum(), 0)),
            "haversine": lambda: 2 * np.sqrt(
                np.sin((x[0] - y[0]) / 2) ** 2 + np.cos(x[0]) * np.cos(y[0]) * np.sin((x[1] - y[1]) / 2) ** 2
            ),
            "manhattan": lambda: np.abs(x - y).sum(),
            "chebyshev": lambda: np.abs(x - y).max(),
            "canberra": lambda: terms.sum(),
            "braycurtis": lambda: _ratio(np.abs(x - y).sum(), np.abs(x + y).sum()),
            "hamming": lambda: (x != y).mean(),
            "jaccard": lambda: _ratio(differ, both + differ),
            "dice": lambda: _ratio(differ, 2 * both + differ),
            "rogerstanimoto": lambda: 2 * differ / (d + differ),
            "sokalsneath": lambda: _ratio(2 * differ, both + 2 * differ),
            "spearmanr": lambda: np.sqrt(2 * (1 - spearmanr(x, y).statistic)),
            "sqeuclidean": lambda: cdist([x], [y], "sqeuclidean")[0, 0],
            "jensenshannon": lambda: cdist([x], [y], "jensenshannon")[0, 0],
            "yule": lambda: cdist([p], [q], "yule")[0, 0],
            "russellrao": lambda: cdist([p], [q], "russellrao")[0, 0] if differ else 0,
            "matching": lambda: (p != q).mean(),
            "kulsinski": lambda: (differ - both + d) / (differ + d) if differ else 0,
            "symmetric_kl": lambda: symmetric_kl(x, y),
            "wasserstein_1d": lambda: wasserstein_distance(np.arange(d), np.arange(d), x, y),
            "circular_kantorovich": lambda: np.abs(apart - np.median(apart)).sum(),
            "true_angular": lambda: angle(x, y) / np.pi,
            "tsss": lambda: areas(x, y),
            "gower": lambda: gower(x, y),
            "bit_hamming": lambda: (bits(x) != bits(y)).sum(),
            "bit_jaccard": lambda: _ratio((bits(x) ^ bits(y)).sum(), (bits(x) | bits(y)).sum()),
        }[name]()
    )  # fmt: skip


def rows_for(name: str, n: int = 70, d: int = 25) -> np.ndarray:
    """Positive rows with zeros; places on the globe."""
    random = np.random.default_rng(3)
    if name == "haversine":
        return np.column_stack([random.uniform(-1.5, 1.5, n), random.uniform(-3.1, 3.1, n)])
    if name == "gower":
        counts = (random.random((n, 12)) < 0.8) * 1.0
        counts[np.arange(n), random.integers(0, 12, n)] = 2.0
        return np.column_stack([random.random((n, 6)), random.integers(0, 3, (n, 6)), counts])
    centers = random.random((6, d)) * (random.random((6, d)) < 0.5)
    x = centers[random.integers(0, 6, n)] * (random.random((n, d)) < 0.8)
    x[np.arange(n), random.integers(0, d, n)] += random.random(n)
    return np.floor(127 * x) if name.startswith("bit_") else np.asarray(x)


def every(name: str, x: np.ndarray) -> np.ndarray:
    """All distances."""
    return np.array([[distance(name, a, b) for b in x] for a in x])


def reference(found: np.ndarray, k: int) -> np.ndarray:
    """How far the k-th other row is."""
    others = found.copy()
    np.fill_diagonal(others, np.inf)
    return np.sort(others, axis=1)[:, k - 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_by_every_metric_holds_the_nearest_rows_and_their_distances(name: str) -> None:
    x, k = rows_for(name, 36), 5
    wanted = every(name, x)
    last = reference(wanted, k)
    kinds = [x, sparse.csr_array(x)] if name in SPARSE else [x]
    for rows in kinds:
        graph = be.build_neighbor_graph(rows, k, metric=name)
        found = graph.to_scipy()
        i, j = found.tocoo().coords  # (those of length 0, too)
        np.testing.assert_allclose(found[i, j], wanted[i, j], atol=2e-7 * max(1, wanted.max()))
        nearest = np.maximum(last[i], last[j])
        assert (wanted[i, j] <= nearest * (1 + 1e-6) + 1e-7).all()  # each is among the k nearest of one of the two
        assert (np.bincount(i, minlength=len(x)) >= k).all()
        assert graph.recall == 1.0
        assert graph.metric == name
    control = "euclidean" if name == "haversine" else "chebyshev" if name == "manhattan" else "manhattan"
    other = [distance(control, x[a], x[b]) for a, b in zip(i, j, strict=True)]
    assert not np.allclose(found[i, j], other, atol=1e-3)  # a control


@a_few(
    2, ("name", "kind"), [("manhattan", "dense"), ("cosine", "sparse"), ("hellinger", "sparse"), ("jaccard", "dense")]
)
def test_across_blocks_a_query_finds_what_the_search_found(
    name: str, kind: str, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ground_truth, search):
        monkeypatch.setattr(module, "EXACT_ROWS", 0)
    x = rows_for(name, 700) * 7
    rows = x if kind == "dense" else sparse.csr_array(x)
    graph = be.build_neighbor_graph(rows, 5, metric=name, recall=0.9)
    assert len(graph.matrix.rows) > 1
    assert graph.recall >= 0.9
    ordered, chosen = x[graph.original_ids()], np.arange(0, 700, 35)
    truth = np.array([np.sort([distance(name, ordered[i], y) for y in ordered])[5] for i in chosen])
    lists = np.concatenate([
        np.sqrt(be_read(graph, f"squared/{b}")[:, -1].astype(float)) for b in range(len(graph.matrix.rows))
    ])[chosen]  # fmt: skip
    assert np.mean(lists <= truth + 1e-6) > 0.8
    assert (lists >= truth - 1e-6).all()
    given = prepare(rows[graph.original_ids()[::50]], graph.shape)
    joined = join_rows(given, index_of(graph.run, graph.shape))
    matrix, ids = graph.to_scipy(), graph.original_ids()
    for number, row in enumerate(ids[::50]):
        mine = slice(joined.indptr[number], joined.indptr[number + 1])
        there = ids[joined.ids[mine]]
        equal = joined.squared[mine] == 0
        if equal.sum() > 1:
            continue  # of equal rows a query is the first
        np.testing.assert_array_equal(np.sort(there[there != row]), np.sort(matrix[[row]].nonzero()[1]))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_task_of_a_block_reads_its_rows_and_the_sampled_ones_not_those_of_all_blocks(
    kind: str, small_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rows_for("cosine", 700)
    read: list[int] = []
    opened: list[set[int]] = []
    for name in ("rows", "compared", "take"):
        whole = getattr(Ordered, name)
        monkeypatch.setattr(Ordered, name, lambda self, b, *part, whole=whole: read.append(b) or whole(self, b, *part))

    def run(calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        found = []
        for call in calls:
            read.clear()
            found.append(call())
            if label == "truth_block":
                opened.append({*read})
        return found

    with executor(run):
        rows = x if kind == "dense" else sparse.csr_array(x)
        be.build_neighbor_graph(rows, 5, metric="cosine" if kind == "sparse" else "manhattan", workdir=str(tmp_path))
    assert len(opened) > 2
    assert opened == [{b} for b in range(len(opened))]


def be_read(graph: be.NeighborGraph, name: str) -> np.ndarray:
    from bigembed.store.arrays import read_array

    return read_array(graph.run.path("search", name))


def test_a_plan_counts_what_distances_pair_by_pair_take() -> None:
    x = rows_for("manhattan", 3_000)

    def terms(given: object, metric: str) -> dict[str, float]:
        found = be.DiffusionMap(metric=metric).stages(row_source(given, at("."), sparse=True)[0])
        return {stage.name: stage.cost.terms for stage in found if stage.cost.terms}

    assert terms(x, "euclidean") == {}
    plain, dear = terms(x, "manhattan"), terms(x, "canberra")
    assert set(plain) == {"witness", "search", "judgement"}
    assert plain["search"] == 3_000**2 * (50 + 25)
    assert all(dear[name] > 1.5 * plain[name] for name in plain)
    assert terms(sparse.csr_array(x), "cosine")["search"] < terms(sparse.csr_array(x), "chebyshev")["search"] / 4


FUNCTION_NAMES = named(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_a_pair_has_the_same_bits_whichever_comes_first_and_whatever_stands_near(name: str) -> None:
    x = rows_for(name)
    wanted = every_pair(x, x, name)
    for rows in (x, sparse.csr_array(x)):
        found = every_pair(rows, rows, name)
        np.testing.assert_array_equal(found, found.T)
        np.testing.assert_array_equal(every_pair(rows[[3]], rows[20:], name)[0], found[3, 20:])
        a, b = np.arange(5, dtype=np.int32), np.arange(60, 65, dtype=np.int32)
        out = ByMetric(RowMetric(name), "float64").of_pairs(rows)(a, b, np.full(5, np.inf))
        np.testing.assert_array_equal(out, found[a, b] ** 2)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13 * wanted.max())
    assert not np.diag(wanted).any()
    assert not every_pair(sparse.csr_array(x), sparse.csr_array(x), name).diagonal().any()
    compiled = [part for part in vars(pair_compiled).values() if hasattr(part, "py_func")]
    assert len(compiled) > 10
    assert not any(part.targetoptions.get("fastmath") for part in compiled)


@these(("euclidean", "cosine", "jaccard", "gower"), "name", [name for name in NAMES if name != "haversine"])
def test_nn_descent_and_a_certificate_have_every_metric(name: str) -> None:
    x = rows_for(name, 260)
    for rows in (x, sparse.csr_array(x)):
        graph = be.build_neighbor_graph(rows, 5, metric=name, algorithm="nn-descent")
        assert graph.recall > 0.95
    figures = [be.certify(rows, x, n_neighbors=8, samples=60, metric=name).figures for rows in (x, sparse.csr_array(x))]
    assert figures[0]["trustworthiness"]["value"] == pytest.approx(figures[1]["trustworthiness"]["value"], abs=0.02)
    assert figures[0]["trustworthiness"]["value"] > 0.5


def test_ranks_of_sparse_rows_are_those_of_dense_ones() -> None:
    random = np.random.default_rng(0)
    x = np.round(random.normal(size=(30, 12)), 1) * (random.random((30, 12)) < 0.6)
    x[0] = random.normal(size=12)  # no zero
    x[1, :6] = x[1, 0]
    sparse_rows, dense = mapped_rows(sparse.csr_array(x), "spearmanr", "f8"), mapped_rows(x, "spearmanr", "f8")
    apart = every_squared(sparse_rows[:, :12].toarray(), sparse_rows[:, :12].toarray())
    apart -= (sparse_rows[:, [12]].toarray() - sparse_rows[:, [12]].toarray().T) ** 2
    np.testing.assert_allclose(apart, every_squared(dense, dense), atol=1e-12)
    assert np.abs(apart - every_squared(mapped_rows(x, "correlation", "f8"), dense)).max() > 0.01  # a control


METHODS = ["DiffusionMap", "LaplacianEigenmaps", "TSNE", "UMAP", "Isomap", "SpectralClustering"]


@a_few(3, "method", METHODS)
def test_sparse_rows_go_through_the_whole_way_as_dense_ones_do(method: str, tmp_path: Path) -> None:
    x = rows_for("cosine", 150)
    rest = {"TSNE": {"n_iter": 30, "early_exaggeration_iter": 20}, "Isomap": {"components": "bridge"}}
    rest |= {"SpectralClustering": {"n_clusters": 3}, "DiffusionMap": {"components": "joint"}}
    made = getattr(be, method)(metric="correlation", **rest.get(method, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = made.fit(sparse.csr_array(x))
        np.testing.assert_allclose(fitted.transform(sparse.csr_array(x)), fitted.embedding_, atol=1e-5)
        np.testing.assert_array_equal(fitted.transform(sparse.csr_array(x[:3])), fitted.transform(x[:3]))
        fitted.save(tmp_path / "model")
        again = be.load(tmp_path / "model")
        np.testing.assert_array_equal(again.transform(sparse.csr_array(x)), fitted.transform(sparse.csr_array(x)))
        if method in ("DiffusionMap", "LaplacianEigenmaps"):
            dense = getattr(be, method)(metric="correlation", **rest.get(method, {})).fit(x)
            np.testing.assert_allclose(np.abs(fitted.embedding_), np.abs(dense.embedding_), atol=1e-4)


@pytest.mark.parametrize("name", [name for name in SPARSE if name != "euclidean"])
def test_rejected_sparse_rows_would_not_have_entered_a_list(name: str) -> None:
    x = sparse.csr_array(np.round(rows_for(name, 260), 1 if name == "hamming" else 9) + 0.0)
    x = x[np.flatnonzero(~inadmissible(x, name)[0])]
    rows, numbers = mapped_rows(x, name, "float32"), np.arange(x.shape[0])
    by = ByMetric(RowMetric(name), "float32")
    found, wanted = (empty_lists(x.shape[0], 7, np.dtype("f4")) for _ in range(2))
    for start in (150, 0, 100, 200, 50, 250):
        part = slice(start, start + 50)
        by.update_lists(*found, rows, numbers, rows[part], numbers[part])
        tile = by.squared(rows, rows[part])
        tile[numbers[:, None] == numbers[part]] = np.inf
        take_tile(*wanted, numbers, tile, numbers[part])
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_a_function_of_two_rows_is_compiled_and_kept_by_name(tmp_path: Path) -> None:
    x = rows_for("chebyshev")
    name = f"{distance_functions.__name__}:largest_step"
    by_name = be.build_neighbor_graph(x, 4, metric=name)
    by_function = be.build_neighbor_graph(x, 4, metric=distance_functions.largest_step)
    named = be.build_neighbor_graph(x, 4, metric="chebyshev")
    assert abs(by_name.to_scipy() - named.to_scipy()).max() < 1e-7
    assert abs(by_name.to_scipy() - by_function.to_scipy()).max() == 0
    le = be.LaplacianEigenmaps(6, metric=distance_functions.largest_step, n_neighbors=20).fit(x)
    le.save(tmp_path / "model")
    with pytest.raises(InputError, match="nothing that a file names is executed unless you allow it"):
        be.load(tmp_path / "model")
    again = be.load(tmp_path / "model", functions=[distance_functions.__name__])
    np.testing.assert_array_equal(again.transform(x), le.transform(x))
    with pytest.raises(InputTypeError, match="which a file names and nobody gave: set metric to it"):
        be.LaplacianEigenmaps(components="bridge").fit(type(by_name)(by_name.run))
    of_sparse = be.build_neighbor_graph(sparse.csr_array(x), 4, metric=distance_functions.shared)
    named = be.build_neighbor_graph(x, 4, metric="manhattan")
    assert abs(of_sparse.to_scipy() - named.to_scipy()).max() < 1e-6


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (distance_functions.one_sided, "distances are symmetric; of rows 25 and 31 it is 6"),
        (distance_functions.similarity, "the distance of a row to itself is 0.*Is it a similarity"),
        (distance_functions.sometimes_nan, r"returned nan for the rows \(.*a distance is finite"),
        (distance_functions.negative, r"returned -.* for the rows .*a distance is finite"),
        (distance_functions.shared, "numba cannot compile it as a function of"),
        ("manhatan", "did you mean 'manhattan'"),
        ("haversine", "takes two columns, latitude and longitude"),
    ],
)
def test_what_is_no_metric_is_refused(metric: object, says: str) -> None:
    x = rows_for("manhattan", 40)
    x[0, 0], x[1:, 0] = 0, x[1:, 0] + 1
    with pytest.raises(InputError, match=says):
        be.build_neighbor_graph(x, 3, metric=metric)


@pytest.mark.parametrize("name", ["braycurtis", "canberra", "dice", "jaccard"])
def test_two_rows_without_an_entry_are_at_0(name: str) -> None:
    """Where the formula says 0/0."""
    found = RowMetric(name).squared(np.zeros((2, 3)), np.diag([1.0, 0.0, 0.0]))
    np.testing.assert_array_equal(found[:, 1:], 0.0)
    assert (found[:, 0] > 0).all()


@pytest.mark.parametrize(
    ("metric", "row", "says"),
    [
        ("cosine", 0.0, "rows of zeros: 1 of 40, the first are rows \\[7\\]"),
        ("correlation", 2.0, "rows whose entries are all equal: 1 of 40"),
        ("hellinger", -1.0, "rows of zeros or with negative entries: 1 of 40"),
        ("spearmanr", 2.0, "rows whose entries are all equal: 1 of 40"),
        ("jensenshannon", 0.0, "rows of zeros or with negative entries: 1 of 40"),
        ("wasserstein_1d", -1.0, "rows of zeros or with negative entries: 1 of 40"),
        ("true_angular", 0.0, "rows of zeros: 1 of 40"),
        ("bit_hamming", 0.5, "rows of other than bytes, whole numbers from 0 to 255: 1 of 40"),
    ],
)
def test_rows_without_a_distance_are_named(metric: str, row: float, says: str) -> None:
    x = rows_for(metric, 40)
    x[7] = row
    for rows in (x, sparse.csr_array(x)):
        with pytest.raises(InputError, match=says):
            be.build_neighbor_graph(rows, 3, metric=metric)
    fitted = be.LaplacianEigenmaps(metric=metric, n_neighbors=10).fit(np.delete(x, 7, axis=0))
    with pytest.raises(InputError, match=r"is not defined for rows.*: 1 of the rows 0:9, the first are rows \[7\]"):
        fitted.transform(x[:9])


def test_what_is_said_of_new_rows_of_zeros_can_be_done_with_a_fitted_model() -> None:
    x = rows_for("cosine", 40)
    fitted = be.LaplacianEigenmaps(metric="cosine", n_neighbors=10).fit(x)
    new = np.where(np.arange(9)[:, None] == 7, 0, x[:9])
    with pytest.raises(
        InputError, match=r"the first are rows \[7\]. Give the new rows without these. A model that was"
    ):
        fitted.transform(new)
    assert fitted.transform(np.delete(new, 7, axis=0)).shape[0] == 8
