"""Fitted arrays that are opened in the store when they are first asked for: Dask takes up to a second to import."""

from __future__ import annotations

from typing import Any


class StoredArray:
    """An attribute of an estimator that is an array of a published stage, as ``_set_array`` says."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        where = instance.__dict__.get("_stored_arrays", {}).get(self.name)
        if where is None:
            raise AttributeError(f"{type(instance).__name__!r} object has no attribute {self.name!r}")
        found = instance.__dict__[self.name] = instance._run.array(*where)
        return found
