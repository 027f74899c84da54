"""The state machine in short: a few sequences, always the same ones."""

from __future__ import annotations

from tests.fault.state_machine import attempt


def test_a_few_sequences():
    found = attempt(4, 8)
    print(f"\n{found}")
    assert found["kills"] >= 3, found
    assert {"run", "refresh", "extend", "resume"} <= set(found), found
