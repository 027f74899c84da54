"""MNIST by the command line: ingest, run on 60 000 digits, extend by 10 000; and all 70 000 at once.

    python benchmarks/mnist.py --data FOLDER        # with the four *-ubyte.gz files

Reported: seconds of each command, recall, passes, and how often the nearest training digit in the map
is of the same class as a test digit (10 coordinates) beside the same in pixels.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import table

JOB = """
[input]
path = "{rows}"
[method]
name = "diffusion_map"
n_components = 10
n_neighbors = 15
t = 0
components = "largest"
[output]
path = "{name}.zarr"
model = "{name}-model.zarr"
picture = "{name}.png"
"""


def command(*words: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bigembed.cli", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def labels(path: Path) -> np.ndarray:
    return np.frombuffer(gzip.open(path).read(), np.uint8, offset=8)


def agreement(train: np.ndarray, test: np.ndarray, of_train: np.ndarray, of_test: np.ndarray) -> float:
    from sklearn.neighbors import KNeighborsClassifier

    return float(KNeighborsClassifier(1).fit(train, of_train).score(test, of_test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", default="bench-data")
    given = parser.parse_args()
    source, folder = Path(given.data), Path(given.folder) / "mnist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    import bigembed as be
    from bigembed.store.arrays import create_rows, read_array, write_rows

    seconds = {
        "ingest": command("ingest", str(source / "train-images-idx3-ubyte.gz"), str(folder / "train.zarr"))
        + command("ingest", str(source / "t10k-images-idx3-ubyte.gz"), str(folder / "test.zarr"))
    }
    everything = np.concatenate([read_array(folder / name) for name in ("train.zarr", "test.zarr")])
    create_rows(folder / "all.zarr", everything.shape, everything.dtype, len(everything))
    write_rows(folder / "all.zarr", 0, everything)
    rows: dict[str, dict[str, object]] = {}
    for name, part in (("60000", "train.zarr"), ("70000", "all.zarr")):
        (folder / f"{name}.toml").write_text(JOB.format(rows=part, name=name))
        took = command("run", str(folder / f"{name}.toml"))
        dm = be.load(folder / f"{name}-model.zarr")
        found = dm.certificate_
        rows[name] = {
            "run_seconds": took,
            "recall": found["recall"]["recall"],
            "passes": found["passes"],
            "components": found["components"],
            "converged": found["converged"],
        }
    rows["60000"]["ingest_seconds"] = seconds["ingest"]
    rows["60000"]["extend_seconds"] = command(
        "extend", str(folder / "60000-model.zarr"), str(folder / "test.zarr"), str(folder / "coordinates.zarr")
    )
    train = np.asarray(be.load(folder / "60000-model.zarr").embedding_)
    test = read_array(folder / "coordinates.zarr")
    of_train, of_test = (labels(source / f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k"))
    rows["60000"]["map_1nn"] = agreement(train, test, of_train, of_test)
    rows["60000"]["pixels_1nn"] = agreement(everything[:60_000], everything[60_000:], of_train, of_test)
    table("mnist", {}, rows)


if __name__ == "__main__":
    main()
