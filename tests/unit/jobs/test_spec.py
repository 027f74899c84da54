"""The job file: what is read, and every offender named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigembed.errors import JobError
from bigembed.jobs.places.cluster_table import ClusterTable, parse_bytes
from bigembed.jobs.spec import parse_job, read_job

FILE = Path("/jobs/job.toml")
GOOD = {"input": {"path": "x.zarr"}, "method": {"name": "small"}, "output": {"path": "run.zarr"}}


def problems_of(value):
    with pytest.raises(JobError) as caught:
        parse_job(value, FILE)
    return str(caught.value)


def test_paths_are_relative_to_the_file():
    job = parse_job(GOOD | {"output": {"path": "a/run.zarr", "picture": "/p.png", "model": "../m.zarr"}}, FILE)
    assert job.input_path == Path("/jobs/x.zarr")
    assert job.output_path == Path("/jobs/a/run.zarr")
    assert (job.output.picture, job.output.model) == ("/p.png", "/m.zarr")
    assert job.cluster == ClusterTable()


def test_names_of_other_formats_are_refused_before_work():
    written = {"path": "run.zarr", "picture": "map.pgn", "report": "page.pdf", "table": "t.xlsx"}
    text = problems_of(GOOD | {"output": written})
    for part in (
        "picture: value error, map.pgn: a picture is written as PNG; give a name that ends in .png",
        "report: value error, page.pdf: the page is written as HTML; give a name that ends in .html or .htm",
        "table: value error, the name of a table ends in",
    ):
        assert f"[output] {part}" in text
    parse_job(GOOD | {"output": {"path": "run.zarr", "picture": "map.PNG", "report": "page"}}, FILE)


def test_every_offender_is_listed_with_table_and_nearest_key():
    text = problems_of(
        {
            "input": {"pth": "x"},
            "method": {"name": "small", "n_component": 3, "pause": "long", "memory": 1.5},
            "outptu": {"path": "x"},
            "cluster": {"memory": "1 GeB", "wrkers": 3, "workers": 0, "threads": 2},
        }
    )
    for part in (
        "/jobs/job.toml", "a table 'outptu': unknown; did you mean 'output'?", "[output] is missing",
        "[input] 'pth': unknown; did you mean 'path'?", "[input] needs path",
        "[method] 'n_component': unknown; did you mean 'n_components'?",
        "[method] pause: input should be a valid number", "[method] memory: input should be a valid integer",
        "[cluster] 'wrkers': unknown; did you mean 'workers'?",
        "[cluster] workers: input should be greater than or equal to 1, not 0", "[cluster] memory:", "1 GiB",
        "[cluster] threads: input should be 1, not 2",
    ):  # fmt: skip
        assert part in text


def test_workdir_is_the_output():
    assert "[output] path" in problems_of(GOOD | {"method": {"name": "small", "workdir": "x"}})


def test_unknown_method_and_data_set():
    assert "did you mean 'small'?" in problems_of(GOOD | {"method": {"name": "smal"}})
    assert "did you mean 'swiss_roll'?" in problems_of(GOOD | {"input": {"dataset": "swissroll"}})


def test_parameters_of_data_sets_are_checked():
    text = problems_of(GOOD | {"input": {"dataset": "swiss_roll", "n": 10.5, "noize": 1}})
    assert "'noize': unknown; did you mean 'noise'?" in text
    assert "[input] n: input should be a valid integer" in text
    assert "folder: must be given" in problems_of(GOOD | {"input": {"dataset": "mnist"}})
    job = parse_job(GOOD | {"input": {"dataset": "mnist", "folder": "data"}}, FILE)
    assert job.input.parameters == {"folder": "/jobs/data"}
    assert job.input_path == Path("/jobs/run-input.zarr")


def test_none_is_written_as_text():
    job = parse_job(GOOD | {"method": {"name": "small", "n_neighbors": "none", "warns": "none"}}, FILE)
    assert job.method.parameters == {"n_neighbors": None, "warns": "none"}


@pytest.mark.parametrize("value", [1, "text", []])
def test_a_table_that_is_none(value):
    assert "[input] must be a table" in problems_of(GOOD | {"input": value})


def test_names_twice_and_tls_without_address():
    assert "named twice" in problems_of(GOOD | {"output": {"path": "x.zarr"}})
    assert "only with address" in problems_of(GOOD | {"cluster": {"tls_ca": "ca.pem"}})


def test_files(tmp_path):
    with pytest.raises(JobError, match="no such job file"):
        read_job(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[input\n")
    with pytest.raises(JobError, match="not readable as TOML"):
        read_job(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="not readable"):
        read_job(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1 GiB", 2**30),
        ("2gb", 2 * 10**9),
        ("0.5 MiB", 2**19),
        ("7", 7),
        ("8 B", 8),
        (9, 9),
        ("1e9", 10**9),
        ("2 Gi", 2**31),
    ],
)
def test_sizes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1 GiB", "1 GiBi", "1e999", "9" * 400])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="1 GiB"):
        parse_bytes(text)
