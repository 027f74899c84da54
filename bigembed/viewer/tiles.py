"""The pyramid of the map: what the pixels of cells hold, leaves with the points themselves, and the scripts of both.

A page that is opened as a file may load scripts and nothing else, so that every node is a script: one call with the
deflated bytes of a header (JSON) and of arrays behind it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from bigembed.runtime.blocks import Array
from bigembed.viewer import BARS, Column
from bigembed.viewer.cells import BITS, DEEPEST, Cell, places

LEAF = 4096
"""Rows of a leaf, at most."""
DEPTH = 8
"""Levels of pixels below a cell: its tile has 256 pixels a side."""
NONE, INNER, POINTS = range(3)
"""Kinds of nodes."""

# ---------------------------------------------------------------------------------------------------------- scripts


def script(header: Any, arrays: Iterable[bytes] = ()) -> bytes:
    """The script of a node."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return call(b"".join([len(head).to_bytes(4, "little"), head, *arrays]))


def call(payload: bytes) -> bytes:
    """A script that hands over bytes."""
    return b'view("' + b64encode(zlib.compress(payload, 5)) + b'")\n'


def write_script(folder: Path, name: str, text: bytes) -> int:
    """Write a script of a folder; its size."""
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return len(text)


def file_of(kind: str, cell: Cell, part: int = 0) -> str:
    """The name of a script of a cell."""
    return f"{kind}/{cell.name[:3] or 'r'}/{cell.name or 'r'}" + (f"_{part}" if part else "")


def texts(values: Array) -> list[bytes]:
    """UTF-8 of fixed width as lengths and the bytes of all."""
    each = values.tolist()
    return [np.array([len(one) for one in each], "<u2").tobytes(), b"".join(each)]


# ----------------------------------------------------------------------------------------------------------- pixels


@dataclass(frozen=True)
class Pixels:
    """What occupied pixels hold, ascending by key: how many rows, sums of numbers, counts of codes."""

    keys: Array
    count: Array
    sums: tuple[Array, ...]
    """Of each column of numbers."""
    codes: tuple[Array, ...]
    """Of each column that is a layer, rows of each code."""

    @classmethod
    def of(cls, keys: Array, level: int, columns: Sequence[Column], stored: Sequence[Array]) -> Self:
        """The pixels of a level that sorted rows fall on; ``stored``: the values of each layer."""
        cells = (keys >> np.uint64(2 * (BITS - level))).astype(np.int64)
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        run = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(cells))))
        sums, codes = [], []
        for column, values in zip(columns, stored, strict=True):
            code = column.codes(values)
            known = code >= 0
            counted = np.bincount(run[known] * column.bins + code[known], minlength=len(starts) * column.bins)
            codes.append(counted.astype(np.int32).reshape(len(starts), column.bins))
            if column.numeric:
                sums.append(np.add.reduceat(np.where(known, values, 0).astype(np.float64), starts))
        return cls(cells[starts], np.diff(np.append(starts, len(cells))), tuple(sums), tuple(codes))

    def coarser(self) -> Pixels:
        """The pixels of the level above."""
        keys = self.keys >> 2
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        count, *sums = (np.add.reduceat(one, starts) for one in (self.count, *self.sums))
        return Pixels(keys[starts], count, tuple(sums), tuple(np.add.reduceat(one, starts) for one in self.codes))

    def within(self, cell: Cell) -> Pixels:
        """Those of a cell, which is :data:`DEPTH` levels above."""
        part = slice(*np.searchsorted(self.keys, [cell.number << 2 * DEPTH, (cell.number + 1) << 2 * DEPTH]))
        sums, codes = (tuple(one[part] for one in several) for several in (self.sums, self.codes))
        return Pixels(self.keys[part], self.count[part], sums, codes)

    @classmethod
    def join(cls, parts: Sequence[Pixels]) -> Self:
        """Consecutive ones."""
        sums, codes = (
            tuple(np.concatenate(columns) for columns in zip(*several, strict=True))
            for several in ([part.sums for part in parts], [part.codes for part in parts])
        )
        return cls(
            np.concatenate([part.keys for part in parts]), np.concatenate([part.count for part in parts]), sums, codes
        )

    def save(self, path: Path) -> None:
        """Write them."""
        with open(path, "wb") as file:
            named = {f"{name}{i}": one for name in ("sums", "codes") for i, one in enumerate(getattr(self, name))}
            np.savez(file, keys=self.keys, count=self.count, **named)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read them."""
        with np.load(path) as found:
            several = [
                tuple(found[f"{name}{i}"] for i in range(sum(key.startswith(name) for key in found)))
                for name in ("sums", "codes")
            ]
            return cls(found["keys"], found["count"], *several)


def strengths(count: Array) -> Array:
    """Counts on a scale of eighths of a doubling, from 1 for one row; bytes."""
    found: Array = np.minimum(1 + np.round(8 * np.log2(count)), 255).astype(np.uint8)
    return found


def tile(pixels: Pixels, columns: Sequence[Column]) -> list[bytes]:
    """The arrays of a tile: which pixels are occupied (bits, along the curve), their counts, and a pair for each layer.

    Of numbers: mean and median from 1 to 255 between the limits of the column. Of classes: the number of the commonest
    one, from 1, and its share. 0 where nothing is known.
    """
    mask = np.zeros(1 << 2 * DEPTH, bool)
    mask[pixels.keys & (1 << 2 * DEPTH) - 1] = True
    out = [np.packbits(mask).tobytes(), strengths(pixels.count).tobytes()]
    sums = iter(pixels.sums)
    for column, codes in zip(columns, pixels.codes, strict=True):
        pair = numbers(column, codes, next(sums)) if column.numeric else commonest(codes)
        out += [one.astype(np.uint8).tobytes() for one in pair]
    return out


def numbers(column: Column, codes: Array, sums: Array) -> tuple[Array, Array]:
    """Mean and median of the numbers of each pixel, as bytes."""
    total = codes.sum(axis=1)
    mean = sums / np.maximum(total, 1)
    below = np.cumsum(codes, axis=1)
    half = total[:, None] / 2
    at = np.minimum((below < half).sum(axis=1), codes.shape[1] - 1)
    row, edges = np.arange(len(at)), np.array(column.edges)
    inside = np.maximum(codes[row, at], 1)
    share = (half[:, 0] - (below[row, at] - codes[row, at])) / inside
    median = np.where(total > 1, edges[at] + share * (edges[at + 1] - edges[at]), mean)
    scale = 254 / ((column.high - column.low) or 1.0)
    scaled = (1 + np.clip(np.round((value - column.low) * scale), 0, 254) for value in (mean, median))
    first, second = (np.where(total > 0, value, 0) for value in scaled)
    return first, second


def commonest(codes: Array) -> tuple[Array, Array]:
    """The commonest class of each pixel, from 1, and its share of those that have one, as bytes."""
    total = codes.sum(axis=1)
    most = codes.argmax(axis=1) if codes.shape[1] else np.zeros(len(codes), int)
    share = codes.max(axis=1, initial=0) / np.maximum(total, 1)
    return np.where(total > 0, most + 1, 0), np.where(total > 0, np.round(255 * share), 0)


# ------------------------------------------------------------------------------------------------------------- tree


@dataclass(frozen=True)
class Node:
    """A cell with its rows, and its quarters if they are too many for a leaf."""

    cell: Cell
    start: int
    stop: int
    quarters: tuple[Node, ...] = ()

    @property
    def kind(self) -> int:
        """What the page finds there."""
        return INNER if self.quarters else POINTS if self.stop > self.start else NONE

    def nodes(self) -> Iterable[Node]:
        """Itself and all below."""
        yield self
        for quarter in self.quarters:
            yield from quarter.nodes()


def tree(keys: Array, cell: Cell, start: int, stop: int) -> Node:
    """The quadtree of sorted keys in a cell."""
    if stop - start <= LEAF or cell.level >= DEEPEST:
        return Node(cell, start, stop)
    quarters = cell.quarters()
    inner = np.searchsorted(keys[start:stop], np.array([one.start for one in quarters[1:]], np.uint64))
    cuts = [start, *(start + inner).tolist(), stop]
    spans = zip(quarters, pairwise(cuts), strict=True)
    return Node(cell, start, stop, tuple(tree(keys, quarter, *span) for quarter, span in spans))


@dataclass(frozen=True)
class Rows:
    """The sorted rows of a bucket, column by column."""

    keys: Array
    numbers: Array
    """Of the rows."""
    columns: tuple[Column, ...]
    stored: tuple[Array, ...]
    ids: Array | None
    near: Array | None
    """Places of their nearest rows, less their own."""

    def layers(self) -> list[tuple[Column, Array]]:
        """The columns that colour the map."""
        return [(column, values) for column, values in zip(self.columns, self.stored, strict=True) if column.layered]

    def bars(self) -> list[Array]:
        """The bar of the histogram that each value is in."""
        return [column.bars(values) for column, values in self.layers()]

    def leaf(self, node: Node, part: int) -> bytes:
        """The script of the points of a leaf."""
        rows = slice(node.start + part * LEAF, min(node.stop, node.start + (part + 1) * LEAF))
        bits = BITS - node.cell.level
        corner = places(np.array([node.cell.number], np.uint64))[0] << bits
        inside = places(self.keys[rows]) - corner
        inside = inside >> bits - 16 if bits > 16 else inside << 16 - bits
        arrays = [inside[:, 0].astype("<u2").tobytes(), inside[:, 1].astype("<u2").tobytes()]
        arrays.append(self.numbers[rows].astype("<u4").tobytes())
        for column, values in zip(self.columns, self.stored, strict=True):
            arrays += texts(values[rows]) if column.kind == "text" else [values[rows].tobytes()]
        if self.ids is not None:
            arrays += texts(self.ids[rows])
        return script({"n": rows.stop - rows.start}, arrays)


@dataclass
class Summary:
    """What a node says of itself in the script of its parent."""

    kind: int
    count: int
    bars: list[list[int]]
    """Of each layer, rows of each bar."""

    def as_list(self) -> list[Any]:
        """For the page."""
        return [self.kind, self.count, self.bars] if self.count else [NONE, 0, []]


def summarize(node: Node, bars: Sequence[Array], widths: Sequence[int], found: dict[Cell, Summary]) -> Summary:
    """Summaries of a node and of all below, into ``found``."""
    if node.quarters:
        parts = [summarize(quarter, bars, widths, found) for quarter in node.quarters]
        mine = Summary(INNER, node.stop - node.start, added([part.bars for part in parts if part.count]))
    else:
        counted = [
            np.bincount(one[node.start : node.stop][one[node.start : node.stop] >= 0], minlength=width).tolist()
            for one, width in zip(bars, widths, strict=True)
        ]
        mine = Summary(node.kind, node.stop - node.start, counted)
    found[node.cell] = mine
    return mine


def added(several: Sequence[list[list[int]]]) -> list[list[int]]:
    """Histograms of several nodes together."""
    return [[sum(bar) for bar in zip(*each, strict=True)] for each in zip(*several, strict=True)]


def widths_of(columns: Iterable[Column]) -> list[int]:
    """Bars of each layer."""
    return [BARS if column.numeric else column.bins for column in columns if column.layered]


class Pyramid:
    """Writes the nodes of a map into a folder, and counts what it has written."""

    def __init__(self, folder: Path, columns: Sequence[Column]) -> None:
        self.folder = folder
        self.columns = [column for column in columns if column.layered]
        self.bytes = 0
        self.strengths: dict[int, list[int]] = {}
        """Pixels of each strength, by level."""

    def write_tile(self, cell: Cell, pixels: Pixels, quarters: Sequence[Summary]) -> None:
        """The script of an inner node."""
        counted = np.bincount(strengths(pixels.count), minlength=256)
        before = self.strengths.get(cell.level, [0] * 256)
        self.strengths[cell.level] = (np.array(before) + counted).tolist()
        header = {"quarters": [one.as_list() for one in quarters], "pixels": len(pixels.keys)}
        text = script(header, tile(pixels, self.columns))
        self.bytes += write_script(self.folder, file_of("t", cell), text)

    def write_rows(self, rows: Rows, cell: Cell, start: int, stop: int) -> Summary:
        """All nodes of a cell whose rows are ``start:stop``."""
        node = tree(rows.keys, cell, start, stop)
        found: dict[Cell, Summary] = {}
        summarize(node, rows.bars(), widths_of(rows.columns), found)
        levels: dict[int, list[Node]] = {}
        for one in node.nodes():
            if one.kind == INNER:
                levels.setdefault(one.cell.level, []).append(one)
            elif one.kind == POINTS:
                self._write_leaf(rows, one)
        if levels:
            stored = [values[start:stop] for _, values in rows.layers()]
            pixels = Pixels.of(rows.keys[start:stop], max(levels) + DEPTH, self.columns, stored)
            for level in range(max(levels), cell.level - 1, -1):
                for one in levels[level]:
                    self.write_tile(one.cell, pixels.within(one.cell), [found[part.cell] for part in one.quarters])
                pixels = pixels.coarser()
        return found[cell]

    def _write_leaf(self, rows: Rows, node: Node) -> None:
        for part in range(-(-(node.stop - node.start) // LEAF)):
            self.bytes += write_script(self.folder, file_of("t", node.cell, part), rows.leaf(node, part))
            if rows.near is not None:
                near = rows.near[node.start + part * LEAF : min(node.stop, node.start + (part + 1) * LEAF)]
                text = call(near.astype("<i4").tobytes())
                self.bytes += write_script(self.folder, file_of("n", node.cell, part), text)
