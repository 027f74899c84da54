"""An array of rows created, and whole chunks of it written, with the bytes that zarr writes, without its event loop.

Stages write some of these a fit, chunk by chunk: each opened by zarr, they were a tenth of the time of a small one.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc

from bigembed.blocks.rows import Array
from bigembed.store.chunks import CHECKSUM, RowChunks, copied, packing, unpack
from bigembed.store.paths import remove
from bigembed.store.whole import aside, simple


def create(
    place: Path, shape: tuple[int, ...], dtype: np.dtype[Any], inner: int, shard: int, compress: bool
) -> RowChunks:
    """Metadata of an array with ``inner`` rows in a chunk and ``shard`` in a shard, in place of whatever is there; says
    how its rows are read and written."""
    text, indent, pack = _said(dtype.str, shape[1:], inner, shard, compress)
    said = json.loads(text)
    said["shape"] = list(shape)
    remove(place)
    place.mkdir(parents=True)
    with aside(f"{place}/zarr.json") as content:
        content.write(json.dumps(said, indent=indent).encode())
    decode = partial(unpack, blosc.decompress) if compress else copied
    file, chunks = partial(_file, str(place), len(shape)), shard // inner if shard > inner else 0
    return RowChunks(shape, dtype, inner, chunks, True, decode, file, 0, pack=pack)


@lru_cache
def _said(dtype: str, tail: tuple[int, ...], inner: int, shard: int, compress: bool) -> tuple[bytes, int, Any]:
    """The metadata that zarr writes of such an array of one row, how far it indents them, and what packs a chunk."""
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    array = zarr.create_array(
        MemoryStore(made),
        shape=(1, *tail),
        dtype=dtype,
        chunks=(inner, *tail),
        shards=(shard, *tail) if shard > inner else None,
        compressors=[*([BloscCodec(cname="zstd", clevel=1)] if compress else []), Crc32cCodec()],
        fill_value=0,
    )
    metadata: Any = array.metadata
    pack = packing(metadata.codecs) if shard <= inner else None
    return made["zarr.json"].to_bytes(), zarr.config.get("json_indent"), pack


def _file(path: str, ndim: int, number: int) -> str:
    return "/".join([path, "c", str(number), *"0" * (ndim - 1)])


def write(chunks: RowChunks, start: int, rows: Array) -> bool:
    """Write whole chunks, each to its file; False, and nothing, where zarr has to write these rows."""
    stop, size = start + len(rows), chunks.rows
    whole = start % size == 0 and (stop % size == 0 or stop == chunks.shape[0])
    fitting = rows.dtype == chunks.dtype and rows.shape[1:] == chunks.shape[1:] and simple(rows)
    if chunks.chunks or chunks.pack is None or chunks.fill or not (whole and fitting and rows.size):
        return False
    for first in range(0, len(rows), size):
        part = np.ascontiguousarray(rows[first : first + size])
        if len(part) < size:
            part = np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])
        body = chunks.pack(part.reshape(-1).view(np.uint8))
        file = chunks.file((start + first) // size)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with aside(file) as content:
            content.write(body)
            content.write(google_crc32c.value(body).to_bytes(CHECKSUM, "little"))
    return True
