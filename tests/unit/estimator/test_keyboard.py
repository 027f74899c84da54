"""Ctrl-C in a fit: a few lines, the estimator as it was, and what is finished is used again."""

from __future__ import annotations

import signal
import traceback

import numpy as np
import pytest

import bigembed as be


def stop_in(stage: str):
    """A callback that presses Ctrl-C when a stage begins."""

    def press(event):
        if (event.kind, event.stage) == ("start", stage):
            signal.raise_signal(signal.SIGINT)

    return [press]


@pytest.mark.parametrize(
    ("method", "stage"),
    [(be.DiffusionMap(n_neighbors=8), "kernel"), (be.PCA(2), "solve"), (be.UMAP(n_neighbors=8, n_epochs=5), "graph")],
)
def test_a_fit_that_is_stopped_says_so_in_a_few_lines_and_goes_on(method, stage, tmp_path, interruptible):
    rows = np.random.default_rng(0).normal(size=(300, 4))
    expected = np.asarray(method.fit(rows).embedding_)
    method.set_params(workdir=tmp_path / "work", callbacks=stop_in(stage))
    with pytest.raises(KeyboardInterrupt, match=f"stopped in stage '{stage}'; what is finished is kept") as stopped:
        method.fit(rows[:, :3])
    assert stopped.value.__suppress_context__
    assert len("".join(traceback.format_exception(stopped.value)).splitlines()) <= 15
    assert method.n_features_in_ == 4
    np.testing.assert_array_equal(method.embedding_, expected)
    heard = []
    method.set_params(callbacks=[heard.append])
    again = np.asarray(method.fit(rows[:, :3]).embedding_)
    assert "reused" in {event.kind for event in heard}
    np.testing.assert_array_equal(again, method.set_params(workdir=None, callbacks=None).fit(rows[:, :3]).embedding_)
