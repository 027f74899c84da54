"""``bigembed verify``: whether a run, a saved model or a growing embedding is what was published."""

from __future__ import annotations

from typing import Any

from bigembed.errors import DamagedError, InterruptedRun, MissingPathError
from bigembed.jobs.growth.check import is_growth, verify_growth
from bigembed.jobs.integrity import verify_stages
from bigembed.store.storage.paths import PathLike, at


def verify(given: PathLike, deep: bool = True) -> dict[str, Any]:
    """Read every stored byte of a run, a saved model or a growing embedding, and compare it with the manifests.

    ``deep=False``: names, sizes and metadata only, which takes seconds where the bytes are terabytes.

    Returns ``problems`` (damage: absent or changed files, stages made from other stages than those that are there),
    ``unlisted`` (files that no manifest knows and nobody reads), ``digest`` (whether a model carries one over its
    metadata; those saved by earlier versions do not), ``finished``, what is ``superseded`` (made with other
    parameters or of other rows, which is not damage), the stages with their bytes, and the certificate.
    """
    path = at(given).absolute()
    if not path.exists():
        raise MissingPathError(f"{path}: no such run")
    return verify_growth(path) if is_growth(path) else verify_stages(path, deep)


def require_whole(found: dict[str, Any]) -> None:
    """:class:`DamagedError` or :class:`InterruptedRun` unless what was verified is whole and finished."""
    if found["problems"]:
        raise DamagedError(
            f"{found['path']}: damaged:"
            + "".join(f"\n  {problem}" for problem in found["problems"])
            + f"\nRun {'bigembed refresh' if found['kind'] == 'growth' else 'the job'} again to make what is "
            "damaged anew"
        )
    if not found["finished"]:
        raise InterruptedRun(f"{found['path']}: what is there is whole, but the run did not end. Run the job again")
