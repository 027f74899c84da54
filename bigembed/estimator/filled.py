"""What sparse rows are like as they were given: kept at a fit, and compared with new ones.

Steps hide what an accident changes (a logarithm and lengths of one make nearly nothing of thousandfold values), and
few dense columns stand for many. So the rows are looked at before the steps, some of a few blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from bigembed import estimator as estimators
from bigembed.estimator.extension import complete
from bigembed.estimator.sampling import count_blocks, drawn_numbers, sampled_rows
from bigembed.neighbors.survey import SCALED
from bigembed.quality.filled import FILLED, PLACES, kind_of, unlike_sparse
from bigembed.rows import RowSource
from bigembed.rows.graph_source import GraphSource
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, rows_of, window_of
from bigembed.store.arrays import read_array, write_array

ROWS, BYTES = 20_000, 32 << 20
"""Rows that are looked at, at the most, and their bytes."""
LEAST = 128
"""Rows that are looked at, however long they are."""
PATTERNS = ("jaccard", "dice", "matching", "rogerstanimoto", "russellrao", "sokalmichener", "sokalsneath", "yule")
"""Metrics that ask which columns are filled, not with what."""


def filled_stages(source: RowSource) -> list[Stage]:
    """The stage that looks at sparse rows, as they were given; none for others."""
    return [] if isinstance(source, GraphSource) or not source.sparse else [filled_stage(source)]


def filled_stage(source: RowSource) -> Stage:
    """The stage with what some of the sparse rows are like."""
    source = replace(source, aligned={})
    share, size = count_blocks(source) / -(-source.shape[0] // source.block), len(_numbers(source))
    drawn = ArraySpec("drawn rows", size, source.row_bytes, "u1")
    cost = Cost.of(
        reads=[rows_of(source, share)],
        writes=[ArraySpec(PLACES, source.width, dtype="f4")],
        task=[*window_of(source), replace(drawn, times=2)],
        coordinator=[replace(drawn, times=6), ArraySpec("columns", source.width, times=6)],
        passes=share,
        scalar_ops=size * source.row_bytes,
        maps=1,
    )
    return Stage(FILLED, (), {"source": source.fingerprint()}, partial(run_filled, source=source), cost)


def run_filled(context: Context, source: RowSource) -> dict[str, Any]:
    rows = sampled_rows(source, _numbers(source)).rows
    places, figures = kind_of(rows[complete(rows)])
    write_array(context.path(PLACES), places)
    return figures


def _numbers(source: RowSource) -> Array:
    """The rows that are looked at: of those of a few blocks as many as fit."""
    numbers = drawn_numbers(source)
    most = min(ROWS, max(LEAST, BYTES // source.row_bytes))
    return numbers if len(numbers) <= most else numbers[np.linspace(0, len(numbers) - 1, most).astype(int)]


def unlike_filled(estimator: Any, source: RowSource, looked_at: Callable[[RowSource], Any]) -> list[str]:
    """Say in what new rows, before the steps, are unlike the sparse ones fitted; nothing where none were.

    ``source``: the new rows after the steps; ``looked_at`` draws some of a source.
    """
    run: Run = estimators.run_of(estimator)
    steps = getattr(estimator, "steps_", ())
    for _ in steps:
        source = getattr(source, "base", None) or source
    if not run.has(FILLED) or run.results(FILLED)["columns"] != source.width:
        return []
    rows = looked_at(source)
    rows = rows[complete(rows)] if is_sparse(rows) else sparse.csr_array(rows[complete(rows)])
    if not rows.shape[0]:
        return []
    metric = getattr(estimator, "metric", "")
    valued = bool(steps) or metric not in PATTERNS
    sized = valued and (bool(steps) or metric not in SCALED)
    places = read_array(run.path(FILLED, PLACES))
    return _said(unlike_sparse(rows, places, run.results(FILLED), sized=sized, valued=valued))


def _said(found: Mapping[str, Any]) -> list[str]:
    """What :func:`bigembed.quality.filled.unlike_sparse` found, in words."""
    said = []
    if "columns" in found:
        new, fitted = (f"{100 * place:.0f} %" for place in found["columns"])
        said.append(
            "they fill other columns than the fitted rows do: on average columns that are filled more often than "
            f"{new} of all, and the fitted rows such as are filled more often than {fitted} (columns at random: 50 %). "
            "Check that the columns are the same and in the same order"
        )
    for name, what, remedy in (
        ("entries", "the columns that they fill are {} a row", "Check that no entries are lost, and no zeros filled"),
        ("size", "the absolute values that they hold are {} on average", "Compare units and scaling"),
    ):
        if name in found:
            median, middle, least, most = (f"{value:.4g}" for value in found[name])
            said.append(
                f"{what.format(median)} (the median), and {middle} in fitted rows, nearly all of them from {least} to "
                f"{most}. {remedy}"
            )
    if "varied" in found:
        new, fitted = (f"{100 * share:.3g} %" for share in found["varied"])
        said.append(
            f"{new} of those with two entries or more hold several values, and of the fitted ones {fitted}. Check that "
            "counts are counts, and not whether there are any"
        )
    return said
