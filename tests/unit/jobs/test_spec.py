"""Job files: what is read, and what is refused."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import zarr
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.errors import InputError, JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.places import ClusterTable, parse_bytes
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.spec import parse_job, read_job
from bigembed.jobs.verify import verify
from bigembed.maps import ABBREVIATIONS, REGISTRY, method
from bigembed.rows import RowSource
from bigembed.rows.formats import ingest
from bigembed.rows.formats.delimited import open_delimited
from bigembed.rows.formats.tables import Table, write_table
from bigembed.rows.reader import Choice
from bigembed.store.arrays import read_array
from tests.job_files import job_in
from tests.some import a_few

FILE = Path("/jobs/job.toml")
GOOD = {"input": {"path": "x.zarr"}, "method": {"name": "small"}, "output": {"path": "run.zarr"}}
TEXTS = {
    "input": 'path = "x-${NIGHT}.zarr"\ncolumns = ["a", "${NIGHT}b"]',
    "method": 'name = "small"',
    "output": 'path = "run-$${NIGHT}.zarr"',
}


def problems_of(value):
    with pytest.raises(JobError) as caught:
        parse_job(value, FILE)
    return str(caught.value)


class TestSpec:
    """The job file: what is read, and every offender named."""

    def test_paths_are_relative_to_the_file(self):
        job = parse_job(GOOD | {"output": {"path": "a/run.zarr", "picture": "/p.png", "model": "../m.zarr"}}, FILE)
        assert job.input_path == Path("/jobs/x.zarr")
        assert job.output_path == Path("/jobs/a/run.zarr")
        assert (job.output.picture, job.output.model) == ("/p.png", "/m.zarr")
        assert job.cluster == ClusterTable()

    def test_variables_of_the_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NIGHT", "2026-11-29")
        monkeypatch.setenv("EMPTY", "")
        monkeypatch.delenv("ABSENT", raising=False)
        file, text = tmp_path / "job.toml", "".join(f"[{name}]\n{one}\n" for name, one in TEXTS.items())
        file.write_text(text)
        job = read_job(file)
        assert (job.input_path, job.output_path) == (tmp_path / "x-2026-11-29.zarr", tmp_path / "run-${NIGHT}.zarr")
        assert list(job.input.columns or ()) == ["a", "2026-11-29b"]
        file.write_text(text + 'table = "${ABSENT}${EMPTY}${NIGHT}.csv"\n')
        with pytest.raises(JobError, match=r"job.toml: names variables .* not set, or empty: ABSENT, EMPTY. Set them"):
            read_job(file)

    def test_names_of_other_formats_are_refused_before_work(self):
        written = {"path": "run.zarr", "picture": "map.pgn", "report": "page.pdf", "table": "t.xlsx"}
        text = problems_of(GOOD | {"output": written})
        for part in (
            "picture: map.pgn: a picture is written as PNG; give a name that ends in .png",
            "report: page.pdf: the page is written as HTML; give a name that ends in .html or .htm",
            "table: the name of a table ends in",
        ):
            assert f"[output] {part}" in text
        parse_job(GOOD | {"output": {"path": "run.zarr", "picture": "map.PNG", "report": "page"}}, FILE)

    def test_every_offender_is_listed_with_table_and_nearest_key(self):
        text = problems_of(
            {
                "input": {"pth": "x"},
                "method": {"name": "small", "n_component": 3, "pause": "long", "memory": 1.5},
                "outptu": {"path": "x"},
                "cluster": {"memory": "1 GeB", "wrkers": 3, "workers": 0, "threads": 2},
            }
        )
        for part in (
            "/jobs/job.toml", "a table 'outptu': unknown; did you mean 'output'?", "[output] is missing",
            "[input] 'pth': unknown; did you mean 'path'?", "[input] needs path",
            "[method] 'n_component': unknown; did you mean 'n_components'?",
            "[method] pause: input should be a valid number", "[method] memory: input should be a valid integer",
            "[cluster] 'wrkers': unknown; did you mean 'workers'?",
            "[cluster] workers: input should be greater than or equal to 1, not 0", "[cluster] memory:", "1 GiB",
            "[cluster] threads: input should be 1, not 2",
        ):  # fmt: skip
            assert part in text

    def test_what_is_out_of_range_is_listed_with_what_is_unknown(self):
        wrong = {"name": "umap", "n_neighbors": 1, "n_epochs": "x", "minn_dist": 2, "spread": -1}
        text = problems_of(GOOD | {"method": wrong})
        for part in (
            "[method] n_epochs: input should be", "did you mean 'min_dist'?", "n_neighbors=1; allowed: an integer ≥ 2",
            "spread=-1.0; allowed: a number > 0",
        ):  # fmt: skip
            assert part in text
        assert text.count("n_neighbors") == 1

    def test_unknown_method_and_data_set(self):
        assert "did you mean 'small'?" in problems_of(GOOD | {"method": {"name": "smal"}})
        assert "did you mean 'swiss_roll'?" in problems_of(GOOD | {"input": {"dataset": "swissroll"}})

    def test_a_name_that_the_field_uses_finds_the_method(self):
        for short, name in (("LLE", "locally_linear_embedding"), ("svd", "truncated_svd"), ("mds", "classical_mds")):
            with pytest.raises(JobError, match=f"unknown method '{short}'; did you mean '{name}'"):
                method(short)
        assert not set(ABBREVIATIONS) & set(REGISTRY)
        assert set(ABBREVIATIONS.values()) <= set(REGISTRY)

    def test_parameters_of_data_sets_are_checked(self):
        text = problems_of(GOOD | {"input": {"dataset": "swiss_roll", "n": 10.5, "noize": 1}})
        assert "'noize': unknown; did you mean 'noise'?" in text
        assert "[input] n: input should be a valid integer" in text
        assert "folder: must be given" in problems_of(GOOD | {"input": {"dataset": "mnist"}})
        job = parse_job(GOOD | {"input": {"dataset": "mnist", "folder": "data"}}, FILE)
        assert job.input.parameters == {"folder": "/jobs/data"}
        assert job.input_path == Path("/jobs/run-input.zarr")

    def test_none_is_a_text_where_that_is_no_other_value(self):
        method = {"name": "pca", "n_components": "none"}
        assert parse_job(GOOD | {"method": method}, FILE).method.parameters == {"n_components": None}
        assert parse_job(GOOD | {"method": method | {"n_components": "mle"}}, FILE).method.parameters == {
            "n_components": "mle"
        }

    @pytest.mark.parametrize("value", [1, "text", []])
    def test_a_table_that_is_none(self, value):
        assert "[input] must be a table" in problems_of(GOOD | {"input": value})

    def test_names_twice_and_tls_without_address(self):
        assert "named twice" in problems_of(GOOD | {"output": {"path": "x.zarr"}})
        assert "only with address" in problems_of(GOOD | {"cluster": {"tls_ca": "ca.pem"}})

    def test_files(self, tmp_path):
        with pytest.raises(JobError, match="no such job file"):
            read_job(tmp_path / "none.toml")
        (tmp_path / "bad.toml").write_text("[input\n")
        with pytest.raises(JobError, match="not readable as TOML"):
            read_job(tmp_path / "bad.toml")
        (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(JobError, match="not readable"):
            read_job(tmp_path / "binary.toml")

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("1 GiB", 2**30), ("2gb", 2 * 10**9), ("0.5 MiB", 2**19), ("7", 7), ("8 B", 8), (9, 9), ("1e9", 10**9),
            ("2 Gi", 2**31),
        ],
    )  # fmt: skip
    def test_sizes(self, text, count):
        assert parse_bytes(text) == count

    @pytest.mark.parametrize("text", ["", "GiB", "-1 GiB", "1 GiBi", "1e999", "9" * 400])
    def test_sizes_that_are_none(self, text):
        with pytest.raises(ValueError, match="1 GiB"):
            parse_bytes(text)


JOB = """
[input]
path = "rows.npy"
{input}
[method]
name = "pca"
n_components = 2
{method}
[output]
path = "{path}"
{output}
{rest}
"""


def job_file(folder, **parts: str):
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(30, 3)))
    text = JOB.format(**({"input": "", "method": "", "output": "", "path": "run.zarr", "rest": ""} | parts))
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return folder / "job.toml"


ODD = {
    "nested lists": {"rest": "x = " + "[" * 50_000},
    "nested tables": {"rest": "x = " + "{a = " * 20_000},
    "NUL in a path": {"output": 'model = "a\\u0000b"'},
    "line break in a path": {"output": 'model = "a\\nb"'},
    "an integer of 6000 digits": {"method": f"tol = {'9' * 6000}"},
    "a hexadecimal one": {"method": f"random_state = [0x{'f' * 6000}]"},
    "memory beyond float": {"rest": f"[cluster]\nmemory = 0x{'f' * 6000}"},
    "workers beyond float": {"rest": f"[cluster]\nworkers = 0x{'f' * 6000}"},
    "memory of 5000 digits": {"rest": f'[cluster]\nmemory = "{"9" * 5000} GiB"'},
    "a name too long": {"path": "n" * 300},
    "a path too long": {"path": "d/" * 3000},
    "the root": {"path": "/"},
    "nobody's home": {"path": "~nobody_at_all/run.zarr"},
    "a key of 10 000 parts": {"rest": "a." * 10_000 + "a = 1"},
    "a quoted one": {"rest": '"a".' * 10_000 + "a = 1"},
    "a key of 100 000 letters": {"rest": "k" * 100_000 + " = 1"},
    "20 000 keys": {"rest": "".join(f"k{number} = 1\n" for number in range(20_000))},
    "5 MB": {"rest": "#" * (5 << 20)},
    "an address without a port": {"rest": '[cluster]\naddress = "4h"'},
    "escapes": {"rest": '"\\u001b[31mred\\u202e" = 1'},
    "escapes in a value": {"method": 'solver = "\\u001b[2J"'},
}
IDS = ["=1+1", "+a", "-5", "@x", "'=1", "''-", "'a", "plain", "a=b", "\tx", "-"]
IDS += ["a\rb", "c\r=1+1", "\r=2", "d\ne", 'f"\r\n"g', "h,i", "'\rj", " k ", "l\u2028m"]


class TestOddJobs:
    """Job files that cannot be one: exit status 2 and one message, which no terminal takes for orders."""

    @pytest.mark.parametrize("name", ODD)
    def test_odd_job_files_are_2_with_one_message(self, name, tmp_path):
        done = CliRunner().invoke(app, ["plan", str(job_file(tmp_path, **ODD[name]))])
        assert done.exit_code == 2, done.output
        assert done.output.count("error: ") == 1
        assert "Traceback" not in done.output
        assert len(done.output) < 20_000
        assert all(one == "\n" or one.isprintable() for one in done.output)

    @pytest.mark.parametrize("kind", ["folder", "pipe", "device", "bytes", "BOM", "UTF-16", "empty", "NUL"])
    def test_what_is_no_job_file(self, kind, tmp_path):
        path = tmp_path / "job.toml"
        content = {
            "bytes": b"\xff\xfe\x00",
            "BOM": b"\xef\xbb\xbf[input]",
            "UTF-16": "[input]".encode("utf-16"),
            "NUL": b"a\0",
        }
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path = "/dev/zero"
        else:
            path.write_bytes(content.get(kind, b""))
        with pytest.raises(JobError):
            read_job(path)
        assert CliRunner().invoke(app, ["run", str(path)]).exit_code == 2

    def test_an_output_that_is_a_pipe(self, tmp_path):
        os.mkfifo(tmp_path / "run.zarr")
        done = CliRunner().invoke(app, ["plan", str(job_file(tmp_path))])
        assert done.exit_code == 2, done.output

    def test_a_name_of_a_column_prints_no_escapes(self, tmp_path):
        (tmp_path / "a.csv").write_text("a\x1b[2J,b\n1,2\n")
        done = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.csv"), str(tmp_path / "o.zarr"), "--columns", "c"])
        assert done.exit_code == 2
        assert "a\\x1b[2J" in done.output
        assert "\x1b" not in done.output

    # ----------------------------------------------------------------------------------- formulas

    def test_cells_that_a_spreadsheet_would_compute_are_guarded(self, tmp_path):
        n = len(IDS)
        values = -np.arange(2.0 * n).reshape(n, 2)
        np.save(tmp_path / "map.npy", values)
        table = Table(
            RowSource((n, 2), values.dtype, array=values),
            ("=a", "b"),
            {"id": RowSource((n,), np.dtype("U9"), array=np.array(IDS))},
        )
        write_table(table, tmp_path / "map.csv")
        with open(tmp_path / "map.csv", newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        assert head == ["id", "'=a", "b"]
        assert [row[0][0] in "=+-@\t\r" for row in rows] == [one == "-5" for one in IDS]  # (which is a number)
        assert [[float(one) for one in row[1:]] for row in rows] == values.tolist()
        reader = open_delimited(tmp_path / "map.csv", Choice(columns=("b",)))
        assert [one for part in reader.vector("id").stream(0, n) for one in part.tolist()] == IDS
        assert (len(pandas.read_csv(tmp_path / "map.csv")), len(rows)) == (n, n)
        ingest(tmp_path / "map.csv", tmp_path / "rows.zarr", Choice(columns=("b",)), {"ids": "id"})
        assert read_array(tmp_path / "rows-ids.zarr").tolist() == IDS
        export(tmp_path / "map.npy", tmp_path / "again.csv")

    def test_ids_of_bytes_are_text_in_every_table(self, tmp_path):
        values = np.zeros((2, 1))
        ids = RowSource((2,), np.dtype("S2"), array=np.array([b"ab", b"c"]))
        write_table(Table(RowSource((2, 1), values.dtype, array=values), ("x",), {"id": ids}), tmp_path / "a.csv")
        assert (tmp_path / "a.csv").read_text() == "id,x\nab,0.0\nc,0.0\n"


class TestLabels:
    """Labels in job files: given by path, or brought by a data set."""

    @pytest.fixture
    def labelled(self, tmp_path: Path) -> tuple[Any, Any]:
        """rows.npy (500, 4), labels.zarr of text, labels.npy of numbers."""
        generator = np.random.default_rng(0)
        y = generator.integers(0, 3, 500)
        X = generator.normal(size=(500, 4)) + 2 * y[:, None] * [1, 0, -1, 0.5]
        np.save(tmp_path / "rows.npy", X)
        np.save(tmp_path / "labels.npy", y)
        words = np.array(["cat", "dog", "emu"])[y]
        zarr.create_array(tmp_path / "labels.zarr", shape=(500,), chunks=(100,), dtype=str)[:] = words
        return X, words

    @a_few(1, "name", ["labels.npy", "labels.zarr"])
    def test_labels_by_path(self, name: str, labelled: tuple[Any, Any], tmp_path: Path) -> None:
        X, words = labelled
        source = f'path = "rows.npy"\nlabels = "{name}"'
        spec = job_in(tmp_path, 'name = "linear_discriminant"', source, 'model = "model.zarr"')
        plan = plan_job(spec)
        assert [stage for stage, _ in plan.stages][:4] == ["labels", "scatter", "solve", "coordinates"]
        found = run_job(spec)
        assert found["certificate"]["class_sizes"] == np.unique(words, return_counts=True)[1].tolist()
        wanted = be.LinearDiscriminantAnalysis().fit(X, words)
        np.testing.assert_array_equal(read_array(tmp_path / "run.zarr/stages/coordinates/embedding"), wanted.embedding_)
        model = be.load(tmp_path / "model.zarr")
        if name == "labels.zarr":
            assert model.predict(X).tolist() == wanted.predict(X).tolist()
        np.testing.assert_array_equal(model.embedding_, wanted.embedding_)
        assert run_job(spec)["unchanged"]
        np.save(tmp_path / "labels.npy", np.roll(np.load(tmp_path / "labels.npy"), 1))
        assert run_job(spec)["unchanged"] == (name == "labels.zarr")  # other labels are another job


class TestPCAJob:
    """Jobs of methods other than diffusion maps, from plan to model, with their aligned vectors."""

    @pytest.fixture
    def job(self, tmp_path, rows):
        """Write a job on the rows, with more in its [input]."""
        np.save(tmp_path / "weights.npy", np.random.default_rng(1).integers(0, 3, len(rows)).astype("f8"))

        def write(source="", method='name = "pca"\nn_components = 3'):
            return job_in(tmp_path, method, f'path = "rows.npy"\n{source}', 'model = "m.zarr"')

        return write

    def test_from_plan_to_model(self, job, rows, tmp_path):
        plan = plan_job(job())
        assert [name for name, _ in plan.stages] == ["moments", "solve", "coordinates", "judgement", "model"]
        assert plan.total("passes") == 3  # the last is of a few blocks, here all there are
        found = run_job(job())
        wanted = be.PCA(3).fit(rows)
        written = read_array(tmp_path / "run.zarr/stages/coordinates/embedding")
        np.testing.assert_array_equal(written, wanted.embedding_)
        assert found["certificate"]["passes"] == 1
        assert run_job(job())["unchanged"]
        assert verify(tmp_path / "run.zarr")["problems"] == []
        assert verify(tmp_path / "m.zarr")["finished"]
        np.testing.assert_array_equal(be.load(tmp_path / "m.zarr").embedding_, wanted.embedding_)
        assert extend(tmp_path / "m.zarr", tmp_path / "rows.npy", tmp_path / "new.zarr")["n_components"] == 3
        np.testing.assert_array_equal(read_array(tmp_path / "new.zarr"), wanted.embedding_)

    def test_columns_of_a_table_weigh_its_rows(self, job, rows, tmp_path):
        """Counts and a wanted density; the model places the rows where they are."""
        rng = np.random.default_rng(2)
        counts, density = rng.integers(1, 5, len(rows)), rng.uniform(1, 2, len(rows))
        names = [*(f"c{i}" for i in range(rows.shape[1])), "count", "density"]
        table = np.column_stack([rows, counts, density])
        np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header=",".join(names), comments="", fmt="%.9g")
        spec = parse_job(
            {
                "input": {"path": "rows.csv", "weights": "count", "target_density": "density"},
                "method": {"name": "diffusion_map", "n_neighbors": 8},
                "output": {"path": "counted.zarr", "model": "counted-model.zarr"},
            },
            tmp_path / "counted.toml",
        )
        run_job(spec)
        wanted = be.DiffusionMap(n_neighbors=8)
        wanted.fit(table[:, :-2].astype("f4"), sample_weight=counts, target_density=density)
        written = read_array(tmp_path / "counted.zarr/stages/coordinates/embedding")
        np.testing.assert_allclose(written, wanted.embedding_, atol=1e-3)
        assert np.abs(be.DiffusionMap(n_neighbors=8).fit(rows).embedding_ - written).max() > 0.1
        extend(tmp_path / "counted-model.zarr", tmp_path / "rows.csv", tmp_path / "again.zarr")
        np.testing.assert_allclose(read_array(tmp_path / "again.zarr"), written, atol=1e-3)

    def test_a_scale_for_each_row_and_for_each_new_row(self, job, rows, tmp_path):
        farthest = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).max()
        epsilons = 4 * farthest * np.random.default_rng(1).uniform(1, 3, len(rows))
        np.save(tmp_path / "epsilons.npy", epsilons)
        run_job(job('epsilons = "epsilons.npy"', 'name = "linearized_diffusion_map"\nn_components = 3'))
        wanted = be.LinearizedDiffusionMap(3).fit(rows, epsilons=epsilons)
        written = read_array(tmp_path / "run.zarr/stages/coordinates/embedding")
        np.testing.assert_array_equal(written, wanted.embedding_)
        model, new, out = tmp_path / "m.zarr", tmp_path / "rows.npy", tmp_path / "new.zarr"
        with pytest.raises(InputError, match="fitted with epsilons: new rows need theirs"):
            extend(model, new, out)
        assert not out.exists()
        words = ["extend", model, new, out, "--epsilons", tmp_path / "epsilons.npy"]
        told = CliRunner().invoke(app, [str(word) for word in words])
        assert told.exit_code == 0, told.output
        np.testing.assert_array_equal(read_array(out), wanted.embedding_)

    def test_what_a_method_does_not_take_is_named(self, job):
        with pytest.raises(JobError, match="labels: pca takes none"):
            job('labels = "weights.npy"')
        with pytest.raises(JobError, match="weights: pacmap takes none"):
            job('weights = "weights.npy"', 'name = "pacmap"')
        with pytest.raises(JobError, match="target_density: laplacian_eigenmaps takes none"):
            job('target_density = "weights.npy"', 'name = "laplacian_eigenmaps"')
        with pytest.raises(JobError, match="n_components"):
            job(method='name = "pca"\nn_components = [3]')
