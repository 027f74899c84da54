"""Landmark MDS: against classical MDS, the formula, and in every way that landmarks and distances can be wrong."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError
from bigembed.maps.landmark_rows import max_min_by, procrustes_residual
from bigembed.maps.mds import landmark_axes
from bigembed.maps.mds import scaling as landmark_sample
from bigembed.maps.mds.landmark_axes import GIVEN_PROBES as PROBES
from tests.unit.block_functions import WORDS, manhattan, word_distance
from tests.unit.maps.test_classical_mds import signed

N = 500
pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")


def rows(n: int = N, d: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d)) * 2.0 ** -np.arange(d) + 3


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", manhattan, "canberra"])
def test_all_rows_as_landmarks_are_classical_mds(metric: Any) -> None:
    x = rows(200)
    classical = be.ClassicalMDS(3, metric=metric).fit(x)
    landmark = be.LandmarkMDS(3, n_landmarks=200, landmarks="uniform", metric=metric).fit(x)
    np.testing.assert_allclose(signed(landmark.embedding_, classical.embedding_), classical.embedding_, atol=1e-9)
    np.testing.assert_allclose(landmark.eigenvalues_, classical.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(landmark.landmark_eigenvalues_[:3], classical.eigenvalues_, rtol=1e-9)
    few = be.LandmarkMDS(3, n_landmarks=20, landmarks="uniform", metric=metric).fit(x)  # a control
    assert not np.allclose(signed(few.embedding_, classical.embedding_), classical.embedding_, atol=1e-3)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("d", [3, 60])
def test_the_affine_map_is_the_triangulation_of_distances(wide: bool, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For Euclidean rows the same numbers must come out of the map (x − mean) A and of distances to the landmarks."""
    if wide:
        monkeypatch.setattr(landmark_sample, "SCATTER_COLUMNS", 2)
        monkeypatch.setattr(landmark_axes, "SCATTER_COLUMNS", 2)
    x = rows(N, d)
    affine = be.LandmarkMDS(2, n_landmarks=25, landmarks=np.arange(0, N, 20)).fit(x)
    distances = be.LandmarkMDS(2, n_landmarks=25, landmarks=np.arange(0, N, 20), metric=cdist).fit(x)
    assert affine.certificate_["affine"]
    assert not distances.certificate_["affine"]
    np.testing.assert_allclose(signed(affine.embedding_, distances.embedding_), distances.embedding_, atol=1e-9)
    np.testing.assert_allclose(affine.eigenvalues_, distances.eigenvalues_, rtol=1e-9)
    assert affine.stress_ == pytest.approx(distances.stress_, rel=1e-9)
    np.testing.assert_allclose(
        affine.transform(x[:5] * 2), signed(distances.transform(x[:5] * 2), affine.transform(x[:5] * 2)), atol=1e-9
    )


def test_coordinates_are_on_principal_axes() -> None:
    for metric in ("euclidean", "cityblock"):
        mds = be.LandmarkMDS(3, n_landmarks=12, metric=metric).fit(rows())
        y = mds.embedding_
        np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-9)
        products = y.T @ y
        np.testing.assert_allclose(products, np.diag(mds.eigenvalues_), atol=1e-8 * products[0, 0])
        assert (np.diff(mds.eigenvalues_) < 0).all()
        unturned = be.ClassicalMDS(3, metric=metric).fit(
            mds.landmarks_
        )  # of the landmarks alone: other axes, a control
        there = unturned.transform(rows())
        assert abs(np.corrcoef(there.T)[0, 1]) > 1e-3


@pytest.mark.parametrize("selection", ["max-min", "uniform", "k-means"])
@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_selections(selection: str, metric: str) -> None:
    mds = be.LandmarkMDS(2, n_landmarks=40, landmarks=selection, metric=metric).fit(rows())
    reference = be.ClassicalMDS(2, metric=metric).fit(rows())
    assert mds.n_landmarks_ == 40
    assert len(np.unique(mds.landmarks_, axis=0)) == 40
    if selection == "k-means":
        assert (mds.landmark_ids_ == -1).all()
    else:
        np.testing.assert_array_equal(mds.landmarks_, rows()[mds.landmark_ids_])
    assert procrustes_residual(reference.embedding_, mds.embedding_) < 0.3
    assert procrustes_residual(reference.embedding_, mds.embedding_[::-1]) > 0.9  # a control
    assert mds.stress_ < 0.25
    other = be.LandmarkMDS(2, n_landmarks=40, landmarks=selection, metric=metric, random_state=1).fit(rows(20_000))
    same = be.LandmarkMDS(2, n_landmarks=40, landmarks=selection, metric=metric, random_state=2).fit(rows(20_000))
    assert not np.array_equal(other.landmarks_, same.landmarks_)


def test_max_min_landmarks_are_farther_apart_than_uniform_ones() -> None:
    found = {
        name: be.LandmarkMDS(n_landmarks=30, landmarks=name, metric="cityblock").fit(rows()).landmarks_
        for name in ("max-min", "uniform")
    }
    nearest = {name: np.sort(cdist(part, part, "cityblock"), axis=1)[:, 1].min() for name, part in found.items()}
    assert nearest["max-min"] > 2 * nearest["uniform"]
    sample = rows(60)
    apart = cdist(sample, sample)
    chosen = max_min_by(lambda i: apart[i], 10)
    for k in range(2, 10):  # each is the farthest from those before
        before = apart[chosen[:k]].min(axis=0)
        assert before[chosen[k]] == before.max()


def test_given_landmarks() -> None:
    ids = [400, 3, 77, 250, 311, 18]
    by_id = be.LandmarkMDS(2, landmarks=ids).fit(rows())
    by_row = be.LandmarkMDS(2, landmarks=rows()[ids]).fit(rows())
    np.testing.assert_array_equal(by_id.landmark_ids_, ids)
    np.testing.assert_array_equal(by_id.landmarks_, by_row.landmarks_)
    np.testing.assert_allclose(by_id.embedding_, by_row.embedding_, atol=1e-12)
    assert (by_row.landmark_ids_ == -1).all()
    assert by_id.n_landmarks_ == 6


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_duplicated_landmarks_change_nothing_but_their_weight(metric: str) -> None:
    ids = [400, 3, 77, 250, 311, 18]
    once = be.LandmarkMDS(2, landmarks=ids, metric=metric).fit(rows())
    with pytest.warns(DegenerateWarning, match="6 distinct landmarks of 12"):
        twice = be.LandmarkMDS(2, landmarks=ids * 2, metric=metric).fit(rows())
    np.testing.assert_allclose(twice.embedding_, once.embedding_, atol=1e-9)
    np.testing.assert_allclose(twice.landmark_eigenvalues_[:2], 2 * once.landmark_eigenvalues_[:2])
    uneven = be.LandmarkMDS(2, landmarks=[*ids, *ids[:1] * 9], metric=metric).fit(rows())
    assert not np.allclose(uneven.embedding_, once.embedding_, atol=1e-6)


def test_too_few_landmarks() -> None:
    with pytest.raises(InputError, match="3 landmarks span at most 2 coordinates; n_components=3 needs at least 4"):
        be.LandmarkMDS(3, n_landmarks=3).fit(rows())
    with pytest.raises(InputError, match="2 landmarks span at most 1"):
        be.LandmarkMDS(2, landmarks=[4, 5]).fit(rows())
    repeated = np.repeat(rows(3), 50, axis=0)
    for metric in ("euclidean", "cityblock"):
        with pytest.warns(DegenerateWarning) as told:
            mds = be.LandmarkMDS(4, n_landmarks=10, metric=metric).fit(repeated)
        assert mds.n_components_ == 2
        assert mds.embedding_.shape == (150, 2)
        said = " ".join(str(warning.message) for warning in told)
        assert "3 distinct landmarks of 10" in said
        assert "only 2 eigenvalues of the landmarks are positive" in said
        with pytest.raises(InputError, match="all rows are equal"):
            be.LandmarkMDS(2, n_landmarks=10, metric=metric).fit(np.ones((50, 3)))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda a, b: np.maximum(a[:, :1] - b[:, 0], 0.0), "not symmetric: between landmarks"),
        (lambda a, b: cdist(a, b) - 1.0, "distances are finite and ≥ 0"),
        (lambda a, b: np.where(cdist(a, b) > 2, np.nan, 1.0), "nan"),
        (lambda a, b: cdist(a, b) + 1.0, "the distance of a row to itself is 0; 20 of 20 landmarks"),
        (lambda a, b: np.exp(-cdist(a, b)), "Is it a similarity"),
        (lambda a, b: cdist(a, b)[:, :-1], "a block function returns real distances of shape"),
    ],
)
def test_distances_that_are_none(metric: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        be.LandmarkMDS(n_landmarks=20, metric=metric, landmarks="uniform").fit(rows())


def test_a_bad_distance_of_one_row_is_named() -> None:
    """Rows that were not sampled come to light in the pass that places them."""
    x = rows(3_000)
    x[2_345] = 0.0
    ids = np.arange(0, 2_000, 40)
    with pytest.raises(InputError, match="metric=cosine: the distance of row 2345 to the known row 0 is nan"):
        be.LandmarkMDS(landmarks=ids, metric="cosine").fit(x)
    x[2_345] = np.nan
    with pytest.raises(InputError, match=r"NaN.*rows \[2345\]"):
        be.LandmarkMDS(landmarks=ids, metric="cityblock").fit(x)


def test_distances_that_are_not_euclidean_are_told() -> None:
    def shortcut(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.minimum(cdist(a, b), 1.0)  # far rows are all equally far

    with pytest.warns(DegenerateWarning, match="more negative"):
        mds = be.LandmarkMDS(40, n_landmarks=100, metric=shortcut).fit(rows())
    assert mds.landmark_eigenvalues_[-1] < -mds.landmark_eigenvalues_[39]
    assert mds.certificate_["negative_share"] > 0.01


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0, "n_landmarks": 1.5}, "n_components=0.*n_landmarks=1.5"),
        ({"landmarks": "corners"}, "landmarks='corners'"),
        ({"landmarks": [3, 500, -1]}, r"rows \[500, -1\] are outside 0 … 499"),
        ({"landmarks": np.ones((5, 2))}, "landmarks are rows of 2 columns; those of X have 6"),
        ({"landmarks": np.full((5, 6), np.nan)}, "finite rows"),
        ({"landmarks": [0.5, 1.0, 2.0]}, "integers"),
        ({"metric": "manhatan"}, "did you mean"),
        ({"metric": "precomputed"}, r"square array \(n, n\); got shape \(500, 6\)"),
        ({"metric": "precomputed", "landmarks": "k-means"}, "or numbers of rows with given distances"),
        ({"metric": "precomputed", "ids": True}, "X holds them, and no ids"),
        ({"ids": True, "metric": word_distance, "landmarks": "k-means"}, "objects have no mean"),
    ],
)
def test_parameters_out_of_range(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        be.LandmarkMDS(**parameters).fit(rows())


def test_stress_is_that_of_all_pairs() -> None:
    x = rows(300)
    mds = be.LandmarkMDS(2, n_landmarks=20).fit(x)
    apart, found = (cdist(part, part) for part in (x, mds.embedding_))
    assert mds.stress_ == pytest.approx(np.sqrt(((apart - found) ** 2).sum() / (apart**2).sum()), rel=1e-9)
    assert be.LandmarkMDS(6, n_landmarks=20).fit(x).stress_ < 1e-12


def test_the_change_by_half_of_the_landmarks_shrinks_with_their_number() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4_000, 40)) * np.r_[6.0, 4.0, np.ones(38)]
    changes = [
        be.LandmarkMDS(2, n_landmarks=count, landmarks="uniform").fit(x).landmark_change_
        for count in (16, 64, 256, 1024)
    ]
    assert all(few > many for few, many in pairwise(changes))
    assert changes[-1] < 0.15
    with pytest.warns(DegenerateWarning, match="half of the landmarks would move the rows by"):
        be.LandmarkMDS(2, n_landmarks=8, landmarks="uniform").fit(x)
    assert np.isnan(
        be.LandmarkMDS(2, n_landmarks=4, landmarks="uniform", random_state=3).fit(rows(50, 2)).landmark_change_
    )


def test_objects_that_are_no_vectors(tmp_path: Path) -> None:
    ids = np.arange(len(WORDS))
    mds = be.LandmarkMDS(2, n_landmarks=12, landmarks="uniform", metric=word_distance, ids=True).fit(ids)
    between = word_distance(ids, ids)
    wanted = be.ClassicalMDS(2, metric="precomputed").fit(between)
    np.testing.assert_allclose(signed(mds.embedding_, wanted.embedding_), wanted.embedding_, atol=1e-9)
    np.testing.assert_allclose(mds.transform(ids[3:5]), mds.embedding_[3:5], atol=1e-9)
    some = be.LandmarkMDS(2, landmarks=[0, 5, 8, 11], metric="tests.unit.block_functions:word_distance", ids=True)
    some.fit(da.from_array(ids, chunks=5))
    assert some.embedding_.shape == (12, 2)
    some.save(tmp_path / "model.zarr")
    again = be.load(tmp_path / "model.zarr", functions={some.metric: word_distance})
    np.testing.assert_array_equal(again.transform(ids), np.asarray(some.transform(ids)))


@pytest.mark.parametrize("selection", ["max-min", [7, 3, 200, 41, 499, 350]])
def test_of_given_distances_only_the_rows_of_landmarks_and_probes_count(selection: Any, tmp_path: Path) -> None:
    apart = cdist(rows(), rows() * 1.0, "cityblock")
    asked: dict[str, Any] = {"n_components": 3, "n_landmarks": 20, "landmarks": selection}

    def looked_up(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return apart[np.ix_(a, b)]

    wanted = be.LandmarkMDS(metric=looked_up, ids=True, **asked).fit(np.arange(N))
    mds = be.LandmarkMDS(metric="precomputed", workdir=tmp_path / "run", **asked).fit(apart)
    np.testing.assert_array_equal(mds.embedding_, wanted.embedding_)
    np.testing.assert_array_equal(mds.landmark_ids_, wanted.landmark_ids_)
    np.testing.assert_allclose(mds.transform(apart[:9]), mds.embedding_[:9], atol=1e-12)

    kept = [int(place.name) for place in (tmp_path / "run" / "stages" / "landmarks" / "distances").iterdir()]
    assert 20 <= len(kept) <= 20 + PROBES + 1
    holes, others = apart.copy(), np.setdiff1d(np.arange(N), kept)
    holes[np.ix_(others, others)] = np.nan
    zarr.create_array(tmp_path / "holes.zarr", data=holes, chunks=(23, 150))
    again = be.LandmarkMDS(metric="precomputed", **asked).fit(tmp_path / "holes.zarr")
    np.testing.assert_array_equal(np.asarray(again.embedding_), mds.embedding_)
    zarr.create_array(tmp_path / "tall.zarr", data=apart, chunks=(260, 100))  # (so candidates are read together)
    tall = be.LandmarkMDS(metric="precomputed", **asked).fit(tmp_path / "tall.zarr")
    np.testing.assert_array_equal(np.asarray(tall.embedding_), mds.embedding_)
    again.save(tmp_path / "model.zarr")
    np.testing.assert_array_equal(be.load(tmp_path / "model.zarr").transform(apart[:9]), mds.transform(apart[:9]))
    holes[kept[0], others[0]] = -1.0
    with pytest.raises(InputError, match=rf"distances are finite and ≥ 0.*\({kept[0]}, {others[0]}\): -1"):
        be.LandmarkMDS(metric="precomputed", **asked).fit(holes)


def test_a_saved_model_with_a_metric_and_landmarks_of_ones_own(tmp_path: Path) -> None:
    mds = be.LandmarkMDS(n_landmarks=30, metric=manhattan, landmarks=rows()[::10]).fit(rows())
    mds.save(tmp_path / "model.zarr")
    loaded = be.load(tmp_path / "model.zarr", functions=["tests.unit.block_functions"])
    new = rows(40) * 1.1
    np.testing.assert_array_equal(loaded.transform(new), mds.transform(new))
    assert loaded.stress_ == mds.stress_
    np.testing.assert_array_equal(loaded.landmarks_, mds.landmarks_)
    np.testing.assert_array_equal(loaded.landmark_eigenvalues_, mds.landmark_eigenvalues_)


@pytest.mark.parametrize(("metric", "reads"), [("euclidean", 1), ("cityblock", 2)])
def test_passes_over_the_rows(metric: str, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bigembed.rows.source import RowSource

    path = tmp_path / "rows.npy"
    np.save(path, rows(70_000, 6).astype(np.float32))
    seen: list[int] = []
    read = RowSource.read

    def counted(self: Any, start: int, stop: int) -> Any:
        if self.path == str(path):
            seen.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(RowSource, "read", counted)
    with dask.config.set(scheduler="synchronous"):
        mds = be.LandmarkMDS(n_landmarks=20, metric=metric).fit(path)
    assert sum(seen) == (reads + (metric == "euclidean")) * 70_000  # drawn rows, to judge the map: two blocks
    assert mds.embedding_.shape == (70_000, 2)
