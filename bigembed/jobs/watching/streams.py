"""Standard output and standard error of a command, which goes on when nobody reads them any more."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

CLOSED = (errno.EPIPE, errno.EIO, errno.ECONNRESET)
"""Errors of a stream whose reader or terminal is gone, which is the reader's business."""


class LastingStream(io.FileIO):
    """A descriptor that takes whatever is written to it: what does not reach a reader is dropped.

    ``lost`` is the first error that is not a reader who left, such as a full disk; None where there was none.
    """

    lost: OSError | None = None

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)

    def write(self, data: Any) -> int:
        """Write some of the data, or drop all of it."""
        try:
            while (taken := super().write(data)) is None:  # a pipe that does not block, and is full
                _await_room(self.fileno())
            return taken
        except OSError as error:
            if error.errno not in CLOSED and self.lost is None:
                self.lost = error
            return memoryview(data).nbytes


def outlast_readers() -> list[LastingStream]:
    """Let standard output and standard error of this process outlast their readers; return what they write to.

    So a job ends as it would with a reader who stays, whichever part of it prints, and so does the interpreter, which
    flushes them at its end. One that was closed before the start is opened on nothing: its number would else be that
    of the next file, and whatever a library prints would be written there.
    """
    for descriptor in (0, 1, 2):
        if not _is_open(descriptor):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, descriptor)
            if nothing != descriptor:
                os.close(nothing)
    raw = []
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        kept = {} if before is None else {"encoding": before.encoding, "errors": before.errors}
        raw.append(LastingStream(descriptor))
        lines = before is not None and (before.line_buffering or before.write_through)
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw[-1]), line_buffering=lines, **kept))
    return raw


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _await_room(descriptor: int) -> None:
    import select

    watched = select.poll()
    watched.register(descriptor, select.POLLOUT)
    watched.poll()
