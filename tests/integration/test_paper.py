"""The experiments of seed 004, as the commands that are documented, on few rows."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "paper"
ENVIRONMENT = "BIGEMBED_DATA"


def command(script: str, *words: str, out: Path) -> dict[str, list[dict[str, str]]]:
    """Run a script; its tables by name. Every table has a picture beside it."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
    subprocess.run([sys.executable, str(FOLDER / script), *words, "--out", str(out)], check=True, env=environment)
    for picture in out.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    return {path.stem: list(csv.DictReader(path.open(encoding="utf-8"))) for path in out.glob("*.csv")}


def folder_of(name: str) -> Path:
    """Where a data set lies, or a skipped test."""
    given = os.environ.get(ENVIRONMENT)
    if given is None or not (Path(given) / name).is_dir():
        pytest.skip(f"set {ENVIRONMENT} to a folder with {name}/ in it: bigembed downloads nothing")
    return Path(given) / name


@pytest.mark.slow
def test_swiss_roll(tmp_path: Path) -> None:
    tables = command("swiss_roll.py", "--n", "400", out=tmp_path)
    assert (tmp_path / "swiss_roll.png").exists()
    assert len(tables["swiss_roll_points"]) == 400
    first = {row["method"]: float(row["explained_by_pca"]) for row in tables["swiss_roll"] if row["scaling"] == "sqrt"}
    assert first["PCA"] == pytest.approx(1)
    assert 0.98 < first["LDM"] < 1 - 1e-6  # nearly the same picture, and not the same


@pytest.mark.parametrize("name", ["mnist", "coil20"])
def test_images(name: str, tmp_path: Path) -> None:
    words = (name, "--data", str(folder_of(name)), "--n", "1000", "--queries", "100")
    rows = command("images.py", *words, out=tmp_path)[name]
    assert (tmp_path / f"{name}.png").exists()
    recall = {int(row["d"]): float(row["recall_pca"]) for row in rows if row["pca_scaling"] == "sqrt"}
    assert recall[2] < recall[30] < recall[max(recall)]
    assert recall[max(recall)] > 0.95  # all coordinates: the distances themselves


def test_hybrid_search(tmp_path: Path) -> None:
    words = ("--data", str(folder_of("mnist")), "--n", "500", "--order", "60", "--direct")
    rows = command("hybrid.py", *words, out=tmp_path)["hybrid"]
    found = {(row["ordered_by"], int(row["candidates"])): float(row["recall"]) for row in rows}
    assert found["direct search", 499] == 1.0
    assert found["pixels", 160] > 0.99 > found["pixels", 20] > found["the same 30 coordinates", 20] + 0.1
