"""A job in windows of three blocks' time: every start is ended before its fourth task, until one comes to the end.

    python benchmarks/windows.py

Rows are normal numbers in 32 columns, whose neighbors are found by NN-descent: the hardest case for a start that is
short. Tasks run one after another in this process, vectors lie in files, as where workers are on several machines. The
run must be the same as an undisturbed one. Printed are starts, tasks of all starts beside those of the undisturbed run,
and processor seconds: what starts cost besides the work.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import table

import bigembed as be
from bigembed.runtime import using

SHOWN = 50
"""Starts between two lines that say how far it is."""


class Ended(Exception):
    """The window is over."""


class Window:
    """An executor that makes tasks until the window is over."""

    in_this_process, pool, threads = False, None, 1

    def __init__(self, tasks: int | None) -> None:
        self.tasks, self.made, self.longest = tasks, 0, 0.0

    def run(self, calls: Sequence[Callable[[], Any]], label: str, progress: Any = None, keep: Any = None) -> list[Any]:
        """Return the results of the calls, in their order."""
        found = []
        for place, call in enumerate(calls):
            if self.made == self.tasks:
                raise Ended
            began = time.process_time()
            found.append(call())
            self.longest = max(self.longest, time.process_time() - began)
            self.made += 1
            if keep is not None:
                keep(place, found[-1])
        return found

    def free_memory(self) -> None:
        """Do nothing: there is no other process."""


def start(rows: Path, run: Path, tasks: int | None) -> tuple[Window, bool]:
    """One start of the fit; whether it came to the end."""
    window = Window(tasks)
    try:
        with using(executor=window):
            be.DiffusionMap(n_components=2, workdir=run).fit(str(rows))
    except Ended:
        return window, False
    return window, True


def stages(run: Path) -> dict[str, Any]:
    """What each stage published: its files with their digests."""
    manifests = {path.stem: json.loads(path.read_text()) for path in (run / "manifest").glob("*.json")}
    return {name: (found["key"], found["files"]) for name, found in manifests.items()}


def main() -> None:
    """Fit undisturbed, then in windows; print the figures of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=400_000)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    asked.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    rows = folder / "rows.npy"
    np.save(rows, np.random.default_rng(0).normal(size=(asked.n, 32)).astype("f4"))
    began = time.process_time()
    whole, _ = start(rows, folder / "whole", None)
    alone, began = time.process_time() - began, time.process_time()
    print(f"undisturbed: {whole.made} tasks, {alone:.0f} s of the processor", flush=True)
    starts = made = 0
    done = False
    while not done:
        window, done = start(rows, folder / "windows", asked.tasks)
        starts, made = starts + 1, made + window.made
        if starts % SHOWN == 0:
            there = ", ".join(path.stem for path in sorted((folder / "windows" / "manifest").glob("*.json")))
            print(f"{starts} starts, {made} tasks, {time.process_time() - began:.0f} s; done: {there}", flush=True)
        if starts > 2 * whole.made:
            raise SystemExit(f"no end after {starts} starts")
    figures = {
        "undisturbed": {"starts": 1, "tasks": whole.made, "processor": alone, "longest_task": whole.longest},
        "windows": {"starts": starts, "tasks": made, "processor": time.process_time() - began},
    }
    if stages(folder / "windows") != stages(folder / "whole"):
        raise SystemExit("the run in windows has other bytes")
    shutil.rmtree(folder)
    table("windows", {"n": asked.n, "tasks": asked.tasks}, figures)


if __name__ == "__main__":
    main()
