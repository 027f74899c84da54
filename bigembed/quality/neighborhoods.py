"""How well coordinates keep the neighborhoods of the rows: sampled rows against all rows, in passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.metrics import RowMetric, checked_metric, require_columns
from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.quality.figures import columns_figure, kept_figure, ties_figure, triplet_figure, trust_figure
from bigembed.quality.participation import carried_figure
from bigembed.quality.spaces import DistancesToSample, GivenSpace, Space
from bigembed.stages import Cost
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.rows.offenders import checked_shape
from bigembed.store.rows.passes import MAX_GROUPS
from bigembed.store.rows.source import RowSource

NEIGHBORS, SAMPLES = 15, 1_000
TRIPLETS = 20
"""Of each sampled row."""
TILES = 24 << 20
"""Bytes of the tiles of a task."""
STREAM = 12
"""Of the random numbers of the sample."""


def preserved(
    rows: RowSource,
    coordinates: RowSource,
    exchange: Exchange,
    *,
    n_neighbors: int = NEIGHBORS,
    samples: int = SAMPLES,
    seed: int = 0,
    metric: Any = "euclidean",
    mapped: bool = False,
) -> dict[str, Any]:
    """Figures of coordinates (n, m) against rows (n, d), as plain numbers that JSON can hold.

    ``preservation``, ``trustworthiness``, ``continuity`` and ``triplets`` (:mod:`bigembed.quality.figures`), each
    with ``value``, ``standard_error``, ``chance`` (for shuffled coordinates) and ``above_chance`` (in standard
    errors); ``n``, ``d``, ``n_coordinates``, ``n_neighbors``, ``samples``, ``metric``, ``seed``; and what
    :func:`bigembed.quality.judgement.judged` looks at besides: of ``rows`` and ``coordinates`` the column that varies
    most and its ``share`` of the variance, numbers of ``constant`` columns, and the share of sampled rows with k or
    more other rows at the ``same_place``; of the coordinates also how many rows carry each
    (:func:`bigembed.quality.participation.carried_figure`).

    Distances between rows are by ``metric`` (``mapped``: of rows that are mapped for it already), or given, those of
    all rows to the sampled ones (:class:`~bigembed.quality.spaces.DistancesToSample`); between coordinates they are
    Euclidean. Of equal ones the smaller row number comes first. ``samples`` rows are drawn by ``seed`` (all of n or
    fewer), and compared with *all* rows. The same bytes for any chunks and workers.

    Cost: three passes over the rows and five over the coordinates; 4 s n d operations, s the number of sampled rows.
    Memory of a task: about three canonical blocks, the sampled rows and 10 MiB; of the coordinating process the
    sampled rows and some 16 s (3 k + 40) bytes. ``exchange`` holds as much for each of at most 256 groups of blocks
    during a pass, and nothing afterwards.

    Raises InputError for rows and coordinates of different length, NaN or infinity, rows of zeros (cosine), fewer
    than 2 n_neighbors + 1 rows, and parameters out of range.
    """
    n, d, m = checked(rows, coordinates, n_neighbors, samples, seed)
    sample, triplets = drawn(n, samples, seed, rows.sample if isinstance(rows, DistancesToSample) else None)
    given: Space
    if isinstance(rows, DistancesToSample):
        d, text, given = n, rows.metric.text, GivenSpace("rows", rows, exchange, sample, rows.metric, True)
    else:
        compare = checked_metric(metric) if not isinstance(metric, RowMetric) else metric
        if not mapped:
            require_columns(compare, d, rows.sparse)
        text, given = compare.text, Space("rows", rows, exchange, sample, compare, mapped)
    spaces = given, Space("coordinates", coordinates, exchange, sample)
    surveys = [space.survey() for space in spaces]
    for space, survey in zip(spaces, surveys, strict=True):
        space.ask(survey)
    found_shown = spaces[1].look(n_neighbors + 1, triplets)
    shown = found_shown["ids"][:, :-1]
    found = spaces[0].look(n_neighbors + 1, np.concatenate([triplets, shown], axis=1))
    near = found["ids"][:, :-1]
    apart, limits = np.split(found["far"], [triplets.shape[1]], axis=1)
    ranks = spaces[0].ranks(shown, limits)
    ranks_shown = spaces[1].ranks(near, spaces[1].look(0, near)["far"])
    exchange.drop(*(f"{space.name}-sampled" for space in spaces))
    described: dict[str, dict[str, Any]] = {
        space.name: (columns_figure(survey) if survey else {}) | ties_figure(lists["squared"])
        for space, survey, lists in zip(spaces, surveys, (found, found_shown), strict=True)
    }
    described["coordinates"] |= carried_figure(coordinates, surveys[1], exchange)
    return {
        "n": n,
        "d": d,
        "n_coordinates": m,
        "n_neighbors": int(n_neighbors),
        "samples": len(sample),
        "metric": text,
        "seed": int(seed),
        "preservation": kept_figure(sample, near, shown, n),
        "trustworthiness": trust_figure(sample, shown, ranks, n),
        "continuity": trust_figure(sample, near, ranks_shown, n),
        "triplets": triplet_figure(sample, triplets, apart, found_shown["far"]),
        **described,
    }


def cost_of(
    rows: RowSource, coordinates: RowSource, *, n_neighbors: int = NEIGHBORS, samples: int = SAMPLES, terms: float = 0.0
) -> Cost:
    """What :func:`preserved` takes, from the shapes alone; a stage that calls it may state this as its cost.

    ``terms``: of a distance that is taken pair by pair; each is taken for the lists, and again for the ranks.
    """
    n = int(rows.shape[0])
    s, pairs = min(samples, n), 2 * TRIPLETS + n_neighbors
    sampled = s * (rows.row_bytes + coordinates.row_bytes)
    lists = 8 * s * (pairs + 2 * n_neighbors + 2)
    blocks = max(source.block * source.row_bytes for source in (rows, coordinates))
    return Cost(
        passes=3,
        read=n * (3 * rows.row_bytes + 5 * coordinates.row_bytes),
        scratch=sampled + MAX_GROUPS * lists,
        memory=4 * blocks + 3 * sampled + 4 * lists + TILES,
        coordinator=3 * sampled + 24 * lists + s * n_neighbors**2,
        flops=4.0 * s * n * (coordinates.width + (1 if isinstance(rows, DistancesToSample) else rows.width)),
        scalar_ops=s * n,
        terms=2 * s * n * terms,
        maps=8,
    )


def checked(rows: RowSource, coordinates: RowSource, n_neighbors: Any, samples: Any, seed: Any) -> tuple[int, int, int]:
    """n, d and m; InputError for what cannot be compared."""
    n, d = _shape(rows, "rows")
    count, m = _shape(coordinates, "coordinates")
    if n != count:
        raise InputError(
            f"{n} rows and {count} coordinates: there must be one row of coordinates for each row, in the same order. "
            "Give the rows that the coordinates were made from"
        )
    for name, value, least in (("n_neighbors", n_neighbors, 1), ("samples", samples, 2), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise InputError(f"{name}={value!r}; it must be an integer, at least {least}")
    if n <= 2 * n_neighbors:
        raise InputError(
            f"n_neighbors={n_neighbors} with {n} rows: it must be less than half of them, at most {(n - 1) // 2}"
            + ("" if n > 2 else ", so there must be 3 rows at least")
        )
    return n, d, m


def _shape(source: RowSource, name: str) -> tuple[int, int]:
    try:
        return checked_shape(RowSource(source.shape, source.dtype))
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def drawn(n: int, samples: int, seed: int, sample: Array | None = None) -> tuple[Array, Array]:
    """Numbers of sampled rows, ascending (s,), and of two random other rows for each of its triplets (s, 2t)."""
    rng = np.random.default_rng([seed, STREAM])
    sample = np.sort(rng.choice(n, min(samples, n), replace=False)) if sample is None else sample
    first = rng.integers(0, n - 1, (len(sample), TRIPLETS))
    second = rng.integers(0, n - 2, (len(sample), TRIPLETS))
    others = np.concatenate([first, second + (second >= first)], axis=1)
    return sample, others + (others >= sample[:, None])
