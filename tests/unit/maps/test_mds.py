"""Classical and landmark MDS."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError
from bigembed.maps import mds as classical_scaling
from bigembed.maps import mds as landmark_sample
from bigembed.maps.landmark_maps import classical, triangulated
from bigembed.maps.landmark_rows import max_min_by, procrustes_residual
from bigembed.maps.mds.landmark_axes import GIVEN_PROBES as PROBES
from tests.some import a_few
from tests.unit.block_functions import WORDS, manhattan, word_distance

N = 120


def rows(n: int = N, d: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d)) * np.arange(d, 0, -1) + 5


def lanczos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small arrays go the way of large ones."""
    monkeypatch.setattr(classical_scaling, "DENSE_ROWS", 0)


def signed(found: Any, wanted: Any) -> np.ndarray:
    """The columns with the signs of the wanted ones."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    return found * np.sign((found * wanted).sum(axis=0))


class TestClassicalMDS:
    """Classical MDS: against PCA, scikit-learn and a dense solve; from arrays of any kind; distances that are none."""

    def test_euclidean_rows_give_the_scores_of_pca(self) -> None:
        mds, pca = be.ClassicalMDS(3).fit(rows()), be.PCA(3).fit(rows())
        np.testing.assert_allclose(mds.embedding_, pca.embedding_, atol=1e-10)
        np.testing.assert_allclose(mds.eigenvalues_, pca.explained_variance_ * (N - 1))
        np.testing.assert_allclose(mds.eigenvalues_, (mds.embedding_**2).sum(axis=0))
        np.testing.assert_allclose(mds.transform(rows()[:7] + 1), pca.transform(rows()[:7] + 1), atol=1e-10)
        assert len(mds.negative_eigenvalues_) == 0
        values = np.linalg.eigvalsh(np.cov(rows().T, bias=True) * N)[::-1]
        assert mds.explained_ == pytest.approx((values[:3] @ values[:3]) / (values @ values))

    @pytest.mark.parametrize("dense", [True, False])
    @pytest.mark.parametrize("squared", [False, True])
    def test_distances_of_rows_give_the_same_as_the_rows(
        self, dense: bool, squared: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not dense:
            lanczos(monkeypatch)
        apart = cdist(rows(), rows())
        from_rows = be.ClassicalMDS(3).fit(rows())
        given = apart**2 if squared else apart
        mds = be.ClassicalMDS(3, metric="precomputed", squared=squared).fit(given)
        assert mds.certificate_["solver"] == ("dense" if dense else "lanczos")
        np.testing.assert_allclose(signed(mds.embedding_, from_rows.embedding_), from_rows.embedding_, atol=1e-6)
        np.testing.assert_allclose(mds.eigenvalues_, from_rows.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(mds.transform(given[:9]), mds.embedding_[:9], atol=1e-6)
        assert mds.explained_ == pytest.approx(from_rows.explained_, rel=1e-6)
        assert len(mds.negative_eigenvalues_) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrong = be.ClassicalMDS(3, metric="precomputed", squared=not squared).fit(given)  # a control
        assert not np.allclose(np.abs(wrong.embedding_), np.abs(from_rows.embedding_), atol=0.1)

    @pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev"])
    def test_scikit_learn_agrees(self, metric: str) -> None:
        from sklearn import manifold

        if not hasattr(manifold, "ClassicalMDS"):
            pytest.skip("this scikit-learn has no ClassicalMDS")
        theirs = manifold.ClassicalMDS(n_components=3, metric=metric).fit(rows())
        mine = be.ClassicalMDS(3, metric=metric).fit(rows())
        np.testing.assert_allclose(signed(mine.embedding_, theirs.embedding_), theirs.embedding_, atol=1e-9)
        np.testing.assert_allclose(mine.eigenvalues_, theirs.eigenvalues_, rtol=1e-10)

    def test_new_rows_of_any_metric_are_placed_by_gowers_formula(self) -> None:
        """A new row among the old ones gets the coordinates whose products with them fit: the dense formula."""
        x, new = rows(), rows(5) + 0.3
        mds = be.ClassicalMDS(2, metric=manhattan).fit(x)
        apart, to = cdist(x, x, "cityblock") ** 2, cdist(new, x, "cityblock") ** 2
        centered = -0.5 * (to - to.mean(axis=1, keepdims=True) - apart.mean(axis=0) + apart.mean())
        wanted = centered @ mds.embedding_ / mds.eigenvalues_
        np.testing.assert_allclose(mds.transform(new), wanted, atol=1e-9)
        np.testing.assert_array_equal(mds.transform(new)[2:3], mds.transform(new[2:3]))  # whatever the batch
        np.testing.assert_allclose(mds.transform(x), mds.embedding_, atol=1e-9)
        assert not np.allclose(mds.transform(new), mds.embedding_[:5], atol=0.01)

    @pytest.mark.parametrize("dense", [True, False])
    def test_distances_that_are_not_euclidean(self, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Four points of a star: 1 from the center, 2 from each other. They fit into no space."""
        star = 2.0 - 2.0 * np.eye(4)
        star[0, 1:] = star[1:, 0] = 1.0
        values = np.linalg.eigvalsh(-0.5 * (np.eye(4) - 0.25) @ star**2 @ (np.eye(4) - 0.25))
        assert values[0] < -0.1
        if not dense:
            lanczos(monkeypatch)
        with pytest.warns(DegenerateWarning, match="only 2 eigenvalues are positive"):
            mds = be.ClassicalMDS(3, metric="precomputed").fit(star)
        assert mds.n_components_ == 2
        assert mds.embedding_.shape == (4, 2)
        np.testing.assert_allclose(mds.eigenvalues_, values[::-1][:2])
        np.testing.assert_allclose(mds.negative_eigenvalues_, values[:1])
        assert mds.explained_ == pytest.approx(values[-2:] @ values[-2:] / (values @ values))
        assert mds.explained_ < 0.999

    def test_a_coordinate_smaller_than_a_negative_eigenvalue_is_told(self) -> None:
        apart = 1.0 - np.eye(30) + np.triu(np.random.default_rng(3).random((30, 30)) * 5, 1)
        apart = np.triu(apart) + np.triu(apart, 1).T
        with pytest.warns(DegenerateWarning, match="far from Euclidean"):
            mds = be.ClassicalMDS(10, metric="precomputed").fit(apart)
        assert -mds.negative_eigenvalues_[0] > mds.eigenvalues_[-1]

    @pytest.mark.parametrize("dense", [True, False])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_dimensions_that_are_only_rounding_are_no_coordinates(
        self, dense: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not dense:
            lanczos(monkeypatch)
        plane = rows(N, 2)
        with pytest.warns(DegenerateWarning, match="only 2 eigenvalues are positive"):
            mds = be.ClassicalMDS(5, metric="precomputed").fit(cdist(plane, plane).astype(dtype))
        assert mds.n_components_ == 2
        assert len(mds.negative_eigenvalues_) == 0
        small = np.column_stack([plane, 1e-2 * rows(N, 3)[:, 2]])  # a control: what is more than rounding is kept
        with pytest.warns(DegenerateWarning, match="only 3 eigenvalues"):
            assert be.ClassicalMDS(5, metric="precomputed").fit(cdist(small, small).astype(dtype)).n_components_ == 3

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            ([(3, 5, np.nan), (5, 3, np.nan)], r"2 of 120 rows.*NaN.*rows \[3, 5\].*\(3, 5\): nan"),
            ([(7, 1, np.inf)], r"infinity.*rows \[7\]"),
            ([(2, 9, -1.0), (9, 2, -1.0)], r"negative.*\(2, 9\): -1"),
            ([(4, 4, 0.5)], r"nonzero distance to themselves.*rows \[4\]"),
            ([(4, 60, 9.0)], r"not symmetric: 2 of 120 rows.*rows \[4, 60\].*\(D \+ D\.T\) / 2"),
        ],
    )
    def test_what_are_no_distances_is_refused(self, entries: list[tuple[int, int, float]], message: str) -> None:
        apart = cdist(rows(), rows())
        for i, j, value in entries:
            apart[i, j] = value
        with pytest.raises(InputError, match=message):
            be.ClassicalMDS(metric="precomputed").fit(apart)

    def test_a_large_array_takes_few_passes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lanczos(monkeypatch)
        mds = be.ClassicalMDS(3, metric="precomputed").fit(cdist(rows(600), rows(600)))
        assert mds.certificate_["passes"] <= 8
        assert max(mds.certificate_["residuals"]) <= 1e-8

    def test_a_function_without_a_name_cannot_be_saved(self, tmp_path: Path) -> None:
        mds = be.ClassicalMDS(metric=lambda a, b: cdist(a, b)).fit(rows())
        with pytest.raises(InputError, match="cannot be found by its name"):
            mds.save(tmp_path / "model.zarr")
        assert not list(tmp_path.iterdir())

    def test_scikit_learn_is_told_that_distances_come_in_pairs(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert be.ClassicalMDS(metric="precomputed").__sklearn_tags__().input_tags.pairwise
            assert not be.ClassicalMDS().__sklearn_tags__().input_tags.pairwise


LANDMARK_MDS_N = 500


def rows_of_landmark_mds(n: int = LANDMARK_MDS_N, d: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d)) * 2.0 ** -np.arange(d) + 3


@pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")
class TestLandmarkMDS:
    """Landmark MDS: against classical MDS, the formula, and in every way that landmarks and distances can be wrong."""

    @a_few(2, "metric", ["euclidean", "cityblock", manhattan, "canberra"])
    def test_all_rows_as_landmarks_are_classical_mds(self, metric: Any) -> None:
        x = rows_of_landmark_mds(200)
        classical = be.ClassicalMDS(3, metric=metric).fit(x)
        landmark = be.LandmarkMDS(3, n_landmarks=200, landmarks="uniform", metric=metric).fit(x)
        np.testing.assert_allclose(signed(landmark.embedding_, classical.embedding_), classical.embedding_, atol=1e-9)
        np.testing.assert_allclose(landmark.eigenvalues_, classical.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(landmark.landmark_eigenvalues_[:3], classical.eigenvalues_, rtol=1e-9)
        few = be.LandmarkMDS(3, n_landmarks=20, landmarks="uniform", metric=metric).fit(x)  # a control
        assert not np.allclose(signed(few.embedding_, classical.embedding_), classical.embedding_, atol=1e-3)

    @pytest.mark.parametrize("wide", [False, True])
    @pytest.mark.parametrize("d", [3, 60])
    def test_the_affine_map_is_the_triangulation_of_distances(
        self, wide: bool, d: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For Euclidean rows the same numbers must come out of the map (x − mean) A and of distances to the
        landmarks."""
        if wide:
            monkeypatch.setattr(landmark_sample, "SCATTER_COLUMNS", 2)
        x = rows_of_landmark_mds(LANDMARK_MDS_N, d)
        affine = be.LandmarkMDS(2, n_landmarks=25, landmarks=np.arange(0, LANDMARK_MDS_N, 20)).fit(x)
        distances = be.LandmarkMDS(2, n_landmarks=25, landmarks=np.arange(0, LANDMARK_MDS_N, 20), metric=cdist).fit(x)
        assert affine.certificate_["affine"]
        assert not distances.certificate_["affine"]
        np.testing.assert_allclose(signed(affine.embedding_, distances.embedding_), distances.embedding_, atol=1e-9)
        np.testing.assert_allclose(affine.eigenvalues_, distances.eigenvalues_, rtol=1e-9)
        assert affine.stress_ == pytest.approx(distances.stress_, rel=1e-9)
        np.testing.assert_allclose(
            affine.transform(x[:5] * 2), signed(distances.transform(x[:5] * 2), affine.transform(x[:5] * 2)), atol=1e-9
        )

    def test_coordinates_are_on_principal_axes(self) -> None:
        for metric in ("euclidean", "cityblock"):
            mds = be.LandmarkMDS(3, n_landmarks=12, metric=metric).fit(rows_of_landmark_mds())
            y = mds.embedding_
            np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-9)
            products = y.T @ y
            np.testing.assert_allclose(products, np.diag(mds.eigenvalues_), atol=1e-8 * products[0, 0])
            assert (np.diff(mds.eigenvalues_) < 0).all()
            unturned = be.ClassicalMDS(3, metric=metric).fit(
                mds.landmarks_
            )  # of the landmarks alone: other axes, a control
            there = unturned.transform(rows_of_landmark_mds())
            assert abs(np.corrcoef(there.T)[0, 1]) > 1e-3

    @pytest.mark.parametrize("selection", ["max-min", "uniform", "k-means"])
    @a_few(1, "metric", ["euclidean", "cityblock"])
    def test_selections(self, selection: str, metric: str) -> None:
        mds = be.LandmarkMDS(2, n_landmarks=40, landmarks=selection, metric=metric).fit(rows_of_landmark_mds())
        reference = be.ClassicalMDS(2, metric=metric).fit(rows_of_landmark_mds())
        assert mds.n_landmarks_ == 40
        assert len(np.unique(mds.landmarks_, axis=0)) == 40
        if selection == "k-means":
            assert (mds.landmark_ids_ == -1).all()
        else:
            np.testing.assert_array_equal(mds.landmarks_, rows_of_landmark_mds()[mds.landmark_ids_])
        assert procrustes_residual(reference.embedding_, mds.embedding_) < 0.3
        assert procrustes_residual(reference.embedding_, mds.embedding_[::-1]) > 0.9  # a control
        assert mds.stress_ < 0.25
        other = be.LandmarkMDS(2, n_landmarks=40, landmarks=selection, metric=metric, random_state=1).fit(
            rows_of_landmark_mds(20_000)
        )
        same = be.LandmarkMDS(2, n_landmarks=40, landmarks=selection, metric=metric, random_state=2).fit(
            rows_of_landmark_mds(20_000)
        )
        assert not np.array_equal(other.landmarks_, same.landmarks_)

    def test_max_min_landmarks_are_farther_apart_than_uniform_ones(self) -> None:
        found = {
            name: be.LandmarkMDS(n_landmarks=30, landmarks=name, metric="cityblock")
            .fit(rows_of_landmark_mds())
            .landmarks_
            for name in ("max-min", "uniform")
        }
        nearest = {name: np.sort(cdist(part, part, "cityblock"), axis=1)[:, 1].min() for name, part in found.items()}
        assert nearest["max-min"] > 2 * nearest["uniform"]
        sample = rows_of_landmark_mds(60)
        apart = cdist(sample, sample)
        chosen = max_min_by(lambda i: apart[i], 10)
        for k in range(2, 10):  # each is the farthest from those before
            before = apart[chosen[:k]].min(axis=0)
            assert before[chosen[k]] == before.max()

    def test_given_landmarks(self) -> None:
        ids = [400, 3, 77, 250, 311, 18]
        by_id = be.LandmarkMDS(2, landmarks=ids).fit(rows_of_landmark_mds())
        by_row = be.LandmarkMDS(2, landmarks=rows_of_landmark_mds()[ids]).fit(rows_of_landmark_mds())
        np.testing.assert_array_equal(by_id.landmark_ids_, ids)
        np.testing.assert_array_equal(by_id.landmarks_, by_row.landmarks_)
        np.testing.assert_allclose(by_id.embedding_, by_row.embedding_, atol=1e-12)
        assert (by_row.landmark_ids_ == -1).all()
        assert by_id.n_landmarks_ == 6

    @pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
    def test_duplicated_landmarks_change_nothing_but_their_weight(self, metric: str) -> None:
        ids = [400, 3, 77, 250, 311, 18]
        once = be.LandmarkMDS(2, landmarks=ids, metric=metric).fit(rows_of_landmark_mds())
        with pytest.warns(DegenerateWarning, match="6 distinct landmarks of 12"):
            twice = be.LandmarkMDS(2, landmarks=ids * 2, metric=metric).fit(rows_of_landmark_mds())
        np.testing.assert_allclose(twice.embedding_, once.embedding_, atol=1e-9)
        np.testing.assert_allclose(twice.landmark_eigenvalues_[:2], 2 * once.landmark_eigenvalues_[:2])
        uneven = be.LandmarkMDS(2, landmarks=[*ids, *ids[:1] * 9], metric=metric).fit(rows_of_landmark_mds())
        assert not np.allclose(uneven.embedding_, once.embedding_, atol=1e-6)

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
    def test_distances_that_are_none(self, metric: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            be.LandmarkMDS(n_landmarks=20, metric=metric, landmarks="uniform").fit(rows_of_landmark_mds())

    def test_a_bad_distance_of_one_row_is_named(self) -> None:
        """Rows that were not sampled come to light in the pass that places them."""
        x = rows_of_landmark_mds(3_000)
        x[2_345] = 0.0
        ids = np.arange(0, 2_000, 40)
        with pytest.raises(InputError, match="metric=cosine: the distance of row 2345 to the known row 0 is nan"):
            be.LandmarkMDS(landmarks=ids, metric="cosine").fit(x)
        x[2_345] = np.nan
        with pytest.raises(InputError, match=r"NaN.*rows \[2345\]"):
            be.LandmarkMDS(landmarks=ids, metric="cityblock").fit(x)

    def test_stress_is_that_of_all_pairs(self) -> None:
        x = rows_of_landmark_mds(300)
        mds = be.LandmarkMDS(2, n_landmarks=20).fit(x)
        apart, found = (cdist(part, part) for part in (x, mds.embedding_))
        assert mds.stress_ == pytest.approx(np.sqrt(((apart - found) ** 2).sum() / (apart**2).sum()), rel=1e-9)
        assert be.LandmarkMDS(6, n_landmarks=20).fit(x).stress_ < 1e-12

    def test_objects_that_are_no_vectors(self, tmp_path: Path) -> None:
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

    @pytest.mark.parametrize("selection", ["max-min", pytest.param([7, 3, 200, 41, 499, 350], marks=pytest.mark.slow)])
    def test_of_given_distances_only_the_rows_of_landmarks_and_probes_count(
        self, selection: Any, tmp_path: Path
    ) -> None:
        apart = cdist(rows_of_landmark_mds(), rows_of_landmark_mds() * 1.0, "cityblock")
        asked: dict[str, Any] = {"n_components": 3, "n_landmarks": 20, "landmarks": selection}

        def looked_up(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return apart[np.ix_(a, b)]

        wanted = be.LandmarkMDS(metric=looked_up, ids=True, **asked).fit(np.arange(LANDMARK_MDS_N))
        mds = be.LandmarkMDS(metric="precomputed", workdir=tmp_path / "run", **asked).fit(apart)
        np.testing.assert_array_equal(mds.embedding_, wanted.embedding_)
        np.testing.assert_array_equal(mds.landmark_ids_, wanted.landmark_ids_)
        np.testing.assert_allclose(mds.transform(apart[:9]), mds.embedding_[:9], atol=1e-12)

        kept = [int(place.name) for place in (tmp_path / "run" / "stages" / "landmarks" / "distances").iterdir()]
        assert 20 <= len(kept) <= 20 + PROBES + 1
        holes, others = apart.copy(), np.setdiff1d(np.arange(LANDMARK_MDS_N), kept)
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

    @pytest.mark.parametrize(("metric", "reads"), [("euclidean", 1), ("cityblock", 2)])
    def test_passes_over_the_rows(
        self, metric: str, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from bigembed.rows import RowSource

        path = tmp_path / "rows.npy"
        np.save(path, rows_of_landmark_mds(70_000, 6).astype(np.float32))
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


class TestTriangulate:
    """Landmark MDS against the points that the distances come from."""

    def test_euclidean_points_are_placed_where_they_are(self) -> None:
        rows = np.random.default_rng(0).normal(size=(300, 3)) * [5.0, 2.0, 1.0]
        landmarks = rows[:12]
        found, values = classical(cdist(landmarks, landmarks) ** 2, 3)
        placed = triangulated(cdist(rows, landmarks), found)
        assert procrustes(rows, placed)[2] < 1e-20
        assert (values[3:] < 1e-10 * values[0]).all()
        assert (
            procrustes(rows, triangulated(cdist(rows, landmarks) ** 2, found))[2] > 1e-2
        )  # a control: squares of squares
        alone = triangulated(cdist(rows[17:18], landmarks), found)
        np.testing.assert_array_equal(placed[17:18], alone)
