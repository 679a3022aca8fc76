"""Rows by place, columns of them, and the zones in which their values lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.executor.state import placed_rows, state_columns, zones
from millstream.executor.state.placed_rows import PlacedRows
from millstream.executor.state.state_columns import NumberColumn, state_column
from millstream.executor.state.zones import Zones

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(*numbers: int) -> list[pa.Array]:
    return [pa.array(numbers), pa.array([str(n) for n in numbers])]


def read(target: PlacedRows, *slots: int) -> list[tuple[Any, ...]]:
    columns = target.get(np.array(slots, np.int64), ["text", "n"])
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_rows_of_several_blocks_come_in_the_order_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_rows, "_BITS", 2)
    target = PlacedRows(SCHEMA)
    target.set(np.array([9, 0, 3, 4]), rows(90, 0, 30, 40))
    target.set(np.array([8, 9]), rows(80, 91))
    assert read(target, 9, 0, 8, 3, 4, 9) == [(str(n), n) for n in (91, 0, 80, 30, 40, 91)]
    assert read(target, 5, 21) == [(None, None), (None, None)]
    assert read(target) == []


def test_rows_that_are_no_longer_needed_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_rows, "_BITS", 1)
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 0)
    target = PlacedRows(SCHEMA)
    target.set(np.arange(5), [pa.array([1] * 5), pa.array(["x" * 100_000] * 5)])
    before = target.nbytes
    target.clear(np.array([0, 3, 4]))
    assert before - target.nbytes > 290_000
    assert target.get(np.array([1, 2]), ["text"])[0].to_pylist() == ["x" * 100_000] * 2
    target.set(np.array([3]), rows(31))
    assert read(target, 3) == [("31", 31)]


@pytest.mark.parametrize(
    "type_", [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.string(), pa.list_(pa.int64())]
)
def test_a_column_of_states_gives_back_what_was_set_last(type_: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_columns, "_PIECES_MAX", 4)
    monkeypatch.setattr(state_columns, "_OUTDATED_MIN", 10)
    values: dict[pa.DataType, list[Any]] = {
        pa.int64(): [1, -2, None],
        pa.float64(): [1.5, float("inf"), None],
        pa.bool_(): [True, False, None],
        pa.date32(): pa.array([1, 20_000, None], pa.int32()).cast(pa.date32()).to_pylist(),
        pa.string(): ["a", "longer", None],
        pa.list_(pa.int64()): [[1, 2], [], None],
    }
    column = state_column(type_)
    column.grow(40)
    random = np.random.default_rng(7)
    expected: list[Any] = [None] * 40
    for _ in range(30):
        slots = random.permutation(40)[: random.integers(0, 30)]
        chosen = [values[type_][i] for i in random.integers(0, 3, len(slots))]
        column.set(slots, pa.array(chosen, type_))
        for slot, value in zip(slots.tolist(), chosen, strict=True):
            expected[slot] = value
        assert column.get(np.arange(40)).to_pylist() == expected
        assert column.get(np.arange(40)).type == type_


def test_outdated_states_do_not_pile_up() -> None:
    column = state_column(pa.string())
    column.grow(100)
    for number in range(1_000):
        column.set(np.arange(100), pa.array([f"state {number}"] * 100))
    assert column.nbytes < 1_000_000
    assert column.get(np.arange(2)).to_pylist() == ["state 999", "state 999"]


def test_zones_name_the_slots_that_may_be_in_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "_BITS", 1)
    target = Zones()
    target.widen(np.array([0, 1, 3, 5]), np.array([10, 20, 30, -5]))
    assert target.slots(9, 10, 6).tolist() == [0, 1]
    assert target.slots(10, 20, 6).tolist() == [0, 1]
    assert target.slots(20, 29, 6).tolist() == []
    assert target.slots(19, 30, 4).tolist() == [0, 1, 2, 3]
    assert target.slots(-6, -5, 5).tolist() == [4], "only slots that there are"
    target.clear(-100, 10)
    assert target.slots(-100, 100, 6).tolist() == [2, 3]
    target.widen(np.array([1]), np.array([20]))
    assert target.slots(10, 19, 6).tolist() == []
    target.clear(20, 30)
    assert target.slots(19, 20, 6).tolist() == [0, 1], "20 is not among what is cleared, so nobody tells it again"
    assert target.slots(10, 20, 6).tolist() == [0, 1]


def test_a_zone_with_times_before_1970_only_has_no_others() -> None:
    target = Zones()
    target.widen(np.array([0]), np.array([-5]))
    assert target.slots(-6, -5, 1).tolist() == [0]
    assert target.slots(-5, 100, 1).tolist() == target.slots(-100, -6, 1).tolist() == []


@pytest.mark.parametrize(
    ("count", "room"),
    [(1, 1), (2, 4), (4, 4), (5, 16), (1 << 18, 1 << 18), ((1 << 18) + 1, 1 << 20), (1 << 20, 1 << 20)],
)
def test_a_column_grows_by_powers_of_four_and_never_beyond_a_block(count: int, room: int) -> None:
    column = NumberColumn(pa.int64())
    column.grow(count)
    assert len(column._values) == len(column._valid) == room
