"""The ids of the rows as a stage of a run: copied into it, each found to name one row, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bigembed.errors import ExistingOutputError
from bigembed.jobs.inputs import IDS, Input
from bigembed.rows import RowSource
from bigembed.rows.formats.copying import check_ids, copy_vector, require_length, vector_source
from bigembed.rows.reader import Reader, is_text
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, locked, run_stages
from bigembed.store import AnyPath, manifests, published
from bigembed.store.attributes import ABOUT

ID_BYTES = 24
"""Of an id and its hashes, in the process that looks for repeated ones; about what one takes on disk."""
LOOKS_OF_ID = {True: 90.0, False: 5.0}
"""What an id takes in time, of text or not: as long as so many look-ups."""


def keep_ids(rows: Input, run: Run) -> None:
    """Run the stage if the ids are there; forget it where the rows have none."""
    if rows.ids is None:
        if IDS in run.published():
            with locked(run):
                manifests.discard(run.root, IDS)
                run.forget(IDS)
    elif rows.there(IDS):
        require_length(vector_source(rows.ids), rows.shape[0], rows.ids, "ids")
        run_stages([ids_stage(vector_source(rows.ids))], run)


def ids_stage(source: RowSource) -> Stage:
    """``ids`` (n,) in the order of the input, of text or of whole numbers."""
    return Stage(IDS, (), {"source": source.fingerprint()}, partial(run_ids, source=source), ids_cost(source))


def run_ids(context: Context, source: RowSource) -> dict[str, Any]:
    check_ids(source)
    copy_vector(source, context.path(IDS), label=IDS)
    return {"n": source.shape[0]}


def copy_ids(ids: AnyPath, place: AnyPath, about: Mapping[str, Any]) -> None:
    """A copy beside an output. Each id must name one row."""
    if published(place):
        raise ExistingOutputError(f"{place}: exists. Nothing was changed; choose another path or move it away")
    check_ids(vector_source(ids))
    copy_vector(vector_source(ids), place, label=IDS, attributes={ABOUT: about})


def ids_cost(source: RowSource | Reader) -> Cost:
    """Read twice, written once; hashes of all in one process."""
    n, looks = source.shape[0], LOOKS_OF_ID[is_text(source.dtype)]
    ids = ArraySpec("ids", n, ID_BYTES, "u1")
    return Cost.of([replace(ids, times=2)], [ids], coordinator=[ids], serial_ops=looks * n)
