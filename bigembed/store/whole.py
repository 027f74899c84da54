"""An array of few rows written at once: the bytes that zarr writes, without its event loop and threads.

A stage writes some of these for every block, and they were half of the time of a small fit.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from bigembed.blocks.rows import Array
from bigembed.store.chunks import CHECKSUM, RowChunks, copied
from bigembed.store.paths import aside, remove


def simple(array: Array) -> bool:
    """Whether it is written here: rows of numbers, in the byte order of the format."""
    ordered = array.dtype.kind in "biuf" and array.dtype == array.dtype.newbyteorder("<")
    return ordered and array.size > 0 and array.ndim > 0


def write_whole(place: Path, array: Array, inner: int, shard: int) -> RowChunks:
    """Put an array in place of whatever is there, in one shard with chunks of ``inner`` rows; says how it is read.

    The metadata come last: what has them is whole.
    """
    array = np.ascontiguousarray(array)
    chunks = shard // inner if shard > inner else 0
    file = place.joinpath("c", *("0" for _ in array.shape))
    remove(place)
    file.parent.mkdir(parents=True)
    with aside(file, f"{file.name}.{os.getpid()}.partial") as new, open(new, "wb") as content:
        _write_chunks(content, array, inner, chunks)
    metadata = place / "zarr.json"
    with aside(metadata, f"{metadata.name}.{os.getpid()}.partial") as new:
        new.write_bytes(_metadata(array.dtype.str, array.shape, inner, chunks))
    return RowChunks(array.shape, array.dtype, inner, chunks, True, copied, partial(_only, str(file)), 0)


def _only(file: str, number: int) -> str:
    """The path of the one shard."""
    return file


def _write_chunks(content: Any, array: Array, inner: int, chunks: int) -> None:
    """Each chunk with its CRC-32C, the last one filled up with zeros; then where they lie, if there are several."""
    for start in range(0, len(array), inner):
        rows = array[start : start + inner]
        if len(rows) < inner:
            rows = np.concatenate([rows, np.zeros((inner - len(rows), *array.shape[1:]), array.dtype)])
        _checked(content, rows)
    if chunks:
        size = inner * array[:1].nbytes + CHECKSUM
        _checked(content, np.array([(number * size, size) for number in range(chunks)], "<u8"))


def _checked(content: Any, values: Array) -> None:
    data = values.reshape(-1).view(np.uint8)
    content.write(data)
    content.write(google_crc32c.value(data).to_bytes(CHECKSUM, "little"))


@lru_cache(maxsize=1024)
def _metadata(dtype: str, shape: tuple[int, ...], inner: int, chunks: int) -> bytes:
    """What zarr says of such an array, of this shape."""
    text, indent = _said(dtype, len(shape), bool(chunks))
    said = json.loads(text)
    said["shape"] = list(shape)
    said["chunk_grid"]["configuration"]["chunk_shape"] = [inner * max(1, chunks), *shape[1:]]
    if chunks:
        said["codecs"][0]["configuration"]["chunk_shape"] = [inner, *shape[1:]]
    return json.dumps(said, indent=indent).encode()


@lru_cache
def _said(dtype: str, ndim: int, sharded: bool) -> tuple[bytes, int]:
    """The metadata that zarr writes of an array of another shape, and how far it indents them."""
    import zarr
    from zarr.codecs import Crc32cCodec
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    chunk = (1,) * ndim
    zarr.create_array(
        MemoryStore(made),
        shape=chunk,
        dtype=dtype,
        chunks=chunk,
        shards=(2, *chunk[1:]) if sharded else None,
        compressors=[Crc32cCodec()],
        fill_value=0,
    )
    return made["zarr.json"].to_bytes(), zarr.config.get("json_indent")
