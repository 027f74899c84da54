"""Independent components by fourth moments: the directions along which whitened rows are least Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.moments import moments_stage
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.linalg.eigenpairs import extremes
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, checked_shape, reduce_rows
from bigembed.rows.row_maps import affine_block
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, summing_cost
from bigembed.store.arrays import read_array, write_array

COLUMNS = 4096
"""Columns up to which d² numbers are held."""
FLAT = 1e-12
"""Variance over the largest below which a direction has none."""


@dataclass(eq=False, repr=False)
class IndependentComponents(RowwiseEstimator, registered="independent_components"):
    """Find independent components in two passes over the rows, by their fourth moments (FOBI, Cardoso 1989).

    With the mean m and the covariance C = V Λ Vᵀ, the rows z = Λ^{−½} Vᵀ (x − m) are white. For x = A s with
    independent sources s, B = E[‖z‖² z zᵀ] has the sources' directions as eigenvectors, and the eigenvalues
    κ_l + r + 2, κ_l the excess kurtosis of source l and r the rank of C. Coordinates are sources of variance one.

    Parameters
    ----------
    n_components : int ≥ 1 or None
        The number m of sources kept, the least Gaussian first; None keeps all r.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all" or "map"
        What stays in ``workdir`` of the stages: all of it; or what the map, new rows and a saved model need, the rest
        deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event: a stage starts, goes on or ends.

    Attributes
    ----------
    components_ : array of shape (m, d)
        The rows that make coordinates: components_ (x − m). The largest |entry| of each is positive.
    kurtosis_ : array of shape (m,)
        The excess kurtosis of each source, by descending absolute value.
    mean_ : array of shape (d,)
        The mean of the rows.
    embedding_ : array of shape (n, m)
        The coordinates of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.
    n_components_, n_features_in_ : int
        The numbers of coordinates and of columns of the rows.
    certificate_ : dict
        How far the result can be trusted.

    Raises
    ------
    InputError
        If there are fewer than two rows, all rows are equal, rows hold NaN or infinity (they are named), or there are
        more than 4096 columns, or more components than the rank.

    Notes
    -----
    Cost: two passes for ``fit``, one for coordinates. Memory of a worker: a few blocks of rows (32 MiB) and d² numbers.
    Sources of equal kurtosis, and more than one Gaussian one, cannot be separated: a DegenerateWarning.

    References
    ----------
    J.-F. Cardoso, Source separation using higher order moments, ICASSP (1989).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sources = np.stack([rng.uniform(-1, 1, 20_000), rng.laplace(size=20_000)], axis=1)
    >>> found = IndependentComponents().fit(sources @ np.array([[1.0, 2.0], [3.0, 1.0]]))
    >>> np.abs(np.corrcoef(found.embedding_.T, sources.T)[:2, 2:]).round(1).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    follows_dtype = True
    saved_stages: ClassVar = {"moments": ("mean",), "separate": ("",), "coordinates": ("embedding",)}

    n_components: Count | None = None

    def stages(self, source: RowSource) -> list[Stage]:
        """Mean and covariance, white axes, sources and, on demand, coordinates."""
        self._check()
        _, d = checked_shape(source, at_least=2)
        if d > COLUMNS:
            raise InputError(f"{d} columns; at most {COLUMNS} are taken here. Reduce them first (PCA)")
        asked = None if self.n_components is None else int(self.n_components)
        if asked is not None and asked > d:
            raise InputError(f"n_components={asked} must be between 1 and n_features={d}")
        stages = [moments_stage(source), whiten_stage(source), separate_stage(source, asked)]
        return [*stages, self._output_stage(source, stages, asked or d)]

    def _set_fitted(self, run: Run) -> None:
        self.mean_ = read_array(run.path("moments", "mean"))
        self.components_ = read_array(run.path("separate", "components"))
        self.kurtosis_ = read_array(run.path("separate", "kurtosis"))
        self.n_components_ = len(self.kurtosis_)

    def _certificate(self, run: Run) -> dict[str, Any]:
        found = run.results("separate")
        alike = [
            f"IndependentComponents: two kurtoses differ by {found['gap']:.2g}, the standard error is "
            f"{found['standard_error']:.2g}; their sources are mixed. Take fewer components, or more rows"
        ]
        return {
            "passes": 2,
            "rank": found["rank"],
            "kurtosis": self.kurtosis_.tolist(),
            "gap": found["gap"],
            "warnings": {"degenerate": alike if found["gap"] < 3 * found["standard_error"] else []},
        }

    def _extension(self, run: Run) -> Extension:
        moments = run.results("moments")
        model = (run.path("moments", "mean"), run.path("separate", "components"))
        width = run.results("separate")["n_components"]
        return Extension(project, model, width, moments["d"], dtype=moments["dtype"])


# --- stages ---------------------------------------------------------------------------------------


def whiten_stage(source: RowSource) -> Stage:
    """``whiten/axes`` (d, r) = V Λ^{−½}: rows (x − m) · axes have the covariance I. No pass."""
    axes = ArraySpec("axes", source.shape[1], source.shape[1])
    cost = Cost.of(writes=[axes], coordinator=[replace(axes, times=4)])
    return Stage("whiten", ("moments",), {}, run_whiten, cost)


def run_whiten(context: Context) -> dict[str, Any]:
    moments = context.results("moments")
    covariance = read_array(context.of("moments", "scatter")) / (moments["n"] - 1)
    values, vectors = linalg.eigh(covariance)
    full = values > FLAT * values[-1]
    if values[-1] <= 0:
        raise InputError("all rows are equal: nothing is independent in them")
    write_array(context.path("axes"), vectors[:, full] / np.sqrt(values[full]))
    return {"rank": int(full.sum())}


def separate_stage(source: RowSource, asked: int | None) -> Stage:
    """``separate/components`` (m, d) and ``separate/kurtosis`` (m,): one pass for B, then its eigenvectors."""
    n, d = source.shape

    square = ArraySpec("components", d, d)
    cost = summing_cost(source, square.nbytes) + Cost.of(
        writes=[square, ArraySpec("kurtosis", d)],
        task=[ArraySpec("whitened rows", source.block, d, times=2)],
        flops=4 * n * d * d,
    )
    return Stage(
        "separate",
        ("moments", "whiten"),
        {"n_components": asked},
        partial(run_separate, source=source, asked=asked, d=d, n=n),
        cost,
        resumes=True,
    )


def run_separate(context: Context, source: RowSource, asked: int | None, d: int, n: int) -> dict[str, Any]:
    mean, axes, rank = (
        context.of("moments", "mean"),
        context.of("whiten", "axes"),
        context.results("whiten")["rank"],
    )
    if asked is not None and asked > rank:
        raise InputError(f"n_components={asked}, but the rows lie in a space of {rank} dimensions; ask for those")
    total = reduce_rows(
        source, fourth_moments, context.exchange, partial_bytes=8 * d * d, label="fourth", mean=mean, axes=axes
    )
    components, kurtosis = separated(total["fourth"] / n, read_array(axes))
    m = asked or rank
    write_array(context.path("components"), components[:m])
    write_array(context.path("kurtosis"), kurtosis[:m])
    return {
        "n_components": m,
        "rank": rank,
        "gap": smallest_gap(kurtosis, m),
        "standard_error": float(np.sqrt((3 * (rank + 4) * (rank + 6) - (rank + 2) ** 2) / n)),
    }


# --- one block ------------------------------------------------------------------------------------


def fourth_moments(block: RowBlock, *, mean: str, axes: str) -> Parts:
    """Σ ‖z‖² z zᵀ over the rows of a block, z = (x − m) · axes."""
    white = affine_block(block.rows, read_array(mean), read_array(axes))
    squares = np.einsum("ij,ij->i", white, white)
    return {"fourth": (white * squares[:, None]).T @ white}


def separated(fourth: Array, axes: Array) -> tuple[Array, Array]:
    """Unmixing rows (r, d) and excess kurtoses (r,), the least Gaussian first, from B (r, r) and the white axes."""
    values, vectors = linalg.eigh(fourth)
    kurtosis = values - len(values) - 2
    order = np.argsort(-np.abs(kurtosis), kind="stable")
    directions = axes @ vectors[:, order]
    return np.ascontiguousarray((directions * extremes(directions)[1]).T), kurtosis[order]


def smallest_gap(kurtosis: Array, m: int) -> float:
    """The smallest difference of one of the first m kurtoses to any other; infinite where there is one only."""
    apart = np.abs(kurtosis[:m, None] - kurtosis)
    apart[np.arange(m), np.arange(m)] = np.inf
    return float(min(apart.min(), 1e300))


def project(rows: Any, model: tuple[str, str]) -> Array:
    """Coordinates of rows: (x − m) · componentsᵀ."""
    mean, components = model
    return affine_block(rows, read_array(mean), np.ascontiguousarray(read_array(components).T))
