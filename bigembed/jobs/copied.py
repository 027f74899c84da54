"""What the rows of a run were copied from, and whether it was written since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigembed.store.storage.documents import digest_of
from bigembed.store.storage.paths import AnyPath, at, stored


def stamp_of(source: AnyPath) -> str:
    """Changes when the file, or one in the folder, is written anew, whatever time it is given; nothing where there is
    nothing."""
    return digest_of([(file.name, file.size, file.identity) for file in stored(source)]) if source.exists() else ""


def older_source(record: Mapping[str, Any]) -> str:
    """What to say of a run whose rows were copied from a source that was written since; nothing of any other."""
    source = record.get("source") or {}
    if not (path := source.get("path")) or stamp_of(at(path)) in ("", source.get("stamp")):
        return ""
    return f"its rows are those that {path} held before it was written anew; run the job again for those there now"
