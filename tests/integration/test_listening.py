"""What the processes of a job listen on, as the kernel tells: this host only, at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import psutil
import pytest

ROOT = Path(__file__).parents[2]
LISTEN = "0A"
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")]


class Ears:
    """Looks at every listening socket of a process and of those it started, a hundred times a second."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.found, self.known = process, set(), set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Ears:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(0.01):
            new = {inode: address for inode, address in listening().items() if inode not in self.known}
            mine = owned(self.process.pid) if new else set()
            self.known |= mine & set(new)
            self.found |= {new[inode] for inode in mine & set(new)}


def listening() -> dict[str, str]:
    """The address that each listening socket of this machine is bound to, by inode."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            lines = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            found |= {line[9]: address(line[1].split(":")[0]) for line in lines if line[3] == LISTEN}
    return found


def address(word: str) -> str:
    """As the kernel writes it: words of four bytes, each in the order of the machine."""
    data = bytes.fromhex(word)
    return str(
        ip_address(b"".join(data[i : i + 4][:: -1 if sys.byteorder == "little" else 1] for i in range(0, len(data), 4)))
    )


def owned(pid: int) -> set[str]:
    """Inodes of the sockets of a process and of all that it started."""
    found = set()
    with suppress(psutil.Error, OSError):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(OSError):
                for entry in os.scandir(f"/proc/{process.pid}/fd"):
                    with suppress(OSError):
                        name = os.readlink(entry.path)
                        found |= {name[8:-1]} if name.startswith("socket:[") else set()
    return found


def test_the_kernel_writes_addresses_so():
    assert address("0100007F") == "127.0.0.1"
    assert address("00000000000000000000000001000000") == "::1"


@pytest.mark.slow
def test_nothing_listens_beyond_this_host(tmp_path):
    """A run for which nothing is known: it measures the machine, plans, starts workers, works and reports."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(25_000, 8)).astype("f4"))
    (tmp_path / "job.toml").write_text(
        '[input]\npath = "rows.npy"\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "run.zarr"\n'
        'report = "report.html"\n[cluster]\nworkers = 2\nmemory = "1 GiB"\n'
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    called = [sys.executable, "-m", "bigembed.cli", "run", "job.toml"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(called, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment)
    with Ears(process) as ears:
        said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    assert ears.found, "a scheduler listens somewhere"
    assert {found for found in ears.found if not ip_address(found).is_loopback} == set()
