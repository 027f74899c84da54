"""Data sets as functions from row numbers to rows, so that any number of rows can be read; the synthetic sets of the
source documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from bigembed.errors import InputError
from bigembed.runtime.blocks import Array, block_rows, bounds
from bigembed.runtime.parameters import declared

# --------------------------------------------------------------------------------------------------------- dataset
# A data set as a function from row numbers to rows, so that any number of rows needs little memory.

GRANULE = 4096

Truth = dict[str, Array]
"""What is known of each row: arrays of one entry a row (label, arc length, height, angle, …)."""

BlockFunction = Callable[..., tuple[Array, Truth]]
"""``function(start, stop, rng, n=..., **parameters) -> (rows, truth)``, pure and importable."""


@dataclass(frozen=True)
class Dataset:
    """Rows that are made (or read) when they are asked for. Small and picklable: it holds no rows.

    Random rows are drawn in granules of 4096 rows, each from its own stream (seed, name, granule):
    a row is a function of the seed and its number, whatever the blocks in which it is asked for,
    and of n only for the sets that are laid out regularly.
    """

    name: str
    shape: tuple[int, int]
    function: BlockFunction
    seed: int = 0
    dtype: str = "float32"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    granule: int | None = GRANULE

    def __post_init__(self) -> None:
        n, d = self.shape
        if n < 1 or d < 1:
            raise InputError(f"data set {self.name!r}: n gives shape {self.shape}; both numbers must be at least 1")
        if self.seed < 0:
            raise InputError(f"data set {self.name!r}: seed {self.seed}; it must be 0 or more")
        if not _is_floating(self.dtype):
            raise InputError(f"data set {self.name!r}: dtype {self.dtype!r}; it must be a floating-point type")

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int = 0, stop: int | None = None) -> Array:
        """Rows start to stop, shape (stop − start, d)."""
        return self.draw(start, stop)[0]

    def truth(self, start: int = 0, stop: int | None = None) -> Truth:
        """What is known of rows start to stop."""
        return self.draw(start, stop)[1]

    def draw(self, start: int = 0, stop: int | None = None) -> tuple[Array, Truth]:
        """Rows start to stop, and what is known of them."""
        n = self.shape[0]
        stop = n if stop is None else stop
        if not 0 <= start <= stop <= n:
            raise InputError(f"data set {self.name!r}: rows {start} to {stop} asked for; it has rows 0 to {n}")
        if self.granule is None:
            return self._typed(*self.function(start, stop, self._rng(0), n=n, **self.parameters))
        first = start - start % self.granule
        parts = [self._part(begin, start, stop) for begin in range(first, max(stop, first + 1), self.granule)]
        truth = {key: np.concatenate([part[1][key] for part in parts]) for key in parts[0][1]}
        return np.concatenate([part[0] for part in parts]), truth

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, rows) block by block; ``rows`` a block, by default the canonical number."""
        rows = rows or block_rows(self.shape[1], np.dtype(self.dtype).itemsize)
        for start, stop in bounds(self.shape[0], rows):
            yield start, stop, self.rows(start, stop)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        rows = self.rows()
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def _part(self, begin: int, start: int, stop: int) -> tuple[Array, Truth]:
        """The rows of one granule that lie in start to stop. The whole granule is drawn."""
        assert self.granule is not None
        rng = self._rng(begin // self.granule)
        rows, truth = self.function(begin, begin + self.granule, rng, n=self.shape[0], **self.parameters)
        keep = slice(max(start - begin, 0), max(stop - begin, 0))
        return self._typed(rows[keep], {key: value[keep] for key, value in truth.items()})

    def _typed(self, rows: Array, truth: Truth) -> tuple[Array, Truth]:
        return np.ascontiguousarray(rows, dtype=self.dtype), truth

    def _rng(self, granule: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(self.name.encode()), granule])


def _is_floating(dtype: str) -> bool:
    try:
        return bool(np.issubdtype(np.dtype(dtype), np.floating))
    except (TypeError, ValueError, SyntaxError):  # (NumPy parses the text)
        return False


# ------------------------------------------------------------------------------------------------------- synthetic
# The synthetic sets of the source documents: one ``*_block`` function and one constructor each.
#
# A block function draws the rows start to stop from the generator it is given; the constructor checks the parameters
# and returns a :class:`Dataset`.

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
ROLL = (6.0, 18.0)
ROLL_HEIGHT = (6.0, 12.0)
CURVE = 1.5 * np.pi

Rng = np.random.Generator


def arc_length(angle: Array | float) -> Any:
    """Length of the curve x ↦ (x cos x, x sin x) from 0 to ``angle``: (x √(1 + x²) + asinh x) / 2.

    >>> float(round(arc_length(1.0), 6))
    1.147794
    """
    x = np.asarray(angle, dtype=np.float64)
    return 0.5 * (x * np.sqrt(1.0 + x * x) + np.arcsinh(x))


def angle_at(length: Array) -> Array:
    """The inverse of :func:`arc_length`, by Newton's iteration (convex, so it converges from above)."""
    x = np.sqrt(2.0 * np.asarray(length, dtype=np.float64)) + 1e-12
    for _ in range(8):
        x = x - (arc_length(x) - length) / np.sqrt(1.0 + x * x)
    return np.asarray(x)


def swiss_roll_block(start: int, stop: int, rng: Rng, n: int, noise: float = 0.0) -> tuple[Array, Truth]:
    """(x, y) ↦ (x cos x, y, x sin x), (x, y) uniform in [6, 18] × [6, 12] (seed 000, §6), plus noise."""
    low, high = ROLL
    bottom, top = ROLL_HEIGHT
    angle = rng.uniform(low, high, stop - start)
    height = rng.uniform(bottom, top, stop - start)
    return _noisy(_roll(angle, height), noise, rng), _roll_truth(angle, height)


@declared
def swiss_roll(n: int = 1600, noise: float = 0.0, seed: int = 0, dtype: str = "float32") -> Dataset:
    """The Swiss roll of seed 000, §6; noise .4 and .8 in its examples. Truth: arc length, height, angle."""
    return Dataset("swiss_roll", (n, 3), swiss_roll_block, seed, dtype, {"noise": _noise("swiss_roll", noise)})


def swiss_roll_mesh_block(start: int, stop: int, rng: Rng, n: int, noise: float = 0.0) -> tuple[Array, Truth]:
    """Row i at arc length (i + ½)/n and height frac(i φ), φ the golden ratio, both scaled to the roll.

    m·‖mφ‖ ≥ .38 for every m, so the smallest distance is about .87 √(area/n) whatever the aspect:
    a quasi-uniform mesh of exactly n points in the order of the arc length (seed 000, §9.4.1).
    """
    number = np.arange(start, stop)
    low, high = arc_length(ROLL[0]), arc_length(ROLL[1])
    bottom, top = ROLL_HEIGHT
    angle = angle_at(low + (number + 0.5) / n * (high - low))
    height = bottom + np.modf(number * GOLDEN)[0] * (top - bottom)
    return _noisy(_roll(angle, height), noise, rng), _roll_truth(angle, height)


@declared
def swiss_roll_mesh(n: int = 1060, noise: float = 0.0, seed: int = 0, dtype: str = "float32") -> Dataset:
    """The Swiss roll as a quasi-uniform mesh (seed 000, §9.4.1), rows in the order of the arc length."""
    parameters = {"noise": _noise("swiss_roll_mesh", noise)}
    return Dataset("swiss_roll_mesh", (n, 3), swiss_roll_mesh_block, seed, dtype, parameters)


def s_curve_block(start: int, stop: int, rng: Rng, n: int, noise: float = 0.05) -> tuple[Array, Truth]:
    """(sin s, y, sign(s)(cos s − 1)), s uniform in ±3π/2 (the arc length), y in [0, 2] (seed 003)."""
    s = rng.uniform(-CURVE, CURVE, stop - start)
    height = rng.uniform(0.0, 2.0, stop - start)
    rows = np.stack([np.sin(s), height, np.sign(s) * (np.cos(s) - 1.0)], axis=1)
    return _noisy(rows, noise, rng), {"arc_length": s + CURVE, "height": height}


@declared
def s_curve(n: int = 2500, noise: float = 0.05, seed: int = 0, dtype: str = "float32") -> Dataset:
    """The S-curve of seed 003. Truth: arc length, height."""
    return Dataset("s_curve", (n, 3), s_curve_block, seed, dtype, {"noise": _noise("s_curve", noise)})


def clusters_block(start: int, stop: int, rng: Rng, n: int, spread: float = 0.6) -> tuple[Array, Truth]:
    """Four Gaussian clusters in space; two of them are nearer to each other than the rest (seed 003)."""
    centers = np.array([[0.0, 0.0, 0.0], [6.0, 0.0, 1.0], [0.0, 6.0, -1.0], [2.6, 1.4, 1.2]])
    label = rng.integers(0, 4, stop - start)
    return centers[label] + spread * rng.standard_normal((stop - start, 3)), {"label": label}


@declared
def clusters(n: int = 2500, spread: float = 0.6, seed: int = 0, dtype: str = "float32") -> Dataset:
    """Four clusters of standard deviation ``spread`` (seed 003). Truth: label."""
    return Dataset("clusters", (n, 3), clusters_block, seed, dtype, {"spread": _noise("clusters", spread, "spread")})


def plane_block(start: int, stop: int, rng: Rng, n: int, noise: float = 0.05) -> tuple[Array, Truth]:
    """A 2 × 1 rectangle in a tilted plane, with noise (seed 003, "linear")."""
    u = rng.uniform(0.0, 2.0, stop - start)
    v = rng.uniform(0.0, 1.0, stop - start)
    axes = np.array([[2.0, 1.0, 2.0], [-2.0, 2.0, 1.0]]) / 3.0
    return _noisy(np.stack([u, v], axis=1) @ axes, noise, rng), {"u": u, "v": v}


@declared
def plane(n: int = 2500, noise: float = 0.05, seed: int = 0, dtype: str = "float32") -> Dataset:
    """A plane rectangle in space (seed 003). Truth: u (length 2), v (length 1)."""
    return Dataset("plane", (n, 3), plane_block, seed, dtype, {"noise": _noise("plane", noise)})


def spiral_block(
    start: int, stop: int, rng: Rng, n: int, turns: float = 2.0, noise: float = 0.0
) -> tuple[Array, Truth]:
    """(θ cos θ, θ sin θ), uniform in arc length for θ up to 2π·turns (seed 002, figure 1)."""
    length = rng.uniform(0.0, float(arc_length(2.0 * np.pi * turns)), stop - start)
    theta = angle_at(length)
    rows = np.stack([theta * np.cos(theta), theta * np.sin(theta)], axis=1)
    return _noisy(rows, noise, rng), {"theta": theta, "arc_length": length}


@declared
def spiral(n: int = 1000, turns: float = 2.0, noise: float = 0.0, seed: int = 0, dtype: str = "float32") -> Dataset:
    """The plane spiral of seed 002 with this number of ``turns``. Truth: theta, arc length."""
    parameters = {"turns": _positive("spiral", "turns", turns), "noise": _noise("spiral", noise)}
    return Dataset("spiral", (n, 2), spiral_block, seed, dtype, parameters)


def hypersphere_block(start: int, stop: int, rng: Rng, n: int, d: int = 3, noise: float = 0.0) -> tuple[Array, Truth]:
    """x ~ N(0, I), x ← x/‖x‖, times 1 + noise·N(0, 1) (seed 004, §4.3)."""
    rows = rng.standard_normal((stop - start, d))
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    radius = 1.0 + noise * rng.standard_normal(stop - start)
    return rows * radius[:, None], {"radius": radius}


@declared
def hypersphere(n: int = 1000, d: int = 3, noise: float = 0.0, seed: int = 0, dtype: str = "float32") -> Dataset:
    """Uniform on the unit sphere in R^d, ``d`` ≥ 2 (seed 004, §4.3). Truth: radius."""
    parameters = {"d": _at_least("hypersphere", "d", d, 2), "noise": _noise("hypersphere", noise)}
    return Dataset("hypersphere", (n, d), hypersphere_block, seed, dtype, parameters)


def interval_block(start: int, stop: int, rng: Rng, n: int, length: float = 1.0) -> tuple[Array, Truth]:
    """Uniform in [0, length]."""
    position = rng.uniform(0.0, length, stop - start)
    return position[:, None], {"position": position}


@declared
def interval(n: int = 1000, length: float = 1.0, seed: int = 0, dtype: str = "float32") -> Dataset:
    """Uniform on an interval of that ``length``: one column. Truth: position."""
    parameters = {"length": _positive("interval", "length", length)}
    return Dataset("interval", (n, 1), interval_block, seed, dtype, parameters)


def circle_block(
    start: int, stop: int, rng: Rng, n: int, radius: float = 1.0, regular: bool = False
) -> tuple[Array, Truth]:
    """Uniform on a circle; ``regular``: row i at the angle 2πi/n."""
    fraction = np.arange(start, stop) / n if regular else rng.uniform(0.0, 1.0, stop - start)
    angle = 2.0 * np.pi * fraction
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1), {"angle": angle}


@declared
def circle(n: int = 1000, radius: float = 1.0, regular: bool = False, seed: int = 0, dtype: str = "float32") -> Dataset:
    """Uniform on a circle of that ``radius``, at random or (``regular``) at equal angles. Truth: angle."""
    parameters = {"radius": _positive("circle", "radius", radius), "regular": regular}
    return Dataset("circle", (n, 2), circle_block, seed, dtype, parameters)


def torus_block(
    start: int, stop: int, rng: Rng, n: int, radius: float = 1.0, radius2: float = 0.5
) -> tuple[Array, Truth]:
    """(r cos a, r sin a, s cos b, s sin b), a and b uniform: flat, so its spectrum is that of two circles."""
    a = rng.uniform(0.0, 2.0 * np.pi, stop - start)
    b = rng.uniform(0.0, 2.0 * np.pi, stop - start)
    columns = [radius * np.cos(a), radius * np.sin(a), radius2 * np.cos(b), radius2 * np.sin(b)]
    return np.stack(columns, axis=1), {"angle": a, "angle2": b}


@declared
def torus(n: int = 1000, radius: float = 1.0, radius2: float = 0.5, seed: int = 0, dtype: str = "float32") -> Dataset:
    """Uniform on a flat torus in R⁴, the product of circles of ``radius`` and ``radius2``. Truth: angle, angle2."""
    parameters = {"radius": _positive("torus", "radius", radius), "radius2": _positive("torus", "radius2", radius2)}
    return Dataset("torus", (n, 4), torus_block, seed, dtype, parameters)


def _roll(angle: Array, height: Array) -> Array:
    return np.stack([angle * np.cos(angle), height, angle * np.sin(angle)], axis=1)


def _roll_truth(angle: Array, height: Array) -> Truth:
    return {"arc_length": arc_length(angle) - arc_length(ROLL[0]), "height": height, "angle": angle}


def _noisy(rows: Array, noise: float, rng: Rng) -> Array:
    return rows + noise * rng.standard_normal(rows.shape) if noise else rows


def _noise(name: str, value: float, parameter: str = "noise") -> float:
    if not (np.isfinite(value) and value >= 0):
        raise InputError(f"data set {name!r}: {parameter} = {value!r}; a standard deviation is finite and not negative")
    return float(value)


def _positive(name: str, parameter: str, value: float) -> float:
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"data set {name!r}: {parameter} = {value!r}; it must be finite and positive")
    return float(value)


def _at_least(name: str, parameter: str, value: int, least: int) -> int:
    if int(value) != value or value < least:
        raise InputError(f"data set {name!r}: {parameter} = {value!r}; it must be an integer of at least {least}")
    return int(value)


# --------------------------------------------------------------------------------------------------------- mixture
# A Gaussian mixture of many clusters: the hard case of neighbors and eigensolvers, of any size.


def mixture_block(
    start: int,
    stop: int,
    rng: np.random.Generator,
    n: int,
    d: int,
    n_clusters: int,
    intrinsic: int,
    separation: float,
    noise: float,
    layout: int,
) -> tuple[Array, Truth]:
    """x = (c_l + z) Qᵀ + noise: label l uniform, z ~ N(0, I) in ``intrinsic`` dimensions, Q orthonormal."""
    centers, basis = _layout(d, n_clusters, intrinsic, separation, layout)
    label = rng.integers(0, n_clusters, stop - start)
    latent = centers[label] + rng.standard_normal((stop - start, intrinsic))
    ambient = rng.standard_normal((stop - start, d), dtype=np.float32)
    return latent @ basis + noise * ambient, {"label": label}


@declared
def mixture(
    n: int = 100_000,
    d: int = 64,
    n_clusters: int = 200,
    intrinsic: int = 12,
    separation: float = 2.8,
    noise: float = 0.05,
    seed: int = 0,
    dtype: str = "float32",
) -> Dataset:
    """Gaussian clusters with centers ``separation``·N(0, I), in a subspace of R^d, with noise. Truth: label.

    ``n_clusters`` of them of standard deviation 1, in ``intrinsic`` of the ``d`` dimensions.
    Most clusters touch others and some stand apart: the neighbor graph has one large component of
    nearly disconnected parts, and many eigenvalues crowd at 1.
    """
    if not 1 <= intrinsic <= d:
        raise InputError(f"data set 'mixture': intrinsic = {intrinsic}; it must be between 1 and d = {d}")
    if n_clusters < 1:
        raise InputError(f"data set 'mixture': n_clusters = {n_clusters}; it must be at least 1")
    if not (separation >= 0 and noise >= 0):
        raise InputError(f"data set 'mixture': separation = {separation}, noise = {noise}; neither may be negative")
    parameters = {
        "d": d,
        "n_clusters": n_clusters,
        "intrinsic": intrinsic,
        "separation": separation,
        "noise": noise,
        "layout": seed,
    }
    return Dataset("mixture", (n, d), mixture_block, seed, dtype, parameters)


@lru_cache(maxsize=4)
def _layout(d: int, n_clusters: int, intrinsic: int, separation: float, seed: int) -> tuple[Array, Array]:
    """Centers (n_clusters, intrinsic) and an orthonormal basis (intrinsic, d): the same for every block."""
    rng = np.random.default_rng([seed, d, n_clusters, intrinsic])
    centers = separation * rng.standard_normal((n_clusters, intrinsic))
    basis, triangle = np.linalg.qr(rng.standard_normal((d, intrinsic)))
    return centers, np.ascontiguousarray((basis * np.sign(np.diag(triangle))).T)
