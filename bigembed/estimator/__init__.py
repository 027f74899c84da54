"""What every estimator shares: the base class, fitting, new rows, saving, the certificate.

What the rest of the package asks of an estimator beside its public face is here: functions, so that users see no more
attributes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from bigembed.distance.metrics import NAMES
from bigembed.estimator.extension import Extension
from bigembed.estimator.frame import STAGE as FRAME
from bigembed.estimator.frame import FrameReference
from bigembed.quality.filled import FILLED, PLACES
from bigembed.quality.likeness import GROUPED, LIMITS, REACH
from bigembed.rows import RowSource
from bigembed.runtime.parameters import is_integer
from bigembed.stages import Run, Stage
from bigembed.stages.runs import Retention

if TYPE_CHECKING:
    from bigembed.estimator.fitting import PreparedFit


@dataclass(eq=False, repr=False, kw_only=True)
class RunParameters:
    """Parameters of every method that say where a fit keeps its stages and what it reports, and change no result."""

    workdir: str | os.PathLike[str] | None = None
    persist: Literal["store"] | None = None
    keep: Literal["all", "map", "coordinates"] = "all"
    verbose: bool = False
    callbacks: Any = None


RUN_PARAMETERS = tuple(field.name for field in fields(RunParameters))

# ------------------------------------------------------------------------------------------------------- protocol

WHOLE = ("coordinates", "clusters", FRAME)
"""Stages of a map of which nothing is dropped."""
LIKENESS: Mapping[str, tuple[str, ...]] = {"judgement": (LIMITS, REACH, GROUPED), FILLED: (PLACES,)}
"""What every model keeps besides, by stage: that with which new rows are compared."""
STEP = re.compile(r"step\d+-")
"""How the names of the stages of steps begin."""

ListStages = Callable[[RowSource], list[Stage]]


@dataclass(frozen=True)
class MethodSpec:
    """What an estimator hands down when it is fitted, so that nothing below asks it anything."""

    estimator: Any
    """Whose callbacks hear of the fit, and whose extension judges its map."""
    list_stages: ListStages
    """Lists the stages of the method for given rows."""
    steps: tuple[Any, ...]
    """What the rows go through before."""
    sparse: bool
    """Whether the method takes sparse rows, by its parameters."""
    pairs: bool
    """Whether its rows are those of an array (n, n) of what lies between rows."""

    @property
    def name(self) -> str:
        """Return the name of the class, as messages have it."""
        return type(self.estimator).__name__


def compares_rows(method: MethodSpec) -> bool:
    """Whether its distances are those of rows, by a metric with a name."""
    metric = getattr(method.estimator, "metric", "euclidean")
    return isinstance(metric, str) and metric in NAMES and not method.pairs


def places_rows(method: MethodSpec) -> bool:
    """Whether it makes maps of rows with columns: no step, and no distances that are given."""
    return method.estimator.makes_maps and not method.pairs


def spec_of(estimator: Any) -> MethodSpec:
    """Return what an estimator hands down when it is fitted."""
    found: MethodSpec = estimator._spec()
    follow = getattr(estimator, "_follow", None)
    return found if follow is None else replace(found, list_stages=partial(followed, found.list_stages, follow))


def followed(own: ListStages, follow: Callable[[Sequence[Stage]], list[Stage]], source: RowSource) -> list[Stage]:
    """List the stages of a method, and what follows them."""
    stages = own(source)
    return [*stages, *follow(stages)]


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


def prepare_by_fit(estimator: Any, X: Any, y: Any = None, **aligned: Any) -> PreparedFit:
    """Return what ``fit`` with these arguments would compute, of an estimator made for that: it only prepares."""

    def prepare(X: Any, **aligned: Any) -> Any:
        estimator._check()
        return estimator._prepare(X, aligned)

    estimator._fit_rows = prepare
    found: PreparedFit = estimator.fit(X, y, **aligned)
    return found


def leave_out_descent(estimator: Any) -> None:
    """Let the automatic choice of the search leave out NN-descent, because it does not fit where this is fitted."""
    estimator._without_descent = True


def leaves_out_descent(estimator: Any) -> bool:
    """Return whether the automatic choice of the search leaves out NN-descent."""
    return bool(estimator._without_descent)


def follow_with(estimator: Any, follow: Callable[[Sequence[Stage]], list[Stage]]) -> None:
    """Let stages follow those of the method in a job, on demand: ``follow`` lists them, given those of the method."""
    estimator._follow = follow


def stages_on_demand(fitted: Any) -> tuple[Stage, ...]:
    """Return the stages that ``fit`` left out."""
    return tuple(getattr(fitted, "_on_demand", ()))


def retention_in(fitted: Any) -> Retention | None:
    """Return what stays of the stages of a fit, if not all of it."""
    found: Retention | None = getattr(fitted, "_retention", None)
    return found


def retention_of(estimator: Any, stages: Sequence[Stage]) -> Retention | None:
    """Return what stays of the stages of a fit, besides the coordinates with what is known of the rows and the steps
    before the method: with ``keep="map"`` what a model keeps; with ``keep="coordinates"`` what fitted attributes show,
    and of the rest of a model no array with numbers for each row (where coordinates are a stage of their own). None
    where everything stays."""
    if estimator.keep == "all":
        return None
    kind: Any = type(estimator)
    names = {*kind.saved_stages, *kind.kept_stages}
    saved = {name: (*kind.saved_stages.get(name, ()), *kind.kept_stages.get(name, ())) for name in names}
    own = [stage.name for stage in stages if not STEP.match(stage.name) and stage.name not in WHOLE]
    some = {name: saved.get(name, ()) for name in own}
    if estimator.keep == "coordinates":
        large, shown = _of_each_row(stages), kind.shown_arrays
        some = {
            name: tuple(array for array in arrays if array not in large[name] or array in shown.get(name, ()))
            for name, arrays in some.items()
        }
    some |= {name: (*some[name], *arrays) for name, arrays in LIKENESS.items() if name in some}
    return Retention(stages, {name: arrays for name, arrays in some.items() if "" not in arrays})


def _of_each_row(stages: Sequence[Stage]) -> dict[str, set[str]]:
    """Return the arrays of each stage with as many numbers as there are coordinates of a column, or more; none where
    the coordinates are no stage."""
    n = max((array.rows for stage in stages if stage.name == WHOLE[0] for array in stage.cost.arrays), default=inf)
    return {
        stage.name: {
            array.name.partition("/")[0] for array in stage.cost.arrays if array.rows * (array.width or 1) >= n
        }
        for stage in stages
    }


def rows_fitted(fitted: Any) -> RowSource | None:
    """Return the rows that were fitted, where they are known."""
    found: RowSource | None = fitted._source
    return found


def fitted_in_memory(fitted: Any) -> bool:
    """Return whether the rows that were fitted came as an array of this process."""
    return bool(fitted._in_memory)


def dtype_fitted(fitted: Any) -> str:
    """Return the dtype of coordinates in memory: float32 where the rows that were fitted are."""
    return str(fitted._dtype)


def fitted_parameters(fitted: Any) -> dict[str, Any]:
    """Return the parameters as they were when it was fitted."""
    return dict(getattr(fitted, "_parameters", {}))


def extension_in(estimator: Any, run: Any) -> Extension:
    """Return what turns rows into coordinates, from the published stages of a run."""
    found: Extension = estimator._extension(run)
    return found


def parameter_names(kind: Any) -> list[str]:
    """Return the names of the parameters of a class of estimators."""
    found: list[str] = kind._names()
    return found


def search_of(estimator: Any) -> str:
    """Return the algorithm by which neighbors are searched, of those that fit."""
    return str(estimator._search())


def set_frame(estimator: Any, reference: FrameReference | None) -> None:
    """Let the map of the next fit be laid over a published one, and start from it where it descends."""
    estimator._frame = reference


def set_steps(estimator: Any, steps: Sequence[Any]) -> None:
    """Let rows go through these steps before the method sees them."""
    estimator._steps = tuple(steps)


def names_made(step: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns that a fitted step makes of columns with these names, where they have any."""
    return tuple(step._names_out(list(names))) if names else ()


def columns_after(fitted: Any, count: int | None = None) -> tuple[str, ...]:
    """Return the names of the columns after the steps before a method, or the first ``count`` of these; nothing where
    the columns of the rows have no names."""
    names = tuple(map(str, getattr(fitted, "feature_names_in_", ())))
    for step in getattr(fitted, "steps_", ())[:count]:
        names = names_made(step, names)
    return names


def names_planned(step: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns that a step will make, as far as they are known before it is fitted."""
    return tuple(step._planned_names(names))


def mark_as_step(estimator: Any) -> None:
    """Note that an estimator is a step before another one: a model then does not keep its rows."""
    estimator._is_step = True


def is_step(estimator: Any) -> bool:
    """Return whether an estimator is a step before another one."""
    return bool(estimator._is_step)


def check_fitted(estimator: Any) -> None:
    """Raise NotFittedError unless it is fitted."""
    estimator._check_fitted()


def with_parameters(estimator: Any, parameters: dict[str, Any]) -> Any:
    """Return an estimator of a fit with these parameters, which this one remembers as those of its fit."""
    estimator._parameters = parameters
    return estimator.as_fitted()


def read_fit(estimator: Any, fit: PreparedFit) -> Any:
    """Read the results of a fit that is computed."""
    return estimator._read_fit(fit)


def seed_of(estimator: Any, run: Run, *stages: str) -> int:
    """The seed that the first of these stages with one had; where none took any, ``random_state`` if it is a number."""
    for stage in stages:
        if run.has(stage) and "seed" in (parameters := run.parameters(stage)):
            return int(parameters["seed"])
    return int(estimator.random_state) if is_integer(estimator.random_state) else 0
