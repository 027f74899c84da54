"""The stages of the discriminants: labels, scatters, fourth moments, directions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from bigembed.errors import InputError
from bigembed.maps.linear import class_scatter
from bigembed.maps.linear.principal import GRAM_COLUMNS
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.labels import Labels
from bigembed.rows.passes import Parts, checked_shape, reduce_rows
from bigembed.rows.row_maps import AffineMap, project
from bigembed.runtime.blocks import Array
from bigembed.stages import ArraySpec, Context, Cost, Stage, summing_cost
from bigembed.stages.cost import Arrays
from bigembed.store.arrays import read_array, write_array

SUMS = ("counts", "means", "scatter")
"""What batches add to."""


def labelled(source: RowSource, context: Context) -> RowSource:
    """The rows, aligned with the numbers of their classes."""
    codes = RowSource(source.shape[:1], np.dtype(np.int32), path=context.of("labels", "codes"))
    return replace(source, aligned={"labels": codes})


def scatter_stage(
    source: RowSource, labels: Labels, by_class: bool, earlier: dict[str, Any] | None = None, diagonal: bool = False
) -> Stage:
    """``scatter/counts`` (c,), ``means`` (c, d) and ``scatter`` (1, d, d), or (c, d, d) ``by_class``.

    ``earlier``: those of other rows with the same classes, to which these are added. With ``diagonal`` the diagonals of
    the scatters only, (1, d) or (c, d).
    """
    n, d = checked_shape(source)
    classes, wide = len(labels.classes), 1 if diagonal else d
    size = 8 * d * (classes + wide * (classes if by_class else 1))

    sums = [
        ArraySpec("counts", classes),
        ArraySpec("means", classes, d),
        ArraySpec("scatter", classes if by_class else 1, wide * d),
    ]
    cost = summing_cost(source, size) + Cost.of(writes=sums, flops=2 * n * d * wide, scalar_ops=n * d)
    parameters = {"source": source.fingerprint(), "by_class": by_class, **({"diagonal": True} if diagonal else {})}
    if earlier is not None:
        parameters["before"] = earlier["digest"]
    asked: dict[str, Any] = {"by_class": by_class, "diagonal": diagonal, "classes": classes}
    run = partial(run_scatter, source=source, earlier=earlier, size=size, **asked)
    return Stage("scatter", ("labels",), parameters, run, cost)


def run_scatter(
    context: Context,
    source: RowSource,
    by_class: bool,
    earlier: dict[str, Any] | None,
    diagonal: bool,
    classes: int,
    size: int,
) -> dict[str, Any]:
    found = class_scatter.ClassScatter(
        **reduce_rows(
            labelled(source, context),
            scatter_of_block,
            context.exchange,
            combine=add_scatters,
            partial_bytes=size,
            first=True,
            label="scatter",
            n_classes=classes,
            by_class=by_class,
            diagonal=diagonal,
        )
    )
    n, d = source.shape
    if earlier is not None:
        n += earlier["n"]
        found = class_scatter.ClassScatter(earlier["counts"], earlier["means"], earlier["scatter"]) + found
    if not np.isfinite(found.scatter).all():
        raise InputError("the squares of the rows overflow float64: scale the columns down")
    write_array(context.path("counts"), found.counts)
    write_array(context.path("means"), found.means)
    write_array(context.path("scatter"), found.scatter)
    return {"n": n, "d": d, "dtype": str(source.work)}


def scatter_of_block(block: RowBlock, *, n_classes: int, by_class: bool, diagonal: bool) -> Parts:
    """Class counts, means and scatters of one canonical block."""
    return vars(class_scatter.class_scatter_block(block.rows, block.aligned["labels"], n_classes, by_class, diagonal))


def add_scatters(left: Parts, right: Parts) -> Parts:
    """The scatters of the rows of both."""
    return vars(class_scatter.ClassScatter(**left) + class_scatter.ClassScatter(**right))


def fourth_stage(source: RowSource, labels: Labels) -> Stage:
    """``fourth/moments`` (c+1,): what the Ledoit–Wolf rule needs besides the scatters. One pass."""
    d, classes = checked_shape(source)[1], len(labels.classes)

    of_all = [ArraySpec("means", classes + 1, d), ArraySpec("scales", classes + 1, d)]
    cost = summing_cost(source, 0) + Cost.of(
        writes=[*of_all, ArraySpec("moments", classes + 1)],
        task=of_all,
        coordinator=[ArraySpec("scatters", classes, d * d, times=4)],
    )
    return Stage("fourth", ("labels", "scatter"), {}, partial(run_fourth, source=source), cost)


def run_fourth(context: Context, source: RowSource) -> dict[str, Any]:
    found = stored_scatter(context)
    covariance = [scatter / count for scatter, count in zip(found.scatter, found.counts, strict=True)]
    covariance.append((found.scatter.sum(axis=0) + found.between()) / found.counts.sum())
    write_array(context.path("means"), np.vstack([found.means, found.mean]))
    write_array(context.path("scales"), np.array([class_scatter.scales_of(part) for part in covariance]))
    moments = reduce_rows(
        labelled(source, context), fourth_of_block, context.exchange, label="fourth", folder=context.path("")
    )
    write_array(context.path("moments"), moments["moments"])
    return {}


def fourth_of_block(block: RowBlock, *, folder: str) -> Parts:
    """Fourth moments of one canonical block."""
    means, scales = read_array(f"{folder}means"), read_array(f"{folder}scales")
    return {"moments": class_scatter.fourth_moments_block(block.rows, block.aligned["labels"], means, scales)}


def solve_stage(
    n_components: int, shrinkage: float | str | None, priors: list[float] | None, tol: float, d: int, classes: int
) -> Stage:
    """Directions, decision function and what they were made from."""

    parameters = {"n_components": n_components, "shrinkage": shrinkage, "priors": priors, "tol": tol}
    inputs = ("labels", "scatter", *(("fourth",) if shrinkage == "auto" else ()))
    scatters = 6 + (classes if priors is not None or shrinkage == "auto" else 1)
    writes = [*solution_arrays(d, n_components, classes), ArraySpec("covariance", d, d)]
    return Stage(
        "solve",
        inputs,
        parameters,
        partial(run_solve, n_components=n_components, shrinkage=shrinkage, priors=priors, tol=tol, classes=classes),
        Cost.of(writes=writes, coordinator=[ArraySpec("scatters", d, d, times=scatters)]),
    )


def run_solve(
    context: Context,
    n_components: int,
    shrinkage: float | str | None,
    priors: list[float] | None,
    tol: float,
    classes: int,
) -> dict[str, Any]:
    found = stored_scatter(context)
    share, renormalized = shares(priors, found.counts)
    fourth = read_array(context.of("fourth", "moments")) if shrinkage == "auto" else None
    estimated = class_scatter.covariances(found, share, shrinkage, fourth)
    solved = class_scatter.discriminants(estimated, n_components, tol, class_scatter.flat_of(found))
    write_array(context.path("covariance"), estimated.within)
    write_solution(
        context,
        scalings=solved.scalings,
        ratios=solved.ratios,
        priors=share,
        means=found.means,
        center=found.mean,
        coefficients=found.means @ solved.inverse,
        inner_coefficients=(found.means - found.mean) @ solved.inverse,
    )
    return {"rank": solved.rank, "shrinkage": estimated.shrinkages.tolist(), "renormalized": renormalized}


def solution_arrays(d: int, n_components: int, classes: int) -> Arrays:
    """What :func:`write_solution` writes."""
    return [
        ArraySpec("scalings", d, n_components),
        ArraySpec("explained_variance_ratio", n_components),
        *(ArraySpec(name, classes, d) for name in ("coefficients", "inner_coefficients")),
        *(ArraySpec(name, classes) for name in ("priors", "intercepts", "inner_intercepts")),
        *(ArraySpec(name, d) for name in ("center", "direction")),
    ]


def write_solution(
    context: Context,
    *,
    scalings: Array,
    ratios: Array,
    priors: Array,
    means: Array,
    center: Array,
    coefficients: Array,
    inner_coefficients: Array,
) -> None:
    """Write directions and decision function: with S_w⁻¹m_c of the means (c, d) as they are, and about the center."""
    write = partial(_write, context)
    write("scalings", scalings)
    write("explained_variance_ratio", ratios)
    write("priors", priors)
    write("center", center)
    write("coefficients", coefficients)
    write("intercepts", class_scatter.intercepts(coefficients, means, priors))
    write("inner_coefficients", inner_coefficients)
    write("inner_intercepts", class_scatter.intercepts(inner_coefficients, means - center, priors))
    write("direction", class_scatter.fisher_direction(inner_coefficients) if len(means) == 2 else np.zeros(0))


def _write(context: Context, name: str, array: Array) -> None:
    write_array(context.path(name), array)


def stored_scatter(context: Context) -> class_scatter.ClassScatter:
    """What the scatter stage published."""
    return class_scatter.ClassScatter(
        *(read_array(context.of("scatter", name)) for name in ("counts", "means", "scatter"))
    )


def shares(priors: list[float] | None, counts: Array) -> tuple[Array, bool]:
    """Priors that sum to one, and whether they had to be scaled."""
    if priors is None:
        return counts / counts.sum(), False
    given = np.array(priors)
    if abs(given.sum() - 1) <= 1e-5:
        return given, False
    return given / given.sum(), True


def singular_text(rank: int, d: int, n: int, classes: int) -> str:
    """That the scatter within the classes has no inverse, and what that means."""
    said = f"the within-class scatter is singular: of rank {rank} in {d:,} columns. "
    kept = "shrinkage='auto' keeps them" + ", after principal components" * (d > GRAM_COLUMNS)
    if n - classes < d:
        return (
            f"{said}{n:,} rows are too few for more, and some direction separates them by any labels: judge classes by "
            f"rows that were not fitted. Directions without scatter inside the classes are left out; {kept}"
        )
    return f"{said}Directions without scatter inside the classes are left out, even if they separate classes; {kept}"


# --- batches


def kept_by_class(earlier: dict[str, Any], needed: bool) -> bool:
    """Whether the sums are kept by class, as they were for the rows before."""
    found = len(earlier["scatter"]) > 1
    if needed and not found:
        raise InputError("priors need the scatter of each class, and it was summed before they were set; use fit")
    return found


def among_classes(earlier: dict[str, Any], old: Array, new: Array) -> dict[str, Any]:
    """Sums by class where there are more classes now."""
    position, sums = np.searchsorted(new, old), dict(earlier)
    for name in SUMS:
        if len(earlier[name]) == len(old):
            sums[name] = np.zeros((len(new), *earlier[name].shape[1:]))
            sums[name][position] = earlier[name]
    return sums


def linear_scores(rows: Array, solve: str) -> Array:
    """xᵀa_c + b_c of every class with the published coefficients, (b, c)."""
    return project(rows, AffineMap(f"{solve}/coefficients", offset=f"{solve}/intercepts", transposed=True))


def centered_scores(rows: Array, solve: str) -> Array:
    """Scores about the mean of all rows, less what is common to the classes: nothing cancels. (b, c)."""
    inner = f"{solve}/inner_coefficients", f"{solve}/center", f"{solve}/inner_intercepts"
    return project(rows, AffineMap(*inner, transposed=True))


def score_difference(rows: Array, solve: str) -> Array:
    """Score of the second class minus that of the first, (b, 1)."""
    return np.diff(centered_scores(rows, solve), axis=1)


def codes_of_rows(rows: Array, solve: str) -> Array:
    """Number of the class of the largest score, (b, 1)."""
    return np.asarray(centered_scores(rows, solve).argmax(axis=1)[:, None], np.int64)


def probabilities_of_rows(rows: Array, solve: str) -> Array:
    """Probabilities of the classes, (b, c)."""
    return np.asarray(softmax(centered_scores(rows, solve), axis=1))
