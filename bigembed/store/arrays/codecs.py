"""Which codecs a Zarr array may name. They are looked at in its metadata, before zarr builds any of them.

A codec is found by its name in the file, among all that are installed; some execute what they decode (``pickle``).
So only those known here are built, for everything that is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from bigembed.errors import DamagedError, InputError
from bigembed.store.storage.paths import AnyPath, PathLike, at, stamp

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
