"""How many coordinates: the number at which the spectrum of the walk has a gap that is clear of chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError

CHANCE = 0.05
RATIO = 1.5
"""Rates that differ by less do not form a gap, however even the others lie."""
SHARE = 0.2
"""What a coordinate has to keep of the first when that has fallen to 1/e: the δ of the diffusion time."""
ONE = 1e-12


@dataclass(frozen=True)
class Choice:
    """A number of coordinates, and why."""

    n_components: int
    by_gap: bool
    """The spectrum has a clear gap there; otherwise the rule without one was taken."""
    ratio: float
    """(1 − λ_{m+1}) / (1 − λ_m)."""
    reason: str


def chosen_by_spectrum(eigenvalues: Array, one: float = ONE) -> Choice:
    """How many of M nontrivial eigenvalues λ_1 ≥ … ≥ λ_M to keep: m from 1 to M − 1, and why.

    The steps of log(1 − λ) say how much faster each coordinate decays than the one before. Eigenvalues with 1 − λ ≤
    ``one`` (separate parts) are always kept. Of the steps among the others the largest, a share g of their sum, is a
    gap if the rate grows there by half at least, and if among as many random steps (exponential: levels without order)
    one is as large with probability ≤ K(1 − g)^(K − 1) ≤ .05 (K steps; Fisher 1929, first term, an upper bound). Then
    m is where it lies. Otherwise m ends at the separate parts, if there are any; or with the coordinates that keep a
    fifth of the first when that has fallen to 1/e, (λ_l/λ_1)^t > .2 with t = 1/(1 − λ_1): 1 − λ_l < 2.61 (1 − λ_1),
    the rule of ``delta`` at the time scale of the map.

    Found: k clusters k − 1; sphere 3 by gap; circle 2, interval and long swiss roll 1, square 3 by the rule, since a
    spectrum that grows by a power of l has no gap. Limits: it needs M of ten and more, twice what is expected; it sees
    levels, not what is new (a second dimension of a strip comes after the harmonics of the first: see
    :func:`~bigembed.quality.harmonics.harmonics`), and takes coordinates of single rows for clusters, so leave them
    out first. Clusters of clusters have several gaps: the largest counts. Cost: O(M).

    >>> chosen_by_spectrum(1 - np.array([1e-4, 1.1e-4, 2e-4, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25, 0.26])).n_components
    3
    """
    count = len(eigenvalues)
    if count < 2:
        raise InputError(f"choosing by the spectrum needs at least 2 eigenvalues besides the trivial one; got {count}")
    rates = np.maximum(1 - np.asarray(eigenvalues, np.float64), one)
    parts = min(int((rates <= one).sum()), count - 1)
    steps = np.maximum(np.diff(np.log(rates[parts:])), 0.0)
    if len(steps) and steps.sum() > 0:
        where = int(np.argmax(steps))
        share, ratio = float(steps[where] / steps.sum()), float(np.exp(steps[where]))
        chance = min(1.0, len(steps) * (1 - share) ** (len(steps) - 1)) if len(steps) > 1 else 1.0
        if chance <= CHANCE and ratio >= RATIO:
            m = parts + where + 1
            why = f"after coordinate {m} the rate 1 - λ grows {ratio:.3g} times, the largest gap of {count} eigenvalues"
            return Choice(m, True, ratio, f"{why} (by chance: p ≤ {chance:.2g})")
    if parts:
        ratio = float(rates[parts] / one)
        return Choice(parts, True, ratio, f"{parts} eigenvalues are 1: separate parts, and no clear gap beyond them")
    m = min(int((rates < (1 + np.log(1 / SHARE)) * rates[0]).sum()), count - 1)
    kept = "coordinate keeps" if m == 1 else "coordinates keep"
    why = f"no gap is clear of chance; {m} {kept} a fifth of the first at its own time scale"
    if m == count - 1:
        why += ", all that can be judged: compute more eigenvalues to see where they end"
    return Choice(m, False, float(rates[m] / rates[m - 1]), why)
