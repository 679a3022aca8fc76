"""Filters, projections, table functions and new keys, fused into one statement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pipelines import JSON, brief, expression, open_pipeline, plan, rows_of, run, schema, shown, stream, table

from millstream.executor.batch import ChangeBatch
from millstream.executor.operators.chains.chain_text import renamed
from millstream.executor.operators.chains.kept_rows import KeptRows
from millstream.executor.operators.columns import batch_schema
from millstream.executor.operators.stateless import Stateless
from millstream.executor.state.connection import Guard
from millstream.planner.specs import SqlExpression
from millstream.planner.steps.explode import Explode
from millstream.planner.steps.filter import Filter
from millstream.planner.steps.project import Project
from millstream.planner.steps.repartition import Rekey
from millstream.sql.types import BIGINT, BOOLEAN, DOUBLE, STRING, Array, SqlType

SOURCE = stream(values=(BIGINT, STRING))


def row(key: str | None, value: int, text: str = "", **more: Any) -> dict[str, Any]:
    return {"k0": key, "v0": value, "v1": text, **more}


def test_a_chain_of_steps_filters_and_computes() -> None:
    filtered = Filter("f", SOURCE, expression("v0 > 1", BIGINT))
    values = (expression("v0 * 10", BIGINT), expression("v1 || '!'", STRING))
    projected = Project("p", filtered, values, None, schema([STRING], [BIGINT, STRING]))
    again = Filter("g", projected, expression("v0 < 40", BIGINT))
    out = run(plan(again), [row("a", 1, "x"), row("b", 2, "y"), row("c", 3, "z"), row("d", 4)])
    assert brief(out, "k0", "v0", "v1") == [("b", 20, "y!"), ("c", 30, "z!")]


def test_a_row_without_value_keeps_none_through_a_projection() -> None:
    projected = Project("p", SOURCE, (expression("1", BIGINT),), None, schema([STRING], [BIGINT]))
    out = run(plan(projected), [{"k0": "a"}, row("b", 2)])
    assert brief(out, "k0", "v0", "_null") == [("a", None, True), ("b", 1, False)]


def test_table_functions_are_zipped_and_their_rows_numbered() -> None:
    arrays = (expression("[v0, v0 + 1]", Array(BIGINT)), expression("[v1]", Array(STRING)))
    result = schema([STRING], [BIGINT, STRING, BIGINT, STRING])
    out = run(plan(Explode("e", SOURCE, arrays, result)), [row("a", 1, "x"), {"k0": "b"}, row("c", 5, "y")])
    assert brief(out, "k0", "v0", "v2", "v3") == [
        ("a", 1, 1, "x"),
        ("a", 1, 2, None),
        ("c", 5, 5, "y"),
        ("c", 5, 6, None),
    ]


def test_a_new_key_brings_a_new_partition_and_rows_without_it_go_to_partition_zero() -> None:
    def partitioner(step: Rekey, rows: pa.Table) -> np.ndarray:
        return np.array([3 if key == "x" else 1 for key in rows["k0"].to_pylist()])

    def rekeyed(drop: bool) -> Rekey:
        result = schema([STRING], [BIGINT, STRING])
        return Rekey("r", SOURCE, (expression("nullif(v1, '')", STRING),), result, JSON, 4, drop_null_key=drop)

    rows = [row("a", 1, "x"), row("a", 2, ""), row("a", 3, "y", part=2)]
    out = run(plan(rekeyed(False)), rows, partitioner=partitioner)
    assert brief(out, "k0", "_part", "v0") == [("x", 3, 1), (None, 0, 2), ("y", 1, 3)]
    out = run(plan(rekeyed(True)), rows, partitioner=partitioner)
    assert brief(out, "k0", "_part", "v0") == [("x", 3, 1), ("y", 1, 3)]


def test_a_table_s_row_that_fails_a_filter_ends_the_row_that_its_key_had_before() -> None:
    source = table(materialized=True, values=(BIGINT, STRING))
    step = Filter("f", source, expression("v0 > 1", BIGINT), retract_failed=True)
    out = run(plan(step), [row("a", 2), row("a", 1), row("b", 1), {"k0": "a"}, {"k0": "b"}])
    assert brief(out, "k0", "v0", "_weight") == [("a", 2, 1), ("a", 2, -1), ("a", 1, -1), ("b", 1, -1)]


def test_pseudo_columns_of_a_record_can_be_used() -> None:
    values = (expression("_offset", BIGINT),)
    pipeline = open_pipeline(plan(Project("p", SOURCE, values, None, schema([STRING], [BIGINT]))))
    batch = rows_of(SOURCE, [row("a", 1), row("b", 2)])
    numbered = batch.rows.append_column("_offset", pa.array([7, 8], pa.int64()))
    out = shown(pipeline.process({SOURCE.id: replace(batch, rows=numbered)}))
    assert brief(out, "k0", "v0") == [("a", 7), ("b", 8)]


def test_columns_that_nobody_needs_may_be_missing() -> None:
    source = replace(SOURCE, columns=("k0", "v1"))
    step = Filter("f", source, expression("v1 <> ''", BIGINT))
    batch = rows_of(SOURCE, [row("a", 1, "x"), row("b", 2)])
    out = open_pipeline(plan(step)).process({source.id: replace(batch, rows=batch.rows.drop_columns(["v0"]))})
    assert out.rows.column_names[-2:] == ["k0", "v1"]
    assert out.rows["k0"].to_pylist() == ["a"]


def test_rows_keep_their_order_in_batches_that_several_threads_work_on() -> None:
    count = 600_000
    fields = batch_schema(SOURCE.schema)
    columns = {
        "_seq": np.arange(count), "_sub": np.zeros(count), "_part": np.zeros(count), "_ts": np.arange(count),
        "_weight": np.ones(count), "_null": np.zeros(count, dtype=bool), "v0": np.arange(count),
    }  # fmt: skip
    arrays = {name: pa.array(values).cast(fields.field(name).type) for name, values in columns.items()}
    arrays |= {name: pa.nulls(count, pa.string()) for name in ("k0", "v1")}
    batch = ChangeBatch(pa.table([arrays[field.name] for field in fields], schema=fields))
    filtered = Filter("f", SOURCE, expression("v0 % 7 <> 0", BIGINT))
    arrays_of_two = (expression("[v0, -v0]", Array(BIGINT)),)
    step = Explode("e", filtered, arrays_of_two, schema([STRING], [BIGINT, STRING, BIGINT]))
    rows = open_pipeline(plan(step)).process({SOURCE.id: batch}).rows
    sequence, sub = rows["_seq"].to_numpy(), rows["_sub"].to_numpy()
    assert (np.diff(sequence * 2 + sub) > 0).all()
    assert len(rows) == 2 * sum(1 for value in range(count) if value % 7)


def test_rows_are_left_out_without_duckdb_as_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = Filter("f", SOURCE, expression("COALESCE(v0 > CAST(7 AS BIGINT), FALSE)", BOOLEAN))
    values = (expression("v1", STRING), expression("v0", BIGINT))
    projected = Project("p", filtered, values, None, schema([STRING], [STRING, BIGINT]))
    again = Filter("g", projected, expression("v0 <> 'x' OR v1 > CAST(30 AS BIGINT)", BOOLEAN))
    rekeyed = Rekey("r", again, (expression("v0", STRING),), again.schema, JSON, 1, drop_null_key=True)
    given = [row("a", number, text) for number in range(40) for text in ("x", "y")]
    given += [{"k0": "a"}, {"k0": "a", "v0": 50}, {"k0": None, "v0": 50, "v1": "z"}]
    shown_columns = ("k0", "v0", "v1", "_weight")
    all_at_once = brief(run(plan(rekeyed), given), *shown_columns)
    one_by_one = brief([each for one in given for each in run(plan(rekeyed), [one])], *shown_columns)
    monkeypatch.setattr(KeptRows, "of", lambda *_: None)
    by_duckdb = brief(run(plan(rekeyed), given), *shown_columns)
    assert 0 < len(by_duckdb) < len(given)
    assert all_at_once == one_by_one == by_duckdb


@pytest.mark.parametrize(
    ("condition", "count"), [("1 = 1", 3), ("1 = 2", 0), ("v0 >= CAST(0 AS BIGINT)", 3), ("NOT TRUE", 0)]
)
def test_a_condition_may_hold_for_all_rows_or_none(condition: str, count: int) -> None:
    filtered = Filter("f", SOURCE, expression(condition, BOOLEAN))
    assert len(run(plan(filtered), [row("a", number, "x") for number in range(3)])) == count


def partition_three(step: Rekey, rows: pa.Table) -> np.ndarray:
    return np.full(len(rows), 3)


def rekeyed_by(*key: SqlExpression, partitions: int = 4) -> Rekey:
    result = schema([each.type for each in key], [BIGINT, STRING])
    return Rekey("r", SOURCE, key, result, JSON, partitions, drop_null_key=False)


def test_a_key_that_is_a_column_keeps_the_values() -> None:
    out = run(plan(rekeyed_by(expression("v1", STRING))), [row("a", 1, "x")], partitioner=partition_three)
    assert brief(out, "k0", "v0", "v1", "_part") == [("x", 1, "x", 3)]


def test_one_partition_has_all_rows() -> None:
    step = rekeyed_by(expression("v1", STRING), partitions=1)
    assert brief(run(plan(step), [row("a", 1, "x")], partitioner=partition_three), "k0", "_part") == [("x", 0)]


def test_rows_that_have_no_key_at_all_are_spread() -> None:
    assert brief(run(plan(rekeyed_by()), [row("a", 1, "x")], partitioner=partition_three), "v0", "_part") == [(1, 3)]


def test_a_projection_may_give_other_keys() -> None:
    keys = (expression("v1", STRING), expression("v0 + 1", BIGINT))
    step = Project("p", SOURCE, (expression("v0", BIGINT),), keys, schema([STRING, BIGINT], [BIGINT]))
    assert brief(run(plan(step), [row("a", 1, "x")]), "k0", "k1", "v0") == [("x", 2, 1)]


def test_a_projection_that_only_names_keeps_the_key() -> None:
    step = Project("p", SOURCE, (expression("v1", STRING),), None, schema([STRING], [STRING]))
    assert brief(run(plan(step), [row("a", 1, "x")]), "k0", "v0") == [("a", "x")]


def test_a_chain_renames_if_it_neither_computes_nor_changes_a_type() -> None:
    source = stream(values=(BIGINT, DOUBLE))
    columns = batch_schema(source.schema)

    def project(sql: str, type_: SqlType) -> dict[str, str] | None:
        return renamed([Project("p", source, (expression(sql, type_),), None, schema([STRING], [type_]))], columns)

    assert (project("v1", DOUBLE) or {})["v0"] == "v1"
    assert project("v0", DOUBLE) is None, "a BIGINT does not become a DOUBLE by its name"
    assert project("v0 + 1", BIGINT) is None


def test_a_double_that_becomes_the_key_has_one_zero() -> None:
    source = stream(values=(DOUBLE,))
    key = expression("v0", DOUBLE)
    step = Rekey("r", source, (key,), schema([DOUBLE], [DOUBLE]), JSON, 1, drop_null_key=False)
    (out,) = run(plan(step), [{"k0": "a", "v0": -0.0}])
    assert (str(out["k0"]), str(out["v0"])) == ("0.0", "-0.0")


def test_pseudo_columns_that_come_in_go_on() -> None:
    projected = Project("p", SOURCE, (expression("1", BIGINT),), None, schema([STRING], [BIGINT]))
    for step in (Filter("f", SOURCE, expression("v0 > 1", BIGINT)), projected):
        assert Stateless(duckdb.connect(), [step], SOURCE.schema, ["_offset"], None, None, Guard()).extra == (
            "_offset",
        )
        assert Stateless(duckdb.connect(), [step], SOURCE.schema, [], None, None, Guard()).extra == ()


# ------------------------------------------------------------------ columns that pass


def passing(*steps: Any, columns: int = 3) -> tuple[Stateless, pa.Table]:
    """An operator over `columns` numbers, v0…, and three rows for it: v0 is 1, 2, 3, v1 is 10, 20, 30 and so on."""
    given = schema([STRING], [BIGINT] * columns)
    made = Stateless(duckdb.connect(), steps, given, (), None, None, Guard())
    data: dict[str, Any] = {"k0": ["a", "b", "c"], "_seq": [0, 1, 2], "_weight": [1, 1, 1], "_null": [False] * 3}
    data |= {f"v{i}": [10**i * n for n in (1, 2, 3)] for i in range(columns)}
    fields = batch_schema(given)
    return made, pa.table([pa.array(data.get(field.name, [0] * 3), field.type) for field in fields], schema=fields)


def address(table: pa.Table, name: str) -> int:
    return table[name].chunk(0).buffers()[1].address


def test_a_filter_reads_what_it_asks_for_and_passes_on_the_rest_without_a_copy() -> None:
    operator, rows = passing(Filter("f", SOURCE, expression("v1 + 0 > 0", BIGINT)))
    assert operator._read_schema.names == ["_weight", "_null", "v1", "_row"]
    for each in (operator, passing(Filter("f", SOURCE, expression("v1 > 0", BIGINT)))[0]):
        out = each.process(ChangeBatch(rows)).rows
        assert out.equals(rows)
        assert all(address(out, name) == address(rows, name) for name in rows.column_names)


def test_rows_that_are_left_keep_their_columns_in_pieces_too() -> None:
    operator, rows = passing(Filter("f", SOURCE, expression("v1 <> 20", BIGINT)))
    pieces = pa.concat_tables([rows.slice(0, 2), rows.slice(2)])
    out = operator.process(ChangeBatch(pieces)).rows
    assert out.equals(rows.take([0, 2]))


def test_what_only_dropped_columns_need_is_not_read() -> None:
    first = Project("p", SOURCE, (expression("v0 + 1", BIGINT), expression("v2", BIGINT)), None,
                    schema([STRING], [BIGINT, BIGINT]))  # fmt: skip
    last = Project("q", first, (expression("v1", BIGINT), expression("k0 || '!'", STRING)), None,
                   schema([STRING], [BIGINT, STRING]))  # fmt: skip
    operator, rows = passing(first, last)
    assert operator._read_schema.names == ["_null", "k0"]
    out = operator.process(ChangeBatch(rows)).rows
    assert out["v0"].to_pylist() == [100, 200, 300] and address(out, "v0") == address(rows, "v2")
    assert out["v1"].to_pylist() == ["a!", "b!", "c!"]


def test_a_table_function_gives_its_rows_though_nobody_asks_for_its_column() -> None:
    exploded = Explode("e", SOURCE, (expression("[v0, v1]", Array(BIGINT)),), schema([STRING], [BIGINT] * 3))
    dropped = Project("p", exploded, (expression("v1", BIGINT),), None, schema([STRING], [BIGINT]))
    operator, rows = passing(exploded, dropped, columns=2)
    out = operator.process(ChangeBatch(rows)).rows
    assert out["v0"].to_pylist() == [10, 10, 20, 20, 30, 30]
    assert out["k0"].to_pylist() == ["a", "a", "b", "b", "c", "c"]
    assert out["_sub"].to_pylist() == [0, 1] * 3


def test_a_new_key_that_is_computed_leaves_out_rows_without_one() -> None:
    key = (expression("nullif(v0, 2)", BIGINT),)
    rekey = Rekey("r", SOURCE, key, schema([BIGINT], [BIGINT] * 3), JSON, 1, drop_null_key=True)
    operator, rows = passing(rekey)
    out = operator.process(ChangeBatch(rows)).rows
    assert out["k0"].to_pylist() == [1, 3] and out["v2"].to_pylist() == [100, 300]
