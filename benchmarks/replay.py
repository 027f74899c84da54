"""A job replayed from its trace on other machines: how long it takes, and what binds, with any number of workers.

    python benchmarks/replay.py record FOLDER                        # traces of this machine, some minutes
    python benchmarks/replay.py check FOLDER                         # the error of the model where it was not fitted
    python benchmarks/replay.py replay TRACE --workers 64 --rows 100000000 --bandwidth 1e9
    python benchmarks/replay.py table FOLDER                         # 10⁷, 10⁸, 10⁹ rows on 8 to 1 024 workers

A trace (``bigembed run --trace``) has a line for each task. The model: a job is a sequence of maps with a barrier after
each. Before a map the coordinating process works by itself for as long as it did in the trace. It hands out tasks one
after another, each of which takes 2 ms of it (``benchmarks/scheduler.py``), several calls to a task as the real one
does. A task reads and writes its bytes through one store, whose bandwidth all tasks share, none faster than its own
link, and a request waits for the latency of the store; then it computes, with a core of its own, or with a share of
the cores where there are fewer than workers. Where workers hold the vectors of a solve, a worker gets all its calls of
a map at once, and what they move is what crosses between workers: in the trace of two half of what it could be.
Traces of two sizes, on two workers, give the exponents by which counts, seconds and bytes of each kind of task grow;
blocks have as many rows at any size, so that what one task takes grows little (``MOST``). ``check`` fits nothing: it
replays configurations that were not used, with one and with four workers and other rows.
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log
from pathlib import Path
from typing import Any

from common import data_set, table

from bigembed.runtime.client_executor import HANDED_OUT, calls_of_task
from bigembed.store.spaces import TIMES

RECORDED = {"small": (250_000, 2), "large": (1_000_000, 2), "one": (500_000, 1), "held-out": (1_500_000, 4)}
"""Rows and workers of each trace that ``record`` makes."""
WARM = 20_000
"""Rows of a job before that, so that workers have loaded what they compile."""
MOST = {"count": 1.1, "compute": 0.2, "moved": 0.2, "gap": 1.1}
"""Of exponents, where two sizes alone would take noise for growth."""
COLUMNS = 16
ROWS, WORKERS = (10**7, 10**8, 10**9), (1, 8, 64, 256, 1024)
STORE = {"bandwidth": 2e9, "link": 125e6, "latency": 1e-3}
"""Of the table: a store of 2 GB a second for all, links of 1 Gbit a second, a millisecond a request."""
CHECKPOINT = "copied_block"
"""Tasks that leave vectors, which workers hold, in files."""
OTHER = {"bandwidth": 5e10, "link": 1.25e9, "latency": 5e-3}
"""Of the other table: an object store of 50 GB a second for all, links of 10 Gbit a second, 5 ms a request."""
PIECES = 1 << 20
"""Bytes of a request, for a plan of what latency costs."""


@dataclass(frozen=True)
class Task:
    """One call of a map: seconds that it computes, the bytes that it reads and writes, and the seconds of that here."""

    compute: float
    moved: float
    moving: float = 0.0


@dataclass(frozen=True)
class Map:
    """The tasks between two barriers, after so many seconds of the coordinating process."""

    stage: str
    label: str
    gap: float
    tasks: tuple[Task, ...]
    at_home: bool = False
    """Whether each task runs where its block is: then a worker gets all of its calls at once."""

    @property
    def key(self) -> tuple[str, str, bool]:
        """What kind of map it is."""
        return self.stage, self.label, len(self.tasks) > 1


@dataclass(frozen=True)
class Trace:
    """A job as it was recorded."""

    rows: int
    seconds: float
    maps: tuple[Map, ...]
    cores: int
    workers: int


@dataclass(frozen=True)
class Machine:
    """Where a job is replayed; bytes and seconds."""

    workers: int
    cores: float = inf
    bandwidth: float = inf
    link: float = inf
    latency: float = 0.0
    handed_out: float = HANDED_OUT


# -------------------------------------------------------------------------------------------------------- a trace


def read(path: Path) -> Trace:
    """Read a trace; of a job that was stopped and went on, all starts, without the time between them."""
    starts: list[list[dict[str, Any]]] = []
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if line["event"] == "job":
            starts.append([])
        starts[-1].append(line)
    parts = [_of_start(lines) for lines in starts]
    maps = tuple(one for _, of_start in parts for one in of_start)
    workers = len({line.get("process") for lines in starts for line in lines if line["event"] == "task"})
    return Trace(starts[0][0]["rows"][0], sum(seconds for seconds, _ in parts), maps, starts[0][0]["cores"], workers)


def _of_start(lines: Sequence[dict[str, Any]]) -> tuple[float, list[Map]]:
    """The seconds of one start of a job, and its maps."""
    grouped: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["event"] == "task":
            grouped[line["map"]].append(line)
    began = ended = min((line["time"] for line in lines if line["event"] == "start"), default=lines[0]["time"])
    maps = []
    for _, tasks in sorted(grouped.items()):
        first = min(task["began"] for task in tasks)
        made = tuple(
            Task(
                max(0.0, task["seconds"] - task["reading"] - task["writing"]),
                task["bytes_read"] + task["bytes_written"],
                task["reading"] + task["writing"],
            )
            for task in sorted(tasks, key=lambda task: task["task"])
        )
        gap, at_home = max(0.0, first - ended), tasks[0].get("at_home", False)
        maps.append(Map(tasks[0]["stage"], tasks[0]["label"], gap, made, at_home))
        ended = max(task["began"] + task["seconds"] for task in tasks)
    return max([ended, *(line["time"] for line in lines if line["event"] == "done")]) - began, maps


def exponents(small: Trace, large: Trace) -> dict[tuple[str, str, bool], dict[str, float]]:
    """Return by which powers of the rows the counts, seconds, bytes and gaps of each kind of map grow."""
    found, step = {}, log(large.rows / small.rows)
    sums = [_means(trace) for trace in (small, large)]
    for key in sums[1]:
        if key in sums[0]:
            pairs = {name: (sums[0][key][name], sums[1][key][name]) for name in sums[1][key]}
            found[key] = {
                name: min(MOST[name], max(0.0, log(b / a) / step)) if min(a, b) > FLOORS[name] else 0.0
                for name, (a, b) in pairs.items()
            }
    return found


FLOORS = {"count": 1.5, "compute": 1e-3, "moved": 1e4, "gap": 5e-3}
"""What is smaller is taken not to grow: it is noise."""


def _means(trace: Trace) -> dict[tuple[str, str, bool], dict[str, float]]:
    """Return the mean count of tasks, seconds and bytes of a task, and gap, for each kind of map."""
    kinds: dict[tuple[str, str, bool], list[Map]] = defaultdict(list)
    for one in trace.maps:
        kinds[one.key].append(one)
    means = {}
    for key, maps in kinds.items():
        tasks = [task for one in maps for task in one.tasks]
        means[key] = {
            "count": len(tasks) / len(maps),
            "compute": sum(task.compute for task in tasks) / len(tasks),
            "moved": sum(task.moved for task in tasks) / len(tasks),
            "gap": sum(one.gap for one in maps) / len(maps),
        }
    return means


def scaled(trace: Trace, rows: int, growth: dict[tuple[str, str, bool], dict[str, float]]) -> Trace:
    """Return the job on so many rows: as many maps; tasks, seconds and bytes by their exponents."""
    factor, maps = rows / trace.rows, []
    for one in trace.maps:
        by = growth.get(one.key, {"count": float(len(one.tasks) > 1), "compute": 0.0, "moved": 0.0, "gap": 0.0})
        count = max(1, round(len(one.tasks) * factor ** by["count"]))
        tasks = [one.tasks[place % len(one.tasks)] for place in range(count)]
        more, further = factor ** by["compute"], factor ** by["moved"]
        tasks = [Task(task.compute * more, task.moved * further, task.moving * further) for task in tasks]
        maps.append(replace(one, gap=one.gap * factor ** by["gap"], tasks=tuple(tasks)))
    return replace(trace, rows=rows, maps=tuple(maps))


# ------------------------------------------------------------------------------------------------------- the model


class Shared:
    """Work that is done at one speed by all who are at it: a link that is shared, or cores that are fewer than tasks.

    In virtual time everybody has his work done when it has passed by as much as he had; the speed is that of each.
    """

    def __init__(self, capacity: float, most: float) -> None:
        self.capacity, self.most = capacity, most
        self.virtual, self.moment, self.ends = 0.0, 0.0, list[tuple[float, int]]()

    @property
    def speed(self) -> float:
        """Of each one now."""
        return min(self.most, self.capacity / len(self.ends)) if self.ends else self.most

    def until(self, moment: float) -> None:
        """Let time pass."""
        if self.ends:
            self.virtual += (moment - self.moment) * self.speed
        self.moment = moment

    def begin(self, moment: float, work: float, task: int) -> None:
        """Add somebody who has so much to do."""
        self.until(moment)
        heapq.heappush(self.ends, (self.virtual + work, task))

    @property
    def next(self) -> float:
        """When the first is done."""
        return self.moment + max(0.0, self.ends[0][0] - self.virtual) / self.speed if self.ends else inf

    def end(self) -> int:
        """Return who is done first."""
        self.until(self.next)
        return heapq.heappop(self.ends)[1]


def replay(trace: Trace, machine: Machine) -> dict[str, Any]:
    """Return the seconds that a job takes, what binds, and the stages that take the longest."""
    total, bound, stages = 0.0, defaultdict[str, float](float), defaultdict[str, float](float)
    last, kept = next((one for one in reversed(trace.maps) if one.label == CHECKPOINT), None), -inf
    crossing = (1 - 1 / machine.workers) / (1 - 1 / trace.workers) if trace.workers > 1 else 1.0
    for given in trace.maps:
        one = given
        if one.at_home:
            one = replace(one, tasks=tuple(replace(task, moved=task.moved * crossing) for task in one.tasks))
        seconds, handing, moving = map_seconds(one.tasks, machine, one.at_home)
        if one.at_home and one.label == CHECKPOINT:  # (of the solver: not before so many times what the last one took)
            if total - kept < TIMES * seconds and given is not last:
                continue
            kept = total + one.gap + seconds
        total += one.gap + seconds
        bound["coordinator alone"] += one.gap
        computing = sum(task.compute for task in one.tasks) / min(machine.workers, machine.cores)
        reasons = {"computing": computing, "handing out": handing, "store": moving}
        largest = max(task.compute for task in one.tasks)
        if largest > 0.7 * seconds and len(one.tasks) > 1:
            reasons["few tasks"] = seconds
        reason = max(reasons, key=lambda name: reasons[name])
        bound[reason] += seconds
        stages[one.stage] += one.gap + seconds
    longest = sorted(stages, key=lambda name: -stages[name])[:4]
    return {
        "seconds": total,
        "binds": {name: value / total for name, value in sorted(bound.items())},
        "stages": {name: stages[name] for name in longest},
    }


def map_seconds(tasks: Sequence[Task], machine: Machine, at_home: bool = False) -> tuple[float, float, float]:
    """Return the seconds of a map; of those that handing out takes, and that the store takes for all its bytes."""
    mean = sum(task.compute for task in tasks) / len(tasks)
    groups, place = [], 0
    while place < len(tasks):
        several = calls_of_task(len(tasks) - place, machine.workers, mean)
        if at_home:
            several = -(-(len(tasks) - place) // max(1, machine.workers - len(groups)))
        groups.append(tasks[place : place + several])
        place += several
    here = machine.bandwidth == inf  # (then a task moves its bytes as it did in the trace, and handing out takes cores)
    more = machine.handed_out if machine.cores < inf else 0.0
    work = [
        (
            more + sum(task.compute + (task.moving if here else 0.0) for task in group),
            sum(task.moved for task in group),
            group,
        )
        for group in groups
    ]
    store = Shared(machine.bandwidth, machine.link)
    cores = Shared(machine.cores, 1.0)
    waiting: list[tuple[float, int]] = []  # requests under way
    free, handed, now, done, begun = machine.workers, 0.0, 0.0, 0, 0
    while done < len(work):
        while free and begun < len(work):
            handed = max(handed, now) + machine.handed_out
            requests = sum(1 + task.moved // PIECES for task in work[begun][2])
            heapq.heappush(waiting, (handed + requests * machine.latency, begun))
            free, begun = free - 1, begun + 1
        now = min(waiting[0][0] if waiting else inf, store.next, cores.next)
        if waiting and waiting[0][0] <= now:
            task = heapq.heappop(waiting)[1]
            cores.begin(now, work[task][0], task) if here else store.begin(now, work[task][1], task)
        elif store.next <= now:
            task = store.end()
            cores.begin(now, work[task][0], task)
        else:
            cores.end()
            done, free = done + 1, free + 1
    moved = sum(task.moved for task in tasks)
    rate = min(machine.bandwidth, machine.link * min(machine.workers, len(tasks)))
    return now, len(work) * machine.handed_out, moved / rate if rate < inf else 0.0


# ----------------------------------------------------------------------------------------------------- the commands


def record(folder: Path, memory: str) -> None:
    """Run the diffusion map of mixtures on clusters of this machine that the job does not own, and keep the traces.

    Workers of so much memory: where they have room for the vectors of the solve, these are there, else in files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, (n, workers) in RECORDED.items():
        rows = data_set("mixture", folder.absolute(), n=n, d=COLUMNS)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            job = Path(place) / "job.toml"
            job.write_text(
                f'[input]\npath = "{rows}"\n[method]\nname = "diffusion_map"\n'
                'n_components = 10\n[output]\npath = "run.zarr"\n'
            )
            trace = folder / f"{name}.jsonl"
            trace.unlink(missing_ok=True)
            words = [sys.executable, __file__, "one", str(job), str(trace), str(workers), memory]
            made = subprocess.run(words, check=False)
            if made.returncode:
                raise SystemExit(f"{name}: the job ended with {made.returncode}")
            print(name, n, workers, f"{read(trace).seconds:.1f} s", flush=True)


def one(job: Path, trace: Path, workers: int, memory: str) -> None:
    """Run a job on workers of this machine, reached by an address: they work as those of several hosts."""
    from distributed import Client, LocalCluster

    import bigembed as be
    from bigembed.datasets import dataset
    from bigembed.jobs.run import run_job
    from bigembed.jobs.spec import read_job
    from bigembed.jobs.watching import RunOptions

    asked = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": memory, "dashboard_address": None}
    with LocalCluster(**asked) as cluster, Client(cluster):
        be.DiffusionMap(10).fit(dataset("mixture", n=WARM, d=COLUMNS).rows())
        given = read_job(job)
        at = given.cluster.model_copy(update={"address": cluster.scheduler_address})
        run_job(given.model_copy(update={"cluster": at}), RunOptions(trace=trace))


def check(folder: Path) -> dict[str, dict[str, Any]]:
    """Return recorded and replayed seconds of each trace; the last two were not used."""
    traces = {name: read(folder / f"{name}.jsonl") for name in RECORDED}
    growth = exponents(traces["small"], traces["large"])
    rows = {}
    for name, (n, workers) in RECORDED.items():
        base = traces["small" if name == "small" else "large"]
        machine = Machine(workers, cores=base.cores)
        found = replay(scaled(base, n, growth), machine)["seconds"]
        rows[name] = {
            "rows": n,
            "workers": workers,
            "recorded": traces[name].seconds,
            "replayed": found,
            "error": found / traces[name].seconds - 1,
        }
    return rows


def far(folder: Path, store: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Return what more rows take on more workers, and what binds there."""
    small, large = (read(folder / f"{name}.jsonl") for name in ("small", "large"))
    growth, rows = exponents(small, large), {}
    for n in ROWS:
        job, alone = scaled(large, n, growth), 0.0
        for workers in WORKERS:
            found = replay(job, Machine(workers, **store))
            alone = alone or found["seconds"]
            first = max(found["binds"], key=lambda name: found["binds"][name])
            rows[f"{n:.0e} on {workers}"] = {
                "hours": found["seconds"] / 3600,
                "times_one": alone / found["seconds"],
                "binds": f"{first} {found['binds'][first]:.0%}",
                "stages": ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found["stages"].items()),
            }
    return rows


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "check", "table"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.choices["record"].add_argument("--memory", default="8 GiB", help="of each worker")
    single = commands.add_parser("one")
    for argument, kind in (("job", Path), ("trace", Path), ("workers", int), ("memory", str)):
        single.add_argument(argument, type=kind)
    other = commands.add_parser("replay")
    other.add_argument("trace", type=Path)
    other.add_argument("--smaller", type=Path, help="a trace of fewer rows, for the exponents")
    other.add_argument("--rows", type=int)
    other.add_argument("--workers", type=int, default=64)
    for name, value in (*STORE.items(), ("cores", inf)):
        other.add_argument(f"--{name}", type=float, default=value)
    asked = parser.parse_args()
    began = time.monotonic()
    if asked.command == "record":
        record(asked.folder, asked.memory)
    elif asked.command == "one":
        one(asked.job, asked.trace, asked.workers, asked.memory)
    elif asked.command == "check":
        table("replay_check", {"d": COLUMNS}, check(asked.folder))
    elif asked.command == "table":
        for store in (STORE, OTHER):
            table(
                "replay",
                {"d": COLUMNS, **{name: f"{value:g}" for name, value in store.items()}},
                far(asked.folder, store),
            )
    else:
        trace = read(asked.trace)
        growth = exponents(read(asked.smaller), trace) if asked.smaller else {}
        machine = Machine(asked.workers, asked.cores, asked.bandwidth, asked.link, asked.latency)
        print(json.dumps(replay(scaled(trace, asked.rows or trace.rows, growth), machine), indent=1))
    print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
