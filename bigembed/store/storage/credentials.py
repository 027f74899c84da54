"""Credentials of object stores: from the environment of this process, its profile, or the role of its machine.

The library finds those of variables and roles itself; here are profiles of AWS, and what it would wait for in vain.
"""

from __future__ import annotations

import os
import socket
from configparser import ConfigParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bigembed.errors import InputError, StoreAccessError

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
