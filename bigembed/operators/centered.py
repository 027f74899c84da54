"""Double centering of squared distances: B = −½ H D² H, H = I − 11ᵀ/n (seed 000 §3), of an array larger than memory.

B is never formed. With the row means r of D² a product is B x = −½ (D² x̃ − 1 (rᵀ x̃)), x̃ = Hx: one pass over the
array for any number of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, bounds
from bigembed.blocks.vectors import VectorSpace, tree_sum
from bigembed.errors import InputError
from bigembed.operators.base import Then
from bigembed.store.arrays import RowSource

SLAB_BYTES = 16 << 20
"""Rows of the array that a task holds at a time; it works on them in float64, in three copies at most."""
VECTOR_ROWS = 2_048
"""Rows of a block of the vectors: what a task walks through, slab by slab."""

ASYMMETRY = 1e-5
"""Largest ‖D² − D²ᵀ‖_F / ‖D²‖_F that counts as rounding."""
PROBES = 8


class CenteredOperator:
    """B / s on the vectors of ``space``, s = tr B = ½ Σ_ij D²_ij / n, from a symmetric array of (squared) distances.

    The division makes tolerances relative: eigenvalues of B are s times those of the operator. ``space`` has the rows
    of the array in any blocks. Making it costs one pass: row means, ‖B‖_F, and a check of every entry. Memory of a
    task: a slab of 16 MiB, in float64 a few times, and the vectors whole (8·n·width bytes).

    Raises
    ------
    InputError : the array is not square, or has entries that are negative, NaN or infinite, or a diagonal that is not
        0 (rows named), or it is not symmetric (seen by random vectors: zᵀD²w − wᵀD²z).
    """

    def __init__(self, source: RowSource, space: VectorSpace, *, squared: bool = False) -> None:
        n = source.shape[0]
        if source.shape != (n, n) or sum(space.rows) != n:
            raise InputError(f"distances form a square array (n, n); got shape {source.shape}")
        self.source = source
        self.space = space
        self.scale = "centered.ones"
        self.squared = squared
        self.passes = 0
        self.bytes_moved = 0
        self._spans = [bound for bound in _spans(space.rows)]
        self._survey(n)

    def _survey(self, n: int) -> None:
        found = self.space.sweep(
            survey_block, writes=[self.scale, "centered.means"], arguments=(self.source, self._spans, self.squared)
        )
        self.passes += 1
        _refuse(found, n)
        means = np.concatenate([self.space.read("centered.means", b)[:, 0] for b in range(len(self._spans))])
        fourth = float(tree_sum([part["fourth"] for part in found]))
        probe = tree_sum([part["probe"] for part in found])
        skew = float(np.sqrt(np.mean((probe - probe.T)[np.triu_indices(len(probe), 1)] ** 2)))
        if skew > ASYMMETRY * np.sqrt(fourth):
            raise InputError(
                f"the distances are not symmetric: ‖D² − D²ᵀ‖_F is about {skew:.3g}, where ‖D²‖_F is "
                f"{np.sqrt(fourth):.3g}. Give (D + D.T) / 2"
            )
        self.mean = float(means.mean())
        """Mean of D²."""
        self.trace = n * self.mean / 2
        """tr B, the sum of its eigenvalues."""
        inside = fourth - 2 * n * float(means @ means) + (n * self.mean) ** 2
        self.norm = 0.5 * float(np.sqrt(max(0.0, inside)))
        """‖B‖_F."""

    def product(
        self,
        names: Sequence[str],
        into: Sequence[str],
        *,
        then: Then | None = None,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        posts: Sequence[str] = (),
        arguments: Sequence[Any] = (),
    ) -> list[Any]:
        """One pass: see :meth:`bigembed.operators.base.SymmetricOperator.product`."""
        if isinstance(names, str) or isinstance(into, str) or len(names) != len(into):
            raise InputError(f"names and into are two lists of one length; got {names!r} and {into!r}")
        shared = (self.source, self._spans, self.squared, self.space, self.trace or 1.0)
        results = self.space.sweep(
            product_block,
            reads=(*names, *reads),
            writes=(*into, *writes),
            posts=posts,
            arguments=(shared, tuple(names), then, tuple(arguments)),
        )
        self.passes += 1
        self.bytes_moved += sum(moved for moved, _ in results)
        return [result for _, result in results]


def vector_blocks(n: int) -> tuple[int, ...]:
    """Rows of each block of the vectors over an array of n rows."""
    return tuple(stop - start for start, stop in bounds(n, VECTOR_ROWS))


def _spans(rows: Sequence[int]) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *rows]).tolist()
    return list(zip(ends[:-1], ends[1:], strict=True))


def _slabs(source: RowSource, start: int, stop: int, squared: bool) -> Iterator[tuple[int, Array]]:
    """Rows in float64, squared unless they are, a slab at a time, each with the number of its first row."""
    height = max(1, SLAB_BYTES // (8 * source.shape[1]))
    for first in range(start, stop, height):
        slab = np.array(source.read(first, min(first + height, stop)), np.float64)
        yield first, slab if squared else np.square(slab, out=slab)


def survey_block(
    block: int, source: RowSource, spans: list[tuple[int, int]], squared: bool
) -> tuple[tuple[Array, Array], dict[str, Any]]:
    """Ones and row means (rows, 1) of one block; its part of Σ D⁴ and of zᵀD²z; what is wrong with it."""
    start, stop = spans[block]
    means, fourth, probe = np.empty((stop - start, 1)), 0.0, np.zeros((PROBES, PROBES))
    vectors = np.random.default_rng(0).standard_normal((source.shape[1], PROBES))
    wrong: list[int] = []
    diagonal: list[int] = []
    for first, slab in _slabs(source, start, stop, squared=True):
        own = np.arange(first, first + len(slab))
        bad = own[~((slab >= 0) & np.isfinite(slab)).all(axis=1)].tolist()
        wrong += bad
        diagonal += own[slab[own - first, own] != 0].tolist()
        if bad:
            continue
        if not squared:
            np.square(slab, out=slab)
        means[own - start, 0] = slab.mean(axis=1)
        probe += vectors[own].T @ (slab @ vectors)
        fourth += float(np.einsum("ij,ij->", slab, slab))
    result = {"fourth": fourth, "probe": probe, "wrong": wrong[:10], "diagonal": diagonal[:10]}
    return (np.ones((stop - start, 1)), means), result | {"bad": len(wrong), "nonzero": len(diagonal)}


def _refuse(found: list[dict[str, Any]], n: int) -> None:
    problems = []
    for count, first, what in (
        ("bad", "wrong", "hold NaN, infinity or a negative number; distances are finite and ≥ 0"),
        ("nonzero", "diagonal", "have a nonzero distance to themselves; the diagonal is 0"),
    ):
        number = sum(part[count] for part in found)
        if number:
            rows = [row for part in found for row in part[first]][:10]
            problems.append(f"{number} of {n} rows of the distances {what}; the first are rows {rows}")
    if problems:
        raise InputError("; ".join(problems))


def product_block(block: int, *arrays: Any) -> tuple[tuple[Array, ...], tuple[int, Any]]:
    """y = −½ (D² x̃ − 1 (rᵀ x̃)) / s for the rows of one block, then whatever else uses x and y."""
    *vectors, shared, names, then, arguments = arrays
    source, spans, squared, space, unit = shared
    xs, extra = vectors[: len(names)], vectors[len(names) :]
    whole = np.concatenate(
        [np.concatenate([space.read(name, b) for b in range(len(spans))]) for name in names], axis=1
    )
    means = np.concatenate([space.read("centered.means", b) for b in range(len(spans))])
    whole -= whole.mean(axis=0)
    shift = means.T @ whole
    start, stop = spans[block]
    y = np.empty((stop - start, whole.shape[1]))
    for first, slab in _slabs(source, start, stop, squared):
        y[first - start : first - start + len(slab)] = slab @ whole
    y -= shift
    y *= -0.5 / unit
    ys = [np.ascontiguousarray(part) for part in np.split(y, np.cumsum([x.shape[1] for x in xs])[:-1], axis=1)]
    if then is None:
        return tuple(ys), (whole.nbytes, None)
    written, result = then(block, *xs, *ys, *extra, *arguments)
    return (*ys, *written), (whole.nbytes, result)
