"""The coordinates of the rows that a solver had, from its eigenvectors."""

from __future__ import annotations

from typing import Any

from bigembed.blocks.rows import block_rows, bounds, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import create_rows, read_array, write_rows


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
