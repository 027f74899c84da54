"""Two views of the same rows: their joined edges, UMAP of both, what both have in common, and what only one shows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigembed as be
from bigembed.errors import ComponentsWarning, InputError, InputTypeError, MapWarning
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.neighbors.views import parted_views
from bigembed.store.arrays import read_array
from tests.blocks import blocks_of
from tests.cases import FEW_EPOCHS
from tests.unit.maps.stored import dense


def both_views() -> np.ndarray:
    """Three numbers, and two of the same, each with noise of its own."""
    random = np.random.default_rng(0)
    hidden = random.normal(size=(120, 3))
    first = hidden + 0.2 * random.normal(size=hidden.shape)
    return np.hstack([first, hidden @ random.normal(size=(3, 2)) + 0.2 * random.normal(size=(120, 2))])


def sensors(n: int, related: bool = True) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Two sensors of a common angle, each with an angle of its own, twice as large; and the three angles."""
    random = np.random.default_rng(0)
    common, mine, yours, other = 2 * np.pi * random.random((4, n))

    def seen(angle: np.ndarray, own: np.ndarray) -> np.ndarray:
        columns = np.column_stack([np.cos(angle), np.sin(angle), 2 * np.cos(own), 2 * np.sin(own)])
        return columns + 0.05 * random.normal(size=columns.shape)

    return np.hstack([seen(common, mine), seen(common if related else other, yours)]), (common, mine, yours)


def shown(coordinates: np.ndarray, angle: np.ndarray) -> float:
    """How much of the variance of coordinates is of an angle, and twice of it."""
    waves = np.column_stack([wave(k * angle) for k in (1, 2) for wave in (np.cos, np.sin)])
    left = coordinates - waves @ np.linalg.lstsq(waves, coordinates, rcond=None)[0]
    return float(1 - (left**2).sum() / (coordinates**2).sum())


UMAP_LEARN: dict[tuple[str, float], dict[int, dict[int, float]]] = {
    ("intersection", 0.5): {
        0: {37: 1.0, 57: 0.769672, 60: 0.184558, 61: 0.618798, 70: 0.265363, 71: 0.425721, 99: 0.186504},
        17: {18: 0.944701, 28: 0.951639, 35: 0.295931, 102: 0.188226, 106: 1.0, 107: 0.373161, 109: 0.64061},
    },
    ("intersection", 0.3): {
        0: {12: 0.164977, 15: 0.151895, 31: 0.225029, 37: 1.0, 57: 0.86216, 61: 0.63638, 71: 0.425185},
        17: {18: 1.0, 28: 0.689228, 35: 0.22551, 102: 0.176521, 106: 0.804464, 107: 0.370739, 109: 0.560455},
    },
    ("union", 0.5): {
        0: {12: 0.200149, 31: 0.820713, 37: 1.0, 57: 0.326484, 60: 0.067544, 70: 1.0, 99: 0.878915},
        17: {5: 0.765338, 6: 0.294279, 10: 1, 28: 0.445418, 30: 1.0, 106: 0.177399, 115: 1.0},
    },
}
"""Rows of ``general_simplicial_set_intersection`` (weights ½ and .3) and ``general_simplicial_set_union`` of umap-learn
0.5.12 after ``reset_local_connectivity(…, True)``, of the fuzzy sets of all distances of :func:`both_views`, 15
neighbors: the seven largest weights of each row."""


class TestUMAP:
    """The weights are umap-learn's; new rows; what it cannot take."""

    @pytest.mark.parametrize(("how", "weight"), list(UMAP_LEARN))
    def test_weights_are_umap_learns(self, how: str, weight: float) -> None:
        known = {"n_neighbors": 14, "n_epochs": 2, "view_columns": 3}
        found = dense(be.UMAP(**known, views=how, view_weight=weight).fit(both_views()), edges="views")
        other = dense(
            be.UMAP(**known, views="union" if how != "union" else "intersection").fit(both_views()), edges="views"
        )
        assert np.array_equal(found, found.T)
        for row, entries in UMAP_LEARN[how, weight].items():
            wanted = np.array(list(entries.values()))
            assert np.allclose(found[row, list(entries)], wanted, atol=1e-5)
            assert not np.allclose(other[row, list(entries)], wanted, atol=1e-2)  # (the other way to combine)

    def test_edges_are_those_of_each_view_by_itself(self) -> None:
        """Whatever the blocks; views in other orders would not have them."""
        rows = both_views()
        with blocks_of(40, 20):
            both, *alone = (
                be.UMAP(n_neighbors=6, n_epochs=2, view_columns=split).fit(part)
                for split, part in ((3, rows), (None, rows[:, :3]), (None, rows[:, 3:]))
            )
        assert len(both._run.matrix("views", "first").rows) > 1
        for name, one in zip(("first", "second"), alone, strict=True):
            wanted = dense(one, edges="graph")
            assert np.array_equal(dense(both, "", name, "views"), wanted)
            assert not np.allclose(dense(both, "", name, "views"), np.roll(wanted, 1, axis=0), atol=0.1)

    def test_a_row_has_its_place_by_both_views(self) -> None:
        """One that equals a fitted row in one view alone is not that row."""
        rows = both_views()
        fitted = be.UMAP(**FEW_EPOCHS, view_columns=3).fit(rows)
        assert np.array_equal(fitted.transform(rows[:9]), fitted.embedding_[:9])
        mixed = np.hstack([rows[:9, :3], rows[9:18, 3:]])
        assert not np.isclose(fitted.transform(mixed), fitted.embedding_[:9]).all(axis=1).any()

    def test_what_has_no_two_views_is_refused(self) -> None:
        rows = both_views()
        with pytest.raises(InputError, match="leaves none for the second view; it must be from 1 to 4"):
            be.UMAP(view_columns=5).fit(rows)
        for given in (be.build_neighbor_graph(rows, n_neighbors=5), sparse.csr_array(np.abs(rows) @ np.abs(rows).T)):
            with pytest.raises(InputTypeError, match="two views"):
                be.UMAP(view_columns=3).fit(given)
        with pytest.raises(InputTypeError, match="columns of dense rows, and these are sparse"):
            be.UMAP(view_columns=3).fit(sparse.csr_array(rows))
        with pytest.raises(InputError, match="two views \\(view_columns\\) are for dense rows and the metrics"):
            be.UMAP(view_columns=3, metric="cityblock").fit(rows)
        with pytest.raises(InputError, match="densmap and output_dens are of one distance"):
            be.UMAP(view_columns=3, densmap=True).fit(rows)

    def test_views_in_other_orders_are_said_to_have_nothing_in_common(self) -> None:
        rows = np.random.default_rng(1).normal(size=(400, 6))
        rows[:, 3:] = rows[:, :3] + 0.3 * rows[:, 3:]
        known = {"n_neighbors": 6, "n_epochs": 5, "view_columns": 3}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            good = be.UMAP(**known).fit(rows)
        assert not [text for text in good.certificate_["warnings"]["map"] if "nothing in common" in text]
        with pytest.warns(MapWarning, match="the views have nothing in common"):
            be.UMAP(**known).fit(np.hstack([rows[:, :3], rows[::-1, 3:]]))


TARGET_UMAP_LEARN: dict[int, dict[int, float]] = {
    0: {7: 0.0322713, 33: 1.0, 70: 0.115447, 85: 0.072922, 97: 0.119699, 99: 0.0740151},
    17: {18: 1.0, 28: 0.184656, 37: 0.0720185, 106: 0.0704347, 109: 0.100565, 110: 0.641428},
    40: {11: 0.189944, 26: 0.0642916, 44: 1.0, 57: 1.0, 75: 1.0, 90: 0.463919},
    61: {1: 0.23751, 11: 0.203532, 12: 1.0, 31: 0.0982913, 49: 0.942387, 71: 0.847608},
}
"""Rows of ``general_simplicial_set_intersection`` (weight ½) of umap-learn 0.5.12 after ``reset_local_connectivity``,
of the fuzzy sets of all distances of the first view of :func:`both_views` and of the first column of the second, 15
neighbors: the six largest weights of each row."""


class TestTarget:
    """UMAP that follows a number of each row: a second view of which new rows have nothing."""

    def test_weights_are_umap_learns(self) -> None:
        rows = both_views()
        known: dict[str, Any] = {"n_neighbors": 14, "n_epochs": 2}
        found = dense(be.UMAP(**known, target_metric="l2").fit(rows[:, :3], rows[:, 3]), edges="views")
        assert np.array_equal(found, found.T)
        views = dense(be.UMAP(**known, view_columns=3).fit(rows[:, :4]), edges="views")
        for row, entries in TARGET_UMAP_LEARN.items():
            wanted = np.array(list(entries.values()))
            assert np.allclose(found[row, list(entries)], wanted, atol=1e-5)
            assert not np.allclose(views[row, list(entries)], wanted, atol=1e-2)  # (whose powers are not 1)

    def test_new_rows_need_no_target_and_one_out_of_order_is_told(self, tmp_path: Path) -> None:
        random = np.random.default_rng(0)
        rows = random.normal(size=(500, 3))
        target = rows[:, 0] + 0.1 * random.normal(size=500)
        known: dict[str, Any] = {"n_neighbors": 8, "n_epochs": 60, "target_metric": "euclidean"}
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the target says", MapWarning)
            warnings.simplefilter("ignore", MapWarning)  # (that neighbors on it are so by their targets)
            fitted, of_rows = (
                be.UMAP(**known | {"target_metric": metric}).fit(rows[:400], target[:400]) for metric in ("l2", None)
            )

        def told(one: Any) -> float:
            """How much of the target is that of the nearest row on the map."""
            found = one.embedding_[:, None] - one.transform(rows[400:])[None]
            return float(np.corrcoef(target[:400][(found**2).sum(axis=-1).argmin(axis=0)], target[400:])[0, 1])

        assert told(fitted) > max(0.9, told(of_rows) + 0.01)
        assert np.array_equal(fitted.transform(rows[:9]), fitted.embedding_[:9])
        fitted.save(tmp_path / "model")
        assert not list((tmp_path / "model").rglob("target-*"))  # (numbers of the rows stay here)
        assert np.array_equal(be.load(tmp_path / "model").transform(rows[400:]), fitted.transform(rows[400:]))
        with pytest.warns(MapWarning, match="the target says next to nothing of the rows"):
            be.UMAP(**known).fit(rows[:400], random.permutation(target[:400]))

    def test_equal_rows_have_one_place_and_targets_are_known_wherever_they_lie(self, tmp_path: Path) -> None:
        rows, target = both_views()[:, :3], np.arange(120) % 7.0
        rows[60:] = rows[:60]
        np.save(tmp_path / "target.npy", target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine, theirs = (
                be.UMAP(**FEW_EPOCHS, target_metric="l2").fit(rows, one) for one in (target, tmp_path / "target.npy")
            )
            views = be.UMAP(**FEW_EPOCHS, view_columns=3).fit(np.column_stack([rows, target]))
        assert np.array_equal(mine.embedding_[60:], mine.embedding_[:60])
        assert not np.isclose(views.embedding_[60:], views.embedding_[:60]).all()  # (which the second view parts)
        for name in ("survey", "order", "graph"):
            assert mine._run.manifest(f"target-{name}").key == theirs._run.manifest(f"target-{name}").key

    def test_what_is_no_numeric_target_is_refused(self) -> None:
        rows, known = both_views(), {"n_epochs": 2, "target_metric": "l2"}
        with pytest.raises(InputError, match="needs a number for each row"):
            be.UMAP(**known).fit(rows)
        with pytest.raises(InputError, match=r"a numeric target \(y\) is a finite number .* the first of rows \[7\]"):
            be.UMAP(**known).fit(rows, np.where(np.arange(120) == 7, np.nan, rows[:, 0]))
        with pytest.raises(InputError, match=r"has dtype <U1\. Classes are for target_metric='categorical'"):
            be.UMAP(**known).fit(rows, np.array(["a", "b"] * 60))
        with pytest.raises(InputError, match="labels have shape"):
            be.UMAP(**known).fit(rows, rows[1:, 0])
        with pytest.raises(InputError, match=r"view_columns.*None, where a target is numeric"):
            be.UMAP(**known, view_columns=2).fit(rows, rows[:, 0])
        with pytest.raises(InputError, match="densmap and output_dens are of one distance"):
            be.UMAP(**known, densmap=True).fit(rows, rows[:, 0])
        with pytest.raises(InputError, match="a numeric target is joined with the graph of rows"):
            be.UMAP(**known).fit(sparse.csr_array(np.abs(rows) @ np.abs(rows).T), rows[:, 0])


class TestAlternatingDiffusion:
    """Only what both views show is on the map."""

    def test_only_the_common_angle_is_shown(self) -> None:
        """A diffusion map of all columns shows the angles of the sensors."""
        rows, (common, mine, yours) = sensors(900)
        with warnings.catch_warnings():
            warnings.simplefilter("error", MapWarning)
            found = be.AlternatingDiffusionMap(view_columns=4).fit(rows)
        assert shown(found.embedding_, common) > 0.98
        assert max(shown(found.embedding_, own) for own in (mine, yours)) < 0.05
        assert found.agreement_.min() > 0.95
        together = be.DiffusionMap(n_neighbors=30).fit(rows).embedding_
        assert shown(together, common) < 0.2

    def test_it_is_the_dense_operator(self) -> None:
        """½(P₁P₂ + P₂P₁) of both walks; with P₁P₂ alone other numbers come out."""
        rows, _ = sensors(240)
        found = be.AlternatingDiffusionMap(n_components=3, view_columns=4, n_neighbors=12, t=0, tol=1e-9).fit(rows)
        first, second = (dense(found, "", name, "views") for name in ("first", "second"))
        assert np.allclose(first.sum(axis=1), 1, atol=1e-5)
        values, vectors = np.linalg.eigh((first @ second + second @ first) / 2)
        assert np.allclose(found.eigenvalues_, values[-2:-5:-1], atol=1e-5)
        wanted = vectors[:, -2:-5:-1] * np.sqrt(240)
        assert np.allclose(np.abs(np.sum(wanted * found.embedding_, axis=0)) / 240, 1, atol=1e-4)
        assert not np.allclose(found.eigenvalues_, np.linalg.svd(first @ second)[1][1:4], atol=1e-3)

    def test_unrelated_views_are_said_to_be(self) -> None:
        with pytest.warns(MapWarning, match="not of what both views have in common"):
            found = be.AlternatingDiffusionMap(view_columns=4, n_neighbors=15).fit(sensors(500, related=False)[0])
        assert found.agreement_.max() < 0.75

    def test_a_view_in_parts_that_the_other_one_joins_is_named(self) -> None:
        rows, _ = sensors(300)
        rows[:, 7] += np.where(np.arange(300) < 120, 50, 0)
        with pytest.warns(ComponentsWarning, match="in the second view the rows fall into 2 parts"):
            be.AlternatingDiffusionMap(view_columns=4, n_neighbors=10).fit(rows)
        whole = {"both": {"sizes": [9]}, "first": {"sizes": [9]}, "second": {"sizes": [8, 1]}}
        assert parted_views({"parts": whole}, 2) == []

    def test_a_job_cuts_the_columns_and_places_new_rows(self, tmp_path: Path) -> None:
        rows, _ = sensors(200)
        np.save(tmp_path / "rows.npy", rows)
        method = {"name": "alternating_diffusion_map", "view_columns": 4, "n_neighbors": 10}
        output = {"path": str(tmp_path / "run.zarr"), "model": str(tmp_path / "model.zarr")}
        job = {"input": {"path": str(tmp_path / "rows.npy")}, "method": method, "output": output}
        run_job(parse_job(job, tmp_path / "job.toml"))
        mine = be.AlternatingDiffusionMap(view_columns=4, n_neighbors=10).fit(rows)
        assert np.array_equal(read_array(f"{output['path']}/stages/coordinates/embedding"), mine.embedding_)
        assert np.array_equal(be.load(output["model"]).transform(rows[:7]), mine.transform(rows[:7]))
