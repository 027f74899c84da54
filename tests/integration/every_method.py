"""A job for each method of the registry, at a small size and a larger one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

D = 24
SIZES = {"classical_mds": (2_000, 6_000), "kernel_pca": (2_000, 6_000), "isomap": (12_000, 30_000)}
"""Rows of the methods that look at all pairs, or at paths from every landmark."""
PARAMETERS = {
    "diffusion_map": 'components = "largest"\nn_neighbors = 10',
    "isomap": 'components = "largest"\nn_neighbors = 10',
}


def sizes(name: str) -> tuple[int, int]:
    """Rows, small and large."""
    return SIZES.get(name, (12_000, 100_000))


def write_job(folder: Path, name: str, n: int) -> Path:
    """A job of the method on n positive rows in twelve overlapping clusters, with their labels."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 12, n)
    centers = 2 * random.normal(size=(12, D))
    np.save(folder / "rows.npy", np.abs(12 + centers[labels] + random.normal(size=(n, D))).astype("f4"))
    np.save(folder / "labels.npy", labels)
    beside = 'labels = "labels.npy"' if name == "linear_discriminant" else ""
    method = f'name = "{name}"\nn_components = 3\n{PARAMETERS.get(name, "")}'
    (folder / "job.toml").write_text(
        f'[input]\npath = "rows.npy"\n{beside}\n[method]\n{method}\n'
        '[output]\npath = "run.zarr"\nmodel = "model.zarr"\n[cluster]\nworkers = 2\nmemory = "2 GiB"\n'
    )
    return folder / "job.toml"
