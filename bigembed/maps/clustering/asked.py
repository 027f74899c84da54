"""What is asked of clusters after a map: the parameters of a job's table [clusters] and of ``be.cluster``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bigembed.errors import InputError
from bigembed.runtime.parameters import is_integer

METHODS = ("hdbscan", "kmeans", "leiden")
"""How clusters are found: the first two of coordinates, the third of a graph."""
OWN = {
    "hdbscan": ("min_cluster_size", "min_samples", "sample"),
    "kmeans": ("n_clusters", "n_init"),
    "leiden": ("resolution", "sample"),
}
"""The parameters of each."""
SAMPLE = 20_000
"""Rows that HDBSCAN takes, and anchors of new rows, at the most, where nothing else is asked for."""
SUBSETS = 10
"""Subsets of the rows in which clusters are looked for again, where nothing else is asked for."""
STABLE = 0.6
"""Mean Jaccard coefficient below which a cluster is not found again (Hennig 2007: it should not be trusted)."""


@dataclass(frozen=True)
class Clustering:
    """What is asked of clusters after a map."""

    method: str = "hdbscan"
    n_clusters: int = 8
    min_cluster_size: int | None = None
    min_samples: int | None = None
    resolution: float = 1.0
    n_init: int = 10
    sample: int = SAMPLE
    n_subsets: int = SUBSETS
    seed: int = 0

    def of_method(self) -> dict[str, Any]:
        """Return what decides the labels: the parameters of the method that is taken."""
        return {name: value for name, value in asdict(self).items() if name in ("method", "seed", *OWN[self.method])}


def clusters_problems(given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the parameters of clusters, of a job or of a call, each as its key has it."""
    method = given.get("method", "hdbscan")
    if method not in METHODS:
        return [f"[clusters] method={method!r}; allowed: {', '.join(METHODS)}"]
    least = {"n_clusters": 1, "min_cluster_size": 2, "min_samples": 1, "sample": 2, "n_subsets": 0, "random_state": 0}
    problems = [
        f"[clusters] {name}={given[name]!r}; a whole number ≥ {low} is needed"
        for name, low in least.items()
        if name in given and not (is_integer(given[name]) and given[name] >= low)
    ]
    if "resolution" in given and not 0 < given["resolution"] < float("inf"):
        problems.append(f"[clusters] resolution={given['resolution']!r}; a finite number > 0 is needed")
    for name in ("n_clusters", "min_cluster_size", "min_samples", "resolution", "sample"):
        takes = [one for one in METHODS if name in OWN[one]]
        if name in given and method not in takes:
            problems.append(
                f"[clusters] {name}: belongs to {' and '.join(takes)}, and method is {method}; leave it out"
            )
    return problems


def checked_clustering(given: Mapping[str, Any]) -> Clustering:
    """Return what is asked of clusters; InputError that lists all that is wrong. ``random_state`` is the seed."""
    if problems := clusters_problems(given):
        raise InputError("cluster: " + "; ".join(one.removeprefix("[clusters] ") for one in problems))
    names = {"random_state": "seed"}
    return Clustering(**{names.get(name, name): value for name, value in given.items()})
