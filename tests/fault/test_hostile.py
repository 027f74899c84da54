"""Hostile job files and data files, the short form: every outcome is a result or one of our errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the size of a process")
ROOT = Path(__file__).parents[2]


def hostile(jobs: int, files: int, seed: int = 0) -> str:
    command = [sys.executable, "-m", "tests.fault.hostile", str(jobs), str(files), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_some_job_files_and_data_files():
    said = hostile(60, 45)
    assert "60 cases" in said
    assert "45 cases" in said


def test_intact_files_are_read_and_a_case_that_goes_wrong_is_seen(tmp_path):
    """The controls."""
    code = """
import json, os, sys, time
from pathlib import Path
from tests.fault import hostile
folder = Path(sys.argv[1])
(folder / "bases").mkdir()
bases = hostile.data_bases(folder / "bases")
read = hostile.tried([(name, hostile.data_case(path, None)) for name, path in bases.items()], folder)
hostile.SECONDS = 5.0
def raises(home): raise KeyError("x")
def takes(home): return str(len(bytearray(8 << 30)))
def dies(home): os._exit(3)
def hangs(home): time.sleep(60)
def ends(home): return "x"
bad = hostile.tried([(case.__name__, case) for case in (raises, takes, dies, hangs, ends)], folder)
print(json.dumps([{one.name: one.outcome for one in found} for found in (read, bad)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    read, bad = json.loads(done.stdout.splitlines()[-1])
    assert read.pop("rows.npz", "InputError") == "InputError"
    assert len(read) >= 10
    assert set(read.values()) == {"read"}, read
    assert bad.pop("ends") == "x"
    assert [outcome.split(" at ")[0] for outcome in bad.values()] == [
        "wrong: KeyError", "wrong: MemoryError", "wrong: it ended its process", "wrong: it hangs",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_job_files_and_data_files():
    print(hostile(1800, 600, seed=1))
