"""``algorithm="auto"`` takes what fits: cells where NN-descent does not, and plan, certificate and a warning say so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bigembed.errors import BigembedWarning, InterruptedRun
from bigembed.jobs.job import JobSpec
from bigembed.jobs.places.place import TERMINATE
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.sweep.course import plan_sweep
from bigembed.jobs.sweep.run import sweep
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.neighbors import graph_stages, nn_descent
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes as shortlist
from bigembed.neighbors.search.recall import AUTO, WITHOUT_DESCENT
from bigembed.rows.opening import open_array
from bigembed.stages.runs import Run

ROWS = np.random.default_rng(0).normal(size=(1000, 14)).astype(np.float32)


@pytest.fixture(autouse=True)
def few_cells(small_blocks, monkeypatch):
    """Small blocks, and shortlists that hold a small part of the cells, as those of many rows do."""
    for module in (shortlist, graph_stages):
        monkeypatch.setattr(module, "SHORTLIST", 3)
    monkeypatch.setattr(expected_recall, "LONGER", (3,))
    for name in ("SEED_PROBES", "WALK_PROBES", "SEEDS_BY_PAIRS"):
        monkeypatch.setattr(nn_descent, name, 1)


@pytest.fixture
def written(tmp_path):
    """A function that writes a job whose target cells cannot reach, and reads it."""
    np.save(tmp_path / "rows.npy", ROWS)

    def write(name: str, algorithm: str = AUTO, recall: float = 0.95, more: str = "") -> JobSpec:
        file = tmp_path / f"{name}.toml"
        method = f'name = "diffusion_map"\nn_neighbors = 8\nrecall = {recall}\nalgorithm = "{algorithm}"\n'
        file.write_text(f'[input]\npath = "rows.npy"\n[method]\n{method}{more}[output]\npath = "{name}.zarr"\n')
        return read_job(file)

    return write


@pytest.fixture
def little(written, monkeypatch):
    """A function that makes the memory of this machine too little for NN-descent, and enough for cells; or all of it
    again."""

    def worker(name):
        return make_plan(written(name, name)).peaks.worker

    monkeypatch.setattr("bigembed.jobs.planning.resources.imported_here", lambda picture: 100 << 20)
    few = int((worker("nn-descent") - 1) / TERMINATE)
    assert worker("cells") < TERMINATE * few

    def set_memory(whole: bool = False) -> None:
        monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 1 << 36 if whole else few)

    return set_memory


def ran(job, **given):
    """The record of the job, and what it warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", BigembedWarning)
        found = run_job(job, **given)
    return found, " ".join(str(one.message) for one in said)


def published(job):
    """The digest of every stage of a run."""
    run = Run(job.output_path)
    return {name: run.manifest(name).digest for name in run.published()}


def test_a_plan_takes_the_search_that_fits_and_says_so(written, little):
    little(whole=True)
    assert not make_plan(written("run")).without_descent
    little()
    plan = make_plan(written("run"))
    assert plan.problems() == []
    assert plan.without_descent
    assert plan.as_dict()["without_descent"]
    said = " ".join(plan.notes)
    assert "neighbors by cells: NN-descent, which algorithm='auto' takes" in said
    assert "with NN-descent a worker would hold" in said
    asked = make_plan(written("asked", "nn-descent"))  # (what is asked for is not replaced)
    assert asked.problems()
    assert asked.advice == ('[method] algorithm = "auto" would fit',)


def test_what_had_to_be_chosen_is_in_certificate_warning_and_key(written, little):
    job = written("run")
    little()
    found, said = ran(job)
    recall = found["certificate"]["recall"]
    assert (recall["algorithm"], recall["forced"]) == ("cells", True)
    assert "needs more memory than a worker may hold here" in recall["why"]
    assert recall["recall"] < recall["target"]
    assert "below the target" in said
    assert "Give workers more memory" in said
    assert Run(job.output_path).manifest("witness").parameters["algorithm"] == WITHOUT_DESCENT
    asked = written("asked", "cells")
    ran(asked)
    mine, others = (open_array(f"{one.output_path}/stages/coordinates/embedding")[:] for one in (job, asked))
    np.testing.assert_array_equal(np.asarray(mine), np.asarray(others))  # (as if cells were asked for)
    before = published(job)
    again, _ = ran(job)
    assert all(stage["reused"] for stage in again["stages"] if stage["name"] in before)
    assert published(job) == before
    little(whole=True)
    whole, _ = ran(job)
    assert whole["certificate"]["recall"]["algorithm"] == "nn-descent"
    fresh = written("fresh")
    ran(fresh)
    assert published(job) == published(fresh)
    little()
    assert ran(job)[0]["unchanged"]  # (what was found with more memory is not thrown away)


def test_a_target_that_cells_reach_is_no_choice_that_was_forced(written, little):
    job = written("run", recall=0.3)
    little()
    found, said = ran(job)
    assert "forced" not in found["certificate"]["recall"]
    assert "NN-descent" not in said
    here = published(job)
    little(whole=True)
    assert ran(job)[0]["unchanged"]
    fresh = written("fresh", recall=0.3)
    ran(fresh)
    assert published(fresh) == here


def test_lists_that_are_there_are_gone_on_from_with_less_memory(written, little):
    job = written("run")

    def stop(event):
        if (event.kind, event.stage) == ("done", "search"):
            raise InterruptedRun("enough")

    little(whole=True)
    with pytest.raises(InterruptedRun), warnings.catch_warnings(action="ignore"):
        run_job(job, RunOptions(observer=stop))
    little()
    plan = make_plan(job)
    assert "search" in plan.published
    assert not plan.without_descent
    assert plan.problems() == []
    found, _ = ran(job)
    assert found["certificate"]["recall"]["algorithm"] == "nn-descent"


def test_a_sweep_takes_what_fits_too(written, little):
    job = written("sweep", more="[sweep]\nt = [1, 2]\n")
    little(whole=True)
    assert not [line for line in plan_sweep(job).notes if "neighbors by cells" in line]
    little()
    plan = plan_sweep(job)
    assert len([line for line in plan.notes if "neighbors by cells: NN-descent" in line]) == 2
    assert not plan.problems()
    with warnings.catch_warnings(action="ignore"):
        found = sweep(job)
    assert found["refused"] == []
    assert found["stages"] == len({*plan.stages}) - 1  # (one search serves both points)


def test_what_cannot_be_done_by_any_search_is_refused(written, little, monkeypatch):
    little()
    monkeypatch.setattr("bigembed.jobs.planning.resources.machine_memory", lambda: 1 << 20)
    plan = make_plan(written("run"))
    assert plan.problems()
    assert not [line for line in plan.notes if line.startswith("with NN-descent")]
