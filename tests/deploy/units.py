"""The units of deploy/systemd as systemd reads them."""

from __future__ import annotations

import shlex
from collections import defaultdict

from tests.deploy.processes import DEPLOY

FOLDER = DEPLOY / "systemd"


def settings(name: str, *drop_ins: str) -> dict[tuple[str, str], list[str]]:
    """Section and key to the values given; an empty value takes back those before."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in (name, *drop_ins):
        section = ""
        for line in (FOLDER / file).read_text().splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif line and not line.startswith("#"):
                key, value = line.split("=", 1)
                found[section, key] = [*found[section, key], value] if value else []
    return found


def instance(name: str) -> dict[tuple[str, str], list[str]]:
    """The service of an instance with its drop-ins."""
    folder = f"bigembed@{name}.service.d"
    return settings("bigembed@.service", *sorted(f"{folder}/{path.name}" for path in (FOLDER / folder).glob("*")))


def command_line(name: str, **file: str) -> str:
    """What an instance starts where its files of variables say this: they win over Environment=, drop-ins or not."""
    found = instance(name)
    words = [word for value in found["Service", "Environment"] for word in shlex.split(value)]
    variables = {**dict(word.split("=", 1) for word in words), **file}
    [line] = found["Service", "ExecStart"]
    line = line.replace("%i", name)
    return " ".join(variables[word[1:]] if word.startswith("$") else word for word in line.split())
