"""An array of rows created, and whole chunks of it written, with the bytes that zarr writes, without its event loop.

Stages write some of these a fit, chunk by chunk: each opened by zarr, they were a tenth of the time of a small one.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs import blosc

from bigembed.blocks.rows import Array
from bigembed.store.arrays.chunks import RowChunks, copied, unpack
from bigembed.store.arrays.metadata import metadata, packer, simple
from bigembed.store.arrays.whole import aside, filled_chunks, write_checked
from bigembed.store.storage.paths import remove


def create(
    place: Path, shape: tuple[int, ...], dtype: np.dtype[Any], inner: int, shard: int, compress: bool
) -> RowChunks:
    """Metadata of an array with ``inner`` rows in a chunk and ``shard`` in a shard, in place of whatever is there; says
    how its rows are read and written."""
    chunks = shard // inner if shard > inner else 0
    remove(place)
    place.mkdir(parents=True)
    with aside(f"{place}/zarr.json") as content:
        content.write(metadata(dtype.str, shape, inner, chunks, compress))
    decode = partial(unpack, blosc.decompress) if compress else copied
    pack = None if chunks else packer(dtype.str, len(shape), compress)
    return RowChunks(shape, dtype, inner, chunks, True, decode, partial(_file, str(place), len(shape)), 0, pack=pack)


def _file(path: str, ndim: int, number: int) -> str:
    return "/".join([path, "c", str(number), *"0" * (ndim - 1)])


def write(chunks: RowChunks, start: int, rows: Array) -> bool:
    """Write whole chunks, each to its file; False, and nothing, where zarr has to write these rows."""
    stop, size = start + len(rows), chunks.rows
    whole = start % size == 0 and (stop % size == 0 or stop == chunks.shape[0])
    fitting = rows.dtype == chunks.dtype and rows.shape[1:] == chunks.shape[1:] and simple(rows.dtype, rows.ndim)
    if chunks.chunks or chunks.pack is None or chunks.fill or not (whole and fitting and rows.size):
        return False
    for number, part in enumerate(filled_chunks(rows, size), start // size):
        file = chunks.file(number)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with aside(file) as content:
            write_checked(content, part, chunks.pack)
    return True
