"""What the rest of the package asks of an estimator beside its public face: functions, so that users see no more
attributes.
"""

from __future__ import annotations

from typing import Any

from bigembed.estimator.extension import Extension
from bigembed.stages.runs import Run


def run_of(fitted: Any) -> Run:
    """Return the run, or the saved model, that holds the published stages of a fitted estimator."""
    run: Run = fitted._run
    return run


def extension_of(fitted: Any) -> Extension:
    """Return what turns new rows into coordinates, by the parameters of the fit."""
    found: Extension = fitted._map()
    return found


def steps_before(estimator: Any) -> tuple[Any, ...]:
    """Return the steps that the rows go through before the method, in their order."""
    return tuple(estimator._steps)


def takes_sparse(estimator: Any) -> bool:
    """Return whether ``fit`` takes sparse rows, by the parameters as they are."""
    return bool(estimator._sparse())


def check_parameters(estimator: Any) -> None:
    """Raise InputError with every parameter that is out of its range."""
    estimator._check()


def method_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters of the method by name, without those that every method has."""
    found: dict[str, Any] = estimator._own_params()
    return found


def leave_out_descent(estimator: Any) -> None:
    """Let the automatic choice of the search leave out NN-descent, because it does not fit where this is fitted."""
    estimator._without_descent = True


def leaves_out_descent(estimator: Any) -> bool:
    """Return whether the automatic choice of the search leaves out NN-descent."""
    return bool(estimator._without_descent)
