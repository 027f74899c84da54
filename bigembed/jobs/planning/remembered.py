"""What was measured of this machine, kept in the user's cache folder: one file a kind, machine and version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bigembed import __version__
from bigembed.errors import DamagedError
from bigembed.store.storage import documents


def cache_file(kind: str) -> Path:
    """Where measurements of a kind are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bigembed" / f"{kind}-{os.uname().nodename}-{__version__}.json"


def remembered(kind: str) -> dict[str, Any]:
    """What was measured before; empty if nothing was, or if it cannot be read."""
    try:
        return dict(documents.read_json(cache_file(kind)))
    except (OSError, DamagedError, TypeError, ValueError, RuntimeError):  # (none yet, or no home)
        return {}


def remember(kind: str, measured: dict[str, Any]) -> None:
    """Keep it, if the folder can be written; otherwise it is measured again the next time."""
    try:
        documents.write_json(cache_file(kind), measured)
    except (OSError, RuntimeError):
        return
