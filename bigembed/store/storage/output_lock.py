"""One process at a time writes an output that is not a run: a model, a table, an array."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar

from bigembed.errors import LockedError
from bigembed.store.storage.lock import Lock, take
from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.paths import AnyPath, PathLike, at, retire

AGAIN = 2.0
"""Seconds between two looks whether another process is done with an object."""
_held: ContextVar[tuple[str, ...]] = ContextVar("held", default=())


@contextmanager
def output_lock(*outputs: PathLike) -> Iterator[None]:
    """Hold these paths, or raise :class:`LockedError` where another process holds one. A caller may hold them already.

    The lock is ``.NAME.making`` beside each output, and is removed at the end; in an object store a small mark stays.
    """
    places = {str(place): place for place in (at(output).absolute() for output in outputs)}
    names = sorted(set(places) - set(_held.get()))
    token = _held.set((*_held.get(), *names))
    try:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(_made(places[name]))
            yield
    finally:
        _held.reset(token)


@contextmanager
def _made(place: AnyPath) -> Iterator[None]:
    mark = place.with_name(f".{place.name}.making")
    lock = _begun(mark)
    try:
        yield
    finally:
        _ended(mark, lock)


def _begun(mark: AnyPath) -> Lock:
    """Hold what is made. In turn with others, who remove the folder in which the hold lies."""
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
    """Wait until no other process writes this path in turn, or another one in its folder."""
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


def _waited(place: ObjectPath) -> Lock:
    """A place of an object store, held once nobody else does."""
    while True:
        try:
            return take(place)
        except LockedError:
            time.sleep(AGAIN)
