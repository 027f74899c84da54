"""Every method, of whose run only what the map needs is kept: the same map and new rows, with less that stays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import DroppedError
from bigembed.estimator import retention_in
from bigembed.estimator.fitting import write_output
from bigembed.runtime import Event, using
from bigembed.stages.runs import Run
from tests.cases import CASES, WAYS, Case, by_default
from tests.changes import changes
from tests.conformance.digest import digests
from tests.digests import placed, published

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = 80
QUICK = ("diffusion_map", "isomap", "pca", "umap")
NAMES = by_default(CASES, only=QUICK)


def kept(case: Case, X: Any, folder: Path, keep: str = "map", **more: Any) -> tuple[Any, list[str]]:
    """A fit of which only the map stays, and the stages that were computed for it."""
    heard: list[str] = []

    def hear(event: Event) -> None:
        heard.extend([event.stage] if event.kind == "done" else [])

    with using(observer=hear):
        fitted = case.fit(X, workdir=str(folder), keep=keep, **more)
        write_output(fitted)
    return fitted, heard


@pytest.mark.parametrize("name", by_default(CASES, only=(*WAYS, "isomap", "phate", "umap weighed densities")))
def test_the_map_and_new_rows_are_those_of_a_whole_run(name: str, tmp_path: Path) -> None:
    case, X, new = CASES[name], CASES[name].X(N), CASES[name].new(N)
    whole = case.fit(X, workdir=str(tmp_path / "whole"))
    write_output(whole)
    fitted, _ = kept(case, X, tmp_path / "run")
    wanted, found = digests(whole, new), digests(fitted, new)
    assert found == {name: wanted[name] for name in found}
    assert {*wanted} - {*found} <= {"graph_", "dist_matrix_"}
    run, retention = Run(tmp_path / "run"), retention_in(fitted)
    for stage in retention.kept:
        there = run.manifest(stage)
        assert run.digest(stage) == Run(tmp_path / "whole").digest(stage)
        assert {path.name for path in (tmp_path / "run" / "stages" / stage).iterdir()} == {*there.arrays}
        for array in there.dropped:
            with pytest.raises(DroppedError, match="was dropped"):
                run.path(stage, array)
    fitted.save(tmp_path / "model")
    whole.save(tmp_path / "other")
    assert published(tmp_path / "model") == published(tmp_path / "other")
    assert kept(case, X, tmp_path / "run")[1] == []
    alone, heard = kept(case, X, tmp_path / "run", "coordinates")  # (all attributes are read)
    assert (heard, (np.asarray(alone.embedding_) == np.asarray(whole.embedding_)).all()) == ([], True)
    case.fit(X, workdir=str(tmp_path / "run"))  # (what was dropped is made anew)
    assert published(tmp_path / "run") == published(tmp_path / "whole")


@pytest.mark.parametrize("name", by_default(CASES, only=("diffusion_map", "landmark_mds", "pca", "umap")))
def test_the_map_alone_is_that_of_a_whole_run(name: str, tmp_path: Path) -> None:
    case, X = CASES[name], CASES[name].X(N)
    whole = case.fit(X, workdir=str(tmp_path / "whole"))
    write_output(whole)
    fitted, _ = kept(case, X, tmp_path / "run", "coordinates")
    assert (np.asarray(fitted.embedding_) == np.asarray(whole.embedding_)).all()
    assert str(fitted.certificate_) == str(whole.certificate_)
    placing = placed(fitted)
    assert placing in ("DroppedError", placed(whole))  # (as where a few vectors place new rows)
    assert name not in QUICK or (placing == "DroppedError") == (name != "pca")
    if placing == "DroppedError":
        for keep in (lambda: fitted.save(tmp_path / "model"), lambda: pickle.dumps(fitted)):
            with pytest.raises(DroppedError, match="for new rows"):
                keep()
        assert not (tmp_path / "model").exists()
    assert kept(case, X, tmp_path / "run", "coordinates")[1] == []
    again, _ = kept(case, X, tmp_path / "run")  # (what new rows need is made anew)
    assert placed(again) == placed(whole)


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_parameter_makes_anew_what_it_needs(name: str, tmp_path: Path) -> None:
    case, X = CASES[name], CASES[name].X(N)
    kept(case, X, tmp_path / "run")
    tried = [(parameter, value) for parameter, value in changes(case) if parameter not in ("recall", "random_state")]
    done = 0
    for parameter, value in tried[:: max(1, len(tried) // 3)]:
        try:
            whole = case.fit(X, workdir=str(tmp_path / parameter), **{parameter: value})
        except (be.errors.BigembedError, ValueError, TypeError):
            continue
        fitted, _ = kept(case, X, tmp_path / "run", **{parameter: value})
        assert (np.asarray(fitted.embedding_) == np.asarray(whole.embedding_)).all()
        assert placed(fitted) == placed(whole)
        done += 1
    assert done or not tried
