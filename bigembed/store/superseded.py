"""What was published with other parameters or other inputs: its files stay, and no reader takes it for the present.

A run that begins anew moves the manifests of what it will not use again from ``manifest/`` to ``superseded/`` before it
computes anything, with the reason. A reader of such a stage gets :class:`StaleError`. Its files are deleted
when it is made anew; where the same key is asked for again before that, it is restored.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bigembed.errors import DamagedError, MissingPathError, StaleError
from bigembed.runtime.blocks import Array
from bigembed.store import AnyPath, PathLike, at, create, files, manifests, remove_file, stamp
from bigembed.store.attributes import remove_dataset
from bigembed.store.files import jsonable, read_sealed, sealed, write_json
from bigembed.store.manifests import Manifest

if TYPE_CHECKING:
    import dask.array as da

FOLDER = "superseded"
MODEL = "superseded.json"
"""In a saved model whose run has begun anew."""


def supersede(root: AnyPath, found: Manifest, why: str, changed: Manifest | None = None) -> None:
    """Unpublish a stage, its files untouched; if it is superseded already, replace the reason.

    ``changed``: the manifest, as it was, of the stage with which the change began; what was recorded of it the first
    time stays, as long as the key is the same.
    """
    remove_dataset(root)
    origin = {"stage": changed.stage, "parameters": jsonable(changed.parameters)} if changed else None
    before = _mark(root, found.stage)
    if before is not None and before["manifest"].get("key") == found.key:
        origin = before.get("origin")
    write_json(
        root / FOLDER / f"{found.stage}.json",
        sealed({"why": why, "manifest": manifests.as_dict(found), "origin": origin}),
    )
    remove_file(manifests.path_of(root, found.stage))


def origin(root: AnyPath, stage: str) -> tuple[str, dict[str, Any]]:
    """Of a superseded stage the name and the parameters, as they were, of the stage with which the change began."""
    found = (_mark(root, stage) or {}).get("origin") or {"stage": "", "parameters": {}}
    return found["stage"], found["parameters"]


def superseded(root: AnyPath) -> dict[str, str]:
    """Names of the stages that were published for something else, each with how it was made."""
    folder = root / FOLDER
    names = sorted(path.stem for path in folder.glob("*.json")) if folder.exists() else []
    there = [name for name in names if not manifests.path_of(root, name).is_file()]
    return {name: str((_mark(root, name) or {"why": "its record is damaged"})["why"]) for name in there}


def find(root: AnyPath, stage: str) -> Manifest | None:
    """The manifest of a superseded stage; None without one, or where its record is damaged: it is not needed."""
    with suppress(DamagedError):
        if (mark := _mark(root, stage)) is not None:
            return manifests.parsed(mark["manifest"], root / FOLDER, stage)
    return None


def _mark(root: AnyPath, stage: str) -> dict[str, Any] | None:
    """What is recorded of a superseded stage."""
    with suppress(DamagedError, MissingPathError):
        found = read_sealed(root / FOLDER / f"{stage}.json")
        return found if {"why", "manifest"} <= {*found} else None
    return None


def restore(root: AnyPath, stage: str, key: str) -> None:
    """Publish a superseded stage again if it has this key and all its files are as they were published."""
    found = find(root, stage)
    if found is None or found.key != key or manifests.damage(root, found):
        return
    with suppress(FileExistsError):  # (where it was killed while it was superseded)
        create(manifests.path_of(root, stage), files.text_of(manifests.as_dict(found)))
    forget(root, stage)


def restorable(root: AnyPath, stage: str) -> bool:
    """Whether a superseded stage, and all that it was made from, lie there as they were published (names and sizes)."""
    todo, seen = [find(root, stage) if stage in superseded(root) else None], set()
    while todo:
        found = todo.pop()
        if found is None or not manifests.complete(root, found) or manifests.is_in_work(root, found.stage):
            return False
        seen.add(found.stage)
        todo += [_published_as(root, name, digest) for name, digest in found.inputs.items() if name not in seen]
    return True


def _published_as(root: AnyPath, stage: str, digest: str) -> Manifest | None:
    """The manifest of a stage with this content, whether it is published now or superseded."""
    with suppress(DamagedError):
        there = (manifests.find(root, stage), find(root, stage))
        return next((one for one in there if one is not None and one.digest == digest), None)
    return None


def forget(root: AnyPath, stage: str) -> None:
    """Delete the record that a stage is superseded: only what is published of it counts."""
    remove_file(root / FOLDER / f"{stage}.json")


def clear(root: AnyPath, keep: Collection[str]) -> None:
    """Delete the superseded stages that no run of these stages will make anew."""
    for name in superseded(root):
        if name not in keep:
            manifests.discard(root, name)
            forget(root, name)


def explanation(stage: str, why: str) -> str:
    """The words of a message on a superseded stage.

    >>> explanation("coordinates", "made with t=1, now 2")
    "'coordinates' is superseded (made with t=1, now 2)"
    """
    return f"{stage!r} is superseded ({why})"


def refuse_superseded(path: AnyPath) -> None:
    """:class:`StaleError` for an array of a stage that is superseded."""
    run, stages, inside = str(path).rpartition("/stages/")
    name = inside.partition("/")[0]
    if stages and (at(run) / FOLDER / f"{name}.json").is_file() and (why := superseded(at(run)).get(name)) is not None:
        raise StaleError(f"{path}: {explanation(name, why)}; run the job again to make it anew")


@dataclass(frozen=True)
class Mark:
    """Which publication of a stage somebody reads."""

    root: str
    stage: str
    address: str
    written: str
    """Stamp of its manifest."""

    @classmethod
    def of(cls, root: AnyPath, found: Manifest) -> Mark:
        """Of a stage that is published."""
        return cls(str(root), found.stage, found.address, _stamp(root, found.stage))

    def check(self) -> Manifest | None:
        """:class:`StaleError` unless this is still what is published. Returns the manifest if that was rewritten since,
        as when an array was dropped, else None."""
        root = at(self.root)
        if _stamp(root, self.stage) == self.written:
            return None
        now = manifests.find(root, self.stage)
        if now is not None and now.address == self.address:
            return now
        why = superseded(root).get(self.stage) if now is None else "another run has made it anew, of something else"
        if why is None:
            raise DamagedError(f"{root}: stage {self.stage!r} is gone; run the job again to make it")
        raise StaleError(f"{root}: {explanation(self.stage, why)} since it was opened. Fit or load again")


def _stamp(root: AnyPath, stage: str) -> str:
    """Of the manifest; empty if it does not exist."""
    try:
        return stamp(manifests.path_of(root, stage))
    except FileNotFoundError:
        return ""


def guarded(lazy: da.Array, mark: Mark) -> da.Array:
    """An array whose blocks are checked, after they were read, to be still of what is published."""
    import dask.array as da

    checked: da.Array = da.map_blocks(checked_block, lazy, mark=mark, dtype=lazy.dtype, meta=lazy._meta)
    return checked


def checked_block(block: Array, mark: Mark) -> Array:
    """The block, unless it may be of something else."""
    mark.check()
    return block


def supersede_model(model: PathLike, why: str) -> None:
    """Mark a saved model, if there is one: the run which wrote it has begun anew, as its readers then learn."""
    if (at(model) / "model.json").is_file():
        write_json(at(model) / MODEL, sealed({"why": why}))


def superseded_model(model: PathLike) -> str | None:
    """How a model was made whose run has begun anew; None for others."""
    path = at(model) / MODEL
    return str(read_sealed(path).get("why", "something else")) if path.is_file() else None
