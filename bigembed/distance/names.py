"""The registry of metrics: every name that is taken, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

MAPPED, PAIRS, SETS, FUNCTIONS = "mapped", "pairs", "sets", "functions"
"""How graphs have it: as Euclidean distances of mapped rows, pair by pair, of rows as sets of the columns that are not
0, or as a compiled function of two rows (:mod:`bigembed.distance.pair_compiled`)."""


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
    degree: float = 1.0
    """By what power distances grow with the rows."""
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
    "spearmanr": Known("", MAPPED, bounded=True),
    "jensenshannon": Known("jensenshannon", FUNCTIONS, bounded=True, terms=25.0),
    "russellrao": Known("russellrao", FUNCTIONS, bounded=True, terms=4.0),
    "sqeuclidean": Known("sqeuclidean", FUNCTIONS, terms=2.0, degree=2.0),
    "yule": Known("yule", FUNCTIONS, bounded=True, terms=4.0),
    "kulsinski": Known("", FUNCTIONS, bounded=True, terms=4.0),
    "matching": Known("", FUNCTIONS, bounded=True, terms=4.0),
    "symmetric_kl": Known("", FUNCTIONS, terms=25.0, degree=0.0),
    "wasserstein_1d": Known("", FUNCTIONS, terms=6.0, degree=0.0),
    "circular_kantorovich": Known("", FUNCTIONS, terms=60.0, degree=0.0),
    "true_angular": Known("", FUNCTIONS, bounded=True, terms=10.0),
    "tsss": Known("", FUNCTIONS, terms=20.0, degree=4.0),
    "bit_hamming": Known("", FUNCTIONS, terms=10.0, degree=0.0),
    "bit_jaccard": Known("", FUNCTIONS, bounded=True, terms=20.0),
    "gower": Known("", FUNCTIONS, bounded=True, terms=4.0, degree=0.0),
    "mahalanobis": Known("mahalanobis", parameter="VI"),
    "minkowski": Known("minkowski"),
    "seuclidean": Known("seuclidean", parameter="V"),
}
ALIASES = {
    "l2": "euclidean",
    "l1": "manhattan",
    "cityblock": "manhattan",
    "taxicab": "manhattan",
    "linf": "chebyshev",
    "linfty": "chebyshev",
    "linfinity": "chebyshev",
    "dot": "cosine",
    "direct_cosine": "cosine",
    "sokalmichener": "rogerstanimoto",
    "jensen_shannon": "jensenshannon",
    "jensen-shannon": "jensenshannon",
    "symmetric-kl": "symmetric_kl",
    "symmetric_kullback_liebler": "symmetric_kl",
    "wasserstein-1d": "wasserstein_1d",
    "kantorovich_1d": "wasserstein_1d",
    "kantorovich-1d": "wasserstein_1d",
    "circular_wasserstein": "circular_kantorovich",
}
"""Other names: those of SciPy, scikit-learn and pynndescent (which scales the rows of its "dot" to length one)."""
CENTERED = ("correlation", "spearmanr")
"""Metrics for which sparse rows get one more column, whose squared difference is subtracted."""


def known(name: object) -> Known:
    """What is known of a metric by its name or an alias; of any other nothing."""
    return METRICS.get(ALIASES.get(str(name), str(name)), Known())


def named(graphs: str) -> tuple[str, ...]:
    """The metrics that graphs have in this way."""
    return tuple(name for name, one in METRICS.items() if one.graphs == graphs)
