"""What a fresh machine meets: quick imports, the README's commands, floors, versions that fit together."""

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

import pytest
import sklearn.exceptions

import bigembed

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ["3.11", "3.12", "3.13"]
HEAVY = ["dask", "distributed", "matplotlib", "numba", "pandas", "scipy", "sklearn", "zarr"]
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


def test_import_is_light() -> None:
    heavy = run(sys.executable, "-c", f"import bigembed, sys; print([m for m in {HEAVY} if m in sys.modules])")
    assert heavy.strip() == "[]"


def test_public_names() -> None:
    assert set(bigembed.__all__) <= set(dir(bigembed))
    for name in bigembed.__all__:
        assert getattr(bigembed, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Diffusionmap'"):
        _ = bigembed.Diffusionmap  # type: ignore[attr-defined]


def test_names_for_type_checkers_are_those_that_there_are() -> None:
    text = Path(bigembed.__file__).read_text(encoding="utf-8")
    for module, name, again in re.findall(r"^    from (\S+) import (\w+) as (\w+)$", text, flags=re.M):
        assert name == again
        assert getattr(bigembed, name) is getattr(importlib.import_module(module), name)


def test_every_name_in_sight_is_meant_for_users() -> None:
    submodules = {"datasets", "errors", "plotting"}
    code = "import bigembed, json; print(json.dumps([n for n in dir(bigembed) if n[0] != '_']))"
    assert set(json.loads(run(sys.executable, "-c", code))) == {*bigembed.__all__, *submodules} - {"__version__"}
    code = "import bigembed; print(bigembed.datasets.torus.__name__, bigembed.plotting.scatter, bigembed.errors)"
    assert run(sys.executable, "-c", code).startswith("torus")
    assert not hasattr(bigembed, "Any")
    assert not hasattr(bigembed, "import_module")


def test_errors_are_those_of_scikit_learn_without_its_import() -> None:
    code = "import bigembed.errors as e, sys; dir(e); print('sklearn' in sys.modules, e.ConvergenceWarning.__mro__)"
    said = run(sys.executable, "-c", code)
    assert said.startswith("False")
    assert "sklearn.exceptions.ConvergenceWarning" in said
    for name in ("ConvergenceWarning", "DataConversionWarning", "NotFittedError"):
        kind = getattr(bigembed.errors, name)
        assert issubclass(kind, getattr(sklearn.exceptions, name))
        assert issubclass(kind, (bigembed.errors.BigembedError, bigembed.errors.BigembedWarning))
        assert pickle.loads(pickle.dumps(kind("why"))).args == ("why",)
        assert kind is getattr(bigembed.errors, name)
    assert issubclass(bigembed.errors.NotFittedError, (ValueError, AttributeError))
    with pytest.raises(AttributeError, match="no attribute 'ConvergenceWarnin'"):
        _ = bigembed.errors.ConvergenceWarnin  # type: ignore[attr-defined]


def test_plotting_and_datasets_are_light_until_used() -> None:
    code = "import bigembed.plotting, bigembed.datasets, sys; print([m for m in %r if m in sys.modules])"
    assert run(sys.executable, "-c", code % ["matplotlib", "PIL", "sklearn", "dask", "zarr"]).strip() == "[]"


@pytest.mark.parametrize("method", ["DiffusionMap", "PCA", "KernelPCA", "ClassicalMDS"])
def test_a_small_fit_in_memory_loads_no_lazy_arrays_and_no_compiler(method: str) -> None:
    code = (
        "import sys, numpy as np, bigembed as be\n"
        f"be.{method}(n_components=2).fit(np.random.default_rng(0).normal(size=(90, 5))).embedding_\n"
        "print([m for m in ('dask.array', 'distributed', 'numba', 'matplotlib') if m in sys.modules])"
    )
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_a_fit_of_stored_rows_loads_no_lazy_arrays_before_one_is_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np, bigembed as be\n"
        "np.save(sys.argv[1], np.random.default_rng(0).normal(size=(90, 5)))\n"
        "found = be.DiffusionMap(n_components=2).fit(sys.argv[1])\n"
        "print([m for m in ('dask.array', 'xarray', 'pandas') if m in sys.modules])\n"
        "print(type(found.embedding_).__name__, found.embedding_ is found.embedding_, found.embedding_.shape)"
    )
    assert run(sys.executable, "-c", code, str(tmp_path / "rows.npy")).splitlines() == ["[]", "Array True (90, 2)"]


def test_help_is_quick() -> None:
    code = (
        "import sys; from bigembed.cli import app; app(['--help'], standalone_mode=False)\n"
        "print([m for m in ('numpy', 'dask', 'zarr') if m in sys.modules])"
    )
    assert run(sys.executable, "-c", code).splitlines()[-1] == "[]"


@REPOSITORY
def test_readme_has_the_two_commands_and_ci_finds_the_tests() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    commands = [line for line in lines if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert commands[0].endswith(".venv/bin/bigembed run workflows/quickstart.toml")
    assert commands[1].endswith(".venv/bin/pytest")
    if shutil.which("bash"):
        assert commands[1] in run("bash", ".ci/run", "--show-test-command").splitlines()


@REPOSITORY
@pytest.mark.skipif(importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed")
def test_floors_hold() -> None:
    code = "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    assert "Contracts:" in run(sys.executable, "-c", code)


@REPOSITORY
@pytest.mark.skipif(importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed")
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("plotting/canvas.py", "import zarr"),
        ("plotting/canvas.py", "def f():\n    from distributed import Client"),
        ("datasets/images.py", "import bigembed.estimator.base"),
        ("linalg/moments.py", "def f():\n    import bigembed.estimator.base"),
        ("maps/nmf/estimator.py", "import bigembed.maps.linear.pca"),
        ("neighbors/dijkstra.py", "def f():\n    import bigembed.neighbors.geodesic"),
        ("quality/__init__.py", "import bigembed.neighbors"),
        ("linalg/lobpcg.py", "import bigembed.store.exchange"),
        ("errors.py", "import bigembed.runtime.blocks"),
    ],
)
def test_a_broken_floor_is_found(module: str, line: str, tmp_path: Path) -> None:
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
def test_the_tested_pythons_are_the_same_everywhere() -> None:
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
def test_tested_versions_cover_what_is_required(python: str) -> None:
    lines = (ROOT / "constraints" / f"py{python.replace('.', '')}.txt").read_text().splitlines()[1:]
    pins = [re.fullmatch(rf'([\w.-]+)==(\S+) ; python_version == "{python}"', line) for line in lines]
    assert all(pins), lines
    pinned = {normal(pin[1]) for pin in pins if pin}
    project = metadata()["project"]
    extras = [item for name in ("parquet", "test", "docs", "dev") for item in project["optional-dependencies"][name]]
    required = {normal(re.split(r"[\[>=]", item)[0]) for item in [*project["dependencies"], *extras]}
    assert required - {"bigembed"} <= pinned


@REPOSITORY
def test_lowest_versions_are_the_lower_bounds() -> None:
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
def test_the_versions_that_are_said_to_be_supported_are_the_lower_bounds() -> None:
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


@REPOSITORY
def test_job_files_are_toml_with_the_sections_of_the_design() -> None:
    jobs = sorted((ROOT / "workflows").glob("*.toml"))
    assert {"quickstart.toml", "larger_than_memory.toml"} <= {path.name for path in jobs}
    for path in jobs:
        assert {"input", "method", "output"} <= set(tomllib.loads(path.read_text())), path


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", bigembed.__version__)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@REPOSITORY
def test_what_people_look_for_in_a_repository_is_there_and_true() -> None:
    from yaml import safe_load

    cited = safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (bigembed.__version__, metadata()["project"]["license"])
    steps = safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["ci"]["steps"]
    assert steps[-1] == {"run": "bash .ci/run"}
    for file in [".pre-commit-config.yaml", ".github/dependabot.yml", *(ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")]:
        assert safe_load((ROOT / file).read_text())
    guide, sessions = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "noxfile.py").read_text()
    told = re.findall(r"`nox -s (\w+)`", guide)
    assert set(told) == set(re.findall(r"^def (\w+)\(session", sessions, flags=re.M))
    linked = re.findall(r"\]\(([\w./]+)\)", guide + (ROOT / "SECURITY.md").read_text())
    assert len(linked) > 5
    assert [link for link in linked if not (ROOT / link).exists()] == []
