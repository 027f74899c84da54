"""Rows 2ᵏ times as large: ε is 4ᵏ times as large, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import PlanError

ROWS = np.random.default_rng(0).normal(size=(300, 3)) + np.array([0, 0, 100.0])


def mapped(scale: float, **asked: Any) -> tuple[float, bytes, bytes]:
    found = be.DiffusionMap(2, random_state=0, **asked).fit(ROWS * scale)
    return found.epsilon_ / scale**2, found.eigenvalues_.tobytes(), np.asarray(found.embedding_).tobytes()


@pytest.mark.filterwarnings("ignore::bigembed.errors.LocalizedWarning")
@pytest.mark.parametrize("k", [-73, 66])
@pytest.mark.parametrize(
    "asked",
    [
        {"n_neighbors": 10, "bandwidth": "fixed"},
        {"n_neighbors": 10, "bandwidth": "fixed", "epsilon": "max-min"},
        {"n_neighbors": 10, "bandwidth": "self-tuned"},
        {"n_neighbors": 10, "bandwidth": "adaptive"},
        {"n_neighbors": None, "epsilon": "median"},
        {"n_neighbors": None, "epsilon": "ksum"},
    ],
    ids=lambda asked: "-".join(map(str, asked.values())),
)
def test_a_power_of_two_changes_the_scale_and_nothing_else(k: int, asked: dict[str, Any]) -> None:
    if asked.get("bandwidth") in ("self-tuned", "adaptive"):  # their ε is a pure number
        one, other = (mapped(scale, **asked)[1:] for scale in (1.0, 2.0**k))
    else:
        one, other = mapped(1.0, **asked), mapped(2.0**k, **asked)  # type: ignore[assignment]
    assert one == other


@pytest.mark.parametrize("k", [-90, 90])
def test_the_radius_that_is_proposed_follows_the_scale(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigembed.neighbors.radius.free_bytes", lambda path: 10)
    said = []
    for scale in (1.0, 2.0**k):
        with pytest.raises(PlanError, match="would join") as caught:
            be.build_neighbor_graph(ROWS * scale, radius=scale * 2)
        said.append(float(str(caught.value).split("radius=")[-1].split()[0]) / scale)
    assert said[0] == pytest.approx(said[1], rel=0.01)
