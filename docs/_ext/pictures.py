"""The pictures of the gallery are made when the pages are built, each by the script that its page shows."""

from __future__ import annotations

import runpy
from contextlib import chdir
from pathlib import Path
from typing import Any


def draw(app: Any) -> None:
    """Run every script of ``gallery/`` whose picture is not there or older than itself."""
    for script in sorted((Path(app.srcdir) / "gallery").glob("*.py")):
        picture = script.with_suffix(".png")
        if not picture.exists() or picture.stat().st_mtime < script.stat().st_mtime:
            with chdir(script.parent):
                runpy.run_path(str(script))


def setup(app: Any) -> dict[str, Any]:
    """Register."""
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True}
