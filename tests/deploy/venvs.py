"""Environments of their own for programs that bigembed only meets: made once a session, by the slow tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def venv(folder: Path, *packages: str) -> Path:
    """The folder of the programs of a new environment with these packages; skips where they cannot be had."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", "--only-binary=:all:", *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot install {', '.join(packages)}: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin"
