"""A run that begins anew with other parameters and is stopped: what is old is old for every reader, by name."""

from __future__ import annotations

import json
import warnings
from shutil import copytree, rmtree

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.errors import InterruptedRun, MissingPathError, StaleError, StaleWarning
from bigembed.jobs.export import export
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.maps.registry import REGISTRY
from bigembed.stages.runs import Run
from bigembed.store.paths import stored
from bigembed.store.superseded import superseded

KEPT = ["survey", "partition", "order", "shortlist"]
"""Stages that do not depend on the number of neighbors."""
SOLVED = ["witness", "search", "graph", "recall", "dimension", "bandwidth", "kernel", "components", "solve"]
LAST = ["coordinates", "judgement"]
REST = [*SOLVED, *LAST]
STAGES = [*KEPT, *REST]


def flat(seed):
    """300 rows near a plane, which two coordinates show well."""
    return np.random.default_rng(seed).uniform(size=(300, 4)) * [1, 0.6, 0.01, 0.01]


@pytest.fixture
def job(tmp_path):
    """A function that writes a diffusion map of 300 rows as a job, with a model."""
    np.save(tmp_path / "rows.npy", flat(0))

    def write(k=8, t=1, name="run.zarr"):
        file = tmp_path / f"job-{name}.toml"
        file.write_text(
            f'[input]\npath = "rows.npy"\n[method]\nname = "diffusion_map"\nn_neighbors = {k}\nt = {t}\n'
            f'[output]\npath = "{name}"\nmodel = "model-{name}"\n'
        )
        return read_job(file)

    return write


def stopped_after(job, stage, kind="done"):
    """Run the job, and stop it when this stage is published (or begins)."""

    def stop(event):
        if (event.kind, event.stage) == (kind, stage):
            raise InterruptedRun("stopped")

    with pytest.raises(InterruptedRun):
        run_job(job, RunOptions(observer=stop))


def bytes_of(root):
    """Digests of all that is published."""
    run = Run(root)
    return {name: run.manifest(name).files for name in run.published()}


def refused_by_all(root, tmp_path, why):
    """No reader takes what is old; each says of what it is."""
    for out in ("out.csv", "out.npy"):
        with pytest.raises(StaleError, match=rf"'coordinates' is superseded \({why}"):
            export(root, tmp_path / out)
        assert not (tmp_path / out).exists()
    with pytest.raises(StaleError, match=why):
        be.open_array(root / "stages" / "coordinates" / "embedding")
    found = verify(root)
    assert (found["problems"], found["finished"]) == ([], False)
    assert why in found["superseded"]["coordinates"]
    told = CliRunner().invoke(app, ["verify", str(root)])
    assert told.exit_code == 5
    assert f"'coordinates' is superseded ({why}" in told.stdout
    page = tmp_path / "page.html"
    assert write_report(root, page)["points"] == 0
    text = page.read_text()
    assert '<section id="map">' not in text
    assert why in text.replace("&#39;", "'")


def test_what_is_old_is_old_for_every_reader(job, tmp_path):
    """Stopped after each of its stages, the run put back each time."""
    run_job(job())
    root = tmp_path / "run.zarr"
    copytree(root, tmp_path / "whole")
    for stage in SOLVED:
        rmtree(root)
        copytree(tmp_path / "whole", root)
        with warnings.catch_warnings(action="ignore", category=StaleWarning):
            stopped_after(job(k=12), stage)
        assert sorted(superseded(root)) == sorted(REST[REST.index(stage) + 1 :])
        refused_by_all(root, tmp_path, "made with n_neighbors=8, now 12")


def test_it_is_old_before_anything_is_computed_and_the_model_says_so(job, tmp_path):
    run_job(job())
    stopped_after(job(k=12), "survey", kind="reused")
    refused_by_all(tmp_path / "run.zarr", tmp_path, "made with n_neighbors=8, now 12")
    with pytest.warns(StaleWarning, match="begun anew and not ended yet; it was made with n_neighbors=8, now 12"):
        be.load(tmp_path / "model-run.zarr")
    paths = [str(tmp_path / name) for name in ("model-run.zarr", "rows.npy", "placed.zarr")]
    assert "warning: " in (told := CliRunner().invoke(app, ["extend", *paths]).stderr)
    assert "it was made with n_neighbors=8, now 12" in told
    assert verify(tmp_path / "model-run.zarr")["superseded"] == {"model": "made with n_neighbors=8, now 12"}


def test_to_its_end_it_is_as_if_it_were_alone_and_so_is_the_way_back(job, tmp_path):
    for k in (8, 12):
        run_job(job(k=k, name=f"fresh{k}.zarr"))
    run_job(job())
    for stage in ("search", "solve"):
        there_and_back(job, tmp_path, stage)


def there_and_back(job, tmp_path, stage):
    stopped_after(job(k=12), stage)
    run_job(job(k=12))
    root = tmp_path / "run.zarr"
    assert bytes_of(root) == bytes_of(tmp_path / "fresh12.zarr")
    assert verify(root)["finished"]
    assert not superseded(root)
    be.load(tmp_path / "model-run.zarr")  # without a warning
    stopped_after(job(k=8), stage)
    refused_by_all(root, tmp_path, "made with n_neighbors=12, now 8")
    run_job(job(k=8))
    assert bytes_of(root) == bytes_of(tmp_path / "fresh8.zarr")
    assert {file.name for file in stored(root / "stages")} == {
        file.name for file in stored(tmp_path / "fresh8.zarr" / "stages")
    }


def test_the_way_back_takes_up_what_was_not_made_anew(job, tmp_path):
    run_job(job())
    stopped_after(job(k=12), "survey", kind="reused")
    found = run_job(job())
    assert all(stage["reused"] for stage in found["stages"] if stage["name"] in STAGES)
    stopped_after(job(t=3), "solve", kind="reused")
    stopped_after(job(k=12), "search")
    found = run_job(job())
    assert {stage["name"] for stage in found["stages"] if stage["reused"]} >= {"survey", "order", "coordinates"}
    assert export(tmp_path / "run.zarr", tmp_path / "out.npy")["n"] == 300


def test_the_second_change_is_told_against_the_present(job, tmp_path):
    run_job(job())
    stopped_after(job(k=12), "survey", kind="reused")
    stopped_after(job(k=20), "survey", kind="reused")
    refused_by_all(tmp_path / "run.zarr", tmp_path, "made with n_neighbors=8, now 20")


@pytest.mark.parametrize("stage", ["witness", "graph", "solve"])
def test_what_was_made_anew_between_changes_nothing_of_the_reason(job, tmp_path, stage):
    run_job(job())
    stopped_after(job(k=12), stage)
    stopped_after(job(k=12), "survey", kind="reused")
    refused_by_all(tmp_path / "run.zarr", tmp_path, "made with n_neighbors=8, now 12")
    stopped_after(job(k=20), "survey", kind="reused")
    refused_by_all(tmp_path / "run.zarr", tmp_path, "made with n_neighbors=8, now 20")
    stopped_after(job(), "survey", kind="reused")
    refused_by_all(tmp_path / "run.zarr", tmp_path, "made from another 'witness'")


def test_other_rows_and_another_method(job, tmp_path):
    run_job(job())
    np.save(tmp_path / "rows.npy", flat(1))
    stopped_after(job(), "survey", kind="start")
    refused_by_all(tmp_path / "run.zarr", tmp_path, "made from other rows")
    other = read_job(job().file)
    other = other.model_copy(update={"method": other.method.model_copy(update={"name": "pca", "parameters": {}})})
    run_job(other)
    wanted = ["coordinates", "judgement", "moments", "solve"]
    assert Run(tmp_path / "run.zarr").published() == wanted
    assert sorted(path.name for path in (tmp_path / "run.zarr" / "stages").iterdir()) == wanted


def test_what_is_open_is_old_too(job, tmp_path):
    rows, place = str(tmp_path / "rows.npy"), tmp_path / "work"
    opened = be.DiffusionMap(n_neighbors=8, workdir=place).fit(rows)
    before, lazy = opened.embedding_.compute(), opened.embedding_
    be.DiffusionMap(n_neighbors=8, t=2, workdir=place).fit(rows)
    for reads in (lazy.compute, lambda: opened.transform(rows), lambda: opened.save(tmp_path / "saved")):
        with pytest.raises(StaleError, match="since it was opened"):
            reads()
    be.DiffusionMap(n_neighbors=8, workdir=place).fit(rows)
    np.testing.assert_array_equal(lazy.compute(), before)


def test_lazy_coordinates_of_a_map_that_was_fitted_anew(tmp_path):
    np.save(tmp_path / "rows.npy", flat(0))
    rows, place = str(tmp_path / "rows.npy"), tmp_path / "work"
    opened = be.PCA(n_components=2, workdir=place).fit(rows)
    lazy, placed = opened.embedding_, opened.transform(rows)
    be.PCA(n_components=2, whiten=True, workdir=place).fit(rows)
    for reads in (lazy.compute, placed.compute, lambda: opened.transform(rows)):
        with pytest.raises(StaleError, match="'solve' is superseded"):
            reads()


def test_a_loaded_model_that_is_replaced(job, tmp_path):
    run_job(job())
    model = be.load(tmp_path / "model-run.zarr")
    run_job(job(k=12))
    with pytest.raises(StaleError, match="made it anew"):
        model.transform(np.load(tmp_path / "rows.npy"))


def test_a_record_is_not_of_what_was_fitted_over_it(job, tmp_path):
    run_job(job())
    root = tmp_path / "run.zarr"
    be.PCA(n_components=2, workdir=root).fit(str(tmp_path / "rows.npy"))
    assert not verify(root)["finished"]
    assert verify(root)["problems"] == []
    with pytest.raises((StaleError, ValueError)):
        export(root, tmp_path / "out.csv")


def test_a_plan_knows_what_will_be_used_again(job, tmp_path):
    assert make_plan(job()).published == ()
    run_job(job())
    whole = make_plan(job())
    assert set(whole.published) == set(STAGES)
    assert set(make_plan(job(t=2)).published) == set(STAGES) - {*LAST}
    other = make_plan(job(k=12))
    assert set(other.published) == set(KEPT)
    assert other.seconds > make_plan(job(t=2)).seconds > whole.seconds
    assert Run(tmp_path / "run.zarr").published() == sorted(STAGES)  # nothing was written
    shown = CliRunner().invoke(app, ["plan", str(job(k=12).file)])
    assert "order *" in shown.stdout
    assert "search *" not in shown.stdout
    np.save(tmp_path / "rows.npy", np.zeros((300, 4)))
    assert make_plan(job()).published == ()


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_keys_of_a_plan_are_those_of_the_run(name, tmp_path):
    """Of every method, with every aligned vector that it takes."""
    from bigembed.jobs.inputs import find_input
    from bigembed.maps.registry import method

    rng = np.random.default_rng(0)
    kind = method(name)
    np.save(tmp_path / "rows.npy", rng.uniform(1, 2, size=(60, 5)))
    aligned = {"weights": rng.uniform(1, 2, size=60), "labels": np.arange(60) % 3, "epsilons": np.full(60, 50.0)}
    for what in kind.aligned:
        np.save(tmp_path / f"{what}.npy", aligned[what])
    given = "".join(f'{what} = "{what}.npy"\n' for what in kind.aligned)
    (tmp_path / "job.toml").write_text(
        f'[input]\npath = "rows.npy"\n{given}[method]\nname = "{name}"\n[output]\npath = "run.zarr"\n'
    )
    job = read_job(tmp_path / "job.toml")
    with warnings.catch_warnings(action="ignore"):
        run_job(job)
    assert find_input(job).written
    assert set(make_plan(job).published) == set(Run(tmp_path / "run.zarr").published())


def test_nothing_is_there_of_a_run_that_is_not(tmp_path):
    with pytest.raises(MissingPathError):
        export(tmp_path / "none", tmp_path / "out.csv")
    assert json.dumps(superseded(tmp_path)) == "{}"


@pytest.mark.parametrize(
    ("step", "half"),
    [
        pytest.param(step, half, id=f"{'after' if half else 'before'}-{step}", marks=() if quick else pytest.mark.slow)
        for step, half, quick in [
            (0, False, True),
            (2, False, False),
            (5, False, True),
            (8, False, False),
            (0, True, False),
            (2, True, True),
            (5, True, False),
            (8, True, True),
        ]
    ],
)
def test_killed_while_it_is_superseded(job, tmp_path, monkeypatch, step, half):
    """Before or after a mark is written, whose manifest is still there: the last stages go first."""
    from bigembed.store import superseded as module

    run_job(job())
    root, real, calls = tmp_path / "run.zarr", module.write_json, []

    def write(path, value):
        calls.append(path)
        if len(calls) == step + 1 and not half:
            raise InterruptedRun("killed")
        real(path, value)
        if len(calls) == step + 1:
            raise InterruptedRun("killed")

    monkeypatch.setattr(module, "write_json", write)
    with pytest.raises(InterruptedRun):
        run_job(job(k=12))
    monkeypatch.setattr(module, "write_json", real)
    if step:
        assert [*superseded(root)] == sorted(REST[len(REST) - step :])
        with pytest.raises(StaleError, match="n_neighbors=8, now 12"):
            export(root, tmp_path / "out.npy")
        assert not verify(root)["finished"]
    else:
        assert not superseded(root)
        assert export(root, tmp_path / "out.npy")["n"] == 300
    assert verify(root)["problems"] == []
    again = run_job(job())  # the earlier parameters: all is there
    assert again["unchanged"] or all(stage["reused"] for stage in again["stages"] if stage["name"] in STAGES)
    assert not superseded(root)
    run_job(job(k=12))
    assert verify(root)["finished"]
