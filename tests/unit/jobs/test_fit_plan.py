"""``be.plan``: what a fit in Python takes is what its stages say, and nothing is computed or written to know it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from scipy import sparse

import bigembed as be
from bigembed.errors import InputError, InputTypeError, PlanError
from bigembed.jobs.planning.fit import _cost_here
from bigembed.jobs.planning.resources import Resources
from bigembed.runtime.executors import chosen_executor
from bigembed.stages import Cost
from tests.blocks import blocks_of
from tests.some import a_few

ROWS = np.random.default_rng(0).normal(size=(400, 6))
LABELS = np.arange(400) % 3


def lazy() -> Any:
    return da.from_array(ROWS, chunks=(90, 6)) + 0.0


def weights() -> Any:
    near = be.build_neighbor_graph(ROWS, 5).lists()
    edges = sparse.coo_matrix((np.ones(2000), (np.repeat(np.arange(400), 5), np.asarray(near[0]).ravel())), (400, 400))
    return ((edges + edges.T) > 0).astype(float).tocsr()


CASES = {
    "rows": (lambda **own: be.PCA(n_components=2, **own), lambda: ROWS, {}),
    "labels": (lambda **own: be.LinearDiscriminantAnalysis(**own), lambda: ROWS, {"y": LABELS}),
    "weights of rows": (lambda **own: be.PCA(n_components=2, **own), lambda: ROWS, {"sample_weight": LABELS + 1.0}),
    "a neighbor graph": (
        lambda **own: be.DiffusionMap(n_components=2, **own),
        lambda: be.build_neighbor_graph(ROWS, 9),
        {},
    ),
    "rows on a graph": (lambda **own: be.Isomap(n_landmarks=50, **own), lambda: ROWS, {}),
    "weights of a graph": (lambda **own: be.LaplacianEigenmaps(n_components=2, **own), weights, {}),
    "steps": (lambda **own: be.Pipeline([be.StandardScaler(), be.PCA(n_components=2)], **own), lambda: ROWS, {}),
    "lazy rows": (lambda **own: be.DiffusionMap(n_components=2, **own), lazy, {}),
    "lazy rows after steps": (lambda **own: be.Pipeline([be.Clip(low=-1.0), be.LandmarkMDS()], **own), lazy, {}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@a_few(5, "case", CASES)
def test_its_stages_are_those_that_a_fit_computes_and_uses_again(case, tmp_path, monkeypatch, nothing_written):
    make, rows, given = CASES[case]
    X = rows()
    monkeypatch.chdir(tmp_path)
    with nothing_written():
        found = be.plan(make(workdir="run"), X, **given)
    assert not (tmp_path / "run").exists()
    events: list[Any] = []
    estimator = make(workdir="run", callbacks=[events.append]).fit(X, **given)
    planned = [stage.name for stage in found.stages if stage.name != "input"]
    assert planned == list(dict.fromkeys(event.stage for event in events if event.kind == "done"))
    assert not any(stage.reused for stage in found.stages)
    assert found.problems == ()
    again = be.plan(estimator, X, **given)
    assert all(stage.reused for stage in again.stages if stage.name != "input")
    assert estimator.__sklearn_is_fitted__()
    assert again.seconds < found.seconds


WRITING = ("estimator.fitting.run_stages", "rows.input.write_dask", "rows.sparse.write_npy")


@pytest.fixture
def nothing_written():
    """A context in which no stage runs and no rows are copied."""

    @contextmanager
    def guard():
        with pytest.MonkeyPatch.context() as patch:
            for name in WRITING:
                patch.setattr(f"bigembed.{name}", lambda *given, name=name, **more: pytest.fail(f"{name} was called"))
            yield

    return guard


def test_it_reads_like_a_table_with_all_figures():
    found = be.plan(be.DiffusionMap(n_components=2), ROWS)
    text = repr(found)
    assert text.startswith("DiffusionMap of 400 × 6 float64, in this process")
    assert all(stage.name in text for stage in found.stages)
    assert [line.split(":")[0] for line in found.lines()[:3]] == ["memory", "disk", "time"]
    html = found._repr_html_()
    assert html.count("<tr>") == len(found.stages) + 1
    assert "memory: " in html
    assert "bigembed.plan(estimator, X)" in be.PCA()._repr_html_()
    assert "bigembed.plan(estimator, X)" not in be.PCA(n_components=1).fit(ROWS)._repr_html_()


class TestRefused:
    """What does not fit is said with what would, in words of Python, and ``refuse`` raises it as a job does."""

    def test_memory(self, monkeypatch):
        rows = da.zeros((300_000, 20), chunks=(50_000, 20))
        given = be.LandmarkMDS(n_components=2, n_landmarks=8000)
        plenty = be.plan(given, rows)
        plenty.refuse()
        less = be.plan(be.LandmarkMDS(n_components=2, n_landmarks=2000), rows).memory
        assert less < plenty.memory
        monkeypatch.setattr("bigembed.jobs.planning.fit.machine_memory", lambda: int(1.1 * less))
        found = be.plan(given, rows)
        assert "this process would hold" in found.problems[0]
        assert found.advice == ("n_landmarks=2000 would fit",)
        with pytest.raises(PlanError, match=r"refused; nothing was started(.|\n)*would hold(.|\n)*n_landmarks=2000"):
            found.refuse()
        assert "does not fit: this process would hold" in repr(found)

    @pytest.mark.parametrize(("free", "held"), [(4 << 30, 200), (400, 100), (256, 64), (20, 5), (16, 0)])
    def test_vectors_are_counted_as_far_as_they_will_be_in_memory(self, monkeypatch, free, held):
        """Of a quarter of what is free: all of them, or without the matrix at least a sixteenth, or none."""
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
        cost = Cost(memory=7, held=200, part=100 if free == 400 else 80)
        where = Resources("process", 1, None, 0, 0, 0)
        with dask.config.set(scheduler="threads"), chosen_executor() as executor:
            assert _cost_here(cost, where, executor, 1).held == held
            assert _cost_here(replace(cost, part=0), where, executor, 1).held == (200 if held == 200 else 0)

    def test_disk(self, monkeypatch, tmp_path):
        monkeypatch.setattr("bigembed.jobs.planning.fit.free_bytes", lambda folder: 1000)
        found = be.plan(be.DiffusionMap(n_components=2, workdir=tmp_path / "run"), ROWS)
        assert "put workdir on a larger disk" in found.problems[0]
        with pytest.raises(PlanError, match="larger disk"):
            found.refuse()

    def test_what_fit_refuses(self):
        with pytest.raises(InputError, match="n_neighbors"):
            be.plan(be.DiffusionMap(n_neighbors=0), ROWS)
        with pytest.raises(InputError, match="400"):
            be.plan(be.DiffusionMap(n_neighbors=400), ROWS)
        with pytest.raises(TypeError, match="sample_weights"):
            be.plan(be.PCA(), ROWS, sample_weights=LABELS)
        with pytest.raises(InputTypeError, match="an estimator of bigembed"):
            be.plan("pca", ROWS)


PEAK = """
import sys, numpy as np, bigembed as be
rows = np.random.default_rng(0).normal(size=(int(sys.argv[2]), 24)).astype("f4")
estimator = getattr(be, sys.argv[1])(n_components=2)
planned = be.plan(estimator, rows).memory
estimator.fit(rows).embedding_
line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(planned, int(line.split()[1]) << 10)
"""


@pytest.mark.parametrize(
    ("name", "n"), [pytest.param("PCA", 200_000, marks=pytest.mark.slow), ("DiffusionMap", 20_000)]
)
def test_memory_is_an_upper_bound(name, n):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PEAK, name, str(n)], capture_output=True, text=True, check=True
    )
    planned, measured = map(int, done.stdout.split())
    assert measured <= planned < 4 * measured


def counted_chunk(number: int, rows: int, loads: list[int]) -> Any:
    loads.append(number)
    return np.random.default_rng(number).normal(size=(rows, 4)).astype("f4")


def counted_rows(chunks: tuple[int, ...], loads: list[int]) -> Any:
    """A lazy array whose chunks are noted whenever one is computed."""
    load = dask.delayed(counted_chunk, pure=True)
    parts = [da.from_delayed(load(number, rows, loads), (rows, 4), "f4") for number, rows in enumerate(chunks)]
    return da.concatenate(parts)


@pytest.mark.parametrize(
    "chunks",
    [(250, 250, 250, 250), *(pytest.param(one, marks=pytest.mark.slow) for one in ((300, 300, 300, 100), (100,) * 10))],
)
def test_the_plan_says_how_often_lazy_chunks_are_computed_and_stored_rows_are_computed_once(chunks):
    with blocks_of(300), dask.config.set(scheduler="synchronous"):
        found = {}
        for persist in (None, "store"):
            loads: list[int] = []
            method = be.DiffusionMap(n_components=2, n_neighbors=8, persist=persist)
            [note] = [line for line in be.plan(method, counted_rows(chunks, loads)).notes if "lazy chunks" in line]
            assert loads == []
            found[persist] = np.asarray(method.fit(counted_rows(chunks, loads)).embedding_)
            if persist is None:
                assert f"the {len(chunks)} lazy chunks are computed {len(loads)} times at least, in 2 passes" in note
                assert len(loads) >= 2 * len(chunks)
            else:
                assert sorted(loads) == list(range(len(chunks)))
                assert f"the {len(chunks)} lazy chunks are computed once" in note
    assert found[None].tobytes() == found["store"].tobytes()


@a_few(1, "kind", ["dense", "sparse"])
def test_copies_of_lazy_rows_are_written_once_and_go_with_the_next_rows(tmp_path, kind):
    made: list[int] = []

    def of_seed(block: Any, seed: int) -> Any:
        made.append(1)
        rows = np.random.default_rng(seed).random(block.shape)
        return sparse.csr_array(rows) if kind == "sparse" else rows

    def rows(seed: int) -> Any:
        meta = sparse.csr_array((0, 0)) if kind == "sparse" else np.empty((0, 0))
        return da.zeros((400, 6), chunks=(100, 6)).map_blocks(of_seed, seed, dtype=float, meta=meta)

    method = be.PCA(n_components=2, workdir=tmp_path / "run", persist="store")
    with dask.config.set(scheduler="synchronous"):
        for seed, loads in ((1, 4), (1, 0), (2, 4), (2, 0)):
            made.clear()
            found = np.asarray(method.fit(rows(seed)).embedding_)
            assert len(made) == loads
            [copy] = (tmp_path / "run/exchange").iterdir()
            made.clear()
            assert all(stage.reused for stage in be.plan(method, rows(seed)).stages)
            assert made == []
            assert np.asarray(be.PCA(n_components=2).fit(rows(seed)).embedding_).tobytes() == found.tobytes()
    assert copy.is_dir()
