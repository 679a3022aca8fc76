"""ALTER STREAM|TABLE: ADD COLUMN, DROP COLUMN, RENAME COLUMN and RENAME TO.

ALTER rewrites no records, so it allows only changes that leave the existing records readable. JSON and AVRO records
contain field names: a column can be dropped, but a renamed column would read another field. DELIMITED has its fields by
position, and a single value may have no name at all: there a column can be renamed, but not dropped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from millstream.errors import InvalidStatement, SourceExists, Span, UnknownColumn, UnknownSource, did_you_mean

from ...planner.catalog import Catalog, PersistentQuery
from ...planner.declarations.record_schemas import with_new_schemas
from ...planner.expressions.scope import resolve_type
from ...planner.formats import check_columns, format_rules
from ...planner.schema import PSEUDO, Column, Schema
from ...planner.select.naming import joined
from ...planner.source_info import SourceInfo
from ...planner.specs import FormatSpec
from ...sql.ast import AlterSource, ColumnDefinition, DropColumn, RenameColumn, RenameSource
from ..catalog.commands import PutSource
from ..engine.entities import CommandState, CurrentStatus, Entity
from ..engine.request import Request
from .create import command_id


def alter_source(statement: AlterSource, request: Request) -> list[Entity]:
    """ALTER STREAM|TABLE name …, for sources that were not created with AS SELECT."""
    source = _source_of(statement, request.catalog)
    _refuse(statement, source)
    altered = source
    for change in statement.changes:
        match change:
            case ColumnDefinition():
                altered = replace(altered, schema=_with_column(altered.schema, change, request))
            case DropColumn():
                altered = _without_column(altered, change, request)
            case RenameColumn():
                altered = _with_renamed_column(altered, change, request)
            case RenameSource():
                altered = _renamed(altered, change, request)
            case _:
                assert_never(change)
    _check_values(statement, source, altered)
    if altered.schema != source.schema:
        altered, versions = with_new_schemas(altered, request.schemas.registry)
        request.register(versions)
    replaced = source.name if altered.name != source.name else None
    offset = request.store.submit(PutSource(source=altered, replaces=replaced, statement=statement.text))
    return [
        CurrentStatus(
            statement_text=statement.text,
            command_id=command_id(source.kind, source.name, "alter"),
            command_status=CommandState("SUCCESS", f"{source.kind.capitalize()} {source.name} altered"),
            command_sequence_number=offset,
        )
    ]


def _source_of(statement: AlterSource, catalog: Catalog) -> SourceInfo:
    found = catalog.sources.get(statement.name)
    if found is None:
        raise UnknownSource(
            f"Source {statement.name} does not exist.",
            span=statement.span,
            hint=did_you_mean(statement.name, catalog.sources),
        )
    return found


def _refuse(statement: AlterSource, source: SourceInfo) -> None:
    kind = source.kind.lower()
    if source.kind != statement.kind:
        raise InvalidStatement(
            f"Incompatible data source type is {source.kind}, but statement was ALTER {statement.kind}",
            span=statement.span,
        )
    if source.read_only:
        raise InvalidStatement(
            f"Cannot alter {kind} '{source.name}': ALTER operations are not supported on source {kind}s.",
            span=statement.span,
        )
    if source.created_by is not None:
        raise InvalidStatement(
            f"ALTER command is not supported for CREATE ... AS statements. {source.name} is one.",
            span=statement.span,
            hint=f"Redefine it with CREATE OR REPLACE {source.kind} {source.name} AS SELECT ….",
        )


def _check_values(statement: AlterSource, source: SourceInfo, altered: SourceInfo) -> None:
    """Raises `InvalidStatement` if the format cannot encode the columns."""
    before, after = (len(_stored(each)) for each in (source, altered))
    check_columns(altered.value_format.name, _stored(altered), "Value")
    if before and not after:
        raise InvalidStatement(
            f"Cannot alter {source.kind.lower()} '{source.name}': its value would have no columns.",
            span=statement.span,
            hint=f"DROP {source.kind} {source.name}; drops it, and keeps the topic.",
        )
    if after > 1 and after > before and not source.value_format.wrap_single:
        raise InvalidStatement(
            f"Cannot alter {source.kind.lower()} '{source.name}': its single value is not wrapped in an object.",
            span=statement.span,
        )


def _stored(source: SourceInfo) -> tuple[Column, ...]:
    return tuple(column for column in source.schema.value if column.role != "HEADERS")


# ------------------------------------------------------------------ columns


def _with_column(schema: Schema, definition: ColumnDefinition, request: Request) -> Schema:
    if definition.role != "VALUE":
        raise InvalidStatement(f"Cannot add column `{definition.name}`: only value columns.", span=definition.span)
    _check_free(schema, definition.name, f"Cannot add column `{definition.name}` to schema.", definition.span)
    type_ = resolve_type(definition.type, request.catalog.types, definition.span)
    return Schema((*schema.columns, Column(definition.name, type_)))


def _without_column(source: SourceInfo, change: DropColumn, request: Request) -> SourceInfo:
    column = _column_of(source, change.name, change.span)
    refused = f"Cannot drop column `{column.name}` of {source.name}"
    if column.role == "KEY":
        raise InvalidStatement(
            f"{refused}: it is a key column.",
            span=change.span,
            hint=f"Create a {source.kind.lower()} with another key with CREATE … AS SELECT.",
        )
    if column.name == source.timestamp_column:
        raise InvalidStatement(
            f"{refused}: the records' time is read from it (TIMESTAMP of its WITH clause).", span=change.span
        )
    given = source.value_format.schema is not None and source.value_format.schema.given
    if column.role == "VALUE" and (given or not format_rules(source.value_format.name).by_name):
        why = "its schema was named by id" if given else f"{source.value_format.name} does not find its fields by name"
        raise InvalidStatement(
            f"{refused}: {why}, and the existing records have this column.",
            span=change.span,
            hint=f"Omit it in the queries that read it, as in CREATE {source.kind} … AS SELECT.",
        )
    _refuse_users(source, column.name, refused, change.span, request)
    return replace(source, schema=Schema(tuple(each for each in source.schema.columns if each != column)))


def _with_renamed_column(source: SourceInfo, change: RenameColumn, request: Request) -> SourceInfo:
    column = _column_of(source, change.name, change.span)
    refused = f"Cannot rename column `{column.name}` of {source.name}"
    _check_free(source.schema, change.to, f"{refused} to `{change.to}`.", change.span)
    part = source.key_format if column.role == "KEY" else source.value_format
    count = len(source.schema.key if column.role == "KEY" else _stored(source))
    if column.role != "HEADERS" and not _is_without_names(part, count):
        raise InvalidStatement(
            f"{refused}: in {part.name} the existing records contain the name `{column.name}`.",
            span=change.span,
            hint=f"Rename it in its readers: CREATE {source.kind} … AS SELECT {column.name} AS {change.to}.",
        )
    _refuse_users(source, column.name, refused, change.span, request)
    columns = tuple(replace(each, name=change.to) if each == column else each for each in source.schema.columns)
    timestamp = change.to if source.timestamp_column == column.name else source.timestamp_column
    return replace(source, schema=Schema(columns), timestamp_column=timestamp)


def _is_without_names(part: FormatSpec, count: int) -> bool:
    """Whether the bytes do not contain column names: values by position, or a single unwrapped value."""
    return format_rules(part.name).same_bytes(count > 1 or part.wrap_single)


def _column_of(source: SourceInfo, name: str, span: Span | None) -> Column:
    found = source.schema.find(name)
    if found is None:
        raise UnknownColumn(
            f"Column `{name}` does not exist in {source.kind.lower()} {source.name}.",
            span=span,
            hint=did_you_mean(name, [column.name for column in source.schema]),
        )
    return found


def _check_free(schema: Schema, name: str, refused: str, span: Span | None) -> None:
    if name in PSEUDO:
        raise InvalidStatement(
            f"'{name}' is a reserved column name. You cannot use it as a name for a column.", span=span
        )
    if schema.find(name) is not None:
        raise InvalidStatement(f"{refused} A column with the same name already exists.", span=span)


# ------------------------------------------------------------------ the name


def _renamed(source: SourceInfo, change: RenameSource, request: Request) -> SourceInfo:
    refused = f"Cannot rename {source.name} to {change.to}"
    if change.to in request.catalog.sources:
        raise SourceExists(f"{refused}: a stream or table with this name exists.", span=change.span)
    _refuse_users(source, None, refused, change.span, request)
    return replace(source, name=change.to)


def _refuse_users(source: SourceInfo, column: str | None, refused: str, span: Span | None, request: Request) -> None:
    """Raises `InvalidStatement` while queries write the source or read the column. In: `column`: None: while queries
    read the source."""
    catalog = request.catalog
    readers = sorted(query.id for query in catalog.readers_of(source.name) if _reads(query, source, column))
    writers = sorted(query.id for query in catalog.writers_of(source.name))
    if not readers and not writers:
        return
    said = [f"{verb} by {joined(ids)}" for verb, ids in (("read", readers), ("written", writers)) if ids]
    raise InvalidStatement(
        f"{refused}: it is {joined(said)}.",
        span=span,
        hint="TERMINATE them, or drop their sinks, and create them again afterwards.",
    )


def _reads(query: PersistentQuery, source: SourceInfo, column: str | None) -> bool:
    if column is None or any(each.name == column for each in source.schema.key):
        return True
    steps = [step for step in query.plan.sources() if step.topic == source.topic]
    places = [(step, [each.name for each in step.schema.value]) for step in steps]
    return any(
        column in names and (step.columns is None or f"v{names.index(column)}" in step.columns)
        for step, names in places
    )
