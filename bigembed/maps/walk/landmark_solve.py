"""Eigenvectors of one component of a stored kernel, in a subspace made from landmarks: four passes over the matrix.

Functions φ on the rows are interpolated from landmarks (:mod:`bigembed.maps.landmark_maps`) and averaged once by the
walk, ψ = D⁻¹ W φ, which takes away what interpolation leaves rough; Rayleigh–Ritz in their span,

    (ZᵀWZ) c = λ (ZᵀDZ) c,      Z = D⁻¹ W P,

gives λ and ψ = Z c. The constant is exact, because the rows of P sum to 1, and is deflated. A row that is new has the
average of P c over its neighbors, which is what a fitted row has.

One step further shows how well the subspace was chosen: with V the vectors found and S = D^{-1/2} W D^{-1/2},
Ritz values in the span of [V SV] are nearer to 1; a solve is called converged where no 1 − λ falls by more than 5 %
(2 % for Nyström).
(The residual ‖Sv − λv‖ says little here: what is rough in v weighs in it as much as what is slow, and does no harm.)
What is slow and not in the few functions of Nyström, a step does not see: there half of the landmarks are to give each
1 − λ within 5 %, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from bigembed.errors import InputError
from bigembed.linalg import SparseOperator, eigenpairs, lanczos
from bigembed.maps.bandwidth import kernel_in
from bigembed.maps.graph_rows import component_sample
from bigembed.maps.landmark_maps import NEIGHBORS, LandmarkFunctions, LandmarkKernel, WithHalf, barycentric_rows
from bigembed.maps.landmark_rows import LandmarkChoice, chosen, far_apart
from bigembed.maps.walk.coordinates import solution_arrays
from bigembed.neighbors.order import Ordered
from bigembed.runtime import once
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import ArraySpec, Context, Cost
from bigembed.stages.journal import own_steps
from bigembed.store import at, files, spaces
from bigembed.store.arrays import read_array
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import StoredMatrix
from bigembed.store.vector_space import tree_fold, tree_sum

EXTENSIONS = ("galerkin", "nystrom")
DROPPED = 1e-11
"""Directions of the pencil with a smaller mass eigenvalue are dropped."""
GUARDS = 3
"""Eigenvectors of the landmarks beyond those wanted, in the subspace of extension="nystrom"."""
MOVES = {"galerkin": 0.05, "nystrom": 0.02}
"""Share of 1 − λ by which a step of the walk may still lower it; a few smooth ones gain less than they lack."""
HALF = 0.05
"""Share of 1 − λ by which that of half of the landmarks may differ (extension="nystrom"): what both bounds let pass is
within 4 % of the whole problem (``benchmarks/landmarks.py``)."""
LEAST_GAP = 1e-9
"""1 − λ below which a change is rounding."""
TILE_ROWS = 4_096


@dataclass(frozen=True)
class Landmarks:
    """How the subspace is made."""

    count: int
    selection: str
    extension: str


@dataclass(frozen=True)
class Component:
    """Where a task finds the matrix, the rows, and what the other blocks left, of one component."""

    weights: StoredMatrix
    ordered: Ordered
    labels: str
    degree: str
    number: int
    exchange: Exchange

    def members(self, b: int) -> Array:
        """Whether each row of a block belongs to the component and has a degree."""
        inside = read_array(f"{self.labels}/{b}") == self.number
        return np.asarray(inside & (read_array(f"{self.degree}/{b}") > 0))

    def put(self, name: str, b: int, rows: Any) -> None:
        """Leave sparse rows for this block, and for each other one those that it needs."""
        pieces = dict(_pieces("own", rows))
        for destination, needed in self.weights.outbox(b):
            pieces |= dict(_pieces(str(destination), rows[needed]))
        self.exchange.put(name, b, pieces)

    def own(self, name: str, b: int) -> Any:
        """The rows that a block left for itself."""
        return _csr(self.exchange, name, b, "own")

    def around(self, name: str, b: int) -> Any:
        """Own rows, then those of the halo: what the columns of the block's matrix mean."""
        parts = [self.own(name, b)]
        parts += [_csr(self.exchange, name, int(source), str(b)) for source in self.weights.block(b).halo_sources]
        return vstack(parts, format="csr")

    def matrix(self, b: int) -> Any:
        """The block of W, (rows, rows + halo)."""
        stored = self.weights.block(b)
        rows = len(stored.indptr) - 1
        data = stored.data.astype(np.float64)
        return csr_array((data, stored.indices, stored.indptr), shape=(rows, rows + len(stored.halo_rows)))


def landmark_component(
    context: Context, weights: StoredMatrix, c: int, wanted: int, asked: Landmarks, seed: int, n_neighbors: int
) -> dict[str, Any]:
    """Leading eigenpairs of component c; vectors in its exchange under ``V``, what is averaged to them under ``F``."""
    exchange = Exchange(f"{context.exchange.root}/component{c}")
    done = at(exchange.root) / "done.json"
    if done.exists():
        return files.read_sealed(done)
    with own_steps(f"{exchange.root}-steps") as step:
        with step("landmarks"):
            found = _solved_by_landmarks(context, weights, c, wanted, asked, seed, n_neighbors, exchange)
        files.write_json(done, files.sealed(found))
        exchange.drop("landmark.u", "landmark.w", "basis", "averaged", "pencil")
    return found


def _solved_by_landmarks(
    context: Context, weights: StoredMatrix, c: int, wanted: int, asked: Landmarks, seed: int, n_neighbors: int,
    exchange: Exchange,
) -> dict[str, Any]:  # fmt: skip
    once(exchange.clear)
    ordered = Ordered.open(context.of("order"))
    component = Component(
        weights, ordered, context.of("components", "labels"), context.of("kernel", "degree"), c, exchange
    )
    points = component_landmarks(component, wanted, asked, seed, exchange)
    context.note(f"component {c} of the graph: {len(points)} landmarks")
    blocks = [(b,) for b in range(len(weights.rows))]
    functions: Any = Interpolation(points)
    width = len(points)
    if asked.extension == "nystrom":
        functions = landmark_functions(context, points, n_neighbors, wanted + 1, asked)
        width = functions.width
    map_blocks(basis_block, blocks, component=component, functions=functions)
    map_blocks(average_block, blocks, component=component)
    map_blocks(pencil_block, blocks, component=component)
    form, mass = pencil(component, len(blocks))
    constant = np.ones(width) if asked.extension == "galerkin" else np.eye(width)[0]  # Z c is constant
    values, inner = solved_pencil(form[:width, :width], mass[:width, :width], constant)
    if len(values) <= wanted:
        raise InputError(
            f"n_landmarks: the functions made from the landmarks span {len(values)} dimensions; {wanted + 1} are "
            f"needed for {wanted} components. Take more landmarks"
        )
    mix = np.zeros((len(mass), inner.shape[1]))
    mix[:width] = inner
    changed = 0.0
    if asked.extension == "nystrom":
        changed = change_of_half(values[:wanted], form[width:, width:], mass[width:, width:])
    space = spaces.StoredSpace(weights, exchange)
    space.sweep(vectors_block, writes=["V", "F", "scale"], posts=["V", "scale"], arguments=(component, mix[:, :wanted]))
    operator = SparseOperator(weights, space, "scale")
    parts = operator.product(
        ["V"], ["landmark.u"], then=lanczos.residual_block, posts=["landmark.u"], arguments=(values[:wanted],)
    )
    gram, squares = (tree_sum([part[k] for part in parts]) for k in range(2))
    parts = operator.product(["landmark.u"], ["landmark.w"], then=further_block, reads=["V"])
    moves = gained_shares(values[:wanted], *(tree_sum([part[k] for part in parts]) for k in range(4)))
    residuals = np.sqrt(squares)
    converged = bool(moves.max() <= MOVES[asked.extension] and changed <= HALF)
    return {
        "eigenvalues": values[:wanted].tolist(),
        "residuals": residuals.tolist(),
        "gap": float(values[wanted - 1] - values[wanted]) if len(values) > wanted else 0.0,
        "gaps": eigenpairs.gaps_of(values[:wanted], np.concatenate([values[wanted:], [1.0]])).tolist(),
        "orthogonality": float(np.abs(gram - np.eye(wanted)).max()),
        "passes": 4,
        "bytes_moved": int(operator.bytes_moved),
        "iterations": 1,
        "converged": converged,
        "reason": "landmarks",
        "advice": "" if converged else advice(float(moves.max()), changed, len(points), asked.extension),
        "moves": moves.tolist(),
        **({"half_moved": changed} if asked.extension == "nystrom" else {}),
        "landmarks": len(points),
        "extension": asked.extension,
        "vectors": "V",
        "averaged": "F",
    }


def component_landmarks(component: Component, wanted: int, asked: Landmarks, seed: int, exchange: Exchange) -> Array:
    """Different rows (L, d) of a component, far from each other or uniform."""
    ordered, labels, c = component.ordered, component.labels, component.number
    choice = LandmarkChoice(asked.count, asked.selection, (seed, 5, c))
    found = component_sample(ordered, labels, c, choice, ordered.rows(0, 0, 1).nbytes, exchange)
    return chosen(found["rows"], choice, wanted + 1, f" in component {c} of the graph")


def landmark_functions(
    context: Context, points: Array, n_neighbors: int, needed: int, asked: Landmarks
) -> LandmarkFunctions | WithHalf:
    """The eigenfunctions of the landmarks by the kernel of the graph, and those of half of them, where these can have
    as many as are ``needed``."""
    scale, given = context.results("bandwidth"), context.home.parameters("kernel")
    alpha, count = float(context.results("kernel")["alpha"]), needed + GUARDS
    known = scale["epsilon"], alpha, given["truncated"], scale.get("median_kth", 0.0)
    kernel = LandmarkKernel(n_neighbors, kernel_in(given), *known)
    whole, few = LandmarkFunctions(points, kernel, count), len(points) // 2
    if few <= needed:
        return whole
    far = far_apart(asked.selection)
    half = points[LandmarkChoice(few, asked.selection, ()).among(points)] if far else points[::2]
    return WithHalf(whole, LandmarkFunctions(half, kernel, count))


# --- one block -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpolation:
    """The functions of extension="galerkin": one for each landmark."""

    points: Array

    def __call__(self, rows: Array) -> Any:
        """P (n, L), sparse."""
        return barycentric_rows(rows, self.points)


def basis_block(b: int, *, component: Component, functions: Callable[[Array], Any]) -> None:
    """P of one block: the functions at rows of the component; other rows are empty."""
    members = np.flatnonzero(component.members(b))
    values = csr_array(functions(component.ordered.rows(b)[members]))
    component.put("basis", b, _scatter_rows(values, members, component.weights.rows[b]))


def average_block(b: int, *, component: Component) -> None:
    """Z = D⁻¹ W P of one block."""
    members, d = component.members(b), read_array(f"{component.degree}/{b}")
    around = component.around("basis", b)
    scale = np.where(members, 1 / np.where(d > 0, d, 1.0), 0.0)
    parts = [rows @ around for _, _, rows in _tiles(component.matrix(b))]
    averaged = vstack(parts, format="csr")
    averaged.data *= np.repeat(scale, np.diff(averaged.indptr))
    averaged.eliminate_zeros()
    component.put("averaged", b, averaged)


def pencil_block(b: int, *, component: Component) -> None:
    """The parts of ZᵀWZ and ZᵀDZ of one block, sparse."""
    around, d = component.around("averaged", b), read_array(f"{component.degree}/{b}")
    form = mass = csr_array((around.shape[1], around.shape[1]))
    for start, stop, rows in _tiles(component.matrix(b)):
        z = around[start:stop]
        weighted = z.copy()
        weighted.data *= np.repeat(d[start:stop], np.diff(z.indptr))
        form = form + z.T @ (rows @ around)
        mass = mass + z.T @ weighted
    component.exchange.put("pencil", b, dict(_pieces("form", form)) | dict(_pieces("mass", mass)))


def vectors_block(b: int, component: Component, mix: Array) -> tuple[tuple[Array, Array, Array], None]:
    """V = √d Z c, F = √d P c and the scale 1/√d of the operator, on the rows of the component."""
    members, d = component.members(b), read_array(f"{component.degree}/{b}")
    root = np.where(members, np.sqrt(d), 0.0)[:, None]
    inverse = np.where(members[:, None], 1 / np.where(root > 0, root, 1.0), 0.0)
    vectors, averaged = (root * np.asarray(component.own(name, b) @ mix) for name in ("averaged", "basis"))
    return (vectors, averaged, inverse), None


def further_block(block: int, u: Array, w: Array, v: Array) -> tuple[tuple[()], tuple[Array, ...]]:
    """VᵀV, VᵀU, UᵀU and UᵀSU of one block, U = S V."""
    return (), (v.T @ v, v.T @ u, u.T @ u, u.T @ w)


def gained_shares(values: Array, first: Array, second: Array, third: Array, fourth: Array) -> Array:
    """Share by which each 1 − λ falls from the span of V to that of [V SV], from VᵀS^kV, k = 0 … 3; never below 0.

    >>> v, values = np.array([[0.6], [0.8]]), np.array([0.9, 0.5])
    >>> power = [v.T @ (values[:, None] ** k * v) for k in range(4)]
    >>> gained_shares(power[1][0], *power).round(3).tolist()
    [0.719]
    """
    gram, form = np.block([[first, second], [second.T, third]]), np.block([[second, third], [third.T, fourth]])
    better = eigenpairs.rayleigh_ritz(gram, form, len(values))[0][: len(values)]
    return np.asarray(np.maximum(better - values, 0.0) / np.maximum(1 - values, np.finfo(np.float64).tiny))


def advice(move: float, changed: float, count: int, extension: str) -> str:
    """What to do where the subspace does not hold the eigenvectors."""
    other, most = "" if extension == "galerkin" else "take extension='galerkin', ", MOVES[extension]
    seen = []
    if move > most:
        seen.append(f"One step of the walk lowers 1 − λ by {100 * move:.0f} % (at most {100 * most:.0f} % is expected)")
    if changed > HALF:
        seen.append(f"half of the landmarks give a 1 − λ that is {100 * changed:.0f} % off (at most {100 * HALF:.0f})")
    said = ", and ".join(seen)
    return (
        f"{said[0].upper()}{said[1:]}: {count} landmarks do not show these coordinates. Raise n_landmarks, {other}or "
        "take solver='exact'."
    )


# --- the pencil ----------------------------------------------------------------------------------


def pencil(component: Component, blocks: int) -> tuple[Array, Array]:
    """ZᵀWZ and ZᵀDZ, of the parts of all blocks."""
    parts = ({name: _csr(component.exchange, "pencil", b, name) for name in ("form", "mass")} for b in range(blocks))
    summed = tree_fold(parts, lambda left, right: {name: left[name] + right[name] for name in left})
    form, mass = (_symmetric(summed[name].toarray()) for name in ("form", "mass"))
    return form, mass


def solved_pencil(form: Array, mass: Array, constant: Array) -> tuple[Array, Array]:
    """Ritz values besides that of the ``constant``, descending, and coefficients C with Cᵀ(ZᵀDZ)C = I."""
    image = mass @ constant / np.sqrt(constant @ mass @ constant)
    return eigenpairs.rayleigh_ritz(mass, form - 2.0 * np.outer(image, image), 0, DROPPED)


def change_of_half(values: Array, form: Array, mass: Array) -> float:
    """Largest share of a 1 − λ by which that in the subspace of half of the landmarks differs; 1 where that has fewer
    dimensions, or is no smaller one (an empty pencil)."""
    if not len(mass):
        return 1.0
    half = solved_pencil(form, mass, np.eye(len(mass))[0])[0][: len(values)]
    if len(half) < len(values):
        return 1.0
    return float(np.max(np.abs(half - values) / np.maximum(1 - values, LEAST_GAP)))


def landmark_cost(asked: Landmarks, wanted: int, n: int, n_neighbors: int, block: int) -> Cost:
    """Four passes over the matrix; sparse rows of the subspace, and the pencil densely in the coordinator."""
    reach = min(asked.count, 2 * NEIGHBORS * n_neighbors)
    edges, rows = 2 * n * n_neighbors, min(block, n)
    weights = ArraySpec("weights of a row's landmarks", n, reach, times=3)
    return Cost.of(
        reads=[ArraySpec("weights/*", edges, 3, times=2)],
        writes=solution_arrays(n, wanted, averaged=True),
        leaves=[weights, ArraySpec("vectors", n, wanted, times=8)],
        task=[
            ArraySpec("weights of landmarks", rows, reach, times=6),
            ArraySpec("edges", rows, n_neighbors, times=8),
            ArraySpec("vectors", rows, wanted, times=12.5),
            ArraySpec("tiles", TILE_ROWS, 4 * asked.count + 12 * reach),
        ],
        coordinator=[ArraySpec("pencil", asked.count, asked.count, times=10)],
        passes=4,
        flops=8 * n * reach * reach,
        scalar_ops=edges * reach,
        serial_flops=20 * asked.count**3,
        maps=8,
    )


# --- sparse rows ---------------------------------------------------------------------------------


def _tiles(matrix: Any) -> Iterator[tuple[int, int, Any]]:
    for start, stop in bounds(matrix.shape[0], TILE_ROWS):
        yield start, stop, matrix[start:stop]


def _scatter_rows(values: Any, members: Array, rows: int) -> Any:
    """Sparse rows put where ``members`` says; the others are empty."""
    counts = np.zeros(rows, np.int64)
    counts[members] = np.diff(values.indptr)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((values.data, values.indices, indptr), shape=(rows, values.shape[1]))


def _pieces(key: str, rows: Any) -> Iterator[tuple[str, Array]]:
    yield f"{key}.data", rows.data
    yield f"{key}.indices", rows.indices
    yield f"{key}.indptr", rows.indptr
    yield f"{key}.width", np.array([rows.shape[1]])


def _csr(exchange: Exchange, name: str, b: int, key: str) -> Any:
    data, indices, indptr, width = exchange.get_many(
        name, b, [f"{key}.{part}" for part in ("data", "indices", "indptr", "width")]
    )
    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, int(width[0])))


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)
