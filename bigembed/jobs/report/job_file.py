"""A recorded job as the TOML file that makes it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w


def job_file(job: Mapping[str, Any]) -> str:
    """The tables of a job, as a file; nothing for a job without tables.

    >>> job_file({"method": {"epsilon": None, "name": "pca"}, "input": {"path": "x.npy", "ids": None}})
    '[method]\\nname = "pca"\\nepsilon = "none"\\n\\n[input]\\npath = "x.npy"\\n'
    """
    return tomli_w.dumps({name: _tables(name, values) for name, values in job.items()})


def _tables(name: str, values: Any) -> Any:
    return [_table(name, one) for one in values] if isinstance(values, list) else _table(name, values)


def _table(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a table says, its name first; of a method also what is explicitly none."""
    first = {key: values[key] for key in ("name", "dataset") if key in values}
    said = {key: "none" if value is None and name == "method" else value for key, value in {**first, **values}.items()}
    return {key: value for key, value in said.items() if value is not None}
