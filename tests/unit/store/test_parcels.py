"""Parcels arrive whole, in the order of their senders, whether files were merged or not; damage is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bigembed as be
from bigembed.errors import DamagedError
from bigembed.runtime.blocks import Array
from bigembed.store import parcels
from bigembed.store.exchange import Exchange
from bigembed.store.parcels import by_receiver, merge_parcels, send

RECEIVERS = 7


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(str(tmp_path / "exchange"))


def _sent(exchange: Exchange, senders: int) -> dict[str, Array]:
    """Rows to all but the last receiver, and a ragged array of r entries for receiver r; all that was sent."""
    generator, every = np.random.default_rng(0), []
    for sender in range(senders):
        to = generator.integers(0, RECEIVERS - 1, 20)
        order, starts = by_receiver(to, RECEIVERS)
        rows, ids = generator.random((20, 2)).astype(np.float32), np.arange(20) + 20 * sender
        ragged = np.repeat(np.arange(RECEIVERS, dtype=np.int32), np.arange(RECEIVERS))
        cuts = np.searchsorted(ragged, np.arange(RECEIVERS + 1))
        send(
            exchange,
            "x",
            sender,
            {"rows": (rows[order], starts), "ids": (ids[order], starts), "ragged": (ragged, cuts)},
        )
        every.append({"to": to, "rows": rows, "ids": ids})
    return {name: np.concatenate([part[name] for part in every]) for name in every[0]}


@pytest.mark.parametrize(("most", "files"), [(5, 5), (2, 2), (1, 1)])
def test_what_is_sent_arrives_in_the_order_of_the_senders(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, most: int, files: int
) -> None:
    monkeypatch.setattr(parcels, "SENDERS", most)
    monkeypatch.setattr(parcels, "MERGED_BYTES", 300)  # (a few receivers at a time)
    sent = _sent(exchange, 5)
    left = merge_parcels(exchange, "x", 5)
    assert left.files == files
    assert len(list(Path(exchange.root).glob("*/*"))) == files
    for receiver in range(RECEIVERS):
        found = left.to(receiver)
        for name in ("rows", "ids"):
            np.testing.assert_array_equal(found[name], sent[name][sent["to"] == receiver])
        assert found["rows"].dtype == np.float32
        assert found["ragged"].tolist() == [receiver] * (5 * receiver)


def test_what_was_merged_before_is_not_found_again(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "SENDERS", 1)
    for value in (1, 2):
        for sender in range(2):
            send(exchange, "x", sender, {"rows": (np.full(3, value), np.array([0, 3]))})
        assert merge_parcels(exchange, "x", 2).to(0)["rows"].tolist() == [value] * 6


def test_damage_is_noticed_by_who_reads_it(exchange: Exchange) -> None:
    _sent(exchange, 2)
    path, left = Path(exchange.root) / "x" / "1", merge_parcels(exchange, "x", 2)
    whole = path.read_bytes()
    assert left.to(0)["ids"].size  # (a control)

    def unnoticed() -> bool:
        try:
            return bool([left.to(receiver) for receiver in range(RECEIVERS)])
        except DamagedError:
            return False

    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (4, 128)[place % 2]]) + whole[place + 1 :])
        assert not unnoticed()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        assert not unnoticed()
    path.write_bytes((Path(exchange.root) / "x" / "0").read_bytes())
    assert not unnoticed()  # swapped
    path.unlink()
    with pytest.raises(DamagedError, match="gone"):
        left.to(0)


def test_a_graph_and_its_map_are_the_same_where_files_are_merged(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).uniform(size=(3_000, 2))

    def fitted() -> tuple[Array, Array]:
        graph = be.build_neighbor_graph(X, 8)
        return graph.to_scipy().toarray(), be.LaplacianEigenmaps(2, tol=0.1).fit(graph).embedding_

    plain = fitted()
    monkeypatch.setattr(parcels, "SENDERS", 2)
    for one, other in zip(plain, fitted(), strict=True):
        assert one.tobytes() == other.tobytes()
