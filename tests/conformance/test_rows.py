"""Every estimator and rows: fitted ones come back, new ones stand alone, bad ones are refused, dtypes are kept."""

from __future__ import annotations

import pickle
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse

from bigembed.errors import BigembedError, ChangedInputError, ExistingOutputError, InputError
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.store.arrays import read_array
from tests.cases import CASES, EACH, FEW_ROWS, WAYS, by_default, fitted, plain, twin
from tests.some import these

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = FEW_ROWS
TAKE_NEW = [name for name, case in CASES.items() if case.new(N) is not None]
TABLES = [name for name, case in CASES.items() if case.rows is plain]
"""Cases with an ordinary table of rows."""


@pytest.mark.parametrize("name", by_default(TAKE_NEW))
def test_fitted_rows_come_back(name: str) -> None:
    """To the last bit where a coordinate is a function of the row alone, else as near as their neighbors place them."""
    again, embedding = fitted(name).transform(CASES[name].X(N)), np.asarray(fitted(name).embedding_)
    near = CASES[name].returns
    if near is None:
        near = 0 if isinstance(fitted(name), RowwiseEstimator) else 1e-5
    np.testing.assert_allclose(again, embedding, rtol=0, atol=near * np.abs(embedding).max())
    assert np.abs(again[1:] - embedding[:-1]).max() > max(1e-2, 5 * near) * np.abs(embedding).max()  # a control


@pytest.mark.parametrize("name", by_default(TAKE_NEW))
def test_new_rows_are_the_same_in_any_batch_chunk_and_place(name: str, tmp_path: Path) -> None:
    new = CASES[name].new(N)
    whole = fitted(name).transform(new)
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(np.vstack([fitted(name).transform(new[i : i + 1]) for i in range(5)]), whole[:5])
    lazy = fitted(name).transform(da.from_array(new, chunks=(7, 2)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute().astype(whole.dtype), whole)
    np.save(tmp_path / "new.npy", new[::-1])
    fitted(name).transform_to(tmp_path / "new.npy", tmp_path / "out.zarr")
    np.testing.assert_array_equal(read_array(tmp_path / "out.zarr")[::-1].astype(whole.dtype), whole)
    with pytest.raises(ExistingOutputError):
        fitted(name).transform_to(new, tmp_path / "out.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.npy", "out.zarr"]


@pytest.mark.parametrize(
    "name", by_default((name for name in CASES if hasattr(CASES[name].estimator(), "fit_transform_to")), only=WAYS)
)
def test_coordinates_are_written_where_they_are_asked_for(name: str, tmp_path: Path) -> None:
    case, X = CASES[name], CASES[name].X(N)
    out = tmp_path / "out.zarr"
    case.estimator().fit_transform_to(X, out, **case.aligned(X))
    expected = np.asarray(fitted(name).embedding_)
    np.testing.assert_array_equal(read_array(out).astype(expected.dtype), expected)
    with pytest.raises(ExistingOutputError):
        case.estimator().fit_transform_to(X, out, **case.aligned(X))
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]


@pytest.mark.parametrize("name", TABLES)
def test_infinity_is_called_infinity(name: str) -> None:
    for value, word in ((np.inf, "infinity"), (-np.inf, "infinity"), (np.nan, "NaN")):
        X = CASES[name].X(N).copy()
        X[3, 1] = value
        for action in (fitted(name).transform, CASES[name].fit):
            with pytest.raises(InputError, match=r"Input X contains .*\[3\]") as refusal:
                action(X)
            assert word in str(refusal.value)
            assert ({"infinity", "NaN"} - {word}).pop() not in str(refusal.value)


BAD = {
    "one axis": lambda X: X[:, 0],
    "three axes": lambda X: X[None],
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "text": lambda X: X.astype(str),
    "complex": lambda X: X + 1j,
    "objects": lambda X: np.full(X.shape, None),
    "dates": lambda X: X.astype("M8[s]"),
    "a sparse array of another kind": lambda X: sparse.coo_array(X.astype("c8")),
    "no such file": lambda X: "nowhere.zarr",
    "a number": lambda X: 7,
}


@pytest.mark.parametrize("bad", BAD)
def test_what_are_no_rows_is_refused(bad: str) -> None:
    for name in TABLES:
        rows = BAD[bad](CASES[name].X(N))
        with pytest.raises(BigembedError):
            CASES[name].estimator().fit(rows, **CASES[name].aligned(CASES[name].X(N)))
        with pytest.raises(BigembedError):
            fitted(name).transform(rows)


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_another_width_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 features"):
        fitted(name).transform(CASES[name].new(N)[:, :2])
    with pytest.raises(InputError, match="2 features"):
        fitted(name).transform_to(CASES[name].new(N)[:, :2], tmp_path / "out.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", by_default((name for name in TABLES if name in EACH), only=WAYS))
def test_the_coordinates_of_an_array_that_changed_are_those_of_the_fit_or_refused(name: str) -> None:
    case, expected = CASES[name], np.asarray(fitted(name).embedding_)
    X = case.X(N).copy()
    early = case.fit(X)
    late = twin(early)
    np.testing.assert_array_equal(early.embedding_, expected)
    X *= 0
    np.testing.assert_array_equal(early.embedding_, expected)
    if late._run.has("coordinates"):
        np.testing.assert_array_equal(late.embedding_, expected)
    else:
        with pytest.raises(ChangedInputError, match="use fit_transform"):
            _ = late.embedding_
    np.testing.assert_array_equal(case.estimator().fit_transform(case.X(N), **case.aligned(X)), expected)


@pytest.mark.parametrize("name", by_default(TABLES, only=WAYS))
def test_coordinates_in_memory_have_the_dtype_of_the_rows(name: str) -> None:
    for dtype in (np.float32, np.float64):
        found = fitted(name) if dtype == np.float32 else CASES[name].fit(CASES[name].X(N).astype(dtype))
        for one in (found, pickle.loads(pickle.dumps(found))):
            assert one.transform(CASES[name].new(N).astype(dtype)).dtype == dtype
            like = [getattr(one, attribute) for attribute in found.like_rows]
            assert {array.dtype for array in like if array is not None} <= {np.dtype(dtype)}
        assert found.embedding_.dtype == dtype
        assert found.__sklearn_tags__().transformer_tags.preserves_dtype == ["float64", "float32"]


@pytest.mark.parametrize("name", by_default(TABLES, only=WAYS))
def test_the_other_order_of_bytes_gives_the_same_coordinates(name: str) -> None:
    """As rows of FITS, of IDL and of older netCDF files have."""
    swapped = CASES[name].X(N).astype(">f4")
    found, known = CASES[name].fit(swapped), fitted(name)
    assert found.embedding_.dtype == np.float32
    np.testing.assert_array_equal(found.embedding_, CASES[name].fit(swapped.astype("<f4")).embedding_)
    new = CASES[name].new(N).astype(">f4")
    np.testing.assert_array_equal(known.transform(new), known.transform(new.astype("<f4")))


@these(("pca", "diffusion_map", "linear_discriminant", "umap"), "name", [name for name in TABLES if CASES[name].plain])
def test_frames_come_out_where_they_are_asked_for(name: str) -> None:
    case = CASES[name]
    X = pd.DataFrame(case.X(N), columns=[f"c{i}" for i in range(20)], index=[f"row {i}" for i in range(N)])
    framed = case.estimator().set_output(transform="pandas")
    for found in (framed.fit_transform(X, **case.aligned(case.X(N))), framed.transform(X)):
        assert found.index.equals(X.index)
        assert list(found.columns) == list(framed.get_feature_names_out())
    np.testing.assert_allclose(found, fitted(name).transform(case.X(N)), atol=1e-8)
    plain = case.estimator().fit(X, **case.aligned(case.X(N)))
    with sklearn.config_context(transform_output="pandas"):
        pd.testing.assert_frame_equal(plain.transform(X), found)
