"""DROP STREAM|TABLE, and with CASCADE everything that depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from millstream.errors import InvalidStatement, UnknownSource, did_you_mean

from ...planner.catalog import Catalog, PersistentQuery
from ...planner.formats import FORMAT_KINDS
from ...planner.schemas.registry import Version, subject_of
from ...planner.select.dependents import Dependent, dependents, without
from ...planner.select.naming import joined
from ...planner.source_info import SourceInfo
from ...planner.specs import FormatSpec
from ...planner.steps.sink import Sink
from ...sql.ast import DropSource as DropStatement
from ..catalog.commands import Command, RemoveSource, TerminateQuery
from ..engine.entities import CommandState, CurrentStatus, Entity
from ..engine.request import Request
from .create import command_id


def drop_source(statement: DropStatement, request: Request) -> list[Entity]:
    """DROP STREAM|TABLE [IF EXISTS] name [DELETE TOPIC] [CASCADE]; ends the query that CREATE … AS started."""
    source = request.catalog.sources.get(statement.name)
    if source is None and statement.if_exists:
        return [_dropped(statement, f"Source `{statement.name}` does not exist.", -1)]
    if source is None:
        raise UnknownSource(
            f"{statement.kind.capitalize()} {statement.name} does not exist.",
            span=statement.span,
            hint=did_you_mean(statement.name, request.catalog.sources),
        )
    schemas = _schemas(source, request) if statement.delete_topic else []
    first = dependents(source.name, request.catalog) if statement.cascade else ()
    _refuse(statement, source, without(first, request.catalog))
    for dependent in first:
        request.store.submit(_ending(dependent, statement, request.catalog))
    command = _drop(source, statement, request.catalog, delete_topic=statement.delete_topic)
    offset = request.store.submit(command)
    if statement.delete_topic:
        request.schemas.append(replace(version, deleted=True) for version in schemas)
        request.session.forget_topic(source.topic)
    message = f"Source `{source.name}` (topic: {source.topic}) was dropped."
    if first:
        message += f" Before it, in this order: {joined([_told(dependent) for dependent in first])}."
    return [_dropped(statement, message, offset)]


def _drop(source: SourceInfo, statement: DropStatement, catalog: Catalog, *, delete_topic: bool) -> RemoveSource:
    return RemoveSource(
        name=source.name,
        terminate=source.created_by if source.created_by in catalog.queries else None,
        delete_topic=source.topic if delete_topic else None,
        statement=statement.text,
    )


# ------------------------------------------------------------------ CASCADE


def _ending(dependent: Dependent, statement: DropStatement, catalog: Catalog) -> Command:
    if isinstance(dependent, PersistentQuery):
        return TerminateQuery(query_id=dependent.id, statement=statement.text)
    return _drop(dependent, statement, catalog, delete_topic=False)


def _told(dependent: Dependent) -> str:
    if isinstance(dependent, PersistentQuery):
        return f"query {dependent.id}"
    return f"{dependent.kind.lower()} {dependent.name} (topic: {dependent.topic})"


# ------------------------------------------------------------------ one


def _schemas(source: SourceInfo, request: Request) -> list[Version]:
    """The schemas that are deleted with the topic; their ids stay readable. Raises `SubjectClosed`."""
    registry, found = request.schemas.registry, list[Version]()
    parts: tuple[tuple[Literal["key", "value"], FormatSpec], ...] = (
        ("key", source.key_format),
        ("value", source.value_format),
    )
    for part, spec in parts:
        versions = registry.of_subject(subject_of(source.topic, part)) if spec.name in FORMAT_KINDS else []
        if versions:
            registry.check_mode(versions[0].subject, "READWRITE", "IMPORT")
        found += versions
    return found


def _dropped(statement: DropStatement, message: str, offset: int) -> CurrentStatus:
    return CurrentStatus(
        statement_text=statement.text,
        command_id=command_id(statement.kind, statement.name, "drop"),
        command_status=CommandState("SUCCESS", message),
        command_sequence_number=offset,
    )


def _refuse(statement: DropStatement, source: SourceInfo, catalog: Catalog) -> None:
    if source.kind != statement.kind:
        raise InvalidStatement(
            f"Incompatible data source type is {source.kind}, but statement was DROP {statement.kind}",
            span=statement.span,
            hint=f"Write DROP {source.kind} {source.name}.",
        )
    if statement.delete_topic and source.read_only:
        raise InvalidStatement(f"Cannot delete topic for read-only source: {source.name}", span=statement.span)
    _refuse_inserting_queries(statement, source, catalog)
    _refuse_dependent_sources(statement, source, catalog)
    if statement.delete_topic:
        _refuse_used_topic(statement, source, catalog)


def _refuse_inserting_queries(statement: DropStatement, source: SourceInfo, catalog: Catalog) -> None:
    """Raises `InvalidStatement` while an INSERT INTO query reads or writes the source."""
    readers = sorted(query.id for query in catalog.readers_of(source.name) if query.kind == "INSERT")
    writers = sorted(query.id for query in catalog.writers_of(source.name) if query.kind == "INSERT")
    if readers or writers:
        raise InvalidStatement(
            f"Cannot drop {source.name}.\n"
            f"The following queries read from this source: [{', '.join(readers)}].\n"
            f"The following queries write into this source: [{', '.join(writers)}].\n"
            f"You need to terminate them before dropping {source.name}.",
            span=statement.span,
            hint=f"DROP {source.kind} {source.name} CASCADE; ends them too.",
        )


def _refuse_dependent_sources(statement: DropStatement, source: SourceInfo, catalog: Catalog) -> None:
    """Raises `InvalidStatement` while a CREATE … AS query reads the source: its sink has to be dropped first."""
    queries = [query for query in catalog.readers_of(source.name) if query.id != source.created_by]
    readers = sorted({query.sink for query in queries})
    if readers:
        raise InvalidStatement(
            f"Cannot drop {source.name}.\n"
            f"The following streams and/or tables read from this source: [{', '.join(readers)}].\n"
            f"You need to drop them before dropping {source.name}.",
            span=statement.span,
            hint=f"DROP {source.kind} {source.name} CASCADE; drops them too.",
        )


def _refuse_used_topic(statement: DropStatement, source: SourceInfo, catalog: Catalog) -> None:
    """Raises `InvalidStatement` while a query uses the topic through another stream or table."""
    users: list[str] = []
    for query in catalog.queries.values():
        root = query.plan.root
        read = any(step.topic == source.topic for step in query.plan.sources())
        written = isinstance(root, Sink) and root.topic == source.topic
        if query.id != source.created_by and (read or written):
            users.append(query.id)
    if users:
        raise InvalidStatement(
            f"Cannot delete topic {source.topic}: the following queries use it: [{', '.join(sorted(users))}].",
            span=statement.span,
            hint="Terminate them, or leave out DELETE TOPIC.",
        )
