"""Every method and variant at large sizes, everywhere that Dask runs it: the same bytes.

``python -m tests.conformance.every_place [WORD ...]`` fits each (or those whose name holds one of the words) in one
thread, in threads, and on clusters of 1, 2 and 4 processes, and with TLS between them; prints a line a
method, and at the end the counts; exit status 1 if any array differs.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import dask

from tests.conformance.digest import digests
from tests.conformance.large import LARGE


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Threads of this process."""
    with dask.config.set(scheduler="threads", num_workers=count):
        yield


@contextmanager
def processes(count: int, tls: bool = False) -> Iterator[None]:
    """Worker processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            security=True if tls else None,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
        dask.config.set(scheduler=client.get),
    ):
        assert cluster.scheduler_address.startswith("tls://" if tls else "tcp://")
        yield


PLACES = {
    "2 threads": partial(threads, 2),
    "4 threads": partial(threads, 4),
    "1 process": partial(processes, 1),
    "2 processes": partial(processes, 2),
    "4 processes": partial(processes, 4),
    "2 with TLS": partial(processes, 2, True),
}


def fitted_everywhere(names: list[str]) -> dict[str, dict[str, list[str]]]:
    """By method and place: the arrays that differ from those of one thread."""
    expected = {}
    with dask.config.set(scheduler="synchronous"):
        for name in names:
            expected[name] = digests(LARGE[name].fit())
    differ: dict[str, dict[str, list[str]]] = {name: {} for name in names}
    for place, opened in PLACES.items():
        with opened():
            for name in names:
                there = digests(LARGE[name].fit())
                differ[name][place] = sorted(
                    array for array in {*there, *expected[name]} if there.get(array) != expected[name].get(array)
                )
    return differ


def main(words: list[str]) -> int:
    """All of it."""
    names = [name for name in LARGE if not words or any(word in name for word in words)]
    warnings.simplefilter("ignore")
    began = time.monotonic()
    differ = fitted_everywhere(names)
    width = max(len(name) for name in names)
    print(" " * width, *PLACES, sep="  ")
    for name in names:
        cells = ["DIFFERS" if differ[name][place] else "same" for place in PLACES]
        print(name.ljust(width), *(cell.ljust(len(place)) for cell, place in zip(cells, PLACES)), sep="  ")
    wrong = {name: {place: arrays for place, arrays in found.items() if arrays} for name, found in differ.items()}
    wrong = {name: found for name, found in wrong.items() if found}
    counts = {"methods and variants": len(names), "places": 1 + len(PLACES), "fits": len(names) * (1 + len(PLACES))}
    print(json.dumps(counts | {"seconds": round(time.monotonic() - began), "differ": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
