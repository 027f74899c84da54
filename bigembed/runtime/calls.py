"""Calls of a map as workers get them: what all of them have in common, and several of them as one task."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bigembed.runtime.worker_monitor import tell_of_outages


@dataclass(frozen=True, eq=False)
class Common:
    """A function, and the arguments that all calls of a map have in common; empty in a task that gets them besides."""

    function: Callable[..., Any] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *task: Any) -> Any:
        """Return the result of one call."""
        assert self.function is not None
        return self.function(*task, **self.arguments)


def common_of(call: Any) -> Common | None:
    """Return what a call has in common with those of its map, if it was made so; it may be wrapped."""
    if not isinstance(call, partial):
        return None
    if isinstance(call.func, Common):
        return call.func
    return next((found for found in map(common_of, call.args) if found is not None), None)


def with_common(call: Any, common: Common) -> Any:
    """Return the call with this in place of what it had in common with others.

    >>> call = partial(partial, partial(Common(max, {"default": 0}), [3, 5]))
    >>> with_common(with_common(call, Common()), common_of(call))()()
    5
    """
    if not isinstance(call, partial):
        return call
    if isinstance(call.func, Common):
        return partial(common, *call.args)
    return partial(call.func, *[with_common(part, common) for part in call.args])


def run_calls(calls: Sequence[Callable[[], Any]], common: Common | None = None) -> tuple[list[Any], float]:
    """In a worker: the results of the calls of a task, and the seconds that it took.

    ``common``: what they have in common, where that did not come with each of them.
    """
    tell_of_outages()
    began = time.perf_counter()
    if common is not None:
        calls = [with_common(call, common) for call in calls]
    results: list[Any] = []
    try:
        for call in calls:
            results.append(call())
    except Exception as error:
        if len(calls) > 1:
            error.add_note(f"in call {len(results)} of 0–{len(calls) - 1}")
        raise
    return results, time.perf_counter() - began


def as_given(value: Any) -> Any:
    """In a worker: hold a value for the tasks that need it."""
    return value
