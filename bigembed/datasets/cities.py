"""Cities of the USA: their great-circle distances, the classical example of distances that are not Euclidean."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.declared import declared
from bigembed.blocks.rows import Array
from bigembed.datasets.dataset import Dataset, Truth

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
    """The 19 × 19 great-circle distances in km of ``US_CITIES``. Truth: latitude, longitude."""
    return Dataset("us_cities", (len(US_CITIES),) * 2, us_cities_block, 0, dtype, granule=None)
