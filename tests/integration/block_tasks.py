"""Tasks for cluster tests: workers import them from here."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from numba import njit

from bigembed.runtime import reads


def square(number: int, pause: float = 0.0) -> int:
    time.sleep(pause)
    return number * number


def pid(pause: float) -> int:
    time.sleep(pause)
    return os.getpid()


@reads
def read(pause: float) -> None:
    time.sleep(pause)


def hold_the_interpreter(seconds: float) -> bool:
    """Use the processor for a while, and let no other thread of this process run meanwhile."""
    clock = ctypes.CDLL(None).clock
    clock.restype, clock.argtypes = ctypes.c_long, []

    @njit
    def spin(ticks: int) -> int:
        first, turns = clock(), 0
        while clock() - first < ticks:
            turns += 1
        return turns

    return bool(spin(int(seconds * 1e6)) > 0)


def die_once(number: int, folder: str, table: Any = None) -> int:
    """Kill the own worker the first time that each third number is met; all calls have a table."""
    mark = Path(folder) / str(number)
    if number % 3 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def square_beside(number: int, pause: float, table: Any) -> int:
    """Return the square of a number; all calls have a table."""
    return square(number, pause)


def die_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail_twice(number: int, folder: str) -> int:
    """A passing trouble: succeeds at the third attempt."""
    tries = len(list(Path(folder).glob(f"{number}-*")))
    (Path(folder) / f"{number}-{tries}").touch()
    if tries < 2:
        raise OSError("the disk is slow")
    return number


def wrong(number: int) -> int:
    from bigembed.errors import InputError

    raise InputError(f"block {number} holds NaN")


def threads() -> tuple[str | None, str | None]:
    return os.environ.get("NUMBA_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS")


def cry(number: int) -> int:
    """What a worker says of itself where its memory ends: by its interpreter, and by distributed."""
    thread = threading.Thread(target=_no_memory)
    thread.start()
    thread.join()
    try:
        _no_memory()
    except MemoryError:
        logging.getLogger("distributed.protocol.core").critical("Failed to Serialize", exc_info=True)
    return number


def _no_memory() -> None:
    raise MemoryError("Unable to allocate internal buffer.")


def looked_up(number: int, table: Any, made: Any = int) -> Any:
    """An entry of a table that all tasks have, as a function makes it."""
    return made(table[number])
