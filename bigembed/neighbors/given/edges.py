"""A user's edges brought to canonical blocks: checked, left for the blocks of both ends, merged there.

A task reads a range of edges and leaves each twice, as it is with the block of its source and turned round with that
of its target; the task of a block then has w_ij and w_ji of all its rows. What is merged is sorted first, so that the
order of the edges, and how they were stored, decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.errors import InputError
from bigembed.neighbors.graph_blocks import csr_block, finish_graph, write_block
from bigembed.rows.edges import spans_of
from bigembed.rows.graph_source import SYMMETRIZE, GraphSource
from bigembed.runtime.blocks import Array, bounds, by_owner, map_blocks
from bigembed.stages import Context
from bigembed.store.arrays import write_array
from bigembed.store.exchange import Exchange

# ------------------------------------------------------------------------------------------------------- offenders
# What can be wrong with a user's edges, found by tasks and said in one error: how many, and the first ones.

NAMED = 10
"""Edges and nodes that an error names."""


def note_wrong(wrong: dict[str, Any], first: Array, second: Array, value: Array, source: GraphSource) -> None:
    """Add to ``wrong`` what is wrong with some edges: how many, and the first ones."""
    inside = [np.isfinite(ids) & (ids >= 0) & (ids < source.n) & (ids == np.floor(ids)) for ids in (first, second)]
    with np.errstate(over="ignore", invalid="ignore"):
        square = value.astype(np.float64) ** (1 if source.squared or source.values == "weights" else 2)
        bad = {
            "ids": ~(inside[0] & inside[1]),
            "values": ~(np.isfinite(value) & (value >= 0)),
            "large": np.isfinite(value) & (~np.isfinite(square) | ((square == 0) & (value != 0))),
            "above one": (value > 1) if source.symmetrize == "union" else np.zeros(len(value), bool),
        }
    for name, flags in bad.items():
        places = np.flatnonzero(flags)
        if len(places):
            count, named = wrong.get(name, (0, []))
            new = [(first[p].item(), second[p].item(), value[p].item()) for p in places[: NAMED - len(named)]]
            wrong[name] = count + len(places), named + new


SAID = {
    "ids": "have ids that are not integers from 0 to {last}. Number the nodes 0 … n − 1 (nodes says n)",
    "values": "have values that are NaN, infinite or negative; {values} are finite and ≥ 0. {advice}",
    "large": "have lengths whose squares leave the range of float64. Divide all by a number near them",
    "above one": "have weights above 1, and a + b − ab is a union of weights up to 1 only. Take symmetrize='max' or "
    "'mean', or divide",
}


def refuse_scattered(source: GraphSource, found: Sequence[dict[str, Any]]) -> None:
    """InputError that lists what is wrong with the edges, with the first ones."""
    advice = "A missing neighbor is −1; leave edges without a value out"
    if source.values == "weights":
        advice = 'Distances are read with values="distances"; leave edges without a value out'
    problems = []
    for name, said in SAID.items():
        parts = [part[name] for part in found if name in part]
        if parts:
            count, named = sum(part[0] for part in parts), [edge for part in parts for edge in part[1]][:NAMED]
            shown = ", ".join(f"{a:.17g} → {b:.17g}: {value:.6g}" for a, b, value in named)
            text = said.format(last=source.n - 1, values=source.values, advice=advice)
            problems.append(f"{count:,} edges {text}. The first: {shown}")
    if problems:
        raise InputError(". ".join(problems))


def refuse_merged(found: Sequence[dict[str, Any]], source: GraphSource, alone: bool = False) -> None:
    """InputError for edges listed twice, weights that are not symmetric, and, unless they may be ``alone``, nodes
    without edges, named by their ids."""

    def named(name: str) -> tuple[int, list[Any]]:
        return sum(part[name][0] for part in found), [one for part in found for one in part[name][1]][:NAMED]

    count, first = named("twice")
    if count:
        raise InputError(
            f"{count:,} edges are listed more than once in one direction: {_pairs(first)}. Say what becomes of them: "
            "duplicates='sum', 'min' or 'max'"
        )
    count, first = named("asymmetric")
    if count:
        shown = ", ".join(f"{i} → {j}: {a:.6g} and back {b:.6g}" for i, j, a, b in first)
        ways = " or ".join(repr(name) for name in SYMMETRIZE[source.values] if name != "error")
        whole = "max" if source.values == "weights" else "min"
        raise InputError(
            f"the graph is not symmetric: {count:,} values differ from those of the way back ({shown}). Say what "
            f"becomes of them: symmetrize={ways}; {whole!r} is right where each edge is listed once"
        )
    count, first = named("alone")
    if count and not alone:
        stay = ", or give them a weight to themselves" if source.values == "weights" else ""
        raise InputError(
            f"{count:,} nodes have no edge; the first are {first}. No walk and no path leads to them: leave them out "
            f"and number the others 0 … n − 1{stay}"
        )


def _pairs(edges: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{i} → {j}" for i, j in edges)


# ----------------------------------------------------------------------------------------------------------- edges

EDGE = np.dtype([("row", np.int32), ("column", np.int64), ("value", np.float64), ("turned", np.bool_)])
"""An edge on its way: its row in the block, the other end, its value, and whether that is where it was listed from."""
PER_TASK, PER_FILE = 1 << 20, 1 << 20
"""Edges that a task reads, and leaves in one file, about."""
SYMMETRIC = 1e-12
"""Largest |w_ij − w_ji| that counts as rounding, as a share of the largest value of node i."""
MISSING = {"weights": 0.0, "distances": np.inf}
"""The value of an edge that is not listed."""
MERGED_BYTES = 300
"""Of a listed edge in the task that merges a block: both of its directions, sorted, and the block."""


@dataclass(frozen=True)
class Scattered:
    """What the tasks that read the edges found."""

    senders: list[list[tuple[int, int]]]
    """For each block, the files with something for it: task and number."""
    largest: float
    """The largest value; of distances squared."""
    loops: int


@dataclass(frozen=True)
class Merging:
    """How the values of an edge become one."""

    values: str
    symmetrize: str
    duplicates: str
    exponent: int = 0
    """Weights are multiplied by 2 to this power: a walk has no scale, and they may be near overflow."""


def spans(source: GraphSource) -> list[int]:
    """Where the canonical blocks of the nodes begin, and n."""
    return [0, *(stop for _, stop in bounds(source.n, source.block))]


def scatter(context: Context, source: GraphSource) -> Scattered:
    """Read the edges, refuse what is wrong with them, and leave them for their blocks."""
    ranges = [(task, *span) for task, span in enumerate(spans_of(source.edges, PER_TASK))]
    found = map_blocks(scatter_edges, ranges, source=source, starts=spans(source), exchange=context.exchange)
    refuse_scattered(source, [part["wrong"] for part in found])
    files = [(task, number) for task, part in enumerate(found) for number in range(len(part["sent"]))]
    sent = [receivers for part in found for receivers in part["sent"]]
    senders: list[list[tuple[int, int]]] = [[] for _ in spans(source)[1:]]
    for file, receivers in zip(files, sent, strict=True):
        for receiver in receivers:
            senders[receiver].append(file)
    return Scattered(
        senders, max((part["largest"] for part in found), default=0.0), sum(part["loops"] for part in found)
    )


def scatter_edges(
    task: int, start: int, stop: int, *, source: GraphSource, starts: Sequence[int], exchange: Exchange
) -> dict[str, Any]:
    """Leave the edges of some units, in files of about :data:`PER_FILE` of them. Returns who gets something."""
    wrong: dict[str, Any] = {}
    sent: list[list[int]] = []
    largest, loops = 0.0, 0
    for first, second, value in _gathered(source.stream(start, stop)):
        note_wrong(wrong, first, second, value, source)
        if wrong:
            continue
        rows, columns, values = first.astype(np.int64), second.astype(np.int64), value.astype(np.float64)
        if source.values == "distances":
            values = values if source.squared else np.square(values)
        loop = rows == columns
        loops += int(loop.sum())
        largest = max(largest, float(values.max(initial=0.0)))
        exchange.put(f"edges{task}", len(sent), pieces := _pieces(rows, columns, values, loop, source, starts))
        sent.append([int(block) for block in pieces])
    return {"wrong": wrong, "sent": sent, "largest": largest, "loops": loops}


def _gathered(pieces: Iterator[tuple[Array, Array, Array]]) -> Iterator[tuple[Array, Array, Array]]:
    """Pieces together, as long as they are few edges."""
    held: list[tuple[Array, Array, Array]] = []
    for piece in pieces:
        if held and sum(len(part[0]) for part in held) + len(piece[0]) > PER_FILE:
            yield _joined(held)
            held = []
        held.append(piece)
    if held:
        yield _joined(held)


def _joined(parts: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    first, second, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return first, second, value


def _pieces(
    rows: Array, columns: Array, values: Array, loop: Array, source: GraphSource, starts: Sequence[int]
) -> dict[str, Array]:
    """Edges by the block of their source, and turned round by that of their target; a loop once, of distances never."""
    listed = ~loop if source.values == "distances" else np.ones(len(rows), bool)
    here, there = np.flatnonzero(listed), np.flatnonzero(~loop)
    parts: dict[int, list[Array]] = {}
    for places, ends, others, turned in ((here, rows, columns, False), (there, columns, rows, True)):
        for block, at, inside in by_owner(starts, ends[places]):
            piece = np.empty(len(at), EDGE)
            piece["row"], piece["turned"] = inside, turned
            piece["column"], piece["value"] = others[places[at]], values[places[at]]
            parts.setdefault(int(block), []).append(piece)
    return {str(block): np.concatenate(pieces) for block, pieces in sorted(parts.items())}


def merge_block(
    b: int,
    files: Sequence[tuple[int, int]],
    *,
    rule: Merging,
    starts: Sequence[int],
    exchange: Exchange,
    out: str,
    name: str,
    reach: bool = False,
) -> dict[str, Any]:
    """Write one block of the symmetric graph, its values under ``name``; what it counted, and what is wrong.

    ``reach``: write how far each node lists others, too, and the last of them.
    """
    parts = [exchange.piece(f"edges{task}", number, str(b)).view(EDGE) for task, number in files]
    edges = np.concatenate([np.zeros(0, EDGE), *parts])
    n, first, rows = starts[-1], starts[b], starts[b + 1] - starts[b]
    key = (edges["row"].astype(np.int64) * n + edges["column"]) * 2 + edges["turned"]
    order = np.argsort(key, kind="stable")
    key, value = key[order], edges["value"][order]
    del parts, edges, order
    key, value, twice = once(key, value, rule)
    row, column, both = paired(key, value, n, MISSING[rule.values])
    value, apart = symmetric(both, row + first, column, rule)
    kept = np.isfinite(value) if rule.values == "distances" else value != 0
    listed = (row + first != column) & (both[0] != MISSING[rule.values])
    if reach:
        farthest, last = reach_of(row[listed], column[listed], both[0][listed], rows)
        write_array(f"{out}reach/{b}", farthest)
        write_array(f"{out}last/{b}", last)
    found = {
        "listed": np.bincount(np.bincount(row[listed], minlength=rows)),
        "twice": (len(twice), [(int(k // n) + first, int(k % n)) for k in (twice >> 1)[:NAMED]]),
        "asymmetric": (len(apart), [(int(row[p]) + first, int(column[p]), *both[:, p]) for p in apart[:NAMED]]),
    }
    row, column, value = row[kept], column[kept], np.ldexp(value[kept], rule.exponent)
    isolated = np.flatnonzero(np.bincount(row, minlength=rows) == 0)
    found["alone"] = len(isolated), (isolated[:NAMED] + first).tolist()
    if rule.values == "distances":
        own = np.arange(rows)
        row, column = np.concatenate([row, own]), np.concatenate([column, own + first])
        value = np.concatenate([value, np.zeros(rows)])
    block = csr_block(b, row.astype(np.int32), column, value, starts)
    return found | write_block(b, block, starts, exchange, out, name)


def reach_of(row: Array, column: Array, value: Array, rows: int) -> tuple[Array, Array]:
    """The largest value that each of ``rows`` rows lists, and its column (the last of several); −1 of none.

    >>> reach_of(np.array([0, 0, 2]), np.array([4, 7, 1]), np.array([2.0, 2.0, 5.0]), 3)
    (array([ 2., -1.,  5.]), array([ 7, -1,  1]))
    """
    farthest, last = np.full(rows, -1.0), np.full(rows, -1, np.int64)
    order = np.lexsort((column, value, row))
    farthest[row[order]], last[row[order]] = value[order], column[order]  # (of several the last one stays)
    return farthest, last


def paired(key: Array, value: Array, n: int, missing: float) -> tuple[Array, Array, Array]:
    """Rows and columns of the edges with these ascending keys, and their values (2, m): as listed, and turned round."""
    pair, first = np.unique(key >> 1, return_index=True)
    both = np.full((2, len(pair)), missing)
    both[key & 1, np.repeat(np.arange(len(pair)), np.diff(first, append=len(key)))] = value
    return pair // n, pair % n, both


def once(key: Array, value: Array, rule: Merging) -> tuple[Array, Array, Array]:
    """Each key once, with its value of those listed; the keys that are there several times, where that is an error."""
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if len(first) == len(key):
        return key, value, key[:0]
    if rule.duplicates == "error":
        twice = np.unique(key[1:][key[1:] == key[:-1]])
        return key[first], value[first], twice[twice % 2 == 0]  # (with the block of the source only)
    value = value[np.lexsort((value, key))]
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[rule.duplicates]
    return key[first], combine.reduceat(value, first), key[:0]


def symmetric(both: Array, row: Array, column: Array, rule: Merging) -> tuple[Array, Array]:
    """One value of w_ij and w_ji; and which edges are not symmetric, where that is an error."""
    loop = row == column
    here, back = both[0], np.where(loop, both[0], both[1])
    if rule.symmetrize == "error":
        first = row.min(initial=0)
        largest = np.zeros(int(row.max(initial=0) - first) + 1)
        for values in (here, back):
            np.maximum.at(largest, row - first, np.where(np.isfinite(values), values, 0))
        apart = ~(np.abs(here - back) <= SYMMETRIC * largest[row - first])
        return np.where(row < column, here, back), np.flatnonzero(apart)
    if rule.symmetrize == "mean":
        value = here / 2 + back / 2
    elif rule.symmetrize == "union":
        value = here + back - here * back
    else:
        value = (np.minimum if rule.symmetrize == "min" else np.maximum)(here, back)
    return np.where(loop, here, value), row[:0]


def merge(
    context: Context, source: GraphSource, found: Scattered, name: str, alone: bool = False, reach: bool = False
) -> dict[str, Any]:
    """All blocks of the symmetric graph of the edges that were left; InputError for what is wrong with them.

    ``alone``: whether nodes may have no edge; ``reach``: whether to write how far each lists others. Among what is
    counted is, under ``listed``, how many nodes list 0, 1, … others.
    """
    exponent = -int(np.frexp(found.largest)[1]) if source.values == "weights" else 0
    rule = Merging(source.values, source.symmetrize, source.duplicates, exponent)
    starts = spans(source)
    shared: dict[str, Any] = {"exchange": context.exchange, "out": context.path(""), "name": name}
    parts = map_blocks(merge_block, list(enumerate(found.senders)), rule=rule, starts=starts, reach=reach, **shared)
    refuse_merged(parts, source, alone)
    listed = np.zeros(max(len(part["listed"]) for part in parts), np.int64)
    for part in parts:
        listed[: len(part["listed"])] += part["listed"]
    return {**finish_graph(context, parts, starts), "listed": listed}
