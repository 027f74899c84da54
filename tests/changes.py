"""What users change between two runs in one output: each parameter to each other value that its method takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, cast

from bigembed.errors import BigembedError
from bigembed.runtime.parameters import kinds_of
from bigembed.stages.reuse import WHERE
from bigembed.stages.stage import Stage
from tests.cases import CASES, FEW_ROWS, Case

NUMBERS = (1, 2, 3, 7, 25, 0.25, 0.9, 12.5)
"""Tried where a parameter takes a number."""
OWN: dict[str, list[Any]] = {
    "metric": ["cityblock", "cosine"], "kernel": ["rbf", "linear", "laplacian"], "metric_params": [{"p": 4}],
    "init": ["random", "pca"], "random_state": [5], "priors": [[0.4, 0.3, 0.1, 0.1, 0.1]], "max_passes": [150],
}  # fmt: skip
"""Values of the parameters whose annotation does not tell them."""


def changes(case: Case) -> Iterator[tuple[str, Any]]:
    """Every parameter of a case with some other values that it may have."""
    estimator = case.estimator()
    for name, value in estimator.get_params(deep=False).items():
        if name not in (*WHERE, "steps"):
            for other in _others(type(estimator), name, value):
                yield name, other


def _others(cls: type[Any], name: str, value: Any) -> list[Any]:
    kinds = kinds_of(cls).get(name, [])
    words = [word for kind in kinds for word in re.findall(r"'([^']+)'", kind.words)]
    if isinstance(value, bool):
        return [not value]
    numbers: list[Any] = [number for number in NUMBERS if any(kind.test(number) for kind in kinds)]
    if isinstance(value, (int, float)) and numbers:
        near = [near for near in (value + 1, value * 2) if any(kind.test(near) for kind in kinds)]
        numbers = near[:1] or numbers
    found = [*OWN.get(name, []), *words, *numbers[:3]]
    return [other for other in found if not (isinstance(other, type(value)) and other == value)]


class Listed(Exception):
    """The stages that a fit would run."""


def stages_of(case: Case, X: Any, **more: Any) -> list[Stage] | None:
    """The stages of a fit, in which nothing runs; None where the method refuses the parameters or the rows."""
    import bigembed.estimator.fitting as fitting

    def listed(stages: Any, run: Any, of: Any = (), **_: Any) -> None:
        raise Listed(list(of or stages))

    kept, fitting.run_stages = fitting.run_stages, listed
    try:
        case.fit(X, **more)
    except Listed as found:
        return list(found.args[0])
    except BigembedError:
        return None
    finally:
        fitting.run_stages = kept
    raise AssertionError("nothing was run")


def function_of(stage: Stage) -> Callable[..., Any]:
    """The function of a stage, without the arguments that it has already."""
    function: Any = stage.run
    while isinstance(function, partial):
        function = function.func
    return cast(Callable[..., Any], function)


@cache
def first_of() -> dict[Any, str]:
    """The method in whose first case each function of a stage comes first, those of few stages before others."""
    plain = [(stages_of(case, case.X(FEW_ROWS)) or [], name) for name, case in CASES.items() if case.plain]
    in_order = sorted(plain, key=lambda one: len(one[0]))
    return {function_of(stage): name for stages, name in reversed(in_order) for stage in stages}


@cache
def own_stages(name: str) -> list[str]:
    """The stages of the first case of a method whose functions no method before it has."""
    found = stages_of(CASES[name], CASES[name].X(FEW_ROWS)) or []
    return [stage.name for stage in found if first_of()[function_of(stage)] == name]
