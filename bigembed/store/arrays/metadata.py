"""What zarr says of an array with a CRC-32C behind each chunk, and how it packs one, for those that are written here.

Zarr is asked once for each kind of array; its metadata of any shape follow from that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.store.arrays.chunks import packing

Pack = Callable[[Array], Any]


def simple(dtype: np.dtype[Any], ndim: int) -> bool:
    """Whether such an array is written here: rows of numbers, in the byte order of the format."""
    return dtype.kind in "biuf" and dtype == dtype.newbyteorder("<") and ndim > 0


@lru_cache(maxsize=1024)
def metadata(dtype: str, shape: tuple[int, ...], inner: int, chunks: int, compress: bool = False) -> bytes:
    """The metadata of an array with ``inner`` rows in a chunk, and ``chunks`` of them in a shard or 0."""
    text, indent, _ = _said(dtype, len(shape), bool(chunks), compress)
    said = json.loads(text)
    said["shape"] = list(shape)
    tail = [max(1, length) for length in shape[1:]]
    said["chunk_grid"]["configuration"]["chunk_shape"] = [inner * max(1, chunks), *tail]
    if chunks:
        said["codecs"][0]["configuration"]["chunk_shape"] = [inner, *tail]
    return json.dumps(said, indent=indent).encode()


def packer(dtype: str, ndim: int, compress: bool) -> Pack | None:
    """What packs the bytes of a chunk that is a file, between the first codec and the checksum; None if zarr has to."""
    return _said(dtype, ndim, False, compress)[2]


@lru_cache
def _said(dtype: str, ndim: int, sharded: bool, compress: bool) -> tuple[bytes, int, Pack | None]:
    """The metadata of an array of another shape, how far zarr indents them, and what packs a chunk."""
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    chunk = (1,) * ndim
    array = zarr.create_array(
        MemoryStore(made),
        shape=chunk,
        dtype=dtype,
        chunks=chunk,
        shards=(2, *chunk[1:]) if sharded else None,
        compressors=[*([BloscCodec(cname="zstd", clevel=1)] if compress else []), Crc32cCodec()],
        fill_value=0,
    )
    metadata: Any = array.metadata
    pack = None if sharded else packing(metadata.codecs)
    return made["zarr.json"].to_bytes(), zarr.config.get("json_indent"), pack
