"""Block functions of distances, as a user would write them: importable, so that a saved model finds them again."""

from __future__ import annotations

import numpy as np

WORDS = ["stone", "store", "score", "spore", "spire", "shire", "share", "shore", "crane", "crate", "grate", "plate"]


def edits(words: list[str], others: list[str]) -> np.ndarray:
    """Levenshtein distances."""
    return np.array([[_levenshtein(a, b) for b in others] for a in words], float).reshape(len(words), len(others))


def word_distance(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Edit distances of words by their numbers."""
    assert ids.dtype == others.dtype == np.int64
    assert ids.ndim == others.ndim == 1
    return edits([WORDS[i] for i in ids], [WORDS[j] for j in others])


def manhattan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cityblock, by hand."""
    return np.abs(a[:, None, :].astype(float) - b).sum(axis=2)


def _levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]
