"""The report in a browser: headless Chromium, offline, light and dark, wide and narrow. Skipped where there is none."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from bigembed.errors import ComponentsWarning
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import run_job
from tests.integration.browser import find_browser
from tests.job_files import job_in

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)")
]

CONTRAST = """(() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = parts(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const out = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || ["title", "desc"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = light(parts(element.ownerSVGElement ? style.fill : style.color)), paper = light(behind(element));
    const [low, high] = [Math.min(ink, paper), Math.max(ink, paper)];
    out.push([(high + 0.05) / (low + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return out;
})()"""
"""Contrast of every text on the page with what is behind it (WCAG 2), and the text."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with all that a page can have: warnings, several maps, a legend, curves, a stage that was reused."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(400, 5)), 60 + rng.normal(size=(30, 5))])
    np.save(folder / "rows.npy", rows)
    np.save(
        folder / "kind.npy",
        np.array(["<script>bad()</script>", "a rather long name of a class", "c"])[np.arange(430) % 3],
    )
    with pytest.warns(ComponentsWarning):
        run_job(job_in(folder, 'name = "diffusion_map"\nn_components = 4\ncomponents = "largest"'))
    write_report(folder / "run.zarr", folder / "page.html", color=folder / "kind.npy")
    return folder / "page.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_errors_and_no_requests(browser, page, scheme):
    browser.open(page, scheme)
    assert browser.complaints() == []
    assert all(url.startswith(("file://" + str(page), "data:")) for url in browser.requests())
    assert browser.requests()[0] == page.as_uri()
    assert browser.ask("document.scripts.length") == 0
    assert browser.ask("[...document.images].every((one) => one.complete && one.naturalWidth > 300)")
    assert browser.ask("document.images.length") == 6
    assert "<script>bad()</script>" in browser.ask("document.body.innerText")


def test_the_browser_is_seen_to_complain(browser, tmp_path):
    """What the test above relies on: a request, an error and a script are noticed."""
    (tmp_path / "bad.html").write_text('<img src="http://example.invalid/x.png"><script>missing()</script>')
    browser.open(tmp_path / "bad.html")
    assert any("example.invalid" in url for url in browser.requests())
    assert browser.complaints()
    assert browser.ask("document.scripts.length") == 1


def test_warnings_are_seen_first(browser, page):
    browser.open(page, height=700)
    top = browser.ask("document.querySelector('.note').getBoundingClientRect().bottom")
    assert 0 < top < 500
    assert browser.ask("document.querySelector('#map').getBoundingClientRect().top") > top


def test_both_schemes_differ(browser, page):
    means = []
    for scheme in ("light", "dark"):
        browser.open(page, scheme)
        image = Image.open(io.BytesIO(browser.screenshot(whole=False))).convert("L")
        means.append(float(np.asarray(image).mean()))
    assert means[0] > 215
    assert means[1] < 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser, page, scheme):
    browser.open(page, scheme)
    found = browser.ask(CONTRAST)
    assert len(found) > 150
    weak = [(round(ratio, 2), text) for ratio, text in found if ratio < 4.5]
    assert weak == []
    browser.ask("document.documentElement.style.setProperty('--soft', '#777777')")
    assert any(ratio < 4.5 for ratio, _ in browser.ask(CONTRAST))


@pytest.mark.parametrize("width", [320, 400, 768, 1400, 2400])
def test_nothing_overflows(browser, page, width):
    browser.open(page, width=width)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    right = "Math.max(...[...document.querySelectorAll('main *')].map((e) => e.getBoundingClientRect().right))"
    assert browser.ask(right) <= width + 1
    browser.ask("document.querySelector('h1').style.minWidth = '3000px'")
    assert browser.ask("document.documentElement.scrollWidth") > width


def test_it_prints(browser, page):
    browser.open(page)
    assert browser.call("Page.printToPDF", printBackground=False)["data"]
