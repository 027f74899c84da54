"""Every estimator: its saved model, its pickle, and its run that was killed in each stage."""

from __future__ import annotations

import pickle
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import bigembed as be
from bigembed.errors import DamageWarning, ExistingOutputError, NotFittedError, StaleError
from bigembed.estimator.rowwise import RowwiseEstimator
from bigembed.rows.graph_source import GraphSource
from bigembed.runtime import Event, using
from bigembed.stages import stage as stage_module
from bigembed.stages.runs import Run
from tests.blocks import as_if_many, blocks_for
from tests.cases import CASES, FEW_ROWS, WAYS, Case, by_default, csr
from tests.cases import fitted as fitted_once
from tests.changes import own_stages
from tests.conformance.digest import digests
from tests.digests import published
from tests.executors import Killed as KilledInMap
from tests.executors import executor, maps

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
N = FEW_ROWS


@pytest.mark.parametrize("name", by_default(CASES))
def test_what_was_saved_or_pickled_is_what_was_fitted(name: str, tmp_path: Path) -> None:
    fitted, new = fitted_once(name), CASES[name].new(N)
    wanted = digests(fitted, new)
    fitted.save(tmp_path / "model")
    for again in (be.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        assert type(again) is type(fitted)
        assert repr(again) == repr(fitted)
        if isinstance(again, RowwiseEstimator) and not fitted._run.has("coordinates"):
            with pytest.raises(NotFittedError, match="give them to transform"):
                _ = again.embedding_
            again._embedding = fitted.embedding_
        found = digests(again, new)
        assert found == {name: wanted[name] for name in found}
        assert {*wanted} - {*found} <= {"dist_matrix_"}
    with pytest.raises(ExistingOutputError):
        fitted.save(tmp_path / "model")
    assert {path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()} <= {".json", ""}
    be.load(tmp_path / "model").save(tmp_path / "again")
    assert published(tmp_path / "again") == published(tmp_path / "model")


@pytest.mark.parametrize("name", by_default((name for name in CASES if CASES[name].plain), only=WAYS))
def test_a_folder_that_another_fit_took_is_noticed(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    first, new = case.fit(case.X(N), workdir=tmp_path), case.new(N)
    before = np.asarray(first.embedding_)
    if new is not None:
        np.testing.assert_array_equal(first.transform(new), first.transform(new))
    assert (before == np.asarray(first.embedding_)).all()
    X = case.X(N // 2)
    case.fit(X, workdir=tmp_path)
    if new is not None:
        with pytest.raises(StaleError, match=r"is superseded .* since it was opened"):
            first.transform(new)


class Killed(Exception):
    """The process ends here."""


class Recorder:
    """Hears which stages run, counts their maps over blocks, and ends the process in a map of one of them."""

    def __init__(self, stage: str = "", last: int = 0) -> None:
        self.stage, self.last = stage, last
        self.now = ""
        self.reused: list[str] = []
        self.maps: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()

    def hear(self, event: Event) -> None:
        if event.kind == "reused":
            self.reused.append(event.stage)
        elif event.kind == "start":
            self.now = event.stage
            self.maps[event.stage] = 0
            if self.now == self.stage and not self.last:
                raise Killed
        elif event.kind == "done":
            self.now = ""

    def __call__(self, calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        self.maps[self.now] += 1
        last = self.now == self.stage and self.maps[self.now] == self.last
        found = []
        for call in calls[: len(calls) // 2] if last else calls:
            found.append(call())
            self.tasks[self.now] += 1
        if last:
            raise Killed
        return found

    def fit(self, case: Case, X: Any, place: Path) -> Any:
        with executor(self), using(observer=self.hear):
            fitted = case.fit(X, workdir=place)
        del self.maps[""], self.tasks[""]
        return fitted


def killed_stages(name: str, stages: Sequence[str], run: Run) -> list[str]:
    """Of a method those whose functions no other has before it; of a variant those that its method has not otherwise,
    and the last with other parameters (of other rows: the last)."""
    if CASES[name].plain:
        return [stage for stage in stages if stage in own_stages(name)] or [stages[-1]]
    plain = fitted_once(CASES[name].method)._run
    new = [stage for stage in stages if not plain.has(stage)]
    there = [stage for stage in stages if stage not in new]
    other = [stage for stage in there if asked(run, stage) != asked(plain, stage)]
    return sorted({*new, (other or there)[-1]}, key=stages.index)


def asked(run: Run, stage: str) -> dict[str, Any]:
    """The parameters of a stage, without what rows say of themselves."""
    said = run.manifest(stage).parameters
    return {key: value for key, value in said.items() if key not in ("source", "shape", "samples", "n_neighbors")}


STORED = [name for name in CASES if CASES[name].rows is not csr]
KILLED = ["kernel_pca nystrom", "landmark_mds", "linear_discriminant", "nmf", "pca", "isomap", "diffusion_map", "umap"]
"""Those that run by default, a method of every way to fit rows."""
EVERY_MAP = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize(
    ("name", "everywhere"),
    [
        *by_default(STORED, False, only=KILLED),
        *(pytest.param(name, True, marks=EVERY_MAP) for name in STORED),
    ],
)
def test_killed_in_each_stage_it_goes_on_with_the_same_bytes(
    name: str, everywhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In half of a drawn map of each of its own stages, one after the other, or of every map.

    A start reuses what is published, and works on no block twice; stages that go on from a state of their own run no
    more maps than undisturbed ones.
    """
    X, alone = CASES[name].X(N), set()
    case = CASES[name].stored(X, tmp_path)
    if not (sparse.issparse(X) or isinstance(X, GraphSource)):
        np.save(tmp_path / "rows.npy", X)
        X = str(tmp_path / "rows.npy")

    def noted(stage: stage_module.Stage, *rest: Any) -> Any:
        alone.update({stage.name} if stage.resumes else ())
        return made(stage, *rest)

    made, draw = stage_module._made, np.random.default_rng(len(name)).integers
    monkeypatch.setattr(stage_module, "_made", noted)
    with blocks_for(N), warnings.catch_warnings():
        warnings.simplefilter("error", DamageWarning)
        undisturbed = Recorder()
        wanted = undisturbed.fit(case, X, tmp_path / "whole")
        maps, journaled = dict(undisturbed.maps), {*undisturbed.maps} - alone
        chosen = killed_stages(name, list(maps), wanted._run)
        stops = [[(stage, int(draw(1, maps[stage] + 1)) if maps[stage] else 0) for stage in chosen]]
        if everywhere:
            stops = [[(stage, last)] for stage in maps for last in range(1, maps[stage] + 1)]
        for number, kills in enumerate(stops):
            place, starts = tmp_path / str(number), [Recorder(*kill) for kill in kills]
            for kill, reused in zip(starts, [[], *kills], strict=False):
                with pytest.raises(Killed):
                    kill.fit(case, X, place)
                assert kill.reused == list(maps)[: list(maps).index(reused[0]) if reused else 0]
            starts.append(Recorder())
            found = starts[-1].fit(case, X, place)
            assert published(place) == published(tmp_path / "whole")
            assert digests(found) == digests(wanted)
            assert not list(place.rglob(".begun"))
            again, once = sum((start.tasks for start in starts), Counter()), undisturbed.tasks
            assert {one: again[one] for one in journaled} == {one: once[one] for one in journaled}, kills
            assert all(starts[-1].maps[stage] <= maps[stage] for stage in maps)
            shutil.rmtree(place)


class Window(Recorder):
    """Ends the process before the fourth task of a start."""

    def __call__(self, calls: Sequence[Callable[[], Any]], label: str) -> list[Any]:
        found = []
        for call in calls:
            if sum(self.tasks.values()) == 3:
                raise Killed
            found.append(call())
            self.tasks[self.now] += 1
        return found


QUICK = ("kernel_pca nystrom", "landmark_mds", "nmf")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in STORED if name not in QUICK)]
)
def test_starts_of_three_tasks_come_to_the_end(name: str, tmp_path: Path) -> None:
    """None does a task that another one has done; a descent of points only what they leave for all others."""
    X = CASES[name].X(N)
    case = CASES[name].stored(X, tmp_path)
    if not (sparse.issparse(X) or isinstance(X, GraphSource)):
        np.save(tmp_path / "rows.npy", X)
        X = str(tmp_path / "rows.npy")
    with blocks_for(N):
        wanted, done = in_windows(case, X, tmp_path)
    assert {stage for stage in wanted if done[stage] != wanted[stage]} <= {"descent"}


def in_windows(case: Case, X: Any, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The tasks of each stage, undisturbed and in starts of three tasks, of which the run is the same."""
    undisturbed, done = Recorder(), Counter[str]()
    undisturbed.fit(case, X, folder / "whole")
    for _ in range(2 * undisturbed.tasks.total()):
        window = Window()
        try:
            window.fit(case, X, folder / "windows")
            break
        except Killed:
            done += window.tasks
    assert published(folder / "windows") == published(folder / "whole")
    assert not list((folder / "windows").rglob(".begun"))
    return undisturbed.tasks, done + window.tasks


def test_an_array_in_memory_is_known_again_where_tasks_run_elsewhere(tmp_path: Path) -> None:
    """It is written for them once, and not anew by each start: one goes on with what another one has left."""
    case, X = CASES["landmark_mds"], CASES["landmark_mds"].X(N)
    with blocks_for(N):
        whole, killed, second = Recorder(), Window(), Recorder()
        whole.fit(case, X, tmp_path / "whole")
        with pytest.raises(Killed):
            killed.fit(case, X, tmp_path / "killed")
        second.fit(case, X, tmp_path / "killed")
        assert killed.tasks + second.tasks == whole.tasks
        again, other = Recorder(), Recorder()
        again.fit(case, X.copy(), tmp_path / "killed")
        assert not again.tasks
        other.fit(case, X[::-1].copy(), tmp_path / "killed")
        assert other.tasks == whole.tasks


def few_blocks(folder: Path) -> str:
    """A file of rows of a map that is solved by steps, as those of many rows are."""
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(600, 3)).astype("f4"))
    return str(folder / "rows.npy")


@pytest.mark.slow
def test_a_solve_in_files_comes_to_the_end_in_starts_of_three_tasks(tmp_path: Path) -> None:
    """A step of it has several maps of four blocks each."""
    with as_if_many(600):
        wanted, done = in_windows(Case("diffusion_map", {"tol": 1e-2}), few_blocks(tmp_path), tmp_path)
    assert wanted["solve"] > 100
    assert done == wanted


@pytest.mark.parametrize(
    ("label", "number"),
    [
        pytest.param("update_block", 1, marks=pytest.mark.slow),
        ("update_block", 4),
        pytest.param("product_block", 5, marks=pytest.mark.slow),
    ],
)
def test_a_solve_that_was_killed_in_files_goes_on_in_memory(label: str, number: int, tmp_path: Path) -> None:
    """An update has deleted what it read of a block; without a journal, too, of which half a second may be lost."""
    case, X = Case("diffusion_map"), few_blocks(tmp_path)
    with as_if_many(600):
        case.fit(X, workdir=tmp_path / "whole")
        for place in (tmp_path / "journal", tmp_path / "no journal"):
            with pytest.raises(KilledInMap), executor(maps(label, number)[0]):
                case.fit(X, workdir=place)
            [journal] = place.rglob("component0-steps")
            if place.name == "no journal":
                shutil.rmtree(journal)
            with warnings.catch_warnings():
                warnings.simplefilter("error", DamageWarning)
                case.fit(X, workdir=place)
            assert published(place) == published(tmp_path / "whole")
