"""The recipe for counts of single cells, sparse, beside Scanpy: the genes chosen, the components, time and memory.

    python workflows/cells.py bench-data/cells.h5ad --cells 100000 --genes 20000
    python benchmarks/single_cell.py bench-data/cells.h5ad --peer PYTHON

Both sides read the file, scale totals to 10⁴, take the 2000 highly variable genes, logarithms, scale without mean, clip
at 10, and find 50 components. ``--peer``: a Python that has Scanpy. Components are compared up to their signs and the
factor √((n − 1)/n), as Scanpy divides variances by n − 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import clear, peak_of, table

from bigembed.store.arrays import read_array

STEPS = """
[[steps]]
name = "normalize"
norm = "total"
target = 1e4
[[steps]]
name = "columns"
most_variable = 2_000
by = "dispersion"
[[steps]]
name = "log1p"
[[steps]]
name = "standardize"
with_mean = false
[[steps]]
name = "clip"
high = 10
[method]
name = "pca"
n_components = 50
"""
PEER = """
import sys
import numpy as np, scanpy as sc
cells = sc.read_h5ad(sys.argv[1])
sc.pp.normalize_total(cells, target_sum=1e4)
sc.pp.log1p(cells)
sc.pp.highly_variable_genes(cells, n_top_genes=2_000)
chosen = cells.var.highly_variable.values
cells = cells[:, chosen].copy()
sc.pp.scale(cells, zero_center=False, max_value=10)
sc.pp.pca(cells, n_comps=50, svd_solver="arpack")
np.savez(sys.argv[2], genes=np.flatnonzero(chosen), components=cells.obsm["X_pca"])
"""


def timed(*command: str) -> dict[str, Any]:
    """Seconds and peak of memory, of all processes, of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = peak_of(process.pid)
    if process.wait():
        raise SystemExit(f"{command[:3]}: failed")
    return {"seconds": time.perf_counter() - began, "peak_GiB": peak() / 2**30}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells")
    parser.add_argument("--peer", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="900 MiB")
    given = parser.parse_args()
    cells = Path(given.cells).absolute()
    job, out, theirs = (cells.with_suffix(end) for end in (".toml", ".zarr", ".npz"))
    for place in (out, cells.with_name(f"{cells.stem}-input.zarr"), cells.with_name(f"{cells.stem}-input-ids.zarr")):
        clear(str(place))
    where = f"[cluster]\nworkers = {given.workers}\nmemory = {json.dumps(given.memory)}\n"
    job.write_text(f'[input]\npath = "{cells}"\n{STEPS}[output]\npath = "{out}"\n{where}')
    mine = timed(sys.executable, "-m", "bigembed.cli", "run", str(job))
    peer = timed(given.peer, "-c", PEER, str(cells), str(theirs))
    stages, other = out / "stages", np.load(theirs)
    genes = read_array(stages / "step2-columns-choice" / "chosen")
    found, expected = read_array(stages / "coordinates" / "embedding"), other["components"]
    found = found * np.sign((found * expected).sum(axis=0)) * np.sqrt((len(found) - 1) / len(found))
    apart = np.abs(found - expected).max() / np.abs(expected).max()
    same = {"genes_in_both": len(np.intersect1d(genes, other["genes"])), "apart": float(apart)}
    ratio = {name: mine[name] / peer[name] for name in mine}
    sides = {"job": mine, "Scanpy": peer, "ratio": ratio, "same": same}
    table("single_cell", {"cells": len(found), "of": cells.name}, sides)


if __name__ == "__main__":
    main()
