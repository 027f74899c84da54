"""Columns averaged along the walk of a fitted map, and diffusion pseudotime: how far rows lie from a root."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from bigembed.errors import InputError
from bigembed.estimator import fitted_in_memory
from bigembed.estimator.extension import COORDINATES, leave_rows, restore
from bigembed.maps.walk.extension import WalkVectors, columns_source, inputs_of, order_of, run_of
from bigembed.maps.walk.spectral import weights_of
from bigembed.neighbors.row_weights import InputOrder, carry
from bigembed.rows import RowSource
from bigembed.runtime.blocks import BLOCK_BYTES, Array, block_rows, bounds, map_blocks, owner_of
from bigembed.runtime.parameters import at_least, declared, is_integer, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, largest, run_stages
from bigembed.store.arrays import create_rows, read_array, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import BlockMatrix
from bigembed.store.parcels import Delivery, merge_parcels
from bigembed.store.spaces import StoredSpace

# ---------------------------------------------------------------------------------------------------------- panels
# Columns of the input brought to the blocks of a graph, panel by panel, and back into the order of the input.


def write_panels(
    out: str, dtype: Any, shape: tuple[int, int], out_rows: int, blocks: int, panels: Sequence[Exchange]
) -> None:
    """What all blocks left of all panels as an array (n, c) in the order of the input."""
    create_rows(out, shape, dtype, out_rows)
    spans = [(number, *span) for number, span in enumerate(bounds(shape[0], out_rows))]
    left = [merge_parcels(aside, COORDINATES, blocks) for aside in panels]
    map_blocks(write_block, spans, panels=left, out=out, dtype=dtype)


def collect_block(b: int, carried: Delivery) -> tuple[tuple[Array], None]:
    """A panel of the columns of one block, in the order of the graph."""
    found = carried.to(b)
    return (found["columns"][np.argsort(found["at"])],), None


def leave_block(b: int, own: Array, order: InputOrder, out_rows: int, aside: Exchange) -> tuple[tuple[()], None]:
    """Leave the panel of one block for the blocks of the output."""
    leave_rows(aside, b, order.ids(b), {"smoothed": own}, order.starts[-1], out_rows)
    return (), None


def write_block(number: int, start: int, stop: int, *, panels: Sequence[Delivery], out: str, dtype: Any) -> None:
    """Collect all panels of one block of the output."""
    parts = []
    for panel in panels:
        found = panel.to(number)
        parts.append(found["smoothed"][np.argsort(found["at"])])
    write_rows(out, start, np.concatenate(parts, axis=1).astype(dtype))


# ------------------------------------------------------------------------------------------------------- smoothing
# Columns averaged along the walk of a fitted map, PᵗX: by panels of columns, block by block, in the store.


@declared
def smooth(
    fitted: Any, columns: Any, t: Annotated[int, at_least(0)] = 3, *, workdir: str | os.PathLike[str] | None = None
) -> Any:
    """Average columns over random walks of t steps from each row: PᵗX, P = D^{-1} W of a fitted map.

    What is noise from row to row is averaged out, and missing counts are filled in from similar rows (MAGIC, van Dijk
    et al. 2018, with the kernel of the map).

    Parameters
    ----------
    fitted : DiffusionMap
        The fitted :class:`bigembed.DiffusionMap`, of rows or of a graph.
    columns : array of shape (n, c) or (n,)
        The columns to average, in the order of the input: a NumPy, SciPy sparse, Dask or zarr array, or the path of a
        Zarr array or .npy. They need not be the rows that were fitted.
    t : int ≥ 0
        The number of steps: 1 averages over the neighbors once; beyond some 10 all columns come near to their mean.
    workdir : path or None
        Where the result is kept as a published stage; None is a temporary folder.

    Returns
    -------
    array
        The averages, in the form of ``columns``, of their dtype (float64 for integers of 32 bits and more): NumPy where
        they were in memory, else a lazy Dask array.

    Raises
    ------
    InputError
        If there is not one row for each row that was fitted, entries are NaN or infinite (rows are named), or these are
        not numbers.
    InputTypeError
        If this is not a fitted map of a walk, or it is a saved model, which does not hold it.

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

    nonzero, panels = fitted.results("kernel")["nonzero"], -(-width // panel)
    cost = Cost.of(
        reads=[ArraySpec("columns", n, width), ArraySpec("weights/*", nonzero, times=t * panels)],
        writes=[ArraySpec("smoothed", n, width, columns.work)],
        leaves=[ArraySpec("columns in the order of the graph, and smoothed ones", n, width, times=3)],
        posts=[ArraySpec("columns", n, width, times=t)],
        task=largest(
            [ArraySpec("columns of a block", rows, panel, times=5)],
            [ArraySpec("columns of the output", out_rows, width, times=4)],
        ),
        passes=1 + t * panels,
        scalar_ops=float(nonzero) * t * width,
        maps=4 + (t + 2) * panels,
    )
    parameters = {"columns": columns.fingerprint(), "t": t}
    return Stage("smooth", inputs_of(fitted), parameters, partial(run_smooth, columns=columns, t=t, panel=panel), cost)


def run_smooth(context: Context, columns: RowSource, t: int, panel: int) -> dict[str, Any]:
    matrix, degree = weights_of(context), context.of("kernel", "degree")
    order, exchange, (n, width) = order_of(context), context.exchange, columns.shape
    out_rows = block_rows(width, 8)
    panels = [slice(*span) for span in bounds(width, panel)]
    carried = carry(columns, order, panels, exchange)
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


def step_block(b: int, own: Array, halo: Array, weights: BlockMatrix, degree: str) -> tuple[tuple[Array], None]:
    """D^{-1} W X of one block."""
    block = weights.block(b)
    rows = sparse.csr_array((block.data, block.indices, block.indptr), (len(own), len(own) + len(halo)))
    return ((rows @ np.concatenate([own, halo])) / read_array(f"{degree}/{b}")[:, None],), None


# ------------------------------------------------------------------------------------------------------ pseudotime
# Diffusion pseudotime: how far the rows lie from a root, by random walks of every length.


@declared
def diffusion_pseudotime(
    fitted: Any,
    root: int,
    *,
    eigenvectors: Annotated[str, one_of("symmetric", "right")] = "symmetric",
    workdir: str | os.PathLike[str] | None = None,
) -> Any:
    """Compute the diffusion pseudotime of all rows from a root, by all eigenpairs that a diffusion map computed.

    dpt(x)² = Σ_l (λ_l/(1 − λ_l))² (φ_l(x) − φ_l(root))² (Haghverdi et al. 2016): the distance between two sums over
    t ≥ 1, of the distributions after t steps of walks from x and from the root, less the stationary distribution.

    Parameters
    ----------
    fitted : DiffusionMap
        The fitted :class:`bigembed.DiffusionMap`, of rows or of a graph. Its n_components decides how many eigenpairs
        there are; 10 to 15 are usual. Scanpy's graph has alpha=1.
    root : int
        The row of the input where time begins.
    eigenvectors : {"symmetric", "right"}
        Whose eigenvectors are taken: "symmetric" takes those of D^{-1/2} W D^{-1/2}, as in the paper and in scanpy;
        "right" takes those of the walk, whose differences are diffusion distances.
    workdir : path or None
        Where the result is kept as a published stage; None is a temporary folder.

    Returns
    -------
    array of shape (n,), float64
        The pseudotimes in the order of the input, 0 at the root, infinite where no walk from the root comes: NumPy
        where the rows were, else a lazy Dask array. Scanpy divides it by its largest finite value, and leaves the
        factor out where λ ≥ .9994, so that little is left of slow branches.

    Raises
    ------
    InputError
        If the root is outside 0 … n−1, or in a component that was not embedded.
    InputTypeError
        If this is not a fitted map of a walk, or it is a saved model, which does not hold it.

    Notes
    -----
    Cost: one pass over the eigenvectors (n, m); memory: a few blocks of them. Rows that repeat have one pseudotime.

    References
    ----------
    L. Haghverdi, M. Büttner, F. A. Wolf, F. Buettner, F. Theis, Diffusion pseudotime robustly reconstructs lineage
    branching, Nature Methods 13 (2016).

    Examples
    --------
    >>> import bigembed as be
    >>> path = be.open_graph(np.array([[0, 1], [1, 2], [2, 3]]), symmetrize="max")
    >>> diffusion_pseudotime(be.DiffusionMap(n_components=1, alpha=0).fit(path), 0).round(2).tolist()
    [0.0, 0.17, 0.99, 1.15]
    """
    source = run_of(fitted, "diffusion_pseudotime")
    n, width = source.results("components")["rows"], source.parameters("solve")["n_components"]
    if not is_integer(root) or not 0 <= root < n:
        raise InputError(f"root={root!r}; the number of a row of the input is needed, from 0 to {n - 1}")

    block = min(n, max(source.results("kernel")["rows"]))
    cost = Cost.of(
        reads=[ArraySpec("right/*", n, width)],
        writes=[ArraySpec("pseudotime", n)],
        leaves=[ArraySpec("distances and row numbers", n, 2)],
        task=[ArraySpec("right/*", block, width, times=3)],
        maps=3,
    )
    home = Run(workdir, parents=[source])
    parameters = {"root": int(root), "eigenvectors": eigenvectors}
    run = partial(run_diffusion_pseudotime, root=root, eigenvectors=eigenvectors, n=n)
    run_stages([Stage("pseudotime", inputs_of(source), parameters, run, cost)], home)
    return home.array("pseudotime", "pseudotime", fitted_in_memory(fitted))


def run_diffusion_pseudotime(
    context: Context, root: int, eigenvectors: Annotated[str, one_of("symmetric", "right")], n: int
) -> dict[str, Any]:
    vectors = WalkVectors.of(context, eigenvectors == "symmetric")
    tasks = [(b,) for b in range(vectors.order.blocks)]
    internal = max(map_blocks(find_block, tasks, order=vectors.order, row=int(root)))
    scale, origin, component = _from_root(context, vectors, internal)
    out_rows = block_rows(1, 8)
    fixed: dict[str, Any] = {
        "vectors": vectors,
        "scale": scale,
        "origin": origin,
        "component": component,
        "out_rows": out_rows,
    }
    map_blocks(pseudotime_block, tasks, **fixed, exchange=context.exchange)
    create_rows(context.path("pseudotime"), (n,), np.float64, out_rows)
    restore(context.exchange, len(tasks), ("pseudotime",), n, out_rows, context.path(""))
    return {"root": int(root), "eigenpairs": int(np.count_nonzero(scale))}


def _from_root(context: Context, vectors: WalkVectors, internal: int) -> tuple[Array, Array, int]:
    """λ/(1 − λ) of the eigenvectors of the root's component (0 of others), the root's entries, and its component."""
    solve, found = context.results("solve"), context.results("coordinates")
    b = int(owner_of(vectors.order.starts, internal))
    row = internal - vectors.order.starts[b]
    label = int(read_array(f"{vectors.labels}/{b}", row, row + 1)[0])
    if label >= found["parts"]:
        raise InputError(
            f"the root lies in component {label}, which has no coordinates of its own (its rows have those of the "
            "nearest row outside). Take a root in a larger one, or components='joint'"
        )
    values = read_array(context.of("solve", "eigenvalues"))
    values = values[label] if values.ndim == 2 else values
    columns = solve["columns"]
    own = np.array([c == label and index >= 0 for c, index in columns]) if columns else np.ones(len(values), bool)
    scale = np.where(own, values / np.maximum(1.0 - values, np.finfo(np.float64).eps), 0.0)
    if vectors.symmetric:
        joint = found["parts"] > 1 and bool(columns)
        scale = scale / np.sqrt(sum(solve["degree_sums"]) if joint else solve["degree_sums"][label])
    return scale, vectors.block(b)[row], label


def find_block(b: int, *, order: InputOrder, row: int) -> int:
    """The internal id of a row of the input that this block holds, else −1."""
    found = np.flatnonzero(order.ids(b) == row)
    return int(found[0]) + order.starts[b] if len(found) else -1


def pseudotime_block(
    b: int, *, vectors: WalkVectors, scale: Array, origin: Array, component: int, out_rows: int, exchange: Exchange
) -> None:
    """Σ over the eigenvectors, of one block, left for the blocks of the output."""
    apart = np.sqrt(np.square((vectors.block(b) - origin) * scale).sum(axis=1))
    apart[read_array(f"{vectors.labels}/{b}") != component] = np.inf
    leave_rows(exchange, b, vectors.order.ids(b), {"pseudotime": apart}, vectors.order.starts[-1], out_rows)
