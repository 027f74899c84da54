"""Labels on the graph of UMAP: edges between classes weaken, and each row's strongest edge counts as one again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.graph_input import GraphShape
from bigembed.maps.map_stages import write_weights
from bigembed.neighbors.order import input_rows
from bigembed.rows.labels import Labels
from bigembed.runtime.blocks import Array, offsets
from bigembed.stages.cost import ArraySpec, Cost
from bigembed.stages.stage import Context, Stage
from bigembed.store.arrays import read_rows
from bigembed.store.matrix import CSRBlock, StoredMatrix
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import tree_sum

# ------------------------------------------------------------------------------------------------------------ rule

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
    return (), (write_weights(b, block, made, out), float(made.sum(dtype=np.float64)), float(made.max(initial=0.0)))


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
