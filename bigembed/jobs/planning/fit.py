"""``be.plan``: what a fit in Python takes, from the stages that it would compute and by the arithmetic of jobs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import psutil

from bigembed.errors import InputTypeError, PlanError
from bigembed.estimator import base, fitting, prepare_by_fit, preprocessing, retention_of, spec_of, steps_before
from bigembed.estimator.pipeline import Pipeline, copied, counterpart_of, method_after, unnamed
from bigembed.jobs import duration, size, text_columns
from bigembed.jobs.places.cluster import machine_memory, threads_of
from bigembed.jobs.planning import footprint, imported_here, rates, resident
from bigembed.jobs.planning.notes import alternatives, pass_notes, search_notes
from bigembed.jobs.planning.plan import Plan, is_bare, is_compiled
from bigembed.jobs.planning.resources import COMPILER, FIRST_USE, Resources
from bigembed.jobs.planning.times import TASK_HERE
from bigembed.rows import RowSource
from bigembed.rows.input import StreamedRows, is_persisted
from bigembed.rows.sparse import kept_rows
from bigembed.runtime import Executor, using
from bigembed.runtime.blocks import block_rows
from bigembed.runtime.executors import LocalPool, chosen_executor, executor_now
from bigembed.stages import Cost, outdated, run_at
from bigembed.stages.runs import freed_bytes
from bigembed.store import at, free_bytes, nearest_folder
from bigembed.store.spaces import PARTS, SHARE

HEAD = ("stage", "passes", "read", "written", "kept", "memory", "time")


@dataclass(frozen=True)
class StagePlan:
    """What one stage of a fit takes."""

    name: str
    """As the stages of a run are named."""
    passes: float
    """Times that it reads the rows (in a solve, the matrix)."""
    read: int
    """Bytes."""
    written: int
    """Bytes."""
    kept: int
    """Bytes that stay on the disk after it."""
    memory: int
    """Bytes that a process which runs its tasks holds at the most."""
    seconds: float
    """From the speed of this machine."""
    reused: bool
    """Whether it is there already, with these rows and parameters."""

    def cells(self) -> tuple[str, ...]:
        """Return it as a line of a table.

        Returns
        -------
        tuple of str
            The cells.
        """
        sizes = (size(count) for count in (self.read, self.written, self.kept, self.memory))
        time = "reused" if self.reused else duration(self.seconds)
        return (self.name, f"{self.passes:.3g}", *sizes, time)


@dataclass(frozen=True, repr=False)
class FitPlan:
    """What a fit takes, before it starts; :func:`bigembed.plan` makes it."""

    title: str
    """The method, the rows, and where the tasks would run."""
    memory: int
    """Bytes that this process holds at the most, with what it holds already."""
    worker_memory: int | None
    """Bytes that a worker holds at the most; None where all tasks run in this process."""
    disk: int
    """Bytes that the fit adds to the disk at the most."""
    kept: int
    """Bytes of them that stay: until the estimator is gone, or in ``workdir``."""
    seconds: float
    """Of this machine's measured speed; what is compiled at first use is beside it."""
    compilation: float
    """Seconds of compilation at first use; 0 where it was done before."""
    passes: float
    """Times that the rows (in a solve, the matrix) are read."""
    stages: tuple[StagePlan, ...]
    problems: tuple[str, ...] = ()
    """What does not fit, each with what to do; empty where the fit can start."""
    advice: tuple[str, ...] = ()
    """Parameters with which it would fit."""
    notes: tuple[str, ...] = ()
    """What is known only when the rows are read."""
    lower_bound: bool = False
    """Whether it takes longer: nobody knows how quick the files are that workers on several machines share."""

    def refuse(self) -> None:
        """Raise an error if something does not fit, as a job refuses to start.

        Raises
        ------
        PlanError
            With what does not fit, and what would.
        """
        if self.problems:
            raise PlanError("\n  ".join([f"{self.title}: refused; nothing was started.", *self.problems, *self.advice]))

    def lines(self) -> list[str]:
        """Return what is said below the table, line by line.

        Returns
        -------
        list of str
            The lines.
        """
        workers = "" if self.worker_memory is None else f"; {size(self.worker_memory)} a worker"
        compiled = f"; {duration(self.compilation)} more for compilation at first use" if self.compilation else ""
        about = "at least" if self.lower_bound else "about"
        return [
            f"memory: {size(self.memory)} of this process at the most ({size(resident())} now){workers}",
            f"disk: {size(self.disk)} more at the most, {size(self.kept)} kept",
            f"time: {about} {duration(self.seconds)}{compiled}; passes: {self.passes:.4g}",
            *self.notes,
            *(f"does not fit: {problem}" for problem in self.problems),
            *self.advice,
        ]

    def __repr__(self) -> str:
        table = text_columns([HEAD, *(stage.cells() for stage in self.stages)], [0])
        return "\n".join([self.title, *table, *self.lines()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in HEAD)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in stage.cells()) for stage in self.stages)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        said = "".join(f"<li>{escape(line)}</li>" for line in self.lines())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<details open><summary><b>{escape(self.title)}</b></summary>{table}<ul>{said}</ul></details>"


def plan(estimator: Any, X: Any, y: Any = None, **given: Any) -> FitPlan:
    """Say what a fit to these rows takes before it starts: memory, disk, time and passes, by stage. Nothing is written.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A method with its parameters, fitted or not; it is left as it is.
    X : array of shape (n, d)
        What ``fit`` is given: rows of any kind, or a graph.
    y : array of shape (n,), or None
        Labels, for a method that takes them.
    **given : array of shape (n,)
        Vectors aligned with the rows, which ``fit`` takes by name.

    Returns
    -------
    FitPlan
        With ``memory``, ``disk``, ``seconds``, ``passes``, ``stages`` and ``problems``; ``refuse()`` raises
        :class:`bigembed.errors.PlanError` where something does not fit. It prints, and a notebook shows, a table.

    Raises
    ------
    InputError
        What ``fit`` raises of these parameters and rows.
    InputTypeError
        If it is not an estimator of this package.

    Notes
    -----
    Memory is meant as an upper bound; time is an estimate from the speed of this machine, which is measured once, in a
    second or two, and kept in the user's cache folder. No rows are read, but Dask's sparse blocks are computed to
    count their entries (once, where ``workdir`` has a run), and partitions of a lazy data frame to count their rows.

    Examples
    --------
    >>> import numpy as np, bigembed as be
    >>> found = be.plan(be.PCA(n_components=2), np.zeros((1000, 5)))
    >>> [stage.name for stage in found.stages], found.problems
    (['moments', 'solve', 'judgement'], ())
    """
    chosen = _unfitted(estimator)
    with using(executor=LocalPool()):  # (for other processes, rows in memory would be written)
        fit = prepare_by_fit(chosen, X, y, **given)
    found = _plan(chosen, X, fit)
    changes: list[dict[str, Any]] = []
    if found.problems():

        def fits(other: Any) -> bool:
            other = method_after(steps_before(chosen), other)
            with using(executor=LocalPool()):
                return not _plan(other, X, prepare_by_fit(other, X, y, **given)).problems()

        changes = alternatives(chosen, fits)
    return _shown(replace(found, advice=tuple(_words(one) for one in changes)))


def _words(changes: dict[str, Any]) -> str:
    return f"{', '.join(f'{name}={value!r}' for name, value in changes.items())} would fit"


def _unfitted(estimator: Any) -> Any:
    """Return a copy that is not fitted, of a Pipeline its method after its steps.

    Its stages are those of the ``workdir`` if there is a run; nothing is written into one that is not there yet.
    """
    *steps, last = unnamed(estimator.steps) if isinstance(estimator, Pipeline) else [estimator]
    if not isinstance(last, base.Estimator):
        raise InputTypeError(f"plan: an estimator of bigembed, or a Pipeline of such, is needed; got {last!r}")
    run = run_at(estimator.workdir)
    where = {"workdir": None if run.temporary else str(run.root), "persist": estimator.persist}
    found = copied(last, **where, **({"keep": estimator.keep} if estimator.keep != "all" else {}))
    before = steps or steps_before(last)
    return method_after([copied(counterpart_of(step)) for step in before], found) if before else found


def _plan(estimator: Any, X: Any, fit: fitting.PreparedFit) -> Plan:
    """Return the plan of a prepared fit, as jobs have it."""
    source, run, steps = _as_left(fit), fit.run, steps_before(estimator)
    again = steps or source is not fit.source
    listed = fit.stages if source is None or not again else preprocessing.all_stages(spec_of(estimator), source, run)
    stages = [stage for stage in listed if not stage.on_demand]
    n, d = (getattr(X, "n", fit.n_features), fit.n_features) if source is None else source.shape
    dtype = np.dtype(fit.dtype or np.float64) if source is None else source.dtype
    asked = [(estimator.registered, estimator.get_params())]
    prepared = source is None or bool(steps) or source.sparse
    bare, compiled = is_bare(asked, prepared, d), is_compiled(asked, prepared, n, d)
    folder = nearest_folder(at(estimator.workdir) if estimator.workdir else run.root)
    with chosen_executor() as executor:
        where = _resources(executor, compiled, few=n < base.MANY_ROWS)
        blocks = -(-n // block_rows(d, dtype.itemsize))
        costs = [(stage.name, _cost_here(stage.cost, where, executor, blocks)) for stage in stages]
        sent = fit.in_memory and source is fit.source and source is not None and not where.of.inside
        written = sent or fitting.is_copied(source, stages, estimator.persist)
    if written and source is not None:
        nbytes = n * source.row_bytes
        costs.insert(0, ("input", Cost(write=nbytes, disk=nbytes, memory=2 * source.largest_block * source.row_bytes)))
    retention = retention_of(estimator, listed)
    why = outdated(stages, run, retention=retention)
    reused = tuple(stage.name for stage in stages if stage.name not in why)
    freed = freed_bytes(run, retention, stages, reused)
    lazy = fitting.load_notes(source, stages, estimator.persist)
    notes = (*lazy, *search_notes(stages, reused, run), *pass_notes(stages, reused))
    name, output = type(estimator).__name__, str(estimator.workdir or f"a temporary folder in {folder}")
    known = name, output, (n, d), str(dtype), where, tuple(costs), reused, free_bytes(folder), rates(folder)
    return Plan(*known, notes=notes, method=estimator.registered, bare=bare, folder="workdir", freed=freed)


def _as_left(fit: fitting.PreparedFit) -> RowSource | None:
    """Return the rows as an earlier fit in the run has left them for tasks in other processes; else as they are."""
    source, scratch = fit.source, fit.run.root / "exchange"
    if source is None or executor_now().in_this_process:
        return source
    if isinstance(source, StreamedRows):
        copied_whole = is_persisted(source.lazy) and source.has_copy(scratch)
        return source.stored_copy(scratch) if copied_whole else source
    return kept_rows(source, scratch) if fit.in_memory else source


def _cost_here(cost: Cost, where: Resources, executor: Executor, blocks: int) -> Cost:
    """Return a cost with the memory of all tasks that one process runs at a time, and of vectors where they will be."""
    room = int(psutil.virtual_memory().available) // SHARE
    inside = executor.in_this_process or executor.pool is not None
    part = min(room, cost.part) if room >= cost.part / PARTS else 0
    held = (cost.held if cost.held <= room else part) if inside else 0
    if not where.of.inside:
        return replace(cost, coordinator=cost.coordinator + held, held=0)
    tasks = min(where.workers, cost.blocks or blocks)
    return replace(cost, memory=cost.memory * tasks, spared=cost.spared * tasks, held=held)


def _resources(executor: Executor, compiled: bool, few: bool) -> Resources:
    """Return where the tasks of a fit would run: on threads of this process, or where Dask has been told to."""
    here = imported_here(picture=False) + FIRST_USE
    if compiled and "numba" not in sys.modules:
        here += COMPILER if few else footprint().compiler
    if executor.in_this_process:
        return Resources("process", getattr(executor.pool, "count", 1), machine_memory(), here, here, 0, TASK_HERE)
    threads, limit = _workers()
    feet = footprint()
    near = float("inf") if executor.pool is not None else None  # (all workers are on this machine)
    return Resources("remote", threads, limit, feet.worker, here, 0, feet.task, bandwidth=near)


def _workers() -> tuple[int, int | None]:
    """Return the threads of all workers of Dask's client, and the memory of a thread; of processes, their number."""
    from dask.system import CPU_COUNT
    from distributed import default_client

    try:
        return threads_of(default_client())
    except ValueError:  # (Dask's own processes)
        return CPU_COUNT, None


def _shown(found: Plan) -> FitPlan:
    """Return a plan as users of Python see it."""
    inside, peaks, seconds = found.resources.of.inside, found.peaks, found.stage_seconds
    memory = found.stage_memory
    stages = tuple(
        StagePlan(
            name,
            cost.passes,
            cost.read + cost.exchanged,
            cost.write + cost.exchanged,
            cost.disk,
            memory[name]["worker"],
            seconds[name],
            name in found.published,
        )
        for name, cost in found.costs
    )
    (n, d), count = found.shape, found.resources.workers
    where = f"in this process, by {count} threads" if inside else f"by {count} threads of Dask's workers"
    return FitPlan(
        f"{found.input} of {n:,} × {d:,} {found.dtype}, {where}",
        peaks.coordinator,
        None if inside else peaks.worker,
        found.disk_peak,
        int(found.total("disk")),
        found.seconds or 0.0,
        found.compilation,
        found.total("passes"),
        stages,
        tuple(found.problems()),
        found.advice,
        found.notes,
        found.lower_bound,
    )
