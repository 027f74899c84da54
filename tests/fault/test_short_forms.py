"""A few cases of each suite of damage, kills and strangers; with ``-m slow`` many. What each tries, it says itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fault.state_machine import attempt

ROOT = Path(__file__).parents[2]
SOME = {"ingest --ids": 11}
"""Commands of the quick tests, and how many steps lie between two kills."""
ALL = (
    "run", "run with other parameters", "run --fresh", "extend --table", "ingest --ids", "export", "annotate", "append",
    "refresh", "extend", "refresh of a diffusion map", "extend of a diffusion map", "audit", "save", "certify --out",
    "report", "sweep", "plan --calibrate", "view", "view of another map, where one is",
)  # fmt: skip
of_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the size of a process")


def said_by(*command: Any) -> str:
    """What Python prints, called with these arguments; its exit status is 0."""
    line = [sys.executable, *map(str, command)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def slow(*given: Any, seconds: int = 3600) -> Any:
    return pytest.param(*given, marks=[pytest.mark.slow, pytest.mark.timeout(seconds)])


def test_some_damage_of_each_kind_is_found_and_mended():
    said = said_by("-m", "tests.fault.corruption", "--cases", 9, "--only", "run of pca")
    assert int(re.search(r"run right: (\d+)", said)[1]) > 6, said
    assert "| all |" in said


@pytest.mark.parametrize(
    "command",
    [
        ["tests.fault.hostile_models", "--cases", 9, "--only", "pca"],
        slow(["tests.fault.corruption", "--cases", 400]),
    ],
)
def test_what_is_stored_is_right_or_refused(command):
    said = said_by("-m", *command)
    print(said)
    assert "| all |" in said


@pytest.mark.cluster
@pytest.mark.parametrize(("cases", "seed", "faults"), [slow(1, 4, 1), slow(24, 0, 8)])
def test_jobs_that_are_disturbed_end_in_the_same_bytes(cases, seed, faults, tmp_path):
    said = said_by("-m", "tests.fault.chaos", tmp_path / "chaos", cases, seed)
    found = json.loads(said[said.index("\n{\n") :])
    assert found["problems"] == []
    assert found["cases"] == cases
    assert len(found["faults"]) >= faults


@pytest.mark.parametrize(("command", "every"), [*SOME.items(), *(slow(command, 3) for command in ALL)])
def test_commands_that_are_killed_before_a_step(command, every, tmp_path):
    """Readers see each output as it was or as it will be, and the same command ends in the same bytes."""
    found = json.loads(said_by("-m", "tests.fault.kill_points", tmp_path, command, every).splitlines()[0])
    print(f"\n{found}")
    assert found["kills"] >= 2, found
    if every > 3:
        assert found["kills"] >= 3, found
        assert min(found["before"], found["after"]) >= 1, found  # killed on both sides of the publication


@pytest.mark.parametrize(("examples", "steps"), [(4, 8), slow(12, 10, seconds=1800)])
def test_sequences_of_jobs_growth_models_and_tables(examples, steps):
    found = attempt(examples, steps)
    print(f"\n{found}")
    assert found["kills"] >= 3, found
    assert {"run", "refresh", "extend", "resume"} <= set(found), found


@of_linux
@pytest.mark.parametrize(("jobs", "files", "seed"), [(12, 12, 0), slow(1800, 600, 1, seconds=1800)])
def test_hostile_job_files_and_data_files(jobs, files, seed):
    said = said_by("-m", "tests.fault.hostile", jobs, files, seed)
    assert f"{jobs} cases" in said
    assert f"{files} cases" in said


@pytest.mark.slow
@of_linux
def test_intact_files_are_read_and_a_case_that_goes_wrong_is_seen(tmp_path):
    """The controls of the suite of hostile files."""
    code = """
import json, os, sys, time
from pathlib import Path
from tests.fault import hostile
folder = Path(sys.argv[1])
(folder / "bases").mkdir()
bases = hostile.data_bases(folder / "bases")
read = hostile.tried([(name, hostile.data_case(path, None)) for name, path in bases.items()], folder)
hostile.SECONDS = 2.0
def raises(home): raise KeyError("x")
def takes(home): return str(len(bytearray(8 << 30)))
def dies(home): os._exit(3)
def hangs(home): time.sleep(60)
def ends(home): return "x"
bad = hostile.tried([(case.__name__, case) for case in (raises, takes, dies, hangs, ends)], folder)
print(json.dumps([{one.name: one.outcome for one in found} for found in (read, bad)]))
"""
    read, bad = json.loads(said_by("-c", code, tmp_path).splitlines()[-1])
    assert read.pop("rows.npz", "InputError") == "InputError"
    assert len(read) >= 10
    assert set(read.values()) == {"read"}, read
    assert bad.pop("ends") == "x"
    assert [outcome.split(" at ")[0] for outcome in bad.values()] == [
        "wrong: KeyError", "wrong: MemoryError", "wrong: it ended its process", "wrong: it hangs",
    ]  # fmt: skip
