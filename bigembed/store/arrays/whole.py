"""An array of few rows written at once: the bytes that zarr writes, without its event loop and threads.

A stage writes some of these for every block, and they were half of the time of a small fit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from bigembed.blocks.rows import Array
from bigembed.store.arrays.chunks import CHECKSUM, RowChunks, as_they_are, copied
from bigembed.store.arrays.metadata import metadata
from bigembed.store.storage.paths import remove


def write_whole(place: Path, array: Array, inner: int, shard: int) -> RowChunks:
    """Put an array in place of whatever is there, in one shard with chunks of ``inner`` rows; says how it is read.

    The metadata come last: what has them is whole.
    """
    array = np.ascontiguousarray(array)
    chunks = shard // inner if shard > inner else 0
    file = _new_folders(place, array.ndim if array.size else 0)
    if array.size:
        with aside(file) as content:
            _write_chunks(content, array, inner, chunks)
    with aside(f"{place}/zarr.json") as content:
        content.write(metadata(array.dtype.str, array.shape, inner, chunks))
    return _rows(array.shape, array.dtype, inner, chunks, file)


def found_whole(place: Path) -> RowChunks | None:
    """How the rows of an array in one shard are read whose metadata are, byte for byte, what :func:`write_whole` says.

    None for any other: zarr opens it, which takes some 2 ms, on one event loop a process.
    """
    try:
        text = (place / "zarr.json").read_bytes()
        said = json.loads(text)
        shape, dtype = tuple(said["shape"]), np.dtype(said["data_type"])
        shard = said["chunk_grid"]["configuration"]["chunk_shape"][0]
        inner = said["codecs"][0].get("configuration", {}).get("chunk_shape", [shard])[0]
        chunks = shard // inner if shard > inner else 0
        same = 0 < shape[0] <= shard and 0 not in shape and text == metadata(dtype.str, shape, inner, chunks)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ZeroDivisionError):
        return None
    return _rows(shape, dtype, inner, chunks, "/".join([str(place), "c", *"0" * len(shape)])) if same else None


def _rows(shape: tuple[int, ...], dtype: np.dtype[Any], inner: int, chunks: int, file: str) -> RowChunks:
    return RowChunks(shape, dtype, inner, chunks, True, copied, partial(_only, file), 0)


def _new_folders(place: Path, ndim: int) -> str:
    """The path of the one shard, in new folders: each made by one call, where a look before it would be another.

    With no axes nothing but the folder of the array is made.
    """
    try:
        os.mkdir(place)
    except OSError:  # (something is there, or the folder above it is not)
        remove(place)
        os.makedirs(place)
    folder = str(place)
    for name in ("c", *"0" * (ndim - 1))[:ndim]:
        folder = f"{folder}/{name}"
        os.mkdir(folder)
    return f"{folder}/0"


@contextmanager
def aside(file: str) -> Iterator[Any]:
    """A new file that gets its name when it is whole; on an error (a full disk) it is removed."""
    new = f"{file}.{os.getpid()}.partial"
    try:
        with open(new, "wb") as content:
            yield content
        os.replace(new, file)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(new)
        raise


def _only(file: str, number: int) -> str:
    """The path of the one shard."""
    return file


def _write_chunks(content: Any, array: Array, inner: int, chunks: int) -> None:
    """Each chunk with its CRC-32C, the last one filled up with zeros; then where they lie, if there are several."""
    for rows in filled_chunks(array, inner):
        write_checked(content, rows)
    if chunks:
        size = inner * array[:1].nbytes + CHECKSUM
        write_checked(content, np.array([(number * size, size) for number in range(chunks)], "<u8"))


def filled_chunks(array: Array, inner: int) -> Iterator[Array]:
    """The chunks of ``inner`` rows that an array is made of, the last one filled up with zeros."""
    for start in range(0, len(array), inner):
        rows = array[start : start + inner]
        if len(rows) < inner:
            rows = np.concatenate([rows, np.zeros((inner - len(rows), *array.shape[1:]), array.dtype)])
        yield rows


def write_checked(content: Any, values: Array, pack: Callable[[Array], Any] = as_they_are) -> None:
    """Write the packed bytes of some values, and their CRC-32C."""
    data = pack(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    content.write(data)
    content.write(google_crc32c.value(data).to_bytes(CHECKSUM, "little"))
