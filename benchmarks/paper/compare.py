"""What the experiments of seed 004 share: eigenpairs of both methods, coordinate conventions, recall@k, tables.

The paper does not say how the eigenvectors are scaled to coordinates, nor whether rows are centered, so
every experiment runs with each convention: coordinates are u_l |λ_l|^p of the eigenpairs (λ_l, u_l), ‖u_l‖ = 1,
with p = 0 ("eigenvector"), ½ ("sqrt"; for PCA the usual scores) and 1 ("eigenvalue"; for LDM the diffusion map at
t = 1). PCA and LDM are compared in the same convention, and in each pair of different ones.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import bigembed as be
from bigembed.neighbors.search import exact_neighbors, recall_at

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import data_set as data_set

POWERS = {"eigenvector": 0.0, "sqrt": 0.5, "eigenvalue": 1.0}
LDM: dict[str, dict[str, Any]] = {
    "LDM": {"center": True, "normalization": "symmetric"},
    "LDM from the origin": {"center": False, "normalization": "symmetric"},
    "LDM-A": {"center": True, "normalization": "asymmetric"},
}
"""Variants: rows centered, as the formulas stand (distances from the origin), and asymmetric."""
COLORS = {"LDM": "#2f6fb0", "LDM from the origin": "#d1603d", "LDM-A": "#3ca951", "PCA": "#2b2f36"}
K = 10


@dataclass(frozen=True)
class Pairs:
    """Eigenpairs of a kernel matrix, without the trivial one."""

    vectors: np.ndarray
    """(n, m), columns of length one."""
    values: np.ndarray

    def coordinates(self, power: float, d: int) -> np.ndarray:
        """u_l |λ_l|^p of the first d pairs, (n, d) float32, scaled as a whole to a first column of length √n."""
        weights = np.abs(self.values[:d] / self.values[0]) ** power * np.sqrt(len(self.vectors))
        return np.ascontiguousarray(self.vectors[:, :d] * weights, dtype=np.float32)


def pca_pairs(rows: Any, m: int) -> Pairs:
    """Of the covariance kernel C Cᵀ/(n − 1) (seed 004 §2)."""
    pca = be.PCA(m).fit(rows)
    kept = pca.explained_variance_ > 1e-12 * pca.explained_variance_[0]
    return _of_length_one(np.asarray(pca.embedding_)[:, kept], pca.explained_variance_[kept])


def ldm_pairs(rows: Any, m: int, **variant: Any) -> Pairs:
    """Of the LDM kernel, eqs. 12 and 13."""
    ldm = be.LinearizedDiffusionMap(m, scaling="eigenvector", order="magnitude", **variant).fit(rows)
    kept = np.abs(ldm.eigenvalues_) > 1e-12
    return _of_length_one(np.asarray(ldm.embedding_)[:, kept], ldm.eigenvalues_[kept])


def all_pairs(rows: Any, m: int, variants: Sequence[str] = tuple(LDM)) -> dict[str, Pairs]:
    """Eigenpairs of PCA and of the variants of LDM."""
    return {"PCA": pca_pairs(rows, m)} | {name: ldm_pairs(rows, m, **LDM[name]) for name in variants}


def _of_length_one(vectors: np.ndarray, values: np.ndarray) -> Pairs:
    return Pairs(vectors / np.linalg.norm(vectors.astype(np.float64), axis=0), values)


@dataclass(frozen=True)
class Queries:
    """Sampled rows and their true neighbors."""

    ids: np.ndarray
    truth: np.ndarray

    @classmethod
    def of(cls, rows: Any, count: int, seed: int = 0) -> Queries:
        """``count`` rows drawn from all (all of them, if there are no more), and their K nearest."""
        n = rows.shape[0]
        ids = np.sort(np.random.default_rng(seed).choice(n, min(count, n), replace=False))
        return cls(ids, exact_neighbors(rows, ids, K)[0])

    def lists(self, coordinates: np.ndarray) -> np.ndarray:
        """The K nearest rows in other coordinates."""
        return exact_neighbors(coordinates, self.ids, K)[0]


def compared(pairs: dict[str, Pairs], d: int, queries: Queries) -> list[dict[str, Any]]:
    """recall@10 of PCA and of each variant of LDM in each pair of conventions, their difference (paired by row) with
    its standard error, and the overlap of their lists."""
    lists = {
        (name, convention): queries.lists(found.coordinates(power, d))
        for name, found in pairs.items()
        for convention, power in POWERS.items()
    }
    shares = {key: recall_at(near, queries.truth) for key, near in lists.items()}
    out = []
    for of_pca, (name, of_ldm) in product(POWERS, (key for key in lists if key[0] != "PCA")):
        pca, ldm = shares["PCA", of_pca], shares[name, of_ldm]
        numbers = {
            "recall_pca": float(pca.mean()),
            "recall_ldm": float(ldm.mean()),
            "difference": float((pca - ldm).mean()),
            "standard_error": float((pca - ldm).std() / np.sqrt(len(ldm))),
            "overlap": float(recall_at(lists["PCA", of_pca], lists[name, of_ldm]).mean()),
        }
        out.append({"method": name, "d": d, "pca_scaling": of_pca, "ldm_scaling": of_ldm, **numbers})
    return out


def panels(table: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Titles and rows of the nine pairs of conventions, a line for each of PCA."""
    return [
        (
            f"{'both' if of_pca == of_ldm else f'PCA {of_pca}, LDM'} {of_ldm}",
            [row for row in table if (row["pca_scaling"], row["ldm_scaling"]) == (of_pca, of_ldm)],
        )
        for of_pca, of_ldm in product(POWERS, POWERS)
    ]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A table with the keys of the first row as its head; numbers with six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})
    print(f"{path}: {len(rows)} rows")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of every experiment."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of PNG and CSV")
    return parser
