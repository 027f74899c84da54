"""Pictures: maps, charts, thumbnails, at any number of points."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from bigembed import plotting
from bigembed.errors import InputError
from bigembed.plotting import palette, thumbnails
from bigembed.plotting.canvas import FEW, Grid, View, count_points, disc_radius, png, widen_points
from bigembed.plotting.maps import PIXELS, rows_apart
from bigembed.plotting.vector import Scale, Series, chart
from bigembed.runtime.blocks import Array
from tests.some import a_few


def picture(path: Path) -> Array:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def points(n: int) -> Array:
    return np.random.default_rng(0).standard_normal((n, 3))


def counted(X: Array, values: Any = None, kind: str = "auto") -> Grid:
    """The grid that a map of these points is made of, counted as those of many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bigembed.plotting.canvas.FEW", 0)
        view = View(0, 1, PIXELS)
        return count_points(X, [0, 1], palette.limits_of(X, [0, 1]), [view], values, palette.paint_of(values, kind))[0]


class TestPlotting:
    """Pictures: what is drawn is what was given, by any cut into blocks, with bounded memory."""

    @pytest.mark.parametrize("suffix", ["svg", "pdf", "pgn", "jpg"])
    def test_a_picture_is_not_called_otherwise(self, suffix: str, tmp_path: Path) -> None:
        out, x = tmp_path / f"map.{suffix}", np.arange(5.0)
        drawn: dict[str, tuple[Any, ...]] = {
            "scatter": (points(5),),
            "thumbnails": (points(5), np.zeros((5, 16))),
            "named": (x, x, list("abcde")),
            "spectrum": (x,),
            "bandwidth": (1 + x, 1 + x),
        }
        assert {*drawn} == {*plotting.__all__}
        for name, arguments in drawn.items():
            with pytest.raises(InputError, match=r"a picture is written as PNG; give a name that ends in \.png"):
                getattr(plotting, name)(out, *arguments)
        assert not out.exists()

    @a_few(3, ("kind", "n"), [("plain", 1), ("color", 1), ("labels", 500), ("color", 25_000), ("labels", 25_000)])
    def test_a_picture_is_left_and_nothing_else(self, n: int, kind: str, tmp_path: Path) -> None:
        given: dict[str, Any] = {}
        if kind == "color":
            given["color"] = np.linspace(0, 1, n)
        if kind == "labels":
            given["labels"] = np.arange(n) % 3
        plotting.scatter(tmp_path / "new" / "map.png", points(n), title="A map", **given)
        image = picture(tmp_path / "new" / "map.png")
        assert image.shape[0] > 500
        assert image.std() > 5
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["map.png"]

    def test_a_point_falls_into_its_pixel(self) -> None:
        X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
        grid = counted(X).count
        row, column = np.nonzero(grid)
        half = PIXELS // 2
        assert [(bool(r > half), bool(c > half)) for r, c in zip(row, column, strict=True)] == [
            (False, False), (False, True), (True, False), (True, True),
        ]  # fmt: skip
        assert grid[row, column].tolist() == [1, 1, 1, 2]

    def test_few_far_points_do_not_hide_the_rest(self) -> None:
        X = points(20_000)
        X[7] = 1e6
        assert palette.limits_of(X, [0, 1]).padded()[1][0] < 10
        grid = counted(X)
        assert grid.outside >= 1
        assert grid.count.sum() == 20_000 - grid.outside

    def test_many_classes_keep_the_frequent_ones(self, tmp_path: Path) -> None:
        labels = np.concatenate([np.arange(100), np.repeat(np.arange(5), 50)])
        kept = palette.paint_of(labels, "classes").frequent().classes
        assert len(kept) == 19
        assert set(range(5)) <= set(kept.tolist())
        plotting.scatter(tmp_path / "more.png", points(5000), labels=np.arange(5000))
        plotting.scatter(tmp_path / "a.png", points(350), labels=labels)
        plotting.scatter(tmp_path / "b.png", points(4), labels=np.array(["x", "y", "x", "z"]))

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"coordinates": np.empty((0, 2))}, "no rows"),
            ({"coordinates": np.array([[np.nan, 1.0], [0.0, 1.0]])}, "NaN"),
            ({"coordinates": points(5), "axes": (0, 3)}, "columns 0 to 2"),
            ({"coordinates": points(5), "color": np.ones(5), "labels": np.ones(5)}, "at most one"),
        ],
    )
    def test_scatter_errors(self, given: dict[str, Any], said: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=said):
            plotting.scatter(tmp_path / "a.png", **given)

    def test_spectrum(self, tmp_path: Path) -> None:
        values = np.array([0.99, 0.9, 0.5, -0.1])
        plotting.spectrum(tmp_path / "a.png", values)
        plotting.spectrum(tmp_path / "b.png", values, np.full(4, 1e-8), np.array([0.09, 0.4, 0.6]), title="λ")
        plotting.spectrum(tmp_path / "c.png", values[:1], residuals=np.zeros(1))
        assert picture(tmp_path / "b.png").std() > picture(tmp_path / "a.png").std()
        with pytest.raises(InputError, match="no eigenvalues"):
            plotting.spectrum(tmp_path / "d.png", np.empty(0))

    def test_labels_and_colours_of_pandas(self, tmp_path: Path) -> None:
        X, names = points(90), [("left", "right", "both")[i % 3] for i in range(90)]
        plotting.scatter(tmp_path / "list.png", X, labels=np.array(names))
        for number, index in enumerate((range(90), range(500, 410, -1))):
            series = pandas.Series(names, index=index)
            for kind in (object, "category", "string"):
                plotting.scatter(tmp_path / f"{kind}.png", pandas.DataFrame(X, index=index), labels=series.astype(kind))
                assert (tmp_path / f"{kind}.png").read_bytes() == (tmp_path / "list.png").read_bytes(), (kind, number)
        series[series.index[:3]] = None
        plotting.scatter(tmp_path / "some.png", X, labels=series)
        plotting.scatter(tmp_path / "color.png", X, color=pandas.Series(range(90), dtype=object))
        assert palette.paint_of(series, "classes").classes.tolist() == ["both", "left", "right"]


MANY = FEW + 50_000


def points_of_raster(n: int, m: int = 2) -> Array:
    return np.random.default_rng(0).standard_normal((n, m))


def counted_of_raster(X: Array, size: int = 64, values: Any = None, kind: str = "auto", m: int = 2) -> Any:
    limits = palette.limits_of(X, list(range(m)))
    views = [View(x, y, size) for x, y in combinations(range(m), 2)]
    return count_points(X, list(range(m)), limits, views, values, palette.paint_of(values, kind)), limits


def pixels(data: bytes) -> Array:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB")).astype(float)


class TestRaster:
    """Maps for pages: what is counted is what was given, by any cut into blocks; colours; bytes and memory bounded."""

    def test_counts_are_those_of_datashader(self) -> None:
        datashader = pytest.importorskip("datashader", reason="datashader is in the extra bench")
        import pandas as pd

        X = points_of_raster(MANY)
        (grid,), limits = counted_of_raster(X, 200)
        low, high = limits.padded()
        canvas = datashader.Canvas(200, 200, (low[0], high[0]), (low[1], high[1]))
        theirs = canvas.points(pd.DataFrame({"x": X[:, 0], "y": X[:, 1]}), "x", "y", datashader.count())
        assert np.abs(grid.count - np.asarray(theirs)).sum() <= 20
        assert int(grid.count.sum()) == int(theirs.sum())

    @pytest.mark.parametrize("n", [3000, MANY])
    @pytest.mark.parametrize("kind", ["density", "numbers", "classes"])
    def test_any_cut_into_blocks_makes_the_same_bytes(self, n: int, kind: str) -> None:
        X = points_of_raster(n)
        values: Any = {"density": None, "numbers": np.round(X[:, 0], 1), "classes": np.arange(n) % 3}[kind]
        paint = palette.paint_of(values)
        assert paint.kind == kind

        def cut() -> Iterator[Array]:
            return iter(np.split(X, [1, n // 3, n // 2]))

        limits = palette.limits_of(X, [0, 1])
        again = palette.limits_of(cut, [0, 1])
        np.testing.assert_array_equal(limits.low, again.low)
        pages = []
        for rows in (X, cut):
            (grid,) = count_points(rows, [0, 1], limits, [View(0, 1, 100)], values, paint)
            pages.append(png(grid, paint, palette.LIGHT))
        assert pages[0] == pages[1]

    @pytest.mark.parametrize("n", [1, 40, 2000])
    def test_discs_cover_what_discs_cover(self, n: int) -> None:
        """Each disc covers πr² (edges are smooth, so to a few percent), but where the frame cuts it."""
        (grid,), _ = counted_of_raster(points_of_raster(n) if n > 1 else np.ones((1, 2)), 400)
        assert grid.radius == disc_radius(n, 400) > 0.8
        assert grid.count.sum() == pytest.approx(n * math.pi * grid.radius**2, rel=0.06)

    def test_rows_without_coordinates_are_left_out_with_their_color(self) -> None:
        X = points_of_raster(MANY)
        good = np.ones(MANY, bool)
        good[::7] = False
        broken = np.where(good[:, None], X, np.nan)
        values = np.where(good, 1.0, 100.0)
        (grid,), limits = counted_of_raster(broken, values=values)
        assert limits.missing == np.sum(~good)
        assert grid.count.sum() + grid.outside == good.sum()
        assert grid.layers[0].sum() == grid.count.sum()  # only ones were added
        assert palette.limits_of(np.full((5, 2), np.nan), [0, 1]).missing == 5

    def test_the_mean_value_colors_a_pixel(self) -> None:
        X = np.repeat([[0.0, 0.0], [1.0, 1.0]], MANY // 2, axis=0)
        values = np.concatenate([np.zeros(MANY // 2), np.tile([0.0, 2.0, np.nan, 1.0], MANY // 8)])
        (grid,), _ = counted_of_raster(X, 50, values)
        paint = palette.paint_of(values)
        colors = paint.colors(grid.count, grid.layers, palette.LIGHT)
        held = np.argwhere(grid.count)
        first, last = (colors[tuple(place)] for place in held)
        np.testing.assert_allclose(
            first, palette.interpolate_colors(palette.RAMP, np.array(palette.LIGHT.ramp[0])), atol=1e-9
        )
        np.testing.assert_allclose(
            last, palette.interpolate_colors(palette.RAMP, np.array(np.mean(palette.LIGHT.ramp))), atol=1e-9
        )
        assert paint.missing == MANY // 8

    def test_classes_are_told_apart_in_both_schemes(self) -> None:
        n = 3000
        X = np.concatenate([points_of_raster(n // 2) - 9, points_of_raster(n // 2) + 9])
        values = np.array(["a", "b"])[np.arange(n) // (n // 2)]
        (grid,), _ = counted_of_raster(X, 200, values)
        paint = palette.paint_of(values)
        corners = (slice(150, 200), slice(0, 50)), (slice(0, 50), slice(150, 200))  # a lies below left, b above right
        for scheme in palette.SCHEMES:
            image = pixels(png(grid, paint, scheme))
            wanted = [255 * palette.rgb(palette.lifted(color, scheme)) for color, _, _ in paint.legend()]
            for order, corner in enumerate(corners):
                away = [np.abs(image[corner] - color).max(axis=2).min() for color in wanted]
                assert away[order] < 40 < away[1 - order]
        assert [rows for _, _, rows in paint.legend()] == [n // 2, n // 2]

    def test_a_curve_of_many_points_is_seen(self) -> None:
        """One pixel wide it would be faint; a full picture is left as it is."""
        count, layers = np.zeros((200, 200)), np.zeros((2, 200, 200))
        count[100, 20:180] = 50.0
        layers[0, 100, 20:100], layers[1] = 50.0 * 7, count
        wide, sums = widen_points(count, layers)
        assert np.count_nonzero(wide[:, 60]) == 5
        assert wide[98, 60] < wide[99, 60] == pytest.approx(wide[101, 60])
        np.testing.assert_allclose((sums[0] / np.maximum(sums[1], 1e-9))[96:104, 60][wide[96:104, 60] > 0], 7.0)
        assert wide[0].sum() == 0
        corner = np.zeros((200, 200))
        corner[0, 199] = 1.0
        assert np.count_nonzero(widen_points(corner, layers)[0]) == 8  # and nothing comes in at the other edge
        full = np.ones((200, 200))
        assert widen_points(full, layers)[0] is full

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
    def test_what_values_are(self, values: Array, kind: str) -> None:
        assert palette.paint_of(values).kind == kind
        assert palette.paint_of(values, "classes").kind == "classes"


SIDE = 20


def chosen_of(rows, points):
    return rows_apart(rows, palette.limits_of(points, [0, 1]), 400, SIDE)


class TestThumbnails:
    """Thumbnails on a map: none hides another, the same ones for any blocks, each where its row lies."""

    @pytest.fixture
    def points(self):
        return np.random.default_rng(0).normal(size=(3000, 2))

    def test_none_hides_another_and_no_more_would_fit(self, points):
        rows, centers = chosen_of(points, points)
        apart_by = np.abs(centers[:, None] - centers[None]).max(axis=2) + 1000 * np.eye(len(centers), dtype=int)
        assert apart_by.min() > SIDE
        low, high = palette.limits_of(points, [0, 1]).padded()
        at = np.floor((points - low) / (high - low) * 400)
        np.testing.assert_array_equal(centers, at[rows])
        inside = ((at > SIDE) & (at < 400 - SIDE)).all(axis=1)
        nearest = np.abs(at[inside][:, None] - centers[None]).max(axis=2).min(axis=1)
        assert nearest.max() <= SIDE  # (whoever is not drawn would touch one that is)

    def test_the_picture_has_the_image_at_its_place(self, tmp_path):
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

    def test_wrong_input(self, tmp_path, points):
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


def drawn(*series: Series, **given: Any) -> ET.Element:
    return ET.fromstring(chart("c", "A title", "What is seen.", series, x_label="x", **given))


def centers(root: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter("circle")]


class TestVector:
    """Charts as SVG: what is drawn where, what is left out, that names cannot break out."""

    def test_points_lie_where_their_numbers_say(self) -> None:
        root = drawn(Series("a", np.array([1.0, 2, 3]), np.array([0.0, 10, 20]), "dots"))
        (x1, y1), (x2, y2), (x3, y3) = centers(root)
        assert x1 < x2 < x3
        assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
        assert y1 > y2 > y3  # upwards is less in SVG
        assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)

    def test_logarithmic_steps_are_equal_factors(self) -> None:
        root = drawn(
            Series("a", np.array([1.0, 10, 100]), np.array([1e-9, 1e-6, 1e-3]), "dots"), log_x=True, log_y=True
        )
        (x1, y1), (x2, y2), (x3, y3) = centers(root)
        assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
        assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)

    def test_what_cannot_be_drawn_is_left_out(self) -> None:
        y = np.array([np.nan, 1.0, -1.0, 0.0, np.inf, 10.0])
        assert len(centers(drawn(Series("a", np.arange(6.0), y, "dots")))) == 4
        assert len(centers(drawn(Series("a", np.arange(6.0), y, "dots"), log_y=True))) == 2
        assert chart("c", "t", "d", [Series("a", np.arange(2.0), np.full(2, np.nan))], x_label="x") == ""
        assert chart("c", "t", "d", [], x_label="x") == ""

    @pytest.mark.parametrize("y", [[1.0], [0.0], [5.0, 5.0], [1e100, 1e-100], [-1e-12, 1e-12]])
    def test_odd_ranges(self, y: list[float]) -> None:
        for log in (False, True):
            text = chart(
                "c", "t", "d", [Series("a", np.arange(1.0, len(y) + 1), np.array(y), "both")], x_label="x", log_y=log
            )
            assert "nan" not in text
            assert "inf" not in text

    def test_ticks_are_round_and_few(self) -> None:
        assert Scale(0.0, 1.0, 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
        assert Scale(1e-3, 1e3, 0, 1, log=True).ticks() == pytest.approx([1e-3, 1e-1, 1e1, 1e3])
        assert all(len(Scale(0.0, high, 0, 1).ticks()) <= 7 for high in np.geomspace(1e-8, 1e8, 200))
