"""Groups in memory: the same results wherever the state is, and a table that follows."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import aggregate, call, expression, plan, rows_of, shown, stream, tumbling

from millstream.executor.operators.groups import hot_groups, state_columns
from millstream.executor.operators.groups.group_index import GroupIndex
from millstream.executor.operators.groups.state_columns import state_column
from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.sql.types import BIGINT, DOUBLE

CALLS = [
    call("COUNT"),
    call("SUM", expression("v0", BIGINT)),
    call("MAX", expression("v1", DOUBLE)),
    call("COLLECT_LIST", expression("v0", BIGINT)),
]
keys = st.sampled_from(["a", "b", "c", "d", "e"])
records = st.lists(
    st.fixed_dictionaries(
        {
            "k0": keys,
            "v0": st.none() | st.integers(-5, 5),
            "v1": st.none() | st.floats(-2, 2, width=16),
            "ts": st.integers(0, 400),
            "part": st.integers(0, 1),
        }
    ),
    max_size=30,
)


def physical(*, windowed: bool) -> PhysicalPlan:
    return plan(aggregate(stream(), CALLS, window=tumbling(100, 100) if windowed else None, emit_old=True))


def outputs(pipeline: Pipeline, batches: list[list[dict[str, Any]]], first: int = 0) -> list[list[dict[str, Any]]]:
    (source,) = pipeline.plan.sources()
    out = []
    for rows in batches:
        out.append(shown(pipeline.process({source.id: rows_of(source, rows, first)})) if rows else [])
        first += len(rows)
    return out


@settings(max_examples=40, deadline=None)
@given(st.lists(records, min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_states_may_be_forgotten_and_restored_at_any_time(
    batches: list[list[dict[str, Any]]], stop: int, windowed: bool
) -> None:
    whole = outputs(Pipeline(physical(windowed=windowed), duckdb.connect()), batches)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hot_groups, "BYTES_MAX", 0)  # nothing stays in memory
        assert outputs(Pipeline(physical(windowed=windowed), duckdb.connect()), batches) == whole

    behind = Pipeline(physical(windowed=windowed), duckdb.connect(), write_behind=True)
    begun = outputs(behind, batches[:stop])
    rebuilt = Pipeline(physical(windowed=windowed), duckdb.connect(), write_behind=True)
    for change in behind.take_changes():
        rebuilt.restore(change.store, change.rows)
    rest = outputs(rebuilt, batches[stop:], sum(map(len, batches[:stop])))
    assert begun + rest == whole


def test_the_table_has_a_group_once_however_many_batches_changed_it() -> None:
    pipeline = Pipeline(physical(windowed=False), duckdb.connect(), write_behind=True)
    outputs(pipeline, [[{"k0": "a", "v0": n}] for n in range(5)])
    store = pipeline.stores["aggregate"]
    assert len(store) == 0
    pipeline.settle()
    assert len(store) == 1
    assert store.rows()["s0_0"].to_pylist() == [5]
    assert sum(len(change.rows) for change in pipeline.take_changes()) == 5


@pytest.mark.parametrize(
    "type_", [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.string(), pa.list_(pa.int64())]
)
def test_a_column_of_states_gives_back_what_was_set_last(type_: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_columns, "_PIECES_MAX", 4)
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


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(-3, 3), st.text("ab", max_size=2)), max_size=60), max_size=4))
def test_equal_keys_get_the_same_slot_for_good(batches: list[list[tuple[int, str]]]) -> None:
    index = GroupIndex([pa.int64(), pa.string()])
    known: dict[tuple[int, str], int] = {}
    for batch in batches:
        numbers, texts = [key[0] for key in batch], [key[1] for key in batch]
        groups = index.number([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())])
        assert [batch[row] for row in groups.first.tolist()] == list(dict.fromkeys(batch))
        assert [batch[row] for row in groups.first[groups.group].tolist()] == batch
        for row, slot in zip(groups.first.tolist(), groups.slot.tolist(), strict=True):
            assert known.setdefault(batch[row], slot) == slot
    assert sorted(known.values()) == list(range(len(known)))


def test_an_index_grows() -> None:
    index = GroupIndex([pa.int64()])
    values = pa.array(np.arange(50_000) * 7)
    assert index.number([values]).slot.tolist() == list(range(50_000))
    assert index.number([values.slice(49_990)]).slot.tolist() == list(range(49_990, 50_000))


def test_every_nan_is_one_key() -> None:
    index = GroupIndex([pa.float64()])
    column = pa.array([float("nan"), 1.0, float("nan")])
    assert index.number([column]).group.tolist() == [0, 1, 0]
    assert index.number([column]).slot.tolist() == [0, 1]
