"""Hostile job files and data files: made from valid ones by seed, tried in forked children under a memory limit.

Every outcome is a result or one of our errors; anything else (another exception, exit status 1, a child that hangs or
is killed) is wrong. The long form, with counts::

    python -m tests.fault.hostile 1800 600
"""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

MEMORY = 1 << 30
"""Bytes of address space that a child may take beside what it has."""
SECONDS = 30.0
"""For one case."""

Outcome = str
Case = Callable[[Path], Outcome]
"""In a folder of its own; what it comes to, ``wrong: …`` where it is neither a result nor one of our errors."""


@dataclass(frozen=True)
class Tried:
    """What one case came to."""

    name: str
    outcome: Outcome

    @property
    def wrong(self) -> bool:
        return self.outcome.startswith("wrong")


def tried(cases: Sequence[tuple[str, Case]], folder: Path, memory: int = MEMORY) -> list[Tried]:
    """All cases, one after another in a forked child; in a new one after each that hangs or kills it."""
    found: list[Tried] = []
    while len(found) < len(cases):
        found += _in_child(cases[len(found) :], folder, memory)
    return found


def _in_child(cases: Sequence[tuple[str, Case]], folder: Path, memory: int) -> list[Tried]:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _work(cases, folder, memory, write)
    os.close(write)
    found: list[Tried] = []
    with os.fdopen(read, "r") as lines:
        for name, _ in cases:
            ready, _, _ = select.select([lines], [], [], SECONDS)
            line = lines.readline() if ready else ""
            if not line:
                os.kill(child, signal.SIGKILL)
                found.append(Tried(name, "wrong: it ended its process" if ready else "wrong: it hangs"))
                break
            found.append(Tried(name, json.loads(line)))
    os.waitpid(child, 0)
    return found


def _work(cases: Sequence[tuple[str, Case]], folder: Path, memory: int, write: int) -> None:
    """In the child: each case, and a line on what it came to."""
    try:
        signal.alarm(0)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 30, 4 << 30))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        warnings.simplefilter("ignore")
        for number, (_, case) in enumerate(cases):
            home = folder / f"case-{os.getpid()}-{number}"
            home.mkdir()
            said = StringIO()
            with redirect_stdout(said), redirect_stderr(said):
                outcome = _outcome(case, home)
            if any(ord(one) < 32 and one not in "\n\t\r" for one in said.getvalue()):
                outcome = "wrong: control characters were printed"
            shutil.rmtree(home, ignore_errors=True)
            os.write(write, (json.dumps(outcome) + "\n").encode())
    finally:
        os._exit(0)


def _outcome(case: Case, home: Path) -> Outcome:
    from bigembed.errors import BigembedError

    try:
        return case(home)
    except BigembedError as error:
        return type(error).__name__
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if "/bigembed/" in frame.filename] or where
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return f"wrong: {type(error).__name__} at {place}: {str(error)[:200]!r}"


# ----------------------------------------------------------------------------------------- jobs

BASES = {
    "pca": {
        "input": {"path": '"rows.npy"'},
        "method": {"name": '"pca"', "n_components": "2"},
        "output": {"path": '"run.zarr"'},
    },
    "table": {
        "input": {"path": '"rows.csv"', "columns": '["a", "b", "c"]', "ids": '"name"'},
        "method": {"name": '"diffusion_map"', "n_components": "2", "n_neighbors": "8"},
        "output": {"path": '"run.zarr"', "table": '"out.csv"', "model": '"model"'},
        "cluster": {"workers": "1", "memory": '"1 GiB"'},
    },
    "classes": {
        "input": {"path": '"rows.npy"', "labels": '"labels.npy"', "weights": '"weights.npy"'},
        "method": {"name": '"linear_discriminant"', "n_components": "1"},
        "output": {"path": '"run.zarr"', "picture": '"map.png"', "report": '"page.html"'},
    },
    "dataset": {
        "input": {"dataset": '"swiss_roll"', "n": "80", "seed": "1"},
        "method": {"name": '"isomap"', "n_components": "2", "n_neighbors": "10"},
        "output": {"path": '"run.zarr"', "scratch": '"scratch"'},
    },
    "queue": {
        "input": {"path": '"rows.npy"'},
        "method": {"name": '"kernel_pca"', "n_components": "2"},
        "output": {"path": '"run.zarr"'},
        "cluster": {
            "manager": '"slurm"',
            "workers": "2",
            "memory": '"1 GiB"',
            "walltime": '"1h"',
            "directives": '["--qos=long"]',
            "prologue": '["module load python"]',
        },
    },
}
"""Valid jobs: tables of keys and what stands behind the equals sign."""
ODD = (
    '""', '" "', '"none"', '"\\u0000"', '"a\\u0000b"', '"\\u001b[31mred"', '"a\\nb"', '"\\u202Egnp.exe"', '"~nobody"',
    '"~nobody/x"', '"~"', '"."', '".."', '"/"', '"../../../../etc/passwd"', '"/dev/zero"', '"/dev/null/x"',
    '"/proc/self/mem"', '"pipe"', '"folder"', '"loop"', '"rows.npy"', '"missing.npy"', '"s3://"', '"s3:/x"', '"gs:/b"',
    '"http://127.0.0.1:1/x"', '"file:///etc/passwd"', '"://"', f'"{"n" * 300}"', f'"{"d/" * 3000}x"',
    f'"{"n" * 70000}"', "true", "false", "0", "-1", "1", "3", "99", "2147483648", "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616", "9" * 6000, "-" + "9" * 400, "0x" + "f" * 9000, "0.0", "-0.0", "0.5", "1e400", "-1e400",
    "nan", "-nan", "inf", "-inf", "1e-320", "1e308", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "[]", "[[]]",
    '[""]',
    '["a", "a"]', '["a", 1]', "[1, 2, 3]", "{}", "{ a = 1 }", '{ name = "x" }', "[" * 60 + "]" * 60, "[" * 3000,
    '"1 GiB"', '"1e99 GiB"', f'"{"9" * 5000} GiB"', '"-1 MB"', '"99:99:99"', '"4h"', '"0s"', '"9999999d"', '"auto"',
    '"math:sqrt"', '"os:system"', '"module:"', '":"', '"tls://x:1"', '"tcp://999.999.999.999:99999"', '"x.parquet"',
    '"x.csv"', '"x.npy"', '"é\\u0301"', '"\\uFEFFrows.npy"', "'''\n'''",
)  # fmt: skip
"""What no key of a job expects, as TOML."""
PLACES = ("path", "table", "picture", "model", "scratch", "report", "view", "folder", "shared_folder")
"""Keys that say where something is written: jobs with odd ones are planned, never run."""


def job_keys(base: str) -> list[tuple[str, str]]:
    """Every key that a job of this base may have, by table."""
    import inspect

    from bigembed.datasets import parameters
    from bigembed.jobs.job import TABLES
    from bigembed.maps import method

    keys = [(table, key) for table, model in TABLES.items() for key in model.model_fields if key != "parameters"]
    name = BASES[base]["method"]["name"].strip('"')
    keys += [("method", key) for key in inspect.signature(method(name)).parameters]
    if base == "dataset":
        keys += [("input", key) for key in parameters("swiss_roll")]
    return keys


def job_text(tables: dict[str, dict[str, str]]) -> str:
    """As TOML."""
    return "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()) for table, keys in tables.items()
    )


def job_cases(count: int, seed: int = 0) -> Iterator[tuple[str, Case]]:
    """So many job files: three quarters with an odd value for a key, the others with odd bytes."""
    generator = random.Random(seed)
    grid = [(base, *key, value) for base in BASES for key in job_keys(base) for value in ODD]
    generator.shuffle(grid)
    for number in range(count):
        if number % 4:
            base, table, key, value = grid[number % len(grid)]
            tables = {name: dict(keys) for name, keys in BASES[base].items()}
            tables.setdefault(table, {})[key] = value
            runs = number % 20 == 1 and key not in PLACES and base not in ("queue",) and table != "cluster"
            yield f"{base} [{table}] {key} = {value[:40]}", job_case(job_text(tables).encode(), runs, key)
        else:
            base = generator.choice(list(BASES))
            name, content = odd_bytes(job_text(BASES[base]), generator)
            yield f"{base} {name}", job_case(content, False)


def odd_bytes(text: str, generator: random.Random) -> tuple[str, bytes]:
    """A job file as no editor would leave it."""
    content, lines = text.encode(), text.splitlines(keepends=True)
    at = generator.randrange(len(content))
    kind = generator.randrange(16)
    if kind == 0:
        return f"cut at {at}", content[:at]
    if kind == 1:
        return f"NUL at {at}", content[:at] + b"\0" + content[at:]
    if kind == 2:
        return f"no UTF-8 at {at}", content[:at] + b"\xff\xfe" + content[at:]
    if kind == 3:
        return "BOM", b"\xef\xbb\xbf" + content
    if kind == 4:
        return "UTF-16", text.encode("utf-16")
    if kind == 5:
        return "a line twice", (text + generator.choice(lines)).encode()
    if kind == 6:
        return "a line less", "".join(line for line in lines if line != generator.choice(lines)).encode()
    if kind == 7:
        return "lines shuffled", "".join(generator.sample(lines, len(lines))).encode()
    if kind == 8:
        return "nested", content + b"x = " + b"[" * 100_000
    if kind == 9:
        return "inline tables", content + b"x = " + b"{a=" * 20_000
    if kind == 10:
        return "a key of many parts", content + b"a." * 50_000 + b"a = 1\n"
    if kind == 11:
        return "many keys", content + b"".join(b"k%d = 1\n" % number for number in range(20_000))
    if kind == 12:
        return "large", content + b"#" * (5 << 20)
    if kind == 13:
        return "a table as a key", (
            f"{generator.choice(['input', 'method', 'output', 'cluster'])} = 3\n" + text
        ).encode()
    if kind == 14:
        return "tables in a list", text.replace("[input]", "[[input]]").encode()
    flipped = bytearray(content)
    for _ in range(generator.randrange(1, 6)):
        flipped[generator.randrange(len(flipped))] ^= 1 << generator.randrange(8)
    return "bits flipped", bytes(flipped)


def job_case(content: bytes, runs: bool, key: str = "") -> Case:
    """Plan it (and run it), as the command line does."""

    def case(home: Path) -> Outcome:
        from typer.testing import CliRunner

        from bigembed.cli import app

        job_folder(home)
        (home / "job.toml").write_bytes(content)
        words = ["run" if runs else "plan", str(home / "job.toml")]
        done = CliRunner().invoke(app, words)
        print(done.output)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        ours = (0, 2, 3, 6) if key != "address" else (0, 1, 2, 3)  # (no scheduler answers there)
        if done.exit_code not in ours or "--debug shows where" in done.output:
            return f"wrong: {words[0]} exits {done.exit_code}: {done.output.strip()[-300:]}"
        return f"{words[0]} exits {done.exit_code}"

    return case


def job_folder(home: Path) -> None:
    """Rows, and what no rows are."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    np.save(home / "rows.npy", rows)
    np.save(home / "labels.npy", np.arange(60) % 2)
    np.save(home / "weights.npy", np.ones(60))
    lines = [f"r{number},{','.join(map(str, row))}" for number, row in enumerate(rows.tolist())]
    (home / "rows.csv").write_text("\n".join(["name,a,b,c", *lines]))
    (home / "folder").mkdir()
    (home / "loop").symlink_to(home / "loop")
    os.mkfifo(home / "pipe")


# ----------------------------------------------------------------------------------------- data


def data_bases(folder: Path) -> dict[str, Path]:
    """A valid file (or folder) of each format, whose library is there."""
    import zarr

    from tests.unit.rows.written import FORMATS, names_of, rows_of

    rows, names = rows_of(120, 4), names_of(120)
    found = {}
    for name, write in FORMATS.items():
        with suppress(ImportError):
            write(folder / name, rows, names)
            found[name] = folder / name
    np.save(folder / "rows.npy", rows)
    np.savez(folder / "rows.npz", rows)
    head = b"\0\0\x08\x02" + np.array([120, 4], ">u4").tobytes()
    (folder / "rows-idx2-ubyte").write_bytes(head + rows.astype("u1").tobytes())
    (folder / "packed-idx2-ubyte.gz").write_bytes(gzip.compress(head + rows.astype("u1").tobytes()))
    (folder / "rows.bvecs").write_bytes(b"".join(b"\4\0\0\0" + row.astype("u1").tobytes() for row in rows))
    for version in (2, 3):
        zarr.create_array(folder / f"plain{version}.zarr", data=rows, chunks=(50, 4), zarr_format=version)
    zarr.create_array(folder / "sharded.zarr", data=rows, chunks=(20, 4), shards=(60, 4))
    from scipy import sparse

    from bigembed.rows.sparse import write_csr

    write_csr(folder / "csr.zarr", sparse.csr_array(rows))
    others = [
        "rows.npy", "rows.npz", "rows-idx2-ubyte", "packed-idx2-ubyte.gz", "rows.bvecs", "csr.zarr", "sharded.zarr",
    ]  # fmt: skip
    return found | {name: folder / name for name in (*others, "plain2.zarr", "plain3.zarr")}


NUMBERS = (0, 1, -1, 3, 2**31, 2**32, 10**9, 2**53 + 1, 2**62, 2**63, 10**30, "", "x", None, 1.5, [], {}, [10**9], True)
"""What the numbers and words of metadata are replaced by."""


def data_cases(count: int, bases: dict[str, Path], seed: int = 0) -> Iterator[tuple[str, Case]]:
    """So many damaged files, the formats in turn."""
    generator = random.Random(seed)
    names = sorted(bases)
    for number in range(count):
        name = names[number % len(names)]
        yield f"{name} #{number}", data_case(bases[name], generator.randrange(1 << 30))


def data_case(base: Path, seed: int | None) -> Case:
    """A damaged copy of a file or a folder (an intact one without a seed), ingested, and fitted where it lies."""

    def case(home: Path) -> Outcome:
        import dask

        from bigembed import PCA
        from bigembed.errors import BigembedError
        from bigembed.rows.formats import ingest, open_reader
        from bigembed.rows.reader import Choice
        from tests.unit.rows.written import NAMED

        path = home / base.name
        shutil.copytree(base, path) if base.is_dir() else shutil.copyfile(base, path)
        generator = random.Random(seed)
        if seed is not None:
            damage(path, generator)
        table = ".csv" in path.name or path.suffix == ".parquet"
        choice = Choice(columns=("x0", "x1")) if table and (seed is None or generator.random() < 0.9) else Choice()
        ids = {"ids": "cell"} if path.name in NAMED and (seed is None or generator.random() < 0.5) else {}
        said = []
        with dask.config.set(scheduler="synchronous"):
            try:
                reader = open_reader(path, choice)
                said.append(f"opened {reader.shape}")
                ingest(path, home / "out.zarr", choice, ids)
                said = ["read"]
            except BigembedError as error:
                said.append(type(error).__name__)
            if path.suffix in (".zarr", ".npy"):
                with suppress(BigembedError):
                    PCA(1).fit(str(path))
        return said[-1]

    return case


def damage(path: Path, generator: random.Random) -> None:
    """Flip, cut, replace numbers of metadata, or take away: at random."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        described = [
            file for file in files if file.name in ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
        ]
        path = generator.choice(described if described and generator.random() < 0.7 else files)
        if path in described and generator.random() < 0.8:
            return _odd_json(path, generator)
        kind = generator.randrange(8)
        if kind == 0:
            return path.unlink()
        if kind == 1:
            path.unlink()
            return os.mkfifo(path)
        if kind == 2:
            other = generator.choice(files)
            content = other.read_bytes()
            path.write_bytes(content)
            return None
    content = bytearray(path.read_bytes())
    kind = generator.randrange(6)
    if kind == 0:
        content = content[: generator.randrange(len(content) + 1)]
    elif kind == 1:
        content += generator.randbytes(generator.randrange(1, 200))
    elif kind == 2:  # a claim: a large number somewhere in the first bytes, or the last
        at = generator.randrange(min(len(content), 400)) if generator.random() < 0.7 else -generator.randrange(1, 400)
        size = generator.choice((2, 4, 8))
        large = generator.choice((2**15, 2**31 - 1, 2**62, 2**64 - 1, 10**9)) % 2 ** (8 * size)
        content[at : at + size if at + size < 0 or at >= 0 else None] = large.to_bytes(
            size, generator.choice(("little", "big"))
        )
    elif content:
        reach = len(content) if kind > 4 else min(len(content), 300)
        for _ in range(generator.randrange(1, 9)):
            content[generator.randrange(reach)] ^= 1 << generator.randrange(8)
    path.write_bytes(content)
    return None


def _odd_json(path: Path, generator: random.Random) -> None:
    """One value of the metadata replaced, or a key taken out."""
    value = json.loads(path.read_text() or "{}")
    spots: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            spots.append((node, key))
            walk(node[key])

    walk(value)
    if spots:
        node, key = generator.choice(spots)
        if generator.random() < 0.1:
            del node[key]
        else:
            node[key] = generator.choice(NUMBERS)
    path.write_text(json.dumps(value))


# ----------------------------------------------------------------------------------------- main


def counts(found: Sequence[Tried]) -> str:
    """How often each outcome came, for people."""
    kinds = Counter(one.outcome.split(":")[0] for one in found)
    return f"{len(found)} cases: " + ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())


def warm(folder: Path) -> None:
    """Import, compile and measure in this process what children would each anew."""
    import pyarrow

    from bigembed.jobs.planning import footprint

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    footprint()


def main() -> int:
    """The long form: numbers of job files and of data files; 1 if one of them came to anything wrong."""
    jobs, files = (int(word) for word in sys.argv[1:3])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        (folder / "bases").mkdir()
        warm(folder)
        bases = data_bases(folder / "bases")
        for what, cases in (("job files", job_cases(jobs, seed)), ("data files", data_cases(files, bases, seed))):
            began = time.monotonic()
            found = tried(list(cases), folder)
            print(f"{what}: {counts(found)}; {time.monotonic() - began:.0f} s", flush=True)
            bad = [one for one in found if one.wrong]
            for one in bad[:200]:
                print(f"  {one.name}: {one.outcome}")
            wrong += len(bad)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
