"""t-SNE and UMAP: the same bytes in memory and by blocks, killed or not, new rows, every start, a user's weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

import bigembed as be
from bigembed.errors import DegenerateWarning, InputError, InputTypeError, LocalizedWarning
from bigembed.maps.umap import descent as options
from bigembed.neighbors.order import Ordered
from tests.blocks import blocks_for
from tests.cases import FEW_EPOCHS, FEW_STEPS, ring
from tests.executors import executor
from tests.unit.maps.digits import digits

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.MapWarning")


@dataclass(frozen=True)
class Method:
    """What differs from one to the other."""

    make: Callable[..., Any]
    few: Mapping[str, Any]
    """Parameters of a map that is soon made."""
    killed: Mapping[str, Any]
    kills: Sequence[tuple[str, int]]
    """Labels of maps over blocks, and at which of them the process ends."""
    in_memory: str
    """The label of the steps in memory."""
    values: str
    recorded: int
    """How often the objective is measured."""
    placed: Mapping[str, Any]
    quick: Mapping[str, Any]
    starts: Sequence[str]
    spread: float
    """Of a start that is given as an array."""
    near: int
    """How far along a ring the nearest on the map may be."""


METHODS = {
    "tsne": Method(
        be.TSNE, FEW_STEPS, {"perplexity": 8, "early_exaggeration_iter": 8, "n_iter": 57, "early_compression": 1e-3},
        [("move_block", 3), ("field_block", 30), ("move_block", 20), ("energy_block", 0)], "steps",
        "kl_divergences_", 3, {"perplexity": 15, "n_iter": 300}, {"perplexity": 10, "n_iter": 150},
        ["pca", "spectral", "random", "array"], 1e-4, 2,
    ),
    "umap": Method(
        be.UMAP, FEW_EPOCHS, {"n_neighbors": 8, "n_epochs": 12, "random_state": 0},
        [("move_block", 3), ("pool_block", 3), ("move_block", 1), ("cross_entropy_block", 0)], "epochs",
        "cross_entropies_", 2, {"n_epochs": 200}, {"n_neighbors": 10, "n_epochs": 200},
        ["pca", "random", "array"], 3.0, 3,
    ),
}  # fmt: skip
each = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


class Killed(Exception):
    """The process ends here."""


def dying(label: str, at: int) -> Callable[..., list[Any]]:
    """An executor that ends the process in a map of this label."""
    made = iter(range(1_000_000))

    def run(calls: Sequence[Callable[[], Any]], name: str) -> list[Any]:
        if name == label and next(made) == at:
            calls[0]()
            raise Killed
        return [call() for call in calls]

    return run


@each
def test_memory_and_blocks_have_the_same_bytes_killed_or_not(
    method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool of UMAP of fewer rows than there are, so that each block has a share of it."""
    monkeypatch.setattr(options, "POOL", 100)
    monkeypatch.setattr(options, "REPORT", 7)
    n = 600 if method is METHODS["tsne"] else 400
    X = digits(n)[0].astype("f4")

    def fit(in_memory: bool, place: str, **more: Any) -> Any:
        asked = {**method.killed, **more}
        return method.make(in_memory=in_memory, workdir=tmp_path / place, **asked).fit(X)

    with blocks_for(n):
        whole = fit(True, "memory")
        assert len(Ordered.open(whole._run.path("order")).starts) > 3
        for label, at in method.kills:
            with pytest.raises(Killed), executor(dying(label, at)):
                fit(False, "blocks")
        with pytest.raises(Killed), executor(dying(method.in_memory, 0)):
            fit(True, "blocks")
        again = fit(False, "blocks")
        if "random_state" in method.killed:
            assert np.abs(whole.embedding_ - fit(True, "other", random_state=1).embedding_).max() > 0.01
    assert (whole.embedding_ == again.embedding_).all()
    assert (getattr(whole, method.values) == getattr(again, method.values)).all()
    assert len(getattr(whole, method.values)) == method.recorded


@each
def test_a_new_row_is_placed_by_itself_among_its_kind(method: Method) -> None:
    X, y = digits(700)
    fitted = method.make(**method.placed).fit(X[:500])
    before = fitted.embedding_.copy()
    placed = fitted.transform(X[500:])
    assert (placed[7:9] == fitted.transform(X[507:509])).all()
    assert (fitted.embedding_ == before).all()
    assert (fitted.transform(X[:20]) == before[:20]).all()
    apart = ((placed[:, None] - before[None]) ** 2).sum(axis=-1)
    assert (y[:500][apart.argmin(axis=1)] == y[500:]).mean() > 0.9
    assert (y[:500][apart.argmax(axis=1)] == y[500:]).mean() < 0.3


@pytest.mark.parametrize(("name", "start"), [(name, start) for name, made in METHODS.items() for start in made.starts])
def test_every_start_leads_to_a_map(name: str, start: str) -> None:
    method, X = METHODS[name], digits(150)[0]
    init = method.spread * np.random.default_rng(0).normal(size=(150, 2)) if start == "array" else start
    fitted = method.make(init=init, **method.quick).fit(X)
    assert trustworthiness(X, fitted.embedding_, n_neighbors=10) > (0.94 if name == "tsne" else 0.93)
    assert fitted.certificate_["start"] == start


@each
def test_equal_rows_lie_together_and_a_graph_of_a_radius_is_refused(method: Method) -> None:
    X = digits(40)[0]
    same = np.concatenate([X, X[:3], np.repeat(X[:1], 30, axis=0)])
    with pytest.warns(DegenerateWarning, match="33 rows repeat another one"):
        fitted = method.make(**method.few).fit(same)
    assert (fitted.embedding_[40:43] == fitted.embedding_[:3]).all()
    assert np.isfinite(fitted.embedding_).all()
    with pytest.raises(InputTypeError, match="a graph of a radius may join a row to none"):
        method.make().fit(be.build_neighbor_graph(X, radius=20.0))
    start = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(InputError, match=r"init has shape \(40, 2\).*\(n, m\) = \(39, 2\)"):
        method.make(init=start).fit(X[:39])
    start[5] = np.nan
    with pytest.raises(InputError, match=r"init holds NaN or infinity, first in rows \[5\]"):
        method.make(init=start).fit(X)


@each
def test_a_users_weights_are_those_of_the_map(method: Method) -> None:
    """A ring stays one: neighbors on it are nearest on the map."""
    fitted = method.make().fit(ring(200))
    points = np.asarray(fitted.embedding_)
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.diag(np.full(len(points), inf))
    near = np.abs(apart.argmin(axis=1) - np.arange(len(points)))
    assert (np.minimum(near, len(points) - near) <= method.near).all()
    with pytest.raises(InputTypeError, match="a user's weights"):
        fitted.transform(points)


def islands(n: int = 800, size: int = 6) -> np.ndarray:
    """A sphere and two islands, whose rows have one neighbor each outside, far off: the first eigenvectors."""
    random = np.random.default_rng(0)
    sphere = random.normal(size=(n, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    apart = [2.5 * direction + 0.15 * random.normal(size=(size, 3)) for direction in np.eye(3)[:2]]
    return np.concatenate([sphere, *apart])


LOCALIZED = "init='spectral' was not followed: coordinate [12] shows [0-9.]+ % of the rows against all others"


@each
def test_eigenvectors_that_single_out_islands_are_no_start(method: Method) -> None:
    k = {"n_neighbors": 6} if method is METHODS["umap"] else {"perplexity": 2}
    short = dict(method.few) | k
    with pytest.warns(LocalizedWarning, match=LOCALIZED):
        fitted = method.make(init="spectral", **short).fit(islands())
    assert fitted.certificate_["start"] == "pca"
    assert "of the rows against all others" in fitted.certificate_["start_reason"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", LocalizedWarning)
        chosen = method.make(**short).fit(islands())
        assert chosen.certificate_["start"] == "pca"
        good = method.make(init="spectral", **short).fit(digits(300)[0])
    assert good.certificate_["start"] == "spectral"
    assert (np.asarray(chosen.embedding_) == fitted.embedding_).all()


@each
def test_a_start_without_rows_says_what_it_is(method: Method) -> None:
    graph = be.build_neighbor_graph(islands(), 6).to_scipy()
    graph.data = np.exp(-((graph.data / 0.15) ** 2)) + 1e-6
    with pytest.warns(LocalizedWarning, match="the map starts from eigenvectors, of which coordinate"):
        fitted = method.make(**method.few).fit(graph)
    assert fitted.certificate_["start"] == "spectral"
    with pytest.warns(LocalizedWarning, match="init='pca' was not followed: .* The map starts as by init='spectral'"):
        method.make(init="pca", **method.few).fit(graph)
