"""A store beside a dict: whatever is read, written, expired and settled, and however little memory there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.executor.state import slot_rows, store, zones
from millstream.executor.state.store import StateStore
from millstream.sql.types import BIGINT, INTEGER, STRING, Array, SqlType

KEY: dict[str, SqlType] = {"_part": INTEGER, "k0": STRING, "_ws": BIGINT}
VALUE: dict[str, SqlType] = {"n": BIGINT, "names": Array(STRING)}
NAMES = [*KEY, *VALUE]

Key = tuple[int, str | None, int]
Row = tuple[int, list[str] | None]

parts, words, times = st.integers(0, 1), st.sampled_from(["a", "b", "", None]), st.integers(0, 5)
keys = st.tuples(parts, words, times)
values = st.none() | st.tuples(st.integers(0, 9), st.none() | st.lists(st.sampled_from(["x", ""]), max_size=2))
actions = st.one_of(
    st.tuples(st.just("change"), st.dictionaries(keys, values, max_size=6)),
    st.tuples(st.just("expire"), st.tuples(parts, times)),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("open"), st.none()),
)

ROOMS = {
    "all in memory": {},
    "nothing in memory": {"ROOM_BYTES": 0},
    "settled after each row": {"_SETTLE_FROM": 1, "ROOM_BYTES": 0},
    "cleared at once": {"_COMPACT_FROM": -1},
    "cleared, and nothing in memory": {"_COMPACT_FROM": -1, "ROOM_BYTES": 0, "_PIECE_ROWS": 2},
}


@pytest.fixture(params=list(ROOMS))
def little_room(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_rows, "_BITS", 2)  # blocks of four rows
        patch.setattr(zones, "_BITS", 1)
        for name, value in ROOMS[request.param].items():
            patch.setattr(store, name, value)
        yield


def opened(connection: duckdb.DuckDBPyConnection) -> StateStore:
    return StateStore(connection, "store", KEY, VALUE)


def table(rows: list[tuple[Any, ...]], names: list[str]) -> pa.Table:
    types = {**KEY, **VALUE}
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table([pa.array(c, types[name].arrow) for c, name in zip(columns, names, strict=True)], names=names)


def change(target: StateStore, batch: dict[Key, Row | None]) -> None:
    rows = [(*key, *(row or (None, None))) for key, row in batch.items()]
    deleted = pa.array([row is None for row in batch.values()], pa.bool_())
    target.change(table(rows, NAMES).append_column("_deleted", deleted))


def listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in NAMES) for row in rows.to_pylist()]


def by_key(key: Key) -> tuple[Any, ...]:
    part, word, time = key
    return part, word is None, word or "", time


def check(target: StateStore, model: dict[Key, Row]) -> None:
    """Each way of reading."""
    everything = sorted(model, key=by_key)
    assert listed(target.rows()) == [(*key, *model[key]) for key in everything]
    assert (len(target), target.is_empty()) == (len(model), not model)
    assert target.measure()[0] == len(model)
    tasks = {part: [key[2] for key in model if key[0] == part] for part in (0, 1)}
    assert target.by_task("_ws") == [(part, len(own), min(own)) for part, own in tasks.items() if own]
    asked = [(part, word, time) for part in (0, 1) for word in ("a", "b", "", None) for time in (0, 3, 5)]
    found = target.read(table(asked, list(KEY)))
    assert listed(found) == [(*key, *model[key]) for key in asked if key in model]
    assert [asked[index] for index in found["_index"].to_pylist()] == [key for key in asked if key in model]
    by = [(part, word) for part in (1, 0) for word in (None, "a", "b")]
    found = target.read(table(by, ["_part", "k0"]), by=["_part", "k0"])
    expected = [key for pair in by for key in everything if key[:2] == pair]
    assert listed(found) == [(*key, *model[key]) for key in expected]
    assert [by[index] for index in found["_index"].to_pylist()] == [key[:2] for key in expected]
    for part in (0, 1):
        assert listed(target.rows(part)) == [(*key, *model[key]) for key in everything if key[0] == part]
        between = [key for key in everything if key[0] == part and 1 < key[2] <= 4]
        assert listed(target.between(part, "_ws", 1, 4)) == [(*key, *model[key]) for key in between]


def check_between(target: StateStore, model: dict[Key, Row]) -> None:
    asked = table([(0, "a", 1), (0, None, 1), (1, "b", 0), (0, "a", 1)], list(KEY)).drop_columns(["_ws"])
    for name, bounds in (("_low", [1, 0, 3, 9]), ("_high", [3, 9, 3, 0])):
        asked = asked.append_column(name, pa.array(bounds, pa.int64()))
    position, slots = target.locate_between(asked, ["_part", "k0"], "_ws")
    columns = [pa.array(position), *target.values_at(slots, list(KEY))]
    found = pa.table(columns, names=["_index", *KEY])
    expected = [
        (index, *key)
        for index, (part, word, low, high) in enumerate([(0, "a", 1, 3), (0, None, 0, 9), (1, "b", 3, 3)])
        for key in model
        if word is not None and key[:2] == (part, word) and low <= key[2] <= high
    ]
    assert sorted((r["_index"], r["_part"], r["k0"], r["_ws"]) for r in found.to_pylist()) == sorted(expected)


def replayed(target: StateStore, changes: list[pa.Table]) -> StateStore:
    for rows in changes:
        target.restore(rows)
    return target


@pytest.mark.usefixtures("little_room")
@settings(max_examples=40, deadline=None)
@given(listed_actions=st.lists(actions, max_size=12), again=st.integers(0, 5))
def test_a_store_is_a_dict(listed_actions: list[tuple[str, Any]], again: int) -> None:
    connection = duckdb.connect()
    target, model, changes = opened(connection), dict[Key, Row](), list[pa.Table]()
    for action, argument in listed_actions:
        if action == "change":
            change(target, argument)
            model |= argument
            model = {key: row for key, row in model.items() if row is not None}
        elif action == "expire":
            part, below = argument
            target.expire(part, "_ws", below)
            model = {key: row for key, row in model.items() if key[0] != part or key[2] >= below}
        else:
            target.settle()
            if action == "open":
                changes += [taken.rows for taken in target.take_changes()]
                target = opened(connection)
        check(target, model)
        check_between(target, model)
    changes += [taken.rows for taken in target.take_changes()]
    rebuilt = replayed(opened(duckdb.connect()), changes)
    check(rebuilt, model)
    check(replayed(rebuilt, changes[-again:]), model)


@pytest.mark.usefixtures("little_room")
def test_what_the_table_has_goes_with_its_key() -> None:
    """Deleted, expired, and both again, with the table settled and opened in between."""
    connection = duckdb.connect()
    target, model = opened(connection), dict[Key, Row]()

    def again(batch: dict[Key, Row | None]) -> None:
        nonlocal target
        change(target, batch)
        for key, row in batch.items():
            model.pop(key, None)
            model.update({} if row is None else {key: row})
        check(target, model)
        target.settle()
        check(target, model)
        target = opened(connection)
        check(target, model)

    again({(0, "a", 3): (1, ["x"]), (0, "b", 3): (2, []), (1, "a", 1): (3, None)})
    again({(0, "a", 3): None})
    again({(0, "a", 3): (4, []), (0, "b", 3): None})
    target.expire(1, "_ws", 2)
    target.expire(0, "_ws", 3)
    del model[1, "a", 1]
    again({(1, "a", 0): (5, [])})
    target.expire(0, "_ws", 4)
    target.expire(0, "_ws", 2)  # an earlier time takes nothing back
    del model[0, "a", 3]
    again({(0, "a", 3): (6, [])})


@pytest.mark.usefixtures("little_room")
def test_keys_that_come_back_are_found_by_their_parts() -> None:
    target, model = opened(duckdb.connect()), dict[Key, Row]()
    for turn in range(4):
        for time in range(5):
            batch: dict[Key, Row | None] = {(0, "a", time): (turn, []), (0, "a", (time + 3) % 5): None}
            change(target, batch)
            model |= {(0, "a", time): (turn, [])}
            model.pop((0, "a", (time + 3) % 5), None)
            check(target, model)
        target.settle()
