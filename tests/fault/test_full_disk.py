"""A disk that fills up while a job writes: one line that says which, how much, what to do; then the job goes on."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

from bigembed.store.arrays import read_array
from bigembed.store.locks import holder
from tests.fault.disks import fill, limit_files, small_disk
from tests.integration.test_job_process import here, start, wait_for, write

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("how", ["mounted", pytest.param("limited", marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line_and_the_job_goes_on(tmp_path, how):
    disk = tmp_path / "disk"
    with small_disk(disk, "40m") as mounted:
        if how == "mounted" and not mounted:
            pytest.skip("this user may not mount")
        np.save(disk / "rows.npy", np.random.default_rng(0).normal(size=(20_000, 100)).astype("f4"))
        job = write(disk, 4.0, "workers = 1\nmemory = '1 GiB'" if how == "mounted" else "")
        process = start("run", job)
        wait_for(process, disk, "mean")
        time.sleep(0.3)
        if how == "mounted":
            fill(disk)
        else:
            limit_files(process.pid)
        _, errors = process.communicate(timeout=280)
        assert process.returncode == 1, errors
        [line] = errors.splitlines()
        assert re.fullmatch(
            r"error: /.*run\.zarr.*: the disk is full \(.*\); .*B were planned .*B are free now\. .*", line
        )
        output = disk / "run.zarr"
        if how == "mounted":
            status = json.loads((output / "status.json").read_text())
            assert (status["state"], status["error"]["status"]) == ("failed", 1)
            assert f"error: {status['error']['message']}" == line
        else:
            assert not (output / "status.json").exists()
        assert [path for path in disk.rglob("*") if "partial" in path.name] == []
        assert holder(output) is None
        (disk / "filler").unlink(missing_ok=True)
        assert here("run", write(disk, 0.0, "")).exit_code == 0
        rows = np.load(disk / "rows.npy")
        embedding = read_array(output / "stages" / "center" / "embedding")
        expected = (rows - rows.mean(axis=0, dtype="f8"))[:, : embedding.shape[1]]
        np.testing.assert_allclose(embedding, expected, atol=1e-5)
        [json.loads(one) for one in (output / "log.jsonl").read_text().splitlines() if one.endswith("}")]
