"""Keyed state: reading, writing, and rebuilding it from its changes."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream.executor.state.store as state_module
from millstream.executor.state.store import StateStore
from millstream.sql.types import BIGINT, INTEGER, STRING, Array, Decimal, Field, Map, SqlType, Struct

KEY: dict[str, SqlType] = {"_part": INTEGER, "k0": STRING, "_ws": BIGINT}
VALUE: dict[str, SqlType] = {"n": BIGINT, "names": Array(STRING)}


def store(connection: duckdb.DuckDBPyConnection | None = None, value: dict[str, SqlType] | None = None) -> StateStore:
    return StateStore(connection or duckdb.connect(), "store", KEY, value or VALUE)


def rows(*listed: tuple[Any, ...], value: dict[str, SqlType] | None = None) -> pa.Table:
    types = {**KEY, **(value or VALUE)}
    columns = zip(*listed, strict=True) if listed else [()] * len(types)
    return pa.table([pa.array(c, t.arrow) for c, t in zip(columns, types.values(), strict=True)], names=list(types))


def keys(*listed: tuple[Any, ...]) -> pa.Table:
    return pa.table([pa.array(c, t.arrow) for c, t in zip(zip(*listed, strict=True), KEY.values(), strict=True)],
                    names=list(KEY))  # fmt: skip


def test_a_key_reads_what_was_written_last() -> None:
    target = store()
    target.write(rows((0, "a", 0, 1, ["x"]), (0, "b", 0, 2, [])))
    target.write(rows((0, "a", 0, 3, None)))
    found = target.read(keys((0, "b", 0), (1, "a", 0), (0, "a", 0), (0, "a", 5)))
    by_index = {row["_index"]: (row["n"], row["names"]) for row in found.to_pylist()}
    assert by_index == {0: (2, []), 2: (3, None)}


def test_a_deleted_key_is_gone_until_it_is_written_again() -> None:
    target = store()
    target.write(rows((0, "a", 0, 1, [])))
    target.delete(keys((0, "a", 0)))
    assert len(target.read(keys((0, "a", 0)))) == 0
    target.write(rows((0, "a", 0, 2, [])))
    assert target.read(keys((0, "a", 0)))["n"].to_pylist() == [2]


def test_nulls_in_a_key_are_equal() -> None:
    target = store()
    target.write(rows((0, None, 0, 1, [])))
    target.write(rows((0, None, 0, 2, [])))
    assert target.read(keys((0, None, 0)))["n"].to_pylist() == [2]
    assert target.rows()["n"].to_pylist() == [2]


def test_a_part_of_the_key_reads_all_its_rows_in_order() -> None:
    target = store()
    target.write(rows((0, "a", 9, 1, []), (0, "b", 1, 2, []), (0, "a", 3, 3, [])))
    target.write(rows((0, "a", 9, 4, [])))
    found = target.read(keys((0, "a", 0)).drop_columns(["_ws"]), by=["_part", "k0"])
    assert list(zip(found["_ws"].to_pylist(), found["n"].to_pylist(), strict=True)) == [(3, 3), (9, 4)]


def test_expired_rows_are_gone_for_their_task_only() -> None:
    target = store()
    target.write(rows((0, "a", 1, 1, []), (0, "a", 5, 2, []), (1, "a", 1, 3, [])))
    target.expire(0, "_ws", 5)
    assert target.rows()["n"].to_pylist() == [2, 3]


def test_a_rolled_back_transaction_leaves_nothing() -> None:
    connection = duckdb.connect()
    target = store(connection)
    target.write(rows((0, "a", 0, 1, [])))
    target.settle()
    connection.execute("BEGIN")
    target.write(rows((0, "a", 0, 2, [])))
    target.settle()
    connection.execute("ROLLBACK")
    assert store(connection).read(keys((0, "a", 0)))["n"].to_pylist() == [1]


def test_a_store_opened_again_goes_on_where_it_was(tmp_path: Any) -> None:
    file = str(tmp_path / "state.duckdb")
    with duckdb.connect(file) as connection:
        target = store(connection)
        target.write(rows((0, "a", 0, 1, [])))
        target.settle()
    with duckdb.connect(file) as connection:
        target = store(connection)
        target.write(rows((0, "a", 0, 2, [])))
        assert target.read(keys((0, "a", 0)))["n"].to_pylist() == [2]


def test_values_of_every_shape_come_back_as_they_were() -> None:
    value: dict[str, SqlType] = {
        "m": Map(STRING, BIGINT),
        "s": Struct((Field("a b", Decimal(38, 2)), Field("l", Array(Struct((Field("x", STRING),)))))),
    }
    target = store(value=value)
    given_rows = rows((0, "a", 0, [("x", 1), ("y", None)], {"a b": None, "l": [{"x": "1"}, None]}), value=value)
    target.write(given_rows)
    assert target.rows().equals(given_rows)


OPERATION = st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.none() | st.integers(0, 9))


@given(batches=st.lists(st.lists(OPERATION, max_size=6), max_size=8), again=st.integers(0, 8))
@settings(max_examples=drawn(12))
@pytest.mark.parametrize("compact_from", [20_000, 3, 0])
def test_its_changes_rebuild_a_store_however_often_they_are_replayed(
    batches: list[list[tuple[str, int, int | None]]], again: int, compact_from: int
) -> None:
    connection = duckdb.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_module, "_COMPACT_FROM", compact_from)
        target, model = store(connection), {}
        for batch in batches:
            latest = {(key, window): n for key, window, n in batch}
            if latest:
                table = rows(*((0, key, window, n, []) for (key, window), n in latest.items()))
                gone = pa.array([n is None for n in latest.values()])
                target.change(table.append_column("_deleted", gone))
                if len(model) % 2:
                    target.settle()
            model |= latest
        expected = {place: n for place, n in model.items() if n is not None}
        shown = {(r["k0"], r["_ws"]): r["n"] for r in target.rows().to_pylist()}
        assert shown == expected
        changes = [taken.rows for taken in target.take_changes()]
        assert target.take_changes() == []
        rebuilt = store(duckdb.connect())
        for table in [*changes[:again], *changes]:
            rebuilt.restore(table)
        assert rebuilt.rows().equals(target.rows())
        if changes:
            at_once = store(duckdb.connect())
            at_once.restore(pa.concat_tables(changes))
            assert at_once.rows().equals(target.rows())
        assert rebuilt.take_changes() == []
