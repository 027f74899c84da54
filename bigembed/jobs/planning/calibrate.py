"""How fast this machine reads, writes, multiplies and looks things up: measured once, kept in the user's cache folder.

What a stage states as bytes, operations and look-ups becomes seconds by these rates. Each is the best of several short
tries, so that other work on the machine does not make it look slow for good; all of them take a second or two.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from bigembed.blocks.rows import one_blas_thread
from bigembed.jobs.planning.remembered import remember, remembered
from bigembed.store.storage.objects import ObjectPath
from bigembed.store.storage.paths import AnyPath, remove
from bigembed.store.storage.scratch import temporary

TRIES = 5
ROWS, COLUMNS = 1 << 16, 64
"""Of the block that is written and read: 16 MiB of float32."""
SIDE = 512
"""Of the matrices that are multiplied."""
UNMEASURED = 200e6
"""Bytes a second of a disk that has no room to be measured."""
LOOKS = 1 << 20
TABLE = 1 << 23


@dataclass(frozen=True)
class Rates:
    """Of one process with one thread, a second."""

    read: float
    """Bytes of a stored block, checked."""
    write: float
    """Bytes of a stored block."""
    product: float
    """Floating-point operations of a product of float64 matrices."""
    look: float
    """Entries taken from random places of an array that no cache holds."""
    term: float = 2e9
    """Terms |x − y| of city-block distances between rows."""
    exchange: float = 1e9
    """Bytes that a task leaves for another, which maps them."""


def rates(folder: AnyPath, renew: bool = False) -> Rates:
    """The rates of this machine, and of the file system of ``folder``: remembered, or measured now."""
    known = {} if renew else remembered("rates")
    place = f"storage {folder.root if isinstance(folder, ObjectPath) else os.stat(folder).st_dev}"
    measures = {"product": _product, "look": _look, "term": _term}
    compute = _usable(known, "compute")  # (other versions measure fewer things, or more)
    known["compute"] = compute | {name: measure() for name, measure in measures.items() if name not in compute}
    here, names = _usable(known, place), ("read", "write", "exchange")
    if not set(names) <= here.keys():
        try:
            here |= dict(zip(names, _storage(folder), strict=True))
        except OSError:  # (a full disk: what it takes is planned all the same, and nothing is remembered)
            here |= {"read": UNMEASURED, "write": UNMEASURED}
        else:
            known[place] = here
    remember("rates", known)
    measured = {field.name for field in fields(Rates)}
    return Rates(**{name: rate for name, rate in (known["compute"] | here).items() if name in measured})


def _usable(known: dict[str, Any], group: str) -> dict[str, float]:
    """What was remembered of a group, as far as it is a rate."""
    found = known.get(group)
    rates = found.items() if isinstance(found, dict) else ()
    return {name: float(rate) for name, rate in rates if isinstance(rate, (int, float)) and 0 < rate < float("inf")}


def _best(work: Callable[[], Any]) -> float:
    """Seconds of the quickest try."""
    found = []
    for _ in range(TRIES):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return max(min(found), 1e-9)


def _product() -> float:
    left = np.random.default_rng(0).normal(size=(SIDE, SIDE))
    with one_blas_thread():
        return float(2 * SIDE**3 / _best(lambda: left @ left))


def _look() -> float:
    random = np.random.default_rng(0)
    table, places = random.normal(size=TABLE), random.integers(0, TABLE, LOOKS)
    return float(LOOKS / _best(lambda: table[places].sum()))


def _term() -> float:
    rows = np.random.default_rng(0).normal(size=(SIDE, COLUMNS))
    return float(SIDE**2 * COLUMNS / _best(lambda: cdist(rows, rows, "cityblock")))


def _storage(folder: AnyPath) -> tuple[float, float, float]:
    """Bytes a second that the store reads, writes and exchanges in a folder; what was written is gone afterwards."""
    from bigembed.store.arrays.io import create_rows, read_array, write_rows
    from bigembed.store.blockwise.exchange import Exchange

    rows = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    with _scratch(folder) as path:

        def write() -> None:
            create_rows(path, rows.shape, rows.dtype, ROWS, overwrite=True)
            write_rows(path, 0, rows)

        def exchange() -> None:
            shared = Exchange(path)
            shared.put("rows", 0, {"own": rows})
            shared.mapped("rows", 0, ["own"])[0].sum()

        written, read = _best(write), _best(lambda: read_array(path))
        return rows.nbytes / read, rows.nbytes / written, rows.nbytes / _best(exchange)


@contextmanager
def _scratch(folder: AnyPath) -> Iterator[str]:
    """A place for rows in the folder, or in the one for temporary files where this one may not be written."""
    if isinstance(folder, ObjectPath):
        place = folder / f".bigembed-rates-{uuid.uuid4().hex}"
        try:
            yield str(place)
        finally:
            remove(place)
        return
    home = folder if os.access(folder, os.W_OK) else None
    with temporary("rates", home, hidden=True) as scratch:
        yield f"{scratch}/rows"
