"""bigembed certify: exit statuses, what it prints, the page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import bigembed as be
from bigembed.cli import app
from tests.unit.jobs.report.test_page import Page, check_closed


def bigembed(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def stored(tmp_path):
    """Rows and three maps of them: right, shuffled, one coordinate."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 5)) * [9, 5, 0.3, 0.2, 0.1]
    for name, values in (
        ("rows", rows), ("right", rows[:, :2]), ("shuffled", rng.permutation(rows[:, :2])), ("line", rows[:, :1]),
    ):  # fmt: skip
        np.save(tmp_path / f"{name}.npy", values)
    return tmp_path


def test_a_right_map(stored):
    done = bigembed("certify", stored / "rows.npy", stored / "right.npy", "--samples", 100)
    assert done.exit_code == 0
    assert "400 rows of 5 columns (euclidean), 2 coordinates; 100 rows sampled, 15 neighbors" in done.stdout
    assert "warning" not in done.stdout
    assert "trustworthiness" in done.stdout


def test_json_is_that_of_python(stored):
    done = bigembed(
        "certify", stored / "rows.npy", stored / "shuffled.npy", "--k", 7, "--metric", "cosine", "--seed", 2, "--json"
    )
    assert done.exit_code == 0
    found = json.loads(done.stdout.splitlines()[-1])
    wanted = be.certify(stored / "rows.npy", stored / "shuffled.npy", n_neighbors=7, metric="cosine", seed=2)
    assert {name: found[name] for name in wanted.as_dict()} == wanted.as_dict()
    assert "unrelated to the rows" in found["warnings"][0]


@pytest.mark.parametrize("name", ["right", "shuffled", "line"])
def test_the_page(stored, name):
    out = stored / "page.html"
    out.write_text('<meta name="generator" content="bigembed report">')  # an older page is replaced
    paths = stored / "rows.npy", stored / f"{name}.npy"
    done = bigembed("certify", *paths, "--out", out, "--title", "A <map>", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["page"] == str(out)
    text = out.read_text()
    page = Page(text)
    check_closed(text)
    assert {"map", "certificate", "input", "repeat"} <= page.ids()
    assert "<title>A &lt;map&gt;</title>" in text
    assert len(page.all("img")) == (name != "line")
    assert ("histogram" in text) == (name == "line")
    assert ('class="note warn"' in text) == (name == "shuffled")
    assert ('class="note good"' in text) == (name != "shuffled")
    for said in found["warnings"] + found["notes"]:
        assert said in page.text
        assert text.index('class="note') < text.index('class="tiles"') < text.index('id="map"')
    for key in ("preservation", "trustworthiness", "continuity", "triplets"):
        assert f"{found[key]['value']:.3f}" in page.text
    assert f"bigembed certify {paths[0]} {paths[1]} --k 15" in page.text


def test_coordinates_of_a_run(stored):
    be.PCA(n_components=2).fit_transform_to(np.load(stored / "rows.npy"), stored / "pca.zarr")
    done = bigembed("certify", stored / "rows.npy", stored / "pca.zarr", "--json")
    assert done.exit_code == 0
    of_array = json.loads(done.stdout.splitlines()[-1])
    (stored / "job.toml").write_text(
        '[input]\npath = "rows.npy"\n[method]\nname = "pca"\nn_components = 2\n[output]\npath = "job.zarr"\n'
    )
    assert bigembed("run", stored / "job.toml").exit_code == 0
    of_run = json.loads(bigembed("certify", stored / "rows.npy", stored / "job.zarr", "--json").stdout.splitlines()[-1])
    assert of_run["trustworthiness"] == of_array["trustworthiness"]


def test_what_it_refuses(stored):
    np.save(stored / "few.npy", np.zeros((3, 2)))
    (stored / "mine.html").write_text("my own page")
    for words, says in (
        (("rows.npy", "gone.npy"), "no such coordinates"),
        (("gone.npy", "right.npy"), "no such rows"),
        (("rows.npy", "few.npy"), "400 rows and 3 coordinates"),
        (("rows.npy", "right.npy", "--k", "200"), "at most 199"),
        (("rows.npy", "right.npy", "--out", stored / "mine.html"), "is not a report"),
    ):
        paths = [stored / word for word in words[:2]]
        done = bigembed("certify", *paths, *words[2:])
        assert done.exit_code == 2, done.output
        assert says in done.stderr
    assert (stored / "mine.html").read_text() == "my own page"
