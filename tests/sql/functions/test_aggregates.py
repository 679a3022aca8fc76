"""Aggregates: the examples of every entry, and the laws that bind their folds."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import QueryError, TypeMismatch
from millstream.sql.functions.aggregation.aggregate_kernels import GroupEvents
from millstream.sql.functions.aggregation.aggregate_values import column_of
from millstream.sql.functions.aggregation.aggregates import AGGREGATES, AggregateExample, AggregateFunction, Fold
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

KSQLDB_AGGREGATES = (
    "ATTR AVG COLLECT_LIST COLLECT_SET CORRELATION COUNT COUNT_DISTINCT EARLIEST_BY_OFFSET HISTOGRAM LATEST_BY_OFFSET "
    "MAX MIN STDDEV_SAMP STDDEV_SAMPLE SUM SUM_LIST TOPK TOPKDISTINCT"
).split()


def run(fold: Fold, types: Sequence[SqlType], rows: Sequence[tuple[Any, ...]], *, compiled: bool = False) -> list[Any]:
    """The results after each row of one group."""
    n = len(rows)
    events = GroupEvents(np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64), np.arange(n, dtype=np.int64))
    columns = [column_of([row[i] for row in rows], type_) for i, type_ in enumerate(types)]
    empty = [pa.nulls(1, type_.arrow) for type_ in fold.state_types]
    results, _ = fold.run(events, columns, empty, [False], compiled=compiled)
    return results.to_pylist()


def same(left: Any, right: Any) -> bool:
    return left == right or (isinstance(left, float) and math.isnan(left) and math.isnan(right))


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_every_example_gives_what_it_says(name: str) -> None:
    entry = AGGREGATES[name]
    for example in entry.examples:
        fold = entry.fold(example.types, example.constants)
        types = fold.parameter_types
        for compiled in (False, True):
            results = run(fold, types, example.rows, compiled=compiled)
            assert same(results[-1], example.result), (example, results)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("name", "constants", "expected"),
    [
        ("MIN", (), "-1.0"),
        ("MAX", (), "nan"),
        ("TOPK", (4,), "[nan, nan, inf, 2.0]"),
        ("TOPKDISTINCT", (3,), "[nan, inf, 2.0]"),
        ("COLLECT_SET", (), "[-1.0, 0.0, 2.0, inf, nan]"),
        ("COUNT_DISTINCT", (), "5"),
    ],
)
def test_nan_is_one_value_and_the_greatest_wherever_it_comes(
    name: str, constants: tuple[Any, ...], expected: str, compiled: bool
) -> None:
    values = [math.nan, 2.0, -1.0, float("nan"), math.inf, 0.0, -0.0]
    for rows in (values, values[::-1], values[1:] + values[:1]):
        fold = AGGREGATES[name].fold((DOUBLE,), constants)
        result = run(fold, (DOUBLE,), [(value,) for value in rows], compiled=compiled)[-1]
        if name == "COLLECT_SET":
            result = sorted((value + 0.0 for value in result), key=lambda value: (math.isnan(value), value))
        assert repr(result) == expected


@pytest.mark.parametrize("name", ["COLLECT_LIST", "ATTR"])
def test_a_value_with_nan_in_it_can_be_retracted(name: str) -> None:
    fold = AGGREGATES[name].fold((Array(DOUBLE),), ())
    assert fold.undo is not None
    state = fold.add(fold.add(fold.initial, [1.0, float("nan")]), [2.0])
    left = fold.result(fold.undo(state, [1.0, float("nan")]))
    assert left == ([[2.0]] if name == "COLLECT_LIST" else [2.0])


def test_all_aggregates_of_ksqldb_are_there() -> None:
    assert sorted(AGGREGATES) == sorted(KSQLDB_AGGREGATES)


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_every_aggregate_says_what_it_does_with_null(name: str) -> None:
    def has_null(example: AggregateExample) -> bool:
        return any(value is None or value == [3, None] for row in example.rows for value in row)

    assert any(map(has_null, AGGREGATES[name].examples))


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_an_aggregate_that_supports_undo_has_an_undo_in_every_fold(name: str) -> None:
    entry = AGGREGATES[name]
    for example in entry.examples:
        assert (entry.fold(example.types, example.constants).undo is not None) == entry.supports_undo


@pytest.mark.parametrize(
    ("name", "types", "constants", "expected"),
    [
        ("SUM", [INTEGER], [], INTEGER),
        ("SUM", [Decimal(4, 1)], [], Decimal(4, 1)),
        ("AVG", [INTEGER], [], DOUBLE),
        ("AVG", [Decimal(4, 1)], [], DOUBLE),
        ("MAX", [TIMESTAMP], [], TIMESTAMP),
        ("COUNT", [], [], BIGINT),
        ("LATEST_BY_OFFSET", [Map(STRING, DOUBLE)], [], Map(STRING, DOUBLE)),
        ("LATEST_BY_OFFSET", [STRING], [2, False], Array(STRING)),
        ("EARLIEST_BY_OFFSET", [STRING], [False], STRING),
        ("HISTOGRAM", [STRING], [], Map(STRING, BIGINT)),
        ("TOPK", [INTEGER], [3], Array(INTEGER)),
    ],
)
def test_the_result_type_follows_from_the_arguments(
    name: str, types: list[SqlType], constants: list[Any], expected: SqlType
) -> None:
    assert AGGREGATES[name].resolve(types, constants).return_type == expected


@pytest.mark.parametrize(
    ("name", "types", "constants"),
    [
        ("SUM", [STRING], []),
        ("SUM", [], []),
        ("AVG", [BOOLEAN], []),
        ("MAX", [Array(INTEGER)], []),
        ("HISTOGRAM", [INTEGER], []),
        ("TOPK", [INTEGER], []),
        ("TOPK", [INTEGER], [0]),
        ("LATEST_BY_OFFSET", [INTEGER], ["two"]),
        ("LATEST_BY_OFFSET", [INTEGER], [0]),
        ("CORRELATION", [INTEGER], []),
    ],
)
def test_types_that_do_not_fit_are_refused_with_the_ones_that_do(
    name: str, types: list[SqlType], constants: list[Any]
) -> None:
    with pytest.raises(TypeMismatch, match=f"Function '{name}' does not accept parameters") as caught:
        AGGREGATES[name].resolve(types, constants)
    assert caught.value.hint is not None and name in caught.value.hint


def test_a_refusal_names_the_types_of_constants() -> None:
    with pytest.raises(TypeMismatch, match=r"parameters \(INTEGER, BOOLEAN, STRING, BIGINT, DOUBLE, null\)"):
        AGGREGATES["LATEST_BY_OFFSET"].resolve([INTEGER], [True, "a", 2**31, 0.5, None])
    with pytest.raises(TypeMismatch, match=r"parameters \(null\)"):
        AGGREGATES["SUM"].resolve([NULL])


def test_constants_stand_last() -> None:
    assert AGGREGATES["TOPK"].constant_positions(2) == (1,)
    assert AGGREGATES["TOPK"].constant_positions(4) == (3,)
    assert AGGREGATES["LATEST_BY_OFFSET"].constant_positions(3) == (1, 2)
    assert AGGREGATES["LATEST_BY_OFFSET"].constant_positions(1) == ()
    assert AGGREGATES["SUM"].constant_positions(1) == ()


def test_topk_of_several_columns_gives_structs() -> None:
    (element,) = [AGGREGATES["TOPK"].resolve([BIGINT, STRING], [3]).return_type]
    assert isinstance(element, Array) and isinstance(element.element, Struct)
    assert str(element) == "ARRAY<STRUCT<`sort_col` BIGINT, `col0` STRING>>"


def test_integer_sums_wrap_around_as_in_java() -> None:
    for compiled in (False, True):
        fold = AGGREGATES["SUM"].fold([INTEGER])
        assert run(fold, [INTEGER], [(2**31 - 1,), (1,)], compiled=compiled)[-1] == -(2**31)
        fold = AGGREGATES["SUM"].fold([BIGINT])
        assert run(fold, [BIGINT], [(2**63 - 1,), (1,)], compiled=compiled)[-1] == -(2**63)


def test_a_decimal_sum_that_no_longer_fits_fails() -> None:
    fold = AGGREGATES["SUM"].fold([Decimal(3, 1)])
    with pytest.raises(QueryError, match="Numeric field overflow") as failure:
        run(fold, [Decimal(3, 1)], [(decimal.Decimal("99.9"),), (decimal.Decimal("0.1"),)])
    assert failure.value.hint == "Cast the argument to a wider type, such as DECIMAL(38, 1)."


@pytest.mark.parametrize(
    ("type_", "largest", "instead"),
    [
        (
            Decimal(38, 2),
            "999999999999999999999999999999999999.99",
            "a DECIMAL with fewer digits after the point than 2",
        ),
        (Decimal(38, 0), "99999999999999999999999999999999999999", "DOUBLE"),
    ],
)
def test_no_wider_type_than_the_widest_is_advised(type_: Decimal, largest: str, instead: str) -> None:
    fold = AGGREGATES["SUM"].fold([type_])
    with pytest.raises(QueryError, match="Numeric field overflow") as failure:
        run(fold, [type_], [(decimal.Decimal(largest),), (decimal.Decimal("1"),)])
    assert (failure.value.hint or "").startswith(f"Cast the argument to {instead}")


@pytest.mark.parametrize("name", ["COLLECT_LIST", "COLLECT_SET"])
def test_a_collection_ends_at_its_limit_and_has_none_by_default(name: str) -> None:
    fold = AGGREGATES[name].fold([INTEGER], [], {f"ksql.functions.{name.lower()}.limit": "2"})
    assert run(fold, [INTEGER], [(1,), (2,), (3,)])[-1] == [1, 2]
    fold = AGGREGATES[name].fold([INTEGER], [])
    assert run(fold, [INTEGER], [(i,) for i in range(1002)])[-1] == list(range(1002))


def test_maps_are_equal_whatever_the_order_of_their_entries() -> None:
    type_ = Array(Map(STRING, BIGINT))
    rows = [([[("a", 1), ("b", None)]],), ([[("b", None), ("a", 1)]],), (None,), ([None],)]
    assert len(run(AGGREGATES["COLLECT_SET"].fold([type_]), [type_], rows)[-1]) == 3
    assert run(AGGREGATES["COUNT_DISTINCT"].fold([type_]), [type_], rows)[-1] == 2
    assert run(AGGREGATES["ATTR"].fold([type_]), [type_], rows[:2])[-1] == [[("a", 1), ("b", None)]]


def test_count_distinct_is_near_the_truth_for_many_values() -> None:
    fold = AGGREGATES["COUNT_DISTINCT"].fold([INTEGER])
    state = fold.initial
    for i in range(20_000):
        state = fold.add(state, i % 10_000)
    assert abs(fold.result(state) - 10_000) < 500


def test_deviations_agree_with_ksqldb_to_the_last_bit() -> None:
    values = [(9223372036854.775,), (300.8,), (-200000.6,), (0.0,)]
    expected = [0.0, 4.253529586234292e25, 2.835686452404674e25, 2.1267648239542927e25]
    assert run(AGGREGATES["STDDEV_SAMP"].fold([DOUBLE]), [DOUBLE], values) == expected


# ------------------------------------------------------------------ laws

NUMBERS: dict[SqlType, st.SearchStrategy[Any]] = {
    INTEGER: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(-1e12, 1e12),
    DATE: st.integers(-1000, 1000),
    STRING: st.sampled_from(["", "a", "b", "ab", "a\0", "ß", "\uffff", "\U00010000"]),
    BYTES: st.sampled_from([b"", b"\0", b"\x7f", b"\x80", b"\x80\0", b"\xff"]),
    Decimal(38, 2): st.decimals(-(10**36) + 1, 10**36 - 1, places=2),
}

# (name, argument types): everything that has a compiled loop
KERNELS: list[tuple[str, tuple[SqlType, ...], tuple[Any, ...]]] = [
    ("COUNT", (), ()),
    *[("COUNT", (type_,), ()) for type_ in (INTEGER, STRING)],
    *[(name, (type_,), ()) for name in ("SUM", "AVG", "STDDEV_SAMP") for type_ in (INTEGER, BIGINT, DOUBLE)],
    ("STDDEV_SAMPLE", (DOUBLE,), ()),
    *[
        (name, (type_,), ())
        for name in ("MIN", "MAX")
        for type_ in (INTEGER, BIGINT, DOUBLE, DATE, STRING, BYTES, Decimal(38, 2))
    ],
    ("CORRELATION", (DOUBLE, DOUBLE), ()),
    *[
        (name, (type_,), constants)
        for name in ("EARLIEST_BY_OFFSET", "LATEST_BY_OFFSET")
        for type_ in (INTEGER, STRING)
        for constants in ((), (False,))
    ],
]


@given(data=st.data(), case=st.sampled_from(KERNELS))
@settings(max_examples=drawn(75), deadline=None)
def test_the_compiled_loop_and_the_python_fold_agree_bit_by_bit(
    data: st.DataObject, case: tuple[str, tuple[SqlType, ...], tuple[Any, ...]]
) -> None:
    name, types, constants = case
    entry: AggregateFunction = AGGREGATES[name]
    fold = entry.fold(types, constants)
    rows = data.draw(st.integers(0, 12))
    columns = [
        column_of(data.draw(st.lists(st.none() | NUMBERS[type_], min_size=rows, max_size=rows)), type_)
        .cast(parameter.arrow, safe=False)
        for type_, parameter in zip(types, fold.parameter_types, strict=True)
    ]  # fmt: skip
    groups = 3
    row = st.integers(-1, rows - 1)
    undo = row if entry.supports_undo else st.just(-1)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, groups - 1), undo, row), max_size=20))
    split = data.draw(st.integers(0, len(drawn)))

    def outcome(parts: list[list[tuple[int, int, int]]], compiled: bool) -> list[Any]:
        state = [pa.nulls(groups, type_.arrow) for type_ in fold.state_types]
        known, results = [False] * groups, []
        for part in parts:
            events = GroupEvents(*(np.array([event[i] for event in part], dtype=np.int64) for i in range(3)))
            out, state = fold.run(events, columns, state, known, compiled=compiled)
            known = [True] * groups
            results += out.to_pylist()
        return [*map(repr, results), *(repr(column.to_pylist()) for column in state)]

    whole = outcome([drawn], compiled=False)
    assert outcome([drawn], compiled=True) == whole
    assert outcome([drawn[:split], drawn[split:]], compiled=True) == whole
    assert outcome([drawn[:split], drawn[split:]], compiled=False) == whole


NESTED: SqlType = Array(Map(STRING, BIGINT))
LAST_ONLY: list[tuple[str, tuple[SqlType, ...], tuple[Any, ...]]] = [
    *KERNELS,
    *[
        (name, (type_,), ())
        for name in ("COLLECT_LIST", "COLLECT_SET", "COUNT_DISTINCT", "ATTR")
        for type_ in (STRING, NESTED)
    ],
    ("HISTOGRAM", (STRING,), ()),
    *[(name, (INTEGER,), (2,)) for name in ("TOPK", "TOPKDISTINCT", "LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET")],
    ("TOPK", (INTEGER, STRING), (2,)),
]  # fmt: skip
VALUES = {
    **NUMBERS,
    INTEGER: st.integers(-3, 3),
    NESTED: st.lists(st.none() | st.sampled_from([[], [("a", 1), ("b", None)], [("b", None), ("a", 1)]]), max_size=2),
}


@given(data=st.data(), case=st.sampled_from(LAST_ONLY))
@settings(max_examples=drawn(150), deadline=None)
def test_asked_for_the_last_results_only_a_fold_gives_the_same_ones_and_the_same_states(
    data: st.DataObject, case: tuple[str, tuple[SqlType, ...], tuple[Any, ...]]
) -> None:
    name, types, constants = case
    entry: AggregateFunction = AGGREGATES[name]
    fold = entry.fold(types, constants, {"ksql.functions.collect_list.limit": "4"})
    before, rows, groups = repr(fold.initial), data.draw(st.integers(1, 12)), 3
    columns = [
        column_of(data.draw(st.lists(st.none() | VALUES[type_], min_size=rows, max_size=rows)), type_)
        .cast(parameter.arrow, safe=False)
        for type_, parameter in zip(types, fold.parameter_types, strict=True)
    ]  # fmt: skip
    row = st.integers(-1, rows - 1)
    undo = row if entry.supports_undo else st.just(-1)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, groups - 1), undo, row), min_size=1, max_size=30))
    cut = data.draw(st.integers(0, len(drawn)))

    def outcome(*, last_only: bool) -> tuple[list[str], list[str]]:
        state, results = [pa.nulls(groups, type_.arrow) for type_ in fold.state_types], []
        for known, part in ((False, drawn[:cut]), (True, drawn[cut:])):
            events = GroupEvents(*(np.array([event[i] for event in part], dtype=np.int64) for i in range(3)))
            out, state = fold.run(events, columns, state, [known] * groups, last_only=last_only, compiled=False)
            last = {group: number for number, (group, _, _) in enumerate(part)}
            results += [repr(out[number].as_py()) for _, number in sorted(last.items())]
        return results, [repr(column.to_pylist()) for column in state]

    assert outcome(last_only=True) == outcome(last_only=False)
    assert repr(fold.initial) == before, "it is the beginning of every group"


@pytest.mark.parametrize("name", ["COLLECT_SET", "COUNT_DISTINCT"])
def test_many_values_are_absorbed_as_they_are_added(name: str) -> None:
    fold = AGGREGATES[name].fold([INTEGER], [], {"ksql.functions.collect_set.limit": "300"})
    events = GroupEvents(*(np.array(each, dtype=np.int64) for each in ([0] * 400, [-1] * 400, range(400))))
    columns, nothing = (
        [pa.array([i % 350 for i in range(400)], pa.int32())],
        [pa.nulls(1, t.arrow) for t in fold.state_types],
    )
    last, states = fold.run(events, columns, nothing, [False], last_only=True)
    every, expected = fold.run(events, columns, nothing, [False])
    assert last[399] == every[399] and states == expected and last.null_count == 399


@given(left=st.lists(st.none() | st.integers(0, 5)), right=st.lists(st.none() | st.integers(0, 5)))
@settings(max_examples=drawn(30), deadline=None)
@pytest.mark.parametrize("name", sorted(set(AGGREGATES) - {"SUM_LIST", "HISTOGRAM", "CORRELATION"}))
def test_merging_two_sessions_gives_what_one_session_gives(
    name: str, left: list[int | None], right: list[int | None]
) -> None:
    entry = AGGREGATES[name]
    fold = entry.fold([BIGINT], [3] if name.startswith("TOPK") else [])

    def folded(values: list[int | None]) -> Any:
        state = fold.initial
        for value in values:
            state = fold.add(state, value)
        return state

    merged, whole = fold.result(fold.merge(folded(left), folded(right))), fold.result(folded(left + right))
    assert merged == pytest.approx(whole) if isinstance(whole, float) else merged == whole


@pytest.mark.parametrize(("name", "one", "two"), [("EARLIEST_BY_OFFSET", 1, [1, 2]), ("LATEST_BY_OFFSET", 3, [2, 3])])
def test_offsets_of_a_session_that_an_earlier_version_stored_count_as_the_first_ones(
    name: str, one: int, two: list[int]
) -> None:
    """It had no column for the numbers of arrival."""
    stored = {(): [pa.array([1], pa.int64()), pa.array([True])], (2,): [pa.array([[1, 2]], pa.list_(pa.int64()))]}
    for constants, result in (((), one), ((2,), two)):
        numbered = AGGREGATES[name].fold([BIGINT], constants).numbered
        assert numbered is not None
        fold = numbered.fold
        nulls = pa.nulls(1, fold.state_types[-1].arrow)
        (before,) = fold.states_of([*stored[constants], nulls], [True])
        assert numbered.last(before) == -1
        added = fold.add(fold.initial, 3, 0)
        assert fold.result(fold.merge(added, before)) == fold.result(fold.merge(before, added)) == result
        (again,) = fold.states_of(fold.columns_of([fold.merge(added, before)]), [True])
        assert fold.result(again) == result


@given(values=st.lists(st.none() | st.integers(0, 5)), more=st.lists(st.none() | st.integers(0, 5), max_size=5))
@settings(max_examples=drawn(30), deadline=None)
@pytest.mark.parametrize("name", sorted(n for n, e in AGGREGATES.items() if e.supports_undo and n in (
    "ATTR", "AVG", "COUNT", "SUM", "STDDEV_SAMP", "COLLECT_LIST")))  # fmt: skip
def test_what_is_added_and_taken_back_leaves_no_trace(
    name: str, values: list[int | None], more: list[int | None]
) -> None:
    fold = AGGREGATES[name].fold([BIGINT])
    assert fold.undo is not None
    state = fold.initial
    for value in values:
        state = fold.add(state, value)
    before = fold.result(state)
    for value in more:
        state = fold.add(state, value)
    for value in reversed(more):
        state = fold.undo(state, value)
    after = fold.result(state)
    assert after == pytest.approx(before, abs=1e-6) if isinstance(before, float) else after == before
