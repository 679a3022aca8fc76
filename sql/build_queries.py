"""The grammar's rules for SELECT: sources, joins, windows and clauses. Each method has its rule's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lark import Token
from sqlglot import exp

from millstream.errors import InvalidStatement, Span, SqlSyntaxError, did_you_mean

from . import ast
from .build_expressions import BIGINT_MAX, ExpressionRules
from .build_relations import RelationRules, bounded_duration
from .build_subqueries import SubqueryRules
from .parts import Part, has, items, span_of_all, statement_text, string_value, token_types
from .tokens import token_span
from .windows import WINDOW_TYPES, find_option
from .windows.durations import UNIT_MS, unit_ms
from .windows.window_type import Option, WindowType

JOINS_MAX = 16


class QueryRules(RelationRules, SubqueryRules, ExpressionRules):
    def select(self, children: list[Any]) -> ast.Query:
        (
            _, quantifier, select_items, _, source, window, where, group_by, partition_by, having, qualify, order_by,
            emit, limit, offset,
        ) = children  # fmt: skip
        span = span_of_all(children)
        return ast.Query(
            items=select_items.value,
            source=source,
            window=window,
            where=_value(where),
            group_by=_value(group_by) or (),
            partition_by=_value(partition_by) or (),
            having=_value(having),
            qualify=_value(qualify),
            distinct=quantifier is not None,
            emit=_value(emit),
            limit=_row_count(limit),
            order_by=tuple(_value(order_by) or ()),
            offset=_value(offset),
            span=span,
            text=statement_text(span),
        )

    # -------------------------------------------------------------- SELECT

    def quantifier(self, children: list[Any]) -> Part | None:
        return Part("DISTINCT", span_of_all(children)) if children else None

    def select_items(self, children: list[Any]) -> Part:
        return Part(tuple(items(children)), span_of_all(children))

    def select_item(self, children: list[Any]) -> ast.SelectColumn:
        alias = children[-1].name if len(children) > 1 else None
        return ast.SelectColumn(expression=children[0], alias=alias, span=span_of_all(children))

    def select_star(self, children: list[Any]) -> ast.SelectStar:
        return ast.SelectStar(span=span_of_all(children))

    def select_source_star(self, children: list[Any]) -> ast.SelectStar:
        return ast.SelectStar(source=children[0].name, span=span_of_all(children))

    def select_struct_star(self, children: list[Any]) -> ast.SelectStructStar:
        return ast.SelectStructStar(expression=children[0], span=span_of_all(children))

    # -------------------------------------------------------------- FROM

    def relation(self, children: list[Any]) -> ast.Relation:
        return children[0]

    def source(self, children: list[Any]) -> ast.SourceName:
        return ast.SourceName(name=children[0].name, alias=children[-1].name, span=span_of_all(children))

    def join(self, children: list[Any]) -> ast.Join:
        left, kind, right, within, _, on = children
        span = span_of_all(children)
        if _join_count(left) >= JOINS_MAX:
            raise SqlSyntaxError(f"more than {JOINS_MAX} joins in one query", span=right.span)
        return ast.Join(left=left, right=right, kind=kind.value, on=on, within=within, span=span)

    def join_kind(self, children: list[Any]) -> Part:
        first: str = children[0].type
        kind = {"JOIN": "INNER", "OUTER": "FULL"}.get(first, first)
        return Part(kind, span_of_all(children))

    def within_clause(self, children: list[Any]) -> ast.Within | None:
        if not children:
            return None
        if has(children, "UNBOUNDED"):
            return ast.Within(before_ms=0, after_ms=0, unbounded=True, span=span_of_all(children))
        durations = items(children[:-1])
        return ast.Within(
            before_ms=durations[0].value,
            after_ms=durations[-1].value,
            grace_ms=_value(children[-1]),
            span=span_of_all(children),
        )

    def grace_clause(self, children: list[Any]) -> Part | None:
        return Part(children[2].value, span_of_all(children)) if children else None

    # -------------------------------------------------------------- WINDOW

    def window_clause(self, children: list[Any]) -> ast.WindowExpression | None:
        if not children:
            return None
        parts = [
            part for part in items(children) if isinstance(part, Part)
        ]  # else it is the window's name, which has no effect
        (kind,) = (part.value for part in parts if isinstance(part.value, WindowType))
        options: dict[Option, Any] = {}
        for part in parts:
            if part.value is kind:
                continue
            option, value = part.value
            _check_option(kind, option, options, part.span)
            options[option] = value
        return _window(kind, options, span_of_all(children))

    def window_kind(self, children: list[Any]) -> Part:
        return Part(WINDOW_TYPES[children[0].type], span_of_all(children))

    def window_option(self, children: list[Any]) -> Part:
        *words, value = children
        option = find_option(" ".join(token_types(words)))
        return Part((option, value.value if isinstance(value, Part) else string_value(value)), span_of_all(children))

    def duration(self, children: list[Any]) -> Part:
        """A duration in ms."""
        count, unit = children
        name: str = unit.name
        factor = unit_ms(name)
        if factor is None:
            units = [form for unit in UNIT_MS for form in (unit, unit + "S")]
            hint = did_you_mean(name, units) or "The units are DAYS, HOURS, MINUTES, SECONDS and MILLISECONDS."
            raise SqlSyntaxError(f'unknown unit of time "{name}"', span=unit.meta["span"], hint=hint)
        return bounded_duration(self.whole_number(count) * factor, span_of_all(children))

    # -------------------------------------------------------------- other clauses

    def where_clause(self, children: list[Any]) -> Part | None:
        return Part(children[1], span_of_all(children)) if children else None

    having_clause = where_clause
    qualify_clause = where_clause

    def group_by(self, children: list[Any]) -> Part | None:
        if children and not children[2].value:
            raise InvalidStatement(
                f"{children[0].type} BY requires at least one expression",
                span=span_of_all(children),
                hint="Name at least one column.",
            )
        return Part(children[2].value, span_of_all(children)) if children else None

    partition_by = group_by

    def grouping(self, children: list[Any]) -> Part:
        expressions = items(children)
        span = span_of_all(children)
        if not expressions:
            return Part((), span)
        return Part(tuple(_without_parentheses(expression) for expression in expressions), span)

    def emit_clause(self, children: list[Any]) -> Part | None:
        return Part(children[1].type, span_of_all(children)) if children else None

    def limit_clause(self, children: list[Any]) -> Part | None:
        """LIMIT and OFFSET; a count that is not whole is refused here, with ksqlDB's message."""
        if not children:
            return None
        what, *sign, count = children
        span = span_of_all(children)
        if count.type != "INTEGER_LITERAL":
            raise InvalidStatement(
                f"Failed to prepare statement: Value must be integer for command: {what.type}", span=span
            )
        number = self.whole_number(count)
        return Part(-number if sign else number, span)

    interval_clause = limit_clause
    offset_clause = limit_clause

    def order_by(self, children: list[Any]) -> Part | None:
        return Part(tuple(items(children)), span_of_all(children)) if children else None

    def whole_number(self, token: Token) -> int:
        """A count in a clause.

        Raises: SqlSyntaxError if it does not fit a BIGINT.
        """
        if len(token) > 40 or int(token) > BIGINT_MAX:
            raise SqlSyntaxError("the number is too large", span=token_span(token))
        return int(token)


def _value(part: Part | None) -> Any:
    return None if part is None else part.value


def _row_count(limit: Part | None) -> int | None:
    """Raises `InvalidStatement`, with ksqlDB's message, if it is negative."""
    if limit is not None and limit.value < 0:
        raise InvalidStatement(
            "Pull queries don't support negative integers in the LIMIT clause. "
            "See https://cnfl.io/queries for more info.",
            span=limit.span,
            hint="No query does: count the rows from 0.",
        )
    return _value(limit)


def _join_count(relation: ast.Relation) -> int:
    count = 0
    while isinstance(relation, ast.Join):
        count, relation = count + 1, relation.left
    return count


def _without_parentheses(expression: exp.Expression) -> exp.Expression:
    while isinstance(expression, exp.Paren):
        expression = expression.this
    return expression


def _check_option(kind: WindowType, option: Option, given: Mapping[Option, Any], span: Span) -> None:
    if option in given:
        raise SqlSyntaxError(f"{option.words or 'gap'} is given twice", span=span)
    if option not in kind.options:
        what = option.words or "the duration"
        hint = (kind.hints.get(option.words) or option.elsewhere or "Write {example}.").format(example=kind.example)
        raise SqlSyntaxError(f"{what} does not fit a {kind.name} window", span=span, hint=hint)


def _window(kind: WindowType, options: Mapping[Option, Any], span: Span) -> ast.WindowExpression:
    for option in kind.required:
        what = option.words or "gap"
        if option not in options:
            raise SqlSyntaxError(f"a {kind.name} window needs its {what}", span=span, hint=f"Write {kind.example}.")
        if options[option] == 0:
            raise SqlSyntaxError(f"the {what} of a window must be positive", span=span)
    return ast.WindowExpression(kind=kind.name, **{option.field: value for option, value in options.items()}, span=span)
