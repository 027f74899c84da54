"""Least squares of columns on coordinates of the same rows; how well sums of each length predict values held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigembed.blocks.rows import Array, is_sparse
from bigembed.stages import Context, Cost, Stage
from bigembed.store.arrays.io import read_array, write_array
from bigembed.store.rows.passes import Parts, reduce_rows
from bigembed.store.rows.row_blocks import RowBlock
from bigembed.store.rows.source import RowSource

SUMS = ("gram", "products", "squares")


def sums_stage(columns: RowSource, powers: Array, folds: int, seed: int) -> Stage:
    """ΨᵀΨ, Ψᵀf and Σf² of each fold, Ψ the constant and the coordinates over ``powers``: one pass over both."""
    n, width, of_each = *columns.shape, len(powers) + 1
    size = 8 * folds * of_each * (of_each + width)

    def run(context: Context) -> dict[str, Any]:
        fixed: dict[str, Any] = {"embedding": context.of("coordinates", "embedding"), "powers": powers}
        fixed |= {"folds": folds, "seed": seed, "first": True, "partial_bytes": size}
        for name, total in reduce_rows(columns, sums_block, context.exchange, **fixed).items():
            write_array(context.path(name), total)
        return {"rows": n, "columns": width}

    cost = Cost(passes=1, read=8 * n * (width + of_each), disk=size, memory=4 * columns.block * 8 * width + 4 * size)
    parameters = {"columns": columns.fingerprint(), "folds": folds, "seed": seed, "width": of_each}
    return Stage("harmonics", ("solve", "coordinates"), parameters, run, cost)


def sums_block(block: RowBlock, *, embedding: str, powers: Array, folds: int, seed: int) -> Parts:
    """ΨᵀΨ, Ψᵀf and Σf² of each fold, Ψ the constant and the eigenfunctions at the rows of one block."""
    found = read_array(embedding, block.start, block.stop)[:, : len(powers)] / powers
    basis = np.column_stack([np.ones(len(found)), found])
    f = np.asarray(block.rows.toarray() if is_sparse(block.rows) else block.rows, np.float64)
    fold = np.random.default_rng([seed, block.number]).integers(0, folds, len(f))
    parts = [fold == number for number in range(folds)]
    return {
        "gram": np.stack([basis[part].T @ basis[part] for part in parts]),
        "products": np.stack([basis[part].T @ f[part] for part in parts]),
        "squares": np.stack([np.square(f[part]).sum(axis=0) for part in parts]),
    }


def held_out(sums: Parts) -> Array:
    """Share of the variance that is left of values held out, (cuts, c), for sums of every length."""
    gram, products, squares = sums["gram"], sums["products"], sums["squares"]
    left = np.zeros((gram.shape[1], squares.shape[1]))
    for fold in range(len(gram)):
        rest = gram.sum(axis=0) - gram[fold], products.sum(axis=0) - products[fold]
        for cut in range(len(left)):
            c, part = solved(*rest, cut), slice(cut + 1)
            explained = 2 * (c * products[fold][part]).sum(axis=0) - (c * (gram[fold][part, part] @ c)).sum(axis=0)
            left[cut] += squares[fold] - explained
    variance = squares.sum(axis=0) - np.square(products.sum(axis=0)[0]) / gram.sum(axis=0)[0, 0]
    return np.asarray(np.divide(left, variance, out=np.zeros_like(left), where=variance > 0))


def solved(gram: Array, products: Array, cut: int) -> Array:
    """Coefficients (cut + 1, c) of least squares; of the smallest norm where rows do not decide them."""
    part = slice(cut + 1)
    return np.asarray(np.linalg.lstsq(gram[part, part], products[part], rcond=None)[0])
