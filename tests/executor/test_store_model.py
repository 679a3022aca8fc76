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

from .store_model import ROOMS, Key, Row, change, check, check_between, merged, opened, room_of

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
