"""Processes that a test starts as the files under deploy/ start them, and stops again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def command(name: str) -> str:
    """A console script of this environment; the test is skipped where it is not installed."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} is not installed: pip install -e '.[test]'")
    return str(path)


def environment(**more: str) -> dict[str, str]:
    """Of a process that imports this working tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1", **more}


@contextmanager
def started(
    words: Sequence[object], folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs in ``folder`` and is killed at the end; what it says goes to a file there."""
    words = [str(word) for word in words]
    with (folder / f"{Path(words[0]).name}-{time.monotonic_ns()}.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=environment(**(variables or {})), stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(true: Callable[[], bool], what: str, folder: Path, seconds: float = 200) -> None:
    """Wait for something that processes in ``folder`` do; fail with what they said."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} after {seconds} s: " + "".join(log.read_text() for log in folder.glob("*.log")))
        time.sleep(0.1)


def listening(port: int) -> bool:
    """Whether somebody listens on a port of this host."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def run(words: Sequence[object], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process from its start to its end."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
