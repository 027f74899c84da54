"""The commands and their options, from the functions that the command line is made of."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import dataclass
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from typer.models import ArgumentInfo

from bigembed.cli import app as cli

WORDS = {"Path": "PATH", "str": "TEXT", "int": "N", "float": "X", "list": "TEXT"}


@dataclass(frozen=True)
class Given:
    """An argument or an option."""

    shown: str
    help: str
    is_argument: bool


def given(callback: Any) -> list[Given]:
    """Arguments and options of a command, in their order."""
    hints = typing.get_type_hints(callback, include_extras=True)
    found = []
    for name, parameter in inspect.signature(callback).parameters.items():
        hint, info = typing.get_args(hints[name])[:2]
        is_argument, flag = isinstance(info, ArgumentInfo), hint is bool
        plain = next(kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None))
        word = info.metavar or (name.upper() if is_argument or flag else WORDS[plain.__name__])
        # In Annotated the first name of an option is taken for its default.
        named = [info.default, *(info.param_decls or ())]
        option = next((one for one in named if str(one).startswith("--")), f"--{name.replace('_', '-')}")
        default = (
            "" if parameter.default in (None, False, inspect.Parameter.empty) else f" Default {parameter.default}."
        )
        found.append(
            Given(word if is_argument else option + ("" if flag else f" {word}"), info.help + default, is_argument)
        )
    return found


def section(title: str, callback: Any) -> list[str]:
    """A command as reStructuredText: usage, what it does, arguments and options."""
    parts = given(callback)
    usage = " ".join([title, *(one.shown for one in parts if one.is_argument), "[OPTIONS]"])
    out = ["", title, "-" * len(title), "", ".. code-block:: text", "", f"   {usage}", ""]
    out += [_plain(inspect.getdoc(callback) or ""), "", ".. list-table::", "   :widths: 34 66", ""]
    for one in parts:
        out += [f"   * - ``{one.shown}``", f"     - {_plain(one.help)}"]
    return [*out, ""]


def _plain(text: str) -> str:
    text = text.replace("\n", " ").replace("*", r"\*").replace("|", r"\|")
    return re.sub(r"\w+://[\w.:/-]*\w", r"``\g<0>``", text)


class CommandLine(SphinxDirective):
    """``.. command-line::``: a section for every command."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        callbacks: list[Any] = [command.callback for command in cli.registered_commands]
        lines = [line for one in callbacks for line in section(f"bigembed {one.__name__}", one)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
