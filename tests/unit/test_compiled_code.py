"""Where compiled functions are kept for a user who can write neither the package nor a home."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bigembed import compiled_code

CLOSED = "/dev/null/none"
"""A folder that nobody can make, root neither."""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with no home and no folder for numba; returns the temporary folder."""
    for name in ("XDG_CACHE_HOME", compiled_code.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", CLOSED)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delitem(sys.modules, "numba.core.config", raising=False)
    return tmp_path


def test_a_user_without_a_folder_gets_a_private_one(nowhere: Path) -> None:
    for _ in range(2):
        compiled_code.find_folder(CLOSED)
        folder = Path(os.environ.pop(compiled_code.VARIABLE))
        assert folder == nowhere / f"bigembed-numba-{os.geteuid()}"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("way", ["wide", "link"])
def test_a_folder_that_others_could_write_is_not_taken(nowhere: Path, way: str) -> None:
    there = nowhere / f"bigembed-numba-{os.geteuid()}"
    if way == "wide":
        there.mkdir()
        there.chmod(0o770)
    else:
        (nowhere / "elsewhere").mkdir(mode=0o700)
        there.symlink_to(nowhere / "elsewhere")
    folder = Path(compiled_code.private_folder())
    assert (folder.parent, folder == there, stat.S_IMODE(folder.stat().st_mode)) == (nowhere, False, 0o700)


@pytest.mark.parametrize("name", ["package", "home", "chosen"])
def test_what_can_be_written_is_left_to_numba(nowhere: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    package = str(nowhere / "package") if name == "package" else CLOSED
    if name != "package":
        variable = "HOME" if name == "home" else compiled_code.VARIABLE
        monkeypatch.setenv(variable, str(nowhere / "there"))
    before = os.environ.get(compiled_code.VARIABLE)
    compiled_code.find_folder(package)
    assert os.environ.get(compiled_code.VARIABLE) == before
    assert list(nowhere.iterdir()) == []


@pytest.mark.parametrize("found", [True, False])
def test_functions_are_compiled_where_no_usual_folder_can_be_written(nowhere: Path, found: bool) -> None:
    """With the folders that are left to numba taken away, as their permissions would."""
    code = (
        "import os, bigembed.compiled_code as c\n"
        "os.environ.pop(c.VARIABLE, None)\n"  # (one was found already where this user may not write the package)
        "import numba.core.caching as n\n"
        f"if {found}: c.find_folder({CLOSED!r})\n"
        "n.CacheImpl._locator_classes = [n.UserProvidedCacheLocator]\n"
        "import bigembed.maps.walk.compiled\n"
    )
    environment = {**os.environ, "TMPDIR": str(nowhere)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == found, done.stderr
    assert found or "no locator available" in done.stderr
