"""A store beside a dict: whatever is read, written, expired and settled, and however little memory there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.executor.state.store import StateStore

from .store_model import KEY, ROOMS, VALUE, Key, Row, change, check, check_between, merged, opened, room_of, table

parts, words, times = st.integers(0, 1), st.sampled_from(["a", "b", "", None]), st.integers(0, 5)
keys = st.tuples(parts, words, times)
values = st.none() | st.tuples(st.integers(0, 9), st.none() | st.lists(st.sampled_from(["x", ""]), max_size=2))
actions = st.one_of(
    st.tuples(st.just("change"), st.dictionaries(keys, values, max_size=6)),
    st.tuples(st.just("expire"), st.tuples(parts, times)),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("open"), st.none()),
)


@pytest.fixture(params=list(ROOMS))
def little_room(request: pytest.FixtureRequest) -> Iterator[None]:
    with room_of(request.param):
        yield


def replayed(target: StateStore, changes: list[pa.Table]) -> StateStore:
    for rows in changes:
        target.restore(rows)
    return target


@pytest.mark.usefixtures("little_room")
@settings(max_examples=drawn(10), deadline=None)
@given(listed_actions=st.lists(actions, max_size=12), again=st.integers(0, 5))
def test_a_store_is_a_dict(listed_actions: list[tuple[str, Any]], again: int) -> None:
    connection = duckdb.connect()
    target, model, changes = opened(connection), dict[Key, Row](), list[pa.Table]()
    for action, argument in listed_actions:
        if action == "change":
            change(target, argument)
            model = merged(model, argument)
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


written_once = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(parts, times), max_size=6)),
    st.tuples(st.just("expire"), st.tuples(parts, times)),
    st.tuples(st.sampled_from(["settle", "open", "replay", "check"]), st.none()),
)


@pytest.mark.usefixtures("little_room")
@settings(max_examples=drawn(15), deadline=None)
@given(listed_actions=st.lists(written_once, max_size=14))
def test_a_store_that_does_not_remember_keys_is_a_dict_whose_keys_are_written_once(
    listed_actions: list[tuple[str, Any]],
) -> None:
    """Looked into by keys, replayed and opened again, it knows them; and forgets them with the next ones."""

    def opened_once() -> StateStore:
        return StateStore(connection, "store", KEY, VALUE, writes_new_keys=True)

    connection = duckdb.connect()
    target, model, changes = opened_once(), dict[Key, Row](), list[pa.Table]()
    for number, (action, argument) in enumerate(listed_actions):
        if action == "write":
            new: dict[Key, Row] = {(part, f"{number}.{i}", time): (i, None) for i, (part, time) in enumerate(argument)}
            target.write(table([(*key, *row) for key, row in new.items()], [*KEY, *VALUE]))
            model |= new
        elif action == "expire":
            part, below = argument
            target.expire(part, "_ws", below)
            model = {key: row for key, row in model.items() if key[0] != part or key[2] >= below}
        elif action == "check":
            check(target, model)
            found = target.read(table(list(model), list(KEY)))
            assert len(found) == len(model)
        else:
            changes += [taken.rows for taken in target.take_changes()]
            target.settle()
            if action == "open":
                target = opened_once()
            elif action == "replay":
                connection = duckdb.connect()
                target = replayed(opened_once(), changes)
    check(target, model)
    target.settle()
    check(opened_once(), model)
