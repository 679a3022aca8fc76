"""TTL of a table: rows that were not updated for that long expire. The stream time of their task is the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.expire import Expire
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Building, ChainNode, Operator, builds
from .columns import (
    WINDOW,
    Ints,
    batch_schema,
    conform,
    flat,
    ints,
    key_types,
    number_within,
    take,
    with_columns,
)
from .lifetimes import Lifetimes
from .stream_time import StreamTime, merged, running


class TaskTime:
    """The stream time at each row of a batch: from the source (`_st`), or else from the rows that arrive here."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, extra: Sequence[str]) -> None:
        self._own = None if "_st" in extra else StreamTime(connection, name)
        self.stores = {} if self._own is None else {name: self._own.store}

    def advance(self, batch: ChangeBatch, rows: pa.Table) -> tuple[Ints, dict[int, int]]:
        """The stream time at each row, and the stream time of each task after the batch. In: `rows`: the rows of the
        batch that count."""
        if self._own is None:
            return ints(rows, "_st"), batch.stream_time_ms
        before = self._own.read()
        at_rows, after = running(flat(rows, "_part"), ints(rows, "_ts"), before)
        self._own.write(before, after)
        return at_rows, merged({}, after)


class Expiry(Operator):
    """In:    a table's records, or its changes with or without old rows.
    Out:   the same, and a deletion (-1, NULL values) for each row that expires; its rowtime is the time of expiry. A
           row that is already too old when it arrives deletes the previous row of its key.
    State: the rowtime of each row.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        ttl_ms: int,
    ) -> None:
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(schema)
        key |= dict.fromkeys([bound for bound in WINDOW if bound in extra], BIGINT)
        self.schema, self.extra, self.columns = schema, tuple(extra), columns
        self._output_schema = batch_schema(schema, extra, columns)
        self._lifetimes = Lifetimes(connection, name, key, ttl_ms)
        self._time = TaskTime(connection, f"{name}.stream_time", extra)
        self.stores = {name: self._lifetimes.store, **self._time.stores}

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = conform(batch.rows, self._output_schema)
        at_rows, after = self._time.advance(batch, rows)
        appears = (ints(rows, "_weight") > 0) & ~flat(rows, "_null").to_numpy(zero_copy_only=False)
        life = self._lifetimes.advance(rows, appears, at_rows, after)
        kept = life.lives | life.was_there  # a deletion of a key without a row is dropped
        if len(life.ends) or not (life.lives | ~appears).all() or not kept.all():
            rows = self._with_ends(_without_values(rows, appears & ~life.lives), kept, life.ends)
        return replace(batch, rows=rows)

    def _with_ends(self, rows: pa.Table, kept: np.ndarray, ends: pa.Table) -> pa.Table:
        out = pa.concat_tables([rows, ended_rows(ends, rows, self._output_schema)])
        place = np.concatenate([2 * np.flatnonzero(kept) + 1, 2 * ints(ends, "_row")])
        chosen = np.concatenate([np.flatnonzero(kept), np.arange(len(rows), len(out), dtype=np.int64)])
        return numbered(take(out, chosen[np.argsort(place, kind="stable")]))


def ended_rows(ends: pa.Table, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Deletions of expired rows. Each has the `_seq` of the row of the batch at which it expires."""
    sequence = ints(rows, "_seq")
    after_all = int(sequence.max(initial=-1)) + 1
    count = len(ends)
    columns = {name: ends.column(name) for name in ends.column_names if name in schema.names}
    columns |= {
        "_seq": pa.array(np.append(sequence, after_all)[ints(ends, "_row")]),
        "_sub": pa.array(np.zeros(count, np.int32)),
        "_ts": pa.array(ints(ends, "_due")),
        "_weight": pa.array(np.full(count, -1, np.int8)),
        "_null": pa.array(np.ones(count, np.bool_)),
    }
    if "_st" in schema.names:
        columns["_st"] = columns["_ts"]
    return conform(pa.table(columns), schema)


def numbered(rows: pa.Table) -> pa.Table:
    """The rows with `_sub` numbered in their order."""
    return with_columns(rows, {"_sub": pa.array(number_within(ints(rows, "_seq")))})


def _without_values(rows: pa.Table, chosen: np.ndarray) -> pa.Table:
    """The rows, with the chosen ones turned into deletions."""
    if not chosen.any():
        return rows
    weights = np.where(chosen, np.int8(-1), ints(rows, "_weight").astype(np.int8))
    null = flat(rows, "_null").to_numpy(zero_copy_only=False) | chosen
    changed = {"_weight": pa.array(weights, pa.int8()), "_null": pa.array(null)}
    mask = np.where(chosen, -1, np.arange(len(rows), dtype=np.int64))
    for name in rows.column_names:
        if name[0] == "v" and name[1:].isdigit():
            changed[name] = take(rows.select([name]), mask).column(0)
    return with_columns(rows, changed)


@builds(Expire)
def build(step: Expire, building: Building) -> ChainNode:
    below = building.node(step.input)
    operator = Expiry(building.connection, step.id, step.schema, below.extra, below.columns, step.ttl_ms)
    return building.chain(below, operator, step)
