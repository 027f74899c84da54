"""``az://`` on Azurite, the store that Azure gives to developers: the same words, the same bytes as in memory."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from datetime import UTC, datetime
from unittest import mock

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import LockedError
from bigembed.rows.appending import append_rows
from bigembed.store import at, create, move, put, remove, rewrite, stored, touch
from bigembed.store.arrays import create_rows, read_array, write_array, write_rows
from bigembed.store.locks import hold, holder, take
from bigembed.store.requests import client_of

PROGRAM = os.environ.get("AZURITE") or shutil.which("azurite-blob")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="needs Azurite: npm install -g azurite (or AZURITE=…/azurite-blob)"),
]
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one that everybody's Azurite has."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("azurite")
    options = ["--silent", "--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    assert PROGRAM is not None
    process = subprocess.Popen([PROGRAM, *options, "--skipApiVersionCheck"], cwd=folder)
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        "AZURE_ALLOW_HTTP": "true",
    }
    try:
        make_container(port)
        with mock.patch.dict(os.environ, environment):
            client_of.cache_clear()
            yield at("az://box")
    finally:
        client_of.cache_clear()
        process.kill()
        process.wait()


def make_container(port: int) -> None:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
    signed = "PUT" + 12 * "\n" + headers + f"/{ACCOUNT}/{ACCOUNT}/box\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{ACCOUNT}/box?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        },
    )
    end = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(request).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def test_files(home):
    create(home / "a" / "x", b"one")
    with pytest.raises(FileExistsError):
        create(home / "a" / "x", b"two")
    rewrite(home / "a" / "x", b"three")
    put(home / "a" / "y", b"four")
    touch(home / "a" / "y")
    assert [(file.name, file.size) for file in stored(home / "a")] == [("x", 5), ("y", 4)]
    assert ((home / "a" / "x").tail(3), (home / "a" / "x").range(1, 2)) == (b"ree", b"hr")
    remove(home / "a")
    assert not (home / "a").exists()
    with pytest.raises(OSError):
        touch(home / "a" / "y")


def test_arrays_that_grow_and_move(home):
    rows = np.random.default_rng(0).normal(size=(1500, 3))
    create_rows(home / "x.zarr", (1000, 3), rows.dtype, 500)
    for start in (0, 500):
        write_rows(home / "x.zarr", start, rows[start : start + 500])
    assert append_rows(home / "x.zarr", rows[1000:]) == 1500
    np.testing.assert_array_equal(read_array(home / "x.zarr"), rows)
    move(home / "x.zarr", home / "y.zarr")
    np.testing.assert_array_equal(be.open_array("az://box/y.zarr").compute(scheduler="synchronous"), rows)
    assert not (home / "x.zarr" / "zarr.json").exists()


def test_one_holds(home):
    with hold(home / "held") as lock:
        assert holder(home / "held").token == lock.owner.token
        with pytest.raises(LockedError):
            take(home / "held")
    assert holder(home / "held") is None


def test_a_map(home):
    rows = np.random.default_rng(0).normal(size=(2000, 5)).astype("f4")
    write_array(home / "rows.zarr", rows)
    method = {"n_components": 2, "n_neighbors": 8}
    there = be.DiffusionMap(**method, workdir="az://box/run.zarr").fit("az://box/rows.zarr")
    np.testing.assert_array_equal(there.embedding_, be.DiffusionMap(**method).fit(rows).embedding_)
    there.save("az://box/model.zarr")
    be.load("az://box/model.zarr").transform_to("az://box/rows.zarr", "az://box/placed.zarr")
    np.testing.assert_array_equal(read_array("az://box/placed.zarr"), there.transform(rows))
