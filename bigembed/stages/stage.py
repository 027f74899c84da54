"""Stages: what a method consists of, and the runner that computes, publishes and resumes them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bigembed.errors import DamagedError, DamageWarning, MissingPathError, PlanError
from bigembed.runtime import Event, Observer, StageClock, runtime_now, using
from bigembed.runtime.blocks import one_blas_thread
from bigembed.runtime.client_executor import TERMINATE
from bigembed.runtime.executors import CurrentClient, chosen_executor, executor_now
from bigembed.stages import runs
from bigembed.stages.cost import Cost
from bigembed.stages.journal import StageJournal
from bigembed.stages.reuse import Identity, Prints, identity_of, outdated, supersede, usable
from bigembed.store import AnyPath, PathLike, at, files, manifests, remove, remove_file, stored, superseded
from bigembed.store.exchange import FORMAT, Exchange
from bigembed.store.files import digest_of
from bigembed.store.locks import Lock, hold
from bigembed.store.manifests import Manifest

# ---------------------------------------------------------------------------------------------------------- stages
# Stages: what a method consists of, and the runner that computes, publishes and resumes them.
#
# A :class:`Stage` says what it reads, what it depends on, what it costs (arithmetic on n, d and the parameters) and
# how it is computed. A method lists its stages; ``fit``, ``plan``, ``run``, resume and the certificate all walk that
# one list.


@dataclass(frozen=True)
class Stage:
    """Describe one resumable step: a pure function of its inputs and parameters."""

    name: str
    inputs: tuple[str, ...]
    """The stages whose content it reads: it can open no others."""
    parameters: Mapping[str, Any]
    run: Callable[[Context], Mapping[str, Any]]
    cost: Cost = field(default_factory=Cost)
    resumes: bool = False
    """Whether a part of the stage goes on from states in its exchange (a solver, a descent), which has journals of its
    own steps."""
    on_demand: bool = False
    """Whether ``fit`` leaves it out: it writes what can also be had lazily. Jobs run it."""
    holds: Callable[[Mapping[str, Any]], bool] = lambda results: True
    """Whether what an earlier version published with the same key, and these results, is what this one would make."""
    parameters_of: tuple[str, ...] = ()
    """Those of its inputs whose parameters it reads, too: content alone need not tell them."""
    opens: Mapping[str, runs.Opened] = field(default_factory=dict)
    """Of inputs of which it opens some arrays only, their names (none where it reads results alone); of others all."""


@dataclass(frozen=True)
class Context:
    """Give the function of a stage what it works with: the inputs that the stage declares, and folders of its own."""

    stage: Stage
    home: runs.DeclaredInputs | runs.PartOfRun
    exchange: Exchange
    observer: Observer

    def path(self, array: str) -> str:
        """Return where this stage writes an array.

        Parameters
        ----------
        array : str
            The name of the array; with no name, the path is that of the stage's folder, ending in a slash.

        Returns
        -------
        str
            The path.
        """
        return runs.inside(self.home.root, self.stage.name, array)

    def of(self, stage: str, array: str = "") -> str:
        """Return where an array of an earlier stage lies.

        Parameters
        ----------
        stage : str
            The name of the stage, one of the inputs.
        array : str
            The name of the array.

        Returns
        -------
        str
            The path.
        """
        return self.home.path(stage, array)

    def results(self, stage: str) -> dict[str, Any]:
        """Return the numbers that an earlier stage returned.

        Parameters
        ----------
        stage : str
            The name of the stage, one of the inputs.

        Returns
        -------
        dict
            The numbers, by name.
        """
        return self.home.results(stage)

    def note(self, message: str) -> None:
        """Report a line of progress.

        Parameters
        ----------
        message : str
            The line.
        """
        self.observer(Event("note", self.stage.name, message=message))


def run_stages(
    stages: Sequence[Stage],
    run: runs.Run,
    of: Sequence[Stage] = (),
    supersede_first: bool = True,
    retention: runs.Retention | None = None,
) -> None:
    """Compute and publish every stage that is not published already with the same key.

    What is published of them for something else is superseded before anything is computed. ``of``: all stages of the
    run, where ``stages`` are those to compute now; any other is then superseded, too, and deleted at the end.
    ``supersede_first``: False for a job that holds the run and has superseded what they replace. ``retention``: what
    stays of stages that nothing reads any more; by default everything, and what was dropped before is made anew.
    """
    observer, prints = runtime_now().observer, Prints()
    with locked(run) as lock, one_blas_thread(), chosen_executor():
        if supersede_first and not run.temporary:
            supersede(of or stages, run, all_listed=bool(of), prints=prints, retention=retention)
        readers = _to_compute(of or stages, run, prints, retention)
        here = {stage.name for stage in stages}
        others = () if retention is None else retention.stages
        done = [one.name for one in others if one.name not in here and run.has(one.name)]
        if retention is not None:
            runs.release(run, retention, done, again=True)
        for stage in stages:
            try:
                _run_stage(stage, run, observer, lock, prints, readers, retention)
                done.append(stage.name)
                if retention is not None:
                    if lock is not None:
                        lock.check()
                    runs.release(run, retention, done)
            except KeyboardInterrupt:  # (where exactly it came helps nobody)
                kept = "" if run.temporary else f"; what is finished is kept in {run.root}, and the same call goes on"
                raise KeyboardInterrupt(f"stopped in stage {stage.name!r}{kept}") from None
        if of and not run.temporary:
            superseded.clear(run.root, keep=[stage.name for stage in of])


def _to_compute(
    stages: Sequence[Stage], run: runs.Run, prints: Prints, retention: runs.Retention | None
) -> list[Stage]:
    """The stages that may be computed, where something of the run was dropped that they may open."""
    if not any(runs.dropped_in(run)):
        return []
    why = outdated(stages, run, prints, retention)
    return [stage for stage in stages if stage.name in why]


def _run_stage(
    stage: Stage,
    run: runs.Run,
    observer: Observer,
    lock: Lock | None,
    prints: Prints,
    readers: Sequence[Stage],
    retention: runs.Retention | None,
) -> None:
    identity = identity_of(stage, run, prints=prints)
    if not run.temporary:
        superseded.restore(run.root, stage.name, identity.key)
    found, _ = usable(stage, identity, run)
    if found is not None and runs.lacks(found, readers, retention):
        superseded.supersede(run.root, found, runs.DROPPED)  # (its digest is known as long as it is not there)
        found = None
    if found is not None:
        run.forget(stage.name)
        run.note(found)
        if not run.temporary:
            superseded.forget(run.root, stage.name)  # (of a process that was killed when it had published the stage)
            remove(exchange_home(run) / stage.name)
        observer(Event("reused", stage.name, results=found.results))
        return
    remove_file(manifests.path_of(run.root, stage.name))
    run.forget(stage.name)
    observer(Event("start", stage.name))
    began = time.perf_counter()
    exchange, resumed = _exchange(run, stage, identity, observer)
    make = partial(_made, stage, run, identity, observer, lock)
    try:
        made = make(exchange, resumed)
    except DamagedError as error:
        if not resumed:
            raise
        warnings.warn(f"{error}; stage {stage.name!r} begins anew", DamageWarning, stacklevel=2)
        exchange.clear()
        made = make(_exchange(run, stage, identity, observer)[0], False)
    run.note(made)
    if not run.temporary:
        superseded.forget(run.root, stage.name)
    with using(clock=StageClock()):  # (its tasks are of the stage, in a trace as well)
        exchange.clear()
    observer(Event("done", stage.name, time.perf_counter() - began, made.results, shares=made.measured["shares"]))


def _made(
    stage: Stage,
    run: runs.Run,
    identity: Identity,
    observer: Observer,
    lock: Lock | None,
    exchange: Exchange,
    resumed: bool,
) -> Manifest:
    """Compute and publish a stage; where the journal of a start that was stopped is not there, it begins anew."""
    folder = run.root / "stages" / stage.name
    home = runs.DeclaredInputs(run, stage.name, stage.inputs, stage.parameters_of, stage.opens)
    context = Context(stage, home, exchange, observer)
    journal = None if run.temporary else StageJournal(exchange.root, folder)
    if journal is None or not (resumed and journal.found):
        remove(folder)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    executor = executor_now()
    clock = StageClock(threads=executor.threads, here=executor.in_this_process)
    with using(journal=journal, clock=clock), journal or nullcontext():
        results = stage.run(context)
        if lock is not None:
            lock.check()
        measured = {"seconds": round(time.perf_counter() - began, 3), "shares": clock.shares()}
        known = identity.key, stage.parameters, identity.inputs, results, measured, identity.reads
        return manifests.publish(run.root, stage.name, *known)


def _exchange(run: runs.Run, stage: Stage, identity: Identity, observer: Observer) -> tuple[Exchange, bool]:
    """The exchange of the stage, and whether it is what a stopped run left of it, to go on from."""
    root = exchange_home(run) / stage.name
    key = identity.key
    mark, own = root / "key.json", {"key": key, "format": FORMAT, "reads": dict(identity.reads)}
    with suppress(DamagedError, MissingPathError):
        found = files.read_json(mark)
        same = isinstance(found, dict) and {"reads": own["reads"], **found} == own  # (earlier versions did not look)
        if same and (stage.resumes or StageJournal(str(root), run.root / "stages" / stage.name).found):
            return Exchange(str(root)), True
        if not same and key == (found.get("key") if isinstance(found, dict) else found):
            text = "begins anew: an interrupted run of another version of bigembed left what this one cannot go on from"
            observer(Event("note", stage.name, message=text))
    remove(root)
    if not run.temporary:  # (which nobody resumes)
        files.write_json(mark, own)
    return Exchange(str(root)), False


def exchange_home(run: runs.Run) -> AnyPath:
    """Where the exchanges of a run lie: in it, or in the scratch folder of the runtime, under its own name."""
    scratch = runtime_now().scratch
    if scratch is None or run.temporary:
        return run.root / "exchange"
    return at(scratch) / f"exchange-{digest_of(str(run.root))[:16]}"


def left_behind(run: runs.Run) -> str:
    """Return a digest of what a run that was stopped has for the next start: stages, journals, states, pieces.

    Journals grow, states are written anew, and pieces are told by their names.
    """
    folder = exchange_home(run)
    found = [file for file in stored(folder) if not file.name.endswith(".partial")] if folder.is_dir() else []
    states = [file.stamp for file in found if "state" in file.name]
    lengths = [file.size for file in found if "/journal/" in file.name]
    return digest_of([run.published(), [file.name for file in found], states, lengths])


@contextmanager
def locked(run: runs.Run) -> Iterator[Lock | None]:
    """Hold the run, unless :func:`keeping` holds it already, or it is temporary, so that nobody else knows it."""
    if run.temporary:
        yield None
    elif (lock := runtime_now().locks.get(str(run.root))) is not None:
        yield lock
    else:
        with hold(run.root) as lock:
            manifests.repair_group(run.root, run.kind)
            yield lock


def keeping_copies(workdir: PathLike | None, copied: bool) -> AbstractContextManager[Any]:
    """Hold the run of a fit from the copy of its rows on, where they are ``copied`` into it.

    Another process that begins with other rows would write over the copy, or delete it. What is held already stays so.
    """
    if workdir is None or not copied or str(at(workdir).absolute()) in runtime_now().locks:
        return nullcontext()
    return keeping(runs.Run(workdir))


@contextmanager
def keeping(run: runs.Run) -> Iterator[Lock]:
    """Hold the run over several :func:`run_stages`, for a job that does more than those."""
    with hold(run.root) as lock, using(locks={**runtime_now().locks, str(run.root): lock}):
        manifests.repair_group(run.root, run.kind)
        yield lock


# ----------------------------------------------------------------------------------------------------- part of a run


def within(stage: Stage, prefix: str) -> Stage:
    """Return a stage under a prefix, which opens its inputs under it, too."""
    inputs, asked = (tuple(prefix + name for name in names) for names in (stage.inputs, stage.parameters_of))
    run = partial(run_within, stage=stage, prefix=prefix)
    opens = {prefix + name: opened for name, opened in stage.opens.items()}
    return replace(stage, name=prefix + stage.name, inputs=inputs, parameters_of=asked, run=run, opens=opens)


def run_within(context: Context, stage: Stage, prefix: str) -> Any:
    """Run the function of a stage, which knows the stages of its part by their own names."""
    return stage.run(replace(context, home=runs.PartOfRun(context.home, prefix)))


# ------------------------------------------------------------------------------------------------- memory of workers

MARGIN = 0.1
"""Share added to what processes are planned to hold: fragments that the allocator does not give back."""


def require_worker_memory(stages: Sequence[Stage], run: runs.Run, blocks: int | None = None) -> None:
    """Raise PlanError where tasks of a stage that is not published cannot fit into a worker of the current client.

    Of a job, its own plan has seen to that. ``blocks``: how many tasks a map has; None if that is not known.
    """
    executor = executor_now()
    if not isinstance(executor, CurrentClient) or not (workers := executor.workers):
        return
    todo = [stage for stage in stages if not stage.on_demand and stage.name not in run.published()]
    if not todo:
        return
    heaviest = max(todo, key=lambda stage: stage.cost.memory)
    for address, worker in workers.items():
        threads, limit, bare = int(worker["nthreads"]), int(worker["memory_limit"] or 0), _bare(worker)
        tasks = threads if blocks is None else min(threads, -(-blocks // len(workers)))
        peak = bare + int((1 + MARGIN) * tasks * heaviest.cost.memory)
        if limit and peak > TERMINATE * limit:
            fewer = ", or with fewer threads each" if tasks > 1 else ""
            need = _mib(peak / TERMINATE + (1 << 20))
            raise PlanError(
                f"worker {address} would hold {_mib(peak)} (stage {heaviest.name!r}, {tasks} at a time; {_mib(bare)} "
                f"of it what it holds now) and may hold {_mib(TERMINATE * limit)} of its limit {_mib(limit)}: nothing "
                f"was computed. Start workers with memory_limit={need!r} or more{fewer}"
            )


def _bare(worker: dict[str, Any]) -> int:
    """Return what a worker holds now, without results of tasks that it may write to its disk."""
    metrics = worker.get("metrics", {})
    return max(0, int(metrics.get("memory", 0)) - int(metrics.get("managed_bytes", 0)))


def _mib(count: float) -> str:
    return f"{count / (1 << 20):.0f} MiB"
