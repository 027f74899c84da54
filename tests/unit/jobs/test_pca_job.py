"""Jobs of methods other than diffusion maps, from plan to model, with their aligned vectors."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from bigembed.errors import InputError, JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.planning.plan import make_plan
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.store.arrays import read_array


@pytest.fixture
def job(tmp_path, rows):
    """Write a job on the rows, with more in its [input]."""
    np.save(tmp_path / "weights.npy", np.random.default_rng(1).integers(0, 3, len(rows)).astype("f8"))

    def write(source="", method='name = "pca"\nn_components = 3'):
        text = (
            f'[input]\npath = "rows.npy"\n{source}\n[method]\n{method}\n[output]\npath = "run.zarr"\nmodel = "m.zarr"\n'
        )
        (tmp_path / "pca.toml").write_text(text)
        return read_job(tmp_path / "pca.toml")

    return write


def test_from_plan_to_model(job, rows, tmp_path):
    plan = make_plan(job())
    assert [name for name, _ in plan.stages] == ["moments", "solve", "coordinates", "judgement", "model"]
    assert plan.total("passes") == 3  # the last is of a few blocks, here all there are
    found = run_job(job())
    wanted = be.PCA(3).fit(rows)
    written = read_array(tmp_path / "run.zarr/stages/coordinates/embedding")
    np.testing.assert_array_equal(written, wanted.embedding_)
    assert found["certificate"]["passes"] == 1
    assert run_job(job())["unchanged"]
    assert verify(tmp_path / "run.zarr")["problems"] == []
    assert verify(tmp_path / "m.zarr")["finished"]
    np.testing.assert_array_equal(be.load(tmp_path / "m.zarr").embedding_, wanted.embedding_)
    assert extend(tmp_path / "m.zarr", tmp_path / "rows.npy", tmp_path / "new.zarr")["n_components"] == 3
    np.testing.assert_array_equal(read_array(tmp_path / "new.zarr"), wanted.embedding_)


def test_weights_are_aligned_with_the_rows(job, rows, tmp_path):
    run_job(job('weights = "weights.npy"'))
    weights = np.load(tmp_path / "weights.npy")
    wanted = be.PCA(3).fit(rows, sample_weight=weights)
    np.testing.assert_array_equal(be.load(tmp_path / "m.zarr").components_, wanted.components_)
    assert np.abs(wanted.components_ - be.PCA(3).fit(rows).components_).max() > 1e-3
    np.save(tmp_path / "weights.npy", weights[::-1].copy())  # other weights are another job
    assert not run_job(job('weights = "weights.npy"'))["unchanged"]


def test_a_scale_for_each_row_and_for_each_new_row(job, rows, tmp_path):
    farthest = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).max()
    epsilons = 4 * farthest * np.random.default_rng(1).uniform(1, 3, len(rows))
    np.save(tmp_path / "epsilons.npy", epsilons)
    run_job(job('epsilons = "epsilons.npy"', 'name = "linearized_diffusion_map"\nn_components = 3'))
    wanted = be.LinearizedDiffusionMap(3).fit(rows, epsilons=epsilons)
    written = read_array(tmp_path / "run.zarr/stages/coordinates/embedding")
    np.testing.assert_array_equal(written, wanted.embedding_)
    model, new, out = tmp_path / "m.zarr", tmp_path / "rows.npy", tmp_path / "new.zarr"
    with pytest.raises(InputError, match="fitted with epsilons: new rows need theirs"):
        extend(model, new, out)
    assert not out.exists()
    words = ["extend", model, new, out, "--epsilons", tmp_path / "epsilons.npy"]
    told = CliRunner().invoke(app, [str(word) for word in words])
    assert told.exit_code == 0, told.output
    np.testing.assert_array_equal(read_array(out), wanted.embedding_)


def test_what_a_method_does_not_take_is_named(job):
    with pytest.raises(JobError, match="labels: pca takes none"):
        job('labels = "weights.npy"')
    with pytest.raises(JobError, match="weights: diffusion_map takes none"):
        job('weights = "weights.npy"', 'name = "diffusion_map"')
    with pytest.raises(JobError, match="n_components"):
        job(method='name = "pca"\nn_components = [3]')


def test_the_same_rows_in_another_order_get_their_own_coordinates(job, tmp_path):
    """Four rows whose moments, and so the map, are the same bytes in either order."""
    few = np.array([[1, 2], [3, 4], [5, 6], [7, 9]], float)
    found = []
    for values in (few, few[::-1], few[::-1].astype("f4")):
        np.save(tmp_path / "rows.npy", values)
        run_job(job(method='name = "pca"\nn_components = 2'))
        found.append(read_array(tmp_path / "run.zarr/stages/coordinates/embedding"))
    np.testing.assert_array_equal(found[0][::-1], found[1])
    assert not np.array_equal(found[0], found[1])
    assert found[2].dtype == np.float32
