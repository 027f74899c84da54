"""The journal of a stage in work: what its maps over blocks have returned, so that a stopped stage goes on from there.

A stage is a function of its inputs: it calls its maps in an order that follows from what they return. When it is
started again, the same maps come in the same order. A task whose result is in the journal is not run again, and what a
stage does once between its maps (:func:`bigembed.runtime.once`) is not done again. So whatever the stage, a
start loses the blocks that were at work when it was stopped, and no more.

An entry is a line of JSON behind its checksum. Entries are appended together, every half second at most, after each act
that is done once, and when the stage is stopped; in an object store, which appends nothing, every few seconds a file of
entries is put beside the others. The journal speaks of the arrays in the folder of the stage, too: a token lies in
both, and a journal whose token is not there (somebody deleted the folder, or another start has begun anew) counts for
nothing.

A solver or a descent keeps a state, from which it goes on: what it did before that need not be done again. A step from
one state to the next has a journal of its own (:func:`own_steps`), whose token is the state.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from typing import Any, Self

import google_crc32c
import numpy as np
from scipy.sparse import csr_array

from bigembed.runtime import Calls, KeepResult, runtime_now, using
from bigembed.runtime.blocks import is_sparse
from bigembed.store import AnyPath, at, manifests, objects, put, remove, remove_file
from bigembed.store.files import digest_of, jsonable

PATIENCE = 0.5
"""Seconds between two writes."""
PATIENCE_OF_OBJECTS = 5.0
"""The same in an object store."""
WHOLE = -1
"""The place of what is kept of a map, or of an act, itself."""


class StageJournal:
    """Keep the results of the maps of one stage, or of one step from a state, and give them to a later start of it."""

    def __init__(self, exchange: str, stage: AnyPath | None, state: str = "", new: bool = False) -> None:
        self.folder, self._mark = at(f"{exchange}/journal"), None if stage is None else stage / manifests.IN_WORK
        self._state = state
        self._token, self._known = ("", defaultdict(dict)) if new else _read(self.folder, self._mark, state)
        self.found = bool(self._token)
        """Whether there is something to go on from."""
        self._number = 0
        self._lines: list[bytes] = []
        self._written = time.monotonic()
        self._lock = Lock()

    def run_map(self, calls: Calls, label: str, run: Callable[[Calls, str, KeepResult], list[Any]]) -> list[Any]:
        """Return the results of the calls of the next map, those that are known without making them again."""
        number = self._next([label, len(calls)])
        results = {place: value for place, value in self._known[number].items() if place != WHOLE}
        todo = [place for place in range(len(calls)) if place not in results]
        if todo:

            def keep(place: int, result: Any) -> None:
                self._keep(number, todo[place], result)

            with using(journal=None):  # (what a task does is its own)
                made = run([calls[place] for place in todo], label, keep)
            results |= dict(zip(todo, made, strict=True))
        return [results[place] for place in range(len(calls))]

    def once(self, act: Callable[[], Any]) -> Any:
        """Return what the next act returned when it was done first; what it did, maps too, is not done again."""
        number = self._next(None)
        if 0 in self._known[number]:
            self._number, result = self._known[number][0]
            return result
        with self._lock:  # first, since it may delete what the maps before it have left
            if self._token or self._due:
                self._write()
        result = act()
        self._keep(number, 0, (self._number, result))
        with self._lock:  # before any task that follows: done again by the next start, it would undo what these leave
            if self._token:
                self._write()
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Write what is not written yet where the stage was stopped; where it is published, the token goes."""
        if kind is not None:
            with self._lock:
                self._write()
        elif self._token and self._mark is not None:
            remove_file(self._mark)

    def _next(self, mark: Any) -> int:
        """Number the next map or act; what is known of another one of this number, or later, is forgotten."""
        number, self._number = self._number, self._number + 1
        if self._known[number].get(WHOLE, mark) != mark:
            self._known = defaultdict(dict, {n: known for n, known in self._known.items() if n < number})
        if WHOLE not in self._known[number]:
            self._known[number][WHOLE] = mark
            self._keep(number, WHOLE, mark)
        return number

    def _keep(self, number: int, place: int, value: Any) -> None:
        try:
            line = _line([number, place, _encoded(value)])
        except TypeError:  # (what cannot be kept is made again)
            return
        with self._lock:
            self._lines.append(line)
            if self._due:
                self._write()

    @property
    def _due(self) -> bool:
        patience = PATIENCE_OF_OBJECTS if isinstance(self.folder, objects.ObjectPath) else PATIENCE
        return time.monotonic() - self._written > patience

    def _write(self) -> None:
        self._written = time.monotonic()
        if not self._lines:
            return
        if not self._token:
            remove(self.folder)
            self._token = self._state or os.urandom(8).hex()
            if self._mark is not None:
                put(self._mark, self._token.encode())
            self._lines.insert(0, _line(self._token))
        lines, self._lines = b"".join(self._lines), []
        if isinstance(self.folder, objects.ObjectPath):
            put(self.folder / f"{time.time_ns()}", lines)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "0", "ab") as file:
            file.write(b"\n" + lines)  # (the last line may have been cut off)


@contextmanager
def own_steps(folder: str) -> Iterator[Callable[[Any], AbstractContextManager[None]]]:
    """Leave the journal of the stage, for what goes on from states of its own; yield what gives a step its journal.

    ``with step(state):`` does the step that begins with that state. Its journal lies in ``folder``, until that of
    another state takes its place. Outside of a stage whose run is kept nothing is written.
    """
    kept, new = runtime_now().journal is not None, False

    @contextmanager
    def step(state: Any) -> Iterator[None]:
        nonlocal new
        if not kept:
            yield
            return
        journal = StageJournal(folder, None, digest_of(jsonable(state)), new)
        new = True  # (of the states after the first one nobody has left anything)
        with journal, using(journal=journal):
            yield

    with using(journal=None):
        yield step


def _read(folder: AnyPath, mark: AnyPath | None, state: str) -> tuple[str, defaultdict[int, dict[int, Any]]]:
    """The token, and of each map or act its mark, and results by their place; nothing where the tokens differ."""
    known: defaultdict[int, dict[int, Any]] = defaultdict(dict)
    entries = _entries(folder)
    token = next(entries, "")
    wanted = state if mark is None else mark.read_bytes().decode() if mark.is_file() else ""
    if not wanted or token != wanted:
        return "", known
    for entry in entries:
        with suppress(ValueError, TypeError):
            number, place, value = entry[0], entry[1], _decoded(entry[2])
            if place == WHOLE and known[number].get(WHOLE, value) != value:
                known = defaultdict(dict, {n: found for n, found in known.items() if n < number})
            known[number][place] = value
    return token, known


def _line(entry: Any) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (google_crc32c.value(text), text)


def _entries(folder: AnyPath) -> Iterator[Any]:
    """The entries in their order; a line that is damaged is left out."""
    files: list[Any] = [*folder.iterdir()] if folder.is_dir() else []
    for file in sorted(files, key=lambda path: path.name.zfill(20)):
        for line in _lines_of(file):
            crc, _, text = line.partition(b" ")
            if text and crc == b"%08x" % google_crc32c.value(text):
                yield json.loads(text)


def _lines_of(file: AnyPath) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\n")
    except IsADirectoryError:  # (damage)
        return []


def _encoded(value: Any) -> Any:
    """The value in JSON; what JSON does not tell apart is a list that begins with its kind."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        array = np.ascontiguousarray(value)
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        dtype = array.dtype.str if array.dtype.names is None else [list(field) for field in array.dtype.descr]
        return [kind, dtype, list(np.shape(value)), base64.b64encode(array.tobytes()).decode()]
    if is_sparse(value):
        return ["csr", *map(_encoded, (value.data, value.indices, value.indptr, value.shape))]
    if type(value) in (list, tuple):
        return [type(value).__name__, *map(_encoded, value)]
    if type(value) is dict:
        return ["dict", *([_encoded(key), _encoded(one)] for key, one in value.items())]
    raise TypeError(f"{type(value)} is not kept")


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(map(_decoded, rest))
    if kind == "dict":
        return {_decoded(key): _decoded(one) for key, one in rest}
    if kind == "csr":
        *parts, shape = map(_decoded, rest)
        return csr_array(tuple(parts), shape=shape)
    name, shape, data = rest
    dtype = np.dtype(name if isinstance(name, str) else [tuple(field) for field in name])
    array = np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    return array if kind == "array" else array[()]
