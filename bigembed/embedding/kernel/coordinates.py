"""The coordinates of the rows that the exact solver of kernel PCA had."""

from __future__ import annotations

from typing import Any

from bigembed.blocks.rows import block_rows, bounds, map_blocks
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import create_rows, read_array, write_rows


def fitted_stage(n: int, m: int, dtype: Any) -> Stage:
    """``coordinates/embedding`` (n, m) = √λ V, from the eigenvectors themselves, in the precision of the rows."""

    def run(context: Context) -> dict[str, Any]:
        width, rows = context.results("solve")["n_components"], block_rows(m, 8)
        create_rows(context.path("embedding"), (n, width), dtype, rows)
        fixed = {"solve": context.of("solve").rstrip("/"), "out": context.path("embedding"), "dtype": dtype}
        map_blocks(fitted_block, bounds(n, rows), **fixed)
        return {"n_components": width}

    size = 8 * n * m
    return Stage(
        "coordinates", ("solve",), {"dtype": str(dtype)}, run, Cost(read=size, write=size, disk=size, memory=3 * size)
    )


def fitted_block(start: int, stop: int, *, solve: str, out: str, dtype: Any) -> None:
    """√λ v = λ · (v/√λ) of some rows."""
    values = read_array(f"{solve}/eigenvalues")
    write_rows(out, start, (read_array(f"{solve}/matrix", start, stop) * values).astype(dtype))
