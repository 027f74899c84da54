"""Maps for pages: what is counted is what was given, by any cut into blocks; colours; bytes and memory bounded."""

import io
import math
import tracemalloc
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bigembed.errors import InputError
from bigembed.plotting.canvas import PALE
from bigembed.plotting.paint import DARK, LIGHT, RAMP, SCHEMES, Paint, along, lifted, limits_of, paint_of, rgb
from bigembed.plotting.raster import FEW, View, count_points, disc_radius, png, rank_of, spread
from bigembed.runtime.blocks import Array

MANY = FEW + 50_000


def points(n: int, m: int = 2) -> Array:
    return np.random.default_rng(0).standard_normal((n, m))


def counted(X: Array, size: int = 64, values: Any = None, kind: str = "auto", m: int = 2) -> Any:
    limits = limits_of(X, list(range(m)))
    views = [View(x, y, size) for x, y in combinations(range(m), 2)]
    return count_points(X, list(range(m)), limits, views, values, paint_of(values, kind)), limits


def pixels(data: bytes) -> Array:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB")).astype(float)


def test_counts_are_those_of_a_histogram() -> None:
    X = points(MANY, 3)
    grids, limits = counted(X, m=3)
    low, high = limits.padded()
    for grid in grids:
        x, y = grid.view.x, grid.view.y
        reach = [[low[y], high[y]], [low[x], high[x]]]
        true, _, _ = np.histogram2d(X[:, y], X[:, x], 64, reach)
        assert np.abs(grid.count - true).sum() <= 4  # a point on an edge may fall on either side
        assert np.abs(grid.count - true.T).sum() > 1000  # and x is across, not up
        assert grid.count.sum() + grid.outside == MANY


def test_counts_are_those_of_datashader() -> None:
    datashader = pytest.importorskip("datashader", reason="datashader is in the extra bench")
    import pandas as pd

    X = points(MANY)
    (grid,), limits = counted(X, 200)
    low, high = limits.padded()
    canvas = datashader.Canvas(200, 200, (low[0], high[0]), (low[1], high[1]))
    theirs = canvas.points(pd.DataFrame({"x": X[:, 0], "y": X[:, 1]}), "x", "y", datashader.count())
    assert np.abs(grid.count - np.asarray(theirs)).sum() <= 20
    assert int(grid.count.sum()) == int(theirs.sum())


@pytest.mark.parametrize("n", [3000, MANY])
@pytest.mark.parametrize("kind", ["density", "numbers", "classes"])
def test_any_cut_into_blocks_makes_the_same_bytes(n: int, kind: str) -> None:
    X = points(n)
    values: Any = {"density": None, "numbers": np.round(X[:, 0], 1), "classes": np.arange(n) % 3}[kind]
    paint = paint_of(values)
    assert paint.kind == kind

    def cut() -> Iterator[Array]:
        return iter(np.split(X, [1, n // 3, n // 2]))

    limits = limits_of(X, [0, 1])
    again = limits_of(cut, [0, 1])
    np.testing.assert_array_equal(limits.low, again.low)
    pages = []
    for rows in (X, cut):
        (grid,) = count_points(rows, [0, 1], limits, [View(0, 1, 100)], values, paint)
        pages.append(png(grid, paint, LIGHT))
    assert pages[0] == pages[1]


@pytest.mark.parametrize("n", [1, 40, 2000])
def test_discs_cover_what_discs_cover(n: int) -> None:
    """Each disc covers πr² (edges are smooth, so to a few percent), but where the frame cuts it."""
    (grid,), _ = counted(points(n) if n > 1 else np.ones((1, 2)), 400)
    assert grid.radius == disc_radius(n, 400) > 0.8
    assert grid.count.sum() == pytest.approx(n * math.pi * grid.radius**2, rel=0.06)


def test_rows_without_coordinates_are_left_out_with_their_color() -> None:
    X = points(MANY)
    good = np.ones(MANY, bool)
    good[::7] = False
    broken = np.where(good[:, None], X, np.nan)
    values = np.where(good, 1.0, 100.0)
    (grid,), limits = counted(broken, values=values)
    assert limits.missing == np.sum(~good)
    assert grid.count.sum() + grid.outside == good.sum()
    assert grid.layers[0].sum() == grid.count.sum()  # only ones were added
    assert limits_of(np.full((5, 2), np.nan), [0, 1]).missing == 5


def test_the_mean_value_colors_a_pixel() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], MANY // 2, axis=0)
    values = np.concatenate([np.zeros(MANY // 2), np.tile([0.0, 2.0, np.nan, 1.0], MANY // 8)])
    (grid,), _ = counted(X, 50, values)
    paint = paint_of(values)
    colors = paint.colors(grid.count, grid.layers, LIGHT)
    held = np.argwhere(grid.count)
    first, last = (colors[tuple(place)] for place in held)
    np.testing.assert_allclose(first, along(RAMP, np.array(LIGHT.ramp[0])), atol=1e-9)
    np.testing.assert_allclose(last, along(RAMP, np.array(np.mean(LIGHT.ramp))), atol=1e-9)
    assert paint.missing == MANY // 8


def test_classes_are_told_apart_in_both_schemes() -> None:
    n = 3000
    X = np.concatenate([points(n // 2) - 9, points(n // 2) + 9])
    values = np.array(["a", "b"])[np.arange(n) // (n // 2)]
    (grid,), _ = counted(X, 200, values)
    paint = paint_of(values)
    corners = (slice(150, 200), slice(0, 50)), (slice(0, 50), slice(150, 200))  # a lies below left, b above right
    for scheme in SCHEMES:
        image = pixels(png(grid, paint, scheme))
        wanted = [255 * rgb(lifted(color, scheme)) for color, _, _ in paint.legend()]
        for order, corner in enumerate(corners):
            away = [np.abs(image[corner] - color).max(axis=2).min() for color in wanted]
            assert away[order] < 40 < away[1 - order]
    assert [rows for _, _, rows in paint.legend()] == [n // 2, n // 2]


def test_up_is_up() -> None:
    X = np.concatenate([points(1000) * 0.1, [[0.0, 10.0]]])
    limits = limits_of(X, [0, 1])
    wide = type(limits)(limits.count, 0, np.array([-1.0, -1.0]), np.array([1.0, 11.0]))
    (grid,) = count_points(X, [0, 1], wide, [View(0, 1, 100)])
    image = pixels(png(grid, Paint(), LIGHT))
    plate = 255 * rgb(LIGHT.plate)
    inked = np.abs(image - plate).max(axis=2) > 20
    assert inked[60:].sum() > 10 * inked[:40].sum() > 0


def test_a_curve_of_many_points_is_seen() -> None:
    """One pixel wide it would be faint; a full picture is left as it is."""
    count, layers = np.zeros((200, 200)), np.zeros((2, 200, 200))
    count[100, 20:180] = 50.0
    layers[0, 100, 20:100], layers[1] = 50.0 * 7, count
    wide, sums = spread(count, layers)
    assert np.count_nonzero(wide[:, 60]) == 5
    assert wide[98, 60] < wide[99, 60] == pytest.approx(wide[101, 60])
    np.testing.assert_allclose((sums[0] / np.maximum(sums[1], 1e-9))[96:104, 60][wide[96:104, 60] > 0], 7.0)
    assert wide[0].sum() == 0
    corner = np.zeros((200, 200))
    corner[0, 199] = 1.0
    assert np.count_nonzero(spread(corner, layers)[0]) == 8  # and nothing comes in at the other edge
    full = np.ones((200, 200))
    assert spread(full, layers)[0] is full


def test_ranks_reach_from_thin_to_dense() -> None:
    count = np.array([[0.0, 1, 1], [1, 2, 500]])
    strength = rank_of(count)
    assert strength[0, 1] == 0
    assert strength[1, 2] == 1
    assert 0 < strength[1, 1] < 1
    assert rank_of(np.zeros((2, 2))).max() == 0
    assert rank_of(np.ones((2, 2))).max() == 0.5


@pytest.mark.parametrize("kind", ["density", "numbers", "classes"])
def test_a_million_rows_of_noise_are_few_bytes(kind: str) -> None:
    """The hardest to compress: all pixels differ. Both schemes: a large map and five small ones, in base64."""
    n = 1_000_000
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 4))
    values = {"density": None, "numbers": rng.uniform(size=n), "classes": rng.integers(0, 15, n)}[kind]
    paint = paint_of(values)
    limits = limits_of(X, range(4))
    views = [View(x, y, 840 if (x, y) == (0, 1) else 380) for x, y in combinations(range(4), 2)]
    grids = count_points(X, range(4), limits, views, values, paint)
    total = sum(len(png(grid, paint, scheme)) for grid in grids for scheme in SCHEMES)
    assert total * 4 / 3 < 2.9e6


def test_memory_does_not_grow_with_the_rows() -> None:
    def blocks(count: int) -> Any:
        return lambda: (np.random.default_rng(i).standard_normal((50_000, 3)) for i in range(count))

    peaks = []
    for count in (12, 12, 48):
        tracemalloc.start()
        limits = limits_of(blocks(count), [0, 1, 2])
        count_points(blocks(count), [0, 1, 2], limits, [View(0, 1, 200), View(0, 2, 200)])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1]


def test_far_points_are_outside_and_counted() -> None:
    X = np.concatenate([points(MANY), [[1e6, 0.0], [0.0, -1e6]]])
    (grid,), limits = counted(X)
    assert limits.high[0] < 10
    assert grid.outside >= 2
    assert grid.outside + grid.count.sum() == MANY + 2


def test_wrong_number_of_values() -> None:
    X = points(100)
    for length in (99, 101):
        with pytest.raises(InputError, match="colors or labels"):
            counted(X, values=np.ones(length))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.arange(30) % 20, "classes"),
        (np.arange(30) % 21, "numbers"),
        (np.ones(30), "numbers"),
        (np.array([True, False] * 15), "classes"),
        (np.array(["a", None] * 15, object), "classes"),
        (np.array(["2020-01-01"] * 30, "M8[D]"), "classes"),
    ],
)
def test_what_values_are(values: Array, kind: str) -> None:
    assert paint_of(values).kind == kind
    assert paint_of(values, "classes").kind == "classes"


def test_labels_that_are_missing_are_no_class() -> None:
    labels = [np.array([1.0, np.nan, 2.0]), np.array([np.nan, 2.0])]
    paint = paint_of(lambda: iter(labels), "classes")
    assert paint.missing == 2
    assert [(name, rows) for _, name, rows in paint.legend()] == [("1", 1), ("2", 2)]
    np.testing.assert_allclose(np.array(paint.weights(labels[0]))[:, 1], rgb(PALE))


def test_too_many_classes() -> None:
    with pytest.raises(InputError, match="4096"):
        paint_of(np.arange(5000).astype(str))
    paint = paint_of(np.arange(4000).astype(str))
    assert paint.repeats
    assert paint.legend() == []
    repeated = np.array(paint.weights(paint.classes[[0, 20, 1]]))
    np.testing.assert_array_equal(repeated[:, 0], repeated[:, 1])
    assert (repeated[:, 0] != repeated[:, 2]).any()


def test_the_ramp_is_viridis() -> None:
    from matplotlib import colormaps

    share = np.linspace(0, 1, 200)
    assert np.abs(along(RAMP, share) - colormaps["viridis"](share)[:, :3]).max() < 0.02
    assert np.abs(along(RAMP, share) - colormaps["plasma"](share)[:, :3]).max() > 0.3


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_points_stand_out_from_the_plate(scheme: Any) -> None:
    from bigembed.plotting.canvas import CLASSES

    def light(color: Array) -> float:
        linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    def contrast(one: Array, other: Array) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    plate = rgb(scheme.plate)
    ramp = along(RAMP, np.linspace(*scheme.ramp, 20))
    assert min(contrast(color, plate) for color in ramp) > 1.25
    assert min(contrast(rgb(lifted(color, scheme)), plate) for color in CLASSES) > 1.6
    dense = [contrast(rgb(color), plate) for color in scheme.density]
    assert dense == sorted(dense)
    assert dense[0] > 1.3
    assert DARK.ramp != LIGHT.ramp
