"""Thumbnails on a map: none hides another, the same ones for any blocks, each where its row lies."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from bigembed.errors import InputError
from bigembed.plotting import thumbnails
from bigembed.plotting.maps import apart
from bigembed.plotting.paint import limits_of

SIDE = 20


@pytest.fixture
def points():
    return np.random.default_rng(0).normal(size=(3000, 2))


def chosen_of(rows, points):
    return apart(rows, limits_of(points, [0, 1]), 400, SIDE)


def test_none_hides_another_and_no_more_would_fit(points):
    rows, centers = chosen_of(points, points)
    apart_by = np.abs(centers[:, None] - centers[None]).max(axis=2) + 1000 * np.eye(len(centers), dtype=int)
    assert apart_by.min() > SIDE
    low, high = limits_of(points, [0, 1]).padded()
    at = np.floor((points - low) / (high - low) * 400)
    np.testing.assert_array_equal(centers, at[rows])
    inside = ((at > SIDE) & (at < 400 - SIDE)).all(axis=1)
    nearest = np.abs(at[inside][:, None] - centers[None]).max(axis=2).min(axis=1)
    assert nearest.max() <= SIDE  # (whoever is not drawn would touch one that is)


def test_blocks_do_not_matter_and_sorted_classes_get_their_share(points):
    whole, _ = chosen_of(points, points)
    parts, _ = chosen_of([points[:7], points[7:1500], points[1500:]], points)
    np.testing.assert_array_equal(whole, parts)
    assert 0.3 < np.mean(whole < 1500) < 0.7


def test_the_picture_has_the_image_at_its_place(tmp_path):
    points = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    images = np.zeros((3, 6))
    images[1] = 255
    for name, invert in (("plain", False), ("inverted", True)):
        thumbnails(tmp_path / f"{name}.png", points, images, shape=(2, 3), labels=["a", "b", "a"], invert=invert)
    plain, inverted = (
        np.asarray(Image.open(tmp_path / f"{name}.png").convert("L"), int) for name in ("plain", "inverted")
    )
    assert plain.shape == inverted.shape
    ys, xs = np.nonzero(plain - inverted == 255)  # (only the white image, at the upper right)
    assert len(ys) > 300
    assert ys.max() < plain.shape[0] / 2 < xs.min()


def test_wrong_input(tmp_path, points):
    place = tmp_path / "map.png"
    images = np.zeros((3000, 5))
    for given, said in (
        ({"images": images}, "give shape"),
        ({"images": np.zeros((30, 4))}, "30 images for 3000 rows"),
        ({"images": images, "side": 3}, "side=3"),
        ({"images": images, "coordinates": np.full((5, 2), np.nan)}, "NaN"),
    ):
        with pytest.raises(InputError, match=said):
            thumbnails(place, **{"coordinates": points, **given})
    assert not place.exists()
