"""What a job will read, hold and write, by its stages' own arithmetic; the refusal of what cannot fit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from bigembed.errors import InputError, PlanError
from bigembed.estimator.base import MANY_ROWS
from bigembed.estimator.preprocessing import SAMPLES
from bigembed.estimator.sampling import BYTES, ROWS
from bigembed.estimator.saving import saved_arrays
from bigembed.jobs import condensed_input, parameters, size
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places import Place
from bigembed.jobs.places.cluster import machine_memory, named_kind
from bigembed.jobs.planning import Rates, rates, shared_bandwidth
from bigembed.jobs.planning.notes import WindowPlan, compilation_seconds
from bigembed.jobs.planning.resources import Peaks, Resources, remains, resources_of
from bigembed.jobs.planning.times import PlannedStage, TimeModel, moved
from bigembed.jobs.row_ids import ids_cost
from bigembed.maps import method
from bigembed.quality.passes import LOADED
from bigembed.rows.formats.tables import check_table
from bigembed.runtime.blocks import block_rows
from bigembed.runtime.client_executor import TERMINATE
from bigembed.stages import ArraySpec, Cost, Run, Stage, buffer
from bigembed.store import UNLIMITED, at, free_bytes, is_url, nearest_folder
from bigembed.store.locks import why_closed
from bigembed.store.requests import library

PICTURE_BYTES = 192 << 20
"""Blocks of coordinates and the canvas that a picture holds at a time."""
TABLE_BYTES = 192 << 20
"""Blocks of coordinates, and pyarrow, that the writer of a table holds."""
LOOKS_OF_CELL = {".csv": 70.0, ".parquet": 8.0, ".npy": 0.5}
"""What writing a cell of a table takes, by its suffix: as long as so many look-ups."""
DRAWN, LOOKS_OF_DRAWN = 3e7, 2.0
"""What a picture takes, and each row of it, in look-ups."""
REPORT_BYTES = 160 << 20
"""Blocks of coordinates, and the grids and pixels that a report holds at a time."""
VIEW_ROW_BYTES, VIEW_ROWS = 700, 1 << 20
"""What the page of every row holds for a row in work, and of how many rows at a time: blocks of four threads."""


@dataclass(frozen=True)
class Plan:
    """Stages and their costs, and the sums of them."""

    input: str
    output: str
    shape: tuple[int, int]
    dtype: str
    resources: Resources
    stages: tuple[tuple[str, Cost], ...]
    published: tuple[str, ...]
    """Stages that are there already with the parameters and inputs of this job, and will be used again."""
    free_disk: int
    """Where the output lies."""
    rates: Rates | None = None
    """Of the machine that plans, which stands for all of them."""
    advice: tuple[str, ...] = ()
    """What would fit, if this does not."""
    scratch: str | None = None
    """Where exchanges lie, if not with the output."""
    damaged: tuple[str, ...] = ()
    """What is not as it was published, and will be made anew."""
    notes: tuple[str, ...] = ()
    """What else there is to say."""
    without_descent: bool = False
    """Whether the automatic choice of the search is left the cells alone, since NN-descent would not fit."""
    method: str = ""
    bare: bool = False
    """Whether no task loads numba."""
    folder: str = "[output] path"
    """What is given another value for another disk."""
    window: float | None = None
    """Seconds that each start has, if it has a deadline."""
    walltime: float | None = None
    """Seconds that a worker has, if a queue ends it."""
    freed: Mapping[str, int] = field(default_factory=dict)
    """Bytes that are deleted when a stage is done, where the job does not keep them."""
    remains: tuple[int, int] = (0, 0)
    """Bytes that a stopped job left in unfinished stages and in exchanges: they are gone on from, or deleted first."""

    @property
    def time_model(self) -> TimeModel | None:
        """Return the model that predicts seconds from costs, if the rates of the machine are known."""
        if self.rates is None:
            return None
        where, apart = self.resources, self.apart
        at_once = min(where.workers, len(os.sched_getaffinity(0))) if where.of.local else where.workers
        return TimeModel(self.rates, at_once, where.task, where.start, where.bandwidth if apart else None, apart)

    @property
    def apart(self) -> bool:
        """Whether its workers may be on several machines, which share the files."""
        return not (self.resources.of.local or self.resources.of.inside)

    @property
    def lower_bound(self) -> bool:
        """Whether it takes longer than planned, since nobody knows how quick the files are that all workers share."""
        return self.apart and not self.resources.bandwidth

    @property
    def moved(self) -> int:
        """Return the bytes that what is still to do moves through files."""
        return sum(moved(cost) for name, cost in self.costs if name not in self.published)

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Planned seconds of each stage; {} where the rates are not known."""
        model = self.time_model
        return {name: model.seconds(cost, self._blocks) for name, cost in self.costs} if model else {}

    @property
    def _blocks(self) -> int:
        n, d = self.shape
        return -(-n // block_rows(d, np.dtype(self.dtype).itemsize))

    @property
    def windows(self) -> list[WindowPlan]:
        """Return what is done in windows of the time that a start has, and that a worker has."""
        model, seconds = self.time_model, self.stage_seconds
        given = [(self.window, "start"), (self.walltime, "worker")]
        if model is None:
            return []
        todo = [(name, cost) for name, cost in self.costs if name not in self.published]
        stages = tuple((name, seconds[name], model.block_seconds(cost, self._blocks)) for name, cost in todo)
        return [WindowPlan(of, whole, self.resources.start, stages) for whole, of in given if whole is not None]

    @property
    def outline(self) -> dict[str, PlannedStage]:
        """What is planned of the time of each stage; {} where the rates are not known."""
        model = self.time_model
        return {name: model.outline(cost, self._blocks) for name, cost in self.costs} if model else {}

    @property
    def seconds(self) -> float | None:
        """Planned seconds of what is still to do, the start of the processes with it."""
        if self.rates is None:
            return None
        todo = [seconds for name, seconds in self.stage_seconds.items() if name not in self.published]
        return self.resources.start + sum(todo)

    @property
    def compilation(self) -> float:
        """Return seconds that compiling takes at first use, beside the planned ones; 0 where all of it was done
        before."""
        todo = [] if self.bare else self._todo()
        return compilation_seconds(self.method, todo, few=self.shape[0] < MANY_ROWS)

    @property
    def costs(self) -> list[tuple[str, Cost]]:
        """Return stages and their costs, with what they read and write where the vectors of a solve will be."""
        return [(name, self.peaks.cost_of(cost)) for name, cost in self.stages]

    @property
    def peaks(self) -> Peaks:
        """Return what the processes hold at the most, in the stages that are still to do."""
        return Peaks(self.resources, [cost for _, cost in self._todo()], self._blocks)

    def _todo(self) -> list[tuple[str, Cost]]:
        """Return the stages that are not there yet."""
        return [(name, cost) for name, cost in self.stages if name not in self.published]

    @property
    def stage_memory(self) -> dict[str, dict[str, int]]:
        """Planned peaks of each stage, by process; compiled functions stay in the coordinating one after a solve."""
        found, alone = {}, self
        for name, cost in self.stages:
            found[name] = replace(alone, stages=((name, cost),), published=()).memory
            if cost.held and name not in self.published:
                where = alone.resources
                after = replace(where, coordinator=where.coordinator + where.compiler, compiler=0)
                alone = replace(alone, resources=after)
        return found

    @property
    def memory(self) -> dict[str, int]:
        """Return the largest memory that each process will hold."""
        peaks = self.peaks
        return {"worker": peaks.worker, "coordinator": peaks.coordinator, "total": peaks.total}

    @property
    def disk_peak(self) -> int:
        """Most that the stages not yet published will add to the disk at any moment."""
        stored = peak = 0
        for name, cost in self.costs:
            if name not in self.published:
                peak = max(peak, stored + cost.disk + (0 if self.scratch else cost.scratch))
                stored += cost.disk
            stored -= self.freed.get(name, 0)
        return peak

    @property
    def disk_kept(self) -> int:
        """Bytes of all stages that stay when the job is done."""
        return max(0, int(self.total("disk")) - sum(self.freed.values()))

    def total(self, what: str) -> float:
        """Sum of a cost over the stages."""
        return float(sum(getattr(cost, what) for _, cost in self.costs))

    def problems(self) -> list[str]:
        """List what does not fit into memory or on the disk, each with a proposal."""
        late = [problem for window in self.windows for problem in window.problems()]
        return [*self._memory_problems(), *self._disk_problems(), *late]

    def refuse(self) -> None:
        """:class:`PlanError` if something does not fit, :class:`InputError` where nothing may be written."""
        if closed := self._closed_folders():
            raise InputError("\n  ".join(closed))
        if found := self.problems():
            lines = "\n  ".join([*found, *self.advice])
            raise PlanError(f"{self.output}: refused; nothing was started.\n  {lines}")

    def as_dict(self) -> dict[str, Any]:
        """For ``--json`` and for the record of a run."""
        seconds = self.stage_seconds
        own = {name: getattr(self, name) for name in ("input", "output", "shape", "dtype", "published", "damaged")}
        own |= {name: getattr(self, name) for name in ("disk_peak", "memory", "seconds", "compilation")}
        own |= {name: getattr(self, name) for name in ("advice", "notes", "without_descent", "lower_bound")}
        return own | {
            "place": asdict(self.resources),
            "stages": [{"name": name, **cost.figures(), "seconds": seconds.get(name)} for name, cost in self.costs],
            "passes": self.total("passes"),
            **{name: int(self.total(name)) for name in ("read", "write", "exchanged", "disk")},
            "free_disk": None if self.free_disk == UNLIMITED else self.free_disk,
            "rates": None if self.rates is None else asdict(self.rates),
            "problems": self.problems(),
            "vectors": self.peaks.vectors,
            "windows": [window.as_dict() for window in self.windows],
        }

    def _memory_problems(self) -> list[str]:
        given, peaks, out = self.resources, self.peaks, []
        heaviest = max(self._todo(), key=lambda item: item[1].memory, default=("", Cost()))
        if given.memory_limit is not None and peaks.worker > TERMINATE * given.memory_limit:
            need = int(peaks.worker / TERMINATE) + (1 << 20)
            who = "this process" if given.of.inside else "a worker"
            out.append(
                f"{who} would hold {size(peaks.worker)} (stage {heaviest[0]!r}; {size(given.worker)} of it the bare "
                f"process) and may hold {size(TERMINATE * given.memory_limit)} of its limit "
                f"{size(given.memory_limit)}. {self._proposal(need)}"
            )
        if given.of.local:
            machine = machine_memory()
            if given.memory_limit is not None and given.memory_limit > machine:
                out.append(
                    f"[cluster] memory = {size(given.memory_limit)} for each worker is more than the {size(machine)} "
                    "of this machine. Give less, or leave it out"
                )
            if peaks.total > machine:
                fitting = peaks.fitting(machine, peaks.worker)
                fewer = f"[cluster] workers = {fitting} fit"
                advice = fewer if fitting > 0 else "a larger machine, or a cluster, is needed"
                out.append(
                    f"all processes would hold {size(peaks.total)} of the {size(machine)} of this machine; {advice}"
                )
        return out

    def _proposal(self, need: int) -> str:
        more = self.resources.of.more.format(mib=-(-need // (1 << 20)))
        if not self.resources.of.local:
            return more
        fitting = self.peaks.fitting(machine_memory(), need)
        if fitting < 1:
            return f"It needs {size(need)}, which this machine does not have: use a larger one"
        fewer = f", with workers = {fitting}" if fitting < self.resources.workers else ""
        return f"{more}{fewer}"

    @property
    def scratch_peak(self) -> int:
        """Most that lies in the folder for exchanges, if there is one."""
        todo = [cost.scratch for name, cost in self.costs if name not in self.published]
        return max(todo, default=0) if self.scratch else 0

    def _disk_problems(self) -> list[str]:
        begun, exchanged = self.remains
        if self.scratch is None:
            places = [(self.folder, self.output, self.disk_peak, self.free_disk, begun + exchanged)]
        else:
            free = free_bytes(nearest_folder(at(self.scratch)))
            places = [
                (self.folder, self.output, self.disk_peak, self.free_disk, begun),
                ("[output] scratch", self.scratch, self.scratch_peak, free, exchanged),
            ]
        return [
            f"{where}: {size(need)} would be written at the most, {size(free)} are free"
            + (f" and {size(left)} hold what was begun" if left else "")
            + f"; free {size(need - free - left)}, or put {key} on a larger disk"
            for key, where, need, free, left in places
            if need > free + left
        ]

    def _closed_folders(self) -> list[str]:
        """Say which folders this user may not write."""
        places = [(self.folder, self.output), ("[output] scratch", self.scratch)]
        folders = [(key, nearest_folder(at(where))) for key, where in places if where and not is_url(where)]
        return [f"{why_closed(folder)} ({key})" for key, folder in folders if not os.access(str(folder), os.W_OK)]


def bare_plan(job: JobSpec, rows: Input, place: Place | None, runs: Iterable[Run], calibrate: bool = False) -> Plan:
    """Return where a job will run, before its stages are costed; they are listed by now, so that their modules are
    loaded.

    ``runs``: what it left when it was stopped before.
    """
    folder, picture = nearest_folder(job.output_path), job.output.picture is not None
    speed = rates(folder, calibrate)
    asked = [(one.method.name, one.method.parameters) for one in parameters.single_jobs(job)]
    prepared = bool(job.steps) or rows.rows.sparse
    bare, compiled = is_bare(asked, prepared, rows.shape[1]), is_compiled(asked, prepared, *rows.shape)
    where = resources_of(job.cluster, rows.shape, rows.nbytes, place, picture, compiled, calibrate, bare, rows.loading)
    if place is not None and not (where.of.planned or where.bandwidth):
        shared = nearest_folder(at(job.output.scratch)) if job.output.scratch else folder
        where = replace(where, bandwidth=shared_bandwidth(place.client, shared, calibrate))
    given = str(rows.path), str(job.output_path), rows.shape, str(rows.dtype)
    scratch, left = job.output.scratch, remains(runs, job.output.scratch)
    known: dict[str, Any] = {"method": job.method.name, "bare": bare, "scratch": scratch, "remains": left}
    return Plan(*given, where, (), (), free_bytes(folder), speed, **known)


Asked = Sequence[tuple[str, Mapping[str, Any]]]
"""Methods, by name, and their parameters."""


def is_bare(methods: Asked, prepared: bool, d: int) -> bool:
    """Return whether no task loads numba, of the judgement of a map neither, whatever the rows are.

    ``prepared``: sparse, or after steps.
    """
    return not (prepared or ROWS * SAMPLES * d >= LOADED or any(compiled_from(*one) < inf for one in methods))


def is_compiled(methods: Asked, prepared: bool, n: int, d: int) -> bool:
    """Return whether tasks on n rows load numba: those of most methods only where the rows are many, or sparse and too
    wide to be judged as dense ones."""
    many = (n >= MANY_ROWS or (prepared and 8 * n * d > BYTES)) and not is_bare(methods, prepared, d)
    return many or any(n >= compiled_from(*one) for one in methods)


def compiled_from(name: str, given: Mapping[str, Any]) -> float:
    """Return the rows from which a method with these parameters calls compiled functions; infinite if it never does."""
    found: float = method(name).compiled_from
    return found if given.get("metric", "euclidean") == "euclidean" else 0.0


def need_libraries(job: JobSpec) -> None:
    """MissingExtraError if the job needs a library that is not installed."""
    if job.output.table is not None:
        check_table(job.output.table)
    paths = [job.input.path, job.input.distances, *job.aligned.values(), *vars(job.output).values()]
    if any(path is not None and is_url(path) for path in paths):
        library()
    if named := named_kind(job.cluster):
        named.require()


def costs_of(job: JobSpec, rows: Input, stages: Sequence[Stage]) -> list[tuple[str, Cost]]:
    """Of the stages of the method, and of what the job does before and after them."""
    costs = [*input_costs(rows), *((stage.name, stage.cost) for stage in stages)]
    if is_url(job.output.scratch or job.output_path):  # (where no process has a file that it writes over)
        costs = [(name, replace(cost, part=0)) for name, cost in costs]
    if isinstance(rows, condensed_input.CondensedInput) and job.condense is not None and job.condense.place:
        width = job.method.parameters.get("n_components", method(job.method.name)().n_components)
        costs.append((condensed_input.PLACED, rows.placing(width, job.condense.dtype)))
    if job.output.model is not None:
        kept = saved_arrays(method(job.method.name), stages)
        costs.append(("model", Cost.of(kept, kept)))
    n = rows.shape[0]
    plane = [ArraySpec("two coordinates", n, 2)]
    if job.output.table is not None:
        wide = next((one.width or 1 for _, cost in costs for one in cost.arrays if one.name == "embedding"), 2)
        cells, looks = n * (wide + len(rows.aligned)), LOOKS_OF_CELL[at(job.output.table).suffix]
        reads, held = [ArraySpec("coordinates and ids", cells)], [buffer("table", TABLE_BYTES)]
        costs.append(("table", Cost.of(reads, coordinator=held, serial_ops=looks * cells)))
    if job.output.picture is not None:
        canvas = buffer("canvas", min(PICTURE_BYTES, (80 << 20) + 64 * n))
        costs.append(("picture", Cost.of(plane, coordinator=[canvas], serial_ops=DRAWN + LOOKS_OF_DRAWN * n)))
    if job.output.report is not None:
        costs.append(("report", Cost.of(plane, coordinator=[buffer("page", REPORT_BYTES)])))
    if job.output.view is not None:
        from bigembed.viewer.sources import count_sampled

        folder = [ArraySpec("tiles, leaves and indexes", n, 300, "u1")]
        layout = ArraySpec("rows of the map", min(n, VIEW_ROWS), VIEW_ROW_BYTES, "u1")
        d = 1 if job.input.graph else rows.shape[1]
        sample = ArraySpec("sampled rows, for their nearest", count_sampled(n, d), d, times=4)
        costs.append(("view", Cost.of([ArraySpec("coordinates", n, 6)], folder, coordinator=[layout, sample])))
    return costs


def input_costs(rows: Input) -> list[tuple[str, Cost]]:
    """Of the copy of the rows, where they are copied, and of their ids, where they have some."""
    costs = [] if rows.ids is None else [("ids", ids_cost(rows.ids_source()))]
    if isinstance(rows, condensed_input.CondensedInput):
        return [*input_costs(rows.all_rows), ("condense", rows.cost)]
    if rows.reader is not None:
        task = [buffer("block", 2 * min(rows.nbytes, 64 << 20))]
        costs.append(("input", Cost.of(writes=[buffer("rows", rows.nbytes)], task=task)))
    return costs
