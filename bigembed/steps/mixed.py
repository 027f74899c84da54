"""Tables of numbers and categories: scaled for factor analysis (FAMD), or for Gower's distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.categories import unknown_category
from bigembed.rows.passes import NAMED, Parts, reduce_rows
from bigembed.rows.reader import columns_named
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Kind, is_number, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, summing_cost
from bigembed.steps.columns import NAMES, are_names
from bigembed.steps.one_hot import OneHotEncoder, encoded_of
from bigembed.store.arrays import read_array, write_array

# ------------------------------------------------------------------------------------------------------- one block


@dataclass(frozen=True)
class MixedModel:
    """What is known of the columns of a mixed table. Arrays have an entry for each column."""

    categories: Sequence[Array | None]
    """Of a column of categories its categories; None for numbers."""
    shares: Sequence[Array | None]
    """The share of each category among the rows that have one."""
    mean: Array
    scale: Array
    low: Array
    high: Array
    unknown: str
    missing: str
    weights: Array
    names: Sequence[str] = ()
    """Of the columns."""
    instead: str = ""
    """What ``unknown`` of the step could be where it is "error"."""
    instead_of_missing: str = ""
    """What ``missing`` could be."""

    def place(self, rows: Array, number: int, start: int) -> Array:
        """Return the category of each row by its place, −1 for one that is not known, −2 for none.

        InputError where these are refused, with the rows named.
        """
        known, column = self.categories[number], rows[:, number]
        assert known is not None
        gone = np.isnan(column)
        place = np.minimum(np.searchsorted(known, column), max(0, len(known) - 1))
        found = np.where(gone, -2, np.where(known[place] == column, place, -1))
        if self.unknown == "error":
            bad = np.flatnonzero(found == -1)
            if len(bad):
                name, what = columns_named([number], self.names), f"{column[bad[0]]:g}"
                raise unknown_category(name, bad, start, len(rows), what, self.instead)
        self.refuse_missing(found == -2, number, start, "hold no category (NaN)")
        return found

    def refuse_missing(self, wrong: Array, number: int, start: int, what: str) -> None:
        """InputError, where values are refused that are missing; rows and column are named."""
        if self.missing == "error" and len(rows := np.flatnonzero(wrong)):
            raise InputError(
                f"{columns_named([number], self.names)}: {len(rows)} of the rows {start}:{start + len(wrong)} {what}, "
                f"the first are rows {(rows[:NAMED] + start).tolist()}. Leave them out, fill them, or fit with "
                f"missing={self.instead_of_missing!r}"
            )


def weighted_indicators(rows: Array, model: MixedModel, start: int = 0) -> Array:
    """Return numbers as (x − m)/s, and categories as 1/√p of their own and 0 for the others: one block.

    What is missing or unknown and not refused is at the mean: 0 for a number, √p for each category.

    >>> halves, none = np.array([0.5, 0.5]), np.zeros(2)
    >>> known = [None, np.array([3.0, 7.0])], [None, halves], none, none + 1, none, none, "error", "error", none
    >>> weighted_indicators(np.array([[2.0, 7.0]]), MixedModel(*known)).round(3).tolist()
    [[2.0, 0.0, 1.414]]
    """
    parts = []
    for number, known in enumerate(model.categories):
        if known is None:
            column = (rows[:, number].astype(np.float64) - model.mean[number]) / model.scale[number]
            model.refuse_missing(np.isnan(column), number, start, "miss a number (NaN)")
            parts.append(np.where(np.isnan(column), 0.0, column)[:, None])
            continue
        place, shares = model.place(rows, number, start), model.shares[number]
        assert shares is not None
        root = np.sqrt(shares)
        own = place[:, None] == np.arange(len(known))
        parts.append(np.where((place < 0)[:, None], root, own / root))
    return np.concatenate(parts, axis=1).astype(rows.dtype)


def gower_columns(rows: Array, model: MixedModel, start: int = 0) -> Array:
    """Return the columns (m, 2d) that the metric "gower" compares: values, then how much each counts.

    Numbers are (x − least)/range, and categories their places 0, 1, …: two rows are min(1, |u − v|) apart in a column.
    What is missing counts 0. A new category is one place beyond all others.

    >>> one, none = np.ones(2), np.zeros(2)
    >>> known = [None, np.array([3.0, 7.0])], [None, one], none, one, none, one * 4, "mean", "mean", one
    >>> gower_columns(np.array([[2.0, 7.0], [np.nan, 5.0]]), MixedModel(*known)).tolist()
    [[0.5, 1.0, 1.0, 1.0], [0.5, 2.0, 0.0, 1.0]]
    """
    values, counts = np.empty(rows.shape), np.tile(model.weights, (len(rows), 1))
    for number, known in enumerate(model.categories):
        if known is None:
            extent = model.high[number] - model.low[number]
            column = (rows[:, number].astype(np.float64) - model.low[number]) / (extent if extent > 0 else 1.0)
            gone, middle = np.isnan(column), 0.5
            model.refuse_missing(gone, number, start, "miss a number (NaN)")
        else:
            place = model.place(rows, number, start)
            column, gone, middle = np.where(place == -1, len(known), place).astype(np.float64), place == -2, 0.0
        values[:, number] = np.where(gone, middle, column)
        counts[gone, number] = 0.0
    return np.concatenate([values, counts], axis=1).astype(rows.dtype)


def ranges_block(block: RowBlock, categories: Mapping[int, Array]) -> Parts:
    """Of each column how many rows have it, mean, Σ(x − mean)², least and largest; how often each category is there."""
    rows = np.asarray(block.rows, np.float64)
    there = ~np.isnan(rows)
    count = there.sum(axis=0)
    filled = np.where(there, rows, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    about = np.where(there, rows - mean, 0.0)
    found = {
        "count": count,
        "mean": mean,
        "scatter": (about * about).sum(axis=0),
        "low": np.where(there, rows, np.inf).min(axis=0, initial=np.inf),
        "high": np.where(there, rows, -np.inf).max(axis=0, initial=-np.inf),
    }
    every = [(rows[:, number][:, None] == known).sum(axis=0) for number, known in categories.items()]
    return {**found, "each": np.concatenate(every) if every else np.zeros(0, np.int64)}


def merge_ranges(left: Parts, right: Parts) -> Parts:
    """Merge what is known of two sets of rows (Chan, Golub & LeVeque 1983)."""
    count = left["count"] + right["count"]
    apart = right["mean"] - left["mean"]
    share = right["count"] / np.maximum(count, 1)
    return {
        "count": count,
        "mean": left["mean"] + apart * share,
        "scatter": left["scatter"] + right["scatter"] + apart * apart * left["count"] * share,
        "low": np.minimum(left["low"], right["low"]),
        "high": np.maximum(left["high"], right["high"]),
        "each": left["each"] + right["each"],
    }


# ----------------------------------------------------------------------------------------------------------- steps


class MixedStep(OneHotEncoder):
    """Base of the steps for tables of numbers and categories: what they learn, missing values among it."""

    saved_stages: ClassVar = {"categories": ("counts", "values"), "ranges": ("",), "coordinates": ("embedding",)}
    learned: ClassVar = "ranges"
    takes_missing: ClassVar = True
    mapped_by: ClassVar[tuple[str, ...]] = ("missing",)

    unknown: Any
    missing: Any
    instead: ClassVar = "mean"
    instead_of_missing: ClassVar = "mean"

    def dense_only(self) -> str:
        return "columns of numbers and categories are those of dense rows, and these are sparse: leave the step out"

    def _numbers(self, source: RowSource) -> list[int]:
        """Columns of categories: those named, or those of text."""
        if self.columns is not None:
            return super()._numbers(source)
        texts = source.categories
        return [number for number, name in enumerate(source.features) if name in texts]

    def _learning(self, source: RowSource) -> list[Stage]:
        found, d, categories = super()._learning(source), source.width, OneHotEncoder.width(self, source)
        writes = [ArraySpec(name, d) for name in ("mean", "scale", "low", "high", "count")]
        cost = summing_cost(source, 0) + Cost.of(writes=[*writes, ArraySpec("each", categories, dtype="i8")])
        parameters = {"source": source.fingerprint()}
        run = partial(run_ranges, source=source)
        return [*found, Stage("ranges", ("categories",), parameters, run, cost)]

    def _model(self, run: Run) -> MixedModel:
        known, d = encoded_of(run), run.results("ranges")["d"]
        each = {name: read_array(run.path("ranges", name)) for name in ("mean", "scale", "low", "high", "each")}
        counts = iter(np.split(each.pop("each"), np.cumsum([len(one) for one in known.values()])[:-1]))
        categories = [known.get(number) for number in range(d)]
        shares = [None if one is None else _share(next(counts)) for one in categories]
        numbers = each["mean"], each["scale"], each["low"], each["high"]
        asked = self.unknown, self.missing, self._weights(d)
        said = tuple(getattr(self, "feature_names_in_", ())), self.instead, self.instead_of_missing
        return MixedModel(categories, shares, *numbers, *asked, *said)

    def _weights(self, d: int) -> Array:
        return np.ones(d)

    def _extension(self, run: Run) -> Extension:
        width = self._made(run)
        return replace(super()._extension(run), width=width)

    def _made(self, run: Run) -> int:
        return int(run.results("categories")["width"])

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.n_components_ = self._made(run)


def _share(counts: Array) -> Array:
    return np.asarray(counts / max(1, counts.sum()))


def run_ranges(context: Context, source: RowSource) -> dict[str, Any]:
    """What is known of each column, in one pass."""
    categories = encoded_of(context.home)
    found = reduce_rows(source, ranges_block, context.exchange, combine=merge_ranges, categories=categories)
    empty = np.flatnonzero(found["count"] == 0)
    if len(empty):
        raise InputError(f"{columns_named(empty.tolist(), source.features)}: no value at all. Leave them out")
    variance = found["scatter"] / found["count"]
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    for name in ("mean", "low", "high", "count", "each"):
        write_array(context.path(name), np.asarray(found[name], np.int64 if name == "each" else np.float64))
    write_array(context.path("scale"), scale)
    known = context.results("categories")
    return {name: known[name] for name in ("n", "d", "dtype")} | {"missing": int((known["n"] - found["count"]).sum())}


@dataclass(eq=False, repr=False)
class MixedScaler(MixedStep, registered="mixed"):
    """Scale a table of numbers and categories so that its PCA is the factor analysis of mixed data (FAMD).

    A column of numbers becomes (x − m)/s with mean m and standard deviation s; a column of categories becomes a column
    for each category, 1/√p in the rows that are of it, p its share, and 0 in the others (Pagès 2004). About the mean,
    each number then has variance 1, and each category 1 − p: the first coordinates of :class:`PCA` after this step are
    those of FAMD, and of multiple correspondence analysis (MCA) where all columns are categories.

    Parameters
    ----------
    columns : list of str, list of int, or None
        The columns of categories, by their names, or by their numbers, from 0 on; None takes the columns of text.
        Ordered categories that should count by their order are numbers: leave them out.
    unknown : {"error", "mean"}
        What becomes of a new row with a category that the fitted rows did not have: "mean" gives it the mean of the
        column's rows, so that the column says nothing of it.
    most : int ≥ 1
        The categories of a column at the most; a column with more is refused.
    missing : {"error", "mean"}
        What becomes of missing values (NaN), of numbers and of categories: "mean" as above. Means, deviations and
        shares are those of the rows that have a value.
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
        For each column of categories (in the order of the rows) its categories: numbers, or text.
    n_components_ : int
        The number of columns that come out.
    n_samples_, n_features_in_ : int
        The numbers of rows and of their columns.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, n_components_)
        The rows fitted, scaled: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If rows hold infinity, or values are missing or unknown and refused (rows are named), a column has no value or
        more than ``most`` categories, columns are not there, or parameters are out of range.

    Notes
    -----
    Cost: two passes, and the categories of each block in memory. The eigenvalues of FAMD are ``explained_variance_`` of
    PCA times (n − 1)/n.

    References
    ----------
    J. Pagès, Analyse factorielle de données mixtes, Revue de statistique appliquée 52 (2004).

    Examples
    --------
    >>> import bigembed as be
    >>> rows = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [4.0, 1.0]])
    >>> famd = be.Pipeline([MixedScaler([1]), be.PCA(1)]).fit(rows)
    >>> float((famd.method_.explained_variance_ * 3 / 4).round(3)[0])
    1.894
    """

    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None
    _: KW_ONLY
    unknown: Annotated[str, one_of("error", "mean")] = "error"
    most: Count = 100
    missing: Annotated[str, one_of("error", "mean")] = "error"

    def _block(self, run: Run) -> tuple[Any, Any]:
        return weighted_indicators, self._model(run)


WEIGHTS = "a list of numbers ≥ 0, not all 0, one for each column"


def _are_weights(value: Any) -> bool:
    listed = isinstance(value, (list, tuple)) and all(is_number(one) and one >= 0 for one in value)
    return listed and any(value)


@dataclass(eq=False, repr=False)
class GowerEncoder(MixedStep, registered="gower"):
    """Bring a table of numbers and categories into the columns that the metric "gower" compares.

    Gower's distance (1971) of two rows is Σ_j w_j δ_j d_j / Σ_j w_j δ_j over the columns j: d_j = |x_j − y_j|/R_j of
    numbers, R_j the range of the rows fitted, and of categories 0 if they are equal and 1 if not; δ_j is 0 where either
    row misses the value, else 1. After this step, ``metric="gower"`` of any method on a graph, of
    :func:`bigembed.build_neighbor_graph` and of :func:`bigembed.certify` is that distance. Each column becomes two: the
    value, and how much it counts.

    Parameters
    ----------
    columns : list of str, list of int, or None
        The columns of categories, by their names, or by their numbers, from 0 on; None takes the columns of text.
        Ordered categories are numbers (their ranks): leave them out.
    unknown : {"error", "other"}
        What becomes of a new row with a category that the fitted rows did not have: "other" lets it differ from every
        category that they had.
    most : int ≥ 1
        The categories of a column at the most; a column with more is refused.
    weights : list of float ≥ 0, or None
        The weights w_j of the columns, in the order of the rows; None is 1 for all.
    missing : {"ignore", "error"}
        What becomes of missing values (NaN): "ignore" leaves the column out for each pair in which either misses it.
        Rows that share no column are at distance 1, the largest.
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
        For each column of categories (in the order of the rows) its categories: numbers, or text.
    n_components_ : int
        The number of columns that come out: 2d.
    n_samples_, n_features_in_ : int
        The numbers of rows and of their columns d.
    certificate_ : dict
        How far the result can be trusted.
    embedding_ : array of shape (n, 2d)
        The rows fitted, as they are compared: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If rows hold infinity, or values are missing or unknown and refused (rows are named), a column has no value or
        more than ``most`` categories, columns or their weights are not there, or parameters are out of range.

    Notes
    -----
    Cost: two passes, and the categories of each block in memory. A new row may lie outside the range: in a column two
    rows are then 1 apart at the most.

    References
    ----------
    J. Gower, A general coefficient of similarity and some of its properties, Biometrics 27 (1971).

    Examples
    --------
    >>> import bigembed as be
    >>> rows = np.array([[0.0, 5.0], [10.0, 5.0], [5.0, 6.0], [np.nan, 6.0]])
    >>> graph = be.build_neighbor_graph(GowerEncoder([1]).fit_transform(rows), 3, metric="gower")
    >>> graph.to_scipy().toarray().round(2).tolist()[0]
    [0.0, 0.5, 0.75, 1.0]
    """

    mapped_by: ClassVar = ("missing", "weights")
    instead: ClassVar = "other"
    instead_of_missing: ClassVar = "ignore"

    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None
    _: KW_ONLY
    unknown: Annotated[str, one_of("error", "other")] = "error"
    most: Count = 100
    weights: Annotated[Any, Kind(WEIGHTS, _are_weights)] | None = None
    missing: Annotated[str, one_of("ignore", "error")] = "ignore"

    def width(self, source: RowSource) -> int:
        """Count the columns that come out."""
        return 2 * source.width

    def _learning(self, source: RowSource) -> list[Stage]:
        if self.weights is not None and len(self.weights) != source.width:
            raise InputError(
                f"gower: weights has {len(self.weights)} numbers, and the rows have {source.width} columns"
            )
        return super()._learning(source)

    def _weights(self, d: int) -> Array:
        return np.ones(d) if self.weights is None else np.asarray(self.weights, np.float64)

    def _block(self, run: Run) -> tuple[Any, Any]:
        return gower_columns, self._model(run)

    def _made(self, run: Run) -> int:
        return 2 * int(run.results("ranges")["d"])

    def describe(self) -> str:
        """Say how many columns of which kind it compares."""
        return f"{self.n_features_in_:,} columns, {len(self.categories_)} of them of categories"

    def _names_out(self, names: list[str]) -> list[str]:
        return [*names, *(f"{name}_counts" for name in names)]
