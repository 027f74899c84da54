"""A folder held by one process at a time: a run on any file system, and an output that is not a run."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bigembed.errors import BigembedError, InputError, LockedError
from bigembed.runtime import Event, moment, runtime_now, using
from bigembed.store import CLOSED, AnyPath, PathLike, at, create, remove, remove_file, retire, rewrite, touch
from bigembed.store.objects import ObjectPath

# ------------------------------------------------------------------------------------------------------------ lock
# A folder held by one process at a time, on any file system that its starters share.
#
# No lock of the file system is asked: they are missing or local on some network mounts. A hold is a file with a
# number, ``hold/0000007.json``, that says who holds the folder; the highest number counts. Whoever wants the folder
# makes the next number, whole and with its content, by one hard link (or, without links, by an exclusive open), which
# exactly one process can do; and only if the highest is released, or its owner is dead. A number is never used again
# while a later one is there, so one who was slow to judge an owner dead cannot take the folder from the next one.
#
# An owner is dead when its process is gone (same machine), or when its file was not touched for :data:`PATIENCE`
# heartbeats (another machine, or a file that is broken; both times are the file server's). A sign of life that lies
# more than :data:`SKEW` seconds in the future is not believed: it is set to the present, so that it counts from then
# on. An owner that was only asleep finds a higher number when it wakes, and publishes nothing more.

HEARTBEAT = 15.0
"""Seconds between two signs of life."""
PATIENCE = 12
"""Heartbeats of silence after which an owner on another machine is dead. Attributes of files are cached for up to a
minute on some network mounts, and a busy interpreter may be late."""
SKEW = 60.0
"""Seconds that a sign of life may lie in the future."""
SLOWEST = 600.0
"""Longest heartbeat, in seconds, that is believed of a file."""
FOLDER = "hold"
TRIES = 8
"""Times that the folder is made anew, while others remove it or have a broken file there."""
_NAME = re.compile(r"([0-9]{7,18})\.json")


@dataclass(frozen=True)
class Owner:
    """Who holds a folder, since when."""

    user: str
    pid: int
    host: str
    since: float
    """Seconds since 1970."""
    heartbeat: float = HEARTBEAT
    machine: str = ""
    """What distinguishes two machines, or containers, of one name."""
    born: str = ""
    """When the process started, so that another one of the same number is not taken for it."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    released: bool = False
    broken: str = ""
    """Why the file that names it cannot be read; then nobody knows who it is."""

    def __str__(self) -> str:
        if self.broken:
            return f"somebody since {moment(self.since)}, whose name cannot be read ({self.broken})"
        return f"{self.user} (process {self.pid} on {self.host}) since {moment(self.since)}"

    def about(self) -> dict[str, Any]:
        """What a status says of it."""
        return {"user": self.user, "pid": self.pid, "host": self.host, "since": moment(self.since)}


class Lock:
    """A hold of a folder. :func:`hold` makes it."""

    def __init__(self, folder: AnyPath, number: int, owner: Owner) -> None:
        self.folder, self.number, self.owner = folder, number, owner
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def path(self) -> AnyPath:
        """The file that stands for the hold."""
        return _file(self.folder, self.number)

    def check(self) -> None:
        """:class:`LockedError` if somebody took this process for dead and took over, or removed the hold."""
        highest = _highest(self.folder)
        if highest <= self.number and not _is_of(_read(self.folder, self.number), self.owner):
            raise LockedError(f"{self.path}: was removed while this process held it. Nothing more is published here")
        if highest > self.number:
            raise LockedError(
                f"{self.folder.parent}: this process gave no sign of life for long, and {_read(self.folder, highest)} "
                "took over. Nothing more is published here"
            )

    def release(self) -> None:
        """Let the next one in."""
        self._stop.set()
        self._thread.join()
        # The number stays, marked: were it free again, a slow one could think that it comes next. What another one
        # holds there, since this folder was moved away, is not touched.
        with suppress(OSError):
            if _is_of(_read(self.folder, self.number), self.owner):
                rewrite(self.path, _text({**asdict(self.owner), "released": True}))

    def _beat(self) -> None:
        while not self._stop.wait(self.owner.heartbeat):
            with suppress(OSError):  # (gone: somebody took over, which is noticed before anything is published)
                touch(self.path)


@contextmanager
def hold(root: AnyPath) -> Iterator[Lock]:
    """Hold the folder ``root``; :class:`LockedError` says who does."""
    lock = take(root)
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def hold_after_others(root: AnyPath) -> Iterator[Lock]:
    """Hold the folder ``root`` once nobody else does; whom one waits for is said to who watches."""
    lock = _waited(root)
    try:
        yield lock
    finally:
        lock.release()


def take(root: AnyPath) -> Lock:
    """Take the lock of the folder ``root`` and keep it until it is released; :class:`LockedError` says who holds it,
    :class:`InputError` whose it is where this user may not write there."""
    try:
        return _taken(root)
    except OSError as error:
        if error.errno not in CLOSED or isinstance(error, BigembedError):
            raise
        raise InputError(why_closed(root)) from error


def why_closed(folder: AnyPath) -> str:
    """Return whose a folder is in which this user may not write, and what to do."""
    try:
        owner = folder.owner() if isinstance(folder, Path) else "another user"
    except (KeyError, OSError):  # (a user without a name)
        owner = "another user"
    return (
        f"{folder}: this user may write nothing there: it is {_user()}, and the folder belongs to {owner}. Start as "
        f"{owner}, let both write (chmod -R g+w, with a group of both), or choose another path"
    )


def _taken(root: AnyPath) -> Lock:
    folder = _folder(root)
    while True:
        owner = _myself()
        highest = _highest(folder)
        if highest:
            _refuse_living(root, folder, highest)
        mine = _file(folder, highest + 1)
        try:
            create(mine, _text(asdict(owner)))
        except FileExistsError:
            continue  # somebody was quicker: who?
        except FileNotFoundError as error:
            raise _gone(root) from error
        if _highest(folder) > highest + 1:  # the list of names that was read first was an old one
            _withdraw(folder, highest + 1, owner)
            continue
        try:  # (the folder may have been moved away meanwhile, and be another one, where others have the number before)
            if highest:
                _refuse_living(root, folder, highest)
            if not _is_of(_read(folder, highest + 1), owner):
                raise _gone(root)
        except LockedError:
            _withdraw(folder, highest + 1, owner)
            raise
        for number in _numbers(folder):
            if number < highest:  # the one before stays, for those who look at it now
                remove(_file(folder, number))
        return Lock(folder, highest + 1, owner)


def _withdraw(folder: AnyPath, number: int, owner: Owner) -> None:
    if _is_of(_read(folder, number), owner):
        _file(folder, number).unlink(missing_ok=True)


def _folder(root: AnyPath) -> AnyPath:
    """Where the numbers lie, made if need be."""
    folder = root / FOLDER
    for _ in range(TRIES):
        try:
            folder.mkdir(exist_ok=True)
            return folder
        except FileNotFoundError as error:
            raise _gone(root) from error
        except FileExistsError:  # a file of this name: broken, and nobody can hold by it; or a folder until just now
            if folder.is_file():
                remove_file(folder)
    raise _gone(root)


def holder(root: AnyPath) -> Owner | None:
    """Who holds the folder now, or None. A look: it takes nothing and writes nothing."""
    folder = root / FOLDER
    highest = _highest(folder)
    owner = _read(folder, highest) if highest else None
    if owner is None or owner.released:
        return None
    try:
        age = time.time() - _file(folder, highest).stat().st_mtime
    except OSError:
        return None
    return owner if age >= -SKEW and _lives(owner, age) else None


def _gone(root: AnyPath) -> LockedError:
    return LockedError(f"{root}: was removed just now by the process that held it. Run again")


def _refuse_living(root: AnyPath, folder: AnyPath, number: int) -> None:
    owner = _read(folder, number)
    if owner is None or owner.released:
        return
    try:
        age = _clock(folder) - _file(folder, number).stat().st_mtime
    except FileNotFoundError:
        return  # released and cleared meanwhile: the link decides
    if age < -SKEW and not _here(owner):
        with suppress(OSError):
            touch(_file(folder, number))
        raise LockedError(
            f"{root}: held by {owner}, whose last sign of life lies {-age:.0f} s in the future. It is not believed: "
            f"without another one the folder is free in {PATIENCE * owner.heartbeat:.0f} s. Run again then"
        )
    if not _lives(owner, age):
        return
    silent = f" (no sign of life for {age:.0f} s)" if age > 2 * owner.heartbeat else ""
    raise LockedError(f"{root}: held by {owner}{silent}. Wait for it, or stop it; the run can then be resumed")


def _lives(owner: Owner, age: float) -> bool:
    """Whether an owner that touched its file ``age`` seconds ago is alive."""
    if _here(owner):
        return process_start(owner.pid) == owner.born
    return age <= PATIENCE * owner.heartbeat


def _here(owner: Owner) -> bool:
    """Whether it is a process of this machine, so that one can look."""
    return owner.host == os.uname().nodename and bool(owner.machine) and owner.machine == machine()


def _myself() -> Owner:
    pid = os.getpid()
    return Owner(_user(), pid, os.uname().nodename, time.time(), HEARTBEAT, machine(), process_start(pid))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"


def machine() -> str:
    """This boot of this machine, and the name space of its process numbers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def process_start(pid: int) -> str:
    """When a process started, in the clock of its machine; empty if it does not exist, or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    rest = text.rpartition(")")[2].split()  # (the name before may hold spaces)
    return "" if rest[0] in "ZX" else rest[19]


def _file(folder: AnyPath, number: int) -> AnyPath:
    return folder / f"{number:07d}.json"


def _numbers(folder: AnyPath) -> list[int]:
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(found[1]) for found in map(_NAME.fullmatch, names) if found]


def _highest(folder: AnyPath) -> int:
    return max(_numbers(folder), default=0)


def _read(folder: AnyPath, number: int) -> Owner | None:
    """The owner that a file names; None if it is gone. A broken file is somebody's, who is judged by its age alone."""
    path, touched = _file(folder, number), 0.0
    try:
        touched = path.stat().st_mtime
        return _parsed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None  # cleared meanwhile
    except BigembedError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, OSError) as error:
        why = f"{path} is broken: {type(error).__name__}"
        return Owner("somebody", 0, "an unknown host", touched, broken=why)


def _is_of(found: Owner | None, owner: Owner) -> bool:
    """Whether a file is the owner's; one that is broken can be nobody else's."""
    return found is not None and (bool(found.broken) or found.token == owner.token)


def _parsed(text: bytes) -> Owner:
    """What a file says; an exception where it cannot be so."""
    value = json.loads(text.decode())
    kinds = {"user": str, "pid": int, "host": str, "machine": str, "born": str, "token": str, "released": bool}
    for name, kind in kinds.items():
        if not isinstance(value[name], kind):
            raise TypeError(name)
    since, heartbeat = float(value["since"]), float(value["heartbeat"])
    moment(since)
    if not 0 < heartbeat <= SLOWEST:
        raise ValueError("heartbeat")
    return Owner(since=since, heartbeat=heartbeat, **{name: value[name] for name in kinds})


def _clock(folder: AnyPath) -> float:
    """The time of whoever keeps the files, which need not be that of this machine."""
    probe = folder / f".{os.getpid()}-{uuid.uuid4().hex}.partial"
    try:
        probe.write_bytes(b"")
    except FileNotFoundError as error:
        raise _gone(folder.parent) from error
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode()


# ----------------------------------------------------------------------------------------------------- output lock
# One process at a time writes an output that is not a run: a model, a table, an array.

AGAIN = 2.0
"""Seconds between two looks whether another process is done with a folder, or an object."""


@contextmanager
def output_lock(*outputs: PathLike) -> Iterator[None]:
    """Hold these paths, or raise :class:`LockedError` where another process holds one. A caller may hold them already.

    The lock is ``.NAME.making`` beside each output, and is removed at the end; in an object store a small mark stays.
    """
    marks = {str(mark): mark for mark in map(_mark, outputs)}
    with ExitStack() as stack:
        for name in sorted(marks.keys() - runtime_now().locks.keys()):
            stack.enter_context(_made(marks[name]))
        yield


def _mark(output: PathLike) -> AnyPath:
    place = at(output).absolute()
    return place.with_name(f".{place.name}.making")


@contextmanager
def _made(mark: AnyPath) -> Iterator[None]:
    lock = _begun(mark)
    try:
        with using(locks={**runtime_now().locks, str(mark): lock}):
            yield
    finally:
        _ended(mark, lock)


def _begun(mark: AnyPath) -> Lock:
    """Hold the mark of an output; in turn with others, since they may remove the folder that the hold lies in."""
    mark.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(mark, ObjectPath):
        return take(mark)
    with in_turn(mark):
        mark.mkdir(exist_ok=True)
        return take(mark)


def _ended(mark: AnyPath, lock: Lock) -> None:
    """Remove what was held, in one step for others; an object store has no such step, so the mark stays there."""
    if isinstance(mark, ObjectPath):
        return lock.release()
    with in_turn(mark):
        retire(mark)
        lock.release()


@contextmanager
def in_turn(path: AnyPath) -> Iterator[None]:
    """Wait until no other process holds the turn of this path; on a file system, of any path in its folder."""
    if isinstance(path, ObjectPath):
        held = _waited(path.with_name(f"{path.name}.making"))
        try:
            yield
        finally:
            held.release()
        return
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot lock a folder; then the rename decides
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _waited(place: AnyPath) -> Lock:
    """A folder, or a place of an object store, held once nobody else does."""
    while True:
        try:
            return take(place)
        except LockedError as error:
            runtime_now().observer(Event("note", "waiting", message=str(error)))
            time.sleep(AGAIN)
