"""An estimator in a notebook: its parameters and, where it is fitted, what its certificate says first."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

SHOWN = ("solver", "passes", "converged", "seed")
STYLE = "text-align:left;padding:0 1em 0 0;font-weight:normal"


def html_of(estimator: Any) -> str:
    """A table that opens and closes, without scripts and without style sheets."""
    given, default = estimator.get_params(), type(estimator)().get_params()
    parameters = {
        name: f"<b>{_said(value)}</b>" if repr(value) != repr(default.get(name)) else _said(value)
        for name, value in given.items()
    }
    parts = [_table("parameters", parameters)]
    fitted = estimator.__sklearn_is_fitted__()
    if fitted:
        parts.append(_table("fit", {name: _said(value) for name, value in _fit(estimator).items()}))
    state = "fitted" if fitted else "not fitted"
    warnings = [text for texts in _certificate(estimator).get("warnings", {}).values() for text in texts]
    listed = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return (
        f"<details open><summary><b>{escape(type(estimator).__name__)}</b> <i>{state}</i></summary>"
        f"{''.join(parts)}{f'<ul>{listed}</ul>' if listed else ''}</details>"
    )


def _fit(estimator: Any) -> dict[str, Any]:
    certificate = _certificate(estimator)
    rows: Mapping[str, Any] = certificate.get("input", {})
    names = ("n_features_in_", "n_components_")
    return {
        **({"rows": rows["n"]} if "n" in rows else {}),
        **{name: getattr(estimator, name) for name in names if hasattr(estimator, name)},
        **{name: certificate[name] for name in SHOWN if name in certificate},
    }


def _certificate(estimator: Any) -> dict[str, Any]:
    return getattr(estimator, "certificate_", None) or {}


def _said(value: Any) -> str:
    text = repr(value)
    return escape(text if len(text) <= 80 else f"{text[:77]}...")


def _table(title: str, values: Mapping[str, str]) -> str:
    rows = "".join(f'<tr><th style="{STYLE}">{escape(name)}</th><td>{said}</td></tr>' for name, said in values.items())
    return f"<details open><summary>{title}</summary><table>{rows}</table></details>"
