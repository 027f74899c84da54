"""Pieces left for other blocks come back bit for bit, or not at all."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from bigembed.errors import DamagedError, InputError
from bigembed.store import exchange as module
from bigembed.store.exchange import FOLD, TILE, Exchange, checksum


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
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
def test_a_piece_comes_back_as_it_was_put(exchange: Exchange, piece: np.ndarray) -> None:
    exchange.put("name", 3, {"7": piece, "other": np.ones(5)})
    got = exchange.get("name", 3, "7")
    assert got is not None
    assert got.dtype == piece.dtype
    np.testing.assert_array_equal(got, piece)


def test_a_piece_that_was_not_left_is_none_and_a_block_that_never_wrote_is_an_error(
    exchange: Exchange,
) -> None:
    exchange.put("name", 0, {"1": np.ones(2)})
    assert exchange.get("name", 0, "2") is None
    with pytest.raises(DamagedError, match="block 5"):
        exchange.get("name", 5, "1")


def test_a_key_is_found_whole_among_keys_that_contain_it(exchange: Exchange) -> None:
    exchange.put("name", 0, {key: np.full(2, number) for number, key in enumerate(["11", "1", "rows1", "111"])})
    assert [piece is not None and int(piece[0]) for piece in exchange.find("name", 0, ["1", "111", "rows1", "11"])] == [
        1,
        3,
        2,
        0,
    ]
    assert exchange.find("name", 0, ["ows1", "1", "rows"])[::2] == [None, None]
    with pytest.raises(DamagedError, match="rows2"):
        exchange.get_many("name", 0, ["1", "rows2"])


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like a process that did not write what it reads."""
    monkeypatch.setattr(module, "_prove", lambda label, stamp: None)


@pytest.mark.usefixtures("forgetful")
def test_one_flipped_bit_anywhere_is_noticed(exchange: Exchange) -> None:
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


def test_a_file_that_is_cut_off_filled_empty_or_a_folder_is_damaged(exchange: Exchange) -> None:
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


def test_what_is_mapped_is_the_file_and_can_be_changed_by_nobody_else(exchange: Exchange) -> None:
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
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
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


def test_a_checksum_is_that_of_the_sums_of_columns_and_changes_with_any_place() -> None:
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


def test_a_second_put_replaces_the_first_whole(exchange: Exchange) -> None:
    exchange.put("name", 0, {"1": np.ones(3), "2": np.ones(3)})
    exchange.put("name", 0, {"1": np.zeros(2)})
    assert exchange.get("name", 0, "2") is None
    assert list(Path(exchange.root, "name").iterdir()) == [Path(exchange.root, "name", "0")]


def test_drop_forgets_one_name_only(exchange: Exchange) -> None:
    exchange.put("a", 0, {"1": np.ones(1)})
    exchange.put("b", 0, {"1": np.ones(1)})
    exchange.drop("a")
    assert not exchange.has("a", 0)
    assert exchange.has("b", 0)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_names_that_would_leave_the_folder_are_refused(exchange: Exchange, name: str) -> None:
    with pytest.raises(InputError):
        exchange.put(name, 0, {"1": np.ones(1)})
