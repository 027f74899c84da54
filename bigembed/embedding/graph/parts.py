"""What to do with a graph of several components: which of them get coordinates of their own, and how.

Rows that lie off, and tiny groups of them, are to be expected in real data. By default a component is an **island**
where it holds fewer rows than :func:`least_rows`; its rows take the coordinates of their nearest row in a larger one,
and the label −1. The larger ones are **parts**. Several parts are embedded jointly: coordinates that tell the largest
of them apart (λ = 1), at most half of all, then the eigenvectors of each. So any two rows have a distance, new rows
have a place, and more coordinates show more of the inside of each part. Bridges would lead the first coordinates across
edges that the data do not have; coordinates of single components cannot be compared with each other; and coordinates
that tell parts apart say no more than the labels do, so that they must not be all that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bigembed.errors import DisconnectedGraphError

POLICIES = ("error", "largest", "per-component", "bridge", "joint")
ISLANDS = "islands"
"""The default for rows: islands are placed, parts are embedded jointly."""
ISLAND = -1
"""Label of the rows of islands."""


@dataclass(frozen=True)
class Parts:
    """The components with coordinates of their own are the first ``count``; the other rows take their nearest row's."""

    count: int
    joint: bool
    """Several, in one set of coordinates."""
    per_component: bool
    """Each in coordinates of its own."""
    half: bool = False
    """At most half of the coordinates tell parts apart."""

    @property
    def alone(self) -> bool:
        """One component is embedded."""
        return not (self.joint or self.per_component)

    def contrasts(self, width: int) -> int:
        """How many of ``width`` coordinates tell parts apart."""
        return min(self.count - 1, width // 2 if self.half else width) if self.joint else 0


def least_rows(n: int) -> int:
    """Rows of the smallest component that counts as a part: 1 % of few rows, 100, or 0.1 % of many; at least 2.

    >>> least_rows(150), least_rows(1_797), least_rows(50_000), least_rows(1_000_000)
    (2, 18, 100, 1000)
    """
    return max(2, min(-(-n // 100), max(100, -(-n // 1_000))))


def parts_of(policy: str, sizes: Sequence[int], n: int) -> Parts:
    """What is embedded of a graph of ``n`` rows in components of ``sizes`` rows, the largest first.

    Raises DisconnectedGraphError for several components where the policy is "error", or "bridge" did not join them.
    """
    count = len(sizes)
    if count == 1 or policy == "largest":
        return Parts(1, False, False)
    if policy in ("error", "bridge"):
        raise DisconnectedGraphError(_disconnected(sizes))
    if policy == "per-component":
        return Parts(count, False, True)
    if policy == ISLANDS:
        count = max(1, sum(size >= least_rows(n) for size in sizes))
    return Parts(count, count > 1, False, half=policy == ISLANDS)


def parts_from(policy: str, found: dict[str, Any]) -> Parts:
    """:func:`parts_of` the components that a stage found (of which it lists the largest)."""
    unlisted = found["components"] - len(found["sizes"])
    return parts_of(policy, [*found["sizes"], *[1] * unlisted], found["rows"])


def _disconnected(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:10])) + (", …" if len(sizes) > 10 else "")
    return (
        f"the graph has {len(sizes)} connected components, of {shown} rows. Choose components='auto' (small ones are "
        "placed, large ones embedded jointly), 'largest' (the other rows take the coordinates of their nearest row in "
        "it), 'per-component', 'joint' or 'bridge'; or raise n_neighbors or epsilon"
    )
