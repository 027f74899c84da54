"""Object stores, on a real S3 server: files, arrays, locks, estimators, and that nothing secret goes anywhere."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bigembed as be
from bigembed import errors, store
from bigembed.rows import RowSource
from bigembed.rows.appending import append_rows
from bigembed.rows.formats import ingest
from bigembed.rows.formats.copying import write_dask
from bigembed.rows.growing import stored_units
from bigembed.rows.reader import Choice
from bigembed.runtime import outages
from bigembed.store.arrays import create_rows, npy_rows, read_array, read_rows, write_array, write_npy, write_rows
from bigembed.store.exchange import Exchange
from bigembed.store.locks import hold, holder, take
from bigembed.store.objects import ObjectPath
from tests.s3 import ABSENT, KEY, SECRET, weed
from tests.some import these
from tests.unit.rows.written import BARE, COLUMNS, FORMATS, NAMED, TABLES, libraries, names_of, rows_of

pytestmark = pytest.mark.skipif(weed() is None, reason=ABSENT)


def digests(path):
    """Size and SHA-256 of every file of a folder."""
    return store.manifests.digests(path, [file.name for file in store.stored(path)])


@pytest.fixture
def place(server, request):
    """A folder of its own."""
    return store.at(f"{server.url}/{request.node.name}".replace("[", "-").replace("]", ""))


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(1500, 4)).astype("f4")


# ----------------------------------------------------------------------------------- files


def test_the_words_of_a_path(place):
    file = place / "a" / "b.json"
    assert not file.exists()
    assert not place.exists()
    with pytest.raises(FileNotFoundError):
        file.read_text()
    with pytest.raises(FileNotFoundError):
        file.unlink()
    file.unlink(missing_ok=True)
    store.put(file, b"one")
    store.put(place / "a" / "c.txt", b"two")
    assert (file.read_text(), file.stat().st_size, file.is_file(), file.is_dir()) == ("one", 3, True, False)
    assert (place.exists(), place.is_dir(), place.is_file()) == (True, True, False)
    assert sorted(path.name for path in (place / "a").iterdir()) == ["b.json", "c.txt"]
    assert [path.name for path in place.glob("*/*.json")] == ["b.json"]
    assert [(found.name, found.size) for found in store.stored(place)] == [("a/b.json", 3), ("a/c.txt", 3)]
    store.remove(place)
    assert not place.exists()


def test_an_object_is_opened_by_one_request_and_a_folder_deleted_by_four(place, monkeypatch):
    for name in ("zarr.json", "c/0", "c/1"):
        store.put(place / name, b"x" * 10)
    store.put(place / "empty", b"")
    asked, ask = [], ObjectPath._ask
    monkeypatch.setattr(ObjectPath, "_ask", lambda self, request: asked.append(str(self)) or ask(self, request))
    with (place / "c" / "0").open() as file:
        assert (file.seek(-3, 2), file.read(), len(asked)) == (7, b"xxx", 1)
    with (place / "empty").open() as file:
        assert file.read() == b""
    asked.clear()
    store.remove(place)
    assert len(asked) == 4
    assert not place.exists()


def test_only_one_creates(place):
    def attempt(number):
        try:
            store.create(place / "one", f"by {number}".encode())
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(attempt, range(24)) if number is not None]
    assert len(winners) == 1
    assert (place / "one").read_text() == f"by {winners[0]}"


def test_a_repeated_request_that_won_has_won(place):
    store.create(place / "one", b"mine")
    store.create(place / "one", b"mine")  # as the library does when the first answer was lost
    with pytest.raises(FileExistsError):
        store.create(place / "one", b"yours")


def test_what_is_gone_is_not_brought_back(place):
    store.put(place / "file", b"old")
    before = (place / "file").stat()
    time.sleep(1.1)  # (times of objects are whole seconds)
    store.touch(place / "file")
    assert (place / "file").stat().st_mtime > before.st_mtime
    store.rewrite(place / "file", b"new")
    assert (place / "file").read_bytes() == b"new"
    (place / "file").unlink()
    for act in (lambda: store.touch(place / "file"), lambda: store.rewrite(place / "file", b"")):
        with pytest.raises(OSError):
            act()
    assert not (place / "file").exists()


def test_a_folder_appears_with_its_mark(place, monkeypatch):
    source, target = place / "made", place / "out.zarr"
    write_array(source, np.arange(10.0))
    copied = []
    monkeypatch.setattr("bigembed.store.copy_files", lambda *given: copied.append(store.published(target)))
    monkeypatch.setattr("bigembed.store.create", lambda *_: pytest.fail("killed here"))
    with pytest.raises(pytest.fail.Exception):
        store.move(source, target)
    assert (copied, store.published(target), store.published(source)) == ([False], False, True)
    monkeypatch.undo()
    store.copy_files(source, target, ["c/0"])  # what a killed one left
    store.move(source, target)
    assert (store.published(target), store.published(source)) == (True, False)
    assert read_array(target).tolist() == list(range(10))
    write_array(source, np.arange(3.0))
    with pytest.raises(FileExistsError):
        store.move(source, target)
    assert read_array(target).tolist() == list(range(10))


def test_ranges(place):
    data = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
    store.put(place / "file", data)
    with (place / "file").open("rb") as file:
        for start, count in ((0, 10), (299_990, 10), (299_990, 100), (200_000, 70_000), (17, 1), (300_000, 5)):
            file.seek(start)
            assert file.read(count) == data[start : start + count]
        file.seek(-4, 2)
        assert file.read() == data[-4:]


# ---------------------------------------------------------------------------------- arrays


def test_arrays_of_any_layout(place, rows):
    write_array(place / "one", rows)
    write_array(place / "none", rows[:0])
    write_array(place / "scalar", np.float64(3))
    create_rows(place / "many", rows.shape, rows.dtype, 400)
    for start in range(0, len(rows), 400):
        write_rows(place / "many", start, rows[start : start + 400])
    for name in ("one", "many"):
        np.testing.assert_array_equal(read_array(place / name), rows)
        np.testing.assert_array_equal(read_array(str(place / name), 399, 801), rows[399:801])
        np.testing.assert_array_equal(read_rows(place / name, np.array([1400, 3, 3])), rows[[1400, 3, 3]])
        lazy = be.open_array(str(place / name))
        np.testing.assert_array_equal(lazy[5:900, 1:3].compute(scheduler="synchronous"), rows[5:900, 1:3])
    assert (read_array(place / "none").shape, read_array(place / "scalar")) == ((0, 4), 3)
    assert not (place / "zarr.json").exists()  # nothing above an array becomes a group
    assert not (store.at(place.root) / "zarr.json").exists()


def test_the_chunks_of_a_shard_are_one_request(place, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(8192, 512))  # 32 chunks of 1 MiB, one shard
    create_rows(place / "x", rows.shape, rows.dtype, 8192)
    write_rows(place / "x", 0, rows)
    asked = []
    fetch = ObjectPath.range
    monkeypatch.setattr(
        ObjectPath, "range", lambda path, start, length: asked.append(length) or fetch(path, start, length)
    )
    np.testing.assert_array_equal(read_array(place / "x", 256, 2048), rows[256:2048])
    assert len(asked) == 1
    asked.clear()
    np.testing.assert_array_equal(read_array(place / "x"), rows)
    assert len(asked) == 2  # at most 16 MiB are held
    assert max(asked) <= 16 << 20


def test_lost_and_damaged_bytes_are_noticed(place, rows):
    create_rows(place / "x", rows.shape, rows.dtype, 400)
    for start in (0, 400, 1200):
        write_rows(place / "x", start, rows[start : start + 400])
    with pytest.raises(errors.DamagedError, match="chunks are missing"):
        be.open_array(str(place / "x"))
    write_rows(place / "x", 800, rows[800:1200])
    be.open_array(str(place / "x"))
    shard = place / "x" / "c" / "1" / "0"
    good = shard.read_bytes()
    for position in (10, len(good) // 2, len(good) - 20):
        store.put(shard, bytes(byte ^ (i == position) for i, byte in enumerate(good)))
        with pytest.raises(errors.DamagedError):
            read_array(place / "x", 400, 800)
    store.put(shard, good)
    np.testing.assert_array_equal(read_array(place / "x"), rows)


def test_npy_by_ranges(place, rows, tmp_path):
    write_npy(place / "x.npy", rows)
    found = npy_rows(place / "x.npy")
    assert (found.shape, found.dtype, found.ndim) == (rows.shape, rows.dtype, 2)
    np.testing.assert_array_equal(found[3:700], rows[3:700])
    np.testing.assert_array_equal(found[3:700, 1:2], rows[3:700, 1:2])
    np.testing.assert_array_equal(be.open_array(str(place / "x.npy")).compute(scheduler="synchronous"), rows)
    write_npy(place / "f.npy", np.asfortranarray(rows))
    with pytest.raises(errors.InputError, match="by columns"):
        npy_rows(place / "f.npy")
    store.put(place / "cut.npy", (place / "x.npy").read_bytes()[:-1])
    with pytest.raises(errors.InputError, match="shorter"):
        npy_rows(place / "cut.npy")
    with pytest.raises(errors.MissingPathError):
        npy_rows(place / "none.npy")


def test_the_exchange(place, rows):
    exchange = Exchange(str(place / "exchange"))
    exchange.put("halo", 3, {"a": rows, "b": rows[:0], "7": np.arange(3)})
    np.testing.assert_array_equal(exchange.get("halo", 3, "a"), rows)
    assert exchange.get("halo", 3, "none") is None
    assert sorted(exchange.get_all("halo", 3)) == ["7", "a", "b"]
    assert (exchange.has("halo", 3), exchange.has("halo", 4)) == (True, False)
    with pytest.raises(errors.DamagedError, match="is gone"):
        exchange.get("halo", 4, "a")
    exchange.clear()
    assert not place.exists()


def test_rows_are_appended(place, rows):
    ingest_rows(place / "x.zarr", rows[:700])
    before = stored_units(place / "x.zarr")[2]
    source = RowSource((700, 4), rows.dtype, path=str(place / "x.zarr"))
    fingerprint = source.fingerprint()
    assert append_rows(str(place / "x.zarr"), rows[700:]) == 1500
    np.testing.assert_array_equal(read_array(place / "x.zarr"), rows)
    assert stored_units(place / "x.zarr")[2] != before
    assert source.fingerprint() != fingerprint
    with hold(place / "x.zarr.growing"), pytest.raises(errors.LockedError, match="held by"):
        append_rows(place / "x.zarr", rows[:3])


def ingest_rows(path, rows):
    import dask.array as da

    write_dask(da.from_array(rows), path)


# ----------------------------------------------------------------------------------- locks


def test_one_holds(place):
    with hold(place) as lock:
        assert holder(place).pid == lock.owner.pid
        with pytest.raises(errors.LockedError, match=f"process {lock.owner.pid}"):
            take(place)
    assert holder(place) is None
    with hold(place) as again:
        assert again.number == lock.number + 1


def test_a_silent_owner_is_taken_over_and_notices(place, monkeypatch):
    from bigembed.store import locks

    monkeypatch.setattr(locks, "_lives", lambda owner, age: False)  # (another machine, silent for long)
    first = take(place)
    second = take(place)
    with pytest.raises(errors.LockedError, match="took over"):
        first.check()
    second.check()
    first.release()
    second.release()


# ------------------------------------------------------------------------------ estimators


@pytest.mark.filterwarnings("ignore::bigembed.errors.DegenerateWarning")  # few landmarks
@pytest.mark.filterwarnings("ignore:Trustworthiness:bigembed.errors.MapWarning")  # Gaussian rows in two coordinates
@pytest.mark.parametrize(
    "estimator",
    [
        be.DiffusionMap(n_components=2, n_neighbors=8, random_state=0),
        pytest.param(be.PCA(n_components=2), marks=pytest.mark.slow),
        pytest.param(be.LandmarkMDS(n_components=2, n_landmarks=40, random_state=0), marks=pytest.mark.slow),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_the_same_bytes_as_on_a_disk(place, rows, tmp_path, estimator):
    ingest_rows(tmp_path / "x.zarr", rows)
    ingest_rows(place / "x.zarr", rows)
    kind, parameters = type(estimator), estimator.get_params()
    found = {}
    for home in (tmp_path, place):
        fitted = kind(**parameters | {"workdir": str(home / "run.zarr")}).fit(str(home / "x.zarr"))
        fitted.save(str(home / "model.zarr"))
        with pytest.raises(errors.ExistingOutputError):
            fitted.save(str(home / "model.zarr"))
        loaded = be.load(str(home / "model.zarr"))
        loaded.transform_to(str(home / "x.zarr"), str(home / "out.zarr"))
        with pytest.raises(errors.ExistingOutputError):
            loaded.transform_to(str(home / "x.zarr"), str(home / "out.zarr"))
        coordinates = np.asarray(fitted.embedding_[:])
        lazy = loaded.transform(be.open_array(str(home / "x.zarr")))
        np.testing.assert_array_equal(np.asarray(lazy), read_array(home / "out.zarr"))
        assert SECRET.encode() not in pickle.dumps((lazy, fitted.embedding_, fitted, loaded))
        found[home] = (
            coordinates.tobytes(),
            read_array(home / "out.zarr").tobytes(),
            digests(home / "run.zarr" / "stages"),
        )
    assert found[tmp_path][:2] == found[place][:2]
    assert found[tmp_path][2] == found[place][2]
    assert not [name.name for name in store.stored(place) if "partial" in name.name]


# --------------------------------------------------------------------- access and absence


def test_what_was_fitted_anew_is_superseded(place, rows):
    rows_at = str(place / "rows.zarr")
    ingest_rows(store.at(rows_at), rows)
    opened = be.PCA(n_components=2, workdir=str(place / "work")).fit(rows_at)
    before, lazy = np.asarray(opened.embedding_), opened.embedding_
    be.PCA(n_components=2, whiten=True, workdir=str(place / "work")).fit(rows_at)
    for reads in (lazy.compute, lambda: opened.transform(rows)):
        with pytest.raises(errors.StaleError, match="'solve' is superseded"):
            reads()
    again = be.PCA(n_components=2, workdir=str(place / "work")).fit(rows_at)
    np.testing.assert_array_equal(np.asarray(again.embedding_), before)


def test_wrong_credentials(place, monkeypatch):
    store.put(place / "x", b"1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    store.requests.client_of.cache_clear()
    try:
        with pytest.raises(errors.StoreAccessError, match="environment") as caught:
            (place / "x").read_bytes()
        with pytest.raises(errors.StoreAccessError, match="environment"):
            (place / "y").is_dir()
    finally:
        store.requests.client_of.cache_clear()
    assert "another-secret" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_store_that_is_away(tmp_path, monkeypatch):
    from datetime import timedelta

    monkeypatch.setattr(outages, "PATIENCE", timedelta(seconds=1))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store.requests.client_of.cache_clear()
    try:
        with pytest.raises(errors.UnreachableError, match="does not answer") as caught:
            store.at("s3://bucket/x").read_bytes()
        with pytest.raises(errors.UnreachableError):
            be.open_array("s3://bucket/x.zarr")
    finally:
        store.requests.client_of.cache_clear()
        outages.stores.away.clear()
    assert SECRET not in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_a_server_that_hangs_is_waited_for(place, server, rows):
    ingest_rows(place / "x.zarr", rows)
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)  # (a busy machine stops it later)
    began = time.monotonic()
    threading.Timer(2, server.process.send_signal, [signal.SIGCONT]).start()
    np.testing.assert_array_equal(read_array(place / "x.zarr"), rows)
    assert time.monotonic() - began > 1


# --------------------------------------------------------------------------------- formats


@these(("rows.parquet", "rows.zarr"), "name", sorted({*FORMATS} - {"rows.nc"}))
def test_files_of_other_formats_are_read_where_they_lie(place, tmp_path, name):
    libraries(name)
    rows, names = rows_of(), names_of()
    FORMATS[name](tmp_path / name, rows, names)
    store.copy_files(tmp_path / name, place / name, [file.name for file in store.stored(tmp_path / name)])
    choice = Choice(columns=COLUMNS if name in TABLES else (), array=("group/rows",) if name == "rows.h5" else ())
    for home in (tmp_path, place):
        ingest(home / name, home / "made.zarr", choice, {"ids": "cell"} if name in NAMED else None)
    assert digests(place / "made.zarr") == digests(tmp_path / "made.zarr")
    if name not in BARE:
        assert read_array(place / "made-ids.zarr").tolist() == read_array(tmp_path / "made-ids.zarr").tolist()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npy"])
def test_tables_are_written_there(place, rows, tmp_path, suffix):
    from bigembed.jobs.scene import export

    write_array(place / "x.zarr", rows)
    write_array(tmp_path / "x.zarr", rows)
    for home in (place, tmp_path):
        export(home / "x.zarr", home / f"table{suffix}")
    assert (place / f"table{suffix}").read_bytes() == (tmp_path / f"table{suffix}").read_bytes()
    with pytest.raises(errors.ExistingOutputError):
        export(place / "x.zarr", place / f"table{suffix}")


def test_what_needs_a_file_system_says_so(place, rows, tmp_path):
    store.put(place / "x.nc", b"CDF\x01")
    with pytest.raises(errors.InputError, match="must lie in a file system"):
        ingest(place / "x.nc", place / "rows.zarr")
