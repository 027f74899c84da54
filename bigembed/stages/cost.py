"""What a stage takes: the arrays that it reads, holds and writes, from which its bytes follow, and its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from bigembed.rows import RowSource
from bigembed.rows.passes import MAX_GROUPS


@dataclass(frozen=True)
class ArraySpec:
    """Declare an array of a stage by its name, its shape and its dtype."""

    name: str
    """Of a published array where it lies, with a ``*`` for the numbers of its pieces; of others what they are."""
    rows: float = 0
    """Of all pieces together, at the most; 0 of a few numbers whose count only the computation tells."""
    width: float | None = None
    """Numbers of a row; None where the array has one axis."""
    dtype: Any = "f8"
    times: float = 1
    """How many of them there are, or how often it is read or written."""

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        entries = self.rows * (1 if self.width is None else self.width)
        return int(self.times * entries * np.dtype(self.dtype).itemsize)


Arrays = Sequence[ArraySpec]


def buffer(name: str, size: float) -> ArraySpec:
    """Declare memory of so many bytes."""
    return ArraySpec(name, size, dtype="u1")


def nbytes(arrays: Arrays) -> int:
    """Return the bytes of some arrays together."""
    return sum(array.nbytes for array in arrays)


def largest(*phases: Arrays) -> Arrays:
    """Return the arrays of that phase of a stage in which the most bytes are held."""
    return max(phases, key=nbytes)


@dataclass(frozen=True)
class Cost:
    """What a stage is planned to take, in passes, bytes and operations; a machine's rates make seconds of them."""

    passes: float = 0.0
    """Times that the rows (or, in a solve, the matrix) are read."""
    most_passes: float = 0.0
    """What they may come to, where that is known only when they are made; 0 where ``passes`` tells."""
    read: int = 0
    write: int = 0
    exchanged: int = 0
    """Written by tasks for others, which map it: in addition to ``read`` and ``write``."""
    disk: int = 0
    """Kept after the stage; ``scratch`` is deleted with it."""
    scratch: int = 0
    memory: int = 0
    """Peak of one task, above the footprint of the process."""
    spared: int = 0
    """Of that, what a task does not hold where the vectors are in the memory of its process."""
    coordinator: int = 0
    """Peak of the coordinating process, above its footprint."""
    held: int = 0
    """Vectors that are in memory where all tasks are in one process with room for them, or on one machine; else in
    files."""
    part: int = 0
    """Of that, what may be in memory in part, where there is no room for all, and the rest in a file of the process; 0
    where nothing may."""
    checkpoint: int = 0
    """Bytes that are written from time to time, where the vectors are in memory, in place of ``exchanged`` and of
    ``scratch``; what a pass reads is then read once. The one before is deleted after that."""
    crossing: int = 0
    """Bytes that workers on several machines leave for each other where they hold the vectors together, in place of
    ``exchanged``; 0 where they cannot."""
    flops: float = 0.0
    """Floating-point operations of matrix products and factorizations, in tasks."""
    scalar_ops: float = 0.0
    """Entries that tasks look up in random places, sort, compare or put through a kernel, one by one."""
    terms: float = 0.0
    """Terms of distances that tasks take pair by pair, in units of one |x − y| of dense rows."""
    serial_flops: float = 0.0
    """Floating-point operations of one process while the others wait."""
    serial_ops: float = 0.0
    """Entries that one process looks up, sorts, draws or writes as text while the others wait."""
    maps: float = 0.0
    """Maps over the blocks, one after another, where they are not as many as the passes."""
    blocks: int = 0
    """Tasks of a map, where they are not the canonical blocks of the rows."""
    arrays: tuple[ArraySpec, ...] = ()
    """What is published."""

    @classmethod
    def of(
        cls,
        reads: Arrays = (),
        writes: Arrays = (),
        leaves: Arrays = (),
        task: Arrays = (),
        beside: Arrays | None = None,
        coordinator: Arrays = (),
        posts: Arrays = (),
        vectors: Arrays = (),
        checkpoint: Arrays | None = None,
        held: Arrays = (),
        part: Arrays = (),
        **figures: Any,
    ) -> Self:
        """Return the cost of a stage from its arrays.

        Parameters
        ----------
        reads : sequence of ArraySpec
            What it reads, rows and arrays of its inputs.
        writes : sequence of ArraySpec
            What it publishes, all of it.
        leaves : sequence of ArraySpec
            What its tasks leave for others: written, read once, and deleted with the stage.
        task : sequence of ArraySpec
            What one task holds at a time.
        beside : sequence of ArraySpec
            What it holds beside the vectors where these are in the memory of its process; by default as much.
        coordinator : sequence of ArraySpec
            What the coordinating process holds at a time.
        posts : sequence of ArraySpec
            What tasks write for others pass by pass, and others map.
        vectors : sequence of ArraySpec
            What lies in files while it works, unless it is in memory.
        checkpoint : sequence of ArraySpec
            What is written from time to time then; by default all vectors.
        held : sequence of ArraySpec
            What is in memory then.
        part : sequence of ArraySpec
            What of it may be there in part, the rest in a file, where there is no room for all.
        **figures : dict
            Passes and operations, as the fields have them.

        Returns
        -------
        Cost
            The cost.

        Examples
        --------
        >>> from bigembed.stages.cost import ArraySpec, Cost
        >>> cost = Cost.of([ArraySpec("rows", 1000, 64, "f4")], [ArraySpec("embedding", 1000, 2)], passes=1)
        >>> cost.read, cost.write, cost.disk
        (256000, 16000, 16000)
        """
        left, kept = nbytes(leaves), nbytes(writes)
        return cls(
            read=nbytes(reads) + left,
            write=kept + left,
            disk=kept,
            scratch=left + nbytes(vectors),
            exchanged=nbytes(posts),
            held=nbytes(held),
            part=nbytes(part),
            checkpoint=nbytes(vectors if checkpoint is None else checkpoint) if held else 0,
            memory=nbytes(task),
            spared=0 if beside is None else nbytes(task) - nbytes(beside),
            coordinator=nbytes(coordinator),
            arrays=tuple(writes),
            **figures,
        )

    def __add__(self, other: Cost) -> Cost:
        """Both together, held at the same time."""
        return Cost(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Cost)})

    def then(self, other: Cost) -> Cost:
        """Return the cost of both, one after the other in a stage.

        Parameters
        ----------
        other : Cost
            What comes after.

        Returns
        -------
        Cost
            The cost of both.
        """
        peaks = {name: max(getattr(self, name), getattr(other, name)) for name in ("memory", "coordinator", "scratch")}
        spared = peaks["memory"] - max(self.memory - self.spared, other.memory - other.spared)
        return replace(self + other, **peaks, spared=spared)

    def figures(self) -> dict[str, float]:
        """Return the numbers of a cost by name, without the arrays that they were made from.

        Returns
        -------
        dict
            The numbers.
        """
        return {one.name: getattr(self, one.name) for one in fields(Cost) if one.name != "arrays"}

    def fingerprint(self) -> str:
        """Return the same for all: what a stage takes says nothing of what comes out.

        Returns
        -------
        str
            The empty string.
        """
        return ""


# ---------------------------------------------------------------------------------------------------------- passes
# What a pass over the rows takes.

WINDOW = 6
"""Canonical blocks that a task holds while it reads, works and writes."""


def rows_of(source: RowSource, times: float = 1) -> ArraySpec:
    """Declare the rows, read some times."""
    return ArraySpec("rows", source.shape[0], source.row_bytes, "u1", times)


def window_of(source: RowSource) -> Arrays:
    """Declare what a task of a pass holds: the window over stored chunks, the block, its working copies."""
    n, width = source.shape[0], source.row_bytes
    return (
        ArraySpec("blocks of rows", source.largest_block, width, "u1", WINDOW),
        ArraySpec("stored chunks", min(source.grain, n), width, "u1", 2),
    )


def output_cost(source: RowSource, width: int, dtype: Any = np.float64, against: int = 0) -> Cost:
    """Return the cost of a pass that compares each row with some landmarks, and writes ``width`` coordinates of it."""
    n, d = source.shape
    return Cost.of(
        reads=[rows_of(source)],
        writes=[ArraySpec("embedding", n, width, dtype)],
        task=[*window_of(source), ArraySpec("coordinates", source.largest_block, width, times=3)],
        passes=1,
        flops=2 * n * (against * (d + width) if against else d * width),
        scalar_ops=n * against,
    )


def summing_cost(source: RowSource, sums: int, passes: float = 1) -> Cost:
    """Return the cost of passes over the rows that each add up ``sums`` bytes by groups of blocks."""
    return Cost.of(
        reads=[rows_of(source, int(passes))],
        leaves=sums_of_groups(source, sums),
        task=[*window_of(source), ArraySpec("sums", sums, dtype="u1", times=4)],
        coordinator=[ArraySpec("sums", sums, dtype="u1", times=10)],
        passes=passes,
    )


def sums_of_groups(source: RowSource, sums: int) -> Arrays:
    """Declare what the groups of blocks leave in the exchange, where each has ``sums`` bytes."""
    return [ArraySpec("sums of groups", min(MAX_GROUPS, -(-source.shape[0] // source.block)), sums, "u1")]
