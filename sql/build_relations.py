"""The grammar's rules for FROM and for the clauses around SELECT: WITH, UNION ALL, subqueries, table functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from millstream.errors import Span, SqlSyntaxError, did_you_mean

from . import ast
from .parts import Part, at, items, span_of_all, statement_text, string_value
from .tokens import token_span
from .windows.durations import DURATION_MS_MAX, TOO_LONG, UNIT_MS, unit_ms

CTES_MAX = 100
_INTERVAL_DIGITS_MAX = 15
_LETTERS: dict[type[Any], str] = {exp.Identifier: "k", exp.Column: "d", Part: "i"}  # see `ast.TableFunctionCall`


class RelationRules:
    # -------------------------------------------------------------- WITH and UNION ALL

    def query(self, children: list[Any]) -> ast.Query:
        ctes: Part | None = children[0]
        selects: list[ast.Query] = items(children[1:])
        query = selects[0] if len(selects) == 1 else _union(selects)
        if ctes is None:
            return query
        span = span_of_all(children)
        return replace(query, ctes=ctes.value, span=span, text=statement_text(span))

    def ctes(self, children: list[Any]) -> Part | None:
        if not children:
            return None
        found: list[ast.Cte] = items(children)
        if len(found) > CTES_MAX:
            raise SqlSyntaxError(f"more than {CTES_MAX} queries in WITH", span=found[CTES_MAX].span)
        for i, cte in enumerate(found):
            if any(other.name == cte.name for other in found[:i]):
                raise SqlSyntaxError(f'WITH defines "{cte.name}" twice', span=cte.span)
        return Part(tuple(found), span_of_all(children))

    def cte(self, children: list[Any]) -> ast.Cte:
        name, query = items(children)
        _refuse_emit(query, f'the query "{name.name}" of WITH')
        return ast.Cte(name=name.name, query=query, span=name.meta["span"])

    # -------------------------------------------------------------- FROM

    def subquery(self, children: list[Any]) -> ast.Subquery:
        query, alias = children[1], children[3]
        _refuse_emit(query, "a subquery")
        return ast.Subquery(
            queries=(query,), alias="SUBQUERY" if alias is None else alias.value, span=span_of_all(children)
        )

    def alias(self, children: list[Any]) -> Part | None:
        return Part(children[-1].name, span_of_all(children)) if children else None

    def over_table(self, children: list[Any]) -> ast.TableFunctionCall:
        function: ast.TableFunctionCall = next(c for c in children if isinstance(c, ast.TableFunctionCall))
        alias: Part | None = children[-1]
        return replace(
            function, alias=function.source.alias if alias is None else alias.value, span=span_of_all(children)
        )

    def table_function(self, children: list[Any]) -> ast.TableFunctionCall:
        name, source, *given = items(children)
        arguments = [each for item in given for each in (item if isinstance(item, list) else [item])]
        keys = [at(exp.Column(this=key), key.meta["span"]) for key in arguments if isinstance(key, exp.Identifier)]
        return ast.TableFunctionCall(
            name=name.name.upper(),
            name_span=name.meta["span"],
            source=ast.SourceName(name=source.name, alias=source.name, span=source.meta["span"]),
            partition_by=tuple(keys),
            descriptors=tuple(argument for argument in arguments if isinstance(argument, exp.Column)),
            intervals_ms=tuple(argument.value for argument in arguments if isinstance(argument, Part)),
            shape="".join(_LETTERS[type(argument)] for argument in arguments),
            alias=source.name,
            span=span_of_all(children),
        )

    def descriptor(self, children: list[Any]) -> list[exp.Column]:
        """DESCRIPTOR(a, b) becomes a column each for a and b."""
        word, *columns = items(children)
        if word.name.upper() != "DESCRIPTOR":
            hint = "The column that holds the time stands in DESCRIPTOR(…)."
            raise SqlSyntaxError(f"unexpected {word.name}(…)", span=span_of_all(children), hint=hint)
        return [at(exp.Column(this=column), column.meta["span"]) for column in columns]

    def interval(self, children: list[Any]) -> Part:
        """INTERVAL '10' SECOND, in ms."""
        _, text, unit = children
        factor = unit_ms(unit.name)
        if factor is None:
            hint = did_you_mean(unit.name, UNIT_MS) or "The units are DAY, HOUR, MINUTE, SECOND and MILLISECOND."
            raise SqlSyntaxError(f'unknown unit of time "{unit.name}"', span=unit.meta["span"], hint=hint)
        written = string_value(text).strip()
        if not written.isascii() or not written.isdigit() or len(written) > _INTERVAL_DIGITS_MAX or not int(written):
            raise SqlSyntaxError(
                f"{text} is no length of time",
                span=token_span(text),
                hint="Write a whole number above 0 in quotes: INTERVAL '10' SECOND.",
            )
        return bounded_duration(int(written) * factor, span_of_all(children))

    def interval_value(self, children: list[Any]) -> exp.Interval:
        part = self.interval(children)
        node = at(exp.Interval(this=exp.Literal.number(part.value)), part.span)
        node.meta["written"] = statement_text(part.span)
        return node


def bounded_duration(duration_ms: int, span: Span) -> Part:
    """Raises `SqlSyntaxError` if it is too long."""
    if duration_ms > DURATION_MS_MAX:
        raise SqlSyntaxError("the duration is too long", span=span, hint=TOO_LONG)
    return Part(duration_ms, span)


def _union(selects: list[ast.Query]) -> ast.Query:
    """`a UNION ALL b` becomes SELECT * FROM (a UNION ALL b); clauses at its end apply to the whole."""
    last = selects[-1]
    for select in selects[:-1]:
        _refuse_ending(select, "a query before UNION ALL")
    branches = (*selects[:-1], replace(last, emit=None, limit=None, order_by=(), offset=None))
    span = span_of_all(selects)
    return ast.Query(
        items=(ast.SelectStar(span=span),),
        source=ast.Subquery(queries=branches, alias="UNION", span=span),
        emit=last.emit,
        limit=last.limit,
        order_by=last.order_by,
        offset=last.offset,
        span=span,
        text=statement_text(span),
    )


def _refuse_emit(query: ast.Query, what: str) -> None:
    """Refuses EMIT CHANGES in an inner query: it applies to the output of the whole query, at its end."""
    if query.emit == "CHANGES":
        raise _misplaced(query, what, "EMIT CHANGES")


def _refuse_ending(query: ast.Query, what: str) -> None:
    """Refuses clauses that apply to the output of the whole query, at its end."""
    _refuse_emit(query, what)
    clauses = {"ORDER BY": query.order_by, "LIMIT": query.limit is not None, "OFFSET": query.offset is not None}
    misplaced = next((clause for clause, is_there in clauses.items() if is_there), None)
    if misplaced is not None:
        raise _misplaced(query, what, misplaced)


def _misplaced(query: ast.Query, what: str, ending: str) -> SqlSyntaxError:
    return SqlSyntaxError(
        f"{what} cannot have {ending}", span=query.span, hint=f"{ending} stands at the end of the whole query."
    )
