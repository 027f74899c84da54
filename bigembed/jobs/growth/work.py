"""Around a job on a growing embedding: it is held, its input is what it was, and tasks have a place to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from bigembed.blocks.rows import executor
from bigembed.errors import ChangedInputError, DamagedError, MissingPathError
from bigembed.jobs.growth.ledger import Ledger, Present, check, present, suspects
from bigembed.jobs.growth.versions import Growth, Version, prepared
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import choose, cluster
from bigembed.jobs.places.place import Place
from bigembed.jobs.watching import logs, status
from bigembed.jobs.watching.metrics import Metrics
from bigembed.jobs.watching.reporter import Telling, Wishes, telling
from bigembed.jobs.watching.stopping import stoppable
from bigembed.stages import exchanging, observing
from bigembed.store.lock import Lock, hold
from bigembed.store.paths import AnyPath


@contextmanager
def working(job: JobSpec, wishes: Wishes) -> Iterator[tuple[Growth, Telling, Lock]]:
    """Around a job on a growing embedding: held by this process, stoppable, told of."""
    with stoppable(str(job.output_path), wishes.deadline), exchanging(job.output.scratch):
        present(job.input_path)  # so that nothing is made beside an input that cannot be read
        growth = prepared(job)
        with held(growth.root, job, wishes) as (told, lock):
            yield growth, told, lock


@contextmanager
def held(root: AnyPath, job: JobSpec, wishes: Wishes) -> Iterator[tuple[Telling, Lock]]:
    """Hold a folder for a job; its status and log are kept there."""
    metrics = Metrics(wishes.metrics, str(job.output_path), job.method.name)
    with (
        metrics,
        hold(root) as lock,
        telling(wishes, str(root), lock.owner, root / status.NAME, metrics, root / logs.NAME) as told,
    ):
        yield told, lock


def refuse_unfitted(job: JobSpec) -> None:
    """MissingPathError before the first refresh."""
    with suppress(DamagedError):  # (there is one)
        if not Growth(job.output_path).history:
            raise MissingPathError(
                f"{job.output_path}: no model is there yet. Run workflows/refresh.py {job.file} first"
            )


def unchanged(job: JobSpec, ledger: Ledger, there: Present, verify: bool, told: Telling) -> Ledger:
    """The ledger with the present times; ChangedInputError, with the remedy, if it does not hold any more."""
    doubted = sum(entry.stop - entry.start for entry in suspects(ledger, there, verify))
    try:
        with reading(job, there, told, doubted):
            return check(ledger, there, verify)
    except ChangedInputError as error:
        raise ChangedInputError(
            f"{error}. Nothing was changed. Put the rows back; or, if they are meant to be so, fit them as they are: "
            f"workflows/refresh.py {job.file} --fresh"
        ) from error


def reading(job: JobSpec, there: Present, told: Telling, rows: int) -> AbstractContextManager[Place]:
    """Where so many rows are read for their digests: on the running cluster, if the job names one, or here."""
    return placing(job, there, told, "remote" if rows and job.cluster.address else "process")


def place_for(job: JobSpec, there: Present, told: Telling, rows: int) -> AbstractContextManager[Place]:
    """Where tasks on so many of the rows run: in this process if they are few and the job names no cluster."""
    nbytes = rows * there.shape[1] * there.dtype.itemsize
    return placing(job, there, told, choose(job.cluster, (rows, there.shape[1]), nbytes))


@contextmanager
def placing(job: JobSpec, there: Present, told: Telling, kind: str) -> Iterator[Place]:
    """A place of this kind, as the executor."""
    with cluster(job.cluster, kind, told.progress, told) as place, executor(place.executor), observing(told):
        place.prove_access(job.output_path, str(job.input_path))
        yield place


def about(growth: Growth, version: Version, unchanged: bool) -> dict[str, Any]:
    """What a job returns of the version that it left as the current one."""
    return {
        "output": str(growth.root),
        "version": version.root.name,
        "model": str(version.model),
        "coordinates": str(version.array),
        "fitted": version.fitted,
        "rows": version.covered,
        "unchanged": unchanged,
    }
