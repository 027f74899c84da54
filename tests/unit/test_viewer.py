"""The folder of a page: every row is in it once, where and as it was given; killed, it goes on to the same bytes."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed import errors
from bigembed import viewer as scene
from bigembed.datasets import dataset
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.run import run_job
from bigembed.jobs.view import view_lines
from bigembed.runtime import using
from bigembed.runtime.blocks import Array
from bigembed.runtime.executors import LocalPool
from bigembed.store.arrays import write_array
from bigembed.viewer import sorting, sources
from bigembed.viewer.cells import interleave
from tests.job_files import job_in
from tests.view_folder import Folder, contents, read_back

N = 30_000
DIGITS = 'dataset = "digits"'


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Blocks, cells and buckets so small that few rows make many."""
    for home, name, value in (
        (scene, "BLOCK", 4000), (sorting, "BLOCK", 4000), (scene, "SAMPLE", 2000), (sorting, "CELL_ROWS", 6000),
        (sorting, "BUCKET_ROWS", 9000),
    ):  # fmt: skip
        patch.setattr(home, name, value)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def cloud(n: int = N) -> Array:
    """Groups, a crowd at one place, a point far away, rows that have no place."""
    rng = np.random.default_rng(3)
    found = rng.normal(size=(n, 2)) + 9 * rng.normal(size=(7, 2))[rng.integers(0, 7, n)]
    found[100:9100] = 1.5, -2.5
    found[n // 4 : n // 4 + 1] = 4e5, 1e5
    found[5:7] = np.nan, np.inf
    return found


def table(n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    value = rng.normal(size=n).astype(np.float32)
    value[::50] = np.nan
    text = np.array(["red", "green", "b<i>lue", None], dtype=object)[rng.integers(0, 4, n)]
    days = np.datetime64("2020-01-01", "ms") + rng.integers(0, 10**9, n)
    return {"value": value, "colour": text, "count": rng.integers(0, 5, n), "when": days,
            "name": [f"é {i}" for i in range(n)]}  # fmt: skip


def kept_rows(rows: Array, shown: Array) -> Array:
    """Of each row the share of its 15 nearest rows that are among its 15 nearest ones on the map."""
    sets = []
    for points in (rows.astype(float), shown):
        far = cdist(points, points)
        np.fill_diagonal(far, np.inf)
        sets.append(np.argsort(far, axis=1)[:, :15])
    return np.array([len(np.intersect1d(a, b)) / 15 for a, b in zip(*sets)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        out = tmp_path_factory.mktemp("view") / "page"
        be.view(cloud(), out, columns=table(), ids=[f"id {i}" for i in range(N)])
    return Folder(out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run_job(job_in(folder, 'name = "diffusion_map"\nn_components = 3', DIGITS))
    return folder / "run.zarr"


class TestEveryRow:
    def test_is_there_once_where_it_was(self, made: Folder) -> None:
        found, given = read_back(made), cloud()
        there = np.flatnonzero(np.isfinite(given).all(axis=1))
        assert sorted(found["rows"]) == there.tolist()
        assert len(there) == N - 2 == made.map["shown"]
        apart = np.abs(np.array(found["points"]) - given[found["rows"]])
        step = np.abs(made.map["unit"]) * found["side"][:, None] / 65536
        assert (apart <= step + np.abs(made.map["unit"]) / 2**30).all()
        assert (apart > 2e-6).any()

    def test_has_its_columns_and_its_id(self, made: Folder) -> None:
        found, given = read_back(made), table()
        rows = np.array(found["rows"])
        assert found["ids"] == [f"id {row}" for row in rows]
        assert found["name"] == [f"é {row}" for row in rows]
        assert np.array_equal(found["value"], given["value"][rows], equal_nan=True)
        assert np.array_equal(np.array(found["when"]), given["when"][rows].astype(np.int64))
        classes = {column["name"]: column["classes"] for column in made.columns}
        assert classes["count"] == ["0", "1", "2", "3", "4"]
        assert [int(classes["count"][code]) for code in found["count"]] == given["count"][rows].tolist()
        named = [None if code == 65535 else classes["colour"][code] for code in found["colour"]]
        assert named == given["colour"][rows].tolist()

    def test_is_found_by_its_number_and_its_id(self, made: Folder) -> None:
        found, where = read_back(made), made.places()
        assert where[[5, 6]].tolist() == [0xFFFFFFFF] * 2
        assert np.array_equal(where[found["rows"]], np.arange(N - 2))
        for row in (0, N // 4, 4321, N - 1):
            assert int(where[row]) in made.place_of_id(f"id {row}")
        assert made.place_of_id("id x") == []

    def test_is_counted_by_every_node_above(self, made: Folder) -> None:
        said = dict(made.nodes())
        kinds = Counter(kind for kind, _, _ in said.values())
        assert kinds[1] > 20
        assert kinds[2] > 20
        for name, (kind, count, bars) in said.items():
            if kind == 1:
                quarters = [one for one in made.header(name)["quarters"] if one[1]]
                assert count == sum(one[1] for one in quarters)
                assert bars == [[sum(bar) for bar in zip(*each)] for each in zip(*(one[2] for one in quarters))]
            else:
                assert count <= 4096 or len(name) == 22
        values = table()["value"][np.isfinite(cloud()).all(axis=1)]
        assert sum(said[""][2][0]) == np.count_nonzero(np.isfinite(values))

    def test_is_in_the_tiles(self, made: Folder) -> None:
        """Counts, means and commonest classes of pixels, from the rows themselves."""
        found = read_back(made)
        square = (np.array(found["points"]) - made.map["low"]) / made.map["unit"]
        value, colour = np.array(found["value"]), np.array(found["colour"])
        column = made.columns[0]
        for name, (kind, _, _) in made.nodes():
            if kind != 1 or len(name) > 21:
                continue
            left, top, side = made.corner(name)
            inside = ((square >= (left, top)) & (square < (left + side, top + side))).all(axis=1)
            grid = np.floor((square[inside] - (left, top)) / side * 256).astype(int)
            keys = interleave(grid[:, 0], grid[:, 1]).astype(int)
            there, planes = made.tile(name)
            assert there.tolist() == sorted(set(keys.tolist()))
            for i in (0, len(there) // 2, len(there) - 1):
                mine = np.flatnonzero(inside)[keys == there[i]]
                assert planes[0][i] == min(255, 1 + round(8 * np.log2(len(mine))))
                known = value[mine][np.isfinite(value[mine])]
                share = (
                    np.clip((known.mean() - column["low"]) / (column["high"] - column["low"]), 0, 1)
                    if len(known)
                    else 0
                )
                assert abs(int(planes[1][i]) - (1 + 254 * share if len(known) else 0)) <= 1.01
                counts = np.bincount(colour[mine][colour[mine] < 65535], minlength=3)
                assert counts[planes[3][i] - 1] == counts.max() if counts.sum() else planes[3][i] == 0


def test_a_killed_view_goes_on_to_the_same_bytes(small: None, tmp_path: Path, stopped_at: Any) -> None:
    data = cloud(12_000)
    np.save(tmp_path / "points.npy", data)
    asked = {"columns": {"value": data[:, 0]}, "ids": [f"i{n}" for n in range(len(data))], "points": True}
    with using(executor=LocalPool(2)):
        be.view(tmp_path / "points.npy", tmp_path / "whole", **asked)
    expected = contents(tmp_path / "whole")
    assert len(expected) > 30
    with using(executor=LocalPool(1)):
        for step in (0, 2, 4, 1, 3):
            with stopped_at(step):
                be.view(tmp_path / "points.npy", tmp_path / "page", **asked)
            assert not (tmp_path / "page").exists()
        be.view(tmp_path / "points.npy", tmp_path / "page", **asked)
    assert contents(tmp_path / "page") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page", "points.npy", "whole"]


def test_what_a_killed_view_has_done_is_used(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "points.npy", cloud(12_000))
    scattered = sorting.scatter_block
    with monkeypatch.context() as patch:
        patch.setattr(sorting, "_reach", None)
        patch.setattr("bigembed.viewer.building.draw_map", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            be.view(tmp_path / "points.npy", tmp_path / "page")
    unfinished = tmp_path / "page.partial" / "m0p0" / "drawn.json.1.partial"
    unfinished.write_text("{")  # (as a write leaves it that is killed)

    def scatter(*given: Any, **known: Any) -> Any:
        known["scene"] = None  # (nothing is read again)
        return scattered(*given, **known)

    monkeypatch.setattr(sorting, "scatter_block", scatter)
    assert be.view(tmp_path / "points.npy", tmp_path / "page").rows == 12_000
    assert not list((tmp_path / "page").rglob("*.partial"))


def test_the_same_folder_is_left_and_another_is_replaced(tmp_path: Path) -> None:
    points = cloud(500)
    be.view(points, tmp_path / "page")
    first = (tmp_path / "page" / "view.json").stat().st_mtime_ns
    be.view(points, tmp_path / "page")
    assert (tmp_path / "page" / "view.json").stat().st_mtime_ns == first
    be.view(points[:400], tmp_path / "page")
    assert Folder(tmp_path / "page").map["rows"] == 400


class TestRefusals:
    def test_other_folders_stay(self, tmp_path: Path) -> None:
        (tmp_path / "page").mkdir()
        (tmp_path / "page" / "thesis.tex").write_text("x")
        with pytest.raises(errors.ExistingOutputError, match="did not write it"):
            be.view(cloud(10), tmp_path / "page")
        assert [path.name for path in (tmp_path / "page").iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"columns": {"a": np.zeros(9)}}, r"a: shape \(9,\).*10 rows"),
            ({"columns": {"a": np.zeros(10, complex)}}, "complex"),
            ({"ids": ["a"]}, "ids: shape"),
            ({"pairs": [(0, 2)]}, "coordinates 0 to 1"),
        ],
    )
    def test_what_does_not_fit(self, given: Any, message: str, tmp_path: Path) -> None:
        with pytest.raises(errors.InputError, match=message):
            be.view(cloud(10), tmp_path / "page", **given)
        assert list(tmp_path.iterdir()) == []

    def test_no_coordinates(self, tmp_path: Path) -> None:
        with pytest.raises(errors.MissingPathError):
            be.view(tmp_path / "none.zarr", tmp_path / "page")
        with pytest.raises(errors.InputError, match="shape"):
            be.view(np.zeros(5), tmp_path / "page")
        with pytest.raises(errors.InputError, match="1e\\+301"):
            be.view(np.array([[1e301, 0.0], [0.0, 1.0]]), tmp_path / "page")


class TestColumns:
    @pytest.mark.parametrize("suffix", ["parquet", "csv"])
    def test_of_tables(self, suffix: str, tmp_path: Path) -> None:
        frame = pandas.DataFrame(
            {"n": [1.5, None, 3.0], "kind": ["x", None, "y"], "few": [1, 1, 2], "id": ["a", "b", "c"]}
        )
        getattr(frame, f"to_{suffix}")(tmp_path / f"t.{suffix}", index=False)
        points = np.array([[0.0, 0], [1, 1], [2, 0]])
        be.view(points, tmp_path / "page", columns=f"{tmp_path}/t.{suffix}:n,kind,few", ids=f"{tmp_path}/t.{suffix}:id")
        folder = Folder(tmp_path / "page")
        leaf = folder.leaf("")
        order = np.argsort(leaf["rows"])
        assert [leaf["ids"][i] for i in order] == ["a", "b", "c"]
        assert np.array_equal(leaf["n"][order], [1.5, np.nan, 3], equal_nan=True)
        assert leaf["kind"][order].tolist() == [0, 65535, 1]
        assert [(one["name"], one["kind"], one["classes"]) for one in folder.columns[1:]] == [
            ("kind", "class", ["x", "y"]),
            ("few", "class", ["1", "2"]),
        ]


class TestRuns:
    def test_neighbors_are_those_of_the_graph(self, run: Path, tmp_path: Path) -> None:
        rows, _ = dataset("digits").draw()
        far = cdist(rows, rows)
        np.fill_diagonal(far, np.inf)
        nearest = np.sort(far, axis=1)[:, :10]
        be.view(run, tmp_path / "page")
        folder = Folder(tmp_path / "page")
        of_place = np.argsort(folder.places())
        near = of_place[np.arange(len(rows))[:, None] + folder.neighbors("")]
        found = far[of_place[:, None], near]
        assert np.mean(np.isclose(found, nearest[of_place])) > 0.97
        assert (folder.neighbors("") != 0).all()

    def test_neighbors_kept_are_those_of_the_map(self, run: Path, tmp_path: Path) -> None:
        """Of every row the share of its 15 nearest rows in the data that are among the 15 nearest on the map."""
        rows, _ = dataset("digits").draw()
        be.view(run, tmp_path / "page", pairs=[(0, 1)])
        folder = Folder(tmp_path / "page")
        leaf = folder.leaf("")
        order = np.argsort(leaf["rows"])
        kept = kept_rows(rows, leaf["points"][order] / np.array(folder.map["unit"]))
        found = leaf["neighbors kept"][order]
        assert np.mean(np.abs(found - kept) < 0.01) > 0.9
        assert abs(found.mean() - kept.mean()) < 0.01
        assert kept.mean() > 0.2

    def test_a_run_without_a_graph_has_the_nearest_of_its_rows(self, tmp_path: Path) -> None:
        rows, _ = dataset("digits").draw()
        run_job(job_in(tmp_path, source=DIGITS))
        be.view(tmp_path / "run.zarr", tmp_path / "page")
        folder, shown = Folder(tmp_path / "page"), be.PCA(n_components=2).fit(rows).embedding_
        leaf, kept = folder.leaf(""), kept_rows(rows, shown)
        assert np.mean(np.abs(leaf["neighbors kept"] - kept[leaf["rows"]]) < 0.01) > 0.9
        assert folder.columns[-1]["missing"] == 0
        near = np.argsort(folder.places())[np.arange(len(rows))[:, None] + folder.neighbors("")]
        here = np.argsort(folder.places())
        expected = np.sort(cdist(rows, rows), axis=1)[:, 1:11]
        assert np.allclose(np.linalg.norm(rows[here][:, None] - rows[near].astype(float), axis=2), expected[here])
        shutil.rmtree(tmp_path / "run-input.zarr")  # (without its rows there is no such layer)
        be.view(tmp_path / "run.zarr", tmp_path / "page")
        assert [column["name"] for column in Folder(tmp_path / "page").columns] == ["label"]

    def test_labels_warnings_and_figures_come_along(self, run: Path, tmp_path: Path) -> None:
        be.view(run, tmp_path / "page", title="<b>Digits</b>")
        folder = Folder(tmp_path / "page")
        assert [one["name"] for one in folder.columns] == ["label", "neighbors kept"]
        assert folder.columns[0]["classes"] == list("0123456789")
        assert "Trustworthiness" in dict(folder.about["panes"][0]["facts"])
        assert len(folder.about["panes"][0]["maps"]) == 3
        assert "<" not in (tmp_path / "page" / "about.js").read_text()

    def test_beside_another(self, run: Path, tmp_path: Path) -> None:
        first = Folder(be.view(run, tmp_path / "one").path).leaf("")
        points = first["points"][np.argsort(first["rows"])]
        turned = 3 * points @ np.array([[0.6, 0.8], [0.8, -0.6]]) + 40
        turned[11] += 30 * np.ptp(points)
        np.save(tmp_path / "turned.npy", turned)
        be.view(run, tmp_path / "page", beside=tmp_path / "turned.npy", pairs=[(0, 1)])
        folders = [Folder(tmp_path / "page", pane) for pane in (0, 1)]
        assert folders[0].about["moved"]["rows"][0]["row"] == 11
        moved = [folder.leaf("")["moved"][np.argsort(folder.leaf("")["rows"])] for folder in folders]
        assert np.array_equal(*moved)
        with pytest.raises(errors.InputError, match="only maps of the same rows"):
            be.view(points, tmp_path / "page", beside=points[:-1])

    def test_points_name_rows_of_their_file(self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyarrow.parquet import read_table

        whole = be.view(run, tmp_path / "page", points=True)
        assert whole.points == {"rows": 1797, "share": 1.0, "neighbors": True}
        found = read_table(tmp_path / "page" / "points.parquet").to_pydict()
        rows, truth = dataset("digits").draw()
        assert found["point"] == list(range(1797))
        assert sorted(found["row"]) == list(range(1797))
        assert found["label"] == [str(truth["label"][row]) for row in found["row"]]
        for point in (0, 1000):
            near = [found["row"][other] for other in found["neighbors"][point]["ids"]]
            far = np.linalg.norm(rows[near].astype(float) - rows[found["row"][point]], axis=1)
            assert np.allclose(far, found["neighbors"][point]["distances"], rtol=1e-5)
        monkeypatch.setattr("bigembed.viewer.points.largest_cap", lambda *_: 3)
        some = be.view(run, tmp_path / "some", points=True).points
        assert some is not None
        few = read_table(tmp_path / "some" / "points.parquet").to_pydict()
        assert 100 < some["rows"] == len(few["x"]) < 1797
        assert all(other < some["rows"] for one in few["neighbors"] for other in one["ids"])


@pytest.mark.filterwarnings("ignore")
def test_islands_parts_and_clusters_are_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(504, 3)) + np.repeat([[0, 0, 0], [400, 0, 0], [0, 4000, 0]], [300, 200, 4], axis=0)
    np.save(tmp_path / "x.npy", rows)
    run_job(job_in(tmp_path, 'name = "diffusion_map"\nn_components = 3\nn_neighbors = 3', 'path = "x.npy"'))
    fitted = be.DiffusionMap(n_components=3, n_neighbors=3).fit(rows)
    for source in (tmp_path / "run.zarr", fitted):
        be.view(source, tmp_path / "page")
        folder = Folder(tmp_path / "page")
        [column] = [one for one in folder.columns if one["name"] == "component"]
        assert column["classes"] == ["0", "1", "island"]
        leaf = folder.leaf("")
        assert np.bincount(leaf["component"]).tolist() == [300, 200, 4]
        assert sorted(leaf["rows"][leaf["component"] == 2]) == [500, 501, 502, 503]
        said = str(folder.about["panes"][0]["warnings"])
        assert "island" in said
        assert "Trustworthiness" in dict(folder.about["panes"][0]["facts"])
    clustered = be.SpectralClustering(n_clusters=3).fit(rows[:300])
    clustered.view(tmp_path / "page")
    leaf = Folder(tmp_path / "page").leaf("")
    assert np.array_equal(leaf["cluster"], clustered.labels_[leaf["rows"]])


class TestOtherViewers:
    """What is printed is what the packages take, where they are installed."""

    def test_jupyter_scatter(self, tmp_path: Path) -> None:
        jscatter = pytest.importorskip("jscatter")
        found = be.view(cloud(500), tmp_path / "page", columns={"first": np.arange(500)}, points=True)
        [line] = [line for line in view_lines(found) if "jscatter" in line]
        shown = eval(line.partition(": ")[2], {"jscatter": jscatter, "pandas": pandas})
        frame = pandas.read_parquet(tmp_path / "page" / "points.parquet")
        assert len(shown.points) == len(frame) == 498
        assert all(np.corrcoef(shown.points[:, i], frame[name])[0, 1] > 0.999 for i, name in enumerate("xy"))

    def test_embedding_atlas(self, tmp_path: Path) -> None:
        pages = pytest.importorskip("embedding_atlas.options")
        found = be.view(cloud(500), tmp_path / "page", points=True, atlas=True)
        expected = pages.make_embedding_atlas_props(row_id="point", x="x", y="y")
        about = json.loads((tmp_path / "page/atlas/data/metadata.json").read_text())
        assert about["props"] == expected
        [line] = [line for line in view_lines(found) if "Embedding Atlas" in line]
        asked = set(re.findall("--[a-z]+", line))
        assert asked == {"--x", "--y"}
        source = Path(pages.__file__).with_name("cli.py").read_text()
        assert all(f'"{option}"' in source for option in (*asked, "--neighbors"))


def test_a_growing_store_says_which_rows_were_placed(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 4))
    write_array(tmp_path / "rows.zarr", rows[:200])
    job = job_in(tmp_path, source='path = "rows.zarr"', path="map.zarr")
    refresh(job)
    be.append_rows(tmp_path / "rows.zarr", rows[200:])
    extend(job)
    be.view(tmp_path / "map.zarr", tmp_path / "page")
    leaf = Folder(tmp_path / "page").leaf("")
    order = np.argsort(leaf["rows"])
    assert np.bincount(leaf["placed"][order][:200]).tolist() == [200]
    assert np.bincount(leaf["placed"][order][200:]).tolist() == [0, 100]


class TestRowsOfAMap:
    """Nearest rows of a map without a graph: those of sampled rows among all."""

    def test_of_any_coordinates(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = np.random.default_rng(0).normal(size=(400, 6))
        np.save(tmp_path / "rows.npy", rows)
        monkeypatch.setattr(sources, "MOST_SAMPLED", 90)
        monkeypatch.setattr(scene, "BLOCK", 150)
        monkeypatch.setattr(sorting, "BLOCK", 150)
        monkeypatch.setattr(sources, "BLOCK", 150)
        for metric in ("euclidean", "cosine"):
            found = be.view(rows[:, :2], tmp_path / "page", rows=tmp_path / "rows.npy", metric=metric, points=True)
            folder = Folder(tmp_path / "page")
            leaf, steps = folder.leaf(""), folder.neighbors("")
            known = np.isfinite(leaf["neighbors kept"])
            assert np.count_nonzero(known) == 90 == 400 - folder.columns[-1]["missing"]
            assert (steps[~known] == 0).all()
            far = cdist(rows, rows, metric)
            np.fill_diagonal(far, np.inf)
            near = leaf["rows"][np.flatnonzero(known)[:, None] + steps[known]]
            assert np.array_equal(near, np.argsort(far, axis=1)[leaf["rows"][known], :10])
            assert found.points is not None
            assert not found.points["neighbors"]  # (lists of some rows alone would mislead)
        found = be.view(rows[:, :2], tmp_path / "page", rows=rows)  # (those of the sample are as they would be of all)
        monkeypatch.setattr(sources, "MOST_SAMPLED", 400)
        be.view(rows[:, :2], tmp_path / "all", rows=rows)
        some, every = (Folder(place).leaf("")["neighbors kept"] for place in (found.path, tmp_path / "all"))
        assert np.isfinite(every).all()
        assert np.array_equal(some[known], every[known])

    def test_that_do_not_belong_to_it(self, tmp_path: Path) -> None:
        with pytest.raises(errors.InputError, match=r"rows: shape \(9, 3\); the map has 10 rows"):
            be.view(np.eye(10)[:, :2], tmp_path / "page", rows=np.zeros((9, 3)))
        with pytest.raises(errors.InputError, match="NaN"):
            be.view(np.eye(10)[:, :2], tmp_path / "page", rows=np.full((10, 3), np.nan))
        with pytest.raises(errors.InputError, match="metric"):
            be.view(np.eye(10)[:, :2], tmp_path / "page", rows=np.eye(10), metric="fancy")


class TestPipelines:
    def test_columns_of_all_rows_or_of_those_left(self, tmp_path: Path) -> None:
        rows = np.random.default_rng(0).normal(size=(60, 4))
        rows[[2, 9], 1] = np.nan
        fitted = be.Pipeline([be.Missing(), be.StandardScaler(), be.PCA(n_components=2)]).fit(rows)
        names = [f"r{number}" for number in range(60)]
        left = np.delete(np.arange(60), [2, 9])
        for given in (np.arange(60) + 0.5, left + 0.5):
            seen = be.view(fitted, tmp_path / "page", columns={"value": given}, ids=names)
            leaf = Folder(tmp_path / "page").leaf("")
            assert seen.rows == 58
            assert np.array_equal(leaf["value"], leaf["row"] + 0.5)
            assert np.array_equal(left[leaf["rows"]], leaf["row"])
            assert leaf["ids"] == [names[int(row)] for row in leaf["row"]]
        scaled = be.StandardScaler().fit_transform(rows[left])
        assert np.abs(leaf["neighbors kept"] - kept_rows(scaled, fitted.embedding_)[leaf["rows"]]).mean() < 0.02


@pytest.mark.parametrize("method", ["pca", "umap", "isomap"])
def test_a_model_shows_its_coordinates(method: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(120, 4))
    np.save(tmp_path / "x.npy", rows)
    run_job(job_in(tmp_path, f'name = "{method}"\nn_components = 2', 'path = "x.npy"', 'model = "model.zarr"'))
    expected = be.load(tmp_path / "model.zarr").embedding_
    for source in (tmp_path / "model.zarr", be.load(tmp_path / "model.zarr")):
        be.view(source, tmp_path / "page", columns={"value": rows[:, 0]})
        folder = Folder(tmp_path / "page")
        leaf = folder.leaf("")
        assert np.allclose(leaf["points"], np.asarray(expected)[leaf["rows"]], atol=1e-3)
        assert [column["name"] for column in folder.columns] == ["value"]
    be.PCA(n_components=2).fit(rows).save(tmp_path / "bare.zarr")
    with pytest.raises(be.errors.NotFittedError, match="does not hold the coordinates"):
        be.view(tmp_path / "bare.zarr", tmp_path / "page")


def test_pictures_in_axes_of_matplotlib() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = np.random.default_rng(0).normal(size=(200, 4))
    fitted = be.PCA(n_components=2).fit(rows)
    axes = fitted.plot(labels=np.arange(200) % 3)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1", "2"]
    _, given = pyplot.subplots()
    assert fitted.plot(color=rows[:, 0], ax=given) is given
    assert len(given.images) == 1
    quality = be.certify(rows, fitted.embedding_).plot()
    assert [label.get_text() for label in quality.get_yticklabels()] == [
        "Neighbors kept", "Trustworthiness", "Continuity", "Triplets in order",
    ]  # fmt: skip
    graph = be.build_neighbor_graph(rows, n_neighbors=5)
    degrees, lengths = graph.plot()
    heights = [path.vertices[1, 1] for path in degrees.collections[0].get_paths()]
    assert sum(heights) == 200
    assert sum(bar.get_height() for bar in lengths.patches) == graph.edges
    pyplot.close("all")


def test_a_job_writes_it_at_its_end(tmp_path: Path) -> None:
    job = job_in(tmp_path, source=DIGITS, output='view = "page"')
    run_job(job)
    assert Folder(tmp_path / "page").map["rows"] == 1797
    before = contents(tmp_path / "page")
    assert run_job(job)["unchanged"]
    shutil.rmtree(tmp_path / "page")
    run_job(job)
    assert contents(tmp_path / "page") == before
    with pytest.raises(errors.ExistingOutputError, match="this run did not write it"):
        run_job(job_in(tmp_path, source=DIGITS, output='view = "page"', path="other.zarr"))
