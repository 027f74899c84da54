"""Rows that lie off, fall into parts, or repeat."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

import bigembed as be
from bigembed.errors import ComponentsWarning, DegenerateWarning, DisconnectedGraphError
from bigembed.estimator.graph_input import least_rows, parts_of
from bigembed.maps.walk import affinity
from bigembed.runtime import Event, using
from bigembed.stages.stage import Stage
from tests.blocks import blocks_of
from tests.some import a_few


def gaussian(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


class TestIslands:
    """Rows that lie off, parts, bridges and repeated rows: a defined result for each, the same in every run."""

    @a_few(1, "dtype", [np.float32, np.float64])
    @pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
    def test_one_row_that_is_cut_off_ends_nothing(self, dtype: type) -> None:
        rows = np.insert(gaussian(600), 200, [1e4, 0, 0], axis=0).astype(dtype)
        with pytest.warns(ComponentsWarning, match=r"1 row in 1 island .* has the coordinates.* The first: row 200"):
            fitted = be.DiffusionMap(bandwidth="fixed").fit(rows)
        assert np.flatnonzero(fitted.labels_ != 0).tolist() == [200]
        assert fitted.labels_[200] == -1
        nearest = np.argsort(np.linalg.norm(rows - rows[200], axis=1))[1]
        np.testing.assert_array_equal(fitted.embedding_[200], fitted.embedding_[nearest])
        with pytest.raises(DisconnectedGraphError, match="600, 1 rows"):
            be.DiffusionMap(bandwidth="fixed", components="error").fit(rows)

    def test_tiny_islands_are_placed_and_parts_are_embedded_together(self) -> None:
        rows = np.vstack([gaussian(600), gaussian(300, 1) + 100, gaussian(8, 2) / 10 - 100])
        with pytest.warns(ComponentsWarning) as given:
            fitted = be.DiffusionMap(4, n_neighbors=6).fit(rows)
        told = " | ".join(str(one.message) for one in given)
        assert "2 parts that no neighbors join, of 600, 300 rows" in told
        assert "8 rows in 1 island" in told
        assert "rows 900, 901, 902, 903, 904" in told
        assert np.bincount(fitted.labels_ + 1).tolist() == [8, 600, 300]
        assert (fitted.eigenvalues_ == 1).sum() == 1
        first = fitted.embedding_[:, 0]
        assert np.unique(first[:900].round(9)).size == 2
        shown = [(fitted.embedding_[rows, 1:] != 0).any(axis=0) for rows in (slice(600), slice(600, 900))]
        assert (shown[0] ^ shown[1]).all()  # each shows one part, and is 0 in the rest
        assert fitted.certificate_["parts"] == 2

    @pytest.mark.parametrize(
        ("method", "kind"),
        [(be.DiffusionMap, np.asarray), (be.DiffusionMap, csr_array), (be.LocallyLinearEmbedding, np.asarray)],
    )
    def test_rows_of_other_components_are_said_to_be_placed_and_are_left_out_of_the_judgement(
        self, method: Callable[..., Any], kind: Callable[..., Any]
    ) -> None:
        rows = np.vstack([gaussian(300), gaussian(60, 1) + 100, gaussian(40, 2) - 100])
        with pytest.warns(
            ComponentsWarning, match="the 100 rows of the others have the coordinates of the nearest row"
        ):
            fitted = method(components="largest", n_neighbors=10).fit(kind(rows))
        judged, own = fitted.certificate_["judgement"]["map"], fitted.labels_ == 0
        assert judged["n"] == 300
        expected = be.certify(rows[own], fitted.embedding_[own]).figures  # (all rows are compared: no sample)
        for name in ("preservation", "trustworthiness", "continuity"):
            assert judged[name]["value"] == pytest.approx(expected[name]["value"])
        assert judged["coordinates"]["same_place"] == 0
        assert be.certify(rows, fitted.embedding_).figures["coordinates"]["same_place"] == pytest.approx(0.25, abs=0.1)
        assert not any("same place" in text for text in fitted.certificate_["warnings"]["map"])

    def test_at_most_half_of_the_coordinates_tell_parts_apart(self) -> None:
        assert parts_of("islands", [500] * 6 + [1], 3_001).contrasts(4) == 2
        assert parts_of("joint", [500] * 6, 3_000).contrasts(4) == 4
        assert parts_of("islands", [2_999, 1], 3_000).single
        rows = np.vstack([gaussian(150, seed) + 100 * seed for seed in range(5)])
        with pytest.warns(ComponentsWarning, match="5 parts"):
            fitted = be.DiffusionMap(4).fit(rows)
        assert (fitted.eigenvalues_ == 1).tolist() == [True, True, False, False]
        with pytest.warns(ComponentsWarning):
            fitted = be.DiffusionMap("auto").fit(rows)
        assert fitted.n_components_ > (fitted.eigenvalues_ == 1).sum() == 4
        assert least_rows(750) == 8

    @pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
    @pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")
    @pytest.mark.parametrize("bandwidth", ["adaptive", "self-tuned", "fixed"])
    @a_few(1, "spread", [1e-12, 0.0, 1.0])
    def test_bridges_join_with_every_kernel(self, bandwidth: str, spread: float) -> None:
        """Near-identical and identical rows too."""
        rows = np.vstack([gaussian(300), 50 + spread * gaussian(100, 1), 90 + spread * gaussian(100, 2)])
        with pytest.warns(ComponentsWarning, match="2 bridges join 3 components of 300, 100, 100 rows"):
            fitted = be.DiffusionMap(3, components="bridge", bandwidth=bandwidth).fit(rows)
        assert np.isfinite(fitted.embedding_).all()
        assert (fitted.labels_ == 0).all()
        assert len(np.unique([fitted.embedding_[at : at + 90, :2].mean(axis=0).round(3) for at in (0, 300, 400)])) > 2

    @pytest.mark.filterwarnings("ignore::bigembed.errors.ComponentsWarning")
    def test_quantized_rows_have_one_defined_map(self) -> None:
        rows = np.random.default_rng(0).integers(0, 5, (1_000, 3)).astype(float)
        with pytest.warns(
            DegenerateWarning, match="Which of equal rows are neighbors is decided by their number"
        ) as given:
            maps = [be.DiffusionMap(3, n_neighbors=5).fit(np.column_stack([rows, np.ones(1_000)])) for _ in range(2)]
        np.testing.assert_array_equal(maps[0].embedding_, maps[1].embedding_)
        assert np.isfinite(maps[0].embedding_).all()
        assert given

    @pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
    @a_few(
        3,
        "parameters",
        [
            {"metric": "cosine"},
            {"components": "per-component"},
            {"components": "largest"},
            {"solver": "landmarks", "n_landmarks": 60},
            {"n_neighbors": None},
        ],
    )
    def test_every_way_in_is_judged(self, parameters: dict) -> None:
        rows = np.vstack([gaussian(250), gaussian(150, 1) + 60])
        fitted = be.DiffusionMap(3, **parameters).fit(rows)
        assert len(fitted.certificate_["judgement"]["participation"]) == 3
        if "n_neighbors" not in parameters:
            metric = parameters.get("metric", "euclidean")
            again = be.DiffusionMap(3, **parameters).fit(be.build_neighbor_graph(rows, 15, metric=metric))
            np.testing.assert_array_equal(fitted.embedding_, again.embedding_)
            assert fitted.certificate_["judgement"] == again.certificate_["judgement"]


K = 6


def repeated(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows on a circle with noise, some twice, some three times, two of them more than k times; and which is which."""
    generator = np.random.default_rng(0)
    angle = generator.uniform(0, 2 * np.pi, 400)
    points = np.column_stack([np.cos(angle), np.sin(angle), 0.05 * generator.normal(size=400)])
    which = np.concatenate([np.arange(400), np.arange(60), np.arange(30), np.full(2 * K, 70), np.full(K + 1, 71)])
    which = generator.permutation(which)
    return points[which] * scale, which


def fitted(X: Any, **asked: Any) -> be.DiffusionMap:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return be.DiffusionMap(4, tol=1e-9, **{"n_neighbors": K} | asked).fit(X)


ASKED = [
    {}, {"bandwidth": "fixed"}, {"target": "laplace-beltrami"}, {"metric": "cosine"}, {"components": "largest"},
    {"n_neighbors": None}, {"radius": 0.3, "epsilon": 0.02}, {"solver": "landmarks", "n_landmarks": 100},
]  # fmt: skip


def earlier_stage(*args: Any, **rest: Any) -> Stage:
    """The kernel before rows that repeat got the median scale."""
    stage = Stage(*args)

    def run(context: Any) -> dict[str, Any]:
        return {name: value for name, value in stage.run(context).items() if name != "floored_to"}

    return Stage(stage.name, stage.inputs, stage.parameters, run, stage.cost)


class TestRepeated:
    """Rows that repeat: equal rows are one point, and come back when they are transformed."""

    @pytest.fixture(autouse=True)
    def small_blocks(self) -> Iterator[None]:
        """Blocks of at most 300 rows."""
        with blocks_of(300):
            yield

    @a_few(4, "asked", ASKED, ids=str)
    def test_equal_rows_have_equal_coordinates_and_get_them_back(self, asked: dict[str, Any]) -> None:
        X, which = repeated()
        dm = fitted(X, **asked)
        _, first = np.unique(which, return_index=True)
        np.testing.assert_array_equal(dm.embedding_, dm.embedding_[first][which])
        scale = np.abs(dm.embedding_).max(axis=0)
        np.testing.assert_allclose(dm.transform(X) / scale, dm.embedding_ / scale, atol=1e-5)
        assert len(np.unique(dm.embedding_[first], axis=0)) > 380  # a control: rows that differ are distinguished

    def test_rows_without_a_repetition_keep_what_the_solve_gave(self) -> None:
        X, which = repeated()
        alone = fitted(X[np.unique(which, return_index=True)[1]])
        assert alone._run.results("coordinates")["repeated_rows"] == 0
        assert fitted(X)._run.results("coordinates")["repeated_rows"] == len(X) - 400

    def test_rows_that_repeat_are_no_island_of_the_map(self) -> None:
        """Sixteen of the binary digits are one row, each with the others as its 15 neighbors; it is where its digit
        is."""
        digits = load_digits()
        rows = (digits.data > 7).astype(np.float32)
        _, which, times = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        copies = which.ravel() == times.argmax()
        assert times.max() > 15
        with blocks_of(4_096), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            map_ = be.DiffusionMap(metric="jaccard").fit(csr_array(rows))
        ends = np.abs(np.asarray(map_.embedding_)).max(axis=0)
        assert (ends < 5).all()  # (of a mean square of 1)
        assert (
            np.abs(map_.transform(csr_array(rows[copies])) - np.asarray(map_.embedding_)[copies]) < 0.05 * ends
        ).all()

    @a_few(1, "copies", [True, False])
    def test_a_kernel_of_the_earlier_rule_is_made_anew_where_rows_repeat(self, copies: bool, tmp_path: Path) -> None:
        """And used again where none do, with all that follows."""
        X, which = repeated()
        rows = X if copies else X[np.unique(which, return_index=True)[1]]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(affinity, "own_scales", np.maximum)
            patch.setattr(affinity, "Stage", earlier_stage)
            before = fitted(rows, workdir=str(tmp_path / "run.zarr"))
        assert "floored_to" not in before._run.results("kernel")
        events: list[Event] = []
        with using(observer=events.append):
            dm = fitted(rows, workdir=str(tmp_path / "run.zarr"))
        done = {event.stage for event in events if event.kind == "done"}
        assert done == ({"kernel", "components", "solve", "coordinates", "judgement"} if copies else set())
        np.testing.assert_array_equal(dm.embedding_, fitted(rows).embedding_)
        assert np.array_equal(before.embedding_, dm.embedding_) != copies
