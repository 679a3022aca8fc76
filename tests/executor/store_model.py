"""A dict beside a store, and each way of reading one: what the tests of the store share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.executor.state import cached_rows, placed_rows, store, zones
from millstream.executor.state.store import StateStore
from millstream.sql.types import BIGINT, INTEGER, STRING, Array, SqlType

KEY: dict[str, SqlType] = {"_part": INTEGER, "k0": STRING, "_ws": BIGINT}
VALUE: dict[str, SqlType] = {"n": BIGINT, "names": Array(STRING)}
NAMES = [*KEY, *VALUE]

Key = tuple[int, str | None, int]
Row = tuple[int, list[str] | None]

ROOMS = {
    "all in memory": {},
    "nothing in memory": {"ROOM_BYTES": 0},
    "no row held for the table": {"_HELD_MAX": 1, "ROOM_BYTES": 0},
    "cleared at once": {"_COMPACT_FROM": -1},
    "cleared, and nothing in memory": {"_COMPACT_FROM": -1, "ROOM_BYTES": 0, "_PIECE_ROWS": 2},
}


@contextmanager
def room_of(name: str) -> Generator[None]:
    """With blocks of four rows, zones of two, and this little memory: three rows at least."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placed_rows, "_BITS", 2)
        patch.setattr(cached_rows, "_FEWEST", 3)
        patch.setattr(zones, "_BITS", 1)
        for setting, value in ROOMS[name].items():
            patch.setattr(store, setting, value)
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


def merged(model: dict[Key, Row], batch: dict[Key, Row | None]) -> dict[Key, Row]:
    return {key: row for key, row in {**model, **batch}.items() if row is not None}


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
