"""When LOBPCG stops, and which of its directions are still of use."""

from __future__ import annotations

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.eigen.base import Reason
from bigembed.eigen.state import State

RELATIVE = 0.1
"""c of the second stopping rule r ≤ c (1 − λ)."""
REFRESH = 20
"""Iterations after which S X and S P are made anew."""
PATIENCE = 15
ROUNDING = 1e-11
"""A residual below it that no longer falls is at the level of rounding."""


def limits(state: State, values: Array) -> Array:
    """r ≤ tol and r ≤ c (1 − λ), the latter down to tol / 10⁴."""
    return np.asarray(np.clip(RELATIVE * np.abs(1 - values[: state.n_components]), 1e-4 * state.tol, state.tol))


def reason_of(state: State) -> Reason | None:
    """Whether to stop before the next pass: on the wanted pairs, not on the guards. A certificate costs one more."""
    m = state.n_components
    if np.all(state.residuals[:m] <= (1 - 1e-6) * limits(state, state.values)):
        return Reason.CONVERGED
    if state.passes + 2 > state.max_passes:
        return Reason.MAX_PASSES
    history = state.history
    if len(history) > 1 and history[-2] < ROUNDING and history[-1] > 0.5 * history[-2]:
        return Reason.STAGNATED
    if len(history) > 2 * PATIENCE and min(history[-PATIENCE:]) > 0.7 * min(history[:-PATIENCE]):
        return Reason.STAGNATED
    return None


def certified(state: State, reason: Reason, residuals: Array) -> Reason | None:
    """What explicit residuals make of a reason to stop; None to go on, since they disagree and passes are left."""
    if np.all(residuals[: state.n_components] <= limits(state, state.values)):
        return Reason.CONVERGED
    if reason != Reason.CONVERGED:
        return reason
    goes_on = len(state.history) < 3 * REFRESH and state.passes + 3 < state.max_passes
    return None if goes_on else Reason.STAGNATED


def open_columns(state: State) -> Array:
    """1 for the columns of [X P W] to use, 0 for P and W of pairs already solved: those are noise."""
    x, p, w = state.sizes
    solved = np.zeros(x)
    if p or w:
        least = np.full(x, 1e-2 * state.tol)
        least[: state.n_components] = 1e-2 * limits(state, state.values)
        solved = (state.residuals <= np.maximum(least, 1e-13)).astype(np.float64)
    return 1.0 - np.concatenate([np.zeros(x), solved[:p], solved[:w]])
