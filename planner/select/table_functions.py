"""Functions over the rows of a stream or table, in FROM: TUMBLE(TABLE bids, DESCRIPTOR(time), INTERVAL '10' SECOND).

A function is a class under `TableFunction`, in whatever module its idea stands. Nobody else needs to know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from millstream.errors import SqlSyntaxError, did_you_mean

from ...sql import ast
from ..planning import PlanningContext
from .origin import Origin


class TableFunction:
    """`shape`: what stands behind the table, a regular expression over the letters of `ast.TableFunctionCall`;
    `example`: how it is written."""

    name: ClassVar[str]
    shape: ClassVar[str]
    example: ClassVar[str]

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        """What FROM gives instead of `origin`. Raises `InvalidStatement`, `TypeMismatch`, `Unsupported`."""
        raise AssertionError(f"{type(self).__name__} gives nothing")


def find_table_function(call: ast.TableFunctionCall) -> TableFunction:
    """Raises `SqlSyntaxError` where there is no such function, or it is not written so."""
    known = {each.name: each for each in _below(TableFunction) if "name" in vars(each)}
    found = known.get(call.name)
    if found is None:
        hint = did_you_mean(call.name, known) or f"The table functions are {', '.join(sorted(known))}."
        raise SqlSyntaxError(f'unknown table function "{call.name}"', span=call.name_span, hint=hint)
    if re.fullmatch(found.shape, call.shape) is None:
        raise SqlSyntaxError(f"{call.name} takes other arguments", span=call.name_span, hint=f"Write {found.example}.")
    return found()


def _below(base: type[TableFunction]) -> Iterator[type[TableFunction]]:
    for each in base.__subclasses__():
        yield each
        yield from _below(each)
