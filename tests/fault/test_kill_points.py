"""Commands killed before each of their steps on the file system: readers see each output as it was or as it will be,
and the same command ends in the same bytes, or refuses what is there already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOME = {"ingest --ids": 11, "extend --table": 31}
"""Commands of the quick tests, and how many steps lie between two kills."""
ALL = (
    "run", "run with other parameters", "run --fresh", "extend --table", "ingest --ids", "export", "annotate", "append",
    "refresh", "extend", "refresh of a diffusion map", "extend of a diffusion map", "audit", "save", "certify --out",
    "report", "sweep", "plan --calibrate",
)  # fmt: skip


def kills(folder, command, every):
    called = [sys.executable, "-m", "tests.fault.kill_points", str(folder), command, str(every)]
    done = subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[0])
    print(f"\n{found}")
    return found


@pytest.mark.parametrize("command", SOME)
def test_some_steps(tmp_path, command):
    found = kills(tmp_path, command, SOME[command])
    assert found["kills"] >= 3, found
    assert min(found["before"], found["after"]) >= 1, found  # killed on both sides of the publication


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", ALL)
def test_every_third_step(tmp_path, command):
    assert kills(tmp_path, command, 3)["kills"] >= 2
