"""Whether it is the same job, by digests of what its results depend on; and the ids of its rows as a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bigembed import __version__
from bigembed.errors import ExistingOutputError
from bigembed.estimator.protocol import run_of, steps_before
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import CHOICE, GRAPH, STEP_KEYS, JobSpec
from bigembed.rows.formats.copying import copy_vector, require_length, vector_source
from bigembed.rows.formats.tables import check_ids
from bigembed.rows.source import RowSource
from bigembed.stages import ArraySpec, Context, Cost, Run, Stage, locked, run_stages
from bigembed.store import attributes, files, manifests, paths

# -------------------------------------------------------------------------------------------------------- identity
# Whether it is the same job: digests of what its results depend on, and of nothing else, such as where it runs.


def definition(job: JobSpec, rows: Input) -> dict[str, Any]:
    """Return the tables of a job, without where it runs, as its record keeps them."""
    graph = GRAPH if job.input.graph else ()
    chosen = {key: getattr(job.input, key) for key in (*CHOICE, *graph) if getattr(job.input, key)}
    source = {"path": str(job.input_path), "dataset": job.input.dataset, **job.input.parameters, **chosen, **rows.named}
    steps = {"steps": steps_of(job)} if job.steps else {}
    condensed = {} if job.condense is None else {"condense": job.condense.model_dump()}
    output = job.output.model_dump(exclude={"scratch", "view", "align", "keep"})
    output |= {"view": job.output.view} if job.output.view else {}  # (records of earlier versions do not have it)
    return {"input": source, **condensed, **steps, "method": method_of(job), **clusters_of(job), "output": output}


def clusters_of(job: JobSpec) -> dict[str, Any]:
    """Return the table of the clusters of a job, if it has one."""
    return {} if job.clusters is None else {"clusters": job.clusters.model_dump(exclude_none=True)}


def steps_of(job: JobSpec) -> list[dict[str, Any]]:
    """Return the steps of a job and their parameters, under the keys of the job file."""
    return [
        {"name": step.name, **{STEP_KEYS.get((step.name, key), key): value for key, value in step.parameters.items()}}
        for step in job.steps
    ]


def method_of(job: JobSpec) -> dict[str, Any]:
    """Return the method of a job and its parameters, under the keys of the job file."""
    return {"name": job.method.name, **job.method.parameters}


def key_of_run(job: JobSpec, rows: Input) -> str:
    """Of a run: its definition, and the rows and their ids as they are."""
    known = {"job": definition(job, rows), "input": rows.source.fingerprint(), "version": __version__}
    if rows.ids is not None and paths.published(rows.ids):
        known["ids"] = vector_source(rows.ids).fingerprint()
    return files.digest_of(known)


def key_of_growth(job: JobSpec) -> str:
    """Of a version of a growing embedding: all but its rows, which grow."""
    steps = {"steps": steps_of(job)} if job.steps else {}
    known = {"input": str(job.input_path), **steps, "method": method_of(job), **clusters_of(job)}
    return files.digest_of({**known, "version": __version__})


def key_of_extension(fitted: Any, rows: Input, results: paths.PathLike | None) -> str:
    """Of an extension: the model, the rows and the vectors, as they are, and its table."""
    model = run_of(fitted).fingerprint()
    vectors = {name: str(path) for name, path in rows.aligned.items()}
    given = rows.about or rows.source.fingerprint()
    steps = [run_of(step).fingerprint() for step in steps_before(fitted)]
    return files.digest_of([model, given, vectors, None if results is None else paths.absolute(results), *steps])


# ------------------------------------------------------------------------------------------------------------- ids
# The ids of the rows as a stage of a run: copied into it, each found to name one row, before anything is computed.

STAGE = "ids"
ID_BYTES = 24
"""Of an id and its hashes, in the process that looks for repeated ones; about what one takes on disk."""


def keep_ids(rows: Input, run: Run) -> None:
    """Run the stage if the ids are there; forget it where the rows have none."""
    if rows.ids is None:
        if STAGE in run.published():
            with locked(run):
                manifests.discard(run.root, STAGE)
                run.forget(STAGE)
    elif rows.there(STAGE):
        require_length(vector_source(rows.ids), rows.shape[0], rows.ids, "ids")
        run_stages([ids_stage(vector_source(rows.ids))], run)


def ids_stage(source: RowSource) -> Stage:
    """``ids`` (n,) in the order of the input, of text or of whole numbers."""

    return Stage(
        STAGE, (), {"source": source.fingerprint()}, partial(run_ids, source=source), ids_cost(source.shape[0])
    )


def run_ids(context: Context, source: RowSource) -> dict[str, Any]:
    check_ids(source)
    copy_vector(source, context.path(STAGE), label=STAGE)
    return {"n": source.shape[0]}


def copy_ids(ids: paths.AnyPath, place: paths.AnyPath, about: Mapping[str, Any]) -> None:
    """A copy beside an output; one that was made for it before is left. Each id must name one row."""
    mine = {**about, "fingerprint": vector_source(ids).fingerprint()}
    if paths.published(place):
        if attributes.source_of(place) != mine:
            raise ExistingOutputError(f"{place}: exists. Nothing was changed; choose another path or move it away")
        return
    check_ids(vector_source(ids))
    copy_vector(vector_source(ids), place, label=STAGE, attributes={attributes.ABOUT: mine})


def ids_cost(n: int) -> Cost:
    """Read twice, written once; hashes of all in one process."""
    ids = ArraySpec("ids", n, ID_BYTES, "u1")
    return Cost.of([replace(ids, times=2)], [ids], coordinator=[ids])
