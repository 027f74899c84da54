"""From ranks of neighbors to figures: preservation, trustworthiness, triplets; their standard errors and chance
levels.

With n rows and k neighbors, r_X(i, j) is the rank of j among all other rows by distance from i in X (1 = nearest),
N_Y(i) the k nearest in Y (Venna & Kaski 2001; van der Maaten et al. 2009):

    kept(i) = |N_X(i) ∩ N_Y(i)| / k,    trust(i) = 1 − 2/(k (2n − 3k − 1)) Σ_{j ∈ N_Y(i)} max(0, r_X(i, j) − k).

Continuity is trust with X and Y exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array, is_sparse

Figure = dict[str, float]
"""``value``, ``standard_error``, ``chance`` (for shuffled coordinates) and ``above_chance``, in standard errors."""
LEAST, LISTED = 4, 20
"""Columns from which few of them are worth a word; those that are listed."""
ONE_COLUMN, FEW_COLUMNS = 0.99, 0.999
"""Share of the variance in one column, and in a few, from which these decide all distances. Of the 30
columns of scikit-learn's breast cancer two hold .991, and the rest still shows; ra and dec hold .9997 of a catalog of
stars, and no magnitude does."""

FAR, SEVERAL, ROUNDED, LEAST_SAMPLED = 5.0, 10, 1e-5, 30
"""Ranges of the other values between these and one that may stand for none; how many different ones there are at least,
and the range that rounding leaves, as a part of them; sampled rows from which that is asked."""


def kept_figure(sample: Array, near: Array, other_near: Array, n: int, weights: Array | None = None) -> Figure:
    """kNN preservation: the share of ``near`` (s, k) that ``other_near`` (s, k) holds as well."""
    hits = (near[:, :, None] == other_near[:, None, :]).any(axis=2).astype(np.float64)
    chance = near.shape[1] / (n - 1)
    spread = np.sqrt(chance * (1 - chance))
    nodes = [np.broadcast_to(sample[:, None], near.shape), near]
    return figure(hits, chance, spread, nodes, 1 - len(sample) / n, weights)


def trust_figure(sample: Array, near: Array, ranks: Array, n: int, weights: Array | None = None) -> Figure:
    """Trustworthiness of neighbors ``near`` (s, k), whose ranks (s, k) in the other space are from 1 to n − 1."""
    k = near.shape[1]
    m = n - 1 - k  # a shuffle's ranks are 1 … n − 1, all equally likely: penalties 0 (k times), 1, …, m
    unit = 2 / (2 * n - 3 * k - 1)
    mean, square = (np.array([m * (m + 1) / 2, m * (m + 1) * (2 * m + 1) / 6]) / (n - 1)).tolist()
    spread = unit * np.sqrt(square - mean**2)
    nodes = [np.broadcast_to(sample[:, None], near.shape), near]
    return figure(1 - penalties(ranks, n, k), 1 - unit * mean, spread, nodes, 1 - len(sample) / n, weights)


def penalties(ranks: Array, n: int, k: int) -> Array:
    """2 max(0, r − k) / (2n − 3k − 1): the mean over k neighbors is what trustworthiness lacks to 1.

    >>> penalties(np.array([1, 2, 3, 9]), 10, 2).tolist()
    [0.0, 0.0, 0.15384615384615385, 1.0769230769230769]
    """
    return np.asarray(2.0 * np.maximum(0, ranks - k) / (2 * n - 3 * k - 1))


def triplet_figure(sample: Array, others: Array, first: Array, second: Array, weights: Array | None = None) -> Figure:
    """Share of triplets (i, j, l) whose order of distances agrees. ``others`` (s, 2t): j and l, half of them each.

    ``first`` and ``second`` (s, 2t) are squared distances from i in the two spaces. Of equal distances, that of the
    smaller row number comes first, so that two ties agree, by chance too.
    """
    j, l = np.split(others, 2, axis=1)
    closer = [(a < b) | ((a == b) & (j < l)) for a, b in (np.split(part, 2, axis=1) for part in (first, second))]
    agree = (closer[0] == closer[1]).astype(np.float64)
    tied = [float(np.mean(np.equal(*np.split(part, 2, axis=1)))) for part in (first, second)]
    nodes = [np.broadcast_to(sample[:, None], agree.shape), j, l]
    return figure(agree, 0.5 + 0.5 * tied[0] * tied[1], 0.5, nodes, 1.0, weights)


def figure(
    entries: Array, chance: float, spread: Any, nodes: list[Array], unseen: float, weights: Array | None = None
) -> Figure:
    """Mean of entries (s, c), one row of them a sampled row, with two standard errors.

    ``standard_error`` is that of the mean over all rows: √(``unseen`` · variance of the row means / s), where
    ``unseen`` is the share of rows not sampled (1 where entries are drawn at random within a row). ``above_chance`` is
    (mean − chance) over a standard error for shuffled coordinates: entries that share a row (as the sampled row or as
    a neighbor: ``nodes``) may go together, so residuals are added up by row before they are squared (clustered
    errors, Cameron & Miller 2015, on the safe side), and it is at least that of independent entries of standard
    deviation ``spread``. With ``weights`` (s,) of the sampled rows means are by weight, and errors those of such means.
    """
    rows, count = entries.mean(axis=1), len(entries)
    mass = np.ones(count) if weights is None else weights / weights.mean()
    mean = float(entries.mean() if weights is None else mass @ rows / count)
    error = 0.0
    if count > 1:
        variance = rows.var(ddof=1) if weights is None else np.square(mass * (rows - mean)).sum() / (count - 1)
        error = float(np.sqrt(unseen * variance / count))
    apart = entries - mean if weights is None else mass[:, None] * (entries - mean)
    _, owner = np.unique(np.concatenate([node.ravel() for node in nodes]), return_inverse=True)
    residuals = np.concatenate([apart.ravel()] * len(nodes))
    clustered = np.sqrt(np.square(np.bincount(owner, residuals)).sum()) / entries.size
    scale = max(float(clustered), spread * float(np.sqrt(np.mean(mass**2))) / np.sqrt(entries.size))
    return {
        "value": mean,
        "standard_error": error,
        "chance": float(chance),
        "above_chance": float((mean - chance) / scale),
    }


def columns_figure(survey: Mapping[str, Array]) -> dict[str, Any]:
    """Of the moments and limits of the columns: which varies most, its share of the variance, how many are constant.

    ``few``: those that vary most and together hold 99.9 %, the largest first, with their number and their share; none
    where they are more than half of those that vary, or where fewer than four do. At most the first :data:`LISTED`.
    """
    scatter = np.where(survey["low"] < survey["high"], np.maximum(survey["scatter"], 0), 0)
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.nan_to_num(scatter / scatter.sum() if scatter.any() else scatter)
    order = np.argsort(-share, kind="stable")
    count, vary = int(np.searchsorted(np.cumsum(share[order]), FEW_COLUMNS)) + 1, np.count_nonzero(share)
    few = order[:count] if vary >= LEAST and 2 * count <= vary else order[:0]
    return {
        "column": int(order[0]),
        "share": float(share[order[0]]),
        "few": few[:LISTED].tolist(),
        "few_count": len(few),
        "few_share": float(share[few].sum()),
        "constant": int(np.sum(survey["low"] == survey["high"])),
    }


def fills_figure(sample: Any) -> dict[str, Any]:
    """Of sampled rows (s, d): columns in which one value, the least or the largest, is repeated far beyond all others.

    So stand numbers for missing values, −9999 say: in a hundredth of the rows and three at least, farther from the
    nearest other value than :data:`FAR` times the range of the others. Of these there are ten at least, or so close
    together that rounding has made them one. A column that is shifted and scaled has the same figures. ``fills``: the
    first :data:`LISTED` such columns, with the largest share of the sampled rows first; ``fills_count`` of all, and
    ``fills_share``, the largest.

    >>> rows = np.linspace(0, 1, 200).reshape(100, 2)
    >>> rows[:5, 1] = -9999
    >>> fills_figure(rows)
    {'fills': [1], 'fills_count': 1, 'fills_share': 0.05}
    """
    if is_sparse(sample) or len(sample) < LEAST_SAMPLED:
        return {}
    share = np.zeros(sample.shape[1])
    for extreme in (sample.min(axis=0), sample.max(axis=0)):
        at = sample == extreme
        low, high = np.where(at, np.inf, sample).min(axis=0), np.where(at, -np.inf, sample).max(axis=0)
        with np.errstate(invalid="ignore"):
            gap, spread = np.maximum(low - extreme, extreme - high), high - low
            far = (at.sum(axis=0) >= max(3, len(sample) / 100)) & (gap > FAR * spread) & (spread > 0)
        for column in np.flatnonzero(far):
            different = len(np.unique(sample[~at[:, column], column]))
            if different >= SEVERAL or spread[column] <= ROUNDED * abs(high[column]):
                share[column] = max(share[column], at[:, column].mean())
    order = np.argsort(-share, kind="stable")[: np.count_nonzero(share)]
    return {"fills": order[:LISTED].tolist(), "fills_count": len(order), "fills_share": float(share.max())}


def counting_figure(sample: Any, numbers: Array) -> dict[str, Any]:
    """Of sampled rows (s, d) with their ``numbers``: columns that count the rows, as an index does.

    ``counting``: the first :data:`LISTED` of those that are a linear function of the row number, whatever its scale.
    Of fewer than four columns that is not asked: they may be a curve that is drawn by its parameter.

    >>> numbers = np.arange(0, 400, 10)
    >>> counting_figure(np.column_stack([numbers % 7, 5 - numbers / 400, numbers % 3, numbers % 5]), numbers)
    {'counting': [1]}
    """
    if is_sparse(sample) or len(sample) < LEAST_SAMPLED or sample.shape[1] < LEAST:
        return {}
    order = np.argsort(numbers)
    rows, numbers = sample[order].astype(np.float64), numbers[order]
    share = (numbers - numbers[0]) / (numbers[-1] - numbers[0])
    with np.errstate(over="ignore", invalid="ignore"):
        spread = rows[-1] - rows[0]
        away = np.abs(rows - rows[0] - share[:, None] * spread).max(axis=0)
        counting = np.flatnonzero((spread != 0) & (away <= ROUNDED * np.abs(spread)))
    return {"counting": counting[:LISTED].tolist()} if len(counting) else {}


def deciding(figure: Mapping[str, Any], width: int, which: str = "column {} (from 0)") -> tuple[str, str]:
    """Say which column holds more than 99 % of the variance, or which two of four or more 99.9 %; empty if none do.

    ``figure``: of :func:`columns_figure`; ``width``: the number of columns; ``which``: what they are called.

    >>> deciding({"column": 3, "share": 0.995}, 5)
    ('column 3 (from 0) holds 99.5 %', 'it decides')
    >>> deciding({"column": 3, "share": 0.6, "few": [3, 1], "few_count": 2, "few_share": 0.9992}, 5)
    ('columns 1 and 3 (from 0) hold 99.92 %', 'they decide')
    >>> deciding({"column": 3, "share": 0.6, "few": [], "few_count": 0, "few_share": 0.0}, 5)
    ('', '')
    """
    if width > 1 and figure.get("share", 0.0) > ONE_COLUMN:  # (given distances have no columns)
        return f"{which.format(figure['column'])} holds {100 * figure['share']:.4g} %", "it decides"
    if width >= LEAST and figure.get("few_count") == 2:
        several = which.replace(" {}", "s {} and {}").format(*sorted(figure["few"]))
        return f"{several} hold {100 * figure['few_share']:.4g} %", "they decide"
    return "", ""


def figure_of_columns(seen: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a judgement knows of the columns of the rows, by which their distances are; empty where it knows nothing."""
    found = seen.get("map", {})
    columns = seen.get("column") or (found["rows"] if found.get("metric") == "euclidean" else {})
    # (``number``: of a run that an earlier version judged)
    return {"column": columns["number"], **columns} if "number" in columns else columns


def ties_figure(squared: Array) -> dict[str, float]:
    """Of squared distances (s, k + 1) to the nearest rows: the share of rows with ties, and with k rows at no distance.

    ``tied``: the k-th neighbor is as far as the next, so the row number decides. ``same_place``: k others are at 0.
    """
    return {"tied": float((squared[:, -1] == squared[:, -2]).mean()), "same_place": float((squared[:, -2] == 0).mean())}
