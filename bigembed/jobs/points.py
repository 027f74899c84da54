"""The points of a sweep: methods with their parameters, from the tables [method] and [sweep] of a job."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bigembed.errors import BigembedError, JobError
from bigembed.jobs.job import JobSpec, MethodTable, SweepTable
from bigembed.jobs.parameters import checked_parameters, shown
from bigembed.methods import REGISTRY, method

MOST = 1_000
"""Points of a sweep."""


@dataclass(frozen=True)
class Point:
    """One embedding of a sweep."""

    label: str
    """What sets it apart: the values that the sweep gives, after the method where there are several."""
    method: str
    parameters: Mapping[str, Any]
    given: tuple[str, ...]
    """Names of the parameters that the sweep gives."""

    def job(self, job: JobSpec) -> JobSpec:
        """The job of this point alone."""
        table = job.method.model_copy(update={"name": self.method, "parameters": dict(self.parameters)})
        return job.model_copy(update={"method": table, "sweep": None})


def methods_of(job: JobSpec) -> list[str]:
    """The methods that a job fits: one, or those of its sweep."""
    return [job.method.name] if job.sweep is None else list(dict.fromkeys(point.method for point in points_of(job)))


def points_of(job: JobSpec) -> list[Point]:
    """The points of a job's sweep; :class:`JobError` lists everything that is wrong with them."""
    if job.sweep is None:
        raise JobError(
            f"{job.file}: no table [sweep]. Give lists of values there, such as n_neighbors = [10, 20], or --vary"
        )
    points, problems = expanded(job.method, job.sweep, job.functions)
    if problems:
        raise JobError(f"{job.file}: " + "".join(f"\n  {problem}" for problem in problems))
    return points


def require_single(job: JobSpec) -> None:
    """:class:`JobError` for a sweep where one embedding is asked for."""
    if job.sweep is not None:
        raise JobError(f"{job.file}: [sweep] asks for several embeddings; bigembed sweep {job.file} makes them")


def expanded(table: MethodTable, sweep: SweepTable, functions: Collection[str] = ()) -> tuple[list[Point], list[str]]:
    """The points, the last parameter of the grid varying quickest, then the single ones; what is wrong with them."""
    problems = _axis_problems(sweep)
    if problems:
        return [], problems
    asked = list(_asked(sweep))
    several = any(own.get("method", table.name) != table.name for _, own in asked)
    points: dict[str, Point] = {}
    for where, own in asked:
        point, wrong = _point(where, own, table, several, functions)
        problems += wrong
        if point is None:
            continue
        said = repr((point.method, sorted(point.parameters.items(), key=lambda item: item[0])))
        if said in points:
            problems.append(f"[{where}] {point.label}: the same as {points[said].label}; leave one out")
        points[said] = point
    return list(points.values()), list(dict.fromkeys(problems))


def _axis_problems(sweep: SweepTable) -> list[str]:
    """What is wrong with the lists themselves."""
    axes = _axes(sweep)
    problems = [
        f"[sweep] {name}: a list of values, at least one, such as {name} = [1, 2]; not {shown(value)}"
        for name, value in axes.items()
        if not isinstance(value, list) or not value
    ]
    if not axes and not sweep.points:
        problems.append("[sweep] is empty: give lists of values, such as n_neighbors = [10, 20], or [[sweep.points]]")
    if not problems:
        count = (math.prod(map(len, axes.values())) if axes else 0) + len(sweep.points or ())
        if count > MOST:
            problems.append(f"[sweep] gives {count:,} points; at most {MOST:,} are taken")
    return problems


def _axes(sweep: SweepTable) -> dict[str, Any]:
    return ({} if sweep.method is None else {"method": sweep.method}) | sweep.parameters


def _asked(sweep: SweepTable) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each point says, and in which table."""
    axes = _axes(sweep)
    if axes:
        for values in itertools.product(*axes.values()):
            yield "sweep", dict(zip(axes, values, strict=True))
    for number, own in enumerate(sweep.points or (), 1):
        yield f"sweep.points {number}", dict(own)


def _point(
    where: str, own: dict[str, Any], table: MethodTable, several: bool, functions: Collection[str]
) -> tuple[Point | None, list[str]]:
    """A point, or what is wrong with it."""
    name = own.pop("method", table.name)
    if not isinstance(name, str) or name not in REGISTRY:
        return None, _unknown_method(where, name)
    known = method(name)._names()
    taken = {key: value for key, value in table.parameters.items() if name == table.name or key in known}
    typed, problems = checked_parameters(name, {**taken, **own}, functions, where)
    words = [name] if several or not own else []
    label = ", ".join([*words, *(f"{key}={_text(value)}" for key, value in own.items())])
    if not problems:
        try:
            method(name)(**typed)._check()
        except BigembedError as error:
            problems = [f"[{where}] {label}: {error}"]
    return (None if problems else Point(label, name, typed, tuple(own))), problems


def _unknown_method(where: str, name: Any) -> list[str]:
    try:
        method(name if isinstance(name, str) else shown(name))
    except JobError as error:
        return [f"[{where}] method: {error}"]
    return []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)
