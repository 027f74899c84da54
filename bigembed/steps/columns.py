"""Some of the columns: those that are named, that vary most, or that have values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError, nearest
from bigembed.estimator.extension import Extension
from bigembed.estimator.moments import missing_of_block, moments_stage
from bigembed.estimator.rowwise import Step
from bigembed.rows import RowSource
from bigembed.rows.derived import PlannedRows
from bigembed.rows.passes import checked_shape, map_row_blocks, refuse
from bigembed.rows.reader import listed
from bigembed.rows.row_maps import picked
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Kind, Requirements, interval, is_integer, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, summing_cost
from bigembed.store.arrays import read_array, write_array
from bigembed.store.vector_space import tree_fold

# ------------------------------------------------------------------------------------------------------ dispersion
# How far the columns of counts spread beyond what columns of their size do: which genes of single cells differ.

BINS = 20


def normalized_dispersion(mean: Array, variance: Array) -> Array:
    """(log D_j − a_b)/s_b of the dispersion D_j = v_j/m_j of each column (d,): NaN where the variance is 0.

    a_b and s_b are the mean and the standard deviation of log D over the columns of the bin b of column j; the range
    of log(1 + m) has 20 bins of one width (Satija et al. 2015, as Scanpy has it, flavor "seurat"). In a bin of one
    column it is 1.

    >>> found = normalized_dispersion(np.array([1.0, 1.0, 1.0, 9.0, 9.0]), np.array([1.0, 1.0, 8.0, 9.0, 0.0]))
    >>> found.round(3).tolist()
    [-0.577, -0.577, 1.155, 1.0, nan]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        dispersion = np.log(np.where(variance > 0, variance / mean, np.nan))
    size, there = np.log1p(mean), np.isfinite(dispersion)
    inner = np.linspace(size.min(), size.max(), BINS + 1)[1:-1]
    bins, values = np.searchsorted(inner, size), np.where(there, dispersion, 0)
    counts, sums = (np.bincount(bins, weights, BINS) for weights in (there, values))
    center = sums / np.maximum(counts, 1)
    squares = np.bincount(bins, np.where(there, (dispersion - center[bins]) ** 2, 0), BINS)
    deviations = np.sqrt(squares / np.maximum(counts - 1, 1))
    alone = counts == 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(alone[bins] & there, 1.0, (dispersion - center[bins]) / deviations[bins])


# --------------------------------------------------------------------------------------------------------- columns

NAMES = "a list of names or of numbers of columns, each once"


def are_names(value: Any) -> bool:
    given = isinstance(value, (list, tuple, np.ndarray)) and len(value) > 0
    return given and all(isinstance(one, str) or is_integer(one) for one in value) and len({*value}) == len(value)


@dataclass(eq=False, repr=False)
class Columns(Step, registered="columns"):
    """Select columns by their names or numbers, in the order given, or those that vary most, in the order of the rows.

    Columns in which most values are missing can be left out as well, before the step ``missing`` sees to the rows: land
    in a field of the sea, sensors that were never on.

    The variance of a column is v_j = Σ_i (x_ij − m_j)²/n (Chan, Golub & LeVeque 1983), as ``standardize`` has it. By
    "dispersion" columns of counts are compared with those of like mean: (log D_j − a)/s, D_j = v_j n/((n − 1) m_j),
    with the mean a and the standard deviation s of log D over the columns of one of 20 bins of log(1 + m) (Satija et
    al. 2015). After ``normalize`` and before ``log1p`` these are the highly variable genes of single-cell work.

    Parameters
    ----------
    columns : list of str, list of int, or None
        The names of the columns, where the rows come with names, or their numbers, from 0 on.
    most_variable : int ≥ 1 or None
        How many columns to take of those that vary most; among ``columns``, if both are given.
    most_missing : float in [0, 1) or None
        The largest share of missing values (NaN) that a column may have, of ``columns`` if they are given; others are
        left out, in the order of the rows. 0 takes the columns without any. Not beside ``most_variable``: a second step
        takes that.
    by : {"variance", "dispersion"}
        What ``most_variable`` compares; "dispersion" is for columns without negative means.
    workdir : path or None
        Where the stages are kept, and from where a fit that was stopped goes on; None is a temporary folder.
    persist : "store" or None
        Whether rows of a lazy array are written once and read from there: "store" says so; None does so only for rows
        that are read more than twice.
    keep : "all", "map" or "coordinates"
        What stays in ``workdir`` of the stages: all of it; what the map, new rows and a saved model need; or the map
        alone, which then places no new rows. The rest is deleted as soon as no stage is left to read it.
    verbose : bool
        Whether ``fit`` shows its progress.
    callbacks : sequence of functions, or None
        Functions that ``fit`` calls with every event.

    Attributes
    ----------
    columns_ : array of shape (m,), int
        The numbers of the columns taken.
    n_components_ : int
        The number m of columns taken.
    n_samples_, n_features_in_ : int
        The numbers of rows and of their columns.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, m)
        The columns of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If columns are not there (the nearest names that are there are given), all of them miss more values than
        ``most_missing``, or parameters are out of range.

    Notes
    -----
    Cost: no pass for columns that are named, one for those that vary most or miss least; 2d numbers and a block of rows
    in memory.

    References
    ----------
    T. Chan, G. Golub, R. LeVeque, Algorithms for computing the sample variance, The American Statistician 37 (1983).
    R. Satija et al., Spatial reconstruction of single-cell gene expression data, Nature Biotechnology 33 (2015).

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0, 5.0], [0.1, 9.0, 7.0]])
    >>> Columns([2, 0]).fit_transform(rows).tolist()
    [[5.0, 0.0], [7.0, 0.1]]
    >>> Columns(most_variable=2).fit(rows).columns_.tolist()
    [1, 2]
    >>> Columns(most_missing=0.5).fit(np.array([[0.0, np.nan], [1.0, np.nan]])).columns_.tolist()
    [0]
    """

    saved_stages: ClassVar = {"choice": ("chosen",), "coordinates": ("embedding",)}
    learned: ClassVar = "choice"

    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None
    _: KW_ONLY
    most_variable: Count | None = None
    most_missing: Annotated[float, interval(0, 1, closed="left")] | None = None
    by: Annotated[str, one_of("variance", "dispersion")] = "variance"

    def _require(self, need: Requirements) -> None:
        counted = self.most_variable is not None, self.most_missing is not None
        need(self.columns is not None or any(counted), "columns", f"{NAMES}, or give most_variable or most_missing")
        need(not all(counted), "most_missing", "left out beside most_variable; make two steps of them")
        need(self.by == "variance" or self.most_variable is not None, "by", "left out; it is of most_variable")

    @property
    def takes_nan(self) -> bool:  # type: ignore[override]
        """Tell whether rows may hold NaN: where the missing values of the columns are counted."""
        return self.most_missing is not None

    def width(self, source: RowSource) -> int:
        """Count the columns that are taken, at the most."""
        most = source.width if self.columns is None else len(self.columns)
        return most if self.most_variable is None else self.most_variable

    def _learning(self, source: RowSource) -> list[Stage]:
        _, d = checked_shape(source)
        among = list(range(d)) if self.columns is None else numbers_in(source, self.columns)
        kept = self.most_variable
        if kept is not None and kept > len(among):
            raise InputError(f"most_variable={kept}: there are {len(among)} columns to choose from")
        before = [] if kept is None else [moments_stage(source, diagonal=True)]
        if self.most_missing is not None:
            before = [counted_stage(source)]
        parameters: dict[str, Any] = {"source": source.fingerprint(), "columns": among, "most_variable": kept}
        if self.by != "variance":
            parameters["by"] = self.by
        if self.most_missing is not None:
            parameters["most_missing"] = self.most_missing
        run = partial(run_choice, source=source, among=among, kept=kept, by=self.by, most=self.most_missing)
        cost = Cost.of(writes=[ArraySpec("chosen", len(among), dtype="i8")])
        return [*before, Stage("choice", tuple(one.name for one in before), parameters, run, cost)]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.columns_: Array = read_array(run.path("choice", "chosen"))

    def _block(self, run: Run) -> tuple[Any, Any]:
        return picked, read_array(run.path("choice", "chosen"))

    def describe(self) -> str:
        """Say how many columns it took."""
        return f"{len(self.columns_):,} of {self.n_features_in_:,} columns taken"

    def _extension(self, run: Run) -> Extension:
        found = super()._extension(run)
        return replace(found, missing="taken") if self.takes_nan else found

    def _names_out(self, names: list[str]) -> list[str]:
        return [names[number] for number in self.columns_]

    def _planned_names(self, names: Sequence[str]) -> Sequence[str]:
        if not names or self.columns is None or self.most_variable is not None or self.most_missing is not None:
            return ()
        return [names[number] for number in numbers_of(self.columns, names, len(names))]


def numbers_in(source: RowSource, columns: Sequence[Any]) -> list[int]:
    """Numbers of columns of rows; as many, for a plan, where a step before has yet to learn what they are called."""
    named = any(isinstance(one, str) for one in columns)
    if named and isinstance(source, PlannedRows) and source.base is not None and not source.features:
        return list(range(min(len(columns), source.width)))
    return numbers_of(columns, source.features, source.width)


def numbers_of(columns: Sequence[Any], names: Sequence[str], d: int) -> list[int]:
    """Numbers of columns; InputError for those that are not there.

    >>> numbers_of(["b", 0], ["a", "b"], 2)
    [1, 0]
    """
    known = {name: number for number, name in enumerate(names)}
    if not names and any(isinstance(one, str) for one in columns):
        raise InputError(
            f"columns are chosen by name, and these rows have no names of columns: give numbers, 0 to {d - 1}"
        )
    unknown = [one for one in columns if (one not in known if isinstance(one, str) else not -d <= one < d)]
    if unknown:
        near = nearest(unknown[0], names)
        hint = f"did you mean {near!r}?" if near else f"there are {listed(names) or f'{d} columns, from 0 on'}"
        raise InputError(f"no columns {listed(map(repr, unknown))}; {hint}")
    found = [known[one] if isinstance(one, str) else int(one) % d for one in columns]
    if len({*found}) < len(found):
        raise InputError(f"columns {listed(map(str, columns))}: some of them are the same")
    return found


def run_choice(
    context: Context, source: RowSource, among: list[int], kept: int | None, by: str, most: float | None
) -> dict[str, Any]:
    """The columns that are taken: all of ``among``, those that vary most, or that miss no more than ``most``."""
    n, d = checked_shape(source)
    chosen = np.array(among)
    if kept is not None:
        mean, scatter = (read_array(context.of("moments", name)) for name in ("mean", "scatter"))
        varied = scatter if by == "variance" else _dispersion(mean, scatter, n)
        chosen = np.sort(chosen[np.argsort(-varied[chosen], kind="stable")[:kept]])
    if most is not None:
        missing = read_array(context.of(COUNTED, "missing"))[chosen] / n
        chosen = chosen[missing <= most]
        if not len(chosen):
            raise InputError(
                f"all {len(among)} columns miss more than {most:g} of their values (most_missing), the fullest "
                f"{missing.min():.3g}. Raise it, or leave rows out (missing)"
            )
    write_array(context.path("chosen"), chosen)
    return {"n": n, "d": d, "dtype": str(source.work), "width": len(chosen)}


COUNTED = "counted"
"""The stage that counts missing values."""


def counted_stage(source: RowSource) -> Stage:
    """``missing`` (d,): how many values of each column are missing. One pass; infinity is refused."""
    found = ArraySpec("missing", source.width, dtype="i8")
    cost = summing_cost(source, 0) + Cost.of(writes=[found], coordinator=[replace(found, times=3)])
    return Stage(COUNTED, (), {"source": source.fingerprint()}, partial(run_counted, source=source), cost)


def run_counted(context: Context, source: RowSource) -> dict[str, Any]:
    parts = map_row_blocks(source, missing_of_block, label="missing", mask="", zeros=False)
    refuse([part["wrong"] for part in parts], source)
    write_array(context.path("missing"), source.shape[0] - tree_fold([part["counts"] for part in parts], np.add))
    return {}


def _dispersion(mean: Array, scatter: Array, n: int) -> Array:
    """How far columns of counts spread; InputError where a mean is negative."""
    if (mean < 0).any():
        raise InputError(
            f"by='dispersion' compares columns of counts, and {(mean < 0).sum()} of {len(mean)} columns have a "
            f"negative mean, the first is column {(mean < 0).argmax()} (counted from 0). Put the step before those "
            "that take a mean off, or take by='variance'"
        )
    found = normalized_dispersion(mean, scatter / max(1, n - 1))
    return np.nan_to_num(found, nan=-np.inf, posinf=np.inf)
