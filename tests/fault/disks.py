"""Disks that take no more: a small file system of its own, where this user may mount one, or a limit of a process."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """A file system of this size at a folder; whether it is one (it takes a user who may mount)."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk of a folder by one file."""
    path = folder / "filler"
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        for part in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(part)):
                    continue
    return path


def limit_files(pid: int) -> None:
    """Let a process and those it started write no byte to any file from now on."""
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.Error, OSError):
            hard = process.rlimit(resource.RLIMIT_FSIZE)[1]
            process.rlimit(resource.RLIMIT_FSIZE, (0, hard))
