"""LDM beside PCA: fit_transform of the same Zarr array to a new one, 10 and 100 components.

    python benchmarks/linearized.py --n 2000000 --folder bench-data
    python benchmarks/linearized.py --n 2000000 --folder bench-data --sides pca ldm --components 10

Rows of a Gaussian mixture, float32, 256 columns. Sides: ``pca``; ``ldm`` (symmetric, α = 0: 4 passes with the output);
``ldm_alpha`` (α = 1: 5 passes). Each side runs in its own process on Dask's threads, one a core, after a small fit that
loads what it needs. ``over_pca``: seconds over those of PCA with as many components, measured beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import clear, data_set, peak_of, table

SIDES = ("pca", "ldm", "ldm_alpha")


def estimator(side: str, components: int) -> Any:
    """What a side fits."""
    import bigembed as be

    if side == "pca":
        return be.PCA(components)
    return be.LinearizedDiffusionMap(components, alpha=1.0 if side == "ldm_alpha" else 0.0)


def run_side(side: str, components: int, path: str, warm: str, out: str) -> None:
    """Run one side, after a small one, and print what it took."""
    estimator(side, components).fit_transform_to(warm, f"{out}.warm")
    began, worked = time.perf_counter(), time.process_time()
    fitted = estimator(side, components)
    fitted.fit_transform_to(path, out)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    passes = fitted.certificate_["passes"] + 1
    print(json.dumps({"seconds": seconds, "cpu_seconds": worked, "passes": passes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2_000_000)
    parser.add_argument("--d", type=int, default=256)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--components", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--side", choices=SIDES)
    given = parser.parse_args()
    folder = Path(given.folder)
    path = data_set("mixture", folder, n=given.n, d=given.d)
    warm = data_set("mixture", folder, n=70_000, d=given.d)
    out = str(folder / "linearized-output.zarr")
    if given.side:
        run_side(given.side, given.components[0], path, warm, out)
        return
    for components in given.components:
        rows: dict[str, dict[str, Any]] = {}
        for side in given.sides:
            clear(out)  # what a stopped run may have left
            command = [sys.executable, __file__, "--side", side, "--components", str(components), "--n", str(given.n)]
            command += ["--d", str(given.d), "--folder", given.folder]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            peak = peak_of(process.pid)
            output, _ = process.communicate()
            rows[side] = json.loads(output.strip().splitlines()[-1]) | {"peak_gib": round(peak() / 2**30, 3)}
            if "pca" in rows:
                rows[side]["over_pca"] = round(rows[side]["seconds"] / rows["pca"]["seconds"], 3)
            clear(out)
        table("linearized", {"n": given.n, "d": given.d, "m": components}, rows)


if __name__ == "__main__":
    main()
