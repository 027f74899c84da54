"""The short forms of the suites that damage saved models, and that let a stranger write them."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command",
    [
        ["tests.fault.corruption", "--cases", "27", "--only", "model of pca", "model of kernel_pca"],
        ["tests.fault.hostile_models", "--cases", "23", "--only", "pca"],
    ],
)
def test_a_model_is_right_or_refused(command: list[str]) -> None:
    found = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "| all |" in found.stdout
