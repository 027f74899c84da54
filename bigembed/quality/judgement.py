"""What figures mean: sentences that say what is doubtful and what to do about it. Limits are stated here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHANCE = 4.0
"""Standard errors above shuffled coordinates that one figure at least must reach."""
TIED = 0.1
"""Share of sampled rows with ties at the k-th neighbor above which triplets alone can show that."""
FAITHFUL = 0.8
"""Trustworthiness and continuity below which coordinates are doubtful; shuffled ones have about .5."""
SAME_PLACE = 0.1
"""Share of sampled rows at one place with k others, beyond that of the rows, from which it is doubtful."""
ONE_COLUMN = 0.99
"""Share of the variance in one column from which it decides all distances."""
LOOKED_AT = 3
"""Coordinates that are drawn. What bends or spoils a picture is a warning of maps of no more; of more, the certificate
and the page say it: clusters, distances, pseudotime and smoothing take all coordinates together."""
NAMES = {
    "preservation": "neighbors kept",
    "trustworthiness": "trustworthiness",
    "continuity": "continuity",
    "triplets": "triplets in order",
}
COLLAPSED = "Look for coordinates that a few rows carry, for rounding, and for rows that were never placed"
"""What to do about many rows at one place."""


def judged(
    figures: Mapping[str, Any], *, same_rows: bool = False, collapsed: str = COLLAPSED
) -> tuple[list[str], list[str]]:
    """Warnings, and notes, of the figures of :func:`bigembed.quality.neighborhoods.preserved`.

    A warning each for: constant coordinates; many rows at one place; coordinates *unrelated* to the rows (no figure
    more than 4 standard errors above its value for shuffled coordinates; where more than a tenth of the sampled rows
    have ties at the k-th neighbor, the triplets alone are asked); trustworthiness, and continuity, below .8. A note
    for a column with more than 99 % of the variance, and for duplicated rows.

    ``same_rows``: the coordinates are known to belong to these rows in this order, so that is not asked. ``collapsed``:
    what to do about many rows at one place.
    """
    constant = figures["coordinates"]["constant"]
    if constant == figures["n_coordinates"]:
        return [
            f"All {figures['n']:,} rows have the same coordinates: they show nothing. Look at what made them"
        ], _notes(figures)
    m = figures["n_coordinates"]
    nothing = f"{constant} of the {m} coordinates are the same for all rows: they show nothing. Leave them out"
    warnings = [nothing] if constant else []
    crowd = figures["coordinates"]["same_place"]
    if crowd - figures["rows"]["same_place"] > SAME_PLACE:
        warnings.append(
            f"{_percent(crowd)} of the rows lie at exactly the same place as {figures['n_neighbors']} others or more, "
            "though the rows themselves differ: the map collapses them, and which are neighbors is decided by the row "
            f"number. {collapsed}"
        )
    if not same_rows and unrelated(figures):
        warnings.append(_unrelated(figures))
        return warnings, _notes(figures)
    for name, what in (
        ("trustworthiness", "rows that are neighbors on the map are often far apart in the data, so do not read "
         "closeness or groups from it"),
        ("continuity", "rows that are neighbors in the data are often far apart on the map, so do not read gaps or "
         "separate groups from it"),
    ):  # fmt: skip
        if figures[name]["value"] < FAITHFUL:
            warnings.append(
                f"{name.capitalize()} is {said(figures[name])}, below {FAITHFUL}: {what}. Take more coordinates, or "
                "another method"
            )
    return warnings, _notes(figures)


def few_carriers(figures: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of the coordinates that are drawn, which are carried by few rows, by how many, and by what share of all."""
    found = figures.get("coordinates", {})
    names = "carried_by_few", "rows_above_a_tenth", "participation"
    return {name: found[name][:LOOKED_AT] for name in names if name in found}


def unrelated(figures: Mapping[str, Any]) -> bool:
    """Whether coordinates are like shuffled ones: no figure is :data:`CHANCE` standard errors above them."""
    tied = max(figures["rows"]["tied"], figures["coordinates"]["tied"]) > TIED
    return all(figures[name]["above_chance"] <= CHANCE for name in (["triplets"] if tied else NAMES))


def said(figure: Mapping[str, float]) -> str:
    """A figure with its standard error.

    >>> said({"value": 0.81234, "standard_error": 0.0123}), said({"value": 1.0, "standard_error": 0.0})
    ('0.812 ± 0.012', '1.000')
    """
    value, error = figure["value"], figure["standard_error"]
    digits = 3 if min(value, 1 - value) >= 0.01 or value in (0, 1) else 5
    return f"{value:.{digits}f}" + (f" ± {error:.{digits}f}" if error > 0 else "")


def _unrelated(figures: Mapping[str, Any]) -> str:
    found = ", ".join(
        f"{text} {said(figures[name])} (shuffled {figures[name]['chance']:.3g})" for name, text in NAMES.items()
    )
    return (
        f"The coordinates look unrelated to the rows, as if shuffled: {found}; none is more than {CHANCE:g} standard "
        "errors above shuffled coordinates. Check that coordinate i belongs to row i (nothing sorted, shuffled or "
        "left out in between) and that they were made from these rows"
    )


def _notes(figures: Mapping[str, Any]) -> list[str]:
    notes = []
    for name, width, what in (
        ("rows", figures["d"], "column"),
        ("coordinates", figures["n_coordinates"], "coordinate"),
    ):
        found = figures[name]
        if width > 1 and found.get("share", 0.0) > ONE_COLUMN:  # (given distances have no columns)
            notes.append(
                f"{what.capitalize()} {found['column']} (from 0) holds {100 * found['share']:.4g} % of the variance of "
                f"the {name}, so it decides nearly all distances between them. If that is a matter of units, bring "
                f"the {what}s to one scale (for example unit variance) and certify again"
            )
    if (crowd := figures["rows"]["same_place"]) > 0:
        notes.append(
            f"{_percent(crowd)} of the rows have {figures['n_neighbors']} exact duplicates or more: which of them are "
            "neighbors is decided by the row number"
        )
    return notes


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
