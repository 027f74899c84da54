"""How far a diffusion map in a subspace of landmarks is from the full one: sines of the largest principal angle.

    python benchmarks/landmarks.py

Six coordinates of the 4 000-point swiss roll (no noise, k = 15, α = 1), from 200, 500 and 1 000 landmarks, max-min and
uniform, Galerkin and Nyström; the full map is solved to a residual of 1e-6 on the same graph. Errors are the median and
the worst of three seeds (max-min) and five (uniform). ``seconds`` is the solve stage, beside that of the full map.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from common import table
from scipy.linalg import subspace_angles

import bigembed as be
from bigembed.datasets import dataset

PAIRS, NEIGHBORS = 6, 15
COUNTS = (200, 500, 1_000)
SEEDS = {"max-min": 3, "uniform": 5}


def seconds(found: Any) -> float:
    """Of the solve stage."""
    return float(found._run.manifest("solve").measured["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=4_000)
    given = parser.parse_args()
    graph = be.build_neighbor_graph(dataset("swiss_roll", n=given.n).rows(0, given.n), NEIGHBORS)
    full = be.DiffusionMap(PAIRS, t=0).fit(graph)
    rows: dict[str, dict[str, Any]] = {"full": {"seconds": seconds(full), "passes": full.certificate_["passes"]}}
    for extension in ("galerkin", "nystrom"):
        for selection, seeds in SEEDS.items():
            for count in COUNTS:
                errors, times = [], []
                for seed in range(seeds):
                    found = be.DiffusionMap(
                        PAIRS,
                        t=0,
                        solver="landmarks",
                        n_landmarks=count,
                        landmarks=selection,
                        extension=extension,
                        random_state=seed,
                    ).fit(graph)
                    errors.append(np.sin(subspace_angles(full.embedding_, found.embedding_).max()))
                    times.append(seconds(found))
                rows[f"{extension} {selection} {count}"] = {
                    "error": float(np.median(errors)),
                    "worst": float(np.max(errors)),
                    "seconds": float(np.median(times)),
                    "passes": found.certificate_["passes"],
                }
    table("landmarks", {"n": given.n}, rows)


if __name__ == "__main__":
    main()
