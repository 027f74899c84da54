"""How what a job does grows with the rows: exponents of tasks, bytes, opened files and messages, for every stage.

    python benchmarks/growth.py                           # a diffusion map, 40 000 and 160 000 rows in blocks of 1 000
    python benchmarks/growth.py --method umap

Small blocks stand for large data: with as many of them as 10⁷ and 4·10⁷ rows have, what would grow faster than the
rows there does so here. A process keeps one block of a matrix, as it does of full blocks: of small ones it would keep
all of the smaller job and not all of the larger. Tasks run one after another in this process, vectors lie in files, as
where workers are on several machines; what a task would be sent is pickled and measured. Seconds are those of the
processor. An exponent above 1.15 of what is a hundredth of the whole or more ends it with status 1.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TaskCounts, table

from bigembed.datasets import dataset
from bigembed.maps import method
from bigembed.runtime import using
from bigembed.runtime.calls import Common, common_of, with_common
from bigembed.runtime.client_executor import INLINE
from bigembed.store import matrix
from tests.blocks import blocks_of

MOST = 1.15
SHARE = 0.01
"""Of the whole, from which on a stage counts."""


class Counting(TaskCounts):
    """An executor that runs tasks here and counts what they are; it observes which stage they are of."""

    in_this_process, pool, threads = False, None, 1

    def opened(self, name: str, arguments: Any) -> None:
        """Count files that are opened."""
        if name == "open" and self.stage:
            self.stages[self.stage]["opened"] += 1

    def run(self, calls: Sequence[Callable[[], Any]], label: str, progress: Any = None, keep: Any = None) -> list[Any]:
        """Return the results of the calls, in their order."""
        found = []
        common = common_of(calls[0]) if len(calls) > 1 else None
        together = len(pickle.dumps(common)) if common is not None else 0
        self.stages[self.stage]["sent"] += together if together > INLINE else 0
        for place, call in enumerate(calls):
            sent = with_common(call, Common()) if together > INLINE else call
            self.stages[self.stage]["sent"] += len(pickle.dumps(sent))
            found.append(call())
            if keep is not None:
                keep(place, found[-1])
        return found

    def free_memory(self) -> None:
        """Do nothing: there is no other process."""


def counted(name: str, n: int, columns: int, block: int) -> dict[str, Counter[str]]:
    """Return what each stage of a fit of so many rows does."""
    counting, estimator = Counting(), method(name)(n_components=3)
    rows = dataset("mixture", n=n, d=columns).rows(0, n)
    one_block = patch.object(matrix, "KEPT_BYTES", 0)
    with tempfile.TemporaryDirectory() as folder, blocks_of(block), one_block, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.addaudithook(counting.opened)
        given = {"executor": counting, "recorder": counting.map, "observer": counting.event, "vector_memory": 0}
        with using(**given):
            estimator.set_params(workdir=folder).fit(rows)
    counting.stage = ""  # (the hook stays)
    return dict(counting.stages)


def exponents(
    small: Mapping[str, Counter[str]], large: Mapping[str, Counter[str]], factor: float
) -> dict[str, dict[str, float]]:
    """Return the exponent of each count of each stage, and of all together."""
    rows = {}
    for stage in [*large, "all"]:
        one, other = (sum(found.values(), Counter()) if stage == "all" else found[stage] for found in (small, large))
        rows[stage] = {name: log(other[name] / one[name]) / log(factor) for name in other if one[name] > 0}
    return rows


def main() -> None:
    """Fit both sizes, and print exponents and what is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="diffusion_map")
    parser.add_argument("--rows", type=int, nargs=2, default=(40_000, 160_000))
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--block", type=int, default=1_000, help="rows of a block")
    asked, began = parser.parse_args(), time.monotonic()
    small, large = (counted(asked.method, n, asked.columns, asked.block) for n in asked.rows)
    rows = exponents(small, large, asked.rows[1] / asked.rows[0])
    whole = sum(large.values(), Counter())
    faults = [
        f"{stage}: {name} ~ n^{value:.2f}, {large[stage][name] / whole[name]:.0%} of all"
        for stage, found in rows.items()
        for name, value in found.items()
        if stage != "all" and value > MOST and large[stage][name] > SHARE * whole[name]
    ]
    table("growth", {"method": asked.method, "rows": "-".join(map(str, asked.rows)), "block": asked.block}, rows)
    print("all, of the larger:", dict(whole), f"{time.monotonic() - began:.0f} s")
    if faults:
        raise SystemExit("grows faster than the rows:\n" + "\n".join(faults))


if __name__ == "__main__":
    main()
