"""INSERT INTO … VALUES and ASSERT VALUES: one record, its columns computed from constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as PythonDecimal
from decimal import InvalidOperation

from sqlglot import exp

from millstream.errors import InvalidStatement, StatementError, TypeMismatch, UnknownSource, did_you_mean

from ...sql import coercion
from ...sql.ast import AssertValues, InsertValues, span_of, unwrapped
from ...sql.printing import print_expression
from ...sql.types import BIGINT, DOUBLE, INTEGER, NULL, STRING, Decimal, SqlType, Struct
from ..expressions.compilation import compile_expression
from ..expressions.conversions import coerced
from ..expressions.scope import Scope
from ..expressions.typed import Typed, to_sql
from ..limits import within_depth
from ..planning import PlanningContext
from ..schema import PSEUDO, WINDOW_BOUNDS, Column
from ..source_info import SourceInfo
from ..specs import SqlExpression


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """`columns`: constant SQL per given column, the others are NULL; `rowtime`: ms, None is the time of insertion."""

    columns: Mapping[Column, SqlExpression]
    rowtime: SqlExpression | None


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """The rows name the same columns, in the same order."""

    source: SourceInfo
    rows: tuple[PlannedRow, ...]


def plan_insert_values(statement: InsertValues, context: PlanningContext) -> PlannedInsert:
    """Raises `UnknownSource`, `InvalidStatement`, `TypeMismatch`."""
    source = _target(statement, context)
    scope = Scope((), context.catalog.types, "VALUES")
    return PlannedInsert(source, tuple(_planned_row(statement, values, source, scope) for values in statement.rows))


@within_depth  # each row by itself: they may be many
def _planned_row(
    statement: InsertValues, values: Sequence[exp.Expression], source: SourceInfo, scope: Scope
) -> PlannedRow:
    names = statement.columns or tuple(c.name for c in source.schema if c.role != "HEADERS")
    headers = [c.name for c in source.schema if c.role == "HEADERS"]
    if headers and not statement.columns and len(values) > len(names):
        raise InvalidStatement(f"Cannot insert into HEADER columns: {', '.join(headers)}", span=statement.span)
    if len(names) != len(values):
        raise InvalidStatement(
            f"Expected a value for each column. Expected Columns: {list(names)}. Got {len(values)} values.",
            span=statement.span,
            hint=f"Or name the columns that it gives: INSERT INTO {source.name} ({', '.join(names[: len(values)])}) "
            "VALUES (…); the others are NULL.",
        )
    columns: dict[Column, SqlExpression] = {}
    rowtime: SqlExpression | None = None
    for name, node in zip(names, values, strict=True):
        value = compile_expression(node, scope)
        if name == "ROWTIME":
            rowtime = to_sql(_fit(value, Column("ROWTIME", BIGINT), node), str)
            continue
        if name in PSEUDO:
            raise InvalidStatement(f"Inserting into column `{name}` is not allowed.", span=statement.span)
        column = source.schema.find(name)
        if column is None:
            raise InvalidStatement(
                f"Column name {name} does not exist in {source.kind.lower()} {source.name}.",
                span=statement.span,
                hint=did_you_mean(name, [c.name for c in source.schema]),
            )
        if column.role == "HEADERS":
            raise InvalidStatement(f"Cannot insert into HEADER columns: {name}", span=statement.span)
        if column in columns:
            raise InvalidStatement(f"Column {name} is named twice.", span=statement.span)
        columns[column] = to_sql(_fit(value, column, node), str)
    _check_key(source, columns, statement)
    return PlannedRow(columns, rowtime)


@within_depth
def plan_asserted_values(statement: AssertValues, context: PlanningContext) -> dict[str, SqlExpression]:
    """ASSERT [NULL] VALUES: what the named columns of a record are to be, by their names inside batches.

    Raises `UnknownSource`, `InvalidStatement`, `TypeMismatch`.
    """
    source = context.catalog.source(statement.source, statement.span)
    columns = source.schema.key if statement.tombstone else source.schema.columns
    names = statement.columns or tuple(c.name for c in columns)
    if len(names) != len(statement.values):
        raise InvalidStatement(
            f"Expected a value for each column. Expected Columns: {list(names)}. Got {len(statement.values)} values.",
            span=statement.span,
        )
    scope = Scope((), context.catalog.types, "VALUES")
    wanted: dict[str, SqlExpression] = {}
    for name, node in zip(names, statement.values, strict=True):
        column = next((c for c in columns if c.name == name), None)
        known = column is not None or (name in PSEUDO and (source.key_window is not None or name not in WINDOW_BOUNDS))
        if not known:
            raise InvalidStatement(
                f"Column name {name} does not exist in {source.kind.lower()} {source.name}.",
                span=statement.span,
                hint=did_you_mean(name, [c.name for c in columns]),
            )
        physical = PSEUDO[name][0] if column is None else source.schema.physical_name(column)
        fitted = _fit(compile_expression(node, scope), column or Column(name, PSEUDO[name][1]), node)
        wanted[physical] = to_sql(fitted, str)
    return wanted


def _target(statement: InsertValues, context: PlanningContext) -> SourceInfo:
    source = context.catalog.sources.get(statement.target)
    if source is None:
        cased = _case_hint(statement.target, context)
        raise UnknownSource(
            f"Cannot insert values into an unknown stream/table: `{statement.target}`"
            + (f"\n{cased}" if cased else ""),
            span=statement.span,
            hint=None if cased else did_you_mean(statement.target, context.catalog.sources),
        )
    if source.key_window is not None:
        raise InvalidStatement("Cannot insert values into windowed stream/table!", span=statement.span)
    if source.read_only:
        raise InvalidStatement(
            f"Cannot insert values into read-only {source.kind.lower()}: {source.name}", span=statement.span
        )
    return source


def _case_hint(name: str, context: PlanningContext) -> str | None:
    """Whether the name differs from a source's in its case only."""
    for other in context.catalog.sources:
        if other.upper() == name.upper():
            if other == other.upper():
                return f"Did you mean {other}? Hint: try removing double quotes from the source name."
            return f'Did you mean "{other}"? Hint: wrap the source name in double quotes to make it case-sensitive.'
    return None


def _fit(value: Typed, column: Column, node: exp.Expression) -> Typed:
    """The constant as the column's type; texts and numbers convert as in ksqlDB's INSERT."""
    if value.type == NULL or coercion.can_coerce(value.type, column.type):
        return coerced(value, column.type)
    _refuse_no_number(value, column, node)
    try:
        structs = isinstance(value.type, Struct) and isinstance(column.type, Struct)  # unknown fields are left out
        if value.type == STRING or structs or (coercion.is_numeric(value.type) and coercion.is_numeric(column.type)):
            tree = coercion.cast_sql(value.tree, value.type, column.type, explicit=True)
            return Typed(tree, column.type)
    except StatementError:
        pass
    raise TypeMismatch(
        f"Expected type {column.type} for field `{column.name}` but got {value.type}({print_expression(node)}).",
        span=span_of(node),
    )


def _refuse_no_number(value: Typed, column: Column, node: exp.Expression) -> None:
    """A text that is no number, and a number that the column's type cannot hold, would become NULL."""
    inner = unwrapped(node)
    sign, literal = (-1, unwrapped(inner.this)) if isinstance(inner, exp.Neg) else (1, inner)
    if not isinstance(literal, exp.Literal) or not coercion.is_numeric(column.type):
        return
    text = literal.this.strip()
    if literal.is_string and text.lower().startswith("0x"):
        return
    try:
        hint = None if _holds(column.type, sign * PythonDecimal(text)) else f"It does not fit into {column.type}."
    except InvalidOperation:
        hint = "It is no number."
    if hint is not None:
        raise TypeMismatch(
            f"Expected type {column.type} for field `{column.name}` but got {value.type}({print_expression(node)}).",
            span=span_of(node),
            hint=hint,
        )


def _holds(type_: SqlType, number: PythonDecimal) -> bool:
    """Whether the number is in the type's range; decimal places are rounded."""
    if not number.is_finite() or type_ == DOUBLE:
        return True
    if isinstance(type_, Decimal):
        limit = PythonDecimal(10) ** (type_.precision - type_.scale)
        return abs(number) + PythonDecimal("0.5").scaleb(-type_.scale) < limit
    limit = 2 ** (31 if type_ == INTEGER else 63)
    return -limit <= number < limit


def _check_key(source: SourceInfo, columns: Mapping[Column, SqlExpression], statement: InsertValues) -> None:
    if source.kind == "TABLE":
        missing = [column.name for column in source.schema.key if column not in columns]
        if missing:
            raise InvalidStatement(
                f"Failed to insert values into '{source.name}'. Value for primary key column(s) {', '.join(missing)} "
                "is required for tables",
                span=statement.span,
            )
