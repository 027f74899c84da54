"""Turned pictures: the angles are right, and the rows lie on a closed curve."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bigembed import datasets
from bigembed.errors import InputError, MissingPathError


def test_pacman_is_the_set_of_seed_000() -> None:
    rows, truth = datasets.pacman().draw()
    assert rows.shape == (200, 4225)
    assert np.unique(rows).tolist() == [0.0, 255.0]
    np.testing.assert_allclose(truth["angle"], 2 * np.pi * np.arange(200) / 200)
    np.testing.assert_array_equal(datasets.pacman().rows(150, 160), rows[150:160])


def test_a_quarter_turn_turns_the_pixels() -> None:
    rows = datasets.pacman(4).rows().reshape(4, 65, 65)
    assert rows[0, 32, 60] == 0  # at the angle 0 the mouth opens to the right,
    assert rows[1, 4, 32] == 0  # after a quarter of a turn to the top
    for quarter in range(3):
        np.testing.assert_array_equal(np.rot90(rows[quarter]), rows[quarter + 1])
        assert (rows[quarter] != rows[quarter + 1]).any()


def test_neighbors_on_the_curve_are_the_nearest_rows() -> None:
    rows = datasets.pacman(60).rows().astype(np.float64)
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    near = np.sort(np.argsort(squared, axis=1)[:, :2], axis=1)
    number = np.arange(60)
    np.testing.assert_array_equal(near, np.sort(np.stack([(number - 1) % 60, (number + 1) % 60], axis=1), axis=1))


def test_a_picture_is_turned_like_pacman(tmp_path: Path) -> None:
    pixels = datasets.pacman(1).rows().reshape(65, 65).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "pacman.png")
    turned, truth = datasets.rotated(tmp_path / "pacman.png", n=8, size=65).draw()
    wanted = datasets.pacman(8).rows()
    inside = np.hypot(*(np.mgrid[:65, :65] - 32.0)).ravel() <= 32  # beyond that the corners of the picture come in
    agree = np.isclose(turned[:, inside], wanted[:, inside], atol=64).mean(axis=1)
    assert agree.min() > 0.95
    assert np.isclose(turned[::-1][:, inside], wanted[:, inside], atol=64).mean() < 0.9  # a control: the other sense
    np.testing.assert_allclose(truth["angle"], np.pi / 4 * np.arange(8))


def test_what_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="no such picture"):
        datasets.rotated(tmp_path / "cat.png")
    (tmp_path / "cat.png").write_text("a cat")
    with pytest.raises(InputError, match="not a picture"):
        datasets.rotated(tmp_path / "cat.png")
    with pytest.raises(InputError, match="size = 2"):
        datasets.pacman(size=2)


def test_the_first_digits() -> None:
    rows, truth = datasets.digits(classes=5).draw()
    assert rows.shape == (901, 64)
    assert np.unique(truth["label"]).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="classes = 0"):
        datasets.digits(classes=0)
