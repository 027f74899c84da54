"""Run, change something, run again in the same place, and so on, at last back: each time what a fresh run publishes.

The cases come from the registry: every method, every parameter, every kind of rows. By default each parameter is
changed on one or two of the methods that have it, on the first case in which a stage becomes another one by it;
``-m slow`` changes every parameter of every case to every value.
"""

from __future__ import annotations

import importlib
import shutil
import zlib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import bigembed as be
from bigembed.errors import BigembedError, UndeclaredInputError
from bigembed.estimator.fitting import write_output
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.stages import reuse as reads
from bigembed.stages.runs import Run
from bigembed.stages.stage import Context, Stage, run_stages
from bigembed.store.arrays import read_array, write_array
from tests.cases import CASES, WAYS, Case, by_default
from tests.changes import changes, function_of, stages_of
from tests.digests import of, placed, published
from tests.some import these

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = 80
METHODS = sorted({case.method for case in CASES.values()})


def made(case: Case, X: Any, folder: Path, **more: Any) -> dict[str, str]:
    """All that a fit publishes, what it says of itself, and where it, or its saved model, places new rows."""
    with dask.config.set(scheduler="synchronous"):
        fitted = case.fit(X, workdir=str(folder), **more)
        write_output(fitted)
        found = published(folder) | {"coordinates": of(np.asarray(fitted.embedding_)), "new rows": placed(fitted)}
        if isinstance(fitted, RowwiseEstimator):
            model = folder.with_name("model")
            shutil.rmtree(model, ignore_errors=True)
            fitted.save(model)
            found |= {f"model {name}": digest for name, digest in published(model).items()}
            assert placed(be.load(model)) == found["new rows"]
    return found | {"warnings": repr(sorted(fitted.certificate_.get("warnings", {}).items()))}


class Places:
    """A folder in which one fit follows another, and fresh ones beside it."""

    def __init__(self, case: Case, X: Any, home: Path) -> None:
        self.case, self.X, self.home, self.fresh = case, X, home, 0
        self.first = made(case, X, home / "run")

    def changed(self, X: Any = None, **more: Any) -> bool:
        """Whether the method takes the change; then it has come out as in a folder of its own."""
        X, self.fresh = self.X if X is None else X, self.fresh + 1
        folder = self.home / f"fresh{self.fresh}" / "run"
        try:
            wanted = made(self.case, X, folder, **more)
        except (BigembedError, ValueError, TypeError):
            return False
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)
        assert made(self.case, X, self.home / "run", **more) == wanted, more
        return True

    def back(self) -> None:
        """What was fitted first comes out again."""
        assert made(self.case, self.X, self.home / "run") == self.first


@cache
def who_changes(parameter: str) -> set[str]:
    """The method on which a parameter is changed, or two where more than four have it: its name says which ones."""
    having = [name for name in METHODS if parameter in CASES[name].estimator().get_params(deep=False)]
    first, other = zlib.crc32(parameter.encode()), len(having) // 2 if len(having) > 4 else 0
    return {having[(first + more) % len(having)] for more in (0, other)}


def in_turn(method: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of a method with the parameters that are changed on each, the first in which they count."""
    names = [name for name, case in CASES.items() if case.method == method]
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    parameters = dict.fromkeys(parameter for name in names for parameter, _ in changes(CASES[name]))
    for parameter in (parameter for parameter in parameters if method in who_changes(parameter)):
        found = [
            (told == what_is_told(name), name, value)
            for name in names
            for own, value in changes(CASES[name])
            if own == parameter and (told := what_is_told(name, **{parameter: value}))
        ]
        if found:
            _, name, value = min(found, key=lambda one: one[0])
            chosen[name][parameter] = value
    return iter((name, found) for name, found in chosen.items() if found)


def what_is_told(name: str, **more: Any) -> str:
    """All that the stages of a fit are told; nothing where the method refuses the parameters."""
    stages = stages_of(CASES[name], CASES[name].X(N), **more) or []
    return repr([(one.name, one.parameters, reads.reads_of(one.run)) for one in stages] or "")[1:-1]


@these(
    ("isomap", "kernel_pca", "landmark_mds", "nmf", "pca"),  # (that each is told to a stage is asked of every method)
    "method",
    [name for name in METHODS if any(name in who_changes(one) for one in CASES[name].estimator().get_params(False))],
)
def test_each_parameter_changed_in_one_folder(method: str, tmp_path: Path) -> None:
    taken: list[bool] = []
    for number, (name, found) in enumerate(in_turn(method)):
        places = Places(CASES[name], CASES[name].X(N), tmp_path / str(number))
        taken += [places.changed(**{parameter: value}) for parameter, value in found.items()]
        places.back()
    assert any(taken) or not taken


UNTOLD = {
    "hessian_lle": {"landmarks", "n_components", "n_landmarks", "reg"}, "landmark_diffusion_map": {"kernel"},
    "landmark_mds": {"metric_params"}, "local_tangent_space_alignment": {"landmarks", "n_landmarks", "reg"},
    "modified_lle": {"landmarks", "n_landmarks"}, "phate": {"n_candidates"}, "umap": {"min_dist"},
}  # fmt: skip
"""Parameters whose values here are refused, or mean nothing beside the others of the cases."""


@pytest.mark.parametrize("method", METHODS)
def test_each_parameter_is_told_to_a_stage(method: str) -> None:
    silent = {}
    for name in (name for name, case in CASES.items() if case.method == method):
        before = what_is_told(name)
        for parameter, value in changes(CASES[name]):
            if silent.setdefault(parameter, True):
                silent[parameter] = what_is_told(name, **{parameter: value}) in ("", before)
    assert {one for one in silent if silent[one]} - {"ids", "in_memory"} <= UNTOLD.get(method, set())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_parameter_of_every_case_changed_to_every_value(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    places = Places(case, case.X(N), tmp_path)
    taken = [places.changed(**{parameter: value}) for parameter, value in changes(case)]
    assert sum(taken) > len(taken) // 3
    places.back()


def reweighted(X: Any) -> Any:
    """The same edges with other weights."""
    weights = sparse.triu(X).tocsr()
    weights.data = np.random.default_rng(5).random(weights.nnz) + 0.5
    return sparse.csr_array(weights + weights.T)


def relisted(X: Any) -> Any:
    """The same lists of neighbors with other distances."""
    near = np.arange(N)[:, None] + [0, 1, 2, 3, -1, -2]
    near[(near < 0) | (near >= N)] = -1
    rows = np.sort(np.random.default_rng(7).random(N))[:, None]
    return be.open_graph(near, distances=np.abs(rows[near][..., 0] - rows))


def other_rows(X: Any) -> Any:
    """What was given, changed: so that its moments, extent and counts stay."""
    if not isinstance(X, np.ndarray):
        weights = sparse.issparse(X) and X.shape[0] == X.shape[1]
        return reweighted(X) if weights else X[::-1] if sparse.issparse(X) else relisted(X)
    order = np.arange(len(X))
    order[[1, len(X) // 2]] = order[[len(X) // 2, 1]]
    return X[order][:, order] if X.shape[0] == X.shape[1] else X[order]


OF_OTHER_ROWS = ["isomap lists", "kernel_pca nystrom sparse", "laplacian_eigenmaps weights", "phate precomputed"]


@pytest.mark.parametrize("name", by_default(CASES, only=[*WAYS, *OF_OTHER_ROWS]))
def test_other_rows_in_one_folder(name: str, tmp_path: Path) -> None:
    places = Places(CASES[name], CASES[name].X(N), tmp_path)
    assert places.changed(other_rows(places.X))


WEIGHED = ["pca", "nmf", "linearized_diffusion_map", "diffusion_map", "landmark_diffusion_map"]


@pytest.mark.parametrize("method", [*WEIGHED, "linear_discriminant"])
def test_other_weights_and_labels_in_one_folder(method: str, tmp_path: Path) -> None:
    X, word = CASES[method].X(N), "y" if method == "linear_discriminant" else "sample_weight"
    given = np.arange(N) % 5 + (method != "linear_discriminant")

    def coordinates(values: Any, folder: str) -> str:
        fitted = CASES[method].estimator(workdir=str(tmp_path / folder)).fit(X, **{word: values})
        write_output(fitted)
        return of(np.asarray(fitted.embedding_))

    changed = np.sort(given)
    first, wanted = coordinates(given, "run"), coordinates(changed, "fresh")
    assert first != wanted
    assert [coordinates(values, "run") for values in (changed, given)] == [wanted, first]


@pytest.mark.parametrize("step", [be.Log1p(), be.Clip(high=1), be.StandardScaler(), be.RobustScaler()], ids=repr)
def test_other_columns_of_a_step_in_one_folder(step: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(3).gamma(2.0, size=(N, 3))

    def coordinates(columns: Any, folder: str) -> str:
        steps = [clone(step).set_params(columns=columns), be.PCA(2, center=False)]
        fitted = be.Pipeline(steps, workdir=str(tmp_path / folder)).fit(X)
        write_output(fitted.method_)
        return of(np.asarray(fitted.transform(X))) + of(np.asarray(fitted.embedding_))

    asked = [None, [0], [1], [0, 1], [0]]
    fresh = [coordinates(columns, f"fresh{number}") for number, columns in enumerate(asked)]
    assert len({*fresh}) == 4
    assert [coordinates(columns, "run") for columns in asked] == fresh


# ------------------------------------------------------------------------------------ planted faults


def forgetful(factor: float, reading: str, inputs: tuple[str, ...] = ("rows",)) -> list[Stage]:
    """Two stages; the second one multiplies by a factor that its parameters do not name, and reads what it is told."""

    def rows(context: Context) -> dict[str, Any]:
        write_array(context.path("x"), np.arange(3.0))
        return {}

    def product(context: Context) -> dict[str, Any]:
        write_array(context.path("y"), factor * read_array(context.of(reading, "x")))
        return {}

    return [Stage("rows", (), {}, rows), Stage("other", (), {}, rows), Stage("product", inputs, {}, product)]


def test_a_parameter_that_the_key_forgets_is_noticed(tmp_path: Path) -> None:
    found = []
    for factor in (2.0, 3.0, 2.0):
        run = Run(tmp_path)
        run_stages(forgetful(factor, "rows"), run)
        found.append(read_array(run.path("product", "y"))[1])
    assert found == [2.0, 3.0, 2.0]


def test_a_stage_that_reads_what_it_does_not_declare_fails(tmp_path: Path) -> None:
    with pytest.raises(UndeclaredInputError, match=r"'product' reads the stage 'other'.*it declares 'rows'"):
        run_stages(forgetful(2.0, "other"), Run(tmp_path))
    run_stages(forgetful(2.0, "other", ("rows", "other")), Run(tmp_path))


def test_a_stage_reads_only_the_parameters_that_it_declares(tmp_path: Path) -> None:
    def first(context: Context) -> dict[str, Any]:
        return {}

    def second(context: Context) -> dict[str, Any]:
        return {"k": context.home.parameters("first")["k"]}

    def stages(k: int, *, parameters_of: tuple[str, ...]) -> list[Stage]:
        return [
            Stage("first", (), {"k": k}, first),
            Stage("second", ("first",), {}, second, parameters_of=parameters_of),
        ]

    with pytest.raises(UndeclaredInputError, match="reads the parameters of the stage 'first'"):
        run_stages(stages(1, parameters_of=()), Run(tmp_path / "undeclared"))
    for k in (1, 2, 1):
        run = Run(tmp_path / "declared")
        run_stages(stages(k, parameters_of=("first",)), run)
        assert run.results("second") == {"k": k}


@pytest.mark.parametrize("name", CASES)
def test_what_stages_close_over_can_be_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its content, the same in every process: nothing is pickled to be compared."""
    opaque: list[str] = []
    monkeypatch.setattr(reads, "_pickled", lambda name, value: opaque.append(f"{name}: {type(value)}") or "")
    case = CASES[name]
    stages = stages_of(case, case.X(N))
    assert stages
    again = stages_of(case, case.X(N)) or []
    assert [reads.reads_of(stage.run) for stage in stages] == [reads.reads_of(stage.run) for stage in again]
    assert opaque == []


@pytest.mark.parametrize("name", CASES)
def test_the_function_of_a_stage_stands_by_itself(name: str) -> None:
    """It is found by its name, and has its inputs and arguments only: nothing that it closes over."""
    case = CASES[name]
    stages = stages_of(case, case.X(N))
    assert stages
    for stage in stages:
        function = function_of(stage)
        assert not isinstance(stage.run, partial) or not stage.run.args
        module = importlib.import_module(function.__module__)
        assert getattr(module, function.__qualname__, None) is function, (stage.name, function.__qualname__)


def test_where_a_run_lies_and_who_hears_of_it_change_nothing(tmp_path: Path) -> None:
    seen: list[str] = []
    case = CASES["pca"]
    case.fit(case.X(N), workdir=str(tmp_path / "first"))
    (tmp_path / "first").rename(tmp_path / "second")
    case.fit(case.X(N), workdir=str(tmp_path / "second"), callbacks=[lambda event: seen.append(event.kind)])
    assert "reused" in seen
    assert "start" not in seen
