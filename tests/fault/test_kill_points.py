"""Refresh and extend, killed before each of their steps on the file system: readers see the old state or the new one,
and the same call ends in the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kills(folder, script, method, every):
    command = [sys.executable, "-m", "tests.fault.kill_points", str(folder), script, method, str(every)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_some_steps_of_extend(tmp_path):
    found = kills(tmp_path, "extend", "pca", 3)
    assert found["kills"] >= 8, found
    assert min(found["before"], found["after"]) >= 2, found  # killed on both sides of the publication


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", ["pca", "diffusion_map"])
@pytest.mark.parametrize("script", ["extend", "refresh"])
def test_every_step(tmp_path, script, method):
    every = 5 if (script, method) == ("refresh", "diffusion_map") else 1
    found = kills(tmp_path, script, method, every)
    print(f"\n{script} {method}: {found}")
    assert found["kills"] >= 25, found
    assert found["before"] >= 10, found
    assert every > 1 or found["after"] >= 2, found  # the last one is not killed
