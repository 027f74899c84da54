"""Shortlists look at near blocks only, and lose nothing that matters."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.neighbors import search


@pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
def test_few_near_blocks_keep_the_recall(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).uniform(size=(6000, 2))
    monkeypatch.setattr(search, "NEAR_BLOCKS", 9)
    near = be.build_neighbor_graph(X, 8)
    assert len(near.matrix.rows) > 12
    assert near.recall >= 0.99
    monkeypatch.setattr(search, "NEAR_BLOCKS", 1)  # a control: the own block alone loses the borders, and it is seen
    with pytest.raises(AssertionError):
        assert be.build_neighbor_graph(X, 8).recall >= 0.99
