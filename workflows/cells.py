"""Counts of genes of cells that become three kinds, sparse, as an AnnData file for single_cell.toml.

    python workflows/cells.py cells.h5ad --cells 3000 --genes 3000

Written piece by piece with h5py, so any number of cells fits; needs the extra bigembed[anndata].
"""

from __future__ import annotations

import argparse
from typing import Any

import h5py
import numpy as np
from scipy import sparse

PIECE = 1 << 25
"""Entries, zeros too, that are drawn at a time."""
KINDS = np.array(["stem", "blood", "skin", "nerve"])


def programs(genes: int, seed: int) -> tuple[Any, Any]:
    """The rate of each gene, and how many times that it is once a cell is of each of the three kinds."""
    random = np.random.default_rng(seed)
    rate = random.gamma(0.6, 1.0, genes)
    own = random.random((3, genes)) < 0.05
    return rate / rate.sum(), np.where(own, random.lognormal(1.8, 0.4, own.shape), 1.0)


def counts(n: int, rate: Any, change: Any, random: np.random.Generator) -> tuple[Any, Any, Any]:
    """Poisson counts (n, genes) as CSR, how far each cell is on its way, and what it becomes."""
    way, kind = random.random(n), random.integers(0, 3, n)
    depth = 1_000 * random.lognormal(0.0, 0.3, n)
    rates = rate * change[kind] ** way[:, None]
    rates *= (depth / rates.sum(axis=1))[:, None]
    return sparse.csr_array(random.poisson(rates).astype(np.float32)), way, np.where(way < 0.2, 0, kind + 1)


def grow(array: Any, values: Any) -> None:
    """Append to a dataset."""
    array.resize(len(array) + len(values), axis=0)
    array[-len(values) :] = values


def frame(file: Any, name: str, index: list[str], columns: dict[str, Any]) -> None:
    """A data frame of AnnData's layout."""
    group = file.create_group(name)
    described(group, "dataframe", "0.2.0", _index="_index")
    group.attrs.create("column-order", list(columns), dtype=h5py.string_dtype())
    for key, values in {"_index": index, **columns}.items():
        text = key == "_index"
        group.create_dataset(key, data=values, dtype=h5py.string_dtype() if text else None)
        described(group[key], "string-array" if text else "array", "0.2.0")


def described(node: Any, kind: str, version: str, **attributes: Any) -> None:
    """What AnnData says of each node."""
    node.attrs.update({"encoding-type": kind, "encoding-version": version, **attributes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--cells", type=int, default=3_000)
    parser.add_argument("--genes", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rate, change = programs(given.genes, given.seed)
    random = np.random.default_rng([given.seed, 1])
    ways, kinds = [], []
    with h5py.File(given.out, "w") as file:
        described(file, "anndata", "0.1.0")
        rows = file.create_group("X")
        described(rows, "csr_matrix", "0.1.0", shape=[given.cells, given.genes])
        types = {"data": np.float32, "indices": np.int32, "indptr": np.int64}
        kept = {name: rows.create_dataset(name, (0,), kind, maxshape=(None,)) for name, kind in types.items()}
        grow(kept["indptr"], [0])
        most = max(1, PIECE // given.genes)
        for start in range(0, given.cells, most):
            part, way, kind = counts(min(most, given.cells - start), rate, change, random)
            grow(kept["indptr"], kept["indptr"][-1] + part.indptr[1:])
            grow(kept["indices"], part.indices)
            grow(kept["data"], part.data)
            ways.append(way)
            kinds.append(kind)
        frame(
            file,
            "obs",
            [f"cell{number}" for number in range(given.cells)],
            {"way": np.concatenate(ways), "kind": np.concatenate(kinds)},
        )
        frame(file, "var", [f"gene{number}" for number in range(given.genes)], {})
    print(f"{given.out}: {given.cells} cells, {given.genes} genes; kinds {dict(enumerate(KINDS.tolist()))}")


if __name__ == "__main__":
    main()
