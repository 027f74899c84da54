"""The draft of a conda recipe asks for what the package asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import bigembed

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"matplotlib": "matplotlib-base", "prometheus-client": "prometheus_client"}
"""Of packages that conda-forge knows by another name."""


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_dependencies_are_those_of_the_package(recipe, project):
    asked = {}
    for line in project["project"]["dependencies"]:
        name, _, version = line.partition(">=")
        asked[NAMES.get(name, name)] = version
    python, *listed = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert dict(line.split(" >=") for line in listed) == asked
    built = [line.replace(" ", "") for line in recipe["requirements"]["host"]]
    assert {*project["build-system"]["requires"]} <= {*built}


def test_version_python_licence_and_command(recipe, project):
    assert recipe["context"]["version"] == bigembed.__version__
    assert f">={recipe['context']['python_min']}" == project["project"]["requires-python"]
    assert recipe["about"]["license"] == project["project"]["license"]
    commands = [f"{name} = {place}" for name, place in project["project"]["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
