"""Rows that lie off, parts, bridges and repeated rows: a defined result for each, the same in every run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import bigembed as be
from bigembed.errors import ComponentsWarning, DegenerateWarning, DisconnectedGraphError, InputError
from bigembed.estimator.graph_input import least_rows, parts_of
from bigembed.jobs.record import read_record
from bigembed.jobs.run import plan_job
from bigembed.jobs.spec import read_job

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")


def gaussian(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
def test_one_row_that_is_cut_off_ends_nothing(dtype: type) -> None:
    rows = np.insert(gaussian(600), 200, [1e4, 0, 0], axis=0).astype(dtype)
    with pytest.warns(ComponentsWarning, match=r"1 row in 1 island .* has the coordinates.* The first: row 200"):
        fitted = be.DiffusionMap(bandwidth="fixed").fit(rows)
    assert np.flatnonzero(fitted.labels_ != 0).tolist() == [200]
    assert fitted.labels_[200] == -1
    nearest = np.argsort(np.linalg.norm(rows - rows[200], axis=1))[1]
    np.testing.assert_array_equal(fitted.embedding_[200], fitted.embedding_[nearest])
    with pytest.raises(DisconnectedGraphError, match="600, 1 rows"):
        be.DiffusionMap(bandwidth="fixed", components="error").fit(rows)


def test_tiny_islands_are_placed_and_parts_are_embedded_together() -> None:
    rows = np.vstack([gaussian(600), gaussian(300, 1) + 100, gaussian(8, 2) / 10 - 100])
    with pytest.warns(ComponentsWarning) as given:
        fitted = be.DiffusionMap(4, n_neighbors=6).fit(rows)
    told = " | ".join(str(one.message) for one in given)
    assert "2 parts that no neighbors join, of 600, 300 rows" in told
    assert "8 rows in 1 island" in told
    assert "rows 900, 901, 902, 903, 904" in told
    assert np.bincount(fitted.labels_ + 1).tolist() == [8, 600, 300]
    assert (fitted.eigenvalues_ == 1).sum() == 1
    first = fitted.embedding_[:, 0]
    assert np.unique(first[:900].round(9)).size == 2
    shown = [(fitted.embedding_[rows, 1:] != 0).any(axis=0) for rows in (slice(600), slice(600, 900))]
    assert (shown[0] ^ shown[1]).all()  # each shows one part, and is 0 in the rest
    assert fitted.certificate_["parts"] == 2


@pytest.mark.parametrize(
    ("method", "kind"),
    [(be.DiffusionMap, np.asarray), (be.DiffusionMap, csr_array), (be.LocallyLinearEmbedding, np.asarray)],
)
def test_rows_of_other_components_are_said_to_be_placed_and_are_left_out_of_the_judgement(
    method: Callable[..., Any], kind: Callable[..., Any]
) -> None:
    rows = np.vstack([gaussian(300), gaussian(60, 1) + 100, gaussian(40, 2) - 100])
    with pytest.warns(ComponentsWarning, match="the 100 rows of the others have the coordinates of the nearest row"):
        fitted = method(components="largest", n_neighbors=10).fit(kind(rows))
    judged, own = fitted.certificate_["judgement"]["map"], fitted.labels_ == 0
    assert judged["n"] == 300
    expected = be.certify(rows[own], fitted.embedding_[own]).figures  # (all rows are compared: no sample)
    for name in ("preservation", "trustworthiness", "continuity"):
        assert judged[name]["value"] == pytest.approx(expected[name]["value"])
    assert judged["coordinates"]["same_place"] == 0
    assert be.certify(rows, fitted.embedding_).figures["coordinates"]["same_place"] == pytest.approx(0.25, abs=0.1)
    assert not any("same place" in text for text in fitted.certificate_["warnings"]["map"])


def test_at_most_half_of_the_coordinates_tell_parts_apart() -> None:
    assert parts_of("islands", [500] * 6 + [1], 3_001).contrasts(4) == 2
    assert parts_of("joint", [500] * 6, 3_000).contrasts(4) == 4
    assert parts_of("islands", [2_999, 1], 3_000).single
    rows = np.vstack([gaussian(150, seed) + 100 * seed for seed in range(5)])
    with pytest.warns(ComponentsWarning, match="5 parts"):
        fitted = be.DiffusionMap(4).fit(rows)
    assert (fitted.eigenvalues_ == 1).tolist() == [True, True, False, False]
    with pytest.warns(ComponentsWarning):
        fitted = be.DiffusionMap("auto").fit(rows)
    assert fitted.n_components_ > (fitted.eigenvalues_ == 1).sum() == 4
    assert least_rows(750) == 8


@pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
@pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")
@pytest.mark.parametrize("bandwidth", ["adaptive", "self-tuned", "fixed"])
@pytest.mark.parametrize("spread", [1e-12, 0.0, 1.0])
def test_bridges_join_with_every_kernel(bandwidth: str, spread: float) -> None:
    """Near-identical and identical rows too."""
    rows = np.vstack([gaussian(300), 50 + spread * gaussian(100, 1), 90 + spread * gaussian(100, 2)])
    with pytest.warns(ComponentsWarning, match="2 bridges join 3 components of 300, 100, 100 rows"):
        fitted = be.DiffusionMap(3, components="bridge", bandwidth=bandwidth).fit(rows)
    assert np.isfinite(fitted.embedding_).all()
    assert (fitted.labels_ == 0).all()
    assert len(np.unique([fitted.embedding_[at : at + 90, :2].mean(axis=0).round(3) for at in (0, 300, 400)])) > 2


@pytest.mark.parametrize("rows", [np.ones((100, 3)), np.repeat(gaussian(10), 30, axis=0)], ids=["one", "ten"])
def test_rows_that_all_repeat_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(InputError, match="each repeats more than n_neighbors times"):
        be.DiffusionMap().fit(rows)


@pytest.mark.filterwarnings("ignore::bigembed.errors.ComponentsWarning")
def test_quantized_rows_have_one_defined_map() -> None:
    rows = np.random.default_rng(0).integers(0, 5, (1_000, 3)).astype(float)
    with pytest.warns(DegenerateWarning, match="Which of equal rows are neighbors is decided by their number") as given:
        maps = [be.DiffusionMap(3, n_neighbors=5).fit(np.column_stack([rows, np.ones(1_000)])) for _ in range(2)]
    np.testing.assert_array_equal(maps[0].embedding_, maps[1].embedding_)
    assert np.isfinite(maps[0].embedding_).all()
    assert given


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@pytest.mark.parametrize(
    "parameters",
    [
        {"metric": "cosine"},
        {"components": "per-component"},
        {"components": "largest"},
        {"solver": "landmarks", "n_landmarks": 60},
        {"n_neighbors": None},
    ],
)
def test_every_way_in_is_judged(parameters: dict) -> None:
    rows = np.vstack([gaussian(250), gaussian(150, 1) + 60])
    fitted = be.DiffusionMap(3, **parameters).fit(rows)
    assert len(fitted.certificate_["judgement"]["participation"]) == 3
    if "n_neighbors" not in parameters:
        metric = parameters.get("metric", "euclidean")
        again = be.DiffusionMap(3, **parameters).fit(be.build_neighbor_graph(rows, 15, metric=metric))
        np.testing.assert_array_equal(fitted.embedding_, again.embedding_)
        assert fitted.certificate_["judgement"] == again.certificate_["judgement"]


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
def test_jobs_take_the_new_parameters_and_stay_within_their_plan(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", gaussian(2_100))
    (tmp_path / "job.toml").write_text(
        '[input]\npath = "rows.npy"\n[method]\nname = "diffusion_map"\nn_components = "auto"\n'
        'target = "laplace-beltrami"\ndimension = 3\n[output]\npath = "job.zarr"\n'
    )
    job = read_job(tmp_path / "job.toml")
    costs = dict(plan_job(job).stages)
    assert costs["judgement"].memory > 2_100 * 3 * 8
    assert costs["judgement"].coordinator > 2_000**2 * 8
    # (in a process of its own: that of the tests may hold more than the plan of a job allows)
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", job.file], check=True, capture_output=True)
    done = read_record(tmp_path / "job.zarr")
    assert done["measured"]["total"] <= done["predicted"]["total"]
    (tmp_path / "wrong.toml").write_text((tmp_path / "job.toml").read_text().replace('"auto"', '"all"'))
    with pytest.raises(ValueError, match="n_components"):
        plan_job(read_job(tmp_path / "wrong.toml"))
