"""The rows of a job: where they lie, or how they come to lie there."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.datasets import Dataset, dataset
from bigembed.errors import ExistingOutputError, InputError, LockedError
from bigembed.jobs.spec import JobSpec, needed_beside
from bigembed.store.arrays import RowSource
from bigembed.store.formats import NpyReader, Reader, ZarrReader, copy_rows, open_reader, source_of
from bigembed.store.input import column_source
from bigembed.store.lock import take
from bigembed.store.npy import write_npy
from bigembed.store.objects import ObjectPath
from bigembed.store.paths import AnyPath, at, published

KNOWN_ROWS = 1 << 16
AGAIN = 2.0
"""Seconds between two looks whether another job is done with an input."""
LOADING = {"digits": 160 << 20, "mnist": 256 << 20, "coil20": 48 << 20}
"""Bytes that a process holds to read these data sets: scikit-learn, all the images, Pillow."""


@dataclass(frozen=True)
class DatasetReader:
    """A data set, read as a format."""

    dataset: Dataset
    grain: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.dataset.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dataset.dtype)

    def stream(self, start: int, stop: int) -> Iterator[Array]:
        yield self.dataset.rows(start, stop)


@dataclass(frozen=True)
class Unwritten(RowSource):
    """Rows that will lie at the path: enough for a plan."""

    def fingerprint(self) -> str:
        return "not written yet"

    @property
    def grain(self) -> int:
        """Not known yet: as many rows as a canonical block, which is how they are written."""
        return self.block

    @property
    def chunks(self) -> tuple[int, int]:
        """Rows and columns of a chunk: whole rows, not more than a block."""
        return min(self.block, self.shape[0]), self.width


@dataclass(frozen=True)
class Input:
    """The rows of a job, and the reader that still has to copy them to their path, if one has."""

    path: AnyPath
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    reader: Reader | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    dataset: Dataset | None = None
    beside: Mapping[str, AnyPath] = field(default_factory=dict)
    """Vectors that belong to the rows."""

    @property
    def nbytes(self) -> int:
        """n · d · itemsize."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def loading(self) -> int:
        """Bytes that a process needs to read the data set, beside the rows."""
        return LOADING.get(self.dataset.name, 0) if self.dataset else 0

    def source(self) -> RowSource:
        """What stages read."""
        kind = RowSource if self.reader is None else Unwritten
        scratch = self.path.parent  # (paths are read where they lie)
        columns = {
            name: column_source(
                known_labels(self.dataset) if self._unwritten(path) else path, self.shape[0], scratch, name
            )
            for name, path in self.beside.items()
        }
        return kind(self.shape, self.dtype, path=str(self.path), beside=columns)

    @property
    def given(self) -> Any:
        """What ``fit`` takes."""
        return str(self.path)

    @property
    def written(self) -> bool:
        """Whether the rows, and what lies beside them, are there."""
        return self.reader is None and not any(self._unwritten(path) for path in self.beside.values())

    def ready(self) -> Input:
        """The same, written if it was not. Two jobs that share it wait for each other."""
        if self.written:
            return self
        todo = [path for path in self.beside.values() if self._unwritten(path)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _turn(self.path):
            for path in todo:
                write_npy(path, known_labels(self.dataset))
            if self.reader is not None and not published(self.path):
                copy_rows(self.reader, self.path, self.about, label="input")
        if self.reader is None:
            return self
        return replace(_existing(self.path, self.reader, self.about, self.dataset), beside=self.beside)

    def _unwritten(self, path: AnyPath) -> bool:
        """Whether a vector is one that the data set brings, and not there yet."""
        return self.dataset is not None and path == own_labels(self.path) and not published(path)


def find_input(job: JobSpec) -> Input:
    """The input of a job. Nothing is written yet. Formats without quick access by rows will be copied."""
    found = _find_rows(job)
    beside = {name: at(path) for name, path in job.beside.items()}
    if "labels" in needed_beside(job.method.name) and "labels" not in beside:
        if found.dataset is None or "label" not in found.dataset.truth(0, 1):
            raise InputError(
                f"[input] labels: {job.method.name} needs a label for each row, and {job.input.dataset!r} brings none; "
                "give the path of an array with one entry a row"
            )
        beside["labels"] = own_labels(found.path)
    return replace(found, beside=beside)


def own_labels(path: AnyPath) -> AnyPath:
    """Where the labels that a data set brings are written."""
    return at(f"{path.with_suffix('')}-labels.npy")


def known_labels(made: Dataset | None) -> Array:
    """The labels that a data set brings, (n,)."""
    assert made is not None
    spans = bounds(len(made), KNOWN_ROWS)
    return np.concatenate([made.truth(start, stop)["label"] for start, stop in spans])


def _find_rows(job: JobSpec) -> Input:
    if job.input.dataset is not None:
        made = dataset(job.input.dataset, **job.input.parameters)
        about = {
            "dataset": made.name,
            "shape": made.shape,
            "dtype": made.dtype,
            "seed": made.seed,
            "parameters": dict(made.parameters),
        }
        return _existing(job.input_path, DatasetReader(made), about, made)
    reader = open_reader(job.input_path)
    if isinstance(reader, NpyReader) or (isinstance(reader, ZarrReader) and (job.input_path / "zarr.json").is_file()):
        return Input(job.input_path, reader.shape, reader.dtype)
    stat = job.input_path.stat()
    about = {"copied": str(job.input_path), "bytes": stat.st_size, "time": stat.st_mtime_ns}
    return _existing(at(f"{job.output_path.with_suffix('')}-input.zarr"), reader, about, None)


def _existing(path: AnyPath, reader: Reader, about: Mapping[str, Any], made: Dataset | None) -> Input:
    """The input if these rows are there already, else with the reader that makes them."""
    about = json.loads(json.dumps(about, default=str))
    todo = Input(path, reader.shape, reader.dtype.newbyteorder("="), reader, about, made)
    if not published(path):
        return todo
    found = source_of(path)
    if found != about:
        raise ExistingOutputError(
            f"{path}: exists and holds {found or 'something else'}; the job would write {about} there. "
            "Nothing was changed; choose another [input] path or move it away"
        )
    return Input(path, todo.shape, todo.dtype, None, about, made)


@contextmanager
def _turn(path: AnyPath) -> Iterator[None]:
    """Wait until no other job writes this input, or another one beside it."""
    if isinstance(path, ObjectPath):
        with _waited(path.with_name(f"{path.name}.making")):
            yield
        return
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot lock a folder; then the rename decides
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _waited(place: ObjectPath) -> Iterator[None]:
    """Hold a place of an object store, once nobody else does."""
    while True:
        try:
            held = take(place)
        except LockedError:
            time.sleep(AGAIN)
            continue
        try:
            yield
        finally:
            held.release()
        return
