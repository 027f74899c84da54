"""Audits: rows of the same kind fit, others do not, for each kind of drift and of method."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.errors import ChangedInputError, InputError, LockedError, MissingPathError
from bigembed.jobs.growth.audit import Limits, audit, compared, found_lists, misfit_of, reasons, search_index
from bigembed.jobs.growth.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.spec import parse_job
from bigembed.rows.growing import append_rows
from bigembed.store.arrays import write_array
from bigembed.store.locks import hold

METHODS = {"diffusion_map": {"n_neighbors": 8}, "pca": {}, "isomap": {"n_neighbors": 8}, "linearized_diffusion_map": {}}


def draw(n, seed, shift=0.0):
    """A plane in five dimensions, with noise; shifted out of it."""
    generator = np.random.default_rng(seed)
    rows = np.c_[generator.uniform(0, 3, size=(n, 2)), np.zeros((n, 3))] + 0.02 * generator.normal(size=(n, 5))
    rows[:, 4] += shift
    return rows.astype("f4")


@pytest.fixture
def job(tmp_path):
    write_array(tmp_path / "x.zarr", draw(800, 0), chunk_rows=128)

    def make(method="pca"):
        tables = {
            "input": {"path": "x.zarr"},
            "method": {"name": method, "n_components": 2, **METHODS[method]},
            "output": {"path": "out.zarr"},
        }
        return parse_job(tables, tmp_path / "job.toml")

    return make


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_the_same_kind_fit_and_others_do_not(job, tmp_path, method):
    asked = job(method)
    refresh(asked)
    append_rows(tmp_path / "x.zarr", draw(300, 1))
    fine = audit(asked)
    assert fine["due"] == []
    assert fine["rows"] == {"fitted": 800, "new": 300, "judged": 300}
    assert 0.8 < fine["figures"]["distance"]["ratio"] < 1.25
    append_rows(tmp_path / "x.zarr", draw(100, 2, shift=0.5))
    found = audit(asked)
    assert any("distance that only 0.01" in reason for reason in found["due"])
    assert found["figures"]["distance"]["beyond"] == pytest.approx(0.25, abs=0.05)
    if method in ("pca", "diffusion_map"):
        assert any("misfit" in reason for reason in found["due"])
        assert found["figures"]["misfit"]["beyond"] == pytest.approx(0.25, abs=0.05)
    assert json.loads((tmp_path / "out.zarr" / "audit.json").read_text()) == found
    assert not (tmp_path / "out.zarr" / "audit" / "exchange").exists()
    extend(asked)  # coordinates change nothing for an audit
    assert audit(asked)["figures"] == found["figures"]
    refresh(asked)
    assert audit(asked)["due"] == []


def test_figures_are_those_of_direct_computation(job, tmp_path):
    asked = job("diffusion_map")
    refresh(asked)
    new = draw(150, 3, shift=0.05)
    append_rows(tmp_path / "x.zarr", new)
    found, fitted = audit(asked, sample=800)["figures"], draw(800, 0)
    apart = np.linalg.norm(new[:, None].astype(float) - fitted[None], axis=2)
    nearest = apart.min(axis=1)
    assert found["distance"]["new"]["0.5"] == pytest.approx(np.median(nearest), rel=1e-4)
    among = np.linalg.norm(fitted[:, None].astype(float) - fitted[None], axis=2) + np.diag(np.full(800, np.inf))
    assert found["distance"]["held"]["0.9"] == pytest.approx(np.quantile(among.min(axis=1), 0.9), rel=1e-3)
    model = be.load(next((tmp_path / "out.zarr" / "versions").iterdir()) / "model.zarr")
    joined = (apart <= np.sort(apart, axis=1)[:, 7:8]) | (apart <= np.sort(among, axis=1)[None, :, 7])
    scale = np.sort(among, axis=1)[None, :, 7] ** 2  # of the fitted row: that of a new one would grow as it goes
    mass = np.where(joined, np.exp(-(apart**2) / scale / model.epsilon_), 0).sum(axis=1)
    assert found["misfit"]["new"]["0.5"] == pytest.approx(np.median(1 / (1 + mass)), rel=1e-4)
    assert found["recall"]["recall"] == 1.0
    index, misfit = search_index(model), misfit_of(model)
    assert misfit.function(new[:20]).shape == (20,)
    assert (misfit.function(new[:20] + 100) == 1.0).all()  # out of reach
    assert (np.sum(found_lists(new[:20], index) >= 0, axis=1) >= 8).all()


def test_misfit_of_a_linear_map_is_its_distance_to_the_row(tmp_path):
    rows = draw(200, 0)
    be.PCA(n_components=2).fit(rows).save(tmp_path / "m")
    model = be.load(tmp_path / "m")
    misfit = misfit_of(model)
    rebuilt = model.inverse_transform(model.transform(rows))
    np.testing.assert_allclose(misfit.function(rows), np.linalg.norm(rows - rebuilt, axis=1), atol=1e-6)
    lifted = rows + np.array([0, 0, 0, 0, 1], "f4")
    assert np.median(misfit.function(lifted)) > 10 * np.median(misfit.function(rows))


def test_few_rows_are_judged_by_their_number_alone(job, tmp_path):
    asked = job()
    refresh(asked)
    append_rows(tmp_path / "x.zarr", draw(50, 1, shift=9.0))
    found = audit(asked)
    assert (found["due"], found["rows"]["judged"]) == ([], 0)
    assert audit(asked, limits=Limits(least=50))["due"]
    assert audit(asked, limits=Limits(growth=0.05))["due"]


def test_chance_is_no_drift():
    generator = np.random.default_rng(0)
    limits = Limits()
    fine = [
        reasons({"growth": {"share": 0}, "distance": compared(*generator.exponential(size=(2, 200)))}, limits)
        for _ in range(200)
    ]
    assert sum(map(bool, fine)) <= 2
    far = compared(generator.exponential(size=200) * 1.6, generator.exponential(size=2000))
    assert reasons({"growth": {"share": 0}, "distance": far}, limits)
    low = {"growth": {"share": 0}, "recall": {"recall": 0.85, "standard_error": 0.01}}
    assert reasons(low, limits)
    assert not reasons(low | {"recall": {"recall": 0.85, "standard_error": 0.03}}, limits)
    assert compared(np.ones(5), np.zeros(5))["ratio"] is None


def test_what_cannot_be_audited(job, tmp_path):
    asked = job()
    with pytest.raises(MissingPathError, match="no model is there yet"):
        audit(asked)
    refresh(asked)
    bad = draw(150, 1)
    bad[3] = np.nan
    append_rows(tmp_path / "x.zarr", bad)
    with pytest.raises(InputError, match=r"rows \[803\] hold NaN"):
        audit(asked)
    with pytest.raises(InputError, match="sample=1"):
        audit(asked, sample=1)
    array = zarr.open_array(str(tmp_path / "x.zarr"))
    array[3] = 0
    with pytest.raises(ChangedInputError, match="in rows 0:800 of 800"):
        audit(asked)
    array[3] = draw(800, 0)[3]
    with hold(tmp_path / "out.zarr" / "audit"), pytest.raises(LockedError):
        audit(asked)
    with hold(tmp_path / "out.zarr"):  # a refresh at work is no obstacle
        assert audit(asked, limits=Limits(least=1000))["due"] == []
