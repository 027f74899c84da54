"""The certificate of maps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import block_diag, csr_array
from sklearn import datasets

import bigembed as be
from bigembed import errors
from bigembed.datasets import ring_graph
from bigembed.errors import InputError, MapWarning, RecallWarning, SeparationWarning
from bigembed.estimator.certificate import carried_warnings
from bigembed.estimator.reporting import CATEGORIES
from bigembed.maps.bandwidth import Bandwidth
from bigembed.maps.kernels import NARROW
from bigembed.maps.walk.judgement import half_map, shares_kept
from tests.some import a_few

Case = tuple[Any, dict[str, Any]]


def gaussian(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def uniform(n: int, *sides: float) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(n, len(sides))) * sides


def sphere(n: int) -> np.ndarray:
    rows = gaussian(n)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def circle(angle: np.ndarray) -> np.ndarray:
    return np.column_stack([np.cos(angle), np.sin(angle)])


def torus(n: int) -> np.ndarray:
    a, b = uniform(n, 2 * np.pi, 2 * np.pi).T
    return np.column_stack([(2 + 0.8 * np.cos(b)) * np.cos(a), (2 + 0.8 * np.cos(b)) * np.sin(a), 0.8 * np.sin(b)])


def roll(n: int) -> np.ndarray:
    turn, height = uniform(n, 1.0, 21.0).T
    angle = 1.5 * np.pi * (1 + 2 * turn)
    return np.column_stack([angle * np.cos(angle), height, angle * np.sin(angle)])


def mixture(n: int, gap: float) -> np.ndarray:
    return gaussian(n) + gap * np.eye(3)[np.random.default_rng(1).integers(0, 3, n)]


def standard(load: Callable[[], Any]) -> np.ndarray:
    rows = load().data
    spread = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def chain(clusters: int, size: int, weight: float) -> csr_array:
    graph = block_diag([csr_array(np.ones((size, size)) - np.eye(size))] * clusters).tolil()
    for last in range(size - 1, clusters * size - 1, size):
        graph[last, last + 1] = graph[last + 1, last] = weight
    return csr_array(graph)


def apart(*sizes: int) -> np.ndarray:
    return np.concatenate([gaussian(size, seed=at) + 80 * at for at, size in enumerate(sizes)])


def told(X: Any, parameters: dict[str, Any]) -> tuple[be.DiffusionMap, dict[str, str]]:
    """A fitted map, and the sentences of its certificate by category; each was given as a warning of its class too."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        fitted = be.DiffusionMap(**{"n_components": 2, **parameters}).fit(X)
    said = fitted.certificate_["warnings"]
    expected = [
        (getattr(errors, CATEGORIES[category]), message) for category, messages in said.items() for message in messages
    ]
    assert [(one.category, str(one.message)) for one in given] == expected
    return fitted, {category: " | ".join(messages) for category, messages in said.items() if messages}


WRONG: dict[str, tuple[Callable[[], Case], str, str]] = {
    "a planted outlier": (
        lambda: (np.vstack([gaussian(600), [[6.5, 0, 0]]]), {"bandwidth": "fixed"}),
        "localized",
        r"carried by few rows: 1.* \| .*all but cut off.*bandwidth='adaptive'",
    ),
    "every coordinate a row": (
        lambda: (gaussian(1_500), {"bandwidth": "fixed", "n_components": 3}),
        "localized",
        r"coordinates 1, 2, 3 are carried by few rows",
    ),
    "a row cut off": (
        lambda: (np.vstack([gaussian(600), [[500.0, 0, 0]]]), {"bandwidth": "fixed"}),
        "components",
        r"1 row in 1 island .*labels_ is −1 there. The first: row 600",
    ),
    "a cluster cut off": (lambda: (apart(400, 200), {}), "components", r"2 parts .* of 400, 200 rows"),
    "a harmonic": (
        lambda: (uniform(1_000, 6.0, 1.0), {"n_components": 3}),
        "harmonic",
        r"coordinates 2, 3 are functions of earlier ones .*New is 1:",
    ),
    "noise": (lambda: (gaussian(800, 60), {}), "map", r"Trustworthiness is 0\.5"),
    "an unconverged solve": (
        lambda: (sphere(2_500), {"max_passes": 6}),
        "convergence",
        r"component 0 of the graph: the eigensolver stopped .*tol=1e-06 was not met",
    ),
    "k too small": (
        lambda: (gaussian(500, 2), {"n_neighbors": 2}),
        "components",
        r"parts that no neighbors join.*islands .*Look at them",
    ),
    "repeated rows": (
        lambda: (np.vstack([gaussian(500), np.repeat(gaussian(1, seed=1), 40, axis=0)]), {}),
        "degenerate",
        r"40 rows have their k nearest neighbors within 1 %",
    ),
    "a bridge that should not be": (
        lambda: (apart(400, 200), {"components": "bridge"}),
        "components",
        r"1 bridge joins 2 components of 400, 200 rows; the longest is .* times the usual distance",
    ),
    "wrong units": (
        lambda: (sphere(800) * [5_000, 1, 1], {}),
        "map",
        r"column 0 \(from 0\) of the rows holds 100 % of their variance",
    ),
    "a multiple eigenvalue, turned": (
        lambda: (ring_graph(500), {}),
        "separation",
        r"coordinates 1–2 may be turned among themselves",
    ),
    "a multiple eigenvalue of rows, cut": (
        lambda: (circle(2 * np.pi * np.arange(512) / 512), {"n_components": 1, "n_neighbors": 14}),
        "separation",
        r"cannot be distinguished from the first one left out",
    ),
    "26 near components": (lambda: (chain(26, 20, 1e-12), {"n_components": 3}), "components", r"26 components"),
    "parts that weights of 1e-8 join": (
        lambda: (chain(26, 20, 1e-8), {"n_components": 3}),
        "localized",
        r"coordinates 1, 2, 3 are of parts that are all but cut off",
    ),
    "too few landmarks": (
        lambda: (sphere(1_500), {"n_components": 3, "solver": "landmarks", "n_landmarks": 20}),
        "separation",
        r"Take solver='exact' \(or more landmarks\)",
    ),
}
RIGHT: dict[str, Callable[[], Case]] = {
    "iris": lambda: (standard(datasets.load_iris), {}),
    "wine": lambda: (standard(datasets.load_wine), {}),
    "breast cancer": lambda: (standard(datasets.load_breast_cancer), {"n_components": 4}),
    "digits": lambda: (standard(datasets.load_digits), {"n_components": 3}),
    "swiss roll": lambda: (roll(1_500), {"n_components": 1}),
    "circle": lambda: (circle(uniform(600, 2 * np.pi)[:, 0]), {}),
    "circle, auto": lambda: (circle(uniform(600, 2 * np.pi)[:, 0]), {"n_components": "auto"}),
    "circle with noise": lambda: (circle(uniform(600, 2 * np.pi)[:, 0]) + 0.02 * gaussian(600, 2), {}),
    "circle, all pairs": lambda: (circle(uniform(300, 2 * np.pi)[:, 0]), {"n_neighbors": None}),
    "sphere": lambda: (sphere(1_000), {"n_components": 3}),
    "sphere, Laplace–Beltrami": lambda: (sphere(1_000), {"n_components": 3, "target": "laplace-beltrami"}),
    "sphere, one scale": lambda: (sphere(1_000), {"n_components": 3, "bandwidth": "fixed"}),
    "sphere, cosine": lambda: (
        sphere(800) * uniform(800, 1.0)[:, :1] + 1e-3 * sphere(800),
        {"n_components": 3, "metric": "cosine"},
    ),
    "torus": lambda: (torus(1_500), {}),
    "strip": lambda: (uniform(800, 3.0, 2.0), {}),
    "box": lambda: (uniform(1_200, 1.0, 1.1, 1.2), {"n_components": 3}),
    "clusters that touch": lambda: (mixture(900, 5.0), {}),
    "clusters that overlap": lambda: (mixture(900, 3.0), {}),
    "clusters, auto": lambda: (mixture(900, 5.0), {"n_components": "auto"}),
    "six clusters": lambda: (
        gaussian(1_500, 6) + 4.5 * np.eye(6)[np.random.default_rng(1).integers(0, 6, 1_500)],
        {"n_components": 5},
    ),
    "Gaussian rows": lambda: (gaussian(1_500), {"n_components": 3}),
    "heavy tails": lambda: (np.random.default_rng(0).standard_t(3, size=(1_000, 3)), {"n_components": 3}),
    "an outlier": lambda: (np.vstack([gaussian(600), [[6.5, 0, 0]]]), {}),
    "a grid": lambda: (np.stack(np.meshgrid(np.arange(30.0), np.arange(20.0)), axis=-1).reshape(-1, 2), {}),
    "a constant column": lambda: (np.column_stack([gaussian(500, 2), np.ones(500)]), {}),
    "float32": lambda: (uniform(800, 1.1, 1.0).astype(np.float32), {}),
}


class TestJudgement:
    """The certificate against truth: maps that are wrong are marked, with the reason; maps that are right are not."""

    @pytest.mark.parametrize("name", WRONG)
    def test_what_is_wrong_is_marked_with_the_reason(self, name: str) -> None:
        make, category, reason = WRONG[name]
        _, said = told(*make())
        assert re.search(reason, said.get(category, "")), said

    def test_low_recall_is_marked(self) -> None:
        """Neighbors looked for among those in another space."""
        X = gaussian(500, 4)
        with pytest.warns(RecallWarning):
            graph = be.build_neighbor_graph(X, 10, candidates=X[:, :2] + 0.5 * gaussian(500, 2, 1), n_candidates=20)
        _, said = told(graph, {})
        assert "below the target" in said["recall"]

    def test_shuffled_coordinates_are_marked(self) -> None:
        X = sphere(600)
        Y = be.DiffusionMap(n_components=3).fit(X).embedding_
        assert not be.certify(X, Y).warnings
        shuffled = Y[np.random.default_rng(0).permutation(len(Y))]
        assert be.certify(X, shuffled).warnings[0].startswith("The coordinates look unrelated to the rows")

    @pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.slow if turn % 5 else ()) for turn, name in enumerate(RIGHT)]
    )
    def test_what_is_right_is_not_marked(self, name: str) -> None:
        _, said = told(*RIGHT[name]())
        assert not said

    @a_few(4, "n", [2, 3, 5, 20, 30, 31, 32])
    @a_few(1, "components", [1, "auto"])
    def test_few_rows_are_judged_as_far_as_they_go(self, n: int, components: int | str) -> None:
        fitted, _ = told(gaussian(n, 2), {"n_components": components, "n_neighbors": min(n - 1, 15)})
        assert ("map" in fitted.certificate_["judgement"]) == (n > 30)
        assert np.isfinite(fitted.embedding_).all()

    def test_figures_of_the_map_are_those_of_certify(self) -> None:
        X = np.vstack([gaussian(700), [[90.0, 0, 0]]])
        fitted, _ = told(X, {"bandwidth": "fixed"})
        asked, found = be.certify(X, fitted.embedding_, samples=700).figures, fitted.certificate_["judgement"]["map"]
        for name in ("trustworthiness", "continuity", "preservation"):
            error = np.hypot(found[name]["standard_error"], asked[name]["standard_error"])
            assert abs(found[name]["value"] - asked[name]["value"]) < 4 * error

    def test_rows_named_are_those_of_the_input(self) -> None:
        """One row in a corner of its own carries the first coordinate; wherever it stands it is named."""
        for at in (0, 300, 600):
            fitted, _ = told(np.insert(gaussian(600), at, [6.5, 0, 0], axis=0), {"bandwidth": "fixed"})
            seen = fitted.certificate_["judgement"]
            assert at in seen["degrees"]["first"]
            assert at in [rows[0] for rows in seen["leading_rows"]] or at in np.flatnonzero(fitted.labels_ < 0)

    def test_one_scale_that_all_rows_repeat_needs_no_scale_of_the_rows(self) -> None:
        X = np.repeat(gaussian(30), 20, axis=0)
        with pytest.raises(InputError, match="each repeats more than n_neighbors times"):
            be.DiffusionMap().fit(X)
        fitted, said = told(X, {"epsilon": 1.0})
        assert np.isfinite(fitted.embedding_).all()
        assert "30 " in said["components"]


def lists(rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    ids = np.argsort(squared, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(squared, ids, axis=1)


class TestStability:
    """Whether coordinates come again from half of the neighbors."""

    def test_the_map_of_half_the_neighbors_is_the_map_of_k_half(self) -> None:
        rows = np.random.default_rng(0).normal(size=(300, 2))
        found = half_map(*lists(rows, 20), Bandwidth(NARROW, "adaptive"), NARROW, 0.0, 1.0, 5)
        wanted = be.DiffusionMap(4, n_neighbors=10, t=0).fit(rows)
        degree = np.ones(300)
        assert shares_kept(wanted.embedding_, degree, found).min() > 1 - 1e-6
        other = be.DiffusionMap(4, n_neighbors=20, t=0).fit(rows)  # a control: another graph is distinguished
        assert shares_kept(other.embedding_, degree, found).min() < 1 - 1e-4

    def test_equal_distances_have_the_same_map_each_time(self) -> None:
        """Any vectors are eigenvectors then: which ones must not hang on chance."""
        ids = (np.arange(90)[:, None] + np.arange(1, 21)) % 90
        found = [
            half_map(ids, np.ones(ids.shape), Bandwidth(NARROW, "adaptive"), NARROW, 0.0, 1.0, 5) for _ in range(3)
        ]
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()

    def test_coordinates_of_noise_hang_on_single_neighbors(self) -> None:
        generator = np.random.default_rng(1)
        noise, surface = generator.normal(size=(800, 40)), generator.uniform(size=(800, 2)) * [3.0, 1.0]
        with pytest.warns(SeparationWarning, match="half of the neighbors"), pytest.warns(MapWarning):
            found = be.DiffusionMap(3).fit(noise)
        assert max(found.certificate_["judgement"]["kept_by_half"]) < 0.7
        good = be.DiffusionMap(3).fit(surface).certificate_
        assert min(good["judgement"]["kept_by_half"]) > 0.9
        assert not [text for text in good["warnings"]["separation"] if "half" in text]

    def test_a_graph_that_half_of_the_neighbors_do_not_join_shows_nothing(self) -> None:
        """Seven of fifteen neighbors leave random rows on a circle in three arcs."""
        angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
        rows = np.column_stack([np.cos(angle), np.sin(angle)])
        assert half_map(*lists(rows, 15), Bandwidth(NARROW, "adaptive"), NARROW, 0.0, 1.0, 5) is None
        assert "kept_by_half" not in be.DiffusionMap(2).fit(rows).certificate_["judgement"]


def test_many_rows_of_little_weight_are_not_called_few() -> None:
    """Repeated rows weigh as one place; of a single row nothing of the kind is said."""
    seen = {"carried_by_few": [True], "participation": [0.0021], "leading_rows": [[0, 5, 9, 11, 12]]}
    (many,) = carried_warnings(seen | {"rows_above_a_tenth": [1000]}, "draw others")
    assert "few rows, or by many of little weight: 1000 above a tenth of the largest entry, with 0.0021 of the" in many
    assert "What is seen is rows 0, 5 and others like them against all the others" in many
    (one,) = carried_warnings(seen | {"rows_above_a_tenth": [1]}, "draw others")
    assert "few rows: 1 above" in one
    assert "What is seen is row 0 against all the others" in one
