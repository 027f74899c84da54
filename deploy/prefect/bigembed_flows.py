"""A growing store kept embedded by Prefect 3: rows appended, placed and audited, and all fitted anew when due.

    python deploy/prefect/bigembed_flows.py             serve all flows by their schedules

It only calls the command line of an installation of its own (BIGEMBED_HOME, by default /opt/bigembed) with a job file
(BIGEMBED_JOB, by default /etc/bigembed/growing.toml), on the machine where it is served. Rows of the night come
as a file, BIGEMBED_ROWS, whose ids are the column BIGEMBED_IDS, and are appended to BIGEMBED_STORE, the [input] path of
the job. The first model is made by hand, or by a run of the flow bigembed-first.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from prefect import flow, get_run_logger, serve, task
from prefect.states import Completed, Failed, State

HOME = os.environ.get("BIGEMBED_HOME", "/opt/bigembed")
JOB = os.environ.get("BIGEMBED_JOB", "/etc/bigembed/growing.toml")
CACHE = os.environ.get("NUMBA_CACHE_DIR", "/var/cache/bigembed/numba")
STORE = os.environ.get("BIGEMBED_STORE", "/data/points.zarr")
ROWS = os.environ.get("BIGEMBED_ROWS", "/data/new.parquet")
IDS = os.environ.get("BIGEMBED_IDS", "id")
HELD, INTERRUPTED, DUE = 4, 5, 7
REFUSED = {
    2: "bad input or job file",
    3: "it cannot fit",
    6: "damaged",
    8: "no progress: give it more time",
    9: "the map moved too far: decide",
}


class Again(RuntimeError):
    """What the same command may well do at the next try."""


class Refused(RuntimeError):
    """What a second try would not change."""


def worth_another_try(task: Any, run: Any, state: State[Any]) -> bool:
    """Whether a task that failed is tried again."""
    return not isinstance(state.result(raise_on_failure=False), Refused)


@task(retries=5, retry_delay_seconds=60, retry_condition_fn=worth_another_try, task_run_name="{command}")
def workflow(command: str, options: tuple[str, ...] = (JOB,)) -> int:
    """A command on the store: its exit status if that is 0, 4 (another job holds the output) or 7 (refresh due).

    2, 3, 6, 8 and 9 fail at once; 5 (interrupted) and all others are tried again.
    """
    log = get_run_logger()
    words, variables = [f"{HOME}/bin/bigembed", command, *options], {**os.environ, "NUMBA_CACHE_DIR": CACHE}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, env=variables, **pipes) as process:
        try:
            for line in process.stdout or ():
                log.info(line.rstrip())
            status = process.wait()
        except BaseException:
            process.terminate()  # in good order: what is finished is kept
            process.wait(60)
            raise
    if status in (0, HELD, DUE):
        return status
    if status in REFUSED:
        raise Refused(f"{REFUSED[status]} (exit status {status})")
    raise Again(f"{'interrupted' if status == INTERRUPTED else 'failed'} (exit status {status})")


def ended(status: int) -> State[Any]:
    """How a flow ends whose last task ended with this exit status."""
    if status == HELD:
        return Completed(name="Skipped", message="another job holds the output; the next run makes up for it")
    return Completed(message="done") if status == 0 else Failed(message=f"exit status {status}")


@flow(name="bigembed-first")
def first() -> State[Any]:
    """The first model."""
    return ended(workflow("refresh"))


@flow(name="bigembed-append")
def append() -> State[Any]:
    """Append the rows of the night, if their file is there; those in the store already are left out."""
    if not os.path.exists(ROWS):
        return Completed(name="Skipped", message=f"{ROWS}: no new rows")
    return ended(workflow("append", (STORE, ROWS, "--ids", IDS, "--skip-known")))


@flow(name="bigembed-extend")
def extend() -> State[Any]:
    """Place the rows that came since the last run."""
    return ended(workflow("extend"))


@flow(name="bigembed-refresh")
def refresh_if_due() -> State[Any]:
    """Fit all rows anew if the model does not fit those that came since."""
    status = workflow("audit")
    return ended(workflow("refresh") if status == DUE else status)


def deployments() -> list[Any]:
    """The flows with their schedules; one run of each at a time."""
    return [
        first.to_deployment("by-hand", concurrency_limit=1),
        append.to_deployment("nightly", cron="0 1 * * *", concurrency_limit=1),
        extend.to_deployment("hourly", cron="30 * * * *", concurrency_limit=1),
        refresh_if_due.to_deployment("nightly", cron="0 2 * * *", concurrency_limit=1),
    ]


if __name__ == "__main__":
    serve(*deployments())
