"""The docstrings of all public names say what the house asks for, as far as a machine can tell."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpydoc.validate import ERROR_MSGS, validate

import bigembed as be
from bigembed import datasets, errors
from bigembed.estimator.base import Estimator
from bigembed.maps import REGISTRY, method
from tests.docs.rules import DOCS, entries_of, require_estimator, require_function, text_of

ESTIMATORS = [method(name) for name in REGISTRY]
FUNCTIONS = [value for name in be.__all__ if inspect.isfunction(value := getattr(be, name))]
COMMON = {"n", "seed", "dtype", "noise"}
"""Parameters that mean the same in every data set: those of ``datasets.dataset``."""

NOT_ASKED = {
    "GL01": "the first sentence stands on the line of the quotes, as everywhere in this code",
    "ES01": "where one sentence says all, there is no second one",
    "SA01": "what belongs together is linked in the text, and stands together in the tables of the pages",
    "EX01": "an example for each class and function is asked below; methods are in that of their class",
}
"""numpydoc's checks that are left out everywhere, each with its reason."""
OF_SECTIONS = ("PR01", "RT01")
"""Parameters, and what is returned, have entries: not asked of the names that follow."""
FOR_AUTHORS = {
    "as_fitted", "begin", "clear", "dense_only", "describe", "drops", "keep", "left_of", "mark_published", "placed",
    "point", "publish", "read_run", "refuse_sparse", "stages", "texts", "unfinished", "width",
}  # fmt: skip
"""Methods that bigembed itself calls; the page on adding a method says how."""
BY_FIELDS = {
    "ArraySpec", "Stage", "Cost", "Context", "Extension", "Dataset", "FitPlan", "MapQuality", "Range", "StagePlan",
    "Version",
}  # fmt: skip
"""Dataclasses: each field has its own docstring where it is declared, or is named by what it is."""

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package")


def public_names() -> list[str]:
    """Return the full names of what the pages document."""
    spec = importlib.util.spec_from_file_location("public_names", DOCS / "_ext" / "public_names.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    shown = re.findall(r"auto(?:class|function):: (\S+)", (DOCS / "adding_a_method.md").read_text(encoding="utf-8"))
    return [*(name for names in pages.kinds().values() for name in names), *shown]


def with_methods(names: list[str]) -> Iterator[str]:
    """Yield the names, and those of public methods and properties where they are written: in a class or its bases."""
    for name in names:
        yield name
        module, _, last = name.rpartition(".")
        value = getattr(importlib.import_module(module), last)
        for base in value.__mro__ if inspect.isclass(value) and not issubclass(value, BaseException) else ():
            if base.__module__.startswith("bigembed"):
                home = f"{base.__module__}.{base.__qualname__}"
                yield from (f"{home}.{one}" for one, member in vars(base).items() if has_words(one, member))


def has_words(name: str, member: Any) -> bool:
    """Tell whether a member is public and should have a docstring of its own: an override may inherit one."""
    function = inspect.isfunction(member) and member.__name__ == name  # (the default of a field may be a lambda)
    own = bool(member.__doc__) or not inspect.getdoc(member)
    return name[0] != "_" and own and (function or isinstance(member, property))


def allowed(name: str) -> set[str]:
    """Return the checks of numpydoc that a name need not pass."""
    last = name.rpartition(".")[2]
    if last in FOR_AUTHORS | BY_FIELDS or last in datasets.REGISTRY:  # (test_dataset asks for parameters of data sets)
        return {*NOT_ASKED, *OF_SECTIONS}
    return {*NOT_ASKED, "PR02"} if last == "dataset" else {*NOT_ASKED}  # (its keywords are those of what it calls)


@pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package")
def test_numpydoc_finds_nothing_wrong() -> None:
    names = dict.fromkeys(with_methods(public_names()))
    found = {name: validate(name)["errors"] for name in names}
    assert len(found) > 200
    assert NOT_ASKED.keys() < ERROR_MSGS.keys()
    wrong = [
        f"{name}: {code} {text}" for name, all_of in found.items() for code, text in all_of if code not in allowed(name)
    ]
    assert wrong == []


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.__name__)
def test_estimator(estimator: type[Estimator]) -> None:
    require_estimator(estimator)


def fitted(estimator: type[Estimator]) -> Estimator:
    """The estimator, fitted to a few rows with labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 20)
    rows = np.abs(5 + rng.normal(size=(60, 4)) + 2 * np.repeat(np.eye(3, 4), 20, axis=0))
    given = {"n_neighbors": 8, "components": "largest", "n_landmarks": 20, "perplexity": 5}
    given |= {"n_epochs": 5, "n_iter": 5, "early_exaggeration_iter": 5, "num_iters": (3, 3, 3), "max_iter": 5}
    known = inspect.signature(estimator).parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = estimator(**{name: value for name, value in given.items() if name in known})  # type: ignore[call-arg]
        return one.fit(rows, labels)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.__name__)
def test_attributes_are_those_that_a_fit_leaves(estimator: type[Estimator]) -> None:
    said = entries_of(estimator, "Attributes")
    assert len(said) == len(set(said))
    properties = [name for name, value in inspect.getmembers(estimator) if isinstance(value, property)]
    there = {name for name in [*vars(fitted(estimator)), *properties] if name.endswith("_") and name[0] != "_"}
    assert set(said) >= there, "left by fit and not said"
    assert set(said) <= there, "said and not there"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_function(function: Any) -> None:
    require_function(function)


def test_graph() -> None:
    graph = be.build_neighbor_graph(np.arange(10.0)[:, None], n_neighbors=2)
    assert entries_of(be.NeighborGraph, "Parameters") == list(inspect.signature(be.NeighborGraph).parameters)
    said = {*entries_of(be.NeighborGraph, "Parameters"), *entries_of(be.NeighborGraph, "Attributes")}
    properties = {name for name, value in inspect.getmembers(be.NeighborGraph) if isinstance(value, property)}
    assert said == {name for name in vars(graph) if not name.startswith("_")} | properties


@pytest.mark.parametrize("name", datasets.REGISTRY)
def test_dataset(name: str) -> None:
    function = datasets.REGISTRY[name]
    own = set(inspect.signature(function).parameters) - COMMON
    assert [one for one in own if f"``{one}``" not in text_of(function)] == []
    assert all(f"\n{one} : " in text_of(datasets.dataset) for one in COMMON)


def test_every_error_says_its_exit_status() -> None:
    from bigembed.jobs.watching.status import status_of

    for name in dir(errors):
        error = getattr(errors, name)
        if not (inspect.isclass(error) and issubclass(error, errors.BigembedError)):
            continue
        said = re.search(r"\(exit status (\d)\)", text_of(error))
        of_base = error is errors.BigembedError or issubclass(error.__mro__[1], errors.InputError)
        assert said or of_base, f"{name} names no exit status"
        if said:
            assert int(said[1]) == status_of(error("x")), name


def test_every_key_of_a_job_file_is_described() -> None:
    from bigembed.jobs.job import TABLES

    for table in TABLES.values():
        source = inspect.getsource(table)
        keys = [key for key in table.model_fields if key != "parameters"]
        silent = [key for key in keys if not re.search(rf'^    {key}: .*\n    """\S', source, re.MULTILINE)]
        assert silent == [], table.__name__


def test_the_check_sees_what_is_missing() -> None:
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
        require_function(bad)
