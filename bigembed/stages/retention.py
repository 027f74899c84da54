"""What of a run stays: the arrays of its stages that nothing reads any more are dropped, where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bigembed.errors import DamagedError
from bigembed.store import manifests, superseded
from bigembed.store.manifests import Manifest

if TYPE_CHECKING:
    from bigembed.stages.runs import Run
    from bigembed.stages.stage import Stage

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
