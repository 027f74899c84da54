"""Rows with missing values: left out, or filled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.blocks.declared import Finite, one_of
from bigembed.blocks.rows import Array
from bigembed.blocks.vector_space import tree_fold
from bigembed.embedding.costs import summing_cost
from bigembed.embedding.extension import Extension, complete
from bigembed.embedding.linear.quantiles import quantiles_stage, refuse_empty
from bigembed.errors import InputError
from bigembed.estimator.step import Step
from bigembed.runs import PartOfRun, Run
from bigembed.stages import Context, Stage
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.documents import digest_of
from bigembed.store.mapped import KeptRows, RowNumbers
from bigembed.store.offenders import checked_shape, infinite, not_finite, refuse
from bigembed.store.passes import map_row_blocks
from bigembed.store.row_blocks import RowBlock
from bigembed.store.source import RowSource

STAGE = "missing"
PREFIX = re.compile(r"step\d+-missing-")
FIRST = 10
"""Rows that are named."""


@dataclass(eq=False, repr=False)
class Missing(Step):
    """Rows in which values are missing (NaN, empty cells, nulls, masked entries): left out, or filled column by column.

    A missing value is filled with the mean of the values of its column, Σ_i x_ij/m_j over the m_j that are there
    (Little & Rubin 2002, §4.2), with their median, or with a number. Infinity is not a missing value: it is refused.

    Parameters
    ----------
    action : "drop" or "fill".
    fill : "mean", "median" or a finite number. What missing values become; in a job file ``with``.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    statistics_ : (d,) what fills each column; NaN with action="drop".
    missing_ : (d,) int, the missing values of each column.
    rows_ : (r,) int, with action="drop" the numbers of the rows that are left, ascending: NumPy for NumPy input, else
        a Dask array. With "fill" all of them.
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is d, ``n_samples_`` the rows that are left.
    certificate_ : dict; under "missing" how many rows had missing values, the first of them, and the counts by column.
    embedding_ : (r, d) the rows fitted that are left: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : infinity (rows named); no complete row with "drop"; a column without any value with "fill".

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

    saved_stages: ClassVar = {"missing": ("values", "counts"), "quantiles": ("values",), "coordinates": ("embedding",)}
    learned: ClassVar = "missing"
    takes_missing: ClassVar = True

    action: Annotated[str, one_of("drop", "fill")] = "drop"
    _: KW_ONLY
    fill: Finite | Annotated[str, one_of("mean", "median")] = "mean"
    workdir: str | os.PathLike[str] | None = None
    verbose: bool = False
    callbacks: Any = None

    @property
    def drops(self) -> bool:
        """Whether rows are left out."""
        return self.action == "drop"

    def _learning(self, source: RowSource) -> list[Stage]:
        found = missing_stage(source, self.action, "mean" if self.drops else self.fill)
        if self.drops or self.fill != "median":
            return [found]
        return [quantiles_stage(source, (0.5,), missing=True), replace(found, inputs=("quantiles",))]

    def stages(self, source: RowSource) -> list[Stage]:
        """The pass that counts, and what fills; on demand the rows, filled."""
        found = super().stages(source)
        return found[:-1] if self.drops else found

    def _set_fitted(self, run: Run) -> None:
        found = run.results("missing")
        self.n_samples_, self.n_components_ = found["kept"], found["d"]
        self.statistics_ = read_array(run.path("missing", "values"))
        self.missing_ = read_array(run.path("missing", "counts"))

    def said(self) -> str:
        """What it did with the rows fitted."""
        found = self._run.results("missing")
        return sentence(found)

    def _certificate(self, run: Run) -> dict[str, Any]:
        found = run.results("missing")
        said = {name: found[name] for name in ("action", "fill", "rows", "first", "kept", "columns")}
        return {**super()._certificate(run), "missing": said}

    def _block(self, run: Run) -> tuple[Any, Any]:
        return (as_given, None) if run.results("missing")["action"] == "drop" else (filled, self.statistics_)

    def _extension(self, run: Run) -> Extension:
        return replace(super()._extension(run), missing="taken", numbered=True)

    def left_of(self, source: RowSource) -> KeptRows | None:
        """The rows of the fitted ones that are left; None where all are."""
        run: Run = self._run
        return kept_rows(source, run) if run.results("missing")["action"] == "drop" else None

    @property
    def rows_(self) -> Any:
        """The numbers of the rows that are left."""
        self._check_fitted()
        if self._source is None:
            raise InputError("a saved step does not know the rows that it was fitted to")
        numbers = RowNumbers((self._source.shape[0],), np.dtype(np.int64))
        kept = self.left_of(self._source)
        return read_whole(numbers if kept is None else kept.of(numbers), self._in_memory)

    def _coordinates(self) -> Any:
        kept = None if self._source is None else self.left_of(self._source)
        return super()._coordinates() if kept is None else read_whole(kept, self._in_memory)


def kept_rows(source: RowSource, run: Run) -> KeptRows:
    """The complete rows of a source, by the mask of the stage."""
    found, manifest = run.results("missing"), run.manifest("missing")
    shape = (found["kept"], *source.shape[1:])
    mask, counts = run.path("missing", "mask"), tuple(read_array(run.path("missing", "kept")).tolist())
    known = {"mask": mask, "counts": counts, "mask_block": found["block"], "stamp": digest_of(manifest.digest)}
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


def read_whole(source: RowSource, in_memory: bool) -> Any:
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


# --- the pass


def missing_stage(source: RowSource, action: str, fill: Any) -> Stage:
    """``missing/values`` (d,) what fills, ``missing/counts`` (d,) missing values by column; of "drop" also the mask of
    complete rows (n,) and how many are in each block. Results: n, d, dtype, rows with missing values, the first."""
    n, d = checked_shape(source)

    def run(context: Context) -> dict[str, Any]:
        mask = context.path("mask") if action == "drop" else ""
        if mask:
            create_rows(mask, (n,), np.uint8, source.block, overwrite=True)
        found = map_row_blocks(source, missing_of_block, label="missing", mask=mask)
        refuse([part["wrong"] for part in found], source)
        kept, first = np.array([part["kept"] for part in found]), [row for part in found for row in part["first"]]
        rows = n - int(kept.sum())
        counts, means = tree_fold([(part["counts"], part["mean"]) for part in found], merged)
        if action == "drop":
            refuse_none(rows, n, n - counts)
            values = np.full(d, np.nan)
            write_array(context.path("kept"), kept)
        else:
            values = _values(context, fill, counts, means)
        write_array(context.path("values"), values)
        write_array(context.path("counts"), n - counts)
        done = {
            "n": n,
            "d": d,
            "dtype": str(source.work),
            "action": action,
            "fill": "" if action == "drop" else fill,
            "rows": rows,
            "first": first[:FIRST],
            "kept": n - rows if action == "drop" else n,
            "block": source.block,
            "columns": _by_column(n - counts, source.features),
        }
        context.note(sentence(done))
        return done

    parameters = {"source": source.fingerprint(), "action": action, "fill": fill}
    return Stage("missing", (), parameters, run, summing_cost(source, 0, disk=16 * d + n, coordinator=64 * d))


def missing_of_block(block: RowBlock, *, mask: str) -> dict[str, Any]:
    """Of one canonical block: complete rows (written into the mask), values and mean by column, what is infinite."""
    there = complete(block.rows)
    if mask:
        write_rows(mask, block.start, there.astype(np.uint8))
    wrong = infinite(block.rows, block.start)
    absent = np.isnan(block.rows)
    counts = len(there) - absent.sum(axis=0)
    with np.errstate(invalid="ignore"):
        sums = np.where(absent, 0, block.rows).sum(axis=0, dtype=np.float64)
    return {
        "kept": int(there.sum()),
        "first": (np.flatnonzero(~there)[:FIRST] + block.start).tolist(),
        "wrong": {**wrong, "nan": 0} if wrong.get("infinite") else {},
        "counts": counts,
        "mean": sums / np.maximum(counts, 1),
    }


def merged(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
    """Counts and means of two sets together."""
    counts = left[0] + right[0]
    return counts, left[1] + right[0] / np.maximum(counts, 1) * (right[1] - left[1])


def _values(context: Context, fill: Any, counts: Array, means: Array) -> Array:
    """What fills each column."""
    if fill in ("mean", "median"):
        refuse_empty(counts)
    if fill == "median":
        return read_array(context.of("quantiles", "values"))[:, 0]
    return means if fill == "mean" else np.full(len(means), float(fill))


def refuse_none(rows: int, n: int, missing: Array) -> None:
    """InputError where no row is complete."""
    if rows == n:
        worst = int(missing.argmax())
        raise InputError(
            f"no row is complete: of {n} rows each misses a value, {int(missing[worst])} that of column {worst} "
            "(counted from 0). Fill them (action = 'fill'), or leave columns out"
        )


def sentence(found: Mapping[str, Any]) -> str:
    """What became of rows with missing values, in words."""
    rows, n = found["rows"], found["n"]
    if not rows:
        return f"no value is missing in {n:,} rows"
    done = "were left out" if found["action"] == "drop" else f"were filled with the {found['fill']}"
    if isinstance(found["fill"], float):
        done = f"were filled with {found['fill']:g}"
    columns = ", ".join(f"{name} ({count:,})" for name, count in found["columns"])
    first = ", ".join(map(str, found["first"])) + (", …" if rows > len(found["first"]) else "")
    return f"{rows:,} of {n:,} rows, which miss values, {done}: rows {first} (counted from 0); by column {columns}"


def _by_column(missing: Array, names: Sequence[str]) -> list[list[Any]]:
    """The columns with most missing values, and how many."""
    worst = [int(column) for column in np.argsort(-missing, kind="stable")[:FIRST] if missing[column]]
    return [[names[column] if names else str(column), int(missing[column])] for column in worst]


def as_given(rows: Array, model: Any, start: int = 0) -> Array:
    """Rows as they are; InputError where they are infinite."""
    if (wrong := infinite(rows, start)).get("infinite"):
        found = not_finite([{**wrong, "nan": 0}], f"the rows {start}:{start + len(rows)}")
        raise InputError(f"Input X contains {found}")
    return rows


def filled(rows: Array, model: Array, start: int = 0) -> Array:
    """Rows with NaN as the number of its column; InputError where they are infinite."""
    return np.where(np.isnan(rows), model.astype(rows.dtype), as_given(rows, None, start))
