"""One process at a time writes an output that is not a run: a model, a table, an array."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar

from bigembed.errors import LockedError
from bigembed.store.lock import Lock, take
from bigembed.store.objects import ObjectPath
from bigembed.store.paths import AnyPath, PathLike, at, retire

AGAIN = 2.0
"""Seconds between two looks whether another process is done with an object."""
_held: ContextVar[tuple[str, ...]] = ContextVar("held", default=())


@contextmanager
def making(*outputs: PathLike) -> Iterator[None]:
    """Hold these paths; :class:`LockedError` where another process does. What a caller holds already is held.

    Held is ``.NAME.making`` beside each, which is gone at the end; in an object store a small mark of it stays.
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
    making = place.with_name(f".{place.name}.making")
    lock = _begun(making)
    try:
        yield
    finally:
        _ended(making, lock)


def _begun(making: AnyPath) -> Lock:
    """Hold what is made. In turn with others, who remove the folder in which the hold lies."""
    making.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(making, ObjectPath):
        return take(making)
    with in_turn(making):
        making.mkdir(exist_ok=True)
        return take(making)


def _ended(making: AnyPath, lock: Lock) -> None:
    """Remove what was held, in one step for others; an object store has no such step, so the mark stays there."""
    if isinstance(making, ObjectPath):
        return lock.release()
    with in_turn(making):
        retire(making)
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
