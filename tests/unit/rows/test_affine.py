"""Affine maps: the same bits for a row in any batch."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bigembed.rows.row_maps import affine_block
from bigembed.runtime.blocks import one_blas_thread


@pytest.mark.parametrize("d", [1, 3, 64, 511])
@pytest.mark.parametrize("k", [1, 2, 10, 33])
def test_a_row_is_mapped_alike_in_any_batch(d, k):
    generator = np.random.default_rng(d + k)
    rows, mean = generator.normal(size=(700, d)).astype("f4"), generator.normal(size=d)
    matrix = generator.normal(size=(d, k))
    with one_blas_thread():
        whole = affine_block(rows, mean, matrix)
        chosen = generator.permutation(700)[:333]
        assert np.array_equal(affine_block(rows[chosen], mean, matrix), whole[chosen])
        assert np.array_equal(affine_block(rows[699:], mean, matrix), whole[699:])
    np.testing.assert_allclose(whole, (rows - mean) @ matrix, atol=1e-11)


def test_sparse_rows():
    rows = sparse.random(50, 9, density=0.3, random_state=0, format="csr")
    mean, matrix = np.arange(9.0), np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_allclose(affine_block(rows, mean, matrix), (rows.toarray() - mean) @ matrix, atol=1e-12)
