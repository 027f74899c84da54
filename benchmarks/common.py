"""What the benchmarks share: data sets on disk, memory of a process tree, result tables."""

from __future__ import annotations

import gzip
import json
import platform
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bigembed.datasets import Dataset, dataset
from bigembed.runtime import Event
from bigembed.store.arrays import create_rows, write_rows

BLOCK = 65_536
MNIST = 70_000
"""Images."""


def data_set(name: str, folder: Path, made: Dataset | None = None, dtype: Any = None, **parameters: Any) -> str:
    """Path of a Zarr array of a synthetic set, written once: ``made``, or the one of that name; in its dtype, or one
    that holds its numbers exactly."""
    label = "-".join([name, *(f"{key}{value}" for key, value in parameters.items())])
    path = folder / f"{label}.zarr"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = made or dataset(name, **parameters)
        partial = path.with_suffix(".partial")
        first = rows.rows(0, 1)
        create_rows(partial, (len(rows), first.shape[1]), dtype or first.dtype, BLOCK, overwrite=True)
        for start in range(0, len(rows), BLOCK):
            write_rows(partial, start, rows.rows(start, min(start + BLOCK, len(rows))))
        partial.rename(path)
    return str(path)


def mnist_components(n: int, folder: Path, images: str) -> str:
    """Path of n rows of 50 principal components of MNIST (of IDX files), made once; of more, of a mixture."""
    if n > MNIST:
        return data_set("mixture", folder, n=n, d=64)
    path = folder / f"mnist50-{n}.npy"
    if not path.exists():
        import bigembed as be

        names = ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
        parts = [
            np.frombuffer(gzip.decompress((Path(images) / name).read_bytes()), np.uint8, offset=16) for name in names
        ]
        pixels = np.concatenate(parts).reshape(-1, 784).astype(np.float32)
        reduced = be.PCA(50).fit_transform(pixels).astype(np.float32)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, reduced[np.random.default_rng(0).permutation(MNIST)[:n]])
    return str(path)


def named_rows(name: str, n: int, folder: Path, data: str) -> tuple[str, np.ndarray | None]:
    """Path of at most n rows of a named set, made once, and their classes; ``data`` is the folder of the real ones.

    "mnist", "coil" (1 440 pictures of 20 things that turn): 50 principal components; "masscyt": 13 markers of cells,
    without classes; "digits": those of scikit-learn; "mixture": 20 Gaussian groups in 64 columns.
    """
    if name == "mnist":
        path = mnist_components(n, folder, str(Path(data) / "mnist"))
        return path, mnist_labels(str(Path(data) / "mnist"))[np.random.default_rng(0).permutation(MNIST)[:n]]
    if name == "masscyt":
        raw = (Path(data) / "masscyt" / "sample_masscyt.fcs").read_bytes()
        rows, labels = np.frombuffer(raw, "<f8", 25_000 * 13, 1024).reshape(25_000, 13), None
    elif name == "coil":
        from matplotlib.pyplot import imread
        from sklearn.decomposition import PCA

        things = Path(data) / "coil20" / "coil-20-proc"
        files = [things / f"obj{thing}__{view}.png" for thing in range(1, 21) for view in range(72)]
        rows = PCA(50, random_state=0).fit_transform(np.stack([imread(file).ravel() for file in files]))
        labels = np.repeat(np.arange(20), 72)
    elif name == "digits":
        from sklearn.datasets import load_digits

        rows, labels = load_digits(return_X_y=True)
    elif name == "mixture":
        rows, truth = dataset("mixture", n=n, d=64, n_clusters=20).draw()
        labels = truth["label"]
    else:
        raise ValueError(f"{name!r}: mnist, coil, masscyt, digits or mixture")
    some = np.random.default_rng(0).permutation(len(rows))[:n]
    path = folder / f"{name}-{len(some)}.npy"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(path, rows[some].astype("f4"))
    return str(path), None if labels is None else labels[some].astype(int)


def mnist_labels(images: str) -> np.ndarray:
    """The digits of all images of MNIST, of IDX files."""
    names = ("train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
    parts = [np.frombuffer(gzip.decompress((Path(images) / name).read_bytes()), np.uint8, offset=8) for name in names]
    return np.concatenate(parts).astype(int)


def clear(out: str) -> None:
    """Delete what a side wrote."""
    for place in (out, f"{out}.warm"):
        shutil.rmtree(place, ignore_errors=True)


def peak_of(pid: int) -> Callable[[], int]:
    """Watch the resident memory of a process and all it starts; the function returned gives the peak, in bytes."""
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            total = 0
            try:
                root = psutil.Process(pid)
                for process in [root, *root.children(recursive=True)]:
                    try:
                        total += process.memory_info().rss
                    except psutil.Error:
                        continue
            except psutil.Error:
                return
            peak[0] = max(peak[0], total)
            time.sleep(0.1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()

    def result() -> int:
        stop.set()
        thread.join()
        return peak[0]

    return result


def said(*command: str) -> dict[str, Any]:
    """What a process prints last."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def watched(*command: str) -> dict[str, Any]:
    """What a process prints last, and its largest memory; of one that fails its exit status."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = peak_of(process.pid)
    output, _ = process.communicate()
    found = {"failed": process.returncode} if process.returncode else json.loads(output.strip().splitlines()[-1])
    return {**found, "peak_gib": round(peak() / 2**30, 2)}


def finished_job(text: str, out: Path) -> tuple[dict[str, Any], float]:
    """Run a job that writes to ``out``, anew; its record, and the processor seconds of all its processes."""
    for place in (out, Path(f"{out}-model")):
        shutil.rmtree(place, ignore_errors=True)
    file = out.with_suffix(".toml")
    file.write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(file)], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    record: dict[str, Any] = json.loads((out / "job.json").read_text())
    return record, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class TaskCounts:
    """What the tasks of a fit are and move, for each stage: the recorder and the observer of a run."""

    def __init__(self) -> None:
        self.stages: dict[str, Counter[str]] = defaultdict(Counter)
        self.stage = ""

    @property
    def total(self) -> Counter[str]:
        """Of all stages together."""
        return sum(self.stages.values(), Counter())

    def event(self, event: Event) -> None:
        """Hear which stage it is."""
        if event.kind in ("start", "done"):
            self.stage = event.stage if event.kind == "start" else ""

    def map(self, label: str, tasks: int, at_home: bool = False) -> Callable[[int, Mapping[str, Any]], None]:
        """Count a map; return what counts its tasks."""
        counts = self.stages[self.stage]
        counts["maps"] += 1

        def record(place: int, found: Mapping[str, Any]) -> None:
            counts.update(tasks=1, read=found["bytes_read"], written=found["bytes_written"], cpu=found["cpu"])

        return record


def keep(name: str, parameters: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Keep the results, or those that are there so far, with machine and date under ``results/``; what is kept."""
    record = {
        "benchmark": name,
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, {psutil.virtual_memory().total >> 30} GiB",
        "processor": processor(),
        "parameters": dict(parameters),
        "rows": {key: dict(row) for key, row in rows.items()},
    }
    file = _kept_in(name, parameters)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    return record


def processor() -> str:
    """Name of the processor and its widest vectors, by which the same work may differ by a factor of two."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    widest = [name for name in ("avx512f", "avx2", "asimd") if name in found.get("flags", "").split()]
    return ", ".join([found.get("model name", platform.processor()), *widest[:1]])


def kept(name: str, parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The results that were kept of an earlier start with these parameters, if there was one."""
    file = _kept_in(name, parameters)
    return json.loads(file.read_text())["rows"] if file.exists() else {}


def _kept_in(name: str, parameters: Mapping[str, Any]) -> Path:
    label = "-".join([name, *(f"{key}{value}" for key, value in parameters.items())])
    return Path(__file__).parent / "results" / f"{label}.json"


def table(name: str, parameters: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the results, and keep them with machine and date under ``results/``."""
    record = keep(name, parameters, rows)
    print(f"{name} {dict(parameters)}  ({record['machine']}, {record['date']})")
    for key, row in rows.items():
        print(
            f"  {key:12}",
            "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
        )
