"""From the eigenvectors of the components to one set of right eigenvectors, as the components policy says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, map_blocks, offsets
from bigembed.embedding.graph.parts import Parts, contrast
from bigembed.stages import Context
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.blockwise.exchange import Exchange
from bigembed.store.blockwise.matrix import StoredMatrix


@dataclass(frozen=True)
class Column:
    """A coordinate: eigenvector ``index`` of component ``component``; or, for index −1, a contrast of components."""

    eigenvalue: float
    component: int
    index: int


def assemble(
    context: Context,
    weights: StoredMatrix,
    parts: Parts,
    width: int,
    solved: dict[int, dict[str, Any]],
    labels: str,
    degree: str,
) -> dict[str, Any]:
    """Put the vectors of the components that are embedded together, fix signs, write ``right/b``.

    By landmarks also ``averaged/b``: functions whose averages over the neighbors of a row are its eigenvector entries.
    """
    tasks = [(b,) for b in range(len(weights.rows))]
    count = parts.count
    sums = np.sum(map_blocks(degree_sums_block, tasks, labels=labels, degree=degree, count=count), axis=0)
    together = parts.joint
    columns: list[Column] = []
    if parts.single:
        columns = [Column(value, 0, k) for k, value in enumerate(solved[0]["eigenvalues"])]
    elif together:
        columns = [Column(1.0, c, -1) for c in range(1, parts.contrasts(width) + 1)]
        rest = [Column(v, c, k) for c, s in solved.items() for k, v in enumerate(s["eigenvalues"])]
        columns = (columns + sorted(rest, key=lambda column: -column.eigenvalue))[:width]
    files = {c: s.get("vectors", "") for c, s in solved.items()}
    by_landmarks = any("averaged" in s for s in solved.values())
    root = context.exchange.root
    shape = {
        "labels": labels,
        "degree": degree,
        "starts": offsets(weights.rows),
        "columns": columns,
        "files": files,
        "width": width,
        "sums": sums,
        "together": together,
        "root": root,
        "factors": {},
    }
    extremes = map_blocks(right_block, tasks, exchange=context.exchange, **shape)
    signs = _signs(np.stack([part[0] for part in extremes]), np.stack([part[1] for part in extremes]))
    finish: dict[str, Any] = {"signs": signs, "labels": labels, "out": context.path(""), "exchange": context.exchange}
    map_blocks(signed_block, tasks, name="right", **finish)
    if by_landmarks:
        shape["files"] = {
            c: s.get("averaged", name) for (c, s), name in zip(solved.items(), files.values(), strict=True)
        }
        exact = {c: np.array(s["eigenvalues"]) for c, s in solved.items() if "averaged" not in s}
        shape["factors"] = {c: np.divide(1.0, v, out=np.zeros_like(v), where=v != 0) for c, v in exact.items()}
        map_blocks(right_block, tasks, exchange=context.exchange, **shape)
        map_blocks(signed_block, tasks, name="averaged", **finish)
    if columns:
        eigenvalues: Any = [column.eigenvalue for column in columns]
        residuals: Any = [
            0.0 if column.index < 0 else solved[column.component]["residuals"][column.index] for column in columns
        ]
    else:
        eigenvalues = [_padded(solved.get(c, {}).get("eigenvalues", []), width) for c in range(count)]
        residuals = [_padded(solved.get(c, {}).get("residuals", []), width) for c in range(count)]
    write_array(context.path("eigenvalues"), np.asarray(eigenvalues, np.float64))
    write_array(context.path("residuals"), np.asarray(residuals, np.float64))
    return {
        "solved": {str(c): {k: v for k, v in s.items() if k not in ("vectors", "averaged")} for c, s in solved.items()},
        "averaged": by_landmarks,
        "columns": [[column.component, column.index] for column in columns],
        "converged": all(s["converged"] for s in solved.values()),
        "passes": sum(s["passes"] for s in solved.values()),
        "bytes_moved": sum(s["bytes_moved"] for s in solved.values()),
        "degree_sums": sums[:1000].tolist(),
    }


def degree_sums_block(b: int, *, labels: str, degree: str, count: int) -> Array:
    """Σd of each of the first components within the block."""
    label = np.minimum(read_array(f"{labels}/{b}"), count)
    return np.bincount(label, weights=read_array(f"{degree}/{b}"), minlength=count + 1)[:count]


def right_block(
    b: int,
    *,
    labels: str,
    degree: str,
    starts: Array,
    columns: list[Column],
    files: dict[int, str],
    width: int,
    sums: Array,
    together: bool,
    root: str,
    factors: dict[int, Array],
    exchange: Exchange,
) -> tuple[Array, Array]:
    """R = Π^{-1/2} V of one block, unsigned; the largest |entry| of each column (and component) and its sign.

    ``factors`` multiply the vectors of a component: over λ they are what the walk averages to the eigenvectors.
    """
    label, d = read_array(f"{labels}/{b}"), read_array(f"{degree}/{b}")
    ids = np.arange(starts[b], starts[b + 1])
    total = sums.sum() if together else None
    right = np.zeros((len(label), width))
    per_component = not columns
    for c in np.unique(label[label < len(sums)]):
        rows = np.flatnonzero(label == c)
        if int(c) in files:
            vectors = _vectors(int(c), files[int(c)], b, ids[rows], rows, root, exchange)
            vectors = vectors * factors.get(int(c), np.ones(vectors.shape[1]))
            scale = np.sqrt((sums[c] if total is None else total) / d[rows])[:, None]
            chosen = (
                range(vectors.shape[1])
                if per_component
                else [x.index for x in columns if x.component == c and x.index >= 0]
            )
            position = (
                list(chosen)
                if per_component
                else [k for k, x in enumerate(columns) if x.component == c and x.index >= 0]
            )
            right[rows[:, None], position] = (vectors * scale)[:, list(chosen)]
        for k, column in enumerate(columns):
            if column.index < 0:
                right[rows, k] = contrast(int(c), column.component, sums)
    exchange.put("right", b, {"right": right})
    groups = len(sums) if per_component else 1
    largest, sign = np.zeros((groups, width)), np.ones((groups, width))
    for group in range(groups):
        part = right[label == group] if per_component else right
        if len(part):
            where = np.argmax(np.abs(part), axis=0)
            entry = part[where, np.arange(width)]
            largest[group], sign[group] = np.abs(entry), np.where(entry < 0, -1.0, 1.0)
    return largest, sign


def _vectors(c: int, name: str, b: int, ids: Array, rows: Array, root: str, exchange: Exchange) -> Array:
    """Orthonormal eigenvectors of component c on the given rows of block b."""
    if name:
        found = Exchange(f"{root}/component{c}").get(name, b, "own")
        assert found is not None
        return found[rows]
    known, vectors = exchange.get("solved", c, "ids"), exchange.get("solved", c, "vectors")
    assert known is not None
    assert vectors is not None
    return vectors[np.searchsorted(known, ids)]


def _signs(largest: Array, sign: Array) -> Array:
    """Sign of the largest |entry| over all blocks (the first of equal ones), per group and column."""
    winner = np.argmax(largest, axis=0)
    return np.asarray(np.take_along_axis(sign, winner[None], axis=0)[0])


def signed_block(b: int, *, name: str, exchange: Exchange, signs: Array, labels: str, out: str) -> None:
    """Write R with the largest |entry| of each column positive (or, by the same signs, what is averaged to it)."""
    right = exchange.get("right", b, "right")
    assert right is not None
    group = read_array(f"{labels}/{b}") if len(signs) > 1 else np.zeros(len(right), int)
    write_array(f"{out}{name}/{b}", right * signs[group])


def _padded(values: list[float], width: int) -> list[float]:
    return values + [0.0] * (width - len(values))
