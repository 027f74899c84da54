"""A stage is computed once, found again, and computed anew when anything it depends on changes."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigembed import errors
from bigembed.runtime import Event, using
from bigembed.runtime.blocks import map_blocks
from bigembed.runtime.executors import LocalPool
from bigembed.stages.journal import StageJournal
from bigembed.stages.runs import Retention, Run
from bigembed.stages.stage import Context, Stage, run_stages
from bigembed.store import exchange
from bigembed.store import manifests as manifest
from bigembed.store import manifests as roots
from bigembed.store.arrays import read_array, write_array
from bigembed.store.files import sealed
from bigembed.store.manifests import digest_files, find, publish, quick_damage, verify
from bigembed.store.metadata import make_group
from tests.executors import executor


class Counter:
    """Two stages, the second reading the first, that count how often they run."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def fingerprint(self) -> str:
        """Nothing that it holds decides a result."""
        return ""

    def stages(self, value: float = 2.0, factor: float = 3.0) -> list[Stage]:
        def first(context: Context) -> dict[str, Any]:
            self.runs.append("first")
            write_array(context.path("x"), np.full(4, value))
            return {"value": value}

        def second(context: Context) -> dict[str, Any]:
            self.runs.append("second")
            write_array(context.path("y"), factor * read_array(context.of("first", "x")))
            return {"sum": float(factor * context.results("first")["value"] * 4)}

        return [Stage("first", (), {"value": value}, first), Stage("second", ("first",), {"factor": factor}, second)]


def test_a_second_run_computes_nothing(tmp_path: Path) -> None:
    counter = Counter()
    run_stages(counter.stages(), Run(tmp_path / "run"))
    run = Run(tmp_path / "run")
    heard: list[Event] = []
    with using(observer=heard.append):
        run_stages(counter.stages(), run)
    assert counter.runs == ["first", "second"]
    assert [(event.kind, event.stage) for event in heard] == [("reused", "first"), ("reused", "second")]
    assert run.results("second") == {"sum": 24.0}


def test_a_stage_that_was_not_published_does_not_exist(tmp_path: Path) -> None:
    counter, run = Counter(), Run(tmp_path / "run")
    run_stages(counter.stages(), run)
    (tmp_path / "run" / "manifest" / "second.json").unlink()
    again = Run(tmp_path / "run")
    with pytest.raises(errors.DamagedError, match="second"):
        again.path("second", "y")
    run_stages(counter.stages(), again)
    assert counter.runs == ["first", "second", "second"]


def flip(path: Path, byte: int = 20) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["stages/first/x/c/0", "stages/first/x/zarr.json", "manifest/first.json"])
def test_a_bit_that_changed_makes_its_stage_anew_and_reuses_what_followed(tmp_path: Path, name: str) -> None:
    counter = Counter()
    run_stages(counter.stages(), Run(tmp_path / "run"))
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "stages").rglob("*") if path.is_file()}
    flip(tmp_path / "run" / name)
    reader = Run(tmp_path / "run")
    with pytest.raises(errors.DamagedError, match="first"):
        reader.path("first", "x")
    with pytest.warns(errors.DamageWarning, match=r"first.* it is made anew"):
        run_stages(counter.stages(), Run(tmp_path / "run"))
    assert counter.runs == ["first", "second", "first"]
    assert {path: path.read_bytes() for path in before} == before
    run_stages(counter.stages(), Run(tmp_path / "run"))
    assert counter.runs == ["first", "second", "first"]


def test_a_number_that_changed_in_a_manifest_is_not_believed(tmp_path: Path) -> None:
    run_stages(Counter().stages(), Run(tmp_path / "run"))
    path = tmp_path / "run" / "manifest" / "first.json"
    path.write_text(path.read_text().replace('"value": 2.0', '"value": 7.0', 1))
    with pytest.raises(errors.DamagedError, match="its digest is another one"):
        Run(tmp_path / "run").results("first")


def test_a_manifest_without_a_digest_is_still_read(tmp_path: Path) -> None:
    counter = Counter()
    run_stages(counter.stages(), Run(tmp_path / "run"))
    path = tmp_path / "run" / "manifest" / "first.json"
    value = json.loads(path.read_text())
    del value["digest"]
    path.write_text(json.dumps(value))
    run_stages(counter.stages(), Run(tmp_path / "run"))
    assert counter.runs == ["first", "second"]


@pytest.mark.parametrize(
    "change",
    [
        {"files": []}, {"files": {"x": [1]}}, {"files": {"../../x": [1, "0"]}}, {"key": None}, {"results": 3},
        {"more": 1}, {"stage": "second"}, {"format": 9},
    ],
)  # fmt: skip
def test_a_manifest_of_another_form_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    run_stages(Counter().stages(), Run(tmp_path / "run"))
    path = tmp_path / "run" / "manifest" / "first.json"
    path.write_text(json.dumps(sealed(json.loads(path.read_text()) | change)))
    with pytest.raises(errors.DamagedError, match=r"first\.json"):
        find(tmp_path / "run", "first")
    for text in (b"[]", b"", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(text)
        with pytest.raises(errors.DamagedError, match=r"first\.json"):
            find(tmp_path / "run", "first")


def test_what_was_compared_is_read_again_only_if_it_was_written(tmp_path: Path, monkeypatch: Any) -> None:
    run_stages(Counter().stages(), Run(tmp_path / "run"))
    read: list[Any] = []
    monkeypatch.setattr(manifest, "digest_files", lambda base, names: read.append(names) or digest_files(base, names))
    Run(tmp_path / "run").path("first", "x")
    assert not read  # this process published it
    manifest._whole.clear()
    for _ in range(3):
        Run(tmp_path / "run").path("first", "x")
    assert len(read) == 1
    flip(tmp_path / "run" / "stages" / "first" / "x" / "c" / "0")
    with pytest.raises(errors.DamagedError):
        Run(tmp_path / "run").path("first", "x")


def test_a_stage_half_replaced_when_its_run_was_killed_is_not_restored(tmp_path: Path) -> None:
    counter, run = Counter(), Run(tmp_path / "run")
    first = counter.stages(value=2.0)[:1]
    run_stages(first, run)

    def killed(context: Context) -> dict[str, Any]:
        write_array(context.path("x"), np.full(4, 9.0))  # of the same size
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stages([replace(first[0], parameters={"value": 9.0}, run=killed)], Run(tmp_path / "run"))
    run_stages(first, Run(tmp_path / "run"))
    np.testing.assert_array_equal(read_array(Run(tmp_path / "run").path("first", "x")), np.full(4, 2.0))


class Seen(list[list[float]]):
    """The steps that each start of a stage has found, which are not part of what the stage is of."""

    def fingerprint(self) -> str:
        return "seen"


def resuming(seen: Seen) -> Stage:
    """A stage in three steps that goes on from its exchange."""

    def steps(context: Context) -> dict[str, Any]:
        done = [step for step in range(3) if context.exchange.has("step", step)]
        seen.append([float(context.exchange.get_many("step", step, ["value"])[0][0]) for step in done])
        for step in range(len(done), 3):
            context.exchange.put("step", step, {"value": np.full(9, step, float)})
            if step == 1 and len(seen) == 1:
                raise KeyboardInterrupt
        return {}

    return Stage("steps", (), {}, steps, resumes=True)


def test_a_stage_goes_on_from_what_it_left_when_it_was_stopped(tmp_path: Path) -> None:
    seen = Seen()
    with pytest.raises(KeyboardInterrupt):
        run_stages([resuming(seen)], Run(tmp_path / "run"))
    run_stages([resuming(seen)], Run(tmp_path / "run"))
    assert seen == [[], [0.0, 1.0]]


@pytest.mark.parametrize("name", ["step/0", "step/1", "key.json"])
@pytest.mark.parametrize("how", ["flip", "swap", "empty"])
def test_a_stage_begins_anew_where_what_it_goes_on_from_is_damaged(tmp_path: Path, name: str, how: str) -> None:
    seen = Seen()
    with pytest.raises(KeyboardInterrupt):
        run_stages([resuming(seen)], Run(tmp_path / "run"))
    home = tmp_path / "run" / "exchange" / "steps"
    path, other = home / name, home / ("step/0" if name == "step/1" else "step/1")
    if how == "flip":
        flip(path)
    elif how == "swap":
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(b"")
    with warnings.catch_warnings(action="ignore", category=errors.DamageWarning):
        run_stages([resuming(seen)], Run(tmp_path / "run"))
    assert seen[-1] == []
    assert Run(tmp_path / "run").has("steps")


@pytest.mark.parametrize("mark", ["as it was", {"format": 3}, {"format": 8}, {"format": "?"}, [1]])
def test_a_stage_begins_anew_with_a_note_where_another_version_was_killed(tmp_path: Path, mark: Any) -> None:
    seen = Seen()
    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_stages([resuming(seen)], Run(tmp_path / "run"))
    file = tmp_path / "run" / "exchange" / "steps" / "key.json"
    own = json.loads(file.read_text())
    found = own["key"] if mark == "as it was" else own | mark if isinstance(mark, dict) else mark
    file.write_text(json.dumps(found))
    with using(observer=lambda event: notes.append(event.message) if event.kind == "note" else None):
        run_stages([resuming(seen)], Run(tmp_path / "run"))
    assert seen[-1] == []
    assert any("another version" in note for note in notes) == (mark != [1])


@pytest.mark.parametrize("error", [errors.ClusterError("no worker"), KeyboardInterrupt()])
def test_a_published_stage_stands_whatever_becomes_of_the_tasks_that_delete_what_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """What a stop leaves the next start deletes."""

    def left(context: Context) -> dict[str, Any]:
        for block in range(3):
            context.exchange.put("name", block, {"own": np.ones(200)})
        return {}

    def fail(calls: Any, label: str) -> Any:
        assert label == "delete"
        raise error

    monkeypatch.setattr(exchange, "DELETED_TOGETHER", 1)
    run, stopped = Run(tmp_path / "run"), isinstance(error, KeyboardInterrupt)
    with executor(fail), pytest.raises(KeyboardInterrupt) if stopped else nullcontext():
        run_stages([Stage("first", (), {}, left)], run)
    assert run.has("first")
    assert (run.root / "exchange" / "first").exists() == stopped
    run_stages([Stage("first", (), {}, left)], run)
    assert not (run.root / "exchange" / "first").exists()


def test_verify_lists_every_damaged_missing_and_foreign_file(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run_stages(Counter().stages(), run)
    manifest = run.manifest("first")
    assert verify(run.root, manifest) == quick_damage(run.root, manifest) == []
    data = next(path for path in Path(run.path("first")).rglob("*") if path.name != "zarr.json" and path.is_file())
    data.write_bytes(data.read_bytes()[::-1])
    (Path(run.path("first")) / "stranger").write_text("?")
    problems = verify(run.root, manifest)
    assert len(problems) == 2
    assert any("not in the manifest" in problem for problem in problems)
    assert quick_damage(run.root, manifest) == []  # (names, sizes and metadata alone)
    said = Path(run.path("first", "x"), "zarr.json")
    said.write_bytes(said.read_bytes().replace(b"float64", b"uint64 "))
    assert [problem.partition(":")[0] for problem in quick_damage(run.root, manifest)] == ["first/x/zarr.json"]


def test_a_temporary_run_is_removed_with_its_owner() -> None:
    run = Run(None)
    root = run.root
    run_stages(Counter().stages(), run)
    assert root.exists()
    del run
    assert not root.exists()


def test_a_run_whose_making_was_killed_is_made(tmp_path):
    root = tmp_path / "run.zarr"
    root.mkdir()
    (root / "zarr.3c7f2a.partial").write_text("{")  # what Zarr leaves when it is killed before the group is there
    assert Run(root).published() == []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "zarr.txt").write_text("mine")
    with pytest.raises(errors.ExistingOutputError, match="not a bigembed run"):
        Run(tmp_path / "other")


def test_of_two_that_make_a_run_at_once_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*arguments: Any) -> None:
        make_group(*arguments)  # the other one was quicker
        make_group(*arguments)

    monkeypatch.setattr(roots, "make_group", make)
    assert Run(tmp_path / "run.zarr").published() == []
    with pytest.raises(ValueError, match="exists"):
        make_group(tmp_path / "run.zarr", {})  # a control


def test_of_two_that_think_they_hold_the_run_one_publishes(tmp_path: Path) -> None:
    def slow(context: Context) -> dict[str, Any]:
        write_array(context.path("x"), np.arange(3))
        if not context.home.has("twice"):  # the other one was quicker, while this one slept
            publish(context.home.root, "twice", "another", {}, {}, {"by": "the other"}, {}, {})
        return {"by": "this one"}

    run = Run(tmp_path / "run.zarr")
    with pytest.raises(errors.LockedError, match="published this stage meanwhile"):
        run_stages([Stage("twice", (), {}, slow)], run)
    assert Run(tmp_path / "run.zarr").results("twice") == {"by": "the other"}


# -------------------------------------------------------------------------------------------------------- the journal


@pytest.fixture
def never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time alone writes nothing: a busy machine may take longer than half a second for a few lines of a test."""
    monkeypatch.setattr("bigembed.stages.journal.PATIENCE", 3600.0)


def values() -> list[Any]:
    structured = np.zeros(2, [("id", "<i8"), ("length", "<f4")])
    return [
        None, True, 3, 0.1, float("inf"), "α", (1, [2.5, None]), {"a": (), 4: {}}, np.float32(0.1), np.int64(-1),
        np.bool_(True), np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((0, 4)), np.array(2.0), structured,
    ]  # fmt: skip


@pytest.mark.parametrize("value", values(), ids=lambda value: f"{type(value).__name__}-{value!r:.12}")
def test_what_the_journal_gives_back_is_what_it_got(value: Any, tmp_path: Path) -> None:
    for act in (lambda: value, pytest.fail):
        with suppress(RuntimeError), StageJournal(str(tmp_path / "exchange"), tmp_path) as journal:
            found = journal.once(act)
            raise RuntimeError("stopped")
    assert type(found) is type(value)
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None)
    assert np.array_equal(found, value) if isinstance(value, np.ndarray) else found == value


def journaled(place: Path, counts: list[int], stop: int = 99) -> list[list[Any]]:
    """What maps of so many tasks gave; ``stop``: the task, of all, that is stopped."""
    made: list[tuple[int, int]] = []

    def work(number: int, place: int) -> int:
        if len(made) == stop:
            raise RuntimeError("stopped")
        made.append((number, place))
        return 10 * number + place

    def run(calls: Any, label: str, keep: Any) -> list[Any]:
        results = []
        for place, call in enumerate(calls):
            results.append(call())
            keep(place, results[-1])
        return results

    with suppress(RuntimeError), StageJournal(str(place / "exchange"), place) as journal:
        for number, count in enumerate(counts):
            found = journal.run_map([partial(work, number, task) for task in range(count)], f"map {number}", run)
            assert found == [10 * number + task for task in range(count)]
        raise RuntimeError("stopped")
    return made


def test_a_map_that_was_stopped_goes_on_with_the_tasks_that_are_left(tmp_path: Path) -> None:
    assert journaled(tmp_path, [2, 3], stop=3) == [(0, 0), (0, 1), (1, 0)]
    assert journaled(tmp_path, [2, 3], stop=1) == [(1, 1)]
    assert journaled(tmp_path, [2, 3]) == [(1, 2)]
    assert journaled(tmp_path, [2, 4, 1]) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]  # another map: all after it anew
    assert journaled(tmp_path, [2, 4, 1]) == []


def test_a_folder_in_place_of_the_journal_is_damage_and_no_error(tmp_path: Path) -> None:
    journaled(tmp_path, [2], stop=1)
    file = tmp_path / "exchange" / "journal" / "0"
    file.unlink()
    file.mkdir()
    assert journaled(tmp_path, [2], stop=1) == [(0, 0)]
    assert file.is_file()
    assert journaled(tmp_path, [2]) == [(0, 1)]


@pytest.mark.usefixtures("never_due")
def test_what_was_done_is_on_disk_before_anything_is_deleted(tmp_path: Path) -> None:
    """A kill that leaves no time finds what the maps returned, or what they left."""
    journaled(tmp_path, [2])
    journal = StageJournal(str(tmp_path / "exchange"), tmp_path)

    def run(calls: Any, label: str, keep: Any) -> list[Any]:
        keep(0, "known")
        return ["known"]

    def delete() -> None:
        assert b'[1, 0, "known"]' in (tmp_path / "exchange" / "journal" / "0").read_bytes()

    journal.run_map([int, int], "map 0", run)
    journal.run_map([int], "map 1", run)
    assert b'[1, 0, "known"]' not in (tmp_path / "exchange" / "journal" / "0").read_bytes()
    journal.once(delete)


@pytest.mark.usefixtures("never_due")
def test_that_an_act_was_done_is_on_disk_before_any_task_that_follows(tmp_path: Path) -> None:
    """A kill that leaves no time must not let the next start delete what tasks have made since."""
    journaled(tmp_path, [2])
    file = tmp_path / "exchange" / "journal" / "0"
    journal = StageJournal(str(tmp_path / "exchange"), tmp_path)

    def run(calls: Any, label: str, keep: Any) -> list[Any]:
        keep(0, "known")
        return ["known"]

    journal.run_map([int, int], "map 0", run)
    journal.run_map([int], "map 1", run)
    assert b'"known"' not in file.read_bytes()  # (it waits for others)
    journal.once(lambda: "deleted")
    assert b'"deleted"' in file.read_bytes()


@pytest.mark.parametrize("damage", ["cut", "flipped", "token", "folder"])
def test_what_is_damaged_in_a_journal_is_made_again(damage: str, tmp_path: Path) -> None:
    journaled(tmp_path, [3, 3])
    file, token = tmp_path / "exchange" / "journal" / "0", tmp_path / ".begun"
    lines = file.read_bytes().split(b"\n")
    if damage == "cut":
        file.write_bytes(b"\n".join(lines)[:-8])
    elif damage == "flipped":
        place = next(place for place, line in enumerate(lines) if line.endswith(b"[1, 1, 11]"))
        lines[place] = lines[place].replace(b"11]", b"12]")
        file.write_bytes(b"\n".join(lines))
    elif damage == "token":
        token.unlink()
    else:
        token.write_text("of another start")
    redone = {"cut": [(1, 2)], "flipped": [(1, 1)]}.get(damage, [(n, task) for n in range(2) for task in range(3)])
    assert journaled(tmp_path, [3, 3]) == redone
    assert journaled(tmp_path, [3, 3]) == []


def test_a_folder_that_another_run_took_in_between_is_not_gone_on_with(tmp_path: Path) -> None:
    """The exchange of the first lies in a scratch folder, where it stays while a run without one makes the stage."""
    done: list[int] = []

    def stop_at(count: int) -> Stage:
        def task(number: int, out: str) -> int:
            if len(done) == count:
                raise RuntimeError("stopped")
            done.append(number)
            write_array(f"{out}/{number}", np.full(3, number))
            return number

        def run(context: Context) -> dict[str, Any]:
            return {"sum": sum(map_blocks(task, [(n,) for n in range(4)], out=context.path("parts")))}

        return Stage("parts", (), {}, run)

    run = Run(tmp_path / "run")
    with using(executor=LocalPool(1)):
        with using(scratch=str(tmp_path / "scratch")), pytest.raises(RuntimeError):
            run_stages([stop_at(3)], run)
        with pytest.raises(RuntimeError):
            run_stages([stop_at(5)], run)
        with using(scratch=str(tmp_path / "scratch")):
            run_stages([stop_at(99)], run)
    assert done == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert [read_array(run.path("parts", f"parts/{n}")).tolist() for n in range(4)] == [[n] * 3 for n in range(4)]


class Dropping(Counter):
    """Three stages: of what the first one publishes the second one opens x, and the third one nothing."""

    def listed(self, factor: float = 3.0, last: float = 1.0) -> list[Stage]:
        first, second = self.stages(factor=factor)

        def both(context: Context) -> dict[str, Any]:
            write_array(context.path("z"), np.ones(2))
            return dict(first.run(context))

        def third(context: Context) -> dict[str, Any]:
            self.runs.append("third")
            return {
                "value": context.results("first")["value"],
                "sum": float(read_array(context.of("second", "y")).sum()),
            }

        opened = ("first", "second")
        return [
            replace(first, run=both),
            replace(second, opens={"first": ("x",)}),
            Stage("third", opened, {"last": last}, third, opens={"first": ()}),
        ]

    def run(self, place: Path, keep: bool = True, **more: float) -> list[str]:
        """The stages that are computed; where not all is kept, z of the first one and what the third one publishes."""
        self.runs.clear()
        stages = self.listed(**more)
        run_stages(stages, Run(place), retention=Retention(stages, {"first": ("z",), "second": ()}) if keep else None)
        return list(self.runs)


def arrays_there(place: Path) -> list[str]:
    """The arrays that are there."""
    return sorted(str(path.relative_to(place / "stages")) for path in place.glob("stages/*/*"))


class TestDropping:
    def test_what_no_stage_is_left_to_read_is_dropped_and_made_anew_where_it_is_needed(self, tmp_path: Path) -> None:
        made, whole, place = Dropping(), tmp_path / "whole", tmp_path / "run"
        made.run(whole, keep=False)
        assert made.run(place) == ["first", "second", "third"]
        assert arrays_there(place) == ["first/z"]
        assert [Run(place).digest(name) == Run(whole).digest(name) for name in ("first", "second", "third")] == [
            True
        ] * 3
        assert made.run(place) == []
        assert made.run(place, last=2.0) == ["first", "second", "third"]  # (y was dropped, and x with it)
        assert made.run(place, factor=5.0) == ["first", "second", "third"]
        assert made.run(place, keep=False, factor=5.0) == ["first", "second"]
        assert arrays_there(place) == ["first/x", "first/z", "second/y"]
        before = Run(place)
        assert read_array(before.path("first", "x")).size
        assert made.run(place, factor=5.0) == []
        assert arrays_there(place) == ["first/z"]
        for reader in (Run(place), before):
            with pytest.raises(errors.DroppedError, match="'x' of stage 'first' was dropped"):
                reader.path("first", "x")
        assert not Run(place).holds("first")
        assert Run(place).has("first")
        assert not verify(Run(place).root, Run(place).manifest("first"))

    def test_x_goes_as_soon_as_the_stage_that_opens_it_is_done(self, tmp_path: Path) -> None:
        made = Dropping()
        stages = made.listed()
        seen: list[list[str]] = []
        stages[2] = replace(stages[2], run=lambda context: seen.append(arrays_there(tmp_path)) or {})
        run_stages(stages, Run(tmp_path), retention=Retention(stages, {"first": ("z",)}))
        assert seen == [["first/z", "second/y"]]

    @pytest.mark.parametrize("when", ["before", "within", "made anew"])
    def test_killed_around_dropping_the_next_start_comes_to_the_same(
        self, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = Dropping()

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        if when == "made anew":
            made.run(tmp_path)
        else:
            monkeypatch.setattr(manifest, "drop" if when == "before" else "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            (Stopped() if when == "made anew" else made).run(tmp_path, last=2.0)
        monkeypatch.undo()
        assert made.run(tmp_path, last=2.0) == (["first", "second", "third"] if when == "made anew" else ["third"])
        assert arrays_there(tmp_path) == ["first/z"]
        assert Run(tmp_path).results("third")["sum"] == 24.0

    def test_a_stage_that_opens_what_it_does_not_declare_is_told(self, tmp_path: Path) -> None:
        first, second, third = Dropping().listed()
        with pytest.raises(errors.UndeclaredInputError, match="opens x of 'first', and declares that it opens 'z'"):
            run_stages([first, replace(second, opens={"first": ("z",)}), third], Run(tmp_path))


class Stopped(Dropping):
    """Ends the process when the first stage has written what it publishes."""

    def listed(self, factor: float = 3.0, last: float = 1.0) -> list[Stage]:
        first, *rest = super().listed(factor, last)

        def stopped(context: Context) -> dict[str, Any]:
            first.run(context)
            raise KeyboardInterrupt

        return [replace(first, run=stopped), *rest]
