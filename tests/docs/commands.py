"""The commands that the project shows, found in its files; and rows without bytes, for plans at their full size."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigembed.datasets import Dataset, dataset
from bigembed.jobs.planning import footprint
from bigembed.jobs.planning.plan import Plan
from bigembed.jobs.run import plan_job
from bigembed.jobs.spec import read_job
from bigembed.store.arrays import create_rows, write_rows
from tests.docs.fences import blocks

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
ANY_SIZE, FEW = (10_000_000, 64), (300, 8)
"""Of rows that a job file only names, for a plan and for a run."""
BLOCK = 65_536
MACHINE, DISK = 23 << 30, 1 << 40
"""Bytes of memory of the machine that the figures are of, and of a disk that is large enough for all of them."""
REFUSED = 3
"""Exit status of a job that its plan refuses."""
SHOWN = ("README.md", "docs/**/*.md", "benchmarks/README.md", "benchmarks/paper/README.md")
SCRIPT = re.compile(r"`python (benchmarks/\S+\.py[^`]*)`")


# --------------------------------------------------------------------------------- job files


def job_files() -> list[Path]:
    """Every job file that a user is pointed to."""
    found = [path for folder in ("workflows", "deploy") for path in sorted((ROOT / folder).rglob("*.toml"))]
    texts = {path.read_text(encoding="utf-8"): path for path in reversed(found)}  # (of copies the first)
    return sorted(path for text, path in texts.items() if "method" in tomllib.loads(text))


def jobs_of_pages() -> list[tuple[Path, str, str, bool]]:
    """Every job file of a page that needs no rows of the page's own: the page, its name, its text, whether a command
    on it is shown to be refused."""
    out = []
    for page in pages():
        known = list(blocks(page))
        for block in known:
            if block.language == "toml" and block.caption and "dataset" in _input_of(block.text):
                shown = [one for one in known if one.language == "sh" and f"plan {block.caption}" in one.text]
                out.append((page, block.caption, block.text, any(one.status == REFUSED for one in shown)))
    return out


def _input_of(text: str) -> Mapping[str, Any]:
    with suppress(tomllib.TOMLDecodeError):
        value = tomllib.loads(text)
        return value.get("input", {}) if "method" in value else {}
    return {}


def pages() -> list[Path]:
    """Every page of text."""
    return [path for pattern in SHOWN for path in sorted(ROOT.glob(pattern))]


def copied(job: Path, folder: Path, size: tuple[int, int] | None) -> Path:
    """A job file in a folder of its own, with the rows that it names: of this size, without bytes; real ones if None.

    ``/data`` of a container lies there, too. Rows that the file says how to make are made in that way.
    """
    text = job.read_text(encoding="utf-8").replace('"/data/', f'"{folder}/data/')
    given = tomllib.loads(text)["input"]
    place = folder / job.name
    place.write_text(text, encoding="utf-8")
    if "dataset" in given:
        return place
    rows = folder / given["path"]
    rows.parent.mkdir(parents=True, exist_ok=True)
    made = re.search(r"#\s+python (workflows/\S+) \S+", text)
    if made:
        subprocess.run([sys.executable, str(ROOT / made[1]), str(rows), "--cells", "300"], check=True)
    elif rows.suffix == ".zarr":
        create_rows(rows, size or FEW, np.float32, BLOCK)
        if size is None:
            write_rows(rows, 0, np.random.default_rng(0).normal(size=FEW).astype("f4"))
    else:
        raise AssertionError(f"{job}: nothing says how {rows.name} comes to be; show the command in the file")
    return place


# -------------------------------------------------------------------------------- benchmarks


@dataclass(frozen=True)
class Command:
    """A command on a script of the benchmarks, and where it is shown."""

    page: str
    words: tuple[str, ...]

    @property
    def script(self) -> Path:
        """What it runs."""
        return ROOT / self.words[0]

    @property
    def text(self) -> str:
        """The whole script."""
        return self.script.read_text(encoding="utf-8")

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def runs_jobs(self) -> bool:
        """Whether it runs jobs, which are planned."""
        return ('"run"' in self.text and "bigembed.cli" in self.text) or "run_job(" in self.text

    @property
    def takes_data_sets(self) -> bool:
        """Whether its rows are those of a data set on this disk, so that they need not be there for a plan, and its
        jobs start workers of their own, if any."""
        return "data_set(" in self.text and not any(name in self.text for name in ("serving(", "LocalCluster("))


def commands() -> list[Command]:
    """Every command on a script that a page or the script itself shows, once."""
    out: dict[tuple[str, ...], Command] = {}
    for page in pages():
        for text in SCRIPT.findall(page.read_text(encoding="utf-8")):
            words = words_of(text)
            out.setdefault(words, Command(str(page.relative_to(ROOT)), words))
    for script in scripts():
        said = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        for line in re.findall(r"(?m)^\s+python (benchmarks/.*)$", said):
            words = words_of(line)
            out.setdefault(words, Command(str(script.relative_to(ROOT)), words))
    return list(out.values())


def words_of(line: str) -> tuple[str, ...]:
    """The words of a command, without the folder where it works."""
    words = shlex.split(line, comments=True)
    if "--folder" in words:
        at = words.index("--folder")
        words = [*words[:at], *words[at + 2 :]]
    return tuple(words)


def scripts() -> list[Path]:
    """Every script of the benchmarks."""
    return [path for path in sorted(BENCHMARKS.rglob("*.py")) if path.name not in ("common.py", "compare.py")]


class Parsed(Exception):
    """The words of a command were understood."""


def hollow_set(name: str, folder: Path, made: Dataset | None = None, dtype: Any = None, **parameters: Any) -> str:
    """As ``data_set`` of the benchmarks, without the rows: an array of their shape that has no chunk."""
    path = Path(folder) / f"{name}-{'-'.join(map(str, parameters.values()))}.zarr"
    if not path.exists():
        rows = made or dataset(name, **parameters)
        first = rows.rows(0, 1)
        create_rows(path, (len(rows), first.shape[1]), dtype or first.dtype, BLOCK)
    return str(path)


class Rehearsed:
    """What a script has started: jobs are planned and said to be done."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def started(self, command: Any, *args: Any, **given: Any) -> subprocess.CompletedProcess[bytes]:
        """In place of ``subprocess.run``."""
        words = [str(word) for word in command]
        if "bigembed.cli" in words and "run" in words:
            self.planned(read_job(next(word for word in words if word.endswith(".toml"))))
        return subprocess.CompletedProcess(words, 0, b"{}")

    def planned(self, job: Any, *args: Any, **given: Any) -> dict[str, Any]:
        """In place of ``run_job``: the plan, and a record as of a job that took what was planned."""
        plan = plan_job(job)
        self.plans.append(plan)
        stages = [{"name": name, "seconds": 1.0, "reused": False, "predicted_seconds": 1.0} for name, _ in plan.stages]
        record = {"seconds": 1.0, "predicted_seconds": 1.0, "stages": stages, "plan": plan.as_dict()}
        record |= {"predicted": plan.memory, "measured": plan.memory, "certificate": {"passes": 1, "recall": {}}}
        output = Path(str(job.output_path))
        output.mkdir(parents=True, exist_ok=True)
        (output / "job.json").write_text(json.dumps(record))
        return record


class Popen:
    """In place of ``subprocess.Popen`` in a rehearsal: a process that has ended."""

    pid, returncode = 0, 0

    def __init__(self, rehearsed: Rehearsed, command: Any) -> None:
        self.done = rehearsed.started(command)

    def poll(self) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def communicate(self) -> tuple[bytes, bytes]:
        return self.done.stdout, b""


def in_script(command: Command, words: Sequence[str], patch: pytest.MonkeyPatch) -> None:
    """Run a script in this process with these words."""
    patch.syspath_prepend(str(command.script.parent))
    patch.setattr(sys, "argv", [str(command.script), *words])
    runpy.run_path(str(command.script), run_name="__main__")


def without_rows(patch: pytest.MonkeyPatch) -> None:
    """Let plans be made of arrays without bytes, for the machine that the figures are of."""
    patch.setattr("bigembed.rows.opening.missing_shards", lambda array: 0)
    patch.setattr("bigembed.jobs.planning.plan.free_bytes", lambda folder: DISK)
    for module in ("places.cluster", "planning.plan", "planning.resources"):
        patch.setattr(f"bigembed.jobs.{module}.machine_memory", lambda: MACHINE)


def rehearse(command: Command, folder: Path, patch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all jobs that the command would run, up to where it needs what they would have written."""
    found = Rehearsed()
    footprint(False)  # (measured by a process of its own, which is not the script's)
    patch.syspath_prepend(str(BENCHMARKS))
    import common  # type: ignore[import-not-found]  (of the benchmarks)

    patch.setattr(common, "data_set", hollow_set)
    patch.setattr(common, "table", lambda *args: None)
    patch.setattr("bigembed.jobs.run.run_job", found.planned)
    patch.setattr("bigembed.jobs.sweep.run.sweep", found.planned)
    patch.setattr(subprocess, "run", found.started)
    patch.setattr(subprocess, "Popen", lambda words, *args, **given: Popen(found, words))
    patch.setattr("time.sleep", lambda seconds: None)
    try:
        in_script(command, with_folder(command, folder), patch)
    except (Exception, SystemExit):
        if not found.plans:
            raise
    return found.plans


def with_folder(command: Command, folder: Path) -> list[str]:
    """The words of a command, with what it writes in a folder."""
    words = [str(folder) if word == "FOLDER" else word for word in command.words[1:]]
    return [*words, "--folder", str(folder)] if '"--folder"' in command.text else words


def flags_of(text: str) -> Iterator[str]:
    """The flags that a page names beside a command."""
    yield from re.findall(r"(?<![\w-])--[a-z][\w-]*", text)
