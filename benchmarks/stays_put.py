"""Twelve nights of a map that grows: how far its rows move each night, beside maps from nothing.

    python benchmarks/stays_put.py
    python benchmarks/stays_put.py --data sample_masscyt.fcs

The rows are drawn, or the 25 000 cells of 13 markers of Wishbone's sample. Every night 5 % more rows are appended and
the job is refreshed: by default, and with ``[output] align = false``, which makes each map from nothing. Written are
``results/nights/stays_put.json``, night by night, and, with ``--pictures``, a picture of the twelve maps side by
side, those that stay put above those from nothing. Of each night: the median movement of the rows that were there, as
a share of the diameter of the map; trustworthiness and the share of neighbors kept (preservation), with their
standard errors, of both maps; and whether the quality of the map that stays is within two standard errors (of the
difference) of the one from nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from common import table

import bigembed as be
from bigembed.jobs.growth import open_growth
from bigembed.jobs.growth.frames import MovementLimits
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.spec import parse_job
from bigembed.rows.appending import append_rows
from bigembed.store.arrays import write_array

matplotlib.use("Agg")
NIGHTS, SHARE = 12, 0.05
METHODS: dict[str, dict[str, Any]] = {
    "umap": {},
    "tsne": {},
    "diffusion_map": {"n_components": 2, "n_neighbors": 30},
}
FIGURES = ("trustworthiness", "preservation")
CELLS = 25_000, 13, 1024


def rows_of(data: str | None, n: int) -> np.ndarray:
    """The rows in a drawn order: cells, or groups along curves of unequal density."""
    random = np.random.default_rng(0)
    if data is not None:
        count, d, offset = CELLS
        cells = np.frombuffer(Path(data).read_bytes(), "<f8", count * d, offset).reshape(count, d)
        return cells[random.permutation(count)[:n]].astype(np.float32)
    group, t = random.choice(8, n, p=np.arange(1, 9) / 36), random.beta(1, 2, n)
    ends = random.normal(size=(2, 8, 12)) * 4
    curve = ends[0, group] * (1 - t)[:, None] + ends[1, group] * t[:, None] + 3 * np.sin(3 * t)[:, None]
    return (curve + random.normal(size=(n, 12)) * 0.5).astype(np.float32)


def quality(version: Any) -> dict[str, dict[str, float]]:
    """Figures of the map, with standard errors, from its certificate."""
    judged = be.load(version.model).certificate_["judgement"]["map"]
    return {name: {key: float(judged[name][key]) for key in ("value", "standard_error")} for name in FIGURES}


def nights(method: str, rows: np.ndarray, home: Path, align: bool) -> dict[str, Any]:
    """Refresh after every night; what is known of each map, and its coordinates."""
    counts = [int(len(rows) / (1 + SHARE) ** night) for night in range(NIGHTS, -1, -1)]
    home.mkdir(parents=True)
    write_array(home / "rows.zarr", rows[: counts[0]], chunk_rows=4096)
    tables = {
        "input": {"path": "rows.zarr"},
        "method": {"name": method, **METHODS[method]},
        "output": {"path": "out.zarr", "align": align},
    }
    job, found, maps = parse_job(tables, home / "job.toml"), [], []
    for night, n in enumerate(counts):
        if night:
            append_rows(home / "rows.zarr", rows[counts[night - 1] : n])
        began = processor()
        made = refresh(job, limits=MovementLimits(moved=9.0, drift=9.0))
        version = open_growth(home / "out.zarr").current
        spent = round(processor() - began, 2)
        found.append({"rows": n, "seconds": spent, "quality": quality(version), "frame": made.get("frame", {})})
        maps.append(version.coordinates.compute())
    for night in range(1, len(counts)):
        found[night]["moved"] = moved(maps[night - 1], maps[night])
    return {"nights": found, "maps": maps}


def processor() -> float:
    """Processor seconds of this process and of those that it has started and ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def moved(old: np.ndarray, new: np.ndarray) -> dict[str, float]:
    """How far rows moved, measured here: quantiles over the diameter, twice what 99 % of the rows are from the mean."""
    diameter = 2 * np.quantile(np.linalg.norm(old - old.mean(axis=0), axis=1), 0.99)
    lengths = np.linalg.norm(new[: len(old)] - old, axis=1) / diameter
    return {str(q): round(float(np.quantile(lengths, q)), 5) for q in (0.5, 0.9, 0.99)}


def held(stays: dict[str, Any], anew: dict[str, Any]) -> dict[str, bool]:
    """Whether each figure of the map that stays is no less than two standard errors of the difference below."""
    out = {}
    for name in FIGURES:
        one, other = stays["quality"][name], anew["quality"][name]
        error = np.hypot(one["standard_error"], other["standard_error"])
        out[name] = bool(one["value"] >= other["value"] - 2 * error)
    return out


def draw(method: str, stays: list[np.ndarray], anew: list[np.ndarray], out: Path) -> None:
    """The maps of the nights, coloured by where the rows lie on the first one that stays."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 6, figsize=(24, 16))
    first, last = stays[0], stays[-1][:, :2]
    lower, upper = last.min(axis=0), last.max(axis=0)
    limits = np.stack([lower, upper]) + 0.05 * np.outer([-1, 1], upper - lower)
    shown = np.arange(0, len(first), max(1, len(first) // 6000))
    angle = np.arctan2(*(first[shown, :2] - first[:, :2].mean(axis=0)).T)
    size = np.linalg.norm(first[shown, :2] - first[:, :2].mean(axis=0), axis=1)
    color = matplotlib.colormaps["twilight"]((angle + np.pi) / (2 * np.pi))
    color[:, :3] *= (0.45 + 0.55 * size / size.max())[:, None]
    for row, (maps, name) in enumerate(((stays, "stays put"), (anew, "from nothing"))):
        for night in range(1, NIGHTS + 1):
            axis = axes[2 * row + (night - 1) // 6, (night - 1) % 6]
            axis.scatter(*maps[night][shown, :2].T, s=2, c=color, linewidths=0)
            if row == 0:
                axis.set(xlim=limits[:, 0], ylim=limits[:, 1])
            axis.set(title=f"{method}, {name}, night {night}", xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(out, dpi=60)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the file of cells; without it rows are drawn")
    parser.add_argument("--rows", type=int, default=CELLS[0], help="rows after the last night")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--pictures", type=Path, help="folder of the pictures; by default none")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "nights" / "stays_put.json")
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = rows_of(asked.data, asked.rows)
    summary: dict[str, dict[str, Any]] = {}
    found = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for method in asked.methods:
        home = Path(tempfile.mkdtemp(prefix="stays-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stays, anew = (nights(method, rows, home / name, name == "stays") for name in ("stays", "anew"))
        shutil.rmtree(home)
        for one, other in zip(stays["nights"], anew["nights"], strict=True):
            one["held"] = held(one, other)
        halves = {name: [night["moved"]["0.5"] for night in one["nights"][1:]] for name, one in
                  (("stays", stays), ("anew", anew))}  # fmt: skip
        kept = {name: sum(night["held"][name] for night in stays["nights"][1:]) for name in FIGURES}
        totals = [sum(night["seconds"] for night in one["nights"][1:]) for one in (stays, anew)]
        key = f"{method} of {'cells' if asked.data else 'drawn rows'}, {len(rows)} rows"
        found[key] = {
            "rows": len(rows),
            "median movement, largest of the nights": max(halves["stays"]),
            "the same from nothing": max(halves["anew"]),
            "nights with quality held": kept,
            "processor seconds": {"stays": round(totals[0], 1), "from nothing": round(totals[1], 1)},
            "stays": stays["nights"],
            "from nothing": anew["nights"],
        }
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
        last = [one["nights"][-1]["quality"] for one in (stays, anew)]
        summary[method] = {
            "moved": max(halves["stays"]),
            "moved from nothing": max(halves["anew"]),
            **{name: " / ".join(f"{one[name]['value']:.4f}±{one[name]['standard_error']:.4f}" for one in last)
               for name in FIGURES},
            "held": "/".join(f"{kept[name]}" for name in FIGURES),
            "seconds": " / ".join(f"{total:.0f}" for total in totals),
        }  # fmt: skip
        if asked.pictures:
            asked.pictures.mkdir(parents=True, exist_ok=True)
            draw(method, stays["maps"], anew["maps"], asked.pictures / f"stays_put_{method}.png")
    table("stays_put", {"data": "cells" if asked.data else "drawn", "n": len(rows)}, summary)


if __name__ == "__main__":
    main()
