"""The report of a run, and what it says of coordinates."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from itertools import chain

import numpy as np
import pytest
from typer.testing import CliRunner

from bigembed.cli import app
from bigembed.errors import ExistingOutputError, InputError, MissingPathError
from bigembed.jobs.record import RECORD
from bigembed.jobs.report import RunSummary, StageLine
from bigembed.jobs.report.figures import HEADINGS, coordinate_lines, entries_of, map_figures
from bigembed.jobs.report.lines import certificate_lines
from bigembed.jobs.report.page import slow_stages, warnings_of, write_report
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import needed_aligned
from bigembed.maps import REGISTRY
from bigembed.runtime import PARTS
from bigembed.store import manifests
from bigembed.store.arrays import create_rows, write_rows
from bigembed.store.files import sealed
from tests.job_files import job_file, job_in
from tests.some import a_few, these

METHODS = sorted(REGISTRY)
OWN = ("diffusion_map", "linear_discriminant", "nmf", "pca")
"""Methods whose pages have sections or figures of their own."""
SPECTRAL = {"diffusion_map", "linearized_diffusion_map", "linearized_kernel_pca"}


class Page(HTMLParser):
    """A page taken apart: text, tags with attributes, ids."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.style = [], [], False
        self.feed(text)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.style = tag == "style"

    def handle_data(self, data):
        if not self.style:
            self.words.append(data)
        self.style = False

    def ids(self):
        return {attrs["id"] for _, attrs in self.tags if "id" in attrs}

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def page_of(run, **given):
    out = run.parent / "page.html"
    return Page((write_report(run, out, **given) and out).read_text()), out


def job_of(folder, name, n=240, method="", output="", width=2):
    rng = np.random.default_rng(0)
    np.save(folder / "rows.npy", rng.uniform(0.1, 1, (n, 6)) + 2 * (np.arange(n) % 3 == 0)[:, None])
    np.save(folder / "labels.npy", np.arange(n) % 3)
    column = 'labels = "labels.npy"\n' if "labels" in needed_aligned(name) else ""
    asked = f'name = "{name}"\nn_components = {width}\n{method}'
    return job_in(folder, asked, f'path = "rows.npy"\n{column}', output)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A finished run of PCA on 3000 × 6 rows."""
    folder = tmp_path_factory.mktemp("once")
    run_job(job_of(folder, "pca", 3000))
    edit(folder / "run.zarr", measured={"total": 10 << 20, "worker": 0, "coordinator": 10 << 20})
    return folder


def edit(run, **changes):
    record = json.loads((run / RECORD).read_text())
    (run / RECORD).write_text(json.dumps(sealed(record | changes)))


def check_closed(text):
    """No scripts, and no address but data and the places that a run names in text."""
    page = Page(text)
    assert not page.all("script")
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href", "srcset"):
            assert attrs.get(name, "data:").startswith(("data:", "#")), (tag, attrs)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def set_coordinates(run, values):
    """Publish other coordinates."""
    path = run / "stages" / "coordinates" / "embedding"
    shutil.rmtree(path)
    create_rows(path, values.shape, np.float64, len(values))
    write_rows(path, 0, values)
    old = manifests.find(run, "coordinates")
    (run / "manifest" / "coordinates.json").unlink()
    manifests.publish(run, "coordinates", old.key, old.parameters, old.inputs, old.results, old.measured, {})


EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'


class TestPage:
    """The report: what goes in for each kind of method and run, what is said of what is missing, what is escaped."""

    @pytest.fixture
    def finished(self, once, tmp_path):
        """A copy of it."""
        shutil.copytree(once, tmp_path, dirs_exist_ok=True)
        return tmp_path / "run.zarr"

    @pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
    @these(OWN, "name", METHODS)
    def test_every_method_has_its_page(self, name, tmp_path):
        method = 'components = "largest"' if name in ("diffusion_map", "isomap") else ""
        run_job(job_of(tmp_path, name, method=method))
        page, out = page_of(tmp_path / "run.zarr")
        assert {"map", "certificate", "stages", "memory", "input", "repeat"} <= page.ids()
        assert len(page.all("img")) == 1
        assert page.all("img")[0]["src"].startswith("data:image/png;base64,")
        assert REGISTRY[name].partition(":")[2] in page.text
        record = json.loads((tmp_path / "run.zarr" / RECORD).read_text())
        for stage in record["stages"]:
            assert stage["name"] in page.text
        for entry in entries_of(record["certificate"]):
            assert entry.name in page.text
            assert entry.value in page.text
        for message in chain(*record["certificate"].get("warnings", {}).values()):
            assert re.sub(r"\s+", " ", message).strip() in page.text
        assert "n_components" in page.text
        assert record["certificate"]["versions"]["numpy"] in page.text
        if name in SPECTRAL:
            assert {"eigenvalues", "gaps"} <= page.ids()
        if name in ("pca", "linear_discriminant"):
            assert "variance" in page.ids()
        if name in ("nmf", "linearized_diffusion_nmf"):
            assert "objective" in page.ids()
        if name == "diffusion_map":
            assert {"ksum", "slope"} <= page.ids()
            assert "Recall of the graph" in page.text
        assert name != "linear_discriminant" or "labels" in page.text
        check_closed(out.read_text())

    def test_worst_warnings_first_and_each_once(self, finished):
        said = {"recall": ["far neighbors"], "convergence": ["stopped at 300"], "new kind": ["strange"]}
        record = json.loads((finished / RECORD).read_text())
        edit(
            finished,
            certificate={"warnings": said},
            warnings=["stopped at 300", "strange", "lastly"],
            measured=record["measured"] | {"total": 2 * record["predicted"]["total"]},
        )
        text = page_of(finished)[0].text
        order = ["stopped at 300", "far neighbors", "were planned", "strange", "lastly"]
        places = [text.index(word) for word in order]
        assert places == sorted(places)
        assert text.count("stopped at 300") == 1

    def test_a_run_that_is_going_on(self, finished):
        from bigembed.store.locks import hold

        edit(finished, finished=False)
        (finished / "status.json").write_text(json.dumps({"state": "running", "stage": "solve", "error": None}))
        with hold(finished):
            text = page_of(finished)[0].text
        assert "It works on solve" in text
        assert "Run the job again" not in text
        assert "Run the job again" in page_of(finished)[0].text

    @pytest.mark.parametrize("state", ["failed", "interrupted", "none"])
    def test_a_run_that_did_not_end(self, finished, state):
        edit(finished, finished=False, stages=None, certificate={}, measured={}, predicted={}, warnings=[])
        manifests.discard(finished, "coordinates")
        status = {"state": state, "error": {"message": "the disk is full", "status": 1, "kind": "OSError"}}
        (finished / "status.json").write_text(json.dumps(status if state != "none" else {"state": "interrupted"}))
        page, _ = page_of(finished)
        assert "map" not in page.ids()
        assert "not made" in page.text
        assert {"stages", "input", "repeat"} <= page.ids()
        assert ("The run failed" in page.text) == (state == "failed")
        assert ("disk is full" in page.text) == (state != "none")
        if state != "failed":
            assert "still to come: coordinates. Run the job again" in page.text

    @pytest.mark.parametrize("lost", [1, 3000])
    def test_rows_without_coordinates_are_counted(self, finished, lost):
        values = np.random.default_rng(0).normal(size=(3000, 2))
        values[:lost, 1] = np.nan
        set_coordinates(finished, values)
        page, _ = page_of(finished)
        assert "Rows without coordinates" in page.text
        assert f"{lost:,} of 3,000 rows have NaN" in page.text
        assert len(page.all("img")) == 1

    def test_damaged_coordinates_are_a_warning(self, finished):
        for file in (finished / "stages" / "coordinates" / "embedding" / "c").rglob("*"):
            if file.is_file():
                file.unlink()
        page, _ = page_of(finished)
        assert "Stored data are damaged" in page.text
        assert "map" not in page.ids()
        manifests.discard(finished, "moments")
        assert "gone now: moments" in page_of(finished)[0].text

    def test_one_coordinate_is_a_histogram(self, tmp_path):
        run_job(job_of(tmp_path, "pca", 3000, width=1))
        np.save(tmp_path / "class.npy", np.array(["a", "b"])[np.arange(3000) % 2])
        page, _ = page_of(tmp_path / "run.zarr")
        assert "histogram" in page.ids()
        assert not page.all("img")
        assert len([a for a in page.all("rect") if "bar" in a["class"]]) >= 100
        page, _ = page_of(tmp_path / "run.zarr", color=tmp_path / "class.npy")
        lines = [a["points"] for a in page.all("polyline") if len(a["points"].split()) == 120]
        assert len(lines) == 2

    @a_few(
        3,
        ("values", "said", "kind"),
        [
            (np.linspace(-2, 5, 3000), "5", "ramp"),
            (np.arange(3000) % 4, "750", "swatch"),
            (np.arange(3000) % 2 == 0, "True", "swatch"),
            (np.array(["red", "blue"])[np.arange(3000) % 2], "blue", "swatch"),
            (np.arange(3000).astype(str), "3,000 classes", "legend"),
            (np.arange(3000), "2,999", "ramp"),
            (np.where(np.arange(3000) < 7, np.nan, 1.0), "7 rows without a value", "ramp"),
        ],
    )
    def test_colors(self, finished, tmp_path, values, said, kind):
        np.save(tmp_path / "color.npy", values)
        page, _ = page_of(finished, color=tmp_path / "color.npy")
        assert "color.npy" in page.text
        assert said in page.text or said.replace(",", "") in page.text
        assert any(kind in attrs.get("class", "") for _, attrs in page.tags)

    def test_colors_by_a_column_or_not_at_all(self, finished):
        assert "column 5 of the input" in page_of(finished, color="column:5")[0].text
        assert "ramp" not in {a.get("class") for a in page_of(finished, color="none")[0].all("div")}

    @pytest.mark.parametrize(
        "color", ["column:6", "column:x", "cluster", "short.npy", "flat.npy", "absent.npy", "names.npy"]
    )
    def test_colors_that_do_not_fit(self, finished, tmp_path, color):
        np.save(tmp_path / "short.npy", np.ones(2999))
        np.save(tmp_path / "flat.npy", np.ones((3000, 2)))
        np.save(tmp_path / "names.npy", np.arange(3000) * 1j)
        with pytest.raises((InputError, MissingPathError), match=color.split(".")[0]):
            write_report(finished, tmp_path / "page.html", color=tmp_path / color if "." in color else color)
        assert not (tmp_path / "page.html").exists()

    def test_names_of_a_run_are_escaped(self, finished, tmp_path):
        np.save(tmp_path / "evil.npy", np.array([EVIL, "{{ 7 * 7 }}"])[np.arange(3000) % 2])
        record = json.loads((finished / RECORD).read_text())
        record["plan"]["input"] = f"/data/{EVIL}"
        record["job"]["method"]["svd_solver"] = EVIL
        record["certificate"] = {EVIL: EVIL, "versions": {EVIL: EVIL}, "eigenpairs": {EVIL: {"reason": EVIL}}}
        edit(finished, **record | {"warnings": [EVIL]})
        evil = finished.rename(tmp_path / "<script>alert(3)<b>.zarr")
        page, out = page_of(evil, color=tmp_path / "evil.npy", title=EVIL)
        check_closed(out.read_text())
        assert page.text.count("alert(1)") >= 7
        assert "{{ 7 * 7 }}" in page.text
        assert len(page.all("img")) == 1

    def test_other_files_are_not_overwritten(self, finished, tmp_path):
        (tmp_path / "notes.html").write_text("<h1>Notes</h1>")
        with pytest.raises(ExistingOutputError, match="not a report"):
            write_report(finished, tmp_path / "notes.html")
        with pytest.raises(ExistingOutputError, match="folder"):
            write_report(finished, tmp_path)
        with pytest.raises(MissingPathError):
            write_report(tmp_path / "absent.zarr")
        assert write_report(finished)["page"] == str(tmp_path / "run.html")

    def test_a_job_writes_its_report(self, tmp_path):
        without = job_of(tmp_path, "pca")
        assert "report" not in [name for name, _ in plan_job(without).stages]
        job = job_of(tmp_path, "pca", output='report = "page.html"')
        assert "report" in [name for name, _ in plan_job(job).stages]
        assert run_job(job)["finished"]
        page = (tmp_path / "page.html").read_text()
        assert "not finished" not in page
        assert run_job(job)["unchanged"]
        (tmp_path / "page.html").unlink()
        assert not run_job(job)["unchanged"]
        assert "reused" in (tmp_path / "page.html").read_text()

    def test_what_the_time_went_into_is_drawn_and_said(self, finished):
        record = json.loads((finished / RECORD).read_text())
        assert sum(bool(one["shares"]) for one in record["stages"]) > 3
        for one in record["stages"]:
            assert not one["shares"] or sum(one["shares"].values()) == pytest.approx(1, abs=0.003)
        shares = {"computing": 0.2, "reading": 0.71, "writing": 0.04, "waiting": 0.05}
        slowest = max(record["stages"], key=lambda one: one["seconds"])
        slowest["seconds"] = 1000.0
        for one in record["stages"]:
            one["shares"] = shares if one is slowest else {}
        edit(finished, stages=record["stages"])
        text = page_of(finished)[0].text
        assert "What the time went into" in text
        assert f"{slowest['name']}: 71 % reading: what it reads should lie on a quicker disk, or nearer." in text

    def test_slow_stages_are_those_that_took_much_time_for_one_reason(self):
        reading = {"computing": 0.3, "reading": 0.6, "writing": 0.1, "waiting": 0.0}
        even = dict.fromkeys(PARTS, 0.25)
        lines = [
            StageLine("search", "computed", seconds=50, shares=even),
            StageLine("solve", "computed", seconds=40, shares=reading, held=8),
            StageLine("graph", "reused", earlier=30, shares=dict(even, computing=0.0, waiting=0.5)),
            StageLine("short", "computed", seconds=1, shares=reading),
            StageLine("old", "computed", seconds=40),
        ]
        first, second = slow_stages(lines, "vectors of a solve: in files, since")
        assert first.startswith("solve: 60 % reading: its vectors lie in files")
        assert second.startswith("graph: 50 % waiting: its threads had no task")
        assert slow_stages(lines)[0].startswith("solve: 60 % reading: what it reads")
        waiting = StageLine("solve", "computed", seconds=9, shares=dict(even, reading=0.0, waiting=0.5), held=8)
        (found,) = slow_stages([waiting], "vectors of a solve: 8 B, in the memory of the coordinating process, which")
        assert found.startswith("solve: 50 % waiting: the coordinating process computes with its vectors in memory")
        assert slow_stages([]) == []

    def test_the_command(self, finished, tmp_path):
        def bigembed(*arguments):
            return CliRunner().invoke(app, ["report", *map(str, arguments)])

        done = bigembed(finished)
        assert done.exit_code == 0
        assert done.stdout.startswith(f"{tmp_path / 'run.html'}: 3,000 points, ")
        done = bigembed(
            finished, "--out", tmp_path / "b.html", "--title", "Seen <from> here", "--color", "column:1", "--json"
        )
        assert json.loads(done.stdout)["page"] == str(tmp_path / "b.html")
        page = Page((tmp_path / "b.html").read_text())
        assert "Seen <from> here" in page.text
        assert "column 1 of the input" in page.text
        for wrong in ((tmp_path / "absent",), (finished, "--color", "column:99"), (finished, "--out", tmp_path)):
            assert bigembed(*wrong).exit_code == 2


CHECKED = "Each coordinate is carried by many rows"


def ring(n=300, outlier=False):
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, n)
    rows = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.concatenate([rows, rows[:1] * 3]) if outlier else rows


def write(folder, rows, method="", count="n_components = 2"):
    folder.mkdir(exist_ok=True)
    np.save(folder / "rows.npy", rows)
    return job_file(folder, f'name = "diffusion_map"\n{count}\n{method}')


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


def verified(run):
    done = CliRunner().invoke(app, ["verify", str(run)])
    assert done.exit_code == 0
    return done.stdout


JUDGED = {
    "participation": [0.5, 0.4, 0.3], "rows_above_a_tenth": [900, 800, 700],
    "leading_rows": [[1, 2], [3, -1], [4, 5]], "carried_by_few": [False, False, False],
    "near_one": [False, False, True], "harmonic": [False, True, False], "harmonic_residual": [1.0, 0.123, 0.9],
    "sin_theta": [1e-6, 0.5, 0.5], "groups": [[1, 2]], "cut": True,
}  # fmt: skip


def made(folder, rows, method):
    folder.mkdir()
    np.save(folder / "rows.npy", rows)
    run_job(job_in(folder, method, output='picture = "map.png"\nreport = "page.html"'))
    return folder


@pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
class TestJudgement:
    """What the page of a diffusion map, and ``verify``, say of its coordinates: in words, amber where it is flagged."""

    @pytest.fixture
    def good(self, maps):
        return maps["good"]

    @pytest.fixture
    def bad(self, maps):
        return maps["bad"]

    def test_a_good_map_is_green_and_says_what_was_looked_at(self, good):
        page, _ = page_of(good)
        assert "without a warning" in page.text
        assert CHECKED in page.text
        assert not amber(page)
        assert "judgement" in page.ids()
        assert "Trustworthiness" in page.text
        assert not re.search("doubtful|warning", verified(good))

    def test_a_coordinate_of_one_row_is_amber_on_the_page_and_in_verify(self, bad):
        page, _ = page_of(bad)
        lines = RunSummary.read(bad).coordinates
        assert "300" in lines[0].cells[-1].text
        assert [cell.flagged for cell in lines[0].cells][4:] == [True, True, True]
        assert "passed" not in page.text
        assert CHECKED not in page.text
        assert "Single rows carry a coordinate" in page.text
        assert {"Participation", "Rows that carry it", "What it shows"} <= {
            attrs.get("data-name") for attrs in amber(page)
        }
        said = verified(bad)
        assert "warning: Single rows carry a coordinate" in said
        record = json.loads((bad / RECORD).read_text())
        for message in record["certificate"]["warnings"]["localized"]:
            assert f"    {message}" in said.splitlines()
        first = next(line for line in said.splitlines() if re.match(r" {8,}1 ", line))
        assert first.endswith("doubtful")

    def test_a_run_prints_the_figures_and_one_that_is_done_its_warnings_again(self, bad):
        record = json.loads((bad / RECORD).read_text())
        messages = record["certificate"]["warnings"]["localized"]
        short, repeated = certificate_lines(record), certificate_lines(record, repeated=True)
        assert any(line.startswith("  Trustworthiness: ") for line in short)
        assert any(line.startswith("  warning: Single rows carry a coordinate") for line in short)
        assert not {f"    {one}" for one in messages} & {*short}
        assert {f"    {one}" for one in messages} <= {*repeated}

    def test_flags_without_a_sentence_are_never_green(self, bad, tmp_path):
        record = json.loads((bad / RECORD).read_text())
        record["certificate"]["warnings"] = {}
        contents = RunSummary.read(bad)
        contents.record = record | {"warnings": []}
        assert any("amber cells" in message for one in warnings_of(contents) for message in one.messages)

    @pytest.mark.filterwarnings("ignore::bigembed.errors.BigembedWarning")
    def test_a_warning_stands_once(self, tmp_path):
        """Also where the run gave it after the name of the method, as one of several of a pipeline."""
        run = tmp_path / "run.zarr"
        np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(300, 40)))
        run_job(job_in(tmp_path, 'name = "pca"\nn_components = 2'))
        said = [text for texts in RunSummary.read(run).certificate["warnings"].values() for text in texts]
        edit(run, warnings=[*(f"PCA: {text}" for text in said), "PCA: something else"])
        page, _ = page_of(run)
        assert page.text.count("Trustworthiness is") == 1
        assert page.text.count("something else") == 1

    def test_islands_parts_and_the_number_of_coordinates_are_said(self, maps):
        run = maps["islands"]
        page, _ = page_of(run)
        assert "islands" in page.text
        assert "10 rows in 1 island" in page.text
        assert "Number of coordinates" in page.text
        assert re.search(r"Number of coordinates \d+: ", page.text)
        assert "Rows placed by their nearest row: 10" in verified(run)

    def test_each_flag_has_its_cell(self):
        lines = coordinate_lines({"judgement": JUDGED, "converged": False}, np.array([0.9, 0.8, 0.8]), np.full(3, 1e-3))
        flagged = [{name for name, cell in zip(HEADINGS, line.cells, strict=True) if cell.flagged} for line in lines]
        assert flagged[0] == {"Residual"}
        assert flagged[1] == {"Residual", "sin θ at most", "What it shows"}
        assert flagged[2] == {"1 − λ", "Residual", "sin θ at most", "What it shows"}
        assert lines[1].cells[-1].text == "a function of earlier ones (0.12 left); turned within 2–3"
        assert (
            lines[2].cells[-1].text == "parts that are all but cut off; turned within 2–3; cut from close ones left out"
        )
        assert coordinate_lines({}, None, None) == []
        assert map_figures({"unmeasured": "distances beyond float64"}) == []

    def test_the_page_of_a_map_that_descends_says_what_was_compared_and_shows_no_eigenvalues_of_its_start(
        self, tmp_path
    ):
        rows = np.random.default_rng(0).normal(size=(400, 3)) * [5, 3, 0.1]
        folder = made(tmp_path / "umap", rows, 'name = "umap"')
        page = Page((folder / "page.html").read_text())
        assert "Finished, without a warning" in page.text
        assert "is not among them" not in page.text
        assert "the map was compared with the rows. Trustworthiness of the map is" in page.text
        assert "coordinate 1 · λ" not in page.text
        assert "eigenvalues" not in page.ids()
        assert not [attrs for attrs in page.all("img") if "λ" in attrs["alt"]]

    def test_the_pair_that_shows_most_comes_first_on_the_page_and_in_the_picture(self, tmp_path, monkeypatch):
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
