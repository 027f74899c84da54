"""Shortlists look at near blocks only, and lose nothing that matters; they are longer where they would."""

from __future__ import annotations

import numpy as np
import pytest

import bigembed as be
from bigembed.neighbors.search import ground_truth as expected_recall
from bigembed.neighbors.search import probes as shortlist
from bigembed.neighbors.search.ground_truth import ample, better, choose_probes


@pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
def test_few_near_blocks_keep_the_recall(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).uniform(size=(6000, 2))
    monkeypatch.setattr(shortlist, "NEAR_BLOCKS", 9)
    near = be.build_neighbor_graph(X, 8, algorithm="cells")
    assert len(near.matrix.rows) > 12
    assert near.recall >= 0.99
    monkeypatch.setattr(shortlist, "NEAR_BLOCKS", 1)  # a control: the own block alone loses the borders, and it is seen
    with pytest.raises(AssertionError):
        assert be.build_neighbor_graph(X, 8, algorithm="cells").recall >= 0.99


@pytest.mark.filterwarnings("ignore::bigembed.errors.RecallWarning")
@pytest.mark.parametrize(("longer", "found"), [((16,), 16), ((8,), None)])
def test_lists_are_longer_where_rows_at_the_edge_of_a_cell_would_miss_neighbors(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch, longer: tuple[int, ...], found: int | None
) -> None:
    """What is expected is found; a control without longer lists misses the target, and says so."""
    X = np.random.default_rng(0).normal(size=(6000, 6)).astype(np.float32)
    monkeypatch.setattr(shortlist, "SHORTLIST", 8)
    monkeypatch.setattr(expected_recall, "LONGER", longer)
    run = be.build_neighbor_graph(X, 8, recall=0.95, algorithm="cells").run
    witness, search, recall = (run.results(stage) for stage in ("witness", "search", "recall"))
    assert search.get("shortlist") == witness.get("shortlist") == found
    assert recall["recall"] == pytest.approx(witness["expected_recall"])
    assert (recall["recall"] >= 0.95) == (found is not None)
    assert recall["advice"].startswith("" if found else f"{search['n_probes']} cells were searched for each row; all 8")


def test_a_search_stops_where_the_curve_is_flat() -> None:
    """Of 256 cells that find .9735 those that find as many within a standard error (.0013); of a target that is reached
    none less than it takes."""
    cells = np.arange(1, 257)
    curve = 0.9735 * (1 - np.exp(-cells / 15))
    few = choose_probes(curve, 0.99, 15_000)
    assert few < 110
    assert curve[few - 2] < curve[-1] - np.sqrt(0.9735 * 0.0265 / 15_000) <= curve[few - 1]
    assert curve[choose_probes(curve, 0.96, 15_000) - 2] < 0.9632 <= curve[choose_probes(curve, 0.96, 15_000)]
    assert choose_probes(curve, 1.0, 15_000) == 256


def test_longer_lists_are_kept_where_they_save_cells() -> None:
    def curve(length: int, most: float, scale: float) -> np.ndarray:
        return most * (1 - np.exp(-np.arange(1, length + 1) / scale))

    given = 0.99, 15_000
    short, half, long = curve(256, 0.9735, 15), curve(512, 1.0, 16), curve(512, 1.0, 40)
    assert not ample(short, *given)
    assert ample(half, *given)
    assert not ample(long, *given)
    assert better(short, half, *given) is half  # reaches the target
    assert better(long, curve(1024, 1.0, 30), *given) is not long  # fewer cells
    assert better(long, curve(1024, 1.0, 39), *given) is long  # (controls: hardly fewer; neither reaches it)
    assert better(short, curve(512, 0.97, 15), *given) is short
