"""The passes that the methods on the linearized kernel share: center, scale, degrees.

Each stage is one pass (none where nothing is to be read): the mean; the spread about it, from which ε and, with
one ε for all, t₀ = Σ m u follow; and with α > 0 the sum t = Σ m w u.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bigembed.errors import InputError, KernelSignError, OutOfReachError
from bigembed.estimator.moments import moments_of_block
from bigembed.linalg.moments import merge_moments
from bigembed.maps import linearized
from bigembed.rows import RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Run, Stage, buffer, summing_cost
from bigembed.store.arrays import read_array, write_array

KERNEL = ("center", "scale", "degrees")
"""The stages that hold the kernel."""
RULES = ("auto", "density")
NEGATIVE = -1e-12
"""An entry of the kernel below this is negative, not rounded."""
CONSTANT = 0.5
"""Rows are equal up to rounding where their mean lies this share of their largest distance off the mean."""


@dataclass(frozen=True)
class KernelChoice:
    """What is asked of the kernel."""

    center: bool
    epsilon: str | float
    """``auto`` (4·max r²), ``density`` (that, with scales by row sums), or a number."""
    beta: float
    alpha: float

    @classmethod
    def of(cls, estimator: Any) -> KernelChoice:
        """The parameters of an estimator that has these names."""
        epsilon = estimator.epsilon if isinstance(estimator.epsilon, str) else float(estimator.epsilon)
        return cls(bool(estimator.center), epsilon, float(estimator.beta), float(estimator.alpha))


@dataclass(frozen=True)
class SolverOptions:
    """What is asked of the solver."""

    n_components: int
    order: str
    solver: str
    tol: float
    max_passes: int
    seed: int


def kernel_stages(source: RowSource, choice: KernelChoice) -> list[Stage]:
    """Center, scale and degrees of the linearized kernel on the rows of ``source``."""
    return [
        center_stage(source, choice.center),
        scale_stage(source, choice.epsilon, choice.beta),
        degrees_stage(source, choice.alpha),
    ]


def pass_cost(source: RowSource, writes: Arrays, passes: int, sums: int) -> Cost:
    """Passes over the rows that add up ``sums`` bytes."""
    n, d = source.shape
    own = Cost.of(writes=writes, task=[buffer("features of a tile", 16 << 20)], flops=passes * n * (2 * d + sums / 4))
    return summing_cost(source, sums, passes) + own


def kernel_arrays(d: int) -> Arrays:
    """The arrays that say what the linearized kernel is."""
    return [ArraySpec("center", d), ArraySpec("mean_z", d), ArraySpec("first", d + 3), ArraySpec("second", d + 3)]


def center_stage(source: RowSource, center: bool) -> Stage:
    """c: the weighted mean, or zero without a pass."""
    d = source.shape[1]

    parameters = {"source": source.fingerprint(), "center": center}
    cost = pass_cost(source, [ArraySpec("center", d)], int(center), 16 * d)
    return Stage("center", (), parameters, partial(run_center, source=source, center=center), cost)


def run_center(context: Context, source: RowSource, center: bool) -> dict[str, Any]:
    found = np.zeros(source.shape[1])
    if center:
        found = reduce_rows(
            source, moments_of_block, context.exchange, combine=merge_moments, first=True, diagonal=True
        )["mean"]
    write_array(context.path("center"), found)
    return {"centered": center, "passes": int(center)}


def scale_stage(source: RowSource, epsilon: str | float, beta: float) -> Stage:
    """ε and t₀: one pass, and one more where every row has its own scale."""
    d = source.shape[1]
    given = linearized.EPSILONS in source.aligned
    own = given or epsilon == "density"

    parameters = {"epsilon": epsilon, "beta": beta}
    writes = [ArraySpec("mean_z", d), ArraySpec("farthest", d), ArraySpec("first", d + 3)]
    return Stage(
        "scale",
        ("center",),
        parameters,
        partial(run_scale, source=source, epsilon=epsilon, beta=beta, given=given, own=own),
        pass_cost(source, writes, 1 + own, 16 * d),
    )


def run_scale(
    context: Context, source: RowSource, epsilon: str | float, beta: float, given: Any, own: Any
) -> dict[str, Any]:
    center = read_array(context.of("center", "center"))
    centered = context.results("center")["centered"]
    asked: dict[str, Any] = {"first": not centered, "center": center}
    found = reduce_rows(source, linearized.spread_block, context.exchange, combine=linearized.combine_sums, **asked)
    results = _scale(found, epsilon, beta, centered, given)
    step = np.sqrt(2 / results["epsilon"])
    mean_z = step * found["shift"] / found["mass"]
    write_array(context.path("mean_z"), mean_z)
    write_array(context.path("farthest"), found["farthest"])
    if own:
        kernel = linearized_kernel(center, results, mean_z)
        plain = linearized.Normalization(0.0, None, None)
        total = _totals(context, source, kernel, plain)["total"]
    else:
        total = np.concatenate([[found["mass"], results["mean_s"] * found["mass"]], mean_z * found["mass"]])
    write_array(context.path("first"), total)
    return results


def _scale(found: Parts, rule: str | float, beta: float, centered: bool, given: bool) -> dict[str, Any]:
    """ε by its rule, and what is known of the sign of the kernel."""
    radius = float(found["radius"])
    if not found["present"]:
        raise InputError("weights must contain at least one that is not zero: all are zero")
    if not np.isfinite(radius):
        raise InputError("the squares of the rows overflow float64: scale the columns down")
    enough = 4 * radius
    off = float(np.linalg.norm(found["shift"]) / found["mass"])
    if enough < np.finfo(float).tiny or (centered and off > CONSTANT * np.sqrt(radius)):
        what = "all rows are equal" if centered else "all rows are zero"
        raise InputError(
            f"{what} (largest distance to the center {np.sqrt(radius):.3g}), so there is no scale and nothing to "
            "embed. Give rows that differ"
        )
    lowest = float(found["lowest epsilon"])
    if given and not lowest > 0:
        raise InputError(f"epsilons must be positive and finite numbers; the smallest is {lowest:g}")
    number = not isinstance(rule, str)
    epsilon = lowest if given else float(rule) if number else enough
    return {
        "kind": "given" if given else "density" if rule == "density" else "global",
        "epsilon": epsilon,
        "enough": enough,
        "proved": bool(epsilon >= enough),
        "mass": float(found["mass"]),
        "present": int(found["present"]),
        "mean_s": float(found["squares"] / found["mass"]) / epsilon,
        "beta": beta,
        "passes": 2 if given or rule == "density" else 1,
    }


def degrees_stage(source: RowSource, alpha: float) -> Stage:
    """M t₀ and M t: one pass with α > 0, none with α = 0."""

    width = source.shape[1] + 3
    writes = [ArraySpec(name, width) for name in ("first", "second")]
    cost = pass_cost(source, writes, int(alpha != 0), 8 * width)
    return Stage(
        "degrees", ("center", "scale"), {"alpha": alpha}, partial(run_degrees, source=source, alpha=alpha), cost
    )


def run_degrees(context: Context, source: RowSource, alpha: float) -> dict[str, Any]:
    kernel, first = kernel_of(context.home), read_array(context.of("scale", "first"))
    second = kernel.core @ first
    lowest = np.inf
    if alpha:
        given = linearized.Normalization(alpha, second, None)
        found = _totals(context, source, kernel, given)
        lowest = float(found["lowest q"])
        if lowest <= 0:
            refuse_sign(context.results("scale"), "row sum", lowest)
        second = kernel.core @ found["total"]
    write_array(context.path("first"), kernel.core @ first)
    write_array(context.path("second"), second)
    return {"alpha": alpha, "passes": int(alpha != 0)}


def _totals(
    context: Context, source: RowSource, kernel: linearized.LinearizedKernel, given: linearized.Normalization
) -> Parts:
    """Sums over all rows by a normalization: one pass."""
    asked: dict[str, Any] = {"kernel": kernel, "given": given}
    return reduce_rows(source, linearized.total_block, context.exchange, combine=linearized.combine_sums, **asked)


def farthest(context: Context, kernel: linearized.LinearizedKernel) -> Array:
    """M u* of the row farthest from the center, which shows a negative entry first; zero where its ε_i is not known."""
    if context.results("scale")["kind"] == "given":
        return np.zeros(kernel.size)
    return np.asarray(kernel.core @ kernel.features(read_array(context.of("scale", "farthest"))[None])[0])


def refuse_negative(scale: dict[str, Any], row_sum: float, entry: float) -> None:
    """KernelSignError where a row sum is not positive, or an entry is negative beyond rounding."""
    if row_sum <= 0:
        refuse_sign(scale, "row sum", row_sum)
    if entry < NEGATIVE:
        refuse_sign(scale, "entry", entry)


def refuse_sign(scale: dict[str, Any], what: str, value: float) -> None:
    """KernelSignError: the scale is too small."""
    raise KernelSignError(
        f"the linearized kernel 1 − ‖x − y‖²/ε has a {what} of {value:.3g} with "
        f"{'the smallest ' if scale['kind'] == 'given' else ''}ε = {scale['epsilon']:.6g}, which is below the largest "
        f"squared distance. Take ε ≥ 4·max r² = {scale['enough']:.6g}, or epsilon='auto'"
    )


def kernel_of(run: Run) -> linearized.LinearizedKernel:
    """The kernel that the stages of a run (or of a saved model) fixed."""
    mean_z = read_array(run.path("scale", "mean_z"))
    return linearized_kernel(read_array(run.path("center", "center")), run.results("scale"), mean_z)


def linearized_kernel(center: Array, scale: dict[str, Any], mean_z: Array) -> linearized.LinearizedKernel:
    """The kernel from its numbers (kind, epsilon, mean_s, beta) and vectors."""
    own = linearized.DensityScales(scale["mean_s"], mean_z, scale["beta"]) if scale["kind"] == "density" else None
    return linearized.LinearizedKernel(center, scale["epsilon"], scale["kind"], own)


def normalization_of(run: Run) -> linearized.Normalization:
    """α, M t₀ and M t of a run or a saved model."""
    first, second = (read_array(run.path("degrees", name)) for name in ("first", "second"))
    return linearized.Normalization(run.results("degrees")["alpha"], first, second)


def keep_kernel(context: Context) -> dict[str, Any]:
    """Write what new rows need of the kernel beside the map that uses it; returns its numbers."""
    given = normalization_of(context.home)
    arrays = {"first": given.first, "second": given.second}
    arrays |= {
        "center": read_array(context.of("center", "center")),
        "mean_z": read_array(context.of("scale", "mean_z")),
    }
    for name, array in arrays.items():
        assert array is not None
        write_array(context.path(name), array)
    scale = context.results("scale")
    return {name: scale[name] for name in ("kind", "epsilon", "mean_s", "beta")} | {"alpha": given.alpha}


@dataclass(frozen=True)
class StoredKernel:
    """Where a task finds what :func:`keep_kernel` left beside a map, and what it does with rows out of its reach."""

    path: str
    digest: str
    """Of the stage: a worker keeps the last map that it opened under it."""
    numbers: str
    """Results of the stage, as JSON."""
    outside: str

    @classmethod
    def of(cls, run: Run, stage: str, outside: str) -> StoredKernel:
        """That of a stage of a run or of a saved model."""
        return cls(run.path(stage), run.digest(stage), json.dumps(run.results(stage)), outside)

    def read(self) -> tuple[linearized.LinearizedKernel, linearized.Normalization, dict[str, Any]]:
        """The kernel, its normalization and the results of the stage."""
        numbers = json.loads(self.numbers)
        names = ("center", "mean_z", "first", "second")
        center, mean_z, first, second = (read_array(f"{self.path}/{name}") for name in names)
        return (
            linearized_kernel(center, numbers, mean_z),
            linearized.Normalization(numbers["alpha"], first, second),
            numbers,
        )


def refuse_lost(lost: Array) -> None:
    """OutOfReachError where rows of a block are marked."""
    if lost.any():
        raise OutOfReachError(
            f"{int(lost.sum())} of {len(lost)} rows are so far from the rows fitted that their row of the linearized "
            f"kernel has no positive sum; the first are rows {np.flatnonzero(lost)[:10].tolist()} of these. Drop them, "
            "fit with a larger epsilon, or take outside='nan' to have NaN there"
        )
