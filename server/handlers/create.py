"""CREATE STREAM|TABLE, with and without AS SELECT, and INSERT INTO … SELECT."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from millstream.errors import InvalidStatement, ServerError, Span

from ...executor.queries.start_offsets import StartSettings, check_start
from ...planner.catalog import Catalog, PersistentQuery
from ...planner.declarations.sources import plan_create_source
from ...planner.physical import PhysicalPlan
from ...planner.planning import PlannedQuery
from ...planner.select.naming import joined
from ...planner.select.queries import plan_query
from ...planner.source_info import SourceInfo
from ...sql.ast import CreateAsSelect, CreateSource, InsertInto
from ...sql.settings.property_table import EXECUTOR, PERSISTENT_QUERIES
from ..catalog.commands import PutSource, StartQuery
from ..catalog.replaced_filters import deleting_what_fails
from ..catalog.upgrades import refuse_other_schema, with_kept_state
from ..engine.backfills import mark_of
from ..engine.entities import CommandState, CurrentStatus, Entity, Warned
from ..engine.executors import DrainedExecutor, backfill_executor, chosen_executor
from ..engine.request import Request

_QUERY_PREFIX = {"STREAM": "CSAS", "TABLE": "CTAS"}


def create_source(statement: CreateSource, request: Request) -> list[Entity]:
    """CREATE [OR REPLACE] [SOURCE] STREAM|TABLE name (…)."""
    existing = request.catalog.sources.get(statement.name)
    if existing is not None and statement.if_not_exists:
        return [_exists_already(statement, existing)]
    planned = plan_create_source(statement, request.planning_context())
    source = replace(planned.source, statement=statement.text)
    if existing is not None:
        _refuse_written(existing, statement, request.catalog)
        refuse_other_schema(existing, source, statement.span)
    command = PutSource(
        source=source, topic=planned.topic, statement=statement.text, properties=dict(request.session.properties)
    )
    request.register(planned.schemas)
    offset = request.store.submit(command)
    return [
        CurrentStatus(
            statement_text=statement.text,
            command_id=command_id(source.kind, source.name, "create"),
            command_status=CommandState("SUCCESS", f"{source.kind.capitalize()} created"),
            command_sequence_number=offset,
            warnings=planned.warnings,
        )
    ]


def create_as_select(statement: CreateAsSelect, request: Request) -> list[Entity]:
    """CREATE [OR REPLACE] STREAM|TABLE name AS SELECT …."""
    catalog = request.catalog
    existing = catalog.sources.get(statement.name)
    if existing is not None and statement.if_not_exists:
        return [_exists_already(statement, existing)]
    replaced = _query_to_replace(statement, existing, catalog) if existing and statement.or_replace else None
    new_id = f"{_QUERY_PREFIX[statement.kind]}_{statement.name}_{request.store.next_offset}"
    query_id = replaced.id if replaced else new_id
    planned = plan_query(statement, request.planning_context(query_id))
    assert planned.sink is not None
    sink = replace(planned.sink, created_by=query_id, statement=statement.text)
    if existing is not None:
        refuse_other_schema(existing, sink, statement.span)
    plan = planned.plan if replaced is None else _plan_in_place_of(replaced, planned.plan, statement.span, request)
    query = PersistentQuery(
        id=query_id,
        statement=statement.text,
        plan=plan,
        sink=sink.name,
        sources=planned.sources,
        kind="CREATE_AS",
        paused=replaced.paused if replaced else False,
        backfill=mark_of(request.log, planned.plan) if planned.backfill else None,
    )
    warnings = _reads_itself(query, sink.topic, catalog)
    offset = request.store.submit(_start(statement.text, query, sink, planned, request))
    created = _query_created(statement.text, command_id(sink.kind, sink.name, "create"), query_id, offset)
    return [replace(created, warnings=warnings)]


def _plan_in_place_of(old: PersistentQuery, new: PhysicalPlan, span: Span | None, request: Request) -> PhysicalPlan:
    """The new plan with the state of the old query. Raises if it cannot continue with that."""
    log = request.log

    def whole(topic: str) -> bool:
        partitions = range(log.partition_count(topic))
        return all(log.offsets(topic, partition).log_start_offset == 0 for partition in partitions)

    new = deleting_what_fails(new, old.plan)
    plan = with_kept_state(old, new, span, columnar=log.capabilities.columnar, whole=whole)
    return _where_it_runs(plan, old.plan)


def _where_it_runs(plan: PhysicalPlan, replaced: PhysicalPlan) -> PhysicalPlan:
    """The plan with the replaced plan's named executor, unless the replacement names one."""
    named = {name: value for name, value in replaced.properties.items() if name == EXECUTOR.name}
    return replace(plan, properties={**named, **plan.properties})


def insert_into(statement: InsertInto, request: Request) -> list[Entity]:
    """INSERT INTO name SELECT …."""
    query_id = _insert_query_id(statement, request)
    planned = plan_query(statement, request.planning_context(query_id))
    query = PersistentQuery(
        id=query_id,
        statement=statement.text,
        plan=planned.plan,
        sink=planned.target,
        sources=planned.sources,
        kind="INSERT",
    )
    offset = request.store.submit(_start(statement.text, query, None, planned, request))
    created = _query_created(statement.text, f"stream/`{planned.target}`/create", query_id, offset)
    topic = request.catalog.sources[query.sink].topic
    return [replace(created, warnings=_reads_itself(query, topic, request.catalog))]


def _reads_itself(query: PersistentQuery, topic: str, catalog: Catalog) -> tuple[str, ...]:
    """A warning if the query reads its own output, directly or through other queries. It compares topics, because
    sources with different names may have the same topic."""
    topics = {name: source.topic for name, source in catalog.sources.items()}
    written: dict[str | None, set[str]] = defaultdict(set)  # by topic: the topics written by queries that read it
    for reader in catalog.queries.values():
        for name in reader.sources:
            written[topics.get(name)].add(topics.get(reader.sink, ""))
    behind, waiting = set[str](), [topic]
    while waiting:
        behind.add(reached := waiting.pop())
        waiting += written[reached] - behind
    again = sorted(name for name in query.sources if topics.get(name) in behind)
    if not again:
        return ()
    warning = (
        f"The query reads its own output: {query.sink} feeds {joined(again)}. Unless a condition ends it, each row "
        f"circulates forever; TERMINATE {query.id} stops it."
    )
    return (warning,)


def command_id(kind: str, name: str, action: str) -> str:
    """The id of a command, as used in /status: ``stream/`NAME`/create``."""
    return f"{kind.lower()}/`{name}`/{action}"


def _start(
    text: str, query: PersistentQuery, sink: SourceInfo | None, planned: PlannedQuery, request: Request
) -> StartQuery:
    chosen_executor(query.plan, request.server_properties)  # raises, before anything is written, if it is missing
    if query.backfill is not None and not isinstance(request.executor, DrainedExecutor):
        backfill_executor()
    _refuse_one_too_many(query, request)
    check_start(request.log, planned.plan, StartSettings.of(planned.plan.properties))
    request.register(planned.schemas)
    return StartQuery(
        query=query, sink=sink, topic=planned.topic, statement=text, properties=dict(request.session.properties)
    )


def _refuse_one_too_many(query: PersistentQuery, request: Request) -> None:
    limit = request.server.persistent_queries_max
    if query.id not in request.catalog.queries and len(request.catalog.queries) >= limit:
        raise ServerError(
            f"Not executing statement: the limit on persistent queries has been reached ({limit}).",
            hint=f"TERMINATE a query, or raise {PERSISTENT_QUERIES} in the server's configuration.",
        )


def _query_created(text: str, command: str, query_id: str, offset: int) -> CurrentStatus:
    return CurrentStatus(
        statement_text=text,
        command_id=command,
        command_status=CommandState("SUCCESS", f"Created query with ID {query_id}", query_id),
        command_sequence_number=offset,
    )


def _exists_already(statement: CreateSource | CreateAsSelect, existing: SourceInfo) -> Warned:
    kind, its_kind = statement.kind.lower(), existing.kind.lower()
    message = f"Cannot add {kind} `{existing.name}`: A {its_kind} with the same name already exists."
    return Warned(statement_text=statement.text, message=message)


def _refuse_written(existing: SourceInfo, statement: CreateSource, catalog: Catalog) -> None:
    if existing.created_by in catalog.queries:
        raise InvalidStatement(
            f"Cannot replace {existing.kind.lower()} '{existing.name}': the query {existing.created_by} writes it.",
            span=statement.span,
            hint=f"Use CREATE OR REPLACE {existing.kind} {existing.name} AS SELECT, or drop it first.",
        )


def _query_to_replace(statement: CreateAsSelect, existing: SourceInfo, catalog: Catalog) -> PersistentQuery | None:
    writers = catalog.writers_of(existing.name)
    if len(writers) > 1:
        raise InvalidStatement(
            f"REPLACE for sink {existing.name} is not supported because there are multiple queries writing into it: "
            f"{sorted(query.id for query in writers)}",
            span=statement.span,
            hint="Terminate the INSERT INTO queries first.",
        )
    if writers and existing.name in writers[0].sources:
        raise InvalidStatement(f"{existing.name} cannot be replaced: it reads itself.", span=statement.span)
    return writers[0] if writers else None


def _insert_query_id(statement: InsertInto, request: Request) -> str:
    given = statement.properties.get("QUERY_ID")
    if given is None:
        return f"INSERTQUERY_{request.store.next_offset}"
    query_id = str(given).upper()
    if query_id in request.catalog.queries:
        raise InvalidStatement(f"Query ID '{query_id}' already exists.", span=statement.span)
    if not query_id or not all(letter.isalnum() or letter == "_" for letter in query_id):
        raise InvalidStatement(
            f"Query IDs may contain only alphanumeric characters and '_'. Got: '{query_id}'", span=statement.span
        )
    return query_id
