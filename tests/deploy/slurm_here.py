"""A Slurm on loopback from the system's own packages: munge, a controller and two nodes, stopped at the end."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.deploy.processes import ROOT, free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
HOW = "as root: apt-get install -y slurmctld slurmd slurm-client munge"
START = 20.0
CONF = """\
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
ReturnToService=2
KillWait=5
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=4 RealMemory=8000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port2} CPUs=4 RealMemory=8000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
"""A requeued job waits for cred_expire seconds, at least 5."""


@dataclass
class Slurm:
    """What a test asks of it."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of who uses it: nothing of a Dask or a Slurm around the tests."""
        mine = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "SLURM_", "SBATCH_", "BIGEMBED_"))}
        return mine | {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "PYTHONPATH": str(ROOT),
            "BIGEMBED_PYTHON": sys.executable,
            "BIGEMBED_INTERFACE": "lo",
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }

    def ask(self, *words: object, **variables: str) -> str:
        """What a command of Slurm says."""
        command = [str(word) for word in words]
        done = subprocess.run(command, capture_output=True, text=True, env=self.variables | variables, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, *words: object, **variables: str) -> str:
        """The number of a submitted job."""
        return self.ask("sbatch", "--parsable", *words, **variables)

    def about(self, job: str) -> dict[str, str]:
        """What Slurm knows of a job."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.ask("scontrol", "show", "job", "-o", job)))

    def listed(self) -> str:
        """The jobs that wait or run."""
        return self.ask("squeue", "-h", "-o", "%i %T %r")

    def end_of(self, job: str, output: Path, seconds: float) -> dict[str, str]:
        """Wait until a job is over."""
        self.until(lambda: job not in self.listed().split(), f"job {job} is not over", output, seconds)
        return self.about(job)

    def until(self, true: Callable[[], bool], what: str, output: Path, seconds: float) -> None:
        """Wait for something; fail with what a job said."""
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                said = output.read_text() if output.exists() else "nothing"
                pytest.fail(f"{what} after {seconds} s; squeue: {self.listed()}; it said: {said}")
            time.sleep(0.2)


@contextmanager
def slurm() -> Iterator[Slurm]:
    """A running one; the test is skipped where it is not installed or does not start."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} ({HOW})")
    with ExitStack() as stack:
        # (munged wants a socket that everybody can reach, and the folder of the tests is ours alone)
        made = TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        there = Slurm(folder)
        _configure(folder)
        daemons = [
            ["munged", "--foreground", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
            + [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")],
            ["slurmctld", "-D", "-i"],
            *(["slurmd", "-D", "-N", node] for node in ("n1", "n2")),
        ]
        for words in daemons:
            stack.enter_context(_daemon(words, folder, there.variables))
        _await(there)
        yield there
        subprocess.run(["scancel", "-u", getpass.getuser()], env=there.variables, check=False, timeout=30)
        time.sleep(1)


def _configure(folder: Path) -> None:
    folder.chmod(0o755)  # munge wants its socket to be reachable
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    host, user = socket.gethostname().split(".")[0], getpass.getuser()
    ports = {name: free_port() for name in ("port", "port1", "port2")}
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=host, user=user, **ports))


@contextmanager
def _daemon(words: list[str], folder: Path, variables: dict[str, str]) -> Iterator[None]:
    with (folder / f"{words[0]}-{words[-1].strip('/').split('/')[-1]}.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        if words[0] == "munged":
            until = time.monotonic() + START
            while not (folder / "munge.socket").exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(there: Slurm) -> None:
    """Both nodes are idle; or the test is skipped, with what the daemons say."""
    until, said = time.monotonic() + START, ""
    while time.monotonic() < until:
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, env=there.variables, check=False
        )
        if done.stdout.split() == ["idle", "idle"]:
            return
        said = done.stdout + done.stderr
        time.sleep(0.1)
    logs = {log.name: log.read_text(errors="replace").splitlines()[-3:] for log in there.folder.glob("*.log")}
    pytest.skip(f"Slurm is installed and does not start here: {said.strip()}; {logs}")
