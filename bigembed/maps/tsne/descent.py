"""The descent of a map by attraction and repulsion.

An iteration spreads the points over a lattice, transforms it, and moves every row by its affinities, the points of its
neighbors, and the field. The motion of a row are its velocity and gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial, reduce
from math import prod
from typing import Any, ClassVar

import numpy as np
from scipy import fft

from bigembed.estimator.graph_input import GraphShape
from bigembed.maps import box_of, descent
from bigembed.neighbors.query import Joined
from bigembed.neighbors.row_weights import WEIGHTS, values_path, weights_at
from bigembed.runtime.blocks import Array, map_blocks
from bigembed.runtime.executors import idle_threads, run_on_idle_threads
from bigembed.stages import Context, Immaterial, Run, Stage
from bigembed.store.arrays import read_array, read_by_id
from bigembed.store.matrix import BlockMatrix, entries_of
from bigembed.store.vector_space import VectorSpace

# --------------------------------------------------------------------------------------------------------- options
# What is asked of a map by attraction and repulsion, and what of it holds in an iteration.


GOING_ON = 0.5
"""Least share of the iterations that a map makes which goes on from the one before."""
PASSING, PASSING_SHARE = 2.0, 0.4
"""Exaggeration of such a map, in this share of its iterations. Without it rows cannot pass each other, and night after
night the map lags behind one from nothing (8 000 cells: by two standard errors in 4 of 12 nights, with it in none)."""


@dataclass(frozen=True)
class DescentOptions:
    """The parameters of the descent; small and picklable."""

    n_components: int
    dof: float
    early_exaggeration: float
    early_exaggeration_iter: int
    exaggeration: float
    n_iter: int
    learning_rate: float | None
    """None: n over the exaggeration of the iteration (Belkina et al. 2019)."""
    early_momentum: float
    momentum: float
    early_compression: float
    gains: bool
    max_step: float

    @property
    def iterations(self) -> int:
        """Of both phases."""
        return self.early_exaggeration_iter + self.n_iter

    def going_on(self, share: float) -> DescentOptions:
        """Return what is asked of a map that goes on from the one before, which makes a share of ``n_iter`` in all."""
        total = max(1, round(share * self.n_iter))
        early = min(self.early_exaggeration_iter, int(PASSING_SHARE * total))
        factor = min(self.early_exaggeration, PASSING * self.exaggeration)
        known = replace(self, early_exaggeration=factor, early_compression=0.0)
        return replace(known, early_exaggeration_iter=early, n_iter=total - early)

    def at(self, iteration: int, n: int) -> Array:
        """Return what :func:`bigembed.maps.tsne.compiled.step` is given in an iteration."""
        early = iteration < self.early_exaggeration_iter
        exaggeration = self.early_exaggeration if early else self.exaggeration
        return np.array(
            [
                exaggeration,
                n / exaggeration if self.learning_rate is None else self.learning_rate,
                self.early_momentum if early else self.momentum,
                self.early_compression if early else 0.0,
                self.max_step,
                float(self.gains),
            ]
        )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for the key of the stage."""
        return asdict(self)


# ---------------------------------------------------------------------------------------------------------- blocks
# What a task of an iteration does with one block, and the one that transforms the lattice.
#
# A block leaves its charges on the part of the lattice that it covers; they are integers, so that they add up to the
# same whatever the order. In files nothing of all rows, and no more of the affinities than one block, is in a process.


def begin_block(b: int, start: str) -> tuple[tuple[Array, Array, Array], Array]:
    """Return the points of the start, at rest, with gains of 1; their box."""
    points = read_array(f"{start}/{b}").astype(np.float64)
    return (points, np.zeros_like(points), np.ones_like(points)), box_of(points)


def charge_block(b: int, points: Array, spacing: float, blocks: int = 1, mass: str = "") -> tuple[tuple[Array], Array]:
    """Return the charges of a block, one of ``blocks``, on the lattice of its box; the box. ``mass``: where the rows
    have their masses, if they count."""
    box = box_of(points)
    return (charges_of(np.array(points), box, spacing, blocks, weights_at(mass, b, len(points))),), box


def charges_of(points: Array, box: Array, spacing: float, blocks: int, masses: Array) -> Array:
    """Return the charges of points; idle threads take parts of them where the blocks are fewer than the threads."""
    from bigembed.maps.tsne.compiled import spread_charges  # imports numba: only here

    lattice = Lattice.covering(box, spacing)

    def charge(part: Array, of_part: Array) -> Array:
        nodes = lattice.nodes()
        spread_charges(part, (0,) * part.shape[1], spacing, np.array(lattice.low), nodes, of_part)
        return nodes

    count = max(1, idle_threads() // blocks)
    parts = zip(np.array_split(points, count), np.array_split(masses, count), strict=True)
    return reduce(np.add, run_on_idle_threads([partial(charge, *part) for part in parts]))


def join_charges(
    charges: str, field: str, *, space: VectorSpace, boxes: Sequence[Array], lattice: Lattice, dof: float,
    single: float,
) -> float:  # fmt: skip
    """Write the field of all charges, which blocks left on the lattices of their boxes; Z, the sum of w over all pairs
    of rows, or of copies of rows, one of which weighs ``single``."""
    from bigembed.maps.tsne.compiled import UNIT

    nodes = lattice.nodes()
    for b, box in enumerate(boxes):
        nodes[Lattice.covering(box, lattice.spacing).inside(lattice)] += space.read(charges, b)
    values, total = field_of(nodes / UNIT, lattice, dof, idle_threads(), single)
    space.write(field, 0, values)
    return total


def move_block(
    b: int, points: Array, velocity: Array, gains: Array, halo: Array, affinities: BlockMatrix, space: VectorSpace,
    field: str, lattice: Lattice, total: float, options: Array, dof: float, spacing: float, mass: str,
) -> tuple[tuple[Array, Array, Array, Array], Array]:  # fmt: skip
    """Return a block after one step, and its charges on a lattice of that spacing; the box of its points."""
    from bigembed.maps.tsne.compiled import step

    moved, velocity, gains = np.empty_like(points), velocity.copy(), gains.copy()
    values, masses = space.read(field, 0), weights_at(mass, b, len(points))
    values.setflags(write=False)  # (as in memory: one type for the compiler)
    descent.run_by_rows(
        step, len(points), 0, *entries_of(affinities, b), np.concatenate([points, halo]), (0,) * points.shape[1],
        1.0 / dof, lattice.spacing, np.array(lattice.low), values, total, options, masses, velocity, gains, moved,
    )  # fmt: skip
    box = box_of(moved)
    return (moved, velocity, gains, charges_of(moved, box, spacing, len(affinities.rows), masses)), box


def energy_block(b: int, points: Array, halo: Array, affinities: BlockMatrix, dof: float) -> tuple[tuple[()], int]:
    """Return −Σ p log w of the edges of a block, as an integer."""
    from bigembed.maps.tsne.compiled import energy

    every = np.concatenate([points, halo])
    return (), sum(descent.run_by_rows(energy, len(points), 0, *entries_of(affinities, b), every, dof))


# --------------------------------------------------------------------------------------------------------- descent


def force_descent_stage(graph: GraphShape, edges: int, asked: DescentOptions, in_memory: bool | None) -> Stage:
    """Describe the stage of the descent of t-SNE: attraction along edges, repulsion on a lattice."""
    kept, transform = lattice_bytes(graph.n, asked.n_components)
    return descent.descent_stage(
        run_descent,
        graph,
        edges,
        asked,
        in_memory,
        kept=kept + transform // 4,
        joining=transform,
        shared=2 * transform,
        # (splines reach 4 nodes each way)
        scalar_ops=asked.iterations * (edges + 15 * 4 ** (asked.n_components - 1) * graph.n),
        inputs=graph.vectors,
    )


def single_in(home: Context | Run) -> float:
    """Return what one copy of a row weighs, where the masses of the rows have mean 1: of weights below 1 on average,
    which are no counts, a row; 1 without weights."""
    run = home.home if isinstance(home, Context) else home
    return float(1.0 / max(1.0, run.results(WEIGHTS)["mean"])) if run.has(WEIGHTS) else 1.0


def run_descent(context: Context, asked: DescentOptions, memory: Immaterial) -> dict[str, Any]:
    return descent.descend(context, ForceDescent, asked, memory.value)


class ForceDescent(descent.MapDescent):
    """The divergence by attraction and repulsion; the spacing of the lattice is state, too."""

    state: ClassVar = ("iteration", "spacing")
    vectors: ClassVar = ("points", "velocity", "gains")
    share, joined, objective = "charges", "field", "KL"
    begin_block, share_block = staticmethod(begin_block), staticmethod(charge_block)
    move_block, measure_block = staticmethod(move_block), staticmethod(energy_block)
    asked: DescentOptions

    def begin(self) -> None:
        """Set the points of the start, at rest."""
        super().begin()
        self.spacing = spacing_for(self.box, self.asked.dof)

    @property
    def reported(self) -> bool:
        """Whether the divergence is measured after this iteration: at the end of each phase, too."""
        return super().reported or self.iteration == self.asked.early_exaggeration_iter

    def take(self, results: list[Any]) -> None:
        """Take the boxes that the points of the blocks lie in."""
        self.boxes = results
        self.box = np.stack([np.min(results, axis=0)[0], np.max(results, axis=0)[1]])

    def sharing(self) -> tuple[Any, ...]:
        """Return the spacing of the lattice, the number of blocks, and where the rows have their masses."""
        return float(self.spacing), len(self.space.rows), values_path(self.context)

    def join(self) -> None:
        """Make the field of all charges."""
        self.lattice = Lattice.covering(self.box, float(self.spacing), STEP)
        names, dof, single = self.names((self.share, self.joined)), self.asked.dof, single_in(self.context)
        [self.total] = map_blocks(
            join_charges, [names], space=self.space, boxes=self.boxes, lattice=self.lattice, dof=dof, single=single
        )

    def moving(self) -> tuple[Any, ...]:
        """Return what a step reads besides the vectors; it leaves charges on a lattice for the points as they are."""
        [field], options = self.names((self.joined,)), self.asked.at(self.iteration, sum(self.space.rows))
        self.spacing = spacing_for(self.box, self.asked.dof)
        read = self.weights, self.space, field, self.lattice, self.total, options
        return *read, self.asked.dof, self.spacing, values_path(self.context)

    def measuring(self) -> tuple[Any, ...]:
        """Return the affinities and the tails, from which the objective is measured."""
        return self.weights, self.asked.dof

    def objective_of(self, total: int) -> float:
        """Return KL from −Σ p log w, and Z."""
        kernel = self.context.results("kernel")
        return max(0.0, float(kernel["plogp"] + total / descent.FINE_UNIT + kernel["mass"] * np.log(self.total)))


# -------------------------------------------------------------------------------------------------------- new rows
# New rows on a map by attraction and repulsion: where the forces of all fitted rows on each of them vanish.


@dataclass(frozen=True)
class ForcePlacement(descent.Placement):
    """The field of the map, and what it is read with."""

    field: str
    spacing: float
    low: tuple[int, ...]
    box: tuple[tuple[float, ...], tuple[float, ...]]
    total: float
    """Z of the map."""
    perplexity: float
    dof: float
    mass: str = ""
    """Where the rows have their masses."""

    def place(self, joined: Joined, squared: Array, points: Array) -> Array:
        """Return the places where the forces on new rows vanish."""
        from bigembed.maps.tsne.compiled import place  # imports numba: only here

        masses = read_by_id(self.mass, self.starts, joined.ids) if self.mass else np.ones(len(points))
        return place(
            joined.indptr,
            squared,
            points,
            masses,
            self.n_neighbors,
            self.perplexity,
            1.0 / self.dof,
            self.spacing,
            np.array(self.low),
            descent.kept_array(self.field, self.version),
            self.shape.n / self.total,
            np.array(self.box),
            (0,) * self.width,
        )


def placement_of(run: Run, dof: float, metric: Any = None) -> ForcePlacement:
    """Return how new rows are placed on the map of a fitted run; ``metric``: as the caller gave it."""
    found = run.results("coordinates")
    return ForcePlacement(
        *descent.fields_of_placement(run, metric),
        run.path("coordinates", "field"),
        found["spacing"],
        tuple(found["low"]),
        (tuple(found["box"][0]), tuple(found["box"][1])),
        found["total"],
        run.parameters("kernel")["perplexity"],
        dof,
        values_path(run),
    )


# ------------------------------------------------------------------------------------------------------------- field
# The repulsion of all points on all points: a convolution on a lattice, by fast Fourier transforms.
#
# Σ_j w(y − y_j) and Σ_j w(y − y_j)^{1+1/ν} (y − y_j) at every y, for w(r) = (1 + r²/ν)^{−ν}. Points are spread over the
# nodes of a lattice by cubic B-splines, and the field is read back by the same, between which the kernel is divided by
# the spectrum of the splines, twice: the kernel, a function of two points, is interpolated by splines in both of them.
# The second kernel is odd, so that no point moves itself and all forces add up to 0. An idea of Linderman et al. 2019,
# who interpolate by polynomials in boxes; splines on a lattice need one charge and one transform back a coordinate.

NODES = {1: 64, 2: 64, 3: 24}
"""Nodes along the longest side of a small map, at least, by its number of coordinates."""
SPACING = 0.5
"""Of the lattice, in units of the kernel's width √min(ν, 1), once the map is larger than that."""
FINEST = 2.0**-5
MOST_NODES = {1: 1 << 18, 2: 1024, 3: 80}
"""Nodes along a side from which the lattice is coarser than :data:`SPACING`: what transforms of it may hold."""
STEP = 16
"""Sides of a lattice are multiples of it, so that spectra serve many iterations."""
SEPTIC = np.array([1, 120, 1191, 2416, 1191, 120, 1]) / 5040
"""Σ_g of the products of two cubic splines' weights, by the distance of their nodes, on average over all places."""
RINGING = 16
"""Nodes that the splines' inverse needs beside a jump."""


@dataclass(frozen=True)
class Lattice:
    """Nodes at the multiples of a spacing, of which a box is used. The first of three axes hold one node of m < 3."""

    spacing: float
    low: tuple[int, int, int]
    """Number of the first node along each axis."""
    shape: tuple[int, int, int]

    @classmethod
    def covering(cls, box: Array, spacing: float, step: int = 1) -> Lattice:
        """Return the nodes that points within a box (2, m) are spread to; sides are multiples of ``step``."""
        low, high = box
        first = np.floor(low / spacing).astype(int) - 1
        sides = np.floor(high / spacing).astype(int) + 3 - first
        sides = -(-sides // step) * step
        unused = 3 - len(low)
        starts, shape = [0] * unused + first.tolist(), [1] * unused + sides.tolist()
        return cls(spacing, (starts[0], starts[1], starts[2]), (shape[0], shape[1], shape[2]))

    def nodes(self) -> Array:
        """Return nodes without charges, int64."""
        return np.zeros(self.shape, np.int64)

    def inside(self, other: Lattice) -> tuple[slice, ...]:
        """Return where the nodes of this one are among those of another one that holds them."""
        gaps = [mine - its for mine, its in zip(self.low, other.low, strict=True)]
        return tuple(slice(gap, gap + size) for gap, size in zip(gaps, self.shape, strict=True))


def spacing_for(box: Array, dof: float) -> float:
    """Return how far apart the nodes are for points within a box: the finer the smaller it is, in powers of 2."""
    low, high = box
    unit = SPACING * min(1.0, dof) ** 0.5
    side = float((high - low).max())
    least = side / MOST_NODES[len(low)]
    wanted = min(unit, max(unit * FINEST, side / NODES[len(low)]))
    if least > wanted:
        return float(unit * 2.0 ** (np.ceil(2 * np.log2(least / unit)) / 2))
    return float(unit * 2.0 ** np.floor(np.log2(wanted / unit) + 1e-9))


def lattice_bytes(n: int, m: int) -> tuple[int, int]:
    """Return the bytes that a process keeps of the lattice of a map of n rows, and those that a transform adds."""
    side = min(MOST_NODES[m], int(64 + 8 * n ** (1 / min(m, 2)))) + 5  # (those that splines reach)
    side = -(-side // STEP) * STEP
    doubled = (2 * side + RINGING) ** m
    return 4 * (m + 1) * doubled, 36 * doubled + 8 * (m + 1) * side**m


def field_of(
    charges: Array, lattice: Lattice, dof: float, threads: int = 1, single: float = 1.0
) -> tuple[Array, float]:
    """Return Σ_j w^{1+1/ν} (y − y_j) at nodes, (s_0, s_1, s_2, m), and Z = Σ_{i≠j} w_ij, of charges (s_0, s_1, s_2).

    What splines make of w_ii = 1 is taken off as it is on average over all places between nodes: of every copy of a
    row by itself, which weighs ``single``. ``threads`` work on the transforms, with the same result for any number of
    them.
    """
    sides, potential, own, forces = spectra(lattice.shape, lattice.spacing, dof, threads)
    axes = tuple(range(3 - len(forces), 3))
    spectrum = fft.rfftn(charges.reshape(charges.shape[axes[0] :]), sides, workers=threads)
    squares = spectrum.real**2 + spectrum.imag**2
    last = squares.shape[-1]
    twice = np.full(last, 2.0)
    twice[0] = 1.0
    if sides[-1] % 2 == 0:
        twice[-1] = 1.0
    total = float(np.sum(squares * potential * twice) / prod(sides)) - own * float(charges.sum()) * single
    inner = tuple(slice(0, size) for size in lattice.shape[axes[0] :])
    out = np.empty((*lattice.shape, len(forces)))
    for c, force in enumerate(forces):
        out[..., c] = fft.irfftn(spectrum * (1j * force), sides, workers=threads)[inner].reshape(lattice.shape)
    return out, total


@lru_cache(maxsize=1)
def spectra(
    shape: tuple[int, int, int], spacing: float, dof: float, threads: int = 1
) -> tuple[tuple[int, ...], Array, float, tuple[Array, ...]]:
    """Return sides of the transforms, the spectrum of w over the splines' (real), its mean w_ii, those of the forces
    (imaginary)."""
    used = [size for size in shape if size > 1]
    sides = tuple(fft.next_fast_len(2 * size + RINGING, real=True) for size in used)
    ways = [fft.fftfreq(side, 1 / side) * spacing for side in sides]
    grids = np.meshgrid(*ways, indexing="ij", sparse=True)
    squared = sum(grid**2 for grid in grids)
    near = np.exp(-squared) if np.isinf(dof) else (1.0 + squared / dof) ** -dof
    pull = near if np.isinf(dof) else near / (1.0 + squared / dof)
    angles = [2 * np.pi * np.arange(side) / side for side in sides]
    half = [*angles[:-1], angles[-1][: sides[-1] // 2 + 1]]
    inverse = _product([((2.0 + np.cos(angle)) / 3.0) ** -2 for angle in half])
    potential = fft.rfftn(near, workers=threads).real * inverse
    forces = []
    for axis, grid in enumerate(grids):
        odd = pull * grid
        if sides[axis] % 2 == 0:  # (the node that is as far to the left as to the right)
            np.moveaxis(odd, axis, 0)[sides[axis] // 2] = 0.0
        forces.append(fft.rfftn(odd, workers=threads).imag * inverse)
    table = fft.irfftn(potential, sides, workers=threads)
    own = float(np.sum(table[np.ix_(*[np.arange(-3, 4)] * len(sides))] * _product([SEPTIC] * len(sides))))
    return sides, potential, own, tuple(forces)


def _product(parts: list[Array]) -> Array:
    """Return the product over the axes of a function of each."""
    out = np.ones(())
    for axis, part in enumerate(parts):
        out = out * part.reshape([-1 if a == axis else 1 for a in range(len(parts))])
    return out
