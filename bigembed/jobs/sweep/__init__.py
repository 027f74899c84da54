"""Many embeddings of the same rows: what they share is computed once; their table, and a page of their maps.

What a sweep takes is here: the stages of its points, each in a folder of its own, and the plan of all of them.

The folder of a stage is named by what the stage depends on: its parameters and those of the stages before it. Points
whose first stages agree meet in the same folders; so does a sweep that is started again, or with other values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError, PlanError
from bigembed.estimator import leave_out_descent, leaves_out_descent, preprocessing, spec_of
from bigembed.estimator.pipeline import method_after
from bigembed.jobs.inputs import Input, find_input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.parameters import Point, points_of
from bigembed.jobs.places import Place
from bigembed.jobs.planning.notes import may_descend, search_notes
from bigembed.jobs.planning.plan import Plan, bare_plan, costs_of, need_libraries
from bigembed.jobs.planning.resources import runs_at
from bigembed.jobs.session import steps_of_job
from bigembed.maps import method
from bigembed.quality import NEIGHBORS, cost_of, preserved
from bigembed.rows import RowSource
from bigembed.rows.opening import open_zarr
from bigembed.runtime import using
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer, locked, outdated, run_stages, supersede
from bigembed.store import AnyPath, manifests
from bigembed.store.files import digest_of

# --------------------------------------------------------------------------------------------------------- quality
# How well the map of a point shows all rows, where its method has measured that of some of them only.

NAME, SAMPLES = "quality", 400


def quality_stages(stages: Sequence[Stage], estimator: Any, source: RowSource) -> list[Stage]:
    """Return a stage more, or none: where the figures of the method are of sampled rows among each other, those against
    all rows, so that points can be compared.

    Cost: that of :func:`bigembed.quality.preserved`.
    """
    n, metric = int(source.shape[0]), getattr(estimator, "metric", "euclidean")
    if all(stage.name != preprocessing.JUDGEMENT or stage.parameters.get("rows", n) == n for stage in stages):
        return []
    asked: dict[str, Any] = {"n_neighbors": NEIGHBORS, "samples": SAMPLES, "seed": 0}
    width = getattr(estimator, "n_components", None) or source.width
    shown = RowSource((n, int(width)), np.dtype(np.float64))
    cost = cost_of(source, shown, n_neighbors=NEIGHBORS, samples=SAMPLES)
    run = partial(run_quality, source=source, asked=asked, metric=metric)
    return [
        preprocessing.with_cost_of_mapping(
            Stage(NAME, ("coordinates",), {"metric": metric, **asked}, run, cost), source
        )
    ]


def run_quality(context: Context, source: RowSource, asked: dict[str, Any], metric: Any) -> dict[str, Any]:
    array = open_zarr(path := context.of("coordinates", "embedding"))
    coordinates = RowSource(tuple(map(int, array.shape)), np.dtype(array.dtype), path=path)
    try:
        return preserved(source, coordinates, context.exchange, metric=metric, **asked)
    except InputError as error:  # (distances beyond float64)
        return {"unmeasured": str(error)}


# -------------------------------------------------------------------------------------------------------- prepared

PAGE = "page"
PAGE_BYTES = 96 << 20
"""Blocks of coordinates, and the grids and pixels that the page holds at a time."""
FOLDER = "steps"
"""Of the run of the steps before all points, in the output of the sweep."""


@dataclass(frozen=True)
class PointStage:
    """A stage of a point, in its folder."""

    stage: Stage
    folder: AnyPath
    name: str
    """Of the stage, with the first point that has it where points differ in it."""

    @property
    def published(self) -> bool:
        """Return whether the stage is published, as far as names and sizes of its files say."""
        with suppress(DamagedError):
            found = manifests.find(self.folder, self.stage.name)
            return found is not None and self.stage.holds(found.results) and manifests.complete(self.folder, found)
        return False


@dataclass(frozen=True)
class PreparedPoint:
    """A point with its estimator, the rows that this is fitted to, and its stages."""

    point: Point
    estimator: Any
    source: RowSource
    stages: tuple[PointStage, ...] = ()
    refused: BigembedError | None = None
    """Why it is not computed."""


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep with its rows, its points, and the plan of all of them."""

    job: JobSpec
    rows: Input
    points: Sequence[PreparedPoint]
    plan: Plan

    def points_for(self, rows: Input, after_steps: preprocessing.Prepared) -> Sequence[PreparedPoint]:
        """Return the points for the rows and the fitted steps as they are now."""
        if rows is self.rows and not after_steps.steps:
            return self.points
        bare = replace(self.plan, stages=(), published=())
        return refuse_large(bare, list_points(self.job, after_steps.source), self.job)


def prepare_sweep(
    job: JobSpec, place: Place | None = None, rows: Input | None = None, *, calibrate: bool = False
) -> PreparedSweep:
    """Prepare a sweep; in its plan each stage counts once, however many points share it.

    Points that are refused are left out, and named in its notes; :class:`PlanError` or :class:`InputError` where all
    are.
    """
    need_libraries(job)
    rows = rows or find_input(job)
    after_steps, run = find_steps(job, rows)
    points = list_points(job, after_steps.source)
    folders = [job.output_path / FOLDER, *(one.folder for point in points for one in point.stages)]
    bare = bare_plan(job, rows, place, runs_at(folders), calibrate)
    todo = {} if run is None else outdated(after_steps.stages, run)
    done = [stage.name for stage in after_steps.stages if run is not None and stage.name not in todo]
    points = refuse_large(bare, points, job)
    return PreparedSweep(job, rows, points, plan_of(bare, points, job, rows, after_steps.stages, done))


def list_points(job: JobSpec, source: RowSource) -> list[PreparedPoint]:
    """Return the points with their stages for the rows after the steps; a point that the rows do not allow is
    refused."""
    return with_names([prepare_point(point, job, source) for point in points_of(job)])


def with_names(points: Sequence[PreparedPoint]) -> list[PreparedPoint]:
    """Return the points with their stages under names that differ where the stages do."""
    folders: dict[str, set[AnyPath]] = {}
    for point in points:
        for one in point.stages:
            folders.setdefault(one.stage.name, set()).add(one.folder)
    names: dict[AnyPath, str] = {}
    for point in points:
        for one in point.stages:
            alone = len(folders[one.stage.name]) == 1
            names.setdefault(one.folder, one.stage.name if alone else f"{one.stage.name} [{point.point.label}]")
    return [
        replace(point, stages=tuple(replace(one, name=names[one.folder]) for one in point.stages)) for point in points
    ]


def prepare_point(point: Point, job: JobSpec, source: RowSource, cells_only: bool = False) -> PreparedPoint:
    """List the stages of a point. ``cells_only``: whether its search leaves out NN-descent."""
    kind = method(point.method)
    taken = {name: column for name, column in source.aligned.items() if name in kind.aligned}
    chosen = method_after(steps_of_job(job), kind(**point.parameters))
    if cells_only:
        leave_out_descent(chosen)
    prepared = PreparedPoint(point, chosen, replace(source, aligned=taken))
    try:
        stages = preprocessing.stages_after(spec_of(chosen), prepared.source)
        stages += quality_stages(stages, chosen, prepared.source)
    except (InputError, InputTypeError) as error:
        return replace(prepared, refused=error)
    keys: dict[str, str] = {}
    placed = []
    for stage in stages:
        inputs = {name: keys[name] for name in stage.inputs}
        keys[stage.name] = digest_of({"stage": stage.name, "parameters": stage.parameters, "inputs": inputs})
        folder = job.output_path / "stages" / f"{stage.name}-{keys[stage.name][:16]}"
        placed.append(PointStage(stage, folder, stage.name))
    return replace(prepared, stages=tuple(placed))


def refuse_large(bare: Plan, points: Sequence[PreparedPoint], job: JobSpec) -> list[PreparedPoint]:
    """Return the points, refused those that do not fit into memory; :class:`BigembedError` where none is left.

    A point that fits if neighbors are searched by cells alone does so, where that is left to be chosen.
    """
    out = []
    for point in points:
        problems = _problems(bare, point)
        if problems and may_descend([one.stage for one in point.stages]):
            point = prepare_point(point.point, job, point.source, cells_only=True)
            problems = _problems(bare, point)
        if problems:
            point = replace(point, stages=(), refused=PlanError("; ".join(problems)))
        out.append(point)
    out = with_names(out)
    if all(point.refused is not None for point in out):
        kind = PlanError if any(isinstance(point.refused, PlanError) for point in out) else InputError
        reasons = "".join(f"\n  {line}" for line in refusals(out))
        raise kind(f"{job.output_path}: every point was refused; nothing was started.{reasons}")
    return out


def _problems(bare: Plan, point: PreparedPoint) -> list[str]:
    """Return what does not fit of the stages of a point that are still to do."""
    if point.refused is not None:
        return []
    own = [(one.name, one.stage.cost) for one in point.stages]
    done = [one.name for one in point.stages if one.published]
    return replace(bare, stages=tuple(own), published=tuple(done)).problems()


def refusals(points: Sequence[PreparedPoint]) -> list[str]:
    """Return the points that were refused, each with the reason."""
    return [f"{point.point.label}: refused: {point.refused}" for point in points if point.refused is not None]


def plan_of(
    bare: Plan, points: Sequence[PreparedPoint], job: JobSpec, rows: Input, before: Sequence[Stage], done: Sequence[str]
) -> Plan:
    """Return the plan of the stages ``before`` all points, of which some are ``done``, and of the points not
    refused."""
    own = {one.name: one for point in points for one in point.stages}
    around = dict(costs_of(job, rows, []))
    copy = [(name, around[name]) for name in ("input",) if name in around]
    views = [(f"view [{point.point.label}]", around["view"]) for point in points if "view" in around]
    first = [(stage.name, stage.cost) for stage in before]
    maps = ArraySpec("two coordinates of each map", rows.shape[0], 2, times=2 * len(points))
    page = PAGE, Cost.of([maps], coordinator=[buffer("page", PAGE_BYTES)])
    searches = [
        f"{point.point.label}: {line}"
        for point in points
        if leaves_out_descent(point.estimator)
        for line in search_notes([one.stage for one in point.stages], (), Run(None))
    ]
    return replace(
        bare,
        stages=(*copy, *first, *((name, one.stage.cost) for name, one in own.items()), *views, page),
        published=(*done, *(name for name, one in own.items() if one.published)),
        notes=(*refusals(points), *searches),
    )


# ----------------------------------------------------------------------------------------------------------- steps
# The steps before all points: fitted once, in a run of their own.


def passes_over(job: JobSpec) -> Callable[[RowSource], float]:
    """Return how often the stages of all points, each counted once, read rows."""

    def passes(source: RowSource) -> float:
        reading: dict[AnyPath, float] = {}
        for point in list_points(job, source):
            names = {stage.name for stage in preprocessing.reading_rows([one.stage for one in point.stages])}
            reading |= {one.folder: one.stage.cost.passes for one in point.stages if one.stage.name in names}
        return sum(reading.values())

    return passes


def find_steps(job: JobSpec, rows: Input) -> tuple[preprocessing.Prepared, Run | None]:
    """Return the steps as far as they are published, and their run if it is there."""
    root = job.output_path / FOLDER
    run = Run(root) if job.steps and root.exists() else None
    return preprocessing.prepare_steps(steps_of_job(job), rows.source, run, passes_over(job)), run


def fit_steps(job: JobSpec, rows: Input, observer: Callable[[Any], None]) -> preprocessing.Prepared:
    """Fit the steps before all points, as far as they are not published."""
    if not job.steps:
        return preprocessing.Prepared((), rows.source)
    run, passes = Run(job.output_path / FOLDER), passes_over(job)
    with locked(run):
        supersede(preprocessing.prepare_steps(steps_of_job(job), rows.source, run, passes).stages, run, all_listed=True)
    with using(observer=observer):
        found = preprocessing.prepare_steps(steps_of_job(job), rows.source, run, passes, run_stages)
        run_stages((), run, of=found.stages)
    return found
