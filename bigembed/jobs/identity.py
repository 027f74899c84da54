"""Whether it is the same job: digests of what its results depend on, and of nothing else, such as where it runs."""

from __future__ import annotations

from typing import Any

from bigembed import __version__
from bigembed.jobs.inputs import Input
from bigembed.jobs.job import CHOICE, GRAPH, STEP_KEYS, JobSpec
from bigembed.store.formats.aligned import vector_source
from bigembed.store.storage.documents import digest_of
from bigembed.store.storage.paths import PathLike, absolute, published


def definition(job: JobSpec, rows: Input) -> dict[str, Any]:
    """The tables of a job, without where it runs, as its record keeps them."""
    graph = GRAPH if job.input.graph else ()
    chosen = {key: getattr(job.input, key) for key in (*CHOICE, *graph) if getattr(job.input, key)}
    source = {"path": str(job.input_path), "dataset": job.input.dataset, **job.input.parameters, **chosen, **rows.named}
    steps = {"steps": steps_of(job)} if job.steps else {}
    output = job.output.model_dump(exclude={"scratch"})
    return {"input": source, **steps, "method": method_of(job), "output": output}


def steps_of(job: JobSpec) -> list[dict[str, Any]]:
    """The steps and their parameters, under the keys of the job file."""
    return [
        {"name": step.name, **{STEP_KEYS.get((step.name, key), key): value for key, value in step.parameters.items()}}
        for step in job.steps
    ]


def method_of(job: JobSpec) -> dict[str, Any]:
    """The method and its parameters."""
    return {"name": job.method.name, **job.method.parameters}


def key_of_run(job: JobSpec, rows: Input) -> str:
    """Of a run: its definition, and the rows and their ids as they are."""
    known = {"job": definition(job, rows), "input": rows.source().fingerprint(), "version": __version__}
    if rows.ids is not None and published(rows.ids):
        known["ids"] = vector_source(rows.ids).fingerprint()
    return digest_of(known)


def key_of_growth(job: JobSpec) -> str:
    """Of a version of a growing embedding: all but its rows, which grow."""
    steps = {"steps": steps_of(job)} if job.steps else {}
    return digest_of({"input": str(job.input_path), **steps, "method": method_of(job), "version": __version__})


def key_of_extension(fitted: Any, rows: Input, results: PathLike | None) -> str:
    """Of an extension: the model, the rows and the vectors, as they are, and its table."""
    model = fitted._run.fingerprint()
    vectors = {name: str(path) for name, path in rows.aligned.items()}
    given = rows.about or rows.source().fingerprint()
    steps = [step._run.fingerprint() for step in fitted._steps]
    return digest_of([model, given, vectors, None if results is None else absolute(results), *steps])
