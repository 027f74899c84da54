"""Dask and xarray arrays that are stored arrays, or windows of them: found by what their graphs say.

A graph that takes chunks from one stored array, and slices of those, says of every chunk which rows and columns it is
of. Where all chunks lie side by side in the stored array as they do in the lazy one, the lazy one is a window of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from bigembed.store.rows.opening import StoredRows, is_zarr, missing_shards
from bigembed.store.storage.paths import AnyPath, at

GETTERS = {"getter", "getter_nofancy", "getter_inline", "getitem"}
"""Functions of graphs that index their first argument by their second."""
WRAPPERS = {"ImplicitToExplicitIndexingAdapter", "CopyOnWriteArray", "MemoryCachedArray", "LazilyIndexedArray"}
"""Of xarray: each shows what it wraps as it is, but for a key."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Rows and columns, each from the first to one past the last, of a stored array."""

    stored: Any
    """The zarr array, or the rows in an object store."""
    spans: tuple[Span, Span]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the window."""
        return self.spans[0][1] - self.spans[0][0], self.spans[1][1] - self.spans[1][0]

    @property
    def path(self) -> AnyPath:
        """Where the stored array lies."""
        found = place_of(self.stored)
        assert found is not None
        return found

    def cut(self, index: Any) -> Window | None:
        """A part of it; None for an index that is not of slices without steps."""
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > 2 or not all(isinstance(part, slice) and part.step in (None, 1) for part in parts):
            return None
        every = zip((*parts, slice(None), slice(None)), self.spans, strict=False)
        found = [(first + low, first + max(low, high)) for low, high, first in map(_bounds, every)]
        return replace(self, spans=(found[0], found[1]))


def window_of(X: Any) -> Window | None:
    """The window of a stored array that a Dask or xarray array is; None for others, and where it cannot be known."""
    try:
        found = _of_graph(X) if hasattr(X, "dask") else _of_value(getattr(getattr(X, "variable", X), "_data", X))
    except Exception:  # graphs are Dask's own matter, and change: what cannot be followed is computed
        return None
    if found is None or found.shape != tuple(X.shape) or found.stored.dtype != X.dtype:
        return None
    if place_of(found.stored) is None:
        return None
    return None if is_zarr(found.stored) and missing_shards(found.stored) else found


def place_of(stored: Any) -> AnyPath | None:
    """Where a zarr array lies, if any process can open it there."""
    if isinstance(stored, StoredRows):
        return at(stored.path)
    store = stored.store
    root = getattr(store, "root", None)
    if root is None and type(store).__name__ == "FsspecStore" and "file" in np.atleast_1d(store.fs.protocol):
        root = store.path
    return None if root is None else at(root) / stored.path


def _of_graph(X: Any) -> Window | None:
    """The window that all chunks of a Dask array make together."""
    from dask._task_spec import convert_legacy_graph

    if X.ndim != 2 or not X.size:
        return None
    graph = convert_legacy_graph(dict(X.__dask_graph__()))
    starts = [np.concatenate([[0], np.cumsum(sizes)]).tolist() for sizes in X.chunks]
    known: dict[Any, Any] = {}
    whole: Window | None = None
    for block in product(*map(range, X.numblocks)):
        found = _value(graph, (X.name, *block), known)
        if not isinstance(found, Window):
            return None
        rows, columns = (
            (low - starts[axis][number], low + X.shape[axis] - starts[axis][number])
            for axis, (number, (low, _)) in enumerate(zip(block, found.spans, strict=True))
        )
        wanted = tuple(X.chunks[axis][number] for axis, number in enumerate(block))
        whole = whole or Window(found.stored, (rows, columns))
        if found.shape != wanted or found.stored is not whole.stored or (rows, columns) != whole.spans:
            return None
    return whole


def _value(graph: Mapping[Any, Any], node: Any, known: dict[Any, Any]) -> Any:
    """What a node of a graph is: a window, or (of an index) itself; None where it is anything else."""
    from dask._task_spec import Alias, DataNode, Task, TaskRef

    if isinstance(node, DataNode):
        return _of_value(node.value) or (node.value if isinstance(node.value, tuple) else None)
    if isinstance(node, Task):
        if getattr(node.func, "__name__", "") not in GETTERS:
            return None
        what, index = (_value(graph, part, known) for part in node.args[:2])
        return what.cut(index) if isinstance(what, Window) else None
    key = node.target if isinstance(node, Alias) else node.key if isinstance(node, TaskRef) else node
    key = key.key if isinstance(key, TaskRef) else key
    try:
        if key not in known and key in graph:
            known[key] = _value(graph, graph[key], known)
        return known.get(key, _of_value(node) or node)
    except TypeError:  # (an index holds slices, which are not keys)
        return _of_value(node) or node


def _of_value(stored: Any) -> Window | None:
    """The window that an object in a graph is."""
    if type(stored).__module__.startswith("xarray."):
        if type(stored).__name__ == "ZarrArrayWrapper":
            return _of_value(stored._array)
        if type(stored).__name__ not in WRAPPERS:
            return None
        found = _of_value(stored.array)
        return found.cut(stored.key.tuple) if found is not None and hasattr(stored, "key") else found
    if not (is_zarr(stored) or isinstance(stored, StoredRows)) or len(stored.shape) != 2:
        return None
    n, d = map(int, stored.shape)
    return Window(stored, ((0, n), (0, d)))


def _bounds(part: tuple[slice, Span]) -> tuple[int, int, int]:
    index, (first, last) = part
    low, high, _ = index.indices(last - first)
    return low, high, first
