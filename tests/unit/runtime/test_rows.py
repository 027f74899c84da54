"""Arrays are aligned and in C order where a task gets them and where its results arrive, whatever carried them."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np

from bigembed.rows.source import RowSource
from bigembed.runtime.blocks import align_arrays, map_blocks
from bigembed.store.matrix import CSRBlock
from tests.executors import executor

NUMBERS = np.arange(12.0).reshape(3, 4)


def unsettled(array: np.ndarray) -> np.ndarray:
    """The same numbers at an odd address."""
    held = np.empty(array.nbytes + 1, np.uint8)[1:]
    held[...] = np.frombuffer(array.tobytes(), np.uint8)
    return held.view(array.dtype).reshape(array.shape)


def carried(value: Any) -> Any:
    """As a message may bring it."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[unsettled(np.frombuffer(buffer.raw(), np.uint8)) for buffer in buffers])


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, CSRBlock):
        value = list(vars(value).values())
    return [array for part in value for array in arrays_in(part)] if isinstance(value, list | tuple) else []


def look(number: int, *, given: Any) -> Any:
    """What the task sees of its arguments; and a result that needs as much care."""
    found = arrays_in(given)
    return [(array.flags.aligned, array.flags.c_contiguous) for array in found], {"out": np.asfortranarray(NUMBERS)}


def test_map_blocks_settles_arguments_and_results() -> None:
    block = CSRBlock(*(NUMBERS[:, ::-1] for _ in range(6)))
    given = {"plain": NUMBERS, "turned": [NUMBERS.T, (NUMBERS[:, ::2],)], "object": block}

    def messages(calls: Any, label: str) -> list[Any]:
        return [carried(carried(call)()) for call in calls]

    with executor(messages):
        [(seen, result)] = map_blocks(look, [(0,)], given=given)
    assert len(seen) == 9
    assert all(aligned and ordered for aligned, ordered in seen)
    assert result["out"].flags.aligned
    assert result["out"].flags.c_contiguous
    np.testing.assert_array_equal(result["out"], NUMBERS)
    assert not block.data.flags.c_contiguous  # the caller's is left as it is


def test_settled_leaves_what_is_in_order() -> None:
    assert align_arrays(NUMBERS) is NUMBERS
    block = CSRBlock(*(NUMBERS for _ in range(6)))
    assert align_arrays(block) is block
    assert align_arrays(np.array(2.0)).shape == ()
    call = align_arrays(partial(np.add, NUMBERS.T, out=None))
    assert call.args[0].flags.c_contiguous
    assert call.keywords == {"out": None}


def test_rows_of_the_user_are_settled_part_by_part() -> None:
    source = RowSource((4, 3), np.dtype(float), array=NUMBERS.T)
    assert align_arrays(source) is source
    assert source.matrix(0, 4).flags.c_contiguous
    odd = RowSource((3, 4), np.dtype(float), array=unsettled(NUMBERS))
    assert not odd.read(0, 3).flags.aligned
    assert odd.matrix(0, 3).flags.aligned
