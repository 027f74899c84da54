"""Every job file and every command that the project shows: planned at its full size, understood, and run small."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from bigembed.errors import PlanError
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.sweep.run import sweep
from tests.docs.commands import (
    ANY_SIZE,
    BENCHMARKS,
    ROOT,
    SCRIPT,
    Command,
    Parsed,
    commands,
    copied,
    flags_of,
    in_script,
    job_files,
    jobs_of_pages,
    rehearse,
    scripts,
    without_rows,
)

pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the repository, not only the package")
FILES = job_files() if BENCHMARKS.exists() else []
PAGES = jobs_of_pages() if BENCHMARKS.exists() else []
COMMANDS = commands() if BENCHMARKS.exists() else []
FEW = 1_500
"""Rows of a data set in a small run."""
SMALL = {
    "certify": "--n 3000 --exact 500",
    "extend": "--n 3000 --new 500",
    "graph_sparse": "--n 2000 --d 500 --density 0.02",
    "isomap": "--n 2000 --peer 500 --rows-exact 600 --sizes 500 1000",
    "linear_sparse": "--n 2000 --d 500 --density 0.02",
    "lle": "--n 3000 --peer 500",
    "nn_descent": "--n 3000 --length 80 --target 0.6",
    "plan": "--methods pca",
    "scheduler": "--workers 4 --blocks 16 --sleep 0.01",
    "single_cell": "--workers 1",
    "warm_start": "--n 2200 --before 2000",
    "hypersphere": "--columns 30 --ratios 2 --rows 500 1000 --seeds 2",
    "images": "--n 500 --queries 50",
    "hybrid": "--n 500 --order 60",
}
"""What a script is given to run small, where that is not ``--n 3000``; of an option that is given twice the last
counts."""
BEFORE = {"coarse_solve": "benchmarks/eigenpairs.py --data sphere_with_relief --no-arpack"}
"""What a script needs to have been run before it, as its page says."""
DATA = "BIGEMBED_DATA"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_job_file_fits_at_its_full_size(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_rows(monkeypatch)
    plan = plan_job(read_job(copied(file, tmp_path, ANY_SIZE)))
    assert plan.problems() == [], plan.advice
    assert not [line for line in plan.notes if "refused" in line]


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_job_file_runs_small(file: Path, tmp_path: Path) -> None:
    job = small(read_job(copied(file, tmp_path, None)))
    with warnings.catch_warnings(action="ignore"):
        found = run_job(job) if job.sweep is None else sweep(job)
    assert not found.get("refused")
    assert job.output_path.exists()


def small(job: JobSpec) -> JobSpec:
    """The job on few rows, in this process."""
    few = {"n": min(job.input.parameters["n"], FEW)} if "n" in job.input.parameters else {}
    given = job.input.model_copy(update={"parameters": {**job.input.parameters, **few}})
    return job.model_copy(update={"input": given, "cluster": ClusterTable()})


@pytest.mark.parametrize(
    ("page", "name", "text", "refused"), PAGES, ids=[f"{named(page)}: {name}" for page, name, _, _ in PAGES]
)
def test_a_job_of_a_page_is_planned_as_the_page_says(
    page: Path, name: str, text: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_rows(monkeypatch)
    (tmp_path / name).write_text(text, encoding="utf-8")
    plan = plan_job(read_job(tmp_path / name))
    if refused:
        with pytest.raises(PlanError):
            plan.refuse()
    else:
        assert plan.problems() == []


# -------------------------------------------------------------------------------- benchmarks


def test_every_script_is_shown_with_a_command() -> None:
    shown = {command.script for command in COMMANDS if command.page.endswith(".md")}
    assert [named(script) for script in scripts() if script not in shown] == []
    assert [str(command) for command in COMMANDS if not command.script.exists()] == []


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_words_of_a_command_are_understood(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parsed(self: argparse.ArgumentParser, *words: object) -> None:
        parse(self, *words)  # type: ignore[call-overload]
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    while True:
        try:
            in_script(command, command.words[1:], monkeypatch)
        except Parsed:
            return
        except ModuleNotFoundError as error:  # (a peer that is not here)
            monkeypatch.setitem(sys.modules, str(error.name), MagicMock())


def test_flags_beside_a_command_are_those_of_its_script() -> None:
    for line in (BENCHMARKS / "README.md").read_text(encoding="utf-8").partition("## Results")[0].splitlines():
        for script in SCRIPT.findall(line)[:1]:
            text = (ROOT / script.split()[0]).read_text(encoding="utf-8")
            assert [flag for flag in flags_of(line) if f'"{flag}"' not in text] == [], line


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command.runs_jobs and command.takes_data_sets], ids=str
)
def test_the_jobs_of_a_command_fit_at_its_full_size(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_rows(monkeypatch)
    plans = rehearse(command, tmp_path, monkeypatch)
    assert plans
    for plan in plans:
        assert plan.problems() == [], plan.advice


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", [one for one in COMMANDS if one.page.endswith(".md")], ids=str)
def test_a_command_runs_small(command: Command, tmp_path: Path) -> None:
    copy = tmp_path / "benchmarks"  # (where the results are written)
    shutil.copytree(BENCHMARKS, copy, ignore=shutil.ignore_patterns("results", "__pycache__"))
    for words in (BEFORE.get(command.script.stem, "").split(), list(command.words)):
        if words:
            called(command, words, tmp_path)


def called(command: Command, words: list[str], folder: Path) -> None:
    """Run a command small, in a copy of the scripts; a test is left out where a peer, or its data, are not here."""
    data = os.environ.get(DATA)
    if {"FOLDER", "PYTHON"} & {*words} and data is None:
        pytest.skip(f"set {DATA} to a folder with the data: bigembed downloads nothing")
    if "FILE" in words:
        pytest.skip("it takes a file of one's own")
    script = folder / "benchmarks" / Path(words[0]).relative_to("benchmarks")
    given = [{"FOLDER": data_of(words, str(data)), "PYTHON": sys.executable}.get(word, word) for word in words[1:]]
    default = "--n 3000" if '"--n"' in script.read_text(encoding="utf-8") else ""
    small = SMALL.get(script.stem, default).split()
    where = ["--folder", str(folder / "data")] if '"--folder", ' in script.read_text(encoding="utf-8") else []
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, str(script), *given, *small, *where]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]


def data_of(words: list[str], data: str) -> str:
    """The folder of the data set that a script takes."""
    return f"{data}/coil20" if "coil20" in words else data if "default_maps" in words[0] else f"{data}/mnist"
