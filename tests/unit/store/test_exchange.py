"""Pieces left for other blocks come back bit for bit, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bigembed.errors import DamagedError, InputError
from bigembed.store.exchange import Exchange


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
    path.write_bytes(whole)
    assert exchange.get("name", 0, "1") is not None


def test_a_truncated_file_is_damaged(exchange: Exchange) -> None:
    exchange.put("name", 0, {"1": np.arange(50.0)})
    path = Path(exchange.root) / "name" / "0"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedError):
        exchange.get("name", 0, "1")


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
