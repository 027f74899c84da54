"""Coordinates of the fitted rows, written by blocks: from eigenvectors, or from what a pass left of each block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigembed.blocks.rows import Array, block_rows, bounds, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import create_rows, read_array, write_rows
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.source import RowSource


def fitted_stage(n: int, m: int, dtype: Any, factor: float = 1.0) -> Stage:
    """``coordinates/embedding`` (n, m) = √λ v, as ``factor`` A λ from ``solve/matrix`` A = v/(factor √λ), by blocks."""

    def run(context: Context) -> dict[str, Any]:
        width, rows = context.results("solve")["n_components"], block_rows(m, 8)
        create_rows(context.path("embedding"), (n, width), dtype, rows)
        values = factor * read_array(context.of("solve", "eigenvalues"))
        paths = {"matrix": context.of("solve", "matrix"), "out": context.path("embedding")}
        map_blocks(fitted_block, bounds(n, rows), values=values, dtype=dtype, **paths)
        return {"n_components": width}

    size = 8 * n * m
    cost = Cost(read=size, write=size, disk=size, memory=3 * size)
    return Stage("coordinates", ("solve",), {"dtype": str(dtype)}, run, cost)


def fitted_block(start: int, stop: int, *, matrix: str, values: Any, out: str, dtype: Any) -> None:
    """√λ v of some rows."""
    write_rows(out, start, (read_array(matrix, start, stop) * values).astype(dtype))


def write_finished(
    source: RowSource, exchange: Exchange, name: str, finish: Callable[[Array], Array], out: str, width: int, dtype: Any
) -> None:
    """An array (n, width) of what ``finish`` makes of the rows that each block left under ``name``."""
    create_rows(out, (source.shape[0], width), dtype, source.block, overwrite=True)
    spans = [(number, start) for number, (start, _) in enumerate(bounds(source.shape[0], source.block))]
    map_blocks(finished_block, spans, name=name, finish=finish, exchange=exchange, out=out)


def finished_block(
    number: int, start: int, *, name: str, finish: Callable[[Array], Array], exchange: Exchange, out: str
) -> None:
    """Finish and write one block."""
    write_rows(out, start, finish(exchange.piece(name, number, "own")))
