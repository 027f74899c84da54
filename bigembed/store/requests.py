"""Requests to object stores: the client of a bucket, its credentials from the environment, and what its errors mean."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bigembed.errors import BigembedError, InputError, StoreAccessError, UnreachableError, needed
from bigembed.runtime.outages import repeat, repeat_awaited

# ----------------------------------------------------------------------------------------------------- credentials
# Credentials of object stores: from the environment of this process, its profile, or the role of its machine.
#
# The library finds those of variables and roles itself; here are profiles of AWS, and what it would wait for in vain.

PROFILE = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "region": "aws_region",
    "endpoint_url": "aws_endpoint_url",
}
"""Keys of a profile, and what the library calls them."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
GIVEN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
"""Variables that say where credentials are, or that none are needed."""
METADATA = "169.254.169.254", 80
"""Address that knows the role of a machine of Amazon's."""
NO_CREDENTIALS = (
    "no credentials were found. Give them in the environment of each process, on workers too: AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY, or a role; of a "
    "public bucket AWS_SKIP_SIGNATURE=true"
)


def credentials(root: str) -> dict[str, Any]:
    """What the library needs to find them; :class:`StoreAccessError` where there are none.

    Without this it would ask for the role of a machine that has none, again and again for minutes.
    """
    if not root.startswith("s3") or any(name in os.environ for name in GIVEN):
        return {}
    if found := profile(root):
        return {"config": found}
    if "AWS_METADATA_ENDPOINT" not in os.environ and not _has_role():
        raise StoreAccessError(f"{root}: {NO_CREDENTIALS}")
    return {}


def _has_role() -> bool:
    """Whether this is a machine that may have one."""
    try:
        with socket.create_connection(METADATA, timeout=2):
            return True
    except OSError:
        return False


def unencrypted(root: str) -> bool:
    """Whether the endpoint that the environment names is asked without TLS: on this machine, or because it says so."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT") if root.startswith("s3") else ()
    endpoint = next((os.environ[name] for name in names if name in os.environ), "")
    if not endpoint.startswith("http://"):
        return os.environ.get("AZURE_ALLOW_HTTP", "") == "true"
    host = urlsplit(endpoint).hostname
    if host not in LOOPBACK and os.environ.get("AWS_ALLOW_HTTP", "").lower() not in ("true", "1"):
        raise InputError(
            f"{root}: its endpoint http://{host} is not encrypted. Use https://, or say that you mean it: "
            "AWS_ALLOW_HTTP=true"
        )
    return True


def profile(root: str) -> dict[str, str]:
    """What the profile of AWS says that the environment names."""
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    parser = ConfigParser(interpolation=None)
    parser.read([Path(os.environ.get(name, usual)).expanduser() for name, usual in files.items()])
    name = os.environ.get("AWS_PROFILE", "default")
    found = {key: value for part in (f"profile {name}", name) if part in parser for key, value in parser[part].items()}
    known = {key: found[key] for key in PROFILE if key in found}
    if "AWS_PROFILE" in os.environ and "aws_access_key_id" not in known:
        raise InputError(
            f"{root}: the profile {name!r} of AWS_PROFILE holds no keys in ~/.aws/credentials or ~/.aws/config. If it "
            f'is one of a role or of single sign-on: eval "$(aws configure export-credentials --profile {name} '
            '--format env)"'
        )
    if "aws_access_key_id" not in known:
        return {}
    return {PROFILE[key]: value for key, value in known.items() if PROFILE[key].upper() not in os.environ}


# -------------------------------------------------------------------------------------------------------- requests
# Requests to object stores: the client of a bucket, and what its errors are called here.
#
# Credentials come from the environment of the process that asks (variables, roles, profiles) and from nowhere else.
# The library itself repeats a request for some seconds; then :mod:`bigembed.runtime.outages` repeats it for minutes.

T = TypeVar("T")
REPEATS, REPEATED = 3, timedelta(seconds=5)
"""How often, and for how long, the library itself repeats a request: what passes so quickly nobody need hear of."""
REQUEST = timedelta(minutes=2)
"""Of one request: a shard of tens of MB over a slow line, or an answer that never comes."""
REFUSED = ("401 Unauthorized", "403 Forbidden")
"""What an error says of an answer that refuses."""
BUSY = ("ServiceUnavailable", "Service Unavailable", "SlowDown", "InternalError")
"""What a store says of an object that it would rather be asked for later."""
FINAL = re.compile(r"status code: (?!408|429)(4\d\d|501)|NoSuchBucket")
"""Answers that would be the same the next time."""


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
    # (where the library looks for a role, when it has found nothing else)
    if "/latest/" in said or ("metadata" in said and "metadata from headers" not in said):
        return StoreAccessError(f"{path}: {NO_CREDENTIALS}")
    if "404 Not Found" in said or "NoSuchBucket" in said:  # (of an object that is not there nobody gets here)
        return StoreAccessError(f"{path}: there is no such bucket ({said}). Make it, or correct its name")
    return UnreachableError(f"{path}: the store cannot do it, or does not answer ({said})")


def outage(error: Exception) -> str | None:
    """What an error says of a store that is away, or answers with half of what it should; None of any other error."""
    said = _first_line(error)
    if not type(error).__module__.startswith("obstore") or not isinstance(translated("", error), UnreachableError):
        return None
    said = re.sub(r"^Generic \w+ error: (Error performing )?", "", said)
    passing = type(error).__name__ == "GenericError" or any(word in said for word in BUSY)
    return said if passing and not FINAL.search(said) else None


def _first_line(error: Exception) -> str:
    """The first line, without what may stand in a query (signatures) or in the body of an answer."""
    line = str(error).partition("\n")[0].partition(": <?xml")[0]
    return re.sub(r" in [\d.]+\w+(, after .*?)?\s+- ", ": ", re.sub(r"\?\S+", "", line))[:300]


def ask(path: Any, request: Callable[[], T]) -> T:
    """What a request about an object returns; it is repeated while its store is away."""
    with asking(path):
        return repeat(path.root, outage, request)


@cache
def patient_store() -> type:
    """The store of zarr whose requests are repeated while the store is away."""
    from zarr.storage import ObjectStore

    def make(self: Any, store: Any, *, read_only: bool = False, root: str = "") -> None:
        ObjectStore.__init__(self, store, read_only=read_only)
        self.root = root

    def with_read_only(self: Any, read_only: bool = False) -> Any:
        return type(self)(self.store, read_only=read_only, root=self.root)

    def repeated(name: str) -> Callable[..., Awaitable[Any]]:
        async def method(self: Any, *arguments: Any, **named: Any) -> Any:
            request = partial(getattr(ObjectStore, name), self, *arguments, **named)
            return await repeat_awaited(self.root, outage, request)

        return method

    def listed(name: str) -> Callable[..., AsyncIterator[str]]:
        async def method(self: Any, *arguments: Any, **named: Any) -> AsyncIterator[str]:
            async def collected() -> list[str]:
                return [key async for key in getattr(ObjectStore, name)(self, *arguments, **named)]

            for key in await repeat_awaited(self.root, outage, collected):
                yield key

        return method

    single = ("get", "get_partial_values", "exists", "set", "set_if_not_exists", "delete", "delete_dir", "getsize")
    methods = {name: repeated(name) for name in single} | {
        name: listed(name) for name in ("list", "list_prefix", "list_dir")
    }
    own = {"__init__": make, "with_read_only": with_read_only, "__doc__": patient_store.__doc__}
    return type("PatientStore", (ObjectStore,), {**own, **methods})


@lru_cache(maxsize=64)
def client_of(root: str, process: int) -> Any:
    library()
    from obstore.store import from_url

    make: Any = from_url  # (its overloads are for one kind of store each)
    options = {"timeout": REQUEST, "connect_timeout": timedelta(seconds=10), "allow_http": unencrypted(root)}
    retry = {
        "max_retries": REPEATS,
        "retry_timeout": REPEATED,
        "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 3},
    }
    with asking(root):
        return make(root, client_options=options, retry_config=retry, **credentials(root))
