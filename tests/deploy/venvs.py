"""Environments of their own for programs that bigembed only meets: made once a session, by the slow tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def venv(folder: Path, *packages: str) -> Iterator[Path]:
    """The folder of the programs of an environment with these packages, deleted at the end; skips without them."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", "--only-binary=:all:", *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot install {', '.join(packages)}: {done.stderr.strip().splitlines()[-1]}")
    yield folder / "bin"
    shutil.rmtree(folder)
