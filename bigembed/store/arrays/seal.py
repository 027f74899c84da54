"""The seal of rows that we wrote: which chunk lies where, and what their metadata say.

The CRC-32C behind a chunk proves that its bytes are those of a chunk, not that it is this one, nor the latest. So
metadata name the checksum of every chunk in order, and carry the digest of what they say of the rows. The checksums are
compared as chunks are read, which costs no additional read.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import DamagedError
from bigembed.store.storage.documents import digest_of
from bigembed.store.storage.paths import PathLike

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
