"""Diffusion pseudotime beside scanpy's, of the same graph of cells, in one run.

    python benchmarks/pseudotime.py --n 3000

Cells of two branches that leave a stem, in six noisy columns. scanpy makes the graph and its pseudotime; ours is that
of the same graph (``obsp``, alpha=1) and as many eigenpairs. Both are compared with each other and with the truth, from
three roots.
"""

from __future__ import annotations

import argparse
import time
import warnings

import anndata
import numpy as np
import scanpy
from common import table
from scipy.stats import spearmanr

import bigembed as be

COMPONENTS = 15
"""Of scanpy, the trivial one with them."""


def branching(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells of two branches that leave a stem, and how far each has come."""
    rng = np.random.default_rng(0)
    come, branch = rng.random(n), rng.integers(0, 2, n)
    side = np.where(branch == 1, 1.0, -1.0) * np.maximum(come - 0.4, 0)
    return np.column_stack([come, side]) @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(n, 6)), come


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=3_000)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, come = branching(asked.n)
    cells = anndata.AnnData(rows.astype("f4"))
    scanpy.pp.neighbors(cells, n_neighbors=15, use_rep="X")
    began = time.perf_counter()
    walk = be.DiffusionMap(n_components=COMPONENTS - 1, alpha=1.0).fit(cells.obsp["connectivities"])
    seconds = {"ours map": time.perf_counter() - began}
    began = time.perf_counter()
    scanpy.tl.diffmap(cells, n_comps=COMPONENTS)
    seconds["scanpy map"] = time.perf_counter() - began
    out = {"seconds": seconds}
    for root in (int(np.argmin(come)), asked.n // 3, int(np.argmax(come))):
        cells.uns["iroot"] = root
        began = time.perf_counter()
        scanpy.tl.dpt(cells, n_dcs=COMPONENTS)
        theirs, scanpy_seconds = cells.obs["dpt_pseudotime"].to_numpy(), time.perf_counter() - began
        began = time.perf_counter()
        ours = be.diffusion_pseudotime(walk, root)
        out[f"root {root}"] = {
            "spearman": float(spearmanr(ours, theirs).statistic),
            "largest difference": float(np.abs(ours / ours.max() - theirs).max()),
            "ours and truth": float(spearmanr(ours, np.abs(come - come[root])).statistic),
            "seconds": time.perf_counter() - began,
            "scanpy seconds": scanpy_seconds,
        }
    table("pseudotime", {"n": asked.n}, out)


if __name__ == "__main__":
    main()
