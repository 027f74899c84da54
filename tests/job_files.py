"""Job files as tests write them."""

from __future__ import annotations

from pathlib import Path

from bigembed.jobs.job import JobSpec
from bigembed.jobs.spec import read_job


def job_file(
    folder: Path,
    method: str = 'name = "pca"\nn_components = 2',
    source: str = 'path = "rows.npy"',
    output: str = "",
    more: str = "",
    path: str = "run.zarr",
    name: str = "job.toml",
) -> Path:
    """Write a job: the lines of its tables [method] and [input], more of [output], and what follows that."""
    text = f'[input]\n{source}\n[method]\n{method}\n[output]\npath = "{path}"\n{output}\n{more}\n'
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def job_in(folder: Path, *tables: str, **named: str) -> JobSpec:
    """Write a job, and read it."""
    return read_job(job_file(folder, *tables, **named))
