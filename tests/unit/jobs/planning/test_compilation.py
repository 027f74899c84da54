"""What a plan says of compilation: what is not kept of the stages to do; and methods that compile nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigembed
from bigembed.jobs.planning import notes as compilation
from bigembed.jobs.planning.machine import footprint
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.report.lines import plan_lines
from bigembed.jobs.spec import read_job
from bigembed.maps.registry import REGISTRY, method

PACKAGE = Path(bigembed.__file__).parent
BARE = [name for name in sorted(REGISTRY) if not method(name).compiles]
FIT = """
import sys, numpy as np
from bigembed.maps.registry import method
rows, kind = np.random.default_rng(0).random((6000, 5)), method(sys.argv[1])
parameters = {} if kind.__name__ == "LinearDiscriminantAnalysis" else {"n_components": 2}
model = kind(**parameters).fit(rows, np.arange(6000) % 3)
np.asarray(model.embedding_), model.transform(rows[:9])
sys.exit("numba" in sys.modules)
"""


@pytest.fixture
def job(tmp_path):
    """A function that writes a job on some rows, and reads it."""

    def write(name="diffusion_map", n=20_000, cluster="", d=5):
        np.save(tmp_path / "rows.npy", np.zeros((n, d), "f4"))
        text = f'[input]\npath = "rows.npy"\n[method]\nname = "{name}"\n[output]\npath = "run.zarr"\n{cluster}\n'
        (tmp_path / "job.toml").write_text(text)
        return read_job(tmp_path / "job.toml")

    return write


@pytest.fixture
def nothing_kept(tmp_path, monkeypatch):
    """As on a machine where nothing was compiled yet."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))


def test_a_plan_counts_with_compilation_where_nothing_is_kept(job, nothing_kept):
    plan = make_plan(job())
    assert plan.compilation == pytest.approx(sum(map(compilation.SECONDS.get, wanted("diffusion_map"))))
    assert plan.as_dict()["compilation"] == plan.compilation > 20
    assert any("more for compilation at first use" in line for line in plan_lines(plan))
    assert make_plan(job("umap")).compilation > 10
    assert make_plan(job("umap", n=1000)).compilation == pytest.approx(4.7)
    assert make_plan(job(n=1000)).compilation == make_plan(job("pca")).compilation == 0
    assert not any("compilation" in line for line in plan_lines(make_plan(job("pca"))))


def wanted(name):
    """Modules of a diffusion map."""
    stages = compilation.STAGES
    return {*compilation.SOLVE, *(stages[stage] for stage in stages if stage != "factors")}


def test_what_numba_keeps_is_left_out_until_the_source_changes(tmp_path, monkeypatch, nothing_kept):
    source = PACKAGE / "quality" / "compiled.py"
    kept = tmp_path / "kept" / "quality_0123"
    kept.mkdir(parents=True)
    index = kept / f"compiled.f-1.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    assert not compilation.is_kept("quality.compiled")
    index.touch()
    assert compilation.is_kept("quality.compiled")
    assert not compilation.is_kept("neighbors.search.compiled")  # (another file of that name)
    os.utime(index, (0, source.stat().st_mtime - 1))
    assert not compilation.is_kept("quality.compiled")


def test_the_table_names_modules_that_compile():
    named = {*compilation.SOLVE, *compilation.STAGES.values(), *compilation.METHODS.values()}
    assert named == {*compilation.SECONDS}
    for module in named:
        assert "njit(" in (PACKAGE.joinpath(*module.split(".")).with_suffix(".py")).read_text(), module


@pytest.mark.parametrize("name", BARE)
def test_workers_of_a_method_that_compiles_nothing_are_planned_without_numba(name, job):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIT, name], env=environment, check=False)
    assert done.returncode == 0
    if name == "pca":
        cluster = '[cluster]\nworkers = 2\nmemory = "1 GiB"'
        feet = footprint(False)
        assert make_plan(job(name, cluster=cluster)).resources.worker == feet.worker - feet.compiler
        assert make_plan(job(cluster=cluster)).resources.worker == feet.worker
        wide = make_plan(job(name, cluster=cluster, d=700))  # (whose map is judged by compiled functions)
        assert wide.resources.worker == feet.worker
