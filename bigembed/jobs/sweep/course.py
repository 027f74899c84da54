"""What a sweep will compute: the stages of its points, each in a folder of its own; and the plan of all of them.

The folder of a stage is named by what the stage depends on: its parameters and those of the stages before it. Points
whose first stages agree meet in the same folders; so does a sweep that is started again, or with other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, PlanError
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.plan import Plan, bare_plan, costs_of, need_libraries
from bigembed.jobs.points import Point, points_of
from bigembed.jobs.sweep.quality import quality_stages
from bigembed.methods import method
from bigembed.stages import Cost, Stage
from bigembed.store import manifest as manifests
from bigembed.store.documents import digest_of
from bigembed.store.paths import AnyPath
from bigembed.store.source import RowSource

PAGE = "page"
PAGE_BYTES = 96 << 20
"""Blocks of coordinates, and the grids and pixels that the page holds at a time."""


@dataclass(frozen=True)
class Step:
    """A stage of a point."""

    stage: Stage
    folder: AnyPath
    name: str
    """Of the stage, with the first point that has it where points differ in it."""

    @property
    def published(self) -> bool:
        """Whether it is there, as far as names and sizes say."""
        with suppress(DamagedError):
            found = manifests.find(self.folder, self.stage.name)
            return found is not None and manifests.complete(self.folder, found)
        return False


@dataclass(frozen=True)
class Course:
    """A point with what it takes."""

    point: Point
    estimator: Any
    source: RowSource
    steps: tuple[Step, ...] = ()
    refused: BigembedError | None = None
    """Why it is not computed."""


def plan_sweep(job: JobSpec, place: Place | None = None, rows: Input | None = None, *, calibrate: bool = False) -> Plan:
    """The plan of a sweep: each stage counts once, however many points share it.

    Points that are refused are left out, and named in its notes; :class:`PlanError` or :class:`InputError` where all
    are.
    """
    need_libraries(job)
    rows = rows or find_input(job)
    courses = courses_of(job, rows)
    bare = bare_plan(job, rows, place, calibrate)
    return plan_of(bare, refuse_large(bare, courses, job, rows), job, rows)


def courses_of(job: JobSpec, rows: Input) -> list[Course]:
    """The points with their stages; a point that the rows do not allow is refused."""
    courses = [_course(point, job, rows) for point in points_of(job)]
    homes: dict[str, set[AnyPath]] = {}
    for course in courses:
        for step in course.steps:
            homes.setdefault(step.stage.name, set()).add(step.folder)
    names: dict[AnyPath, str] = {}
    for course in courses:
        for step in course.steps:
            alone = len(homes[step.stage.name]) == 1
            names.setdefault(step.folder, step.stage.name if alone else f"{step.stage.name} [{course.point.label}]")
    return [
        replace(course, steps=tuple(replace(step, name=names[step.folder]) for step in course.steps))
        for course in courses
    ]


def _course(point: Point, job: JobSpec, rows: Input) -> Course:
    kind, source = method(point.method), rows.source()
    taken = {name: column for name, column in source.aligned.items() if name in kind.aligned}
    course = Course(point, kind(**point.parameters), replace(source, aligned=taken))
    try:
        stages = course.estimator.stages(course.source)
        stages += quality_stages(stages, course.estimator, course.source)
    except (InputError, InputTypeError) as error:
        return replace(course, refused=error)
    return replace(course, steps=tuple(_steps(stages, job.output_path)))


def _steps(stages: Sequence[Stage], root: AnyPath) -> Iterator[Step]:
    keys: dict[str, str] = {}
    for stage in stages:
        inputs = {name: keys[name] for name in stage.inputs}
        keys[stage.name] = digest_of({"stage": stage.name, "parameters": stage.parameters, "inputs": inputs})
        yield Step(stage, root / "stages" / f"{stage.name}-{keys[stage.name][:16]}", stage.name)


def refuse_large(bare: Plan, courses: Sequence[Course], job: JobSpec, rows: Input) -> list[Course]:
    """The points, refused those that do not fit into memory; :class:`BigembedError` where none is left."""
    out = []
    for course in courses:
        if course.refused is None:
            own = [(step.name, step.stage.cost) for step in course.steps]
            if problems := replace(bare, stages=tuple(own)).problems():
                course = replace(course, steps=(), refused=PlanError("; ".join(problems)))
        out.append(course)
    if all(course.refused is not None for course in out):
        kind = PlanError if any(isinstance(course.refused, PlanError) for course in out) else InputError
        said = "".join(f"\n  {line}" for line in refusals(out))
        raise kind(f"{job.output_path}: every point was refused; nothing was started.{said}")
    return out


def refusals(courses: Sequence[Course]) -> list[str]:
    """The points that were refused, each with the reason."""
    return [f"{course.point.label}: refused: {course.refused}" for course in courses if course.refused is not None]


def plan_of(bare: Plan, courses: Sequence[Course], job: JobSpec, rows: Input) -> Plan:
    """The plan of the points that are not refused."""
    steps = {step.name: step for course in courses for step in course.steps}
    before = [(name, cost) for name, cost in costs_of(job, rows, []) if name == "input"]
    read = 32 * rows.shape[0] * len(courses)
    page = PAGE, Cost(read=read, coordinator=rows.loading + PAGE_BYTES)
    return replace(
        bare,
        stages=(*before, *((name, step.stage.cost) for name, step in steps.items()), page),
        published=tuple(name for name, step in steps.items() if step.published),
        notes=tuple(refusals(courses)),
    )
