"""What the coordinating process takes for a map over the blocks: tasks that only sleep, on many simulated workers.

    python benchmarks/scheduler.py --workers 64 1024 --blocks 1024 4096 --sleep 1

The scheduler and the client are in this process, as in a job that starts its own cluster. The workers are threads of
objects of Dask, ``--threads`` each, in other processes; their tasks are as large as those of the update of the
eigensolver (the handle of a matrix of so many blocks, matrices of coefficients) and return as much (Gram matrices of 45
columns). The first map learns how long a block takes; the second is measured. ``alone``: every block is a task by
itself. The processor time of this process is what a map takes of the one process that cannot be doubled: c seconds a
task. A map of B blocks of t seconds, g of them a task, on N workers takes about max(B/g · c, ⌈B/(g N)⌉ g t); Flight
takes g = N c/t, so that the second is the larger. ``parcel``: processor time of what the order of the rows does
for each pair of a file of the rows and a partition.
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
from contextlib import ExitStack
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from common import table

from bigembed.jobs.places import ClusterTable, settings
from bigembed.runtime import client_executor, using
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.runtime.client_executor import ClientExecutor
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.parcels import by_receiver, merge_parcels, send

ROWS, WIDTH = 65_536, 15
"""Rows of a block, and columns of a block of vectors."""
OBJECTS = 16
"""Workers, as Dask sees them, of a process."""


def sleeping_block(block: int, *, seconds: float, matrix: StoredMatrix, arguments: tuple[Array, ...]) -> Any:
    """A task of the update without its work: its sums."""
    time.sleep(seconds)
    size = 3 * WIDTH
    return np.zeros((size, size)), np.zeros((size, size)), np.zeros((1, size)), np.zeros(WIDTH)


def host(address: str, threads: list[int]) -> None:
    """Workers of so many threads in this process, until it is ended."""
    from distributed import Worker

    async def serve() -> None:
        for count in threads:
            await Worker(address, nthreads=count, memory_limit=0, dashboard=False, local_directory=folder)
        await asyncio.Event().wait()

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve())


def simulated(workers: int, threads: int, counts: list[int], seconds: float) -> dict[str, dict[str, Any]]:
    """The maps on that many workers."""
    import dask
    from distributed import Client, LocalCluster

    rows: dict[str, dict[str, Any]] = {}
    sizes = [min(threads, workers - start) for start in range(0, workers, threads)]
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
        for start in range(0, len(sizes), OBJECTS):
            arguments = (local.scheduler_address, sizes[start : start + OBJECTS])
            process = spawn.Process(target=host, args=arguments, daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
        client.wait_for_workers(len(sizes), timeout=600)
        for blocks in counts:
            for name, several in (("alone", 1), ("together", client_executor.SEVERAL)):
                client_executor.SEVERAL = several
                with using(executor=ClientExecutor(client, 60)):
                    found = one_map(workers, blocks, seconds)
                rows[f"{workers} workers of {threads} threads, {blocks} blocks, {name}"] = found
                print(list(rows.items())[-1], flush=True)
    return rows


def one_map(workers: int, blocks: int, seconds: float) -> dict[str, Any]:
    """A map over the blocks: its time, and what this process took of it."""
    matrix = StoredMatrix("/run/stages/graph", "/run/stages/kernel/weights", (ROWS,) * blocks, "0" * 64)
    given = {"seconds": seconds, "matrix": matrix, "arguments": (np.zeros((3 * WIDTH, WIDTH)),) * 2}
    map_blocks(sleeping_block, [(b,) for b in range(workers)], **given)  # (all have started)
    began, used = time.perf_counter(), time.process_time()
    map_blocks(sleeping_block, [(b,) for b in range(blocks)], **given)
    took, used = time.perf_counter() - began, time.process_time() - used
    several = client_executor.calls_of_task(blocks, workers, seconds)
    return {
        "seconds": took,
        "asleep": ceil(blocks / workers) * seconds,
        "of_a_task": several,
        "cpu": used,
        "cpu_of_a_block": used / blocks,
        "cpu_of_a_task": used * several / blocks,
        "bytes_of_a_block": len(pickle.dumps(partial(sleeping_block, 0, **given))),
    }


def parcels(files: int = 20, receivers: int = 2_000) -> dict[str, Any]:
    """Processor time of leaving a block of rows for so many partitions, and of collecting a parcel of it."""
    rows = np.zeros((ROWS, 16), np.float32)
    order, starts = by_receiver(np.random.default_rng(0).integers(0, receivers, ROWS), receivers)
    with tempfile.TemporaryDirectory() as folder:
        exchange, began = Exchange(folder), time.process_time()
        for number in range(files):
            send(exchange, "scatter", number, {"rows": (rows[order], starts), "ids": (order, starts)})
        sent, left = time.process_time() - began, merge_parcels(exchange, "scatter", files)
        began, some = time.process_time(), range(0, receivers, receivers // 100)
        for receiver in some:
            left.to(receiver)
        return {"send_a_block": sent / files, "parcel": (time.process_time() - began) / files / len(some)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--sleep", type=float, default=1.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {"order of the rows": parcels()}
    for workers in given.workers:
        rows |= simulated(workers, given.threads, given.blocks, given.sleep)
    table("scheduler", {"sleep": given.sleep}, rows)


if __name__ == "__main__":
    main()
