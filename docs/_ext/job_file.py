"""The tables and keys of a job file, from the classes that validate it; methods and data sets from their registries."""

from __future__ import annotations

import ast
import inspect
import json
import typing
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from bigembed import datasets
from bigembed.estimator import RUN_PARAMETERS
from bigembed.jobs import spec
from bigembed.jobs.job import STEP_KEYS
from bigembed.maps import REGISTRY, STEPS, method, step


def key_docs(table: type[Any]) -> dict[str, str]:
    """The text below each key of a table in its source."""
    body = ast.parse(inspect.getsource(table)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for line, below in zip(body.body, [*body.body[1:], None], strict=True):
        named = isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[line.target.id] = inspect.cleandoc(str(below.value.value))  # type: ignore[union-attr]
    return found


def keys(table: type[Any]) -> list[str]:
    """The keys that a job file may give in a table."""
    return [name for name in table.model_fields if name != "parameters"]


def kind(annotation: Any) -> str:
    """A type in words."""
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): ""}
    if annotation in words:
        return words[annotation]
    if typing.get_origin(annotation) is typing.Annotated:
        return kind(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is dict:
        return "table"
    if typing.get_origin(annotation) is list:
        return f"list of {kind(typing.get_args(annotation)[0])}s".replace("texts", "text")
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(f"``{value!r}``" for value in typing.get_args(annotation)).replace("'", '"')
    parts = [kind(part) for part in typing.get_args(annotation)]
    return " or ".join(dict.fromkeys(part for part in parts if part)) or str(annotation)


def table_lines(name: str, table: type[Any]) -> list[str]:
    """A section on one table."""
    title = f"[{name}]"
    out = ["", f".. _job-{name}:", "", title, "-" * len(title), "", inspect.getdoc(table) or "", ""]
    out += [".. list-table::", "   :widths: 22 20 58", "   :header-rows: 1", ""]
    out += ["   * - key", "     - value", "     - what it says"]
    said = key_docs(table)
    for key in keys(table):
        field = table.model_fields[key]
        value = {"memory": "size", "walltime": "duration"}.get(key) or kind(field.annotation)
        if field.is_required():
            value += ", must be given"
        elif field.default not in (None, []) and json.dumps(field.default) not in value:
            value += f", by default ``{json.dumps(field.default)}``"
        out += [f"   * - ``{key}``", f"     - {value}", f"     - {said.get(key, '').replace(chr(10), ' ')}"]
    return out


class JobTables(SphinxDirective):
    """``.. job-tables::``: a section for each table."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        lines = [line for name, table in spec.TABLES.items() for line in table_lines(name, table)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class RegistryTable(SphinxDirective):
    """``.. registry:: methods`` or ``datasets``: each name of a job file, with what it stands for and its keys."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table."""
        if self.arguments[0] == "methods":
            found = [(name, f":class:`bigembed.{method(name).__name__}`", _keys(method(name))) for name in REGISTRY]
        elif self.arguments[0] == "steps":
            found = [(name, f":class:`bigembed.{step(name).__name__}`", _keys(step(name), name)) for name in STEPS]
        else:
            found = [
                (name, f":func:`bigembed.datasets.{name}`", _keys(call)) for name, call in datasets.REGISTRY.items()
            ]
        out = [".. list-table::", "   :widths: 28 27 45", "   :header-rows: 1", ""]
        out += ["   * - ``dataset``" if self.arguments[0] == "datasets" else "   * - ``name``"]
        out += ["     - what it is", "     - keys"]
        for name, link, given in found:
            out += [f"   * - ``{name}``", f"     - {link}", f"     - {given}"]
        return self.parse_text_to_nodes("\n".join(out))


def _keys(call: Any, step_name: str = "") -> str:
    given = [name for name in inspect.signature(call).parameters if name not in RUN_PARAMETERS]
    return ", ".join(f"``{STEP_KEYS.get((step_name, name), name)}``" for name in given)


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.add_directive("job-tables", JobTables)
    app.add_directive("registry", RegistryTable)
    return {"parallel_read_safe": True}
