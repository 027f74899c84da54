"""Named block vectors kept in the store: a vector space larger than the memory of all workers.

Each sweep maps the blocks of some vectors into memory and writes the blocks of others, a file each: their number does
not depend on which blocks are neighbors. The rows that other blocks will need (the halo) lie in the file of a block as
one piece per destination, so a product moves halo rows only, and rows that are needed together lie together (also where
workers share a network file system; picked from the rows themselves, those of a mixture in 64 dimensions would be on a
third of all pages of six other blocks).

What sweeps cost beside those in memory, processor time of a solve's iteration at 3·10⁵ rows and 15 columns (swiss
roll; .23 s in memory): .16 s, of which writing is .05, its checksums .02, touching what is mapped .04, deleting .01.
(.32 s when every vector was copied from its file, all that was written and read had a CRC-32C, and the matrix was
decoded in each pass; of these the matrix is again, with values of 4 bytes: .02 s, for a third of the disk.) Tried and
left out: P, SP and SW in single precision as W is (two thirds of the bytes written; as many passes to 1e-6 on a swiss
roll of 6·10⁴ rows, 26 for 22 on a mixture of 2·10⁵, and it diverges on the way to 1e-9); one file for all that a task
writes (a file more costs 30 µs); writing into mapped files (six times the time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.csr import BlockMatrix
from bigembed.blocks.rows import Array, map_blocks
from bigembed.errors import DamagedError, InputError
from bigembed.store.blockwise.exchange import Exchange


@dataclass(frozen=True)
class StoredSpace:
    """The space of block vectors over the rows of a stored matrix, or (without one) over given blocks, no halos."""

    matrix: BlockMatrix | None
    exchange: Exchange
    sizes: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(self.matrix.rows) if self.matrix is not None else self.sizes

    def read(self, name: str, block: int) -> Array:
        """One block of a vector."""
        return self.exchange.piece(name, block, "own")

    def write(self, name: str, block: int, array: Array) -> None:
        """Write one block of a vector, without an outbox."""
        self.exchange.put(name, block, {"own": array})

    def has(self, name: str) -> bool:
        """Whether all blocks of a vector were written."""
        return all(self.exchange.has(name, block) for block in range(len(self.rows)))

    def drop(self, *names: str) -> None:
        """Forget vectors."""
        self.exchange.drop(*names)

    def sweep(
        self,
        function: Callable[..., tuple[Sequence[Array], Any]],
        *,
        reads: Sequence[str] = (),
        halos: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        spends: Sequence[str] = (),
        arguments: Sequence[Any] = (),
    ) -> list[Any]:
        """One walk over all blocks: see :class:`bigembed.blocks.vector_space.VectorSpace`.

        A task that spends leaves its result with the last vector it writes, and then deletes what is spent: run again,
        it finds the one where the other is gone. So a walk that was ended goes on, if its arguments are the same.
        """
        return map_blocks(
            sweep_block,
            [(block,) for block in range(len(self.rows))],
            label=function.__name__.strip("_"),
            compute=function,
            matrix=self.matrix,
            exchange=self.exchange,
            reads=tuple(reads),
            halos=tuple(halos),
            writes=tuple(writes),
            posts=tuple(posts),
            spends=tuple(spends),
            arguments=tuple(arguments),
        )


def sweep_block(
    block: int,
    *,
    compute: Callable[..., tuple[Sequence[Array], Any]],
    matrix: BlockMatrix | None,
    exchange: Exchange,
    reads: Sequence[str],
    halos: Sequence[str],
    writes: Sequence[str],
    posts: Sequence[str],
    spends: Sequence[str],
    arguments: Sequence[Any],
) -> Any:
    """Read, compute, write for one block."""
    if matrix is None and halos:
        raise InputError("this space was made without a matrix, so it has no halos")
    try:
        own = [exchange.mapped(name, block, ["own"])[0] for name in reads]
    except DamagedError:
        if not spends or not exchange.has(writes[-1], block):
            raise
        return _left(exchange, writes[-1], block)
    far = [_halo(exchange, matrix, name, block) for name in halos if matrix is not None]
    written, result = compute(block, *own, *far, *arguments)
    outbox = matrix.outbox(block) if posts and matrix is not None else []
    for name, array in zip(writes, written, strict=True):
        pieces = {"own": array}
        if name in posts:
            pieces |= {str(destination): array[rows] for destination, rows in outbox}
        if spends and name == writes[-1]:
            pieces |= {f"result{number}": part for number, part in enumerate(result or ())}
        exchange.put(name, block, pieces)
    for name in spends:
        exchange.drop_block(name, block)
    return result


def _left(exchange: Exchange, name: str, block: int) -> tuple[Array, ...] | None:
    """The result that a task has left with a vector."""
    pieces = exchange.get_all(name, block)
    return tuple(pieces[f"result{number}"] for number in range(sum(key.startswith("result") for key in pieces))) or None


def _halo(exchange: Exchange, matrix: BlockMatrix, name: str, block: int) -> Array:
    """Rows of the other blocks that this block needs, in the order of its halo list; one file is open at a time."""
    stored = matrix.block(block)
    out: Array | None = None
    for number, (source, rows) in enumerate(stored.segments()):
        piece = exchange.look(name, source, [str(block)])[0]
        if piece is None:
            piece = exchange.mapped(name, source, ["own"])[0][rows]
        if out is None:
            out = np.empty((len(stored.halo_rows), *piece.shape[1:]), piece.dtype)
        out[stored.halo_offsets[number] : stored.halo_offsets[number + 1]] = piece
    return exchange.piece(name, block, "own")[:0] if out is None else out
