"""``bigembed example``: job files to begin with, beside this file, and the small data that some of them read."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.datasets import dataset
from bigembed.errors import ExistingOutputError, InputError
from bigembed.runtime.blocks import Array
from bigembed.store.arrays import write_npy

SUFFIX = ".toml"


def rolled_sheet() -> dict[str, Array]:
    """Rows of a rolled-up sheet, and their ids."""
    rows, _ = dataset("swiss_roll", n=2000).draw()
    return {"rows.npy": rows, "ids.npy": np.array([f"point {number}" for number in range(len(rows))])}


def table_with_gaps() -> dict[str, Array]:
    """Columns of different scales, one value in a hundred missing."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(1000, 2)) @ random.normal(size=(2, 6)) + 0.1 * random.normal(size=(1000, 6))
    rows *= [1, 10, 100, 1, 10, 100]
    rows[random.random(rows.shape) < 0.01] = np.nan
    return {"table.npy": rows}


DATA: dict[str, Callable[[], dict[str, Array]]] = {"rows": rolled_sheet, "steps": table_with_gaps}
"""Files that an example reads, by its name."""


def examples() -> dict[str, str]:
    """Return the names of the examples, each with what it shows."""
    found = {path.name.removesuffix(SUFFIX): path.read_text() for path in files(__name__).iterdir() if _is_job(path)}
    return {name: found[name].partition("\n")[0].removeprefix("# ") for name in sorted(found)}


def _is_job(path: Any) -> bool:
    return str(path.name).endswith(SUFFIX)


def write_example(name: str, folder: str | Path = ".") -> list[Path]:
    """Write the job file of an example, and the data that it reads; return their paths, the job file first."""
    if name not in (known := examples()):
        raise InputError(f"no example {name!r}; there are {', '.join(known)}")
    home, data = Path(folder), DATA.get(name, dict)()
    paths = [home / f"{name}{SUFFIX}", *(home / file for file in data)]
    if there := [str(path) for path in paths if path.exists()]:
        raise ExistingOutputError(f"{', '.join(there)}: exists. Nothing was changed; choose another folder")
    home.mkdir(parents=True, exist_ok=True)
    for file, array in data.items():
        write_npy(home / file, array)
    paths[0].write_text(files(__name__).joinpath(paths[0].name).read_text())
    return paths


def show_example(name: str | None, folder: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Return what ``bigembed example`` found or wrote, and how it says so."""
    if name is None:
        known = examples()
        width = max(map(len, known))
        return known, [
            *(f"{one:<{width}}  {what}" for one, what in known.items()),
            "",
            "bigembed example NAME [FOLDER]",
        ]
    job, *data = write_example(name, folder)
    written = [str(path) for path in (job, *data)]
    return {"job": str(job), "data": written[1:]}, [f"written: {', '.join(written)}", f"next: bigembed run {job}"]
