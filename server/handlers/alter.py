"""ALTER STREAM|TABLE … ADD COLUMN."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import InvalidStatement, UnknownSource, did_you_mean

from ...planner.catalog import Catalog
from ...planner.formats import check_columns
from ...planner.record_schemas import with_new_schemas
from ...planner.schema import PSEUDO, Column, Schema
from ...planner.scope import resolve_type
from ...planner.source_info import SourceInfo
from ...sql.ast import AlterSource, ColumnDefinition
from ..commands import PutSource
from ..entities import CommandState, CurrentStatus, Entity
from ..request import Request
from .create import command_id


def alter_source(statement: AlterSource, request: Request) -> list[Entity]:
    """ALTER STREAM|TABLE name ADD COLUMN …: value columns at the end, of sources without a query of their own."""
    source = _source_of(statement, request.catalog)
    _refuse(statement, source)
    schema = source.schema
    for definition in statement.columns:
        schema = _with_column(schema, definition, request)
    stored = tuple(column for column in schema.value if column.role != "HEADERS")
    check_columns(source.value_format.name, stored, "Value")
    if len(stored) > 1 and not source.value_format.wrap_single:
        raise InvalidStatement(
            f"Cannot alter {source.kind.lower()} '{source.name}': its single value is not wrapped in an object.",
            span=statement.span,
        )
    altered, versions = with_new_schemas(replace(source, schema=schema), request.schemas.registry)
    request.register(versions)
    offset = request.store.submit(PutSource(source=altered, statement=statement.text))
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
            hint=f"Use CREATE OR REPLACE {source.kind} {source.name} AS SELECT with one more column.",
        )


def _with_column(schema: Schema, definition: ColumnDefinition, request: Request) -> Schema:
    if definition.role != "VALUE":
        raise InvalidStatement(f"Cannot add column `{definition.name}`: only value columns.", span=definition.span)
    if definition.name in PSEUDO:
        raise InvalidStatement(
            f"'{definition.name}' is a reserved column name. You cannot use it as a name for a column.",
            span=definition.span,
        )
    if schema.find(definition.name) is not None:
        raise InvalidStatement(
            f"Cannot add column `{definition.name}` to schema. A column with the same name already exists.",
            span=definition.span,
        )
    type_ = resolve_type(definition.type, request.catalog.types, definition.span)
    return Schema((*schema.columns, Column(definition.name, type_)))
