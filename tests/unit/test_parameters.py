"""Every parameter of every public estimator and function: a wrong type, a wrong value and a misspelled name."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import bigembed as be
from bigembed.datasets import REGISTRY, parameters
from bigembed.errors import BigembedError
from bigembed.maps import OWN_STEPS
from bigembed.maps import REGISTRY as REGISTERED
from bigembed.maps import method_or_step as method

METHODS = (*REGISTERED, *OWN_STEPS)
ROWS = np.abs(np.random.default_rng(0).normal(size=(40, 3))) + 0.5
LABELS = np.arange(40) % 3
FREE = {"workdir", "path", "source", "folder", "picture", "functions", "out", "title", "key_added"}
"""Any text is a path, or a name."""
WRONG = (object(), "nonsense", -7.5)
"""A wrong type, a wrong word, a wrong number."""
ANY_NUMBER = {"alpha", "coef0", "low", "high", "fill"}
"""Any finite number will do."""


def wrong_values(name: str) -> list[Any]:
    """What no parameter of this name can take."""
    words = () if name in FREE else WRONG[1:]
    return [WRONG[0], *(float("nan") if name in ANY_NUMBER and value == -7.5 else value for value in words)]


def taken(names: Iterable[str], call: Callable[..., Any], any_words: Collection[str] = ()) -> list[str]:
    """Wrong values of these parameters that are not refused by an error with the name (of some: with any words)."""
    found = []
    for name in names:
        for value in wrong_values(name):
            try:
                call(**{name: value})
                found.append(f"{name}={value!r}")
            except BigembedError as error:
                if name not in any_words and name not in str(error):
                    found.append(f"{name}={value!r}: {error}")
    return found


@pytest.mark.parametrize("name", sorted(METHODS))
def test_estimators(name: str) -> None:
    labels = [LABELS] if "labels" in method(name).needs else []
    names = inspect.signature(method(name)).parameters
    assert taken(names, lambda **given: method(name)(**given).fit(ROWS, *labels)) == []
    assert taken(["workdir"], lambda **given: None) != []  # (a control)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_misspelled_names_of_estimators(name: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        method(name)(n_component=2)
    with pytest.raises(BigembedError, match="n_component"):
        method(name)().set_params(n_component=2)


FILES = {"folder", "picture"}
"""Of data sets that are read from files, which the tests do not have."""


@cache
def graph() -> be.NeighborGraph:
    return be.build_neighbor_graph(ROWS, 3)


@cache
def walk() -> be.DiffusionMap:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return be.DiffusionMap(n_neighbors=5).fit(ROWS)


@cache
def cells() -> Any:
    anndata = pytest.importorskip("anndata")
    found = anndata.AnnData(ROWS.astype("f4"), uns={"iroot": 0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        be.scanpy.neighbors(found, 5)
        be.scanpy.diffmap(found, 10)
    return found


FUNCTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "build_neighbor_graph": (be.build_neighbor_graph, {"X": ROWS, "n_neighbors": 3}),
    "build_neighbor_graph from candidates": (
        be.build_neighbor_graph,
        {"X": ROWS, "n_neighbors": 3, "candidates": ROWS},
    ),
    "build_neighbor_graph of a radius": (be.build_neighbor_graph, {"X": ROWS, "radius": 0.5}),
    "cluster": (be.cluster, {"X": ROWS, "n_subsets": 0}),
    "diffusion_pseudotime": (be.diffusion_pseudotime, {"fitted": walk, "root": 0}),
    "geometric_harmonics": (be.geometric_harmonics, {"fitted": walk, "columns": ROWS}),
    "smooth": (be.smooth, {"fitted": walk, "columns": ROWS}),
    "certify": (be.certify, {"X": ROWS, "Y": ROWS[:, :2], "n_neighbors": 3}),
    "condense": (be.condense, {"X": ROWS, "rows": 3}),
    "geodesic_distances": (be.geodesic_distances, {"graph": graph, "rows": [0]}),
    "shortest_path": (be.shortest_path, {"graph": graph, "i": 0, "j": 1}),
    "spectral_start": (be.spectral_start, {"graph": graph}),
    "align": (be.align, {"coordinates": ROWS, "reference": ROWS, "groups": list(range(ROWS.shape[1]))}),
    "delete_rows": (be.delete_rows, {"path": "rows.zarr", "rows": np.array([0, 1])}),
    "purge_rows": (be.purge_rows, {"path": "rows.zarr"}),
    "near_groups": (be.near_groups, {"values": [0.1, 0.2], "separation": 0.1}),
    "append_rows": (be.append_rows, {"path": "rows.zarr", "rows": ROWS}),
    "plan": (be.plan, {"estimator": be.LinearDiscriminantAnalysis(), "X": ROWS, "y": LABELS}),
    "view": (be.view, {"source": ROWS[:, :2], "out": "page"}),
    "load": (be.load, {"path": "model.zarr"}),
    "open_array": (be.open_array, {"source": ROWS}),
    "open_graph": (be.open_graph, {"source": np.array([[0, 1], [1, 0]])}),
    "open_growth": (be.open_growth, {"path": "growth"}),
    "recall_in": (lambda **given: graph().recall_in(**given), {"X": ROWS, "n_neighbors": 2, "rows": 5, "seed": 0}),
    **{f"scanpy.{name}": (getattr(be.scanpy, name), {"adata": cells}) for name in be.scanpy.__all__},
    **{f"datasets.{name}": (make, {}) for name, make in REGISTRY.items() if not FILES & set(parameters(name))},
}
"""Each with arguments that will do."""
ROWS_OF_THEIR_OWN = {"X", "Y", "rows", "source", "candidates", "graph", "distances", "columns", "weights"}
ROWS_OF_THEIR_OWN |= {"coordinates", "reference", "values"}


def parameters_of(name: str) -> list[str]:
    function, good = FUNCTIONS[name]
    found = [one for one in inspect.signature(function).parameters if one != "given"]
    return [*found, *(one for one in good if one not in found)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows and a model, which no wrong call changes."""
    folder = tmp_path_factory.mktemp("stored")
    be.PCA(2).fit(ROWS).save(folder / "model.zarr")
    zarr.create_array(folder / "rows.zarr", shape=ROWS.shape, chunks=(7, 3), dtype="f8")[...] = ROWS
    return folder


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stored)
    function, good = FUNCTIONS[name]
    given = {key: one() if callable(one) else one for key, one in good.items()}
    assert taken(parameters_of(name), lambda **wrong: function(**given | wrong), ROWS_OF_THEIR_OWN) == []


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_misspelled_names_of_functions(name: str) -> None:
    function, good = FUNCTIONS[name]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        function(**good, n_neighbours=2)


def test_all_public_names_are_walked() -> None:
    walked = {function.__name__ for function, _ in FUNCTIONS.values()} | {method(name).__name__ for name in METHODS}
    apart = {"Condensed", "MapQuality", "NeighborGraph", "NeighborTransformer", "Pipeline", "__version__"}
    assert set(be.__all__) - apart <= walked
