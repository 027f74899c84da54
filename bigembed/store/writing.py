"""Arrays of rows written chunk by chunk or at once with the bytes that zarr would write, and the seal that says
where each chunk lies.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc

from bigembed.errors import DamagedError
from bigembed.runtime.blocks import Array
from bigembed.store.chunks import CHECKSUM, RowChunks, as_they_are, copied, unpack
from bigembed.store.files import digest_of
from bigembed.store.metadata import metadata, packer, simple
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
# A stage writes some of these for every block, and they were half of the time of a small fit.


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


# ------------------------------------------------------------------------------------------------------- rows file
# An array of rows created, and whole chunks of it written, with the bytes that zarr writes, without its event loop.
#
# Stages write some of these a fit, chunk by chunk: each opened by zarr, they were a tenth of the time of a small one.


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
