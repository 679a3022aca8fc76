"""INSERT INTO … VALUES and ASSERT VALUES: records whose columns are computed from constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal as PythonDecimal
from decimal import InvalidOperation

from sqlglot import exp

from millstream.errors import InvalidStatement, StatementError, TypeMismatch, UnknownSource, did_you_mean

from ...sql import coercion
from ...sql.ast import AssertValues, InsertValues, span_of, unwrapped
from ...sql.functions.casts.cast_trees import reads_as
from ...sql.printing import print_expression
from ...sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
    is_numeric,
)
from ..expressions.compilation import compile_expression
from ..expressions.conversions import coerced
from ..expressions.failing_constants import fails_always
from ..expressions.scope import Scope
from ..expressions.typed import Typed, to_sql
from ..limits import within_depth
from ..planning import PlanningContext
from ..schema import PSEUDO, WINDOW_BOUNDS, Column
from ..source_info import SourceInfo
from ..specs import SqlExpression

_TIMES = (DATE, TIME, TIMESTAMP)
_WHOLE = re.compile(r"\d+", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FEW_DIGITS = re.compile(r"\d{1,7}(\.\d{1,8})?", re.ASCII)
_SHAPES: Mapping[SqlType, str] = {
    BOOLEAN: "true, false, yes or no, or their first letters",
    BYTES: "base64",
    DATE: '"yyyy-MM-dd"',
    TIME: '"HH:mm:ss"',
    TIMESTAMP: "\"yyyy-MM-dd'T'HH:mm:ss.SSS\", with an optional offset; it may end early",
}


@dataclass(frozen=True, slots=True)
class Plain:
    """A literal that is a value of its column as it stands, so that nothing has to be computed."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """`plain`: values of given columns; `computed`: constant SQL for the other given columns. Those that are not given
    are NULL. `rowtime`: in ms; None for now."""

    plain: Mapping[Column, Plain]
    computed: Mapping[Column, SqlExpression]
    rowtime: SqlExpression | None


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """The rows name the same columns, in the same order."""

    source: SourceInfo
    rows: tuple[PlannedRow, ...]


def plan_insert_values(statement: InsertValues, context: PlanningContext) -> PlannedInsert:
    """Raises `UnknownSource`, `InvalidStatement` and `TypeMismatch`."""
    source = _target(statement, context)
    scope = Scope((), context.catalog.types, "VALUES")
    try:
        rows = tuple(_planned_row(statement, values, source, scope) for values in statement.rows)
    except (InvalidStatement, TypeMismatch) as refused:
        message = f"Failed to insert values into '{source.name}'. {refused.message}"
        raise type(refused)(message, span=refused.span, hint=refused.hint) from refused
    return PlannedInsert(source, rows)


@within_depth  # for each row, since there may be many
def _planned_row(
    statement: InsertValues, values: Sequence[exp.Expression], source: SourceInfo, scope: Scope
) -> PlannedRow:
    names = statement.columns or tuple(c.name for c in source.schema if c.role != "HEADERS")
    headers = [c.name for c in source.schema if c.role == "HEADERS"]
    if headers and not statement.columns and len(values) > len(names):
        raise InvalidStatement(f"Cannot insert into HEADER columns: {', '.join(headers)}", span=statement.span)
    if len(names) != len(values):
        raise InvalidStatement(
            f"Expected a value for each column. Expected Columns: [{_quoted(names)}]. "
            f"Got [{', '.join(map(print_expression, values))}]",
            span=statement.span,
            hint=f"Or name the columns that it gives: INSERT INTO {source.name} ({', '.join(names[: len(values)])}) "
            "VALUES (…); the others are NULL.",
        )
    literals: dict[Column, Plain] = {}
    columns: dict[Column, SqlExpression] = {}
    rowtime: SqlExpression | None = None
    for name, written in zip(names, values, strict=True):
        column = source.schema.find(name)
        node = written if column is None else _without_cast(written, column.type)
        if column is not None and column.role != "HEADERS" and column not in literals and column not in columns:
            plain = _plain(node, column.type)
            if plain is not None:
                literals[column] = plain
                continue
        value = compile_expression(node, scope)
        if name == "ROWTIME":
            rowtime = _computed(_fit(value, Column("ROWTIME", BIGINT), node), name, node)
            continue
        if name in PSEUDO:
            raise InvalidStatement(f"Inserting into column `{name}` is not allowed.", span=statement.span)
        if column is None:
            raise InvalidStatement(
                f"Column name `{name}` does not exist.",
                span=statement.span,
                hint=did_you_mean(name, [c.name for c in source.schema]),
            )
        if column.role == "HEADERS":
            raise InvalidStatement(f"Cannot insert into HEADER columns: {name}", span=statement.span)
        if column in columns or column in literals:
            raise InvalidStatement(f"Column {name} is named twice.", span=statement.span)
        columns[column] = _computed(_fit(value, column, node), name, node)
    _check_key(source, {*literals, *columns}, statement)
    return PlannedRow(literals, columns, rowtime)


@within_depth
def plan_asserted_values(statement: AssertValues, context: PlanningContext) -> dict[str, SqlExpression]:
    """ASSERT [NULL] VALUES: the expected values of the named columns, by their names inside batches.

    Raises `UnknownSource`, `InvalidStatement` and `TypeMismatch`.
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
    """A hint if the name differs from that of a source only in its case."""
    for other in context.catalog.sources:
        if other.upper() == name.upper():
            if other == other.upper():
                return f"Did you mean {other}? Hint: try removing double quotes from the source name."
            return f'Did you mean "{other}"? Hint: wrap the source name in double quotes to make it case-sensitive.'
    return None


def _plain(node: exp.Expression, type_: SqlType) -> Plain | None:
    """The value of a literal, where nobody could read it as another one; None for everything else."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Null):
        return Plain(None)
    if isinstance(inner, exp.Boolean):
        return Plain(inner.this) if type_ == BOOLEAN else None
    written = _written(inner)
    if written is None:
        return None
    sign, literal = written
    if literal.is_string:
        return Plain(literal.this) if sign > 0 and type_ == STRING and _is_unicode(literal.this) else None
    if _WHOLE.fullmatch(literal.this) is not None and type_ in (INTEGER, BIGINT):
        return None if _misfit_of(inner, type_) is not None else Plain(sign * int(literal.this))
    # With so few digits the division of DuckDB's DECIMAL and the reading of the text give the same DOUBLE.
    if _FEW_DIGITS.fullmatch(literal.this) is not None and type_ == DOUBLE:
        return Plain(sign * float(literal.this) + 0.0)  # a DECIMAL has no -0.0
    return None


def _is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8: half of a surrogate pair cannot."""
    return _SURROGATE.search(text) is None


def _without_cast(node: exp.Expression, type_: SqlType) -> exp.Expression:
    """The text in a CAST to the column's type, as drivers write values. What is written without a CAST is cast in the
    same way, but is not computed in order to see whether it fails."""
    text = _cast_text(node, type_)
    if text is None:
        return node
    is_number = type_ in (INTEGER, BIGINT) and _WHOLE.fullmatch(text.name) is not None
    if _misfit_of(text, type_) is not None or not (is_number or type_ in _TIMES):
        return node
    return exp.Literal.number(text.name) if is_number else text


def _cast_text(node: exp.Expression, type_: SqlType) -> exp.Literal | None:
    """The text whose CAST to the type this is."""
    cast = unwrapped(node)
    inner = unwrapped(cast.this) if isinstance(cast, exp.Cast) and cast.meta.get("to") == type_ else None
    return inner if isinstance(inner, exp.Literal) and inner.is_string else None


def _fit(value: Typed, column: Column, node: exp.Expression) -> Typed:
    """The constant as the column's type: a literal must be a value of that type, and other numbers may only widen."""
    _check_written(node, column.type, lambda hint: _misfit(value, column, node, hint))
    if value.type == NULL or coercion.can_coerce(value.type, column.type):
        return coerced(value, column.type)
    try:
        if _converts(value.type, column.type, node):
            return Typed(coercion.cast_sql(value.tree, value.type, column.type, explicit=True), column.type)
    except StatementError:
        pass
    raise _misfit(value, column, node)


def _computed(value: Typed, name: str, node: exp.Expression) -> SqlExpression:
    """The constant as SQL. Raises `InvalidStatement` if computing it fails, as `1 / 0` does: it would be NULL."""
    if not value.total and _written(node) is None and (_is_no_time(node) or fails_always(value.tree)):
        raise InvalidStatement(
            f"Failed to evaluate the value of column `{name}`: {print_expression(node)}",
            span=span_of(node),
            hint="Write NULL where none is meant.",
        )
    return to_sql(value, str)


def _is_no_time(node: exp.Expression) -> bool:
    """Whether it is a CAST of a text to a DATE, TIME or TIMESTAMP that the text is none of: it would be NULL."""
    texts = ((type_, _cast_text(node, type_)) for type_ in _TIMES)
    return any(text is not None and not reads_as(text.name, type_) for type_, text in texts)


def _misfit(value: Typed, column: Column, node: exp.Expression, hint: str | None = None) -> TypeMismatch:
    inner = unwrapped(node)
    given = inner.this if isinstance(inner, exp.Literal) else print_expression(node)
    return TypeMismatch(
        f"Expected type {column.type} for field `{column.name}` but got {coercion.base_name(value.type)}({given})",
        span=span_of(node),
        hint=hint,
    )


def _converts(source: SqlType, target: SqlType, node: exp.Expression) -> bool:
    """Whether the value can be converted. Literals were already found to be values of `target`. Fields that the wanted
    STRUCT lacks are left out. Other numbers may become a DECIMAL: whether their digits fit shows when they do."""
    parts = _parts(source, target, unwrapped(node))
    if parts is not None:
        return all(given == wanted or coercion.can_coerce(given, wanted) or _converts(given, wanted, part)
                   for given, wanted, part in parts)  # fmt: skip
    written = _written(node) is not None
    if source == STRING or (written and is_numeric(source) and is_numeric(target)):
        return True
    return isinstance(target, Decimal) and is_numeric(source) and source != DOUBLE


def _parts(
    source: SqlType, target: SqlType, node: exp.Expression
) -> Sequence[tuple[SqlType, SqlType, exp.Expression]] | None:
    """For each part of a nested value its type, the wanted type, and its expression (that of the whole value if the
    part has none of its own). None if the types are not of the same kind, or not nested."""
    match source, target:
        case Struct(), Struct():
            entries = {e.this.name: e.expression for e in node.expressions} if isinstance(node, exp.Struct) else {}
            both = [(field, target.field(field.name)) for field in source.fields]
            return [(has.type, wants.type, entries.get(has.name, node)) for has, wants in both if wants is not None]
        case Array(), Array():
            items = node.expressions if isinstance(node, exp.Array) else [node]
            return [(source.element, target.element, item) for item in items]
        case Map(), Map():
            wanted = {"keys": (source.key, target.key), "values": (source.value, target.value)}
            return [
                (*types, item)
                for name, types in wanted.items()
                for item in (node.args[name].expressions if isinstance(node, exp.Map) else [node])
            ]
        case _:
            return None


def _check_written(node: exp.Expression, type_: SqlType, misfit: Callable[[str], TypeMismatch]) -> None:
    """Raises `misfit` for a literal that is not a value of its type, so that it would become NULL or lose digits. Also
    checks literals inside ARRAY, MAP and STRUCT."""
    inner = unwrapped(node)
    match inner, type_:
        case exp.Struct(), Struct():
            for entry in inner.expressions:
                field = type_.field(entry.this.name)
                if field is not None:
                    _check_written(entry.expression, field.type, misfit)
        case exp.Array(), Array():
            for item in inner.expressions:
                _check_written(item, type_.element, misfit)
        case exp.Map(), Map():
            for part, part_type in (("keys", type_.key), ("values", type_.value)):
                for item in inner.args[part].expressions:
                    _check_written(item, part_type, misfit)
        case _:
            reason = _misfit_of(inner, type_)
            if reason is not None:
                raise misfit(reason)


def _written(node: exp.Expression) -> tuple[int, exp.Literal] | None:
    """The sign and the literal, if the expression is a literal."""
    inner = unwrapped(node)
    sign, literal = (-1, unwrapped(inner.this)) if isinstance(inner, exp.Neg) else (1, inner)
    return (sign, literal) if isinstance(literal, exp.Literal) else None


def _misfit_of(node: exp.Expression, type_: SqlType) -> str | None:
    """Why the literal is not a value of the type; None if it is, and for other expressions."""
    written = _written(node)
    if written is None:
        return None
    sign, literal = written
    if literal.is_string and type_ in _SHAPES:
        return None if reads_as(literal.this, type_) else f"Required format is: {_SHAPES[type_]}."
    text = literal.this.strip()
    if not is_numeric(type_) or (literal.is_string and text.lower().startswith("0x")):
        return None
    try:
        number = PythonDecimal(text)
        return _misfit_of_number(number if sign > 0 else number.copy_negate(), type_)
    except InvalidOperation:
        return "It is no number."


def _misfit_of_number(number: PythonDecimal, type_: SqlType) -> str | None:
    """Like `_misfit_of`: the number is out of the type's range, or has more decimal places than the type."""
    if not number.is_finite():
        return "It is no number."  # as in CAST: NaN and infinity may be results, but not literals
    if type_ == DOUBLE:
        return None
    if isinstance(type_, Decimal):
        limit, scale = PythonDecimal(10) ** (type_.precision - type_.scale), type_.scale
        fits = number.copy_abs() < limit  # not abs(), which rounds to 28 digits
    else:
        limit, scale = PythonDecimal(2) ** (31 if type_ == INTEGER else 63), 0
        fits = -limit <= number < limit
    if not fits:
        return f"It does not fit into {type_}."
    return None if _is_whole(number, scale) else f"It does not fit into {type_} without rounding: write ROUND or CAST."


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _check_key(source: SourceInfo, columns: Set[Column], statement: InsertValues) -> None:
    if source.kind == "TABLE":
        missing = [column.name for column in source.schema.key if column not in columns]
        if missing:
            raise InvalidStatement(
                f"Value for primary key column(s) {', '.join(missing)} is required for tables",
                span=statement.span,
            )


def _is_whole(number: PythonDecimal, scale: int) -> bool:
    """Whether it has at most `scale` decimal places, apart from zeros at the end."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    surplus = -exponent - scale
    return surplus <= 0 or not any(digits[-surplus:])
