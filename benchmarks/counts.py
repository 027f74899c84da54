"""What every method does, in numbers that no other load of the machine changes: tasks, and the bytes that they move.

    python benchmarks/counts.py             # beside what is kept; status 1 where something takes more than it did
    python benchmarks/counts.py --keep      # keep what is counted now

Every method is fitted to 1 200 rows in blocks of 400, by the ways of large data. A task and a byte too many at this
size are as many times too many at any other. Solvers end by their residuals, which rounding decides: up to a tenth
more is let pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Mapping
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TaskCounts, table

from bigembed.runtime import using
from bigembed.store import spaces
from tests.blocks import as_if_many
from tests.cases import CASES

KEPT = Path(__file__).parent / "results" / "counts.json"
MORE = 1.1
"""Times what is kept from which a count is a fault."""


def counted(name: str) -> dict[str, int]:
    """Return the counts of a fit of a method, all coordinates written."""
    counts, case = TaskCounts(), CASES[name]
    X = case.X()
    spaces.SECONDS = inf  # (checkpoints come by the clock)
    with tempfile.TemporaryDirectory() as folder, as_if_many(len(X)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with using(recorder=counts.map, observer=counts.event):
            case.fit(X, workdir=folder)
    return {what: counts.total[what] for what in ("maps", "tasks", "read", "written")}


def more(found: Mapping[str, Mapping[str, int]], kept: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return what is counted more than it was, and methods of which nothing is kept."""
    return [f"{name}: nothing is kept" for name in found if name not in kept] + [
        f"{name}: {what} {kept[name][what]:,} → {count:,}"
        for name, counts in found.items()
        for what, count in counts.items()
        if name in kept and count > MORE * kept[name][what]
    ]


def main() -> None:
    """Count, and compare or keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", help="names, separated by commas; by default all")
    parser.add_argument("--keep", action="store_true", help="keep what is counted, instead of comparing")
    asked = parser.parse_args()
    names = asked.methods.split(",") if asked.methods else [name for name, case in CASES.items() if case.plain]
    found = {name: counted(name) for name in names}
    if asked.keep:
        table("counts", {}, found)
        return
    for name, counts in found.items():
        print(f"{name:30}", *(f"{what} {count:,}" for what, count in counts.items()), sep="  ")
    if faults := more(found, json.loads(KEPT.read_text())["rows"]):
        raise SystemExit("more than was kept (--keep, if that is meant):\n" + "\n".join(faults))


if __name__ == "__main__":
    main()
