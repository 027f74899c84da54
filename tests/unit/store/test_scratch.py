"""Temporary folders of processes that were killed do not stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from bigembed.stages.runs import Run
from bigembed.store.files import new_folder, sweep

MAKE = (
    "import time; from bigembed.store.files import new_folder\n"
    "folder = new_folder('workers'); (folder / 'space').mkdir(); print(folder, flush=True); time.sleep(60)"
)


def test_the_folder_of_a_killed_process_is_swept_and_no_other(tmp_path, monkeypatch):
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
