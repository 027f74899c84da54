"""Eigenpairs of operators that are never formed: block Lanczos with thick restart, and products of few columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import linalg

from bigembed.errors import InputError
from bigembed.linalg import Middle, SymmetricOperator
from bigembed.linalg.eigenpairs import ADVICE, EigenResult, Reason, gaps_of, turn_vectors
from bigembed.runtime.blocks import Array
from bigembed.store.vector_space import tree_sum

# -------------------------------------------------------------------------------------------------------- factored
# Eigenpairs of Z M Zᵀ with few columns, from the small Gram matrix G = ZᵀZ alone.
#
#     G = Q g Qᵀ,  F = Q √g,  T = Fᵀ M F = Y Λ Yᵀ,  B = Q g^{−1/2} Y:   Z M Zᵀ (Z B) = (Z B) Λ,  (Z B)ᵀ(Z B) = I.
#
# All numbers are float64. However many pairs are wanted, the rows are read once, for G; cost O(p³) for p columns.

DROP = 1e-12
"""Directions of G below this times the largest are rounding."""
ZERO = 1e-13
"""Eigenvalues below this times the largest are those of the null space of the operator."""
ORDERS = ("algebraic", "magnitude")


@dataclass(frozen=True)
class FactoredResult:
    """The m first eigenpairs except the deflated one, in the order asked for."""

    eigenvalues: Array
    """(m,); zeros stand for the null space of the operator."""
    coefficients: Array
    """B, (p, m): the eigenvectors are Z B, orthonormal; a column of zeros where the eigenvalue is an exact zero."""
    residuals: Array
    """(m,) ‖Z M Zᵀ v − λ v‖, from G."""
    gap: float
    """Distance from the wanted eigenvalues to the nearest one left out; ∞ if all are wanted."""
    orthogonality: float
    """max |BᵀGB − I| over the columns that are not zero."""
    rank: int
    """Directions of G that were kept."""
    others: Array
    """Nonzero eigenvalues left out."""


def solve_factored(
    gram: Array, core: Middle, n_components: int, n_rows: int, *, deflate: Array | None = None, order: str = "algebraic"
) -> FactoredResult:
    """Eigenpairs of Z M Zᵀ on ``n_rows`` rows, except the known pair whose vector is Z ``deflate``.

    ``order`` is "algebraic" (descending, zeros of the null space between positive and negative ones)
    or "magnitude" (|λ| descending, seed 004 §3.1). Signs: the largest |coefficient| is positive.
    """
    if order not in ORDERS:
        raise InputError(f"order={order!r}; allowed: {', '.join(ORDERS)}")
    g, q = linalg.eigh((gram + gram.T) / 2)
    kept = g > DROP * max(float(g[-1]), 0.0)
    root = np.sqrt(g[kept])
    basis, factor = q[:, kept] / root, q[:, kept] * root
    small = factor.T @ (core @ factor)
    values, turn = _apart_from(None if deflate is None else factor.T @ deflate, (small + small.T) / 2)
    loads = basis @ turn
    known = 0 if deflate is None else 1
    live = np.abs(values) > ZERO * max(float(known), float(np.abs(values).max(initial=0.0)))
    values, loads = values[live], loads[:, live]
    zeros = min(max(0, n_rows - known - len(values)), n_components + 1)
    wanted = _ordered(values, zeros, order)
    chosen, rest = wanted[:n_components], wanted[n_components:]
    # A place −1 is the null space: λ = 0, coefficients 0.
    padded = np.concatenate([values, [0.0]])
    table = np.concatenate([loads, np.zeros((len(loads), 1))], axis=1)
    eigenvalues, coefficients = padded[chosen], signed(table[:, chosen])
    away = (core @ (gram @ coefficients)) - coefficients * eigenvalues
    squares = np.einsum("ij,ij->j", away, gram @ away)
    inner = coefficients.T @ gram @ coefficients
    present = np.array(chosen) >= 0
    return FactoredResult(
        eigenvalues=eigenvalues,
        coefficients=coefficients,
        residuals=np.sqrt(np.maximum(squares, 0.0)),
        gap=_gap(eigenvalues, padded[rest]),
        orthogonality=float(np.abs(inner - np.diag(present.astype(float))).max(initial=0.0)),
        rank=int(kept.sum()),
        others=values[[place for place in rest if place >= 0]],
    )


def _apart_from(known: Array | None, small: Array) -> tuple[Array, Array]:
    """Eigenpairs of the small matrix, descending, on the complement of a known eigenvector."""
    values: Array
    turn: Array
    if known is None:
        values, turn = linalg.eigh(small)
        return values[::-1], turn[:, ::-1]
    complement = linalg.qr((known / np.linalg.norm(known))[:, None])[0][:, 1:]
    inner = complement.T @ small @ complement
    values, turn = np.zeros(0), np.zeros((0, 0))
    if inner.size:
        values, turn = linalg.eigh((inner + inner.T) / 2)
    return values[::-1], complement @ turn[:, ::-1]


def _ordered(values: Array, zeros: int, order: str) -> list[int]:
    """Places of the eigenvalues in the order asked for; −1 stands for one of ``zeros`` exact zeros."""
    places = list(range(len(values)))
    if order == "magnitude":
        return [*sorted(places, key=lambda place: (-abs(values[place]), place)), *[-1] * zeros]
    positive = [place for place in places if values[place] > 0]
    return [*positive, *[-1] * zeros, *places[len(positive) :]]


def signed(coefficients: Array) -> Array:
    """Columns turned so that the entry of largest size (the first among equals up to rounding) is positive."""
    size = np.abs(coefficients)
    first = np.argmax(size >= (1 - 1e-8) * size.max(axis=0, initial=0.0), axis=0)
    sign = np.sign(coefficients[first, np.arange(coefficients.shape[1])])
    return np.asarray(coefficients * np.where(sign == 0, 1.0, sign))


def _gap(wanted: Array, left_out: Array) -> float:
    if not len(left_out) or not len(wanted):
        return float("inf")
    return float(np.abs(wanted[:, None] - left_out[None, :]).min())


# --------------------------------------------------------------------------------------------------------- lanczos
# Block Lanczos with thick restart and full reorthogonalization.
#
#     A [Q_1 … Q_j] = [Q_1 … Q_j] T + Q_{j+1} B E_jᵀ,      T = QᵀAQ,
#
# restarted from the Ritz vectors of the largest Ritz values and the last residual block. For spectra that decay (PCA,
# kernel PCA, MDS), and as the reference of LOBPCG. One pass a block; every block is orthogonalized three times against
# all kept ones, each time in two sweeps over at most ``max_blocks`` + 3 blocks.

_DROP = 1e-11
Which = Literal["largest", "smallest", "magnitude"]
RANKS: dict[str, Callable[[Array], Array]] = {"largest": np.positive, "smallest": np.negative, "magnitude": np.abs}
"""What a Ritz value is ranked by."""


def solve_lanczos(
    operator: SymmetricOperator,
    n_components: int,
    *,
    tol: float = 1e-6,
    seed: int = 0,
    max_passes: int = 1000,
    block: int | None = None,
    max_blocks: int = 12,
    deflate: str | None = None,
    which: Which = "largest",
    relative: bool = False,
) -> EigenResult:
    """The m largest eigenpairs except the deflated ones, left in the space under ``"V"``.

    ``which``: "largest" or "smallest" algebraically, or largest in "magnitude"; eigenvalues come in that order.
    ``tol`` bounds the residuals ‖Av − λv‖, or, where ``relative``, these over the largest |λ| found. ``block``
    columns a pass (default m, at least 2; fewer than m would miss copies of a multiple eigenvalue); after
    ``max_blocks`` blocks a restart keeps the best 2 m Ritz vectors. The certificate costs one more pass. An operator on
    fewer rows than the basis could hold is solved exactly, because the basis then spans everything.
    """
    if which not in RANKS:
        raise InputError(f"which={which!r}; allowed: {', '.join(map(repr, RANKS))}")
    if n_components < 1 or not tol > 0 or max_passes < 3 or max_blocks < 4:
        raise InputError(
            f"n_components={n_components}, tol={tol}, max_passes={max_passes}, max_blocks={max_blocks}: "
            "n_components ≥ 1, tol > 0, max_passes ≥ 3 and max_blocks ≥ 4 are needed"
        )
    if block is not None and block < n_components:
        raise InputError(f"block={block}: at least n_components={n_components} columns are needed to miss no copies")
    run = _Run(operator, block or max(2, n_components), seed, deflate, which)
    before = operator.passes, operator.bytes_moved
    reason = Reason.MAX_PASSES
    while True:
        last = run.expand()
        values, vectors, residuals = run.ritz()
        run.lowest = min(run.lowest, float(values.min(initial=np.inf)))
        enough = len(values) >= n_components
        allowed = tol * (float(np.abs(values).max()) if relative and len(values) else 1.0)
        if last or (enough and np.all(residuals[:n_components] <= allowed * (1 - 1e-6))):
            reason = Reason.CONVERGED
            break
        if operator.passes - before[0] + 1 >= max_passes:
            break
        if len(run.names) >= max_blocks:
            run.restart(vectors[:, : min(2 * n_components, vectors.shape[1])])
    if len(values) < n_components:
        raise InputError(
            f"n_components={n_components}: only {len(values)} eigenpairs were found before the passes or the "
            "rows were used up; ask for fewer, or raise max_passes"
        )
    return _certified(run, values, vectors[:, :n_components], allowed, reason, before)


def _certified(
    run: _Run, values: Array, vectors: Array, tol: float, reason: Reason, before: tuple[int, int]
) -> EigenResult:
    operator, m = run.operator, vectors.shape[1]
    space = operator.space
    space.sweep(combine_block, reads=run.names, writes=["lanczos.v"], arguments=(vectors,))
    turn_vectors(space, "lanczos.v", "V", posts=["V"])
    parts = operator.product(["V"], ["lanczos.u"], then=residual_block, arguments=(values[:m],))
    gram, squares = (tree_sum([part[k] for part in parts]) for k in range(2))
    residuals = np.sqrt(squares)
    met = bool(np.all(residuals <= tol))
    if reason == Reason.CONVERGED and not met:
        reason = Reason.STAGNATED
    space.drop("lanczos.v", "lanczos.u", "lanczos.t", *run.names)
    return EigenResult(
        eigenvalues=values[:m],
        vectors="V",
        residuals=residuals,
        gap=float(np.ptp(RANKS[run.which](values[m - 1 : m + 1]))) if len(values) > m else float("inf"),
        gaps=gaps_of(values[:m], values[m:]),
        orthogonality=float(np.abs(gram - np.eye(m)).max()),
        passes=operator.passes - before[0],
        bytes_moved=operator.bytes_moved - before[1],
        iterations=run.made,
        converged=met,
        reason=Reason.CONVERGED if met else reason,
        advice="" if met else ADVICE[reason],
        lowest=run.lowest,
    )


class _Run:
    """The basis blocks by name, and T = QᵀAQ."""

    def __init__(self, operator: SymmetricOperator, width: int, seed: int, deflate: str | None, which: Which) -> None:
        self.operator = operator
        self.which = which
        self.names: list[str] = []
        self.small = np.zeros((0, 0))
        self.made = 0
        self.lowest = float("inf")
        self.rest = np.zeros((0, 0))
        self.known = [deflate] if deflate else []
        operator.space.sweep(begin_block, reads=[operator.scale], writes=["lanczos.u"], arguments=(width, seed))
        self._orthonormalize()

    def expand(self) -> bool:
        """One pass with the last block; True when the basis spans an invariant space."""
        name = self.names[-1]
        parts = self.operator.product(
            [name], ["lanczos.u"], then=against_block, reads=self.names, arguments=(len(self.names),)
        )
        columns = tree_sum(parts)
        old, size = self.small.shape[0], columns.shape[0]
        grown = np.zeros((size, size))
        grown[:old, :old] = self.small
        grown[:, old:] = columns
        grown[old:, :old] = columns[:old].T
        self.small = grown
        self.rest = self._orthonormalize()
        return not len(self.rest)

    def ritz(self) -> tuple[Array, Array, Array]:
        """Ritz values in the order wanted, their coefficients, and residual estimates ‖B s_last‖."""
        values, vectors = linalg.eigh((self.small + self.small.T) / 2)
        order = np.argsort(RANKS[self.which](values), kind="stable")[::-1]
        values, vectors = values[order], vectors[:, order]
        tail = vectors[len(vectors) - self.rest.shape[1] :]
        return values, vectors, np.linalg.norm(self.rest @ tail, axis=0)

    def restart(self, vectors: Array) -> None:
        """Keep the given combinations and the newest block."""
        space, fresh = self.operator.space, self.names[-1]
        self.made += 1
        kept = f"lanczos.q{self.made}"
        space.sweep(combine_block, reads=self.names[:-1], writes=[kept], arguments=(vectors,))
        space.drop(*self.names[:-1])
        self.small = vectors.T @ self.small @ vectors
        self.names = [kept, fresh]

    def _orthonormalize(self) -> Array:
        """The next block from ``lanczos.u``, three times against all blocks and the known vectors; B of U = Q B."""
        space = self.operator.space
        against = [*self.known, *self.names]
        whole: Array | None = None
        for _ in range(3):
            parts = space.sweep(projection_block, reads=["lanczos.u", *against], arguments=(len(against),))
            overlap, gram = (tree_sum([part[k] for part in parts]) for k in range(2))
            mass, turn = linalg.eigh((gram - overlap.T @ overlap + (gram - overlap.T @ overlap).T) / 2)
            floor = _DROP**2 if whole is None else 0.25
            kept = mass > max(floor, _DROP * float(mass[-1]) if len(mass) else 0.0)
            root = np.sqrt(mass[kept])
            space.sweep(
                project_block,
                reads=["lanczos.u", *against],
                writes=["lanczos.t"],
                arguments=(overlap, turn[:, kept] / root, len(against)),
            )
            space.sweep(copy_block, reads=["lanczos.t"], writes=["lanczos.u"])
            factor = root[:, None] * turn[:, kept].T
            whole = factor if whole is None else factor @ whole
        self.made += 1
        assert whole is not None
        if whole.shape[0]:
            name = f"lanczos.q{self.made}"
            space.sweep(copy_block, reads=["lanczos.u"], writes=[name], posts=[name])
            self.names.append(name)
        return whole


# --- one block -----------------------------------------------------------------------------------


def begin_block(block: int, scale: Array, width: int, seed: int) -> tuple[tuple[Array], None]:
    """Random start, zero outside the domain."""
    start = np.random.default_rng([seed, block]).standard_normal((len(scale), width))
    return (start * (scale != 0),), None


def against_block(block: int, x: Array, y: Array, *rest: Any) -> tuple[tuple[()], Array]:
    """QᵀAQ_j."""
    *basis, _ = rest
    return (), np.concatenate(basis, axis=1).T @ y


def projection_block(block: int, u: Array, *rest: Any) -> tuple[tuple[()], tuple[Array, Array]]:
    """QᵀU and UᵀU."""
    *basis, count = rest
    whole = np.concatenate(basis, axis=1) if count else np.zeros((len(u), 0))
    return (), (whole.T @ u, u.T @ u)


def project_block(block: int, u: Array, *rest: Any) -> tuple[tuple[Array], None]:
    """(U − Q QᵀU) C."""
    *basis, overlap, mix, count = rest
    whole = np.concatenate(basis, axis=1) if count else np.zeros((len(u), 0))
    return ((u - whole @ overlap) @ mix,), None


def copy_block(block: int, u: Array) -> tuple[tuple[Array], None]:
    """The vector under another name."""
    return (u,), None


def combine_block(block: int, *rest: Any) -> tuple[tuple[Array], None]:
    """Q C."""
    *basis, mix = rest
    return (np.concatenate(basis, axis=1)[:, : len(mix)] @ mix,), None


def residual_block(block: int, v: Array, u: Array, values: Array) -> tuple[tuple[()], tuple[Array, Array]]:
    """VᵀV and squared explicit residuals."""
    residual = u - v * values
    return (), (v.T @ v, np.einsum("ij,ij->j", residual, residual))
