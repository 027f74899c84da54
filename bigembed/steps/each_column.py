"""Rows with missing values: left out, or filled by what is learned of each column."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.errors import InputError
from bigembed.estimator.extension import Extension
from bigembed.estimator.moments import (
    STAGE,
    as_given,
    filled,
    missing_stage,
    quantiles_stage,
    sentence,
    without_zeros,
)
from bigembed.estimator.rowwise import Step
from bigembed.rows import RowSource, reader
from bigembed.rows.derived import KeptRows, RowNumbers
from bigembed.runtime.blocks import Array
from bigembed.runtime.parameters import Finite, Requirements, one_of
from bigembed.stages import PartOfRun, Run, Stage
from bigembed.store.arrays import read_array
from bigembed.store.files import digest_of

# ------------------------------------------------------------------------------------------------------- kept rows
# The rows of the input that a step has left: as a source, by their numbers, as an array.

PREFIX = re.compile(r"step\d+-missing-")


def kept_rows(source: RowSource, run: Run) -> KeptRows:
    """The complete rows of a source, by the mask of the stage."""
    found, manifest = run.results(STAGE), run.manifest(STAGE)
    shape = (found["kept"], *source.shape[1:])
    mask, counts = run.path(STAGE, "mask"), tuple(read_array(run.path(STAGE, "kept")).tolist())
    known = {"mask": mask, "counts": counts, "mask_block": found["block"], "stamp": digest_of(manifest.digest)}
    known["entries"] = reader.entries_of(source)
    plain = replace(source, aligned={})
    kept = KeptRows(shape, source.dtype, base=plain, named=source.features, **known)
    return replace(kept, aligned={name: kept.of(other) for name, other in source.aligned.items()})


def kept_of(run: Run) -> KeptRows | None:
    """Which rows of the input a run is of, if a step has left some out."""
    for name in run.published():
        prefix, stage, _ = name.rpartition(STAGE)
        if PREFIX.fullmatch(prefix) and stage and run.results(name)["action"] == "drop":
            return kept_rows(RowNumbers((run.results(name)["n"],), np.dtype(np.int64)), PartOfRun(run, prefix))
    return None


def read_all(source: RowSource, in_memory: bool) -> Any:
    """All of a source as NumPy, or as a lazy Dask array."""
    if in_memory:
        return source.read(0, source.shape[0])
    import dask.array as da

    return da.from_array(Rows(source), chunks=(source.block, *source.shape[1:]), name=False, asarray=False)


class Rows:
    """A source as an array that Dask can slice."""

    def __init__(self, source: RowSource) -> None:
        self.source, self.shape, self.dtype, self.ndim = source, source.shape, source.dtype, len(source.shape)

    def __getitem__(self, index: Any) -> Array:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        return np.asarray(self.source.read(start, stop)[(slice(None, None, step), *rest)])


# --------------------------------------------------------------------------------------------------------- missing


@dataclass(eq=False, repr=False)
class Missing(Step, registered="missing"):
    """Leave out or fill rows in which values are missing (NaN, NA of pandas, empty cells, nulls, masked entries).

    A missing value is filled with the mean of the values of its column, Σ_i x_ij/m_j over the m_j that are there
    (Little & Rubin 2002, §4.2), with their median, or with a number. Infinity is not a missing value: it is refused.

    Parameters
    ----------
    action : {"drop", "fill"}
        Whether rows with missing values are left out or their missing values are filled.
    fill : "mean", "median" or float
        What missing values become; a number must be finite. In a job file this is ``with``.
    zeros : bool
        Whether rows that hold zeros only are left out as well, with action="drop": distances such as "cosine" are not
        defined for them.
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
    statistics_ : array of shape (d,)
        What fills each column; NaN with action="drop".
    missing_ : array of shape (d,), int
        The missing values of each column.
    rows_ : array of shape (r,), int
        With action="drop" the numbers of the rows that are left, ascending: NumPy for NumPy input, else a Dask array.
        With "fill" all of them.
    n_components_, n_features_in_ : int
        The number d of columns.
    n_samples_ : int
        The number of rows that are left.
    certificate_ : dict
        How far the result can be trusted; under "missing" how many rows had missing values (or zeros only), the first
        of them, and the counts by column.
    embedding_ : array of shape (r, d)
        The rows fitted that are left: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError
        If rows hold infinity (they are named), no row is complete with "drop", or a column has no value with "fill".

    Notes
    -----
    Cost: one pass; for the median, which is exact, some three to five more. One byte a row on disk with "drop", d
    numbers with "fill"; a block of rows in memory. New rows keep their places: with "drop", ``transform`` leaves NaN
    in them, and a model with steps gives a row with missing values coordinates that are NaN.

    References
    ----------
    R. Little, D. Rubin, Statistical Analysis with Missing Data, 2nd ed. (2002).

    Examples
    --------
    >>> rows = np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 9.0]])
    >>> Missing().fit_transform(rows).tolist()
    [[1.0, 2.0], [3.0, 9.0]]
    >>> Missing(action="fill", fill="median").fit_transform(rows).tolist()
    [[1.0, 2.0], [2.0, 4.0], [3.0, 9.0]]
    """

    saved_stages: ClassVar = {STAGE: ("values", "counts"), "quantiles": ("values",), "coordinates": ("embedding",)}
    learned: ClassVar = STAGE
    takes_missing: ClassVar = True
    takes_nan: ClassVar = True

    action: Annotated[str, one_of("drop", "fill")] = "drop"
    _: KW_ONLY
    fill: Finite | Annotated[str, one_of("mean", "median")] = "mean"
    zeros: bool = False

    def _require(self, need: Requirements) -> None:
        need(not self.zeros or self.drops, "zeros", "False with action='fill', which leaves out no rows")

    @property
    def drops(self) -> bool:
        """Tell whether rows are left out."""
        return self.action == "drop"

    def dense_only(self) -> str:
        if self.drops or self.fill != "median":
            return ""
        return 'medians of sparse rows are not taken: fill with "mean" or a number (zeros count as values)'

    def _learning(self, source: RowSource) -> list[Stage]:
        found = missing_stage(source, self.action, "mean" if self.drops else self.fill, self.zeros)
        if self.drops or self.fill != "median":
            return [found]
        return [quantiles_stage(source, (0.5,), missing=True), replace(found, inputs=("quantiles",))]

    def stages(self, source: RowSource) -> list[Stage]:
        """List the pass that counts, what fills, and on demand the rows, filled."""
        found = super().stages(source)
        return found[:-1] if self.drops else found

    def _set_fitted(self, run: Run) -> None:
        found = run.results(STAGE)
        self.n_samples_, self.n_components_ = found["kept"], found["d"]
        self.statistics_ = read_array(run.path(STAGE, "values"))
        self.missing_ = read_array(run.path(STAGE, "counts"))

    def describe(self) -> str:
        """Say what it did with the rows fitted."""
        return sentence(self._run.results(STAGE))

    def _certificate(self, run: Run) -> dict[str, Any]:
        found = run.results(STAGE)
        said = {
            key: found[key] for key in ("action", "fill", "rows", "first", "kept", "columns", "zeros") if key in found
        }
        return {**super()._certificate(run), "missing": said}

    def _block(self, run: Run) -> tuple[Any, Any]:
        found = run.results(STAGE)
        if found["action"] == "drop":
            return (without_zeros if "zeros" in found else as_given), None
        return filled, read_array(run.path(STAGE, "values"))

    def _extension(self, run: Run) -> Extension:
        return replace(super()._extension(run), missing="taken", numbered=True)

    def left_of(self, source: RowSource) -> KeptRows | None:
        """Return the fitted rows that are left after rows with missing values have gone; None where all are left."""
        run: Run = self._run
        return kept_rows(source, run) if run.results(STAGE)["action"] == "drop" else None

    @property
    def rows_(self) -> Any:
        """Return the numbers of the rows that are left."""
        self._check_fitted()
        if self._source is None:
            raise InputError("a saved step does not know the rows that it was fitted to")
        numbers = RowNumbers((self._source.shape[0],), np.dtype(np.int64))
        kept = self.left_of(self._source)
        return read_all(numbers if kept is None else kept.of(numbers), self._in_memory)

    def _coordinates(self) -> Any:
        kept = None if self._source is None else self.left_of(self._source)
        return super()._coordinates() if kept is None else read_all(kept, self._in_memory)
