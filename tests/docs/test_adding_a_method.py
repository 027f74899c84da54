"""The worked example of a new method: put into a copy of the package as its page says, it is found by everything."""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigembed as be
from tests.docs.fences import blocks
from tests.docs.rules import entries_of, require_estimator

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding_a_method.md"
FILE = ROOT / "docs" / "examples" / "independent_components.py"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the repository, not only the package")


def shown(name: str) -> str:
    """The block of the page with this class."""
    return next(block.text for block in blocks(PAGE) if name in block.classes)


def copied(to: Path, name: str) -> None:
    """With what is compiled, but for what another process is writing."""
    shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("*.pyc.*", "*.tmp.*"))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the file and the lines of the page."""
    root = tmp_path_factory.mktemp("package")
    copied(root, "bigembed")
    shutil.copy(FILE, root / "bigembed" / "maps" / "linear")
    with (root / "bigembed" / "__init__.pyi").open("a", encoding="utf-8") as names:
        names.write(shown("registry"))
    registry = root / "bigembed" / "maps" / "__init__.py"
    table = registry.read_text(encoding="utf-8")
    registry.write_text(table.replace("CLASSES = {\n", f"CLASSES = {{\n{shown('name')}"), encoding="utf-8")
    return root


COMMANDS = """
import json, sys
from typer.testing import CliRunner
from bigembed.cli import app
said = []
for words in json.loads(sys.argv[1]):
    if words[0] == "remove":  # what a kill leaves: the last stages are not published
        import pathlib, shutil
        for path in map(pathlib.Path, words[1:]):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        continue
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, (words, done.output)
    said.append([json.loads(line) for line in done.stdout.splitlines()])
print(json.dumps(said))
"""


def commands(package: Path, folder: Path, *lines: list[str]) -> list[list[dict[str, Any]]]:
    """What ``bigembed`` with the method says to each command line, as JSON."""
    environment = os.environ | {"PYTHONPATH": str(package)}
    line = [sys.executable, "-W", "ignore", "-c", COMMANDS, json.dumps(lines)]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_the_suites_find_it_and_it_conforms(package: Path) -> None:
    """Unchanged, by the name in the registry and by that of the class."""
    copied(package, "tests")
    shutil.copy(ROOT / "pyproject.toml", package)
    names = "independent_components or IndependentComponents"
    line = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/conformance", "-k", names]
    done = subprocess.run(
        line, cwd=package, env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 50


def test_a_job_is_planned_run_resumed_verified_and_extended(package: Path, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(shown("job"), encoding="utf-8")
    gone = ["sources.zarr/manifest/separate.json", "sources.zarr/manifest/coordinates.json", "sources-model.zarr"]
    planned, first, again, _, _, _ = commands(
        package,
        tmp_path,
        ["plan", "job.toml"],
        ["run", "job.toml"],
        ["remove", *gone],
        ["run", "job.toml"],
        ["verify", "sources.zarr"],
        ["report", "sources.zarr"],
        ["extend", "sources-model.zarr", "sources-input.zarr", "new.zarr"],
    )
    assert "separate" in json.dumps(planned)
    stages = ["input", "moments", "whiten", "separate", "judgement", "coordinates", "model"]
    assert [event["stage"] for event in first if event["event"] == "done"] == stages
    kinds = {event["stage"]: event["event"] for event in again if "stage" in event}
    assert [kinds[name] for name in stages[1:]] == ["reused", "reused", "done", "reused", "done", "done"]
    coordinates = be.open_array(tmp_path / "sources.zarr/stages/coordinates/embedding").compute()
    assert coordinates.shape == (20_000, 3)
    assert be.open_array(tmp_path / "new.zarr").compute().tobytes() == coordinates.tobytes()


@pytest.fixture(scope="module")
def method() -> Any:
    """The class, outside of the package."""
    spec = importlib.util.spec_from_file_location("independent_components", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["independent_components"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["independent_components"]


def mixed(n: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """Three independent sources and their mixtures."""
    rng = np.random.default_rng(1)
    sources = np.stack([rng.uniform(-1, 1, n), rng.laplace(size=n), rng.normal(size=n)], axis=1)
    return sources, sources @ rng.normal(size=(3, 3)) + [5.0, -3.0, 100.0]


def agreement(found: np.ndarray, sources: np.ndarray) -> float:
    """The smallest over the sources of the largest |correlation| with a coordinate."""
    return float(np.abs(np.corrcoef(found.T, sources.T)[:3, 3:]).max(axis=0).min())


def test_sources_are_found_and_by_pca_they_are_not(method: Any) -> None:
    sources, rows = mixed()
    found = method.IndependentComponents().fit(rows)
    assert agreement(found.embedding_, sources) > 0.995
    assert agreement(be.PCA(n_components=3).fit_transform(rows), sources) < 0.95
    assert np.allclose(np.cov(found.embedding_.T), np.eye(3), atol=1e-9)
    assert np.allclose(found.kurtosis_, [3.0, -1.2, 0.0], atol=0.3)


def test_the_block_function_is_the_formula(method: Any) -> None:
    white = np.random.default_rng(0).normal(size=(50, 3))
    fourth = sum(np.dot(z, z) * np.outer(z, z) for z in white) / 50
    values, vectors = np.linalg.eigh(fourth)
    components, kurtosis = method.separated(fourth, np.eye(3))
    assert np.allclose(sorted(kurtosis), values - 5)
    assert np.allclose(np.abs(components @ vectors).max(axis=0), 1)


def test_sources_that_are_alike_are_a_warning(method: Any) -> None:
    with pytest.warns(be.errors.DegenerateWarning, match="their sources are mixed"):
        method.IndependentComponents().fit(np.random.default_rng(0).normal(size=(5_000, 3)))


def test_its_docstring_is_of_the_house(method: Any) -> None:
    require_estimator(method.IndependentComponents)
    ran = doctest.testmod(method)
    assert (ran.failed, ran.attempted) == (0, 4)
    fitted = method.IndependentComponents().fit(mixed()[1])
    there = {name for name in vars(fitted) if name.endswith("_")} | {"embedding_"}
    assert set(entries_of(method.IndependentComponents, "Attributes")) == there


def test_the_page_shows_every_part_of_the_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r":pyobject: (\S+)", text):
        assert f"{'def' if name.islower() or '.' in name else 'class'} {name.rpartition('.')[2]}(" in FILE.read_text()
