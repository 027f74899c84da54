"""Small arrays written at once with the bytes that zarr would write, and the seal that says where each chunk lies."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from bigembed.errors import DamagedError
from bigembed.runtime.blocks import Array
from bigembed.store.chunks import CHECKSUM, RowChunks, copied
from bigembed.store.files import digest_of
from bigembed.store.metadata import metadata
from bigembed.store.paths import PathLike, remove

# ------------------------------------------------------------------------------------------------------------ seal
# The seal of rows that we wrote: which chunk lies where, and what their metadata say.
#
# The CRC-32C behind a chunk proves that its bytes are those of a chunk, not that it is this one, nor the latest. So
# metadata name the checksum of every chunk in order, and carry the digest of what they say of the rows. The checksums
# are compared as chunks are read, which costs no additional read.

SEAL = "bigembed_seal"
"""The attribute of an array or a group; what has none, of others or of earlier versions, is read as it is."""
OURS = ("bigembed", "encoding-type", "shape")
"""What the attributes that the seal covers begin with."""
LAYOUT = ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "codecs")
"""Of the metadata of an array."""


def with_seal(metadata: Mapping[str, Any], **body: Any) -> dict[str, Any]:
    """Metadata of an array or a group with a seal over them.

    ``body``: ``chunks``, the checksums of the chunks of an array; ``next``, those that they will be after an append
    that goes on; ``parts``, the digests of the arrays of a group.

    >>> whole = with_seal({"shape": [3]}, chunks=np.array([7], "<u4"))
    >>> sealed_checksums(whole, "x.zarr").tolist()
    [[7]]
    """
    said = {name: text_of(value) if isinstance(value, np.ndarray) else value for name, value in body.items()}
    attributes = {**metadata.get("attributes", {}), SEAL: {**said, "digest": _digest(metadata, said)}}
    return {**metadata, "attributes": attributes}


def without_seal(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without their seal, of rows that are about to change."""
    attributes = {name: value for name, value in metadata.get("attributes", {}).items() if name != SEAL}
    return {**metadata, "attributes": attributes}


def sealed_checksums(metadata: Any, path: PathLike) -> Array | None:
    """Checksums that chunks may have (1 or 2, chunks); None without a seal, or for a group.

    :class:`DamagedError` where the metadata are not those that were sealed.
    """
    found = seal_of(metadata)
    if found is None:
        return None
    body = {name: value for name, value in found.items() if name != "digest"} if isinstance(found, dict) else {}
    if not body or found.get("digest") != _digest(metadata, body):
        raise DamagedError(
            f"{path}: damaged: its metadata do not say what was written. Write the rows again (bigembed ingest), "
            f"or take the attribute {SEAL!r} away if you changed them on purpose"
        )
    there = [np.frombuffer(b64decode(body[name]), "<u4") for name in ("chunks", "next") if name in body]
    longest = max(there, key=len, default=None)
    return None if longest is None else np.stack([np.concatenate([one, longest[len(one) :]]) for one in there])


def seal_of(metadata: Any) -> Any:
    """The seal in metadata, as it lies there; None without one."""
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    return attributes.get(SEAL) if isinstance(attributes, dict) else None


def text_of(checksums: Array) -> str:
    """Checksums as JSON keeps them: 5.4 bytes each, of a chunk of about a MiB."""
    return b64encode(np.asarray(checksums, "<u4").tobytes()).decode()


def _digest(metadata: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    attributes = {k: v for k, v in metadata.get("attributes", {}).items() if k.startswith(OURS) and k != SEAL}
    return digest_of([{name: metadata.get(name) for name in LAYOUT}, attributes, body])


# ----------------------------------------------------------------------------------------------------------- whole
# An array of few rows written at once: the bytes that zarr writes, without its event loop and threads.
#
# A stage writes some of these for every block: a fifth of the time of a small fit, if zarr wrote them.


def write_whole(place: Path, array: Array, inner: int, shard: int) -> RowChunks:
    """Put an array in place of whatever is there, in one shard with chunks of ``inner`` rows; says how it is read.

    The metadata come last: what has them is whole.
    """
    array = np.ascontiguousarray(array)
    chunks = shard // inner if shard > inner else 0
    file = _new_folders(place, array.ndim if array.size else 0)
    if array.size:
        with whole_file(file) as content:
            _write_chunks(content, array, inner, chunks)
    with whole_file(f"{place}/zarr.json") as content:
        content.write(metadata(array.dtype.str, array.shape, inner, chunks))
    return _rows(array.shape, array.dtype, inner, chunks, file)


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
def whole_file(file: str) -> Iterator[Any]:
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
    for start in range(0, len(array), inner):
        rows = array[start : start + inner]
        if len(rows) < inner:
            rows = np.concatenate([rows, np.zeros((inner - len(rows), *array.shape[1:]), array.dtype)])
        _write_checked(content, rows)
    if chunks:
        size = inner * array[:1].nbytes + CHECKSUM
        _write_checked(content, np.array([(number * size, size) for number in range(chunks)], "<u8"))


def _write_checked(content: Any, values: Array) -> None:
    """Write the bytes of some values, and their CRC-32C."""
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    content.write(data)
    content.write(google_crc32c.value(data).to_bytes(CHECKSUM, "little"))
