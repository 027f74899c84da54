"""A map of 19 cities from their great-circle distances alone, with their names, beside its eigenvalues.

    python workflows/us_cities.py us_cities.png

Distances on a sphere are not Euclidean: some eigenvalues are negative (seed 000 §3).
"""

from __future__ import annotations

import sys

import bigembed as be
from bigembed.datasets import dataset
from bigembed.datasets.closed_forms import US_CITIES
from bigembed.plotting import named


def main(path: str) -> None:
    """Fit, turn the map so that east is right and north is up, draw."""
    distances, truth = dataset("us_cities").draw()
    mds = be.ClassicalMDS(n_components=2, metric="precomputed").fit(distances)
    east, north = mds.embedding_.T
    east = east if east @ (truth["longitude"] - truth["longitude"].mean()) > 0 else -east
    north = north if north @ (truth["latitude"] - truth["latitude"].mean()) > 0 else -north
    named(path, east, north, list(US_CITIES), title="US cities by their distances (classical MDS, km)")
    print("eigenvalues", mds.eigenvalues_, "negative", mds.negative_eigenvalues_, "explained", mds.explained_)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "us_cities.png")
