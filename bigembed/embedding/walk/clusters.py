"""Clusters of new rows: their coordinates by the Nyström formula, then the nearest center."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bigembed.blocks.rows import Array
from bigembed.embedding.clusters import points_of
from bigembed.embedding.extension import Extension
from bigembed.embedding.walk.extension import WalkModel, extend_rows, grouping, model_of
from bigembed.neighbors.ordering.partition import nearest_centers
from bigembed.neighbors.ordering.survey import Shape
from bigembed.neighbors.radius_query import AnyIndex
from bigembed.runs import Run
from bigembed.store.arrays.io import read_array


@dataclass(frozen=True)
class ClusterModel:
    """The walk, and where the centers are."""

    walk: WalkModel
    centers: str
    normalize_rows: bool

    @property
    def index(self) -> AnyIndex:
        """Where the fitted rows are."""
        return self.walk.index

    @property
    def shape(self) -> Shape:
        """What the fitted rows were like."""
        return self.walk.shape


def labels_of_rows(rows: Array, model: ClusterModel) -> Array:
    """The cluster of each of finite new rows, (n, 1)."""
    points = points_of(extend_rows(rows, model.walk), model.normalize_rows)
    return nearest_centers(points, read_array(model.centers))[:, None]


def prediction(run: Run, metric: Any = None) -> Extension:
    """What turns new rows into numbers of clusters."""
    walk = model_of(run, metric)
    normalize_rows = run.parameters("clusters")["normalize_rows"]
    model = ClusterModel(walk, run.path("clusters", "centers"), normalize_rows)
    d, near = walk.shape.d, grouping(walk)
    return Extension(labels_of_rows, model, 1, d, dtype="int32", grouping=near, cheap=False, sparse=True)
