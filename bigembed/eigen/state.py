"""The small part of a running LOBPCG: numbers and small matrices; the vectors are in the space."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array

_ARRAYS = ("values", "residuals", "gram", "form", "overlap", "known")


def _empty() -> Array:
    return np.zeros(0)


@dataclass(frozen=True)
class State:
    """What a step needs in addition to the vectors X.g, P.g, W.g, AX.g, AP.g, AW.g, G.g, H.g of generation g."""

    n_components: int
    width: int
    """Pairs iterated on: wanted and guards."""
    tol: float
    seed: int
    max_passes: int
    deflate: str | None = None
    dense: bool = False
    """Too few rows for iteration: ``finish`` solves densely."""
    plan: tuple[int, ...] = ()
    """Aggregates of each block, then functions per aggregate."""
    generation: int = 0
    iteration: int = 0
    updated: bool = False
    """Whether S W is still to be made: the state is between the two steps of an iteration."""
    sizes: tuple[int, ...] = (0, 0, 0)
    """Columns of X, P, W."""
    values: Array = field(default_factory=_empty)
    """Ritz values, descending."""
    residuals: Array = field(default_factory=_empty)
    gram: Array = field(default_factory=_empty)
    """BᵀB of the basis B = [X P W]."""
    form: Array = field(default_factory=_empty)
    """BᵀSB."""
    overlap: Array = field(default_factory=_empty)
    """TᵀB with the known vectors T."""
    known: Array = field(default_factory=_empty)
    """Eigenvalues of the known vectors."""
    history: tuple[float, ...] = ()
    """Largest wanted residual of each iteration."""
    passes: int = 0
    bytes_moved: int = 0
    reason: str | None = None
    """Why it stopped; None while it runs."""

    def replaced(self, **changes: Any) -> State:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, lists and strings; floats survive exactly."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in _ARRAYS:
            array = np.asarray(out[name])
            out[name] = {"shape": list(array.shape), "entries": [float(x) for x in array.ravel()]}
        for name in ("plan", "sizes", "history"):
            out[name] = list(out[name])
        return out

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> State:
        """The state that :meth:`to_json` wrote."""
        out = dict(json)
        for name in _ARRAYS:
            out[name] = np.asarray(json[name]["entries"], np.float64).reshape(json[name]["shape"])
        for name in ("plan", "sizes", "history"):
            out[name] = tuple(json[name])
        return cls(**out)

    def describe(self) -> str:
        """One line on how far it is."""
        if self.dense:
            return "few rows: solved densely"
        if not self.history:
            return f"start: {self.passes} passes"
        end = f", {self.reason}" if self.reason else ""
        return f"iteration {self.iteration}: {self.passes} passes, largest residual {self.history[-1]:.1e}{end}"
