"""Requests to object stores: the client of a bucket, and what its errors are called here.

Credentials come from the environment of the process that asks (variables, roles, profiles) and from nowhere else.
Requests that fail because the store is away are repeated for some minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

from bigembed.errors import BigembedError, StoreAccessError, UnreachableError
from bigembed.store.storage.credentials import NO_CREDENTIALS, credentials, unencrypted
from bigembed.store.storage.extras import needed

PATIENCE = timedelta(minutes=3)
"""How long a request is repeated while the store does not answer, or answers that it cannot."""
REPEATS = 10_000
"""More than fit into that time."""
REQUEST = timedelta(minutes=2)
"""Of one request: a shard of tens of MB over a slow line, or an answer that never comes."""
REFUSED = ("401 Unauthorized", "403 Forbidden")
"""What an error says of an answer that refuses."""


def library() -> Any:
    """The library that asks the stores."""
    return needed("obstore", "objects", "an object store (s3://, gs://, az://)")


@contextmanager
def asking(path: object) -> Iterator[None]:
    """Errors of the store as those of bigembed, or of Python: none of them says more than it should."""
    try:
        yield
    except (FileNotFoundError, BigembedError):
        raise
    except Exception as error:
        if not type(error).__module__.startswith("obstore"):
            raise
        raise translated(path, error) from None  # (its text and its cause hold whole requests)


def translated(path: object, error: Exception) -> Exception:
    """What an error of the library is called here."""
    kind, said = type(error).__name__, _first_line(error)
    if kind in ("AlreadyExistsError", "PreconditionError"):
        return FileExistsError(f"{path}: exists")
    # (a list that is refused is only known by its text)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or any(word in said for word in REFUSED):
        return StoreAccessError(
            f"{path}: the store refuses these credentials ({said}). They come from the environment of each process "
            "(AWS_ACCESS_KEY_ID, AWS_PROFILE, a role, …), on workers too"
        )
    if "/latest/" in said or "metadata" in said:  # (where the library looks for a role, when it has found nothing else)
        return StoreAccessError(f"{path}: {NO_CREDENTIALS}")
    if "404 Not Found" in said or "NoSuchBucket" in said:  # (of an object that is not there nobody gets here)
        return StoreAccessError(f"{path}: there is no such bucket ({said}). Make it, or correct its name")
    return UnreachableError(f"{path}: the store cannot do it, or does not answer ({said})")


def _first_line(error: Exception) -> str:
    """The first line, without what may stand in a query (signatures) or in the body of an answer."""
    line = str(error).partition("\n")[0].partition(": <?xml")[0]
    return re.sub(r"\?\S+", "", line)[:300]


@lru_cache(maxsize=64)
def client_of(root: str, process: int) -> Any:
    library()
    from obstore.store import from_url

    make: Any = from_url  # (its overloads are for one kind of store each)
    options = {"timeout": REQUEST, "connect_timeout": timedelta(seconds=10), "allow_http": unencrypted(root)}
    retry = {
        "max_retries": REPEATS,
        "retry_timeout": PATIENCE,
        "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 3},
    }
    with asking(root):
        return make(root, client_options=options, retry_config=retry, **credentials(root))
