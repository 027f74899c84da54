"""Damage of stored files, a few cases of each target; the long form is ``python -m tests.fault.corruption``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def cases(number: int, *options: str) -> str:
    command = [sys.executable, "-m", "tests.fault.corruption", "--cases", str(number), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_some_damage_of_each_kind_is_found_and_mended():
    said = cases(18, "--only", "run of pca", "stopped run of nmf")
    assert "run right: 18" in said, said


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_damage_of_everything():
    print(cases(400))
