"""Hosts on one machine, that share nothing but packages: namespaces, each with a cable to a switch in this process.

A host has processes, a loopback, an address, a name, shared memory and one folder of its own. All else of the machine
is read-only there, so that no host writes what another could read. It needs root and Debian's ``iproute2`` and
``util-linux``; nothing is left when this process ends, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.fault.switch import TUN, Port, Switch

ROOT = Path(__file__).parents[2]
NET = "10.77.0"
PROGRAMS = ("ip", "mount", "nsenter", "unshare")
TEMPORARY = ("/tmp", "/dev/shm")
"""Folders of which each host has one of its own."""
READY = "a host stands"
PATIENCE = 120.0
"""Seconds within which what must come has to come."""
SETUP = f"""
set -eu
mount --make-rprivate /
while read -r _ _ _ _ where _; do
    case "$where" in
        /proc | /proc/* | /sys | /sys/* | /dev/pts) ;;
        *) mount -o remount,bind,ro "$(printf %b "$where")" 2>/dev/null || [ "$where" != / ] ;;
    esac
done </proc/self/mountinfo
hostname "$1"
own=$2
folder=$3
shift 3
mount --rbind / /mnt
mount -t tmpfs -o size=1g tmpfs /tmp
mount -t tmpfs -o size=1g tmpfs /dev/shm
for path in "$@"; do
    mkdir -p "$path"
    mount --bind "/mnt$path" "$path"
done
mkdir -p "$folder"
mount --bind "/mnt$own" "$folder"
mount -o remount,bind,rw "$folder"
umount -R -l /mnt
mkdir -p "$folder/tmp" "$folder/home"
echo "{READY}"
exec sleep infinity
"""
"""What makes a host of new namespaces: its name, its folder, where that lies there, and packages to be shown."""


def lacking() -> str | None:
    """Say why there can be no hosts on this machine; None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "hosts on one machine need root on Linux (network and mount namespaces)"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"hosts on one machine need {', '.join(missing)}: apt-get install iproute2 util-linux"
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        return f"hosts on one machine need {TUN}: {error.strerror}"
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"hosts on one machine need namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Program:
    """A process on a host; ``pid`` is its number on this machine."""

    def __init__(self, host: Host, words: tuple[str, ...], environment: Mapping[str, str], log: Path) -> None:
        self.log, known = log, {**host.environment, **environment}
        command = ["nsenter", f"--target={host.pid}", "--mount", "--net", "--uts", "--ipc", "--pid"]
        command += ["sh", "-c", 'cd "$0" && exec "$@"', str(host.folder)]  # (nsenter would enter that of this machine)
        with log.open("ab") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            self.outer = subprocess.Popen([*command, *words], env=known, **streams)

    @property
    def pid(self) -> int:
        """The process itself: ``nsenter`` only waits for it."""
        children = psutil.Process(self.outer.pid).children()
        if not children:
            raise RuntimeError(f"{self.log.name}: {self.said()}")
        return children[0].pid

    def said(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.outer.poll() is None

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        with suppress(psutil.Error, RuntimeError, ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.outer.wait()

    def end(self, seconds: float) -> int:
        """Its exit status."""
        return self.outer.wait(timeout=seconds)


class Host:
    """One of the hosts."""

    def __init__(self, network: Network, name: str) -> None:
        self.name, self.network, self.programs = name, network, list[Program]()
        self.own = network.folder / "hosts" / name
        self.folder = network.folder / "hosts"
        """Where its own folder lies, on the host: over those of all."""
        self.own.mkdir(parents=True)
        device = f"be{os.getpid()}h{len(network.hosts)}"[-15:]
        self.port: Port = network.switch.plug_in(name, device)
        self.address = f"{NET}.{self.port.number}"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "DASK_", "PYTEST_"))},
            **{"HOME": f"{self.folder}/home", "TMPDIR": f"{self.folder}/tmp", "PYTHONPATH": str(ROOT)},
            **{"PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": f"{self.folder}/numba"},
        }
        words = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen(
            [*words, "sh", "-c", SETUP, "host", name, str(self.own), str(self.folder), *hidden_packages()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_die_with_parent,
        )  # fmt: skip
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != READY:
            _, problems = self.process.communicate()
            raise RuntimeError(f"the host {name} does not stand: {problems}")
        (self.pid,) = [child.pid for child in psutil.Process(self.process.pid).children()]
        _ip("link", "set", device, "netns", str(self.pid))
        self._inside("ip", "link", "set", "lo", "up")
        self._inside("ip", "link", "set", device, "address", self.port.mac, "name", "eth0", "up")
        self._inside("ip", "address", "add", f"{self.address}/24", "dev", "eth0")

    def _inside(self, *words: str) -> None:
        _run("nsenter", f"--target={self.pid}", "--net", *words)

    def start(self, name: str, *words: str, **environment: str) -> Program:
        """Start a program; what it prints goes to a file of its name in the folder of the host."""
        program = Program(self, words, environment, self.own / f"{name}.log")
        self.programs.append(program)
        return program

    def python(self, name: str, *words: str, **environment: str) -> Program:
        """Start this interpreter."""
        return self.start(name, sys.executable, *words, **environment)

    def does(self, *words: str, **environment: str) -> str:
        """What a program of this interpreter prints, which has to end with 0."""
        name = f"done-{len(self.programs)}"
        program = self.python(name, *words, **environment)
        status = program.end(10 * PATIENCE)
        if status:
            raise RuntimeError(f"{words} on {self.name} ended with {status}: {program.said()}")
        return program.said()

    def cut(self) -> None:
        """Pull out its cable."""
        self.network.switch.cable(self.name, plugged=False)

    def mend(self) -> None:
        """Put the cable back."""
        self.network.switch.cable(self.name, plugged=True)

    @contextmanager
    def away(self, seconds: float) -> Iterator[None]:
        """Nobody reaches it for so long, which the block waits for."""
        self.cut()
        try:
            yield
            time.sleep(seconds)
        finally:
            self.mend()

    def close(self) -> None:
        """Take it away, with all that runs there."""
        self.process.kill()
        self.process.wait()
        for program in self.programs:
            program.outer.wait()


class Network:
    """Hosts by their names, each with a cable of this rate (bits a second), so many seconds from each other."""

    def __init__(self, folder: Path, rate: float, latency: float) -> None:
        self.folder, self.switch = folder, Switch(rate, latency)
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Network:
        self.switch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.close()
        self.switch.__exit__()

    def host(self, name: str) -> Host:
        """Make a host."""
        self.hosts[name] = host = Host(self, name)
        return host

    def moved(self) -> int:
        """Bytes on all cables so far."""
        return sum(self.switch.bytes.values())


def wait_until(true: Callable[[], bool], what: str, seconds: float = PATIENCE, *programs: Program) -> None:
    """Wait for something; say what was waited for, and what these programs printed, where it does not come."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end or not all(program.runs() for program in programs):
            said = "".join(f"\n{program.log.name}: {program.said()[-3_000:]}" for program in programs)
            raise RuntimeError(f"{what}: not within {seconds:g} s{said}")
        time.sleep(0.05)


def hidden_packages() -> list[str]:
    """Folders of packages, and of links to the interpreter, that a host would not see any more, with temporary folders
    of its own."""
    found = {Path(path).resolve() for path in (ROOT, sys.prefix, sys.base_prefix, *sys.path) if path}
    link = Path(sys.executable)
    while link.is_symlink():
        link = link.parent / link.readlink()
        found.add(link.parent.resolve())
    return sorted(str(path) for path in found if path.is_dir() and any(map(path.is_relative_to, TEMPORARY)))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # (PR_SET_PDEATHSIG)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
