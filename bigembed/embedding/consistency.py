"""A saved model whose parts do not fit: one error that names the model, in place of whatever Python raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bigembed.errors import BigembedError, DamagedError

ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@contextmanager
def consistent(saved: str) -> Iterator[None]:
    """What Python raises over a saved model whose parts do not fit is DamagedError; nothing is changed without one."""
    try:
        yield
    except BigembedError:
        raise
    except ODD as error:
        if not saved:
            raise
        raise DamagedError(
            f"{saved}: damaged: the parts of the model do not fit ({type(error).__name__}: {str(error)[:200]}). "
            "Copy the model again, or fit again"
        ) from error
