"""What the numbers of a certificate are called and mean, and what it says of each coordinate and of the map as a
whole.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.jobs import size, text_columns
from bigembed.maps.clustering import STABLE
from bigembed.maps.kernels import BINARY
from bigembed.plotting.vector import number
from bigembed.quality import DOUBTED, FAITHFUL, FIGURES, NEIGHBORS, with_error
from bigembed.quality.figures import figure_of_columns
from bigembed.quality.left_out import is_noise, left_out_text
from bigembed.runtime.blocks import Array

# -------------------------------------------------------------------------------------------------------- glossary
# What the numbers of a certificate are called, what they mean, and how they are written for people.

ELSEWHERE = ("warnings", "versions", "input", "eigenpairs", "eigenvalues", "residuals", "gaps", "judgement", "drawn")
"""Entries of a certificate that the page shows in another place."""
ONE = ("component_sizes", "filled_rows", "parts")
"""Entries that say nothing where there is one component."""
SHOWN = 6
"""Entries of a list that are written out."""

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
MEANING: Mapping[str, tuple[str, str]] = _WORDS["entries"]
"""What entries of a certificate are called, and what they mean."""
CATEGORIES: Mapping[str, tuple[str, str]] = _WORDS["warnings"]
"""Kinds of warnings, the worst first: what each is called, and how it looks."""
SCALES: Mapping[str, str] = _WORDS["scales"]
BANDWIDTH: Mapping[str, tuple[str, str]] = _WORDS["bandwidth"]
FRAME: Mapping[str, tuple[str, str]] = _WORDS["frame"]
ROW_WEIGHTS: Mapping[str, tuple[str, str]] = _WORDS["row_weights"]
CONDENSE: Mapping[str, tuple[str, str]] = _WORDS["condense"]


@dataclass(frozen=True)
class Entry:
    """A line of a table: what, how much, and what that means."""

    name: str
    value: str
    meaning: str = ""
    flagged: bool = False
    """Whether it speaks against the result."""


def entries_of(found: Mapping[str, Any]) -> list[Entry]:
    """Return the certificate in words, without what the page shows elsewhere. Unknown entries keep their names."""
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
    seen = found.get("judgement", {})
    return entries + columns_entries(seen) + _degrees(seen)


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
    found = {**value, "median_kth": float(value["median_kth"]) ** 0.5} if "median_kth" in value else value
    return entries + [Entry(name, shown(found[key]), text) for key, (name, text) in BANDWIDTH.items() if key in found]


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


def _row_weights(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    numbers = (float(value[key]) for key in ("least", "most", "sum"))
    least, most, total = (shown(int(one) if one.is_integer() else one) for one in numbers)
    text = f"{least} to {most}, {total} in all"
    rest = [Entry(title, shown(value[key]), said) for key, (title, said) in ROW_WEIGHTS.items() if key in value]
    return [Entry(name, text, meaning), *rest]


def _condense(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    text = f"{value['n']:,} rows to {value['cells']:,} cells"
    if "compared" in value:
        text += f"; {value['compared']:,} sampled rows compared"
    rest = [Entry(title, shown(value[key]), said) for key, (title, said) in CONDENSE.items() if key in value]
    return [Entry(name, text, meaning), *rest]


def _clusters(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    if "method" not in value:
        return [Entry(f"{name}: {plain(inner)}", shown(one)) for inner, one in value.items() if one != ""]
    sizes, jaccard = value["sizes"], value.get("jaccard")
    beside = f"; {value['noise']:,} rows in none" if value.get("noise") else ""
    smaller = f" and {len(sizes) - SHOWN:,} smaller" if len(sizes) > SHOWN else ""
    text = f"{len(sizes):,} by {value['method']}, of {shown(sizes[:SHOWN])} rows{smaller}{beside}"
    entries = [Entry(name, text, meaning)]
    if jaccard is None:
        return entries
    lost = any(one < STABLE for one in jaccard)
    text = f"Rand index {shown(round(value['rand'], 3))}; Jaccard {shown([round(one, 2) for one in jaccard])}"
    again = f"In {value['subsets']} subsets of half of the rows, with other seeds: 1 is the same clusters."
    return [*entries, Entry(f"{name} found again", text, again, lost)]


def columns_entries(seen: Mapping[str, Any]) -> list[Entry]:
    """Return which columns hold nearly all of the variance, where they are few: nothing is wrong with that by itself.

    >>> columns_entries({"map": {"d": 18}, "column": {"few": [3, 1, 5], "few_count": 3}})[0].value
    '3 of 18 hold 99.9 % of the variance: 3, 1, 5 (from 0)'
    """
    columns = figure_of_columns(seen)
    if not columns.get("few_count"):
        return []
    meaning = "The others hardly count in distances. If that is a matter of units, scale them (the step standardize)."
    of, more = seen["map"]["d"] if "map" in seen else "the columns", ", …" if columns["few_count"] > SHOWN else ""
    first = ", ".join(map(str, columns["few"][:SHOWN]))
    value = f"{columns['few_count']:,} of {of} hold 99.9 % of the variance: {first}{more} (from 0)"
    return [Entry("Columns that decide distances", value, meaning)]


def _degrees(seen: Mapping[str, Any]) -> list[Entry]:
    found = seen.get("degrees")
    if not found:
        return []
    below, text = found["below"], f"{shown(found['smallest'])} (row {found['row']})"
    if below:
        text += f"; {below:,} {'row' if below == 1 else 'rows'} below {found['limit']}"
    meaning = "Weights of a row to its neighbors, added up; near 0 it is cut off from the others."
    return [Entry("Least effective degree", text, meaning, below > 0)]


def _estimate(value: float | None, error: float | None) -> str:
    """Return a value with the digits that its standard error allows.

    >>> _estimate(7.2729, 0.0648), _estimate(1.0, 0.0), _estimate(None, None)
    ('7.273 ± 0.065', '1.0000 ± 0.0000', 'not determined')
    """
    if value is None:
        return "not determined"
    digits = min(4, max(0, 1 - math.floor(math.log10(error)))) if error else 4
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _frame(name: str, meaning: str, value: Mapping[str, Any]) -> list[Entry]:
    """Return how far the rows moved, in words; nothing of a map that shares no row with the one before."""
    entries = []
    for key, (title, text) in FRAME.items():
        shares = value.get(key) or {}
        said = [f"{100 * shares[q]:.2g} %" for q in ("0.5", "0.9", "0.99") if q in shares]
        if said:
            since = f" (since {value['since']})" if key == "drift" else ""
            entries.append(Entry(title, f"{', '.join(said)} of the diameter for 50, 90, 99 of 100 rows{since}", text))
    return entries


IN_WORDS: Mapping[str, Callable[[str, str, Mapping[str, Any]], list[Entry]]] = {
    "recall": _recall,
    "bandwidth": _bandwidth,
    "dimension": _dimension,
    "bridges": _bridges,
    "row_weights": _row_weights,
    "condense": _condense,
    "clusters": _clusters,
    "n_components": _chosen,
    "frame": _frame,
}
"""Entries of a certificate that are tables themselves."""


def shown(value: Any, nbytes: bool = False) -> str:
    """Write the value of a figure for people.

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
    """Return a key as a word: ``standard_error`` as "standard error"."""
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
        """Return whether any figure of the coordinate is a reason for a warning."""
        return any(cell.flagged for cell in self.cells)


def map_figures(figures: Mapping[str, Any]) -> list[Figure]:
    """Neighbors kept, trustworthiness, continuity and triplets with standard errors; none where not measured."""
    low = () if is_noise(figures) else DOUBTED
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


def compared(figures: Mapping[str, Any]) -> str:
    """Return which rows the figures of a map are of, and which rows they were compared with.

    >>> compared({"samples": 200, "n": 1000, "of": 477176, "n_coordinates": 5})
    '200 rows were compared with 1,000 rows drawn from 477,176, in the data and by the 5 coordinates of the map'
    """
    others = f"{figures['n']:,} rows drawn from {figures['of']:,}" if "of" in figures else f"all {figures['n']:,}"
    count = figures["n_coordinates"]
    return (
        f"{figures['samples']:,} rows were compared with {others}, in the data and by the "
        f"{f'{count:,} coordinates' if count > 1 else 'only coordinate'} of the map"
        + (f"; {text}" if (text := left_out_text(figures)) else "")
    )


def not_compared(certificate: Mapping[str, Any]) -> str:
    """Say why a map was not compared with its rows, where that is known; empty otherwise.

    >>> not_compared({"input": {"n": 10}})
    'The map was not compared with its rows: 10 rows are too few, 31 are needed'
    """
    n, seen = certificate.get("input", {}).get("n"), certificate.get("judgement", {}).get("map", {})
    few = f"{n} rows are too few, {2 * NEIGHBORS + 1} are needed" if n is not None and n <= 2 * NEIGHBORS else ""
    why = few or seen.get("unmeasured", "")
    return f"The map was not compared with its rows: {why}" if why else ""


def measured_in(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the figures of maps that some row of the table of a sweep has."""
    return [key for key in FIGURES if any(key in row for row in table)]


def figures_of(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of a map in a row of the table of a sweep, in words."""
    return [(name, f"{row[key]:.3f} ± {row[f'{key}_error']:.1g}") for key, (name, _) in FIGURES.items() if key in row]


def coordinate_lines(certificate: Mapping[str, Any], values: Array | None, residuals: Array | None) -> list[Line]:
    """Return a line for each coordinate of a walk that was judged; other maps have none.

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
    """Return the lines for a terminal, with the word "doubtful" where something is flagged."""
    if not lines:
        return []
    rows: list[tuple[str, ...]] = [("coordinate", *HEADINGS, "")]
    rows += [(str(one.number), *(c.text for c in one.cells), "doubtful" if one.flagged else "") for one in lines]
    return text_columns(rows, [len(HEADINGS), len(HEADINGS) + 1])
