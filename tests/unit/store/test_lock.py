"""Locks, and temporary folders of processes that were killed."""

from __future__ import annotations

import contextvars
import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bigembed.errors import InputError, LockedError
from bigembed.stages.runs import Run
from bigembed.store import locks
from bigembed.store.files import new_folder, sweep
from bigembed.store.locks import PATIENCE, hold, holder, in_turn, output_lock, take

TAKE = (
    "import sys, time; from pathlib import Path; from bigembed.store.locks import take\n"
    "take(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
)


def elsewhere(root):
    """A process that holds the folder."""
    process = subprocess.Popen([sys.executable, "-c", TAKE, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def rewrite(root, **changes):
    """Make the hold look as if another one had written it."""
    path = max((root / "hold").glob("*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


BROKEN = {
    "not UTF-8": b'{"user": "\xff\xfe"}',
    "empty": b"",
    "truncated": b'{"user": "x", "pi',
    "a list": b"[1, 2]",
    "a number": b"7",
    "deep": b"[" * 200_000,
    "other kinds": b'{"user": 1, "pid": "x", "host": null, "since": "then"}',
}


def moved_when_looked_at(folder, monkeypatch):
    """Somebody looks at the folder, then it is moved away, and another one takes a new one of its name."""
    look, others = locks._highest, []

    def slow(place):
        found = look(place)
        if not others:
            os.rename(folder, f"{folder}-gone")
            folder.mkdir()
            others.append(None)
            others[0] = take(folder)
        return found

    monkeypatch.setattr(locks, "_highest", slow)
    return others


def enter(held, root, log, times):
    """Hold it again and again; note when inside."""
    for _ in range(times):
        while True:
            try:
                with held(root):
                    for side in ("in", "out"):
                        with open(log, "a") as file:
                            file.write(f"{side} {os.getpid()}\n")
                        time.sleep(0.001)
                break
            except LockedError:
                time.sleep(0.001)


class TestLock:
    """A folder is held by one process at a time, and by no dead one."""

    def test_the_second_is_told_who_holds_it_since_when(self, tmp_path):
        process = elsewhere(tmp_path)
        try:
            with pytest.raises(
                LockedError, match=rf"held by \S+ \(process {process.pid} on \S+\) since \d{{4}}-"
            ) as caught:
                take(tmp_path)
            assert os.uname().nodename in str(caught.value)
            owner = holder(tmp_path)
            assert owner is not None
            assert owner.pid == process.pid
        finally:
            process.kill()
            process.wait()

    @pytest.mark.parametrize("reaped", [True, False])
    def test_a_killed_process_holds_nothing(self, tmp_path, reaped):
        process = elsewhere(tmp_path)
        process.kill()
        if reaped:
            process.wait()
        else:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert holder(tmp_path) is None
        with hold(tmp_path) as lock:
            assert lock.number == 2
        process.wait()

    def test_a_process_number_used_again_is_another_process(self, tmp_path):
        lock = take(tmp_path)
        rewrite(tmp_path, born="1")
        with hold(tmp_path):
            pass
        lock._stop.set()

    def test_an_owner_on_another_machine_is_judged_by_its_heartbeat(self, tmp_path):
        lock = take(tmp_path)
        lock._stop.set()
        lock._thread.join()
        path = rewrite(tmp_path, host="elsewhere", heartbeat=100.0, pid=1)
        beaten = time.time() - PATIENCE * 100 + 400
        os.utime(path, (beaten, beaten))
        with pytest.raises(LockedError, match=r"process 1 on elsewhere.*no sign of life for \d+ s"):
            take(tmp_path)
        late = time.time() - PATIENCE * 100 - 1
        os.utime(path, (late, late))
        with hold(tmp_path) as taken:
            assert taken.number == lock.number + 1
            with pytest.raises(LockedError, match="took over"):
                lock.check()
            taken.check()

    def test_a_living_owner_gives_signs_of_life(self, tmp_path, monkeypatch):
        monkeypatch.setattr(locks, "HEARTBEAT", 0.05)
        with hold(tmp_path) as lock:
            first = lock.path.stat().st_mtime_ns
            deadline = time.monotonic() + 60
            while lock.path.stat().st_mtime_ns == first and time.monotonic() < deadline:
                time.sleep(0.02)
            assert lock.path.stat().st_mtime_ns > first
        assert not lock._thread.is_alive()

    def test_one_who_was_slow_does_not_take_it_from_the_next(self, tmp_path, monkeypatch):
        """It saw a dead owner's number as the highest; meanwhile two others came, and the names before were cleared."""
        for _ in range(4):
            with hold(tmp_path):
                pass
        living = take(tmp_path)
        stale, honest = [2], locks._highest
        monkeypatch.setattr(locks, "_highest", lambda folder: stale.pop() if stale else honest(folder))
        with pytest.raises(LockedError, match="held by"):
            take(tmp_path)
        living.check()
        living.release()

    def test_a_torn_file_holds_nothing_for_long(self, tmp_path):
        take(tmp_path)._stop.set()
        path = tmp_path / "hold" / "0000001.json"
        path.write_text('{"user": "x"')
        with pytest.raises(LockedError, match="held by somebody"):  # it may be in the making
            take(tmp_path)
        late = time.time() - PATIENCE * locks.HEARTBEAT - 1
        os.utime(path, (late, late))
        with hold(tmp_path) as lock:
            assert lock.number == 2

    @pytest.mark.parametrize("born", ["", "1"])
    def test_a_dead_owner_of_this_machine_is_free_whatever_its_time_says(self, tmp_path, born):
        take(tmp_path)._stop.set()
        path = rewrite(tmp_path, pid=2**22 + 1, born=born or "77")
        ahead = time.time() + 365 * 86400
        os.utime(path, (ahead, ahead))
        assert holder(tmp_path) is None
        with hold(tmp_path) as lock:
            assert lock.number == 2

    def test_a_sign_of_life_in_the_future_counts_from_now_on(self, tmp_path):
        take(tmp_path)._stop.set()
        path = rewrite(tmp_path, host="elsewhere", pid=1)
        ahead = time.time() + 365 * 86400
        os.utime(path, (ahead, ahead))
        assert holder(tmp_path) is None
        with pytest.raises(LockedError, match=r"in the future\. It is not believed"):
            take(tmp_path)
        assert abs(path.stat().st_mtime - time.time()) < 30
        with pytest.raises(LockedError, match="held by"):  # it may live
            take(tmp_path)
        late = time.time() - PATIENCE * locks.HEARTBEAT - 1
        os.utime(path, (late, late))
        with hold(tmp_path) as lock:
            assert lock.number == 2

    @pytest.mark.parametrize("what", [*BROKEN, "a folder", "an endless heartbeat", "an endless time"])
    def test_a_broken_file_is_named_and_got_past(self, tmp_path, what):
        take(tmp_path)._stop.set()
        path = tmp_path / "hold" / "0000001.json"
        if what == "a folder":
            path.unlink()
            path.mkdir()
        elif what in BROKEN:
            path.write_bytes(BROKEN[what])
        else:
            rewrite(tmp_path, host="elsewhere", **{"heartbeat" if "heart" in what else "since": 1e300})
        with pytest.raises(LockedError, match=r"0000001\.json is broken"):  # its owner may live
            take(tmp_path)
        assert holder(tmp_path) is not None
        late = time.time() - PATIENCE * locks.HEARTBEAT - 1
        os.utime(path, (late, late))
        assert holder(tmp_path) is None
        with hold(tmp_path) as lock:
            assert lock.number == 2
        with hold(tmp_path):
            pass
        assert not path.exists()

    def test_an_owner_whose_file_breaks_keeps_the_hold(self, tmp_path):
        with hold(tmp_path) as lock:
            lock.path.write_bytes(b"\xff")
            lock.check()
            with pytest.raises(LockedError, match="is broken"):
                take(tmp_path)
        with hold(tmp_path):  # it was released
            pass

    def test_a_hold_that_was_removed_publishes_nothing(self, tmp_path):
        with hold(tmp_path) as lock:
            shutil.rmtree(tmp_path / "hold")
            with pytest.raises(LockedError, match="was removed"):
                lock.check()
            with hold(tmp_path), pytest.raises(LockedError, match="was removed"):
                lock.check()

    def test_outputs_are_held_while_they_are_made(self, tmp_path):
        with output_lock(tmp_path / "model.zarr", tmp_path / "new" / "table.csv"), output_lock(tmp_path / "model.zarr"):
            context = contextvars.Context()
            with pytest.raises(LockedError, match=r"model\.zarr.*held by"):
                context.run(lambda: output_lock(tmp_path / "model.zarr").__enter__())
        assert [path.name for path in tmp_path.rglob("*")] == ["new"]

    def test_without_hard_links(self, tmp_path, monkeypatch):
        def refuse(*_):
            raise PermissionError("no links here")

        monkeypatch.setattr(os, "link", refuse)
        with hold(tmp_path) as lock:
            assert holder(tmp_path) == lock.owner
            with pytest.raises(LockedError, match=rf"process {os.getpid()} on"):
                take(tmp_path)
        with hold(tmp_path) as lock:
            assert lock.number == 2

    def test_one_who_looked_at_a_folder_that_was_moved_away_withdraws(self, tmp_path, monkeypatch):
        folder = tmp_path / "x"
        folder.mkdir()
        before = take(folder)
        others = moved_when_looked_at(folder, monkeypatch)
        with pytest.raises(LockedError, match="held by"):
            take(folder)
        assert [path.name for path in (folder / "hold").iterdir()] == ["0000001.json"]
        before.release()  # whose number another one has now
        assert holder(folder) is not None
        others[0].check()
        others[0].release()
        assert holder(folder) is None

    @pytest.mark.parametrize("held", [hold, output_lock])
    def test_many_that_start_at_once_come_in_one_after_another(self, tmp_path, held):
        (tmp_path / "run").mkdir()
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=enter, args=(held, tmp_path / "run", tmp_path / "log", 15)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(280)
            assert process.exitcode == 0
        lines = (tmp_path / "log").read_text().split("\n")[:-1]
        assert len(lines) == 2 * 4 * 15
        assert all(
            first.split() == ["in", last.split()[1]] and last.startswith("out")
            for first, last in zip(lines[::2], lines[1::2], strict=True)
        )

    def test_a_turn_comes_when_the_one_before_is_done(self, tmp_path):
        path, done = tmp_path / "rows.zarr", []

        def write(number):
            with in_turn(path):
                done.append(("in", number))
                time.sleep(0.05)
                done.append(("out", number))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert [step for step, _ in done] == ["in", "out"] * 4
        assert all(first[1] == second[1] for first, second in zip(done[::2], done[1::2], strict=True))
        assert not list(tmp_path.iterdir())


MAKE = (
    "import time; from bigembed.store.files import new_folder\n"
    "folder = new_folder('workers'); (folder / 'space').mkdir(); print(folder, flush=True); time.sleep(60)"
)


class TestScratch:
    """Temporary folders of processes that were killed do not stay."""

    def test_the_folder_of_a_killed_process_is_swept_and_no_other(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", None)
        process = subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True)
        made = process.stdout.readline().strip()
        assert os.path.basename(made).startswith("bigembed-workers-")
        mine, run = new_folder("table"), Run(None)
        strange = tmp_path / f"bigembed-run-{'0' * 12}-1-1-abc"  # of another machine
        strange.mkdir()
        sweep(str(tmp_path))
        assert os.path.isdir(made)  # it lives
        process.kill()
        process.wait()
        sweep(str(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, run.root.name, strange.name])


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_of_another_user_is_named_with_both(tmp_path, monkeypatch, code):
    def closed(*arguments):
        raise OSError(code, os.strerror(code), str(tmp_path / "hold" / "0000003.json"))

    monkeypatch.setattr(locks, "create", closed)
    monkeypatch.setattr(locks, "_user", lambda: "eve")
    with pytest.raises(InputError, match=f"^{tmp_path}: this user may write nothing there: it is eve, .* belongs to "):
        take(tmp_path)
