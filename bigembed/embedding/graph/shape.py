"""What a method needs to know about the neighbor graph that it starts from."""

from __future__ import annotations

from dataclasses import dataclass

from bigembed.neighbors.radius import EDGES_PLANNED
from bigembed.neighbors.search.by_metric import ByMetric


@dataclass(frozen=True)
class GraphShape:
    """A graph of ``k`` neighbors, of a ``radius`` or of all pairs, or a user's weights."""

    n: int
    block: int
    """Rows of a block."""
    width: int = 1
    """Columns of the rows."""
    k: int | None = None
    radius: float | None = None
    dense: bool = False
    """Of all pairs as one block, without lists of neighbors."""
    given: bool = False
    """Of distances that were given, without rows."""
    sampled: bool = False
    """Of given distances of which those to sampled rows are kept, to judge a map by."""
    weighted: bool = False
    """A user's weights, without rows."""
    by: ByMetric | None = None
    """How rows are compared pair by pair, where distances are not the Euclidean ones of the rows that are ordered."""
    row_bytes: int = 8
    """Of a row that is ordered."""
    edges: int | None = None
    """Entries, where they are known before it is built."""

    @property
    def planned_edges(self) -> int:
        """Entries that a plan counts with."""
        if self.edges is not None:
            return self.edges
        if self.radius is not None:
            return self.n * min(self.n, EDGES_PLANNED)
        return 2 * self.n * min(self.n, self.k or self.n)

    @property
    def stage(self) -> str:
        """The stage that holds its edges."""
        return "weights" if self.weighted else "graph"

    @property
    def rowless(self) -> bool:
        """Whether there are nodes and edges only."""
        return self.weighted or self.given

    @property
    def ordered(self) -> bool:
        """Whether its nodes are in an order of its own, that of a stage ``order``: not so of weights in one block."""
        return not self.weighted or self.n > self.block
