"""The state machine in short: a few sequences, always the same ones."""

from __future__ import annotations

import pytest

from tests.fault.state_machine import attempt


@pytest.mark.parametrize(
    ("examples", "steps"), [(4, 8), pytest.param(12, 10, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_sequences(examples, steps):
    found = attempt(examples, steps)
    print(f"\n{found}")
    assert found["kills"] >= 3, found
    assert {"run", "refresh", "extend", "resume"} <= set(found), found
