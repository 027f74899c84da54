"""A page for every public name, so that none can be forgotten; references by short names find them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import bigembed
from bigembed import datasets, errors, plotting, scanpy
from bigembed.estimator.base import Estimator

FOLDER = "reference/api"
DECLARED = [name for name, kind in Estimator.__annotations__.items() if kind.startswith("ClassVar")]
HIDDEN = ", ".join(["read_run", *DECLARED])
"""What the author of a method sets, and a user of it does not."""


def kinds() -> dict[str, list[str]]:
    """Full names of what is public, by kind."""
    found: dict[str, list[str]] = {"estimators": [], "objects": [], "functions": []}
    for name in bigembed.__all__:
        value = getattr(bigembed, name)
        if inspect.isclass(value):
            found["estimators" if issubclass(value, Estimator) else "objects"].append(f"bigembed.{name}")
        elif callable(value):
            found["functions"].append(f"bigembed.{name}")
    found["objects"] += ["bigembed.jobs.growth.Growth", "bigembed.jobs.growth.Version"]
    found["objects"] += ["bigembed.jobs.growth.account.Range", "bigembed.quality.certify.MapQuality"]
    found["objects"] += [
        "bigembed.maps.walk.geometric_harmonics.GeometricHarmonics",
        "bigembed.jobs.planning.fit.FitPlan",
    ]
    found["objects"] += ["bigembed.jobs.planning.fit.StagePlan"]
    found["datasets"] = [f"bigembed.datasets.{name}" for name in ("dataset", "Dataset", *datasets.REGISTRY)]
    found["pictures"] = [f"bigembed.plotting.{name}" for name in plotting.__all__]
    found["scanpy"] = [f"bigembed.scanpy.{name}" for name in scanpy.__all__]
    found["errors"] = [f"bigembed.errors.{name}" for name in dir(errors) if _raised(getattr(errors, name))]
    return found


def _raised(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, (errors.BigembedError, errors.BigembedWarning))


def resolved(name: str) -> Any:
    """The object of a full name."""
    module, _, attribute = name.rpartition(".")
    return getattr(__import__(module, fromlist=[attribute]), attribute)


def write_pages(app: Any) -> None:
    """One page a class or function of the package itself; untouched where it says the same already."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for kind in ("estimators", "objects", "functions") for name in kinds()[kind]]
    wanted = {f"{name.rpartition('.')[2]}.rst": name for name in names}
    for old in {path.name for path in folder.glob("*.rst")} - set(wanted):
        (folder / old).unlink()
    for file, name in wanted.items():
        short = name.rpartition(".")[2]
        directive = "autofunction" if inspect.isfunction(resolved(name)) else "autoclass"
        text = f"{short}\n{'=' * len(short)}\n\n.. {directive}:: {name}\n"
        if directive == "autoclass":
            ours = all(base.__module__.partition(".")[0] != "sklearn" for base in resolved(name).__mro__)
            inherited = "   :inherited-members: object\n" if ours else ""  # (scikit-learn's refer to its own pages)
            text += f"   :members:\n{inherited}   :exclude-members: {HIDDEN}\n"
        path = folder / file
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class PublicNames(SphinxDirective):
    """``.. public-names:: KIND``: a table of the names of a kind, each with the first sentence of its docstring."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, and the pages in the table of contents."""
        from docstrings import escaped

        kind = self.arguments[0]
        names = kinds()[kind]
        lines = [".. list-table::", "   :widths: 38 62", ""]
        for name in names:
            first = (inspect.getdoc(resolved(name)) or "").split("\n\n")[0].replace("\n", " ")
            lines += [f"   * - :py:obj:`{name.rpartition('.')[2]} <{name}>`", f"     - {escaped(first)}"]
        if kind in ("estimators", "objects", "functions"):
            lines += ["", ".. toctree::", "   :hidden:", ""]
            lines += [f"   api/{name.rpartition('.')[2]}" for name in names]
        return self.parse_text_to_nodes("\n".join(lines))


class AllOf(SphinxDirective):
    """``.. all-of:: KIND`` (in reStructuredText): the full documentation of every name of a kind, here."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One entry a name."""
        lines: list[str] = []
        for name in kinds()[self.arguments[0]]:
            function = inspect.isfunction(resolved(name))
            lines += [f".. {'autofunction' if function else 'autoclass'}:: {name}"]
            lines += [] if function or issubclass(resolved(name), BaseException) else ["   :members:"]
            lines += [""]
        return self.parse_text_to_nodes("\n".join(lines))


def short_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A reference by the last part of a name, where exactly one documented object ends in it."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    objects = env.domains["py"].objects
    last = target.rpartition(".")[2]
    found = {name for name in objects if name == target or name.rpartition(".")[2] == last}
    if len(found) != 1:
        return None
    entry = objects[found.pop()]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, target)


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.connect("builder-inited", write_pages)
    app.connect("missing-reference", short_name)
    app.add_directive("public-names", PublicNames)
    app.add_directive("all-of", AllOf)
    return {"parallel_read_safe": True}
