"""What a fresh machine meets: packages, extras, scripts for schedulers."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.exceptions
from typer.testing import CliRunner

import bigembed
from bigembed.cli import app
from bigembed.errors import MissingExtraError
from bigembed.jobs.extend import extend
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.audit import DUE
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.scene import export
from bigembed.jobs.spec import read_job
from bigembed.rows.appending import append_rows
from bigembed.rows.formats import open_reader
from bigembed.store.arrays import write_array
from tests.imports import imports_of, loading
from tests.job_files import job_file, job_in
from tests.some import a_few

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ["3.11", "3.12", "3.13"]
HEAVY = ["dask", "distributed", "matplotlib", "numba", "pandas", "pynndescent", "scipy", "sklearn", "zarr"]
FORMATS = ["anndata", "csv", "hdf5", "netcdf", "parquet"]
REPOSITORY = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="needs the repository, not only the package"
)


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metadata() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class TestPackaging:
    """What a fresh machine meets: quick imports, the README's commands, floors, versions that fit together."""

    def test_import_is_light(self) -> None:
        heavy = run(sys.executable, "-c", f"import bigembed, sys; print([m for m in {HEAVY} if m in sys.modules])")
        assert heavy.strip() == "[]"

    def test_public_names(self) -> None:
        assert set(bigembed.__all__) <= set(dir(bigembed))
        for name in bigembed.__all__:
            assert getattr(bigembed, name) is not None
        with pytest.raises(AttributeError, match="no attribute 'Diffusionmap'"):
            _ = bigembed.Diffusionmap  # type: ignore[attr-defined]

    def test_names_for_type_checkers_are_those_that_there_are(self) -> None:
        text = Path(bigembed.__file__).read_text(encoding="utf-8")
        for module, name, again in re.findall(r"^    from (\S+) import (\w+) as (\w+)$", text, flags=re.M):
            assert name == again
            assert getattr(bigembed, name) is getattr(importlib.import_module(module), name)

    @REPOSITORY
    def test_the_version_is_the_same_wherever_it_stands(self) -> None:
        places = {
            "CHANGELOG.md": rf"^## \[{re.escape(bigembed.__version__)}\]",
            "CITATION.cff": rf"^version: {re.escape(bigembed.__version__)}$",
        }
        for file, line in places.items():
            assert re.search(line, (ROOT / file).read_text(), flags=re.M), file
        released = re.findall(r"^## \[(\d.*)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
        assert released[0] == bigembed.__version__

    def test_every_name_in_sight_is_meant_for_users(self) -> None:
        submodules = {"datasets", "errors", "plotting", "scanpy"}
        code = "import bigembed, json; print(json.dumps([n for n in dir(bigembed) if n[0] != '_']))"
        assert set(json.loads(run(sys.executable, "-c", code))) == {*bigembed.__all__, *submodules} - {"__version__"}
        code = "import bigembed; print(bigembed.datasets.torus.__name__, bigembed.plotting.scatter, bigembed.errors)"
        assert run(sys.executable, "-c", code).startswith("torus")
        assert not hasattr(bigembed, "Any")
        assert not hasattr(bigembed, "import_module")

    def test_errors_are_those_of_scikit_learn_without_its_import(self) -> None:
        code = "import bigembed.errors as e, sys; dir(e); print('sklearn' in sys.modules, e.ConvergenceWarning.__mro__)"
        said = run(sys.executable, "-c", code)
        assert said.startswith("False")
        assert "sklearn.exceptions.ConvergenceWarning" in said
        code = (
            "import bigembed.errors as e, sys; e.leave_out_scikit_learn()  # (as a command does)\n"
            "print(e.ConvergenceWarning.__mro__[1].__name__, 'sklearn' in sys.modules, e.uses_scikit_learn())"
        )
        assert run(sys.executable, "-c", code).split() == ["BigembedWarning", "False", "False"]
        for name in ("ConvergenceWarning", "DataConversionWarning", "NotFittedError"):
            kind = getattr(bigembed.errors, name)
            assert issubclass(kind, getattr(sklearn.exceptions, name))
            assert issubclass(kind, (bigembed.errors.BigembedError, bigembed.errors.BigembedWarning))
            assert pickle.loads(pickle.dumps(kind("why"))).args == ("why",)
            assert kind is getattr(bigembed.errors, name)
        assert issubclass(bigembed.errors.NotFittedError, (ValueError, AttributeError))
        with pytest.raises(AttributeError, match="no attribute 'ConvergenceWarnin'"):
            _ = bigembed.errors.ConvergenceWarnin  # type: ignore[attr-defined]

    @a_few(2, "method", ["DiffusionMap", "PCA", "KernelPCA", "ClassicalMDS"])
    def test_a_small_fit_in_memory_loads_no_lazy_arrays_and_no_compiler(self, method: str) -> None:
        code = (
            "import sys, numpy as np, bigembed as be\n"
            f"be.{method}(n_components=2).fit(np.random.default_rng(0).normal(size=(90, 5))).embedding_\n"
            "print([m for m in ('dask.array', 'distributed', 'numba', 'matplotlib') if m in sys.modules])"
        )
        assert run(sys.executable, "-c", code).strip() == "[]"

    def test_only_modules_of_compiled_functions_load_numba_when_they_are_imported(self) -> None:
        """Others import them where they call them: a process that compiles nothing has some 50 MiB less."""
        imports = imports_of(Path(bigembed.__file__).parent)
        compiled = {name for name, of_it in imports.items() if "numba" in of_it}
        assert len(compiled) > 15
        assert loading(imports, "numba") == compiled
        one = {"bigembed.rows": {"bigembed.store.matrix_compiled"}, "bigembed.rows.passes": {"bigembed.rows.RowBlock"}}
        assert loading(imports | one, "numba") >= compiled | set(one)

    def test_a_method_that_says_it_compiles_nothing_of_few_rows_loads_no_compiler(self) -> None:
        code = (
            "import sys, warnings, numpy as np\n"
            "from bigembed.maps import CLASSES, method\n"
            "warnings.simplefilter('ignore')\n"
            "rows, labels = np.random.default_rng(0).random((90, 5)), np.arange(90) % 3\n"
            "silent = [name for name in CLASSES if method(name).compiled_from > 90]\n"
            "for name in silent:\n"
            "    targets = [labels] if method(name)().__sklearn_tags__().target_tags.required else []\n"
            "    method(name)(n_components=2).fit(rows, *targets).transform(rows[:9])\n"
            "    assert 'numba' not in sys.modules, name\n"
            "print(len(silent))"
        )
        assert int(run(sys.executable, "-c", code)) > 10

    @REPOSITORY
    def test_readme_has_the_two_commands_and_ci_finds_the_tests(self) -> None:
        lines = (ROOT / "README.md").read_text().splitlines()
        commands = [line for line in lines if line.startswith("python3 -m venv")]
        assert len(commands) == 2
        assert commands[0].endswith(".venv/bin/bigembed run workflows/quickstart.toml")
        assert commands[1].endswith(".venv/bin/pytest")
        if shutil.which("bash"):
            assert commands[1] in run("bash", ".ci/run", "--show-test-command").splitlines()

    @REPOSITORY
    @pytest.mark.skipif(importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed")
    def test_floors_hold(self) -> None:
        code = "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
        assert "Contracts:" in run(sys.executable, "-c", code)

    @REPOSITORY
    @pytest.mark.skipif(importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed")
    @a_few(
        4,
        ("module", "line"),
        [
            ("plotting/canvas.py", "import zarr"),
            ("plotting/canvas.py", "def f():\n    from distributed import Client"),
            ("datasets/__init__.py", "import bigembed.estimator.base"),
            ("linalg/moments.py", "def f():\n    import bigembed.estimator.base"),
            ("maps/nmf/estimator.py", "import bigembed.maps.linear.pca"),
            ("neighbors/dijkstra.py", "def f():\n    import bigembed.neighbors.geodesic"),
            ("quality/__init__.py", "import bigembed.neighbors"),
            ("linalg/lobpcg.py", "import bigembed.store.exchange"),
            ("errors.py", "import bigembed.runtime.blocks"),
        ],
    )
    def test_a_broken_floor_is_found(self, module: str, line: str, tmp_path: Path) -> None:
        shutil.copytree(ROOT / "bigembed", tmp_path / "bigembed", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        with (tmp_path / "bigembed" / module).open("a") as file:
            file.write(f"\n{line}\n")
        code = "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "BROKEN" in done.stdout

    @REPOSITORY
    def test_the_tested_pythons_are_the_same_everywhere(self) -> None:
        from yaml import safe_load

        project = metadata()["project"]
        named = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in project["classifiers"])
        assert [name[1] for name in named if name] == PYTHONS
        assert project["requires-python"] == f">={PYTHONS[0]}"
        files = [f"py{python.replace('.', '')}.txt" for python in PYTHONS]
        assert sorted(path.name for path in (ROOT / "constraints").glob("py*.txt")) == files
        read = (ROOT / "constraints" / "tested.txt").read_text().splitlines()
        assert [line for line in read if not line.startswith("#")] == [f"-c {file}" for file in files]
        job = safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["ci"]
        assert job["strategy"]["matrix"]["python"] == PYTHONS

    @REPOSITORY
    @pytest.mark.parametrize("python", PYTHONS)
    def test_tested_versions_cover_what_is_required(self, python: str) -> None:
        lines = (ROOT / "constraints" / f"py{python.replace('.', '')}.txt").read_text().splitlines()[1:]
        pins = [re.fullmatch(rf'([\w.-]+)==(\S+) ; python_version == "{python}"', line) for line in lines]
        assert all(pins), lines
        pinned = {normal(pin[1]) for pin in pins if pin}
        project = metadata()["project"]
        extras = [
            item for name in ("parquet", "test", "docs", "dev") for item in project["optional-dependencies"][name]
        ]
        required = {normal(re.split(r"[\[>=]", item)[0]) for item in [*project["dependencies"], *extras]}
        assert required - {"bigembed"} <= pinned

    @REPOSITORY
    def test_lowest_versions_are_the_lower_bounds(self) -> None:
        project = metadata()["project"]
        extras = [item for name in FORMATS for item in project["optional-dependencies"][name]]
        items = [*project["dependencies"], *extras]
        bounds = {normal(name): bound for name, bound in (item.split(">=") for item in items)}
        lines = (ROOT / "constraints" / "lowest.txt").read_text().splitlines()
        pins = [line.split("==") for line in lines if not line.startswith("#")]
        lowest = {normal(name): pin for name, pin in pins}
        for name, bound in bounds.items():
            assert lowest[name].startswith(bound), name

    @REPOSITORY
    def test_the_versions_that_are_said_to_be_supported_are_the_lower_bounds(self) -> None:
        project = metadata()["project"]
        items = [*project["dependencies"], *project["optional-dependencies"]["parquet"]]
        bounds = {normal(name): bound for name, bound in (item.split(">=") for item in items)}
        bounds["python"] = project["requires-python"].removeprefix(">=")
        text = (ROOT / "docs" / "support.md").read_text()
        rows = re.findall(r"^\| ([\w, -]+) \| ([\d.]+) \|$", text, flags=re.M)
        said = {normal(name): bound for names, bound in rows for name in names.split(", ")}
        assert {"python", "numpy", "scipy", "zarr", "distributed"} <= set(said)
        assert said == {name: bounds[name] for name in said}
        assert f"Python {', '.join(PYTHONS[:-1])} and {PYTHONS[-1]} " in text


OPTIONAL = {
    "rows.csv": ("pyarrow", "csv"),
    "rows.tsv": ("pyarrow", "csv"),
    "rows.parquet": ("pyarrow", "parquet"),
    "rows.h5": ("h5py", "hdf5"),
    "rows.h5ad": ("h5py", "anndata"),
    "rows.nc": ("netCDF4", "netcdf"),
}
"""Files, the library that reads each, and its extra."""


def hide(monkeypatch: Any, library: str) -> None:
    """As if it were not installed."""
    for name in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, name, None)


def rows_and_job(folder: Path, output: str = "") -> Any:
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(50, 3)))
    return job_in(folder, output=output)


class TestExtras:
    """Every path through an optional library, with the library absent: an error that names the extra, before work."""

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_reading(self, name: str, tmp_path: Path, monkeypatch: Any) -> None:
        library, extra = OPTIONAL[name]
        (tmp_path / name).write_bytes(b"1,2\n3,4\n")
        hide(monkeypatch, library)
        with pytest.raises(MissingExtraError, match=rf'needs {library}, .*pip install "bigembed\[{extra}\]"'):
            open_reader(tmp_path / name)
        done = CliRunner().invoke(app, ["ingest", str(tmp_path / name), str(tmp_path / "out.zarr")])
        assert done.exit_code == 2
        assert f"bigembed[{extra}]" in done.output
        assert sorted(path.name for path in tmp_path.iterdir()) == [name]

    def test_tables(self, tmp_path: Path, monkeypatch: Any) -> None:
        run_job(rows_and_job(tmp_path, 'model = "model.zarr"'))
        hide(monkeypatch, "pyarrow")
        with pytest.raises(MissingExtraError, match=r"bigembed\[parquet\]"):
            export(tmp_path / "run.zarr", tmp_path / "out.parquet")
        with pytest.raises(MissingExtraError, match=r"bigembed\[parquet\]"):
            extend(
                tmp_path / "model.zarr", tmp_path / "rows.npy", tmp_path / "new.zarr", results=tmp_path / "new.parquet"
            )
        assert not (tmp_path / "new.zarr").exists()
        export(tmp_path / "run.zarr", tmp_path / "out.csv")
        export(tmp_path / "run.zarr", tmp_path / "out.npy")

    @pytest.mark.parametrize("output", ["model", "table", "picture", "report", "scratch"])
    def test_object_stores(self, output: str, tmp_path: Path, monkeypatch: Any) -> None:
        """A plan says so, before anything is asked of the store."""
        name = {"table": "t.csv", "picture": "p.png", "report": "r.html"}.get(output, "place")
        job = rows_and_job(tmp_path, f'{output} = "s3://bucket/{name}"')
        hide(monkeypatch, "obstore")
        with pytest.raises(MissingExtraError, match=r"bigembed\[objects\]"):
            plan_job(job)

    @pytest.mark.parametrize("library", ["anndata", "h5py"])
    def test_anndata_to_write_to(self, library: str, tmp_path: Path, monkeypatch: Any) -> None:
        run_job(rows_and_job(tmp_path))
        (tmp_path / "a.h5ad").write_bytes(b"")
        hide(monkeypatch, library)
        with pytest.raises(MissingExtraError, match=r"bigembed\[anndata\]"):
            export(tmp_path / "run.zarr", tmp_path / "a.h5ad")

    def test_the_main_job_needs_none_of_them(self, tmp_path: Path, monkeypatch: Any) -> None:
        for library in ("anndata", "bokeh", "dask_jobqueue", "h5py", "netCDF4", "obstore", "pandas", "pyarrow"):
            hide(monkeypatch, library)
        assert run_job(rows_and_job(tmp_path, 'table = "t.csv"\npicture = "p.png"\nmodel = "m.zarr"'))["finished"]

    @pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the repository, not only the package")
    def test_every_extra_that_an_error_names_is_one_and_in_all(self) -> None:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        code = "\n".join(path.read_text() for path in (ROOT / "bigembed").rglob("*.py"))
        found = set(re.findall(r'needed\([^"\n]*"[\w.]+", "(\w+)"', code)) - {"none"}  # (of an example)
        named = found | {extra for _, extra in OPTIONAL.values()}
        assert {"performance", "anndata", "parquet"} <= named
        assert named <= set(extras)
        match = re.fullmatch(r"bigembed\[([\w,]+)\]", extras["all"][0])
        assert match is not None
        assert set(match[1].split(",")) == set(extras) - {"all", "bench", "dev", "docs", "leiden", "recipes", "test"}


WORKFLOWS_ROOT = Path(__file__).parents[2]
SCRIPTS = ["refresh", "extend", "audit", "sweep"]


def bigembed_command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.skipif(not (WORKFLOWS_ROOT / "workflows").exists(), reason="needs the repository")
class TestWorkflows:
    """The commands that a scheduler calls, and their scripts: help, exit statuses, what they print."""

    @pytest.mark.parametrize("script", SCRIPTS)
    def test_scripts_are_the_commands(self, script, monkeypatch):
        monkeypatch.setenv("COLUMNS", "120")  # (a narrow terminal cuts words)
        assert f"from bigembed.cli import {script}\n" in (WORKFLOWS_ROOT / "workflows" / f"{script}.py").read_text()
        code, out, problems = bigembed_command(script, "--help")
        assert (code, problems) == (0, "")
        for word in ("--scheduler", "--deadline", "--json"):
            assert word in out, word
        assert ("7 refresh due" in " ".join(out.split())) == (script == "audit")

    @pytest.fixture
    def job(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(300, 4)).astype("f4")
        write_array(tmp_path / "points.zarr", rows)
        return job_file(tmp_path, source='path = "points.zarr"', path="out.zarr")

    def test_a_day_of_the_commands(self, job, tmp_path):
        code, _, problems = bigembed_command("extend", job)
        assert code == 2
        assert "Run bigembed refresh" in problems
        assert not (tmp_path / "out.zarr").exists()
        code, out, _ = bigembed_command("refresh", job)
        assert code == 0
        assert "300 rows fitted" in out
        append_rows(tmp_path / "points.zarr", np.random.default_rng(1).normal(size=(200, 4)).astype("f4") * 4)
        code, out, _ = bigembed_command("extend", job, "--json")
        assert code == 0
        result = json.loads(out.splitlines()[-1])
        assert (result["event"], result["placed"], result["rows"]) == ("result", 200, 500)
        code, out, problems = bigembed_command("audit", job)
        assert code == DUE == 7
        assert "refresh due: the median distance" in out
        assert problems == ""
        assert json.loads((tmp_path / "out.zarr" / "audit.json").read_text())["due"]
        code, _, problems = bigembed_command("refresh", job, "--deadline", "0s")
        assert code == 5
        assert "deadline" in problems
        assert open_growth(tmp_path / "out.zarr").current.fitted == 300

    def test_the_example_is_a_job_that_can_grow(self):
        from bigembed.jobs.record import key_of_growth

        example = read_job(WORKFLOWS_ROOT / "workflows" / "growing.toml")
        assert example.output.model is None
        assert not example.aligned
        assert len(key_of_growth(example)) == 64

    def test_the_two_ways_to_extend_are_not_mixed(self, job, tmp_path):
        for words in (
            [job, "--table", "x.csv"],
            [job, "--plan"],
            [job, "new.npy"],
            [job, "a.npy", "b.zarr", "--verify"],
        ):
            code, _, problems = bigembed_command("extend", *words)
            assert code == 2
            assert "growing store" in problems
        code, _, problems = bigembed_command("extend", tmp_path)
        assert (code, "a folder" in problems) == (2, True)
