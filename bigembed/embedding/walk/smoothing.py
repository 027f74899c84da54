"""Columns averaged along the walk of a fitted map, PᵗX: by panels of columns, block by block, in the store."""

from __future__ import annotations

import os
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from bigembed.blocks.csr import BlockMatrix
from bigembed.blocks.declared import at_least, declared
from bigembed.blocks.rows import BLOCK_BYTES, Array, block_rows, bounds
from bigembed.embedding.walk.fitted_walk import InputOrder, columns_source, inputs_of, run_of
from bigembed.embedding.walk.panels import carry, collect_block, leave_block, write_panels
from bigembed.embedding.walk.spectral import weights_of
from bigembed.runs import Run
from bigembed.stages import Context, Cost, Stage, run_stages
from bigembed.store.arrays.io import read_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.stored_space import StoredSpace
from bigembed.store.rows.source import RowSource


@declared
def smooth(
    fitted: Any, columns: Any, t: Annotated[int, at_least(0)] = 3, *, workdir: str | os.PathLike[str] | None = None
) -> Any:
    """Average columns over random walks of t steps from each row: PᵗX, P = D^{-1} W of a fitted map.

    What is noise from row to row is averaged out, and missing counts are filled in from similar rows (MAGIC, van Dijk
    et al. 2018, with the kernel of the map).

    Parameters
    ----------
    fitted : a fitted :class:`bigembed.DiffusionMap`, of rows or of a graph.
    columns : (n, c) or (n,) in the order of the input: NumPy, SciPy sparse, Dask, Zarr, or a path of a Zarr array or
        .npy. They need not be the rows that were fitted.
    t : int ≥ 0. Steps: 1 averages over the neighbors once; beyond some 10 all columns come near to their mean.
    workdir : path or None. Where the result is kept as a published stage; None is temporary.

    Returns
    -------
    An array like ``columns``, of their dtype (float64 for integers of 32 bits and more): NumPy where they were in
    memory, else a lazy Dask array.

    Raises
    ------
    InputError : not one row a row that was fitted, NaN or infinity (rows named), not numbers.
    InputTypeError : not a fitted map of a walk, or a saved model, which does not hold it.

    Notes
    -----
    Cost: one pass over the columns, t passes over the kernel for each panel of columns, of about 32 MiB a block.
    Memory: a few such blocks; scratch 16·n·c bytes. Averages keep the mean of a column, weighted by the degrees.

    References
    ----------
    D. van Dijk et al., Recovering gene interactions from single-cell data using data diffusion, Cell 174 (2018).

    Examples
    --------
    >>> import bigembed as be
    >>> path = be.open_graph(np.array([[0, 1], [1, 2]]), symmetrize="max")
    >>> smooth(be.DiffusionMap(n_components=1, alpha=0).fit(path), np.array([1.0, 2.0, 5.0]), 1).tolist()
    [2.0, 3.0, 2.0]
    """
    source = run_of(fitted, "smooth")
    home = Run(workdir, parents=[source])
    n = source.results("components")["rows"]
    given, in_memory, flat = columns_source(columns, n, home.root / "exchange")
    run_stages([smooth_stage(source, given, int(t))], home)
    found = home.array("smooth", "smoothed", in_memory)
    return found[:, 0] if flat else found


def smooth_stage(fitted: Run, columns: RowSource, t: int) -> Stage:
    """``smoothed`` (n, c), in the order of the input."""
    (n, width), rows = columns.shape, max(fitted.results("kernel")["rows"])
    out_rows, panel = block_rows(width, 8), min(width, max(1, BLOCK_BYTES // (8 * rows)))

    def run(context: Context) -> dict[str, Any]:
        order, exchange = InputOrder.of(context), context.exchange
        panels = [slice(*span) for span in bounds(width, panel)]
        carried = carry(columns, order, panels, exchange)
        matrix, degree = weights_of(context), context.of("kernel", "degree")
        asides = [Exchange(f"{exchange.root}/panel{number}") for number in range(len(panels))]
        for number, aside in enumerate(asides):
            space = StoredSpace(matrix, aside)
            space.sweep(collect_block, writes=["x0"], posts=["x0"], arguments=(carried[number],))
            for step in range(t):
                now, new = f"x{step}", f"x{step + 1}"
                space.sweep(step_block, reads=[now], halos=[now], writes=[new], posts=[new], arguments=(matrix, degree))
                space.drop(now)
            space.sweep(leave_block, reads=[f"x{t}"], arguments=(order, out_rows, aside))
            space.drop(f"x{t}")
        write_panels(context.path("smoothed"), columns.work, (n, width), out_rows, order.blocks, asides)
        return {"t": t, "panels": len(panels)}

    held, nonzero = 8 * n * width, fitted.results("kernel")["nonzero"]
    cost = Cost(
        passes=1 + t * -(-width // panel),
        read=(2 + 2 * t) * held + 8 * nonzero * t * -(-width // panel),
        write=(2 + t) * held,
        disk=columns.work.itemsize * n * width,
        scratch=3 * held,
        memory=max(5 * 8 * rows * panel, 4 * 8 * out_rows * width),
        scalar_ops=float(nonzero) * t * width,
        maps=4 + (t + 2) * -(-width // panel),
    )
    return Stage("smooth", inputs_of(fitted), {"columns": columns.fingerprint(), "t": t}, run, cost)


def step_block(b: int, own: Array, halo: Array, weights: BlockMatrix, degree: str) -> tuple[tuple[Array], None]:
    """D^{-1} W X of one block."""
    block = weights.block(b)
    rows = sparse.csr_array((block.data, block.indices, block.indptr), (len(own), len(own) + len(halo)))
    return ((rows @ np.concatenate([own, halo])) / read_array(f"{degree}/{b}")[:, None],), None
