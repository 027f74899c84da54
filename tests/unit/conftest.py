"""Small canonical blocks, so that small data cross block borders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from tests.blocks import graph_blocks


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with graph_blocks():
        yield


class Stopped(Exception):
    """The process ends here."""


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """The process ends before it publishes its file number ``step``, counted from 0."""

    @contextmanager
    def stopped(step: int) -> Iterator[None]:
        calls, replace = [], os.replace

        def stop(source: str, target: str) -> None:
            if "hold" not in os.path.dirname(target):  # (that of a process that is killed is free)
                calls.append(target)
                if len(calls) > step:
                    raise Stopped
            replace(source, target)

        with monkeypatch.context() as patch, suppress(Stopped):
            patch.setattr(os, "replace", stop)
            yield
        assert len(calls) > step

    return stopped
