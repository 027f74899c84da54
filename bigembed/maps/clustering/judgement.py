"""How far clusters after a map can be trusted: figures of the certificate, and what is warned of."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.estimator.protocol import run_of
from bigembed.estimator.reporting import warn_of
from bigembed.maps.clustering.asked import STABLE, Clustering
from bigembed.maps.clustering.stages import CLUSTERS, STABILITY
from bigembed.neighbors.row_weights import WEIGHTS
from bigembed.stages import Run

FULL = 0.8
"""Rows at the border of a cluster over those on the way there, from which nothing parts it from its neighbor."""
SHOWN = 5
MOSTLY = 0.5
"""Share of the rows in no cluster, or in unstable ones, from which the clusters as a whole are doubtful."""


def clusters_found(run: Run, asked: Clustering, weighed: bool = False) -> dict[str, Any]:
    """Return what a certificate says of the clusters of a run: ``clusters`` and, if there are any, ``warnings``.

    ``weighed``: whether the rows have weights.
    """
    made = run.results(CLUSTERS)
    sizes, noise = [int(size) for size in made["sizes"]], int(made.get("noise", 0))
    found: dict[str, Any] = {"method": asked.method, "count": len(sizes), "sizes": sizes, "noise": noise}
    found |= {name: made[name] for name in ("sampled", "converged") if name in made}
    warnings = _doubts(asked, sizes, noise, made) + (_alike(run, asked) if weighed else [])
    if run.has(STABILITY):
        judged = run.results(STABILITY)
        found |= {name: judged[name] for name in ("jaccard", "rand", "subsets", "borders") if name in judged}
        warnings += _cut(sizes, judged.get("borders", []))
        warnings += _unstable(sizes, np.array(judged["jaccard"]), judged["rand"], judged["subsets"])
    return {CLUSTERS: found, "warnings": {CLUSTERS: warnings} if warnings else {}}


def judge_clusters(estimator: Any, asked: Clustering, weighed: bool) -> None:
    """Add what was found of clusters to the certificate of a fitted estimator, and give the warnings."""
    found = clusters_found(run_of(estimator), asked, weighed)
    warnings = {**estimator.certificate_.get("warnings", {}), **found["warnings"]}
    estimator.certificate_ = {**estimator.certificate_, CLUSTERS: found[CLUSTERS], "warnings": warnings}
    warn_of(found)


def _doubts(asked: Clustering, sizes: list[int], noise: int, made: dict[str, Any]) -> list[str]:
    """Return what the clusters themselves say."""
    total, said = sum(sizes) + noise, []
    change = {
        "hdbscan": "Lower min_cluster_size or min_samples, or cluster a map that draws rows together, such as UMAP",
        "leiden": "Raise the resolution",
        "kmeans": "Ask for more clusters",
    }[asked.method]
    if len(sizes) < 2:
        said.append(f"{asked.method} found {len(sizes) or 'no'} cluster{'' if len(sizes) == 1 else 's'}. {change}")
    elif noise > MOSTLY * total:
        said.append(f"{noise:,} of {total:,} rows are in no cluster, as noise. {change}")
    if empty := sizes.count(0):
        said.append(f"{empty} of {len(sizes)} clusters have no rows. Ask for fewer clusters")
    if not made.get("converged", True):
        said.append(
            f"k-means stopped after {made['iterations']} iterations: the clusters run into each other. Ask for another "
            "number of clusters"
        )
    return said


def _alike(run: Run, asked: Clustering) -> list[str]:
    """Return what is to be said where rows have weights that the clusters do not follow."""
    if asked.method == "kmeans":
        way = "Take a method on a graph, which keeps weights by rows"
        return [] if run.has(WEIGHTS) else [f"kmeans counts all rows alike here, whatever they weigh. {way}"]
    counted = {"hdbscan": "densities and sizes of clusters", "leiden": "edges and sizes of clusters"}[asked.method]
    way = "kmeans of a map on a graph, and spectral_clustering, count rows by weight"
    return [f"{asked.method} counts all rows alike, whatever they weigh: {counted} are those of the rows. {way}"]


def _cut(sizes: list[int], borders: list[float | None]) -> list[str]:
    """Return what is to be said of clusters of k-means that no gap parts from their neighbors."""
    full = [number for number, one in enumerate(borders) if one is not None and one > FULL]
    if sum(sizes[number] for number in full) <= MOSTLY * max(1, sum(sizes)):
        return []
    return [
        f"k-means cuts through regions without gaps: at the borders of {len(full)} of {len(sizes)} clusters rows are "
        "as dense as on the way there. It does so in the same places each time, so stable clusters need not be groups. "
        "Ask for fewer, or look for groups by density (hdbscan)"
    ]


def _unstable(sizes: list[int], jaccard: Any, rand: float, subsets: int) -> list[str]:
    """Return what is to be said of clusters that are not found again in subsets of the rows."""
    weak = np.flatnonzero(jaccard < STABLE)
    if not len(weak) or len(sizes) < 2:
        return []
    listed = ", ".join(f"{number} ({sizes[number]:,} rows, {jaccard[number]:.2f})" for number in weak[:SHOWN])
    more = f" and {len(weak) - SHOWN} more" if len(weak) > SHOWN else ""
    again = f"{subsets} subsets of half of the rows"
    share = sum(sizes[number] for number in weak) / max(1, sum(sizes))
    if share > MOSTLY:
        return [
            f"clusters are not stable: {len(weak)} of {len(sizes)}, with {100 * share:.0f} % of the rows, are not "
            f"found again in {again} (mean Jaccard coefficient below {STABLE}; Rand index {rand:.2f}). There may be no "
            "clusters at all, or others of another size: do not read these as groups. Ask for fewer or larger ones"
        ]
    return [
        f"{len(weak)} of {len(sizes)} clusters are not stable: {listed}{more} are not found again in {again} (mean "
        f"Jaccard coefficient below {STABLE}). Do not read them as groups of their own, or ask for fewer or larger ones"
    ]
