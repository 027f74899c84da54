"""Kernels as functions of two blocks of rows: the usual ones by name, or the user's block function.

A block function is ``function(a, b) -> (len(a), len(b))``, symmetric: k(x, y) = k(y, x). So that a job file can name it
and a saved model can find it again, a function in an importable module may be written as the text ``"module:name"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import getsource
from typing import Any

import numpy as np

from bigembed.blocks.functions import BlockFunction, function_of, reference
from bigembed.blocks.rows import Array
from bigembed.errors import InputError

KERNELS = ("rbf", "poly", "sigmoid", "cosine", "linear")
TILE = 256
"""Rows of a call in :func:`in_tiles`. A matrix product rounds by its shape, so every call has this one."""
NAMED = 10


@dataclass(frozen=True)
class Kernel:
    """k(x, y): with z = γ x·y + c, "linear" x·y, "poly" z^degree, "sigmoid" tanh z, "cosine" x·y/(‖x‖‖y‖), "rbf"
    exp(−γ‖x − y‖²); or a block function. Picklable if its function is.
    """

    name: str | BlockFunction
    gamma: float = 1.0
    degree: float = 3.0
    coef0: float = 1.0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of a block function."""

    @property
    def own(self) -> bool:
        """Whether it is a user's function."""
        return not isinstance(self.name, str) or ":" in self.name

    @property
    def text(self) -> str:
        """The name that errors, stage keys and saved models give."""
        return self.name if isinstance(self.name, str) else reference(self.name)

    def key(self) -> dict[str, Any]:
        """What the values depend on, for the key of a stage: of a function its text too, where it can be had."""
        if not self.own:
            return {"kernel": self.name, "gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        given = {name: np.asarray(value).tolist() for name, value in sorted(self.parameters.items())}
        found: dict[str, Any] = {"kernel": self.text, "kernel_params": given}
        with suppress(OSError, TypeError):
            found["source"] = getsource(self._function)
        return found

    def __call__(self, rows: Any, others: Any) -> Array:
        """k of all pairs, (len(rows), len(others)) float64; not checked to be finite.

        Raises InputError where a block function returns another shape or no real numbers.

        >>> Kernel("poly", gamma=1.0, degree=2, coef0=1.0)([[1.0, 2.0]], [[3.0, 4.0], [0.0, 0.0]]).tolist()
        [[144.0, 1.0]]
        """
        a, b = np.asarray(rows, np.float64), np.asarray(others, np.float64)
        if self.own:
            return self._of_function(np.asarray(rows), np.asarray(others))
        with np.errstate(all="ignore"):
            if self.name == "rbf":
                return np.asarray(np.exp(-self.gamma * squared_distances(a, b)))
            if self.name == "cosine":
                a, b = _unit(a), _unit(b)
            product = a @ b.T
            if self.name in ("poly", "sigmoid"):
                product *= self.gamma
                product += self.coef0
                product = product**self.degree if self.name == "poly" else np.tanh(product, out=product)
            return np.asarray(product)

    @property
    def _function(self) -> BlockFunction:
        return function_of(self.name, "kernel") if isinstance(self.name, str) else self.name

    def _of_function(self, a: Array, b: Array) -> Array:
        found = np.asarray(self._function(a, b, **self.parameters))
        if found.shape != (len(a), len(b)) or found.dtype.kind not in "buif":
            raise InputError(
                f"kernel={self.text}: blocks of {len(a)} and {len(b)} rows gave an array {found.dtype} of shape "
                f"{found.shape}; a block function returns real numbers of shape ({len(a)}, {len(b)})"
            )
        return np.asarray(found, np.float64)


def checked_kernel(name: Any, parameters: Mapping[str, Any] | None = None, **numbers: float) -> Kernel:
    """The kernel of a name or of a block function; InputError for an unknown name, with the nearest known one."""
    if isinstance(name, str) and ":" in name:
        function_of(name, "kernel")
    elif not callable(name) and name not in KERNELS:
        near = get_close_matches(str(name), KERNELS, 1, 0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(
            f"kernel={name!r}{hint}; allowed: {', '.join(KERNELS)}, a function of two blocks of rows, or "
            '"module:name" of one'
        )
    return Kernel(name, **numbers, parameters=dict(parameters or {}))


def squared_distances(a: Array, b: Array) -> Array:
    """‖x − y‖² of all pairs by one matrix product, from the mean of ``b``; never negative."""
    center = b.mean(axis=0)
    a, b = a - center, b - center
    squared = a @ b.T
    squared *= -2.0
    squared += np.einsum("ij,ij->i", b, b)
    squared += np.einsum("ij,ij->i", a, a)[:, None]
    return np.asarray(np.maximum(squared, 0.0, out=squared))


def in_tiles(function: Callable[[Any], Array], rows: Any, width: int) -> Array:
    """``function`` of 256 rows at a time, (256, d) → (256, width): each row the same whatever rows stand beside it.

    The last tile is filled up with its own first row.
    """
    out = np.empty((len(rows), width))
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        whole = part if len(part) == TILE else np.concatenate([part, np.repeat(part[:1], TILE - len(part), axis=0)])
        out[start : start + TILE] = function(whole)[: len(part)]
    return out


def wrong_values(values: Array, first_row: int = 0, first_column: int = 0) -> list[tuple[int, int]]:
    """Row and column of the first entries that are NaN or infinite.

    >>> wrong_values(np.array([[1.0, np.nan]]), first_row=7)
    [(7, 1)]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()) or np.isfinite(values).all():
            return []
    row, column = np.nonzero(~np.isfinite(values))
    return [(int(i) + first_row, int(j) + first_column) for i, j in zip(row[:NAMED], column[:NAMED], strict=True)]


def refuse_values(text: str, found: list[tuple[int, int]], against: str = "row") -> None:
    """InputError where :func:`wrong_values` found some."""
    if found:
        shown = ", ".join(f"row {i} with {against} {j}" for i, j in found[:NAMED])
        raise InputError(
            f"kernel={text}: gives NaN or infinity, first for {shown}. A kernel is finite for every pair of rows; "
            "scale the columns, or mend the function"
        )


def _unit(rows: Array) -> Array:
    """Rows of length one; zero rows stay zero."""
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.where(length > 0, length, 1.0)[:, None])
