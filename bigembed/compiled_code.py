"""Where numba keeps compiled functions, for a user who can write neither the package nor a home: a private folder.

The package calls this when it is imported, in a command as in each worker, and so before any of its modules imports
numba, which looks for a folder when a function is defined and refuses the function if there is none.
"""

from __future__ import annotations

import os
import stat
import sys

VARIABLE = "NUMBA_CACHE_DIR"


def find_folder(package: str) -> None:
    """Name a private temporary folder as numba's if it can write none of those that it would take by itself."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    usual = (os.environ.get(VARIABLE), os.path.join(package, "__pycache__"), os.path.join(home, "numba"))
    if any(folder and _can_be_written(folder) for folder in usual):
        return
    os.environ[VARIABLE] = folder = private_folder()
    if (config := sys.modules.get("numba.core.config")) is not None:  # (which has read the variable already)
        config.CACHE_DIR = folder  # type: ignore[attr-defined]


def private_folder() -> str:
    """Return a temporary folder of this user: code is run from it, so nobody else may own or write it."""
    import tempfile  # (here, since hardly any process needs it)

    folder = os.path.join(tempfile.gettempdir(), f"bigembed-numba-{os.geteuid()}")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        found = os.lstat(folder)
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not own:  # (somebody else was there first: a new one, for this process and its workers)
            return tempfile.mkdtemp(prefix="bigembed-numba-")
    return folder


def _can_be_written(folder: str) -> bool:
    """Return whether files can be written into a folder, or it can be made."""
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
