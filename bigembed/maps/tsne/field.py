"""The repulsion of all points on all points: a convolution on a lattice, by fast Fourier transforms.

Σ_j w(y − y_j) and Σ_j w(y − y_j)^{1+1/ν} (y − y_j) at every y, for w(r) = (1 + r²/ν)^{−ν}. Points are spread over the
nodes of a lattice by cubic B-splines, and the field is read back by the same, between which the kernel is divided by
the spectrum of the splines, twice: the kernel, a function of two points, is interpolated by splines in both of them.
The second kernel is odd, so that no point moves itself and all forces add up to 0. An idea of Linderman et al. (2019),
who interpolate by polynomials in boxes; splines on a lattice are smooth, and need one charge and one transform back
for each coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from scipy import fft

from bigembed.runtime.blocks import Array

NODES = {1: 64, 2: 64, 3: 24}
"""Nodes along the longest side of a small map, at least, by its number of coordinates."""
SPACING = 0.5
"""Of the lattice, in units of the kernel's width √min(ν, 1), once the map is larger than that."""
FINEST = 2.0**-5
MOST_NODES = {1: 1 << 18, 2: 1024, 3: 80}
"""Nodes along a side from which the lattice is coarser than :data:`SPACING`: what transforms of it may hold."""
STEP = 16
"""Sides of a lattice are multiples of it, so that spectra serve many iterations."""
SEPTIC = np.array([1, 120, 1191, 2416, 1191, 120, 1]) / 5040
"""Σ_g of the products of two cubic splines' weights, by the distance of their nodes, on average over all places."""
RINGING = 16
"""Nodes that the splines' inverse needs beside a jump."""


@dataclass(frozen=True)
class Lattice:
    """Nodes at the multiples of a spacing, of which a box is used. The first of three axes hold one node of m < 3."""

    spacing: float
    low: tuple[int, int, int]
    """Number of the first node along each axis."""
    shape: tuple[int, int, int]

    @classmethod
    def covering(cls, box: Array, spacing: float, step: int = 1) -> Lattice:
        """Return the nodes that points within a box (2, m) are spread to; sides are multiples of ``step``."""
        low, high = box
        first = np.floor(low / spacing).astype(int) - 1
        sides = np.floor(high / spacing).astype(int) + 3 - first
        sides = -(-sides // step) * step
        unused = 3 - len(low)
        starts, shape = [0] * unused + first.tolist(), [1] * unused + sides.tolist()
        return cls(spacing, (starts[0], starts[1], starts[2]), (shape[0], shape[1], shape[2]))

    def nodes(self) -> Array:
        """Return nodes without charges, int64."""
        return np.zeros(self.shape, np.int64)

    def inside(self, other: Lattice) -> tuple[slice, ...]:
        """Return where the nodes of this one are among those of another one that holds them."""
        gaps = [mine - its for mine, its in zip(self.low, other.low, strict=True)]
        return tuple(slice(gap, gap + size) for gap, size in zip(gaps, self.shape, strict=True))


def spacing_for(box: Array, dof: float) -> float:
    """Return how far apart the nodes are for points within a box: the finer the smaller it is, in powers of 2."""
    low, high = box
    unit = SPACING * min(1.0, dof) ** 0.5
    side = float((high - low).max())
    least = side / MOST_NODES[len(low)]
    wanted = min(unit, max(unit * FINEST, side / NODES[len(low)]))
    if least > wanted:
        return float(unit * 2.0 ** (np.ceil(2 * np.log2(least / unit)) / 2))
    return float(unit * 2.0 ** np.floor(np.log2(wanted / unit) + 1e-9))


def lattice_bytes(n: int, m: int) -> tuple[int, int]:
    """Return the bytes that a process keeps of the lattice of a map of n rows, and those that a transform adds."""
    side = min(MOST_NODES[m], int(64 + 8 * n ** (1 / min(m, 2)))) + 2 * STEP
    doubled = (2 * side + RINGING) ** m
    return 4 * (m + 1) * doubled, 36 * doubled + 8 * (m + 1) * side**m


def field_of(
    charges: Array, lattice: Lattice, dof: float, threads: int = 1, single: float = 1.0
) -> tuple[Array, float]:
    """Return Σ_j w^{1+1/ν} (y − y_j) at nodes, (s_0, s_1, s_2, m), and Z = Σ_{i≠j} w_ij, of charges (s_0, s_1, s_2).

    What splines make of w_ii = 1 is taken off as it is on average over all places between nodes: of every copy of a
    row by itself, which weighs ``single``. ``threads`` work on the transforms, with the same result for any number of
    them.
    """
    sides, potential, own, forces = spectra(lattice.shape, lattice.spacing, dof, threads)
    axes = tuple(range(3 - len(forces), 3))
    spectrum = fft.rfftn(charges.reshape(charges.shape[axes[0] :]), sides, workers=threads)
    squares = spectrum.real**2 + spectrum.imag**2
    last = squares.shape[-1]
    twice = np.full(last, 2.0)
    twice[0] = 1.0
    if sides[-1] % 2 == 0:
        twice[-1] = 1.0
    total = float(np.sum(squares * potential * twice) / prod(sides)) - own * float(charges.sum()) * single
    inner = tuple(slice(0, size) for size in lattice.shape[axes[0] :])
    out = np.empty((*lattice.shape, len(forces)))
    for c, force in enumerate(forces):
        out[..., c] = fft.irfftn(spectrum * (1j * force), sides, workers=threads)[inner].reshape(lattice.shape)
    return out, total


@lru_cache(maxsize=1)
def spectra(
    shape: tuple[int, int, int], spacing: float, dof: float, threads: int = 1
) -> tuple[tuple[int, ...], Array, float, tuple[Array, ...]]:
    """Return sides of the transforms, the spectrum of w over the splines' (real), its mean w_ii, those of the forces
    (imaginary)."""
    used = [size for size in shape if size > 1]
    sides = tuple(fft.next_fast_len(2 * size + RINGING, real=True) for size in used)
    ways = [fft.fftfreq(side, 1 / side) * spacing for side in sides]
    grids = np.meshgrid(*ways, indexing="ij", sparse=True)
    squared = sum(grid**2 for grid in grids)
    near = np.exp(-squared) if np.isinf(dof) else (1.0 + squared / dof) ** -dof
    pull = near if np.isinf(dof) else near / (1.0 + squared / dof)
    angles = [2 * np.pi * np.arange(side) / side for side in sides]
    half = [*angles[:-1], angles[-1][: sides[-1] // 2 + 1]]
    inverse = _product([((2.0 + np.cos(angle)) / 3.0) ** -2 for angle in half])
    potential = fft.rfftn(near, workers=threads).real * inverse
    forces = []
    for axis, grid in enumerate(grids):
        odd = pull * grid
        if sides[axis] % 2 == 0:  # (the node that is as far to the left as to the right)
            np.moveaxis(odd, axis, 0)[sides[axis] // 2] = 0.0
        forces.append(fft.rfftn(odd, workers=threads).imag * inverse)
    table = fft.irfftn(potential, sides, workers=threads)
    own = float(np.sum(table[np.ix_(*[np.arange(-3, 4)] * len(sides))] * _product([SEPTIC] * len(sides))))
    return sides, potential, own, tuple(forces)


def _product(parts: list[Array]) -> Array:
    """Return the product over the axes of a function of each."""
    out = np.ones(())
    for axis, part in enumerate(parts):
        out = out * part.reshape([-1 if a == axis else 1 for a in range(len(parts))])
    return out
