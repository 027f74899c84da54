"""A recorded job as the TOML file that makes it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def job_file(job: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of a job, as a file; nothing for a job without tables.

    >>> job_file({"method": {"n_components": 2, "name": "pca"}})
    '[method]\\nname = "pca"\\nn_components = 2\\n'
    """
    return "\n".join(_table(name, values) for name, values in job.items())


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{name}]"]
    first = {key: values[key] for key in ("name", "dataset") if key in values}
    for key, value in {**first, **values}.items():
        if value is None and name == "method":
            lines.append(f'{key} = "none"')
        elif value is not None:
            lines.append(f"{key} = {toml(value)}")
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    r"""A value as TOML writes it.

    >>> toml(True), toml(1e-6), toml(1e300), toml([1, "a"]), toml('a"b\n')
    ('true', '1e-06', '1e+300', '[1, "a"]', '"a\\"b\\n"')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml(str(key))} = {toml(one)}" for key, one in value.items()) + "}"
    return repr(value)
