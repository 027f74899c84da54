"""An extension: the rows appended to a growing input get their coordinates by the current model, each row once.

Killed at any moment, it leaves what was published as it was; the same call goes on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bigembed.errors import DamagedError, ExistingOutputError, InputError
from bigembed.estimator.extension import leaves_out
from bigembed.estimator.protocol import extension_of, run_of
from bigembed.estimator.transform import coordinates_of, through_steps
from bigembed.jobs.extend import is_compiled
from bigembed.jobs.growth import account, versions
from bigembed.jobs.growth.repair import ledger_of, repair, restore, with_remedy
from bigembed.jobs.growth.table import refuse_foreign, write_table_of
from bigembed.jobs.identity import key_of_growth
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster import is_planned
from bigembed.jobs.places.place import Place
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.planning.resources import remains, resources_of, runs_at
from bigembed.jobs.watching.reporter import Reporter, RunOptions
from bigembed.maps.registry import load
from bigembed.rows.growing import StoreRows, append_source
from bigembed.rows.source import RowSource
from bigembed.stages import Run, Stage, run_stages
from bigembed.store.arrays import read_array
from bigembed.store.locks import Lock
from bigembed.store.paths import AnyPath, free_bytes, nearest_folder, remove

RANGE_ROWS = 1 << 20
"""New rows that are placed and published together at the most: what a kill can cost."""


def extend(job: JobSpec, options: RunOptions | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Return coordinates, by the current model, of the rows appended since the last call: each row exactly once.

    They are placed in ranges. A range becomes visible whole, in one step with its account (digest of its rows and of
    the model); a repeated call starts after the last one. Raises :class:`ChangedInputError` as :func:`refresh` does,
    :class:`MissingPathError` before the first refresh, :class:`InputError` for rows that cannot be placed,
    :class:`PlanError`.
    """
    began = time.perf_counter()
    versions.refuse_unfitted(job)
    with versions.growing(job, options) as (growth, reporter, lock):
        there = account.snapshot(job.input_path)
        refuse_foreign(job, growth)
        with with_remedy(job), versions.reading(job, there, reporter, 0):
            restore(growth)
            version = growth.current
            assert version is not None  # (once there is one, there always is)
            version = growth.mark_published(version)
            known = ledger_of(version, there)
        known = versions.unchanged(job, known, there, verify, reporter)
        version.keep(known)
        with with_remedy(job), versions.reading(job, there, reporter, version.fitted):
            repair(version, job.functions)
        covered, n = version.covered, there.shape[0]
        if covered < n:
            with with_remedy(job):
                fitted = load(version.model, job.functions)
            NewRows(job, version, there, fitted).place_all(known, reporter, lock)
        remove(version.root / "placing")
        write_table_of(job, version)
        return versions.about(growth, version, unchanged=covered == n) | {
            "placed": n - covered,
            "other_parameters": version.asked != key_of_growth(job),
            "seconds": round(time.perf_counter() - began, 3),
        }


@dataclass(frozen=True)
class NewRows:
    """The rows of a growing store that have no coordinates yet, with the version and its model, which places them."""

    job: JobSpec
    version: versions.Version
    there: account.Snapshot
    fitted: Any

    def place_all(self, known: account.Ledger, reporter: Reporter, lock: Lock) -> None:
        """Place them, range after range."""
        version, n = self.version, self.there.shape[0]
        if is_planned(self.job.cluster):  # before a cluster is started
            self.plan(self.stage(version.covered, min(n, version.covered + RANGE_ROWS), ""), None).refuse()
        with versions.place_for(self.job, self.there, reporter, n - version.covered) as place:
            for stop in [*self._unfinished(), *range(version.covered + RANGE_ROWS, n, RANGE_ROWS), n]:
                start = version.covered
                if start < stop:
                    with reporter.stage(f"rows {start}:{stop}"):
                        earlier = known
                        known = account.with_new_rows(known, account.first_rows(self.there, max(stop, known.n)))
                        version.keep(known)  # first, so that no row ever has coordinates and is not known
                        try:
                            self.place(start, stop, place, lock)
                        except InputError:
                            version.keep(earlier)  # so that rows that cannot be placed may be mended
                            raise

    def place(self, start: int, stop: int, place: Place, lock: Lock) -> None:
        """Place rows ``start:stop`` aside, then append them to the coordinates in one step with their account."""
        version, n = self.version, stop - start
        aside = version.root / "placing" / f"{start}-{stop}"
        array, content = self.compute(start, stop, place, aside)
        like, digest = read_array(array, 0, 0), account.span_digest(array, 0, n)
        left_out = account.without_coordinates(array, 0, n) if leaves_out(getattr(self.fitted, "steps_", ())) else 0
        model = versions.model_digest(version.model)
        added = account.Range(start, stop, "placed", content, model, digest, left_out)
        lock.check()
        rows = RowSource((n, *like.shape[1:]), like.dtype, path=array)
        append_source(version.array, rows, account.attributes([*version.ranges, added]))
        remove(aside)

    def compute(self, start: int, stop: int, place: Place, aside: AnyPath) -> tuple[str, str]:
        """Place rows ``start:stop`` in a folder aside; the path of their coordinates, and the digest of the rows."""
        path = self.there.path
        content = account.span_digest(path, start, stop)
        stage = self.stage(start, stop, content)
        self.plan(stage, place).refuse()
        try:
            run = Run(aside, [run_of(self.fitted)])
        except (DamagedError, ExistingOutputError):  # what a killed call left is damaged
            remove(aside)
            run = Run(aside, [run_of(self.fitted)])
        try:
            run_stages([stage], run)
        except InputError as error:
            remove(aside)
            raise InputError(f"{path}, in rows {start}:{stop} (numbered from {start} as 0): {error}") from error
        return run.path(stage.name, "coordinates"), content

    def stage(self, start: int, stop: int, content: str) -> Stage:
        """Describe the stage that places rows ``start:stop``, keyed by their content."""
        shape, there = (stop - start, self.there.shape[1]), self.there
        source = StoreRows(shape, there.dtype, path=there.path, offset=start, content=content)
        extension = extension_of(self.fitted)
        return coordinates_of(through_steps(self.fitted, source, extension), extension, run_of(self.fitted))

    def plan(self, stage: Stage, place: Place | None) -> Plan:
        """Return what the stage that places a range takes; ``place``: where the cluster is running already."""
        job, there, root = self.job, self.there, self.version.root
        shape = there.shape[0] - self.version.covered, there.shape[1]
        nbytes, compiled = shape[0] * shape[1] * there.dtype.itemsize, is_compiled(self.fitted)
        where = resources_of(job.cluster, shape, nbytes, place, False, compiled)
        left = remains(runs_at((root / "placing").glob("*-*")), job.output.scratch)
        own, free = ((stage.name, stage.cost),), free_bytes(nearest_folder(root))
        paths = there.path, str(self.version.array)
        return Plan(*paths, shape, str(there.dtype), where, own, (), free, scratch=job.output.scratch, remains=left)

    def _unfinished(self) -> list[int]:
        """Return where a range ends that a killed call left unfinished: it is taken up as it was cut."""
        names = [path.name.split("-") for path in (self.version.root / "placing").glob("*-*")]
        covered, n = self.version.covered, self.there.shape[0]
        return [int(stop) for start, stop in names if int(start) == covered and int(stop) <= n][:1]
