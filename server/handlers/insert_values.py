"""INSERT INTO … VALUES: one record, encoded as the source says, written at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidStatement

from ...executor.columnar import ARROW, columnar_batch
from ...executor.formats import encoder
from ...executor.partitioning import byte_format, sink_partitions
from ...logcore.client import ColumnarRecords, RowRecords
from ...planner.catalog import SourceInfo
from ...planner.physical import SqlExpression
from ...planner.schema import Column
from ...planner.values import PlannedInsert, plan_insert_values
from ...sql.ast import InsertValues
from ...sql.types import BIGINT
from ..entities import Entity
from ..request import Request

_ROWTIME = Column("ROWTIME", BIGINT)


def insert_values(statement: InsertValues, request: Request) -> list[Entity]:
    """INSERT INTO name [(columns)] VALUES (…). Nothing is answered."""
    planned = plan_insert_values(statement, request.planning_context())
    source = planned.source
    values, rowtime = _evaluate(planned, request)
    arrays = {column: values.get(column) for column in source.schema}
    _append(source, {column: _or_null(array, column) for column, array in arrays.items()}, rowtime, request)
    return []


def _evaluate(planned: PlannedInsert, request: Request) -> tuple[dict[Column, pa.Array], int]:
    """The values of the given columns, and the record's time."""
    asked: dict[Column, SqlExpression] = dict(planned.columns)
    if planned.rowtime is not None:
        asked[_ROWTIME] = planned.rowtime
    arrays = request.constants.evaluate(list(asked.values()))
    values = dict(zip(asked, arrays, strict=True))
    if planned.rowtime is None:
        return values, request.now_ms()
    rowtime = values.pop(_ROWTIME)[0].as_py()
    if rowtime is None or rowtime < 0:
        raise InvalidStatement("ROWTIME must not be NULL or negative.")
    return values, rowtime


def _or_null(array: pa.Array | None, column: Column) -> pa.Array:
    type_ = column.type.arrow
    if array is None:
        return pa.nulls(1, type_)
    return array if array.type == type_ else array.cast(type_)


def _append(source: SourceInfo, arrays: dict[Column, pa.Array], rowtime: int, request: Request) -> None:
    key_columns = source.schema.key
    value_columns = tuple(column for column in source.schema.value if column.role == "VALUE")
    key_arrays = [arrays[column] for column in key_columns]
    value_arrays = [arrays[column] for column in value_columns]
    keys = encoder(byte_format(source.key_format), key_columns).encode(key_arrays, null_rows=pa.array([not key_arrays]))
    _refuse_null_key(source, keys)
    partition = int(sink_partitions(keys, pa.array(np.zeros(1, np.int32)), source.partition_count)[0])
    if source.value_format.name == ARROW:
        meta = {"_ts": pa.array([rowtime], pa.int64()), "_null": pa.array([False])}
        batch = columnar_batch((*key_columns, *value_columns), [*key_arrays, *value_arrays], meta)
        request.log.append(source.topic, partition, ColumnarRecords(batch, rowtime))
        return
    values = encoder(source.value_format, value_columns).encode(value_arrays, null_rows=pa.array([not value_arrays]))
    table = pa.table({"timestamp": pa.array([rowtime], pa.int64()), "key": keys, "value": values})
    request.log.append(source.topic, partition, RowRecords(table))


def _refuse_null_key(source: SourceInfo, keys: pa.Array) -> None:
    if source.kind == "TABLE" and keys.null_count:
        raise InvalidStatement(
            f"Failed to insert values into '{source.name}'. Value for primary key column(s) "
            f"{', '.join(column.name for column in source.schema.key)} is required for tables"
        )
