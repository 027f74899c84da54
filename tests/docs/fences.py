"""The code blocks of a page, and how they are run: in order, in one folder, output compared where it is shown."""

from __future__ import annotations

import doctest
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^!(.*)$", re.MULTILINE)
CALL = r"__import__('subprocess').run(['bash', '-c', r'''\1'''], check=True)"
"""A line of a notebook that is for the shell, and the same in Python."""
OPTION = re.compile(r"^:(?P<name>[\w-]+): *(?P<value>.*)\n", re.MULTILINE)
SECONDS = 240
MARK = "----- end of the block, whole:"
INTERPRETER = f"""
import json, sys, traceback
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "<block>", "exec"), names)
        whole = True
    except Exception:
        whole = traceback.print_exc()
    print("{MARK}", bool(whole), flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A code block: its language, its text, the classes and the caption it was given, the line where it starts."""

    language: str
    text: str
    line: int
    classes: tuple[str, ...] = ()
    caption: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The exit status that is expected: of the class ``exits-3`` it is 3."""
        return next((int(name[6:]) for name in self.classes if name.startswith("exits-")), 0)

    @property
    def needs(self) -> list[str]:
        """The packages without which it is left out: of the class ``needs-umap`` umap."""
        return [name.removeprefix("needs-") for name in self.classes if name.startswith("needs-")]

    @property
    def absent(self) -> list[str]:
        """Those of them that are not here."""
        return [name for name in self.needs if find_spec(name) is None]

    @property
    def known(self) -> bool:
        """Whether it is known what becomes of it: run, written to a file, compared, or left out."""
        seen = bool(self.caption or {"not-run", "output"} & {*self.classes})
        return seen or self.language in ("sh", "python", "toml")


def blocks(page: Path) -> Iterator[Block]:
    """Every code block of a page, in order; other directives are left out."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        info, body = found["info"].strip(), found["body"]
        cell = info == "{code-cell}"
        directive = re.fullmatch(r"\{code-(?:block|cell)\} *(\w*)", info)
        if info.startswith("{") and not directive:
            continue
        options = {}
        while directive and (option := OPTION.match(body)):
            options[option["name"]] = option["value"].strip()
            body = body[option.end() :]
        line = text.count("\n", 0, found.start()) + 1
        classes = tuple(options.get("class", "").split())
        language = "python" if cell else directive[1] if directive else info
        body = SHELL.sub(CALL, body) if cell else body
        yield Block(language, body.lstrip("\n"), line, classes, options.get("caption", ""), options)


class Folder:
    """A folder in which the blocks of a page are run: files are written, commands see ``bigembed`` and ``python``."""

    def __init__(self, root: Path, tools: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        tools.mkdir(parents=True, exist_ok=True)
        for name, command in {"bigembed": "-m bigembed.cli", "python": "", "dask": "-m dask"}.items():
            script = tools / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore {command} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        package = Path(__file__).resolve().parents[2]
        root.mkdir(exist_ok=True)
        (root / "workflows").symlink_to(package / "workflows")
        self.environment = os.environ | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(package),
            "COLUMNS": "160",
            "MPLBACKEND": "agg",
            **(environment or {}),
        }
        self.printed = ""
        self.python: subprocess.Popen[str] | None = None

    def do(self, block: Block) -> None:
        """Write the file, run the commands, or compare what was printed last."""
        assert block.known, f"line {block.line}: a block of {block.language!r} that is neither run nor output"
        if "not-run" in block.classes or block.absent:
            return
        if block.caption:
            path = self.root / block.caption
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif "output" in block.classes:
            self.compare(block)
        elif block.language == "sh":
            self.printed = self.run(["bash", "-euo", "pipefail", "-c", block.text], block)
        elif block.language == "python":
            self.printed = self.run_python(block)

    def run(self, command: list[str], block: Block) -> str:
        """What the command prints; its exit status must be the expected one."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == block.status, (
            f"line {block.line}: exit status {done.returncode}\n{block.text}\n{said}"
        )
        return said.replace(f"{self.root}/", "")

    def run_python(self, block: Block) -> str:
        """What the block prints, in the interpreter of the page: names of earlier blocks are known."""
        if self.python is None:
            self.python = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", INTERPRETER], cwd=self.root, env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        assert self.python.stdin is not None
        assert self.python.stdout is not None
        self.python.stdin.write(json.dumps(block.text) + "\n")
        self.python.stdin.flush()
        said = []
        for line in self.python.stdout:
            if line.startswith(MARK):
                break
            said.append(line)
        printed = "".join(said).replace(f"{self.root}/", "")
        assert line == f"{MARK} True\n", f"line {block.line}:\n{block.text}\n{printed}"
        return printed

    def close(self) -> None:
        """End the interpreter, and the processes that a page has started and left a PID file of."""
        for file in self.root.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGTERM)
        if self.python is not None:
            self.python.communicate()

    def compare(self, block: Block) -> None:
        """``...`` stands for any text."""
        shown, printed = (
            "".join(line.rstrip() + "\n" for line in text.splitlines()) for text in (block.text, self.printed)
        )
        same = doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)
        assert same, f"line {block.line}: the page shows\n{block.text}\nbut the command printed\n{self.printed}"
