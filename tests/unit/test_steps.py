"""Steps before a method: each against its formula, sparse rows, pipelines."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import decomposition, preprocessing
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bigembed as be
from bigembed.errors import BigembedError, DamagedError, InputError, InputTypeError
from bigembed.jobs.extend import extend
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import parse_job, read_job
from bigembed.linalg.moments import levels_of
from bigembed.maps import STEPS, step
from bigembed.rows import RowSource
from bigembed.rows.derived import MappedSource
from bigembed.rows.sparse import write_csr
from bigembed.runtime import Event, using
from bigembed.stages.runs import Run
from bigembed.stages.stage import run_stages
from bigembed.steps.columns import normalized_dispersion
from bigembed.store import at
from bigembed.store.arrays import read_array, write_array
from tests.blocks import blocks_of
from tests.job_files import job_in
from tests.some import a_few

N, D = 3_000, 7
_RANDOM = np.random.default_rng(0)
ROWS = _RANDOM.normal(size=(N, D)) * np.geomspace(1e-3, 1e3, D) + np.linspace(-1e4, 1e4, D)
ROWS[:, 2] = 5.1
HOLES = np.where(_RANDOM.random((N, D)) < 0.05, np.nan, ROWS)
COUNTS = _RANDOM.poisson(3.0, (N, D)).astype("f4") * (_RANDOM.random((N, 1)) < 0.98)


def same(found: Any, expected: Any, near: float = 1e-12) -> None:
    """Up to rounding; and rows one further along are not."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=near * max(1.0, np.abs(expected).max()))
    assert np.abs(found[1:] - expected[:-1]).max() > 1e3 * near


PEERS = {
    "standardize": (be.StandardScaler(), preprocessing.StandardScaler(), 1e-7),
    "mean only": (be.StandardScaler(with_std=False), preprocessing.StandardScaler(with_std=False), 1e-10),
    "robust": (be.RobustScaler(), preprocessing.RobustScaler(), 1e-12),
    "robust, others": (
        be.RobustScaler(quantile_range=(5, 90)),
        preprocessing.RobustScaler(quantile_range=(5, 90)),
        1e-12,
    ),
    "l2": (be.Normalizer(), preprocessing.Normalizer(), 1e-14),
    "l1": (be.Normalizer("l1"), preprocessing.Normalizer("l1"), 1e-14),
    "max": (be.Normalizer("max"), preprocessing.Normalizer("max"), 1e-14),
}
WRONG = {
    "nothing marked": (lambda: be.MarkMissing([]).fit(ROWS), "values=.*a list of one or more finite numbers"),
    "no number marked": (lambda: be.MarkMissing(["x"]).fit(ROWS), "values=.*a list of one or more finite numbers"),
    "zeros marked": (
        lambda: be.MarkMissing([0]).fit(sparse.csr_array(np.eye(5))),
        "of sparse rows it is what is not stored",
    ),
    "clip nothing": (lambda: be.Clip().fit(ROWS), "low=None.*high must be one"),
    "log of −2": (lambda: be.Log1p().fit_transform(np.array([[0.0], [-2.0]])), r"rows \[1\], with -2"),
    "negative total": (lambda: be.Normalizer("total").fit_transform(-COUNTS), "negative"),
    "unknown column": (lambda: be.Columns(["a"]).fit(ROWS), "no names of columns: give numbers, 0 to 6"),
    "empty columns": (
        lambda: be.Columns(most_missing=0.3).fit(np.full((4, 2), np.nan)),
        r"all 2 columns miss more than 0\.3 of their values",
    ),
    "two choices": (lambda: be.Columns(most_variable=2, most_missing=0.3).fit(ROWS), "two steps"),
    "a whole share": (lambda: be.Columns(most_missing=1.0).fit(ROWS), r"in \[0, 1\)"),
    "infinity in columns": (
        lambda: be.Columns(most_missing=0.5).fit(np.where(ROWS[5, 5] == ROWS, np.inf, HOLES)),
        "infinity",
    ),
    "too many": (lambda: be.Columns(most_variable=9).fit(ROWS), "there are 7 columns"),
    "infinity": (lambda: be.Missing().fit(np.where(ROWS[5, 5] == ROWS, np.inf, HOLES)), r"infinity: 1 of 3000.*\[5\]"),
    "nothing complete": (lambda: be.Missing().fit(np.full((4, 2), np.nan)), "no row is complete"),
    "empty column": (
        lambda: be.Missing("fill").fit(np.array([[1.0, np.nan]])),
        r"no number at all: column 1 \(counted",
    ),
    "quantiles": (lambda: be.RobustScaler(quantile_range=(80, 20)).fit(ROWS), "q_min < q_max"),
    "filled zeros": (
        lambda: be.Missing("fill", zeros=True).fit(HOLES),
        "zeros=True; allowed: False with action=",
    ),
    "zeros alone": (
        lambda: be.Missing(zeros=True).fit(np.zeros((9, 2))),
        "no row is left: each of 9 rows",
    ),
    "unknown name": (lambda: be.Log1p(columns=["a"]).fit(ROWS), "no names of columns: give numbers, 0 to 6"),
    "no such number": (lambda: be.RobustScaler(columns=[9]).fit(ROWS), "no columns 9; there are 7 columns"),
    "twice": (lambda: be.Clip(high=1, columns=[1, 1]).fit(ROWS), "columns=.*each once"),
    "twice, from the end": (lambda: be.Clip(high=1, columns=[6, -1]).fit(ROWS), "6, -1: some of them are the same"),
    "near": (lambda: be.Clip(high=1, columns=["revenu"]).fit(PAY), "'revenu'; did you mean 'revenue'"),
    "NaN in the column": (
        lambda: be.StandardScaler(columns=[0]).fit(HOLES),
        rf"contains NaN: {np.isnan(HOLES[:, 0]).sum()} of 3000 rows",
    ),
    "NaN": (lambda: be.StandardScaler().fit(HOLES), "contains NaN: [0-9]+ of 3000 rows.*'missing'"),
}


def _clip(table: Any) -> Any:
    return table.clip(20, 45)


GIVEN: dict[str, dict[str, Any]] = {
    "clip": {"high": 3.0}, "columns": {"columns": [1, 3]}, "columns, chosen": {"most_variable": 2},
    "gaussian_projection": {"n_components": 3}, "missing, filled": {"action": "fill"}, "pca": {"n_components": 2},
    "sparse_projection": {"n_components": 3},
}  # fmt: skip
"""Parameters of steps that need some, for few columns."""


class TestSteps:
    """Each step against what scikit-learn, NumPy or a formula makes of the same rows."""

    @pytest.mark.parametrize("name", PEERS)
    def test_scikit_learn_makes_the_same(self, name: str, tmp_path: Path) -> None:
        mine, peer, near = PEERS[name]
        same(mine.fit_transform(ROWS), peer.fit_transform(ROWS), near)
        narrow = ROWS.astype("f4")
        assert mine.fit_transform(narrow).dtype == np.float32
        np.save(tmp_path / "rows.npy", ROWS)
        lazy = mine.fit(tmp_path / "rows.npy").transform(tmp_path / "rows.npy")
        np.testing.assert_array_equal(lazy.compute(), mine.fit_transform(ROWS))

    @pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
    def test_quantiles_are_exact(self, dtype: str) -> None:
        rows = np.concatenate([ROWS.astype(dtype), -ROWS[:500].astype(dtype), np.zeros((3, D), dtype)])
        found = be.RobustScaler(quantile_range=(1, 99.5)).fit(rows)
        worked = rows.astype("f8")
        low, middle, high = np.quantile(worked, [0.01, 0.5, 0.995], axis=0)
        np.testing.assert_array_equal(found.center_, middle)
        np.testing.assert_allclose(found.scale_, np.where(high == low, 1, high - low), rtol=1e-14)
        assert sum(levels_of(dtype if dtype != "i2" else "f4", D, 6)) == (64 if dtype == "f8" else 32)

    @pytest.mark.parametrize("fill", ["mean", "median", 7.0])
    def test_missing_values_are_filled(self, fill: Any) -> None:
        strategy = {"strategy": fill} if isinstance(fill, str) else {"strategy": "constant", "fill_value": fill}
        with blocks_of(700):  # (whose means are put together)
            found = be.Missing(action="fill", fill=fill).fit(HOLES)
        same(found.fit_transform(HOLES), SimpleImputer(**strategy).fit_transform(HOLES), 1e-11)
        np.testing.assert_array_equal(found.missing_, np.isnan(HOLES).sum(axis=0))
        masked = np.ma.array(np.where(np.isnan(HOLES), 1e9, HOLES), mask=np.isnan(HOLES))
        np.testing.assert_array_equal(found.fit_transform(masked), found.fit_transform(HOLES))

    def test_rows_with_missing_values_are_left_out_and_said(self) -> None:
        there = ~np.isnan(HOLES).any(axis=1)
        found = be.Missing().fit(HOLES)
        np.testing.assert_array_equal(found.embedding_, HOLES[there])
        np.testing.assert_array_equal(found.rows_, np.flatnonzero(there))
        said = found.certificate_["missing"]
        assert (said["rows"], said["kept"]) == ((~there).sum(), there.sum())
        assert said["first"] == np.flatnonzero(~there)[:10].tolist()
        assert "were left out" in found.describe()

    def test_totals_logarithms_and_columns(self) -> None:
        totals = COUNTS.sum(axis=1, dtype="f8")
        target = np.median(totals[totals > 0])
        shares = be.Normalizer("total").fit(COUNTS)
        assert shares.target_ == target
        expected = COUNTS * np.where(totals > 0, target / np.where(totals > 0, totals, 1), 1)[:, None]
        same(shares.transform(COUNTS), expected, 1e-6)
        same(be.Log1p().fit_transform(COUNTS), np.log1p(COUNTS), 1e-6)
        same(be.Clip(low=-2, high=3).fit_transform(ROWS), ROWS.clip(-2, 3))
        coded = np.where(ROWS > 1, -9999, ROWS)
        holes = np.where(ROWS > 1, np.nan, ROWS)
        np.testing.assert_array_equal(be.MarkMissing().fit_transform(coded), holes)
        np.testing.assert_array_equal(be.MarkMissing([3]).fit_transform(coded), coded)  # (the control)
        only = be.MarkMissing([-9999, 5], columns=[1]).fit_transform(coded)
        np.testing.assert_array_equal(only[:, 1], holes[:, 1])
        np.testing.assert_array_equal(np.delete(only, 1, axis=1), np.delete(coded, 1, axis=1))
        chosen = be.Columns(most_variable=3).fit(ROWS)
        assert chosen.columns_.tolist() == [4, 5, 6]
        np.testing.assert_array_equal(chosen.transform(ROWS), ROWS[:, 4:])
        np.testing.assert_array_equal(be.Columns([5, 0]).fit_transform(ROWS), ROWS[:, [5, 0]])

    def test_a_missing_category_is_filled_by_no_number(self) -> None:
        rng = np.random.default_rng(0)
        whole = pd.DataFrame({"x": rng.normal(size=90), "kind": ["a", "b", "c"] * 30})
        holes = whole.assign(kind=whole.kind.where(np.arange(90) % 9 > 0))
        filled = [("missing", be.Missing("fill", fill="median")), ("one_hot", be.OneHotEncoder(["kind"]))]
        with pytest.raises(InputError, match=r"columns kind \(10\) hold categories.*'one_hot' before"):
            be.Pipeline([*filled, ("pca", be.PCA(2))]).fit(holes)
        fitted = be.Pipeline([*filled, ("pca", be.PCA(2))]).fit(whole)
        with pytest.raises(InputError, match="NaN: 10 of the rows"):
            fitted.transform(holes)
        coded = be.Missing("fill", fill=0.0).fit_transform(be.OneHotEncoder(["kind"]).fit_transform(holes))
        there = ~holes.kind.isna().to_numpy()
        assert coded[:, 1:].sum(axis=1).tolist() == there.astype(float).tolist()

    def test_columns_that_miss_most_values_go_before_the_rows_that_miss_one(self, tmp_path: Path) -> None:
        rows = ROWS.copy()
        rows[:, 1], rows[::2, 3], rows[7, 0] = np.nan, np.nan, np.nan
        for most, kept in ((0.0, [2, 4, 5, 6]), (0.1, [0, 2, 4, 5, 6]), (0.5, [0, 2, 3, 4, 5, 6])):
            step = be.Columns(most_missing=most).fit(rows)
            assert step.columns_.tolist() == kept
            np.testing.assert_array_equal(step.transform(rows), rows[:, kept])
        assert be.Columns([3, 2, 1], most_missing=0.5).fit(rows).columns_.tolist() == [3, 2]
        steps = [("columns", be.Columns(most_missing=0.1)), ("missing", be.Missing()), ("pca", be.PCA(2))]
        mapped = be.Pipeline(steps).fit(rows).transform(rows)
        complete = np.delete(rows[:, [0, 2, 4, 5, 6]], 7, axis=0)
        same(np.delete(mapped, 7, axis=0), be.PCA(2).fit_transform(complete), 1e-10)
        assert np.isnan(mapped[7]).all()
        np.save(tmp_path / "rows.npy", rows)
        steps_of_job = '[[steps]]\nname = "columns"\nmost_missing = 0.1\n[[steps]]\nname = "missing"'
        run_job(job_in(tmp_path, more=steps_of_job))
        same(read_array(tmp_path / "run.zarr" / "coordinates"), np.delete(mapped, 7, axis=0), 1e-10)

    @pytest.mark.parametrize("case", WRONG)
    def test_what_is_wrong_is_said(self, case: str) -> None:
        do, message = WRONG[case]
        with pytest.raises(InputError, match=message):
            do()

    @pytest.mark.parametrize("name", STEPS)
    def test_steps_are_estimators(self, name: str, tmp_path: Path) -> None:
        """Saved, loaded and pickled; any rows of a batch alone are the same."""

        one = step(name)(**GIVEN.get(name, {})).fit(COUNTS)
        whole = one.transform(COUNTS[:50])
        np.testing.assert_array_equal(np.vstack([one.transform(COUNTS[i : i + 1]) for i in range(50)]), whole)
        one.save(tmp_path / "step")
        for again in (be.load(tmp_path / "step"), pickle.loads(pickle.dumps(one))):
            np.testing.assert_array_equal(again.transform(COUNTS[:50]), whole)
        with pytest.raises(BigembedError):
            one.transform(COUNTS[:, :2])

    @pytest.mark.parametrize("name", [*STEPS, "missing, filled", "columns, chosen"])
    def test_a_step_that_is_not_fitted_writes_its_rows_by_what_its_stages_learned(
        self, name: str, tmp_path: Path
    ) -> None:
        """As before a method that reads its rows so often that a copy of what the step makes is cheaper."""
        given = GIVEN.get(name, {})
        rows = HOLES if name == "missing, filled" else COUNTS
        kind, run = step(name.partition(",")[0]), Run(tmp_path / "run")
        stages = kind(**given).stages(RowSource(rows.shape, rows.dtype, array=rows))
        run_stages(stages, run)
        whole = kind(**given).fit_transform(rows)
        if stages[-1].on_demand:
            np.testing.assert_array_equal(read_array(run.path("coordinates", "embedding")), whole)
        else:
            np.testing.assert_array_equal(whole, rows)  # (rows are left out as they are read)


PAY_RANDOM = np.random.default_rng(11)
PAY = pd.DataFrame(
    {
        "age": PAY_RANDOM.normal(40, 10, N),
        "revenue": PAY_RANDOM.lognormal(5, 2, N),
        "hours": PAY_RANDOM.normal(30, 5, N),
        "cost": PAY_RANDOM.lognormal(3, 1, N),
    }
)
SOME: dict[str, tuple[Any, Any, list[str]]] = {
    "log1p": (be.Log1p, preprocessing.FunctionTransformer(np.log1p), ["revenue"]),
    "clip": (partial(be.Clip, low=20, high=45), preprocessing.FunctionTransformer(_clip), ["hours", "age"]),
    "standardize": (be.StandardScaler, preprocessing.StandardScaler(), ["cost", "age"]),
    "standardize, no mean": (
        partial(be.StandardScaler, with_mean=False),
        preprocessing.StandardScaler(with_mean=False),
        ["age"],
    ),
    "robust": (be.RobustScaler, preprocessing.RobustScaler(), ["revenue", "cost"]),
}


def by_scikit_learn(peer: Any, table: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """The table with these columns as scikit-learn's transformer makes them, each in its place."""
    parts = make_column_transformer((peer, columns), remainder="passthrough", verbose_feature_names_out=False)
    found = parts.set_output(transform="pandas").fit_transform(table)
    return found[list(table.columns)].to_numpy(float)


class TestSomeColumns:
    """Steps of some of the columns, against scikit-learn's ColumnTransformer: the others pass, whatever they hold."""

    @pytest.mark.parametrize("name", SOME)
    def test_column_transformer_makes_the_same(self, name: str, tmp_path: Path) -> None:
        kind, peer, columns = SOME[name]
        table = PAY.copy()
        others = [one for one in PAY if one not in columns]
        table.loc[[3, 77], others] = np.nan
        expected = by_scikit_learn(peer, table, columns)
        fitted = kind(columns=columns).fit(table)
        found = fitted.transform(table)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        numbers = [list(PAY).index(one) for one in others]
        np.testing.assert_array_equal(found[:, numbers], table.to_numpy()[:, numbers])
        assert np.abs(kind().fit_transform(PAY) - kind(columns=columns).fit_transform(PAY)).max() > 1
        assert fitted.get_feature_names_out().tolist() == list(PAY)
        assert fitted.describe() == f"{len(columns)} of 4 columns: {', '.join(columns)}"
        by_number = kind(columns=[list(PAY).index(one) for one in columns])
        np.testing.assert_array_equal(by_number.fit_transform(table.to_numpy()), found)
        np.save(tmp_path / "rows.npy", table)
        np.testing.assert_array_equal(by_number.fit(tmp_path / "rows.npy").embedding_.compute(), found)
        by_number.save(tmp_path / "model")
        np.testing.assert_array_equal(be.load(tmp_path / "model").transform(table.to_numpy()), found)
        narrow = PAY.to_numpy("f4")
        assert by_number.fit_transform(narrow).dtype == np.float32
        np.testing.assert_array_equal(by_number.fit_transform(narrow)[:, numbers], narrow[:, numbers])

    def test_what_is_learned_is_that_of_the_column_alone(self) -> None:
        some, all_of_them = be.StandardScaler(columns=[1]).fit(ROWS), be.StandardScaler().fit(ROWS)
        assert (some.mean_[1], some.var_[1], some.scale_[1]) == tuple(
            one[1] for one in (all_of_them.mean_, all_of_them.var_, all_of_them.scale_)
        )
        assert some.mean_[[0, 2]].tolist() + some.scale_[[0, 2]].tolist() == [0, 0, 1, 1]

    @pytest.mark.parametrize(
        "step",
        [be.Log1p(columns=[7, 2]), be.Clip(high=1, columns=[7]), be.StandardScaler(with_mean=False, columns=[7])],
    )
    def test_of_sparse_rows_the_same_stays_sparse(self, step: Any) -> None:
        found = step.fit_transform(SPARSE_HOLES)
        assert sparse.issparse(found)
        assert found.nnz == SPARSE_HOLES.nnz
        np.testing.assert_allclose(found.toarray(), step.fit_transform(SPARSE_HOLES.toarray()), rtol=1e-6)
        before, after = (np.nan_to_num(rows.toarray(), nan=-9) for rows in (SPARSE_HOLES, found))
        assert np.flatnonzero((before != after).any(axis=0)).tolist() == sorted(step.columns)

    def test_a_job_that_changes_the_columns_computes_what_follows(self, tmp_path: Path) -> None:
        """Each time the map of a job of its own; new rows go through the same columns."""
        PAY.to_csv(tmp_path / "pay.csv", index=False)

        def run(columns: str, path: str) -> Any:
            steps = f'[[steps]]\nname = "log1p"\ncolumns = {columns}\n[[steps]]\nname = "robust_standardize"'
            steps += f"\ncolumns = {columns}"
            job = job_in(tmp_path, source='path = "pay.csv"', more=steps, path=path, output=f'model = "{path}-model"')
            run_job(job)
            return read_array(tmp_path / path / "coordinates")

        first = run('["revenue"]', "run.zarr")
        other = run('["cost", "revenue"]', "run.zarr")
        assert np.abs(first - other).max() > 1
        np.testing.assert_array_equal(other, run('["cost", "revenue"]', "fresh.zarr"))
        np.testing.assert_array_equal(first, run('["revenue"]', "run.zarr"))
        logarithms = pd.DataFrame(by_scikit_learn(SOME["log1p"][1], PAY, ["revenue"]), columns=list(PAY))
        scaled = by_scikit_learn(SOME["robust"][1], logarithms, ["revenue"])
        same(first, be.PCA(2).fit_transform(scaled), 1e-9)
        extend(tmp_path / "run.zarr-model", tmp_path / "pay.csv", tmp_path / "new.zarr")
        np.testing.assert_allclose(read_array(tmp_path / "new.zarr"), first, atol=1e-9)

    def test_names_that_a_step_before_has_yet_to_learn(self) -> None:
        """One-hot columns are known once it is fitted; what is not there is refused then."""
        table = TABLE.drop(columns=["id", "town"])
        steps = [be.OneHotEncoder(["kind"]), be.StandardScaler(columns=["width"]), be.Columns(["width", "kind_oak"])]
        found = be.Pipeline([*steps, be.PCA(2, whiten=False)]).fit(table)
        expected = np.column_stack([(TABLE.width - TABLE.width.mean()) / TABLE.width.std(ddof=0), TABLE.kind == "oak"])
        same(np.abs(found.embedding_), np.abs(be.PCA(2).fit_transform(expected)), 1e-9)
        assert found.certificate_["steps"]["2 standardize"] == "1 of 5 columns: width"
        with pytest.raises(InputError, match="'widht'; did you mean 'width'"):
            be.Pipeline([steps[0], be.Clip(high=1, columns=["widht"]), be.PCA(2)]).fit(table)

    def test_log1p_names_the_columns(self) -> None:
        table = PAY.assign(hours=-30.0)
        np.testing.assert_array_equal(be.Log1p(columns=["revenue"]).fit_transform(table)[:, 2], table.hours)
        with pytest.raises(InputError, match=r"in column hours, the first are rows \[0, 1, 2, 3, 4\], with -30"):
            be.Log1p().fit_transform(table)
        for rows in (table.to_numpy(), sparse.csr_array(table.to_numpy())):
            with pytest.raises(InputError, match=r"in column 2 \(counted from 0\), the first are rows"):
                be.Log1p(columns=[1, 2]).fit_transform(rows)


ONE_HOT_RANDOM = np.random.default_rng(7)
TABLE = pd.DataFrame(
    {
        "id": [f"r{number}" for number in range(300)],
        "height": ONE_HOT_RANDOM.normal(size=300),
        "kind": ONE_HOT_RANDOM.choice(["oak", "ash", "elm, wych"], 300),
        "town": ONE_HOT_RANDOM.choice([10, 20], 300),
        "width": ONE_HOT_RANDOM.normal(size=300),
    }
)
ONE_HOT_STEPS = [{"name": "one_hot", "columns": ["kind", "town"]}, {"name": "missing"}, {"name": "standardize"}]


def expected(table: pd.DataFrame) -> np.ndarray:
    """The columns in their order, by scikit-learn."""
    encoder = OneHotEncoder(sparse_output=False)
    parts = make_column_transformer(
        ("passthrough", ["height"]), (encoder, ["kind", "town"]), ("passthrough", ["width"]), remainder="drop"
    )
    return np.asarray(parts.fit_transform(table), float)


class TestOneHot:
    """Columns of categories: numbers as scikit-learn encodes them, text of tables by name, and for new rows."""

    def test_numbers_as_scikit_learn_has_them(self) -> None:
        rows = np.column_stack(
            [ONE_HOT_RANDOM.integers(0, 5, 400), ONE_HOT_RANDOM.normal(size=400), 3.5 * (np.arange(400) % 3)]
        )
        found = be.OneHotEncoder([0, 2]).fit(rows)
        theirs = OneHotEncoder(sparse_output=False).fit_transform(rows[:, [0, 2]])
        np.testing.assert_array_equal(found.embedding_[:, [0, 1, 2, 3, 4, 6, 7, 8]], theirs)
        np.testing.assert_array_equal(found.embedding_[:, 5], rows[:, 1])
        assert found.get_feature_names_out().tolist()[4:7] == ["x0_4", "x1", "x2_0"]
        rows[7, 2] = -1
        with pytest.raises(InputError, match=r"column 2 .* did not have, the first are rows \[7\]"):
            found.transform(rows)
        assert be.OneHotEncoder([0, 2], unknown="zeros").fit(rows[8:]).transform(rows)[7, 6:].tolist() == [0, 0, 0]
        with pytest.raises(InputError, match="more than most=3 categories"):
            be.OneHotEncoder([0], most=3).fit(rows)
        with pytest.raises(InputError, match="infinity"):
            be.OneHotEncoder([0]).fit(np.array([[1.0], [np.inf]]))

    @a_few(1, "suffix", [".csv", ".parquet"])
    def test_text_of_a_table_by_name_and_for_new_rows(self, suffix: str, tmp_path: Path) -> None:
        def written(table: pd.DataFrame, name: str) -> Path:
            path = tmp_path / f"{name}{suffix}"
            _ = table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
            return path

        def job(**output: str) -> Any:
            tables = {
                "input": {"path": str(written(TABLE, "rows")), "ids": "id"},
                "steps": ONE_HOT_STEPS,
                "output": output,
            }
            return parse_job(tables | {"method": {"name": "pca", "n_components": 2}}, tmp_path / "job.toml")

        asked = job(path="run.zarr", model="model")
        assert dict(plan_job(asked).stages)["step1-one_hot-categories"].passes == 1
        run_job(asked)
        found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
        plain = be.Pipeline([be.StandardScaler(), be.PCA(2)]).fit(expected(TABLE))
        np.testing.assert_allclose(found, plain.embedding_, atol=1e-9)
        model = be.load(tmp_path / "model")
        assert model.steps_[0].categories_ == [["ash", "elm, wych", "oak"], ["10", "20"]]
        assert model.steps_[1].feature_names_in_.tolist()[1:5] == ["kind_ash", "kind_elm, wych", "kind_oak", "town_10"]
        few = TABLE[TABLE.kind != "ash"].iloc[:20]  # (the texts of the model count, not those of the new table)
        extend(tmp_path / "model", written(few, "few"), tmp_path / "few.zarr", aligned={"ids": "id"})
        np.testing.assert_array_equal(read_array(tmp_path / "few.zarr"), found[few.index])
        holes = few.assign(kind=[None, *few.kind[1:]])
        extend(tmp_path / "model", written(holes, "holes"), tmp_path / "holes.zarr", aligned={"ids": "id"})
        assert np.isnan(read_array(tmp_path / "holes.zarr")).any(axis=1).tolist() == [True] + 19 * [False]
        other = few.assign(kind=[*few.kind[:4], "yew", *few.kind[5:]])
        with pytest.raises(InputError, match=r"did not have, the first are rows \[4\]"):
            extend(tmp_path / "model", written(other, "other"), tmp_path / "other.zarr", aligned={"ids": "id"})


SPARSE_N, SPARSE_D = 600, 90
SPARSE_RANDOM = np.random.default_rng(2)
_KINDS = np.where(SPARSE_RANDOM.random((3, SPARSE_D)) < 0.1, 6.0, 1.0)[SPARSE_RANDOM.integers(0, 3, SPARSE_N)]
SPARSE_COUNTS = SPARSE_RANDOM.poisson(SPARSE_RANDOM.gamma(0.4, 0.6, SPARSE_D) * _KINDS).astype("f4")
SPARSE_COUNTS[:, 5] = 0
SPARSE_ROWS = sparse.csr_array(SPARSE_COUNTS)
SPARSE_HOLES = sparse.csr_array(SPARSE_ROWS, copy=True)
SPARSE_HOLES.data[[3, 700, 701]] = np.nan
SPARSE_STEPS: dict[str, Any] = {
    "normalize": be.Normalizer("total"), "lengths": be.Normalizer(), "sums": be.Normalizer("l1"),
    "largest": be.Normalizer("max"), "log1p": be.Log1p(), "some": be.Columns([7, 2, 30]),
    "variance": be.Columns(most_variable=20), "dispersion": be.Columns(most_variable=20, by="dispersion"),
    "scale": be.StandardScaler(with_mean=False), "clip": be.Clip(low=-1, high=2),
}  # fmt: skip
RECIPE = [
    be.Normalizer("total", target=1e4), be.Columns(most_variable=40, by="dispersion"), be.Log1p(),
    be.StandardScaler(with_mean=False), be.Clip(high=10), be.PCA(n_components=6),
]  # fmt: skip
TABLES = [
    {"name": "normalize", "norm": "total", "target": 1e4},
    {"name": "columns", "most_variable": 40, "by": "dispersion"},
    {"name": "log1p"},
    {"name": "standardize", "with_mean": False},
    {"name": "clip", "high": 10.0},
    {"name": "pca", "n_components": 6},
]


def recipe_of_scikit_learn() -> tuple[Any, Any]:
    """Components of the recipe on dense rows, and the columns that Scanpy's formula chooses."""
    shares = SPARSE_COUNTS * (1e4 / SPARSE_COUNTS.sum(axis=1, keepdims=True, dtype="f8"))
    mean, variance = shares.mean(axis=0), shares.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(np.where(variance > 0, variance / mean, np.nan))
    size = np.log1p(mean)
    edges = np.linspace(size.min(), size.max(), 21)
    edges[0] -= 1e-3
    score = np.full(SPARSE_D, -np.inf)
    for low, high in pairwise(edges):
        inside = (size > low) & (size <= high) & np.isfinite(log)
        if inside.sum() > 1:
            score[inside] = (log[inside] - log[inside].mean()) / log[inside].std(ddof=1)
        elif inside.any():
            score[inside] = 1.0
    chosen = np.sort(np.argsort(-score, kind="stable")[:40])
    scaled = StandardScaler(with_mean=False).fit_transform(np.log1p(shares[:, chosen])).clip(max=10)
    return PCA(6, svd_solver="full").fit_transform(scaled), chosen


REFUSED = {
    "mean": ([be.StandardScaler(), be.PCA(2)], InputError, "with_mean=False.*A PCA that follows.*ingest --dense"),
    "median": ([be.RobustScaler(), be.PCA(2)], InputError, "take standardize with_mean=False"),
    "bounds": ([be.Clip(low=1), be.PCA(2)], InputError, "low ≤ 0 ≤ high"),
    "categories": ([be.OneHotEncoder([1]), be.PCA(2)], InputError, "leave the step out"),
    "method": ([be.Log1p(), be.ClassicalMDS(2)], InputTypeError, "ClassicalMDS takes dense rows.*Add a PCA"),
}


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestSparse:
    """Steps on sparse rows: what they make of the same rows dense, never dense on the way; what they refuse."""

    @pytest.mark.parametrize("name", SPARSE_STEPS)
    def test_a_step_leaves_rows_sparse_and_makes_the_same_of_them(self, name: str) -> None:
        step, expected = SPARSE_STEPS[name], SPARSE_STEPS[name].fit_transform(SPARSE_COUNTS)
        found = step.fit_transform(SPARSE_ROWS)
        assert sparse.issparse(found)
        assert found.nnz <= SPARSE_ROWS.nnz
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)
        assert abs(found.toarray() - SPARSE_COUNTS[:, : found.shape[1]]).max() > 0.1
        np.testing.assert_array_equal(step.transform(SPARSE_ROWS[50:53]).toarray(), found[50:53].toarray())

    def test_missing_values_among_stored_entries(self) -> None:
        dense, there = SPARSE_HOLES.toarray(), ~np.isnan(SPARSE_HOLES.toarray()).any(axis=1)
        found = be.Missing().fit(SPARSE_HOLES)
        np.testing.assert_array_equal(found.embedding_.toarray(), SPARSE_COUNTS[there])
        np.testing.assert_array_equal(found.rows_, np.flatnonzero(there))
        with blocks_of(100):
            filled = be.Missing("fill").fit(SPARSE_HOLES)
        np.testing.assert_allclose(filled.embedding_.toarray(), be.Missing("fill").fit_transform(dense), rtol=1e-6)
        assert filled.missing_.sum() == 3
        with pytest.raises(InputError, match=r'medians of sparse.*fill with "mean"'):
            be.Missing("fill", fill="median").fit(SPARSE_HOLES)

    def test_the_recipe_is_that_of_scikit_learn_on_dense_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        expected, chosen = recipe_of_scikit_learn()
        dense: list[Any] = []
        of_block = MappedSource.read
        monkeypatch.setattr(MappedSource, "read", lambda self, a, b: dense.append(of_block(self, a, b)) or dense[-1])
        with blocks_of(150):
            found = be.Pipeline([*RECIPE[:-1], be.PCA(n_components=6)]).fit(SPARSE_ROWS)
        assert all(sparse.issparse(rows) for rows in dense)
        assert dense
        np.testing.assert_array_equal(found.steps_[1].columns_, chosen)
        np.testing.assert_allclose(found.embedding_, expected, atol=2e-5 * np.abs(expected).max())
        np.testing.assert_allclose(found.transform(SPARSE_COUNTS), found.embedding_, atol=1e-5)
        other = be.Pipeline([*RECIPE[2:5], be.PCA(n_components=6)]).fit(SPARSE_ROWS).embedding_
        assert np.abs(other - expected).max() > 0.1
        with pytest.raises(InputError, match="negative mean"):
            be.Columns(most_variable=2, by="dispersion").fit(-SPARSE_COUNTS)
        assert np.isnan(normalized_dispersion(np.array([0.0, 1.0]), np.array([0.0, 1.0]))[0])

    def test_all_kinds_of_sparse_rows_make_the_same_bytes(self, tmp_path: Path) -> None:
        write_csr(at(tmp_path / "rows.zarr"), SPARSE_ROWS)
        write_csr(at(tmp_path / "new.zarr"), SPARSE_ROWS[:40])
        method = be.PCA(n_components=2)
        expected = be.Pipeline([*RECIPE, method]).fit(SPARSE_ROWS)
        blocks = da.from_array(SPARSE_COUNTS, chunks=(170, SPARSE_D)).map_blocks(sparse.csr_array)
        for rows in (tmp_path / "rows.zarr", blocks):
            found = be.Pipeline([*RECIPE, method]).fit(rows)
            np.testing.assert_array_equal(np.asarray(found.embedding_), expected.embedding_)
        lazy = be.Log1p().fit(tmp_path / "rows.zarr").transform(tmp_path / "rows.zarr")
        assert sparse.issparse(lazy.compute())
        tables = {"input": {"path": "rows.zarr"}, "method": {"name": "pca", "n_components": 2}, "steps": TABLES}
        job = parse_job(tables | {"output": {"path": "run.zarr", "model": "model"}}, tmp_path / "job.toml")
        assert dict(plan_job(job).stages)["step4-standardize-moments"].read < 2 * 12 * (SPARSE_ROWS.nnz + 2 * SPARSE_N)
        run_job(job)
        assert not (tmp_path / "run-input.zarr").exists()
        found = read_array(tmp_path / "run.zarr" / "stages" / "coordinates" / "embedding")
        np.testing.assert_array_equal(found, expected.embedding_)
        extend(tmp_path / "model", tmp_path / "new.zarr", tmp_path / "placed.zarr")
        np.testing.assert_array_equal(read_array(tmp_path / "placed.zarr"), expected.transform(SPARSE_ROWS[:40]))

    @pytest.mark.parametrize("case", REFUSED)
    def test_what_would_make_rows_dense_is_refused(self, case: str) -> None:
        steps, error, message = REFUSED[case]
        with pytest.raises(error, match=message):
            be.Pipeline(steps).fit(SPARSE_ROWS)
        model = be.Pipeline(steps).fit(SPARSE_COUNTS)
        with pytest.raises(error, match=message):
            model.transform(SPARSE_ROWS)


PIPELINE_RANDOM = np.random.default_rng(3)
PIPELINE_ROWS = (
    PIPELINE_RANDOM.normal(size=(900, 12)) @ PIPELINE_RANDOM.normal(size=(12, 12)) * np.geomspace(1, 50, 12) + 7
)
PIPELINE_HOLES = np.where(PIPELINE_RANDOM.random(PIPELINE_ROWS.shape) < 0.01, np.nan, PIPELINE_ROWS)
THERE = ~np.isnan(PIPELINE_HOLES).any(axis=1)


def dropping(method: Any, **around: Any) -> be.Pipeline:
    return be.Pipeline([be.Missing(), be.StandardScaler(), be.PCA(n_components=3), method], **around)


def computed(do: Any) -> list[str]:
    """The stages that are computed."""
    seen: list[Event] = []
    with using(observer=seen.append):
        do()
    return [event.stage for event in seen if event.kind == "done"]


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestPipeline:
    """Steps and a method together: as scikit-learn chains them, as a job does, and for new rows."""

    def test_scikit_learns_chain_makes_the_same(self, tmp_path: Path) -> None:
        """Bit for bit with the classes of this package, in either class; nearly with scikit-learn's own."""
        np.save(tmp_path / "rows.npy", PIPELINE_ROWS)
        mine = [be.StandardScaler(), be.PCA(n_components=4), be.DiffusionMap(n_components=2)]
        chain = make_pipeline(*mine).fit(tmp_path / "rows.npy")
        found = be.Pipeline(mine).fit(tmp_path / "rows.npy")
        np.testing.assert_array_equal(np.asarray(found.embedding_), np.asarray(chain[-1].embedding_))
        fitted = be.Pipeline([be.StandardScaler(), be.PCA(n_components=4)]).fit(PIPELINE_ROWS)
        linear = np.asarray(fitted.embedding_)
        np.testing.assert_array_equal(fitted.transform(PIPELINE_ROWS), linear)
        theirs = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(n_components=4)).fit_transform(
            PIPELINE_ROWS
        )
        np.testing.assert_allclose(np.abs(linear), np.abs(theirs), atol=1e-9)

    def test_rows_left_out_are_those_that_were_never_there(self) -> None:
        found = dropping(be.DiffusionMap(n_components=2)).fit(PIPELINE_HOLES)
        other = be.Pipeline([be.StandardScaler(), be.PCA(n_components=3), be.DiffusionMap(n_components=2)])
        np.testing.assert_array_equal(found.embedding_, other.fit(PIPELINE_HOLES[THERE]).embedding_)
        new = found.transform(PIPELINE_HOLES)
        np.testing.assert_array_equal(np.isnan(new).any(axis=1), ~THERE)
        np.testing.assert_array_equal(new[THERE], found.transform(PIPELINE_HOLES[THERE]))
        assert "were left out" in found.certificate_["steps"]["1 missing"]

    @pytest.mark.parametrize("kept_sparse", [False, True])
    def test_rows_of_zeros_are_left_out_where_no_distance_is_defined(self, kept_sparse: bool, tmp_path: Path) -> None:
        """They keep their places among new rows, also through a saved model; others are refused by their numbers."""
        there = np.ones(400, bool)
        there[[3, 77, 399]] = False
        rows = np.where(there[:, None], np.random.default_rng(0).poisson(2.0, (400, 30)) + np.eye(1, 30), 0.0)
        given = sparse.csr_array(rows) if kept_sparse else rows
        given_without = given[np.flatnonzero(there)]
        fitted = be.DiffusionMap(n_components=2, metric="cosine").fit(given_without)
        said = r"zeros: 3 of the rows 0:400, .* rows \[3, 77, 399\]. Give the new rows without these. .*zeros=True"
        with pytest.raises(InputError, match=said):
            fitted.transform(given)
        found = be.Pipeline([be.Missing(zeros=True), be.DiffusionMap(n_components=2, metric="cosine")]).fit(given)
        np.testing.assert_array_equal(found.embedding_, fitted.embedding_)
        assert "3 of 400 rows have missing values or zeros only (3) and were left out: rows 3, 77, 399" in str(
            found.certificate_["steps"]
        )
        found.save(tmp_path / "model")
        for model in (found, be.load(tmp_path / "model")):
            new = model.transform(given)
            np.testing.assert_array_equal(np.isnan(new).any(axis=1), ~there)
            np.testing.assert_array_equal(new[there], fitted.transform(given_without))

    def test_weights_go_with_their_rows(self) -> None:
        weights = PIPELINE_RANDOM.random(len(PIPELINE_HOLES))
        found = be.Pipeline([be.Missing(), be.StandardScaler(), be.PCA(n_components=2)]).fit(
            PIPELINE_HOLES, sample_weight=weights
        )
        rows = preprocessing.StandardScaler().fit_transform(PIPELINE_HOLES[THERE])
        expected = be.PCA(n_components=2).fit(rows, sample_weight=weights[THERE])
        np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-9)

    def test_a_model_knows_its_steps(self, tmp_path: Path) -> None:
        found = dropping(be.DiffusionMap(n_components=2), workdir=tmp_path / "run").fit(PIPELINE_HOLES)
        expected = np.asarray(found.transform(PIPELINE_HOLES))
        found.save(tmp_path / "model")
        loaded = be.load(tmp_path / "model")
        for again in (loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(found))):
            np.testing.assert_array_equal(np.asarray(again.transform(PIPELINE_HOLES)), expected)
        np.save(tmp_path / "new.npy", PIPELINE_HOLES)
        loaded.transform_to(tmp_path / "new.npy", tmp_path / "out.zarr")
        np.testing.assert_array_equal(read_array(tmp_path / "out.zarr"), expected)
        with pytest.raises(InputError, match="expecting 12 features"):
            loaded.transform(PIPELINE_HOLES[:, :3])
        for changed in ("model.json", "stages/moments/mean/c/0"):
            place = tmp_path / "model" / "steps" / "2-standardize" / changed
            before = place.read_bytes()
            place.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
            with pytest.raises(DamagedError):
                be.load(tmp_path / "model").transform(PIPELINE_HOLES)
            place.write_bytes(before)

    def test_a_changed_step_computes_itself_and_what_follows(self, tmp_path: Path) -> None:
        def fit(*steps: Any) -> Any:
            return be.Pipeline([*steps, be.PCA(n_components=2)], workdir=tmp_path / "run").fit(PIPELINE_HOLES)

        first = computed(lambda: fit(be.Missing(), be.StandardScaler()))
        assert first == ["step1-missing-rows", "step2-standardize-moments", "moments", "solve", "judgement"]
        assert computed(lambda: fit(be.Missing(), be.StandardScaler())) == []
        last = np.array(fit(be.Missing(), be.StandardScaler()).components_)
        assert computed(lambda: fit(be.Missing(), be.RobustScaler())) == [
            "step2-robust_standardize-quantiles",
            *first[2:],
        ]
        assert computed(lambda: fit(be.Missing("fill"), be.RobustScaler()))[0] == first[0]
        np.testing.assert_array_equal(fit(be.Missing(), be.StandardScaler()).components_, last)

    @a_few(3, "number", range(5))
    def test_killed_in_a_step_and_resumed(self, number: int, tmp_path: Path) -> None:
        steps = [be.Missing(), be.RobustScaler(), be.PCA(n_components=3), be.PCA(n_components=2)]
        whole = be.Pipeline(steps).fit(PIPELINE_HOLES)
        names = [name for name in sorted(Run(whole.method_._run.root).published()) if name.startswith("step")]

        def stop(event: Event) -> None:
            if event.kind == "start" and event.stage == names[number % len(names)]:
                raise KeyboardInterrupt

        killed = be.Pipeline(steps, workdir=tmp_path / "run", callbacks=[stop])
        with pytest.raises(KeyboardInterrupt):
            killed.fit(PIPELINE_HOLES)
        resumed = killed.set_params(callbacks=None).fit(PIPELINE_HOLES)
        np.testing.assert_array_equal(resumed.embedding_, whole.embedding_)

    @a_few(
        2,
        "other",
        [
            be.StandardScaler(with_mean=False),
            be.StandardScaler(with_std=False),
            be.RobustScaler(with_centering=False),
            be.RobustScaler(with_scaling=False),
        ],
        ids=repr,
    )
    def test_a_workdir_knows_what_a_step_makes_of_rows(self, tmp_path: Path, other: Any) -> None:
        """Of the same mean and scale: whether both are used is in the keys of what follows."""

        def fitted(step: Any, workdir: Path | None) -> Any:
            found = be.Pipeline([step, be.PCA(n_components=2, center=False)], workdir=workdir).fit(PIPELINE_ROWS)
            return np.asarray(found.embedding_)

        plain = fitted(type(other)(), tmp_path)
        again = fitted(other, tmp_path)
        assert (plain != again).any()
        np.testing.assert_array_equal(again, fitted(other, None))
        np.testing.assert_array_equal(plain, fitted(type(other)(), tmp_path))

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
    def test_what_is_no_chain_is_refused(self, steps: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            be.Pipeline(steps).fit(PIPELINE_ROWS)

    def test_chunks_and_places_make_the_same_bytes(self, tmp_path: Path) -> None:
        import dask

        steps = [be.Missing(), be.RobustScaler(), be.Normalizer(), be.PCA(n_components=3)]
        expected = be.Pipeline(steps).fit(PIPELINE_HOLES).embedding_
        lazy = be.Pipeline(steps).fit(da.from_array(PIPELINE_HOLES, chunks=(117, 5)))
        np.testing.assert_array_equal(np.asarray(lazy.embedding_), expected)
        with dask.config.set(scheduler="threads"):
            np.testing.assert_array_equal(be.Pipeline(steps).fit(PIPELINE_HOLES).embedding_, expected)

    def test_scikit_learns_steps_on_a_path_as_in_a_job(self, tmp_path: Path) -> None:
        """Its own pipeline takes arrays only; given to a Pipeline, it reads a path block by block, as the job does."""
        write_array(tmp_path / "rows.zarr", PIPELINE_ROWS, chunk_rows=200)
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
        in_memory = make_pipeline(*steps[:2]).fit_transform(PIPELINE_ROWS)
        np.testing.assert_allclose(
            be.PCA(4).fit_transform(be.StandardScaler().fit_transform(PIPELINE_ROWS)), in_memory, atol=1e-9
        )


def test_coded_values_are_missing_in_jobs_and_for_new_rows(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 3, (200, 6)).astype("i1")
    coded = np.where(np.random.default_rng(1).random(rows.shape) < 0.05, -1, rows).astype("i1")
    np.save(tmp_path / "rows.npy", coded)
    text = '[[steps]]\nname = "mark_missing"\nvalues = [-1]\n[[steps]]\nname = "missing"\naction = "fill"\n'
    (tmp_path / "job.toml").write_text(
        f'{text}[input]\npath = "rows.npy"\n[method]\nname = "pca"\nn_components = 2\n'
        '[output]\npath = "run.zarr"\nmodel = "model.zarr"\n'
    )
    run_job(read_job(tmp_path / "job.toml"))
    holes = np.where(coded < 0, np.nan, coded)
    wanted = be.Pipeline([be.Missing(action="fill"), be.PCA(2)]).fit(holes)
    model = be.load(tmp_path / "model.zarr")
    np.testing.assert_allclose(model.transform(coded[:9]), wanted.transform(holes[:9]), atol=1e-6)
    marked = be.MarkMissing([3]).fit_transform(SPARSE_ROWS)
    np.testing.assert_array_equal(marked.toarray(), np.where(SPARSE_COUNTS == 3, np.nan, SPARSE_COUNTS))
    assert not np.allclose(be.PCA(2).fit(coded).transform(coded[:9]), wanted.transform(holes[:9]), atol=1e-2)
