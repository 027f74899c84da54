"""What the passes of the linearized diffusion map add up on one block of rows.

With masses m_i (weights of rows), u_i and M of :mod:`bigembed.kernels.linearized`:

    t₀ = Σ m u,  q = u·M t₀,  w = q^{−α},  t = Σ m w u,  d = w (u·M t),  G = Σ m (w²/d) u uᵀ.

Rows of mass 0 add nothing. All sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.kernels.linearized import LinearizedKernel, Normalization, tiles
from bigembed.store.rows.passes import Parts
from bigembed.store.rows.row_blocks import RowBlock

EPSILONS = "epsilons"
"""Name of the point-wise scales that are aligned with the rows."""


def combine_sums(left: Parts, right: Parts) -> Parts:
    """Sums add, ``lowest …`` take the smaller; the farthest row is the one of the larger ``radius``."""
    out: Parts = {}
    for name, value in left.items():
        if name.startswith("lowest"):
            out[name] = np.minimum(value, right[name])
        elif name == "radius":
            out[name] = np.maximum(value, right[name])
        elif name == "farthest":
            out[name] = value if left["radius"] >= right["radius"] else right[name]
        else:
            out[name] = value + right[name]
    return out


def spread_block(block: RowBlock, center: Array) -> Parts:
    """Σ m, the rows with mass, Σ m (x − c), Σ m r², max r² and the row that has it, the smallest ε_i; r = ‖x − c‖."""
    rows, mass = block.rows, block.weights
    shift, squares, radius, farthest = np.zeros(len(center)), 0.0, -1.0, center
    for part in tiles(len(rows), rows.shape[1]):
        off = np.subtract(rows[part], center, dtype=np.float64)
        squared = np.einsum("ij,ij->i", off, off)
        m = np.ones(len(off)) if mass is None else mass[part]
        shift += m @ off
        squares += float(m @ squared)
        far = int(np.argmax(np.where(m > 0, squared, -1.0)))
        if m[far] > 0 and squared[far] > radius:
            radius, farthest = float(squared[far]), off[far] + center
    present = len(rows) if mass is None else int(np.count_nonzero(mass))
    epsilons = block.aligned.get(EPSILONS)
    return {
        "lowest epsilon": np.array(np.inf if epsilons is None else _lowest(epsilons)),
        "mass": np.array(float(len(rows)) if mass is None else mass.sum()),
        "present": np.array(present),
        "shift": shift,
        "squares": np.array(squares),
        "radius": np.array(radius),
        "farthest": np.asarray(farthest, np.float64),
    }


def _lowest(epsilons: Array) -> float:
    """The smallest scale; −∞ if one is not a finite number."""
    return float(np.min(epsilons)) if np.isfinite(epsilons).all() else -np.inf


def total_block(block: RowBlock, kernel: LinearizedKernel, given: Normalization) -> Parts:
    """Σ m w u, and the smallest q of a row with mass (∞ where w = 1)."""
    total, lowest = np.zeros(kernel.size), np.inf
    for u, m in massed_tiles(block, kernel):
        if given.first is not None and given.alpha:
            lowest = min(lowest, float((u @ given.first).min()))
        total += (given.weights(u) * m) @ u
    return {"total": total, "lowest q": np.array(lowest)}


def gram_block(block: RowBlock, kernel: LinearizedKernel, given: Normalization, far: Array) -> Parts:
    """G, Σ m d, the smallest u·M t, and the smallest kernel entry with the farthest row (``far`` = M u*)."""
    gram, degrees, lowest, entry = np.zeros((kernel.size, kernel.size)), 0.0, np.inf, np.inf
    for u, m in massed_tiles(block, kernel):
        weight, reach = given.weights(u), given.reach(u)
        lowest, entry = min(lowest, float(reach.min())), min(entry, float((u @ far).min()))
        degrees += float(np.sum(m * weight * reach))
        u *= np.sqrt(np.where(reach > 0, m * weight / np.where(reach > 0, reach, 1.0), 0.0))[:, None]
        gram += u.T @ u
    return {
        "gram": gram,
        "degrees": np.array(degrees),
        "lowest degree": np.array(lowest),
        "lowest entry": np.array(entry),
    }


def massed_tiles(block: RowBlock, kernel: LinearizedKernel) -> Iterator[tuple[Array, Array]]:
    """(features, masses) of the rows with mass, a few at a time."""
    epsilons, mass = block.aligned.get(EPSILONS), block.weights
    for part, u in kernel.tiles(block.rows, epsilons):
        if mass is None:
            yield u, np.ones(len(u))
            continue
        inside = mass[part] > 0
        if inside.any():
            yield u[inside], mass[part][inside]
