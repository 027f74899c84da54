"""A map laid over another one: planted rotations, signs and reflections are found, and nothing else is undone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ortho_group

import bigembed as be
from bigembed.errors import InputError
from bigembed.estimator.frame import ROWS, Alignment, solved, sums_block


@pytest.fixture
def old():
    return np.random.default_rng(0).normal(size=(500, 4)) * [4, 3, 2, 1] + [1, 2, 3, 4]


def turned(*sizes):
    """A rotation within blocks of these sizes."""
    out, start = np.zeros((sum(sizes), sum(sizes))), 0
    for number, size in enumerate(sizes):
        out[start : start + size, start : start + size] = (
            ortho_group.rvs(size, random_state=number) if size > 1 else [[-1.0]]
        )
        start += size
    return out


class TestAlign:
    """Closed forms: what was planted is undone to rounding."""

    @pytest.mark.parametrize(
        ("kind", "scale", "shift"), [("similarity", 2.5, 7.0), ("rigid", 1.0, -3.0), ("orthogonal", 1.0, 0.0)]
    )
    def test_a_planted_motion_is_undone(self, old, kind, scale, shift):
        moved = scale * old @ turned(4) + shift
        found = be.align(moved, old, kind=kind)
        np.testing.assert_allclose(found.apply(moved), old, atol=1e-12)
        np.testing.assert_allclose(found.undo(old), moved, atol=1e-11)
        assert found.scale == pytest.approx(1 / scale, rel=1e-12)
        assert found.rows == 500
        np.testing.assert_allclose(found.matrix.T @ found.matrix, found.scale**2 * np.eye(4), atol=1e-13)

    def test_a_reflection_is_undone(self, old):
        mirrored = old * [1, -1, 1, 1]
        assert np.linalg.det(be.align(mirrored, old).matrix) == pytest.approx(-1)
        np.testing.assert_allclose(be.align(mirrored, old).apply(mirrored), old, atol=1e-12)

    def test_within_groups_and_signs_elsewhere(self, old):
        moved = old @ turned(1, 2, 1)
        grouped = be.align(moved, old, kind="orthogonal", groups=[0, 1, 1, 2])
        np.testing.assert_allclose(grouped.apply(moved), old, atol=1e-12)
        assert grouped.matrix[0].tolist() == [-1, 0, 0, 0]
        signs = be.align(moved, old, kind="orthogonal", groups=range(4))
        assert np.count_nonzero(signs.matrix) == 4  # (wrong groups: the rotation stays)
        assert np.abs(signs.apply(moved) - old).max() > 0.5

    def test_what_no_group_allows_is_not_undone(self, old):
        moved = old @ turned(2, 2)
        wrong = be.align(moved, old, kind="orthogonal", groups=[0, 1, 1, 2])
        assert np.abs(wrong.apply(moved) - old).max() > 0.5
        np.testing.assert_allclose(be.align(moved, old, groups=[0, 0, 1, 1]).apply(moved), old, atol=1e-12)

    def test_the_least_squares_are_least(self, old):
        noisy = old @ turned(4) + np.random.default_rng(1).normal(size=old.shape)
        best = be.align(noisy, old, kind="rigid")

        def misfit(matrix):
            return ((noisy - noisy.mean(axis=0)) @ matrix - (old - old.mean(axis=0))).ravel() @ (
                (noisy - noisy.mean(axis=0)) @ matrix - (old - old.mean(axis=0))
            ).ravel()

        others = [ortho_group.rvs(4, random_state=seed) for seed in range(50)]
        others += [best.matrix @ (np.eye(4) + 0.01 * (one - one.T)) for one in others]
        others = [np.linalg.qr(one)[0] * np.sign(np.diag(np.linalg.qr(one)[1])) for one in others]
        assert misfit(best.matrix) < min(map(misfit, others))

    def test_rows_of_one_map_only_say_nothing_and_blocks_change_nothing(self, old):
        moved = old @ turned(4)
        reference = old.copy()
        reference[::7], moved[3] = np.nan, np.nan
        found = be.align(moved, reference)
        assert found.rows == 500 - len(range(0, 500, 7)) - 1
        np.testing.assert_allclose(found.apply(moved)[4], old[4], atol=1e-12)
        parts = sum(sums_block(old[i : i + 50], old[i : i + 50]) for i in range(0, 500, 50))
        whole = sums_block(old, old)
        np.testing.assert_allclose(solved(whole, 4).matrix, solved(parts, 4).matrix, atol=1e-13)
        assert ROWS > 500

    def test_a_row_gets_the_same_bytes_whatever_stands_beside_it(self, old):
        found = be.align(old @ turned(4), old)
        every = found.apply(old)
        for row in (0, 17, 499):
            assert found.apply(old[row : row + 1]).tobytes() == every[row : row + 1].tobytes()

    def test_the_size_is_that_of_the_rows_however_far_they_moved(self):
        random = np.random.default_rng(2)
        old, new = random.normal(size=(2, 20_000, 2))
        assert be.align(new, old).scale == pytest.approx(1, abs=0.02)  # (least squares would make it 0.01)
        np.testing.assert_array_equal(Alignment.none(2).apply(old), old)

    def test_bad_input(self, old):
        with pytest.raises(InputError, match="one shape"):
            be.align(old, old[:-1])
        with pytest.raises(InputError, match="no row"):
            be.align(old, np.full_like(old, np.nan))
        with pytest.raises(InputError, match=r"groups has shape \(2,\)"):
            be.align(old, old, groups=[0, 1])
        with pytest.raises(InputError, match="kind='affine'"):
            be.align(old, old, kind="affine")


def test_groups_of_eigenvalues():
    assert be.near_groups([1.0, 0.95, 0.5, 0.2, 0.19]) == [0, 0, 1, 2, 2]
    assert be.near_groups([1.0, 0.95, 0.5], separation=0.01) == [0, 1, 2]
    assert be.near_groups([1e-5, 1.05e-5, 3e-5]) == [0, 0, 1]  # (relative: crowded at 0, and apart all the same)
    assert be.near_groups([]) == []
    with pytest.raises(InputError, match="separation=-1"):
        be.near_groups([1.0], separation=-1)
