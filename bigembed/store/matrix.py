"""A sparse matrix stored by row blocks, and the handle that opens its blocks inside a worker.

The structure (who is next to whom, which rows cross block borders) and the values are separate
arrays, so that one neighbor graph carries distances, and any number of kernels on it weights.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np

from bigembed.blocks.csr import CSRBlock
from bigembed.blocks.rows import Array
from bigembed.store.arrays import read_array, write_array

KEPT_BYTES = 32 << 20
"""Blocks that a process keeps open, the last one however large it is."""
_STRUCTURE = ("indptr", "indices", "halo_sources", "halo_offsets", "halo_rows")


@dataclass(frozen=True)
class StoredMatrix:
    """Blocks of a symmetric sparse matrix: structure under one path, values under another."""

    structure: str
    values: str
    rows: tuple[int, ...]
    version: str
    """Digest of what is stored: a worker keeps the last blocks that it opened under it."""

    def block(self, b: int) -> CSRBlock:
        """One block of rows."""
        return _block(self.structure, self.values, b, self.version)

    def outbox(self, b: int) -> list[tuple[int, Array]]:
        """For each block that needs rows of this one: its number and those rows."""
        return _outbox(self.structure, b, self.version)


def write_structure(path: str, b: int, block: CSRBlock) -> None:
    """Write the structure of one block."""
    for name in _STRUCTURE:
        write_array(f"{path}/{name}/{b}", getattr(block, name))


def write_outbox(path: str, b: int, outbox: list[tuple[int, Array]]) -> None:
    """Write what other blocks need of this one."""
    destinations = np.array([destination for destination, _ in outbox], np.int32)
    write_array(f"{path}/outbox_destinations/{b}", destinations)
    write_array(f"{path}/outbox_sizes/{b}", np.array([len(rows) for _, rows in outbox], np.int64))
    rows = [rows for _, rows in outbox] or [np.zeros(0, np.int32)]
    write_array(f"{path}/outbox_rows/{b}", np.concatenate(rows).astype(np.int32))


def write_values(path: str, b: int, data: Array) -> None:
    """Write the values of one block, in the order of its structure."""
    write_array(f"{path}/{b}", data)


def _block(structure: str, values: str, b: int, version: str) -> CSRBlock:
    key = (structure, values, b, version)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    parts = {name: read_array(f"{structure}/{name}/{b}") for name in _STRUCTURE}
    block = CSRBlock(data=read_array(f"{values}/{b}"), **parts)
    with _lock:
        _kept[key] = block
        while len(_kept) > 1 and sum(_bytes(kept) for kept in _kept.values()) > KEPT_BYTES:
            _kept.popitem(last=False)
    return block


def _bytes(block: CSRBlock) -> int:
    return sum(int(getattr(block, name).nbytes) for name in (*_STRUCTURE, "data"))


_kept: OrderedDict[tuple[str, str, int, str], CSRBlock] = OrderedDict()
_lock = Lock()


@lru_cache(maxsize=16)
def _outbox(structure: str, b: int, version: str) -> list[tuple[int, Array]]:
    destinations = read_array(f"{structure}/outbox_destinations/{b}")
    sizes = read_array(f"{structure}/outbox_sizes/{b}")
    rows = read_array(f"{structure}/outbox_rows/{b}")
    parts = np.split(rows, np.cumsum(sizes)[:-1]) if len(sizes) else []
    return [(int(destination), part) for destination, part in zip(destinations, parts, strict=True)]
