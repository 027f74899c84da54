"""Sets whose maps are known in closed form: graphs, distances of cities, and two disks joined by a corridor."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from scipy.sparse import block_diag, csr_array

from bigembed.datasets.synthetic import Dataset, Truth
from bigembed.errors import InputError
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import at_least, declared, interval

# ---------------------------------------------------------------------------------------------------------- cities
# Cities of the USA: their great-circle distances, the classical example of distances that are not Euclidean.

RADIUS = 6371.0088
"""Mean radius of the Earth, km."""
US_CITIES = {
    "Atlanta": (33.749, -84.388),
    "Boston": (42.360, -71.059),
    "Chicago": (41.878, -87.630),
    "Dallas": (32.777, -96.797),
    "Denver": (39.739, -104.990),
    "Houston": (29.760, -95.370),
    "Kansas City": (39.100, -94.579),
    "Los Angeles": (34.052, -118.244),
    "Miami": (25.762, -80.192),
    "Minneapolis": (44.978, -93.265),
    "New Orleans": (29.951, -90.072),
    "New York": (40.713, -74.006),
    "Philadelphia": (39.953, -75.165),
    "Phoenix": (33.448, -112.074),
    "Salt Lake City": (40.761, -111.891),
    "San Diego": (32.716, -117.161),
    "San Francisco": (37.775, -122.419),
    "Seattle": (47.606, -122.332),
    "Washington": (38.907, -77.037),
}
"""Latitude and longitude in degrees."""


def great_circle(places: Array, others: Array) -> Array:
    """Distances in km (a, b) between places (a, 2) and (b, 2), latitude and longitude in degrees: a block function.

    By the haversine formula: sin²(s/2R) = sin²(Δφ/2) + cos φ cos φ' sin²(Δλ/2).

    >>> great_circle(np.array([[0.0, 0.0]]), np.array([[0.0, 180.0], [0.0, 0.0]])).round(1).tolist()
    [[20015.1, 0.0]]
    """
    (phi, lam), (phi_, lam_) = (np.radians(part, dtype=np.float64).T for part in (places, others))
    half = np.sin((phi[:, None] - phi_) / 2) ** 2
    half += np.outer(np.cos(phi), np.cos(phi_)) * np.sin((lam[:, None] - lam_) / 2) ** 2
    return np.asarray(2 * RADIUS * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


def us_cities_block(start: int, stop: int, rng: Any, n: int) -> tuple[Array, Truth]:
    """Some rows of the distances."""
    places = np.array(list(US_CITIES.values()))
    own = places[start:stop]
    return great_circle(own, places), {"latitude": own[:, 0], "longitude": own[:, 1]}


@declared
def us_cities(dtype: str = "float64") -> Dataset:
    """Compute the 19 × 19 great-circle distances in km of ``US_CITIES``. Truth: latitude, longitude."""
    return Dataset("us_cities", (len(US_CITIES),) * 2, us_cities_block, 0, dtype, granule=None)


# ----------------------------------------------------------------------------------------------------------- disks
# Two disks and a corridor between them: near by shortest paths, far for a random walk.


def disks_block(
    start: int, stop: int, rng: np.random.Generator, n: int, gap: float = 0.6, width: float = 0.15
) -> tuple[Array, Truth]:
    """Uniform by area on two disks of radius 1 with centers at x = ±(1 + gap/2), and a strip between (seed 002)."""
    count = stop - start
    areas = np.array([np.pi, np.pi, gap * width])
    label = np.searchsorted(np.cumsum(areas / areas.sum()), rng.uniform(0.0, 1.0, count)).clip(max=2)
    radius, angle = np.sqrt(rng.uniform(0.0, 1.0, count)), rng.uniform(0.0, 2.0 * np.pi, count)
    along, across = rng.uniform(-0.5, 0.5, count) * gap, rng.uniform(-0.5, 0.5, count) * width
    center = np.where(label == 0, -1.0, 1.0) * (1.0 + gap / 2.0)
    strip = label == 2
    x = np.where(strip, along, center + radius * np.cos(angle))
    y = np.where(strip, across, radius * np.sin(angle))
    return np.stack([x, y], axis=1), {"label": label}


@declared
def disks(
    n: int = 1000,
    gap: Annotated[float, interval(0)] = 0.6,
    width: Annotated[float, interval(0, 2)] = 0.15,
    seed: int = 0,
    dtype: str = "float32",
) -> Dataset:
    """Draw rows from two disks of radius 1, ``gap`` apart, and a corridor of that ``width`` (seed 002, figure 2).

    Truth: label, 0 and 1 for the disks, 2 for the corridor.
    """
    return Dataset("disks", (n, 2), disks_block, seed, dtype, {"gap": float(gap), "width": float(width)})


# ---------------------------------------------------------------------------------------------------------- graphs
# Graphs whose diffusion maps are known in closed form (seed 001), as sparse matrices of weights, held in memory.

COMPLETE = 4096
"""Most nodes of a complete graph, which has n (n − 1) entries."""


@declared
def ring_graph(n: Annotated[int, at_least(3)] = 100, shortcut: bool = False) -> Any:
    """The ring of n nodes, edges of weight 1, as a SciPy CSR array (n, n).

    Eigenvalues of the walk: cos(2πl/n), l = 0, …, n − 1; eigenvectors cos(2πlr/n) and sin(2πlr/n) of node r: the
    map is a circle. ``shortcut``: one edge more, between nodes 0 and n/2, for even n.

    >>> ring_graph(4).toarray().astype(int).tolist()
    [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    """
    if shortcut and n % 2:
        raise InputError(f"ring_graph: n={n} with a shortcut; it leads to the opposite node, so n must be even")
    nodes = np.arange(n)
    first, last = [nodes], [(nodes + 1) % n]
    if shortcut:
        first, last = [*first, np.array([0])], [*last, np.array([n // 2])]
    i, j = np.concatenate([*first, *last]), np.concatenate([*last, *first])
    return csr_array((np.ones(len(i)), (i, j)), shape=(n, n))


@declared
def complete_graph(n: Annotated[int, at_least(2)] = 10) -> Any:
    """The complete graph of n nodes, at most 4096, edges of weight 1, as a SciPy CSR array (n, n).

    Eigenvalues of the walk: 1, and −1/(n − 1) of multiplicity n − 1: no coordinate is better than another.

    >>> complete_graph(3).toarray().astype(int).tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    if n > COMPLETE:
        raise InputError(f"complete_graph: n={n}; it has n (n - 1) entries: at most {COMPLETE} nodes")
    return csr_array(np.ones((n, n)) - np.eye(n))


@declared
def ring_graphs(n: Annotated[int, at_least(3)] = 60, n2: Annotated[int, at_least(3)] = 40) -> Any:
    """Two rings of ``n`` and ``n2`` nodes without an edge between them, as a SciPy CSR array (n + n2, n + n2).

    The walk has the eigenvalue 1 twice, then those of the larger ring first: cos(2π/n) > cos(2π/n2) for n > n2.
    """
    return csr_array(block_diag([ring_graph(n), ring_graph(n2)]))
