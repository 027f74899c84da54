"""Rows condensed to cells (planned, refused if too large, resumed), and then placed on the map of the cells."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigembed import store
from bigembed.errors import BigembedError, MapWarning
from bigembed.estimator import extension_of, method_parameters, reporting, transform
from bigembed.estimator.extension import Extension
from bigembed.jobs.condensed_input import PLACED, CondensedInput
from bigembed.jobs.inputs import Input, find_rows
from bigembed.jobs.places import ClusterTable, Place
from bigembed.jobs.places.cluster import KINDS, choose, known_place
from bigembed.jobs.planning import rates
from bigembed.jobs.planning.plan import Plan, input_costs
from bigembed.jobs.planning.resources import remains, resources_of
from bigembed.jobs.row_ids import copy_ids
from bigembed.jobs.scene import ABOUT, made_by
from bigembed.jobs.session import copied, session, working
from bigembed.jobs.watching import RunOptions, logs, status
from bigembed.jobs.watching.logs import plain
from bigembed.maps import method
from bigembed.maps.walk.extension import WalkModel, grouping
from bigembed.neighbors.condense import Condensing, condense_stages
from bigembed.neighbors.condensed import Condensed, checked_condensing
from bigembed.neighbors.given.query import along_graph
from bigembed.neighbors.query import Index
from bigembed.quality.certify import certify
from bigembed.rows.formats.copying import aligned_path, link
from bigembed.rows.reader import Choice
from bigembed.runtime import silent, using
from bigembed.runtime.executors import LocalPool
from bigembed.stages.reuse import outdated
from bigembed.stages.runs import Run, run_at
from bigembed.stages.stage import keeping, run_stages
from bigembed.store import arrays, attributes, files


def condense(
    source: store.PathLike,
    out: store.PathLike,
    asked: Mapping[str, Any],
    table: ClusterTable | None = None,
    options: RunOptions | None = None,
    choice: Choice | None = None,
    aligned: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Condense the rows at ``source`` into a new folder ``out``. Returns what was done.

    ``asked``: ``rows`` or ``radius``, ``metric``, ``cell`` and ``seed``. ``aligned``: ``weights``, by their path or
    their name in ``source``. A stopped one goes on by the same call. Raises what
    :func:`~bigembed.neighbors.condensed.condense` raises, and :class:`PlanError`, :class:`LockedError`,
    :class:`InterruptedRun`.
    """
    table, began, metric = table or ClusterTable(), time.perf_counter(), asked["metric"]
    what = checked_condensing(**asked)
    with session(out, options, "condense") as command:
        root = store.at(out).absolute()
        store.require_apart(source, root)
        rows = _rows(source, root, choice, aligned)
        kind, prepared = choose(table, rows.shape, rows.nbytes), None
        if KINDS[kind].planned:
            prepared = _prepared(rows, root, table, what, metric)
            prepared.refuse()
        run = Run(root)
        with (
            keeping(run) as lock,
            command.reported(lock.owner, root / status.NAME, root / logs.NAME) as reporter,
            working(
                table,
                kind,
                reporter,
                lambda place: _Planned(prepared or _prepared(rows, root, table, what, metric, place)),
            ) as (place, _),
        ):
            place.prove_access(root, None)
            rows = copied(rows, reporter)
            place.prove_access(root, str(rows.path))
            stages = condense_stages(rows.source, metric, what)
            run_stages(stages, run, of=stages)
        found = Condensed(run)
    return {
        "input": str(source),
        "output": str(out),
        **found.totals,
        "metric": found.metric,
        "seconds": round(time.perf_counter() - began, 3),
        "measured": reporter.measured,
        "lines": found.lines(),
    }


@dataclass(frozen=True)
class _Planned:
    """What the command works on: its plan."""

    plan: Plan


def plan_condensing(
    source: store.PathLike,
    out: store.PathLike,
    asked: Mapping[str, Any],
    table: ClusterTable | None = None,
    choice: Choice | None = None,
    aligned: Mapping[str, str] | None = None,
) -> Plan:
    """Return what :func:`condense` would read, hold and write. Nothing is written."""
    table, root = table or ClusterTable(), store.at(out).absolute()
    what = checked_condensing(**asked)
    rows = _rows(source, root, choice, aligned)
    with known_place(table) as place:
        return _prepared(rows, root, table, what, asked["metric"], place)


def _rows(
    source: store.PathLike, root: store.AnyPath, choice: Choice | None, aligned: Mapping[str, str] | None
) -> Input:
    given = dict(aligned or {})
    chosen = replace(choice or Choice(), aligned=tuple(given.values()))
    copy = store.at(f"{root.with_suffix('')}-input.zarr")
    return find_rows(store.at(source).absolute(), copy, chosen, given, Path.cwd(), lambda: False)


def _prepared(
    rows: Input, root: store.AnyPath, table: ClusterTable, what: Condensing, metric: str, place: Place | None = None
) -> Plan:
    """The plan of a condensation."""
    stages, folder = condense_stages(rows.source, metric, what), store.nearest_folder(root.parent)
    where = resources_of(table, rows.shape, rows.nbytes, place, False, True, loading=rows.loading)
    run = run_at(root)
    why = outdated(stages, run)
    there = tuple(stage.name for stage in stages if stage.name not in why)
    costs = (*input_costs(rows), *((stage.name, stage.cost) for stage in stages))
    left = remains([] if run.temporary else [run], None)
    given = str(rows.path), str(root), rows.shape, str(rows.dtype), where, costs, there
    return Plan(*given, store.free_bytes(folder), rates(folder), remains=left, folder="OUT")


# ----------------------------------------------------------------------------------------------------------- placing
# All rows of a job that condenses, placed on the map of its cells, and how far that map is one of the rows.

KEY = "bigembed_placed"
COMPARED = 4_000
"""Rows of which a map is made without condensing."""
WIDE = 1.0
"""Squared radius of the cells over the scale of the kernel from which on the map may be one of the cells alone."""
APART = 0.2
"""Gap behind the last eigenvalue, over 1 − λ of that, from which on a map of fewer rows has the same coordinates."""
OTHER = 0.5
"""Sine of the largest angle between the coordinates and those of that map, from which on they are others."""
LOST = 0.75
"""Neighbors kept, as a share of those that a map of sampled rows keeps, below which the cells are too wide."""


def place_rows(rows: CondensedInput, fitted: Any, run: Run, dtype: str) -> store.AnyPath:
    """Write the coordinates of all rows, unless they are there, placed by these cells on this map."""
    given, out = rows.all_rows, run.root / PLACED
    vectors = {} if given.ids is None else {"ids": given.ids}
    key = files.digest_of([run.fingerprint(), given.source.fingerprint(), dtype, sorted(map(str, vectors.values()))])
    if store.published(out):
        if (attributes.attributes_of(out) or {}).get(KEY) == key:
            return out
        store.remove(out)
    if "ids" in vectors:
        place = aligned_path(out, "ids")
        store.remove(place)
        copy_ids(vectors["ids"], place, {"of": str(out)})
    extension = quick_extension(extension_of(fitted), run)
    source = transform.through_steps(fitted, replace(given.source, aligned={}), extension)
    stage = transform.written_coordinates(source, replace(extension, dtype=dtype), run)
    made = made_by(type(fitted).registered, int(fitted.n_components_), method_parameters(fitted))
    transform.run_to(stage, out, run, {ABOUT: plain(made), KEY: key, **link(out, vectors)})
    return out


def quick_extension(extension: Extension, run: Run) -> Extension:
    """The extension of a map on a graph with the edges of new rows along that graph; any other as it is."""
    model = extension.model
    if not isinstance(getattr(model, "index", None), Index):
        return extension
    cut = getattr(getattr(model, "bandwidth", None), "within", False)
    quick = replace(model, index=along_graph(model.index, run, model.search if cut else ""))
    together = grouping(quick) if isinstance(quick, WalkModel) else extension.grouping
    return replace(extension, model=quick, grouping=together)


# ------------------------------------------------------------------------------------------------------- judgement


def judge_condensing(rows: CondensedInput, fitted: Any, placed: store.AnyPath | None) -> dict[str, Any]:
    """Put into the certificate, and return, what condensing has done to a map: figures, and warnings of doubtful ones.

    They compare the radius of the cells with the scale of the kernel, and the places of sampled rows with a map that is
    fitted to these rows alone.
    """
    assert rows.home is not None
    totals = Condensed.open(rows.home).totals
    found: dict[str, Any] = {name: totals[name] for name in ("n", "cells", "rms_radius", "widest", "within_share")}
    scale = scale_of(fitted.certificate_)
    if scale:
        found["radius_over_scale"] = totals["rms_radius"] ** 2 / scale
    if placed is not None:
        found |= compared_with_sample(rows, fitted, placed)
    found["warnings"] = doubts(found)
    for text in found["warnings"]:
        reporting.warn(text, MapWarning)
    fitted.certificate_["condense"] = found
    fitted.certificate_.setdefault("warnings", {}).setdefault("map", []).extend(found["warnings"])
    return found


def scale_of(certificate: Mapping[str, Any]) -> float | None:
    """The usual squared scale of a kernel exp(−r²/scale); None where the map has none.

    >>> scale_of({"bandwidth": {"epsilon": 0.5, "kernel": "adaptive", "median_kth": 3.0}})
    1.5
    """
    known = certificate.get("bandwidth")
    if not known:
        return None
    usual = 1.0 if known.get("kernel", "fixed") == "fixed" else known["median_kth"]
    return float(known["epsilon"] * usual) or None


def doubts(found: Mapping[str, Any]) -> list[str]:
    """Sentences on figures of a condensation that make its map doubtful."""
    advice = "Take more cells ([condense] rows), or a smaller radius"
    out = []
    if (ratio := found.get("radius_over_scale", 0.0)) > WIDE:
        out.append(
            f"the cells are wide beside the kernel: their squared radius is {ratio:.2g} of its scale, and the map may "
            f"be one of the cells more than of the rows. {advice}"
        )
    if found.get("comparable") and found["kept"] < LOST * found["kept_without"] - 2 * found["kept_error"]:
        out.append(
            f"rows placed on the map of the cells keep {found['kept']:.2f} of their neighbors among sampled rows, and "
            f"a map of these without condensing {found['kept_without']:.2f}. {advice}"
        )
    if found.get("comparable") and found.get("angle", 0.0) > OTHER:
        out.append(
            f"the coordinates span another space than those of a map of {found['compared']:,} sampled rows without "
            f"condensing (sine of the largest angle {found['angle']:.2f}). {advice}"
        )
    return out


def compared_with_sample(rows: CondensedInput, fitted: Any, placed: store.AnyPath) -> dict[str, Any]:
    """Compare sampled rows as they were placed with a map of these rows alone: the neighbors that each keeps, and the
    sine of the largest angle between the subspaces of their coordinates.

    Coordinates that are no eigenvectors have no angle: two descents end in different maps in any case. Empty where
    there are too few rows, or no map of them can be made.
    """
    assert rows.home is not None
    stage = Run(rows.home)
    sample, ids = (
        arrays.read_array(stage.path("survey", "sample")),
        arrays.read_array(stage.path("survey", "sample_ids")),
    )
    chosen = np.unique(np.linspace(0, len(ids) - 1, COMPARED).astype(np.int64))
    sample, there = sample[chosen], arrays.read_rows(placed, ids[chosen]).astype(np.float64)
    parameters = {**method_parameters(fitted), "n_components": int(fitted.n_components_)}
    with (
        warnings.catch_warnings(),
        suppress(BigembedError),
        using(executor=LocalPool(), observer=silent, progress=None, vector_memory=None),
    ):
        warnings.simplefilter("ignore")
        own = np.asarray(method(type(fitted).registered)(**parameters).fit(sample).embedding_, np.float64)
        asked: Any = {"metric": rows.metric, "samples": min(1_000, len(sample))}
        ours, theirs = (certify(sample, one, **asked).figures["preservation"] for one in (there, own))
        found = {
            "compared": len(sample),
            "kept": ours["value"],
            "kept_error": ours["standard_error"] or 0.0,
            "kept_without": theirs["value"],
            "comparable": is_determined(fitted.certificate_),
        }
        descended = {"eigenpairs", "eigenvalues", "gap"}.isdisjoint(fitted.certificate_)
        return found if descended else found | {"angle": subspace_angle(there, own)}
    return {}


def is_determined(certificate: Mapping[str, Any]) -> bool:
    """Whether the last coordinate is far enough from the next one that a map of fewer rows has the same ones.

    >>> pair = {"eigenvalues": [0.9, 0.8], "gap": 0.01}
    >>> is_determined({"eigenpairs": {"0": pair}}), is_determined({"eigenpairs": {"0": {**pair, "gap": 0.1}}})
    (False, True)
    """
    pairs = certificate.get("eigenpairs", {}).values()
    return all(one["gap"] >= APART * (1 - one["eigenvalues"][-1]) for one in pairs if one.get("eigenvalues"))


def subspace_angle(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The sine of the largest angle between the spans of the centered columns of two maps of the same rows.

    >>> subspace_angle(np.array([[1.0, 0], [-1, 0], [0, 1]]), np.array([[0.0, 2], [0, -2], [3, 0]]))
    0.0
    """
    first, second = (np.linalg.qr(one - one.mean(axis=0))[0] for one in (a, b))
    rest = second - first @ (first.T @ second)
    return round(min(1.0, float(np.linalg.norm(rest, 2))), 12)
