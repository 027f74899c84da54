"""Rows with counts beside as many copies of them: a million rows that are a hundred thousand different ones.

    python benchmarks/weights.py                                        # diffusion map and Laplacian eigenmap
    python benchmarks/weights.py --methods umap tsne                    # the same of twenty groups
    python benchmarks/weights.py --places 10000                         # 100 000 rows

The different rows (places) lie evenly on a swiss roll, or in twenty groups of like size; the counts, 10 on average,
grow 19-fold along the roll, and 30-fold from group to group. Four maps are made of them, each in a process of its own:

- ``weighted``: of the places, with counts as weights;
- ``copies``: of all rows, where each place stands as often as it counts. Its neighbors must reach as far: with k of
  the places it has (k + 1) · 10 − 1 of the copies (with k, all neighbors of a row would be its own copies, at distance
  0, and the graph one of islands), and ten times the perplexity;
- ``drawn``: of as many rows, all different, drawn from the density that the counts describe, with k neighbors as
  everybody has them; places are then put on its map as new rows;
- ``ignored``: of the places without counts, the wrong answer.

``angle`` is the sine of the largest angle between the coordinates of the places and those of ``copies`` (in the inner
product of the counts), ``kept`` the share of the 15 nearest places on the map that are so on that of the copies, and
``rooms`` how far the sizes of the groups on the map (root of mean squared distance to their mean, over that of all
groups) differ from it, as the standard deviation of log2; ``power``, by what power of its count the size of a group
grows (least squares of logarithms). Seconds are processor seconds. ``--without copies`` leaves a
map out, where it would take hours: then the others are compared with ``drawn``.
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
from common import clear, peak_of, said, table

MEAN, GROUPS, COLUMNS, NEAR = 10, 20, 16, 15
SIDES = ("copies", "drawn", "weighted", "ignored")
METHODS: dict[str, dict[str, Any]] = {
    "diffusion_map": {"n_components": 3, "n_neighbors": 10},
    "laplacian_eigenmaps": {"n_components": 3, "n_neighbors": 10},
    "umap": {"n_neighbors": 10},
    "tsne": {"perplexity": 10},
}


def roll(length: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Rows of a swiss roll (Archimedes' spiral) at these arc lengths and heights, both from 0 to 1."""
    turns = np.linspace(1.5 * np.pi, 4.5 * np.pi, 20_001)
    arcs = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff([turns * np.cos(turns), turns * np.sin(turns)])))])
    t = np.interp(length * arcs[-1], arcs, turns)
    return np.column_stack([t * np.cos(t), 8 * height, t * np.sin(t)])


def sheet(places: int) -> dict[str, np.ndarray]:
    """Places of the roll with counts that grow along it, and as many rows, all different, of the same density."""
    random = np.random.default_rng(0)
    length, height = random.random((2, places))
    counts = 1 + random.poisson(2 * (MEAN - 1) * length)
    n = int(counts.sum())
    wanted = np.random.default_rng(1)  # (1 in ten rows is even, the others are denser the farther along)
    drawn = np.where(wanted.random(n) < 1 / MEAN, wanted.random(n), np.sqrt(wanted.random(n)))
    group = np.minimum((length * GROUPS).astype(int), GROUPS - 1)
    return {"places": roll(length, height), "counts": counts, "drawn": roll(drawn, wanted.random(n)), "group": group}


def groups(places: int) -> dict[str, np.ndarray]:
    """Twenty groups with as many places each and counts of their own, and as many rows, all different, in them."""
    random = np.random.default_rng(0)
    centers = 3 * random.normal(size=(GROUPS, COLUMNS))
    axes = random.normal(size=(GROUPS, COLUMNS, COLUMNS)) * np.linspace(1, 0.1, COLUMNS)[:, None] ** 2
    heavy = 30.0 ** (np.arange(GROUPS) / (GROUPS - 1))
    group = random.permutation(np.arange(places) % GROUPS)
    counts = 1 + random.poisson((MEAN - 1) * (heavy / heavy.mean())[group])
    copies = np.repeat(group, counts)
    rows = [
        centers[label] + np.einsum("ij,ijk->ik", random.normal(size=(len(label), COLUMNS)), axes[label])
        for label in (group, copies)
    ]
    return {"places": rows[0], "counts": counts, "drawn": rows[1], "group": group}


def written(kind: str, places: int, folder: Path) -> dict[str, str]:
    """Paths of the rows of a kind, made once."""
    names = ("places", "counts", "drawn", "group", "copies")
    paths = {name: str(folder / f"weights-{kind}-{places}-{name}.npy") for name in names}
    if not Path(paths["copies"]).exists():
        folder.mkdir(parents=True, exist_ok=True)
        found = {"sheet": sheet, "groups": groups}[kind](places)
        for name, values in found.items():
            np.save(paths[name], values.astype("f4" if values.ndim > 1 else "i8"))
        np.save(paths["copies"], np.repeat(found["places"].astype("f4"), found["counts"], axis=0))
    return paths


def side(name: str, method: str, paths: dict[str, str], out: str) -> None:
    """Make one map, keep the coordinates of the places, and print what it took."""
    from bigembed.maps import method as estimator

    warnings.simplefilter("ignore")
    counts, asked = np.load(paths["counts"]), dict(METHODS[method])
    if name == "copies":  # (as far as the neighbors of the places)
        mean = counts.mean()
        longer = {"n_neighbors": lambda k: round((k + 1) * mean) - 1, "perplexity": lambda p: p * mean}
        asked = {key: longer[key](value) if key in longer else value for key, value in asked.items()}
    rows = paths[name if name in paths else "places"]
    weights = {"sample_weight": counts} if name == "weighted" else {}
    peak, began = peak_of(os.getpid()), time.process_time()
    found = estimator(method)(workdir=f"{out}.run", **asked).fit(rows, **weights)
    seconds, most = time.process_time() - began, peak()
    points = np.asarray(found.transform(np.load(paths["places"])) if name == "drawn" else found.embedding_)
    if name == "copies":
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        points = np.add.reduceat(points.astype(np.float64), starts) / counts[:, None]
    np.save(f"{out}.npy", points)
    print(json.dumps({"processor": seconds, "peak_gib": most / 2**30}))


def angle(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> float:
    """The sine of the largest angle between the spans of centered columns."""
    bases = []
    for points in (a, b):
        centered = points - np.average(points, axis=0, weights=weights)
        bases.append(np.linalg.qr(centered * np.sqrt(weights)[:, None])[0])
    return float(np.sqrt(max(0.0, 1 - np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)[-1] ** 2)))


def kept(a: np.ndarray, b: np.ndarray) -> float:
    """The share of the nearest places on one map that are so on the other, of 2 000 places."""
    from scipy.spatial import cKDTree

    some = np.random.default_rng(3).permutation(len(a))[:2_000]
    near = [cKDTree(points).query(points[some], NEAR + 1)[1][:, 1:] for points in (a, b)]
    return float(np.mean([len(np.intersect1d(*pair)) / NEAR for pair in zip(*near, strict=True)]))


def rooms(points: np.ndarray, group: np.ndarray) -> np.ndarray:
    """log2 of how large the groups are on a map, of mean 0."""
    sizes = [np.sqrt(points[group == g].var(axis=0).sum()) for g in range(GROUPS)]
    return np.log2(sizes) - np.log2(sizes).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--places", type=int, default=100_000)
    parser.add_argument("--methods", nargs="*", default=["diffusion_map", "laplacian_eigenmaps"], choices=list(METHODS))
    parser.add_argument("--without", nargs="*", default=[], choices=SIDES)
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "METHOD"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    kinds = {method: "sheet" if "n_components" in METHODS[method] else "groups" for method in METHODS}
    out = {(name, method): str(asked.folder / f"weights-{asked.places}-{method}-{name}")
           for name in SIDES for method in METHODS}  # fmt: skip
    if asked.side:
        name, method = asked.side
        side(name, method, written(kinds[method], asked.places, asked.folder), out[name, method])
        return
    for method in asked.methods:
        paths, found, maps = written(kinds[method], asked.places, asked.folder), {}, {}
        counts, group = np.load(paths["counts"]), np.load(paths["group"])
        for name in [name for name in SIDES if name not in asked.without]:
            clear(f"{out[name, method]}.run")
            words = ("--folder", str(asked.folder), "--places", str(asked.places), "--side", name, method)
            found[name] = {"rows": len(np.load(paths.get(name, paths["places"]), mmap_mode="r"))}
            found[name] |= said(sys.executable, __file__, *words)
            clear(f"{out[name, method]}.run")
            maps[name] = np.load(f"{out[name, method]}.npy")
        if kinds[method] == "groups":
            mass = np.log2(np.bincount(group, counts))
            for name, points in maps.items():
                found[name]["power"] = float(np.polyfit(mass, rooms(points, group), 1)[0])
        truth = next(iter(maps))
        for name in list(maps)[1:]:
            if kinds[method] == "sheet":
                found[name]["angle"] = angle(maps[name], maps[truth], counts)
            else:
                found[name]["rooms"] = float((rooms(maps[name], group) - rooms(maps[truth], group)).std())
                found[name]["kept"] = kept(maps[name], maps[truth])
        table("weights", {"method": method, "places": asked.places, "rows": int(counts.sum())}, found)


if __name__ == "__main__":
    main()
