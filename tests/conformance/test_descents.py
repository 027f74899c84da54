"""Every descent: one map over the rows a step, an objective that never rises, and a killed one goes on at its step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigembed.maps import REGISTRY
from tests.blocks import blocks_for
from tests.cases import CASES
from tests.executors import Killed, executor, maps

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N, STEPS = 400, 7
DESCENTS = [name for name in sorted(REGISTRY) if "max_iter" in CASES[name].estimator().get_params()]


@pytest.mark.parametrize("name", DESCENTS)
def test_a_killed_descent_goes_on_at_its_step(name: str, tmp_path: Path) -> None:
    case, X = CASES[name], str(tmp_path / "rows.npy")
    np.save(X, CASES[name].X(N))

    def fit(run: Callable[..., list[Any]], place: str = "killed") -> Any:
        with blocks_for(N), executor(run):
            return case.fit(X, max_iter=STEPS, tol=0, workdir=tmp_path / place)

    run, made = maps()
    whole = fit(run, "whole")
    (step,) = (label for label, count in made.items() if count == whole.n_iter_ == STEPS)
    assert (np.diff(whole.objectives_) <= 1e-12 * whole.objectives_[0]).all()
    for at in (2, 5):
        with pytest.raises(Killed):
            fit(maps(step, at)[0])
    run, again = maps()
    resumed = fit(run)
    assert again[step] == STEPS - (1 + 4)  # done before the first kill and between the two
    np.testing.assert_array_equal(resumed.objectives_, whole.objectives_)
    np.testing.assert_array_equal(np.asarray(resumed.embedding_), np.asarray(whole.embedding_))
