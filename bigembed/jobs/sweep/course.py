"""What a sweep will compute: the stages of its points, each in a folder of its own; and the plan of all of them.

The folder of a stage is named by what the stage depends on: its parameters and those of the stages before it. Points
whose first stages agree meet in the same folders; so does a sweep that is started again, or with other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, PlanError
from bigembed.estimator.judged import NAME as JUDGED
from bigembed.estimator.pipeline import method_after
from bigembed.estimator.preprocessing import Prepared, of_mapped, prepared, reading_rows, stages_after
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.parameters import Point, points_of
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.notes import may_descend, search_notes
from bigembed.jobs.planning.plan import Plan, bare_plan, costs_of, need_libraries, steps_before
from bigembed.maps.registry import method
from bigembed.quality.neighborhoods import NEIGHBORS, cost_of, preserved
from bigembed.rows.opening import open_zarr
from bigembed.rows.source import RowSource
from bigembed.runtime.runtime import using
from bigembed.stages.reuse import outdated, supersede
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Cost, Stage, locked, run_stages
from bigembed.store import manifests
from bigembed.store.files import digest_of
from bigembed.store.paths import AnyPath

# --------------------------------------------------------------------------------------------------------- quality
# How well the map of a point shows all rows, where its method has measured that of some of them only.

NAME, SAMPLES = "quality", 400


def quality_stages(stages: Sequence[Stage], estimator: Any, source: RowSource) -> list[Stage]:
    """A stage more, or none: where the figures of the method are of sampled rows among each other, those against all
    rows, so that points can be compared.

    Cost: that of :func:`bigembed.quality.neighborhoods.preserved`.
    """
    n, metric = int(source.shape[0]), getattr(estimator, "metric", "euclidean")
    if all(stage.name != JUDGED or stage.parameters.get("rows", n) == n for stage in stages):
        return []
    asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": 0}

    width = getattr(estimator, "n_components", None) or source.width
    shown = RowSource((n, int(width)), np.dtype(np.float64))
    cost = cost_of(source, shown, n_neighbors=NEIGHBORS, samples=SAMPLES)
    return [
        of_mapped(
            Stage(
                NAME,
                ("coordinates",),
                {"metric": metric, **asked},
                partial(run_quality, source=source, asked=asked, metric=metric),
                cost,
            ),
            source,
        )
    ]


def run_quality(context: Context, source: RowSource, asked: dict[str, Any], metric: Any) -> dict[str, Any]:
    array = open_zarr(path := context.of("coordinates", "embedding"))
    coordinates = RowSource(tuple(map(int, array.shape)), np.dtype(array.dtype), path=path)
    try:
        return preserved(source, coordinates, context.exchange, metric=metric, **asked)
    except InputError as error:  # (distances beyond float64)
        return {"unmeasured": str(error)}


# ---------------------------------------------------------------------------------------------------------- course

PAGE = "page"
PAGE_BYTES = 96 << 20
"""Blocks of coordinates, and the grids and pixels that the page holds at a time."""


@dataclass(frozen=True)
class Leg:
    """A stage of a point, in its folder."""

    stage: Stage
    folder: AnyPath
    name: str
    """Of the stage, with the first point that has it where points differ in it."""

    @property
    def published(self) -> bool:
        """Whether it is there, as far as names and sizes say."""
        with suppress(DamagedError):
            found = manifests.find(self.folder, self.stage.name)
            return found is not None and self.stage.holds(found.results) and manifests.complete(self.folder, found)
        return False


@dataclass(frozen=True)
class Course:
    """A point with what it takes."""

    point: Point
    estimator: Any
    source: RowSource
    legs: tuple[Leg, ...] = ()
    refused: BigembedError | None = None
    """Why it is not computed."""


def plan_sweep(job: JobSpec, place: Place | None = None, rows: Input | None = None, *, calibrate: bool = False) -> Plan:
    """The plan of a sweep: each stage counts once, however many points share it.

    Points that are refused are left out, and named in its notes; :class:`PlanError` or :class:`InputError` where all
    are.
    """
    need_libraries(job)
    rows = rows or find_input(job)
    before, run = steps_of(job, rows, lambda source: passes_of(job, source))
    courses = courses_of(job, before.source)
    roots = [job.output_path / FOLDER, *(leg.folder for course in courses for leg in course.legs)]
    bare = bare_plan(job, rows, place, roots, calibrate)
    todo = {} if run is None else outdated(before.stages, run)
    done = [stage.name for stage in before.stages if run is not None and stage.name not in todo]
    return plan_of(bare, refuse_large(bare, courses, job), job, rows, before.stages, done)


def passes_of(job: JobSpec, source: RowSource) -> float:
    """How often the stages of all points, each counted once, read the rows."""
    reading: dict[AnyPath, float] = {}
    for course in courses_of(job, source):
        names = {stage.name for stage in reading_rows([leg.stage for leg in course.legs])}
        reading |= {leg.folder: leg.stage.cost.passes for leg in course.legs if leg.stage.name in names}
    return sum(reading.values())


def courses_of(job: JobSpec, source: RowSource) -> list[Course]:
    """The points with their stages for the rows after the steps; a point that the rows do not allow is refused."""
    return named([_course(point, job, source) for point in points_of(job)])


def named(courses: Sequence[Course]) -> list[Course]:
    """The courses with their stages under names that differ where the stages do."""
    homes: dict[str, set[AnyPath]] = {}
    for course in courses:
        for leg in course.legs:
            homes.setdefault(leg.stage.name, set()).add(leg.folder)
    names: dict[AnyPath, str] = {}
    for course in courses:
        for leg in course.legs:
            alone = len(homes[leg.stage.name]) == 1
            names.setdefault(leg.folder, leg.stage.name if alone else f"{leg.stage.name} [{course.point.label}]")
    return [
        replace(course, legs=tuple(replace(leg, name=names[leg.folder]) for leg in course.legs)) for course in courses
    ]


def _course(point: Point, job: JobSpec, source: RowSource, without_descent: bool = False) -> Course:
    kind = method(point.method)
    taken = {name: column for name, column in source.aligned.items() if name in kind.aligned}
    chosen = method_after(steps_before(job), kind(**point.parameters))
    chosen._without_descent = without_descent
    course = Course(point, chosen, replace(source, aligned=taken))
    try:
        stages = stages_after(chosen, course.source)
        stages += quality_stages(stages, chosen, course.source)
    except (InputError, InputTypeError) as error:
        return replace(course, refused=error)
    return replace(course, legs=tuple(_legs(stages, job.output_path)))


def _legs(stages: Sequence[Stage], root: AnyPath) -> Iterator[Leg]:
    keys: dict[str, str] = {}
    for stage in stages:
        inputs = {name: keys[name] for name in stage.inputs}
        keys[stage.name] = digest_of({"stage": stage.name, "parameters": stage.parameters, "inputs": inputs})
        yield Leg(stage, root / "stages" / f"{stage.name}-{keys[stage.name][:16]}", stage.name)


def refuse_large(bare: Plan, courses: Sequence[Course], job: JobSpec) -> list[Course]:
    """The points, refused those that do not fit into memory; :class:`BigembedError` where none is left.

    A point that fits if neighbors are searched by cells alone does so, where that is left to be chosen.
    """
    out = []
    for course in courses:
        problems = _problems(bare, course)
        if problems and may_descend([leg.stage for leg in course.legs]):
            course = _course(course.point, job, course.source, without_descent=True)
            problems = _problems(bare, course)
        if problems:
            course = replace(course, legs=(), refused=PlanError("; ".join(problems)))
        out.append(course)
    out = named(out)
    if all(course.refused is not None for course in out):
        kind = PlanError if any(isinstance(course.refused, PlanError) for course in out) else InputError
        said = "".join(f"\n  {line}" for line in refusals(out))
        raise kind(f"{job.output_path}: every point was refused; nothing was started.{said}")
    return out


def _problems(bare: Plan, course: Course) -> list[str]:
    """What does not fit of the stages of a point that are still to do."""
    if course.refused is not None:
        return []
    own = [(leg.name, leg.stage.cost) for leg in course.legs]
    done = [leg.name for leg in course.legs if leg.published]
    return replace(bare, stages=tuple(own), published=tuple(done)).problems()


def searches(courses: Sequence[Course]) -> list[str]:
    """The points whose neighbors are searched by cells since nothing else fits."""
    return [
        f"{course.point.label}: {line}"
        for course in courses
        if course.estimator._without_descent
        for line in search_notes([leg.stage for leg in course.legs], (), Run(None))
    ]


def refusals(courses: Sequence[Course]) -> list[str]:
    """The points that were refused, each with the reason."""
    return [f"{course.point.label}: refused: {course.refused}" for course in courses if course.refused is not None]


def plan_of(
    bare: Plan, courses: Sequence[Course], job: JobSpec, rows: Input, before: Sequence[Stage], done: Sequence[str]
) -> Plan:
    """The plan of the stages ``before`` all points, of which some are ``done``, and of the points not refused."""
    legs = {leg.name: leg for course in courses for leg in course.legs}
    copied = [(name, cost) for name, cost in costs_of(job, rows, []) if name == "input"]
    first = [(stage.name, stage.cost) for stage in before]
    read = 32 * rows.shape[0] * len(courses)
    page = PAGE, Cost(read=read, coordinator=rows.loading + PAGE_BYTES)
    return replace(
        bare,
        stages=(*copied, *first, *((name, leg.stage.cost) for name, leg in legs.items()), page),
        published=(*done, *(name for name, leg in legs.items() if leg.published)),
        notes=(*refusals(courses), *searches(courses)),
    )


FOLDER = "steps"
"""Of the run, in the output of the sweep."""


def steps_of(job: JobSpec, rows: Input, passes: Callable[[RowSource], float]) -> tuple[Prepared, Run | None]:
    """The steps as far as they are published, and their run if it is there. ``passes``: of all points together."""
    root = job.output_path / FOLDER
    run = Run(root) if job.steps and root.exists() else None
    return prepared(steps_before(job), rows.source(), run, passes), run


def fitted_steps(
    job: JobSpec, rows: Input, passes: Callable[[RowSource], float], observer: Callable[[Any], None]
) -> Prepared:
    """The steps, those computed that are not there."""
    if not job.steps:
        return Prepared((), rows.source())
    run = Run(job.output_path / FOLDER)
    with locked(run):
        supersede(prepared(steps_before(job), rows.source(), run, passes).stages, run, whole=True)

    def compute(stages: Sequence[Stage], run: Run) -> None:
        run_stages(stages, run)

    with using(observer=observer):
        found = prepared(steps_before(job), rows.source(), run, passes, compute)
        run_stages((), run, of=found.stages)
    return found
