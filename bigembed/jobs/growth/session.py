"""Around a job on a growing embedding: it is held, its input is what it was, and tasks have a place to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from bigembed.errors import ChangedInputError, DamagedError, MissingPathError
from bigembed.jobs.growth.ledger import Ledger, Snapshot, check, snapshot, suspects
from bigembed.jobs.growth.versions import Growth, Version, prepared, require_growing
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import choose
from bigembed.jobs.places.place import Place
from bigembed.jobs.session import session, working
from bigembed.jobs.watching.reporter import Reporter, RunOptions
from bigembed.store.storage.lock import Lock


@contextmanager
def growing(job: JobSpec, options: RunOptions | None) -> Iterator[tuple[Growth, Reporter, Lock]]:
    """Around a job on a growing embedding, which it holds."""
    with session(job.output_path, options, job.method.name, job.output.scratch) as command:
        require_growing(job)
        snapshot(job.input_path)  # so that nothing is made beside an input that cannot be read
        growth = prepared(job)
        with command.held(growth.root) as (reporter, lock):
            yield growth, reporter, lock


def refuse_unfitted(job: JobSpec) -> None:
    """MissingPathError before the first refresh."""
    with suppress(DamagedError):  # (there is one)
        if not Growth(job.output_path).history:
            raise MissingPathError(f"{job.output_path}: no model is there yet. Run bigembed refresh {job.file} first")


def unchanged(job: JobSpec, ledger: Ledger, there: Snapshot, verify: bool, reporter: Reporter) -> Ledger:
    """The ledger with the present times; ChangedInputError, with the remedy, if it does not hold any more."""
    doubted = sum(entry.stop - entry.start for entry in suspects(ledger, there, verify))
    try:
        with reading(job, there, reporter, doubted):
            return check(ledger, there, verify)
    except ChangedInputError as error:
        raise ChangedInputError(
            f"{error}. Nothing was changed. Put the rows back; or, if they are meant to be so, fit them as they are: "
            f"bigembed refresh {job.file} --fresh"
        ) from error


def reading(job: JobSpec, there: Snapshot, reporter: Reporter, rows: int) -> AbstractContextManager[Place]:
    """A place to read ``rows`` rows for their digests: the running cluster if the job names one, else this process."""
    return place_of_kind(job, there, reporter, "remote" if rows and job.cluster.address else "process")


def place_for(job: JobSpec, there: Snapshot, reporter: Reporter, rows: int) -> AbstractContextManager[Place]:
    """A place for tasks on ``rows`` rows: this process if they are few and the job names no cluster."""
    nbytes = rows * there.shape[1] * there.dtype.itemsize
    return place_of_kind(job, there, reporter, choose(job.cluster, (rows, there.shape[1]), nbytes))


@contextmanager
def place_of_kind(job: JobSpec, there: Snapshot, reporter: Reporter, kind: str) -> Iterator[Place]:
    """A place of this kind, as the executor."""
    with working(job.cluster, kind, reporter) as place:
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
        "left_out": sum(part.left_out for part in version.ranges),
        "unchanged": unchanged,
    }
