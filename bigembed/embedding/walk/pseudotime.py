"""Diffusion pseudotime: how far the rows lie from a root, by random walks of every length."""

from __future__ import annotations

import os
from typing import Annotated, Any

import numpy as np

from bigembed.blocks.declared import declared, is_integer, one_of
from bigembed.blocks.owners import owner_of
from bigembed.blocks.rows import Array, block_rows, map_blocks
from bigembed.embedding.input_order import leave_rows, restore
from bigembed.embedding.walk.fitted_walk import InputOrder, WalkVectors, inputs_of, run_of
from bigembed.errors import InputError
from bigembed.runs import Run
from bigembed.stages import Context, Cost, Stage, run_stages
from bigembed.store.arrays.io import create_rows, read_array
from bigembed.store.blockwise.exchange import Exchange


@declared
def diffusion_pseudotime(
    fitted: Any,
    root: int,
    *,
    eigenvectors: Annotated[str, one_of("symmetric", "right")] = "symmetric",
    workdir: str | os.PathLike[str] | None = None,
) -> Any:
    """Diffusion pseudotime of all rows from a root, by all eigenpairs that a diffusion map computed.

    dpt(x)² = Σ_l (λ_l/(1 − λ_l))² (φ_l(x) − φ_l(root))² (Haghverdi et al. 2016): the distance between the sums over
    all t ≥ 1 of where walks from x and from the root are after t steps, without where all walks end.

    Parameters
    ----------
    fitted : a fitted :class:`bigembed.DiffusionMap`, of rows or of a graph. n_components decides how many eigenpairs
        there are; 10 to 15 are usual. Scanpy's graph has alpha=1.
    root : int, the row of the input where time begins.
    eigenvectors : "symmetric", those of D^{-1/2} W D^{-1/2}, as in the paper and in scanpy; or "right", those of the
        walk, whose differences are diffusion distances.
    workdir : path or None. Where the result is kept as a published stage; None is temporary.

    Returns
    -------
    (n,) float64 in the order of the input, 0 at the root, infinite where no walk from the root comes. NumPy where the
    rows were, else a lazy Dask array. Scanpy's is this over its largest finite value, but that scanpy leaves the factor
    out where λ ≥ .9994: of slow branches little is then left.

    Raises
    ------
    InputError : a root outside 0 … n−1, or in a component that was not embedded.
    InputTypeError : not a fitted map of a walk, or a saved model, which does not hold it.

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

    def run(context: Context) -> dict[str, Any]:
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

    block = min(n, max(source.results("kernel")["rows"]))
    cost = Cost(read=8 * n * (width + 2), write=24 * n, disk=8 * n, scratch=16 * n, memory=24 * block * width, maps=3)
    home = Run(workdir, parents=[source])
    parameters = {"root": int(root), "eigenvectors": eigenvectors}
    run_stages([Stage("pseudotime", inputs_of(source), parameters, run, cost)], home)
    return home.array("pseudotime", "pseudotime", fitted._in_memory)


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
