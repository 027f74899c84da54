"""What the coordinating process takes for a map over the blocks: tasks that only sleep, on many simulated workers.

    python benchmarks/scheduler.py --workers 64 1024 --blocks 1000 4096 --sleep 1

The scheduler and the client are in this process, as in a job that starts its own cluster. Workers are objects of
Dask, one thread each, some to a process; their tasks are as large as those of the update of the eigensolver (the
handle of a matrix of so many blocks, matrices of coefficients) and return as much (Gram matrices of 45 columns). The
processor time of this process is what a map takes of the one process that cannot be doubled: c seconds a task. A map
of B tasks of t seconds on N workers takes about max(B c, ⌈B/N⌉ t), so N = t/c workers keep it busy. ``serial`` is
that time besides the tasks: reading and writing the coarse vector, a file a block. ``pairs``: processor time, of all
workers together, of what the order of the rows does for each pair of blocks: it looks up the rows for its partition.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import pickle
import tempfile
import time
import warnings
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from common import table

from bigembed.blocks.rows import Array, executor, map_blocks
from bigembed.eigen.coarse import UNKNOWNS, unknowns
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.inflight import client_executor
from bigembed.jobs.places.settings import settings
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix

ROWS, WIDTH, TOGETHER = 65_536, 15, 256
"""Rows of a block, columns of a block of vectors, simulated workers of a process."""


def sleeping_block(block: int, *, seconds: float, matrix: StoredMatrix, arguments: tuple[Array, ...]) -> Any:
    """A task of the update without its work: its sums."""
    time.sleep(seconds)
    size = 3 * WIDTH
    return np.zeros((size, size)), np.zeros((size, size)), np.zeros((1, size)), np.zeros(WIDTH)


def host(address: str, count: int) -> None:
    """Workers of one thread in this process, until it is ended."""
    from distributed import Worker

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(count):
                worker = Worker(address, nthreads=1, memory_limit=0, dashboard=False, local_directory=folder)
                await stack.enter_async_context(worker)
            await asyncio.Event().wait()

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve())


def simulated(workers: int, counts: list[int], seconds: float) -> dict[str, dict[str, Any]]:
    """The maps on that many workers."""
    import dask
    from distributed import Client, LocalCluster

    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings(ClusterTable())))
        local = stack.enter_context(
            LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                protocol="tcp://",
                scheduler_kwargs={"dashboard": False},
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        )
        client = stack.enter_context(Client(local))
        spawn = multiprocessing.get_context("spawn")
        for start in range(0, workers, TOGETHER):
            arguments = (local.scheduler_address, min(TOGETHER, workers - start))
            process = spawn.Process(target=host, args=arguments, daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
        client.wait_for_workers(workers, timeout=600)
        for blocks in counts:
            with executor(client_executor(client, 60)):
                rows[f"{workers} workers, {blocks} blocks"] = one_map(workers, blocks, seconds)
            print(list(rows.items())[-1], flush=True)
    return rows


def one_map(workers: int, blocks: int, seconds: float) -> dict[str, Any]:
    """A map over the blocks: its time, and what this process took of it."""
    matrix = StoredMatrix("/run/stages/graph", "/run/stages/kernel/weights", (ROWS,) * blocks, "0" * 64)
    given = {"seconds": seconds, "matrix": matrix, "arguments": (np.zeros((3 * WIDTH, WIDTH)),) * 2}
    map_blocks(sleeping_block, [(b,) for b in range(workers)], **{**given, "seconds": 0.0})  # (all have started)
    began, used = time.perf_counter(), time.process_time()
    map_blocks(sleeping_block, [(b,) for b in range(blocks)], **given)
    took, used = time.perf_counter() - began, time.process_time() - used
    return {
        "seconds": took,
        "asleep": ceil(blocks / workers) * seconds,
        "cpu_of_a_task": used / blocks,
        "bytes_of_a_task": len(pickle.dumps(partial(sleeping_block, 0, **given))),
        "busy_workers": seconds / (used / blocks),
        "serial": coarse_files(blocks),
        "pairs": looked_up(blocks) * blocks**2,
    }


def coarse_files(blocks: int) -> float:
    """Processor time of writing and reading the coarse vector of so many blocks, a file a block."""
    part = np.zeros((min(unknowns(blocks * ROWS), UNKNOWNS) // blocks, WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        exchange, began = Exchange(folder), time.process_time()
        for b in range(blocks):
            exchange.put("right", b, {"own": part})
            exchange.piece("right", b, "own")
        return time.process_time() - began


def looked_up(blocks: int) -> float:
    """Processor time of finding what one block left for one of so many partitions."""
    with tempfile.TemporaryDirectory() as folder:
        exchange, piece = Exchange(folder), np.zeros((4, 4), np.float32)
        exchange.put("scatter", 0, {f"{kind}{p}": piece for p in range(blocks) for kind in ("rows", "ids")})
        began = time.process_time()
        for p in range(0, blocks, max(1, blocks // 200)):
            exchange.find("scatter", 0, [f"rows{p}", f"ids{p}"])
        return (time.process_time() - began) / len(range(0, blocks, max(1, blocks // 200)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1000, 4096])
    parser.add_argument("--sleep", type=float, default=1.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {}
    for workers in given.workers:
        rows |= simulated(workers, given.blocks, given.sleep)
    table("scheduler", {"sleep": given.sleep}, rows)


if __name__ == "__main__":
    main()
