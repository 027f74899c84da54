"""UMAP: attraction along sampled edges of a graph, and repulsion of sampled rows.

The stages that follow a neighbor graph, or a user's weights, are here, those of labels among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps import descended, labels_stage, write_map
from bigembed.maps.graph_judgement import map_judgement_stages
from bigembed.maps.start import Scale
from bigembed.maps.umap.density import DensityOptions, density_descent_stage, density_stage, radii_stage
from bigembed.maps.umap.descent import SamplingOptions, mass_before, rows_of_pool, sampled_descent_stage, share_block
from bigembed.maps.umap.views import TARGET, Combination, combined_stage
from bigembed.neighbors.order import input_rows
from bigembed.neighbors.row_weights import values_path
from bigembed.neighbors.views import SECOND, views_stage
from bigembed.rows import RowSource
from bigembed.rows.labels import Labels
from bigembed.runtime.blocks import Array, map_blocks, offsets
from bigembed.stages import ArraySpec, Context, Cost, Stage, within
from bigembed.store.arrays import read_array, read_rows, write_array
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ------------------------------------------------------------------------------------------------------------ labels
# Labels on the graph: edges between classes weaken, and each row's strongest edge counts as one again.

FAR = 2.5
"""Distance of classes at ``target_weight`` 0."""
UNKNOWN = 1.0
"""Distance to a row without a label."""
FARTHEST = 700.0
"""Distance at the most: exp(−700) is a number yet, so that a row among other classes only keeps its edges."""
UNLABELLED = -1
"""The label that says, as scikit-learn and umap-learn have it, that there is none."""
DOUBTED, UNRELATED = 0.5, 0.2
"""Agreement of labels with the graph, beyond chance, below which a map by labels shows these more than the rows; and
below which it shows nothing else.

Iris, wine and breast cancer have .86 and .87, digits .93, MNIST .90, cells by their manual gates .9; with the labels of
two in ten rows wrong digits have .57 and MNIST .54, of three .44 and .41, of five .18 and .17; labels that were
shuffled, or brought out of order, 0.
"""


@dataclass(frozen=True)
class LabelDistances:
    """How far two rows are by their labels, in units in which a membership falls by e."""

    far: float
    """Of different classes."""
    unknown: float = UNKNOWN
    """Where one of them has no label."""

    @classmethod
    def of(cls, weight: float) -> LabelDistances:
        """Return the distances that umap-learn takes for a ``target_weight``: 2.5/(1 − weight) between classes.

        >>> LabelDistances.of(0.5), LabelDistances.of(1.0).far
        (LabelDistances(far=5.0, unknown=1.0), 700.0)
        """
        return cls(FAR / (1.0 - weight) if 1.0 - weight > FAR / FARTHEST else FARTHEST)


def without_unknown(labels: Labels) -> Labels:
    """Return labels of which −1 is no class; InputError where no row has one.

    >>> from bigembed.rows.labels import read_labels
    >>> found = without_unknown(read_labels([-1, 4, 2, -1]))
    >>> found.classes.tolist(), found.codes.tolist()
    ([2, 4], [-1, 1, 0, -1])
    """
    classes, codes = labels.classes, labels.codes
    if classes.dtype.kind in "if" and len(classes) and (known := classes != UNLABELLED).sum() < len(classes):
        place = np.append(np.where(known, np.cumsum(known) - 1, UNLABELLED), UNLABELLED)
        codes, classes = place[codes].astype(np.int32), classes[known]
        labels = Labels(codes.shape, np.dtype(np.int32), array=codes, classes=classes)
    if not len(classes):
        raise InputError("no row has a label (−1, NaN and None are none). Give some, or leave target_metric out")
    return labels


# ---------------------------------------------------------------------------------------------------------- blocks
# v_ij = w_ij exp(−distance of the labels of i and j); w'_ij = a + b − ab of a = v_ij / max_j v_ij and b = v_ij / max_i
# v_ij (umap-learn's intersection with a discrete space, and its reset of local connectivity).


def labelled_weights(block: CSRBlock, codes: Array, asked: LabelDistances) -> Array:
    """Return v of the entries of a block of weights, float64; ``codes`` of its rows, then of its halo."""
    mine, theirs = codes[block.row], codes[block.indices]
    distance = np.where(mine == theirs, 0.0, asked.far)
    distance[(mine < 0) | (theirs < 0)] = asked.unknown
    return block.data * np.exp(-distance)


def strongest(block: CSRBlock, values: Array) -> Array:
    """Return the largest value of each row of a block; 0 of a row without entries."""
    out, filled = np.zeros(len(block.indptr) - 1), np.flatnonzero(np.diff(block.indptr))
    if len(filled):
        out[filled] = np.maximum.reduceat(values, block.indptr[filled])
    return out


def reconnected(block: CSRBlock, values: Array, largest: Array) -> Array:
    """Return the weights in which the strongest edge of each row counts as one, float32.

    ``largest`` value of the rows, and of the halo.
    """
    scale = 1.0 / np.where(largest > 0, largest, np.inf)
    mine, theirs = values * scale[block.row], values * scale[block.indices]
    return (mine + theirs - mine * theirs).astype(np.float32)


def code_block(b: int, codes: str, order: str, starts: Array) -> tuple[tuple[Array], None]:
    """Return the class numbers of a block, as it has its rows."""
    ids = input_rows(order, b, starts)
    return (read_rows(codes, ids)[:, None],), None


def strongest_block(
    b: int, codes: Array, halo: Array, weights: StoredMatrix, asked: LabelDistances
) -> tuple[tuple[Array], tuple[float, float, int]]:
    """Return the largest v of each row; of pairs with labels the weight within classes, that of all, and their number.

    Of w as it was before.
    """
    block, both = weights.block(b), np.concatenate([codes, halo])[:, 0]
    mine, theirs = both[block.row], both[block.indices]
    known = (mine >= 0) & (theirs >= 0) & (block.data > 0)
    same = float(block.data[known & (mine == theirs)].sum(dtype=np.float64))
    figures = same, float(block.data[known].sum(dtype=np.float64)), int(np.count_nonzero(known))
    return (strongest(block, labelled_weights(block, both, asked))[:, None],), figures


def labelled_block(
    b: int, codes: Array, largest: Array, halo: Array, halo_largest: Array, weights: StoredMatrix,
    asked: LabelDistances, out: str,
) -> tuple[tuple[()], tuple[int, float, float]]:  # fmt: skip
    """Write the weights of one block and their row sums; the number of edges, Σ w and the largest w."""
    block = weights.block(b)
    values = labelled_weights(block, np.concatenate([codes, halo])[:, 0], asked)
    made = reconnected(block, values, np.concatenate([largest, halo_largest])[:, 0])
    return (), (
        descended.write_weights(b, block, made, out),
        float(made.sum(dtype=np.float64)),
        float(made.max(initial=0.0)),
    )


# ----------------------------------------------------------------------------------------------------------- stage


def labelled_stage(graph: GraphShape, edges: int, weight: float) -> Stage:
    """``kernel/weights`` on the graph, and their row sums ``degree``: those of ``memberships``, and the labels."""
    n, block = graph.n, min(graph.block, graph.n)
    asked = LabelDistances.of(weight)
    cost = Cost.of(
        reads=[ArraySpec("edges", edges, 3, times=2), ArraySpec("codes", n, dtype="i4")],
        writes=[ArraySpec("weights/*", edges, dtype="f4"), ArraySpec("degree/*", n)],
        leaves=[ArraySpec("codes and largest values of the rows and of the halo", n, 2, times=2)],
        task=[ArraySpec("edges", -(-edges // n) * block, 10)],
        passes=2,
        scalar_ops=40 * edges,
        maps=3,
    )
    order = ("order",) if graph.ordered else ()
    run = partial(run_labelled, graph=graph, asked=asked)
    parameters = {"far": asked.far, "unknown": asked.unknown}
    return Stage("kernel", ("memberships", "labels", *order, graph.stage), parameters, run, cost)


def run_labelled(context: Context, graph: GraphShape, asked: LabelDistances) -> dict[str, Any]:
    weights = context.home.matrix(graph.stage, "weights", "memberships")
    space, before = StoredSpace(weights, context.exchange), context.results("memberships")
    order, starts = context.of("order") if graph.ordered else "", offsets(weights.rows)
    codes = context.of("labels", "codes")
    space.sweep(code_block, writes=["codes"], posts=["codes"], arguments=(codes, order, starts))
    both: dict[str, Any] = {"reads": ["codes"], "halos": ["codes"]}
    seen = space.sweep(strongest_block, **both, writes=["largest"], posts=["largest"], arguments=(weights, asked))
    names = ["codes", "largest"]
    parts = space.sweep(labelled_block, reads=names, halos=names, arguments=(weights, asked, context.path("")))
    same, known, pairs = (tree_sum([part[i] for part in seen]) for i in range(3))
    sizes = np.array(context.results("labels")["sizes"], np.float64)
    return {
        "edges": sum(part[0] for part in parts),
        "rows": list(weights.rows),
        "n_neighbors": before["n_neighbors"],
        "mass": float(tree_sum([part[1] for part in parts])),
        "largest": max(part[2] for part in parts),
        **({"least": before["least"]} if "least" in before else {}),
        "labels": {
            "classes": len(sizes),
            "labelled_rows": int(sizes.sum()),
            "labelled_pairs": int(pairs),
            "shared": float(same / known) if known else None,
            "shared_by_chance": float(((sizes / sizes.sum()) ** 2).sum()),
        },
    }


def unrelated(found: dict[str, Any]) -> list[str]:
    """Say of labels that neighbors share them little more than strangers do; nothing where too few pairs tell.

    >>> known = {"shared_by_chance": 0.1, "labelled_pairs": 1000}
    >>> unrelated({"shared": 0.9, **known})
    []
    >>> [unrelated({"shared": shared, **known})[0].split(": ")[1][:29] for shared in (0.1, 0.4)]
    ['the labels say next to nothin', 'many rows are among others, a']
    """
    same, chance = found["shared"], found["shared_by_chance"]
    if same is None or chance >= 1.0:
        return []
    error = sqrt(same * (1.0 - same) / found["labelled_pairs"]) / (1.0 - chance)
    agreement = (same - chance) / (1.0 - chance) + 2.0 * error
    if agreement >= DOUBTED:
        return []
    said = (
        f"neighbors share their label in {100 * same:.2g} % of the weight of the graph, and by chance they would in "
        f"{100 * chance:.2g} %: "
    )
    if agreement < UNRELATED:
        return [
            f"{said}the labels say next to nothing of the rows, and groups on the map are those of labels. See whether "
            "y is in the order of the rows; or leave target_metric out"
        ]
    return [
        f"{said}many rows are among others, as where the labels of three in ten are wrong, or classes overlap, and the "
        "map parts them by label. Do not read from it that classes are apart; look at the labels, take a smaller "
        "target_weight, or leave target_metric out"
    ]


# ----------------------------------------------------------------------------------------------------- memberships


@dataclass(frozen=True)
class Memberships(descended.EdgeWeights):
    """The fuzzy weights w_ij of UMAP; of a user's weights W/max W."""

    connectivity: float
    mix: float
    numbers: ClassVar = 4
    operations: ClassVar = 80

    def scales(self, block: CSRBlock, ids: Array, reach: Array, last: Array, k: int) -> Array:
        """Return ρ², id of the k-th neighbor, ρ and σ of each row."""
        from bigembed.maps.umap.compiled import calibrate  # imports numba: only here

        return calibrate(block.indptr, block.indices, block.data, ids, reach, last, k, self.connectivity)

    def weigh(self, block: CSRBlock, ids: Array, scales: Array) -> tuple[Array, float, float]:
        """Return w_ij, Σ w and the largest w."""
        from bigembed.maps.umap.compiled import union

        weights = union(block.indptr, block.indices, block.data, ids, scales, self.mix)
        return weights, *self.figures(weights)

    def unit(self, total: float, largest: float) -> float:
        """Return max W, by which the weights of a user's graph are divided."""
        return largest

    def figures(self, weights: Array) -> tuple[float, float]:
        """Return Σ w and the largest w."""
        return float(weights.sum(dtype=np.float64)), float(weights.max(initial=0.0))

    def results(self, figures: list[tuple[float, float]], k: int | None) -> dict[str, Any]:
        """Return Σ w and the largest w of all blocks, and the neighbors of a row."""
        mass, largest = float(tree_sum([part[0] for part in figures])), max(part[1] for part in figures)
        return {"n_neighbors": k, "mass": mass, "largest": largest}


# ----------------------------------------------------------------------------------------------------- coordinates
# The stage that makes a map of its points, with a sample of them that repels new rows.


def pool_stage(graph: GraphShape, m: int, seed: int, n_epochs: int) -> Stage:
    """Return the stage of the coordinates and the ``pool`` of the map."""
    block = min(graph.n, graph.block)
    pool = ArraySpec("pool", rows_of_pool(graph), m)
    parameters = {"seed": seed, "n_epochs": n_epochs}
    stage = descended.coordinates_stage(graph, m, parameters, run_coordinates, pool, 8 * block * m + 2 * pool.nbytes)
    return replace(stage, inputs=(*stage.inputs, *graph.vectors))


def run_coordinates(context: Context, graph: GraphShape, m: int, seed: int, n_epochs: int) -> dict[str, Any]:
    mapped = write_map(context, graph, m)
    rows, masses = tuple(context.results("kernel")["rows"]), values_path(context)
    map_blocks(
        write_pool, [()], points=context.path("points"), out=context.path("pool"), rows=rows, seed=seed,
        epoch=n_epochs, masses=masses, before=mass_before(masses, rows),
    )  # fmt: skip
    return {"n_components": m, "repeated_rows": mapped.repeated}


def write_pool(
    *, points: str, out: str, rows: tuple[int, ...], seed: int, epoch: int, masses: str, before: Sequence[float]
) -> None:
    """Write the rows of the map that may be drawn."""
    parts = [share_block(b, read_array(f"{points}/{b}"), rows, seed, epoch, masses, before) for b in range(len(rows))]
    write_array(out, np.concatenate([share for (share,), _ in parts]))


# ---------------------------------------------------------------------------------------------------------- stages

SCALE = Scale(deviation=3.0, farthest=4.0, connected=0.99)
"""Of a start: about as large as the map will be, with which forces of length 1 to 4 have their sense."""


def sampling_stages(
    graph: GraphShape,
    connectivity: float,
    mix: float,
    asked: SamplingOptions,
    start: str | RowSource,
    in_memory: bool | None,
    target: tuple[Labels, float] | None = None,
    density: DensityOptions | None = None,
    how: Combination | None = None,
) -> list[Stage]:
    """Return the stages: weights, the start, the descent, coordinates, and how far to trust them.

    ``target``: labels that the weights follow, and how much; ``density``: what is asked of densities; ``how``: two
    views become one map.
    """
    m, seed, edges = asked.n_components, asked.seed, descended.planned_edges(graph)[1]
    if start in ("auto", "spectral"):
        start = "pca" if not graph.rowless and graph.n <= m else "spectral"  # (fewer eigenvectors than coordinates)
    if target is not None:
        asked, density = replace(asked, sums=1.0), replace(density, sums=1.0) if density else None
    memberships = {"local_connectivity": connectivity, "set_op_mix_ratio": mix}
    policy = "joint" if graph.rowless else "largest"
    scale = Scale(SCALE.deviation, SCALE.farthest) if graph.rowless else SCALE
    fuzzy = Memberships(connectivity, mix)
    name = "kernel" if target is None else "memberships"
    first = graph
    if graph.views and how:
        weights = _of_views(graph, edges, fuzzy, memberships, how, name)
        first = graph.views[0] if how.target else graph
    else:
        weights = [descended.weights_stage(graph, edges, fuzzy, memberships, name)]
    if target is not None:
        labels, weight = target
        weights += [labels_stage(labels), labelled_stage(graph, edges, weight)]
    if density is not None and density.dens_lambda > 0:
        descent = density_descent_stage(graph, edges, density, in_memory)
    else:
        descent = sampled_descent_stage(graph, edges, asked, in_memory)
    return [
        *weights,
        *descended.start_stages(graph, m, start, seed, policy, scale),
        *([density_stage(graph, edges)] if density else []),
        descent,
        pool_stage(graph, m, seed, asked.n_epochs),
        *([radii_stage(graph, edges, density)] if density else []),
        *map_judgement_stages(first, m, seed),
    ]


def _of_views(
    graph: GraphShape, edges: int, fuzzy: Memberships, memberships: dict[str, float], how: Combination, name: str
) -> list[Stage]:
    """Return the stages of the weights of each view, of their edges over the same blocks, and of what comes of both.

    Memberships of targets are always those of the nearest one, and of the union.
    """
    assert graph.views is not None
    first, prefix = "first-memberships", TARGET if how.target else SECOND
    views, own = graph.views, [descended.planned_edges(view)[1] for view in graph.views]
    second, of_second = fuzzy, memberships
    if how.target:
        second, of_second = Memberships(1.0, 1.0), {"local_connectivity": 1.0, "set_op_mix_ratio": 1.0}
    blocks = [min(view.n, view.block) for view in views]
    return [
        descended.weights_stage(views[0], own[0], fuzzy, memberships, first),
        within(descended.weights_stage(views[1], own[1], second, of_second, "memberships"), prefix),
        views_stage(graph.n, (blocks[0], blocks[1]), (own[0], own[1]), (first, f"{prefix}memberships"), prefix),
        combined_stage(graph, edges, how, first, name),
    ]
