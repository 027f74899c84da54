"""The certificate: how far each number of a result can be trusted, gathered from its stages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bigembed.stages import Run

PACKAGES = ("bigembed", "dask", "numpy", "scipy", "zarr", "numba")
FLAT = 10.0
"""ε over the median squared distance to the k-th neighbor beyond which the graph cuts the kernel off."""


def certificate(estimator: Any, run: Run) -> dict[str, Any]:
    """Residuals, gaps, recall, components, bandwidth, passes, versions, and every warning."""
    solve, components = run.results("solve"), run.results("components")
    out: dict[str, Any] = {
        "eigenpairs": solve["solved"],
        "converged": solve["converged"],
        "passes": solve["passes"],
        "bytes_moved": solve["bytes_moved"],
        "components": components["components"],
        "component_sizes": components["sizes"][:20],
        "filled_rows": run.results("coordinates")["filled_rows"],
        "t": estimator.t_,
        "seed": run.manifest("solve").parameters["seed"],
        "versions": versions(),
    }
    if run.has("bandwidth"):
        out["bandwidth"] = run.results("bandwidth")
    if run.has("recall"):
        out["recall"] = run.results("recall")
    if run.has("survey"):
        survey = run.results("survey")
        out["input"] = {name: survey[name] for name in ("n", "d", "dtype", "metric", "content", "constant_columns")}
    out["warnings"] = _warnings(out, estimator, run)
    return out


def _warnings(found: dict[str, Any], estimator: Any, run: Run) -> dict[str, list[str]]:
    solved = found["eigenpairs"]
    convergence = [
        f"component {c}: the eigensolver stopped ({s['reason']}) with residuals up to "
        f"{max(s['residuals'], default=0):.2g} after {s['passes']} passes. {s['advice']}"
        for c, s in solved.items()
        if not s["converged"]
    ]
    degenerate = [note] if (note := run.results("coordinates")["note"]) else []
    scale = found.get("bandwidth")
    fixed = estimator.n_neighbors is not None and estimator.bandwidth == "fixed"
    if scale and fixed and scale["epsilon"] > FLAT * scale["median_kth"] > 0:
        times = scale["epsilon"] / scale["median_kth"]
        degenerate.append(
            f"epsilon={scale['epsilon']:.4g} is {times:.0f} times the median squared distance to the k-th neighbor: "
            "the graph cuts the kernel off where it is still near 1. Take a smaller epsilon, more neighbors, or "
            "n_neighbors=None"
        )
    return {
        "convergence": convergence,
        "recall": recall_warnings(found),
        "components": components_warnings(found, run.manifest("coordinates").parameters["policy"]),
        "degenerate": degenerate,
    }


def recall_warnings(found: dict[str, Any]) -> list[str]:
    """Of a certificate with ``recall``: that it is below its target."""
    measured = found.get("recall")
    if not measured or measured["recall"] >= measured["target"]:
        return []
    return [
        f"recall of the neighbor graph is {measured['recall']:.4f} ± {measured['standard_error']:.4f}, "
        f"below the target {measured['target']}. {measured.get('advice', '')}"
    ]


def components_warnings(found: dict[str, Any], policy: str) -> list[str]:
    """Of a certificate with ``components`` and ``component_sizes``: that the graph was not connected."""
    if found["components"] <= 1:
        return []
    return [
        f"the graph has {found['components']} components, the largest of "
        f"{found['component_sizes'][0]} rows; components={policy!r} was applied"
    ]


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
