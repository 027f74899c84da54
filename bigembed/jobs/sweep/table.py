"""A row for each point of a sweep: its parameters, how good its map is, what it cost; as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bigembed.jobs.report.figures import MEANING
from bigembed.store.storage.documents import write_json
from bigembed.store.storage.paths import AnyPath, put

NAME = "table"
SKIPPED = ("versions", "warnings", "input", "seed", "judgement", "drawn")
"""What of a certificate does not differ between points, or is said elsewhere."""


def outcome(fitted: Any, quality: Mapping[str, Any]) -> dict[str, Any]:
    """What came out: the figures of the map, eigenvalues (or explained variances), and the rest of the certificate.

    ``quality``: the figures against all rows, where those of the certificate are of some.
    """
    certificate = fitted.certificate_
    figures = quality or certificate.get("judgement", {}).get("map", {})
    out: dict[str, Any] = {}
    for name in (name for name in MEANING if name in figures):
        out |= {name: figures[name]["value"], f"{name}_error": figures[name]["standard_error"]}
    out["warnings"] = " | ".join(text for texts in certificate.get("warnings", {}).values() for text in texts)
    out["n_components"] = fitted.n_components_
    values = getattr(fitted, "eigenvalues_", getattr(fitted, "explained_variance_", None))
    if values is not None:
        leading = np.asarray(values)
        out |= {f"eigenvalue_{i}": float(v) for i, v in enumerate(leading[0] if leading.ndim == 2 else leading, 1)}
    return out | dict(_flat({name: value for name, value in certificate.items() if name not in SKIPPED}))


def _flat(value: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Single values of nested tables, by dotted names; of the eigenpairs those of the first component."""
    for name, entry in value.items():
        if isinstance(entry, Mapping):
            first = dict(itertools.islice(entry.items(), 1)) if name == "eigenpairs" else entry
            yield from _flat(first, f"{prefix}{name}.")
        elif isinstance(entry, (bool, int, float, str, np.generic)):
            yield f"{prefix}{name}", entry.item() if isinstance(entry, np.generic) else entry


def unlike(table: Sequence[Mapping[str, Any]]) -> str:
    """That maps have different numbers of coordinates, where their figures stand beside each other; else nothing.

    >>> unlike([{"coordinates": "a", "n_components": 2}, {"coordinates": "b", "n_components": 10}, {"error": "no"}])
    'maps of 2 and of 10 coordinates: the more there are, the more neighbors they keep, so compare figures of as many'
    """
    counts = sorted({row["n_components"] for row in table if "coordinates" in row})
    if len(counts) < 2:
        return ""
    return (
        f"maps of {' and of '.join(map(str, counts))} coordinates: the more there are, the more neighbors they keep, "
        "so compare figures of as many"
    )


def compared(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows, where they are of different numbers of coordinates with a column ``compare`` that says so."""
    mixed = unlike(table)
    return [dict(row) | ({"compare": mixed if "coordinates" in row else ""} if mixed else {}) for row in table]


def write_table(root: AnyPath, table: Sequence[Mapping[str, Any]]) -> None:
    """``table.csv`` and ``table.json``: a reader sees the old one or the new one."""
    names = list(dict.fromkeys(name for row in table for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    put(root / f"{NAME}.csv", text.getvalue().encode())
    write_json(root / f"{NAME}.json", list(table))
