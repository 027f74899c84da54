"""A = diag(s) W diag(s) by blocks, against the matrix assembled."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bigembed.errors import InputError
from bigembed.linalg.operator import SparseOperator
from bigembed.store.vector_space import MemorySpace
from tests.operator_views import as_linear_operator, dot_test, memory_matrix


def put_block(block, array, cuts):
    start, stop = cuts[block]
    return (array[start:stop],), None


def build(n, cuts, seed=0, symmetric=True):
    rng = np.random.default_rng(seed)
    weights = sparse.random_array((n, n), density=0.2, rng=rng).tocsr()
    weights = (weights + weights.T).tocsr() if symmetric else weights
    scale = rng.random((n, 1)) * (rng.random((n, 1)) > 0.2)
    matrix = memory_matrix(weights, cuts)
    space = MemorySpace(matrix)
    space.sweep(put_block, writes=["scale"], posts=["scale"], arguments=(scale, cuts))
    return SparseOperator(matrix, space), scale * weights.toarray() * scale.T


@settings(max_examples=30)
@given(edges=st.lists(st.integers(1, 39), max_size=5, unique=True), width=st.integers(1, 4))
def test_product_is_that_of_the_assembled_matrix(edges, width):
    """y = s ∘ (W (s ∘ x)) for any blocks."""
    edges = [0, *sorted(edges), 40]
    operator, dense = build(40, list(pairwise(edges)))
    x = np.random.default_rng(1).standard_normal((40, width))
    np.testing.assert_allclose(as_linear_operator(operator).matmat(x), dense @ x, atol=1e-12)
    assert operator.passes == 1
    assert not np.allclose(dense.T @ x + 1e-6, dense @ x, atol=1e-12)  # control


def test_dot_test_tells_symmetric_from_not():
    """⟨Au, v⟩ = ⟨u, Av⟩."""
    cuts = [(0, 13), (13, 40)]
    assert dot_test(build(40, cuts)[0]) < 1e-13
    assert dot_test(build(40, cuts, symmetric=False)[0]) > 1e-3  # control


def test_one_product_of_several_vectors_is_one_pass():
    """Counted: one pass, halo rows × columns × 8 bytes, and the scale of the halo."""
    operator, dense = build(40, [(0, 20), (20, 40)])
    x = np.random.default_rng(2).standard_normal((40, 5))
    cuts = [(0, 20), (20, 40)]
    for name, columns in (("a", x[:, :2]), ("b", x[:, 2:])):
        operator.space.sweep(put_block, writes=[name], posts=[name], arguments=(columns, cuts))
    parts = operator.product(["a", "b"], ["Aa", "Ab"], then=gram_block)
    halo = sum(len(block.halo_rows) for block in operator.matrix.blocks)
    assert (operator.passes, operator.bytes_moved) == (1, halo * 6 * 8)
    np.testing.assert_allclose(sum(parts), x[:, :2].T @ dense @ x[:, 2:], atol=1e-12)


def gram_block(block, a, b, image_a, image_b):
    return (), a.T @ image_b


def test_bounds_must_cut_the_rows():
    with pytest.raises(InputError, match="consecutive"):
        memory_matrix(sparse.eye_array(5), [(0, 2), (3, 5)])


def test_outbox_mirrors_the_halo_lists():
    """What block a sends to b is what b's halo list names of a."""
    operator, _ = build(40, [(0, 9), (9, 20), (20, 40)])
    matrix = operator.matrix
    for b in range(3):
        for other, rows in matrix.outbox(b):
            np.testing.assert_array_equal(rows, dict(matrix.block(other).segments())[b])


@pytest.mark.parametrize("width", [1, 5, 15, 16])
def test_vectors_in_single_precision_are_multiplied_in_double(width):
    """The bytes of the product with the same numbers in double precision."""
    operator, _ = build(40, [(0, 15), (15, 40)])
    x = np.random.default_rng(3).standard_normal((40, width))
    for dtype, name in ((np.float32, "single"), (np.float64, "double")):
        rounded = x.astype(np.float32).astype(dtype)
        operator.space.sweep(put_block, writes=[name], posts=[name], arguments=(rounded, [(0, 15), (15, 40)]))
        operator.product([name], [f"A {name}"])
    for block in range(2):
        single, double = (operator.space.read(f"A {name}", block) for name in ("single", "double"))
        assert single.dtype == np.float64
        assert single.tobytes() == double.tobytes()
    assert operator.space.read("single", 0).dtype == np.float32
