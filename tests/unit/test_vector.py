"""Charts as SVG: what is drawn where, what is left out, that names cannot break out."""

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from bigembed.plotting.vector import HEIGHT, LEFT, TOP, WIDTH, Mark, Scale, Series, chart


def drawn(*series: Series, **given: Any) -> ET.Element:
    return ET.fromstring(chart("c", "A title", "What is seen.", series, x_label="x", **given))


def centers(root: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter("circle")]


def test_points_lie_where_their_numbers_say() -> None:
    root = drawn(Series("a", np.array([1.0, 2, 3]), np.array([0.0, 10, 20]), "dots"))
    (x1, y1), (x2, y2), (x3, y3) = centers(root)
    assert x1 < x2 < x3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 > y2 > y3  # upwards is less in SVG
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)


def test_logarithmic_steps_are_equal_factors() -> None:
    root = drawn(Series("a", np.array([1.0, 10, 100]), np.array([1e-9, 1e-6, 1e-3]), "dots"), log_x=True, log_y=True)
    (x1, y1), (x2, y2), (x3, y3) = centers(root)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)


@pytest.mark.parametrize("kind", ["line", "dots", "both", "stems", "bars"])
def test_all_stay_inside(kind: str) -> None:
    y = np.random.default_rng(0).standard_normal(30)
    root = drawn(Series("a", np.arange(1.0, 31), y, kind), Series("b", np.arange(1.0, 31), -y, kind), whole=True)
    for name in ("x1", "x2", "cx"):
        assert all(LEFT <= float(e.attrib[name]) <= WIDTH for e in root.iter() if name in e.attrib)
    for name in ("y1", "y2", "cy"):
        assert all(TOP - 1 <= float(e.attrib[name]) <= HEIGHT for e in root.iter() if name in e.attrib)


def test_what_cannot_be_drawn_is_left_out() -> None:
    y = np.array([np.nan, 1.0, -1.0, 0.0, np.inf, 10.0])
    assert len(centers(drawn(Series("a", np.arange(6.0), y, "dots")))) == 4
    assert len(centers(drawn(Series("a", np.arange(6.0), y, "dots"), log_y=True))) == 2
    assert chart("c", "t", "d", [Series("a", np.arange(2.0), np.full(2, np.nan))], x_label="x") == ""
    assert chart("c", "t", "d", [], x_label="x") == ""


@pytest.mark.parametrize("y", [[1.0], [0.0], [5.0, 5.0], [1e100, 1e-100], [-1e-12, 1e-12]])
def test_odd_ranges(y: list[float]) -> None:
    for log in (False, True):
        text = chart(
            "c", "t", "d", [Series("a", np.arange(1.0, len(y) + 1), np.array(y), "both")], x_label="x", log_y=log
        )
        assert "nan" not in text
        assert "inf" not in text


def test_long_series_are_thinned() -> None:
    root = drawn(Series("a", np.arange(1e5), np.arange(1e5)))
    assert len(next(iter(root.iter("polyline"))).attrib["points"].split()) <= 400


def test_marks_and_titles() -> None:
    root = drawn(Series("a", np.arange(9.0), np.arange(9.0)), marks=[Mark(3.0, "here"), Mark(99.0, "outside")])
    text = " ".join(root.itertext())
    assert "here" in text
    assert "outside" not in text
    assert root.attrib["aria-labelledby"] == "c-t c-d"
    assert "A title" in text


def test_names_are_escaped() -> None:
    evil = '"><script>alert(1)</script>'
    series = [Series(evil, np.arange(3.0), np.arange(3.0), "both")] * 2
    root = ET.fromstring(chart(evil, evil, evil, series, x_label=evil, y_label=evil, marks=[Mark(1.0, evil)]))
    assert not list(root.iter("script"))
    assert root.attrib["id"] == evil


def test_ticks_are_round_and_few() -> None:
    assert Scale(0.0, 1.0, 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Scale(1e-3, 1e3, 0, 1, log=True).ticks() == pytest.approx([1e-3, 1e-1, 1e1, 1e3])
    assert all(len(Scale(0.0, high, 0, 1).ticks()) <= 7 for high in np.geomspace(1e-8, 1e8, 200))


def test_ticks_are_told_apart() -> None:
    for low, high in ((0.99995, 0.99999), (0.0, 1.0), (-3e-5, 2e-5), (1e6, 3e6), (17.0, 17.001)):
        scale = Scale(low, high, 0, 1)
        names = [scale.name(tick) for tick in scale.ticks()]
        assert len(set(names)) == len(names) >= 3
