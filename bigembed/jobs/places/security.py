"""Who may speak to a running cluster: TLS for a client, and a warning for a cluster without it."""

from __future__ import annotations

import warnings
from ipaddress import ip_address
from typing import Any

from bigembed.errors import JobError, OpenClusterWarning
from bigembed.jobs.places.cluster_table import ClusterTable

ENCRYPTED = ("tls", "wss", "inproc")
"""Schemes of addresses that nobody else can read or speak to without a certificate."""
SETTINGS = "DASK_DISTRIBUTED__COMM__TLS__"
"""What Dask's settings on TLS begin with in the environment."""


def client_security(table: ClusterTable) -> Any:
    """What a client of ``table.address`` shows and asks for.

    Authority, certificate and key are those of the job or of the command line; what is given by neither comes from
    Dask's own configuration (``distributed.comm.tls`` in a file, or ``DASK_DISTRIBUTED__COMM__TLS__CA_FILE``,
    ``…__CLIENT__CERT`` and ``…__CLIENT__KEY`` in the environment). An address off this host without TLS is an
    :class:`~bigembed.errors.OpenClusterWarning`.
    """
    from distributed import Security

    address = table.address or ""
    given = {"tls_ca_file": table.tls_ca, "tls_client_cert": table.tls_cert, "tls_client_key": table.tls_key}
    given = {name: path for name, path in given.items() if path is not None}
    security = Security(**given, **({"require_encryption": True} if given else {}))
    if _scheme(address) == "tls":
        _check(address, security)
    if is_open(address):
        warnings.warn(
            f"{address} is a cluster off this host without TLS: whoever can reach its ports can execute code as its "
            "user, and read and change what is sent. Make certificates (deploy/tls/make-certificates.sh DIR HOST ...), "
            "start scheduler and workers with --tls-ca-file, --tls-cert and --tls-key, and name them here: "
            "--scheduler tls://... --tls-ca --tls-cert --tls-key, or [cluster] in the job file, or Dask's settings "
            f"{SETTINGS}CA_FILE, ...CLIENT__CERT and ...CLIENT__KEY",
            OpenClusterWarning,
            stacklevel=2,
        )
    return security


def no_security() -> Any:
    """Of a cluster inside this host: none, whatever Dask's configuration says for clusters beyond it."""
    from distributed import Security

    roles = [f"tls_{role}_{part}" for role in ("scheduler", "worker", "client") for part in ("cert", "key")]
    return Security(require_encryption=False, tls_ca_file=None, **dict.fromkeys(roles))


def is_open(address: str) -> bool:
    """Whether others than this host's users may reach a cluster at this address without a certificate.

    >>> [is_open(a) for a in ("tcp://10.0.0.7:8786", "node7:8786", "tls://10.0.0.7:8786", "tcp://127.0.0.1:8786")]
    [True, True, False, False]
    """
    if _scheme(address) in ENCRYPTED:
        return False
    host = address.split("://")[-1].split("/")[0].rsplit(":", 1)[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _scheme(address: str) -> str:
    return address.split("://")[0].lower() if "://" in address else "tcp"


def _check(address: str, security: Any) -> None:
    """A client without a certificate would only learn that the connection was closed."""
    files = {
        "tls_ca": ("CA_FILE", security.tls_ca_file),
        "tls_cert": ("CLIENT__CERT", security.tls_client_cert),
        "tls_key": ("CLIENT__KEY", security.tls_client_key),
    }
    absent = [name for name, (_, path) in files.items() if not path and name != "tls_key"]
    wrong = [f"{name} = {path}: {problem}" for name, (_, path) in files.items() if (problem := _unreadable(path))]
    if absent or wrong:
        raise JobError(
            f"{address} needs certificates: "
            + "; ".join([f"{name} is not given" for name in absent] + wrong)
            + ". Give --tls-ca, --tls-cert and --tls-key, or [cluster] tls_ca, tls_cert and tls_key in the job file, "
            "or Dask's settings " + ", ".join(SETTINGS + name for name, _ in files.values())
        )


def _unreadable(path: str | None) -> str | None:
    if not path or "\n" in path:  # (Dask takes the text of a certificate, too)
        return None
    try:
        with open(path, "rb"):
            return None
    except OSError as error:
        return str(error.strerror)
