"""The proof that every worker reads the input and writes the output, before anything starts."""

from __future__ import annotations

import os
import uuid
from typing import Any

from bigembed.errors import StoreAccessError, UnreachableError, WorkerAccessError
from bigembed.jobs.places.cluster_table import ClusterTable
from bigembed.jobs.places.settings import DEATHS
from bigembed.jobs.places.worker_monitor import WorkerMonitor
from bigembed.store.storage.paths import AnyPath, at


def prove_access(client: Any, folder: AnyPath, source: str | None, monitor: WorkerMonitor | None = None) -> None:
    """Every worker proves that it sees this process's files in ``folder``, writes there, reads the input."""
    watched = monitor or WorkerMonitor(client, ClusterTable().frozen_timeout)
    token = f".bigembed-access-{uuid.uuid4().hex}"
    mine = folder / token
    left: list[AnyPath] = []
    try:
        mine.write_text(token)
        answers = _answers(client, watched, str(folder), token, source)
        problems = [
            f"worker {worker}: {_problem(answer)}"
            for worker, answer in sorted(answers.items())
            if not isinstance(answer, str) or not answer.startswith(token)
        ]
        names = [answer for answer in answers.values() if isinstance(answer, str) and answer.startswith(token)]
        left = [folder / name for name in names]
        problems += [
            f"a worker wrote {path}, and it is not there for this process: not the same file system"
            for path in left
            if not path.is_file()
        ]
    except (UnreachableError, StoreAccessError):
        raise
    except OSError as error:
        raise WorkerAccessError(f"this process cannot write in {folder}: {error}") from error
    finally:
        for path in (mine, *left):
            path.unlink(missing_ok=True)
    if problems:
        raise WorkerAccessError(
            "not every worker reads the input and writes the output; nothing was started.\n  "
            + "\n  ".join(problems)
            + "\nMount both on every worker under the same path; for an object store, give every worker its credentials"
        )


def _answers(client: Any, monitor: WorkerMonitor, *asked: str | None) -> dict[str, Any]:
    """What each worker says; one that dies meanwhile is left out, and those that are there then are asked."""
    from distributed.comm import CommClosedError

    for _ in range(DEATHS):
        answers: dict[str, Any] = monitor.awaited(
            lambda: client.run(_prove, *asked, on_error="return", asynchronous=True)
        )
        if not any(isinstance(answer, CommClosedError) for answer in answers.values()):
            break
    return answers


def _problem(answer: Any) -> str:
    if isinstance(answer, ModuleNotFoundError):
        return f"cannot import bigembed or what it needs ({answer}); install the same version there"
    return str(answer) if isinstance(answer, str) else f"{type(answer).__name__}: {answer}"


def _prove(folder: str, token: str, source: str | None) -> str:
    """In a worker. Returns the name of the file that it left, or what is wrong."""
    import bigembed.stages  # noqa: F401  (so that a worker without it says so now)

    try:
        if (at(folder) / token).read_text() != token:
            return f"{folder}: reads other bytes than were written there"
    except OSError as error:
        return f"{folder}: cannot read what the coordinating process wrote there ({error})"
    name = f"{token}-{os.uname().nodename}-{os.getpid()}"
    try:
        (at(folder) / name).write_text(name)
        if (at(folder) / name).read_text() != name:
            return f"{folder}: reads other bytes than it wrote there"
    except OSError as error:
        return f"{folder}: cannot write there ({error})"
    try:
        if source is not None:
            place = at(source)
            with (place / "zarr.json" if place.is_dir() else place).open("rb") as file:
                file.read(1)
    except OSError as error:
        (at(folder) / name).unlink(missing_ok=True)
        return f"{source}: cannot read the input ({error})"
    return name
