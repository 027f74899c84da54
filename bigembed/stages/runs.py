"""A run: a directory of published stages, each looked at once and then held to be what it was; what of it stays."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigembed.errors import DamagedError, DroppedError, StaleError, UndeclaredInputError
from bigembed.rows.opening import open_array
from bigembed.store import AnyPath, PathLike, at, manifests, superseded
from bigembed.store.arrays import read_array
from bigembed.store.files import digest_of, new_folder
from bigembed.store.manifests import Manifest
from bigembed.store.matrix import StoredMatrix
from bigembed.store.superseded import Mark

if TYPE_CHECKING:
    from bigembed.stages.stage import Stage

# --------------------------------------------------------------------------------------------------------- retention
# What of a run stays: the arrays of its stages that nothing reads any more are dropped, where that is asked for.

DROPPED = "dropped, and needed again"
"""Why a stage is computed again whose content is known."""


@dataclass(frozen=True)
class Retention:
    """What stays of the stages of a run once all that read them are done."""

    stages: Sequence[Stage]
    """All of the run that may read others, those on demand, too."""
    kept: Mapping[str, tuple[str, ...]]
    """Of the stages of which arrays may be dropped, the names of those that stay."""

    def releases(
        self, done: Collection[str], stage: str, arrays: Collection[str], found: Manifest | None = None
    ) -> list[str]:
        """Return which arrays of a stage nothing reads any more, when these stages are done; ``found``: the stage as it
        is published, None for a plan."""
        if stage not in self.kept:
            return []
        waiting = [one for one in self.stages if one.name not in done]
        if any(one.name == stage for one in waiting):
            return []
        rest = [name for name in arrays if name not in self.kept[stage]]
        return [name for name in rest if not any(opens(one, stage, [name], found) for one in waiting)]


Opened = tuple[str, ...] | Callable[[Manifest | None], tuple[str, ...]]
"""Names of arrays of an input; or a function of the input as it is published (None for a plan), at the top of a module,
where it depends on that."""


def opens(reader: Stage, stage: str, arrays: Collection[str], found: Manifest | None) -> bool:
    """Return whether a stage opens one of these arrays of another one, as it declares."""
    if stage not in reader.inputs or not arrays:
        return False
    return stage not in reader.opens or not {*arrays}.isdisjoint(opened_of(reader.opens[stage], found))


def opened_of(declared: Opened, found: Manifest | None) -> tuple[str, ...]:
    """Return the names of arrays that are declared to be opened."""
    return declared(found) if callable(declared) else declared


def release(run: Run, retention: Retention, done: Collection[str], again: bool = False) -> None:
    """Drop what nothing reads any more, when these stages are done; ``again``: what a killed process left, too."""
    for stage in retention.kept:
        if (found := run.own(stage)) is not None:
            new = retention.releases(done, stage, [*found.arrays], found)
            if new or (again and found.dropped):
                run.note(manifests.drop(run.root, found, new))


def lacking(
    stages: Sequence[Stage], there: Mapping[str, Manifest], todo: Collection[str], retention: Retention | None
) -> dict[str, str]:
    """Return the stages to be computed again because of what was dropped of them; what is there of them is sound.

    ``todo``: those that are computed anyway; ``retention``: what may be dropped, None where everything is to be there.
    """
    anew: dict[str, str] = {}
    readers: list[Stage] = []
    for stage in reversed(stages):
        if stage.name in there and lacks(there[stage.name], readers, retention):
            anew[stage.name] = DROPPED
        if stage.name in todo or stage.name in anew:
            readers.append(stage)
    return anew


def lacks(found: Manifest, readers: Sequence[Stage], retention: Retention | None) -> bool:
    """Return whether something was dropped of a stage that is to be there, or that one of these stages opens."""
    if not found.dropped:
        return False
    kept = {} if retention is None else retention.kept
    if not {*found.dropped}.isdisjoint(kept.get(found.stage, found.dropped)):
        return True
    return any(opens(reader, found.stage, found.dropped, found) for reader in readers)


def dropped_in(run: Run) -> Iterator[Manifest]:
    """Yield what is known of the stages of a run of which something was dropped; what is damaged is found elsewhere."""
    for name in {*run.published(), *superseded.superseded(run.root)}:
        with suppress(DamagedError):
            found = run.own(name) or superseded.find(run.root, name)
            if found is not None and found.dropped:
                yield found


def freed_bytes(
    run: Run, retention: Retention | None, stages: Sequence[Stage], reused: Sequence[str]
) -> dict[str, int]:
    """Return how many bytes are dropped when each stage is done; of those that are computed as they are planned.

    ``reused``: the stages that are not computed.
    """
    if retention is None:
        return {}
    there = {name: run.manifest(name) for name in reused if name in retention.kept and run.has(name)}
    sizes = {name: found.arrays for name, found in there.items()}
    sizes |= {one.name: _planned(one) for one in stages if one.name not in reused}
    freed: dict[str, int] = {}
    done = [*reused]
    for stage in stages:
        done.append(stage.name)
        freed[stage.name] = 0
        for name in retention.kept:
            for array in retention.releases(done, name, [*sizes.get(name, ())], there.get(name)):
                freed[stage.name] += sizes[name].pop(array)
    return freed


def _planned(stage: Stage) -> dict[str, int]:
    """Bytes of the arrays that a stage will publish, by name; those by blocks are one."""
    sizes: dict[str, int] = {}
    for array in stage.cost.arrays:
        name = array.name.partition("/")[0]
        sizes[name] = sizes.get(name, 0) + array.nbytes
    return sizes


def _dropped(root: AnyPath, stage: str, array: str) -> DroppedError:
    return DroppedError(
        f'{root}: {array!r} of stage {stage!r} was dropped: with keep = "map" only what the map and new rows need '
        'stays, with keep = "coordinates" the map alone. Run again with keep = "all" (or "map", for new rows) to make '
        "it anew"
    )


# -------------------------------------------------------------------------------------------------------------- runs


class Run:
    """A directory of stages: a Zarr group, their manifests, and the exchange of the stage in work."""

    def __init__(self, root: PathLike | None, parents: Sequence[Run] = (), kind: str = "run") -> None:
        self.temporary = root is None
        self.root: AnyPath = at(new_folder("run") if root is None else root).absolute()
        self.parents = tuple(parents)
        self.kind = kind
        self._found: dict[str, tuple[Mark, Manifest]] = {}
        self._whole: set[str] = set()
        self._home: Run | None = None  # a temporary run that must outlive this one
        self.aside: Run | None = None
        """A temporary run for what is written while this one is read."""
        if root is None:
            self._finalizer = weakref.finalize(self, shutil.rmtree, str(self.root), ignore_errors=True)
            manifests.start_group(Path(str(self.root)), kind)
        else:
            manifests.prepare(self.root, kind)

    def manifest(self, stage: str) -> Manifest:
        """The manifest of a stage of this run or of a parent; :class:`StaleError` where it was another one before."""
        return self._owner(stage)._found[stage][1]

    def results(self, stage: str) -> dict[str, Any]:
        """The few numbers that a stage returned."""
        return self.manifest(stage).results

    def parameters(self, stage: str) -> dict[str, Any]:
        """The parameters that a stage was made with."""
        return self.manifest(stage).parameters

    def asked(self, stage: str) -> dict[str, Any]:
        """The parameters of a stage without the fingerprint of its rows, whose content is in what it published."""
        return {name: value for name, value in self.parameters(stage).items() if name != "source"}

    def digest(self, stage: str) -> str:
        """The digest of what a stage published."""
        return self.manifest(stage).digest

    def fingerprint(self) -> str:
        """A digest of what its stages hold, and of what they were asked for: whoever reads a fit may read both."""
        own = {name: [self.digest(name), self.asked(name)] for name in self.published()}
        return digest_of([own, *(parent.fingerprint() for parent in self.parents)])

    def path(self, stage: str, array: str = "") -> str:
        """Where an array of a stage lies, once all files of the stage are found as published (read once a process)."""
        owner = self._sound(stage)
        if array.partition("/")[0] in owner._found[stage][1].dropped:
            raise _dropped(owner.root, stage, array)
        return inside(owner.root, stage, array).rstrip("/")

    def check_kept(self, arrays: Mapping[str, tuple[str, ...]]) -> None:
        """DroppedError if one of these arrays was dropped (of a stage with an empty name, any)."""
        for stage in filter(self.has, arrays):
            for name in self.manifest(stage).dropped:
                if name in arrays[stage] or "" in arrays[stage]:
                    raise _dropped(self.root, stage, name)

    def has(self, stage: str) -> bool:
        """Whether the stage is published here or in a parent."""
        return self._search(stage) is not None

    def holds(self, *stages: str) -> bool:
        """Whether stages are published here or in a parent, and nothing of them was dropped."""
        return all(self.has(stage) and not self.manifest(stage).dropped for stage in stages)

    def array(self, stage: str, array: str, in_memory: bool = False) -> Any:
        """An array of a stage: in memory, or a Dask array whose blocks are read only as long as it is published."""
        if in_memory:
            return read_array(self.path(stage, array))
        owner, lazy = self._sound(stage), open_array(self.path(stage, array))
        if not owner.temporary:
            return superseded.guarded(lazy, owner._found[stage][0])
        return owner.kept_by(lazy)

    def matrix(self, stage: str, values: str = "squared", weighs: str = "") -> StoredMatrix:
        """The graph of a stage: its structure, with ``values`` of the stage that ``weighs`` its edges (or its own)."""
        starts, given = read_array(self.path(stage, "starts")), weighs or stage
        rows = tuple((starts[1:] - starts[:-1]).tolist())
        return StoredMatrix(self.path(stage), self.path(given, values), rows, self.digest(given))

    def kept_by(self, lazy: Any) -> Any:
        """A Dask array that keeps this run: a temporary one is deleted when nobody has the array any more."""
        return lazy.map_blocks(_as_it_is, alive=_Alive(self), dtype=lazy.dtype, meta=lazy._meta)

    def marks(self) -> tuple[Mark, ...]:
        """Which stages were looked at, for somebody who reads them later."""
        own = () if self.temporary else tuple(mark for mark, _ in self._found.values())
        return sum((parent.marks() for parent in self.parents), own)

    def check(self) -> None:
        """:class:`StaleError` if a stage that was looked at is not published any more: another fit took the folder."""
        for mark in self.marks():
            mark.check()

    def published(self) -> list[str]:
        """Names of the stages published in this run."""
        folder = self.root / "manifest"
        return sorted(path.stem for path in folder.glob("*.json")) if folder.exists() else []

    def own(self, stage: str) -> Manifest | None:
        """The manifest of a stage that is published in this run itself, for who holds it."""
        if stage not in self._found and (found := manifests.find(self.root, stage)) is not None:
            self.note(found)
        return self._found[stage][1] if stage in self._found else None

    def note(self, found: Manifest) -> None:
        """This is what is published of a stage of this run now."""
        self._found[found.stage] = Mark.of(self.root, found), found

    def keep(self, home: Run) -> None:
        """Keep a temporary run, in which this one lies, as long as this one."""
        self._home = home

    def forget(self, stage: str) -> None:
        """Whatever was known of a stage of this run does not hold any more, and it is this run that changes it."""
        self._found.pop(stage, None)
        self._whole.discard(stage)

    def damage(self, found: Manifest) -> list[str]:
        """What of the files and inputs of a stage of this run is not as published; of a temporary one nothing."""
        return (
            [] if self.temporary else manifests.damage(self.root, found) or manifests.changed_inputs(self.root, found)
        )

    def _sound(self, stage: str) -> Run:
        """The run that has the stage; :class:`DamagedError` if a file of it is not as it was published."""
        owner = self._owner(stage)
        if stage not in owner._whole:
            if problems := owner.damage(owner._found[stage][1]):
                advice = "copy the model again" if owner.kind == "model" else "run the job again to make it anew"
                raise DamagedError(f"{owner.root}: stage {stage!r} is damaged ({problems[0]}); {advice}")
            owner._whole.add(stage)
        return owner

    def _owner(self, stage: str) -> Run:
        owner = self._search(stage)
        if owner is None:
            why = superseded.superseded(self.root).get(stage)
            if why is not None:
                reason = superseded.explanation(stage, why)
                raise StaleError(f"{self.root}: {reason}; run the job again to make it anew")
            raise DamagedError(f"{self.root}: stage {stage!r} is not published; run the job again to make it")
        return owner

    def _search(self, stage: str) -> Run | None:
        """The run that has the stage, its manifest noted; what was noted before must still be what is published."""
        if stage in self._found:
            if not self.temporary and (now := self._found[stage][0].check()) is not None:
                self.note(now)
            return self
        found = manifests.find(self.root, stage)
        if found is not None:
            for mark in self.marks():  # (it may be of a run that has begun anew)
                mark.check()
            self.note(found)
            return self
        return next((owner for parent in self.parents if (owner := parent._search(stage)) is not None), None)


class PartOfRun(Run):
    """The stages of a run whose names begin with a prefix, under the rest of their names."""

    def __init__(self, run: Run, prefix: str) -> None:
        self.__dict__.update(run.__dict__)
        self._whole_run, self._prefix = run, prefix

    def manifest(self, stage: str) -> Manifest:
        found = self._whole_run.manifest(self._prefix + stage)
        inputs = {name.removeprefix(self._prefix): digest for name, digest in found.inputs.items()}
        return replace(found, stage=stage, inputs=inputs)

    def parameters(self, stage: str) -> dict[str, Any]:
        return self._whole_run.parameters(self._prefix + stage)

    def path(self, stage: str, array: str = "") -> str:
        return self._whole_run.path(self._prefix + stage, array)

    def has(self, stage: str) -> bool:
        return self._whole_run.has(self._prefix + stage)

    def array(self, stage: str, array: str, in_memory: bool = False) -> Any:
        return self._whole_run.array(self._prefix + stage, array, in_memory)

    def matrix(self, stage: str, values: str = "squared", weighs: str = "") -> StoredMatrix:
        return self._whole_run.matrix(self._prefix + stage, values, weighs and self._prefix + weighs)

    def published(self) -> list[str]:
        names = self._whole_run.published()
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]


class DeclaredInputs(Run):
    """What the function of a stage sees of a run: the content of the stages that it declares, and nothing else."""

    def __init__(
        self,
        run: Run,
        stage: str,
        inputs: Sequence[str],
        parameters_of: Sequence[str],
        opens: Mapping[str, Opened],
    ) -> None:
        self.__dict__.update(run.__dict__)
        self._run, self._stage, self._opens = run, stage, opens
        self._inputs, self._parameters_of = (*inputs, *parameters_of), parameters_of

    def manifest(self, stage: str) -> Manifest:
        """A declared stage: its results and files. Its parameters are a matter of :meth:`parameters`."""
        return replace(self._run.manifest(self._declared(stage, self._inputs)), parameters={}, key="", inputs={})

    def parameters(self, stage: str) -> dict[str, Any]:
        """Those that the key of the stage has: all but the fingerprint of the rows."""
        return self._run.asked(self._declared(stage, self._parameters_of))

    def path(self, stage: str, array: str = "") -> str:
        """Where an array lies; UndeclaredInputError for one that the stage does not declare, since it may be gone."""
        self._declared(stage, self._inputs)
        name, opened = array.partition("/")[0], self._opens.get(stage)
        if opened is not None:
            opened = opened_of(opened, self._run.manifest(stage))
        if opened is not None and not (name in opened if name else opened):
            raise UndeclaredInputError(
                f"stage {self._stage!r} opens {name or 'arrays'} of {stage!r}, and declares that it opens "
                f'{", ".join(map(repr, opened)) or "none"} of it. With keep = "map" it could be gone: declare it'
            )
        return self._run.path(stage, array)

    def matrix(self, stage: str, values: str = "squared", weighs: str = "") -> StoredMatrix:
        for name, array in ((stage, "starts"), (weighs or stage, values)):
            self.path(name, array)  # (both are declared)
        return self._run.matrix(stage, values, weighs)

    def has(self, stage: str) -> bool:
        """Whether it is among the stages that are declared: a stage depends on no other, published or not."""
        return stage in self._inputs

    def array(self, stage: str, array: str, in_memory: bool = False) -> Any:
        self.path(stage, array)
        return self._run.array(stage, array, in_memory)

    def published(self) -> list[str]:
        return sorted(self._inputs)

    def _declared(self, stage: str, names: Sequence[str]) -> str:
        if stage not in names:
            what = "stage" if names is self._inputs else "parameters of the stage"
            raise UndeclaredInputError(
                f"stage {self._stage!r} reads the {what} {stage!r}, which it does not declare; it declares "
                f"{', '.join(map(repr, names)) or 'none'}. A change of {stage!r} would go unnoticed: declare it"
            )
        return stage


class _Alive:
    """Keeps a temporary run while somebody has an array that lies in it; other processes get it without the run."""

    def __init__(self, run: Run | None) -> None:
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return _Alive, (None,)

    def __dask_tokenize__(self) -> str:
        return str(self.run and self.run.root)


def _as_it_is(block: Any, alive: _Alive) -> Any:
    return block


def run_at(root: PathLike | None) -> Run:
    """Return the run at the path, or a temporary one where there is nothing yet, so that nothing is written there."""
    place = None if root is None else at(root).absolute()
    there = place is not None and place.exists() and not (place.is_dir() and not any(place.iterdir()))
    return Run(place if there else None)


def inside(root: AnyPath, stage: str, array: str) -> str:
    """Where an array of a stage lies; with no name, the folder of the stage, ending in a slash."""
    return f"{root}/stages/{stage}/{array}"
