"""Whether a command line is one that its program takes: parsed by the program itself, and not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from bigembed.cli import app
from bigembed.jobs import parse_deadline


@cache
def program(name: str) -> Any:
    """The click command of a console script."""
    if name == "bigembed":
        return get_command(app)
    from distributed.cli.dask_scheduler import main as scheduler
    from distributed.cli.dask_worker import main as worker

    return {"scheduler": scheduler, "worker": worker}


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Parameters of a command line (``bigembed …``, ``dask scheduler|worker …``).

    Raises click's UsageError for an option or a value that the program does not take.
    """
    first, *rest = words
    name = Path(first).name
    if name == "bigembed":
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
    """The command lines on a growing store in a piece of shell code."""
    found = re.findall(r"(?:\S*/)?\bbigembed (?:append|refresh|extend|audit)\b[^;&|>\n]*", text)
    return [shlex.split(line) for line in found]
