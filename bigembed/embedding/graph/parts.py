"""What to do with a graph of several components: which of them get their own coordinates, and how.

Rows that lie off, and tiny groups of them, are to be expected in real data. By default a component is an **island**
where it holds fewer rows than :func:`least_rows`; its rows take the coordinates of their nearest row in a larger one,
and the label −1. The larger ones are **parts**. Several parts are embedded jointly: coordinates that separate the
largest of them (λ = 1), at most half of all, then the eigenvectors of each. So any two rows have a distance, new rows
have a place, and more coordinates show more of the inside of each part. Bridges would lead the first coordinates across
edges that the data do not have; coordinates of single components cannot be compared with each other; and coordinates
that separate parts say no more than the labels do, so that they must not be all that there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.errors import DisconnectedGraphError, InputError

CHOICES = {
    "auto": " (small ones are placed, large ones embedded jointly)",
    "largest": " (the other rows take the coordinates of their nearest row in it)",
    "per-component": "",
    "bridge": "",
    "joint": "",
}
"""What may be done with several components, with what an error says of it."""
POLICIES = ("error", "largest", "per-component", "bridge", "joint")
MAX_SOLVED = 200
"""Components solved one by one; more are refused with advice."""
ISLANDS = "islands"
"""The default for rows: islands are placed, parts are embedded jointly."""
SEPARATED = "separated"
"""For clusters: islands are placed, and as many coordinates as there are separate the parts."""
PLACING = (ISLANDS, SEPARATED)
"""Islands are placed."""
ISLAND = -1
"""Label of the rows of islands."""


@dataclass(frozen=True)
class Parts:
    """The components with their own coordinates are the first ``count``; the other rows take their nearest row's."""

    count: int
    joint: bool
    """Several, in one set of coordinates."""
    per_component: bool
    """Each in its own coordinates."""
    half: bool = False
    """At most half of the coordinates separate parts."""

    @property
    def single(self) -> bool:
        """One component is embedded."""
        return not (self.joint or self.per_component)

    def contrasts(self, width: int) -> int:
        """How many of ``width`` coordinates separate parts."""
        return min(self.count - 1, width // 2 if self.half else width) if self.joint else 0


def least_rows(n: int) -> int:
    """Rows of the smallest component that counts as a part: 1 % of few rows, 100, or 0.1 % of many; at least 2.

    >>> least_rows(150), least_rows(1_797), least_rows(50_000), least_rows(1_000_000)
    (2, 18, 100, 1000)
    """
    return max(2, min(-(-n // 100), max(100, -(-n // 1_000))))


def parts_of(policy: str, sizes: Sequence[int], n: int, choices: Iterable[str] = CHOICES) -> Parts:
    """What is embedded of a graph of ``n`` rows in components of ``sizes`` rows, the largest first.

    Raises DisconnectedGraphError for several components where the policy is "error", or "bridge" did not join them;
    it names the ``choices``.
    """
    count = len(sizes)
    if count == 1 or policy == "largest":
        return Parts(1, False, False)
    if policy in ("error", "bridge"):
        offered = ", ".join(f"{name!r}{CHOICES[name]}" for name in choices)
        raise DisconnectedGraphError(
            f"the graph has {len(sizes)} connected components, of {_shown(sizes)} rows. Choose another components= "
            f"({offered}); or join more rows, by a larger n_neighbors or radius, or epsilon of a kernel"
        )
    if policy == "per-component":
        return Parts(count, False, True)
    if policy in PLACING:
        count = max(1, sum(size >= least_rows(n) for size in sizes))
    return Parts(count, count > 1, False, half=policy == ISLANDS)


def parts_from(policy: str, found: dict[str, Any], choices: Iterable[str] = CHOICES) -> Parts:
    """:func:`parts_of` the components that a stage found (of which it lists the largest)."""
    unlisted = found["components"] - len(found["sizes"])
    return parts_of(policy, [*found["sizes"], *[1] * unlisted], found["rows"], choices)


def solved_sizes(parts: Parts, policy: str, sizes: Sequence[int], n_components: int) -> Sequence[int]:
    """Rows of the components that are solved one by one; InputError or DisconnectedGraphError where they cannot be."""
    if parts.single and sizes[0] <= n_components:
        raise InputError(
            f"n_components={n_components} needs a connected component of at least {n_components + 1} rows; the largest "
            f"has {sizes[0]}. Ask for fewer coordinates"
        )
    if parts.count > MAX_SOLVED and not parts.half:
        raise DisconnectedGraphError(
            f"components={policy!r} would solve {parts.count} components one by one (of {_shown(sizes)} rows); at most "
            f"{MAX_SOLVED}. Use components='largest', or raise n_neighbors or radius"
        )
    return sizes[: min(parts.count, MAX_SOLVED)]


def contrast(c: int, level: int, sums: Array) -> float:
    """Value on component c of the ``level``-th indicator coordinate at λ = 1 (seed 001, two disjoint rings).

    Components 0 … level−1 against component ``level``, Π-orthogonal to 1 and to each other, RᵀΠR = I. For two
    components of masses π₁, π₂ it is (√(π₂/π₁), −√(π₁/π₂)), proportional to the (n₂, −n₁) of the source.
    """
    share = sums / sums.sum()
    before, mass = share[:level].sum(), share[level]
    if c < level:
        return float(np.sqrt(mass / (before * (before + mass))))
    return -float(np.sqrt(before / (mass * (before + mass)))) if c == level else 0.0


def _shown(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:10])) + (", …" if len(sizes) > 10 else "")
