"""Every symmetric operator is its dense matrix, in few passes a product, with vectors in memory and in the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from bigembed.errors import InputError
from bigembed.linalg import operator as products
from bigembed.linalg import pairs
from bigembed.linalg.lanczos import solve_lanczos
from bigembed.linalg.operator import CovarianceOperator, FactoredOperator, SparseOperator
from bigembed.linalg.pairs import CenteredOperator, KernelOperator
from bigembed.maps.kernels import Kernel
from bigembed.maps.linearized.kernel import LinearizedKernel
from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import bounds
from bigembed.store.exchange import Exchange
from bigembed.store.spaces import StoredSpace
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import as_linear_operator, dot_test, memory_matrix
from tests.unit.linalg.test_operators import Held

N, BLOCK = 90, 40
ROWS = np.random.default_rng(0).normal(size=(N, 5)) * [3, 2, 1, 1, 1]
CENTER = np.eye(N) - 1 / N
SCALE = np.random.default_rng(1).random((N, 1)) + 0.5
Case = tuple[Any, np.ndarray]


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


def of_features(space: Callable[..., Any]) -> Case:
    kernel = LinearizedKernel(ROWS.mean(axis=0), 4 * (ROWS**2).sum(axis=1).max(), "global")
    features = Held(ROWS, kernel, BLOCK)
    u = SCALE * kernel.features(ROWS)
    return FactoredOperator(features, kernel.core, posted(space(None, features.rows))), u @ (kernel.core @ u.T)


def of_a_kernel(space: Callable[..., Any]) -> Case:
    kernel = Kernel("rbf", gamma=0.2)
    operator = KernelOperator(source_of(ROWS), space(None, (N,)), kernel, text=kernel.text, symmetric=not kernel.own)
    return operator, CENTER @ kernel(ROWS, ROWS) @ CENTER / operator.norm


def of_distances(space: Callable[..., Any]) -> Case:
    apart = cdist(ROWS, ROWS, "cityblock")
    operator = CenteredOperator(source_of(apart), space(None, tuple(b - a for a, b in bounds(N, BLOCK))))
    return operator, -0.5 * CENTER @ apart**2 @ CENTER / operator.trace


def of_columns(space: Callable[..., Any]) -> Case:
    """Its space is that of the columns, always in memory."""
    exchange = Exchange(mkdtemp())
    return CovarianceOperator(source_of(ROWS), ROWS.mean(axis=0), N - 1.0, exchange), np.cov(ROWS.T)


OPERATORS: dict[type, Callable[..., Case]] = {
    SparseOperator: of_a_graph,
    FactoredOperator: of_features,
    KernelOperator: of_a_kernel,
    CenteredOperator: of_distances,
    CovarianceOperator: of_columns,
}


def passes(operator: Any) -> int:
    """Of a product: a factored one goes there and back."""
    return 2 if isinstance(operator, FactoredOperator) else 1


def classes() -> set[type]:
    """All of the modules of operators that multiply, but the protocols and those that others are made of."""
    every = [cls for module in (products, pairs) for cls in vars(module).values() if inspect.isclass(cls)]
    ours = {cls for cls in every if hasattr(cls, "product") and not getattr(cls, "_is_protocol", False)}
    return {cls for cls in ours if not any(cls in other.__mro__[1:] for other in ours)}


def test_every_operator_is_here() -> None:
    assert classes() == {*OPERATORS}


@pytest.fixture(params=["memory", "store"])
def space(request: Any, tmp_path: Path) -> Callable[..., Any]:
    """Makes the space of an operator."""
    if request.param == "memory":
        return lambda matrix, sizes: MemorySpace(matrix, sizes)
    return lambda matrix, sizes: StoredSpace(matrix, Exchange(str(tmp_path)), sizes)


@pytest.fixture(params=OPERATORS, ids=lambda cls: cls.__name__)
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
    for names, into in ((["a"], []), ("a", "b")):
        with pytest.raises(InputError, match="two lists of one length"):
            found.product(names, into)


def read(operator: Any, name: str) -> np.ndarray:
    return np.concatenate([operator.space.read(name, block) for block in range(len(operator.space.rows))])


def test_lanczos_finds_its_largest_eigenvalues(operator: Case) -> None:
    found, matrix = operator
    result = solve_lanczos(found, 3, tol=1e-10)
    np.testing.assert_allclose(result.eigenvalues, np.linalg.eigvalsh(matrix)[::-1][:3], rtol=1e-8)
    assert result.converged
    vectors = read(found, "V")
    np.testing.assert_allclose(matrix @ vectors, vectors * result.eigenvalues, atol=1e-8)


@pytest.mark.parametrize("kind", [kind for kind in OPERATORS if kind is not CovarianceOperator])
def test_vectors_in_memory_and_in_the_store_are_the_same_bytes(kind: type, tmp_path: Path) -> None:
    here, _ = OPERATORS[kind](lambda matrix, sizes: MemorySpace(matrix, sizes))
    there, _ = OPERATORS[kind](lambda matrix, sizes: StoredSpace(matrix, Exchange(str(tmp_path)), sizes))
    x = np.random.default_rng(4).standard_normal((N, 3))
    np.testing.assert_array_equal(as_linear_operator(here) @ x, as_linear_operator(there) @ x)
