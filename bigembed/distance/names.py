"""The registry of metrics: every name that is taken, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

MAPPED, PAIRS, SETS = "mapped", "pairs", "sets"
"""How graphs have it: as Euclidean distances of mapped rows, pair by pair, or of rows as sets of the columns that are
not 0."""


@dataclass(frozen=True)
class Known:
    """What is known of a metric by its name."""

    scipy: str = ""
    """Its name in SciPy's ``cdist``, by which classical and landmark MDS have it; empty where SciPy has it not."""
    graphs: str = ""
    """How neighbor graphs and :func:`bigembed.certify` have it; empty where they have it not."""
    bounded: bool = False
    """Whether distances are at most 2, whatever the rows."""
    terms: float = 2.0
    """What a column of a pair takes, in terms |x − y|; measured."""
    parameter: str = ""
    """Of ``cdist``, a property of all rows: SciPy would take it from the rows of each call, so it has to be given."""


METRICS = {
    "euclidean": Known("euclidean", MAPPED),
    "cosine": Known("cosine", MAPPED, bounded=True),
    "correlation": Known("correlation", MAPPED, bounded=True),
    "hellinger": Known("", MAPPED, bounded=True),
    "haversine": Known("", MAPPED, bounded=True),
    "manhattan": Known("cityblock", PAIRS, terms=1.0),
    "chebyshev": Known("chebyshev", PAIRS, terms=1.0),
    "canberra": Known("canberra", PAIRS, terms=3.0),
    "braycurtis": Known("braycurtis", PAIRS, bounded=True, terms=2.5),
    "hamming": Known("hamming", PAIRS, bounded=True, terms=1.0),
    "jaccard": Known("jaccard", SETS, bounded=True, terms=0.2),
    "dice": Known("dice", SETS, bounded=True, terms=0.2),
    "rogerstanimoto": Known("rogerstanimoto", SETS, bounded=True, terms=0.2),
    "sokalsneath": Known("sokalsneath", SETS, bounded=True, terms=0.2),
    "jensenshannon": Known("jensenshannon"),
    "mahalanobis": Known("mahalanobis", parameter="VI"),
    "minkowski": Known("minkowski"),
    "russellrao": Known("russellrao"),
    "seuclidean": Known("seuclidean", parameter="V"),
    "sqeuclidean": Known("sqeuclidean"),
    "yule": Known("yule"),
}
ALIASES = {"l2": "euclidean", "l1": "manhattan", "cityblock": "manhattan", "taxicab": "manhattan", "linf": "chebyshev"}


def known(name: object) -> Known:
    """What is known of a metric by its name or an alias; of any other nothing."""
    return METRICS.get(ALIASES.get(str(name), str(name)), Known())


def named(graphs: str) -> tuple[str, ...]:
    """The metrics that graphs have in this way."""
    return tuple(name for name, one in METRICS.items() if one.graphs == graphs)
