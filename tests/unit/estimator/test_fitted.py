"""Fitted estimators: what they are whatever becomes of their input, frames, routing, progress, Ctrl-C."""

from __future__ import annotations

import pickle
import re
import signal
import traceback

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigembed as be
from bigembed.errors import ChangedInputError, InputError, InputTypeError, LockedError
from bigembed.runtime import blocks as canonical
from bigembed.store.locks import hold
from tests.executors import executor
from tests.some import a_few


def rows(n: int = 60) -> np.ndarray:
    return np.abs(np.random.default_rng(0).normal(size=(n, 4))) + np.arange(4)


class Named(be.PCA):
    """A PCA with a parameter of its own."""

    def __init__(self, n_components=None, *, colour="red", whiten=False, random_state=0, tol=1e-7, max_passes=9,
                 workdir=None):  # fmt: skip
        super().__init__(n_components, whiten=whiten, random_state=random_state, tol=tol, max_passes=max_passes,
                         workdir=workdir)  # fmt: skip
        self.colour = colour


class Plain(be.PCA):
    """A PCA by another name."""


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestFitted:
    """A fitted estimator is its fit: whatever becomes of the rows, the parameters or the folder that it was made
    with."""

    def test_a_dictionary_or_an_array_given_as_parameter_may_change_after_fit(self):
        parameters, X = {"p": 3.0}, rows()
        fitted = be.LandmarkMDS(n_landmarks=20, metric="minkowski", metric_params=parameters).fit(X)
        before = fitted.transform(X)
        parameters["p"] = 1.0
        np.testing.assert_array_equal(fitted.transform(X), before)

    def test_the_coordinates_of_a_store_that_was_overwritten_are_refused(self, tmp_path):
        import zarr

        path = tmp_path / "rows.zarr"
        store = zarr.create_array(path, shape=(60, 4), chunks=(20, 4), dtype="f8")
        store[:] = rows()
        fitted = be.PCA(n_components=2).fit(path)
        lazy = fitted.embedding_
        np.testing.assert_allclose(lazy.compute(), be.PCA(n_components=2).fit_transform(rows()))
        lazy = be.PCA(n_components=2).fit(path).embedding_
        store[20:40] = 1.0
        with pytest.raises(ChangedInputError, match="not those that were fitted"):
            lazy.compute()

    def test_a_subclass_is_pickled_with_its_parameters_and_its_class(self, tmp_path):
        fitted = Named(2, colour={"any": object}).fit(rows())
        again = pickle.loads(pickle.dumps(fitted))
        assert type(again) is Named
        assert again.colour == {"any": object}
        np.testing.assert_array_equal(again.transform(rows()), fitted.embedding_)
        with pytest.raises(InputError, match=r"additional parameters \(colour\)"):
            fitted.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
        Plain(2).fit(rows()).save(tmp_path / "model")
        np.testing.assert_array_equal(be.load(tmp_path / "model").transform(rows()), fitted.embedding_)

    def test_dask_arrays_of_unknown_lengths_are_measured(self):
        X = rows()
        known = da.from_array(X, chunks=(7, 2))
        unknown = known[known[:, 0] > 0.5]
        assert np.isnan(unknown.shape[0])
        taken = X[X[:, 0] > 0.5]
        fitted = be.PCA(2).fit(unknown)
        np.testing.assert_array_equal(fitted.embedding_.compute(), be.PCA(2).fit(taken).embedding_)
        np.testing.assert_array_equal(fitted.transform(unknown).compute(), fitted.transform(taken))
        assert np.isnan(unknown.shape[0])

    def test_lazy_coordinates_outlive_the_estimator_of_a_temporary_run(self) -> None:
        """They lie in its folder, which must not go before them: Zarr reads what is gone as zeros."""
        import gc

        X = np.random.default_rng(0).normal(size=(120, 3))
        wanted = be.DiffusionMap(2).fit(X).embedding_
        lazy = be.DiffusionMap(2).fit(da.from_array(X, chunks=40)).embedding_
        gc.collect()
        found = np.asarray(lazy)
        assert found.any()
        np.testing.assert_array_equal(found, wanted)
        labels = be.DiffusionMap(2).fit(da.from_array(X, chunks=40)).labels_ + 1
        fitted = be.DiffusionMap(2).fit(X)
        new, there = fitted.transform(da.from_array(X + 0.01, chunks=40)), fitted.transform(X + 0.01)
        del fitted
        gc.collect()
        assert (np.asarray(labels) == 1).all()
        np.testing.assert_array_equal(np.asarray(new), there)

    @pytest.mark.parametrize("kind", [be.DiffusionMap, be.LocallyLinearEmbedding])
    def test_why_there_is_no_graph_is_said(self, kind, tmp_path):
        X = np.random.default_rng(0).normal(size=(60, 3))
        with pytest.raises(AttributeError, match=r"no attribute 'graph_'$"):
            kind().graph_
        fitted = kind(n_neighbors=12, keep="map", workdir=str(tmp_path / "run")).fit(X)
        with pytest.raises(AttributeError, match="keep='map' dropped it; fit with keep='all', or build"):
            fitted.graph_
        fitted.save(tmp_path / "model")
        with pytest.raises(AttributeError, match="a saved model keeps none; build"):
            be.load(tmp_path / "model").graph_
        assert isinstance(kind(n_neighbors=12).fit(X).graph_, be.NeighborGraph)

    def test_paths_without_a_graph_say_why(self, tmp_path):
        fitted = be.Isomap(n_neighbors=12, keep="map", workdir=str(tmp_path / "run")).fit(rows())
        with pytest.raises(InputTypeError, match=r"need the neighbor graph: keep='map' dropped it.*geodesic_distances"):
            fitted.shortest_path(0, 1)


def frame(n: int = 30) -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(n, 3))
    return pd.DataFrame(values, columns=["a", "b", "c"], index=[f"row {i}" for i in range(n)])


def assert_same(ours, theirs):
    pd.testing.assert_frame_equal(ours, theirs)


class TestFrames:
    """Data frames in and out, as scikit-learn has them: names, index, pipelines, configuration; a notebook's page."""

    def test_pipelines_and_configuration_are_followed_as_by_scikit_learn(self):
        X = frame()
        ours, theirs = (
            make_pipeline(StandardScaler(), kind(2)).set_output(transform="pandas") for kind in (be.PCA, PCA)
        )
        assert_same(ours.fit(X).transform(X), theirs.fit(X).transform(X))
        assert_same(ours.fit_transform(X), theirs.fit_transform(X))
        np.testing.assert_array_equal(ours.get_feature_names_out(), theirs.get_feature_names_out())
        for pair in ((be.PCA(2), PCA(2)), (be.PCA(2), PCA(2))):
            with sklearn.config_context(transform_output="pandas"):
                assert_same(*(one.fit_transform(X.to_numpy()) for one in pair))
                assert_same(*(one.fit_transform(X) for one in pair))
                assert isinstance(pair[0].set_output(transform="default").transform(X), np.ndarray)
        fitted = be.PCA(2).set_output(transform="pandas").fit(X)
        assert_same(pickle.loads(pickle.dumps(fitted)).transform(X), fitted.transform(X))
        assert isinstance(fitted.embedding_, np.ndarray)
        assert isinstance(be.PCA(2).set_output(transform="pandas").fit_transform(da.from_array(X.to_numpy())), da.Array)
        assert isinstance(fitted.set_output().transform(X), pd.DataFrame)
        with pytest.raises(InputError, match="one of default, pandas, polars"):
            be.PCA().set_output(transform="xarray")

    @pytest.mark.recipes
    def test_frames_of_polars(self):
        pl = pytest.importorskip("polars")
        X = pl.DataFrame(frame().to_numpy(), schema=["a", "b", "c"])
        fitted = be.PCA(2).set_output(transform="polars").fit(X)
        assert fitted.transform(X).columns == ["pca0", "pca1"]
        np.testing.assert_array_equal(fitted.transform(X).to_numpy(), fitted.embedding_)

    def test_a_notebook_shows_parameters_and_the_fit(self):
        page = be.PCA(2, whiten=True)._repr_html_()
        assert "not fitted" in page
        assert re.search(r"whiten</th><td><b>True</b>", page)
        assert re.search(r"tol</th><td>1e-07<", page)
        assert re.search(r"rows</th><td>30<", be.PCA(2).fit(frame())._repr_html_())
        with pytest.warns(be.errors.ConvergenceWarning):
            stopped = be.NMF(2, max_iter=1).fit(frame().abs())
        assert "<li>NMF stopped at max_iter=1" in stopped._repr_html_()
        assert "<script" not in be.KernelPCA(kernel="<script>")._repr_html_()
        assert "be.PCA" not in make_pipeline(StandardScaler(), be.PCA(2))._repr_html_()


def data():
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    return generator.normal(size=(90, 4)) + y[:, None] * np.array([1.0, 0, 0, 0]), y, generator.uniform(size=90)


class TestRouting:
    """Metadata routing: what scikit-learn's routers may pass to which method."""

    @pytest.fixture(autouse=True)
    def routing(self):
        with sklearn.config_context(enable_metadata_routing=True):
            yield

    @pytest.mark.skipif(
        sklearn.__version__ < "1.8", reason="scikit-learn's own classifier refuses these weights below 1.8"
    )
    def test_a_pipeline_that_ends_in_the_discriminant_scores(self):
        X, y, weights = data()
        ours = make_pipeline(StandardScaler(), be.LinearDiscriminantAnalysis()).fit(X, y)
        theirs = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(X, y)
        assert ours.score(X, y) == theirs.score(X, y)
        weighted = make_pipeline(
            StandardScaler(), be.LinearDiscriminantAnalysis().set_score_request(sample_weight=True)
        )
        expected = np.average(theirs.predict(X) == y, weights=weights)
        assert weighted.fit(X, y).score(X, y, sample_weight=weights) == expected
        scaled = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), weighted[-1])
        found = cross_validate(scaled, X, y, cv=3, params={"sample_weight": weights})
        assert np.isfinite(found["test_score"]).all()

    def test_weights_reach_the_fit_that_asked_for_them(self):
        X, y, weights = data()
        asked = be.PCA(2).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(asked, be.LinearDiscriminantAnalysis()).fit(X, y, sample_weight=weights)
        np.testing.assert_array_equal(pipeline[0].mean_, be.PCA(2).fit(X, sample_weight=weights).mean_)
        renamed = make_pipeline(be.PCA(2).set_fit_request(sample_weight="shares"), be.LinearDiscriminantAnalysis())
        np.testing.assert_array_equal(renamed.fit(X, y, shares=weights)[0].mean_, pipeline[0].mean_)
        assert clone(asked).get_metadata_routing().fit.requests == {"sample_weight": True}
        ignored = make_pipeline(be.PCA(2).set_fit_request(sample_weight=False), be.LinearDiscriminantAnalysis())
        with pytest.raises(TypeError, match="sample_weight"):
            ignored.fit(X, y, sample_weight=weights)
        unsaid = make_pipeline(be.PCA(2), be.LinearDiscriminantAnalysis())
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            unsaid.fit(X, y, sample_weight=weights)


def rows_of_progress() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1000, 3))


class TestProgress:
    """What a fit tells: events to callbacks, a line of text or rich's bar where it is verbose."""

    @pytest.fixture
    def small(self, monkeypatch):
        for name in ("MAX_BLOCK_ROWS", "MIN_BLOCK_ROWS"):
            monkeypatch.setattr(canonical, name, 100)

    def test_callbacks_hear_stages_and_blocks(self, small):
        heard = []
        be.PCA(2, callbacks=[heard.append]).fit(rows_of_progress())
        assert [(event.kind, event.stage) for event in heard if event.kind != "blocks"] == [
            (kind, stage) for stage in ("moments", "solve", "judgement") for kind in ("start", "done")
        ]
        blocks = [event.results for event in heard if (event.kind, event.message) == ("blocks", "moments")]
        assert blocks == [{"done": done, "total": 10} for done in range(1, 11)]
        told = []
        be.PCA(2, callbacks=[told.append]).partial_fit(rows_of_progress())
        assert [event.kind for event in told if event.kind != "blocks"] == ["start", "done"] * 2
        plain = be.PCA(2).fit(rows_of_progress())
        np.testing.assert_array_equal(
            plain.components_, be.PCA(2, callbacks=[heard.append]).fit(rows_of_progress()).components_
        )

    def test_a_callback_may_stop_the_fit(self, tmp_path):
        def stop(event):
            if event.kind == "start" and event.stage == "solve":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            be.PCA(2, workdir=tmp_path, callbacks=[stop]).fit(rows_of_progress())
        heard = []
        be.PCA(2, workdir=tmp_path, callbacks=[heard.append]).fit(rows_of_progress())
        assert next(event.kind for event in heard if event.stage == "moments") == "reused"

    def test_a_line_of_text_where_there_is_no_terminal(self, small, capsys):
        be.PCA(2, verbose=True).fit(rows_of_progress())
        said = capsys.readouterr()
        assert said.out == ""
        last = said.err.rstrip("\n").split("\r")[-1].rstrip()
        assert last == f"PCA [{'#' * 30}] 100 % judgement"
        assert said.err.count("\n") == 1
        be.PCA(2).fit(rows_of_progress())
        assert capsys.readouterr().err == ""
        with pytest.raises(InputError, match="NaN"):
            be.PCA(2, verbose=True).fit(rows_of_progress() * np.nan)
        assert capsys.readouterr().err.endswith("\n")


def stop_in(stage: str):
    """A callback that presses Ctrl-C when a stage begins."""

    def press(event):
        if (event.kind, event.stage) == ("start", stage):
            signal.raise_signal(signal.SIGINT)

    return [press]


class TestKeyboard:
    """Ctrl-C in a fit: a few lines, the estimator as it was, and what is finished is used again."""

    @a_few(
        1,
        ("method", "stage"),
        [
            (be.DiffusionMap(n_neighbors=8), "kernel"),
            (be.PCA(2), "solve"),
            (be.UMAP(n_neighbors=8, n_epochs=5), "graph"),
        ],
    )
    def test_a_fit_that_is_stopped_says_so_in_a_few_lines_and_goes_on(self, method, stage, tmp_path, interruptible):
        rows = np.random.default_rng(0).normal(size=(300, 4))
        expected = np.asarray(method.fit(rows).embedding_)
        method.set_params(workdir=tmp_path / "work", callbacks=stop_in(stage))
        with pytest.raises(KeyboardInterrupt, match=f"stopped in stage '{stage}'; what is finished is kept") as stopped:
            method.fit(rows[:, :3])
        assert stopped.value.__suppress_context__
        assert len("".join(traceback.format_exception(stopped.value)).splitlines()) <= 15
        assert method.n_features_in_ == 4
        np.testing.assert_array_equal(method.embedding_, expected)
        heard = []
        method.set_params(callbacks=[heard.append])
        again = np.asarray(method.fit(rows[:, :3]).embedding_)
        assert "reused" in {event.kind for event in heard}
        np.testing.assert_array_equal(
            again, method.set_params(workdir=None, callbacks=None).fit(rows[:, :3]).embedding_
        )


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestOneFitAtATime:
    """Rows are copied into a workdir by the fit that holds it: another one would write over them, or delete them."""

    def test_lazy_rows(self, tmp_path):
        method = be.LinearizedDiffusionMap(n_components=2, workdir=tmp_path / "run")
        first, second = (da.from_array(rows() + shift, chunks=(20, 4)) + 0.0 for shift in range(2))

        def copies():
            return [path.name for path in (tmp_path / "run").glob("exchange/input-*")]

        method.fit(first)
        before = copies()
        assert len(before) == 1
        with hold(tmp_path / "run"), pytest.raises(LockedError):
            method.fit(second)
        assert copies() == before  # (the second was written)
        method.fit(second)
        assert len(copies()) == 1  # a control: the first one is deleted then
        assert copies() != before

    def test_rows_of_this_process_for_tasks_of_others(self, tmp_path):
        method, path = be.PCA(n_components=2, workdir=tmp_path / "run"), tmp_path / "run" / "exchange" / "input.npy"
        with executor(lambda calls, label: [call() for call in calls]):
            method.fit(rows())
            with hold(tmp_path / "run"):
                for call in (method.fit, lambda X: be.build_neighbor_graph(X, 5, workdir=tmp_path / "run")):
                    with pytest.raises(LockedError):
                        call(rows() + 1.0)
            np.testing.assert_array_equal(np.load(path), rows())
            method.fit(rows() + 1.0)
        np.testing.assert_array_equal(np.load(path), rows() + 1.0)  # a control
