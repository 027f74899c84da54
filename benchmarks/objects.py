"""A job on a disk, in an object store, and there with its exchanges on the disk: time and requests' cost.

    python benchmarks/objects.py --folder bench-data                 # a server on this machine
    python benchmarks/objects.py --folder bench-data --delay 20      # … that is 20 ms away; requests are counted

The server is SeaweedFS (extra `test`). PCA of n × 256 rows reads them once and writes nothing large; the diffusion map
of n / 10 × 64 rows exchanges many small pieces in every pass. Coordinates are compared byte for byte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common import data_set, table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bigembed.store import at, copy_files, remove, stored  # noqa: E402
from bigembed.store.arrays import read_array  # noqa: E402
from tests.s3 import serving  # noqa: E402

METHODS = {"pca": "n_components = 10", "diffusion_map": 'n_components = 10\nn_neighbors = 15\ncomponents = "largest"'}

VERBS = {b"GET", b"HEAD", b"PUT", b"POST", b"DELETE"}
"""What a request begins with."""

JOB = """
[input]
path = "{rows}"
[method]
name = "{method}"
{parameters}
[output]
path = "{out}"
{exchange}
[cluster]
workers = 2
memory = "1.5 GiB"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds that each request takes longer")
    parser.add_argument("--folder", default="bench-data")
    given = parser.parse_args()
    folder = Path(given.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        serving(Path(scratch)) as server,
        delayed(server.endpoint, given.delay / 1000) as (endpoint, asked),
    ):
        for name, (n, d) in {"pca": (given.n, 256), "diffusion_map": (given.n // 10, 64)}.items():
            rows, url = data_set("mixture", folder, n=n, d=d), server.url
            copy_files(rows, f"{url}/rows.zarr", [file.name for file in stored(rows)])
            os.environ["AWS_ENDPOINT_URL"] = endpoint
            sides = {
                "disk": (rows, f"{scratch}/run.zarr", ""),
                "store": (f"{url}/rows.zarr", f"{url}/run.zarr", ""),
                "store, scratch on the disk": (f"{url}/rows.zarr", f"{url}/run.zarr", f"{scratch}/exchange"),
            }
            found = {}
            for side, places in sides.items():
                before = asked[0]
                found[side] = run(Path(scratch), name, *places)
                if given.delay:
                    found[side]["requests"] = asked[0] - before
            os.environ["AWS_ENDPOINT_URL"] = server.endpoint
            assert len({row.pop("bytes") for row in found.values()}) == 1
            results |= {f"{name}, {side}": row for side, row in found.items()}
            remove(f"{url}/rows.zarr")
    table("objects", {"n": given.n, "delay": given.delay}, results)


def run(folder: Path, method: str, rows: str, out: str, scratch: str) -> dict[str, Any]:
    """Run a job as a process; its seconds, those of its longest stages, and its coordinates."""
    job = folder / "job.toml"
    exchange = f'scratch = "{scratch}"' if scratch else ""
    job.write_text(JOB.format(rows=rows, method=method, parameters=METHODS[method], out=out, exchange=exchange))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bigembed.cli", "run", str(job)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    record = json.loads((at(out) / "job.json").read_text())
    coordinates = read_array(at(out) / "stages" / "coordinates" / "embedding").tobytes()
    remove(out)
    longest = sorted(record["stages"], key=lambda stage: -stage["seconds"])[:2]
    return {
        "seconds": seconds,
        "job": record["seconds"],
        "gib": record["measured"]["total"] / 2**30,
        **{stage["name"]: stage["seconds"] for stage in longest},
        "bytes": coordinates,
    }


@contextmanager
def delayed(endpoint: str, seconds: float) -> Iterator[tuple[str, list[int]]]:
    """The endpoint as if it were farther away: whatever is sent to it waits so long on the way; requests so far."""
    asked = [0]
    if not seconds:
        yield endpoint, asked
        return
    loop, port = asyncio.new_event_loop(), urlsplit(endpoint).port

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait: float) -> None:
        try:
            while data := await reader.read(1 << 20):
                asked[0] += bool(wait) and data.split(b" ", 1)[0] in VERBS
                if wait:
                    await asyncio.sleep(wait)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, forth, seconds), pass_on(back, writer, 0.0))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


if __name__ == "__main__":
    main()
