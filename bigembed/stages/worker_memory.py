"""What tasks would hold on the workers of a Dask client, and the refusal of a fit that these cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bigembed.errors import PlanError
from bigembed.runtime.client_executor import TERMINATE
from bigembed.runtime.executors import CurrentClient, executor_now
from bigembed.stages.runs import Run
from bigembed.stages.stage import Stage

MARGIN = 0.1
"""Share added to what processes are planned to hold: fragments that the allocator does not give back."""


def require_worker_memory(stages: Sequence[Stage], run: Run, blocks: int | None = None) -> None:
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
