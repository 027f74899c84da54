"""Some of the columns: those that are named, or those that vary most."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

import numpy as np

from bigembed.blocks.declared import Count, Kind, Requirements, is_integer
from bigembed.blocks.elementwise import picked
from bigembed.blocks.rows import Array
from bigembed.embedding.linear.moments import moments_stage
from bigembed.errors import InputError
from bigembed.estimator.step import Step
from bigembed.runs import Run
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays import read_array, write_array
from bigembed.store.offenders import checked_shape
from bigembed.store.reader import listed
from bigembed.store.source import RowSource

NAMES = "a list of names or of numbers of columns, each once"


def are_names(value: Any) -> bool:
    given = isinstance(value, (list, tuple, np.ndarray)) and len(value) > 0
    return given and all(isinstance(one, str) or is_integer(one) for one in value) and len({*value}) == len(value)


@dataclass(eq=False, repr=False)
class Columns(Step):
    """Columns by their names or their numbers, in the order given; or those that vary most, in the order of the rows.

    The variance of a column is Σ_i (x_ij − m_j)²/n (Chan, Golub & LeVeque 1983), as ``standardize`` has it. After
    ``normalize`` and ``log1p``, choosing the genes that vary most is a step of single-cell work.

    Parameters
    ----------
    columns : list of str, of int, or None. Names, where the rows come with names; or numbers, from 0 on.
    most_variable : int ≥ 1 or None. How many columns to take by their variance; among ``columns``, if both are given.
    workdir : path or None. Where the stages are kept and resumed from; None is temporary.
    verbose : bool. Whether ``fit`` shows its progress.
    callbacks : sequence of functions or None. ``fit`` calls each with every event.

    Attributes
    ----------
    columns_ : (m,) int, the numbers of the columns taken.
    n_components_, n_samples_, n_features_in_ : int; ``n_components_`` is m.
    certificate_ : dict.
    embedding_ : (n, m) the columns of the rows fitted: NumPy for NumPy input, else a Dask array computed when asked.

    Raises
    ------
    InputError : columns that are not there, with the nearest names that are; parameters out of range.

    Notes
    -----
    Cost: no pass for columns that are named, one for those that vary most; 2d numbers and a block of rows in memory.

    References
    ----------
    T. Chan, G. Golub, R. LeVeque, Algorithms for computing the sample variance, The American Statistician 37 (1983).

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
    workdir: str | os.PathLike[str] | None = None
    verbose: bool = False
    callbacks: Any = None

    def _require(self, need: Requirements) -> None:
        need(self.columns is not None or self.most_variable is not None, "columns", f"{NAMES}, or give most_variable")

    def width(self, source: RowSource) -> int:
        """How many are taken."""
        most = source.width if self.columns is None else len(self.columns)
        return most if self.most_variable is None else self.most_variable

    def _learning(self, source: RowSource) -> list[Stage]:
        n, d = checked_shape(source)
        among = list(range(d)) if self.columns is None else numbers_of(self.columns, source.features, d)
        kept = self.most_variable
        if kept is not None and kept > len(among):
            raise InputError(f"most_variable={kept}: there are {len(among)} columns to choose from")

        def run(context: Context) -> dict[str, Any]:
            chosen = np.array(among)
            if kept is not None:
                scatter = read_array(context.of("moments", "scatter"))[chosen]
                chosen = np.sort(chosen[np.argsort(-scatter, kind="stable")[:kept]])
            write_array(context.path("chosen"), chosen)
            return {"n": n, "d": d, "dtype": str(source.work), "width": len(chosen)}

        varied = [] if kept is None else [moments_stage(source, diagonal=True)]
        parameters = {"source": source.fingerprint(), "columns": among, "most_variable": kept}
        found = Stage("choice", ("moments",) if varied else (), parameters, run, Cost(disk=8 * len(among)))
        return [*varied, found]

    def _set_fitted(self, run: Run) -> None:
        super()._set_fitted(run)
        self.columns_: Array = read_array(run.path("choice", "chosen"))

    def _block(self, run: Run) -> tuple[Any, Any]:
        return picked, self.columns_

    def said(self) -> str:
        """How many it took."""
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
        near = get_close_matches(str(unknown[0]), names, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {listed(names) or f'{d} columns, from 0 on'}"
        raise InputError(f"no columns {listed(map(repr, unknown))}; {hint}")
    found = [known[one] if isinstance(one, str) else int(one) % d for one in columns]
    if len({*found}) < len(found):
        raise InputError(f"columns {listed(map(str, columns))}: some of them are the same")
    return found
