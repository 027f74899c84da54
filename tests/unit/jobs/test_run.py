"""Running a job in this process: results, record, resuming, refusals."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from bigembed.errors import (
    BigembedWarning,
    DamageWarning,
    ExistingOutputError,
    InputError,
    LockedError,
    MissingPathError,
    PlanError,
)
from bigembed.jobs.record import read_record
from bigembed.jobs.run import plan_job, run_job
from bigembed.jobs.spec import read_job
from bigembed.jobs.verify import verify
from bigembed.jobs.watching.reporter import RunOptions
from bigembed.jobs.watching.status import read_status
from bigembed.store import manifests as roots
from bigembed.store.arrays import read_array
from bigembed.store.files import read_sealed
from bigembed.store.locks import hold
from bigembed.store.manifests import find
from bigembed.store.superseded import supersede
from tests.unit.jobs.small_method import mean_of


def test_run_writes_everything_and_its_record(write_job, rows, tmp_path):
    job = read_job(write_job("n_components = 3", 'picture = "pictures/map.png"\nmodel = "model.zarr"'))
    events = []
    found = run_job(job, RunOptions(observer=events.append))
    embedding = read_array(tmp_path / "run.zarr" / "stages" / "center" / "embedding")
    np.testing.assert_allclose(embedding, (rows - rows.mean(axis=0, dtype="f8"))[:, :3], atol=1e-12)
    np.testing.assert_allclose(mean_of(tmp_path / "model.zarr"), rows.mean(axis=0, dtype="f8"), atol=1e-12)
    assert (tmp_path / "pictures" / "map.png").read_bytes().startswith(b"\x89PNG")
    assert [(event.kind, event.stage) for event in events] == [
        (kind, stage) for stage in ("mean", "center", "model", "picture") for kind in ("start", "done")
    ]
    assert found == read_sealed(tmp_path / "run.zarr" / "job.json") | {"unchanged": False}
    assert found["finished"]
    assert found["certificate"]["mean"] == pytest.approx(rows[:, 0].mean(), abs=1e-6)
    assert found["measured"]["total"] > 0
    assert found["predicted"] == found["plan"]["memory"]
    assert not list(tmp_path.rglob("*partial*"))


def test_again_is_a_no_op_and_changes_compute_only_what_depends_on_them(write_job, rows, tmp_path):
    run_job(read_job(write_job()))
    again = run_job(read_job(write_job()))
    assert again["unchanged"]
    other = run_job(read_job(write_job("n_components = 4")))
    assert [(stage["name"], stage["reused"]) for stage in other["stages"]] == [
        ("mean", True),
        ("center", False),
    ]
    assert read_array(tmp_path / "run.zarr" / "stages" / "center" / "embedding").shape == (3000, 4)
    np.save(tmp_path / "rows.npy", rows + 1)
    changed = run_job(read_job(write_job("n_components = 4")))
    assert not any(stage["reused"] for stage in changed["stages"])


def test_what_was_lost_is_made_again(write_job, rows, tmp_path):
    job = read_job(write_job(output='model = "model.zarr"'))
    run_job(job)
    shard = next(path for path in (tmp_path / "run.zarr/stages/center/embedding/c").rglob("*") if path.is_file())
    shard.unlink()
    with pytest.warns(DamageWarning, match="missing; it is made anew"):
        found = run_job(job)
    assert [(stage["name"], stage["reused"]) for stage in found["stages"]][:2] == [
        ("mean", True),
        ("center", False),
    ]


def test_fresh_forgets_the_stages(write_job, rows, tmp_path):
    job = read_job(write_job())
    run_job(job)
    found = run_job(job, fresh=True)
    assert not any(stage["reused"] for stage in found["stages"])


def test_an_output_that_is_something_else_is_untouched(write_job, rows, tmp_path):
    (tmp_path / "run.zarr").mkdir()
    (tmp_path / "run.zarr" / "mine.txt").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(ExistingOutputError, match="not a bigembed run"):
            run_job(read_job(write_job()), fresh=fresh)
    assert (tmp_path / "run.zarr" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["picture", "model"])
def test_a_picture_or_model_of_somebody_else_is_untouched(write_job, rows, tmp_path, name):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ExistingOutputError, match="did not write it"):
        run_job(read_job(write_job(output=f'{name} = "mine"')))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_run_in_use_is_locked(write_job, rows, tmp_path):
    job = read_job(write_job())
    run_job(job)
    before = read_status(tmp_path / "run.zarr")
    with hold(tmp_path / "run.zarr"), pytest.raises(LockedError, match=r"held by .* \(process \d+ on .*\) since 20"):
        run_job(job)
    assert read_status(tmp_path / "run.zarr") == before


def test_the_plan_is_asked_first(write_job, rows, tmp_path):
    with pytest.raises(PlanError, match="larger machine"):
        run_job(read_job(write_job(f"memory = {1 << 50}")))
    assert not (tmp_path / "run.zarr").exists()
    run_job(read_job(write_job()))
    before = read_record(tmp_path / "run.zarr")
    with pytest.raises(PlanError, match="larger machine"):
        run_job(read_job(write_job(f"n_components = 3\nmemory = {1 << 50}")))
    assert read_record(tmp_path / "run.zarr") == before
    run_job(read_job(write_job(f"memory = {1 << 50}")))  # (nothing is left to do that would not fit)


def test_bad_parameters_leave_nothing(write_job, rows, tmp_path):
    with pytest.raises(InputError, match="6 columns"):
        run_job(read_job(write_job("n_components = 7")))
    with pytest.raises(MissingPathError, match="no such path"):
        run_job(read_job(write_job(source='path = "none.npy"')))
    assert not (tmp_path / "run.zarr").exists()


def test_a_data_set_is_generated_once(write_job, tmp_path):
    source = 'dataset = "swiss_roll"\nn = 500\nseed = 3'
    found = run_job(read_job(write_job(source=source, output='picture = "p.png"')))
    assert found["stages"][0]["name"] == "input"
    again = run_job(read_job(write_job("n_components = 1", source=source)))
    assert "input" not in [stage["name"] for stage in again["stages"]]
    said = r"holds the data set swiss_roll \(500 × 3, seed=3.*\); the job would write the data set .* seed=4.* there"
    named = f'path = "mine.zarr"\n{source}'
    run_job(read_job(write_job("n_components = 1", source=named)))
    with pytest.raises(ExistingOutputError, match=said):
        run_job(read_job(write_job(source=named.replace("3", "4"))))


def test_formats_that_need_a_copy_are_copied_beside_the_output(write_job, rows, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({f"x{j}": rows[:, j] for j in range(6)}), tmp_path / "rows.parquet")
    run_job(read_job(write_job(source='path = "rows.parquet"')))
    np.testing.assert_array_equal(read_array(tmp_path / "run-input.zarr"), rows)


def test_warnings_are_shown_and_recorded(write_job, rows):
    with pytest.warns(BigembedWarning, match="mind the gap"):
        found = run_job(read_job(write_job('warns = "mind the gap"')))
    assert found["warnings"] == ["mind the gap"]


def test_verify_finds_every_damage(write_job, rows, tmp_path):
    run_job(read_job(write_job()))
    root = tmp_path / "run.zarr"
    found = verify(root)
    assert (found["problems"], found["finished"], found["kind"]) == ([], True, "run")
    shard = next(path for path in (root / "stages/center/embedding/c").rglob("*") if path.is_file())
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    (root / "stages" / "mean" / "extra").write_text("x")
    assert verify(root, deep=False)["problems"] == []
    found = verify(root)
    assert found["problems"] == [
        f"center/{shard.relative_to(root / 'stages/center')}: not the bytes that were published"
    ]
    assert found["unlisted"] == ["mean/extra: not in the manifest"]
    shard.write_bytes(content[:-1])
    assert "bytes, and" in verify(root, deep=False)["problems"][0]
    (root / "manifest" / "mean.json").unlink()
    assert any("gone now" in text for text in verify(root)["problems"])
    (root / "manifest" / "center.json").write_text("{")
    assert any("center.json: damaged: not valid JSON" in text for text in verify(root)["problems"])


@pytest.mark.parametrize(
    "name", ["stages/center/embedding/c/0/0", "stages/center/embedding/zarr.json", "manifest/mean.json", "job.json"]
)
def test_damage_of_equal_size_is_found_and_repaired(write_job, rows, tmp_path, name):
    job, path = read_job(write_job()), tmp_path / "run.zarr" / name
    run_job(job)
    before, content = path.read_bytes(), bytearray(path.read_bytes())
    middle = range(len(content) // 2, len(content))  # (the last digit of a number may change no number)
    content[next(place for place in middle if not chr(content[place]).isdigit())] ^= 1
    path.write_bytes(content)
    assert verify(tmp_path / "run.zarr")["problems"]
    assert name == "job.json" or name.split("/")[1].removesuffix(".json") in str(plan_job(job).damaged)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not run_job(job)["unchanged"]
    assert any("it is made anew" in str(one.message) for one in said)
    assert verify(tmp_path / "run.zarr")["problems"] == []
    assert name.startswith(("manifest", "job")) or path.read_bytes() == before
    assert run_job(job)["unchanged"]


BROKEN = {
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "gone": lambda path: path.unlink(),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "another": lambda path: path.write_text('{"attributes": {"bigembed": "rvn", "format": 1}}'),
}


@pytest.mark.parametrize("name", ["zarr.json", "job.json", "status.json", "manifest/mean.json"])
def test_broken_metadata_stop_nothing_for_good(write_job, rows, tmp_path, name):
    """Broken in one way after the other: each time the same job mends it."""
    job, root = read_job(write_job(output='picture = "map.png"')), tmp_path / "run.zarr"
    run_job(job)
    for how, broken in BROKEN.items():
        broken(root / name)
        if (name, how) not in {("job.json", "gone"), ("status.json", "gone")}:
            assert any(Path(name).stem in problem for problem in verify(root)["problems"]), how
        with warnings.catch_warnings(action="ignore", category=DamageWarning):
            run_job(job)
        found = verify(root)
        assert (found["problems"], found["finished"]) == ([], True), how


def test_a_damaged_mark_of_a_superseded_stage_stops_nothing(write_job, rows, tmp_path):
    root = tmp_path / "run.zarr"
    run_job(read_job(write_job()))
    supersede(root, find(root, "center"), "made with n_components=2, now 3")
    for broken in BROKEN.values():
        if (root / "superseded" / "center.json").is_file():
            broken(root / "superseded" / "center.json")
        found = verify(root)
        assert found["problems"] or not found["finished"]
    run_job(read_job(write_job()))
    assert verify(root)["problems"] == []
    assert verify(root)["finished"]


def test_verify_of_something_else(tmp_path):
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "none")
    with pytest.raises(InputError, match="neither a run nor a model"):
        verify(tmp_path)


@pytest.mark.parametrize(("kind", "said"), [("growth", "a growing store"), ("sweep", "a sweep")])
def test_what_holds_many_runs_is_named_where_one_is_asked_for(tmp_path, kind, said):
    roots.prepare(tmp_path / "many.zarr", kind)
    with pytest.raises(InputError, match=f"{said}, of many runs. Give that of a"):
        verify(tmp_path / "many.zarr")
    with pytest.raises(ExistingOutputError, match=f"is {said} .* and is not a bigembed run"):
        roots.prepare(tmp_path / "many.zarr", "run")


def test_exchanges_lie_where_the_job_says(write_job, rows, tmp_path):
    from bigembed.jobs.run import run_job
    from bigembed.jobs.spec import read_job

    plain = run_job(read_job(write_job("pause = 0.0")))
    asked = read_job(write_job("pause = 0.0", 'scratch = "fast/scratch"', name="other.toml"))
    assert asked.output.scratch == str(tmp_path / "fast" / "scratch")
    assert run_job(asked)["unchanged"]  # what comes out is the same wherever they lie
    again = run_job(asked, fresh=True)
    assert again["certificate"] == plain["certificate"]
    assert [path.name[:9] for path in (tmp_path / "fast" / "scratch").iterdir()] == ["exchange-"]
    assert not list((tmp_path / "fast" / "scratch").glob("*/*"))  # a finished stage leaves nothing
    assert not (tmp_path / "run.zarr" / "exchange").exists()


def test_a_folder_for_exchanges_that_is_full_is_refused(write_job, rows, monkeypatch):
    from bigembed.jobs.planning import plan as plans
    from bigembed.jobs.spec import read_job

    planned = plans.make_plan(read_job(write_job("", 'scratch = "fast"')))
    monkeypatch.setattr(plans, "free_bytes", lambda path: 10)
    heavy = plans.replace(planned, stages=(("a", plans.Cost(scratch=100)),), free_disk=1000)
    assert (heavy.disk_peak, heavy.scratch_peak) == (0, 100)
    [problem] = heavy._disk_problems()
    assert "[output] scratch on a larger disk" in problem
    assert not plans.replace(heavy, scratch=None)._disk_problems()


@pytest.mark.parametrize("refused", ["memory", "scheduler"])
def test_a_fresh_start_that_is_refused_takes_nothing_away(write_job, rows, tmp_path, refused):
    from bigembed.errors import BigembedError
    from bigembed.jobs.run import run_job
    from bigembed.jobs.spec import read_job

    job = read_job(write_job("", 'model = "model.zarr"'))
    run_job(job)
    before = {file: file.read_bytes() for file in (tmp_path / "run.zarr" / "stages").rglob("*") if file.is_file()}
    cluster = {
        "memory": 'workers = 1\nmemory = "50 MB"',
        "scheduler": 'address = "tcp://127.0.0.1:9"\nno_workers_timeout = 1.0',
    }
    with pytest.raises(BigembedError):
        run_job(read_job(write_job("", 'model = "model.zarr"', cluster[refused], name="other.toml")), fresh=True)
    assert {file: file.read_bytes() for file in before} == before
    assert run_job(job)["unchanged"]
    assert not run_job(job, fresh=True)["unchanged"]  # and what it wrote is still its own
    assert run_job(job)["unchanged"]
