"""The page of every row in a browser: headless Chromium, from a file and from a web server. Skipped without one."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bigembed as be
from tests.integration.browser import Browser, find_browser
from tests.view_folder import Folder

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"),
]

N = 120_000
CORNER = "(() => { const b = panes[0].over.getBoundingClientRect(); return [b.left, b.top]; })()"
"""Where the first map begins on the screen."""
SETTLED = "panes.length && panes.every((pane) => !pane.waiting && pane.complete === true)"
SAVED = "saved = '', URL.createObjectURL = (blob) => { blob.text().then((text) => { saved = text; }); return '#'; }"
RIGHT = """Math.max(...[...document.querySelectorAll('header *, main *')].filter((one) => one.offsetParent)
  .map((one) => one.getBoundingClientRect().right))"""
BOX = "[...panes[0].chart.toData(...panes[0].box.slice(0, 2)), ...panes[0].chart.toData(...panes[0].box.slice(2))]"
"""Left, top, right and low of what is in view, in coordinates."""
EVIL = '"><img src=x onerror="window.bad=1"></script><script>window.bad=1</script>'


def table() -> tuple[np.ndarray, dict[str, Any], list[str]]:
    rng = np.random.default_rng(5)
    group = rng.integers(0, 6, N)
    points = rng.normal(size=(N, 2)) + 12 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]])[group]
    columns = {"value": points[:, 0] + rng.normal(size=N), "group": np.array([EVIL, *"abcde"])[group]}
    return points, columns, [f"id {row} <b>" for row in range(N)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    points, columns, ids = table()
    out = tmp_path_factory.mktemp("view") / "page"
    be.view(points, out, columns={**columns, EVIL: columns["value"]}, ids=ids, title=EVIL)
    return out / "index.html"


@pytest.fixture(scope="module")
def graph_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(900, 5)) + 6 * np.eye(5)[rng.integers(0, 5, 900)]
    out = tmp_path_factory.mktemp("graph") / "page"
    be.UMAP(n_neighbors=10, n_epochs=50).fit(rows).view(out, columns={"kind": rows[:, 0]})
    return out / "index.html"


@pytest.fixture(scope="module")
def server(page: Path) -> Iterator[str]:
    """A plain web server of the folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=page.parent)) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}/index.html"
        served.shutdown()


def until(browser: Browser, expression: str, seconds: float = 30) -> Any:
    """The value of an expression, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := browser.ask(expression)):
        assert time.monotonic() < end, expression
        time.sleep(0.02)
    return found


def start(browser: Browser, page: Path, *given: Any, **known: Any) -> None:
    """Load a page, and wait until all that is in view is drawn."""
    browser.open(page, *given, **known)
    settled(browser)


def settled(browser: Browser) -> None:
    until(browser, f"typeof panes !== 'undefined' && {SETTLED}")


def press(browser: Browser, key: str, text: str = "") -> None:
    codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
    known = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
    text = text or ("\r" if key == "Enter" else key if len(key) == 1 else "")
    browser.call("Input.dispatchKeyEvent", type="keyDown", **known, **({"text": text} if text else {}))
    browser.call("Input.dispatchKeyEvent", type="keyUp", **known)


def mouse(browser: Browser, kind: str, x: float, y: float, **known: Any) -> None:
    browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **known)


def click(browser: Browser, x: float, y: float) -> None:
    for kind in ("mousePressed", "mouseReleased"):
        mouse(browser, kind, x, y, button="left", clickCount=1)


def search(browser: Browser, text: str) -> None:
    """Type into the field, and press Enter."""
    browser.ask("(document.getElementById('find').focus(), document.getElementById('find').select())")
    browser.call("Input.insertText", text=text)
    press(browser, "Enter")


def on_screen(browser: Browser) -> tuple[float, float]:
    """Where the row is that is marked, on the screen."""
    found = browser.ask(
        "(() => { const p = panes[0], s = p.pin, b = p.over.getBoundingClientRect();"
        " const [x, y] = p.toScreen(s.points.x[s.i], s.points.y[s.i]); return [x + b.left, y + b.top]; })()"
    )
    return float(found[0]), float(found[1])


class TestFirstSight:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_no_errors_and_nothing_from_elsewhere(self, browser: Browser, page: Path, scheme: str) -> None:
        start(browser, page, scheme)
        assert browser.complaints() == []
        home = page.parent.as_uri()
        assert all(url.startswith((home, "data:")) for url in browser.requests())
        assert browser.ask("panes[0].mode") == "tiles"

    def test_little_is_read_before_it_paints(self, browser: Browser, page: Path) -> None:
        """What is read for the first picture does not grow with the rows: some tens of tiles."""
        start(browser, page)
        tiles = [url for url in browser.requests() if "/t/" in url]
        sizes = [Path(url.removeprefix("file://")).stat().st_size for url in tiles]
        assert 1 < len(tiles) <= 60
        assert sum(sizes) < 6 << 20

    def test_the_density_is_that_of_the_rows(self, browser: Browser, page: Path) -> None:
        """Where there are no rows the plate shows, and where there are many it does not."""
        start(browser, page)
        image = np.asarray(Image.open(io.BytesIO(browser.screenshot(False))).convert("L")).astype(int)
        box = browser.ask(CORNER)
        for point, rows in (((0, 0), True), ((12, 12), True), ((6, 6), False), ((18, 6), False)):
            x, y = browser.ask(f"panes[0].toScreen(...panes[0].chart.toSquare({point[0]}, {point[1]}))")
            part = image[round(y + box[1]) - 4 : round(y + box[1]) + 5, round(x + box[0]) - 4 : round(x + box[0]) + 5]
            assert (part.mean() < 150) == rows, point


class TestRowsOfThePage:
    def test_search_finds_and_the_pointer_names_the_right_row(self, browser: Browser, page: Path) -> None:
        """50 rows drawn at random, against the table: found by id, and then named under the pointer."""
        points, columns, ids = table()
        start(browser, page)
        for row in np.random.default_rng(1).integers(0, N, 50).tolist():
            search(browser, ids[row])
            name = json.dumps(ids[row])
            until(browser, f"document.getElementById('pinned')?.textContent === {name}")
            browser.ask("panes[0].magnify(400)")
            settled(browser)
            browser.ask("panes[0].goTo(panes[0].pin.points.x[panes[0].pin.i], panes[0].pin.points.y[panes[0].pin.i])")
            settled(browser)
            x, y = on_screen(browser)
            mouse(browser, "mouseMoved", x + 2, y + 1)
            tip = browser.ask("panes[0].tip.hidden ? '' : panes[0].tip.innerText")
            assert ids[row] in tip.split("\n")[0]
            assert f"row: {row:,}" in tip
            assert f"group: {columns['group'][row]}" in tip
            side = browser.ask("[...document.querySelectorAll('#side-row dd')].map((one) => one.textContent)")
            assert float(side[1].replace(",", "")) == pytest.approx(columns["value"][row], rel=1e-3)
            assert [float(one) for one in side[-2:]] == pytest.approx(points[row].tolist(), rel=2e-3, abs=2e-3)
        assert browser.complaints() == []

    def test_a_click_draws_the_nearest_rows(self, browser: Browser, graph_page: Path) -> None:
        start(browser, graph_page)
        search(browser, "123")
        until(browser, "panes[0].lines.length === 9 || panes[0].lines.length === 10")
        folder = Folder(graph_page.parent)
        places = folder.places()
        steps = folder.neighbors("")[places[123]]
        expected = [int(np.argsort(places)[places[123] + step]) for step in steps if step]
        assert browser.ask("panes[0].lines.map((spot) => spot.points.rows[spot.i])") == expected
        before = on_screen(browser)
        click(browser, *before)
        assert until(browser, "panes[0].pin && panes[0].pin.points.rows[panes[0].pin.i]") in (123, *range(900))
        until(browser, "document.querySelectorAll('#side-row li').length > 5")
        browser.ask("document.querySelector('#side-row li button').click()")
        until(browser, f"panes[0].pin.points.rows[panes[0].pin.i] !== 123 || {expected[0]} === 123")
        assert browser.complaints() == []

    def test_text_that_tries_to_run_does_nothing(self, browser: Browser, page: Path) -> None:
        start(browser, page)
        assert browser.ask("document.title") == EVIL
        browser.ask("(section.layer.value = 'group', section.layer.onchange())")
        settled(browser)
        assert EVIL in until(browser, "document.getElementById('classes')?.innerText")
        search(browser, "id 5 <b>")
        until(browser, "document.getElementById('pinned')?.textContent === 'id 5 <b>'")
        browser.ask("(section.layer.value = section.layer.options[3].value, section.layer.onchange())")
        settled(browser)
        assert browser.ask("window.bad") is None
        assert browser.ask("document.querySelectorAll('img, main script').length") == 0
        assert browser.complaints() == []


class TestSelection:
    def test_a_lasso_counts_what_is_inside(self, browser: Browser, page: Path) -> None:
        points, columns, _ = table()
        start(browser, page)
        browser.ask("document.getElementById('lasso').click()")
        box = browser.ask(CORNER)
        corners = [(8.0, -4.0), (16.0, -4.0), (16.0, 4.0), (8.0, 4.0)]
        pixels = [browser.ask(f"panes[0].toScreen(...panes[0].chart.toSquare({x}, {y}))") for x, y in corners]
        mouse(browser, "mousePressed", pixels[0][0] + box[0], pixels[0][1] + box[1], button="left", clickCount=1)
        for x, y in pixels[1:]:
            mouse(browser, "mouseMoved", x + box[0], y + box[1], button="left", buttons=1)
        mouse(browser, "mouseReleased", pixels[-1][0] + box[0], pixels[-1][1] + box[1], button="left", clickCount=1)
        until(browser, "state.selection && state.selection.done")
        drawn = browser.ask("state.selection.area.corners.map(([x, y]) => panes[0].chart.toData(x, y))")
        (low, high), (left, right) = [(min(c[a] for c in drawn), max(c[a] for c in drawn)) for a in (1, 0)]
        inside = (points[:, 0] > left) & (points[:, 0] < right) & (points[:, 1] > low) & (points[:, 1] < high)
        count = browser.ask("state.selection.count")
        assert abs(count - int(inside.sum())) <= 30
        bars = browser.ask("state.selection.bars[1]")
        names = Folder(page.parent).columns[1]["classes"]
        expected = [int(np.count_nonzero(columns["group"][inside] == name)) for name in names]
        assert max(abs(a - b) for a, b in zip(bars, expected, strict=True)) <= 30
        assert f"{count:,} rows" in browser.ask("document.getElementById('selected').textContent")
        assert browser.ask("document.querySelectorAll('#side-selection canvas').length") == 3

    def test_what_is_selected_is_saved_as_csv(self, browser: Browser, tmp_path: Path) -> None:
        be.view(np.array([[0.0, 0], [1, 1], [5, 5]]), tmp_path / "page", ids=["=1+1", 'a"b,', "far"])
        start(browser, tmp_path / "page/index.html")
        browser.ask(f"window.{SAVED}")
        browser.ask("(select(panes[0], [[-1, 0.5], [0.6, 0.5], [0.6, 2], [-1, 2]]), 1)")
        until(browser, "state.selection.done")
        browser.ask("(saveRows(state.selection), 1)")
        head, *lines = until(browser, "saved").splitlines()
        assert head == "id,row"
        assert sorted(lines) == ['"a""b,",1', "'=1+1,0"]


class TestHands:
    def test_keyboard_alone(self, browser: Browser, page: Path) -> None:
        points, _, _ = table()
        start(browser, page)
        for _ in range(12):
            press(browser, "Tab")
            if browser.ask("document.activeElement === panes[0].over"):
                break
        assert browser.ask("document.activeElement === panes[0].over")
        before = browser.ask("[panes[0].view.x, panes[0].view.y, panes[0].zoom]")
        for key in ("ArrowRight", "ArrowUp", "+", "+", "+", "+", "+", "+", "+", "+"):
            press(browser, key)
        settled(browser)
        after = browser.ask("[panes[0].view.x, panes[0].view.y, panes[0].zoom]")
        assert after[0] > before[0]
        assert after[1] < before[1]
        assert after[2] > before[2] + 4
        press(browser, "s")
        until(browser, "state.selection && state.selection.done")
        left, top, right, low = browser.ask(BOX)
        inside = (points[:, 0] > left) & (points[:, 0] < right) & (points[:, 1] > low) & (points[:, 1] < top)
        assert abs(browser.ask("state.selection.count") - int(inside.sum())) <= 3
        press(browser, "Escape")
        assert browser.ask("state.selection") is None
        press(browser, "0")
        settled(browser)
        search(browser, "id 9 <b>")
        until(browser, "document.getElementById('pinned')?.textContent === 'id 9 <b>'")
        browser.ask("panes[0].over.focus()")
        for _ in range(14):
            press(browser, "+")
        settled(browser)
        press(browser, "Enter")
        assert until(browser, "panes[0].pin && panes[0].pin.points.rows[panes[0].pin.i]") == 9

    def test_on_a_telephone(self, browser: Browser, page: Path) -> None:
        start(browser, page, width=390, height=780, scale=2)
        browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        assert browser.ask(RIGHT) <= 391
        assert browser.ask("panes[0].width") == 390
        assert browser.ask("panes[0].height") > 250
        search(browser, "id 42 <b>")
        until(browser, "document.getElementById('pinned')?.textContent === 'id 42 <b>'")
        browser.ask("(panes[0].magnify(300), clear(), 1)")
        settled(browser)
        box = browser.ask(CORNER)
        spot = browser.ask("panes[0].toScreen(panes[0].shown[0].parts[0].x[0], panes[0].shown[0].parts[0].y[0])")
        browser.ask(f"(panes[0].move({195 - spot[0]}, {150 - spot[1]}), 1)")
        settled(browser)
        row = browser.ask("(() => { const s = panes[0].nearest(195, 150); return s && s.points.rows[s.i]; })()")
        browser.call(
            "Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": 195 + box[0], "y": 150 + box[1]}]
        )
        browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        assert until(browser, "panes[0].pin ? 1 + panes[0].pin.points.rows[panes[0].pin.i] : 0") == 1 + row
        zoom = browser.ask("panes[0].zoom")
        for kind, gap in (("touchStart", 40), ("touchMove", 60), ("touchMove", 120), ("touchEnd", 0)):
            fingers = [{"x": 195 - gap, "y": 150 + box[1], "id": 0}, {"x": 195 + gap, "y": 150 + box[1], "id": 1}]
            browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers if gap else [])
        assert until(browser, "panes[0].zoom") > zoom + 1
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
        assert browser.complaints() == []


def test_choices_of_what_is_shown(browser: Browser, tmp_path: Path) -> None:
    """Coordinates, layer, what of a pixel, and scale: each changes the picture, and the legend says what it is."""
    rows = np.random.default_rng(0).normal(size=(400, 3)) * [1, 2, 4]
    be.view(rows, tmp_path / "page", columns={"value": rows[:, 2] ** 3, "kind": np.arange(400) % 3})
    start(browser, tmp_path / "page/index.html")
    browser.ask("(panes[0].magnify(1.5, 10, 10), panes[0].fit(), panes[0].moved(), 1)")
    until(browser, "location.hash")
    settled(browser)
    seen = [browser.screenshot(False)]
    for control, value, legend in (
        ("layer", "kind", "2 (133)"), ("statistic", "1", "100 % of a pixel"), ("layer", "value", "value"),
        ("scale", "magma", "value"), ("scale", "viridis=", "value"), ("pair", "2", "value"),
    ):  # fmt: skip
        browser.ask(f"(section.{control}.value = '{value}', section.{control}.onchange(), 1)")
        settled(browser)
        assert legend in browser.ask("document.getElementById('side-legend').innerText")
        seen.append(browser.screenshot(False))
    assert len(set(seen)) == len(seen)
    assert browser.ask("section.pair.options[2].textContent") == "coordinates 2 × 3"
    before = browser.ask("(fitted = [panes[0].view.x, panes[0].view.y], panes[0].fit(), fitted)")
    assert before == pytest.approx(browser.ask("[panes[0].view.x, panes[0].view.y]"))  # (the place is none of before)
    address = until(browser, "location.hash.endsWith('value,2') && location.hash")
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=(tmp_path / "page/index.html").as_uri() + address)
    until(browser, "typeof panes !== 'undefined' && panes[0]?.complete === true && state.pair === 2")
    assert browser.ask("[panes[0].chart.about.axes.join(), look.layer]") == ["coordinate 2,coordinate 3", "value"]
    assert browser.complaints() == []


def test_nearest_rows_are_marked_on_both_maps(browser: Browser, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 3))
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "one.npy", rows[:, :2])
    np.save(tmp_path / "two.npy", rows[:, 1:])
    be.view(tmp_path / "one.npy", tmp_path / "page", beside=tmp_path / "two.npy", rows=tmp_path / "rows.npy")
    start(browser, tmp_path / "page/index.html")
    search(browser, "#5")
    lines = "panes.map((pane) => pane.lines.map((one) => one.points.rows[one.i]))"
    until(browser, "panes.every((pane) => pane.lines.length === 10)")
    expected = np.argsort(np.linalg.norm(rows - rows[5], axis=1))[1:11].tolist()
    assert browser.ask(lines) == [expected, expected]
    assert browser.complaints() == []
