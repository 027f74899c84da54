"""What Airflow makes of deploy/airflow, printed as JSON. Runs in an environment with Airflow; argument: the DAGs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def outcomes(home: Path) -> dict[str, str]:
    """By exit status: what the task returns, or the kind of error that it ends with."""
    import bigembed_dags

    bigembed_dags.HOME = str(home)
    (home / "bin").mkdir(parents=True)
    found = {}
    for status in (*range(10), 137):
        program = home / "bin" / "bigembed"
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
        task = bigembed_dags.Workflow(task_id=f"status{status}", command="extend")
        try:
            found[str(status)] = f"returns {task.execute({})}"
        except Exception as error:
            found[str(status)] = type(error).__name__
    return found


def main(file: Path, home: Path) -> None:
    """Import the file as Airflow does."""
    import warnings

    from airflow.dag_processing.dagbag import DagBag

    warnings.filterwarnings("error", message=r"airflow\..* is deprecated")  # (by the file, not by Airflow itself)
    bag = DagBag(dag_folder=str(file))
    sys.path.insert(0, str(file.parent))
    shown = {
        "errors": {str(path): str(error) for path, error in bag.import_errors.items()},
        "dags": {
            name: {
                "tasks": {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
                "catchup": dag.catchup,
                "runs": dag.max_active_runs,
                "retries": {task.task_id: task.retries for task in dag.tasks},
            }
            for name, dag in bag.dags.items()
        },
        "outcomes": outcomes(home),
    }
    sys.stdout.write("\n" + json.dumps(shown) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(os.environ["AIRFLOW_HOME"]) / "stand-in")
