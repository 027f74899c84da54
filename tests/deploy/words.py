"""Whether a command line is one that its program takes: parsed by the program itself, and not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from bigembed.cli import app
from bigembed.jobs.units import parse_deadline
from tests.deploy.processes import ROOT


@cache
def program(name: str) -> Any:
    """The click command of a console script, or of a script of workflows/."""
    if name == "bigembed":
        return get_command(app)
    if name == "dask":
        from distributed.cli.dask_scheduler import main as scheduler
        from distributed.cli.dask_worker import main as worker

        return {"scheduler": scheduler, "worker": worker}
    spec = spec_from_file_location(name, ROOT / "workflows" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    script = typer.Typer()
    script.command()(module.main)
    return get_command(script)


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Parameters of a command line (``bigembed …``, ``dask scheduler|worker …``, ``python …/workflows/NAME.py …``).

    Raises click's UsageError for an option or a value that the program does not take.
    """
    first, *rest = words
    name = Path(first).name
    if name.startswith("python"):
        script, *rest = rest
        assert Path(script).parts[:-1] == ("/", "opt", "bigembed", "workflows"), script
        context = program(Path(script).stem).make_context(Path(script).stem, list(rest))
    elif name == "bigembed":
        group = program("bigembed")
        chosen, *rest = rest
        context = group.commands[chosen].make_context(chosen, list(rest))
    else:
        chosen, *rest = rest
        context = program(name)[chosen].make_context(chosen, list(rest))
    found = dict(context.params)
    if found.get("deadline"):
        parse_deadline(found["deadline"])
    return found


def commands(text: str) -> list[list[str]]:
    """The command lines of workflows in a piece of shell code."""
    found = re.findall(r"\S*python\S* /opt/bigembed/workflows/\w+\.py[^;&|>\n]*", text)
    return [shlex.split(line) for line in found]
