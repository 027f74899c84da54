"""Few rows of many columns beside scikit-learn: principal components and linear discriminants.

    python benchmarks/few_rows.py                      # 2 000 genotypes of 50 000 columns, and 480 rows of 16 384

Genotypes (0, 1, 2) of five populations, float32, and rows of forty classes. Each side is fitted to rows in memory in a
process of its own, after a small fit that loads what it needs; ``seconds`` are those of ``fit`` alone. ``judged``: what
bigembed takes of these to compare the map with the rows. ``apart``: the largest relative difference of the explained
variances, as shares, to those of the last side, which is exact in float64. ``peak_gib``: the memory of the process, its
rows included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from typing import Any

import numpy as np
from common import table, watched

COMPONENTS, POPULATIONS, CLASSES = 10, 5, 40
SIDES = ("ours", "arpack", "randomized", "full")


def genotypes(n: int, d: int) -> np.ndarray:
    """Counts of an allele in rows of populations whose frequencies differ by .05 of their variances."""
    random = np.random.default_rng(0)
    common = random.uniform(0.05, 0.5, d)
    spread = np.sqrt(0.05 * common * (1 - common))
    own = np.clip(common + random.normal(size=(POPULATIONS, d)) * spread, 0.01, 0.99)
    return random.binomial(2, own[random.integers(0, POPULATIONS, n)]).astype(np.float32)


def classes(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of classes, and their labels."""
    random = np.random.default_rng(1)
    labels = np.arange(n) % CLASSES
    rows = random.normal(size=(n, d)) + random.normal(size=(CLASSES, d))[labels]
    return rows.astype(np.float32), labels


def principal(side: str, rows: np.ndarray, count: int | None) -> Any:
    """The components of a side."""
    if side == "ours":
        from bigembed import PCA

        return PCA(count).fit(rows)
    from sklearn.decomposition import PCA as Peer

    return Peer(count, svd_solver=side, random_state=0).fit(rows.astype(np.float64) if side == "full" else rows)


def discriminants(side: str, rows: np.ndarray, labels: np.ndarray) -> Any:
    """The discriminants of a side."""
    if side == "ours":
        from bigembed import LinearDiscriminantAnalysis

        return LinearDiscriminantAnalysis().fit(rows, labels)
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Peer

    return Peer().fit(rows.astype(np.float64), labels)


def fitted(what: str, side: str, n: int, d: int) -> dict[str, Any]:
    """One side: its seconds, and the variances that it finds."""
    warnings.simplefilter("ignore")
    if what == "discriminants":
        discriminants(side, *classes(3 * CLASSES, 2_000))
        rows, labels = classes(n, d)
        began = time.perf_counter()
        found = discriminants(side, rows, labels)
    else:
        count = None if what == "all" else COMPONENTS
        principal(side, genotypes(100, 2_000), count)
        rows = genotypes(n, d)
        began = time.perf_counter()
        found = principal(side, rows, count)
    seconds = time.perf_counter() - began
    shares = np.asarray(found.explained_variance_ratio_, np.float64)
    run = getattr(found, "_run", None)
    judged = {} if run is None else {"judged": run.manifest("judgement").measured["seconds"]}
    return {"seconds": round(seconds, 2), **judged, "shares": shares[shares > 1e-9].tolist()}


def main(n: int, d: int, rows: int, columns: int, all_of: int) -> None:
    """Every side in a process of its own, beside the exact one."""
    asked = [("ten", n, d, SIDES), ("all", all_of, columns, ("ours", "full"))]
    asked.append(("discriminants", rows, columns, ("ours", "svd")))
    out: dict[str, dict[str, Any]] = {}
    for what, height, width, sides in asked:
        done = {side: watched(sys.executable, __file__, "--one", what, side, str(height), str(width)) for side in sides}
        exact = np.array(done[sides[-1]]["shares"])
        for side, found in done.items():
            shares = np.array(found.pop("shares"))[: len(exact)]
            apart = float(np.abs(shares / exact[: len(shares)] - 1).max())
            out[f"{what}, {height} × {width}, {side}"] = {**found, "apart": f"{apart:.1g}"}
    table("few_rows", {"n": n, "d": d, "rows": rows, "columns": columns}, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2_000, help="genotypes")
    parser.add_argument("--d", type=int, default=50_000, help="their columns")
    parser.add_argument("--rows", type=int, default=480, help="rows of forty classes")
    parser.add_argument("--columns", type=int, default=16_384, help="their columns, and of those with all components")
    parser.add_argument("--all-of", type=int, default=1_440, help="genotypes of which all components are found")
    parser.add_argument("--one", nargs=4, metavar=("WHAT", "SIDE", "N", "D"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(fitted(given.one[0], given.one[1], *map(int, given.one[2:]))))
    else:
        main(given.n, given.d, given.rows, given.columns, given.all_of)
