"""What the page of a diffusion map, and ``verify``, say of its coordinates: in words, amber where it is flagged."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed import DiffusionMap
from bigembed.cli import app
from bigembed.errors import BigembedWarning
from bigembed.jobs.record import RECORD
from bigembed.jobs.report.charts import curves
from bigembed.jobs.report.figures import HEADINGS, coordinate_lines, entries_of, map_figures
from bigembed.jobs.report.page import warnings_of
from bigembed.jobs.report.summary import RunSummary
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import read_job
from tests.unit.jobs.report.test_page import Page, edit, page_of

pytestmark = pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
CHECKED = "Each coordinate is carried by many rows"


def ring(n=300, outlier=False):
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, n)
    rows = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.concatenate([rows, rows[:1] * 3]) if outlier else rows


def write(folder, rows, method="", count="n_components = 2"):
    folder.mkdir(exist_ok=True)
    np.save(folder / "rows.npy", rows)
    text = f'[input]\npath = "rows.npy"\n[method]\nname = "diffusion_map"\n{count}\n{method}\n'
    (folder / "job.toml").write_text(text + '[output]\npath = "run.zarr"\n')
    return folder / "job.toml"


MAPS = {
    "good": (ring(),),
    "bad": (ring(outlier=True), 'bandwidth = "fixed"\nepsilon = 0.2', "n_components = 3"),
    "whole": (ring(), 'n_neighbors = "none"'),
    "islands": (np.concatenate([ring(1200), ring(10) * 0.01 + 50]), "n_neighbors = 8", 'n_components = "auto"'),
    "apart": (np.concatenate([ring(200), ring(150) + 50]), 'components = "per-component"'),
    "joint": (np.concatenate([ring(200), ring(150) + 50]),),
    "bridged": (np.concatenate([ring(200), ring(150) + 50]), 'components = "bridge"'),
}
"""Of one scale for all rows (bad), the outlying row, three times as far out, is a coordinate of its own."""
RUN_ALL = """
import sys
from bigembed.cli import app
for job in sys.argv[1:]:
    app(["run", job], standalone_mode=False)
"""


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """The run of each, by jobs in a process of their own: that of the tests may hold more than their plan allows."""
    folder = tmp_path_factory.mktemp("maps")
    jobs = [write(folder / name, *MAPS[name]) for name in MAPS]
    subprocess.run([sys.executable, "-W", "ignore", "-c", RUN_ALL, *jobs], check=True, capture_output=True)
    return {name: folder / name / "run.zarr" for name in MAPS}


def amber(page):
    return [attrs for name in ("td", "th") for attrs in page.all(name) if "flagged" in (attrs.get("class") or "")]


@pytest.fixture
def good(maps):
    return maps["good"]


@pytest.fixture
def bad(maps):
    return maps["bad"]


def verified(run):
    done = CliRunner().invoke(app, ["verify", str(run)])
    assert done.exit_code == 0
    return done.stdout


def test_a_good_map_is_green_and_says_what_was_looked_at(good):
    page, _ = page_of(good)
    assert "without a warning" in page.text
    assert CHECKED in page.text
    assert not amber(page)
    assert "judgement" in page.ids()
    assert "Trustworthiness" in page.text
    assert "amber" not in verified(good)


def test_a_coordinate_of_one_row_is_amber_on_the_page_and_in_verify(bad):
    page, _ = page_of(bad)
    lines = RunSummary.read(bad).coordinates
    assert "300" in lines[0].cells[-1].text
    assert [cell.flagged for cell in lines[0].cells][4:] == [True, True, True]
    assert "passed" not in page.text
    assert CHECKED not in page.text
    assert "Single rows carry a coordinate" in page.text
    assert {"Participation", "Rows that carry it", "What it shows"} <= {attrs.get("data-name") for attrs in amber(page)}
    said = verified(bad)
    assert "amber: Single rows carry a coordinate" in said
    record = json.loads((bad / RECORD).read_text())
    for message in record["certificate"]["warnings"]["localized"]:
        assert f"    {message}" in said.splitlines()
    first = next(line for line in said.splitlines() if re.match(r" {8,}1 ", line))
    assert first.endswith("amber")


@pytest.mark.parametrize("run", ["good", "bad"])
def test_no_raw_tables_on_the_page_or_in_verify(run, request):
    run = request.getfixturevalue(run)
    for text in (page_of(run)[0].text, verified(run)):
        assert not re.search(r"[{}]|participation [\d.]+, |\bnone rows\b|harmonic_residual|carried by few: ", text)
        assert "Intrinsic dimension" in text
        assert re.search(r"± [\d.]+ by all neighbors; [\d.]+ ± [\d.]+ by the two nearest", text)


def test_flags_without_a_sentence_are_never_green(bad, tmp_path):
    record = json.loads((bad / RECORD).read_text())
    record["certificate"]["warnings"] = {}
    contents = RunSummary.read(bad)
    contents.record = record | {"warnings": []}
    assert any("amber cells" in message for one in warnings_of(contents) for message in one.messages)


def test_a_map_that_python_made_is_judged_too(tmp_path):
    DiffusionMap(3, bandwidth="fixed", epsilon=0.2, workdir=tmp_path / "run.zarr").fit(ring(outlier=True))
    page, _ = page_of(tmp_path / "run.zarr")
    assert "without a warning" not in page.text
    assert "Single rows carry a coordinate" in page.text
    assert {"judgement", "eigenvalues"} <= page.ids()
    (tmp_path / "run.zarr" / "manifest" / "solve.json").unlink()
    page, _ = page_of(tmp_path / "run.zarr")
    assert "No certificate was kept" in page.text
    assert not [attrs for attrs in page.all("div") if attrs.get("class") == "note good"]


def test_a_run_whose_coordinates_nobody_judged_does_not_say_that_they_are_good(good, tmp_path):
    contents = RunSummary.read(good)
    contents.record = contents.record | {"certificate": {"passes": 3}}
    assert "is not among them" in contents.verdict()
    contents = RunSummary.read(good)
    contents.record = contents.record | {"certificate": {}}
    assert "No certificate" in contents.verdict()


def marks_of(run):
    svg = curves(RunSummary.read(run))[0][0]
    return re.findall(r'class="mark-name[^>]*>([^<]*)<', svg)


def test_the_scale_is_marked_only_where_it_has_the_units_of_the_curve(good, bad, maps):
    assert [mark.split(":")[0] for mark in marks_of(good)] == ["kernel sum"]
    assert "pure number" in page_of(good)[0].text
    assert [mark.split(":")[0] for mark in marks_of(bad)] == ["used", "kernel sum"]
    assert "0.2 was used" in page_of(bad)[0].text
    assert [mark.split(":")[0] for mark in marks_of(maps["whole"])] == ["used"]


def test_islands_parts_and_the_number_of_coordinates_are_said(maps):
    run = maps["islands"]
    page, _ = page_of(run)
    assert "islands" in page.text
    assert "10 rows in 1 island" in page.text
    assert "Number of coordinates" in page.text
    assert re.search(r"Number of coordinates \d+: ", page.text)
    assert "Rows placed by their nearest row: 10" in verified(run)


def test_components_of_their_own_and_bridges(maps):
    page, _ = page_of(maps["apart"])
    assert "those of the largest component" in page.text
    first = next(line for line in verified(maps["joint"]).splitlines() if re.match(r" {8,}1 ", line)).split()
    assert first[1:3] == ["1", "0"]
    bridged = maps["bridged"]
    assert "between 2 components of 200, 150 rows" in page_of(bridged)[0].text
    assert any(entry.flagged for entry in entries_of(RunSummary.read(bridged).certificate) if entry.name == "Bridges")


JUDGED = {
    "participation": [0.5, 0.4, 0.3],
    "rows_above_a_tenth": [900, 800, 700],
    "leading_rows": [[1, 2], [3, -1], [4, 5]],
    "carried_by_few": [False, False, False],
    "near_one": [False, False, True],
    "harmonic": [False, True, False],
    "harmonic_residual": [1.0, 0.123, 0.9],
    "sin_theta": [1e-6, 0.5, 0.5],
    "groups": [[1, 2]],
    "cut": True,
}


def test_each_flag_has_its_cell():
    lines = coordinate_lines({"judgement": JUDGED, "converged": False}, np.array([0.9, 0.8, 0.8]), np.full(3, 1e-3))
    flagged = [{name for name, cell in zip(HEADINGS, line.cells, strict=True) if cell.flagged} for line in lines]
    assert flagged[0] == {"Residual"}
    assert flagged[1] == {"Residual", "sin θ at most", "What it shows"}
    assert flagged[2] == {"1 − λ", "Residual", "sin θ at most", "What it shows"}
    assert lines[1].cells[-1].text == "a function of earlier ones (0.12 left); turned within 2–3"
    assert lines[2].cells[-1].text == "parts that are all but cut off; turned within 2–3; cut from close ones left out"
    assert coordinate_lines({}, None, None) == []
    assert map_figures({"unmeasured": "distances beyond float64"}) == []


def test_names_in_a_certificate_are_escaped(bad, tmp_path):
    import shutil

    copy = shutil.copytree(bad, tmp_path / "copy.zarr")
    record = json.loads((copy / RECORD).read_text())
    record["certificate"]["n_components"] = {"chosen": 2, "reason": "<script>alert(1)</script>"}
    edit(copy, **record)
    assert not Page(page_of(copy)[1].read_text()).all("script")


def test_warnings_of_the_job_reach_python_and_the_page_alike(tmp_path):
    with pytest.warns(BigembedWarning) as said:
        run_job(read_job(write(tmp_path, *MAPS["bad"])))
    text = page_of(tmp_path / "run.zarr")[0].text
    for one in said:
        if issubclass(one.category, BigembedWarning):
            assert re.sub(r"\s+", " ", str(one.message)) in text


def made(folder, rows, method):
    folder.mkdir()
    np.save(folder / "rows.npy", rows)
    text = f'[input]\npath = "rows.npy"\n[method]\n{method}\n'
    (folder / "job.toml").write_text(text + '[output]\npath = "run.zarr"\npicture = "map.png"\nreport = "page.html"\n')
    run_job(read_job(folder / "job.toml"))
    return folder


def test_the_page_of_a_map_that_descends_says_what_was_compared_and_shows_no_eigenvalues_of_its_start(tmp_path):
    rows = np.random.default_rng(0).normal(size=(400, 3)) * [5, 3, 0.1]
    folder = made(tmp_path / "umap", rows, 'name = "umap"')
    page = Page((folder / "page.html").read_text())
    assert "Finished, without a warning" in page.text
    assert "is not among them" not in page.text
    assert "the map was compared with the rows. Trustworthiness of the map is" in page.text
    assert "coordinate 1 · λ" not in page.text
    assert "eigenvalues" not in page.ids()
    assert not [attrs for attrs in page.all("img") if "λ" in attrs["alt"]]


def test_the_pair_that_shows_most_comes_first_on_the_page_and_in_the_picture(tmp_path, monkeypatch):
    """Of a strip the second coordinate is a function of the first."""
    from bigembed.plotting import maps as plotting

    drawn, draw = [], plotting.scatter
    monkeypatch.setattr("bigembed.plotting.scatter", lambda *at, **asked: drawn.append(asked) or draw(*at, **asked))
    rows = np.random.default_rng(0).uniform(size=(500, 2)) * [2.5, 1.0]
    folder = made(tmp_path / "strip", rows, 'name = "diffusion_map"\nn_components = 6')
    page = Page((folder / "page.html").read_text())
    said = "Drawn first are coordinates 1 and 3, which show most: coordinate 2 is made of earlier ones (harmonics)."
    assert said in page.text
    alt = [attrs["alt"] for attrs in page.all("img")]
    assert re.match(r"Map of the points: coordinate 1 .*; coordinate 3 ", alt[0])
    assert len(alt) == 6
    assert drawn[0]["axes"] == (0, 2)
    assert "Drawn first are coordinates 1 and 3" in drawn[0]["note"]


def test_the_page_of_a_linear_map_says_of_which_rows_it_was_judged(tmp_path):
    rows = np.random.default_rng(0).normal(size=(1500, 8))
    folder = made(tmp_path / "pca", rows, 'name = "pca"\nn_components = 2')
    page = Page((folder / "page.html").read_text())
    assert "200 rows were compared with 1,000 rows drawn from 1,500" in page.text
    assert "The map as a whole is doubtful" in page.text
