"""A table with holes, from CSV to a map with ids, by one job with steps; beside pandas and scikit-learn in memory.

    python benchmarks/steps.py --n 3000000 --folder bench-data --map

The table has a column of names, one of kinds (text) and ``--d`` of other scales (normal, skewed, whole numbers); 3 %
of its rows miss a value. Sides: the job (missing, one_hot, standardize, pca) with two workers of ``--memory``; the same
by pandas and scikit-learn, which hold the table; the same job killed with SIGKILL while each step works, and resumed
until it ends. Coordinates of the two sides are compared up to signs, those of the resumed job with the first by their
bytes, and ``extend`` of the table with ``transform`` of the loaded model. ``--map``: also a diffusion map after the
same steps with one worker of ``--map-memory`` (the plan of 3·10⁶ rows says 1.4 GiB in all), killed in each of them and
in stages of the map, and new rows by ``extend`` and by ``transform``. ``--once``: each job once, without the other side
and without kills.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import clear, peak_of, table

PIECE = 100_000
STEPS = """
[[steps]]
name = "missing"
[[steps]]
name = "one_hot"
columns = ["kind"]
[[steps]]
name = "standardize"
[[steps]]
name = "pca"
n_components = {m}
"""
PEER = """
import json, sys, time
import numpy as np, pandas as pd
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
began = time.perf_counter()
rows = pd.get_dummies(pd.read_csv(sys.argv[1], index_col=0).dropna(), columns=["kind"], dtype=float)
found = make_pipeline(StandardScaler(), PCA({m})).fit_transform(rows)
np.save(sys.argv[2], found)
print(json.dumps({{"seconds": time.perf_counter() - began}}))
"""
KINDS = ("ash", "elm", "oak", "yew")
STEPS_OF_ALL = ("step1-missing", "step2-one_hot", "step3-standardize")


def written(path: Path, n: int, d: int, seed: int = 0) -> Path:
    """The table, once."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    mixing, random = np.random.default_rng(0).normal(size=(6, d)), np.random.default_rng([seed, 1])
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write("name,kind," + ",".join(f"c{number}" for number in range(d)) + "\n")
        for start in range(0, n, PIECE):
            rows = random.normal(size=(min(PIECE, n - start), 6)) @ mixing + 0.1 * random.normal(size=(1, d))
            rows[:, 1::3] = np.exp(rows[:, 1::3])
            rows[:, 2::3] = np.round(100 * rows[:, 2::3])
            holes = random.random(rows.shape) < 0.03 / d
            kinds = random.choice(KINDS, len(rows)).tolist()
            for number, (kind, row, hole) in enumerate(zip(kinds, rows.tolist(), holes, strict=True), start):
                cells = ["" if one else f"{value:.6g}" for value, one in zip(row, hole, strict=True)]
                file.write(f"p{number},{kind},{','.join(cells)}\n")
    partial.rename(path)
    return path


def job_file(folder: Path, rows: Path, name: str, method: str, given: argparse.Namespace) -> Path:
    """A job with the steps."""
    last, steps, m = STEPS.rpartition("[[steps]]")[2], STEPS.format(m=given.m), given.m
    workers, memory = (2, given.memory) if method == "pca" else (1, given.map_memory)
    chosen = f'name = "{method}"' if method != "pca" else last.format(m=m).strip()
    steps = steps if method != "pca" else STEPS.rpartition("[[steps]]")[0]
    text = f'[input]\npath = "{rows.absolute()}"\nids = "name"\n{steps}\n[method]\n{chosen}\n[output]\n'
    text += f'path = "{name}.zarr"\nmodel = "{name}-model.zarr"\n[cluster]\nworkers = {workers}\nmemory = "{memory}"\n'
    path = folder / f"{name}.toml"
    path.write_text(text)
    for place in folder.glob(f"{name}[-.]*"):
        if place != path:
            clear(str(place))
    return path


def run(*arguments: str) -> tuple[dict[str, Any], float, int]:
    """The result of a command, its seconds, its peak of memory: of all its processes."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    peak = peak_of(process.pid)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{arguments}: {out.decode()[-2000:]}")
    return json.loads(out.splitlines()[-1]), time.perf_counter() - began, peak()


def killed(job: Path, step: str) -> None:
    """Start the job, and kill it as soon as this stage works."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bigembed.cli", "run", str(job), "--json"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if str(event.get("stage", "")).startswith(step):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()


def coordinates(run_path: Path) -> np.ndarray:
    """Of a finished run."""
    from bigembed.store.arrays import read_array

    return read_array(run_path / "stages" / "coordinates" / "embedding")


def resumed(
    folder: Path, rows: Path, method: str, given: argparse.Namespace, expected: np.ndarray, stages: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """The job killed in each step, and in these stages after them, and then run to its end."""
    found = {}
    for stage in (*STEPS_OF_ALL, *stages):
        job = job_file(folder, rows, "killed", method, given)
        killed(job, stage)
        _, seconds, peak = run("-m", "bigembed.cli", "run", str(job), "--json")
        same = bool(np.array_equal(coordinates(folder / "killed.zarr"), expected))
        known = {"seconds_after": seconds, "peak_GiB": peak / 2**30, "same_bytes": same}
        found[f"{method} killed in {stage}"] = known
    return found


def mapped(folder: Path, rows: Path, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """A diffusion map after the steps, killed and resumed; new rows by the command and by the loaded model."""
    import bigembed as be

    job = job_file(folder, rows, "steps-map", "diffusion_map", given)
    said, seconds, peak = run("-m", "bigembed.cli", "run", str(job), "--json")
    found: dict[str, dict[str, Any]] = {"map": {"seconds": seconds, "peak_GiB": peak / 2**30, "n": said["n"]}}
    expected = coordinates(folder / "steps-map.zarr")
    if not given.once:
        found |= resumed(folder, rows, "diffusion_map", given, expected, ("step4-pca", "search", "solve"))
    new, out = written(folder / f"new-d{given.d}.csv", 2_000, given.d, seed=1), folder / "steps-map-new.zarr"
    clear(str(out))
    model = folder / "steps-map-model.zarr"
    _, seconds, peak = run("-m", "bigembed.cli", "extend", str(model), str(new), str(out), "--json")
    import pandas as pd

    placed, frame = be.open_array(out).compute(), pd.read_csv(new, index_col=0)
    same = bool(np.array_equal(placed, np.asarray(be.load(model).transform(frame)), equal_nan=True))
    empty = bool(np.array_equal(np.isnan(placed).any(axis=1), frame.isna().any(axis=1)))
    found["map, new rows"] = {"seconds": seconds, "peak_GiB": peak / 2**30, "same_bytes": same, "left_out": empty}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=3_000_000)
    parser.add_argument("--d", type=int, default=24)
    parser.add_argument("--m", type=int, default=6)
    parser.add_argument("--memory", default="750 MiB")
    parser.add_argument("--map", action="store_true")
    parser.add_argument("--map-memory", default="1 GiB")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--folder", default="bench-data")
    given = parser.parse_args()
    folder = Path(given.folder)
    rows = written(folder / f"holes-n{given.n}-d{given.d}.csv", given.n, given.d)
    found: dict[str, dict[str, Any]] = {}

    job = job_file(folder, rows, "steps", "pca", given)
    said, seconds, peak = run("-m", "bigembed.cli", "run", str(job), "--json")
    mine = coordinates(folder / "steps.zarr")
    found["job"] = {"seconds": seconds, "peak_GiB": peak / 2**30, "planned_GiB": said["predicted"]["total"] / 2**30}
    if not given.once:
        found |= beside(folder, rows, given, found["job"], mine)
        found |= resumed(folder, rows, "pca", given, mine, ("coordinates",))

    clear(str(folder / "steps-new.zarr"))
    arguments = [str(folder / name) for name in ("steps-model.zarr", rows.name, "steps-new.zarr")]
    _, seconds, peak = run(
        "-m", "bigembed.cli", "extend", *arguments, "--workers", "2", "--memory", given.memory, "--json"
    )
    import bigembed as be

    model, new = be.load(folder / "steps-model.zarr"), be.open_array(folder / "steps-new.zarr")
    kept = new[~np.isnan(new).any(axis=1)].compute()
    found["extend"] = {"seconds": seconds, "peak_GiB": peak / 2**30, "same_bytes": bool(np.array_equal(kept, mine))}
    found["extend"]["steps"] = len(model.steps_)
    if given.map:
        found |= mapped(folder, rows, given)
    table("steps", {"n": given.n, "d": given.d, "m": given.m}, found)


def beside(
    folder: Path, rows: Path, given: argparse.Namespace, job: dict[str, Any], mine: np.ndarray
) -> dict[str, dict[str, Any]]:
    """The same by pandas and scikit-learn, and how far the coordinates are apart."""
    _, seconds, peak = run("-c", PEER.format(m=given.m), str(rows), str(folder / "steps-peer.npy"))
    theirs = np.load(folder / "steps-peer.npy", mmap_mode="r")
    signs = np.sign(np.einsum("ij,ij->j", mine[:1000], theirs[:1000]))
    apart = max(np.abs(mine[i : i + PIECE] * signs - theirs[i : i + PIECE]).max() for i in range(0, len(mine), PIECE))
    there = {"seconds": seconds, "peak_GiB": peak / 2**30, "rows": len(theirs), "apart": float(apart)}
    return {"in memory": there, "ratio": {name: job[name] / there[name] for name in ("seconds", "peak_GiB")}}


if __name__ == "__main__":
    main()
