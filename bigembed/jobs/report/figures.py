"""What the numbers of a certificate are called and mean, and what it says of each coordinate and of the map as a
whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigembed.jobs.units import padded, size
from bigembed.maps.kernels import BINARY
from bigembed.plotting.vector import number
from bigembed.quality.neighborhoods import FAITHFUL, with_error
from bigembed.runtime.blocks import Array

# -------------------------------------------------------------------------------------------------------- glossary
# What the numbers of a certificate are called, what they mean, and how they are written for people.

ELSEWHERE = ("warnings", "versions", "input", "eigenpairs", "eigenvalues", "residuals", "gaps", "judgement", "drawn")
"""Entries of a certificate that the page shows in another place."""
ONE = ("component_sizes", "filled_rows", "parts")
"""Entries that say nothing where there is one component."""
SHOWN = 6
"""Entries of a list that are written out."""

MEANING: Mapping[str, tuple[str, str]] = {
    "steps": ("Step before the map", "What the rows went through, in this order."),
    "converged": ("Converged", "Whether every wanted pair reached its tolerance before the limit of passes."),
    "passes": ("Passes", "How often the rows (in a solve: the sparse matrix) were read from end to end."),
    "iterations": ("Iterations", "Steps of the solver or of the descent."),
    "bytes_moved": ("Bytes moved in the solve", "Parts of vectors that went from one block to another."),
    "recall": ("Recall of the graph", "Share of true nearest neighbors found, measured against all rows on a sample."),
    "components": ("Components of the graph", "Connected parts. Coordinates of different parts are not comparable."),
    "component_sizes": ("Rows of each component", "Largest first."),
    "parts": ("Components with their own coordinates", "The rows of the others have those of their nearest row."),
    "filled_rows": (
        "Rows placed by their nearest row",
        "Rows outside the components that were solved, islands among them: they have the coordinates of another row.",
    ),
    "repeated_rows": ("Rows that repeat another one", "They have its coordinates: one point of the picture."),
    "near_duplicates": ("Rows that nearly repeat others", "Their k nearest rows are within 1 % of the usual distance."),
    "bridges": ("Bridges", "Edges that join components though no rows are neighbors there."),
    "n_components": ("Number of coordinates", "Chosen by the eigenvalues."),
    "dimension": ("Intrinsic dimension", "In how many directions the rows extend: two estimates, by their neighbors."),
    "t": ("Diffusion time t", "Coordinates are eigenvectors times λ to the power t."),
    "solver": ("Solver", "The algorithm that was taken for this shape."),
    "residual": (
        "Largest residual",
        "‖Av − λv‖ of the worst pair: small against the gap, the vector is to be trusted.",
    ),
    "gap": ("Gap after the last pair", "Distance to the next eigenvalue: where it is tiny, the last vectors can turn."),
    "orthogonality": ("Loss of orthogonality", "‖VᵀV − I‖ of the vectors; rounding is near 1e−15."),
    "rank": ("Rank", "Independent directions that were found."),
    "epsilon": ("Scale ε", "Of the kernel, in squared units of the rows."),
    "kernel_nonnegative": ("Kernel is nonnegative", "Whether ε was proved to be large enough for that."),
    "explained": ("Variance explained", "Share of the variance of the rows that the coordinates keep."),
    "relative_error": ("Relative error", "‖A − WH‖ / ‖A‖ of the factors, or of the kernel that they stand for."),
    "empty_components": ("Empty components", "Factors that are zero throughout: fewer would do as well."),
    "careful_steps": ("Careful steps", "Steps that were shortened because the error would have grown."),
    "classes": ("Classes", "Different labels."),
    "clusters": ("Clusters", "What k-means found of the coordinates, the largest cluster first."),
    "class_sizes": ("Rows of each class", "In the order of the labels."),
    "missing_labels": ("Rows without a label", "They were left out of the fit and have coordinates."),
    "shrinkage": ("Shrinkage", "Weight of the round covariance in the one within the classes."),
    "landmarks": ("Landmarks", "Rows that stand for the rest."),
    "n_landmarks": ("Landmarks", "Rows that stand for the rest."),
    "far_rows": ("Rows far from every landmark", "They have the coordinates of their nearest landmark."),
    "negative_eigenvalues": ("Negative eigenvalues", "Parts of the distances that no flat space can hold."),
    "reason": ("The solver ended", "Why it stopped."),
    "advice": ("Advice", ""),
    "seed": ("Seed", "Of all random choices; the same seed makes the same bytes."),
    "stress": ("Stress", "Distances on the map against those that it was made from; 0 is a perfect map."),
    "negative": ("Negative share", "Of the spectrum: distances that no flat space can hold."),
}

CATEGORIES: Mapping[str, tuple[str, str]] = {
    "failed": ("The run failed", "bad"),
    "unfinished": ("The run is not finished", "bad"),
    "superseded": ("Results of other parameters or rows are left out", "bad"),
    "older": ("The rows were written anew since", "warn"),
    "running": ("The run is going on", "warn"),
    "damaged": ("Stored data are damaged", "bad"),
    "convergence": ("The solver stopped early", "warn"),
    "recall": ("True neighbors are missing from the graph", "warn"),
    "components": ("The data fall into separate parts", "warn"),
    "localized": ("Single rows carry a coordinate, or are all but cut off", "warn"),
    "map": ("The map as a whole is doubtful", "warn"),
    "separation": ("Coordinates may be turned among themselves", "warn"),
    "harmonic": ("Coordinates that repeat earlier ones", "warn"),
    "degenerate": ("The result is degenerate in part", "warn"),
    "missing": ("Rows without coordinates", "warn"),
    "memory": ("More memory was used than planned", "warn"),
    "other": ("Said during the run", "warn"),
}
"""Kinds of warnings, the worst first: what to call each, and how it looks."""


@dataclass(frozen=True)
class Entry:
    """A line of a table: what, how much, and what that means."""

    name: str
    value: str
    meaning: str = ""
    flagged: bool = False
    """Whether it speaks against the result."""


def entries_of(found: Mapping[str, Any]) -> list[Entry]:
    """The certificate in words, without what the page shows elsewhere. Unknown entries keep their names."""
    entries: list[Entry] = []
    order = list(MEANING)
    keys = sorted(found, key=lambda key: order.index(key) if key in order else len(order))
    one_component = found.get("components") == 1
    for key in keys:
        value = found[key]
        if key in ELSEWHERE or value == "" or (one_component and key in ONE):
            continue
        name, meaning = MEANING.get(key, (plain(key), ""))
        if isinstance(value, Mapping) and key in IN_WORDS:
            entries += IN_WORDS[key](name, meaning, value)
        elif isinstance(value, Mapping):
            entries += [Entry(f"{name}: {plain(inner)}", shown(one)) for inner, one in value.items() if one != ""]
        else:
            wrong = key == "converged" and value is False
            entries.append(Entry(name, shown(value, "bytes" in key), meaning, wrong))
    return entries + _degrees(found.get("judgement", {}))


def _recall(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    if "recall" not in value:
        return []
    text = _estimate(value["recall"], value.get("standard_error"))
    asked = [f"target {value['target']}"] if "target" in value else []
    asked += [f"{value['rows']:,} rows compared"] if "rows" in value else []
    missed = "target" in value and value["recall"] < value["target"]
    return [Entry(name, text + (f" ({', '.join(asked)})" if asked else ""), meaning, missed)]


def _bandwidth(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    entries = []
    kernel = value.get("kernel", "fixed")
    if kernel == BINARY:
        entries.append(Entry("Weights of the edges", kernel, "1 for every edge, whatever its length."))
        value = {name: one for name, one in value.items() if "epsilon" not in name}
    if kernel in SCALES:
        entries.append(Entry("Scale of the rows", kernel, SCALES[kernel]))
    if "epsilon" in value:
        rule = f" (rule: {value['rule']})" if "rule" in value else ""
        units = "In squared units of the rows." if kernel == "fixed" else "A pure number: it multiplies these scales."
        entries.append(Entry("Scale ε", shown(value["epsilon"]) + rule, units))
    if "effective_epsilon" in value:
        units = "What ε comes to, since the kernel ends at the k-th neighbor: in the eigenvalues of the operator."
        entries.append(Entry("ε, corrected", shown(value["effective_epsilon"]), units))
    if "median_kth" in value:
        distance = "Median distance to the k-th neighbor, in units of the rows."
        entries.append(Entry("Usual distance to a neighbor", shown(float(value["median_kth"]) ** 0.5), distance))
    if "ksum_epsilon" in value:
        advice = "Where the kernel sum is steepest: for the complete kernel alone, in squared units of the rows."
        entries.append(Entry("ε by the kernel sum", shown(value["ksum_epsilon"]), advice))
    if "dimension" in value:
        slope = "Twice the steepest slope of the kernel sum; without a standard error."
        entries.append(Entry("Intrinsic dimension by the kernel sum", shown(value["dimension"]), slope))
    return entries


def _dimension(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    ways = {"likelihood": "by all neighbors", "two_nearest": "by the two nearest"}
    estimates = {how: value[key] for key, how in ways.items() if isinstance(value.get(key), Mapping)}
    if not estimates:
        return [Entry(name, shown(value.get("value")), meaning)]
    texts = [f"{_estimate(one['value'], one['standard_error'])} {how}" for how, one in estimates.items()]
    left = value.get("duplicates", 0)
    out = f" {left:,} rows that repeat were left out." if left else ""
    return [Entry(name, "; ".join(texts), meaning + out)]


def _bridges(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    count = value.get("bridges", 0)
    if not count:
        return [Entry(name, "none needed", meaning)]
    text = f"{count:,} between {value['components']:,} components of {shown(value['sizes'])} rows"
    return [Entry(name, f"{text}; the longest {shown(value['longest'])}", meaning, True)]


def _chosen(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    return [Entry(name, f"{value['chosen']}: {value['reason']}", meaning)]


def _degrees(seen: Mapping[str, Any]) -> list[Entry]:
    found = seen.get("degrees")
    if not found:
        return []
    text = f"{shown(found['smallest'])} (row {found['row']})"
    text += (
        f"; {found['below']:,} {'row' if found['below'] == 1 else 'rows'} below {found['limit']}"
        if found["below"]
        else ""
    )
    meaning = "Weights of a row to its neighbors, added up; near 0 it is cut off from the others."
    return [Entry("Least effective degree", text, meaning, found["below"] > 0)]


def _estimate(value: float | None, error: float | None) -> str:
    """A value with the digits that its standard error allows.

    >>> _estimate(7.2729, 0.0648), _estimate(1.0, 0.0), _estimate(None, None)
    ('7.273 ± 0.065', '1.0000 ± 0.0000', 'not determined')
    """
    if value is None:
        return "not determined"
    digits = min(4, max(0, 1 - math.floor(math.log10(error)))) if error else 4
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


SCALES: Mapping[str, str] = {
    "adaptive": "K = exp(−r²/(ε s)), s = (ρ_i² + ρ_j²)/2, ρ the distance to the k-th neighbor: no row is cut off.",
    "self-tuned": "K = exp(−r²/(ε s)), s = ρ_i ρ_j, ρ the distance to the k-th neighbor.",
    "fixed": "K = exp(−r²/ε), one scale for all rows: those farther than ε from their neighbors are cut off.",
}
IN_WORDS: Mapping[str, Callable[[str, str, Mapping[str, Any]], list[Entry]]] = {
    "recall": _recall,
    "bandwidth": _bandwidth,
    "dimension": _dimension,
    "bridges": _bridges,
    "n_components": _chosen,
}
"""Entries of a certificate that are tables themselves."""


def shown(value: Any, nbytes: bool = False) -> str:
    """A value for people.

    >>> shown(True), shown(1234567), shown(0.00001234), shown([1, 2]), shown(None), shown(2048, nbytes=True)
    ('yes', '1,234,567', '1.23·10⁻⁵', '1, 2', 'none', '2.0 KiB')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return size(value) if nbytes else f"{value:,}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{plain(key)} {shown(one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f" and {len(value) - SHOWN:,} more" if len(value) > SHOWN else ""
        return ", ".join(shown(one) for one in value[:SHOWN]) + more
    return str(value)


def plain(key: Any) -> str:
    """A key as a word: ``standard_error`` as "standard error"."""
    return str(key).replace("_", " ").strip()


# --------------------------------------------------------------------------------------------------------- figures
# What the certificate says of each coordinate and of the map as a whole, as lines of tables for people.
#
# A cell is flagged where the judgement behind it is; a page shows it amber, a terminal says so.

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

FIGURES: Mapping[str, tuple[str, str]] = {
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
            with_error(figures[key]),
            f"{figures[key]['chance']:.3g}",
            f"{figures[key]['above_chance']:,.0f}",
            text.format(k=figures["n_neighbors"]),
            key in low and figures[key]["value"] < FAITHFUL,
        )
        for key, (name, text) in FIGURES.items()
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
