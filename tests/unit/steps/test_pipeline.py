"""Steps and a method together: as scikit-learn chains them, as a job does, and for new rows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import decomposition, preprocessing
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import bigembed as be
from bigembed.errors import DamagedError, InputError, InputTypeError, NotFittedError
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job
from bigembed.runtime.runtime import Event, using
from bigembed.stages.runs import Run
from bigembed.store.arrays import read_array, write_array

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
_RANDOM = np.random.default_rng(3)
ROWS = _RANDOM.normal(size=(900, 12)) @ _RANDOM.normal(size=(12, 12)) * np.geomspace(1, 50, 12) + 7
HOLES = np.where(_RANDOM.random(ROWS.shape) < 0.01, np.nan, ROWS)
THERE = ~np.isnan(HOLES).any(axis=1)


def dropping(method: Any, **around: Any) -> be.Pipeline:
    return be.Pipeline([be.Missing(), be.StandardScaler(), be.PCA(n_components=3), method], **around)


def computed(do: Any) -> list[str]:
    """The stages that are computed."""
    seen: list[Event] = []
    with using(observer=seen.append):
        do()
    return [event.stage for event in seen if event.kind == "done"]


def test_scikit_learns_chain_makes_the_same(tmp_path: Path) -> None:
    """Bit for bit with the classes of this package, in either class; nearly with scikit-learn's own."""
    np.save(tmp_path / "rows.npy", ROWS)
    mine = [be.StandardScaler(), be.PCA(n_components=4), be.DiffusionMap(n_components=2)]
    chain = make_pipeline(*mine).fit(tmp_path / "rows.npy")
    found = be.Pipeline(mine).fit(tmp_path / "rows.npy")
    np.testing.assert_array_equal(np.asarray(found.embedding_), np.asarray(chain[-1].embedding_))
    linear = be.Pipeline([be.StandardScaler(), be.PCA(n_components=4)]).fit_transform(ROWS)
    theirs = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(n_components=4)).fit_transform(ROWS)
    np.testing.assert_allclose(np.abs(linear), np.abs(theirs), atol=1e-9)


def test_rows_left_out_are_those_that_were_never_there() -> None:
    found = dropping(be.DiffusionMap(n_components=2)).fit(HOLES)
    other = be.Pipeline([be.StandardScaler(), be.PCA(n_components=3), be.DiffusionMap(n_components=2)])
    np.testing.assert_array_equal(found.embedding_, other.fit(HOLES[THERE]).embedding_)
    new = found.transform(HOLES)
    np.testing.assert_array_equal(np.isnan(new).any(axis=1), ~THERE)
    np.testing.assert_array_equal(new[THERE], found.transform(HOLES[THERE]))
    assert "were left out" in found.certificate_["steps"]["1 missing"]


def test_weights_go_with_their_rows() -> None:
    weights = _RANDOM.random(len(HOLES))
    found = be.Pipeline([be.Missing(), be.StandardScaler(), be.PCA(n_components=2)]).fit(HOLES, sample_weight=weights)
    rows = preprocessing.StandardScaler().fit_transform(HOLES[THERE])
    expected = be.PCA(n_components=2).fit(rows, sample_weight=weights[THERE])
    np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-9)


def test_a_model_knows_its_steps(tmp_path: Path) -> None:
    found = dropping(be.DiffusionMap(n_components=2), workdir=tmp_path / "run").fit(HOLES)
    expected = np.asarray(found.transform(HOLES))
    found.save(tmp_path / "model")
    loaded = be.load(tmp_path / "model")
    for again in (loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(np.asarray(again.transform(HOLES)), expected)
    np.save(tmp_path / "new.npy", HOLES)
    loaded.transform_to(tmp_path / "new.npy", tmp_path / "out.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), expected)
    with pytest.raises(InputError, match="expecting 12 features"):
        loaded.transform(HOLES[:, :3])
    for changed in ("model.json", "stages/moments/mean/c/0"):
        place = tmp_path / "model" / "steps" / "2-standardize" / changed
        before = place.read_bytes()
        place.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(DamagedError):
            be.load(tmp_path / "model").transform(HOLES)
        place.write_bytes(before)


def test_a_changed_step_computes_itself_and_what_follows(tmp_path: Path) -> None:
    def fit(*steps: Any) -> Any:
        return be.Pipeline([*steps, be.PCA(n_components=2)], workdir=tmp_path / "run").fit(HOLES)

    first = computed(lambda: fit(be.Missing(), be.StandardScaler()))
    assert first == ["step1-missing-rows", "step2-standardize-moments", "moments", "solve", "judgement"]
    assert computed(lambda: fit(be.Missing(), be.StandardScaler())) == []
    last = np.array(fit(be.Missing(), be.StandardScaler()).components_)
    assert computed(lambda: fit(be.Missing(), be.RobustScaler())) == ["step2-robust_standardize-quantiles", *first[2:]]
    assert computed(lambda: fit(be.Missing("fill"), be.RobustScaler()))[0] == first[0]
    np.testing.assert_array_equal(fit(be.Missing(), be.StandardScaler()).components_, last)


@pytest.mark.parametrize("number", range(5))
def test_killed_in_a_step_and_resumed(number: int, tmp_path: Path) -> None:
    steps = [be.Missing(), be.RobustScaler(), be.PCA(n_components=3), be.PCA(n_components=2)]
    whole = be.Pipeline(steps).fit(HOLES)
    names = [name for name in sorted(Run(whole.method_._run.root).published()) if name.startswith("step")]

    def stop(event: Event) -> None:
        if event.kind == "start" and event.stage == names[number % len(names)]:
            raise KeyboardInterrupt

    killed = be.Pipeline(steps, workdir=tmp_path / "run", callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        killed.fit(HOLES)
    resumed = killed.set_params(callbacks=None).fit(HOLES)
    np.testing.assert_array_equal(resumed.embedding_, whole.embedding_)


def test_wide_rows_are_read_once_more_where_that_is_less(tmp_path: Path) -> None:
    """A copy of the last step's rows is written where the passes that follow would read more."""
    wide = _RANDOM.normal(size=(500, 60))
    found = be.Pipeline([be.PCA(n_components=2), be.DiffusionMap(n_components=2)], workdir=tmp_path / "a").fit(wide)
    assert found.method_._run.has("step1-pca-coordinates")
    other = be.Pipeline([be.StandardScaler(), be.DiffusionMap(n_components=2)], workdir=tmp_path / "b").fit(wide)
    assert not [name for name in other.method_._run.published() if name.startswith("step1") and "coordinates" in name]


def test_the_protocol_of_scikit_learn() -> None:
    chain = be.Pipeline([("scale", be.StandardScaler()), ("map", be.PCA(n_components=2))])
    assert chain.get_params()["scale__with_mean"] is True
    again = clone(chain).set_params(scale__with_mean=False)
    assert again.steps[0][1].with_mean is False
    assert chain.steps[0][1].with_mean is True
    assert again.fit(ROWS).components_.shape == (2, 12)
    with pytest.raises(NotFittedError):
        chain.transform(ROWS)


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        ([preprocessing.MinMaxScaler(), be.PCA(2)], InputTypeError, "MinMaxScaler is not a step.*arrays in memory"),
        ([preprocessing.RobustScaler(unit_variance=True), be.PCA(2)], InputTypeError, "has no unit_variance"),
        ([be.StandardScaler()], InputTypeError, "the last of a Pipeline is a method"),
        ([be.PCA(n_components=0.9), be.PCA(2)], InputError, "'pca' needs a number of components"),
        ([be.Missing(), be.Missing(), be.PCA(2)], InputError, "one step at the most"),
        ([], InputTypeError, "a list of estimators"),
        ([be.Clip(), be.PCA(2)], InputError, "Clip: low=None"),
    ],
)
def test_what_is_no_chain_is_refused(steps: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        be.Pipeline(steps).fit(ROWS)


def test_chunks_and_places_make_the_same_bytes(tmp_path: Path) -> None:
    import dask
    import dask.array as da

    steps = [be.Missing(), be.RobustScaler(), be.Normalizer(), be.PCA(n_components=3)]
    expected = be.Pipeline(steps).fit(HOLES).embedding_
    lazy = be.Pipeline(steps).fit(da.from_array(HOLES, chunks=(117, 5)))
    np.testing.assert_array_equal(np.asarray(lazy.embedding_), expected)
    with dask.config.set(scheduler="threads"):
        np.testing.assert_array_equal(be.Pipeline(steps).fit(HOLES).embedding_, expected)


def test_scikit_learns_steps_on_a_path_as_in_a_job(tmp_path: Path) -> None:
    """Its own pipeline takes arrays only; given to a Pipeline, it reads a path block by block, as the job does."""
    write_array(tmp_path / "rows.zarr", ROWS, chunk_rows=200)
    steps = [preprocessing.StandardScaler(), decomposition.PCA(4), be.DiffusionMap(n_components=2)]
    theirs = make_pipeline(*steps)
    with pytest.raises(ValueError, match=r"Expected 2D array|could not convert"):
        theirs.fit(str(tmp_path / "rows.zarr"))
    found = be.Pipeline(theirs).fit(tmp_path / "rows.zarr")
    assert [type(step).__module__.split(".")[0] for step in found.steps_] == ["bigembed", "bigembed"]
    tables = {"input": {"path": "rows.zarr"}, "output": {"path": "run.zarr"}}
    tables |= {"steps": [{"name": "standardize"}, {"name": "pca", "n_components": 4}]}
    run_job(parse_job(tables | {"method": {"name": "diffusion_map", "n_components": 2}}, tmp_path / "job.toml"))
    job = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
    np.testing.assert_array_equal(np.asarray(found.embedding_), job)
    in_memory = make_pipeline(*steps[:2]).fit_transform(ROWS)
    np.testing.assert_allclose(be.PCA(4).fit_transform(be.StandardScaler().fit_transform(ROWS)), in_memory, atol=1e-9)
