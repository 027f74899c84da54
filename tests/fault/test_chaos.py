"""Jobs that are disturbed at a random step, and run again: a few of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.cluster]


def disturbed(folder: Path, *arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.fault.chaos", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout[done.stdout.index("\n{\n") :])


def test_a_job_whose_worker_is_killed(tmp_path):
    found = disturbed(tmp_path / "chaos", "1", "4")
    assert found["problems"] == []
    assert found["cases"] == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many(tmp_path):
    found = disturbed(tmp_path / "chaos", "24", "0")
    assert found["problems"] == []
    assert len(found["faults"]) >= 8
