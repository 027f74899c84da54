"""One process at a time writes an output that is not a run: a model, a table, an array."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from bigembed.store.lock import hold
from bigembed.store.paths import AnyPath, PathLike, at, remove

_held: ContextVar[tuple[str, ...]] = ContextVar("held", default=())


@contextmanager
def making(*outputs: PathLike) -> Iterator[None]:
    """Hold these paths; :class:`LockedError` where another process does. What a caller holds already is held.

    Held is ``.NAME.making`` beside each, which is gone at the end.
    """
    places = {str(place): place for place in (at(output).absolute() for output in outputs)}
    names = sorted(set(places) - set(_held.get()))
    token = _held.set((*_held.get(), *names))
    try:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(_made(places[name]))
            yield
    finally:
        _held.reset(token)


@contextmanager
def _made(place: AnyPath) -> Iterator[None]:
    making = place.with_name(f".{place.name}.making")
    making.mkdir(parents=True, exist_ok=True)
    with hold(making):
        try:
            yield
        finally:
            remove(making)
