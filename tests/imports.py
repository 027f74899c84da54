"""What modules of the package import while they are imported themselves: not what their functions import later."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

LATER = (ast.FunctionDef, ast.AsyncFunctionDef)
"""What is not run while a module is imported."""


def imports_of(package: Path) -> dict[str, set[str]]:
    """Each module below the folder of a package, and all that it names in imports outside of functions."""
    files = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    return {
        name.removesuffix(".__init__"): set(named(ast.parse(file.read_text()).body)) for name, file in files.items()
    }


def named(body: Iterable[ast.AST]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))
        elif not (isinstance(node, LATER) or is_for_types(node)):
            yield from named(ast.iter_child_nodes(node))


def is_for_types(node: ast.AST) -> bool:
    """Whether it is read by what checks types alone."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def loading(imports: dict[str, set[str]], library: str) -> set[str]:
    """The modules whose import loads a library, themselves or through others."""
    found: set[str] = set()
    more = {library}
    while more - found:
        found |= more
        more = {name for name, of_it in imports.items() if any(is_in(one, found) for one in of_it)}
    return found - {library}


def is_in(name: str, modules: set[str]) -> bool:
    """Whether a name is of a module, or of a package that is imported before the modules below it."""
    return name in modules or any(name.startswith(f"{module}.") for module in modules)
