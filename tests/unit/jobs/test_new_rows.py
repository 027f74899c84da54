"""New rows of a job: planned, with the columns that were fitted; and how well coordinates show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.errors import ExistingOutputError, InputError, PlanError
from bigembed.jobs.extend import extend, plan_extension
from bigembed.jobs.inputs import find_rows
from bigembed.jobs.places import ClusterTable
from bigembed.jobs.record import key_of_extension
from bigembed.jobs.run import run_job
from bigembed.jobs.watching import RunOptions
from bigembed.rows.reader import Choice
from bigembed.store import remove
from bigembed.store.arrays import read_array
from tests.job_files import job_in
from tests.some import a_few
from tests.unit.jobs.test_report import Page, check_closed


def bigembed(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def plan_of_more(model, tmp_path):
    np.save(tmp_path / "more.npy", np.zeros((2_000, 4)))
    return plan_extension(model, tmp_path / "more.npy", tmp_path / "out")


# four even dimensions
@pytest.mark.filterwarnings("ignore:Trustworthiness:bigembed.errors.MapWarning")
class TestExtend:
    """Extension as a job: planned, refused, told, measured."""

    @pytest.fixture
    def model(self, tmp_path):
        X = np.random.default_rng(0).normal(size=(400, 4)) * [1.2, 1, 0.2, 0.2]  # two coordinates show them
        np.save(tmp_path / "new.npy", X[:150] + 0.01)
        be.DiffusionMap(n_components=2, n_neighbors=8).fit(X).save(tmp_path / "model.zarr")
        return tmp_path / "model.zarr"

    def test_an_extension_is_planned_told_and_measured(self, model, tmp_path):
        told = []
        found = extend(
            model,
            tmp_path / "new.npy",
            tmp_path / "out",
            options=RunOptions(lambda event: told.append(event.kind), lambda *part: told.append(part)),
        )
        assert (found["n"], found["n_components"]) == (150, 2)
        assert 0 < found["measured"]["total"] <= found["predicted"]["total"]
        kinds = [one for one in told if isinstance(one, str)]
        assert (told[0], kinds[-1]) == ("start", "done")
        assert ("extend_group", 1, 1) in told

    def test_rows_of_another_kind_are_warned_of_on_the_command_line(self, model, tmp_path):
        np.save(tmp_path / "kelvin.npy", np.load(tmp_path / "new.npy") + np.array([273.15, 0, 0, 0]))
        for name, count in (("new", 0), ("kelvin", 1)):
            out = bigembed("extend", model, tmp_path / f"{name}.npy", tmp_path / f"{name}-out")
            assert out.exit_code == 0
            assert out.stderr.count("unlike those fitted") == count

    def test_what_does_not_fit_is_refused_before_anything_is_written(self, model, tmp_path, monkeypatch):
        before = sorted(path.name for path in tmp_path.iterdir())
        tight = ClusterTable(workers=2, memory=1 << 20)
        with pytest.raises(PlanError, match="refused; nothing was started"):
            extend(model, tmp_path / "new.npy", tmp_path / "out", tight)
        done = bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out", "--workers", "2", "--memory", "1 MiB")
        assert done.exit_code == 3
        plan = plan_extension(model, tmp_path / "new.npy", tmp_path / "out")
        assert plan.problems() == []
        assert plan.stages[0][1].memory < plan_of_more(model, tmp_path).stages[0][1].memory
        assert sorted(path.name for path in tmp_path.iterdir()) == [*before[:-1], "more.npy", before[-1]]

    def test_the_command_line_plans_and_extends(self, model, tmp_path):
        planned = bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out", "--plan")
        assert planned.exit_code == 0
        assert "memory at the most" in planned.stdout
        assert not (tmp_path / "out").exists()
        done = bigembed("extend", model, tmp_path / "new.npy", tmp_path / "out", "--json")
        assert done.exit_code == 0
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert next(event["event"] for event in events if event.get("stage") == "extend") == "start"
        assert events[-1]["measured"]["total"] > 0

    def test_once_more_it_is_done_already_and_of_other_rows_or_another_table_refused(self, model, tmp_path):
        given = ("extend", model, tmp_path / "new.npy", tmp_path / "out")
        first = bigembed(*given)
        written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
        again = bigembed(*given)
        assert (first.exit_code, again.exit_code) == (0, 0)
        assert "done already, of this model and these rows" in again.stdout
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == written
        assert bigembed(*given, "--table", tmp_path / "table.csv").exit_code == 2
        np.save(tmp_path / "new.npy", np.load(tmp_path / "new.npy") + 1)
        assert bigembed(*given).exit_code == 2
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == written


class TestDone:
    """When an extension is done already: what it was asked, and all that it has written, byte for byte."""

    @pytest.fixture
    def call(self, tmp_path):
        """What asks for coordinates with ids, clusters and a table, after it was done once."""
        X = np.concatenate([np.random.default_rng(seed).normal(10 * seed, 1, size=(100, 3)) for seed in (0, 1)])
        np.save(tmp_path / "rows.npy", X)
        clusters = '[clusters]\nmethod = "kmeans"\nn_clusters = 2'
        run_job(job_in(tmp_path, 'name = "pca"', output='model = "model.zarr"', more=clusters))
        np.save(tmp_path / "new.npy", X[:50])
        np.save(tmp_path / "ids.npy", np.arange(50))

        def call(**changes):
            given = {"aligned": {"ids": str(tmp_path / "ids.npy")}, "results": tmp_path / "t.csv"} | changes
            return extend(tmp_path / "model.zarr", tmp_path / "new.npy", tmp_path / "out.zarr", **given)["unchanged"]

        assert (call(), call()) == (False, True)
        return call

    def seen(self, tmp_path):
        vectors = [read_array(tmp_path / f"out{name}.zarr").tolist() for name in ("", "-ids", "-cluster")]
        return [*vectors, (tmp_path / "t.csv").read_text()]

    @pytest.mark.parametrize(
        "gone", ["out-ids.zarr", "out-cluster.zarr", "t.csv", "out-ids.zarr/c", "out-cluster.zarr/c"]
    )
    def test_what_is_missing_beside_the_coordinates_is_written_anew(self, call, tmp_path, gone):
        before = self.seen(tmp_path)
        remove(tmp_path / gone)
        assert not call()
        assert self.seen(tmp_path) == before
        assert call()
        assert not list(tmp_path.glob("*.partial"))

    def test_other_ids_in_the_same_file_are_others(self, call, tmp_path):
        np.save(tmp_path / "ids.npy", np.arange(50) + 1000)
        with pytest.raises(ExistingOutputError, match=r"out.zarr: exists"):
            call()
        assert read_array(tmp_path / "out-ids.zarr")[0] == 0

    @pytest.mark.parametrize("name", ["t.csv", "out-ids.zarr"])
    def test_what_somebody_else_has_put_there_is_left_and_refused(self, call, tmp_path, name):
        remove(tmp_path / name)
        (tmp_path / name).write_text("of somebody else")
        for _ in range(2):
            with pytest.raises(ExistingOutputError, match=f"{name}: exists"):
                call()
        assert (tmp_path / name).read_text() == "of somebody else"
        assert not list(tmp_path.glob("*.partial"))

    def test_damaged_coordinates_are_refused_by_name(self, call, tmp_path):
        remove(tmp_path / "out.zarr" / "c")
        with pytest.raises(ExistingOutputError, match=r"out.zarr: exists, and is damaged"):
            call()

    def test_another_version_has_made_something_else(self, call, monkeypatch):
        monkeypatch.setattr("bigembed.jobs.record.__version__", "0.0")
        with pytest.raises(ExistingOutputError, match=r"out.zarr: exists already"):
            call()

    def test_the_key_is_of_what_the_vectors_hold(self, tmp_path):
        """Of those of rows that are copied, too; and whether they are copied yet or not."""
        np.savetxt(tmp_path / "new.csv", np.arange(27.0).reshape(9, 3), delimiter=",", header="a,b,c", comments="")
        np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 3)))
        fitted = be.PCA(n_components=2).fit(np.load(tmp_path / "rows.npy"))

        def key(epsilons, ids):
            np.save(tmp_path / "eps.npy", np.full(9, epsilons))
            given = {"epsilons": str(tmp_path / "eps.npy"), "ids": ids}
            copy = tmp_path / "copy.zarr"
            choice = Choice(columns=("a", "b", "c"), aligned=tuple(given.values()))
            rows = find_rows(tmp_path / "new.csv", copy, choice, given, tmp_path, lambda: False)
            return rows, key_of_extension(fitted, rows, None)

        (rows, first), (_, other) = key(1.0, "a"), key(2.0, "a")
        assert first != other
        assert key(2.0, "b")[1] not in (first, other)
        rows.ready()
        assert key_of_extension(fitted, key(2.0, "a")[0], None) == key_of_extension(fitted, rows, None)


FITTED = ("x4", "x0", "x3")
POSITIONS = [4, 0, 3]


def rows_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(200, 6)) * [1, 2, 3, 4, 5, 6]


def write(path: Path, rows: np.ndarray, names: Any = tuple(f"x{j}" for j in range(6))) -> None:
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rows, columns=list(names))
    table.insert(2, "cell", [f"cell {number}" for number in range(len(rows))])
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)


def fit(folder: Path, source: str) -> Path:
    run_job(job_in(folder, source=source, output='model = "model.zarr"'))
    return folder / "model.zarr"


@pytest.mark.filterwarnings(  # arrays given to a model of a table, to compare with
    "ignore:X does not have valid feature names:bigembed.errors.FeatureNamesWarning"
)
class TestColumns:
    """New rows of a table have the columns that were fitted: these by default, and no others."""

    @pytest.fixture(params=["csv", "parquet"])
    def model(self, request: Any, tmp_path: Path) -> Path:
        """Fitted by a job on three columns of a table, in an order of their own."""
        write(tmp_path / f"rows.{request.param}", rows_of())
        return fit(tmp_path, f'path = "rows.{request.param}"\ncolumns = {list(FITTED)}')

    @a_few(1, "kind", ["csv", "parquet"])
    def test_the_columns_that_were_fitted_are_the_default(self, kind: str, model: Path, tmp_path: Path) -> None:
        assert list(be.load(model).feature_names_in_) == list(FITTED)
        new = rows_of(1)
        write(tmp_path / f"new.{kind}", new[:, ::-1], [f"x{j}" for j in range(6)][::-1])
        wanted = be.load(model).transform(new[:, POSITIONS])
        extend(model, tmp_path / f"new.{kind}", tmp_path / "out.zarr")
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), wanted)
        extend(model, tmp_path / f"new.{kind}", tmp_path / "same.zarr", choice=Choice(columns=FITTED))
        np.testing.assert_array_equal(read_array(tmp_path / "same.zarr"), wanted)
        extend(model, tmp_path / f"new.{kind}", tmp_path / "ids.zarr", aligned={"ids": "cell"})
        np.testing.assert_array_equal(read_array(tmp_path / "ids.zarr"), wanted)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (("x0", "x3", "x4"), "in the same order"),
            (("x4", "x0", "x1"), "(?s)unseen at fit time:\n- x1\n.*now missing:\n- x3"),
            (("x5", "x1", "x2"), "unseen at fit time:\n- x5\n- x1\n- x2"),
        ],
    )
    def test_other_columns_are_refused_before_anything_is_written(
        self, columns: tuple[str, ...], message: str, model: Path, tmp_path: Path
    ) -> None:
        write(tmp_path / "new.parquet", rows_of(1))
        for refused in (extend, plan_extension):
            with pytest.raises(InputError, match=message):
                refused(model, tmp_path / "new.parquet", tmp_path / "out.zarr", choice=Choice(columns=columns))
        assert not list(tmp_path.glob("out*"))


def bigembed_command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


class TestCertify:
    """bigembed certify: exit statuses, what it prints, the page."""

    @pytest.fixture
    def stored(self, tmp_path):
        """Rows and three maps of them: right, shuffled, one coordinate."""
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(400, 5)) * [9, 5, 0.3, 0.2, 0.1]
        for name, values in (
            ("rows", rows), ("right", rows[:, :2]), ("shuffled", rng.permutation(rows[:, :2])), ("line", rows[:, :1]),
        ):  # fmt: skip
            np.save(tmp_path / f"{name}.npy", values)
        return tmp_path

    def test_json_is_that_of_python(self, stored):
        done = bigembed_command(
            "certify",
            stored / "rows.npy",
            stored / "shuffled.npy",
            "--k",
            7,
            "--metric",
            "cosine",
            "--seed",
            2,
            "--json",
        )
        assert done.exit_code == 0
        found = json.loads(done.stdout.splitlines()[-1])
        wanted = be.certify(stored / "rows.npy", stored / "shuffled.npy", n_neighbors=7, metric="cosine", seed=2)
        assert {name: found[name] for name in wanted.as_dict()} == wanted.as_dict()
        assert "unrelated to the rows" in found["warnings"][0]

    @pytest.mark.parametrize("name", ["right", "shuffled", "line"])
    def test_the_page(self, stored, name):
        out = stored / "page.html"
        out.write_text('<meta name="generator" content="bigembed report">')  # an older page is replaced
        paths = stored / "rows.npy", stored / f"{name}.npy"
        done = bigembed_command("certify", *paths, "--out", out, "--title", "A <map>", "--json")
        assert done.exit_code == 0
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["page"] == str(out)
        text = out.read_text()
        page = Page(text)
        check_closed(text)
        assert {"map", "certificate", "input", "repeat"} <= page.ids()
        assert "<title>A &lt;map&gt;</title>" in text
        assert len(page.all("img")) == (name != "line")
        assert ("histogram" in text) == (name == "line")
        assert ('class="note warn"' in text) == (name == "shuffled")
        assert ('class="note good"' in text) == (name != "shuffled")
        for said in found["warnings"] + found["notes"]:
            assert said in page.text
            assert text.index('class="note') < text.index('class="tiles"') < text.index('id="map"')
        for key in ("preservation", "trustworthiness", "continuity", "triplets"):
            assert f"{found[key]['value']:.3f}" in page.text
        assert f"bigembed certify {paths[0]} {paths[1]} --k 15" in page.text

    def test_coordinates_of_a_run(self, stored):
        be.PCA(n_components=2).fit_transform_to(np.load(stored / "rows.npy"), stored / "pca.zarr")
        done = bigembed_command("certify", stored / "rows.npy", stored / "pca.zarr", "--json")
        assert done.exit_code == 0
        of_array = json.loads(done.stdout.splitlines()[-1])
        run_job(job_in(stored, path="job.zarr"))
        of_run = json.loads(
            bigembed_command("certify", stored / "rows.npy", stored / "job.zarr", "--json").stdout.splitlines()[-1]
        )
        assert of_run["trustworthiness"] == of_array["trustworthiness"]

    def test_what_it_refuses(self, stored):
        np.save(stored / "few.npy", np.zeros((3, 2)))
        (stored / "mine.html").write_text("my own page")
        for words, says in (
            (("rows.npy", "gone.npy"), "no such coordinates"),
            (("gone.npy", "right.npy"), "no such rows"),
            (("rows.npy", "few.npy"), "400 rows and 3 coordinates"),
            (("rows.npy", "right.npy", "--k", "200"), "at most 199"),
            (("rows.npy", "right.npy", "--out", stored / "mine.html"), "is not a report"),
        ):
            paths = [stored / word for word in words[:2]]
            done = bigembed_command("certify", *paths, *words[2:])
            assert done.exit_code == 2, done.output
            assert says in done.stderr
        assert (stored / "mine.html").read_text() == "my own page"
