"""Job files that cannot be one: exit status 2 and one message, which no terminal takes for orders."""

from __future__ import annotations

import csv
import os

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import JobError
from bigembed.jobs.export import export
from bigembed.jobs.spec import read_job
from bigembed.rows.formats.delimited import open_delimited
from bigembed.rows.formats.registry import ingest
from bigembed.rows.formats.tables import Table, write_table
from bigembed.rows.reader import Choice
from bigembed.rows.source import RowSource
from bigembed.store.arrays import read_array

JOB = """
[input]
path = "rows.npy"
{input}
[method]
name = "pca"
n_components = 2
{method}
[output]
path = "{path}"
{output}
{rest}
"""


def job_file(folder, **parts: str):
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(30, 3)))
    text = JOB.format(**({"input": "", "method": "", "output": "", "path": "run.zarr", "rest": ""} | parts))
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return folder / "job.toml"


ODD = {
    "nested lists": {"rest": "x = " + "[" * 50_000},
    "nested tables": {"rest": "x = " + "{a = " * 20_000},
    "NUL in a path": {"output": 'model = "a\\u0000b"'},
    "line break in a path": {"output": 'model = "a\\nb"'},
    "an integer of 6000 digits": {"method": f"tol = {'9' * 6000}"},
    "a hexadecimal one": {"method": f"random_state = [0x{'f' * 6000}]"},
    "memory beyond float": {"rest": f"[cluster]\nmemory = 0x{'f' * 6000}"},
    "workers beyond float": {"rest": f"[cluster]\nworkers = 0x{'f' * 6000}"},
    "memory of 5000 digits": {"rest": f'[cluster]\nmemory = "{"9" * 5000} GiB"'},
    "a name too long": {"path": "n" * 300},
    "a path too long": {"path": "d/" * 3000},
    "the root": {"path": "/"},
    "nobody's home": {"path": "~nobody_at_all/run.zarr"},
    "a key of 10 000 parts": {"rest": "a." * 10_000 + "a = 1"},
    "a quoted one": {"rest": '"a".' * 10_000 + "a = 1"},
    "a key of 100 000 letters": {"rest": "k" * 100_000 + " = 1"},
    "20 000 keys": {"rest": "".join(f"k{number} = 1\n" for number in range(20_000))},
    "5 MB": {"rest": "#" * (5 << 20)},
    "an address without a port": {"rest": '[cluster]\naddress = "4h"'},
    "escapes": {"rest": '"\\u001b[31mred\\u202e" = 1'},
    "escapes in a value": {"method": 'solver = "\\u001b[2J"'},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_job_files_are_2_with_one_message(name, tmp_path):
    done = CliRunner().invoke(app, ["plan", str(job_file(tmp_path, **ODD[name]))])
    assert done.exit_code == 2, done.output
    assert done.output.count("error: ") == 1
    assert "Traceback" not in done.output
    assert len(done.output) < 20_000
    assert all(one == "\n" or one.isprintable() for one in done.output)


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "bytes", "BOM", "UTF-16", "empty", "NUL"])
def test_what_is_no_job_file(kind, tmp_path):
    path = tmp_path / "job.toml"
    content = {
        "bytes": b"\xff\xfe\x00",
        "BOM": b"\xef\xbb\xbf[input]",
        "UTF-16": "[input]".encode("utf-16"),
        "NUL": b"a\0",
    }
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/zero"
    else:
        path.write_bytes(content.get(kind, b""))
    with pytest.raises(JobError):
        read_job(path)
    assert CliRunner().invoke(app, ["run", str(path)]).exit_code == 2


def test_an_output_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "run.zarr")
    done = CliRunner().invoke(app, ["plan", str(job_file(tmp_path))])
    assert done.exit_code == 2, done.output


def test_a_name_of_a_column_prints_no_escapes(tmp_path):
    (tmp_path / "a.csv").write_text("a\x1b[2J,b\n1,2\n")
    done = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.csv"), str(tmp_path / "o.zarr"), "--columns", "c"])
    assert done.exit_code == 2
    assert "a\\x1b[2J" in done.output
    assert "\x1b" not in done.output


# ----------------------------------------------------------------------------------- formulas

IDS = ["=1+1", "+a", "-5", "@x", "'=1", "''-", "'a", "plain", "a=b", "\tx", "-"]
IDS += ["a\rb", "c\r=1+1", "\r=2", "d\ne", 'f"\r\n"g', "h,i", "'\rj", " k ", "l\u2028m"]


def test_cells_that_a_spreadsheet_would_compute_are_guarded(tmp_path):
    n = len(IDS)
    values = -np.arange(2.0 * n).reshape(n, 2)
    np.save(tmp_path / "map.npy", values)
    table = Table(
        RowSource((n, 2), values.dtype, array=values),
        ("=a", "b"),
        {"id": RowSource((n,), np.dtype("U9"), array=np.array(IDS))},
    )
    write_table(table, tmp_path / "map.csv")
    with open(tmp_path / "map.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["id", "'=a", "b"]
    assert [row[0][0] in "=+-@\t\r" for row in rows] == [False] * n
    assert [[float(one) for one in row[1:]] for row in rows] == values.tolist()
    reader = open_delimited(tmp_path / "map.csv", Choice(columns=("b",)))
    assert [one for part in reader.vector("id").stream(0, n) for one in part.tolist()] == IDS
    assert (len(pandas.read_csv(tmp_path / "map.csv")), len(rows)) == (n, n)
    ingest(tmp_path / "map.csv", tmp_path / "rows.zarr", Choice(columns=("b",)), {"ids": "id"})
    assert read_array(tmp_path / "rows-ids.zarr").tolist() == IDS
    export(tmp_path / "map.npy", tmp_path / "again.csv")


def test_ids_of_bytes_are_text_in_every_table(tmp_path):
    values = np.zeros((2, 1))
    ids = RowSource((2,), np.dtype("S2"), array=np.array([b"ab", b"c"]))
    write_table(Table(RowSource((2, 1), values.dtype, array=values), ("x",), {"id": ids}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "id,x\nab,0.0\nc,0.0\n"
