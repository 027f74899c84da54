"""What is asked of a map by attraction and repulsion, and what of it holds in an iteration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.embedding.map_descent import REPORT


@dataclass(frozen=True)
class DescentOptions:
    """The parameters of the descent; small and picklable."""

    n_components: int
    dof: float
    early_exaggeration: float
    early_exaggeration_iter: int
    exaggeration: float
    n_iter: int
    learning_rate: float | None
    """None: n over the exaggeration of the iteration (Belkina et al. 2019)."""
    early_momentum: float
    momentum: float
    early_compression: float
    gains: bool
    max_step: float

    @property
    def iterations(self) -> int:
        """Of both phases."""
        return self.early_exaggeration_iter + self.n_iter

    def at(self, iteration: int, n: int) -> Array:
        """What :func:`bigembed.kernels.forces.step` is given in an iteration."""
        early = iteration < self.early_exaggeration_iter
        exaggeration = self.early_exaggeration if early else self.exaggeration
        return np.array(
            [
                exaggeration,
                n / exaggeration if self.learning_rate is None else self.learning_rate,
                self.early_momentum if early else self.momentum,
                self.early_compression if early else 0.0,
                self.max_step,
                float(self.gains),
            ]
        )

    def next_report(self, iteration: int) -> int:
        """The iteration after which the divergence is measured next.

        >>> [DescentOptions(2, 1, 12, 70, 1, 40, None, .5, .8, 0, True, 5).next_report(t) for t in (0, 50, 70, 100)]
        [50, 70, 100, 110]
        """
        phase = self.early_exaggeration_iter if iteration < self.early_exaggeration_iter else self.iterations
        return min(phase, (iteration // REPORT + 1) * REPORT)
