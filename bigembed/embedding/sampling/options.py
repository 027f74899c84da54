"""What is asked of a map by sampled edges and rows, and what of it holds in an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.map_descent import REPORT

FEW_ROWS = 10_000
FEW_EPOCHS, MANY_EPOCHS = 200, 500
"""Epochs of many rows, and of at most :data:`FEW_ROWS`, where none are asked."""
STREAM = 32
"""Of random numbers."""


@dataclass(frozen=True)
class SamplingOptions:
    """The parameters of the descent; small and picklable."""

    n_components: int
    a: float
    b: float
    n_epochs: int
    learning_rate: float
    repulsion_strength: float
    negative_sample_rate: int
    seed: int

    def parameters(self) -> dict[str, Any]:
        """For the key of the descent, with what a step is (before: half of that)."""
        return asdict(self) | {"step": "mean of edges"}

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """What was asked of a descent with these parameters."""
        return cls(**{name: value for name, value in parameters.items() if name in cls.__dataclass_fields__})

    def at(self, epoch: int, largest: float) -> Array:
        """What :func:`bigembed.kernels.sampling.step` is given in an epoch: the learning rate falls to 0."""
        rate = self.learning_rate * (1.0 - epoch / self.n_epochs)
        strength, draws = self.repulsion_strength, self.negative_sample_rate
        return np.array([self.a, self.b, strength, draws, largest, epoch, rate])

    def key(self, epoch: int) -> int:
        """What the random numbers of the rows follow from in an epoch: 63 bits."""
        return int(np.random.SeedSequence([self.seed, STREAM, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def next_report(self, epoch: int) -> int:
        """The epoch after which the cross-entropy is measured next.

        >>> [SamplingOptions(2, 1.6, 0.9, 70, 1.0, 1.0, 5, 0).next_report(epoch) for epoch in (0, 50)]
        [50, 70]
        """
        return min(self.n_epochs, (epoch // REPORT + 1) * REPORT)


def epochs_for(asked: int | None, n: int) -> int:
    """Epochs of n rows, as umap-learn has it.

    >>> epochs_for(None, 10_000), epochs_for(None, 10_001), epochs_for(30, 5)
    (500, 200, 30)
    """
    return asked if asked is not None else MANY_EPOCHS if n <= FEW_ROWS else FEW_EPOCHS


POOL = 1 << 16
"""Rows of a pool, about: what fits into a processor's cache, and differs in every epoch."""


def chosen(b: int, rows: Sequence[int], seed: int, epoch: int) -> Array | slice:
    """The rows of block b in the pool of an epoch; ``rows`` are the rows of each block.

    >>> chosen(0, [3, 4], 0, 0), len(chosen(1, [30_000, 101_072], 0, 0))
    (slice(None, None, None), 50536)
    """
    n = sum(rows)
    if n <= POOL:
        return slice(None)
    share = max(1, round(POOL * rows[b] / n))
    generator = np.random.default_rng([seed, STREAM, epoch, b])
    return generator.choice(rows[b], share, replace=False, shuffle=False)


POINTS = 300
REACH = 3.0
"""In units of ``spread``: where the curve is fitted."""


@lru_cache(maxsize=64)
def curve(min_dist: float, spread: float) -> tuple[float, float]:
    """a and b, so that 1/(1 + a r^{2b}) is nearest to 1 for r < min_dist and exp(−(r − min_dist)/spread) beyond.

    Least squares over 300 distances up to 3·spread, as umap-learn has it (McInnes et al. 2018, Definition 11).

    >>> [round(value, 4) for value in curve(0.1, 1.0)]
    [1.5769, 0.8951]
    """
    from scipy.optimize import curve_fit

    distances = np.linspace(0.0, REACH * spread, POINTS)
    wanted = np.where(distances < min_dist, 1.0, np.exp(-(distances - min_dist) / spread))
    (a, b), _ = curve_fit(lambda r, a, b: 1.0 / (1.0 + a * r ** (2.0 * b)), distances, wanted)
    return float(a), float(b)
