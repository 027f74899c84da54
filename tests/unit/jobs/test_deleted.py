"""Growing maps of stores whose rows are deleted, come again, and are erased."""

from __future__ import annotations

import numpy as np
import pytest

from bigembed import errors
from bigembed.jobs.growth.audit import audit
from bigembed.jobs.growth.extend import extend, growing_table
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.report.lines import audit_lines, growth_lines
from bigembed.jobs.view import view
from bigembed.rows.appending import append_rows
from bigembed.rows.deleting import delete_rows, purge_rows
from bigembed.rows.growing import rows_digest
from tests.unit.jobs.test_growth_moved import IDS, ROWS, appended, exported, ingested
from tests.unit.jobs.test_staying import ANY, current, job_in

STILL = "2 rows are deleted and still shown until the next refresh"


@pytest.fixture
def job(tmp_path):
    ingested(tmp_path, np.arange(500))
    job = job_in(tmp_path)
    refresh(job)
    return job


def test_extend_and_audit_say_what_is_still_shown(job, tmp_path):
    assert STILL not in growth_lines(extend(job))
    delete_rows(tmp_path / "x.zarr", ids=["c7", "c40"])
    assert STILL in growth_lines(extend(job))
    assert STILL in audit_lines(audit(job))
    refresh(job, limits=ANY)
    assert extend(job)["pending"] == audit(job)["pending"] == 0


def test_an_id_that_came_again_names_one_row_of_every_table(job, tmp_path):
    old = exported(tmp_path)
    delete_rows(tmp_path / "x.zarr", ids=["c7", "c40"])
    append_rows(tmp_path / "x.zarr", ROWS[[800]], ids=["c7"])
    assert exported(tmp_path) == old  # the new row has no coordinates yet
    assert extend(job)["pending"] == 2
    new = exported(tmp_path)
    assert list(new) == [*(one for one in IDS[:500].tolist() if one != "c7"), "c7"]
    assert new["c7"] != old["c7"]
    assert new["c40"] == old["c40"]
    assert growing_table(current(tmp_path)).rows == 500
    view(tmp_path / "out.zarr", tmp_path / "page")
    refresh(job, limits=ANY)
    last = exported(tmp_path)
    assert list(last) == [*(one for one in IDS[:500].tolist() if one not in ("c7", "c40")), "c7"]
    delete_rows(tmp_path / "x.zarr", ids=["c7"])
    append_rows(tmp_path / "x.zarr", ROWS[[801]], ids=["c7"])
    extend(job)
    assert list(exported(tmp_path)) == list(last)
    assert exported(tmp_path)["c7"] != last["c7"]


def test_rows_erased_after_a_refresh_change_nothing(job, tmp_path):
    path = tmp_path / "x.zarr"
    delete_rows(path, ids=["c7", "c40"])
    refresh(job, limits=ANY)
    right, plain = exported(tmp_path), rows_digest(str(path), 0, 500)
    assert purge_rows(path) == 2
    assert rows_digest(str(path), 0, 500) != plain  # the control: the rows are others
    assert exported(tmp_path) == right
    assert refresh(job, verify=True)["unchanged"]
    appended(tmp_path, 500, 520)
    assert extend(job, verify=True)["placed"] == 20
    assert audit(job)["pending"] == 0
    refresh(job, limits=ANY)
    assert list(exported(tmp_path)) == [*right, *IDS[500:520].tolist()]
    delete_rows(path, ids=["c8"])
    refresh(job, limits=ANY)
    purge_rows(path)
    assert refresh(job, verify=True)["unchanged"]


def test_rows_erased_before_a_refresh_are_rows_that_changed(job, tmp_path):
    delete_rows(tmp_path / "x.zarr", ids=["c7", "c40"])
    purge_rows(tmp_path / "x.zarr")
    for command in (extend, refresh, audit):
        with pytest.raises(errors.ChangedInputError, match="--changed"):
            command(job)
    with pytest.raises(errors.ChangedInputError, match="ids are not those"):
        exported(tmp_path)
    refresh(job, changed=True, limits=ANY)
    assert list(exported(tmp_path)) == [one for one in IDS[:500].tolist() if one not in ("c7", "c40")]
