"""Graphs whose diffusion maps are known in closed form (seed 001), as sparse matrices of weights, held in memory."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from bigembed.blocks.declared import at_least, declared
from bigembed.errors import InputError

COMPLETE = 4096
"""Most nodes of a complete graph, which has n (n − 1) entries."""


@declared
def ring_graph(n: Annotated[int, at_least(3)] = 100, shortcut: bool = False) -> Any:
    """The ring of n nodes, edges of weight 1, as a SciPy CSR array (n, n).

    Eigenvalues of the walk: cos(2πl/n), l = 0, …, n − 1; eigenvectors cos(2πlr/n) and sin(2πlr/n) of node r: the
    map is a circle. ``shortcut``: one edge more, between nodes 0 and n/2, for even n.

    >>> ring_graph(4).toarray().astype(int).tolist()
    [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    """
    from scipy.sparse import csr_array

    if shortcut and n % 2:
        raise InputError(f"ring_graph: n={n} with a shortcut; it leads to the opposite node, so n must be even")
    nodes = np.arange(n)
    first, last = [nodes], [(nodes + 1) % n]
    if shortcut:
        first, last = [*first, np.array([0])], [*last, np.array([n // 2])]
    i, j = np.concatenate([*first, *last]), np.concatenate([*last, *first])
    return csr_array((np.ones(len(i)), (i, j)), shape=(n, n))


@declared
def complete_graph(n: Annotated[int, at_least(2)] = 10) -> Any:
    """The complete graph of n nodes, at most 4096, edges of weight 1, as a SciPy CSR array (n, n).

    Eigenvalues of the walk: 1, and −1/(n − 1) of multiplicity n − 1: no coordinate is better than another.

    >>> complete_graph(3).toarray().astype(int).tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    from scipy.sparse import csr_array

    if n > COMPLETE:
        raise InputError(f"complete_graph: n={n}; it has n (n - 1) entries: at most {COMPLETE} nodes")
    return csr_array(np.ones((n, n)) - np.eye(n))


@declared
def ring_graphs(n: Annotated[int, at_least(3)] = 60, n2: Annotated[int, at_least(3)] = 40) -> Any:
    """Two rings of ``n`` and ``n2`` nodes without an edge between them, as a SciPy CSR array (n + n2, n + n2).

    The walk has the eigenvalue 1 twice, then those of the larger ring first: cos(2π/n) > cos(2π/n2) for n > n2.
    """
    from scipy.sparse import block_diag, csr_array

    return csr_array(block_diag([ring_graph(n), ring_graph(n2)]))
