"""What is asked of a map by sampled edges and rows, and what of it holds in an epoch."""

from __future__ import annotations

from dataclasses import dataclass

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
