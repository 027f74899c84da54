"""Clusters of a growing map: those that have most rows in common with earlier ones keep their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.jobs.growth.kept import places_of
from bigembed.jobs.growth.versions import Version, misread_is_damage
from bigembed.maps.clustering.partitions import NOISE, kept_numbers
from bigembed.maps.clustering.placing import clusters_of
from bigembed.maps.clustering.stages import CLUSTERS
from bigembed.rows.derived import DerivedRows, RowNumbers
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import Array
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array
from bigembed.store.files import read_sealed, sealed, write_json

FILE = "clusters.json"
"""In the folder of a version: the lasting number of each of its clusters."""


@dataclass(frozen=True)
class NumberedClusters(DerivedRows):
    """Clusters under their lasting numbers."""

    numbers: tuple[int, ...] = ()

    def read(self, start: int, stop: int) -> Array:
        """Return the clusters of rows ``start:stop``."""
        return renumbered(self.source.read(start, stop), self.numbers)

    @property
    def grain(self) -> int:
        """Return the rows that are stored together."""
        return self.source.grain


def renumbered(labels: Array, numbers: tuple[int, ...]) -> Array:
    """Return labels under other numbers, −1 as it is.

    >>> renumbered(np.array([0, 1, -1]), (7, 3)).tolist()
    [7, 3, -1]
    """
    return np.array([*numbers, NOISE], np.int32)[labels]


def number_clusters(version: Version, before: Version | None) -> None:
    """Write the lasting number of each cluster of a version: that of a cluster of the version before, or a new one."""
    run = Run(version.run)
    if not run.has(CLUSTERS):
        return
    count = len(run.results(CLUSTERS)["sizes"])
    numbers, free = list(range(count)), count
    if before is not None and (known := _written(before)):
        old, new = _in_places(before, tuple(known["numbers"])), _in_places(version, tuple(numbers))
        shared = min(len(old), len(new))
        found = kept_numbers(old[:shared], new[:shared], count, known["free"])
        numbers, free = found.tolist(), max(known["free"], int(found.max(initial=-1)) + 1)
    write_json(version.root / FILE, sealed({"numbers": numbers, "free": free}))


def lasting_clusters(version: Version, coordinates: RowSource) -> RowSource:
    """Return the clusters of all rows of a version, under their lasting numbers."""
    found = clusters_of(Run(version.run), Run(version.model, kind="model"), coordinates, version.fitted)
    known = _written(version)
    if not known:
        return found
    return NumberedClusters(found.shape, found.dtype, base=found, numbers=tuple(known["numbers"]))


def _written(version: Version) -> dict[str, Any]:
    """Return the lasting numbers of a version; none of one without clusters."""
    file = version.root / FILE
    if not file.exists():
        return {}
    with misread_is_damage(file):
        found = read_sealed(file)
        return {"numbers": [int(one) for one in found["numbers"]], "free": int(found["free"])}


def _in_places(version: Version, numbers: tuple[int, ...]) -> Array:
    """Return the clusters of the rows fitted in their places in the store; −1 for rows that were left out."""
    labels = renumbered(read_array(Run(version.run).path(CLUSTERS, "labels")), numbers)
    places = places_of(version)
    if places is None:
        return labels
    found = np.full(version.fitted, NOISE, np.int32)
    found[places.of(RowNumbers((version.fitted,), np.dtype(np.int64))).read(0, places.rows)] = labels
    return found
