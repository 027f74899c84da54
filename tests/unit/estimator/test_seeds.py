"""The certificate and a saved model have the seed that was used, and naming it draws no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigembed as be

ROWS = np.random.default_rng(0).normal(size=(300, 4))
METHODS = {
    "isomap exact": (be.Isomap, {"solver": "exact"}, "solve"),
    "isomap landmarks": (be.Isomap, {"solver": "landmarks", "n_landmarks": 30}, "landmarks"),
    "classical_mds": (be.ClassicalMDS, {"metric": "cityblock"}, "solve"),
    "kernel_pca": (be.KernelPCA, {}, "solve"),
    "kernel_pca nystrom": (be.KernelPCA, {"solver": "nystrom", "n_landmarks": 50}, "landmarks"),
    "landmark_mds": (be.LandmarkMDS, {"n_landmarks": 30}, "sample"),
    "landmark_diffusion_map": (be.LandmarkDiffusionMap, {"n_landmarks": 30}, "landmarks"),
    "diffusion_map": (be.DiffusionMap, {}, "solve"),
    "nmf": (be.NMF, {"init": "random", "max_iter": 2}, "start"),
    "pca": (be.PCA, {}, "solve"),
}


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
@pytest.mark.parametrize("state", [None, 5, "generator", "legacy"])
@pytest.mark.parametrize("name", METHODS)
def test_the_seed_that_was_used(name: str, state: Any) -> None:
    kind, parameters, stage = METHODS[name]
    given = {"generator": np.random.default_rng(3), "legacy": np.random.RandomState(3)}.get(state, state)
    fitted = kind(2, random_state=given, **parameters).fit(np.abs(ROWS))
    assert fitted.certificate_["seed"] == fitted._run.manifest(stage).parameters["seed"]


def test_a_saved_model_has_it(tmp_path: Any) -> None:
    fitted = be.Isomap(2, random_state=np.random.default_rng(3)).fit(ROWS)
    fitted.save(tmp_path / "model.zarr")
    loaded = be.load(tmp_path / "model.zarr")
    assert loaded.random_state == fitted._run.manifest("solve").parameters["seed"]
    euclidean = be.ClassicalMDS(2, random_state=7).fit(ROWS)  # nothing is random in it
    assert euclidean.certificate_["seed"] == 7
