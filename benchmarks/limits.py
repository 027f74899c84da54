"""How near each stage of a diffusion map comes to what the machine can do, measured in the same run.

    python benchmarks/limits.py --n 1000000 --d 64 --memory "1.5 GiB" --folder bench-data
    python benchmarks/limits.py --picture limits-n1000000-d64-workers2   # draw a stored result again

The job is that of ``end_to_end.py``. Before and after it the machine is measured, all its processors at work: bytes
that files in the page cache are read and written at, and the disk; bytes streamed through memory; floating-point
operations of products of matrices; rows picked at random from those of a block. What a stage has to do at the least
follows from the figures that the run has stored (pairs of rows compared, edges, passes). Its bound is the time of that
resource which takes longest, all others being free; a ratio of 1 is as fast as this machine does this work. A stage
that takes less than a hundredth of the whole is left out of the picture.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import end_to_end
import numpy as np
from common import data_set, table
from matplotlib.figure import Figure
from numba import njit
from threadpoolctl import threadpool_limits

from bigembed.linalg.lobpcg import block_width

HERE = Path(__file__).resolve().parent
PAIRS = 10
"""Coordinates that the job asks for."""
TRIES = 5
LARGE = 1 << 27
"""Bytes that each processor streams, or writes to a file; eight times as many reach the disk."""
BLOCK = 65_536
"""Rows of a block, from which entries are picked."""
LINE = 64
"""Bytes that a processor reads at a time."""

# ------------------------------------------------------------------------------------------------------------ rates


@njit(nogil=True)
def picked(table: Any, places: Any) -> float:
    """Sum of one number of each row that is picked."""
    total = 0.0
    for place in places:
        total += table[place, 0]
    return total


def together(work: Callable[[int], Any], amount: float) -> float:
    """What all processors do in a second of ``amount`` each, the best of some tries."""
    count, best = len(os.sched_getaffinity(0)), 0.0
    with ThreadPoolExecutor(count) as pool, threadpool_limits(1):
        for _ in range(TRIES):
            began = time.perf_counter()
            list(pool.map(work, range(count)))
            best = max(best, count * amount / (time.perf_counter() - began))
    return best


def machine(folder: Path, size: int) -> dict[str, float]:
    """What all processors of the machine together do in a second; ``size``: bytes that each streams."""
    count, rng = len(os.sched_getaffinity(0)), np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    streams = [np.ones(size // 8) for _ in range(count)]
    copies = [np.empty(size // 8) for _ in range(count)]
    rows = [np.ones((BLOCK, LINE // 8)) for _ in range(count)]
    places = [rng.integers(0, BLOCK, 1 << 21) for _ in range(count)]
    single = [rng.standard_normal((2, 1024, 1024), np.float32) for _ in range(count)]
    double = [part.astype(np.float64) for part in single]
    picked(rows[0], places[0][:10])
    found = {
        "memory": together(lambda i: np.copyto(copies[i], streams[i]), 2 * size),
        "picked": together(lambda i: picked(rows[i], places[i]), len(places[0])),
        "products32": together(lambda i: single[i][0] @ single[i][1], 2 * 1024**3),
        "products64": together(lambda i: double[i][0] @ double[i][1], 2 * 1024**3),
    }
    files = [folder / f"rates-{i}" for i in range(count)]
    try:
        found["written"] = together(lambda i: streams[i].tofile(files[i]), size)
        found["read"] = together(lambda i: read(files[i], copies[i]), size)
        found["disk"] = on_disk(files[0], streams[0])
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    return found


def read(file: Path, into: Any) -> None:
    """Read a whole file into memory that is there."""
    with file.open("rb", buffering=0) as opened:
        opened.readinto(memoryview(into).cast("B"))


def on_disk(file: Path, data: Any) -> float:
    """Bytes a second that reach the disk."""
    began = time.perf_counter()
    with file.open("wb", buffering=0) as opened:
        for _ in range(8):
            opened.write(memoryview(data).cast("B"))
        os.fsync(opened.fileno())
    return float(8 * data.nbytes / (time.perf_counter() - began))


def dirty() -> float:
    """Bytes that the page cache holds before somebody who writes waits for the disk."""
    vm, about = Path("/proc/sys/vm"), Path("/proc/meminfo").read_text()
    free = 1024 * int(about.split("MemAvailable:")[1].split()[0])
    return float(int((vm / "dirty_bytes").read_text()) or int((vm / "dirty_ratio").read_text()) / 100 * free)


# ----------------------------------------------------------------------------------------------------------- bounds


def least_work(run: Path, record: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What each stage has to do at the least, by the resource that it takes.

    Bytes of files are those of the arrays that the plan declares. A pass of the solve streams the entries of the
    matrix and its six vectors, those of the update there and back; of vectors in files each is written and read.
    """
    n, d = record["n"], record["d"]
    found = {file.stem: json.loads(file.read_text())["results"] for file in (run / "manifest").glob("*.json")}
    work: dict[str, dict[str, float]] = {
        stage["name"]: {"read": stage["read"], "written": stage["write"], "products32": stage["flops"], "picked": 0.0}
        for stage in record["plan"]["stages"]
    }
    edges, passes, width = found["kernel"]["edges"], found["solve"]["passes"], block_width(PAIRS)
    work["order"] |= {"products32": 2.0 * n * d * found["partition"]["partitions"], "picked": 2 * n}
    work["search"]["products32"] = 2.0 * n * d * found["search"]["compared_per_row"]
    for name in ("graph", "kernel", "components"):
        work[name]["picked"] = edges
    vectors = (4 * 8 + 4) * n * width
    work["solve"] = {
        "memory": passes * (2 * vectors + (8 + 4 + 8) * n * width + 8 * edges),
        "products64": passes * 24.0 * n * width**2,
        "picked": passes * edges,
    }
    if "in files" in record["plan"]["vectors"]:
        work["solve"] |= dict.fromkeys(("read", "written"), passes * (vectors + 8 * n * width))
    return work


def bounds(work: Mapping[str, float], rates: Mapping[str, float], held: float) -> dict[str, float]:
    """Seconds of each resource; of what a stage writes, what the page cache does not take waits for the disk."""
    seconds = {name: amount / rates[name] for name, amount in work.items()}
    return seconds | {"disk": max(0.0, work.get("written", 0.0) - held) / rates["disk"]}


def main() -> None:
    """Run the job, measure the machine, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1.5 GiB")
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--bytes", type=int, default=LARGE, help="that each processor streams to measure the machine")
    parser.add_argument("--picture", metavar="NAME", help="draw what is stored of this name, and nothing else")
    given = parser.parse_args()
    if given.picture:
        draw_both(json.loads((HERE / "results" / f"{given.picture}.json").read_text()))
        return
    folder = Path(given.folder).absolute()
    data_set("mixture", folder, n=given.n, d=given.d)
    before, held = machine(folder, given.bytes), dirty()
    record = end_to_end.finished(given.n, given.d, given.workers, given.memory, folder)
    after = machine(folder, given.bytes)
    rates = {name: max(before[name], after[name]) for name in before}
    work, rows = least_work(folder / end_to_end.OUTPUT, record), {}
    for stage in record["stages"]:
        seconds = bounds(work[stage["name"]], rates, held)
        binds = max(seconds, key=lambda name: seconds[name])
        rows[stage["name"]] = {
            "seconds": stage["seconds"],
            "bound": seconds[binds],
            "binds": binds,
            "ratio": stage["seconds"] / seconds[binds] if seconds[binds] else 0.0,
            **{f"{name}_seconds": value for name, value in seconds.items() if value},
        }
    rows["all"] = {
        "seconds": record["seconds"],
        "bound": sum(row["bound"] for row in rows.values()),
        **{f"{name}_rate": rate for name, rate in rates.items()},
    }
    table("limits", {"n": given.n, "d": given.d, "workers": given.workers}, rows)
    draw_both(json.loads((HERE / "results" / f"limits-n{given.n}-d{given.d}-workers{given.workers}.json").read_text()))


# ---------------------------------------------------------------------------------------------------------- picture

WORDS = {
    "read": "reading files", "written": "writing files", "disk": "the disk", "memory": "memory",
    "picked": "rows picked at random", "products32": "products (float32)", "products64": "products (float64)",
}  # fmt: skip
COLORS = {
    "light": {"taken": "#b9c6d8", "bound": "#2166ac", "ink": "#2b2f36", "plate": "#ffffff"},
    "dark": {"taken": "#3d4c60", "bound": "#6cb2ee", "ink": "#e6edf3", "plate": "#0d1117"},
}


def draw_both(result: Mapping[str, Any]) -> None:
    """Draw a stored result, light and dark."""
    folder = HERE.parent / "docs" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, colors in COLORS.items():
        draw(result, colors, folder / f"limits_{name}.png")


def draw(result: Mapping[str, Any], colors: Mapping[str, str], path: Path) -> None:
    """Seconds of each stage, and those of its bound within them."""
    stages = {name: row for name, row in result["rows"].items() if name != "all"}
    whole = sum(row["seconds"] for row in stages.values())
    shown = {name: row for name, row in stages.items() if row["seconds"] >= 0.01 * whole}
    figure = Figure(figsize=(8.4, 0.36 * len(shown) + 1.1), layout="constrained", facecolor=colors["plate"])
    axes, places = figure.subplots(), range(len(shown))[::-1]
    axes.set_facecolor(colors["plate"])
    axes.barh(places, [row["seconds"] for row in shown.values()], color=colors["taken"], height=0.7, label="taken")
    axes.barh(places, [row["bound"] for row in shown.values()], color=colors["bound"], height=0.7, label="bound")
    for place, row in zip(places, shown.values(), strict=True):
        said = f" {row['ratio']:.1f} × {WORDS[row['binds']]}" if row["bound"] >= 0.01 * row["seconds"] else ""
        axes.text(row["seconds"], place, said, va="center", color=colors["ink"], fontsize=9)
    axes.set_yticks(places, list(shown))
    axes.set_xlim(0, 1.35 * max(row["seconds"] for row in shown.values()))
    axes.set_xlabel("seconds", color=colors["ink"])
    axes.tick_params(colors=colors["ink"], length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(colors["ink"])
    axes.legend(frameon=False, labelcolor=colors["ink"], loc="lower right")
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main()
