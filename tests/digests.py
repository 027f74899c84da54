"""Digests of all that every method stores and returns on small rows: what a change of the code's shape must not change.

    python -m tests.digests record before.json
    python -m tests.digests compare before.json

``compare`` prints each stage, model or set of coordinates whose digest is another one now, and ends with status 1 if
there are any. ``--keep FOLDER`` (with ``record``) leaves the runs and models there, and ``--opens FOLDER`` (with
``compare``) checks that they load and place rows as they did.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import dask
import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

import bigembed as be
from bigembed.methods import REGISTRY

RANDOM = np.random.default_rng(0)
ROWS = np.abs(RANDOM.normal(size=(1_200, 20)) * np.linspace(6, 0.5, 20)).astype("f4")
NEW = np.abs(RANDOM.normal(size=(50, 20)) * np.linspace(6, 0.5, 20)).astype("f4")
TWICE = np.concatenate([ROWS[:40], ROWS[:40], ROWS + 0.25])
LABELS = np.arange(len(ROWS)) % 5
GRAPH = {"n_neighbors": 8}

FITS: dict[str, Callable[[str], Any]] = {
    "classical_mds": lambda at: be.ClassicalMDS(3, workdir=at).fit(ROWS),
    "classical_mds cityblock": lambda at: be.ClassicalMDS(3, metric="cityblock", workdir=at).fit(ROWS),
    "classical_mds precomputed": lambda at: be.ClassicalMDS(3, metric="precomputed", workdir=at).fit(cdist(ROWS, ROWS)),
    "diffusion_map": lambda at: be.DiffusionMap(3, workdir=at).fit(ROWS),
    "diffusion_map repeated rows": lambda at: be.DiffusionMap(3, workdir=at).fit(TWICE),
    "diffusion_map fixed": lambda at: be.DiffusionMap(3, **GRAPH, bandwidth="fixed", t=2, workdir=at).fit(ROWS),
    "diffusion_map target": lambda at: be.DiffusionMap(3, target="laplace-beltrami", workdir=at).fit(ROWS[:, :3]),
    "diffusion_map bridge": lambda at: be.DiffusionMap(3, components="bridge", workdir=at).fit(islands()),
    "diffusion_map joint": lambda at: be.DiffusionMap(3, workdir=at).fit(islands()),
    "diffusion_map galerkin": lambda at: be.DiffusionMap(
        3, **GRAPH, solver="landmarks", n_landmarks=60, workdir=at
    ).fit(ROWS),
    "diffusion_map nystrom": lambda at: be.DiffusionMap(
        3, **GRAPH, solver="landmarks", n_landmarks=60, extension="nystrom", workdir=at
    ).fit(ROWS),
    "diffusion_map all pairs": lambda at: be.DiffusionMap(3, n_neighbors=None, workdir=at).fit(ROWS[:300]),
    "diffusion_map weights": lambda at: be.DiffusionMap(3, alpha=0, workdir=at).fit(ring()),
    "isomap": lambda at: be.Isomap(3, **GRAPH, solver="exact", workdir=at).fit(ROWS),
    "isomap landmarks": lambda at: be.Isomap(3, **GRAPH, solver="landmarks", n_landmarks=20, workdir=at).fit(ROWS),
    "isomap precomputed": lambda at: be.Isomap(3, **GRAPH, metric="precomputed", workdir=at).fit(cdist(ROWS, ROWS)),
    "kernel_pca": lambda at: be.KernelPCA(3, gamma=0.02, workdir=at).fit(ROWS),
    "kernel_pca inverse": lambda at: be.KernelPCA(3, gamma=0.02, fit_inverse_transform=True, workdir=at).fit(ROWS),
    "kernel_pca nystrom": lambda at: be.KernelPCA(3, gamma=0.02, solver="nystrom", n_landmarks=99, workdir=at).fit(
        ROWS
    ),
    "landmark_diffusion_map": lambda at: be.LandmarkDiffusionMap(3, n_landmarks=100, workdir=at).fit(ROWS),
    "landmark_mds": lambda at: be.LandmarkMDS(3, n_landmarks=50, workdir=at).fit(ROWS),
    "landmark_mds max-min": lambda at: be.LandmarkMDS(3, n_landmarks=50, landmarks="max-min", workdir=at).fit(ROWS),
    "linear_discriminant": lambda at: be.LinearDiscriminantAnalysis(3, workdir=at).fit(ROWS, LABELS),
    "linearized_diffusion_map": lambda at: be.LinearizedDiffusionMap(3, alpha=0.5, workdir=at).fit(ROWS),
    "linearized_diffusion_map lanczos": lambda at: be.LinearizedDiffusionMap(3, solver="lanczos", workdir=at).fit(ROWS),
    "linearized_diffusion_nmf": lambda at: be.LinearizedDiffusionNMF(3, max_iter=3, workdir=at).fit(ROWS),
    "linearized_kernel_pca": lambda at: be.LinearizedKernelPCA(3, epsilon="auto", workdir=at).fit(ROWS),
    "nmf": lambda at: be.NMF(4, max_iter=4, workdir=at).fit(ROWS),
    "nmf random sparse": lambda at: be.NMF(3, init="random", max_iter=4, workdir=at).fit(sparse.csr_array(ROWS)),
    "pca": lambda at: be.PCA(3, workdir=at).fit(ROWS),
    "pca whitened": lambda at: be.PCA(0.9, whiten=True, workdir=at).fit(ROWS),
}


def islands() -> Any:
    """Rows of two large parts, and three rows far from all."""
    return np.concatenate([ROWS[:600], ROWS[600:] + 60, ROWS[:3] + 200])


def ring() -> Any:
    """A weighted ring."""
    weights = np.random.default_rng(1).random(700) + 0.5
    i = np.arange(len(weights))
    j = np.roll(i, -1)
    return sparse.csr_array((np.tile(weights, 2), (np.r_[i, j], np.r_[j, i])))


def digests(fitted: Any, folder: Path) -> dict[str, Any]:
    """Of every stage of a fit, of its model, of its coordinates, and of those of new rows."""
    np.asarray(fitted.embedding_)
    model = folder / "model"
    fitted.save(str(model))
    found = {f"stage {name}": value for name, value in published(folder / "run").items()}
    found |= {f"model {name}": value for name, value in published(model).items()}
    found["coordinates"] = of(np.asarray(fitted.embedding_))
    found["new rows"] = placed(fitted)
    return found


def published(root: Path) -> dict[str, str]:
    """What each manifest lists, without what differs from one run to the next."""
    out = {}
    for path in sorted((root / "manifest").glob("*.json")):
        said = json.loads(path.read_text())
        kept = {name: said[name] for name in ("key", "parameters", "inputs", "files", "results")}
        out[path.stem] = sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    return out


def placed(fitted: Any) -> str:
    """Digest of the coordinates of new rows, or why there are none."""
    width = getattr(fitted, "n_features_in_", NEW.shape[1])
    try:
        return of(np.asarray(fitted.transform(NEW[:, :width])))
    except (be.errors.BigembedError, AttributeError) as error:
        return type(error).__name__


def of(values: Any) -> str:
    return sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def all_digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Of every method and variant, fitted below a folder."""
    missing = set(REGISTRY) - {name.split()[0] for name in FITS}
    assert not missing, f"no fit of {missing}"
    out = {}
    for name, fit in FITS.items():
        print(name, file=sys.stderr)
        home = folder / name.replace(" ", "-")
        home.mkdir(parents=True)
        out[name] = digests(fit(str(home / "run")), home)
    return out


def reopened(folder: Path) -> dict[str, dict[str, Any]]:
    """Of new rows placed by every model below a folder."""
    return {
        name: {"new rows": placed(be.load(str(folder / name.replace(" ", "-") / "model")))}
        for name in FITS
        if (folder / name.replace(" ", "-")).exists()
    }


def differences(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was there before and is another one now."""
    return [
        f"{name}: {part}"
        for name, parts in before.items()
        for part, digest in parts.items()
        if name in now and now[name].get(part) != digest
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--opens", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch, dask.config.set(scheduler="synchronous"):
        found = all_digests(asked.keep or Path(scratch))
        if asked.what == "record":
            asked.file.write_text(json.dumps(found, indent=1, sort_keys=True))
            print(f"{sum(map(len, found.values()))} digests of {len(found)} fits")
            return 0
        before = json.loads(asked.file.read_text())
        changed = differences(before, found)
        if asked.opens:
            only = {name: {"new rows": parts["new rows"]} for name, parts in before.items()}
            changed += [f"{line} of the stored model" for line in differences(only, reopened(asked.opens))]
    gone = [name for name in before if name not in found]
    print("\n".join([*changed, *(f"{name}: gone" for name in gone)]) or "the same bytes")
    return 1 if changed or gone else 0


if __name__ == "__main__":
    sys.exit(main())
