"""Functions over the rows of a stream or table, in FROM: TUMBLE(TABLE bids, DESCRIPTOR(time), INTERVAL '10' SECOND).

A function is a subclass of `TableFunction`, in the module of its topic. No other module needs to know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from millstream.errors import InvalidStatement, SqlSyntaxError, Unsupported, did_you_mean

from ...sql import ast
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import Typed
from ..formats.format import contains_map
from ..logical import LogicalPlan
from ..planning import PlanningContext
from .origin import Origin


class TableFunction:
    """`shape`: the arguments after the table, as a regular expression over the letters of `ast.TableFunctionCall`;
    `example`: how it is written."""

    name: ClassVar[str]
    shape: ClassVar[str]
    example: ClassVar[str]

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        """The origin that replaces `origin` in FROM. Raises `InvalidStatement`, `TypeMismatch`, `Unsupported`."""
        raise AssertionError(f"{type(self).__name__} gives nothing")


def find_table_function(call: ast.TableFunctionCall) -> TableFunction:
    """Raises `SqlSyntaxError` for an unknown function, or for wrong arguments."""
    known = {each.name: each for each in _below(TableFunction) if "name" in vars(each)}
    found = known.get(call.name)
    if found is None:
        hint = did_you_mean(call.name, known) or f"The table functions are {', '.join(sorted(known))}."
        raise SqlSyntaxError(f'unknown table function "{call.name}"', span=call.name_span, hint=hint)
    if re.fullmatch(found.shape, call.shape) is None:
        raise SqlSyntaxError(f"{call.name} takes other arguments", span=call.name_span, hint=f"Write {found.example}.")
    return found()


def stream_rows(call: ast.TableFunctionCall, origin: Origin, hint: str) -> LogicalPlan:
    """The rows of a stream, for a function that reads them in order. In: `hint`: for a user who named a table. Raises
    `Unsupported` for tables and for streams whose keys have windows."""
    rows = origin.plan
    if rows.kind == "TABLE":
        message = f'{call.name} takes a stream, and "{call.source.name}" is a table'
        raise Unsupported(message, span=call.source.span, hint=hint)
    if rows.key_window is not None:
        raise Unsupported(
            f'{call.name} takes rows without windows, and the keys of "{call.source.name}" have them',
            span=call.source.span,
            hint="Take the stream that its windows were made of.",
        )
    return rows


def compared(
    call: ast.TableFunctionCall,
    clause: str,
    named: Sequence[ast.Expression],
    origin: Origin,
    context: PlanningContext,
) -> tuple[Typed, ...]:
    """The columns by which rows are compared with each other. Raises `InvalidStatement` for a column that is named
    twice, `Unsupported` for a MAP, which has no order."""
    columns = {c.name: (c.name, c.type) for c in origin.source.schema}
    scope = Scope((ScopeSource(call.source.name, columns),), context.catalog.types, clause)
    found = tuple(compile_expression(node, scope) for node in named)
    for place, typed in enumerate(found):
        if contains_map(typed.type):
            raise Unsupported(f"{call.name} cannot compare the column {typed.column}: it holds a MAP", span=call.span)
        if typed.column in [other.column for other in found[:place]]:
            raise InvalidStatement(f"{call.name} has {typed.column} twice in {clause}", span=call.span)
    return found


def _below(base: type[TableFunction]) -> Iterator[type[TableFunction]]:
    for each in base.__subclasses__():
        yield each
        yield from _below(each)
