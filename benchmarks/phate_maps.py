"""PHATE beside phate: processor time, diffusion time, stress, trustworthiness, and how alike both maps are.

    python benchmarks/phate_maps.py --folder bench-data                 # 10 000 rows of MNIST (50 principal components)
    python benchmarks/phate_maps.py --folder bench-data --rows tree     # a tree of 20 branches in 100 dimensions
    python benchmarks/phate_maps.py --folder bench-data --rows tree --n 200000 --peer 0

Both sides start from the same rows on disk, with default parameters and one thread. Processor time is from rows to
coordinates, in a process of its own. ``stress`` is Kruskal's, of the landmarks against the side's own potential
distances (of phate with up to 2 000 rows, as it keeps no places of landmarks), of the map scaled as suits them best;
``alike`` the correlation of the distances on both maps, of 2 000 rows. The peer runs in the environment given by
``--peer-python`` (phate installed), by default this one; ``--peer 0``: without it. ``--images`` is the folder of the
IDX files of MNIST, by default $BIGEMBED_DATA/mnist.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import clear, mnist_components, peak_of, said, table
from scipy.spatial.distance import pdist

BRANCHES, COLUMNS = 20, 100


def tree(n: int, folder: Path) -> str:
    """Random walks joined to points of the first of them, with noise: as ``phate.tree`` makes them."""
    path = folder / f"tree-{n}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        random, length = np.random.default_rng(37), n // BRANCHES
        steps = random.uniform(-1, 1, (BRANCHES, length, COLUMNS)) * (500 / length) ** 0.5
        walks = np.cumsum(steps, axis=1)
        walks[1:] += walks[0, random.integers(length, size=BRANCHES - 1), None]
        rows = walks.reshape(-1, COLUMNS) + random.normal(0, 4, (BRANCHES * length, COLUMNS))
        np.save(path, rows.astype("f4"))
    return str(path)


def ours(path: str, out: str) -> dict[str, Any]:
    """From rows to coordinates in this process."""
    import bigembed as be

    warnings.simplefilter("ignore")
    peak, began = peak_of(os.getpid()), time.process_time()
    found = be.PHATE(workdir=f"{out}.run").fit(path)
    seconds, most = time.process_time() - began, peak()
    np.save(f"{out}.npy", np.asarray(found.embedding_))
    return {"processor_seconds": seconds, "t": found.t_, "stress": found.stress_, "peak_gib": most / 2**30}


def theirs(path: str, out: str) -> dict[str, Any]:
    """phate as it comes."""
    import phate

    warnings.simplefilter("ignore")
    rows = np.load(path)
    peak, began = peak_of(os.getpid()), time.process_time()
    found = phate.PHATE(random_state=0, verbose=0)
    coordinates = found.fit_transform(rows)
    seconds, most = time.process_time() - began, peak()
    np.save(f"{out}.npy", coordinates)
    stress = float("nan")
    if len(found.diff_potential) == len(coordinates):  # (of landmarks it does not keep the places)
        apart, shown = pdist(found.diff_potential), pdist(coordinates)
        scale = (apart @ shown) / (shown @ shown)
        stress = float(np.sqrt(np.square(apart - scale * shown).sum() / (apart @ apart)))
    return {"processor_seconds": seconds, "t": int(found.optimal_t), "stress": stress, "peak_gib": most / 2**30}


def judged(path: str, out: str) -> dict[str, float]:
    """Trustworthiness and continuity of a map."""
    import bigembed as be

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = be.certify(path, np.load(f"{out}.npy")).figures
    return {name: figures[name]["value"] for name in ("trustworthiness", "continuity")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--images", default=str(Path(os.environ.get("BIGEMBED_DATA", ".")) / "mnist"), metavar="FOLDER")
    parser.add_argument("--rows", choices=("mnist", "tree"), default="mnist")
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--peer", type=int, default=1)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=("ours", "theirs"))
    parser.add_argument("--path")
    parser.add_argument("--out")
    asked = parser.parse_args()
    if asked.side:
        print(json.dumps((ours if asked.side == "ours" else theirs)(asked.path, asked.out)))
        return
    made = tree(asked.n, asked.folder) if asked.rows == "tree" else ""
    path = made or mnist_components(asked.n, asked.folder, asked.images)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    sides: dict[str, dict[str, Any]] = {}
    pythons = {"ours": sys.executable} | ({"theirs": asked.peer_python} if asked.peer else {})
    for name, python in pythons.items():
        out = str(asked.folder / f"phate-{asked.rows}-{asked.n}-{name}")
        clear(f"{out}.run")
        sides[name] = said(python, __file__, "--side", name, "--path", path, "--out", out) | judged(path, out)
    if asked.peer:
        some = np.random.default_rng(1).permutation(asked.n)[:2_000]
        maps = [np.load(asked.folder / f"phate-{asked.rows}-{asked.n}-{name}.npy") for name in sides]
        sides["ours"]["alike"] = float(np.corrcoef(*(pdist(one[some[some < len(one)]]) for one in maps))[0, 1])
    table("phate", {"rows": asked.rows, "n": asked.n}, sides)


if __name__ == "__main__":
    main()
