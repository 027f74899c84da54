"""Every symmetric operator is its dense matrix, in few passes a product, with vectors in memory and in the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from bigembed import linalg as products
from bigembed.errors import InputError
from bigembed.linalg import CovarianceOperator, FactoredOperator, SparseOperator, pairs
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.pairs import CenteredOperator, KernelOperator
from bigembed.maps.kernels import Kernel
from bigembed.maps.linearized import LinearizedKernel
from bigembed.rows import RowSource, tiles
from bigembed.rows.sparse import held_source
from bigembed.runtime.blocks import bounds
from bigembed.store.exchange import Exchange
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import as_linear_operator, dot_test, memory_matrix

N, BLOCK = 90, 40
ROWS = np.random.default_rng(0).normal(size=(N, 5)) * [3, 2, 1, 1, 1]
CENTER = np.eye(N) - 1 / N
SCALE = np.random.default_rng(1).random((N, 1)) + 0.5
Case = tuple[Any, np.ndarray]


@dataclass(frozen=True)
class Held:
    """Features of rows held in this process."""

    X: np.ndarray
    kernel: LinearizedKernel
    block: int

    @property
    def size(self) -> int:
        return self.kernel.size

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in bounds(len(self.X), self.block))

    def tiles(self, block: int) -> Iterator[tuple[slice, np.ndarray]]:
        return self.kernel.tiles(self.X[block * self.block : (block + 1) * self.block])


def source_of(array: np.ndarray) -> RowSource:
    return RowSource(array.shape, array.dtype, array=array)


def posted(space: Any) -> Any:
    for block, (start, stop) in enumerate(bounds(N, BLOCK)):
        space.write("scale", block, SCALE[start:stop])
    return space


def of_a_graph(space: Callable[..., Any]) -> Case:
    half = sparse.random_array((N, N), density=0.2, rng=np.random.default_rng(2)).tocsr()
    weights = (half + half.T).tocsr()
    matrix = memory_matrix(weights, bounds(N, BLOCK))
    held = space(matrix, ())
    held.sweep(put_block, writes=["scale"], posts=["scale"])
    return SparseOperator(matrix, held), SCALE * weights.toarray() * SCALE.T


def put_block(block: int) -> Any:
    return (SCALE[block * BLOCK : (block + 1) * BLOCK],), None


def of_features(space: Callable[..., Any], kind: str = "global") -> Case:
    """Seed 004: eq. 12, and eq. 8 for the linear kernel, which is the operator of PCA."""
    epsilon = 4 * (ROWS**2).sum(axis=1).max()
    kernel = LinearizedKernel(ROWS.mean(axis=0), epsilon, kind)
    features, centered = Held(ROWS, kernel, BLOCK), ROWS - ROWS.mean(axis=0)
    entries = 2 / epsilon * centered @ centered.T if kind == "linear" else 1 - cdist(ROWS, ROWS) ** 2 / epsilon
    return FactoredOperator(features, kernel.core, posted(space(None, features.rows))), SCALE * entries * SCALE.T


def of_a_kernel(space: Callable[..., Any], name: str = "rbf") -> Case:
    kernel = Kernel(name, gamma=0.2)
    operator = KernelOperator(source_of(ROWS), space(None, (N,)), kernel, text=kernel.text, symmetric=not kernel.own)
    matrix = CENTER @ kernel(ROWS, ROWS) @ CENTER
    assert operator.norm == pytest.approx(np.linalg.norm(matrix), rel=1e-10)
    assert operator.trace == pytest.approx(np.trace(matrix), rel=1e-10)
    return operator, matrix / operator.norm


def of_distances(space: Callable[..., Any], squared: bool = False) -> Case:
    apart = cdist(ROWS, ROWS, "cityblock")
    sizes = tuple(b - a for a, b in bounds(N, BLOCK))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE_ROWS", 7)
        patch.setattr(tiles, "TILE_COLUMNS", 11)
        operator = CenteredOperator(source_of(apart**2 if squared else apart), space(None, sizes), squared=squared)
    matrix = -0.5 * CENTER @ apart**2 @ CENTER
    assert operator.norm == pytest.approx(np.linalg.norm(matrix), rel=1e-10)
    assert operator.trace == pytest.approx(np.trace(matrix), rel=1e-12)
    assert operator.passes == 1  # the survey
    return operator, matrix / operator.trace


def of_columns(space: Callable[..., Any], kind: str = "dense") -> Case:
    """Its space is that of the columns, always in memory."""
    rows = np.where(np.random.default_rng(5).random(ROWS.shape) < 0.5, 0, ROWS)
    weights = np.random.default_rng(6).random(N) * 3 if kind == "weighted" else np.ones(N)
    source = held_source(sparse.csr_array(rows)) if kind == "sparse" else source_of(rows)
    if kind == "weighted":
        source = replace(source, aligned={"weights": source_of(weights)})
    mean, total = weights @ rows / weights.sum(), weights.sum() - 1
    matrix = ((rows - mean).T * weights) @ (rows - mean) / total
    return CovarianceOperator(source, mean, total, Exchange(mkdtemp())), matrix


OPERATORS: dict[str, Callable[..., Case]] = {
    "graph": of_a_graph,
    "features": of_features,
    "linear features": partial(of_features, kind="linear"),
    "kernel": of_a_kernel,
    "polynomial kernel": partial(of_a_kernel, name="poly"),
    "sigmoid kernel": partial(of_a_kernel, name="sigmoid"),
    "distances": of_distances,
    "squared distances": partial(of_distances, squared=True),
    "columns": of_columns,
    "sparse columns": partial(of_columns, kind="sparse"),
    "weighted columns": partial(of_columns, kind="weighted"),
}
"""A new operator is a line: how it is made in a space, with the matrix that it stands for."""


def passes(operator: Any) -> int:
    """Of a product: a factored one goes there and back."""
    return 2 if isinstance(operator, FactoredOperator) else 1


def classes() -> set[type]:
    """All of the modules of operators that multiply, but the protocols and those that others are made of."""
    every = [cls for module in (products, pairs) for cls in vars(module).values() if inspect.isclass(cls)]
    ours = {cls for cls in every if hasattr(cls, "product") and not getattr(cls, "_is_protocol", False)}
    return {cls for cls in ours if not any(cls in other.__mro__[1:] for other in ours)}


def test_every_operator_is_here(space: Callable[..., Any]) -> None:
    assert classes() == {type(make(space)[0]) for make in OPERATORS.values()}


@pytest.fixture(params=["memory", "store"])
def space(request: Any, tmp_path: Path) -> Callable[..., Any]:
    """Makes the space of an operator."""
    if request.param == "memory":
        return lambda matrix, sizes: MemorySpace(matrix, sizes)
    return lambda matrix, sizes: StoredSpace(matrix, Exchange(str(tmp_path)), sizes)


@pytest.fixture(params=OPERATORS)
def operator(request: Any, space: Callable[..., Any]) -> Case:
    """An operator and its matrix."""
    return OPERATORS[request.param](space)


def fill(block: int, x: np.ndarray, start: np.ndarray) -> Any:
    return (x[start[block] : start[block + 1]],), None


def gram(block: int, a: Any, b: Any, image_a: Any, image_b: Any, offset: float) -> Any:
    return (image_b + offset,), a.T @ image_b


def test_products_are_those_of_the_matrix(operator: Case) -> None:
    found, matrix = operator
    before = found.passes
    np.testing.assert_allclose(as_linear_operator(found) @ np.eye(len(matrix)), matrix, atol=1e-12)
    assert found.passes == before + passes(found)
    assert dot_test(found) < 1e-13
    assert found.passes == before + 2 * passes(found)
    assert np.abs(matrix).max() > 1e-2  # a control


def test_several_vectors_and_what_follows_take_no_pass_more(operator: Case) -> None:
    found, matrix = operator
    start = np.concatenate([[0], np.cumsum(found.space.rows)])
    x = np.random.default_rng(3).standard_normal((len(matrix), 5))
    for name, part in (("a", x[:, :2]), ("b", x[:, 2:])):
        found.space.sweep(fill, writes=[name], posts=[name], arguments=(part, start))
    before = found.passes
    parts = found.product(["a", "b"], ["Aa", "Ab"], then=gram, writes=["more"], arguments=(1.5,))
    assert found.passes == before + passes(found)
    np.testing.assert_allclose(sum(parts), x[:, :2].T @ matrix @ x[:, 2:], atol=1e-11)
    np.testing.assert_allclose(read(found, "Aa"), matrix @ x[:, :2], atol=1e-12)
    np.testing.assert_allclose(read(found, "more"), matrix @ x[:, 2:] + 1.5, atol=1e-12)
    found.product(["a", "b"], then=gram, writes=["again"], arguments=(1.5,))  # (products that are not kept)
    np.testing.assert_array_equal(read(found, "again"), read(found, "more"))
    for names, into in ((["a"], ["Aa", "Ab"]), ("a", "b")):
        with pytest.raises(InputError, match="two lists of one length"):
            found.product(names, into)


def read(operator: Any, name: str) -> np.ndarray:
    return np.concatenate([operator.space.read(name, block) for block in range(len(operator.space.rows))])


@pytest.mark.parametrize(
    "which", ["magnitude", *(pytest.param(which, marks=pytest.mark.slow) for which in ("largest", "smallest"))]
)
def test_lanczos_finds_its_eigenvalues_in_any_order(operator: Case, which: str) -> None:
    found, matrix = operator
    values = np.linalg.eigvalsh(matrix)
    order = {"largest": -values, "smallest": values, "magnitude": -np.abs(values)}[which]
    before = found.passes
    result = solve_lanczos(found, 3, tol=1e-10, which=which)
    np.testing.assert_allclose(result.eigenvalues, values[np.argsort(order, kind="stable")][:3], rtol=1e-8, atol=1e-10)
    assert result.converged
    assert result.passes == found.passes - before
    vectors = read(found, "V")
    np.testing.assert_allclose(matrix @ vectors, vectors * result.eigenvalues, atol=1e-8)


@pytest.mark.parametrize("kind", [kind for kind in OPERATORS if "columns" not in kind])
def test_vectors_in_memory_and_in_the_store_are_the_same_bytes(kind: str, tmp_path: Path) -> None:
    here, _ = OPERATORS[kind](lambda matrix, sizes: MemorySpace(matrix, sizes))
    there, _ = OPERATORS[kind](lambda matrix, sizes: StoredSpace(matrix, Exchange(str(tmp_path)), sizes))
    x = np.random.default_rng(4).standard_normal((N, 3))
    np.testing.assert_array_equal(as_linear_operator(here) @ x, as_linear_operator(there) @ x)
