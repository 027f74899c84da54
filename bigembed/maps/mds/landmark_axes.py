"""Landmark MDS as stages: the scaling of the landmarks, how well they place rows, the principal axes of all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Self

import numpy as np
from scipy import linalg

from bigembed.distance import Metric, refuse_distances, refuse_square, wrong_entries
from bigembed.errors import InputError
from bigembed.linalg.eigenpairs import extremes
from bigembed.linalg.moments import merge_moments, moments_block, require_weight
from bigembed.linalg.pairs import refuse_entries
from bigembed.maps import mds, write_finished
from bigembed.maps.landmark_maps import FLOOR, classical, triangulated
from bigembed.maps.landmark_rows import SAMPLE_BYTES, change, far_apart, max_min_by, stress, uniform
from bigembed.maps.linear.principal import FLAT, principal_directions
from bigembed.rows import RowBlock, RowSource
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.rows.row_maps import Affine, AffineMap, affine_block
from bigembed.runtime.blocks import Array, bounds, map_blocks
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, buffer, rows_of, window_of
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.exchange import Exchange

# --------------------------------------------------------------------------------------------------- landmark axes

SHARES = (2, 4)
"""One landmark in 2, and one in 4, is kept to see how the coordinates change."""
SLICE = 8 << 20
"""Distances that a task holds at a time."""


# --- Euclidean distances ---------------------------------------------------------------------------


def affine_solve_stage(source: RowSource, m: int, count: int) -> Stage:
    """``components`` (d₊, d): the row goes to (x − mean)·c_l. The axes are those of the landmarks, turned to all rows'.

    With Z the centered landmarks, B = ZZᵀ = V Λ Vᵀ, so L^# Z (x − z̄) is the projection on the axes Zᵀ v_i/√λ_i.
    """
    d = source.shape[1]
    wide = d > mds.SCATTER_COLUMNS

    writes = [ArraySpec("components", m, d), ArraySpec("mean", d), ArraySpec("eigenvalues", m)]
    cost = Cost.of(
        reads=[rows_of(source)] if wide else (),
        writes=[*writes, ArraySpec("landmark_eigenvalues", count)],
        task=window_of(source) if wide else (),
        coordinator=[*squares(min(count, d)), *squares(count), *probed(count), ArraySpec("probes", mds.PROBES, d)],
        passes=1 if wide else 0,
        serial_flops=10 * min(count, d) ** 3,
    )
    return Stage(
        "solve", ("sample", "landmarks"), {"m": m}, partial(run_affine_solve, source=source, m=m, wide=wide), cost
    )


def squares(count: int) -> Arrays:
    """Square matrices of the landmarks."""
    return [ArraySpec("matrices of the landmarks", count, count, times=7.5)]


def probed(count: int) -> Arrays:
    """Distances of the probes, to each other and to the landmarks."""
    return [ArraySpec("distances of probes", mds.PROBES, mds.PROBES + 4 * count)]


def run_affine_solve(context: Context, source: RowSource, m: int, wide: int) -> dict[str, Any]:
    landmarks, mean = read_array(context.of("landmarks", "rows")), read_array(context.of("sample", "mean"))
    values, axes = landmark_axes(landmarks)
    kept = mds.kept_of(values, 0.0, m)
    axes = axes[:, :kept]
    if wide:
        found = reduce_rows(source, projected_moments, context.exchange, combine=merge_moments, mean=mean, axes=axes)
        scatter = found["scatter"]
    else:
        scatter = axes.T @ read_array(context.of("sample", "scatter")) @ axes
    variances, turn = linalg.eigh(scatter)
    components = axes @ turn[:, ::-1]
    components *= extremes(components)[1]
    write_array(context.path("components"), np.ascontiguousarray(components.T))
    write_array(context.path("mean"), mean)
    write_array(context.path("eigenvalues"), np.maximum(variances[::-1], 0.0))
    write_array(context.path("landmark_eigenvalues"), np.pad(values, (0, max(0, len(landmarks) - len(values)))))
    measured = diagnostics(context, Metric("euclidean"), kept)
    return {"affine": True, "n_components": kept, "last": float(values[kept - 1]), "lowest": 0.0, **measured}


def landmark_axes(rows: Array) -> tuple[Array, Array]:
    """Eigenvalues of B of landmarks (L, d) by Euclidean distance, descending, 0 where rounding; axes (d, ·)."""
    centered = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    if centered.shape[1] <= len(centered):
        return principal_directions(centered.T @ centered)
    values, vectors = linalg.eigh(centered @ centered.T)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    values[values <= FLAT * len(values) * values[0]] = 0.0
    good = values > 0
    return values, centered.T @ (vectors[:, good] / np.sqrt(values[good]))


def projected_moments(block: RowBlock, *, mean: Array, axes: Array) -> Parts:
    """Moments of one block of rows after the projection."""
    return moments_block(affine_block(block.rows, mean, axes), block.weights)


# --- other distances -------------------------------------------------------------------------------


def distance_solve_stage(source: RowSource, metric: Metric, m: int, count: int) -> Stage:
    """The map of squared distances to coordinates, on the axes of the landmarks: ``mean``, ``matrix``, ``offset``."""

    held = [*squares(count), *probed(count)]
    cost = Cost.of(writes=distance_map(count, m), coordinator=held, serial_flops=10 * count**3)
    return Stage(
        "solve", ("sample", "landmarks"), metric.key() | {"m": m}, partial(run_distance_solve, metric=metric, m=m), cost
    )


def distance_map(count: int, m: int, values: str = "landmark_eigenvalues") -> Arrays:
    """The map of squared distances to so many landmarks, and eigenvalues of theirs or of all rows."""
    of_each = [ArraySpec("mean", count), ArraySpec("matrix", count, m), ArraySpec("offset", m)]
    return [*of_each, ArraySpec(values, count if values == "landmark_eigenvalues" else m)]


def run_distance_solve(context: Context, metric: Metric, m: int) -> dict[str, Any]:
    landmarks = read_array(context.of("landmarks", "rows"))
    between = metric.within(context).between(landmarks, landmarks)
    refuse_square(between, f"metric={metric.text}", "landmarks")
    found, values = classical(np.square(between), m)
    kept = mds.kept_of(values, FLOOR * max(float(values[0]), 0.0), m)
    AffineMap.within(context.path("")).write(Affine(found.mean, found.matrix[:, :kept], np.zeros(kept)))
    write_array(context.path("landmark_eigenvalues"), values)
    return {
        "affine": False,
        "n_components": kept,
        "last": float(values[kept - 1]),
        "lowest": float(values[-1]),
        "negative_share": float(-values[values < 0].sum() / np.abs(values).sum()),
        **diagnostics(context, metric, kept),
    }


def distance_coordinates_stage(source: RowSource, metric: Metric, m: int, count: int) -> Stage:
    """``embedding`` (n, d₊): all rows by their distances to the landmarks, turned to principal axes; and that map.

    One pass places the rows and takes second moments; they wait in the exchange to be turned.
    """
    n, d = source.shape

    cost = Cost.of(
        reads=[rows_of(source)],
        writes=[ArraySpec("embedding", n, m, source.work), *distance_map(count, m, "eigenvalues")],
        leaves=[ArraySpec("coordinates before they are turned", n, m)],
        task=[
            *window_of(source),
            buffer("tiles of distances", 6 * SLICE),
            ArraySpec("landmarks and the map", count, d + m),
            ArraySpec("coordinates", source.largest_block, m, times=3),
        ],
        coordinator=[ArraySpec("landmarks and their distances", count, count + d, times=3)],
        passes=1,
        flops=2 * n * count * (d + m),
        scalar_ops=n * count,
    )
    return Stage(
        "coordinates",
        ("landmarks", "solve"),
        {"source": source.fingerprint()},
        partial(run_distance_coordinates, source=source, metric=metric),
        cost,
    )


def run_distance_coordinates(context: Context, source: RowSource, metric: Metric) -> dict[str, Any]:
    by, known = metric.within(context), context.of("landmarks", "rows")
    model = mds.ByDistance(by, known, AffineMap.within(context.of("solve")))
    total = reduce_rows(
        source,
        triangulate_block,
        context.exchange,
        combine=merge_moments,
        label="triangulate",
        model=model,
        to=context.exchange,
    )
    require_weight(total)
    found, mean = model.map.read(), total["mean"]
    variances, turn = linalg.eigh(total["scatter"])
    turn = turn[:, ::-1]
    landmarks = read_array(known)
    turn = turn * extremes((triangulated(by.between(landmarks, landmarks), found) - mean) @ turn)[1]
    AffineMap.within(context.path("")).write(found.then(turn, -mean @ turn))
    write_array(context.path("eigenvalues"), np.maximum(variances[::-1], 0.0))
    out = context.path("embedding")
    write_finished(source, context.exchange, "coordinates", Affine(mean, turn), out, len(mean), source.work)
    return {"n_components": len(mean)}


def triangulate_block(block: RowBlock, *, model: mds.ByDistance, to: Exchange) -> Parts:
    """Leave the coordinates of one block in the exchange; their moments."""
    coordinates = mds.coordinates_by_distance(block.rows, model, block.start)
    to.put("coordinates", block.number, {"own": coordinates})
    return moments_block(coordinates, block.weights)


# --- how well --------------------------------------------------------------------------------------


def diagnostics(context: Context, metric: Metric, m: int) -> dict[str, Any]:
    """Stress and correlation on all pairs of the probes, and how far they move with a share of the landmarks."""
    probes, landmarks = read_array(context.of("sample", "probes")), read_array(context.of("landmarks", "rows"))
    order, by = read_array(context.of("landmarks", "order")), metric.within(context)
    apart, to, between = (by.between(*pair) for pair in ((probes,) * 2, (probes, landmarks), (landmarks,) * 2))
    refuse_square(apart, f"metric={metric.text}", "sampled rows")
    refuse_distances(to, metric)
    coordinates = triangulated(to, classical(np.square(between), m)[0])
    share, correlation = stress(apart, coordinates)
    moves = {str(part): change(between, to, order, m, part) for part in SHARES}
    return {
        "stress": share,
        "correlation": correlation,
        "change": {part: None if np.isnan(value) else value for part, value in moves.items()},
    }


# ----------------------------------------------------------------------------------------------------------- given
# Landmark MDS of distances that are given: rows are known by their numbers, and few rows of the array are read.
#
# Of an array (n, n) only the rows of the landmarks, and of some rows that the map is judged by, are read, and kept in
# a form in which a block of rows finds its distances to the landmarks.

GIVEN_PROBES = 100
"""Rows that the map is judged by: fewer than where distances are computed, as each is a row to read."""
SPAN = 1 << 15
"""Columns of a task, and of a chunk of what is kept."""
CANDIDATES = 4_096
"""Rows that landmarks far from each other are chosen among, at the most."""


@dataclass(frozen=True)
class GivenDistances(Metric):
    """Distances of rows, by their numbers, to landmarks and probes."""

    path: str = ""
    """Of the stage that keeps them; empty as long as it is planned."""

    def within(self, context: Context) -> Self:
        """The same, where the stages of this run are."""
        return replace(self, path=context.of("landmarks"))

    def between(self, rows: Any, others: Any) -> Array:
        """Distances of rows (m, 1) to rows that are kept (k, 1): float64 (m, k)."""
        numbers, wanted = (np.asarray(part)[:, 0].astype(np.int64) for part in (rows, others))
        low, high = int(numbers.min()), int(numbers.max()) + 1
        out = np.empty((len(numbers), len(wanted)))
        for column, row in enumerate(wanted.tolist()):
            out[:, column] = read_array(f"{self.path}/distances/{row}", low, high)[numbers - low]
        return out


@dataclass(frozen=True)
class Numbers(RowSource):
    """The numbers of the rows of an array, (n, 1)."""

    given: RowSource | None = None

    def read(self, start: int, stop: int) -> Array:
        """The numbers ``start`` to ``stop``."""
        return np.arange(start, stop, dtype=np.float64)[:, None]

    @property
    def block(self) -> int:
        """Rows of a block: as many as lie in a chunk of what is kept."""
        return SPAN

    @property
    def grain(self) -> int:
        return 1

    def fingerprint(self) -> str:
        assert self.given is not None
        return self.given.fingerprint()


def numbers_of(source: RowSource) -> Numbers:
    """The numbers of the rows of an array of distances, which must be square."""
    n, d = source.shape
    if n != d:
        raise InputError(f"metric='precomputed': distances form a square array (n, n); got shape {source.shape}")
    return Numbers((n, 1), np.dtype(np.float64), given=source)


def drawn_stage(numbers: Numbers, asked: mds.LandmarkOptions) -> Stage:
    """Numbers of the rows that landmarks are chosen among (``candidates``, ``ids``), and of ``probes``."""
    n = numbers.shape[0]

    parameters = {"source": numbers.fingerprint(), "metric": "precomputed", **asked.key()}
    drawn = min(n, CANDIDATES, 30 * asked.count) if asked.selection == "max-min" else asked.count
    cost = Cost.of(writes=[ArraySpec("ids", drawn, dtype="i8"), ArraySpec("probes", GIVEN_PROBES, 1)])
    return Stage("sample", (), parameters, partial(run_drawn, asked=asked, n=n), cost)


def run_drawn(context: Context, asked: mds.LandmarkOptions, n: int) -> dict[str, Any]:
    ids, probes = asked.candidates(n, SAMPLE_BYTES // CANDIDATES), uniform(n, min(n, GIVEN_PROBES), [asked.seed, 2])
    write_array(context.path("ids"), ids)
    write_array(context.path("probes"), probes.astype(np.float64)[:, None])
    return {"n": n, "d": n, "dtype": "float64", "candidates": len(ids), "probes": len(probes)}


def kept_stage(numbers: Numbers, asked: mds.LandmarkOptions) -> Stage:
    """The landmarks, and for each of them and each probe a row of the array, ``distances/NUMBER`` (n,).

    Which landmark is the farthest from those before it, their rows say. Where chunks hold so many rows that reading
    them one after the other would be more than the array, the distances between all candidates are read together.
    """
    assert numbers.given is not None
    source, n = numbers.given, numbers.shape[0]
    most, (high, wide) = min(n, asked.count + GIVEN_PROBES + 1), source.chunks

    touched, every = min(n, most * high), asked.count * high > n and asked.selection == "max-min"
    drawn, item = min(n, CANDIDATES, 30 * asked.count) if every else 0, source.dtype
    among = ArraySpec("distances of candidates", drawn, drawn)
    cost = Cost.of(
        reads=[ArraySpec("distances", (1 + every) * touched, n, item)],
        writes=[ArraySpec("distances/*", most * n, dtype=source.work), *mds.landmark_arrays(asked.count, 1, "f8")],
        leaves=[among],
        task=[
            buffer("chunks that are read", 64 << 20),
            ArraySpec("panels of distances", min(high, n), min(n, SPAN), item, 3),
            ArraySpec("chunks", high, wide, item, 8),
        ],
        coordinator=[ArraySpec("distances of a row", n, times=5), replace(among, times=2)],
        maps=asked.count if asked.selection == "max-min" else 1,
    )
    return Stage(
        "landmarks", ("sample",), asked.key(), partial(run_kept, asked=asked, high=high, n=n, source=source), cost
    )


def run_kept(context: Context, asked: mds.LandmarkOptions, high: int, n: int, source: Any) -> dict[str, Any]:
    ids, probes = read_array(context.of("sample", "ids")), read_array(context.of("sample", "probes"))[:, 0]
    kept, out = np.zeros(0, np.int64), context.path("distances")

    def read(rows: Array) -> None:
        nonlocal kept
        new = np.setdiff1d(rows, kept)
        for row in new.tolist():
            create_rows(f"{out}/{row}", (n,), source.work, SPAN, overwrite=True, compress=False)
        tasks = [(part, *span) for part, span in product(in_chunks(new, high), bounds(n, SPAN))]
        refuse_entries(map_blocks(keep_block, tasks, source=source, out=out), len(new))
        kept = np.union1d(kept, new)

    def to_candidates(i: int) -> Array:
        read(ids[i : i + 1])
        return read_array(f"{out}/{ids[i]}")[ids].astype(np.float64)

    numbers = ids if asked.given is None else np.asarray(asked.given, np.int64)
    if asked.given is None and far_apart(asked.selection):
        apart = to_candidates if asked.count * high <= n else distances_among(source, ids, context.exchange).__getitem__
        numbers = ids[max_min_by(apart, asked.count)]
    read(np.concatenate([numbers, probes.astype(np.int64), ids[:1]]))
    return mds.write_landmarks(context, asked, numbers.astype(np.float64)[:, None], numbers, len(ids))


def in_chunks(rows: Array, high: int) -> list[Array]:
    """Numbers of rows, ascending, in groups of those that lie in the same chunks.

    >>> [group.tolist() for group in in_chunks(np.array([1, 2, 5, 9, 11]), 4)]
    [[1, 2], [5], [9, 11]]
    """
    return np.split(rows, np.flatnonzero(np.diff(rows // high)) + 1) if len(rows) else []


def distances_among(source: RowSource, ids: Array, exchange: Exchange) -> Array:
    """Distances between some rows (c, c), float64, each chunk read once."""
    parts = list(enumerate(in_chunks(ids, source.chunks[0])))
    refuse_entries(map_blocks(among_block, parts, source=source, ids=ids, exchange=exchange), len(ids))
    return np.concatenate([exchange.get_many("among", number, ["values"])[0] for number, _ in parts])


def among_block(number: int, rows: Array, *, source: RowSource, ids: Array, exchange: Exchange) -> dict[str, Any]:
    """Leave the distances of rows that lie near each other to the other ones; entries that no distance has."""
    low, high = int(rows[0]), int(rows[-1]) + 1
    values = np.empty((len(rows), len(ids)))
    for start, stop in bounds(source.shape[1], SPAN):
        first, last = np.searchsorted(ids, [start, stop])
        values[:, first:last] = source.window((low, high), (start, stop))[np.ix_(rows - low, ids[first:last] - start)]
    exchange.put("among", number, {"values": values})
    return seen_wrong(values, rows, ids)


def seen_wrong(values: Array, rows: Array, columns: Array) -> dict[str, Any]:
    """Entries that no distance has, and their rows."""
    wrong = [(int(rows[i]), int(columns[j]), value) for i, j, value in wrong_entries(values)]
    return {"entries": wrong, "rows": sorted({i for i, _, _ in wrong})}


def keep_block(rows: Array, start: int, stop: int, *, source: RowSource, out: str) -> dict[str, Any]:
    """Keep some columns of rows that lie near each other; entries that no distance has."""
    low, high = int(rows[0]), int(rows[-1]) + 1
    values = source.window((low, high), (start, stop))[rows - low].astype(source.work, copy=False)
    for row, own in zip(rows.tolist(), values, strict=True):
        write_rows(f"{out}/{row}", start, own)
    return seen_wrong(values, rows, np.arange(start, stop))
