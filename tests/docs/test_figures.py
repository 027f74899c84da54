"""The figures of the sources: the page has every picture that it names, and the command draws them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
pytestmark = pytest.mark.skipif(not FIGURES.exists(), reason="needs the repository, not only the package")


def test_the_page_and_its_pictures():
    text = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    named = re.findall(r"\(figures/(\w+\.png)\)", text)
    assert len(named) == len(set(named)) > 20
    assert set(named) == {path.name for path in FIGURES.glob("*.png")}
    assert len(re.findall(r"^(?:Seen|\*\*Not seen)\.", text, re.MULTILINE)) == len(named)
    assert "nan" not in text.lower().replace("finance", "")


@pytest.mark.slow
def test_the_command_draws_them_again(tmp_path):
    command = [sys.executable, str(FIGURES), "seed001", "seed004", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=None)
    assert done.returncode == 0, done.stderr
    verdicts = dict(line.split(": ") for line in done.stdout.splitlines())
    assert verdicts == {
        **dict.fromkeys(("seed001_ring", "seed001_complete", "seed001_two_rings"), "seen"),
        **dict.fromkeys(("seed001_shortcut", "seed004_1"), "not seen"),
    }
    assert {path.stem for path in tmp_path.glob("*.png")} == set(verdicts)
