"""Clusters of new rows of a map: those of the nearest of the rows that were clustered, or of the nearest center."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.frame import frame_in
from bigembed.estimator.protocol import run_of
from bigembed.linalg.alignment import Alignment
from bigembed.maps.clustering.partitions import NOISE, nearest_labels
from bigembed.maps.clustering.stages import CLUSTERS
from bigembed.rows.source import RowSource, rows_at
from bigembed.runtime.blocks import Array
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array
from bigembed.store.paths import at


@dataclass(frozen=True)
class Anchors:
    """Where a task finds the points with clusters that new rows are compared with. Small and picklable."""

    points: str
    labels: str
    """None are there where each point is the center of its own cluster."""
    frame: Alignment | None = None
    """What lays the map over an earlier one; the points are of the map before that."""

    @classmethod
    def of(cls, run: Run) -> Anchors:
        """Return those of a run, or of a saved model."""
        names = {name.partition("/")[0] for name in run.manifest(CLUSTERS).files}
        if "centers" in names:
            return cls(run.path(CLUSTERS, "centers"), "", frame_in(run))
        if "anchors" not in names:
            raise InputError(f"{run.root}: its clusters are of a graph alone, without coordinates for new rows")
        return cls(run.path(CLUSTERS, "anchors"), run.path(CLUSTERS, "anchor_labels"), frame_in(run))

    def __call__(self, points: Array) -> Array:
        """Return the cluster of each point (m, width): int32; −1 for a row without coordinates (NaN)."""
        anchors = read_array(self.points)
        labels = read_array(self.labels) if self.labels else np.arange(len(anchors), dtype=np.int32)
        there = np.isfinite(points).all(axis=1)
        points = points if self.frame is None else self.frame.undo(points)
        found = np.full(len(points), NOISE, np.int32)
        if len(anchors):
            found[there] = nearest_labels(np.asarray(points[there], np.float64), anchors, labels)
        return found


@dataclass(frozen=True)
class PlacedClusters(RowSource):
    """The clusters of rows by their coordinates; of the first ones as they were found."""

    coordinates: RowSource | None = None
    anchors: Anchors | None = None
    found: RowSource | None = None

    @property
    def grain(self) -> int:
        """Rows of coordinates that are decompressed together."""
        assert self.coordinates is not None
        return self.coordinates.grain

    def read(self, start: int, stop: int) -> Array:
        """Return the clusters of rows ``start:stop``."""
        assert self.coordinates is not None
        assert self.anchors is not None
        stop = min(stop, self.shape[0])
        known = 0 if self.found is None else self.found.shape[0]
        parts = []
        if self.found is not None and start < known:
            parts.append(self.found.read(start, min(stop, known)))
        if max(start, known) < stop:
            parts.append(self.anchors(self.coordinates.read(max(start, known), stop)))
        return np.concatenate(parts) if parts else np.empty(0, np.int32)


def has_clusters(fitted: Any) -> bool:
    """Return whether clusters were looked for after the map of a fitted estimator, or of a saved model."""
    return CLUSTERS not in type(fitted).saved_stages and run_of(fitted).has(CLUSTERS)


def new_clusters(run: Run, coordinates: RowSource) -> PlacedClusters:
    """Return the clusters of new rows with these coordinates, read when asked for."""
    return PlacedClusters((coordinates.shape[0],), np.dtype(np.int32), coordinates=coordinates, anchors=Anchors.of(run))


def clusters_of(run: Run, model: Run, coordinates: RowSource, fitted: int) -> RowSource:
    """Return the clusters of all rows of a growing map: as found of those fitted, by nearness of those placed since.

    Where a step has left rows out of the fit, those of all rows are by nearness.
    """
    found = rows_at(at(run.path(CLUSTERS, "labels")))
    return replace(new_clusters(model, coordinates), found=found if found.shape[0] == fitted else None)
