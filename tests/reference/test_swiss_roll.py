"""The swiss roll of the lecture notes (seed 000 §9.4.1): the clean one unrolls; what noise does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import spearmanr

import bigembed as be
from bigembed.datasets import dataset


def correlation(name: str, n: int, noise: float, **parameters: object) -> float:
    """|Spearman| of the first coordinate with arc length."""
    roll = dataset(name, n=n, noise=noise)
    rows, truth = roll.draw(0, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dm = be.DiffusionMap(n_components=3, components="largest", **parameters).fit(rows)  # type: ignore[arg-type]
    return abs(float(spearmanr(dm.embedding_[:, 0], truth["arc_length"])[0]))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_clean_roll_unrolls(alpha: float) -> None:
    assert correlation("swiss_roll_mesh", 1060, 0.0, n_neighbors=10, alpha=alpha) >= 0.99


def test_a_random_clean_roll_unrolls() -> None:
    assert correlation("swiss_roll", 4000, 0.0, n_neighbors=10) >= 0.99


def test_some_noise_is_borne_and_much_is_not() -> None:
    """Noise .4 keeps the order; at .8 the graph has short cuts between the windings, as the notes describe."""
    assert correlation("swiss_roll_mesh", 1060, 0.4, n_neighbors=10) >= 0.99
    rows, truth = dataset("swiss_roll_mesh", n=1060, noise=0.8).draw(0, 1060)
    graph = be.build_neighbor_graph(rows, 10).to_scipy().tocoo()
    jump = np.abs(truth["arc_length"][graph.row] - truth["arc_length"][graph.col])
    clean = dataset("swiss_roll_mesh", n=1060).draw(0, 1060)[0]
    calm = be.build_neighbor_graph(clean, 10).to_scipy().tocoo()
    assert jump.max() > 3 * np.abs(truth["arc_length"][calm.row] - truth["arc_length"][calm.col]).max()
