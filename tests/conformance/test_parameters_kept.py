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
from tests.cases import CASES, EACH, FEW_ROWS, WAYS, apart, by_default, fitted, twin
from tests.conformance.digest import digests

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = FEW_ROWS
OTHER = {
    "n_components": 1, "whiten": False, "gamma": 3.0, "metric": "chebyshev", "kernel": "linear", "degree": 5,
    "coef0": 7, "scaling": "eigenvector", "epsilon": 99.0, "t": 3.0, "ids": True, "squared": True, "n_neighbors": 3,
    "alpha": 1.0, "solver": "exact", "shrinkage": 0.5, "n_landmarks": 9, "normalization": "asymmetric",
    "random_state": 5,
}  # fmt: skip


@pytest.mark.parametrize("name", by_default((name for name in EACH if CASES[name].new(N) is not None), only=WAYS))
def test_set_params_after_fit_changes_nothing_that_was_fitted(name: str) -> None:
    changed, new = twin(fitted(name)), CASES[name].new(N)
    before = fitted(name).transform(new)
    there = changed.get_params()
    changed.set_params(**{key: value for key, value in OTHER.items() if key in there})
    np.testing.assert_array_equal(changed.transform(new), before)
    again = pickle.loads(pickle.dumps(changed))
    np.testing.assert_array_equal(again.transform(new), before)
    assert repr(again) == repr(changed)
    np.testing.assert_array_equal(changed.embedding_, fitted(name).embedding_)


STEPS = [
    be.Log1p(columns=[0]),
    be.Clip(high=1, columns=[0]),
    be.MarkMissing([1.0], columns=[0]),
    be.StandardScaler(columns=[0]),
    be.RobustScaler(columns=[0]),
]
"""Steps of one column."""


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_other_columns_after_fit_change_nothing_that_was_fitted(step: Any) -> None:
    rows = np.random.default_rng(0).gamma(2.0, size=(50, 3))
    rows[3] = 1
    made = clone(step).fit(rows)
    before, said = made.transform(rows), made.describe()
    assert (before[:, 0] != rows[:, 0]).any()
    np.testing.assert_array_equal(before[:, 1:], rows[:, 1:])
    made.set_params(columns=[1, 2])
    for one in (made, pickle.loads(pickle.dumps(made))):
        np.testing.assert_array_equal(one.transform(rows), before)
        assert one.describe() == said
    np.testing.assert_array_equal(made.fit_transform(rows)[:, 0], rows[:, 0])
    assert tokenize(clone(step)) != tokenize(clone(made))


@pytest.mark.parametrize("name", by_default(EACH, only=WAYS))
def test_dask_hashes_an_estimator_the_same_each_time(name: str) -> None:
    """And one number more in the rows gives another hash and other coordinates."""
    case, X = CASES[name], CASES[name].X(N).copy()
    if case.rows is apart:  # (of one distance more, landmarks need not know)
        X[N // 2] *= 1.5
        X[:, N // 2] = X[N // 2]
    else:
        X[N // 2, 1] *= 1.5
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        plain, made = case.estimator(), fitted(name)
        assert tokenize(plain) == tokenize(clone(plain)) != tokenize(made)
        assert tokenize(made) == tokenize(made) == tokenize(pickle.loads(pickle.dumps(made)))
        other = case.fit(X)
        assert tokenize(made) != tokenize(other)
        assert tokenize(plain) != tokenize(clone(plain).set_params(n_components=1))
    assert pickle.dumps(made) == pickle.dumps(made)
    assert digests(made)["embedding_"] != digests(other)["embedding_"]  # (a control of the suite of the same bytes)


SEEDED = [name for name in EACH if "random_state" in CASES[name].estimator().get_params()]
STATES = {
    None: [name for name in SEEDED if CASES[name].plain],
    5: ["diffusion_map", "kernel_pca", "umap"],  # (who names the seed is the same for every method)
    "generator": ["nmf", "tsne"],  # (one function makes a number of it)
    "legacy": ["diffusion_map"],
}


@pytest.mark.parametrize(("name", "state"), [(name, state) for state, names in STATES.items() for name in names])
def test_the_certificate_and_a_saved_model_have_the_seed_that_was_used(name: str, state: Any, tmp_path: Path) -> None:
    """Naming it draws no other."""
    case = CASES[name]
    given = {"generator": np.random.default_rng(3), "legacy": np.random.RandomState(3)}.get(state, state)
    made = case.fit(case.X(N // 2), random_state=given)
    used = {made._run.manifest(stage).parameters.get("seed") for stage in made._run.published()} - {None}
    assert len(used) <= 1
    if used:
        assert {made.certificate_["seed"]} == used
    elif state == 5:
        assert made.certificate_["seed"] == 5
    made.save(tmp_path / "model.zarr")
    assert be.load(tmp_path / "model.zarr").random_state == made.certificate_["seed"]


@pytest.mark.parametrize("name", [name for name in SEEDED if CASES[name].plain])
def test_a_seed_is_a_number_or_a_generator(name: str) -> None:
    for wrong in ("a", 1.5, -1, True, [1]):
        with pytest.raises(InputError, match=r"random_state=.*an integer ≥ 0, None, or a (random )?generator"):
            CASES[name].fit(CASES[name].X(N), random_state=wrong)
