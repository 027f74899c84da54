"""What the nights are compared with."""

from __future__ import annotations

import warnings

import pytest

from bigembed.errors import ComponentsWarning
from bigembed.jobs.spec import read_job
from tests.fault.night import STEPS, one_night, write_job


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """A night in one process on a disk: after each step, what an audit said and what was there."""
    folder = tmp_path_factory.mktemp("undisturbed")
    job = read_job(write_job(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ComponentsWarning)  # what is appended in step 6 stands apart
        return [one_night(folder, job, step) for step in range(STEPS)]
