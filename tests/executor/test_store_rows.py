"""A store by itself: slots and numbers from 0 on, what is written when to its table, and what is found there again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from millstream.executor.state import spilled_rows, state_table, store
from millstream.executor.state.store import StateStore
from millstream.sql.types import BIGINT, INTEGER, STRING, Array, SqlType

from .store_model import (
    KEY,
    NAMES,
    ROOMS,
    Key,
    Row,
    change,
    check,
    check_between,
    listed,
    merged,
    opened,
    room_of,
    table,
)

A, B, C, D = [(0, "a", 1), (0, "b", 2), (1, "a", 3), (0, None, 4)]
ROWS: dict[Key, Row | None] = {A: (1, ["x"]), B: (2, None), C: (3, []), D: (4, ["y", "z"])}


@pytest.fixture(params=list(ROOMS))
def little_room(request: pytest.FixtureRequest) -> Iterator[None]:
    with room_of(request.param):
        yield


def filled(connection: duckdb.DuckDBPyConnection | None = None, *, settled: bool = False) -> StateStore:
    target = opened(connection or duckdb.connect())
    change(target, ROWS)
    if settled:
        target.settle()
    return target


def keys(*listed_keys: Key) -> pa.Table:
    return table(list(listed_keys), list(KEY))


def in_table(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Key, `n`, whether it is deleted, and the number of each row that DuckDB has."""
    sql = 'SELECT _part, k0, _ws, n, _deleted, _version FROM "state store" ORDER BY _version'
    return connection.execute(sql).fetchall()


def columns_of(rows: pa.Table, *names: str) -> list[pa.Array]:
    return [rows.column(name).combine_chunks() for name in names]


# ------------------------------------------------------------------ beside a dict


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


@pytest.mark.usefixtures("little_room")
def test_each_batch_and_each_life_leaves_what_a_dict_has() -> None:
    """The same batches as often as a store can be settled, opened and left alone in between."""
    one: dict[Key, Row | None] = {(0, "a", 0): (0, [])}
    more: dict[Key, Row | None] = {(at % 2, "ab"[at // 2 % 2], at // 4): (at, ["x"]) for at in range(12)}
    mixed: dict[Key, Row | None] = {(0, "a", 0): None, (0, "a", 1): (7, None), (1, None, 5): (8, []), (1, "", 0): None}
    for settles in (0b0000, 0b0101, 0b0111):
        connection = duckdb.connect()
        target, model = opened(connection), dict[Key, Row]()
        check(target, model)
        for number, batch in enumerate((one, more, mixed, one)):
            change(target, batch)
            model = merged(model, batch)
            if settles >> number & 1:
                target.settle()
            check(target, model)
            check_between(target, model)
            target.expire(0, "_ws", 1 + number % 2)
            model = {key: row for key, row in model.items() if key[0] or key[2] >= 1 + number % 2}
            check(target, model)
        target.settle()
        check(opened(connection), model)


# ------------------------------------------------------------------ what each call does first


FIRST: dict[str, Callable[[StateStore], Any]] = {
    "len": len,
    "is_empty": lambda target: int(not target.is_empty()) * 4,
    "measure": lambda target: target.measure()[0],
    "rows": lambda target: len(target.rows()),
    "rows of a task": lambda target: len(target.rows(0)) + 1,
    "by_task": lambda target: sum(count for _, count, _ in target.by_task("_ws")),
    "read": lambda target: len(target.read(keys(A, B, C, D, (1, "b", 1)))),
    "read by a part": lambda target: len(target.read(keys(A, D).drop_columns(["_ws"]), ["_part", "k0"])) + 2,
    "between": lambda target: len(target.between(0, "_ws", 0, 4)) + 1,
    "locate": lambda target: int(target.locate(columns_of(keys(A, B, C, D), *KEY))[1].sum()),
    "locate_by": lambda target: len(target.locate_by(columns_of(keys(A, C), "_part", "k0"), ["_part", "k0"])[2]) + 2,
}


@pytest.mark.parametrize("first", FIRST.values(), ids=list(FIRST))
def test_whoever_asks_first_loads_the_table(first: Callable[[StateStore], Any]) -> None:
    connection = duckdb.connect()
    filled(connection, settled=True)
    assert first(opened(connection)) == 4


def test_what_is_written_first_finds_the_rows_of_the_table() -> None:
    connection = duckdb.connect()
    filled(connection, settled=True)
    target = opened(connection)
    change(target, {A: (9, []), C: None})
    assert len(target) == 3
    target.settle()
    *_, written, deleted = in_table(connection)
    assert (written, deleted[:-1]) == ((*A, 9, False, 4), (*C, None, True)), "numbers go on, and deletions get one"
    target = opened(connection)
    target.expire(0, "_ws", 2)
    assert listed(target.rows()) == [(*B, 2, None), (*D, 4, ["y", "z"])]
    target = opened(connection)
    target.restore(table([(*B, 8, [])], NAMES).append_column("_deleted", pa.array([False])))
    assert len(target) == 3


# ------------------------------------------------------------------ slots


def test_slots_say_which_keys_have_a_row() -> None:
    target = filled()
    numbered, known = target.locate(columns_of(keys(C, (1, "new", 0), A, C), *KEY))
    assert (numbered.group.tolist(), numbered.first.tolist()) == ([0, 1, 2, 0], [0, 1, 2])
    assert (numbered.slot.tolist(), known.tolist()) == ([2, 4, 0], [True, False, True])
    assert len(target) == 4, "a key that was asked for is no row"
    assert target.values(numbered.slot).to_pylist() == [
        {"n": 3, "names": []}, {"n": None, "names": None}, {"n": 1, "names": ["x"]}
    ]  # fmt: skip
    numbers, words = target.values_at(numbered.slot[[2, 0]], ["n", "k0"])
    assert (numbers.to_pylist(), words.to_pylist()) == ([1, 3], ["a", "a"])


def test_rows_are_written_to_known_slots_and_recorded() -> None:
    target = filled()
    target.take_changes()
    numbered, _ = target.locate(columns_of(keys(A, (1, "new", 0)), *KEY))
    version = target.version
    target.write_at(numbered.slot[:0], table([], NAMES))
    assert (target.version, target.take_changes()) == (version, [])
    target.write_at(numbered.slot, table([(*A, 5, []), (1, "new", 0, 6, None)], NAMES))
    assert target.version > version
    assert listed(target.read(keys(A, (1, "new", 0)))) == [(*A, 5, []), (1, "new", 0, 6, None)]
    (change_,) = target.take_changes()
    assert (change_.store, change_.key, change_.expired_column) == ("store", tuple(KEY), None)
    assert change_.rows["n"].to_pylist() == [5, 6] and change_.rows["_deleted"].to_pylist() == [False, False]


def test_values_of_slots_whose_row_is_gone_or_in_the_table_only() -> None:
    with room_of("nothing in memory"):
        target = filled(settled=True)
        target.delete(keys(B))
        target.settle()
        numbered, known = target.locate(columns_of(keys(D, B, A), *KEY))
        assert known.tolist() == [True, False, True]
        assert target.values(numbered.slot)["n"].to_pylist() == [4, None, 1]


def test_a_row_is_located_at_each_of_its_marks() -> None:
    """As if each place were a row of its own; row 1 has no place."""
    parts, rows = keys((0, "a", 0), (1, "b", 0), (0, None, 0), (0, "a", 0)), np.array([0, 0, 2, 2, 3, 3])
    marks = np.array([1, 7, 4, 7, 7, 1])
    places = keys((0, "a", 1), (0, "a", 7), (0, None, 4), (0, None, 7), (0, "a", 7), (0, "a", 1))
    marked, other = filled(), filled()
    found, known = marked.locate_marked(columns_of(parts, *KEY)[:-1], rows, marks)
    expected, known_there = other.locate(columns_of(places, *KEY))
    assert known.tolist() == known_there.tolist() == [True, False, True, False]
    for column in ("group", "first", "slot"):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist()
    nowhere, none = filled().locate_marked(columns_of(parts, *KEY)[:-1], rows[:0], marks[:0])
    assert (len(nowhere), nowhere.group.tolist(), none.tolist()) == (0, [], [])


def test_rows_by_a_part_of_the_key_are_located() -> None:
    target = filled()
    change(target, {(0, "a", 9): (7, []), (0, "a", 5): (8, [])})
    numbered, groups, slots = target.locate_by(columns_of(keys(C, A, (5, "", 0), A), "_part", "k0"), ["_part", "k0"])
    assert numbered.group.tolist() == [0, 1, 2, 1]
    found = sorted(zip(groups.tolist(), target.values_at(slots, ["n"])[0].to_pylist(), strict=True))
    assert found == [(0, 3), (1, 1), (1, 7), (1, 8)]


# ------------------------------------------------------------------ reading


def test_a_store_without_rows_and_a_question_without_keys_give_no_rows_of_the_right_columns() -> None:
    empty, full = opened(duckdb.connect()), filled()
    asked = keys(A).append_column("_low", pa.array([0])).append_column("_high", pa.array([9]))
    for found in (empty.read(keys(A)), full.read(keys(A)[:0]), full.read(keys((5, "", 0)))):
        assert found.column_names == ["_index", *NAMES] and len(found) == 0
    for target, ranges in ((empty, asked), (full, asked[:0])):
        assert [len(found) for found in target.locate_between(ranges, ["_part", "k0"], "_ws")] == [0, 0]
    assert empty.rows().column_names == NAMES and empty.by_task("_ws") == []
    assert (len(empty), empty.is_empty(), empty.measure()) == (0, True, (0, 0))
    assert empty.version == 0 and empty.take_changes() == []


def test_bounds_of_a_range_count_as_they_are_described() -> None:
    target = filled()
    change(target, {(0, "a", time): (time, []) for time in (2, 3, 5)})
    for low, high, between, read in ((1, 3, [2, 3], [1, 2, 3]), (2, 2, [], [2]), (3, 4, [], [3]), (4, 5, [5], [5])):
        found = [row["_ws"] for row in target.between(0, "_ws", low, high).to_pylist() if row["k0"] == "a"]
        assert found == between
        asked = keys(A).append_column("_low", pa.array([low])).append_column("_high", pa.array([high]))
        _, slots = target.locate_between(asked, ["_part", "k0"], "_ws")
        (times,) = target.values_at(slots, ["_ws"])
        assert sorted(times.to_pylist()) == read


def test_ranges_and_parts_that_were_asked_for_follow_what_is_written() -> None:
    """Each is built once, and kept up to date by writes of new keys, alone and among known ones."""
    target, model = filled(), merged({}, ROWS)
    check(target, model)
    check_between(target, model)
    batches: list[dict[Key, Row | None]] = [
        {(1, "b", 0): (5, [])},
        {A: (6, []), (0, "a", 2): (7, []), B: None},
        {B: (8, []), (1, "b", 5): (9, [])},
    ]
    for batch in batches:
        change(target, batch)
        model = merged(model, batch)
        check(target, model)
        check_between(target, model)


def test_a_part_of_the_key_reads_no_more_rows_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes 64 bytes and what it has itself."""
    by = ["_part", "k0"]

    def read(share: int, at_least: int) -> int:
        monkeypatch.setattr(store, "_ROWS_AT_ONCE", at_least)
        monkeypatch.setattr(store, "room_of_a_store", lambda connection: share)
        target = opened(duckdb.connect())
        change(target, {(0, "a", time): (time, []) for time in range(10)})
        return len(target.read(keys(A).drop_columns(["_ws"]), by))

    for share, at_least in ((10 * 4000, 0), (0, 10)):
        assert read(share, at_least) == 10
    for share, at_least in ((10 * 65, 0), (0, 9)):
        with pytest.raises(MemoryError, match="10 rows meet in one batch"):
            read(share, at_least)


def test_the_size_of_a_store_is_estimated_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    target = opened(duckdb.connect())
    change(target, {(0, "a", time): (time, []) for time in range(100)})
    count, whole = target.measure()
    monkeypatch.setattr(store, "_SAMPLE_ROWS", 10)
    assert target.measure()[0] == count == 100
    assert 0.8 * whole < target.measure()[1] < 1.5 * whole
    assert 100 * 20 < whole < 100 * 100, "two integers of 8 bytes, one of 4, a letter, and offsets"


def test_wide_rows_are_settled_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are more than a column can have. The number of keys falls, so that the others get new slots, too."""
    monkeypatch.setattr(store, "_PIECE_BYTES", 1_000)
    batch: dict[Key, Row | None] = {(0, "a", time): (time, ["w" * 200]) for time in range(40)}
    with room_of("cleared, and nothing in memory"), monkeypatch.context() as inner:
        inner.setattr(store, "_PIECE_ROWS", 100_000)
        target = opened(duckdb.connect())
        for _ in range(2):  # what was born is settled from what came
            change(target, batch)
        gone: dict[Key, Row | None] = {(0, "a", time): None for time in range(25)}
        change(target, gone)
        with monkeypatch.context() as patch:
            patch.setattr(spilled_rows, "_OFFSET_MAX", 2_000)
            target.settle()
        assert target.numbering == 1
        check(target, merged(merged({}, batch), gone))


def test_tasks_are_counted_with_their_least_value() -> None:
    with room_of("cleared, and nothing in memory"):
        target = filled()
        change(target, {(1, "b", 2): (5, []), (0, "b", 9): (6, []), (3, "", 7): (7, [])})
        expected = [(0, 4, 1), (1, 2, 2), (3, 1, 7)]
        assert target.by_task("_ws") == expected
        target.settle()
        change(target, {(0, "b", 8): (5, [])})
        assert target.by_task("_ws") == [(0, 5, 1), *expected[1:]], "some in memory, some not"


# ------------------------------------------------------------------ changes


def test_nothing_written_is_no_change() -> None:
    target = filled()
    target.take_changes()
    version = target.version
    target.write(table([], NAMES))
    target.delete(keys(A)[:0])
    target.restore(table([], NAMES))
    assert (target.version, target.take_changes(), len(target)) == (version, [], 4)


def test_each_write_and_restore_is_a_new_version() -> None:
    target = opened(duckdb.connect())
    versions = [target.version]
    for act in (
        lambda: change(target, {A: (1, [])}),
        lambda: target.delete(keys(A)),
        lambda: target.restore(table([(*A, 1, [])], NAMES).append_column("_deleted", pa.array([False]))),
    ):
        act()
        versions.append(target.version)
    assert versions == sorted(set(versions))


def test_of_several_restored_rows_of_a_key_the_last_one_counts() -> None:
    target = filled()
    target.take_changes()
    rows = [(*A, 7, []), (*B, 8, []), (*A, None, None), (*D, None, None), (*D, 9, [])]
    deleted = pa.array([False, False, True, True, False])
    target.restore(table(rows, NAMES).append_column("_deleted", deleted))
    assert len(target) == 3
    assert listed(target.read(keys(A, B, D))) == [(*B, 8, []), (*D, 9, [])]
    assert target.take_changes() == []


def test_an_expiry_is_one_change_that_says_up_to_where() -> None:
    target, other = filled(), filled()
    target.take_changes()
    target.expire(0, "_ws", 2)
    (change_,) = target.take_changes()
    assert change_.expired_column == "_ws"
    assert change_.rows.to_pylist() == [{"_part": 0, "_ws": 2}]
    for _ in range(2):
        other.restore(change_.rows)
        assert listed(other.rows()) == listed(target.rows()) == [(*B, 2, None), (*D, 4, ["y", "z"]), (*C, 3, [])]
        assert len(other) == 3


def test_an_expiry_may_name_each_of_its_rows() -> None:
    target = filled()
    assert not target.names_expired
    target.names_expired = True
    target.take_changes()
    target.expire(0, "_ws", 1)
    assert target.take_changes() == []
    target.expire(0, "_ws", 3)
    (change_,) = target.take_changes()
    assert change_.expired_column is None
    assert sorted(listed(change_.rows)) == [(*A, None, None), (*B, None, None)]
    assert change_.rows["_deleted"].to_pylist() == [True, True]
    assert listed(target.rows()) == [(*D, 4, ["y", "z"]), (*C, 3, [])]


def test_an_expiry_of_a_store_that_never_had_rows_is_no_change() -> None:
    target = opened(duckdb.connect())
    target.expire(0, "_ws", 9)
    assert target.take_changes() == []
    change(target, {A: None})
    target.take_changes()
    target.expire(0, "_ws", 9)
    assert len(target.take_changes()) == 1, "it may have to forget a deletion"


# ------------------------------------------------------------------ the table


def test_a_table_gets_each_row_once_with_numbers_from_0_on() -> None:
    connection = duckdb.connect()
    target = filled(connection)
    assert in_table(connection) == []
    target.settle()
    expected = [(*key, row[0], False, number) for number, (key, row) in enumerate(ROWS.items()) if row]
    assert in_table(connection) == expected
    target.settle()
    assert in_table(connection) == expected
    change(target, {A: (7, [])})
    change(target, {A: (8, []), (1, "new", 0): (9, [])})
    change(target, {(1, "short", 0): (1, [])})
    change(target, {(1, "short", 0): None})
    target.settle()
    assert in_table(connection) == [*expected, (*A, 8, False, 5), (1, "new", 0, 9, False, 6)]
    change(target, {B: None})
    target.settle()
    assert in_table(connection)[-1][:-1] == (*B, None, True), "what the table has is deleted there"


def test_born_rows_that_were_written_again_are_not_stored_as_they_were() -> None:
    connection = duckdb.connect()
    target = filled(connection)
    change(target, {B: (9, [])})
    target.settle()
    assert sorted(row[-1] for row in in_table(connection)) == [0, 2, 3, 4]
    assert {row[3] for row in in_table(connection)} == {1, 3, 4, 9}
    check(opened(connection), {A: (1, ["x"]), B: (9, []), C: (3, []), D: (4, ["y", "z"])})


@pytest.mark.parametrize(("rows", "held"), [(2, 2), (3, 0)])
def test_many_rows_are_not_held_until_somebody_settles(monkeypatch: pytest.MonkeyPatch, rows: int, held: int) -> None:
    monkeypatch.setattr(store, "_HELD_MAX", 3)
    connection = duckdb.connect()
    target = opened(connection)
    for number in range(rows):
        change(target, {(0, "a", number): (number, [])})
    assert len(target._born) == held
    assert in_table(connection) == []
    target.settle()
    assert [row[3] for row in in_table(connection)] == list(range(rows))
    change(target, {(0, "b", 0): (0, [])})
    assert len(target._born) == 1  # it is counted from there on again


def test_a_settlement_is_of_its_moment() -> None:
    """Another thread applies it, while the store goes on."""
    connection = duckdb.connect()
    target = filled(connection, settled=True)
    change(target, {A: (7, []), B: None})
    settlement = target.take_settlement()
    assert settlement is not None
    change(target, {A: (8, []), (1, "new", 1): (9, [])})
    target.expire(0, "_ws", 9)
    settlement.apply(connection.cursor())
    check(opened(connection), {A: (7, []), C: (3, []), D: (4, ["y", "z"])})
    target.settle()
    check(opened(connection), {C: (3, []), (1, "new", 1): (9, [])})


def test_the_table_is_not_written_anew_for_rows_that_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to go from it counts as gone before it is."""
    monkeypatch.setattr(store, "_COMPACT_FROM", 0)
    target = filled(settled=True)
    target.expire(0, "_ws", 4)  # two of four: of six and two live ones it were too many
    settlement = target.take_settlement()
    assert settlement is not None and settlement.kept is None


def test_there_is_nothing_to_settle_twice() -> None:
    target = filled(duckdb.connect())
    assert target.take_settlement() is not None
    assert target.take_settlement() is None


def test_expired_rows_leave_the_table_when_it_is_settled() -> None:
    connection = duckdb.connect()
    target = filled(connection, settled=True)
    target.expire(0, "_ws", 2)
    target.expire(0, "_ws", 1)
    assert len(in_table(connection)) == 4
    target.settle()
    assert [row[:3] for row in in_table(connection)] == [B, C, D]
    target.expire(0, "_ws", 5)
    target.expire(1, "_ws", 4)
    target.settle()
    assert in_table(connection) == []
    check(opened(connection), {})


def test_only_what_the_table_has_is_deleted_there() -> None:
    """A key that expired and came back is stored once, with its new row."""
    connection = duckdb.connect()
    target = filled(connection, settled=True)
    target.expire(0, "_ws", 2)
    change(target, {A: (9, [])})
    target.settle()
    assert {row[:4] for row in in_table(connection)} == {(*A, 9), (*B, 2), (*C, 3), (*D, 4)}
    assert len(in_table(connection)) == 4
    assert opened(connection).read(keys(A))["n"].to_pylist() == [9]


@pytest.mark.parametrize(("written", "left"), [(3, 3), (4, 1)])
def test_outdated_rows_are_cleared_from_the_table_when_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, written: int, left: int
) -> None:
    """Here: more than two for each key and one."""
    monkeypatch.setattr(store, "_COMPACT_FROM", 1)
    connection = duckdb.connect()
    target = opened(connection)
    for number in range(written):
        change(target, {A: (number, [])})
        target.settle()
    assert len(in_table(connection)) == left
    change(target, {A: None})
    target.settle()
    assert opened(connection).is_empty()


def test_keys_without_a_row_are_forgotten_when_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are given out anew, and what is in memory, or not, goes with them."""
    monkeypatch.setattr(store, "_COMPACT_FROM", 2)
    monkeypatch.setattr(store, "_PIECE_ROWS", 2)
    target = opened(duckdb.connect())
    change(target, {(0, "a", number): (number, ["x"]) for number in range(6)})
    change(target, {(0, "a", number): None for number in (0, 2, 4)})
    model: dict[Key, Row] = {(0, "a", number): (number, ["x"]) for number in (1, 3, 5)}
    check(target, model)
    target.settle()
    assert target.locate(columns_of(keys((0, "a", 5)), *KEY))[0].slot.tolist() == [5], "six of eight"
    change(target, {(0, "a", number): None for number in (3, 5)})
    del model[0, "a", 3], model[0, "a", 5]
    check(target, model)
    target.settle()
    assert target.locate(columns_of(keys((0, "a", 1)), *KEY))[0].slot.tolist() == [0], "six of four"
    check(target, model)
    check_between(target, model)


def test_a_store_is_loaded_piece_by_piece_up_to_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each key the newest row counts, in whichever piece it is."""
    monkeypatch.setattr(state_table, "_LOAD_ROWS", 2)
    connection = duckdb.connect()
    target = filled(connection, settled=True)
    change(target, {A: (9, []), B: None})
    target.settle()
    change(target, {B: (8, [])})
    target.settle()
    model: dict[Key, Row] = {A: (9, []), B: (8, []), C: (3, []), D: (4, ["y", "z"])}
    for room in (0, 1, 10**9):
        monkeypatch.setattr(store, "ROOM_BYTES", room)
        check(opened(connection), model)


def test_nested_columns_of_a_key_have_no_order() -> None:
    key: dict[str, SqlType] = {"_part": INTEGER, "k0": Array(STRING), "k1": BIGINT}
    target = StateStore(duckdb.connect(), "store", key, {"n": BIGINT})
    rows = {"_part": pa.array([0, 0], pa.int32()), "k0": [["b"], ["a"]], "k1": [2, 1], "n": [1, 2]}
    target.write(pa.table(rows))
    assert target.rows()["n"].to_pylist() == [2, 1]
    assert target.key_schema.names == ["_part", "k0", "k1"]


def test_slots_of_batches_are_made_distinct() -> None:
    for slots, expected in (([], []), ([0], [0]), ([0, 1, 5], [0, 1, 5]), ([5, 0, 5, 1, 0], [0, 1, 5]), ([1, 1], [1])):
        assert store._distinct(np.array(slots, np.int64)).tolist() == expected
