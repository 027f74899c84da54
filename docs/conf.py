"""How the pages are built: ``sphinx-build -W -n --keep-going docs build/docs``. Nothing is read from the network."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import bigembed  # noqa: E402
from bigembed.estimator import model_files  # noqa: E402
from bigembed.store import attributes  # noqa: E402
from bigembed.store import manifests as manifest  # noqa: E402

project = "bigembed"
author = "The bigembed authors"
copyright = "The bigembed authors"
version = release = bigembed.__version__

NOTEBOOKS = find_spec("myst_nb") is not None
"""Whether notebooks are run; without myst-nb their pages show the code alone."""
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # (for their commands)
extensions = [
    "myst_nb" if NOTEBOOKS else "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "docstrings",
    "public_names",
    "command_line",
    "job_file",
    "floors",
    "results",
    "pictures",
    "deploy",
]
exclude_patterns = ["_ext", "_templates"]
templates_path = ["_templates"]
nitpicky = True

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "substitution"]
myst_substitutions = {
    "run_format": str(manifest.FORMAT),
    "model_format": str(model_files.FORMAT),
    "outputs_convention": str(attributes.CONVENTION),
}
myst_heading_anchors = 3
suppress_warnings: list[str] = []

nb_execution_mode = "auto"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_excludepatterns = [] if "BIGEMBED_DATA" in os.environ else ["cells.md"]  # (whose data are a file of yours)

autodoc_typehints = "none"  # the docstrings say it, with shapes, units and ranges
autodoc_member_order = "bysource"
add_module_names = False
numpydoc_show_class_members = False  # each has its own entry

html_theme = "furo"
html_title = f"bigembed {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"footer_icons": []}
pygments_style = "default"
pygments_dark_style = "monokai"


def setup(app: Any) -> None:
    """Show cells as code where nothing runs them."""
    if not NOTEBOOKS:
        from sphinx.directives.code import CodeBlock

        app.add_directive("code-cell", CodeBlock)
