"""The docstrings of all public names say what the house asks for, as far as a machine can tell."""

from __future__ import annotations

import importlib.util
import inspect
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed import datasets, errors
from bigembed.methods import REGISTRY, method
from bigembed.methods.base import Estimator

DOCS = Path(__file__).resolve().parents[2] / "docs"
ESTIMATORS = [method(name) for name in REGISTRY]
FUNCTIONS = [value for name in be.__all__ if inspect.isfunction(value := getattr(be, name))]
SECTIONS = ["Parameters", "Attributes", "Raises", "Notes", "References", "Examples"]
COMMON = {"n", "seed", "dtype", "noise"}
"""Parameters that mean the same in every data set: those of ``datasets.dataset``."""

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package")


@pytest.fixture(scope="module")
def house() -> ModuleType:
    """What reads the sections of a docstring for the pages."""
    spec = importlib.util.spec_from_file_location("docstrings", DOCS / "_ext" / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(value: Any) -> str:
    return inspect.getdoc(value) or ""


def entries_of(house: ModuleType, value: Any, section: str) -> list[str]:
    """Names of the entries of a section; text that belongs to no entry is an error."""
    found = house.entries(house.sections(text_of(value)).get(section, []))
    assert [what for names, what in found if not names] == []
    return [name for names, _ in found for name in names]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.__name__)
def test_estimator(house: ModuleType, estimator: type[Estimator]) -> None:
    parts = house.sections(text_of(estimator))
    assert [name for name in parts if name] == SECTIONS
    assert entries_of(house, estimator, "Parameters") == list(inspect.signature(estimator).parameters)
    assert len(text_of(estimator).split("\n\n")[0]) <= 200, "the first paragraph says what it is, in a line or two"
    cost = "\n".join(parts["Notes"]).lower()
    assert re.search(r"pass(es)?\b", cost), "passes over the rows"
    assert re.search(r"memory|bytes|numbers|disk", cost), "what it holds"
    assert re.search(r"\(\d{4}\)|seed 00\d", "\n".join(parts["References"])), "a source and its year"
    assert re.search(r"seed 00\d|eqs?\. |\(\w.* \d{4}\)", "\n".join(parts[""])), "where the formula comes from"
    assert sum(line.startswith(">>>") for line in parts["Examples"]) >= 2
    for name, member in inspect.getmembers(estimator):
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert text_of(member), f"{name} says nothing"


def fitted(estimator: type[Estimator]) -> Estimator:
    """The estimator, fitted to a few rows with labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 20)
    rows = np.abs(5 + rng.normal(size=(60, 4)) + 2 * np.repeat(np.eye(3, 4), 20, axis=0))
    given = {"n_neighbors": 8, "components": "bridge", "n_landmarks": 20}
    known = inspect.signature(estimator).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = estimator(**{name: value for name, value in given.items() if name in known})  # type: ignore[call-arg]
        return one.fit(rows, labels)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.__name__)
def test_attributes_are_those_that_a_fit_leaves(house: ModuleType, estimator: type[Estimator]) -> None:
    said = entries_of(house, estimator, "Attributes")
    assert len(said) == len(set(said))
    properties = [name for name, value in inspect.getmembers(estimator) if isinstance(value, property)]
    there = {name for name in [*vars(fitted(estimator)), *properties] if name.endswith("_") and name[0] != "_"}
    assert set(said) >= there, "left by fit and not said"
    assert set(said) <= there, "said and not there"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_function(house: ModuleType, function: Any) -> None:
    parts = house.sections(text_of(function))
    assert entries_of(house, function, "Parameters") == list(inspect.signature(function).parameters)
    assert {"Returns", "Raises", "Notes", "Examples"} <= set(parts), sorted(parts)
    assert any(line.startswith(">>>") for line in parts["Examples"])


@pytest.mark.parametrize("name", datasets.REGISTRY)
def test_dataset(name: str) -> None:
    function = datasets.REGISTRY[name]
    own = set(inspect.signature(function).parameters) - COMMON
    assert [one for one in own if f"``{one}``" not in text_of(function)] == []
    assert all(f"\n{one} :" in text_of(datasets.dataset) for one in COMMON)


def test_every_error_says_its_exit_status() -> None:
    from bigembed.jobs.status import status_of

    for name, error in vars(errors).items():
        if not (inspect.isclass(error) and issubclass(error, errors.BigembedError)):
            continue
        said = re.search(r"\(exit status (\d)\)", text_of(error))
        of_base = error is errors.BigembedError or issubclass(error.__mro__[1], errors.InputError)
        assert said or of_base, f"{name} names no exit status"
        if said:
            assert int(said[1]) == status_of(error("x")), name


def test_every_key_of_a_job_file_is_described() -> None:
    from bigembed.jobs.spec import TABLES

    for table in TABLES.values():
        source = inspect.getsource(table)
        keys = [key for key in table.model_fields if key != "parameters"]
        silent = [key for key in keys if not re.search(rf'^    {key}: .*\n    """\S', source, re.MULTILINE)]
        assert silent == [], table.__name__


def test_the_check_sees_what_is_missing(house: ModuleType) -> None:
    def bad(a: int, b: int) -> None:
        """What.

        Parameters
        ----------
        a : int. One, b : int. Two on one line.

        Examples
        --------
        >>> 1
        1
        """

    with pytest.raises(AssertionError):
        test_function(house, bad)
