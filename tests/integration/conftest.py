"""What the tests of a file share: an S3 server, a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.integration.browser import Browser, find_browser
from tests.s3 import S3, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serving(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with closing(Browser(str(find_browser()), tmp_path_factory.mktemp("profile"))) as found:
        yield found
