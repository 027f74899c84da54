"""Edges of a user's graph, streamed from wherever they lie: a table of pairs, a sparse matrix, an archive of SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import numpy as np

from bigembed.errors import DamagedError, InputError
from bigembed.rows.formats.npz import MEMBERS, Member, opened_npz, saved_matrix
from bigembed.rows.reader import Reader
from bigembed.runtime.blocks import Array
from bigembed.store import stored

# ----------------------------------------------------------------------------------------------------------- edges
# Edges of a user's graph, streamed from wherever they lie: a table of pairs, a sparse matrix, lists of neighbors.

PIECE = 1 << 19
"""Edges that a reader yields at a time, about."""
NEGATIVE = 1e-4
"""Squared distances above −this, as a share of the largest of their list, are rounding (faiss): they count as 0."""

Piece = tuple[Array, Array, Array]
"""Source, target and value of some edges, as they are stored."""


class Edges(Protocol):
    """Edges that tasks read by ranges of units: of edges, of rows of a matrix, or of lists. Small and picklable."""

    @property
    def units(self) -> int:
        """How many units there are."""
        ...

    @property
    def entries(self) -> int:
        """Edges in all, each as often as it is listed."""
        ...

    @property
    def nodes(self) -> int | None:
        """How many nodes there are, where the format says it."""
        ...

    @property
    def grain(self) -> int:
        """Units that one task had better read in one go; 1 if any will do."""
        ...

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        """Edges of the units from start to stop, in pieces."""
        ...

    def fingerprint(self) -> str:
        """Changes when the edges are written anew."""
        ...


@dataclass(frozen=True)
class EdgeTable:
    """Rows (m, 2) or (m, 3): source, target and value; without values they are 1."""

    rows: Reader

    @property
    def units(self) -> int:
        return self.rows.shape[0]

    @property
    def entries(self) -> int:
        return self.rows.shape[0]

    @property
    def nodes(self) -> None:
        return None

    @property
    def grain(self) -> int:
        return self.rows.grain

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        for part in self.rows.stream(start, stop):
            yield part[:, 0], part[:, 1], part[:, 2] if part.shape[1] > 2 else np.ones(len(part))

    def fingerprint(self) -> str:
        return fingerprint_of(self.rows)


@dataclass(frozen=True)
class EdgeColumns:
    """Vectors of one length: source, target and, perhaps, value."""

    vectors: tuple[Reader, ...]

    @property
    def units(self) -> int:
        return self.vectors[0].shape[0]

    @property
    def entries(self) -> int:
        return self.units

    @property
    def nodes(self) -> None:
        return None

    @property
    def grain(self) -> int:
        return max(vector.grain for vector in self.vectors)

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        for low in range(start, stop, PIECE):
            found = [read_range(vector, low, min(stop, low + PIECE)) for vector in self.vectors]
            yield found[0], found[1], found[2] if len(found) > 2 else np.ones(len(found[0]))

    def fingerprint(self) -> str:
        return fingerprint_of(*self.vectors)


@dataclass(frozen=True)
class EdgeMatrix:
    """A square sparse matrix by rows: ``indptr``, ``indices``, ``data``; by columns its transpose."""

    indptr: Reader
    indices: Reader
    data: Reader
    name: str = "the matrix"
    """What an error calls it."""

    @property
    def units(self) -> int:
        return self.indptr.shape[0] - 1

    @property
    def entries(self) -> int:
        return self.data.shape[0]

    @property
    def nodes(self) -> int:
        return self.units

    @property
    def grain(self) -> int:
        return 1

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        pointers = read_range(self.indptr, start, stop + 1).astype(np.int64)
        if (np.diff(pointers) < 0).any() or pointers[0] < 0 or pointers[-1] > self.entries:
            raise DamagedError(f"{self.name}: the pointers of rows {start}:{stop} are not ascending, or out of range")
        for low in range(int(pointers[0]), int(pointers[-1]), PIECE):
            high = min(int(pointers[-1]), low + PIECE)
            row = start + np.searchsorted(pointers, np.arange(low, high), side="right") - 1
            yield row, read_range(self.indices, low, high), read_range(self.data, low, high)

    def fingerprint(self) -> str:
        return fingerprint_of(self.indptr, self.indices, self.data)


@dataclass(frozen=True)
class NeighborLists:
    """The neighbors of each row, (n, k), and their distances: −1 means none, a row itself is left out."""

    indices: Reader
    distances: Reader
    squared: bool = False

    @property
    def units(self) -> int:
        return self.indices.shape[0]

    @property
    def entries(self) -> int:
        return self.indices.shape[0] * self.indices.shape[1]

    @property
    def nodes(self) -> int:
        return self.units

    @property
    def grain(self) -> int:
        return max(self.indices.grain, self.distances.grain)

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        step = max(1, PIECE // self.indices.shape[1])
        for low in range(start, stop, step):
            high = min(stop, low + step)
            near, apart = read_range(self.indices, low, high), read_range(self.distances, low, high)
            if self.squared:
                apart = _without_rounding(apart)
            row = np.repeat(np.arange(low, high), near.shape[1])
            kept = (near.ravel() != -1) & (near.ravel() != row)
            yield row[kept], near.ravel()[kept], apart.ravel()[kept]

    def fingerprint(self) -> str:
        return fingerprint_of(self.indices, self.distances)


def _without_rounding(squared: Array) -> Array:
    """Squared distances of which those that are negative by rounding are 0."""
    largest = np.max(np.where(np.isfinite(squared), squared, 0), axis=1, keepdims=True, initial=0)
    return np.where((squared < 0) & (squared >= -NEGATIVE * largest), 0, squared)


def read_range(reader: Reader, start: int, stop: int) -> Array:
    """Rows start to stop of a reader, in one array."""
    parts = [np.asarray(part) for part in reader.stream(start, stop)]
    if not parts:
        return np.zeros((0, *reader.shape[1:]), reader.dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def fingerprint_of(*readers: Any) -> str:
    """Of what readers read: names, sizes and times of its files, or the bytes of arrays of this process."""
    digest = sha256()
    for reader in readers:
        digest.update(repr((reader.shape, str(reader.dtype), getattr(reader, "columns", ()))).encode())
        if hasattr(reader, "fingerprint"):
            digest.update(reader.fingerprint().encode())
            continue
        for path in getattr(reader, "paths", None) or (reader.path,):
            for file in stored(path):
                about = str(path), getattr(reader, "array", ""), file.name, file.size, file.stamp
                digest.update(repr(about).encode())
    return digest.hexdigest()


def spans_of(edges: Edges, per_task: int) -> list[tuple[int, int]]:
    """Ranges of units, each about ``per_task`` edges and cut where what is read together ends."""
    grain = max(1, min(edges.grain, edges.units))
    units = max(1, per_task * edges.units // max(1, edges.entries))
    step = -(-units // grain) * grain
    return [(start, min(start + step, edges.units)) for start in range(0, edges.units, step)]


def refuse_shapes(name: Any, sizes: dict[str, tuple[int, ...]]) -> None:
    """InputError unless arrays that belong together have one shape."""
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{key} {shape}" for key, shape in sizes.items())
        raise InputError(f"{name}: arrays of different shapes: {found}. Each edge needs an entry in all of them")


# ------------------------------------------------------------------------------------------------------------- npz
# Sparse matrices of SciPy (``save_npz``), streamed: an archive of compressed arrays, read from its first byte on.


@dataclass(frozen=True)
class NpzMatrix:
    """A square matrix in CSR, CSC or COO format. One task reads it, and holds a few pieces of it."""

    path: str
    format: str
    nodes: int
    entries: int

    @property
    def units(self) -> int:
        return self.nodes

    @property
    def grain(self) -> int:
        """All rows: a compressed array can only be read from its first byte on."""
        return max(1, self.nodes)

    def stream(self, start: int, stop: int) -> Iterator[Piece]:
        with opened_npz(self.path) as archive, ExitStack() as stack:
            first, second, data = (stack.enter_context(Member(archive, name)) for name in MEMBERS[self.format])
            if self.format == "coo":
                for _ in range(0, self.entries, PIECE):
                    yield first.read(PIECE), second.read(PIECE), data.read(PIECE)
                return
            for row, near, value in _by_rows(self.path, first, second, data):
                yield (row, near, value) if self.format == "csr" else (near, row, value)

    def fingerprint(self) -> str:
        return sha256(repr([(file.name, file.size, file.stamp) for file in stored(self.path)]).encode()).hexdigest()


def open_npz(path: Any) -> NpzMatrix:
    """The matrix of a file of ``scipy.sparse.save_npz``, which must be square."""
    found = saved_matrix(path)
    if found.shape is None or found.shape[0] != found.shape[1]:
        raise InputError(f"{path}: shape {found.said}; the matrix of a graph is square, (n, n), n an integer")
    n, kind, (first, second, expected) = found.shape[0], found.format, found.sizes
    if second != expected or first != (expected if kind == "coo" else n + 1):
        raise DamagedError(f"{path}: {', '.join(MEMBERS[kind])} do not fit each other and its shape {(n, n)}")
    return NpzMatrix(str(path), kind, n, expected)


def _by_rows(path: str, pointers: Member, near: Member, value: Member) -> Iterator[Piece]:
    """Edges of a matrix by rows, some rows at a time and of a long row some entries."""
    last = int(pointers.read(1)[0])
    if last != 0:
        raise DamagedError(f"{path}: its pointers begin at {last}")
    row = 0
    while pointers.left:
        ends = pointers.read(PIECE).astype(np.int64)
        if ends[0] < last or (np.diff(ends) < 0).any() or ends[-1] > near.size:
            raise DamagedError(f"{path}: its pointers are not ascending, or beyond its {near.size} entries")
        for low in range(last, int(ends[-1]), PIECE):
            high = min(int(ends[-1]), low + PIECE)
            rows = row + np.searchsorted(ends, np.arange(low, high), side="right")
            yield rows, near.read(high - low), value.read(high - low)
        row, last = row + len(ends), int(ends[-1])
