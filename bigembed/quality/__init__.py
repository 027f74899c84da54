"""How well maps show rows, whatever made them: of each coordinate, and of the whole.

How neighborhoods are kept is here, as figures with standard errors and as sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bigembed.distance.metrics import RowMetric, checked_metric, require_columns
from bigembed.errors import InputError
from bigembed.quality.coordinates import carried_figure
from bigembed.quality.figures import (
    columns_figure,
    counting_figure,
    deciding,
    fills_figure,
    kept_figure,
    ties_figure,
    triplet_figure,
    trust_figure,
)
from bigembed.quality.left_out import is_noise, left_out_text
from bigembed.quality.likeness import LIMITS, REACH, column_limits, reach_of
from bigembed.quality.passes import DistancesToSample, GivenSpace, Space
from bigembed.rows import RowSource
from bigembed.rows.passes import MAX_GROUPS, checked_shape
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.stages import ArraySpec, Cost, buffer, rows_of
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import rows_of_parts

# ------------------------------------------------------------------------------------------------------- judgement
# What figures mean: sentences that say what is doubtful and what to do about it. Limits are stated here.

CHANCE = 4.0
"""Standard errors above shuffled coordinates that one figure at least must reach."""
TIED = 0.1
"""Share of sampled rows with ties at the k-th neighbor above which triplets alone can show that."""
DOUBTED = ("trustworthiness", "continuity")
FAITHFUL = 0.8
"""Trustworthiness and continuity below which coordinates are doubtful; shuffled ones have about .5."""
SAME_PLACE = 0.1
"""Share of sampled rows at one place with k others, beyond that of the rows, from which it is doubtful."""
LOOKED_AT = 3
"""Coordinates that are drawn. What bends or spoils a picture is a warning of maps of no more; of more, the certificate
and the page say it: clusters, distances, pseudotime and smoothing take all coordinates together."""
FIGURES: Mapping[str, tuple[str, str]] = {
    "preservation": ("Neighbors kept", "Share of the {k} nearest rows that are among the {k} nearest on the map."),
    "trustworthiness": (
        "Trustworthiness",
        "Whether neighbors on the map are near in the data: 1 is perfect; intruders count by how far they are ranked.",
    ),
    "continuity": (
        "Continuity",
        "Whether neighbors in the data are near on the map: 1 is perfect; the lost ones count by how far they went.",
    ),
    "triplets": (
        "Triplets in order",
        "Of a row and two random others: whether the one that is nearer in the data is nearer on the map. The large "
        "shape, not the neighborhoods.",
    ),
}
"""The figures of a map: what each is called, and what it means. Reports, sweeps and ``certify`` show those that are
here, in this order."""
NAMED = 5
"""Columns that a warning names."""
COLLAPSED = "Look for coordinates that a few rows carry, for rounding, and for rows that were never placed"
"""What to do about many rows at one place."""


def judged(
    figures: Mapping[str, Any], *, same_rows: bool = False, collapsed: str = COLLAPSED
) -> tuple[list[str], list[str]]:
    """Warnings, and notes, of the figures of :func:`bigembed.quality.preserved`.

    A warning each for: constant coordinates; many rows at one place; coordinates *unrelated* to the rows (no figure
    more than 4 standard errors above its value for shuffled coordinates; where more than a tenth of the sampled rows
    have ties at the k-th neighbor, those of neighborhoods above shuffled ones whose tied rows keep all their
    neighbors); values that may stand for missing ones (:func:`bigembed.quality.figures.fills_figure`); columns that
    count the rows (:func:`bigembed.quality.figures.counting_figure`); trustworthiness,
    and continuity, below .8, but of principal components that leave out noise alone: no map shows which rows are near
    by noise. A note
    for a column with more than 99 % of the variance (two: 99.9 %), and for duplicated rows.

    ``same_rows``: the coordinates are known to belong to these rows in this order, so that is not asked. ``collapsed``:
    what to do about many rows at one place.
    """
    constant = figures["coordinates"]["constant"]
    if constant == figures["n_coordinates"]:
        return [
            f"All {figures['n']:,} rows have the same coordinates: they show nothing. Look at what made them"
        ], _notes(figures)
    m = figures["n_coordinates"]
    nothing = f"{constant} of the {m} coordinates are the same for all rows: they show nothing. Leave them out"
    warnings = [nothing] if constant else []
    crowd = figures["coordinates"]["same_place"]
    if crowd - figures["rows"]["same_place"] > SAME_PLACE:
        warnings.append(
            f"{_percent(crowd)} of the rows lie at exactly the same place as {figures['n_neighbors']} others or more, "
            "though the rows themselves differ: the map collapses them, and which are neighbors is decided by the row "
            f"number. {collapsed}"
        )
    warnings += _fills(figures["rows"]) + _counting(figures["rows"])
    if not same_rows and unrelated(figures):
        warnings.append(_unrelated(figures))
        return warnings, _notes(figures)
    left = left_out_text(figures)
    for name, what in (
        ("trustworthiness", "rows that are neighbors on the map are often far apart in the data, so do not read "
         "closeness or groups from it"),
        ("continuity", "rows that are neighbors in the data are often far apart on the map, so do not read gaps or "
         "separate groups from it"),
    ):  # fmt: skip
        if figures[name]["value"] < FAITHFUL and not is_noise(figures):
            warnings.append(
                f"{name.capitalize()} is {with_error(figures[name])}, below {FAITHFUL}: {what}{left and f'; {left}'}. "
                "Take more coordinates, or another method"
            )
            left = ""  # (said once)
    return warnings, _notes(figures)


def _fills(rows: Mapping[str, Any]) -> list[str]:
    """That a value of some columns may stand for missing ones."""
    if not (count := rows.get("fills_count", 0)):
        return []
    named = ", ".join(map(str, rows["fills"][:NAMED])) + (", …" if count > NAMED else "")
    return [
        f"In column{'s' * (count > 1)} {named} of the rows (from 0) one value, far beyond all others, stands in up to "
        f"{_percent(rows['fills_share'])} of the sampled rows: it may stand for missing values, as -9999 does. If so, "
        "write NaN there, and leave the rows out or fill them (the step 'missing'); the map shows where it stands"
    ]


def _counting(rows: Mapping[str, Any]) -> list[str]:
    """That some columns count the rows."""
    if not (counting := rows.get("counting")):
        return []
    named = ", ".join(map(str, counting[:NAMED])) + " of the rows (from 0)"
    which = f"Columns {named} count" if len(counting) > 1 else f"Column {named} counts"
    return [
        f"{which} the rows, as an index or a time does, so that the map shows where a row stands in its file. Leave it "
        "out, unless that is what you look for"
    ]


def few_carriers(figures: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of the coordinates that are drawn, which are carried by few rows, by how many, and by what share of all."""
    found = figures.get("coordinates", {})
    names = "carried_by_few", "rows_above_a_tenth", "participation"
    return {name: found[name][:LOOKED_AT] for name in names if name in found}


def unrelated(figures: Mapping[str, Any]) -> bool:
    """Whether coordinates are like shuffled ones: no figure is :data:`CHANCE` standard errors above them.

    Of rows that have ties at the k-th neighbor the row number decides, in the data and on the map alike: where they are
    many, a figure of neighborhoods has to be above shuffled coordinates whose tied rows keep all of theirs.
    """
    return not any(_is_above(figures, name) for name in FIGURES)


def _is_above(figures: Mapping[str, Any], name: str) -> bool:
    found, tied = figures[name], _tied(figures)
    if name == "triplets" or tied <= TIED:
        return bool(found["above_chance"] > CHANCE)
    most = found["chance"] + tied * (1 - found["chance"])
    return bool(found["value"] - most > CHANCE * found["standard_error"])


def _tied(figures: Mapping[str, Any]) -> float:
    """The share of the sampled rows that have ties at the k-th neighbor."""
    return float(max(figures["rows"]["tied"], figures["coordinates"]["tied"]))


def with_error(figure: Mapping[str, float]) -> str:
    """A figure with its standard error.

    >>> with_error({"value": 0.81234, "standard_error": 0.0123}), with_error({"value": 1.0, "standard_error": 0.0})
    ('0.812 ± 0.012', '1.000')
    """
    value, error = figure["value"], figure["standard_error"]
    digits = 3 if min(value, 1 - value) >= 0.01 or value in (0, 1) else 5
    return f"{value:.{digits}f}" + (f" ± {error:.{digits}f}" if error > 0 else "")


def _unrelated(figures: Mapping[str, Any]) -> str:
    found = ", ".join(
        f"{text.lower()} {with_error(figures[name])} (shuffled {figures[name]['chance']:.3g})"
        for name, (text, _) in FIGURES.items()
    )
    tied = f", the {_percent(_tied(figures))} of rows with equally near neighbors as if they kept all"
    ties = tied if _tied(figures) > TIED else ""
    return (
        f"The coordinates look unrelated to the rows, as if shuffled: {found}; none is more than {CHANCE:g} standard "
        f"errors above shuffled coordinates{ties}. Check that coordinate i belongs to row i (nothing sorted, shuffled "
        "or left out in between) and that they were made from these rows"
    )


def _notes(figures: Mapping[str, Any]) -> list[str]:
    notes = []
    for name, width, what in (
        ("rows", figures["d"], "column"),
        ("coordinates", min(figures["n_coordinates"], 3), "coordinate"),  # (two of many may be all there is to show)
    ):
        found = figures[name]
        few, they_decide = deciding(found, width, f"{what.capitalize()} {{}} (from 0)")
        if few:
            notes.append(
                f"{few} of the variance of the {name}, so {they_decide} nearly all distances between them. If that is "
                f"a matter of units, bring the {what}s to one scale (for example unit variance) and certify again"
            )
    if (crowd := figures["rows"]["same_place"]) > 0:
        notes.append(
            f"{_percent(crowd)} of the rows have {figures['n_neighbors']} exact duplicates or more: which of them are "
            "neighbors is decided by the row number"
        )
    return notes


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


# --------------------------------------------------------------------------------------------------- neighborhoods
# How well coordinates keep the neighborhoods of the rows: sampled rows against all rows, in passes.

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
    weights: RowSource | None = None,
    numbers: RowSource | None = None,
    kept: str = "",
) -> dict[str, Any]:
    """Figures of coordinates (n, m) against rows (n, d), as plain numbers that JSON can hold.

    ``preservation``, ``trustworthiness``, ``continuity`` and ``triplets`` (:mod:`bigembed.quality`), each
    with ``value``, ``standard_error``, ``chance`` (for shuffled coordinates) and ``above_chance`` (in standard
    errors); ``n``, ``d``, ``n_coordinates``, ``n_neighbors``, ``samples``, ``metric``, ``seed``; and what
    :func:`judged` looks at besides: of ``rows`` and ``coordinates`` the column that varies
    most and its ``share`` of the variance, numbers of ``constant`` columns, and the share of sampled rows with k or
    more other rows at the ``same_place``; of the coordinates also how many rows carry each
    (:func:`bigembed.quality.coordinates.carried_figure`).

    Distances between rows are by ``metric`` (``mapped``: of rows that are mapped for it already), or given, those of
    all rows to the sampled ones (:class:`~bigembed.quality.passes.DistancesToSample`); between coordinates they are
    Euclidean. Of equal ones the smaller row number comes first. ``weights`` (n,) of the rows: figures are means by
    weight over the sampled rows (neighbors are counted one by one). ``numbers`` (n,): those that the rows have in
    their file, where they stand in another order. ``samples`` rows are drawn by ``seed`` (all of n or
    fewer), and compared with *all* rows. The same bytes for any chunks and workers. ``kept``: the folder where what
    new rows are compared with is written (:mod:`bigembed.quality.likeness`).

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
    if surveys[0]:
        drawn_rows = rows_of_parts(surveys[0], d)
        described["rows"] |= fills_figure(drawn_rows) | counting_figure(drawn_rows, _at(numbers, sample))
        if kept and not is_sparse(drawn_rows):
            write_array(f"{kept}{LIMITS}", column_limits(drawn_rows, surveys[0]["low"], surveys[0]["high"]))
    if kept:
        write_array(f"{kept}{REACH}", reach_of(found["squared"][:, :-1]))
    described["coordinates"] |= carried_figure(coordinates, surveys[1], exchange)
    mass = None if weights is None else _at(weights, sample).astype(np.float64)
    return {
        "n": n,
        "d": d,
        "n_coordinates": m,
        "n_neighbors": int(n_neighbors),
        "samples": len(sample),
        "metric": text,
        "seed": int(seed),
        "preservation": kept_figure(sample, near, shown, n, mass),
        "trustworthiness": trust_figure(sample, shown, ranks, n, mass),
        "continuity": trust_figure(sample, near, ranks_shown, n, mass),
        "triplets": triplet_figure(sample, triplets, apart, found_shown["far"], mass),
        **described,
    }


def _at(vector: RowSource | None, sample: Array) -> Array:
    """The entries of a vector at the sampled rows; their numbers where there is none."""
    if vector is None:
        return sample
    return np.concatenate([np.asarray(vector.read(int(row), int(row) + 1)) for row in sample])


def kept_arrays(rows: RowSource, n_neighbors: int = NEIGHBORS) -> list[ArraySpec]:
    """What is kept of rows, by which new ones are judged (:mod:`bigembed.quality.likeness`)."""
    limits = [] if rows.sparse else [ArraySpec(LIMITS, 4, rows.width)]
    return [*limits, ArraySpec(REACH, n_neighbors)]


def cost_of(
    rows: RowSource,
    coordinates: RowSource,
    *,
    n_neighbors: int = NEIGHBORS,
    samples: int = SAMPLES,
    terms: float = 0.0,
    kept: bool = False,
) -> Cost:
    """What :func:`preserved` takes, from the shapes alone; a stage that calls it may state this as its cost.

    ``terms``: of a distance that is taken pair by pair; each is taken for the lists, and again for the ranks.
    ``kept``: whether what new rows are compared with is written.
    """
    n = int(rows.shape[0])
    s, pairs = min(samples, n), 2 * TRIPLETS + n_neighbors
    sample = [ArraySpec("sampled rows", s, one.row_bytes, "u1") for one in (rows, coordinates)]
    lists = ArraySpec("lists of sampled rows", s, pairs + 2 * n_neighbors + 2)
    groups = max(min(MAX_GROUPS, -(-n // source.block)) for source in (rows, coordinates))
    largest = max((rows, coordinates), key=lambda source: source.largest_block * source.row_bytes)
    return Cost.of(
        reads=[rows_of(rows, 3), rows_of(coordinates, 5)],
        writes=kept_arrays(rows, n_neighbors) if kept else [],
        leaves=[*sample, replace(lists, times=groups)],
        task=[
            ArraySpec("blocks", largest.largest_block, largest.row_bytes, "u1", 4),
            *(replace(one, times=3) for one in sample),
            replace(lists, times=4),
            buffer("tiles", TILES),
        ],
        coordinator=[
            *(replace(one, times=3) for one in sample),
            replace(lists, times=24),
            ArraySpec("neighbors of sampled rows in common", s, n_neighbors**2, "u1"),
        ],
        passes=3,
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
