"""What blocks leave for each other."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from bigembed.errors import ClusterError, DamagedError, InputError
from bigembed.runtime.blocks import Array
from bigembed.store import exchange as module
from bigembed.store import parcels
from bigembed.store.exchange import FOLD, TILE, Exchange, checksum
from bigembed.store.parcels import by_receiver, merge_parcels, send
from tests.executors import executor


class TestExchange:
    """Pieces left for other blocks come back bit for bit, or not at all."""

    @pytest.fixture
    def exchange(self, tmp_path: Path) -> Exchange:
        return Exchange(str(tmp_path / "exchange"))

    @pytest.mark.parametrize(
        "piece",
        [
            np.arange(12.0).reshape(3, 4),
            np.zeros((0, 3), np.float32),
            np.array(7, np.int64),
            np.arange(12).reshape(3, 4).T,
            np.array([True, False]),
        ],
        ids=["matrix", "empty", "scalar", "transposed", "bool"],
    )
    def test_a_piece_comes_back_as_it_was_put(self, exchange: Exchange, piece: np.ndarray) -> None:
        exchange.put("name", 3, {"7": piece, "other": np.ones(5)})
        got = exchange.get("name", 3, "7")
        assert got is not None
        assert got.dtype == piece.dtype
        np.testing.assert_array_equal(got, piece)

    def test_a_piece_that_was_not_left_is_none_and_a_block_that_never_wrote_is_an_error(
        self, exchange: Exchange
    ) -> None:
        exchange.put("name", 0, {"1": np.ones(2)})
        assert exchange.get("name", 0, "2") is None
        with pytest.raises(DamagedError, match="block 5"):
            exchange.get("name", 5, "1")

    def test_a_key_is_found_whole_among_keys_that_contain_it(self, exchange: Exchange) -> None:
        exchange.put("name", 0, {key: np.full(2, number) for number, key in enumerate(["11", "1", "rows1", "111"])})
        assert [
            piece is not None and int(piece[0]) for piece in exchange.find("name", 0, ["1", "111", "rows1", "11"])
        ] == [1, 3, 2, 0]
        assert exchange.find("name", 0, ["ows1", "1", "rows"])[::2] == [None, None]
        with pytest.raises(DamagedError, match="rows2"):
            exchange.get_many("name", 0, ["1", "rows2"])

    @pytest.fixture
    def forgetful(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Like a process that did not write what it reads."""
        monkeypatch.setattr(module, "_prove", lambda label, stamp: None)

    @pytest.mark.usefixtures("forgetful")
    def test_one_flipped_bit_anywhere_is_noticed(self, exchange: Exchange) -> None:
        exchange.put("name", 0, {"1": np.arange(50.0)})
        path = Path(exchange.root) / "name" / "0"
        whole = path.read_bytes()
        for position in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[position] ^= 1
            path.write_bytes(bytes(damaged))
            with pytest.raises(DamagedError):
                exchange.get("name", 0, "1")
            with pytest.raises(DamagedError):
                exchange.mapped("name", 0, ["1"])
        path.write_bytes(whole)
        assert exchange.get("name", 0, "1") is not None

    def test_a_file_that_is_cut_off_filled_empty_or_a_folder_is_damaged(self, exchange: Exchange) -> None:
        exchange.put("name", 0, {"1": np.arange(50.0)})
        path = Path(exchange.root) / "name" / "0"
        whole = path.read_bytes()
        for content in (whole[:-9], whole[60:], b"\xff" * len(whole), b"", None):
            if content is not None:
                path.write_bytes(content)
            else:
                path.unlink()
                path.mkdir()
            with pytest.raises(DamagedError):
                exchange.get("name", 0, "1")
            with pytest.raises(DamagedError):
                exchange.mapped("name", 0, ["1"])
        exchange.put("name", 0, {"1": np.arange(3.0)})
        assert exchange.piece("name", 0, "1").tolist() == [0, 1, 2]

    def test_what_is_mapped_is_the_file_and_can_be_changed_by_nobody_else(self, exchange: Exchange) -> None:
        given = {
            "own": np.arange(12.0).reshape(4, 3),
            "2": np.arange(5, dtype=np.int8),
            "3": np.ones((2, 2)),
            "no": np.ones(0),
        }
        exchange.put("name", 0, given)
        found = dict(zip(given, exchange.mapped("name", 0, list(given)), strict=True))
        for name, array in found.items():
            assert array.dtype == given[name].dtype
            assert array.flags.aligned
            np.testing.assert_array_equal(array, given[name])
        exchange.put("name", 0, {"own": np.zeros(3)})  # (a second attempt of the task)
        np.testing.assert_array_equal(found["own"], given["own"])
        (again,) = exchange.mapped("name", 0, ["own"])
        again[0] = 7
        assert exchange.mapped("name", 0, ["own"])[0].tolist() == [0, 0, 0]
        with pytest.raises(DamagedError, match="gone \\(2\\)"):
            exchange.mapped("name", 0, ["own", "2"])
        with pytest.raises(DamagedError, match="block 5"):
            exchange.mapped("name", 5, ["own"])

    def test_what_a_process_wrote_or_has_found_right_is_not_summed_up_again(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        summed: list[int] = []
        monkeypatch.setattr("bigembed.store.exchange.checksum", lambda *data: summed.append(1) or checksum(*data))
        exchange.put("name", 0, {"1": np.ones(9), "2": np.ones(9)})
        exchange.mapped("name", 0, ["1", "2"])
        assert len(summed) == 2
        module._proven.clear()  # (another process)
        for _ in range(2):
            exchange.mapped("name", 0, ["1"])
        assert len(summed) == 3
        exchange.get("name", 0, "1")
        assert len(summed) == 4

    @pytest.mark.parametrize("together", [1 << 30, 3_000])
    def test_a_large_exchange_is_deleted_in_tasks_and_a_small_one_at_once(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch, together: int
    ) -> None:
        tasks: list[str] = []
        for name, block in product("ab", range(3)):
            exchange.put(name, block, {"own": np.ones(200)})
        monkeypatch.setattr(module, "DELETED_TOGETHER", together)
        with executor(lambda calls, label: [tasks.append(label) or call() for call in calls]):
            exchange.clear()
            exchange.clear()  # (nothing is there)
        assert not Path(exchange.root).exists()
        assert tasks == ["delete"] * (0 if together > 20_000 else 3)

    def test_where_the_tasks_that_delete_fail_this_process_deletes(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(calls: Any, label: str) -> Any:
            calls[0]()
            raise ClusterError("no worker")

        for block in range(3):
            exchange.put("a", block, {"own": np.ones(200)})
        monkeypatch.setattr(module, "DELETED_TOGETHER", 1)
        with executor(fail):
            exchange.clear()
        assert not Path(exchange.root).exists()

    def test_a_checksum_is_that_of_the_sums_of_columns_and_changes_with_any_place(self) -> None:
        data = np.random.default_rng(0).integers(0, 256, TILE + 8 * FOLD * 5 + 13, np.uint8)
        table = data[:-13].view("<u8").reshape(-1, FOLD)
        sums = np.array([sum(int(word) for word in column) % 2**64 for column in table.T], "<u8")
        expected, parts = checksum(data), []
        assert expected == google_crc32c.value(sums.tobytes() + data[-13:].tobytes())
        assert checksum(data, lambda tile: parts.append(tile.tobytes())) == expected
        assert b"".join(parts) == data.tobytes()
        for place in (0, 9_000, TILE - 1, TILE, len(data) - 14, len(data) - 1):
            data[place] ^= 1
            assert checksum(data) != expected
            data[place] ^= 1
        swapped = data.copy()
        swapped[:4096], swapped[8192:12288] = data[8192:12288], data[:4096]
        assert checksum(swapped) != expected
        swapped[: 8 * 8192] = 0
        assert checksum(swapped) != expected

    @pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
    def test_names_that_would_leave_the_folder_are_refused(self, exchange: Exchange, name: str) -> None:
        with pytest.raises(InputError):
            exchange.put(name, 0, {"1": np.ones(1)})


RECEIVERS = 7


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


class TestParcels:
    """Parcels arrive whole, in the order of their senders, whether files were merged or not; damage is noticed."""

    @pytest.fixture
    def exchange(self, tmp_path: Path) -> Exchange:
        return Exchange(str(tmp_path / "exchange"))

    @pytest.mark.parametrize(("most", "files"), [(5, 5), (2, 2), (1, 1)])
    def test_what_is_sent_arrives_in_the_order_of_the_senders(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch, most: int, files: int
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

    @pytest.mark.parametrize("most", [3, 1])
    def test_of_an_empty_parcel_the_index_alone_is_written(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch, most: int
    ) -> None:
        monkeypatch.setattr(parcels, "SENDERS", most)
        ends = np.array([0, 0, 3, 3, 3])
        for sender in range(3):
            send(exchange, "x", sender, {"rows": (np.full((3, 2), sender, np.float32), ends), "ids": (ends[2:], ends)})
        left = merge_parcels(exchange, "x", 3)
        path = Path(exchange.root) / left.name / "0"
        content = 3 * (8 + 8) * (3 // left.files)
        entry = 4 + 8 + 4 + 2 * 4
        assert left.to(1)["ids"].tolist() == 3 * [3, 3, 3]
        for receiver in (0, 2, 3):
            found = left.to(receiver)
            assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
                "rows": ((0, 2), np.float32),
                "ids": ((0,), np.int64),
            }
        assert [len(part["ids"]) for part in next(left.parts(0, 4))] == [0, 3 * (3 // left.files), 0, 0]
        whole = path.read_bytes()
        lost = whole[:content] + bytes(entry) + whole[content + entry :]
        path.write_bytes(lost)  # (a hole, as a lost page leaves it)
        with pytest.raises(DamagedError, match="index is damaged at block 0"):
            left.to(3)

    def test_an_index_has_entries_for_those_alone_that_get_something(self, exchange: Exchange) -> None:
        """A block of few rows sends the same bytes, but for its groups, among 100 blocks and among 10 000."""
        sizes = {}
        for receivers in (100, 10_000):
            to = np.array([3, 17, 18, receivers - 1])
            order, starts = by_receiver(to, receivers)
            send(exchange, f"x{receivers}", 0, {"rows": (to[order], starts)})
            left = merge_parcels(exchange, f"x{receivers}", 1)
            assert [left.to(receiver)["rows"].tolist() for receiver in to] == [[receiver] for receiver in to]
            assert not any(left.to(receiver)["rows"].size for receiver in (0, 16, 19, 98, receivers - 2))
            assert [len(part["rows"]) for part in next(left.parts(10, 20))] == [0] * 7 + [1, 1, 0]
            groups = -(-receivers // parcels.GROUP)
            sizes[receivers] = (Path(exchange.root) / f"x{receivers}" / "0").stat().st_size - 8 * groups
        assert sizes[100] == sizes[10_000]

    def test_what_was_merged_before_is_not_found_again(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parcels, "SENDERS", 1)
        for value in (1, 2):
            for sender in range(2):
                send(exchange, "x", sender, {"rows": (np.full(3, value), np.array([0, 3]))})
            assert merge_parcels(exchange, "x", 2).to(0)["rows"].tolist() == [value] * 6

    def test_damage_is_noticed_by_who_reads_it(self, exchange: Exchange) -> None:
        _sent(exchange, 2)
        path, left = Path(exchange.root) / "x" / "1", merge_parcels(exchange, "x", 2)
        whole = path.read_bytes()
        assert left.to(0)["ids"].size  # (a control)

        def unnoticed() -> bool:
            try:
                return bool([left.to(receiver) for receiver in range(RECEIVERS)])
            except DamagedError:
                return False

        for place, bit in product(range(len(whole)), (4, 64, 128)):  # (of a position, too: far behind any file)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            assert not unnoticed()
        path.write_bytes(whole.replace(b"<f4", b",02"))  # (not the syntax of a dtype)
        assert not unnoticed()
        for length in range(0, len(whole) - 1, 7):
            path.write_bytes(whole[:length])
            assert not unnoticed()
        path.write_bytes((Path(exchange.root) / "x" / "0").read_bytes())
        assert not unnoticed()  # swapped
        path.unlink()
        with pytest.raises(DamagedError, match="gone"):
            left.to(0)

    def test_senders_that_are_gone_are_damage_to_who_merges_them(
        self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The stage that sent begins anew then; another error would meet every later start, too."""
        monkeypatch.setattr(parcels, "SENDERS", 2)
        _sent(exchange, 3)
        (Path(exchange.root) / "x" / "1").unlink()
        with pytest.raises(DamagedError, match="block 1 left is gone"):
            merge_parcels(exchange, "x", 3)
