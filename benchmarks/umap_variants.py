"""UMAP by labels, by numbers and with densities beside umap-learn: maps of the same rows, by what they were told.

    python benchmarks/umap_variants.py --folder bench-data              # 10 000 of MNIST, 50 principal components
    python benchmarks/umap_variants.py --rows digits masscyt mixture    # digits of scikit-learn, cells, a mixture
    python benchmarks/umap_variants.py --n 2000 --kinds densities number    # fewer rows, other kinds of map
    python benchmarks/umap_variants.py --rows mnist coil masscyt --seeds 3  # means over three seeds of both

Both sides start from the same rows with default parameters and the same number of neighbors (umap-learn counts the row
itself), each kind of map in a process of its own, compiled before: without anything more, by the labels of all rows, by
those of a tenth, with densities (densMAP) and, where asked, by a number of each (the column that varies most). Cells
have no labels. Figures are means over the seeds.
``seconds`` are processor seconds, with one thread of BLAS and numba. ``silhouette`` and ``accuracy`` (of 15 neighbors,
five folds) are of the classes on the map, ``told`` is R² of the number by 15 neighbors there (five folds), ``radii``
the correlation of the logarithms of mean squared distances to 15 neighbors, among the rows and on the map, by each
space's own neighbors. ``new_radii`` is that of a fifth of the rows, placed on a map of the others without anything more
and with densities (umap-learn places no new rows on the latter). The peer runs in the environment given by
``--peer-python`` (umap-learn installed), by default this one. ``--data`` is the folder of the real sets, in it mnist
(IDX files), coil20 and masscyt; by default $BIGEMBED_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

NEIGHBORS = 15
COMPILED = 5_000
"""Rows of the map by which both sides are compiled: of up to 4 096 umap-learn takes all pairs, not NN-descent."""
FIGURES = {"kept": "preservation", "trustworthiness": "trustworthiness"}
SETS = "mnist", "masscyt", "coil", "digits", "mixture"
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "labels": {"target_metric": "categorical"},
    "tenth": {"target_metric": "categorical"},
    "number": {"target_metric": "l2"},
    "densities": {"densmap": True},
}


def number_of(X: np.ndarray) -> np.ndarray:
    """The column that varies most, of variance 1."""
    column = X[:, X.var(axis=0).argmax()].astype(float)
    return (column - column.mean()) / column.std()


def given(kind: str, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """What a kind of map is told of the rows."""
    if kind == "number":
        return {"y": number_of(X)}
    known = np.random.default_rng(1).random(len(y)) < (1.0 if kind == "labels" else 0.1)
    return {"y": np.where(known, y, -1)} if kind in ("labels", "tenth") else {}


def some(told: dict[str, np.ndarray], rows: Any) -> dict[str, np.ndarray]:
    """The same of some rows."""
    return {name: values[rows] for name, values in told.items()}


def ours(kind: str, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    import bigembed as be

    told, asked, few = given(kind, X, y), KINDS[kind] | {"random_state": seed}, slice(0, COMPILED)
    be.UMAP(n_epochs=4, **asked).fit(X[few], **some(told, few))
    began = time.process_time()
    found = be.UMAP(**asked).fit(X, **told)
    known: dict[str, Any] = {"seconds": time.process_time() - began}
    if kind in ("plain", "densities") and seed == 0:
        new = np.random.default_rng(2).random(len(X)) < 0.2
        others = be.UMAP(**asked).fit(X[~new])
        radii = log_radii(X[~new], X[new]), log_radii(others.embedding_, others.transform(X[new]))
        known["new_radii"] = float(np.corrcoef(*radii)[0, 1])
    return found.embedding_, known


def theirs(kind: str, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    import umap

    told, few = given(kind, X, y), slice(0, COMPILED)
    asked = {"target_metric": "categorical", **KINDS[kind], "n_neighbors": NEIGHBORS + 1, "random_state": seed}
    umap.UMAP(n_epochs=4, **asked).fit(X[few], **some(told, few))
    began = time.process_time()
    found = umap.UMAP(**asked).fit(X, **told).embedding_
    return found, {"seconds": time.process_time() - began}


def log_radii(rows: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """The logarithm of the mean squared distance of rows, or of others, to their nearest rows."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=NEIGHBORS).fit(rows)
    apart = search.kneighbors(others)[0]
    return np.log(1e-12 + (apart**2).mean(axis=1))


def judged(path: str, out: str, y: np.ndarray | None) -> dict[str, float]:
    """What the map shows of the rows, of their classes and of their densities."""
    from sklearn.metrics import silhouette_score
    from sklearn.model_selection import cross_val_score
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    import bigembed as be

    X, points = np.load(path), np.load(f"{out}.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = be.certify(path, points.astype(float)).figures
    found = {name: figures[long]["value"] for name, long in FIGURES.items()}
    if y is not None:
        found["silhouette"] = float(silhouette_score(points, y, sample_size=2_000, random_state=0))
        found["accuracy"] = float(cross_val_score(KNeighborsClassifier(NEIGHBORS), points, y).mean())
    found["told"] = float(cross_val_score(KNeighborsRegressor(NEIGHBORS), points, number_of(X)).mean())
    return found | {"radii": float(np.corrcoef(log_radii(X), log_radii(points))[0, 1])}


def main() -> None:
    from common import named_rows, said, table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--data", default=os.environ.get("BIGEMBED_DATA", "."), metavar="FOLDER")
    parser.add_argument("--rows", nargs="+", default=["mnist"], choices=SETS)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=[one for one in KINDS if one != "number"], choices=list(KINDS))
    parser.add_argument("--peer-python", default=sys.executable)
    asked = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    for rows in asked.rows:
        path, y = named_rows(rows, asked.n, asked.folder, asked.data)
        n, labels = len(np.load(path, mmap_mode="r")), str(asked.folder / f"variant-{rows}-labels.npy")
        np.save(labels, np.full(n, -1) if y is None else y)
        sides: dict[str, dict[str, Any]] = {}
        for kind in [one for one in asked.kinds if y is not None or one not in ("labels", "tenth")]:
            for name, python in (("ours", sys.executable), ("umap-learn", asked.peer_python)):
                made = []
                for seed in map(str, range(asked.seeds)):
                    out = str(asked.folder / f"variant-{rows}-{n}-{kind}-{name}-{seed}")
                    figures = said(python, __file__, name, kind, path, labels, out, seed)
                    made.append(figures | judged(path, out, y))
                sides[f"{name} {kind}"] = {
                    figure: float(np.mean([one[figure] for one in made if figure in one])) for figure in made[0]
                }
        table("umap_variants", {"rows": rows, "n": n, "seeds": asked.seeds}, sides)


def side(name: str, kind: str, path: str, labels: str, out: str, seed: str) -> None:
    """Make one map, and print what is known of it; in the environment of the peer without the package."""
    warnings.simplefilter("ignore")
    points, found = {"ours": ours, "umap-learn": theirs}[name](kind, np.load(path), np.load(labels), int(seed))
    np.save(f"{out}.npy", np.asarray(points))
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("ours", "umap-learn"):
        side(*sys.argv[1:])
    else:
        main()
