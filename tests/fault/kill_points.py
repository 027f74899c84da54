"""Kills a command before each of its steps on the file system, in turn: every file that is opened to be written, every
folder made, every rename, link and removal.

``python -m tests.fault.kill_points FOLDER [COMMAND|all] [EVERY]`` runs the command to its end for reference, and then,
for every step (or each EVERY-th), from the same state: runs it, kills it before that step, looks at what a reader sees,
runs it again, and compares what is there with the reference. Prints how many steps there were and what readers saw.
Each run is a fork of this process, which loads everything and touches nothing.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anndata  # noqa: F401
import dask.array
import dask.threaded  # noqa: F401
import distributed  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import pyarrow.parquet  # noqa: F401
import scipy.linalg
import scipy.sparse.csgraph
import scipy.sparse.linalg  # noqa: F401
import threadpoolctl  # noqa: F401
import zarr.codecs  # noqa: F401

import bigembed.jobs.watching.console
import bigembed.maps.linear.pca  # noqa: F401
from bigembed.errors import ExistingOutputError
from tests.fault.commands import ABSENT, COMMANDS, Command, Seen, names

STEPS = ("replace", "rename", "link", "unlink", "rmdir", "mkdir")


def forked(work: Callable[[], object], result: Path | None = None) -> int:
    """Do it in a process of its own; its exit status, negative for a signal. What it returns is left at ``result``."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = work()
            if result is not None:
                result.write_bytes(pickle.dumps(found))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(number: int, work: Callable[[], object]) -> Callable[[], object]:
    """The same, killed before its step of this number."""

    def run() -> None:
        before_step(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        work()

    return run


def before_step(number: int, act: Callable[[], object], for_good: bool = False) -> Callable[[], None]:
    """Do something before the step of this number of this process, or from it on; undone by what is returned."""
    left = [number]
    kept = [(os, name, getattr(os, name)) for name in STEPS]
    kept += [(module, "open", io.open) for module in (io, builtins)]

    def counted(function: Callable[..., object], writes: Callable[..., bool]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            if writes(*arguments, **named):
                left[0] -= 1
                if left[0] == -1 or (for_good and left[0] < 0):
                    act()
            return function(*arguments, **named)

        return step

    for module, name, function in kept:
        setattr(module, name, counted(function, _to_write if name == "open" else lambda *_, **__: True))

    def undo() -> None:
        for module, name, function in kept:
            setattr(module, name, function)

    return undo


def _to_write(file: object, mode: str = "r", *_: object, **__: object) -> bool:
    return bool(set(mode) & set("wxa+"))


class Kills:
    """The kills of one command."""

    def __init__(self, folder: Path, command: Command) -> None:
        self.work, self.base, self.result = folder / "work", folder / "base", folder / "result"
        self.temporary = folder / "temporary"
        self.command = command
        for place in (self.work, self.base, self.temporary):
            shutil.rmtree(place, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.temporary.mkdir()
        tempfile.tempdir = str(self.temporary)
        os.environ |= {"TMPDIR": str(self.temporary), "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self) -> object:
        """The command."""
        return self.command.run(self.work)

    def again(self) -> None:
        """The command where its outputs are there."""
        with suppress(ExistingOutputError):
            self.run()

    def see(self) -> tuple[Seen, set[str]]:
        """What is there, looked at in a process of its own."""
        assert forked(lambda: (self.command.look(self.work), names(self.work)), self.result) == 0
        return pickle.loads(self.result.read_bytes())

    def all(self, every: int) -> dict[str, int]:
        """Every step in turn."""
        assert forked(lambda: self.command.prepare(self.work)) == 0
        shutil.copytree(self.work, self.base)
        before, _ = self.see()
        assert forked(self.run) == 0
        after, files = self.see()
        saw = {"before": 0, "between": 0, "after": 0}
        number, ended = 0, False
        while not ended:
            shutil.rmtree(self.work)
            shutil.copytree(self.base, self.work)
            status = forked(killed_at(number, self.run))
            ended = status == 0
            assert status in (0, -signal.SIGKILL), status
            now, _ = self.see()
            allowed = all(value in (before[name], after[name], ABSENT) for name, value in now.items())
            assert allowed, (number, now, before, after)
            saw["after" if now == after else "before" if now == before else "between"] += 1
            assert forked(self.again if self.command.once and now == after else self.run) == 0, number
            again, left = self.see()
            assert again == after, (number, again, after)
            assert left == files, (number, sorted(left - files), sorted(files - left))
            number += every
        assert forked(_swept) == 0
        assert not list(self.temporary.iterdir()), list(self.temporary.iterdir())
        return {"kills": sum(saw.values()) - 1, "steps": number - every, **saw}


def _swept() -> None:
    from bigembed.store.files import new_folder

    new_folder("last").rmdir()


def main(folder: Path, which: str = "all", every: int = 1) -> None:
    """All of it."""
    total = 0
    for name in COMMANDS if which == "all" else [which]:
        found = Kills(folder, COMMANDS[name]).all(every)
        total += found["kills"]
        print(json.dumps({"command": name, **found}), flush=True)
    print(json.dumps({"kills": total}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:4]))
