"""Outages in a row under a job with workers: one that reads and writes in the store, and one that only reads there."""

from __future__ import annotations

import os

import pytest

from tests.fault.outages import survive
from tests.s3 import ABSENT, serving, weed

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.skipif(weed() is None, reason=ABSENT)]
SECONDS = float(os.environ.get("BIGEMBED_OUTAGE_SECONDS", "5"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("output", "count"), [("store", 4), ("disk", 2)])
def test_outages_in_a_row_are_survived_and_said(tmp_path, output, count):
    with serving(tmp_path) as server:
        assert len(survive(tmp_path, server, count, SECONDS, output, True, 60_000)) == 2 * count
