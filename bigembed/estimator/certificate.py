"""The certificate of a diffusion map, from its stages, and its warnings in sentences; some serve other methods, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import ceil, exp, floor, log10, sqrt
from typing import Any

from bigembed.estimator.graph_input import PLACING, SEPARATED, least_rows
from bigembed.neighbors.search import doubts
from bigembed.quality import COLLAPSED, LOOKED_AT, few_carriers, judged
from bigembed.quality.coordinates import FEW_ROWS
from bigembed.quality.figures import deciding, figure_of_columns
from bigembed.stages import Run

PACKAGES = ("bigembed", "dask", "numpy", "scipy", "zarr", "numba")
FLAT = 10.0
"""ε over the median squared distance to the k-th neighbor beyond which the graph cuts the kernel off."""
REPEATED = 0.02
"""Share of rows that repeat others (or nearly) up to which the certificate says so, and no warning does."""
WHOLE = 4.0
"""Least squared radius over ε: the kernel then ends at .018 (seed 000 §9.6 ends it at 4.5, .011)."""
EVEN = 3.0
"""Times the dimension by all neighbors that the one by the two nearest is of evenly spaced rows, at least (random ones:
.9 to 1.3)."""
UNSTABLE = 0.7
"""A coordinate with a smaller share of its variance in the map of half the neighbors is called unstable.

Six coordinates of iris, wine, breast cancer, digits, a swiss roll, a circle, a torus and Gaussian rows in 3 dimensions
have .93 and more; those of noise in 40 and 50 dimensions .27 to .66.
"""
HIDDEN = "A part whose inside no coordinate shows is one point: take more coordinates, or components='per-component'"


def certificate(run: Run, tol: float) -> dict[str, Any]:
    """Residuals, gaps, recall, components, bandwidth, passes, what each coordinate shows, and every warning."""
    solve, components = run.results("solve"), run.results("components")
    coordinates = run.results("coordinates")
    out: dict[str, Any] = {
        "eigenpairs": solve["solved"],
        "converged": solve["converged"],
        "passes": solve["passes"],
        "bytes_moved": solve["bytes_moved"],
        "components": components["components"],
        "component_sizes": components["sizes"][:20],
        "parts": coordinates.get("parts", components["components"]),
        "filled_rows": coordinates["filled_rows"],
        "t": coordinates["t"],
        "seed": run.parameters("solve")["seed"],
        "versions": versions(),
    }
    for stage in ("density", "bandwidth", "dimension", "recall", "judgement"):
        if run.has(stage):
            out[stage] = run.results(stage)
    if reason := coordinates.get("reason"):
        out["n_components"] = {"chosen": coordinates["n_components"], "reason": reason}
    if run.has("bridge"):
        out["bridges"] = run.results("bridge")
    if floored := run.results("kernel").get("floored", 0):
        out["near_duplicates"] = floored
    out |= input_of(run)
    out["warnings"] = _warnings(out, tol, run)
    return out


def input_of(run: Run) -> dict[str, Any]:
    """What is known of the rows that a graph was built of; of given distances it is less, of a user's graph nothing."""
    survey = run.results("survey") if run.has("survey") else {}
    known = ("n", "d", "dtype", "metric", "content", "constant_columns")
    return {"input": {name: survey[name] for name in known if name in survey}} if survey else {}


def _warnings(found: dict[str, Any], tol: float, run: Run) -> dict[str, list[str]]:
    policy = run.parameters("coordinates")["policy"]
    seen = found.get("judgement", {})
    return {
        "convergence": convergence_warnings(found, tol),
        "recall": recall_warnings(found),
        "components": components_warnings(found, policy) + island_warnings(found, run) + _bridges(found),
        "degenerate": _degenerate(found, run),
        "localized": _localized(seen, found) if seen else [],
        "separation": _separation(seen, found) if seen else [],
        "harmonic": harmonic_warnings(seen) if seen else [],
        "map": map_warnings(seen, policy == "per-component" and found["components"] > 1, found["parts"]),
    }


def convergence_warnings(found: dict[str, Any], tol: float) -> list[str]:
    """Of each component whose solve stopped early: which of the two rules was not met, and what to do."""
    out = []
    for c, s in found["eigenpairs"].items():
        if s["converged"]:
            continue
        if s["reason"] == "landmarks":
            out.append(f"component {c} of the graph: {s['advice']}")
            continue
        largest = max(s["residuals"], default=0.0)
        if largest <= tol:
            rule = (
                f"tol={tol:g} was met, but not the second rule: a residual of at most a tenth of 1 − λ, so that "
                "eigenvalues near 1 are separated. For coordinates with a larger 1 − λ that is enough; for the others"
            )
            advice = "ask for fewer components, raise n_neighbors, or lower tol"
        else:
            rule, advice = f"tol={tol:g} was not met.", s["advice"]
        out.append(
            f"component {c} of the graph: the eigensolver stopped ({s['reason']}) with residuals up to {largest:.2g} "
            f"after {s['passes']} passes. {rule} {advice}".rstrip()
        )
    return out


def _degenerate(found: dict[str, Any], run: Run) -> list[str]:
    out = [note] if (note := run.results("coordinates")["note"]) else []
    scale = found.get("bandwidth")
    if not scale:
        return out
    kernel, asked = run.results("kernel"), run.parameters("bandwidth")
    if "target" in run.parameters("kernel"):
        out += _evenly_spaced(found.get("dimension", {}))
    fixed = scale.get("kernel", "fixed") == "fixed" and not asked["complete"]
    if "radius" in scale:
        reach = scale["radius"] ** 2 / scale["epsilon"]
        if reach < WHOLE:
            out.append(
                f"radius={scale['radius']:.4g} ends the kernel where it is {exp(-reach):.2g}, not small: take a radius "
                f"of at least {sqrt(WHOLE * scale['epsilon']):.4g}, or a smaller epsilon"
            )
    elif fixed and scale["epsilon"] > FLAT * scale["median_kth"] > 0:
        times = scale["epsilon"] / scale["median_kth"]
        out.append(
            f"epsilon={scale['epsilon']:.4g} is {times:.0f} times the median squared distance to the k-th neighbor: "
            "the graph cuts the kernel off where it is still near 1. Take a smaller epsilon, more neighbors, or "
            "n_neighbors=None"
        )
    floored = kernel.get("floored", 0)
    if floored > REPEATED * sum(kernel["rows"]):
        raised = "" if scale.get("kernel", "fixed") == "fixed" else " They have the usual scale."
        out.append(
            f"{_rows(floored)} {'has its' if floored == 1 else 'have their'} k nearest neighbors within 1 % of the "
            f"usual distance (rows that repeat, or nearly).{raised} Which of equal rows are neighbors is decided by "
            "their number. "
            "Drop repeated rows, or take more neighbors than the largest number of repetitions"
        )
    return out


def _evenly_spaced(dimension: dict[str, Any]) -> list[str]:
    """That the two nearest rows of most are equally far: rows of a grid, of which the limit of a walk is another."""
    near, many = (dimension.get(name, {}).get("value") for name in ("two_nearest", "likelihood"))
    if not near or not many or near < EVEN * many:
        return []
    return [
        "the rows are evenly spaced (the nearest two of each are about equally far), and the operator that a target "
        "names is the limit of random rows: the dimension is estimated too large (give dimension), and "
        "generator_eigenvalues_ are too large by one factor, up to 1.8 with 6 neighbors, 1.4 with 10, 1.3 with 15. "
        "Their ratios are right. Take more neighbors (60 or more), or move the rows a little"
    ]


def recall_warnings(found: dict[str, Any]) -> list[str]:
    """Of a certificate with ``recall``: that it is below its target, or of a search that nothing else left room for."""
    return doubts(found["recall"]) if found.get("recall") else []


def components_warnings(found: dict[str, Any], policy: str) -> list[str]:
    """Of a certificate with ``components`` and ``component_sizes``: that the graph was not connected."""
    parts = found.get("parts", found["components"])
    if found["components"] <= 1 or policy == SEPARATED or (policy in PLACING and parts == 1):
        return []
    if policy not in PLACING:
        head = f"the graph has {found['components']} components, the largest of {found['component_sizes'][0]:,} rows; "
        if (filled := found.get("filled_rows", 0)) and policy == "largest":
            return [
                f"{head}the {_rows(filled)} of the others {'has' if filled == 1 else 'have'} the coordinates of the "
                "nearest row in it, as components='largest' asks; figures of the map leave them out. "
                f"{joining_advice(found)}; or components='auto', which shows the other components, too"
            ]
        return [f"{head}components={policy!r} was applied"]
    sizes = ", ".join(f"{size:,}" for size in found["component_sizes"][:parts][:10])
    return [
        f"the rows fall into {parts} parts that no neighbors join, of {sizes}{', …' if parts > 10 else ''} rows "
        "(labels_ names them). The first coordinates, at most half, separate the largest; each of the others shows "
        f"the inside of one part, and is 0 in the rest. {joining_advice(found)}; or "
        "components='per-component', 'bridge' (joined by their shortest edges) or 'largest'"
    ]


def joining_advice(found: dict[str, Any], instead: str = "; more coordinates") -> str:
    """What joins the parts of a graph, as far as the judgement found it, and what may be done ``instead``."""
    joined, radius = found.get("judgement", {}).get("joined"), found.get("bandwidth", {}).get("radius")
    if not joined:
        return f"Take more neighbors, so that the parts join{instead}"
    if radius is not None:
        return f"Take radius={_upwards(joined['radius'])}, which joins the parts{instead}"
    k, sizes = joined["n_neighbors"], found["component_sizes"][: joined["parts"]]
    if k > sizes[-1] / 2:
        more = ". Take more coordinates" if instead else ""
        return f"Only n_neighbors={k} would join them: they are groups of their own{more}"
    return f"Take n_neighbors={k}, which joins the parts{instead}"


def _upwards(value: float) -> str:
    """A number of four digits that is not less.

    >>> _upwards(1.23401), _upwards(250.0)
    ('1.235', '250')
    """
    unit = 10.0 ** (floor(log10(value)) - 3)
    return f"{ceil(value / unit - 1e-9) * unit:.4g}"


def island_warnings(found: dict[str, Any], run: Run) -> list[str]:
    coordinates, n = run.results("coordinates"), run.results("components").get("rows", 0)
    policy = run.parameters("coordinates")["policy"]
    if policy not in PLACING:
        return []
    islands = found["components"] - found["parts"]
    if unplaced := coordinates.get("unplaced_rows", 0):
        return [
            f"{unplaced:,} {'node' if unplaced == 1 else 'nodes'} in {islands} "
            f"{'island' if islands == 1 else 'islands'} (components of fewer than {least_rows(n)} nodes) "
            f"{'is' if unplaced == 1 else 'are'} at 0, the middle of the map; labels_ is −1 there. Without "
            "rows nothing says what they are near: join them to others, or leave them out"
        ]
    if not found["filled_rows"]:
        return []
    label = "" if policy == SEPARATED else "; labels_ is −1 there"
    return [
        f"{_rows(found['filled_rows'])} in {islands} {'island' if islands == 1 else 'islands'} (components of fewer "
        f"than {least_rows(n)} rows) {'has' if found['filled_rows'] == 1 else 'have'} the coordinates of the nearest "
        f"row outside{label}. The first: {_list(coordinates.get('first_filled', []))}. Look at them: "
        "they may be errors of measurement, or rows of another kind"
    ]


def _bridges(found: dict[str, Any]) -> list[str]:
    bridges = found.get("bridges", {})
    if not bridges.get("bridges"):
        return []
    count, longest = bridges["bridges"], bridges["longest"]
    usual = found.get("bandwidth", {}).get("median_kth", 0.0) ** 0.5
    times = f", {longest / usual:.3g} times the usual distance to the k-th neighbor" if usual > 0 else ""
    sizes = ", ".join(f"{size:,}" for size in bridges["sizes"][:10])
    return [
        f"{count} {'bridge joins' if count == 1 else 'bridges join'} "
        f"{bridges['components']} components of {sizes} rows; the longest is "
        f"{longest:.4g}{times}. The data have no neighbors there: how the parts lie to each other on the map is "
        "decided by single edges. Take more neighbors, or components='auto'"
    ]


def _localized(seen: dict[str, Any], found: dict[str, Any]) -> list[str]:
    fixed = found.get("bandwidth", {}).get("kernel") == "fixed"
    out = carried_warnings(seen, "take bandwidth='adaptive'" if fixed else "draw other coordinates")
    if near := _set(seen["near_one"]):
        out.append(
            f"{_coordinates([l + 1 for l in near])} {_is(near)} of parts that are all but cut off: 1 − λ is below what "
            "the solve resolves, and values inside a part mean nothing. "
            + ("Only bridges join them: take" if found.get("bridges", {}).get("bridges") else "Take")
            + " more neighbors, or leave these rows out"
        )
    degrees = seen.get("degrees")
    if degrees and degrees["below"]:
        out.append(
            f"{_rows(degrees['below'])} {'is' if degrees['below'] == 1 else 'are'} all but cut off: weights to "
            f"neighbors add up to less than {degrees['limit']} (the least: {degrees['smallest']:.2g}). The first: "
            f"{_list(degrees['first'][:5])}. "
            + ("Take bandwidth='adaptive' or a larger epsilon" if fixed else "Take more neighbors")
            + ", or leave these rows out"
        )
    return out


def _separation(seen: dict[str, Any], found: dict[str, Any]) -> list[str]:
    out = []
    by_landmarks = any("landmarks" in solved for solved in found["eigenpairs"].values())
    finer = "solver='exact' (or more landmarks)" if by_landmarks else "a smaller tol"
    for first, last in seen["groups"]:
        out.append(
            f"coordinates {first + 1}–{last + 1} may be turned among themselves: their eigenvalues lie closer together "
            "than they are resolved (sin θ may exceed .1). Read them together; distances over all of them are right. "
            f"Take {finer} to separate them, if they differ"
        )
    if seen["cut"]:
        out.append(
            "the eigenvalue of the last coordinate cannot be distinguished from the first one left out: another basis "
            f"would show something else. Ask for one component more or fewer, or for {finer}"
        )
    shares = seen.get("kept_by_half", [])
    if unstable := [l for l, share in enumerate(shares) if share < UNSTABLE]:
        kept = ", ".join(f"{shares[l]:.2f}" for l in unstable)
        out.append(
            f"{_coordinates([l + 1 for l in unstable])} {_is(unstable)} not found again with half of the neighbors "
            f"(share of the variance in that map: {kept}): what is seen hangs on single neighbors, as in noise. Take "
            "more neighbors, fewer coordinates, or reduce the dimension of the rows first (PCA)"
        )
    return out


def harmonic_warnings(seen: dict[str, Any]) -> list[str]:
    """Coordinates that are functions of earlier ones, of a map that is drawn: of more coordinates all are wanted."""
    again = [l + 1 for l in _set(seen["harmonic"])]
    if not again or len(seen["harmonic"]) > LOOKED_AT:
        return []
    new = [l + 1 for l, value in enumerate(seen["harmonic"]) if not value]
    left = ", ".join(f"{seen['harmonic_residual'][l - 1]:.2f}" for l in again[:5])
    return [
        f"{_coordinates(again)} {'is a function' if len(again) == 1 else 'are functions'} of earlier ones (harmonics; "
        f"local linear regression leaves {left} of them): they bend the map, and show little that is new. New "
        f"{_is(new)} {', '.join(map(str, new))}: draw {'that' if len(new) == 1 else 'those'}; if too few are left, "
        "raise n_components"
    ]


def carried_warnings(seen: dict[str, Any], remedy: str) -> list[str]:
    """Coordinates that few rows (or landmarks) carry, with the largest of these where they were looked for."""
    few = _set(seen.get("carried_by_few", ()))
    if not few:
        return []
    shares = ", ".join(f"{seen['participation'][l]:.2g}" for l in few)
    head = f"{_coordinates([l + 1 for l in few])} {_is(few)} carried by few rows"
    if "leading_rows" not in seen:
        return [
            f"{head} (participation {shares}): what is seen is these against all the others. Look at the rows with "
            f"the largest entries, and leave them out; or {remedy}"
        ]
    named = (seen["leading_rows"][l][: min(2, seen["rows_above_a_tenth"][l])] for l in few)
    leading = dict.fromkeys(row for rows in named for row in rows if row >= 0)
    counts = ", ".join(str(seen["rows_above_a_tenth"][l]) for l in few)
    more = any(seen["rows_above_a_tenth"][l] > FEW_ROWS for l in few)  # (repeated ones weigh as one place)
    return [
        f"{head}{', or by many of little weight' * more}: {counts} above a tenth of the largest entry, with "
        f"{shares} of the weight of all. What is seen is {_list(list(leading)[:6], 'rows')}"
        f"{' and others like them' * more} against all the others. Look at these rows, and leave them out, or {remedy}"
    ]


def map_warnings(seen: dict[str, Any], apart: bool = False, parts: int = 1) -> list[str]:
    """Of a judgement: that the map does not keep neighborhoods, or that one or two columns decide it.

    ``apart``: each component has its own coordinates, so that the map of all lays them over each other. ``parts``: as
    many share one set of coordinates.
    """
    out = []
    if "map" in seen and "unmeasured" not in seen["map"] and not apart:
        warnings, _ = judged(seen["map"], same_rows=True, collapsed=HIDDEN if parts > 1 else COLLAPSED)
        out += warnings
    width = seen.get("map", {}).get("d", 2)
    few, they_decide = deciding(figure_of_columns(seen), width, "column {} (from 0) of the rows")
    if few:
        out.append(
            f"{few} of their variance: {they_decide} nearly all distances. If that is a matter of units, scale the "
            "columns, for example to variance 1 (the step Standardize)"
        )
    return out


def spike_warnings(seen: dict[str, Any]) -> list[str]:
    """Of a judgement: coordinates that few of the compared rows carry, where nothing else judges them one by one."""
    return carried_warnings(few_carriers(seen.get("map", {})), "take another method, or scale the columns")


def judged_certificate(found: dict[str, Any], run: Run, unasked: Sequence[str] = ()) -> dict[str, Any]:
    """A certificate with the judgement of the map, where the method leaves that to what all have; which pair of
    coordinates to draw first; and without the warnings that are ``unasked`` of the method."""
    warnings: dict[str, list[str]] = dict(found.get("warnings", {}))
    if run.has("judgement") and "judgement" not in found:
        found = found | {"judgement": (seen := run.results("judgement"))}
        warnings["localized"] = warnings.get("localized") or spike_warnings(seen)
        warnings["map"] = map_warnings(seen)
    if run.has("solve") and (pair := pair_to_draw(found, run.results("solve").get("columns", ()))):
        found = found | {"drawn": pair}
    return found | {"warnings": {kind: said for kind, said in warnings.items() if kind not in unasked}}


def pair_to_draw(found: Mapping[str, Any], columns: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The pair of coordinates that shows most, from 0, and why; empty where that is the first.

    Of one part these are the first two that many rows carry and that are new; of several the first two of the inside of
    the largest part that has two, else one that tells parts apart and one of an inside. ``columns``: the part and
    number of the eigenvector of each, −1 of a contrast.
    """
    seen = found.get("judgement", {})
    one_by_one = seen if "carried_by_few" in seen else seen.get("map", {}).get("coordinates", {})
    share, few = one_by_one.get("participation", []), one_by_one.get("carried_by_few", [])
    again = seen.get("harmonic") or [False] * len(share)
    contrasts = [l for l, (_, index) in enumerate(columns) if index < 0 and l < len(share)]
    good = [l for l in range(len(share)) if not (few[l] or again[l] or l in contrasts)]
    if contrasts and good:
        inside = {l: columns[l][0] for l in good}
        several = [part for part in inside.values() if list(inside.values()).count(part) > 1]
        own = [l for l in good if several and inside[l] == min(several)]
        good = own or [contrasts[0], max(good, key=lambda l: share[l])]
    rest = [*contrasts, *(l for l in range(len(share)) if l not in good and l not in contrasts)]
    first = sorted([*good, *rest][:2])
    if len(share) < 3 or first == [0, 1]:
        return {}
    passed = range(first[1])
    reasons = [
        f"{_coordinates([l + 1 for l in which])} {_is(which)} {what}"
        for which, what in (
            ([l for l in passed if l in contrasts and l not in first], "the same all over each part"),
            ([l for l in passed if l not in contrasts and few[l]], "carried by few rows"),
            ([l for l in passed if l not in contrasts and again[l] and not few[l]], "made of earlier ones (harmonics)"),
            ([l for l in passed if l not in (*first, *contrasts) and not (few[l] or again[l])], "of other parts"),
        )
        if which
    ]
    if contrasts and not set(first) & set(contrasts):
        part = columns[first[0]][0]
        reasons.append(f"these two are the inside of part {part} of labels_, and all other rows are at 0")
    return {"pair": first, "why": "; ".join(reasons)}


def _set(flags: Sequence[bool]) -> list[int]:
    """Where flags are set."""
    return [at for at, flag in enumerate(flags) if flag]


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _is(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 else "are"


def _list(numbers: Sequence[int], what: str = "rows") -> str:
    return f"{what[:-1] if len(numbers) == 1 else what} {', '.join(map(str, numbers))}"


def _coordinates(numbers: Sequence[int]) -> str:
    return ("coordinate " if len(numbers) == 1 else "coordinates ") + ", ".join(map(str, numbers))


def versions() -> dict[str, str]:
    """Versions of the packages that decide the result."""
    return {package: _version(package) for package in PACKAGES}


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
