"""Sources, queries, columns and types as entities describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...executor.executor import Executor, QueryStatus
from ...logcore.client import Topic
from ...planner.catalog import Catalog, PersistentQuery
from ...planner.insight.explain import explain
from ...planner.insight.stall import counted
from ...planner.physical import PhysicalPlan
from ...planner.schema import Column, Schema
from ...planner.source_info import SourceInfo
from ...sql.settings.property_table import PROPERTIES
from ...sql.settings.secret_values import shown_setting
from ...sql.types import Array, Decimal, Map, SqlType, Struct
from ..engine.entities import (
    FieldInfo,
    QueryDescription,
    QueryLine,
    QueryOffsets,
    SourceDescription,
    SourceLine,
    TypeInfo,
)
from ..engine.request import Request
from .open_pushes import OpenPush

_RUNNING: Final = "RUNNING"  # the state of every push query


def type_info(type_: SqlType) -> TypeInfo:
    """A type in the nested form of the API."""
    match type_:
        case Struct(fields):
            return TypeInfo("STRUCT", [FieldInfo(item.name, type_info(item.type)) for item in fields])
        case Array(element):
            return TypeInfo("ARRAY", member_schema=type_info(element))
        case Map(_, value):
            return TypeInfo("MAP", member_schema=type_info(value))
        case Decimal(precision, scale):
            return TypeInfo("DECIMAL", parameters={"precision": precision, "scale": scale})
        case _:
            return TypeInfo(str(type_))


def field_info(column: Column) -> FieldInfo:
    role = {"KEY": "KEY", "HEADERS": "HEADER", "VALUE": None}[column.role]
    return FieldInfo(column.name, type_info(column.type), role, column.header_key)


def fields_of(schema: Schema) -> list[FieldInfo]:
    return [field_info(column) for column in schema]


def source_line(source: SourceInfo) -> SourceLine:
    return SourceLine(
        type=source.kind,
        name=source.name,
        topic=source.topic,
        key_format=source.key_format.name,
        value_format=source.value_format.name,
        is_windowed=source.key_window is not None,
    )


def query_line(query: PersistentQuery, catalog: Catalog, executor: Executor) -> QueryLine:
    status = executor.status(query.id)
    sink = catalog.sources.get(query.sink)
    return QueryLine(
        query_string=f"{query.statement};",
        sinks=[query.sink],
        sink_kafka_topics=[] if sink is None else [sink.topic],
        id=query.id,
        status_count={status.shown_state: 1},
        query_type="PERSISTENT",
        state=status.shown_state,
        executor=status.executor,
        detail=_detail(status),
    )


def push_line(push: OpenPush) -> QueryLine:
    return QueryLine(
        query_string=f"{push.statement};",
        sinks=[],
        sink_kafka_topics=[],
        id=push.id,
        status_count={_RUNNING: 1},
        query_type="PUSH",
        state=_RUNNING,
        executor=None,
        detail=None,
    )


def _detail(status: QueryStatus) -> str | None:
    """What the state does not say."""
    if status.trouble is not None:
        return status.trouble
    if status.spark_starts:
        return "waits until Spark has started"
    if status.recovery_left is not None:
        return f"restores its state: {counted(status.recovery_left, 'record')} left"
    if status.backfill_left is not None:
        return f"reads its history on Spark: {counted(status.backfill_left, 'record')} left"
    return None


def describe_sources(sources: Iterable[SourceInfo], request: Request, *, extended: bool) -> list[SourceDescription]:
    topics = request.log.topics()
    return [_describe_source(source, topics.get(source.topic), request, extended) for source in sources]


def _describe_source(source: SourceInfo, topic: Topic | None, request: Request, extended: bool) -> SourceDescription:
    """In: `topic`: of the source; None if it is deleted."""
    catalog, executor = request.visible, request.executor
    readers = catalog.readers_of(source.name)
    writers = catalog.writers_of(source.name)
    return SourceDescription(
        name=source.name,
        window_type=None if source.key_window is None else source.key_window.kind,
        read_queries=[query_line(query, catalog, executor) for query in readers],
        write_queries=[query_line(query, catalog, executor) for query in writers],
        fields=fields_of(source.schema),
        type=source.kind,
        timestamp=source.timestamp_column or "",
        extended=extended,
        key_format=source.key_format.name,
        value_format=source.value_format.name,
        topic=source.topic,
        partitions=source.partition_count if topic is None else topic.partition_count,
        replication=0 if topic is None else topic.replication_factor,
        statement=f"{source.statement};",
        source_constraints=_sources_above(source, catalog),
        statistics=_statistics(writers, executor) if extended else "",
        error_stats=_errors(writers, executor) if extended else "",
        query_offset_summaries=_offsets((*readers, *writers), executor) if extended else [],
    )


def describe_query(query: PersistentQuery, catalog: Catalog, executor: Executor) -> QueryDescription:
    status = executor.status(query.id)
    sink = catalog.sources.get(query.sink)
    return QueryDescription(
        id=query.id,
        statement_text=f"{query.statement};",
        window_type=window_type(query.plan),
        fields=[] if sink is None else fields_of(sink.schema),
        sources=list(query.sources),
        sinks=[query.sink],
        topology=explain(query.plan),
        execution_plan=explain(query.plan),
        overridden_properties=_overridden(query.plan.properties),
        query_type="PERSISTENT",
        state=status.shown_state,
        query_errors=[] if status.trouble is None else [status.trouble],
        metrics=_metrics(status),
        consumer_group_id=query.id,
        executor=status.executor,
    )


def describe_push(push: OpenPush) -> QueryDescription:
    planned = push.planned
    plan_text = "" if planned is None else explain(planned.plan)
    return QueryDescription(
        id=push.id,
        statement_text=f"{push.statement};",
        window_type=None if planned is None else window_type(planned.plan),
        fields=[] if planned is None else fields_of(planned.schema),
        sources=[] if planned is None else [source.name for source in planned.plan.sources()],
        sinks=[],
        topology=plan_text,
        execution_plan=plan_text,
        overridden_properties={} if planned is None else _overridden(planned.plan.properties),
        query_type="PUSH",
        state=_RUNNING,
        query_errors=[],
    )


def _overridden(properties: Mapping[str, str]) -> dict[str, str]:
    """A plan's properties without those of the server that no session can set."""
    of_server = {name for name, entry in PROPERTIES.items() if entry.scope == "SERVER"}
    return {name: shown_setting(name, value) for name, value in properties.items() if name not in of_server}


def window_type(plan: PhysicalPlan) -> str | None:
    """The kind of window of the plan's aggregates."""
    windows = [step.grouping_window for step in plan.steps() if step.grouping_window is not None]
    return windows[-1].kind if windows else None


def _sources_above(source: SourceInfo, catalog: Catalog) -> list[str]:
    """The sources that this source's own query reads; they must not be dropped before it."""
    query = catalog.queries.get(source.created_by or "")
    return [] if query is None else sorted(query.sources)


def _metrics(status: QueryStatus) -> dict[str, int]:
    names = ("rows_in", "rows_used", "rows_dropped", "rows_failed", "rows_out", "batches", "restarts")
    left = {"backfill_left": status.backfill_left, "recovery_left": status.recovery_left}
    known = {name: count for name, count in left.items() if count is not None}
    return {**{name: getattr(status.metrics, name) for name in names}, **known}


def _statistics(writers: tuple[PersistentQuery, ...], executor: Executor) -> str:
    return "\n".join(f"{query.id}: {_figures_text(_metrics(executor.status(query.id)))}" for query in writers)


def _figures_text(metrics: Mapping[str, int]) -> str:
    """Says what the counts mean: a record of an aggregate that a later one of its batch replaces is not lost.

    >>> counts = {"rows_in": 9, "rows_used": 2, "rows_dropped": 6, "rows_failed": 1, "rows_out": 2, "batches": 1}
    >>> _figures_text({**counts, "restarts": 0}).split(" (")
    ['9 records read',
     '2 gave rows, 6 were filtered, late or replaced by later ones, 1 failed), 2 written; batches 1, restarts 0']
    """
    named = ("rows_in", "rows_used", "rows_dropped", "rows_failed", "rows_out")
    read, used, dropped, failed, out = (metrics[name] for name in named)
    others = ", ".join(f"{name} {count}" for name, count in metrics.items() if name not in named)
    return (
        f"{read} records read ({used} gave rows, {dropped} were filtered, late or replaced by later ones, "
        f"{failed} failed), {out} written; {others}"
    )


def _errors(writers: tuple[PersistentQuery, ...], executor: Executor) -> str:
    found = [(query.id, executor.status(query.id).trouble) for query in writers]
    return "\n".join(f"{query_id}: {error}" for query_id, error in found if error is not None)


def _offsets(queries: tuple[PersistentQuery, ...], executor: Executor) -> list[QueryOffsets]:
    statuses = {query.id: executor.status(query.id) for query in queries}
    return [
        QueryOffsets(query_id, partition.topic, partition.partition, position, status.lag.get(partition))
        for query_id, status in statuses.items()
        for partition, position in sorted(status.positions.items())
    ]
