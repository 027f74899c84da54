"""Shortest paths between all rows, for graphs that fit in the memory of a worker."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bigembed.blocks.csr import BlockMatrix
from bigembed.blocks.rows import Array, offsets
from bigembed.paths.dijkstra import Dijkstra, LocalGraph, lengths_of
from bigembed.store.rows.offenders import refuse_size

LEAST, MOST = 2.0**-100, 2.0**120
"""Of the longest of some geodesic distances."""


def whole_graph(matrix: BlockMatrix, *, squared: bool) -> LocalGraph:
    """All blocks as one graph on internal ids: 12 bytes an edge, in this process."""
    starts = offsets(matrix.rows)
    indptr, indices, lengths = [np.zeros(1, np.int64)], [], []
    for b in range(len(matrix.rows)):
        block = matrix.block(b)
        indptr.append(block.indptr[1:] + indptr[-1][-1])
        indices.append(block.ids(b, starts)[block.indices].astype(np.int32))
        lengths.append(lengths_of(block.data, squared=squared))
    return LocalGraph(np.concatenate(indptr), np.concatenate(indices), np.concatenate(lengths), int(starts[-1]))


@lru_cache(maxsize=1)
def cached_graph(matrix: BlockMatrix, squared: bool) -> LocalGraph:
    """The whole graph, opened once in a worker (a stored matrix is known by its digest)."""
    return whole_graph(matrix, squared=squared)


def distances_block(graph: LocalGraph, sources: Array, targets: Array) -> Array:
    """Distances (len(sources), len(targets)) float32; inf where there is no path."""
    paths = Dijkstra(graph)
    out = np.empty((len(sources), len(targets)), np.float32)
    changed = np.empty(graph.own, np.bool_)
    for row, source in zip(out, sources.tolist(), strict=True):
        distances = np.full(graph.own, np.inf)
        paths.improve(distances, changed, np.array([source], np.int32), np.zeros(1))
        row[:] = narrowed(distances[targets])
    return out


def narrowed(distances: Array) -> Array:
    """Distances as float32, in which they are kept; InputError where the longest of them overflows float32.

    >>> narrowed(np.array([1.0, np.inf])).tolist()
    [1.0, inf]
    """
    size = float(np.max(distances, where=np.isfinite(distances), initial=0.0))
    if size and not LEAST <= size <= MOST:
        refuse_size(size, MOST, LEAST, "the geodesic distances, which are kept in float32,")
    return distances.astype(np.float32)
