"""Discriminants of rows fewer than their columns: from the products of all pairs of rows, no (d, d) matrix is formed.

With rows z = √w (x − m_c)/s of weights w, their class means m_c and the standard deviations s inside classes, the
within-class correlation matrix is ZᵀZ. Its eigenvectors on its range follow from those of G = ZZᵀ = U Λ Uᵀ, (n, n), and
W = diag(1/s) Zᵀ U Λ⁻¹ has Wᵀ S_w W = 1, as the whitening of :func:`bigembed.maps.linear.class_scatter.discriminants`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from bigembed.maps.linear import gram
from bigembed.maps.linear.class_scatter import ClassScatter, flat_of, scaled_by, signs_of, weights_of
from bigembed.maps.linear.discriminants import labelled, shares, solution_arrays, stored_scatter, write_solution
from bigembed.maps.linear.principal import LEAST_ITERATED
from bigembed.rows import RowSource
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Stage, rows_of
from bigembed.store.arrays import read_array

SOLVER = "products of rows"
"""Of the parameters of the stage."""


def are_few(source: RowSource, shrinkage: float | str | None) -> bool:
    """Whether the products of all rows are formed, not the scatter of all columns, which shrinkage gives full rank."""
    n, d = source.shape
    return bool(shrinkage is None and d > LEAST_ITERATED and n < d and n <= gram.MOST_ROWS)


def solve_stage(source: RowSource, n_components: int, priors: list[float] | None, tol: float, classes: int) -> Stage:
    """Directions and decision function, as of the stage of this name of :mod:`bigembed.maps.linear.discriminants`."""
    d = source.shape[1]
    parameters = {"n_components": n_components, "shrinkage": None, "priors": priors, "tol": tol, "solver": SOLVER}
    cost = gram.gram_cost(source, n_components + classes + 1) + Cost.of(
        reads=[rows_of(source)],
        writes=solution_arrays(d, n_components, classes),
        coordinator=[ArraySpec("means and coefficients", 6 * classes, d)],
        passes=1,
    )
    run = partial(run_solve, source=source, n_components=n_components, priors=priors, tol=tol)
    return Stage("solve", ("labels", "scatter"), parameters, run, cost)


def run_solve(
    context: Context, source: RowSource, n_components: int, priors: list[float] | None, tol: float
) -> dict[str, Any]:
    found, codes = stored_scatter(context), read_array(context.of("labels", "codes"))
    share, renormalized = shares(priors, found.counts)
    scale, weights = scale_of(found, share), row_weights(found, share, codes)
    rows = gram.StandardizedRows.of(labelled(source, context), context.exchange, gram.Standard(found.means, scale))
    roots, products = np.sqrt(weights), rows.products()
    values, vectors = linalg.eigh(products * roots[:, None] * roots, driver="evd")
    kept = values > tol * max(float(values[-1]), np.finfo(float).tiny)
    whiten = roots[:, None] * vectors[:, kept] / values[kept]
    centers = np.vstack([found.means - found.mean, found.mean]) / scale
    *apart, middle = rows.times(centers.T).T @ whiten
    apart = np.array(apart)  # (the means of the classes about that of all rows, in the whitened directions)
    inside = (products @ whiten)[codes >= 0]
    spread = np.sqrt(found.counts)[:, None] * apart
    total = (inside.T @ inside + spread.T @ spread) / found.counts.sum()
    ratios, inner = linalg.eigh(total - np.eye(len(total)))
    order = np.argsort(ratios)[::-1][:n_components]
    columns = rows.combined(whiten @ np.hstack([inner[:, order], apart.T, middle[:, None]])) / scale[:, None]
    scalings, among, off = np.split(columns, [len(order), len(order) + len(apart)], axis=1)
    among, whole = among.T, float(ratios.sum())
    write_solution(
        context,
        scalings=scalings * signs_of(scalings),
        ratios=ratios[order] / whole if whole else ratios[order],
        priors=share,
        means=found.means,
        center=found.mean,
        coefficients=among + off.T,
        inner_coefficients=among,
    )
    passes = gram.passes_of(source, columns.shape[1]) + 1
    return {"rank": int(kept.sum()), "shrinkage": [0.0, 0.0], "renormalized": renormalized, "passes": round(passes)}


def scale_of(found: ClassScatter, share: Array) -> Array:
    """Standard deviations inside the classes, (d,); 1 for a column that is constant there."""
    return scaled_by(np.tensordot(weights_of(found, share), found.scatter, 1), flat_of(found))


def row_weights(found: ClassScatter, share: Array, codes: Array) -> Array:
    """What each row counts in S_w, (n,): π_c/n_c, and nothing without a label."""
    by_class = np.broadcast_to(weights_of(found, share), found.counts.shape)
    return np.where(codes >= 0, by_class[codes], 0.0)
