"""Runs planned SQL over given rows, in batches that end anywhere, and adds up the changes that come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from databases import new_connection
from pipelines import open_pipeline, rows_of
from planning import Planner

from millstream.executor.building import Emit
from millstream.executor.partitioning import RekeyPartitioner
from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.planner.serde import plan_from_json, plan_to_json
from millstream.planner.steps.sink import Sink
from millstream.planner.steps.source import Source

Row = Mapping[str, Any]

_ARROW = {"VARCHAR": pa.string(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64()}


def plan_of(text: str) -> PhysicalPlan:
    """The plan of the last query in `text`, as the command topic would give it back."""
    *_, last = Planner().plans(text)
    assert plan_from_json(plan_to_json(last)) == last
    return last


def random_ends(rng: Random, count: int) -> list[int]:
    return sorted(rng.sample(range(count + 1), k=min(count, rng.randrange(6))))


def changes(
    plan: PhysicalPlan,
    rows: Sequence[Row],
    ends: Sequence[int] = (),
    *,
    restart_at: int | None = None,
    emit: Emit = "every",
) -> list[dict[str, Any]]:
    """The changes that reach the sink. In: rows with the columns of the source by name, and `ts`; a table's row with no
    value column at all is a deletion. `restart_at`: before this batch the state is rebuilt from its changes."""
    (source,) = plan.sources()
    pipeline = open_pipeline(plan, partitioner=RekeyPartitioner(), emit=emit)
    recorded: list[tuple[str, pa.Table]] = []
    out: list[dict[str, Any]] = []
    for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(rows)], strict=True)):
        if number == restart_at:
            pipeline = _restored(plan, recorded, emit)
        batch = rows_of(source, [_physical(source, row) for row in rows[start:end]], start)
        out += _named(plan, pipeline.process({source.id: batch}).rows.to_pylist())
        recorded += [(change.store, change.rows) for change in pipeline.take_changes()]
    return out


def added_up(changed: Sequence[Row]) -> list[Row]:
    """What is left of the changes; a row can be taken back only as it was given."""
    left: Counter[tuple[tuple[str, str], ...]] = Counter()
    kept: dict[tuple[tuple[str, str], ...], Row] = {}
    for change in changed:
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        key = tuple((name, repr(value)) for name, value in row.items())
        left[key] += change["_weight"]
        kept[key] = row
        assert left[key] >= 0, f"taken back, but never given: {row}"
    return [kept[key] for key, count in left.items() for _ in range(count)]


def table_of(plan: PhysicalPlan, changed: Sequence[Row]) -> list[Row]:
    """What is left of the changes where a row replaces the one with its key; a row can be taken back only as it is."""
    assert isinstance(plan.root, Sink)
    left: dict[str, Row] = {}
    for change in changed:
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        key = repr([row[column.name] for column in plan.root.schema.key])
        if change["_weight"] > 0:
            left[key] = row
        else:
            assert left.pop(key) == row, f"taken back, but not there: {row}"
    return list(left.values())


def batch_answer(rows: Sequence[Row], sql: str, columns: Mapping[str, str]) -> list[Row]:
    """DuckDB's answer over the table `rows`, which has the given columns and `n`, the order of arrival."""
    types = {name: _ARROW[type_] for name, type_ in {**columns, "n": "BIGINT"}.items()}
    listed = [{**dict.fromkeys(columns), **row, "n": n} for n, row in enumerate(rows)]
    table = pa.table({name: pa.array([row[name] for row in listed], type_) for name, type_ in types.items()})
    with new_connection() as connection:
        connection.register("rows", table)
        return connection.sql(sql).to_arrow_table().to_pylist()


def same_rows(found: Sequence[Row], wanted: Sequence[Row]) -> None:
    """The same rows, in any order; names in any case."""

    def listed(rows: Sequence[Row]) -> list[str]:
        return sorted(repr(sorted((name.upper(), value) for name, value in row.items())) for row in rows)

    mine, theirs = listed(found), listed(wanted)
    assert mine == theirs, [pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]][:1]


def _restored(plan: PhysicalPlan, recorded: Sequence[tuple[str, pa.Table]], emit: Emit) -> Pipeline:
    pipeline = open_pipeline(plan, partitioner=RekeyPartitioner(), emit=emit)
    for store, rows in recorded:
        pipeline.restore(store, rows)
    return pipeline


def _physical(source: Source, row: Row) -> dict[str, Any]:
    names = {c.name: source.schema.physical_name(c) for c in source.schema}
    return {names.get(name.upper(), name): value for name, value in row.items()}


def _named(plan: PhysicalPlan, rows: Sequence[Row]) -> list[dict[str, Any]]:
    assert isinstance(plan.root, Sink)
    schema = plan.root.schema
    names = {schema.physical_name(c): c.name for c in schema}
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]
