"""What Prefect makes of deploy/prefect: runs its flows, and prints how they end as JSON.

Runs in an environment with Prefect. Arguments: the folder of the flows; then flows to run for real (first, extend,
refresh_if_due), or nothing for a stand-in that ends with every exit status.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def run(flow: Any) -> str:
    """The name of the state in which a flow ends, and what it says."""
    state = flow(return_state=True)
    return f"{state.name}: {state.message}"


def outcomes(flows: Any, home: Path) -> dict[str, Any]:
    """By exit status: how the flow ends, and how often the command was started."""
    flows.HOME, flows.workflow = str(home), flows.workflow.with_options(retries=2, retry_delay_seconds=0)
    (home / "bin").mkdir(parents=True)
    program, found = home / "bin" / "bigembed", {}
    for status in range(10):
        starts = home / f"starts{status}"
        program.write_text(f"#!/bin/sh\necho x >>{starts}\nexit {status}\n")
        program.chmod(0o755)
        found[str(status)] = [run(flows.extend), len(starts.read_text().splitlines())]
    return found


def main(folder: Path, names: list[str]) -> None:
    """Run what is asked for."""
    sys.path.insert(0, str(folder))
    import bigembed_flows

    if names:
        shown: dict[str, Any] = {name: run(getattr(bigembed_flows, name)) for name in names}
    else:
        shown = outcomes(bigembed_flows, Path.cwd() / "stand-in")
        shown["schedules"] = {
            deployment.flow_name: [schedule.schedule.cron for schedule in deployment.schedules or []]
            for deployment in bigembed_flows.deployments()
        }
    sys.stdout.write("\n" + json.dumps(shown) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
