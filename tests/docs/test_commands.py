"""The commands and pages of the guide are run, in order."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from bigembed import errors
from bigembed.errors import PlanError
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places import ClusterTable
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.sweep.run import sweep
from tests.docs import commands
from tests.docs.fences import Block, Folder, blocks
from tests.fault.hosts import lacking
from tests.s3 import ABSENT, serving, weed

FILES = commands.job_files() if commands.BENCHMARKS.exists() else []
PAGES = commands.jobs_of_pages() if commands.BENCHMARKS.exists() else []
COMMANDS = commands.commands() if commands.BENCHMARKS.exists() else []
FEW = 1_500
"""Rows of a data set in a small run."""
LONG = ("larger_than_memory", "single_cell", "sweep")
"""Job files that take long with few rows, too."""
SMALL = {
    "certify": "--n 3000 --exact 500",
    "extend": "--n 3000 --new 500",
    "few_rows": "--n 200 --d 1500 --rows 120 --columns 1500 --all-of 100",
    "hosts": "--only pca --rows 1200 --check",
    "hundred_million": "--n 3000",
    "graph_sparse": "--n 2000 --d 500 --density 0.02",
    "isomap": "--n 2000 --peer 500 --rows-exact 600 --sizes 500 1000",
    "limits": "--n 3000 --bytes 1048576",
    "linear_sparse": "--n 2000 --d 500 --density 0.02",
    "lle": "--n 3000 --peer 500",
    "million": "truncated_svd --n 3000",
    "records": "--n 3000",
    "nn_descent": "--n 3000 --length 80 --target 0.6",
    "plan": "--methods pca --rows 3000,6000",
    "scheduler": "--workers 4 --blocks 16 --sleep 0.01",
    "single_cell": "--workers 1",
    "sixty_four": "--workers 2 --rows 2000 --methods diffusion_map --events undisturbed --check",
    "twelve_nights": "--nights 1 --rows 400 --append 100",
    "warm_start": "--n 2200 --before 2000",
    "weights": "--places 300",
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
    return str(path.relative_to(commands.ROOT))


def small(job: JobSpec) -> JobSpec:
    """The job on few rows, in this process."""
    few = {"n": min(job.input.parameters["n"], FEW)} if "n" in job.input.parameters else {}
    given = job.input.model_copy(update={"parameters": {**job.input.parameters, **few}})
    return job.model_copy(update={"input": given, "cluster": ClusterTable()})


def called(command: commands.Command, words: list[str], folder: Path) -> None:
    """Run a command small, in a copy of the scripts; a test is left out where a peer, or its data, are not here."""
    data = os.environ.get(DATA)
    if {"FOLDER", "PYTHON"} & {*words} and data is None:
        pytest.skip(f"set {DATA} to a folder with the data: bigembed downloads nothing")
    if "FILE" in words:
        pytest.skip("it takes a file of one's own")
    if "hosts.py" in words[0] and (lacks := lacking() or (None if weed() else ABSENT)):
        pytest.skip(lacks)
    script = folder / "benchmarks" / Path(words[0]).relative_to("benchmarks")
    given = [{"FOLDER": data_of(words, str(data)), "PYTHON": sys.executable}.get(word, word) for word in words[1:]]
    default = "--n 3000" if '"--n"' in script.read_text(encoding="utf-8") else ""
    small = SMALL.get(script.stem, default).split()
    where = ["--folder", str(folder / "data")] if '"--folder", ' in script.read_text(encoding="utf-8") else []
    environment = os.environ | {"PYTHONPATH": str(commands.ROOT)}
    line = [sys.executable, str(script), *given, *small, *where]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr[-3000:]


def data_of(words: list[str], data: str) -> str:
    """The folder of the data set that a script takes."""
    return f"{data}/coil20" if "coil20" in words else data if "default_maps" in words[0] else f"{data}/mnist"


@pytest.mark.skipif(not commands.BENCHMARKS.exists(), reason="needs the repository, not only the package")
class TestCommands:
    """Every job file and every command that the project shows: planned at its full size, understood, and run small."""

    @pytest.mark.parametrize("file", FILES, ids=named)
    def test_a_job_file_fits_at_its_full_size(
        self, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commands.without_rows(monkeypatch)
        plan = plan_job(read_job(commands.copied(file, tmp_path, commands.ANY_SIZE)))
        assert plan.problems() == [], plan.advice
        assert not [line for line in plan.notes if "refused" in line]

    @pytest.mark.parametrize(
        "file",
        [pytest.param(file, marks=pytest.mark.slow) if file.stem in LONG else file for file in FILES],
        ids=named,
    )
    def test_a_job_file_runs_small(self, file: Path, tmp_path: Path) -> None:
        job = small(read_job(commands.copied(file, tmp_path, None)))
        with warnings.catch_warnings(action="ignore"):
            found = run_job(job) if job.sweep is None else sweep(job)
        assert not found.get("refused")
        assert job.output_path.exists()

    @pytest.mark.parametrize(
        ("page", "name", "text", "refused"), PAGES, ids=[f"{named(page)}: {name}" for page, name, _, _ in PAGES]
    )
    def test_a_job_of_a_page_is_planned_as_the_page_says(
        self, page: Path, name: str, text: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commands.without_rows(monkeypatch)
        (tmp_path / name).write_text(text, encoding="utf-8")
        plan = plan_job(read_job(tmp_path / name))
        if refused:
            with pytest.raises(PlanError):
                plan.refuse()
        else:
            assert plan.problems() == []

    # -------------------------------------------------------------------------------- benchmarks

    def test_every_script_is_shown_with_a_command(self) -> None:
        shown = {command.script for command in COMMANDS if command.page.endswith(".md")}
        assert [named(script) for script in commands.scripts() if script not in shown] == []
        assert [str(command) for command in COMMANDS if not command.script.exists()] == []

    @pytest.mark.parametrize("command", COMMANDS, ids=str)
    def test_the_words_of_a_command_are_understood(
        self, command: commands.Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parse = argparse.ArgumentParser.parse_args

        def parsed(self: argparse.ArgumentParser, *words: object) -> None:
            parse(self, *words)  # type: ignore[call-overload]
            raise commands.Parsed

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
        while True:
            try:
                commands.in_script(command, command.words[1:], monkeypatch)
            except commands.Parsed:
                return
            except ModuleNotFoundError as error:  # (a peer that is not here)
                monkeypatch.setitem(sys.modules, str(error.name), MagicMock())

    def test_flags_beside_a_command_are_those_of_its_script(self) -> None:
        page = (commands.BENCHMARKS / "README.md").read_text(encoding="utf-8")
        for line in page.partition("## Results")[0].splitlines():
            for script in commands.SCRIPT.findall(line)[:1]:
                text = (commands.ROOT / script.split()[0]).read_text(encoding="utf-8")
                assert [flag for flag in commands.flags_of(line) if f'"{flag}"' not in text] == [], line

    @pytest.mark.parametrize(
        "command", [command for command in COMMANDS if command.runs_jobs and command.takes_data_sets], ids=str
    )
    def test_the_jobs_of_a_command_fit_at_its_full_size(
        self, command: commands.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commands.without_rows(monkeypatch)
        plans = commands.rehearse(command, tmp_path, monkeypatch)
        assert plans
        for plan in plans:
            assert plan.problems() == [], plan.advice

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("command", [one for one in COMMANDS if one.page.endswith(".md")], ids=str)
    def test_a_command_runs_small(self, command: commands.Command, tmp_path: Path) -> None:
        copy = tmp_path / "benchmarks"  # (where the results are written)
        shutil.copytree(commands.BENCHMARKS, copy, ignore=shutil.ignore_patterns("results", "__pycache__"))
        for words in (BEFORE.get(command.script.stem, "").split(), list(command.words)):
            if words:
                called(command, words, tmp_path)


DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES_PAGES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
NOTEBOOK_SECONDS = 60
"""Of processor time, at most, for a notebook."""
QUICK = {"guide/sizing.md", "install.md", "reference/stored_files.md", "reliability.md", "security.md"}
"""Pages of the default run; the others take longer."""


RECIPES = {"coming_from.md", "guide/recipes.md"}
"""Pages that call other packages; they run where these are (pytest -m recipes)."""


def marked(page: Path) -> object:
    """A page as a parameter of a test, slow where it is."""
    marks = [] if str(page) in QUICK else [pytest.mark.slow]
    return pytest.param(page, id=str(page), marks=[*marks, pytest.mark.recipes] if str(page) in RECIPES else marks)


@pytest.mark.skipif(not DOCS.exists(), reason="needs the repository, not only the package")
@pytest.mark.timeout(600)
class TestPages:
    """Every command of the guide is run, in order, in a folder of the page; what the guide shows is what is printed."""

    @pytest.fixture
    def environment(self, page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
        """What the commands of a page find in their environment: of the one on object stores, a server."""
        wanted = page.parent.name == "notebooks" and DATA in (DOCS / page).read_text(encoding="utf-8")
        if wanted and DATA not in os.environ:
            pytest.skip(f"set {DATA} to a folder with the data: bigembed downloads nothing")
        if page.name != "object_stores.md":
            yield {}
            return
        if weed() is None:
            pytest.skip(ABSENT)
        with serving(tmp_path_factory.mktemp("s3")) as server:
            yield server.environment

    @pytest.mark.parametrize("page", [marked(page) for page in PAGES_PAGES if any(True for _ in blocks(DOCS / page))])
    def test_the_page_is_true(self, page: Path, environment: dict[str, str], tmp_path: Path) -> None:
        folder = Folder(tmp_path / "work", tmp_path / "tools", environment)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            for block in blocks(DOCS / page):
                folder.do(block)
        finally:
            folder.close()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert page.parent.name != "notebooks" or seconds < NOTEBOOK_SECONDS, f"{seconds:.0f} s of processor time"
        if absent := sorted({name for block in blocks(DOCS / page) for name in block.absent}):
            pytest.skip(f"all blocks but those that need {', '.join(absent)} are true (extra: recipes)")

    def test_of_every_block_it_is_known_what_becomes_of_it(self) -> None:
        unknown = [f"{page}:{block.line}" for page in PAGES_PAGES for block in blocks(DOCS / page) if not block.known]
        assert unknown == []

    def test_a_wrong_page_is_found(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path, tmp_path / "tools")
        folder.do(Block("sh", "echo 1234 rows in 2 s", 1))
        folder.do(Block("text", "1234 rows in ... s\n", 2, ("output",)))
        with pytest.raises(AssertionError, match="the page shows"):
            folder.do(Block("text", "1235 rows in ... s\n", 2, ("output",)))
        with pytest.raises(AssertionError, match="line 7: exit status 3"):
            folder.do(Block("sh", "exit 3", 7))
        folder.do(Block("sh", "exit 3", 7, ("exits-3",)))
        folder.do(Block("python", "a = 1", 7))
        folder.do(Block("python", "print(a + 1)", 7))
        folder.do(Block("text", "2\n", 8, ("output",)))
        with pytest.raises(AssertionError, match="NameError: name 'b'"):
            folder.do(Block("python", "b", 7))
        folder.close()
        with pytest.raises(AssertionError, match="neither run nor output"):
            folder.do(Block("ruby", "puts 1", 9))

    def test_every_error_and_warning_has_its_remedy(self) -> None:
        text = (DOCS / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
        said = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL))
        bases = (errors.BigembedError, errors.BigembedWarning)
        classes = {name: kind for name in dir(errors) if inspect.isclass(kind := getattr(errors, name))}
        known = {name for name, kind in classes.items() if issubclass(kind, bases) and kind not in bases}
        assert set(said) == known
        assert [name for name, what in said.items() if "*Remedy*" not in what] == []
