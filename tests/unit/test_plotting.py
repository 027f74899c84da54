"""Pictures: what is drawn is what was given, by any cut into blocks, with bounded memory."""

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from bigembed import plotting
from bigembed.errors import InputError
from bigembed.plotting.canvas import CLASSES
from bigembed.plotting.maps import PIXELS
from bigembed.plotting.paint import limits_of, paint_of, rgb
from bigembed.plotting.raster import Grid, View, count_points
from bigembed.runtime.blocks import Array


def picture(path: Path) -> Array:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def points(n: int) -> Array:
    return np.random.default_rng(0).standard_normal((n, 3))


@pytest.mark.parametrize("suffix", ["svg", "pdf", "pgn", "jpg"])
def test_a_picture_is_not_called_otherwise(suffix: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("n", [1, 500, 25_000])
@pytest.mark.parametrize("kind", ["plain", "color", "labels"])
def test_a_picture_is_left_and_nothing_else(n: int, kind: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("n", [3000, 30_000])
def test_any_cut_into_blocks_draws_the_same_bytes(n: int, tmp_path: Path) -> None:
    X, color = points(n), np.arange(float(n))
    cuts = [0, 1, n // 3, n // 2, n]
    pairs = list(pairwise(cuts))

    def blocks() -> Iterator[Array]:
        return (X[a:b] for a, b in pairs)

    plotting.scatter(tmp_path / "a.png", X, color=color)
    plotting.scatter(tmp_path / "b.png", blocks, color=[color[: n // 5], color[n // 5 :]])
    plotting.scatter(tmp_path / "c.png", [X[a:b] for a, b in pairs], color=lambda: iter([color]))
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b == c


def test_dask_rows(tmp_path: Path) -> None:
    import dask.array as da

    X = points(1000)
    plotting.scatter(tmp_path / "a.png", X)
    plotting.scatter(tmp_path / "b.png", da.from_array(X, chunks=(300, 3)))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def counted(X: Array, values: Any = None, kind: str = "auto") -> Grid:
    """The grid that a map of these points is made of, counted as those of many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bigembed.plotting.raster.FEW", 0)
        view = View(0, 1, PIXELS)
        return count_points(X, [0, 1], limits_of(X, [0, 1]), [view], values, paint_of(values, kind))[0]


def test_raster_counts_every_point_once() -> None:
    X, labels = points(30_000), np.arange(30_000) % 4
    counts = counted(X)
    assert (counts.count.sum(), counts.outside) == (30_000, 0)
    palette = np.array([rgb(name) for name in CLASSES[:4]])
    by_class = counted(X, labels, "classes")
    np.testing.assert_array_equal(by_class.count, counts.count)
    np.testing.assert_allclose(by_class.layers.sum(axis=(1, 2)), 7500 * palette.sum(axis=0))
    sums, there = counted(X, X[:, 0], "numbers").layers
    np.testing.assert_allclose(sums.sum(), X[:, 0].sum())
    np.testing.assert_array_equal(there, counts.count)


def test_a_point_falls_into_its_pixel() -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    grid = counted(X).count
    row, column = np.nonzero(grid)
    half = PIXELS // 2
    assert [(bool(r > half), bool(c > half)) for r, c in zip(row, column, strict=True)] == [
        (False, False), (False, True), (True, False), (True, True),
    ]  # fmt: skip
    assert grid[row, column].tolist() == [1, 1, 1, 2]


def test_few_far_points_do_not_hide_the_rest() -> None:
    X = points(20_000)
    X[7] = 1e6
    assert limits_of(X, [0, 1]).padded()[1][0] < 10
    grid = counted(X)
    assert grid.outside >= 1
    assert grid.count.sum() == 20_000 - grid.outside


@pytest.mark.parametrize("n", [100, 25_000])
def test_constant_and_one_column_rows(n: int, tmp_path: Path) -> None:
    plotting.scatter(tmp_path / "constant.png", np.ones((n, 2)))
    plotting.scatter(tmp_path / "column.png", np.linspace(0, 1, n)[:, None])
    plotting.scatter(tmp_path / "vector.png", np.linspace(0, 1, n), color=np.ones(n))


def test_many_classes_keep_the_frequent_ones(tmp_path: Path) -> None:
    labels = np.concatenate([np.arange(100), np.repeat(np.arange(5), 50)])
    kept = paint_of(labels, "classes").frequent().classes
    assert len(kept) == 19
    assert set(range(5)) <= set(kept.tolist())
    plotting.scatter(tmp_path / "more.png", points(5000), labels=np.arange(5000))
    plotting.scatter(tmp_path / "a.png", points(350), labels=labels)
    plotting.scatter(tmp_path / "b.png", points(4), labels=np.array(["x", "y", "x", "z"]))


@pytest.mark.parametrize("n", [50, 25_000])
@pytest.mark.parametrize("values", [49, 25_001])
def test_wrong_number_of_colors(n: int, values: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="colors or labels"):
        plotting.scatter(tmp_path / "a.png", points(n), color=np.arange(values))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"coordinates": np.empty((0, 2))}, "no rows"),
        ({"coordinates": np.array([[np.nan, 1.0], [0.0, 1.0]])}, "NaN"),
        ({"coordinates": points(5), "axes": (0, 3)}, "columns 0 to 2"),
        ({"coordinates": points(5), "color": np.ones(5), "labels": np.ones(5)}, "at most one"),
    ],
)
def test_scatter_errors(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        plotting.scatter(tmp_path / "a.png", **given)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    def blocks(count: int) -> Any:
        return lambda: (np.random.default_rng(i).standard_normal((50_000, 2)) for i in range(count))

    plotting.scatter(tmp_path / "warm.png", blocks(1))
    peaks = []
    for count in (4, 16):
        tracemalloc.start()
        plotting.scatter(tmp_path / "a.png", blocks(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_no_global_state_of_matplotlib(tmp_path: Path) -> None:
    import sys

    loaded = "matplotlib.pyplot" in sys.modules
    plotting.scatter(tmp_path / "a.png", points(10))
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_spectrum(tmp_path: Path) -> None:
    values = np.array([0.99, 0.9, 0.5, -0.1])
    plotting.spectrum(tmp_path / "a.png", values)
    plotting.spectrum(tmp_path / "b.png", values, np.full(4, 1e-8), np.array([0.09, 0.4, 0.6]), title="λ")
    plotting.spectrum(tmp_path / "c.png", values[:1], residuals=np.zeros(1))
    assert picture(tmp_path / "b.png").std() > picture(tmp_path / "a.png").std()
    with pytest.raises(InputError, match="no eigenvalues"):
        plotting.spectrum(tmp_path / "d.png", np.empty(0))


def test_bandwidth(tmp_path: Path) -> None:
    epsilons = np.logspace(-3, 3, 50)
    plotting.bandwidth(tmp_path / "a.png", epsilons, epsilons / (1 + epsilons) + 1e-3)
    plotting.bandwidth(tmp_path / "b.png", epsilons, epsilons / (1 + epsilons), 0.5, 2.0, title="ε")
    assert picture(tmp_path / "a.png").shape == picture(tmp_path / "b.png").shape
    with pytest.raises(InputError, match="equally many"):
        plotting.bandwidth(tmp_path / "c.png", epsilons, epsilons[1:])


def test_labels_and_colours_of_pandas(tmp_path: Path) -> None:
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
    assert paint_of(series, "classes").classes.tolist() == ["both", "left", "right"]
