"""The first pass over the rows: are they usable, what are they, and a sample of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from scipy import sparse

from bigembed.distance import known
from bigembed.distance.metrics import RowMetric, checked_metric, refuse_function, require_columns
from bigembed.errors import InputError
from bigembed.rows import RowBlock, RowSource, passes, work_dtype
from bigembed.rows.row_maps import inadmissible, mapped_rows
from bigembed.rows.sparse import ENTRY_BYTES
from bigembed.runtime.blocks import Array, graph_rows, is_sparse
from bigembed.runtime.parameters import is_name, reference
from bigembed.stages import ArraySpec, Context, Cost, Stage
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange

# ---------------------------------------------------------------------------------------------------------- sketch
# Sparse rows beside sketches of them: a fixed random projection to a few columns, by which they are ordered.
#
# Column c of a row is added, with a random sign, to :data:`COPIES` of the columns of its sketch (Kane & Nelson 2014):
# squared distances of sketches are those of the rows on average, within about √(2/:data:`SKETCH`) of themselves.
# Which columns these are follows from c alone, so nothing as long as a row is ever held. Sketches say only near which
# cells a row lies; distances are taken of the rows themselves.

SKETCH = 64
"""Columns of a sketch."""
COPIES = 4


@dataclass(frozen=True)
class Sketched:
    """Sparse rows with their sketches, sliced and counted like an array."""

    rows: Any
    """CSR, (n, d)."""
    sketch: Array
    """(n, SKETCH)."""

    def __len__(self) -> int:
        return len(self.sketch)

    def __getitem__(self, chosen: Any) -> Sketched:
        return Sketched(self.rows[chosen], self.sketch[chosen])

    @property
    def dtype(self) -> Any:
        """Of the rows and the sketches."""
        return self.sketch.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rows."""
        n, d = self.rows.shape
        return int(n), int(d)


def sketched(rows: Any) -> Sketched:
    """CSR rows, as they are compared, with their sketches.

    >>> rows = sparse.csr_array(np.eye(3))
    >>> np.abs(sketched(rows).sketch).sum(axis=1).tolist()
    [2.0, 2.0, 2.0]
    """
    columns, place = np.unique(rows.indices, return_inverse=True)
    bits = _hashed(columns.astype(np.uint64))
    part = SKETCH // COPIES
    target = np.stack([(bits >> np.uint64(8 * c)) % np.uint64(part) + np.uint64(c * part) for c in range(COPIES)], 1)
    sign = np.stack([(bits >> np.uint64(40 + c)) & np.uint64(1) for c in range(COPIES)], axis=1) * 2.0 - 1.0
    size = COPIES * np.arange(len(columns) + 1)
    entries = sign.ravel() / np.sqrt(COPIES), target.ravel().astype(np.int32), size
    directions = sparse.csr_array(entries, shape=(len(columns), SKETCH))
    inside = sparse.csr_array((rows.data.astype(np.float64), place, rows.indptr), shape=(rows.shape[0], len(columns)))
    return Sketched(rows, np.asarray((inside @ directions).toarray(), rows.dtype))


def _hashed(numbers: Array) -> Array:
    """64 mixed bits of each number (splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def ordered_of(rows: Any) -> Array:
    """What rows are ordered by: their sketches, or dense rows themselves."""
    return rows.sketch if isinstance(rows, Sketched) else rows


def compared_of(rows: Any) -> Any:
    """What distances are taken of: the rows themselves, dense or CSR."""
    return rows.rows if isinstance(rows, Sketched) else rows


# ---------------------------------------------------------------------------------------------------------- survey

SCALED = ("cosine", "correlation", "hellinger", "spearmanr")
"""Metrics of rows that are scaled each by itself."""
NAMED = 10
"""Rows that an error names."""
REMEDY = "Give the new rows without these"
"""What to do about new rows that a metric does not admit: what was fitted is fitted …"""
ZEROLESS = ("cosine", "true_angular", "tsss")
PASSED = ". A model that was fitted with the step 'missing' (zeros=True) before it leaves their coordinates NaN"
"""… and for another time, of metrics that admit all rows but those of zeros."""
TRIED = 48
"""Rows that a function of the user's is tried on."""
SAMPLE_BYTES = 32 << 20
SAMPLE_PER_PARTITION = 256
MIN_SAMPLE = 20_000


@dataclass(frozen=True)
class Shape:
    """Rows, features and canonical blocks of a data set, and how its rows are read and compared."""

    n: int
    d: int
    dtype: str
    metric: Any
    """Its name, or a function of the user's."""
    most: int | None = None
    """Rows of a block, at most, where many neighbors of each make a block larger than its rows do."""
    filled: int | None = None
    """Of sparse rows the entries of one, on average; None of dense rows."""
    trusted: bool = True
    """Whether the metric may be called where it is a function's name."""

    @property
    def compare(self) -> RowMetric:
        """The distance of two rows."""
        return RowMetric(self.metric, self.trusted)

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse, and ordered by sketches of them."""
        return self.filled is not None

    @property
    def euclidean(self) -> bool:
        """Whether distances are the Euclidean ones of the dense rows that are ordered."""
        return self.compare.mapped and not self.sparse

    @property
    def width(self) -> int:
        """Columns of the rows that are ordered: as they are compared, or of their sketches."""
        own = {"haversine": 3, "precomputed": 1}  # (of given distances no rows are ordered)
        return SKETCH if self.sparse else own.get(self.metric, self.d)

    @property
    def block(self) -> int:
        """Rows of a block of the order and of the graph, of very many columns more than of a canonical block."""
        fitting = graph_rows(self.row_bytes)
        return fitting if self.most is None else min(fitting, self.most)

    @property
    def largest_block(self) -> int:
        """Rows of the largest block: all rows of a small set."""
        return min(self.block, self.n)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is worked on."""
        return self.ordered_bytes + (0 if self.filled is None else ENTRY_BYTES * (1 + self.filled))

    @property
    def ordered_bytes(self) -> int:
        """Bytes of a row that is ordered."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def sample(self) -> int:
        """Rows to sample: enough for the k-means of the partitions, bounded in bytes."""
        wanted = max(MIN_SAMPLE, SAMPLE_PER_PARTITION * -(-self.n // self.block))
        return int(min(self.n, wanted, max(2_000, SAMPLE_BYTES // self.ordered_bytes)))


def refuse_few_rows(n_neighbors: int | None, n: int) -> None:
    """InputError where n rows are no graph, or have fewer than ``n_neighbors`` others; None is all others."""
    if n < 2:
        raise InputError(f"a graph needs at least 2 rows; got n_samples = {n}")
    if n_neighbors is not None and n_neighbors < 1:
        raise InputError(f"n_neighbors={n_neighbors}; at least 1 is needed")
    if n_neighbors is not None and n_neighbors >= n:
        raise InputError(
            f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} rows (the row itself is not counted); got "
            f"n_samples = {n}. Lower n_neighbors or give more rows"
        )


def shape_of(source: RowSource, metric: Any) -> Shape:
    """Shape of a source, checked: two dimensions, numbers, at least one row and column, and a metric for them."""
    n, d = passes.checked_shape(source)
    found = checked_metric(metric)
    require_columns(found, d, source.sparse)
    filled = -(-int(source.row_bytes) // ENTRY_BYTES) - 1 if source.sparse else None
    return Shape(n, d, str(work_dtype(source.dtype)), found.name, filled=filled)


def shape_in(survey: Mapping[str, Any], metric: Any = None) -> Shape:
    """The shape that a survey found. Of a function only the ``metric`` that the caller gave is called, never what a
    file names."""
    named = survey["metric"]
    given = is_name(named) and (metric == named or (callable(metric) and reference(metric) == named))
    shape = Shape(survey["n"], survey["d"], survey["dtype"], metric if given else named, filled=survey.get("filled"))
    return shape if given or not is_name(named) else replace(shape, trusted=False)


def survey_stage(source: RowSource, shape: Shape, seed: int) -> Stage:
    """Check every row for NaN and infinity, digest the content, take a stratified sample. One pass."""
    parameters = {"source": source.fingerprint(), "shape": [shape.n, shape.d], **shape.compare.key(), "seed": seed}

    sample = ArraySpec("sample", shape.sample, shape.width, shape.dtype)
    cost = Cost.of(
        reads=[ArraySpec("rows", shape.n, shape.row_bytes, "u1")],
        writes=[sample, ArraySpec("sample_ids", shape.sample, dtype="i8")],
        task=[ArraySpec("rows", shape.largest_block, shape.row_bytes, "u1", 4)],
        coordinator=[replace(sample, times=3)],
        passes=1,
    )
    return Stage("survey", (), parameters, partial(run_survey, source=source, shape=shape, seed=seed), cost)


def run_survey(context: Context, source: RowSource, shape: Shape, seed: int) -> dict[str, Any]:
    found = passes.map_row_blocks(source, survey_block, shape=shape, seed=seed, exchange=context.exchange)
    _refuse(found, shape)
    sample = [context.exchange.get("sample", number, "rows") for number in range(len(found))]
    ids = [context.exchange.get("sample", number, "ids") for number in range(len(found))]
    write_array(context.path("sample"), np.concatenate([part for part in sample if part is not None]))
    write_array(context.path("sample_ids"), np.concatenate([part for part in ids if part is not None]))
    low = np.min([part["low"] for part in found], axis=0)
    high = np.max([part["high"] for part in found], axis=0)
    refuse_extent(low, high, shape)
    content = sha256("".join(part["digest"] for part in found).encode()).hexdigest()
    return {
        "n": shape.n,
        "d": shape.d,
        "dtype": shape.dtype,
        "metric": shape.compare.text,
        "content": content,
        "constant_columns": 0 if shape.sparse else int(np.sum(low == high)),
        "low": float(low.min()),
        "high": float(high.max()),
        **({"filled": shape.filled} if shape.sparse else {}),
    }


def survey_block(block: RowBlock, *, shape: Shape, seed: int, exchange: Exchange) -> dict[str, Any]:
    """Check one block and leave its share of the sample in the exchange."""
    number, rows, start, stop = block.number, block.rows, block.start, block.stop
    wrong, _, _ = inadmissible(rows, shape.compare.text)
    generator = np.random.default_rng([seed, 1, number])
    share = round(stop * shape.sample / shape.n) - round(start * shape.sample / shape.n)
    chosen = np.sort(generator.choice(stop - start, share, replace=False))
    exchange.put("sample", number, {"rows": ordered_of(prepare(rows[chosen], shape)), "ids": chosen + start})
    found = passes.infinite(rows, start)
    if shape.compare.own and number == 0 and not found:
        tried = chosen[:: max(1, len(chosen) // TRIED)][:TRIED]
        refuse_function(shape.compare, compared_of(prepare(rows[tried], shape)), tried + start)
    return {
        "digest": _digest(rows),
        **_bounds(rows),
        **found,
        "wrong": (np.flatnonzero(wrong)[:5] + start).tolist(),
        "wrongs": int(wrong.sum()),
    }


def _digest(rows: Any) -> str:
    if not is_sparse(rows):
        return sha256(rows.tobytes()).hexdigest()
    parts = rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data
    return sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def _bounds(rows: Any) -> dict[str, Array]:
    """Least and largest entry of each column; of all columns together where they are sparse."""
    if not is_sparse(rows):
        return {"low": rows.min(axis=0), "high": rows.max(axis=0)}
    return {"low": rows.data.min(initial=0)[None], "high": rows.data.max(initial=0)[None]}


def kind_of_fitted(rows: Any, shape: Shape) -> Any:
    """New rows dense or sparse, as the rows of this shape are."""
    if is_sparse(rows) == shape.sparse:
        return rows
    return rows.toarray() if is_sparse(rows) else sparse.csr_array(rows)


def prepare(rows: Any, shape: Shape) -> Any:
    """Rows as they are searched: in the work dtype, mapped as the metric has it; CSR rows with their sketches."""
    with np.errstate(over="ignore", invalid="ignore"):
        mapped = mapped_rows(rows, shape.compare.text, shape.dtype)
        return sketched(mapped) if is_sparse(rows) else mapped


def refuse_inadmissible(rows: Any, shape: Shape, start: int = 0) -> None:
    """InputError where the metric is not defined for some of the new rows; ``start`` numbers the first."""
    wrong, what, _ = inadmissible(rows, shape.compare.text)
    if wrong.any():
        found = np.flatnonzero(wrong) + start
        advice = REMEDY + (PASSED if shape.compare.text in ZEROLESS else "")
        _refuse_rows(shape, what, advice, len(found), f"the rows {start}:{start + len(wrong)}", found[:NAMED].tolist())


def _refuse_rows(shape: Shape, what: str, advice: str, count: int, whole: str, first: list[int]) -> None:
    raise InputError(
        f"metric={shape.compare.text!r} is not defined for {what}: {count} of {whole}, the first are rows {first}. "
        f"{advice}"
    )


def _refuse(found: list[dict[str, Any]], shape: Shape) -> None:
    if any("nan" in part for part in found):
        raise InputError(f"Input X contains {passes.not_finite(found, f'{shape.n} rows')}")
    if wrong := sum(part["wrongs"] for part in found):
        first = [row for part in found for row in part["wrong"]][:NAMED]
        _, what, advice = inadmissible(np.zeros((1, 2)), shape.compare.text)
        _refuse_rows(shape, what, advice, wrong, str(shape.n), first)


def refuse_extent(low: Array, high: Array, shape: Shape) -> None:
    """InputError where squared distances between rows of these bounds leave the range of the dtype.

    Where the longest one is below 2⁻⁴⁰ in float32, the squares of those within the rounding of rows are not normal
    numbers.
    """
    least, most = 1 / passes.LARGEST, passes.LARGEST
    if shape.dtype != "float64":
        least, most = passes.LEAST_32, passes.MOST_32
    with np.errstate(over="ignore"):
        if shape.metric in SCALED:  # (rows are scaled in float64)
            size, least, most = float(np.maximum(np.abs(low), np.abs(high)).max()), 1 / passes.LARGEST, passes.LARGEST
        else:
            sides = high.astype(np.float64) - low
            longest = float(sides.max())
            size = longest * float(np.linalg.norm(sides / longest)) if 0 < longest < np.inf else longest
    if size and shape.metric not in SCALED:
        size **= known(shape.metric).degree
    if size and not least <= size <= most and (shape.metric in SCALED or not shape.compare.bounded):
        of = "rows" if shape.metric in SCALED else "distances between rows"
        passes.refuse_size(size, most, least, f"the squares of the {of}")
