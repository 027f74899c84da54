"""Metadata of Zarr arrays and groups, the codecs that may be named, the seal, and small arrays written at once."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from bigembed.errors import DamagedError, InputError
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, PathLike, at, files, objects, put, remove, remove_file, replacing, stamp
from bigembed.store.chunks import CHECKSUM, RowChunks, copied

# -------------------------------------------------------------------------------------------------------- metadata
# What zarr says of an array with a CRC-32C behind each chunk, for those that are written here.
#
# Zarr is asked once for each kind of array; its metadata of any shape follow from that.


def simple(dtype: np.dtype[Any], ndim: int) -> bool:
    """Whether such an array is written here: rows of numbers, in the byte order of the format."""
    return dtype.kind in "biuf" and dtype == dtype.newbyteorder("<") and ndim > 0


@lru_cache(maxsize=1024)
def metadata(dtype: str, shape: tuple[int, ...], inner: int, chunks: int) -> bytes:
    """The metadata of an array with ``inner`` rows in a chunk, and ``chunks`` of them in a shard or 0."""
    text, indent = _template(dtype, len(shape), bool(chunks))
    said = json.loads(text)
    said["shape"] = list(shape)
    tail = [max(1, length) for length in shape[1:]]
    said["chunk_grid"]["configuration"]["chunk_shape"] = [inner * max(1, chunks), *tail]
    if chunks:
        said["codecs"][0]["configuration"]["chunk_shape"] = [inner, *tail]
    return json.dumps(said, indent=indent).encode()


@lru_cache
def _template(dtype: str, ndim: int, sharded: bool) -> tuple[bytes, int]:
    """The metadata of an array of another shape, and how far zarr indents them."""
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


# ---------------------------------------------------------------------------------------------------------- groups
# Groups of Zarr, and metadata of Zarr written to any place.


def make_group(path: PathLike, attributes: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """A new zarr group."""
    import zarr

    place = at(path)
    if not isinstance(place, objects.ObjectPath):
        zarr.create_group(str(place), attributes=dict(attributes), overwrite=overwrite)
        return
    if overwrite:
        place.remove_tree()
    put_metadata(place, lambda store: zarr.create_group(store, attributes=dict(attributes)))


def new_group(folder: Path, attributes: Mapping[str, Any]) -> None:
    """Make a new folder of this process a zarr group, without a look at what is there."""
    (folder / "zarr.json").write_bytes(_metadata(tuple(attributes.items())))


@lru_cache
def _metadata(attributes: tuple[tuple[str, Any], ...]) -> bytes:
    """What zarr writes of a group."""
    import zarr
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    zarr.create_group(MemoryStore(made), attributes=dict(attributes))
    text: bytes = made["zarr.json"].to_bytes()
    return text


def put_metadata(place: AnyPath, make: Callable[[Any], Any]) -> None:
    """Write what zarr makes in an empty store to this place."""
    from zarr.storage import MemoryStore

    made: dict[str, Any] = {}
    make(MemoryStore(made))
    for name, content in made.items():
        remove_file(place / name)
        put(place / name, content.to_bytes())


def rewrite_group(path: PathLike, attributes: Mapping[str, Any]) -> None:
    """The metadata of a group anew, nothing else in it touched."""
    import zarr

    put_metadata(at(path), lambda store: zarr.create_group(store, attributes=dict(attributes)))


# ---------------------------------------------------------------------------------------------------------- codecs
# Which codecs a Zarr array may name. They are looked at in its metadata, before zarr builds any of them.
#
# A codec is found by its name in the file, among all that are installed; some execute what they decode (``pickle``).
# So only those known here are built, for everything that is opened.

NUMCODECS = (
    "adler32", "astype", "bitround", "blosc", "bz2", "categorize", "crc32", "crc32c", "delta", "fixedscaleoffset",
    "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits", "pcodec", "quantize", "shuffle", "vlen-array",
    "vlen-bytes", "vlen-utf8", "zfpy", "zlib", "zstd",
)  # fmt: skip
"""Of Zarr format 2, where a codec is named by its ``id``; with ``numcodecs.`` before it also of format 3."""
KNOWN = frozenset(
    (
        *("blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "vlen-bytes", "vlen-utf8", "zstd"),
        *(f"numcodecs.{name}" for name in NUMCODECS),
    )
)
"""Of Zarr format 3, by ``name``."""
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
ATTRIBUTES = ".zattrs"
DEPTH = 16
"""Of groups in groups."""
LARGEST = 64 << 20
"""Bytes of a file of metadata."""


def refuse_codecs(path: PathLike) -> None:
    """InputError if the Zarr array at a path, or one in the group there, names a codec that is not known."""
    place = at(path)
    written = _written(place)
    if written:
        _check(str(place), written)


@lru_cache(maxsize=4096)
def _check(path: str, written: str) -> None:
    place = at(path)
    for node, metadata in _nodes(place, DEPTH):
        if wrong := sorted(set(_named(metadata))):
            raise InputError(
                f"{node}: the Zarr codec {', '.join(wrong)} is not read: some codecs execute what they decode. Known: "
                f"{', '.join(sorted({*NUMCODECS, *KNOWN}))}. Write the array with one of these"
            )


def _written(place: AnyPath) -> str:
    """When the metadata of a node were written; empty without metadata."""
    found = []
    for name in METADATA:
        with suppress(FileNotFoundError, NotADirectoryError):
            found.append(f"{name}:{stamp(place / name)}")
            if name == METADATA[0]:  # (zarr reads no other then)
                break
    return " ".join(found)


def _nodes(place: AnyPath, depth: int) -> Iterator[tuple[AnyPath, Any]]:
    """The metadata of a node and of all nodes in it; folders of chunks are not looked into."""
    array = False
    for name in METADATA:
        file = place / name
        if not file.is_file():
            continue
        metadata = _json(file)
        array |= name == ".zarray" or (isinstance(metadata, dict) and metadata.get("node_type") == "array")
        yield place, metadata
    if array or not place.is_dir():
        return
    if depth == 0:
        raise InputError(f"{place}: groups in groups, more than {DEPTH} deep")
    for inside in place.iterdir():
        if any((inside / name).is_file() for name in METADATA):
            yield from _nodes(inside, depth - 1)


def _json(file: AnyPath) -> Any:
    if file.stat().st_size > LARGEST:
        raise InputError(f"{file}: {file.stat().st_size >> 20} MiB of metadata; at most {LARGEST >> 20} MiB are read")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{file}: damaged: not valid JSON ({error})") from error


def _named(metadata: Any) -> Iterator[str]:
    """Names of codecs that are not known, in the metadata of a node, or of several (consolidated)."""
    waiting = [metadata]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        for key in ("compressor", "filters", "codecs", "storage_transformers"):
            yield from _unknown(node.get(key), key)
        inside = node.get("metadata")
        waiting += [node.get("consolidated_metadata")]
        waiting += [one for name, one in _table(inside).items() if not name.endswith(ATTRIBUTES)]


def _unknown(listed: Any, key: str) -> Iterator[str]:
    """Of the codecs under a key of the metadata the names that are not known; those inside of a shard, too."""
    old = key in ("compressor", "filters")
    known = NUMCODECS if old else () if key == "storage_transformers" else KNOWN
    waiting = [codec for codec in (listed if isinstance(listed, list) else [listed]) if codec is not None]
    while waiting:
        codec = waiting.pop()
        name = codec.get("id" if old else "name") if isinstance(codec, dict) else codec
        if not isinstance(name, str) or name not in known:
            yield str(name)[:60]
        configuration = _table(_table(codec).get("configuration"))
        for inner in (configuration.get("codecs"), configuration.get("index_codecs")):
            waiting += inner if isinstance(inner, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
    return files.digest_of([{name: metadata.get(name) for name in LAYOUT}, attributes, body])


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


def written_whole(place: str) -> RowChunks | None:
    """How the rows of an array are read whose metadata are, byte for byte, what :func:`write_whole` writes; None of any
    other, which zarr has to open (some ms, where a solver asks for a dozen small arrays of every block)."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        text = Path(f"{place}/zarr.json").read_bytes()
        said = json.loads(text)
        dtype, shape = np.dtype(said["data_type"]), tuple(said["shape"])
        shard, codec = said["chunk_grid"]["configuration"]["chunk_shape"][0], said["codecs"][0]
        inner = codec["configuration"]["chunk_shape"][0] if codec["name"] == "sharding_indexed" else shard
        chunks = shard // inner if shard > inner else 0
        known = simple(dtype, len(shape)) and shape[0] <= shard and text == metadata(dtype.str, shape, inner, chunks)
        return _rows(shape, dtype, inner, chunks, f"{place}/c{'/0' * len(shape)}") if known else None
    return None


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
    place = Path(file)
    with replacing(place, f"{place.name}.{os.getpid()}.partial") as new, open(new, "wb") as content:
        yield content


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
