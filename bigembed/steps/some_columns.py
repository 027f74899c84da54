"""The base of the steps that map each column by itself, so that they can be of some of the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bigembed.estimator import fitted_parameters
from bigembed.estimator.extension import Extension
from bigembed.estimator.preprocessing import entries_left, with_cost_of_mapping
from bigembed.estimator.rowwise import Step
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.derived import MappedSource
from bigembed.rows.reader import listed
from bigembed.rows.row_maps import on_entries
from bigembed.runtime.blocks import Array
from bigembed.stages import Run, Stage
from bigembed.steps.columns import numbers_in


class ColumnStep(Step):
    """Base of the steps that map each column by itself: all of them, or those of ``columns``, and the others stay."""

    columns: Any

    @property
    def takes_nan(self) -> bool:  # type: ignore[override]
        """Tell whether rows may hold NaN: where columns stay as they are, whatever they hold."""
        return self.columns is not None

    def _asked(self, source: RowSource) -> dict[str, list[int]]:
        """The numbers of the columns as the parameters of a stage have them; nothing for all columns."""
        return {} if self.columns is None else {"columns": sorted(numbers_in(source, self.columns))}

    def _mask(self, run: Run) -> Array | None:
        """Which columns (d,) it is of, bool, as the stage that learned was asked; None for all."""
        asked = run.parameters(self.learned).get("columns")
        return None if asked is None else mask_of(asked, run.results(self.learned)["d"])

    def _learned_by(self, stage_of: Callable[[RowSource], Stage], source: RowSource) -> list[Stage]:
        """The stage that learns from the columns: it sees 0 in all others, so that they are neither moved nor scaled
        by what it learns."""
        if not (asked := self._asked(source)):
            return [stage_of(source)]
        entries = entries_left(source, source.width)
        known: dict[str, Any] = {"base": replace(source, aligned={}), "named": source.features, "entries": entries}
        function = partial(others_zero, columns=mask_of(asked["columns"], source.width))
        seen = MappedSource(source.shape, source.work, function=function, stamp=f"0 but in {asked}", **known)
        return [with_cost_of_mapping(stage_of(seen), seen)]

    def _extension(self, run: Run) -> Extension:
        found = super()._extension(run)
        return replace(found, missing="taken") if self.takes_nan else found

    def describe(self) -> str:
        """Say of how many columns it is."""
        columns = fitted_parameters(self)["columns"]
        if columns is None:
            return super().describe()
        counted = "" if all(isinstance(one, str) for one in columns) else " (counted from 0)"
        return f"{len(columns):,} of {self.n_features_in_:,} columns: {listed(map(str, columns))}{counted}"


def mask_of(numbers: Sequence[int], d: int) -> Array:
    """The columns (d,) of these numbers, bool."""
    found = np.zeros(d, bool)
    found[list(numbers)] = True
    return found


def others_zero(block: RowBlock, *, columns: Array) -> Any:
    """The rows of a block with 0 in all columns but these."""
    return on_entries(np.zeros_like, block.rows, ~columns)
