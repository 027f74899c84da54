"""The examples of the sources."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

import bigembed as be
from bigembed.datasets import dataset
from bigembed.datasets.closed_forms import RADIUS, US_CITIES, great_circle
from bigembed.maps.landmark_rows import procrustes_residual
from bigembed.plotting import named
from tests.some import a_few


def correlation(name: str, n: int, noise: float, **parameters: object) -> float:
    """|Spearman| of the first coordinate with arc length."""
    roll = dataset(name, n=n, noise=noise)
    rows, truth = roll.draw(0, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dm = be.DiffusionMap(n_components=3, components="largest", **parameters).fit(rows)  # type: ignore[arg-type]
    return abs(float(spearmanr(dm.embedding_[:, 0], truth["arc_length"])[0]))


class TestSwissRoll:
    """The swiss roll of the lecture notes (seed 000 §9.4.1): the clean one unrolls; what noise does."""

    @a_few(1, "alpha", [0.0, 1.0])
    def test_the_clean_roll_unrolls(self, alpha: float) -> None:
        assert correlation("swiss_roll_mesh", 1060, 0.0, n_neighbors=10, alpha=alpha) >= 0.99

    def test_some_noise_is_borne_and_much_is_not(self) -> None:
        """Noise .4 keeps the order; at .8 the graph has short cuts between the windings, as the notes describe."""
        assert correlation("swiss_roll_mesh", 1060, 0.4, n_neighbors=10) >= 0.99
        rows, truth = dataset("swiss_roll_mesh", n=1060, noise=0.8).draw(0, 1060)
        graph = be.build_neighbor_graph(rows, 10).to_scipy().tocoo()
        jump = np.abs(truth["arc_length"][graph.row] - truth["arc_length"][graph.col])
        clean = dataset("swiss_roll_mesh", n=1060).draw(0, 1060)[0]
        calm = be.build_neighbor_graph(clean, 10).to_scipy().tocoo()
        assert jump.max() > 3 * np.abs(truth["arc_length"][calm.row] - truth["arc_length"][calm.col]).max()


PLACES = np.array(list(US_CITIES.values()))
CENTER = (38.5, -97.0)


def projected(places: np.ndarray) -> np.ndarray:
    """Lambert's azimuthal equal-area map about the middle of the country, km: what an atlas shows."""
    (phi, lam), (phi0, lam0) = np.radians(places).T, np.radians(CENTER)
    across = np.cos(phi) * np.sin(lam - lam0)
    up = np.cos(phi0) * np.sin(phi) - np.sin(phi0) * np.cos(phi) * np.cos(lam - lam0)
    toward = np.sin(phi0) * np.sin(phi) + np.cos(phi0) * np.cos(phi) * np.cos(lam - lam0)
    return RADIUS * np.sqrt(2 / (1 + toward))[:, None] * np.column_stack([across, up])


class TestUSCities:
    """US cities by MDS (seed 000 §3): a map from distances alone, and the negative eigenvalues of distances on a
    sphere."""

    def test_known_distances(self) -> None:
        """Airline distances of an atlas, km."""
        apart = great_circle(PLACES, PLACES)
        number = {name: i for i, name in enumerate(US_CITIES)}
        for one, other, km in [
            ("New York", "Los Angeles", 3936),
            ("Chicago", "Miami", 1911),
            ("Seattle", "Boston", 4005),
        ]:
            assert apart[number[one], number[other]] == pytest.approx(km, rel=0.005)
        np.testing.assert_array_equal(np.diag(apart), 0)

    def test_the_map_is_that_of_an_atlas(self) -> None:
        apart = dataset("us_cities").rows()
        mds = be.ClassicalMDS(2, metric="precomputed").fit(apart)
        atlas = projected(PLACES)
        assert procrustes_residual(atlas, mds.embedding_) < 0.02
        assert (
            procrustes_residual(atlas, np.roll(mds.embedding_, 1, axis=0)) > 0.5
        )  # a control: cities in others' places
        error = np.abs(cdist(mds.embedding_, mds.embedding_) - apart)
        assert error.max() < 0.03 * apart.max()
        assert mds.explained_ > 0.9999
        assert mds.negative_eigenvalues_[0] < -1e4  # the Earth is round
        assert -mds.negative_eigenvalues_[0] < 0.02 * mds.eigenvalues_[1]

    def test_landmarks_and_new_cities(self) -> None:
        """Great-circle distances as a block function on latitude and longitude; a city that was left out falls in
        place."""
        whole = be.ClassicalMDS(2, metric=great_circle).fit(PLACES)
        landmark = be.LandmarkMDS(2, n_landmarks=10, metric=great_circle).fit(PLACES)
        assert procrustes_residual(whole.embedding_, landmark.embedding_) < 0.02
        without = be.ClassicalMDS(2, metric=great_circle).fit(PLACES[1:])
        assert procrustes_residual(projected(PLACES), without.transform(PLACES)) < 0.02

    def test_the_figure(self, tmp_path: Path) -> None:
        named(tmp_path / "map.png", *projected(PLACES).T, list(US_CITIES), title="an atlas")
        assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
        with pytest.raises(ValueError, match="names"):
            named(tmp_path / "no.png", *projected(PLACES).T, ["one"])
