"""Landmark diffusion maps (Roseland): the walk from row to landmark to row, in three passes, without a graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.errors import DisconnectedGraphError, InputError
from bigembed.kernels.functions import Kernel, checked_kernel, in_tiles, refuse_values, wrong_values
from bigembed.landmarks.roseland import (
    RANK,
    Walk,
    auto_epsilon,
    coordinates_block,
    gram_block,
    pieces,
    spectrum,
    sums_block,
)
from bigembed.methods.base import Requirements, is_integer, is_number
from bigembed.methods.certificate import versions
from bigembed.methods.landmark_rows import MAX_LANDMARKS, SELECTIONS, duplicates_note, landmark_rows_stage
from bigembed.methods.rowwise import RowwiseEstimator, pass_memory
from bigembed.stages import Context, Cost, Run, Stage
from bigembed.store.arrays import RowSource, read_array, write_array
from bigembed.store.passes import Parts, RowBlock, checked_shape, reduce_rows

if TYPE_CHECKING:
    from bigembed.methods.extension import Extension

TILE_ROWS = 2_048
FAR = 1e-300
"""Kernel of a row with its nearest landmark below which the row takes no part in the walk."""


class LandmarkDiffusionMap(RowwiseEstimator):
    """Diffusion map by way of landmarks (Roseland): D⁻¹ W Wᵀ, W = k(X, landmarks), D = diag(W Wᵀ 1).

    The coordinates of row i are (λ_1^t ψ_1(i), …, λ_m^t ψ_m(i)), λ = σ² of the singular value decomposition of
    D^{-1/2} W, ψ = D^{-1/2} u with Σ π ψ² = 1, π = d/Σd; the constant is left out. As landmarks and rows grow, the walk
    tends to a diffusion that also depends on the density of the landmarks (Shen & Wu 2022): not the operator of
    :class:`DiffusionMap`. Far fewer landmarks than rows make it quick, and robust to noise.

    Parameters
    ----------
    n_components : int ≥ 1, the number m of coordinates.
    n_landmarks : int > n_components, at most 8192, L.
    landmarks : "max-min" (far from each other, among 30·L sampled rows) or "uniform" (as dense as the rows).
    kernel : "gaussian" exp(−‖x − z‖²/ε); or a function of two blocks of rows that returns (len(a), len(b)) finite
        values ≥ 0, or "module:name" of one.
    epsilon : number > 0 (in squared units of the data) or "auto": the median squared distance of a landmark to its
        third nearest.
    t : float ≥ 0. Diffusion time; 0 leaves eigenvectors unscaled.
    random_state : int, None or a generator.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.

    Attributes
    ----------
    embedding_ : (n, m). eigenvalues_ : (m,) λ = σ², descending, in [0, 1]. residuals_ : (m,) ‖G v − λ v‖.
    epsilon_ : float, None for a function. n_components_ : int. certificate_ : dict.

    Raises
    ------
    InputError : parameters out of range, NaN or infinity in rows or kernel (named), negative values of a function, rows
        that reach no landmark. DisconnectedGraphError : landmarks between which nobody walks.

    Notes
    -----
    Cost: a sample, then three passes over the rows, with n·L values of the kernel each and n·L² products in the second.
    Memory: 8·L² bytes and a tile of 2048 × L a few times. Eigenvectors with λ near 0 are noise divided by σ.

    References
    ----------
    C. Shen, H.-T. Wu, Scalability and robustness of spectral embedding: landmark diffusion is all you need,
    Information and Inference 11 (2022).

    Examples
    --------
    >>> angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    >>> ldm = LandmarkDiffusionMap(n_landmarks=50, landmarks="uniform")
    >>> ldm.fit_transform(np.column_stack([np.cos(angle), np.sin(angle)])).shape
    (400, 2)
    """

    registered = "landmark_diffusion_map"
    kept: ClassVar = {
        "landmarks": ("rows",),
        "sums": ("sums",),
        "solve": ("matrix", "eigenvalues", "residuals"),
        "coordinates": ("embedding",),
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_landmarks: int = 500,
        landmarks: str = "max-min",
        kernel: Any = "gaussian",
        epsilon: str | float = "auto",
        t: float = 1,
        random_state: Any = 0,
        workdir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.kernel = kernel
        self.epsilon = epsilon
        self.t = t
        self.random_state = random_state
        self.workdir = workdir

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit rows (any kind that :func:`bigembed.open_array` takes)."""
        from bigembed.methods.fitting import fit_rows

        fit_rows(self, X)
        return self

    def stages(self, source: RowSource, run: Run) -> list[Stage]:
        """Landmarks, s = Wᵀ1, G = Wᵀ D⁻¹ W, its eigenvectors and, on demand, coordinates."""
        self._check()
        n, _ = checked_shape(source, at_least=2)
        m, wanted = int(self.n_components), min(int(self.n_landmarks), n)
        if m >= n:
            raise InputError(f"n_components={m}: {n} rows have at most {n - 1} coordinates; ask for fewer")
        function = self._function()
        epsilon = self.epsilon if isinstance(self.epsilon, str) else float(self.epsilon)
        return [
            landmark_rows_stage(source, wanted, self.landmarks, m + 1, self._seed()),
            sums_stage(source, function, epsilon, wanted),
            gram_stage(source, function, wanted),
            solve_stage(m, float(self.t), wanted),
            self._output_stage(source, "solve", m),
        ]

    def _function(self) -> Kernel | None:
        own = callable(self.kernel) or ":" in self.kernel
        return checked_kernel(self.kernel) if own else None

    def _check(self) -> None:
        need = Requirements(self)
        need(is_integer(self.n_components) and self.n_components >= 1, "n_components", "an integer ≥ 1")
        most = is_integer(self.n_landmarks) and self.n_landmarks <= MAX_LANDMARKS
        enough = most and is_integer(self.n_components) and self.n_landmarks > self.n_components
        need(enough, "n_landmarks", f"an integer > n_components, at most {MAX_LANDMARKS}")
        need(self.landmarks in SELECTIONS, "landmarks", " or ".join(map(repr, SELECTIONS)))
        known = callable(self.kernel) or (
            isinstance(self.kernel, str) and (self.kernel == "gaussian" or ":" in self.kernel)
        )
        need(known, "kernel", "'gaussian', a function of two blocks of rows, or 'module:name' of one")
        auto = isinstance(self.epsilon, str) and self.epsilon == "auto"
        need(
            auto or (not isinstance(self.epsilon, str) and is_number(self.epsilon) and self.epsilon > 0),
            "epsilon",
            "a number > 0 or 'auto'",
        )
        need(is_number(self.t) and self.t >= 0, "t", "a number ≥ 0")
        need.refuse()
        self._function()

    def _adopt(self, run: Run) -> None:
        self.eigenvalues_ = read_array(run.path("solve", "eigenvalues"))
        self.residuals_ = read_array(run.path("solve", "residuals"))
        self.n_components_ = len(self.eigenvalues_)
        self.epsilon_ = run.results("sums")["epsilon"]

    def _certificate(self, run: Run) -> dict[str, Any]:
        landmarks, solve, gram = run.results("landmarks"), run.results("solve"), run.results("gram")
        degenerate = duplicates_note(landmarks)
        if gram["far"]:
            degenerate.append(
                f"{gram['far']} of {landmarks['n']} rows are too far from every landmark to take part in the walk; "
                "they have the coordinates of their nearest landmark. Raise epsilon or n_landmarks"
            )
        if self.n_components_ < self.n_components:
            degenerate.append(
                f"n_components={self.n_components}: only {self.n_components_} eigenvalues of it are above {RANK}; so "
                "many coordinates are given. Lower epsilon or raise n_landmarks"
            )
        return {
            **solve,
            "passes": 2,
            "epsilon": self.epsilon_,
            "landmarks": landmarks["landmarks"],
            "far_rows": gram["far"],
            "eigenvalues": self.eigenvalues_.tolist(),
            "seed": run.manifest("landmarks").parameters["seed"],
            "input": {name: landmarks[name] for name in ("n", "d", "dtype")},
            "versions": versions(),
            "warnings": {"degenerate": degenerate},
        }

    def _extension(self, run: Run) -> Extension:
        from bigembed.methods.extension import Extension

        landmarks, solve = run.results("landmarks"), run.results("solve")
        model = Model(
            run.path("landmarks", "rows"),
            run.path("sums", "sums"),
            run.path("solve"),
            walk_of(self._function(), run.results("sums")["epsilon"]),
            run.manifest("solve").parameters["t"],
        )
        return Extension(extend, model, solve["n_components"], landmarks["d"], cheap=False)


# --- one block -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class UserFunction:
    """A user's function, its values checked: finite and ≥ 0."""

    kernel: Kernel

    def __call__(self, rows: Any, landmarks: Array) -> Array:
        """Values (n, L)."""
        values = self.kernel(rows, landmarks)
        refuse_values(self.kernel.text, wrong_values(values), "landmark")
        if values.min(initial=0.0) < 0:
            raise InputError(
                f"kernel={self.kernel.text}: gives {values.min():.6g}; a walk has weights ≥ 0. Take the exponential, "
                "or KernelPCA"
            )
        return values


@dataclass(frozen=True)
class Model:
    """Where a task finds the map of rows."""

    rows: str
    sums: str
    solve: str
    walk: Walk
    t: float


def walk_of(function: Kernel | None, epsilon: float | None) -> Walk:
    """The weights between rows and landmarks."""
    return Walk(float(epsilon or 1.0), None if function is None else UserFunction(function))


def extend(rows: Any, model: Model) -> Array:
    """λ^t ψ(x); InputError for rows of which a function reaches no landmark."""
    landmarks, sums = read_array(model.rows), read_array(model.sums)
    matrix = read_array(f"{model.solve}/matrix") * read_array(f"{model.solve}/eigenvalues") ** model.t

    def part(tile: Any) -> Array:
        weights, _ = model.walk(tile, landmarks)
        refuse_unreached(weights @ sums, 0)
        return coordinates_block(weights, sums, matrix)

    return in_tiles(part, rows, matrix.shape[1])


def tiles(block: RowBlock, landmarks: Array, walk: Walk) -> Any:
    """Weights and factors of a block, some rows at a time, with the number of the first."""
    for start, stop in bounds(len(block.rows), TILE_ROWS):
        yield block.start + start, *walk(block.rows[start:stop], landmarks)


def sums_of_block(block: RowBlock, *, landmarks: str, walk: Walk) -> Parts:
    """s = Σ w(x_i), (L,)."""
    points = read_array(landmarks)
    total = np.zeros(len(points))
    for _, weights, scale in tiles(block, points, walk):
        total += sums_block(weights, scale)
    return {"sums": total}


def gram_of_block(block: RowBlock, *, landmarks: str, walk: Walk, sums: str) -> Parts:
    """G = Σ w w ᵀ/d (L, L), and the rows that take no part."""
    points, s = read_array(landmarks), read_array(sums)
    total, far = np.zeros((len(points), len(points))), 0
    for first, weights, scale in tiles(block, points, walk):
        part, reached = gram_block(weights, scale, s)
        refuse_unreached(reached, first)
        total += part
        far += int(np.count_nonzero(scale < FAR))
    return {"gram": total, "far": np.array(far)}


def refuse_unreached(reached: Array, first: int) -> None:
    """InputError for rows whose function is 0 for every landmark."""
    if not (reached > 0).all():
        rows = (np.flatnonzero(~(reached > 0))[:10] + first).tolist()
        raise InputError(
            f"kernel: rows {rows} of a block have the value 0 with every landmark: no walk leads to them. Give the "
            "function a wider reach, or take more landmarks"
        )


# --- stages --------------------------------------------------------------------------------------


def sums_stage(source: RowSource, function: Kernel | None, epsilon: float | str, n_landmarks: int) -> Stage:
    """ε, and s = Wᵀ1: the pass that reads all rows first, so it checks them."""

    def run(context: Context) -> dict[str, Any]:
        path, scale = context.of("landmarks", "rows"), None
        if function is None:
            scale = auto_epsilon(read_array(path)) if epsilon == "auto" else float(epsilon)
        found = reduce_rows(
            source,
            sums_of_block,
            context.exchange,
            first=True,
            label="sums",
            landmarks=path,
            walk=walk_of(function, scale),
        )
        write_array(context.path("sums"), found["sums"])
        return {"epsilon": scale}

    parameters = {"epsilon": epsilon if function is None else None, "kernel": function and function.key()}
    cost = _pass_cost(source, n_landmarks, 8 * n_landmarks)
    return Stage("sums", ("landmarks",), parameters, run, cost, resumes=True)


def gram_stage(source: RowSource, function: Kernel | None, n_landmarks: int) -> Stage:
    """G = Wᵀ D⁻¹ W."""

    def run(context: Context) -> dict[str, Any]:
        found = reduce_rows(
            source,
            gram_of_block,
            context.exchange,
            partial_bytes=8 * n_landmarks**2,
            label="gram",
            landmarks=context.of("landmarks", "rows"),
            walk=walk_of(function, context.results("sums")["epsilon"]),
            sums=context.of("sums", "sums"),
        )
        write_array(context.path("gram"), found["gram"])
        return {"far": int(found["far"])}

    cost = _pass_cost(source, n_landmarks, 8 * n_landmarks**2)
    return Stage("gram", ("landmarks", "sums"), {}, run, cost, resumes=True)


def _pass_cost(source: RowSource, n_landmarks: int, size: int) -> Cost:
    tile = 8 * TILE_ROWS * (3 * n_landmarks + 4 * source.shape[1])
    return Cost(
        passes=1,
        read=source.shape[0] * source.row_bytes,
        disk=size,
        scratch=size * min(256, -(-source.shape[0] // source.block)),
        memory=pass_memory(source) + tile + 4 * size,
        coordinator=10 * size + 24 * n_landmarks**2,
    )


def solve_stage(m: int, t: float, n_landmarks: int) -> Stage:
    """σ² and the matrix of ψ, from G."""

    def run(context: Context) -> dict[str, Any]:
        gram, sums = read_array(context.of("gram", "gram")), read_array(context.of("sums", "sums"))
        if (count := pieces(gram)) > 1:
            raise DisconnectedGraphError(
                f"the {len(gram)} landmarks fall into {count} parts that no walk joins. Raise epsilon, take more "
                "landmarks, or embed the parts apart"
            )
        result, matrix = spectrum(gram, sums, m)
        kept = int(np.sum(result.eigenvalues > RANK))
        if not kept:
            raise InputError(
                "the walk between the landmarks has no eigenvalue but the trivial one: every row reaches all landmarks "
                "alike. Lower epsilon"
            )
        write_array(context.path("matrix"), matrix[:, :kept])
        write_array(context.path("eigenvalues"), result.eigenvalues[:kept])
        write_array(context.path("residuals"), result.residuals[:kept])
        return {
            "n_components": kept,
            "gap": float(result.gap) if np.isfinite(result.gap) else float(result.eigenvalues[kept - 1]),
            "orthogonality": float(result.orthogonality),
        }

    size = 8 * n_landmarks**2
    return Stage("solve", ("sums", "gram"), {"n_components": m, "t": t}, run, Cost(disk=size, coordinator=8 * size))
