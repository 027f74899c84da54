"""PCA of sparse rows from a CSR group in Zarr, never made dense: time, passes and peak memory.

    python benchmarks/linear_sparse.py --n 1000000 --d 20000 --density 0.001 --folder bench-data

Dense, the rows would take 8·n·d bytes. Peak memory is the resident memory of the fitting process and all it starts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import peak_of, table
from scipy import sparse

COMPONENTS = 10


def rows_of(folder: Path, n: int, d: int, density: float) -> str:
    """Path of a CSR group of counts whose columns differ in how often they are filled, written once."""
    from bigembed.rows.sparse import write_csr

    path = folder / f"sparse-n{n}-d{d}-density{density}.zarr"
    if not path.exists():
        generator = np.random.default_rng(0)
        share = generator.gamma(0.5, size=d)
        counts = generator.poisson(density * d, n)
        columns = generator.choice(d, counts.sum(), p=share / share.sum()).astype(np.int32)
        values = generator.exponential(size=len(columns)).astype(np.float32)
        rows = sparse.csr_array((values, columns, np.concatenate([[0], np.cumsum(counts)])), shape=(n, d))
        rows.sum_duplicates()
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        write_csr(partial, rows)
        partial.rename(path)
    return str(path)


def fit(path: str) -> None:
    """Fit, and print what it took."""
    from bigembed import PCA

    began = time.perf_counter()
    pca = PCA(COMPONENTS).fit(path)
    seconds = time.perf_counter() - began
    told = {name: pca.certificate_[name] for name in ("solver", "passes", "residual", "converged")}
    print(json.dumps({"seconds": seconds, **told}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--d", type=int, default=20_000)
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        fit(given.fit)
        return
    path = rows_of(Path(given.folder), given.n, given.d, given.density)
    process = subprocess.Popen([sys.executable, __file__, "--fit", path], stdout=subprocess.PIPE, text=True)
    peak = peak_of(process.pid)
    output, _ = process.communicate()
    found = json.loads(output.strip().splitlines()[-1]) | {
        "peak_gib": round(peak() / 2**30, 3),
        "dense_gib": 8 * given.n * given.d / 2**30,
    }
    table("linear_sparse", {"n": given.n, "d": given.d, "density": given.density}, {"bigembed": found})


if __name__ == "__main__":
    main()
