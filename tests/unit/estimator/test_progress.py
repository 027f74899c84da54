"""What a fit tells: events to callbacks, a line of text or rich's bar where it is verbose."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import InputError
from bigembed.runtime import blocks as canonical


@pytest.fixture
def small(monkeypatch):
    for name in ("MAX_BLOCK_ROWS", "MIN_BLOCK_ROWS"):
        monkeypatch.setattr(canonical, name, 100)


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1000, 3))


def test_callbacks_hear_stages_and_blocks(small):
    heard = []
    be.PCA(2, callbacks=[heard.append]).fit(rows())
    assert [(event.kind, event.stage) for event in heard if event.kind != "blocks"] == [
        (kind, stage) for stage in ("moments", "solve", "judgement") for kind in ("start", "done")
    ]
    blocks = [event.results for event in heard if (event.kind, event.message) == ("blocks", "moments")]
    assert blocks == [{"done": done, "total": 10} for done in range(1, 11)]
    told = []
    be.PCA(2, callbacks=[told.append]).partial_fit(rows())
    assert [event.kind for event in told if event.kind != "blocks"] == ["start", "done"] * 2
    plain = be.PCA(2).fit(rows())
    np.testing.assert_array_equal(plain.components_, be.PCA(2, callbacks=[heard.append]).fit(rows()).components_)


def test_a_callback_may_stop_the_fit(tmp_path):
    def stop(event):
        if event.kind == "start" and event.stage == "solve":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be.PCA(2, workdir=tmp_path, callbacks=[stop]).fit(rows())
    heard = []
    be.PCA(2, workdir=tmp_path, callbacks=[heard.append]).fit(rows())
    assert next(event.kind for event in heard if event.stage == "moments") == "reused"


def test_a_line_of_text_where_there_is_no_terminal(small, capsys):
    be.PCA(2, verbose=True).fit(rows())
    said = capsys.readouterr()
    assert said.out == ""
    last = said.err.rstrip("\n").split("\r")[-1].rstrip()
    assert last == f"PCA [{'#' * 30}] 100 % judgement"
    assert said.err.count("\n") == 1
    be.PCA(2).fit(rows())
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="NaN"):
        be.PCA(2, verbose=True).fit(rows() * np.nan)
    assert capsys.readouterr().err.endswith("\n")


def test_a_bar_of_rich_in_a_terminal(small, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    be.DiffusionMap(n_components=2, n_neighbors=8, components="largest", verbose=True).fit(rows())
    said = capsys.readouterr().err
    assert "DiffusionMap: judgement" in said  # the last one; a stage that ends between two drawings is not seen
    assert "100%" in said


def test_they_are_parameters_that_change_no_result():
    loud = be.PCA(2, verbose=True, callbacks=[print])
    assert loud.get_params()["callbacks"] == [print]
    assert pickle.loads(pickle.dumps(loud)).verbose is True
    with pytest.raises(InputError, match=r"verbose='yes'.*callbacks=<built-in"):
        be.PCA(2, verbose="yes", callbacks=print).fit(rows())
