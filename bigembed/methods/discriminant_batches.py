"""Linear discriminants of rows that come in batches: counts, means and scatters of the classes are added."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import InputError
from bigembed.methods.discriminant_stages import labels_stage, scatter_stage, solve_stage
from bigembed.methods.increments import add_rows, sums_of
from bigembed.stages import Stage
from bigembed.store.labels import Labels, with_classes
from bigembed.store.passes import checked_shape
from bigembed.store.source import RowSource

SUMS = ("counts", "means", "scatter")


def add_batch(lda: Any, X: Any, given: Labels, allowed: Any) -> None:
    """Fit labelled rows on top of those that the estimator has; ``allowed``: the labels that may come, or None."""
    if lda.shrinkage == "auto":
        raise InputError(
            "shrinkage='auto' needs fourth moments about the means of all rows, which batches do not have: use fit, or "
            "give a number"
        )
    unknown = set() if allowed is None else set(given.classes.tolist()) - set(np.asarray(allowed).tolist())
    if unknown:
        raise InputError(f"y holds labels that are not in classes: {sorted(unknown)[:10]}")
    held = sums_of(lda, "scatter", SUMS)
    labels = given if held is None else with_classes(given, lda.classes_)

    def stages(source: RowSource, held: Any) -> list[Stage]:
        n, d = checked_shape(source)
        by_class = lda.priors is not None
        if held is not None:
            by_class = _by_class(held, by_class)
            held = _among(held, lda.classes_, labels.classes)
        most = lda._most(labels, n, d, known=0 if held is None else int(held["counts"].sum()))
        width = most if lda.n_components is None else int(lda.n_components)
        priors = None if lda.priors is None else lda._priors(len(labels.classes))
        return [
            labels_stage(labels),
            scatter_stage(source, labels, by_class, held),
            solve_stage(width, lda._shrinkage(), priors, float(lda.tol), d, len(labels.classes)),
        ]

    add_rows(lda, X, stages, held)


def _by_class(held: dict[str, Any], needed: bool) -> bool:
    """Whether the sums are kept by class, as they were for the rows before."""
    found = len(held["scatter"]) > 1
    if needed and not found:
        raise InputError("priors need the scatter of each class, and it was summed before they were set; use fit")
    return found


def _among(held: dict[str, Any], old: Array, new: Array) -> dict[str, Any]:
    """Sums by class where there are more classes now."""
    place, sums = np.searchsorted(new, old), dict(held)
    for name in SUMS:
        if len(held[name]) == len(old):
            sums[name] = np.zeros((len(new), *held[name].shape[1:]))
            sums[name][place] = held[name]
    return sums
