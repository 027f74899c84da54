"""Every stage publishes the arrays that it declares, and no others: memory and disk are planned from those."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.estimator.fitting import write_output
from bigembed.estimator.saving import saved_arrays
from bigembed.stages import stage as stages
from bigembed.stages.cost import ArraySpec
from tests.cases import CASES, FEW_ROWS, by_default

NARROWER = {"indices/*": ("uint16",)}
"""Dtypes that arrays may have for the declared one, which takes the most: columns, of blocks that have few of them."""
FEW = 4_000
"""Numbers of an array that a stage may leave uncounted."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> dict[str, stages.Stage]:
    """The stages that ran, by their names."""
    found: dict[str, stages.Stage] = {}
    run_stage = stages._run_stage

    def recorded(stage: stages.Stage, *others: Any) -> None:
        found[stage.name] = stage
        run_stage(stage, *others)

    monkeypatch.setattr(stages, "_run_stage", recorded)
    return found


def published(folder: Path) -> dict[str, list[tuple[tuple[int, ...], str]]]:
    """Shapes and dtypes of the arrays in a folder, by the name that a declaration gives them."""
    found = defaultdict(list)
    for file in sorted(folder.rglob("zarr.json")):
        meta = json.loads(file.read_text())
        if meta["node_type"] == "array":
            name = re.sub(r"(?<=/)\d+$", "*", file.parent.relative_to(folder).as_posix())
            found[name].append((tuple(meta["shape"]), meta["data_type"]))
    return found


def differences(stage: stages.Stage, folder: Path, guessed: bool = False) -> Iterator[str]:
    """What a stage published otherwise than it had declared; ``guessed``: its plan has to guess how many edges."""
    declared: dict[str, ArraySpec] = {array.name: array for array in stage.cost.arrays}
    for name, pieces in published(folder).items():
        if name not in declared:
            yield f"{stage.name}/{name} is not declared"
            continue
        array = declared[name]
        if wrong := {dtype for _, dtype in pieces} - {str(np.dtype(array.dtype)), *NARROWER.get(name, ())}:
            yield f"{stage.name}/{name} is {wrong}, declared {array.dtype}"
        if {len(shape) == 1 for shape, _ in pieces} != {array.width is None}:
            yield f"{stage.name}/{name} has the shapes {pieces}, declared {array}"
        most = array.rows * (1 if array.width is None else array.width)
        entries = sum(int(np.prod(shape)) for shape, _ in pieces)
        if not guessed and entries > (
            most + len(pieces) if array.rows else FEW
        ):  # (row pointers have one entry more than rows)
            yield f"{stage.name}/{name} has {entries} entries, declared {most}"


def check(fitted: Any, folder: Path, ran: dict[str, stages.Stage], guessed: bool = False) -> None:
    """All stages, those on demand too, published what they had declared."""
    write_output(fitted)
    assert ran
    wrong = [line for stage in ran.values() for line in differences(stage, folder / "stages" / stage.name, guessed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", by_default(CASES))
def test_the_stages_of_a_method_publish_what_they_declare(name: str, tmp_path: Path, ran: Any) -> None:
    case = CASES[name]
    check(case.fit(case.X(FEW_ROWS), workdir=str(tmp_path)), tmp_path, ran, guessed="radius" in case.parameters)
    assert all(stage.cost.disk == sum(array.nbytes for array in stage.cost.arrays) for stage in ran.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", by_default(CASES, only=("diffusion_map", "pca")))
def test_a_model_holds_the_arrays_that_are_planned_for_it(name: str, tmp_path: Path, ran: Any) -> None:
    case = CASES[name]
    fitted = case.fit(case.X(FEW_ROWS), workdir=str(tmp_path / "run"))
    write_output(fitted)
    fitted.save(tmp_path / "model")
    for stage in ran.values():
        planned = {array.name for array in saved_arrays(type(fitted), [stage])}
        there = {*published(tmp_path / "run" / "stages" / stage.name)}
        assert {*published(tmp_path / "model" / "stages" / stage.name)} == planned & there, stage.name
    if name == "diffusion_map":
        assert {*saved_arrays(type(fitted), [ran["graph"]])} < {*ran["graph"].cost.arrays}


DOUBLE = ("diffusion_map bridge", "diffusion_map radius", "isomap", "umap")
"""Methods whose rows are float64 as well: lists, a radius, bridges."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DOUBLE)
def test_graphs_of_double_precision_are_declared_so(name: str, tmp_path: Path, ran: Any) -> None:
    case = CASES[name]
    rows = case.X(FEW_ROWS).astype(np.float64)
    check(case.fit(rows, workdir=str(tmp_path)), tmp_path, ran, guessed="radius" in case.parameters)
    assert {array.dtype for array in ran["graph"].cost.arrays if array.name == "squared/*"} == {"float64"}


STEPS = {
    "clip": be.Clip(low=0, high=4),
    "clip, some columns": be.Clip(low=0, high=4, columns=[1]),
    "columns": be.Columns(columns=[0, 2]),
    "columns that have values": be.Columns(most_missing=0.5),
    "columns that vary": be.Columns(most_variable=3),
    "gower": be.GowerEncoder(columns=[0]),
    "log1p": be.Log1p(),
    "log1p, some columns": be.Log1p(columns=[0, 1]),
    "mark missing": be.MarkMissing([-1]),
    "missing, dropped": be.Missing(),
    "missing, filled": be.Missing(action="fill"),
    "mixed": be.MixedScaler(columns=[0, 1]),
    "normalizer": be.Normalizer(),
    "normalizer by totals": be.Normalizer(norm="total"),
    "one hot": be.OneHotEncoder(columns=[0]),
    "robust scaler": be.RobustScaler(),
    "robust scaler, some columns": be.RobustScaler(columns=[2]),
    "standard scaler": be.StandardScaler(),
    "standard scaler, some columns": be.StandardScaler(columns=[0, 2]),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_stages_of_a_step_publish_what_they_declare(name: str, tmp_path: Path, ran: Any) -> None:
    rows = np.round(CASES["pca"].X(FEW_ROWS))
    rows[0, 0] = np.nan if "missing" in name else 0
    check(type(STEPS[name])(**STEPS[name].get_params() | {"workdir": str(tmp_path)}).fit(rows), tmp_path, ran)


def test_an_array_that_is_not_declared_or_is_another_one_is_found(tmp_path: Path, ran: Any) -> None:
    fitted = be.PCA(n_components=2, workdir=str(tmp_path)).fit(CASES["pca"].X(FEW_ROWS))
    check(fitted, tmp_path, ran)
    solve, folder = ran["solve"], tmp_path / "stages" / "solve"
    found: dict[str, list[str]] = {}
    for what, arrays in {
        "gone": solve.cost.arrays[1:],
        "single": [replace(one, dtype="f4") for one in solve.cost.arrays],
        "flat": [replace(one, width=None) for one in solve.cost.arrays],
        "fewer": [replace(one, rows=one.rows / 2) for one in solve.cost.arrays],
    }.items():
        changed = replace(solve, cost=replace(solve.cost, arrays=tuple(arrays)))
        found[what] = list(differences(changed, folder))
    assert found["gone"] == ["solve/components is not declared"]
    assert all(found.values()), found
