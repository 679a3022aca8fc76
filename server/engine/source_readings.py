"""SELECT from one stream or table, for programs that read its topic themselves, such as Spark's tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from millstream.errors import Span, UnknownSource, Unsupported, did_you_mean

from ...executor.answers.materialization import source_step
from ...planner.planning import PlannedPull
from ...planner.pull.pull_queries import plan_pull
from ...planner.schema import Column, Schema
from ...planner.schemas.registry import InvalidSchema, topic_of
from ...planner.source_reading import SourceReading
from ...planner.specs import RecordSchema
from ...sql.ast import Query, SourceName
from ...sql.functions.udf import PREFIX
from ...sql.functions.users.user_functions import definition_of
from ...sql.settings.property_table import PULL_FULL_SQL
from ...sql.types import BOOLEAN
from .request import Request

DELETED = "ROWDELETED"  # column of changes: whether the row was deleted

_COLUMN = re.compile(r"\b[kv]\d+\b")


def plan_reading(query: Query, request: Request, *, changes: bool) -> SourceReading:
    """In: `changes`: of a table, every change, with ROWDELETED as last column. Raises `StatementError`; `Unsupported`
    for a query that does more than read the rows of one stream or table one by one."""
    if not isinstance(query.source, SourceName) or query.emit is not None or query.limit is not None or query.order_by:
        raise _refused("other clauses than SELECT, FROM and WHERE are", query.span)
    known = request.catalog.sources
    if query.source.name not in known:
        hint = did_you_mean(query.source.name, request.visible.sources)
        raise UnknownSource(f"{query.source.name} does not exist.", span=query.source.span, hint=hint)
    context = request.planning_context()
    context = replace(context, properties={**context.properties, PULL_FULL_SQL.name: "true"})
    planned = plan_pull(request.bound(query), context)
    if not isinstance(planned, PlannedPull):
        raise _refused("aggregates, windows and table functions are", query.span)
    if any(definition_of(udf.removeprefix(PREFIX).split("$")[0]) for udf in planned.udfs):
        raise _refused("functions that users wrote are", query.span)
    source = planned.source_info
    if changes and (source.kind == "STREAM" or query.where is not None):
        what = "changes of a stream are" if source.kind == "STREAM" else "changes with a condition are"
        raise _refused(what, query.span, "Read a stream without `changes`, and filter changes in Spark.")
    schema, sql = planned.schema, planned.sql
    if changes:
        schema = Schema((*schema, Column(DELETED, BOOLEAN)))
        columns = [*planned.columns, "_null"]
        sql = f"SELECT {', '.join(f'({column}) AS c{i}' for i, column in enumerate(columns))} FROM source"
    timestamp = planned.timestamp
    used = set(_COLUMN.findall(sql)) | set(_COLUMN.findall("" if timestamp is None else timestamp.sql))
    names = [source.schema.physical_name(column) for column in source.schema]
    step = replace(source_step(source, timestamp), columns=tuple(name for name in names if name in used))
    schemas = dict(_schemas(source.topic, request))
    return SourceReading(step, sql, schema, planned.udfs, changes, schemas)


def _schemas(topic: str, request: Request) -> Iterator[tuple[str, RecordSchema]]:
    registry = request.schemas.registry
    for version in registry.versions.values():
        if topic_of(version.subject) == topic:
            try:
                yield str(version.id), registry.record_schema(version)
            except InvalidSchema:  # a reference is missing, so its records cannot be read anywhere
                continue


def _refused(what: str, span: Span | None, hint: str = "Do it in Spark, on the rows.") -> Unsupported:
    return Unsupported(f"{what} not possible where a stream or table is read from outside", span=span, hint=hint)
