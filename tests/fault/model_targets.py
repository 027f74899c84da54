"""Saved models of every method, to be damaged: see :mod:`tests.fault.corruption`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bigembed as be
from bigembed.errors import DamagedError
from bigembed.jobs.verify import verify
from bigembed.maps import REGISTRY, method
from tests.fault.corruption import Target
from tests.fault.targets import digest, remove_tree, stored, surface

SOME = ("pca", "diffusion_map", "isomap", "landmark_mds", "nmf", "kernel_pca")
MORE: dict[str, dict[str, Any]] = {
    "classical_mds": {"metric": "cityblock"},
    "diffusion_map": {"n_neighbors": 8},
    "isomap": {"n_neighbors": 8, "n_landmarks": 30},
    "kernel_pca": {"fit_inverse_transform": True},
    "landmark_diffusion_map": {"n_landmarks": 40},
    "landmark_mds": {"n_landmarks": 30},
}
NAME = "model.zarr"


def models(methods: str) -> Iterator[Target]:
    """A saved model of each method."""
    for name in SOME if methods == "some" else sorted(REGISTRY):
        yield model_of(name)


def model_of(name: str) -> Target:
    """A model of this method, and one with fewer coordinates, of other rows, before it."""

    def fit(folder: Path, rows: Any, count: int) -> None:
        estimator = method(name)(count, **MORE.get(name, {}))
        given = {"y": np.arange(len(rows)) % 4} if name == "linear_discriminant" else {}
        estimator.fit(rows, **given)
        remove_tree(folder / NAME)
        estimator.save(folder / NAME)

    def make(folder: Path) -> None:
        fit(folder, surface(200), 2)
        np.save(folder / "new.npy", surface(240)[200:])

    def loaded(folder: Path) -> Any:
        found = be.load(folder / NAME)
        return [sorted(map(str, found.get_params().items())), str(found.certificate_), found.n_components_]

    def placed(folder: Path) -> str:
        return digest(be.load(folder / NAME).transform(np.load(folder / "new.npy")))

    def lazily(folder: Path) -> str:
        return digest(be.load(folder / NAME).transform(folder / "new.npy"))

    def written(folder: Path) -> str:
        remove_tree(folder / "out.zarr")
        be.load(folder / NAME).transform_to(folder / "new.npy", folder / "out.zarr")
        return digest(be.open_array(folder / "out.zarr"))

    def pickled(folder: Path) -> str:
        return digest(pickle.loads(pickle.dumps(be.load(folder / NAME))).transform(np.load(folder / "new.npy")))

    def back(folder: Path) -> str:
        found = be.load(folder / NAME)
        return digest(found.inverse_transform(found.transform(np.load(folder / "new.npy"))))

    def saved_again(folder: Path) -> Any:
        remove_tree(folder / "again.zarr")
        be.load(folder / NAME).save(folder / "again.zarr")
        return digest(be.load(folder / "again.zarr").transform(np.load(folder / "new.npy")))

    def verified(folder: Path) -> Any:
        found = verify(folder / NAME)
        if found["problems"]:
            raise DamagedError("; ".join(found["problems"]))
        return found["certificate"]

    readers = {
        "load": loaded, "transform": placed, "transform of a path": lazily, "transform_to": written,
        "pickle": pickled, "save": saved_again, "verify": verified,
    }  # fmt: skip
    if hasattr(method(name), "inverse_transform") and name not in ("linearized_kernel_pca",):
        readers["inverse_transform"] = back
    return Target(
        f"model of {name}",
        make,
        lambda folder: stored(folder / NAME, folder),
        readers,
        older=lambda folder: fit(folder, surface(150), 1),
        found=lambda file: file.name != "model.json",  # (white space in it says nothing)
    )
