"""Kills a job before each of its steps on the file system, in turn: every rename, link and removal.

``python -m tests.fault.kill_points FOLDER SCRIPT METHOD EVERY`` grows a store, runs the job to its end for reference,
and then, for every step (or each EVERY-th), from the same state: runs it, kills it before that step, looks at what a
reader sees, and runs it again. Prints how many steps there were and what readers saw. Each run is a fork of this
process, which loads everything and touches nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import dask.array
import dask.threaded  # noqa: F401
import distributed  # noqa: F401
import numpy as np
import scipy.linalg
import scipy.sparse.csgraph
import scipy.sparse.linalg  # noqa: F401
import threadpoolctl  # noqa: F401
import zarr.codecs  # noqa: F401

import bigembed.jobs.console
import bigembed.methods.diffusion_map
import bigembed.methods.pca  # noqa: F401
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.growth.versions import open_growth
from bigembed.jobs.spec import read_job
from bigembed.store.arrays import write_array
from bigembed.store.growing import append_rows
from tests.fault.night import write_job

STEPS = ("replace", "rename", "link", "unlink", "rmdir")


def forked(work: Callable[[], object]) -> int:
    """Do it in a process of its own; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(number: int, work: Callable[[], object]) -> Callable[[], object]:
    """The same, killed before its step of this number."""

    def run() -> None:
        left = [number]

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def step(*arguments: object, **named: object) -> object:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return function(*arguments, **named)

            return step

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        work()

    return run


def seen(folder: Path) -> tuple[bytes, list[tuple[int, int, str]]]:
    """What a reader sees: the coordinates, and their account, which must fit them."""
    version = open_growth(folder / "growing.zarr").current
    assert version is not None
    ranges = [(part.start, part.stop, part.how) for part in version.ranges]
    assert [part[0] for part in ranges] == [0, *(part[1] for part in ranges[:-1])]
    coordinates = np.asarray(version.coordinates)
    assert ranges[-1][1] == len(coordinates) == version.covered
    assert len({part.model for part in version.ranges}) == 1
    return coordinates.tobytes(), ranges


def main(folder: Path, script: str, method: str, every: int) -> None:
    """All of it."""
    base, work = folder / "base", folder / "work"
    rows = np.random.default_rng(0).normal(size=(260, 4)).astype("f4")
    job_file = write_job(work, method, "n_neighbors = 6" if method == "diffusion_map" else "")

    def prepare() -> None:
        write_array(work / "points.zarr", rows[:200], chunk_rows=64)
        refresh(read_job(job_file))
        append_rows(work / "points.zarr", rows[200:])

    def run() -> None:
        {"extend": extend, "refresh": refresh}[script](read_job(job_file))

    def look(name: str) -> Callable[[], object]:
        return lambda: (folder / name).write_bytes(repr(seen(work)).encode())

    assert forked(prepare) == 0
    shutil.copytree(work, base)
    assert forked(look("before")) == 0
    assert forked(run) == 0
    assert forked(look("after")) == 0
    before, after = ((folder / name).read_bytes() for name in ("before", "after"))
    assert before != after
    saw = {"before": 0, "after": 0}
    number, ended = 0, False
    while not ended:
        shutil.rmtree(work)
        shutil.copytree(base, work)
        status = forked(killed_at(number, run))
        ended = status == 0
        assert status in (0, -signal.SIGKILL), status
        assert forked(look("now")) == 0, number
        now = (folder / "now").read_bytes()
        assert now in (before, after), number
        saw["before" if now == before else "after"] += 1
        assert forked(run) == 0, number
        assert forked(look("now")) == 0, number
        assert (folder / "now").read_bytes() == after, number
        number += every
    print(json.dumps({"kills": sum(saw.values()) - 1, "steps": number - every, **saw}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
