"""The long form of the bytes suite, for two methods that once differed."""

from __future__ import annotations

import pytest

from tests.property.every_place import PLACES, fitted_everywhere


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_the_same_bytes_in_threads_processes_and_with_tls():
    names = ["diffusion_map weights", "nmf sparse"]
    assert fitted_everywhere(names) == {name: {place: [] for place in PLACES} for name in names}
