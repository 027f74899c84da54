"""Outputs: one process makes each at a time; killed between two of them a call goes on; none lies inside an input."""

from __future__ import annotations

import contextvars
from contextlib import contextmanager

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import ExistingOutputError, InputError, LockedError
from bigembed.jobs import extend as extension
from bigembed.jobs.export import export
from bigembed.jobs.extend import extend
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.jobs.verify import certify_paths
from bigembed.rows.formats import registry as formats
from bigembed.rows.formats.registry import ingest
from bigembed.store.arrays import read_array, write_array
from bigembed.store.locks import output_lock


class Stopped(BaseException):
    """No handler knows it."""


@pytest.fixture
def rows(tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 4)) * [9, 5, 2, 1]
    write_array(tmp_path / "points.zarr", values, chunk_rows=16)
    return values


def job(home, path="run.zarr", source="points.zarr", **outputs):
    tables = {
        "input": {"path": source},
        "method": {"name": "pca", "n_components": 2},
        "output": {"path": path, **outputs},
    }
    return parse_job(tables, home / "job.toml")


@contextmanager
def elsewhere(path):
    """Held as another process would."""
    held, context = output_lock(path), contextvars.Context()
    context.run(held.__enter__)
    yield
    context.run(held.__exit__, None, None, None)


@pytest.mark.parametrize("output", [{"model": "model.zarr"}, {"table": "table.csv"}, {"report": "page.html"}])
def test_two_jobs_of_one_output(tmp_path, rows, output):
    [name] = output.values()
    with elsewhere(tmp_path / name), pytest.raises(LockedError, match=rf"{name}.*held by"):
        run_job(job(tmp_path, "one.zarr", **output))
    run_job(job(tmp_path, "one.zarr", **output))
    with pytest.raises(ExistingOutputError, match="this run did not write it"):
        run_job(job(tmp_path, "two.zarr", **output))
    assert not list(tmp_path.glob(".*making"))


def test_an_extension_stopped_before_its_table(tmp_path, rows, monkeypatch):
    run_job(job(tmp_path, model="model.zarr"))
    call = (tmp_path / "model.zarr", tmp_path / "points.zarr", tmp_path / "out.zarr")

    def stopped(*_, **__):
        raise Stopped

    export_as_it_is = extension.export
    monkeypatch.setattr(extension, "export", stopped)
    with pytest.raises(Stopped):
        extend(*call, results=tmp_path / "table.csv")
    monkeypatch.setattr(extension, "export", export_as_it_is)
    assert (tmp_path / "out.zarr").exists()
    assert not (tmp_path / "table.csv").exists()
    with pytest.raises(ExistingOutputError):  # another extension
        extend(*call, results=tmp_path / "other.csv")
    extend(*call, results=tmp_path / "table.csv")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 61
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), be.load(call[0]).transform(rows))
    assert not (tmp_path / "out.zarr.partial").exists()
    with pytest.raises(ExistingOutputError):
        extend(*call, results=tmp_path / "table.csv")


def test_an_ingest_stopped_after_its_ids(tmp_path, monkeypatch):
    lines = ["id,a,b", *(f"row{i},{i},{i * i}" for i in range(20))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    call = (tmp_path / "rows.csv", tmp_path / "points.zarr", None, {"ids": "id"})

    def stopped(*_, **__):
        raise Stopped

    write_as_it_is = formats.write_copy
    monkeypatch.setattr(formats, "write_copy", stopped)
    with pytest.raises(Stopped):
        ingest(*call)
    monkeypatch.setattr(formats, "write_copy", write_as_it_is)
    assert (tmp_path / "points-ids.zarr").exists()
    assert ingest(*call) == (20, 2)
    with pytest.raises(ExistingOutputError):
        ingest(*call)
    (tmp_path / "points.zarr").rename(tmp_path / "moved.zarr")
    lines[3] = "other,2,4"
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(ExistingOutputError, match=r"points-ids\.zarr"):  # of other rows
        ingest(*call)


def test_two_that_save_to_one_path(tmp_path, rows):
    model = be.PCA(n_components=2).fit(rows)
    with elsewhere(tmp_path / "model.zarr"), pytest.raises(LockedError):
        model.save(tmp_path / "model.zarr")
    model.save(tmp_path / "model.zarr")
    assert [path.name for path in tmp_path.iterdir() if "model" in path.name] == ["model.zarr"]


def test_an_output_inside_what_is_read_is_refused(tmp_path, rows):
    before = sorted(path.name for path in (tmp_path / "points.zarr").rglob("*"))
    for outputs in ({"path": "points.zarr/run.zarr"}, *({n: "points.zarr/x.csv"} for n in ("table", "model"))):
        with pytest.raises(InputError, match=r"lies inside .*points\.zarr"):
            run_job(job(tmp_path, **{"path": "run.zarr", **outputs}))
    (tmp_path / "link").symlink_to(tmp_path / "points.zarr")
    with pytest.raises(InputError, match="lies inside"):
        run_job(job(tmp_path, "link/run.zarr"))
    run_job(job(tmp_path, model="model.zarr"))
    inside = tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding"
    with pytest.raises(InputError, match="lies inside the output"):
        run_job(job(tmp_path, source=str(inside)))
    calls = [
        lambda: extend(tmp_path / "model.zarr", tmp_path / "points.zarr", tmp_path / "points.zarr" / "out.zarr"),
        lambda: extend(tmp_path / "model.zarr", tmp_path / "points.zarr", tmp_path / "model.zarr" / "out.zarr"),
        lambda: ingest(tmp_path / "points.zarr", tmp_path / "points.zarr" / "copy.zarr"),
        lambda: export(inside, inside / "x.csv"),
        lambda: certify_paths(tmp_path / "points.zarr", inside, tmp_path / "points.zarr" / "page.html"),
    ]
    for call in calls:
        with pytest.raises(InputError, match="lies inside"):
            call()
    assert sorted(path.name for path in (tmp_path / "points.zarr").rglob("*")) == before
