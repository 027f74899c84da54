"""Every estimator and its parameters: those of the fit stay, seeds are said, and Dask knows one fit from another."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.base import tokenize
from sklearn.base import clone

import bigembed as be
from bigembed.errors import InputError
from tests.cases import CASES, EACH

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = 240
OTHER = {
    "n_components": 1, "whiten": False, "gamma": 3.0, "metric": "chebyshev", "kernel": "linear", "degree": 5,
    "coef0": 7, "scaling": "eigenvector", "epsilon": 99.0, "t": 3.0, "ids": True, "squared": True, "n_neighbors": 3,
    "alpha": 1.0, "solver": "exact", "shrinkage": 0.5, "n_landmarks": 9, "normalization": "asymmetric",
    "random_state": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", EACH)
def test_set_params_after_fit_changes_nothing_that_was_fitted(name: str) -> None:
    case = CASES[name]
    if case.new(N) is None:
        return
    fitted = case.fit(case.X(N))
    wanted, before = case.fit(case.X(N)).embedding_, fitted.transform(case.new(N))
    there = fitted.get_params()
    fitted.set_params(**{key: value for key, value in OTHER.items() if key in there})
    np.testing.assert_array_equal(fitted.transform(case.new(N)), before)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(case.new(N)), before)
    assert repr(again) == repr(fitted)
    np.testing.assert_array_equal(fitted.embedding_, wanted)


@pytest.mark.parametrize("name", EACH)
def test_dask_hashes_an_estimator_the_same_each_time(name: str) -> None:
    case = CASES[name]
    X = case.X(N)
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        plain, fitted = case.estimator(), case.fit(X)
        assert tokenize(plain) == tokenize(clone(plain)) != tokenize(fitted)
        assert tokenize(fitted) == tokenize(fitted) == tokenize(pickle.loads(pickle.dumps(fitted)))
        assert tokenize(fitted) != tokenize(case.fit(X * np.float32(2)))
        assert tokenize(plain) != tokenize(clone(plain).set_params(n_components=1))
    assert pickle.dumps(fitted) == pickle.dumps(fitted)


@pytest.mark.parametrize("state", [None, 5, "generator", "legacy"])
@pytest.mark.parametrize("name", EACH)
def test_the_certificate_and_a_saved_model_have_the_seed_that_was_used(name: str, state: Any, tmp_path: Path) -> None:
    """Naming it draws no other."""
    case = CASES[name]
    if "random_state" not in case.estimator().get_params():
        return
    given = {"generator": np.random.default_rng(3), "legacy": np.random.RandomState(3)}.get(state, state)
    fitted = case.fit(case.X(N), random_state=given)
    used = {fitted._run.manifest(stage).parameters.get("seed") for stage in fitted._run.published()} - {None}
    assert len(used) <= 1
    if used:
        assert {fitted.certificate_["seed"]} == used
    elif state == 5:
        assert fitted.certificate_["seed"] == 5
    fitted.save(tmp_path / "model.zarr")
    assert be.load(tmp_path / "model.zarr").random_state == fitted.certificate_["seed"]


@pytest.mark.parametrize("name", EACH)
def test_a_seed_is_a_number_or_a_generator(name: str) -> None:
    case = CASES[name]
    if case.plain and "random_state" in case.estimator().get_params():
        for wrong in ("a", 1.5, -1, True, [1]):
            with pytest.raises(InputError, match=r"random_state=.*an integer ≥ 0, None, or a (random )?generator"):
                case.fit(case.X(N), random_state=wrong)
