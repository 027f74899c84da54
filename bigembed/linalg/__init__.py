"""Linear algebra on blocks of vectors, matrix-free: operators, eigensolvers, moments.

The operators are here: sparse matrices, products of few columns, and covariances of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from bigembed.errors import InputError
from bigembed.linalg.moments import tiles
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array, is_sparse, stripes
from bigembed.runtime.executors import run_on_idle_threads
from bigembed.store.exchange import Exchange
from bigembed.store.matrix import BlockMatrix, CSRBlock
from bigembed.store.vector_space import MemorySpace, VectorSpace, tree_sum

# ------------------------------------------------------------------------------------------------------------ base
# What a solver needs of a linear map: products with named block vectors, counted as passes.
#
# One **pass** is one walk over the matrix with a block of vectors, whatever their number.

Then = Callable[..., tuple[Sequence[Array], Any]]
Multiply = Callable[[int, Array, Sequence[Array], Sequence[Array]], tuple[Array, int]]
"""``(block, scale, xs, halos of scale and xs) -> (A x of the block, bytes that came from other blocks)``; picklable."""


class SymmetricOperator(ABC):
    """A symmetric map on the vectors of ``space``, known by its products; the largest eigenvalues are wanted.

    ``scale`` names a vector (rows, 1): zero marks rows outside the operator's domain, where vectors stay zero.
    """

    halos = False
    """Whether a product needs rows of other blocks, those of the halo list of a block."""

    def __init__(self, space: VectorSpace, scale: str) -> None:
        self.space = space
        self.scale = scale
        self.passes = 0
        self.bytes_moved = 0

    @abstractmethod
    def multiplier(self, names: Sequence[str]) -> Multiply:
        """What multiplies one block of the vectors of these names."""

    def product(
        self,
        names: Sequence[str],
        into: Sequence[str] = (),
        *,
        then: Then | None = None,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
        descending: bool = False,
    ) -> list[Any]:
        """One pass: y = A x for every posted vector x of ``names``, stored under ``into``, or only handed on.

        ``then(block, *xs, *ys, *read arrays, *arguments) -> (arrays for writes, result)`` runs in
        the same sweep; its results are returned in block order. ``descending``: from the last block to the first.
        """
        if isinstance(names, str) or isinstance(into, str) or (into and len(names) != len(into)):
            raise InputError(f"names and into are two lists of one length, or into is empty; got {names!r}, {into!r}")
        return self._sweep(
            product_block,
            reads=(self.scale, *names, *reads),
            halos=(self.scale, *names) if self.halos else (),
            writes=(*into, *writes),
            posts=posts,
            arguments=(self.multiplier(names), len(names), len(reads), bool(into), then, tuple(arguments)),
            descending=descending,
        )

    def _sweep(self, function: Then, **what: Any) -> list[Any]:
        results = self.space.sweep(function, **what)
        self.passes += 1
        self.bytes_moved += sum(moved for moved, _ in results)
        return [result for _, result in results]


class BlockOperator(SymmetricOperator):
    """A symmetric map whose entries can be walked over as well."""

    halos = True
    entries: Callable[[int, Array, Array], tuple[Any, Array, Array]]
    """``(block, scale, halo of scale) -> rows``, as :meth:`walk` hands them on; picklable."""

    def __init__(self, space: VectorSpace, scale: str) -> None:
        super().__init__(space, scale)
        self.cache: dict[str, Any] = {}
        """What a solver can make again from the space, and keeps while it runs."""

    def walk(
        self,
        function: Then,
        *,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
    ) -> list[Any]:
        """One pass at the matrix itself: ``function(block, rows, scale, *read arrays, *arguments)``.

        ``rows`` is (the block of A as a SciPy CSR array over own columns, then halo entries; the
        source block of each halo entry; its row in that block).
        """
        return self._sweep(
            walk_block,
            reads=(self.scale, *reads),
            halos=(self.scale,),
            writes=writes,
            posts=posts,
            arguments=(self.entries, function, tuple(arguments)),
        )


def product_block(block: int, scale: Array, *rest: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = A x for the rows of one block, cut as the x are, then whatever else uses x and y."""
    *vectors, multiply, count, reading, kept, then, arguments = rest
    xs, extra, halos = vectors[:count], vectors[count : count + reading], vectors[count + reading :]
    y, moved = multiply(block, scale, xs, halos)
    arrays, result = hand_on(block, y, xs, extra, kept, then, arguments)
    return arrays, (moved, result)


def hand_on(
    block: int, y: Array, xs: Sequence[Array], extra: Sequence[Array], kept: bool, then: Then | None, arguments: Any
) -> tuple[tuple[Array, ...], Any]:
    """The products of a block, cut as the x are, if they are kept; what ``then`` writes, and its result."""
    widths = np.cumsum([x.shape[1] for x in xs])
    ys = [np.ascontiguousarray(part) for part in np.split(y, widths[:-1], axis=1)]
    written, result = ((), None) if then is None else then(block, *xs, *ys, *extra, *arguments)
    return (*(ys if kept else ()), *written), result


def walk_block(block: int, scale: Array, *rest: Any) -> tuple[Sequence[Array], tuple[int, Any]]:
    """Hand the rows of A to ``function``."""
    *extra, halo, entries, function, arguments = rest
    written, result = function(block, entries(block, scale, halo), scale, *extra, *arguments)
    return written, (halo.nbytes, result)


# ---------------------------------------------------------------------------------------------------------- sparse
# A sparse symmetric matrix by row blocks, scaled on both sides: A = diag(s) W diag(s).
#
# With s = d^{-1/2} on the rows of one component and 0 elsewhere this is S = D^{-1/2} W D^{-1/2} (seed 000 eq. 31,
# seed 001 eq. 2) restricted to that component.


class SparseOperator(BlockOperator):
    """A = diag(s) W diag(s) on the vectors of ``space``; ``scale`` names s, shape (rows, 1), posted.

    A pass reads the matrix once, and of the vectors the own rows and the halo rows of a block.
    Memory of a block task: the block of W, and 8·(rows + halo)·width bytes twice.
    """

    def __init__(self, matrix: BlockMatrix, space: VectorSpace, scale: str = "scale") -> None:
        if tuple(matrix.rows) != tuple(space.rows):
            raise InputError(
                f"the matrix has blocks of {tuple(matrix.rows)} rows, the space of {tuple(space.rows)}; "
                "make the space over the rows of the matrix"
            )
        super().__init__(space, scale)
        self.matrix = matrix
        self.entries = partial(scaled_block, matrix)

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """s ∘ (W (s ∘ x))."""
        return partial(multiply_block, self.matrix)


def multiply_block(
    matrix: BlockMatrix, block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]
) -> tuple[Array, int]:
    """(s W s) x for the rows of one block."""
    far_scale, *far = halos
    stored = matrix.block(block)
    x, halo = (np.ascontiguousarray(parts[0] if len(parts) == 1 else np.hstack(parts)) for parts in (xs, far))
    y = np.empty((len(scale), x.shape[1]))
    data = stored.data if stored.data.dtype in (np.float32, np.float64) else stored.data.astype(np.float64)
    full = np.concatenate([scale, far_scale])[:, 0]
    given = (stored.indptr.astype(np.int64), stored.indices.astype(np.int32, copy=False), data, full, x, halo, y)
    run_on_idle_threads([partial(compiled_product(), *stripe, *given) for stripe in stripes(len(scale))])
    return y, sum(part.nbytes for part in halos)


@cache
def compiled_product() -> Any:
    from bigembed.store.matrix_compiled import scaled_product  # imports numba: only here

    return scaled_product


def scaled_block(matrix: BlockMatrix, block: int, scale: Array, far_scale: Array) -> tuple[Any, Array, Array]:
    """The scaled rows of A in one block; source block and row of each halo entry."""
    stored = matrix.block(block)
    rows = _csr(stored, len(scale))
    full = np.concatenate([scale, far_scale])[:, 0]
    data = np.repeat(scale[:, 0], np.diff(rows.indptr)) * rows.data.astype(np.float64) * full[rows.indices]
    scaled = sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    source = np.repeat(stored.halo_sources, np.diff(stored.halo_offsets))
    return scaled, source, stored.halo_rows


def _csr(stored: CSRBlock, rows: int) -> Any:
    shape = (rows, rows + len(stored.halo_rows))
    return sparse.csr_array((stored.data, stored.indices, stored.indptr), shape=shape)


# -------------------------------------------------------------------------------------------------------- factored
# A symmetric map of low rank, never formed: A = N U M Uᵀ N (seed 004 eqs. 8, 9, 12).
#
# U has a row of features for each row of the data, M is small, N a diagonal. With the features of the linearized
# Gaussian kernel and N = (K1)^{-1/2} this is the operator of the linearized diffusion map,
#
#     L_i(v) = N_i (1 − r_i²/ε) Σ_j N_j v_j − N_i Σ_j (r_j²/ε) N_j v_j + (2/ε) N_i x_i · Σ_j x_j N_j v_j,
#
# and with centered rows and N = 1 that of PCA, in O(n d) for a vector. A product walks over the rows twice: for the
# sums Uᵀ N v, and for U M of them.


class Features(Protocol):
    """A picklable handle of U: makes the features of a block inside a worker, a few rows at a time."""

    @property
    def size(self) -> int:
        """Columns of U."""
        ...

    def tiles(self, block: int) -> Iterator[tuple[slice, Array]]:
        """(which rows of the block, their features) along the block."""
        ...


class Middle(Protocol):
    """The small matrix M between the factors of a product U M Uᵀ, known by what it does to columns."""

    def __matmul__(self, right: Array, /) -> Array:
        """M a."""
        ...


class FactoredOperator(SymmetricOperator):
    """A = N U M Uᵀ N on the vectors of ``space``; ``scale`` names N, shape (rows, 1).

    Memory of a block task: the vectors of the block and one tile of U. Every block leaves its share of
    UᵀNX, 8·size·width bytes, which is counted in ``bytes_moved`` there and back. ``passes`` counts walks over the
    rows: two a product.
    """

    def __init__(self, features: Features, core: Middle, space: VectorSpace, scale: str = "scale") -> None:
        super().__init__(space, scale)
        self.features = features
        self.core = core

    def gather(self, names: Sequence[str]) -> Array:
        """UᵀN X for the vectors of ``names`` beside each other, (size, width): one walk."""
        parts = self.space.sweep(gather_block, reads=(self.scale, *names), arguments=(self.features, len(names)))
        self.passes += 1
        self.bytes_moved += 2 * sum(part.nbytes for part in parts)
        return np.asarray(tree_sum(parts))

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """The second walk of a product: N U (M UᵀN X), with the middle of it at hand."""
        return partial(multiply_features_block, self.features, self.core @ self.gather(names))


def gather_block(block: int, scale: Array, *rest: Any) -> tuple[tuple[()], Array]:
    """UᵀN X of one block."""
    *vectors, features, count = rest
    scaled = scale * np.concatenate(vectors[:count], axis=1)
    total = np.zeros((features.size, scaled.shape[1]))
    for part, u in features.tiles(block):
        total += u.T @ scaled[part]
    return (), total


def multiply_features_block(
    features: Features, middle: Array, block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]
) -> tuple[Array, int]:
    """Y = N U (M UᵀN X) of one block."""
    y = np.empty((len(scale), middle.shape[1]))
    for part, u in features.tiles(block):
        y[part] = u @ middle
    y *= scale
    return y, 0


# ------------------------------------------------------------------------------------------------------ covariance
# The covariance of rows as a matrix-free map on vectors of features: C V = Xcᵀ (w ∘ (Xc V)) / f, Xc = X − 1mᵀ.
#
# For features too many for a d × d matrix. The vectors (d, b) are in memory, the rows stay in the store; one product
# is one pass over the rows, whatever b. Sparse rows are not made dense: the mean enters through Xc V = X V − 1(mᵀV).


class CovarianceOperator(SymmetricOperator):
    """C on the vectors of ``space`` (one block of d rows); ``freedom`` is the divisor f = W − 1.

    Memory of a task: a tile of rows and 3·8·d·b bytes; of the coordinating process 8·d bytes a column of every
    named vector. Rows that were not checked before must be finite.
    """

    def __init__(self, source: RowSource, mean: Array, freedom: float, exchange: Exchange) -> None:
        super().__init__(MemorySpace(sizes=(int(source.shape[1]),)), "scale")
        self.source, self.mean, self.freedom, self.exchange = source, mean, freedom, exchange
        self.space.write(self.scale, 0, np.ones((len(mean), 1)))

    def multiplier(self, names: Sequence[str]) -> Multiply:
        """A pass over the rows; the vectors are in this process, in one block."""

        def multiply(block: int, scale: Array, xs: Sequence[Array], halos: Sequence[Array]) -> tuple[Array, int]:
            y = self._times(np.concatenate(xs, axis=1))
            return y, y.nbytes

        return multiply

    def _times(self, vectors: Array) -> Array:
        self.exchange.put("operand", 0, {"vectors": vectors, "mean": self.mean})
        found = reduce_rows(
            self.source,
            covariance_block,
            self.exchange,
            partial_bytes=vectors.nbytes,
            label="covariance",
            operand=self.exchange,
        )
        self.exchange.drop("operand")
        return found["product"] / self.freedom


def covariance_block(block: RowBlock, *, operand: Exchange) -> Parts:
    """Σ w (x − m)((x − m)ᵀV) over one block."""
    vectors, mean = operand.get_many("operand", 0, ["vectors", "mean"])
    return {"product": centered_product(block.rows, block.weights, mean, vectors)}


def centered_product(rows: Any, weights: Array | None, mean: Array, vectors: Array) -> Array:
    """(X − 1mᵀ)ᵀ (w ∘ ((X − 1mᵀ) V)), (d, b), for dense or CSR rows.

    >>> centered_product(np.array([[1.0], [3.0]]), None, np.array([2.0]), np.array([[5.0]])).tolist()
    [[10.0]]
    """
    if is_sparse(rows):
        inner = rows @ vectors - mean @ vectors
        inner = inner if weights is None else inner * weights[:, None]
        return np.asarray(rows.T @ inner - np.outer(mean, inner.sum(axis=0)))
    total = np.zeros(vectors.shape)
    spans = tiles(rows)
    tile = np.empty((spans[0][1], rows.shape[1]))
    for start, stop in spans:
        part = tile[: stop - start]
        part[...] = rows[start:stop]
        part -= mean
        inner = part @ vectors
        if weights is not None:
            inner *= weights[start:stop, None]
        total += part.T @ inner
    return total
