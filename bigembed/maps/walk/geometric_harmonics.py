"""Functions of the rows extended to new rows by eigenfunctions of a walk: geometric harmonics."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator import extension_of
from bigembed.maps.walk.extension import columns_source, run_of
from bigembed.neighbors.row_weights import WEIGHTS
from bigembed.rows import RowBlock, RowSource, rows_at
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.runtime.parameters import Auto, at_least, declared
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, buffer, run_stages
from bigembed.store import at
from bigembed.store.arrays import read_array, write_array

# -------------------------------------------------------------------------------------------------------- held out
# Least squares of columns on coordinates of the same rows; how well sums of each length predict values held out.

SUMS = ("gram", "products", "squares")


def sums_stage(columns: RowSource, powers: Array, folds: int, seed: int, vectors: tuple[str, ...] = ()) -> Stage:
    """ΨᵀΨ, Ψᵀf and Σf² of each fold, Ψ the constant and the coordinates over ``powers``: one pass over both.

    ``vectors`` names the weights of the rows, where they have any: sums are by weight.
    """
    n, width, of_each = *columns.shape, len(powers) + 1
    sums = [
        ArraySpec("gram", folds, of_each * of_each),
        ArraySpec("products", folds, of_each * width),
        ArraySpec("squares", folds, width),
    ]
    size = 8 * folds * of_each * (of_each + width)  # (decides the tree of the sums)
    cost = Cost.of(
        reads=[ArraySpec("columns", n, width), ArraySpec("embedding", n, of_each)],
        writes=sums,
        task=[ArraySpec("columns", columns.block, width, times=4), buffer("sums", 4 * size)],
        passes=1,
    )
    parameters = {"columns": columns.fingerprint(), "folds": folds, "seed": seed, "width": of_each}
    run = partial(run_sums, columns=columns, powers=powers, folds=folds, seed=seed, size=size)
    return Stage("harmonics", ("solve", "coordinates", *vectors), parameters, run, cost)


def run_sums(context: Context, columns: RowSource, powers: Array, folds: int, seed: int, size: int) -> dict[str, Any]:
    fixed: dict[str, Any] = {"embedding": context.of("coordinates", "embedding"), "powers": powers}
    if context.home.has(WEIGHTS):
        columns = replace(columns, aligned={"weights": rows_at(at(context.of(WEIGHTS, "given")))})
    fixed |= {"folds": folds, "seed": seed, "first": True, "partial_bytes": size}
    for name, total in reduce_rows(columns, sums_block, context.exchange, **fixed).items():
        write_array(context.path(name), total)
    return {"rows": columns.shape[0], "columns": columns.shape[1]}


def sums_block(block: RowBlock, *, embedding: str, powers: Array, folds: int, seed: int) -> Parts:
    """ΨᵀΨ, Ψᵀf and Σf² of each fold, Ψ the constant and the eigenfunctions at the rows of one block."""
    found = read_array(embedding, block.start, block.stop)[:, : len(powers)] / powers
    basis = np.column_stack([np.ones(len(found)), found])
    f = np.asarray(block.rows.toarray() if is_sparse(block.rows) else block.rows, np.float64)
    fold = np.random.default_rng([seed, block.number]).integers(0, folds, len(f))
    parts = [fold == number for number in range(folds)]
    if block.weights is not None:  # (of the squares, so that products are sums by weight)
        root = np.sqrt(block.weights)[:, None]
        basis, f = basis * root, f * root
    return {
        "gram": np.stack([basis[part].T @ basis[part] for part in parts]),
        "products": np.stack([basis[part].T @ f[part] for part in parts]),
        "squares": np.stack([np.square(f[part]).sum(axis=0) for part in parts]),
    }


def held_out(sums: Parts) -> Array:
    """Share of the variance that is left of values held out, (cuts, c), for sums of every length."""
    gram, products, squares = sums["gram"], sums["products"], sums["squares"]
    left = np.zeros((gram.shape[1], squares.shape[1]))
    for fold in range(len(gram)):
        rest = gram.sum(axis=0) - gram[fold], products.sum(axis=0) - products[fold]
        for cut in range(len(left)):
            c, part = solved(*rest, cut), slice(cut + 1)
            explained = 2 * (c * products[fold][part]).sum(axis=0) - (c * (gram[fold][part, part] @ c)).sum(axis=0)
            left[cut] += squares[fold] - explained
    variance = squares.sum(axis=0) - np.square(products.sum(axis=0)[0]) / gram.sum(axis=0)[0, 0]
    return np.asarray(np.divide(left, variance, out=np.zeros_like(left), where=variance > 0))


def solved(gram: Array, products: Array, cut: int) -> Array:
    """Coefficients (cut + 1, c) of least squares; of the smallest norm where rows do not decide them."""
    part = slice(cut + 1)
    return np.asarray(np.linalg.lstsq(gram[part, part], products[part], rcond=None)[0])


# --------------------------------------------------------------------------------------------- geometric harmonics

LEAST = 1e-8
"""Least |λ^t| of a coordinate that is divided by it."""


@dataclass(frozen=True)
class GeometricHarmonics:
    """Hold functions of the rows as sums of eigenfunctions of a fitted map, which say what they are at new rows.

    Parameters
    ----------
    fitted : DiffusionMap
        The fitted map.
    coefficients : array of shape (m + 1, c)
        The coefficients of the constant and of the coordinates of the map, for each function.
    cut : array of shape (c,), int
        How many eigenfunctions each function uses.
    error : array of shape (c,)
        The share of the variance of each function that held-out values left, at its cut; above 1 it is not predicted.
    curve : array of shape (m + 1, c)
        That share for every cut from 0 on.
    flat : bool
        Whether one function was given, as a vector.

    Examples
    --------
    >>> import bigembed as be
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> dm = be.DiffusionMap(n_components=8, n_neighbors=6).fit(x)
    >>> found = be.geometric_harmonics(dm, np.sin(4 * x[:, 0]))
    >>> bool(np.abs(found.predict(np.array([[0.303]])) - np.sin(4 * 0.303)).max() < 0.02)
    True
    """

    fitted: Any
    coefficients: Array
    cut: Array
    error: Array
    curve: Array
    flat: bool = False

    def predict(self, X: Any) -> Any:
        """Compute the functions at new rows.

        Parameters
        ----------
        X : array of shape (k, d)
            New rows, of any kind that ``transform`` takes.

        Returns
        -------
        array of shape (k, c)
            The values, lazy for lazy rows; (k,) for a function that was given as a vector.
        """
        from bigembed.estimator.transform import apply

        extension = replace(extension_of(self.fitted), frame=None)  # (of the eigenvectors)
        return self._of(apply(self.fitted, X, extension))

    def fitted_values(self) -> Any:
        """Compute the functions at the rows that were fitted: each without what was cut off.

        Returns
        -------
        array of shape (n, c)
            The values, in the order of the input.
        """
        fitted = self.fitted
        return self._of(fitted._run.array("coordinates", "embedding", fitted._in_memory))

    def _of(self, coordinates: Any) -> Any:
        values = coordinates @ self.coefficients[1:] + self.coefficients[0]
        return values[:, 0] if self.flat else values


@declared
def geometric_harmonics(
    fitted: Any,
    columns: Any,
    *,
    cut: Annotated[int, at_least(0)] | Auto = "auto",
    folds: Annotated[int, at_least(2)] = 5,
    random_state: Annotated[int, at_least(0)] = 0,
    workdir: str | os.PathLike[str] | None = None,
) -> GeometricHarmonics:
    """Extend functions of the rows to new rows: f(x) = Σ_{l ≤ cut} c_l ψ_l(x), ψ_l the eigenfunctions of the walk.

    ψ_l(x) = λ_l^{-1} Σ_j p(x, j) ψ_l(j) at a new row (Coifman & Lafon 2006, Nyström). The larger l, the smaller λ_l,
    and the more the extension magnifies noise: ``cut`` says where the sum ends.

    Parameters
    ----------
    fitted : DiffusionMap
        The fitted :class:`bigembed.DiffusionMap`. Its n_components are the eigenfunctions that there are.
    columns : array of shape (n, c) or (n,)
        The functions, in the order of the input: a NumPy, SciPy sparse, Dask or zarr array, or the path of a Zarr array
        or .npy.
    cut : int from 0 to n_components, or "auto"
        Where the sum ends. "auto" ends it, for each function, where values held out are predicted best.
    folds : int ≥ 2
        The number of parts into which rows are divided at random, each held out once.
    random_state : int ≥ 0
        The seed of the parts.
    workdir : path or None
        Where the sums are kept as a published stage; None is a temporary folder.

    Returns
    -------
    GeometricHarmonics
        The functions: ``predict(X)`` gives them at new rows; ``cut``, ``error`` and ``coefficients`` say how each was
        found.

    Raises
    ------
    InputError
        If there is not one row for each row that was fitted, entries are NaN or infinite, the cut is beyond
        n_components, or components were embedded one by one.
    InputTypeError
        If this is not a fitted map of a walk, or it is a saved model.

    Notes
    -----
    Cost: one pass over the columns and the coordinates; then ``predict`` costs what ``transform`` does. Memory: a block
    of the columns, and folds·(m + 1)·(m + 1 + c) numbers. Coefficients are those of least squares.

    References
    ----------
    R. Coifman, S. Lafon, Geometric harmonics: a novel tool for multiscale out-of-sample extension of empirical
    functions, ACHA 21 (2006).

    Examples
    --------
    >>> import bigembed as be
    >>> x = np.linspace(0, 1, 200)[:, None]
    >>> found = geometric_harmonics(be.DiffusionMap(n_components=8, n_neighbors=6).fit(x), np.cos(3 * x))
    >>> bool(found.error[0] < 1e-3)
    True
    """
    run = run_of(fitted, "geometric_harmonics", one=False)
    values = read_array(run.path("solve", "eigenvalues"))
    coordinates = run.results("coordinates")
    if values.ndim == 2 and len(values) > 1:
        raise InputError(
            "components='per-component': each component has coordinates of its own, and functions of all rows are not "
            "sums of them. Take components='auto' or 'joint'"
        )
    kept = list(coordinates.get("columns") or range(coordinates["n_components"]))
    powers = values.reshape(-1)[kept] ** coordinates["t"] if coordinates["t"] else np.ones(len(kept))
    usable = np.abs(powers) >= LEAST
    width = int(np.argmin(usable)) if not usable.all() else len(powers)
    if not isinstance(cut, str) and cut > width:
        raise InputError(f"cut={cut}; the map has {width} coordinates with |λ^t| ≥ {LEAST:g}; 0 to {width} are allowed")
    home = Run(workdir, parents=[run])
    source, _, flat = columns_source(columns, run.results("components")["rows"], home.root / "exchange")
    vectors = (WEIGHTS,) if run.results("kernel").get(WEIGHTS) else ()
    run_stages([sums_stage(source, powers[:width], int(folds), int(random_state), vectors)], home)
    sums = {name: read_array(home.path("harmonics", name)) for name in SUMS}
    curve = held_out(sums)
    chosen = np.argmin(curve, axis=0) if isinstance(cut, str) else np.full(source.width, cut)
    gram, products = sums["gram"].sum(axis=0), sums["products"].sum(axis=0)
    coefficients = np.zeros((len(powers) + 1, source.width))
    for number in np.unique(chosen):
        mine = chosen == number
        coefficients[: number + 1, mine] = solved(gram, products[:, mine], number)
    coefficients[1 : width + 1] /= powers[:width, None]
    return GeometricHarmonics(fitted, coefficients, chosen, curve[chosen, np.arange(len(chosen))], curve, flat)
