"""A growing store kept embedded by Airflow 3: rows appended, placed and audited, and all fitted anew when due.

Put this file into the folder of the DAGs. It only calls the command line of an installation of its own (BIGEMBED_HOME,
by default /opt/bigembed) with a job file (BIGEMBED_JOB, by default /etc/bigembed/growing.toml); both, and the data,
have to be there for the worker that runs the tasks. Rows of the night come as a file, BIGEMBED_ROWS, whose ids are the
column BIGEMBED_IDS, and are appended to BIGEMBED_STORE, the [input] path of the job. The first model is made by hand,
or by a run of bigembed_first.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

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


class Workflow(BaseOperator):
    """A command on the store. Its exit status decides: 0 and 7 (refresh due) succeed and are returned, 4 (another job
    holds the output) skips, 2, 3, 6, 8 and 9 fail at once, and 5 (interrupted) and all others are tried again."""

    def __init__(self, *, command: str, options: tuple[str, ...] = (JOB,), **more: Any) -> None:
        super().__init__(**more)
        self.command, self.options = command, options
        self.process = SubprocessHook()

    def execute(self, context: Any) -> int:
        """Run the command; what it prints goes to the log of the task."""
        words = [f"{HOME}/bin/bigembed", self.command, *self.options]
        status = self.process.run_command(words, env={**os.environ, "NUMBA_CACHE_DIR": CACHE}).exit_code
        if status in (0, DUE):
            return int(status)
        if status == HELD:
            raise AirflowSkipException("another job holds the output; the next run makes up for it")
        if status in REFUSED:
            raise AirflowFailException(f"{REFUSED[status]} (exit status {status}): see the log")
        reason = "interrupted; the same command goes on" if status == INTERRUPTED else "failed"
        raise AirflowException(f"{reason} (exit status {status})")

    def on_kill(self) -> None:
        """Stop in good order: what is finished is kept."""
        self.process.send_sigterm()


class Append(Workflow):
    """The rows of the night appended to the store, if their file is there; those that are in it already are left out,
    so that a second try appends nothing."""

    def __init__(self, **more: Any) -> None:
        super().__init__(command="append", options=(STORE, ROWS, "--ids", IDS, "--skip-known"), **more)

    def execute(self, context: Any) -> int:
        """Run the command, or skip."""
        if not os.path.exists(ROWS):
            raise AirflowSkipException(f"{ROWS}: no new rows")
        return super().execute(context)


ALWAYS: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1),
    "catchup": False,  # (a later run does the work of those that were missed)
    "max_active_runs": 1,
    "default_args": {"retries": 5, "retry_delay": timedelta(minutes=1)},
    "tags": ["bigembed"],
}

with DAG("bigembed_first", schedule=None, **ALWAYS):
    Workflow(task_id="refresh", command="refresh")

with DAG("bigembed_append", schedule="0 1 * * *", **ALWAYS):
    Append(task_id="append")

with DAG("bigembed_extend", schedule="30 * * * *", **ALWAYS):
    Workflow(task_id="extend", command="extend")

with DAG("bigembed_refresh", schedule="0 2 * * *", **ALWAYS):
    audit = Workflow(task_id="audit", command="audit")
    due = ShortCircuitOperator(
        task_id="due", python_callable=lambda status: int(status) == DUE, op_args=[audit.output], retries=0
    )
    audit >> due >> Workflow(task_id="refresh", command="refresh")
