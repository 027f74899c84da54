"""How rows become coordinates by a fitted map: a function of rows, and of a small description of the map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import BigembedError, DamagedError, InputError
from bigembed.estimator.frame import Alignment, frame_in
from bigembed.rows import RowBlock, RowSource, row_block, rows_at
from bigembed.rows.input import in_memory
from bigembed.rows.opening import as_array, open_array, open_zarr
from bigembed.rows.passes import map_row_blocks, refuse_block, write_mapped
from bigembed.rows.row_maps import Affine, any_in_row, as_typed
from bigembed.runtime.blocks import Array, bounds, is_sparse, map_blocks
from bigembed.store import at
from bigembed.store.arrays import write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import Delivery, by_receiver, merge_parcels, send, stacked

# ----------------------------------------------------------------------------------------------------- consistency
# A saved model whose parts do not fit: one error that names the model, in place of whatever Python raises.

ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@contextmanager
def consistent(saved: str) -> Iterator[None]:
    """What Python raises over a saved model whose parts do not fit is DamagedError; nothing is changed without one."""
    try:
        yield
    except BigembedError:
        raise
    except ODD as error:
        if not saved:
            raise
        raise DamagedError(
            f"{saved}: damaged: the parts of the model do not fit ({type(error).__name__}: {str(error)[:200]}). "
            "Copy the model again, or fit again"
        ) from error


# ------------------------------------------------------------------------------------------------------- extension

BATCH_BYTES = 16 << 20
MAX_BATCH, MIN_BATCH = 65_536, 2_048
LEAST_TASKS = 4
"""Tasks that even few rows are divided into, unless they are very few."""


@dataclass(frozen=True)
class Grouping:
    """How new rows are brought together where that makes them cheaper. Small and picklable."""

    block_of: Callable[[Array, Any, int], Array]
    """``block_of(rows, model, start)``: the block (m,) of each row, after a check; ``start`` numbers the first."""
    blocks: int
    """Blocks that ``block_of`` distinguishes; near ones have near numbers."""
    row_bytes: int
    """Bytes of a row as it is worked on."""
    most: int
    """Rows that the method takes well at a time."""
    memory: Callable[[int], int]
    """Bytes that the method holds for a number of rows, without the rows themselves."""
    large: int = 0
    """Rows of a batch at the most, where they may be more than :data:`MAX_BATCH`."""

    def batch(self, n: int) -> int:
        """Rows that a task takes together at the most, of n."""
        return batch_rows(n, self.row_bytes, self.most, self.large)


def batch_rows(n: int, row_bytes: int, most: int = MAX_BATCH, large: int = 0) -> int:
    """Rows that a task takes together at the most.

    >>> batch_rows(1_000_000, 256), batch_rows(10_000, 3136), batch_rows(10, 8)
    (65536, 5000, 2048)
    """
    fitting = max(MIN_BATCH, min(most, large or MAX_BATCH, BATCH_BYTES // row_bytes))
    return max(MIN_BATCH, min(fitting, -(-2 * n // LEAST_TASKS)))


@dataclass(frozen=True)
class Extension:
    """Turn rows into coordinates, in any process.

    It is small and picklable: arrays are named by their paths.
    """

    function: Callable[..., Array]
    """``function(rows, model, **aligned)``: rows (m, d) in their work dtype (or CSR) to (m, width). It must give each
    row the same whatever rows stand near it."""
    model: Any
    width: int
    n_features: int
    dtype: str = "float64"
    """Of the coordinates."""
    grouping: Grouping | None = None
    """Where coordinates are cheaper for rows that lie together: how they are brought together."""
    cheap: bool = True
    """Whether coordinates cost about as much as reading the rows, so that a lazy result computes them when asked."""
    sparse: bool = False
    """Whether the function takes CSR rows."""
    keeps_sparse: bool = False
    """Whether it makes CSR rows of them."""
    aligned: tuple[str, ...] = ()
    """Vectors aligned with the rows that the function needs, by name."""
    saved: str = ""
    """Where the saved model lies that it is of."""
    missing: str = "refused"
    """What becomes of NaN: ``"refused"``; ``"taken"`` by the function; or ``"passed"``: a row with NaN has no
    coordinates, which are NaN."""
    numbered: bool = False
    """Whether the function takes ``start``, the number of the first row, for its errors."""
    frame: Alignment | None = None
    """What lays coordinates over an earlier map (:mod:`bigembed.estimator.frame`)."""

    def __call__(self, block: RowBlock) -> Any:
        """Coordinates of a block of rows, which must be finite, but for NaN that is not refused."""
        refuse_block(block, nan=self.missing == "refused")
        return self.of_block(block)

    def of_block(self, block: RowBlock) -> Any:
        """Compute the coordinates of a block that was checked.

        Parameters
        ----------
        block : RowBlock
            The rows.

        Returns
        -------
        array of shape (rows, width)
            The coordinates.
        """
        needed: dict[str, Any] = {name: block.aligned[name] for name in self.aligned}
        if self.numbered:
            needed["start"] = block.start
        return as_typed(self.of_rows(block.rows, **needed), self.dtype)

    def of_rows(self, rows: Any, **aligned: Array) -> Array:
        """Compute the function of rows.

        Parameters
        ----------
        rows : array of shape (rows, d)
            The rows in their work dtype, or CSR.
        **aligned : array of shape (rows,)
            Vectors aligned with the rows, by name.

        Returns
        -------
        array of shape (rows, width)
            The coordinates.

        Raises
        ------
        DamagedError
            If the parts of a saved model do not fit.
        """
        if self.missing == "passed" and not (there := complete(rows)).all():
            return self._of_complete(rows, there, aligned)
        with consistent(self.saved):
            return self._framed(self.function(rows, self.model, **aligned))

    def _framed(self, coordinates: Array) -> Array:
        """Coordinates in the frame of the map, where it has one."""
        return coordinates if self.frame is None else self.frame.apply(coordinates)

    def _of_complete(self, rows: Any, there: Array, aligned: dict[str, Array]) -> Array:
        """Coordinates of the complete rows, and NaN for the others."""
        out = np.full((len(there), self.width), np.nan, self.dtype)
        if there.any():
            given = {name: values[there] for name, values in aligned.items()}
            with consistent(self.saved):
                out[there] = self._framed(self.function(rows[there], self.model, **given))
        return out


def complete(rows: Any) -> Array:
    """Which rows (m,), dense or CSR, hold no NaN."""
    return np.asarray(~any_in_row(rows, np.isnan(rows.data if is_sparse(rows) else rows)))


def in_one_array(source: RowSource, extension: Extension) -> Any:
    """Coordinates of all rows in memory, or the CSR rows that a step makes of such."""
    spans = bounds(source.shape[0], source.shape[0] if extension.grouping else source.block)
    return stacked(map_blocks(extend_block, spans, label="transform", source=source, extension=extension))


def write_extended(source: RowSource, extension: Extension, out: str) -> None:
    """Coordinates by canonical blocks, through the sliding window over the chunks of the input."""
    first = extension.missing == "refused"
    write_mapped(source, extend_mapped, out, extension.width, extension.dtype, first=first, extension=extension)


def extend_mapped(block: RowBlock, *, extension: Extension) -> Any:
    """Coordinates of one canonical block, in which NaN was looked for unless it is not refused."""
    return extension.of_block(block) if extension.missing == "refused" else extension(block)


def extend_block(start: int, stop: int, *, source: RowSource, extension: Extension) -> Any:
    """Coordinates of rows ``start:stop``."""
    return extension(row_block(source, start, stop))


def stored_coordinates(path: str) -> tuple[RowSource, Extension]:
    """Coordinates that are stored already as rows (n, m), with the map that leaves them as they are."""
    array = open_zarr(path)
    n, m = map(int, array.shape)
    dtype = np.dtype(array.dtype)
    return RowSource((n, m), dtype, path=path), Extension(as_they_are, None, m, m, dtype=str(dtype))


def as_they_are(rows: Array, model: None) -> Array:
    """Coordinates that are there already."""
    return rows


# --------------------------------------------------------------------------------------------------------- inverse
# From coordinates back to rows by a linear map: in memory for arrays in memory, else lazily, block by block.


def inverse(estimator: Any, X: Any, matrix: Array, offset: Array | float = 0.0) -> Any:
    """Rows Aᵀy + b of coordinates of any kind: NumPy for arrays in memory, a lazy Dask array otherwise."""
    m, d = matrix.shape
    return rows_of(estimator, X, Affine(None, np.ascontiguousarray(matrix), np.broadcast_to(offset, d)), m, d)


def rows_of(estimator: Any, X: Any, back: Callable[[Any], Array], m: int, d: int) -> Any:
    """What ``back`` makes of coordinates (k, m), rows (k, d); InputError where they are not m."""
    held, frame = in_memory(X), frame_in(estimator._run)
    if frame is not None:
        back = partial(unframed, back=back, frame=frame)
    given: Any = as_array(X, "coordinates") if held else open_array(X)
    if given.ndim != 2 or given.shape[1] != m:
        raise InputError(
            f"coordinates have shape {given.shape}, but {type(estimator).__name__} has {m}: shape (k, {m}) is needed"
        )
    if given.dtype.kind not in "buif":
        raise InputError(f"coordinates have dtype {given.dtype}; numbers are needed (bool, int, uint or float)")
    if held:
        return converted(given, back)
    dtype = float_dtype(given.dtype)
    whole = given.rechunk({1: m})
    return whole.map_blocks(converted, back, dtype=dtype, chunks=(whole.chunks[0], (d,)), meta=np.empty((0, 0), dtype))


def unframed(coordinates: Any, back: Callable[[Any], Array], frame: Alignment) -> Array:
    """What ``back`` makes of coordinates in a frame."""
    return back(frame.undo(coordinates))


def converted(coordinates: Any, back: Callable[[Any], Array]) -> Array:
    """Rows of coordinates in memory; float32 for float32, else float64."""
    given = np.asarray(coordinates)
    return back(given).astype(float_dtype(given.dtype), copy=False)


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of what follows from numbers of this one: float32 for float32 of either byte order, else float64.

    >>> float_dtype(">f4"), float_dtype("int8")
    (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float32 if np.dtype(dtype).newbyteorder("=") == np.float32 else np.float64)


# ----------------------------------------------------------------------------------------------------- input order
# Rows back in the order of the input: left by the tasks that made them, collected by blocks of the output.

COORDINATES = "coordinates"
"""Name of what parts leave for the blocks of the output."""


def leave_rows(exchange: Exchange, part: int, at: Array, arrays: Mapping[str, Array], n: int, out_rows: int) -> None:
    """Leave each block of the output, of ``out_rows`` of ``n`` rows, what a part has of its rows, numbered ``at``."""
    order, receivers = by_receiver(at // out_rows, -(-n // out_rows))
    columns = {"at": at[order] % out_rows} | {name: array[order] for name, array in arrays.items()}
    send(exchange, COORDINATES, part, {name: (column, receivers) for name, column in columns.items()})


def restore(
    exchange: Exchange, parts: int, names: Sequence[str], n: int, out_rows: int, folder: str, first: int = 0
) -> Delivery:
    """Fill the arrays of these names in a folder with what all parts left of ``n`` rows from ``first`` on."""
    spans = [(number, first + start, first + stop) for number, (start, stop) in enumerate(bounds(n, out_rows))]
    left = merge_parcels(exchange, COORDINATES, parts)
    map_blocks(restore_rows, spans, left=left, names=names, folder=folder)
    return left


def restore_rows(number: int, start: int, stop: int, *, left: Delivery, names: Sequence[str], folder: str) -> None:
    """Collect one block of the output."""
    found = left.to(number)
    place = np.empty(stop - start, np.int64)
    place[found["at"]] = np.arange(stop - start)
    for name in names:
        write_rows(f"{folder}{name}", start, found[name][place])


def leaves_out(steps: Sequence[Any]) -> bool:
    """Whether some step leaves rows out."""
    return any(getattr(step, "drops", False) for step in steps)


def left_out_of(path: str, steps: Sequence[Any]) -> int:
    """How many of the rows of some coordinates a step left out: those that are NaN."""
    return sum(map_row_blocks(rows_at(at(path)), empty_rows, label="left out")) if leaves_out(steps) else 0


def empty_rows(block: RowBlock) -> int:
    """How many rows of a block have NaN alone."""
    return int(np.isnan(block.rows).all(axis=1).sum())
