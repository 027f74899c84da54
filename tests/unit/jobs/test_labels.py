"""Labels in job files: given by path, or brought by a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.datasets import digits
from bigembed.errors import DegenerateWarning, InputError, JobError
from bigembed.jobs.job import JobSpec
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.store.arrays import read_array


def job(folder: Path, source: str, method: str = "", output: str = "", cluster: str = "") -> JobSpec:
    text = (
        f'[input]\n{source}\n[method]\nname = "linear_discriminant"\n{method}\n[output]\npath = "run.zarr"\n{output}\n'
    )
    (folder / "job.toml").write_text(text + (f"[cluster]\n{cluster}\n" if cluster else ""))
    return read_job(folder / "job.toml")


@pytest.fixture
def labelled(tmp_path: Path) -> tuple[Any, Any]:
    """rows.npy (500, 4), labels.zarr of text, labels.npy of numbers."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 500)
    X = generator.normal(size=(500, 4)) + 2 * y[:, None] * [1, 0, -1, 0.5]
    np.save(tmp_path / "rows.npy", X)
    np.save(tmp_path / "labels.npy", y)
    words = np.array(["cat", "dog", "emu"])[y]
    zarr.create_array(tmp_path / "labels.zarr", shape=(500,), chunks=(100,), dtype=str)[:] = words
    return X, words


@pytest.mark.parametrize("name", ["labels.npy", "labels.zarr"])
def test_labels_by_path(name: str, labelled: tuple[Any, Any], tmp_path: Path) -> None:
    X, words = labelled
    spec = job(tmp_path, f'path = "rows.npy"\nlabels = "{name}"', output='model = "model.zarr"')
    plan = plan_job(spec)
    assert [stage for stage, _ in plan.stages][:4] == ["labels", "scatter", "solve", "coordinates"]
    found = run_job(spec)
    assert found["certificate"]["class_sizes"] == np.unique(words, return_counts=True)[1].tolist()
    wanted = be.LinearDiscriminantAnalysis().fit(X, words)
    np.testing.assert_array_equal(read_array(tmp_path / "run.zarr/stages/coordinates/embedding"), wanted.embedding_)
    model = be.load(tmp_path / "model.zarr")
    if name == "labels.zarr":
        assert model.predict(X).tolist() == wanted.predict(X).tolist()
    np.testing.assert_array_equal(model.embedding_, wanted.embedding_)
    assert run_job(spec)["unchanged"]
    np.save(tmp_path / "labels.npy", np.roll(np.load(tmp_path / "labels.npy"), 1))
    assert run_job(spec)["unchanged"] == (name == "labels.zarr")  # other labels are another job


def test_another_shrinkage_reuses_the_scatters(labelled: tuple[Any, Any], tmp_path: Path) -> None:
    source = 'path = "rows.npy"\nlabels = "labels.npy"'
    run_job(job(tmp_path, source))
    again = run_job(job(tmp_path, source, "shrinkage = 0.2"))
    assert {stage["name"]: stage["reused"] for stage in again["stages"]} == {
        "labels": True,
        "scatter": True,
        "solve": False,
        "judgement": False,
        "coordinates": False,
    }


def test_a_data_set_brings_its_labels(tmp_path: Path) -> None:
    spec = job(tmp_path, 'dataset = "digits"\nclasses = 5', "shrinkage = 0.1")
    plan_job(spec)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml"]  # a plan writes nothing
    run_job(spec)
    rows, truth = digits(classes=5).draw()
    wanted = be.LinearDiscriminantAnalysis(shrinkage=0.1).fit(rows, truth["label"])
    np.testing.assert_array_equal(read_array(tmp_path / "run.zarr/stages/coordinates/embedding"), wanted.embedding_)
    assert run_job(spec)["unchanged"]
    with pytest.raises(InputError, match="'swiss_roll' brings none"):
        plan_job(job(tmp_path, 'path = "roll.zarr"\ndataset = "swiss_roll"'))


def test_a_job_without_labels_is_refused(labelled: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"\[input\] labels: linear_discriminant needs them"):
        job(tmp_path, 'path = "rows.npy"')
    np.save(tmp_path / "short.npy", np.arange(499) % 3)
    with pytest.raises(InputError, match=r"\(499,\)"):
        plan_job(job(tmp_path, 'path = "rows.npy"\nlabels = "short.npy"'))


def test_a_warning_is_kept_in_the_record(labelled: tuple[Any, Any], tmp_path: Path) -> None:
    X, _ = labelled
    np.save(tmp_path / "rows.npy", np.column_stack([X, X[:, 0]]))
    with pytest.warns(DegenerateWarning):
        found = run_job(job(tmp_path, 'path = "rows.npy"\nlabels = "labels.npy"'))
    assert any("of rank 4 in 5 columns" in message for message in found["warnings"])


@pytest.mark.cluster
def test_on_workers_it_gives_the_same_bytes(labelled: tuple[Any, Any], tmp_path: Path) -> None:
    source = 'path = "rows.npy"\nlabels = "labels.zarr"'
    run_job(job(tmp_path, source, 'shrinkage = "auto"', cluster='workers = 2\nmemory = "600 MiB"'))
    X, words = labelled
    wanted = be.LinearDiscriminantAnalysis(shrinkage="auto").fit(X, words)
    np.testing.assert_array_equal(read_array(tmp_path / "run.zarr/stages/coordinates/embedding"), wanted.embedding_)
