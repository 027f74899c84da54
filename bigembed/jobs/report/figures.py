"""What the certificate says of each coordinate and of the map as a whole, as lines of tables for people.

A cell is flagged where the judgement behind it is; a page shows it amber, a terminal says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.blocks.rows import Array
from bigembed.jobs.units import padded
from bigembed.plotting.vector import number
from bigembed.quality.judgement import FAITHFUL, said

HEADINGS = (
    "Eigenvalue λ",
    "1 − λ",
    "Residual",
    "sin θ at most",
    "Participation",
    "Rows that carry it",
    "What it shows",
)
"""Of the cells of a line of a coordinate."""
NAMED = 3
"""Rows named of a coordinate that few rows carry."""
TURNED = 0.1
"""sin θ from which a coordinate may be turned, some six degrees."""

MEANING: Mapping[str, tuple[str, str]] = {
    "preservation": ("Neighbors kept", "Share of the {k} nearest rows that are among the {k} nearest on the map."),
    "trustworthiness": (
        "Trustworthiness",
        "Whether neighbors on the map are near in the data: 1 is perfect; intruders count by how far they are ranked.",
    ),
    "continuity": (
        "Continuity",
        "Whether neighbors in the data are near on the map: 1 is perfect; the lost ones count by how far they went.",
    ),
    "triplets": (
        "Triplets in order",
        "Of a row and two random others: whether the one that is nearer in the data is nearer on the map. The large "
        "shape, not the neighborhoods.",
    ),
}


@dataclass(frozen=True)
class Figure:
    """A figure of a map: what, how much, what shuffled coordinates have."""

    name: str
    value: str
    chance: str
    above: str
    meaning: str
    flagged: bool = False


@dataclass(frozen=True)
class Cell:
    """A number or a word, and whether it speaks against the coordinate."""

    text: str
    flagged: bool = False


@dataclass(frozen=True)
class Line:
    """A coordinate, counted from 1, with a cell for each of :data:`HEADINGS`."""

    number: int
    cells: tuple[Cell, ...]

    @property
    def flagged(self) -> bool:
        """Whether anything speaks against it."""
        return any(cell.flagged for cell in self.cells)


def map_figures(figures: Mapping[str, Any]) -> list[Figure]:
    """Neighbors kept, trustworthiness, continuity and triplets with standard errors; none where not measured."""
    low = ("trustworthiness", "continuity")
    return [
        Figure(
            name,
            said(figures[key]),
            f"{figures[key]['chance']:.3g}",
            f"{figures[key]['above_chance']:,.0f}",
            text.format(k=figures["n_neighbors"]),
            key in low and figures[key]["value"] < FAITHFUL,
        )
        for key, (name, text) in MEANING.items()
        if key in figures
    ]


def coordinate_lines(certificate: Mapping[str, Any], values: Array | None, residuals: Array | None) -> list[Line]:
    """A line for each coordinate of a walk that was judged; other maps have none.

    ``values`` and ``residuals``: (m,), or (c, m) for components in their own coordinates, whose first line counts.
    None takes them from the certificate, if it has those of one solve.
    """
    seen = certificate.get("judgement", {})
    if "near_one" not in seen:
        return []
    solved = list(certificate.get("eigenpairs", {}).values())
    if values is None and len(solved) == 1:
        values, residuals = np.array(solved[0]["eigenvalues"]), np.array(solved[0]["residuals"])
    early = not certificate.get("converged", True)
    rows = certificate.get("input", {}).get("n") or seen.get("map", {}).get("n")
    first, error = (None if one is None else np.atleast_2d(one)[0] for one in (values, residuals))
    lines = []
    for l, share in enumerate(seen["participation"]):
        few, near = bool(seen["carried_by_few"][l]), bool(seen["near_one"][l])
        count, sin = seen["rows_above_a_tenth"][l], seen["sin_theta"][l]
        cells = (
            Cell("–" if first is None else f"{first[l]:.6g}"),
            Cell("–" if first is None else number(1.0 - float(first[l])), near),
            Cell("–" if error is None else number(float(error[l])), early),
            Cell(number(sin), sin > TURNED),
            Cell(f"{100 * share:.3g} %", few),
            Cell(f"{count:,}" + (f" ({100 * count / rows:.3g} %)" if rows else ""), few),
            _shows(seen, l, few, near),
        )
        lines.append(Line(l + 1, cells))
    return lines


def _shows(seen: Mapping[str, Any], l: int, few: bool, near: bool) -> Cell:
    """New, or what speaks against it."""
    found = []
    if few:
        named = min(NAMED, seen["rows_above_a_tenth"][l])
        leading = [str(row) for row in seen["leading_rows"][l][:named] if row >= 0]
        more = ", …" if seen["rows_above_a_tenth"][l] > len(leading) else ""
        found.append(f"{'row' if len(leading) == 1 else 'rows'} {', '.join(leading)}{more} against all others")
    if near:
        found.append("parts that are all but cut off")
    if seen["harmonic"][l]:
        found.append(f"a function of earlier ones ({seen['harmonic_residual'][l]:.2f} left)")
    found += [f"turned within {a + 1}–{b + 1}" for a, b in seen["groups"] if a <= l <= b]
    if seen["cut"] and l == len(seen["participation"]) - 1:
        found.append("cut from close ones left out")
    return Cell("; ".join(found) or "new", bool(found))


def text_table(lines: Sequence[Line]) -> list[str]:
    """The lines for a terminal, with the word "amber" where something is flagged."""
    if not lines:
        return []
    rows: list[tuple[str, ...]] = [("coordinate", *HEADINGS, "")]
    rows += [(str(one.number), *(c.text for c in one.cells), "amber" if one.flagged else "") for one in lines]
    return padded(rows, [len(HEADINGS), len(HEADINGS) + 1])
