"""Some of the columns (those that are named, or that vary most), and columns of categories as columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError, nearest
from bigembed.estimator.extension import Extension
from bigembed.estimator.moments import moments_stage
from bigembed.estimator.rowwise import Step
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import checked_shape, infinite, map_row_blocks, refuse
from bigembed.rows.reader import listed
from bigembed.rows.row_maps import indicators, picked
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Kind, Requirements, is_integer, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, summing_cost
from bigembed.store.arrays import read_array, write_array

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
        If columns are not there (the nearest names that are there are given), or parameters are out of range.

    Notes
    -----
    Cost: no pass for columns that are named, one for those that vary most; 2d numbers and a block of rows in memory.

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
    """

    saved_stages: ClassVar = {"choice": ("chosen",), "coordinates": ("embedding",)}
    learned: ClassVar = "choice"

    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None
    _: KW_ONLY
    most_variable: Count | None = None
    by: Annotated[str, one_of("variance", "dispersion")] = "variance"

    def _require(self, need: Requirements) -> None:
        need(self.columns is not None or self.most_variable is not None, "columns", f"{NAMES}, or give most_variable")
        need(self.by == "variance" or self.most_variable is not None, "by", "left out; it is of most_variable")

    def width(self, source: RowSource) -> int:
        """Count the columns that are taken."""
        most = source.width if self.columns is None else len(self.columns)
        return most if self.most_variable is None else self.most_variable

    def _learning(self, source: RowSource) -> list[Stage]:
        _, d = checked_shape(source)
        among = list(range(d)) if self.columns is None else numbers_of(self.columns, source.features, d)
        kept = self.most_variable
        if kept is not None and kept > len(among):
            raise InputError(f"most_variable={kept}: there are {len(among)} columns to choose from")
        moments = [] if kept is None else [moments_stage(source, diagonal=True)]
        parameters = {"source": source.fingerprint(), "columns": among, "most_variable": kept}
        if self.by != "variance":
            parameters["by"] = self.by
        run = partial(run_choice, source=source, among=among, kept=kept, by=self.by)
        cost = Cost.of(writes=[ArraySpec("chosen", len(among), dtype="i8")])
        found = Stage("choice", ("moments",) if moments else (), parameters, run, cost)
        return [*moments, found]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.columns_: Array = read_array(run.path("choice", "chosen"))

    def _block(self, run: Run) -> tuple[Any, Any]:
        return picked, read_array(run.path("choice", "chosen"))

    def describe(self) -> str:
        """Say how many columns it took."""
        return f"{len(self.columns_):,} of {self.n_features_in_:,} columns taken"

    def _names_out(self, names: list[str]) -> list[str]:
        return [names[number] for number in self.columns_]

    def _planned_names(self, names: Sequence[str]) -> Sequence[str]:
        if not names or self.columns is None or self.most_variable is not None:
            return ()
        return [names[number] for number in numbers_of(self.columns, names, len(names))]


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


def run_choice(context: Context, source: RowSource, among: list[int], kept: int | None, by: str) -> dict[str, Any]:
    """The columns that are taken: all of ``among``, or those of them that vary most."""
    n, d = checked_shape(source)
    chosen = np.array(among)
    if kept is not None:
        mean, scatter = (read_array(context.of("moments", name)) for name in ("mean", "scatter"))
        varied = scatter if by == "variance" else _dispersion(mean, scatter, n)
        chosen = np.sort(chosen[np.argsort(-varied[chosen], kind="stable")[:kept]])
    write_array(context.path("chosen"), chosen)
    return {"n": n, "d": d, "dtype": str(source.work), "width": len(chosen)}


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


# -------------------------------------------------------------------------------------------------------- categories

STAYS = -1
"""Of a column that is not encoded: as the number of its categories."""


@dataclass(eq=False, repr=False)
class OneHotEncoder(Step, registered="one_hot"):
    """Replace a column of categories by one column for each category, 1 in the rows that are of it and 0 in all others.

    The new columns stand where the column stood, by ascending number or in the order of the alphabet. The
    columns named here may be text in CSV and Parquet, which jobs read, and in data frames in memory; in arrays
    categories are numbers. A missing value (NaN) is NaN in all columns of its column.

    Parameters
    ----------
    columns : list of str, list of int, or None
        The names of the columns to encode, where the rows come with names, or their numbers, from 0 on; None encodes
        all.
    unknown : {"error", "zeros"}
        What becomes of a new row with a category that the fitted rows did not have.
    most : int ≥ 1
        The categories of a column at the most; a column with more is refused.
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
    categories_ : list
        For each of ``columns`` (in the order of the rows) its categories: numbers, or text.
    n_components_ : int
        The number of columns that come out.
    n_samples_, n_features_in_ : int
        The numbers of rows and of their columns.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, n_components_)
        The rows fitted, encoded: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If rows hold infinity (they are named), columns are not there, a column has more than ``most`` categories, a
        category is not known (rows are named), or parameters are out of range.

    Notes
    -----
    Cost: one pass, and the categories of each block in memory. The plan counts with ``most`` categories of each column
    of numbers, and with those of the table where they are text.

    References
    ----------
    D. Suits, Use of dummy variables in regression equations, Journal of the American Statistical Association 52 (1957).

    Examples
    --------
    >>> rows = np.array([[0.5, 3.0], [0.1, 7.0], [0.2, 3.0]])
    >>> OneHotEncoder([1]).fit_transform(rows).tolist()
    [[0.5, 1.0, 0.0], [0.1, 0.0, 1.0], [0.2, 1.0, 0.0]]
    """

    saved_stages: ClassVar = {"categories": ("counts", "values"), "coordinates": ("embedding",)}
    learned: ClassVar = "categories"
    of_columns: ClassVar = False
    takes_nan: ClassVar = True

    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None
    _: KW_ONLY
    unknown: Annotated[str, one_of("error", "zeros")] = "error"
    most: Count = 100

    def dense_only(self) -> str:
        return "categories are in columns of dense rows, and these are sparse: leave the step out"

    def _numbers(self, source: RowSource) -> list[int]:
        d = source.width
        return list(range(d)) if self.columns is None else sorted(numbers_of(self.columns, source.features, d))

    def width(self, source: RowSource) -> int:
        """Count the columns that come out at the most."""
        numbers = self._numbers(source)
        return source.width - len(numbers) + sum(len(_texts(source, number)) or self.most for number in numbers)

    def _learning(self, source: RowSource) -> list[Stage]:
        _, d = checked_shape(source)
        numbers = self._numbers(source)
        texts = [list(_texts(source, number)) for number in numbers]
        parameters = {"source": source.fingerprint(), "columns": numbers, "texts": texts, "most": self.most}
        writes = [ArraySpec("values", self.width(source), dtype=source.work), ArraySpec("counts", d, dtype="i8")]
        found = ArraySpec("categories of blocks", len(numbers), self.most, times=8)
        cost = summing_cost(source, 0) + Cost.of(writes=writes, coordinator=[found])
        run = partial(run_categories, source=source, numbers=numbers, texts=texts, most=self.most)
        return [Stage("categories", (), parameters, run, cost)]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self._known = encoded_of(run)
        texts = run.results("categories")["texts"]
        self.categories_ = [
            [names[int(value)] for value in values] if names else values.tolist()
            for values, names in zip(self._known.values(), texts, strict=True)
        ]

    def texts(self) -> dict[str, list[str]]:
        """Return the texts that columns of categories had in the table of the rows fitted, by column."""
        texts, names = self._run.results("categories")["texts"], getattr(self, "feature_names_in_", ())
        known = zip(self._known, texts, strict=True)
        return {str(names[number]): one for number, one in known if one and len(names)}

    def describe(self) -> str:
        """Say how many columns it made."""
        made = ", ".join(f"{len(one):,}" for one in self.categories_)
        return f"{len(self.categories_)} of {self.n_features_in_:,} columns encoded, of {made} categories"

    def _block(self, run: Run) -> tuple[Any, Any]:
        known = encoded_of(run)
        each = [known.get(number) for number in range(run.results("categories")["d"])]
        return indicators, (each, self.unknown == "error")

    def _extension(self, run: Run) -> Extension:
        return replace(super()._extension(run), missing="taken", numbered=True)

    def _names_out(self, names: list[str]) -> list[str]:
        known = dict(zip(self._known, self.categories_, strict=True))
        return [one for number, name in enumerate(names) for one in _encoded(name, known.get(number))]

    def _planned_names(self, names: Sequence[str]) -> Sequence[str]:
        return ()


def encoded_of(run: Run) -> dict[int, Array]:
    """The categories of each column that is encoded, by its number."""
    counts, values = (read_array(run.path("categories", name)) for name in ("counts", "values"))
    numbers = np.flatnonzero(counts != STAYS)
    parts = np.split(values, np.cumsum(counts[numbers])[:-1]) if len(numbers) else []
    return dict(zip(numbers.tolist(), parts, strict=True))


def categories_of_block(block: RowBlock, *, columns: Sequence[int], most: int) -> dict[str, Any]:
    """The different numbers in these columns of one canonical block, up to one too many; what is infinite."""
    known = []
    for column in columns:
        values = np.unique(block.rows[:, column])
        known.append(values[~np.isnan(values)][: most + 1])
    wrong = infinite(block.rows[:, columns], block.start)
    return {"known": known, "wrong": {**wrong, "nan": 0} if wrong.get("infinite") else {}}


def _refuse(name: str, values: Array, texts: Sequence[str], most: int) -> None:
    """InputError unless these can be the categories of a column."""
    if len(values) > most:
        raise InputError(
            f"column {name} has more than most={most} categories. Raise most, or leave the column out: each category "
            "becomes a column"
        )
    if texts and not np.isin(values, np.arange(len(texts))).all():
        raise InputError(
            f"column {name} does not hold its categories any more: the steps before have changed its numbers. Put "
            "one_hot before them"
        )


def _texts(source: RowSource, number: int) -> Sequence[str]:
    """The texts of a column of categories; none where it holds numbers."""
    names = source.features
    return source.categories.get(names[number], ()) if names else ()


def _name(source: RowSource, number: int) -> str:
    return source.features[number] if source.features else f"{number} (counted from 0)"


def _encoded(name: str, categories: Sequence[Any] | None) -> list[str]:
    """What the columns are called that a column becomes."""
    if categories is None:
        return [name]
    return [f"{name}_{one:g}" if isinstance(one, float) else f"{name}_{one}" for one in categories]


def run_categories(
    context: Context, source: RowSource, numbers: list[int], texts: list[list[str]], most: int
) -> dict[str, Any]:
    """The categories of each of these columns, found in one pass."""
    n, d = checked_shape(source)
    found = map_row_blocks(source, categories_of_block, columns=numbers, most=most, label="categories")
    refuse([part["wrong"] for part in found], source)
    known = [np.unique(np.concatenate(parts)) for parts in zip(*(part["known"] for part in found), strict=True)]
    for number, values, names in zip(numbers, known, texts, strict=True):
        _refuse(_name(source, number), values, names, most)
    counts = np.full(d, STAYS)
    counts[numbers] = [len(values) for values in known]
    write_array(context.path("counts"), counts)
    write_array(context.path("values"), np.concatenate(known) if known else np.empty(0, source.work))
    width = d - len(numbers) + sum(map(len, known))
    return {"n": n, "d": d, "dtype": str(source.work), "width": width, "texts": texts}
