"""A Dockerfile built and run without an engine: its steps in an overlay of this machine's root, then no longer root.

The base image is this machine with its Python; everything else is as in the file: the context that the client would
send, COPY, RUN, ENV, WORKDIR, USER and ENTRYPOINT of each stage. Needs root, overlayfs, unshare and setpriv.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile_parse import DockerfileParser

MOUNTED = """set -eu
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=/,upperdir={up},workdir={work} {root}
for place in dev proc sys; do mount --rbind /$place {root}/$place; done
"""


def instructions(file: Path) -> list[tuple[str, str]]:
    """Every instruction with its value, on one line, without comments."""
    with file.open("rb") as stream:
        found = DockerfileParser(fileobj=stream).structure
    return [(item["instruction"], item["value"]) for item in found if item["instruction"] != "COMMENT"]


def stages(file: Path) -> list[list[tuple[str, str]]]:
    """The instructions of each stage, FROM first; ARG before the first FROM is dropped."""
    out: list[list[tuple[str, str]]] = []
    for name, value in instructions(file):
        if name == "FROM":
            out.append([])
        if out:
            out[-1].append((name, value))
    return out


def assignments(value: str) -> dict[str, str]:
    """Names and values of ENV or ARG."""
    return dict(word.split("=", 1) for word in shlex.split(value))


def can_build() -> str | None:
    """Why nothing can be built here, or None."""
    absent = [name for name in ("unshare", "setpriv", "chroot", "mount") if shutil.which(name) is None]
    if absent:
        return f"needs {', '.join(absent)}"
    if os.geteuid() != 0:
        return "needs root"
    denied = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    return "needs a mount namespace of its own" if denied else None


@dataclass
class Stage:
    """A stage of an image under construction, and what is known of it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("up", "work", "root"):
            (self.folder / name).mkdir(parents=True)

    def inside(self, script: str, *, then: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script by root inside the stage; ``then`` is run before, outside, when everything is mounted."""
        places = {name: self.folder / name for name in ("up", "work", "root")}
        outer = MOUNTED.format(**places) + then.format(**places) + f'exec chroot {places["root"]} /bin/sh -ec "$1"\n'
        own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        return subprocess.run(
            ["unshare", "--mount", "/bin/sh", "-ec", outer, "sh", script],
            env={"PATH": path(), **own, **variables},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def expand(self, text: str) -> str:
        """The text with the stage's ARG and ENV in place of their names."""
        known = {"PATH": path(), **self.arguments, **self.environment}
        return re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], ""), text)

    def at(self, place: str) -> Path:
        """Where a path of the stage lies outside."""
        return self.folder / "up" / os.path.normpath(os.path.join(self.workdir, place)).lstrip("/")


def path() -> str:
    """Where commands are: the stand-in for the base image has this Python."""
    return f"{Path(sys.base_prefix) / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build(file: Path, context: Path, folder: Path) -> Stage:
    """The last stage of the image of a Dockerfile."""
    made: dict[str, Stage] = {}
    stage = None
    for number, steps in enumerate(stages(file)):
        words = steps[0][1].split()
        stage = made[words[2] if len(words) > 1 else str(number)] = Stage(folder / str(number))
        python_for_all(stage)
        for name, value in steps[1:]:
            step(stage, name, value, context, made)
    assert stage is not None
    return stage


def python_for_all(stage: Stage) -> None:
    """The base image's Python may be run by everybody; a home of root, where this one may lie, is not open to all."""
    for folder in Path(sys.base_prefix).parents:
        done = stage.inside(f"chmod a+x {shlex.quote(str(folder))}")
        assert done.returncode == 0, done.stderr


def step(stage: Stage, name: str, value: str, context: Path, made: Mapping[str, Stage]) -> None:
    """One instruction."""
    if name == "ARG":
        stage.arguments |= assignments(value)
    elif name == "ENV":
        stage.environment |= {key: stage.expand(text) for key, text in assignments(value).items()}
    elif name == "WORKDIR":
        stage.workdir = value
        stage.at(".").mkdir(parents=True, exist_ok=True)
    elif name == "USER":
        stage.user = value
    elif name == "ENTRYPOINT":
        stage.entrypoint = json.loads(value)
    elif name == "COPY":
        copy(stage, value.split(), context, made)
    elif name == "RUN":
        done = stage.inside(f"cd {stage.workdir}\n{value}", **stage.arguments, **stage.environment)
        assert done.returncode == 0, f"RUN {value}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def copy(stage: Stage, words: list[str], context: Path, made: Mapping[str, Stage]) -> None:
    """COPY: the content of folders, files into a folder or to a name."""
    root = context
    if words[0].startswith("--from="):
        root = made[words.pop(0).removeprefix("--from=")].folder / "up"
    *sources, target = words
    for source in sources:
        found = sorted(root.glob(source.lstrip("/")))
        assert found, f"COPY {source}: not in the context"
        for place in found:
            to = stage.at(target)
            if place.is_dir():
                shutil.copytree(place, to, symlinks=True, dirs_exist_ok=True)
                continue
            to = to / place.name if target.endswith("/") else to
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place, to)


def run(stage: Stage, words: Sequence[str], data: Path) -> subprocess.CompletedProcess[str]:
    """A command as an engine would run it: the image's user and ENV, no capabilities, only /tmp and /data writable."""
    uid, gid = stage.user.split(":")
    then = (
        "mount -t tmpfs -o mode=1777 tmpfs {root}/tmp\n"
        f"mount --bind {shlex.quote(str(data))} {{root}}/data\n"
        "mount -o remount,ro {root}\n"
    )
    variables = " ".join(shlex.quote(f"{name}={value}") for name, value in stage.environment.items())
    script = (
        f"cd {stage.workdir}; exec setpriv --reuid={uid} --regid={gid} --clear-groups --no-new-privs "
        f"--bounding-set=-all --inh-caps=-all env -i {variables} {shlex.join(words)}"
    )
    return stage.inside(script, then=then)
