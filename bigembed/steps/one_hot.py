"""Columns of categories as columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.rowwise import Step
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import checked_shape, infinite, map_row_blocks, refuse
from bigembed.rows.reader import columns_named
from bigembed.rows.row_maps import indicators
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Count, Kind, one_of
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, summing_cost
from bigembed.steps.columns import NAMES, are_names, numbers_in
from bigembed.store.arrays import read_array, write_array

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
    instead: ClassVar = "zeros"
    """What ``unknown`` can be where new rows with other categories are not to be refused."""

    columns: Annotated[Any, Kind(NAMES, are_names)] | None = None
    _: KW_ONLY
    unknown: Annotated[str, one_of("error", "zeros")] = "error"
    most: Count = 100

    def dense_only(self) -> str:
        return "categories are in columns of dense rows, and these are sparse: leave the step out"

    def _numbers(self, source: RowSource) -> list[int]:
        return list(range(source.width)) if self.columns is None else sorted(numbers_in(source, self.columns))

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
        names = tuple(getattr(self, "feature_names_in_", ()))
        return indicators, (each, self.unknown == "error", names, self.instead)

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


def _refuse(column: str, values: Array, texts: Sequence[str], most: int) -> None:
    """InputError unless these can be the categories of a column."""
    if len(values) > most:
        raise InputError(
            f"{column} has more than most={most} categories. Raise most, or leave the column out: each category "
            "becomes a column"
        )
    if texts and not np.isin(values, np.arange(len(texts))).all():
        raise InputError(
            f"{column} does not hold its categories any more: the steps before have changed its numbers. Put "
            "one_hot before them"
        )


def _texts(source: RowSource, number: int) -> Sequence[str]:
    """The texts of a column of categories; none where it holds numbers."""
    names = source.features
    return source.categories.get(names[number], ()) if names else ()


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
        _refuse(columns_named([number], source.features), values, names, most)
    counts = np.full(d, STAYS)
    counts[numbers] = [len(values) for values in known]
    write_array(context.path("counts"), counts)
    write_array(context.path("values"), np.concatenate(known) if known else np.empty(0, source.work))
    width = d - len(numbers) + sum(map(len, known))
    return {"n": n, "d": d, "dtype": str(source.work), "width": width, "texts": texts}
