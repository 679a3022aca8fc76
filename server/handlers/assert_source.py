"""ASSERT STREAM|TABLE: checks how a stream or table is declared. For tests of pipelines."""

from __future__ import annotations

from collections.abc import Iterator

from ...planner.declarations.with_properties import read_properties
from ...planner.expressions.scope import resolve_type
from ...planner.schema import Column, Schema
from ...planner.source_info import SourceInfo
from ...sql.ast import AssertSource
from ..engine.entities import AssertedSource, Entity
from ..engine.request import Request
from .assertions import AssertionFailed


def assert_source(statement: AssertSource, request: Request) -> list[Entity]:
    """ASSERT STREAM|TABLE name (columns) WITH (…): compares only what the statement names. Raises `AssertionFailed`."""
    source = request.catalog.source(statement.name, statement.span)
    problem = next(_differences(statement, source, request), None)
    if problem is not None:
        what, expected, actual = problem
        raise AssertionFailed(
            f"Expected {what} does not match actual for source {source.name}. Expected: {expected}. Actual: {actual}.",
            span=statement.span,
        )
    return [AssertedSource(statement_text=statement.text, source_name=source.name)]


def _differences(statement: AssertSource, source: SourceInfo, request: Request) -> Iterator[tuple[str, object, object]]:
    """The differences: what differs, the expected value, and the actual value."""
    if source.kind != statement.kind:
        yield "type", statement.kind, source.kind
    if statement.columns:
        types = request.catalog.types
        columns = (Column(c.name, resolve_type(c.type, types, c.span), c.role, c.header_key) for c in statement.columns)
        wanted = Schema(tuple(columns))
        if (wanted.key, wanted.value) != (source.schema.key, source.schema.value):
            yield "schema", wanted, source.schema
    given = read_properties(statement.properties, create=True)
    partitions = given.partition_count
    for what, expected, actual in (
        ("kafka topic", given.topic, source.topic),
        ("partition count", partitions, source.partition_count),
        ("key format", given.key_format, source.key_format.name),
        ("value format", given.value_format, source.value_format.name),
        ("key delimiter", given.key_delimiter, source.key_format.delimiter),
        ("value delimiter", given.value_delimiter, source.value_format.delimiter),
        ("timestamp column", given.timestamp_column, source.timestamp_column),
        ("timestamp format", given.timestamp_format, source.timestamp_format),
        ("window", given.key_window, source.key_window),
    ):
        if expected is not None and expected != actual:
            yield what, expected, actual
    if given.wrap_single_value is not None and given.wrap_single_value != source.value_format.wrap_single:
        expected, actual = _wrapping(given.wrap_single_value), _wrapping(source.value_format.wrap_single)
        yield "value serde features", expected, actual


def _wrapping(wrapped: bool) -> str:
    """ksqlDB's name for the encoding of a single value column."""
    return "WRAP_SINGLES" if wrapped else "UNWRAP_SINGLES"
