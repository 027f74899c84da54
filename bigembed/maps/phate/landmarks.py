"""Landmarks of PHATE: groups of rows that the walk brings together, or from which it leads to the same places."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.walk.spectral import weights_of
from bigembed.neighbors import nearest_centers, order, partition
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.stages import ArraySpec, Context, Cost, Stage, buffer
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.spaces import StoredSpace

# Landmarks are groups of near rows: in each block of the graph, which holds near rows, by k-means into as many groups
# as its share of the rows. Rows come with noise that the walk does not see, and that is most of what is left within a
# group of a few. So it is Pˢ X that is divided, the rows X averaged over their neighbors s times, by sweeps over the
# edges; more than WIDE columns of these times random numbers first, which keeps distances (Johnson & Lindenstrauss
# 1984). (Of 10 000 of MNIST and of cells, at one t, the stress of the map to the potentials without landmarks is .298
# and .253 by groups of X, .271 and .235 of P⁴ X, and .276 and .232 with the landmarks of phate, spectral clusters; of
# cells .231 of P⁸ X.)
#
# Of given distances there are no rows. There rows are alike from which the walk goes to the same places: the rows of
# Pˢ, each entry over the root of the degree, are as far apart as the walk's distributions after s steps (the diffusion
# distance). So Pˢ D^{−1/2} R, with WIDTH columns of normal random numbers R, is divided. (For rows it was tried, too:
# of a tree in 100 dimensions trustworthiness is .94 by the walk and .99 by rows, of cells .74 and .84.)

WIDTH = 48
"""Random columns, where there are no rows."""
WIDE = 128
"""Columns of rows that are averaged as they are."""
STEPS = 4
"""Steps of the walk after which random columns are divided."""
AVERAGED = 8
"""Steps for which rows are averaged."""
GROUP_STEPS = 8
"""Lloyd's iterations among the groups of a block, and in each of them."""


def landmark_count(graph: GraphShape, wanted: int) -> int:
    """Return how many landmarks a plan counts with: each block has one at least.

    >>> few, many = GraphShape(5_000, 2_048), GraphShape(10**8, 16_384)
    >>> landmark_count(few, 8_000), landmark_count(few, 2_000), landmark_count(many, 2_000)
    (5000, 2000, 6104)
    """
    return min(graph.n, max(wanted, -(-graph.n // graph.block)))


def landmarks_stage(graph: GraphShape, edges: int, wanted: int, seed: int) -> Stage:
    """``cluster/b``: the landmark of each row, int32; every row is its own where there are no more than wanted."""
    n, block, few = graph.n, min(graph.block, graph.n), graph.n <= wanted
    walks = graph.rowless and not few
    steps, width = (0, 0) if few else (STEPS, WIDTH) if walks else (AVERAGED, min(graph.width, WIDE))
    dtype = "f4" if walks else graph.dtype
    columns = ArraySpec("columns of the rows and of the halo", n, width, dtype, 2 * (steps + 1))
    rows = ArraySpec("rows", block, graph.row_bytes, "u1", 0 if few or walks else 2)
    in_each = -(-wanted * block // n)
    cost = Cost.of(
        reads=[
            ArraySpec("edges", edges, 3, times=steps),
            ArraySpec("rows", n, graph.row_bytes, "u1", 0 if few or walks else 1),
        ],
        writes=[ArraySpec("cluster/*", n, dtype="i4")],
        leaves=[columns, ArraySpec("groups", n, dtype="i4")],
        task=[
            rows,
            ArraySpec("edges", -(-edges // n) * block, 4, times=min(1, steps)),
            ArraySpec("columns", block, width, dtype, 12),
            buffer("tiles", 32 << 20),
        ],
        passes=steps,
        flops=4 * n * max(1, in_each) ** 0.5 * (GROUP_STEPS + 1) * width,
        scalar_ops=edges * steps * width / 8,
        maps=steps + 3 if steps else 2,
    )
    parameters: dict[str, Any] = {"n_landmarks": wanted}
    parameters |= {"seed": seed} if not few else {}
    parameters |= {} if few else {"steps": steps, "width": width}
    run = partial(run_landmarks, wanted=wanted, seed=seed, few=few, walks=walks, steps=steps)
    return Stage("landmarks", ("kernel", graph.stage, "order"), parameters, run, cost)


def run_landmarks(context: Context, wanted: int, seed: int, few: bool, walks: bool, steps: int) -> dict[str, Any]:
    weights, out, degree = weights_of(context), context.path("cluster"), context.of("kernel", "degree")
    starts = offsets(weights.rows)
    n = int(starts[-1])
    if few:
        map_blocks(own_block, [(b,) for b in range(len(weights.rows))], starts=starts, out=out)
        return {"landmarks": n, "every_row": True, "n": n}
    if walks:
        columns = _walked(context, weights, degree, steps, random_block, (degree, seed))
    else:
        columns = _walked(context, weights, degree, steps, rows_block, (order.Ordered.open(context.of("order")), seed))
    blocks = [(b,) for b in range(len(weights.rows))]
    divided: dict[str, Any] = {"shares": shares_of(starts, wanted), "seed": seed, "exchange": context.exchange}
    found = map_blocks(group_block, blocks, space=columns, name=f"columns{steps}", **divided)
    first = offsets(found)
    map_blocks(number_block, blocks, first=first, exchange=context.exchange, out=out)
    return {"landmarks": int(first[-1]), "every_row": False, "n": n}


def _walked(
    context: Context, weights: StoredMatrix, degree: str, steps: int, begin: Callable[..., Any], given: tuple[Any, ...]
) -> StoredSpace:
    """Return the space with Pˢ x as its last columns, x what a block begins with."""
    space = StoredSpace(weights, context.exchange)
    space.sweep(begin, writes=["columns0"], posts=["columns0"], arguments=given)
    for step in range(steps):
        before, after = f"columns{step}", f"columns{step + 1}"
        space.sweep(
            step_block, reads=[before], halos=[before], writes=[after], posts=[after], arguments=(weights, degree)
        )
        space.drop(before)
    return space


def shares_of(starts: Array, wanted: int) -> Array:
    """Return how many landmarks each block gets, at least one: its share of the rows.

    >>> shares_of(np.array([0, 60, 61, 100]), 10).tolist()
    [6, 1, 4]
    """
    return np.asarray(np.maximum(1, np.diff(np.rint(starts * (wanted / starts[-1])).astype(np.int64))))


def own_block(b: int, *, starts: Array, out: str) -> None:
    """Write that every row of a block is its own landmark."""
    write_array(f"{out}/{b}", np.arange(starts[b], starts[b + 1], dtype=np.int32))


def random_block(b: int, degree: str, seed: int) -> tuple[tuple[Array], None]:
    """Return D^{−1/2} R of one block, (rows, WIDTH)."""
    d = read_array(f"{degree}/{b}")
    random = np.random.default_rng([seed, 17, b]).standard_normal((len(d), WIDTH), np.float32)
    return (random / np.sqrt(d)[:, None].astype(np.float32),), None


def rows_block(b: int, ordered: order.Ordered, seed: int) -> tuple[tuple[Array], None]:
    """Return the rows of one block, the sketches of sparse ones; of many columns a projection to :data:`WIDE`."""
    rows = ordered.rows(b)
    if rows.shape[1] > WIDE:
        random = np.random.default_rng([seed, 18]).standard_normal((rows.shape[1], WIDE), np.float32)
        rows = rows @ (random / np.float32(WIDE**0.5)).astype(rows.dtype)
    return (np.ascontiguousarray(rows),), None


def step_block(b: int, own: Array, halo: Array, weights: StoredMatrix, degree: str) -> tuple[tuple[Array], None]:
    """Return P x of one block: averages over the edges of its rows."""
    return (averages(weights, b, np.concatenate([own, halo]), read_array(f"{degree}/{b}")),), None


def averages(weights: StoredMatrix, b: int, values: Array, degree: Array) -> Array:
    """Return Σ_j w_ij x_j / d_i for the rows of a block, of values of its own rows and then those of its halo."""
    block = weights.block(b)
    matrix = csr_array((block.data.astype(values.dtype), block.indices, block.indptr), shape=(len(degree), len(values)))
    return np.asarray(matrix @ values / degree[:, None].astype(values.dtype))


def group_block(b: int, *, space: StoredSpace, name: str, shares: Array, seed: int, exchange: Exchange) -> int:
    """Divide what the walk has made of the rows of a block, and leave the group of each; return how many there are."""
    labels = grouped(np.ascontiguousarray(space.read(name, b)), int(shares[b]), [seed, 19, b])
    exchange.put("groups", b, {"labels": labels})
    return int(labels.max()) + 1


def grouped(points: Array, count: int, seed: list[int]) -> Array:
    """Divide points (n, w) into about ``count`` groups by k-means in two levels; return labels int32.

    >>> grouped(np.array([[0.0], [0.1], [5.0], [5.1]]), 2, [0])[[0, 2]].tolist()
    [0, 1]
    """
    count = min(count, len(points))
    coarse = partition.kmeans(points, max(1, round(count**0.5)), [*seed, 0], GROUP_STEPS)
    home = nearest_centers(points, coarse)
    sizes = np.bincount(home, minlength=len(coarse))
    ends = np.rint(np.cumsum(sizes) * (count / len(points))).astype(np.int64)
    wanted = np.minimum(np.diff(ends, prepend=0), sizes)
    labels, used = np.empty(len(points), np.int64), 0
    wanted[(wanted == 0) & (sizes > 0)] = 1  # (a few more than ``count``)
    for group in np.flatnonzero(sizes):
        members = np.flatnonzero(home == group)
        inside = points[members]
        centers = partition.kmeans(inside, int(wanted[group]), [*seed, 1, int(group)], GROUP_STEPS)
        labels[members] = used + nearest_centers(inside, centers)
        used += int(wanted[group])
    return np.unique(labels, return_inverse=True)[1].astype(np.int32)


def number_block(b: int, *, first: Array, exchange: Exchange, out: str) -> None:
    """Write the landmarks of a block, numbered through all blocks."""
    write_array(f"{out}/{b}", (exchange.piece("groups", b, "labels") + first[b]).astype(np.int32))
