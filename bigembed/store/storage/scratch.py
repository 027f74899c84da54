"""Temporary folders of this process, under names that say whose they are: what a killed one left is swept by the next.

``bigembed-KIND-MACHINE-PROCESS-BORN-…``: a digest of this boot of this machine, the number of the process and when it
started. Those of other machines that share the folder are left alone.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from bigembed.store.storage.lock import born, machine
from bigembed.store.storage.paths import remove

_NAME = re.compile(r"\.?bigembed-[a-z]+-([0-9a-f]{12})-([0-9]{1,10})-([0-9]+)-.*")


def new_folder(kind: str, home: str | os.PathLike[str] | None = None, hidden: bool = False) -> Path:
    """A new temporary folder, in ``home`` or where such lie; the first call of a process there sweeps."""
    place = str(home or tempfile.gettempdir())
    _swept(place)
    prefix = f"{'.' * hidden}bigembed-{kind}-{_here()}-{os.getpid()}-{born(os.getpid()) or 0}-"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


@contextmanager
def temporary(kind: str, home: str | os.PathLike[str] | None = None, hidden: bool = False) -> Iterator[Path]:
    """A new temporary folder that is removed at the end."""
    folder = new_folder(kind, home, hidden)
    try:
        yield folder
    finally:
        remove(folder)


def sweep(home: str) -> None:
    """Remove the temporary folders whose processes, of this machine, are gone."""
    for name in os.listdir(home):
        found = _NAME.fullmatch(name)
        if found and _dead(*found.groups()):
            with suppress(OSError):  # (of another user)
                remove(Path(home) / name)


def _dead(where: str, process: str, since: str) -> bool:
    return bool(machine()) and where == _here() and (born(int(process)) or "0") != since


@cache
def _swept(home: str) -> None:
    sweep(home)


def _here() -> str:
    return sha256(machine().encode()).hexdigest()[:12]
