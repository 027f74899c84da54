"""Writing the seal of rows that are whole; what a seal is: :mod:`bigembed.store.arrays.seal`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigembed.blocks.rows import Array, bounds, map_blocks
from bigembed.errors import DamagedError
from bigembed.store.arrays.chunks import RowChunks, checksummed
from bigembed.store.arrays.io import cached, whole
from bigembed.store.arrays.seal import seal_of, sealed_checksums, with_seal
from bigembed.store.storage.documents import digest_of, read_json, write_json
from bigembed.store.storage.paths import AnyPath
from bigembed.store.storage.requests import asking

CHUNKS_A_TASK = 1 << 10


def seal_rows(path: AnyPath, label: str = "seal") -> None:
    """Seal an array that is whole. One that is not in chunks of whole rows with a checksum each stays as it is.

    Four bytes of each chunk are read; of an object store, all.
    """
    chunks = _chunks(str(path))
    if chunks is not None:
        found = checksums(path, 0, -(-chunks.shape[0] // chunks.rows), label)
        metadata = path / "zarr.json"
        write_json(metadata, with_seal(read_json(metadata), chunks=found))


def seal_group(path: AnyPath, names: Sequence[str]) -> None:
    """Seal a group whose arrays of these names are sealed."""
    metadata = path / "zarr.json"
    parts = {name: digest_of(seal_of(read_json(path / name / "zarr.json"))) for name in names}
    write_json(metadata, with_seal(read_json(metadata), parts=parts))


def prove_group(path: AnyPath) -> None:
    """:class:`DamagedError` where a sealed group is not of the arrays that it was sealed with."""
    if not (path / "zarr.json").is_file():
        return
    said = read_json(path / "zarr.json")
    sealed_checksums(said, path)
    for name, digest in ((seal_of(said) or {}).get("parts") or {}).items():
        if digest_of(seal_of(read_json(path / name / "zarr.json"))) != digest:
            raise DamagedError(f"{path}: damaged: {name} is not the one that was written. Write the rows again")


def checksums(path: AnyPath, first: int, stop: int, label: str = "seal") -> Array:
    """What stands behind the chunks ``first:stop`` of an array that has such, by parallel tasks."""
    spans = [(first + low, first + high) for low, high in bounds(stop - first, CHUNKS_A_TASK)]
    return np.concatenate([np.empty(0, "<u4"), *map_blocks(checksums_block, spans, label=label, path=str(path))])


def checksums_block(first: int, stop: int, *, path: str) -> Array:
    """Of one task."""
    with whole(path, f"chunks {first}:{stop}"):
        chunks = _chunks(path)
        assert chunks is not None
        return chunks.checksums(first, stop)


def _chunks(path: str) -> RowChunks | None:
    with asking(path):
        return checksummed(cached(path), path)
