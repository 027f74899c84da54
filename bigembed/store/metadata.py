"""Metadata of Zarr arrays and groups, how all of it is written, and the codecs that may be named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.errors import DamagedError, InputError
from bigembed.store.objects import ObjectPath
from bigembed.store.paths import AnyPath, PathLike, at, put, remove_file, stamp

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
    if not isinstance(place, ObjectPath):
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
