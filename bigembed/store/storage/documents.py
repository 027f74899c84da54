"""JSON files, each written in one step; what is sealed carries the digest of all else that it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from bigembed.errors import DamagedError, MissingPathError
from bigembed.store.storage.paths import PathLike, at, put, remove

SEAL = "digest"


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON-able value with sorted keys."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of all that it says, as :func:`unsealed` checks it.

    >>> unsealed(sealed({"scale": 3.93}), "model.json")
    {'scale': 3.93}
    """
    said = jsonable({name: entry for name, entry in value.items() if name != SEAL})
    return {**said, SEAL: digest_of(said)}


def unsealed(value: Any, path: PathLike) -> dict[str, Any]:
    """What was sealed; :class:`DamagedError` if it says something else now.

    What has no digest, written by an earlier version, is taken as it is.
    """
    if not isinstance(value, dict):
        raise DamagedError(f"{path}: damaged: not a JSON object")
    said = {name: entry for name, entry in value.items() if name != SEAL}
    if SEAL in value and value[SEAL] != digest_of(said):
        raise DamagedError(f"{path}: damaged: it does not say what was written (its digest is another one)")
    return said


def read_sealed(path: PathLike) -> dict[str, Any]:
    """What a sealed JSON file says; :class:`DamagedError`, :class:`MissingPathError`."""
    return unsealed(read_json(path), path)


def write_json(path: PathLike, value: Any, indent: int | None = 1) -> None:
    """Write it in one step: a reader sees the old text or the new one. Without indent it is quicker."""
    place = at(path)
    if isinstance(place, Path) and place.is_dir():  # (damaged: it was a file of ours)
        remove(place)
    put(place, text_of(value, indent))


def text_of(value: Any, indent: int | None = 1) -> bytes:
    """JSON with sorted keys; NumPy scalars and arrays as numbers."""
    return json.dumps(value, indent=indent, sort_keys=True, default=_plain).encode()


def jsonable(value: Any) -> Any:
    """The value as it is read again once it was written."""
    return json.loads(text_of(value, None))


def read_json(path: PathLike) -> Any:
    """The JSON value in a file; :class:`DamagedError` if the file holds something else."""
    try:
        return json.loads(at(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingPathError(f"{path}: no such file") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: damaged: not valid JSON ({error})") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise DamagedError(f"{path}: damaged: a folder where a file was written") from error


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
