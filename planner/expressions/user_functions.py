"""Users' functions in statements and in plans.

A statement calls them by name (`NET(amount)`). `bound` replaces the name by the id of the current version; from there
on they are functions of the catalog like others. `functions_of` finds the functions of a plan, which stores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from sqlglot import exp

from millstream.errors import UnknownFunction, did_you_mean

from ...sql.ast import Statement, span_of
from ...sql.functions.catalog import FUNCTIONS
from ...sql.functions.udf import PREFIX
from ...sql.functions.users.user_functions import UserFunction, definition_of, functions_off, remember_functions
from ..catalog import Catalog, PersistentQuery
from ..steps.step import Step, walk
from .rewriting import rewritten

S = TypeVar("S", bound=Statement)


def bound(statement: S, functions: Mapping[str, UserFunction], *, allowed: bool = True) -> S:
    """The statement with calls of `functions` (by name in upper case) bound to their current versions.

    Raises `PythonFunctionsOff` if there is such a call and it is not `allowed`; `UnknownFunction` for an unknown name
    that is similar to one of theirs and to no built-in function.
    """
    if not functions:
        return statement
    return rewritten(statement, _Binder(functions, allowed).expression)


def functions_of(root: Step) -> tuple[UserFunction, ...]:
    """The users' functions that these steps call, each once."""
    names = (name for step in walk(root) for name in _names(step))
    found = {name: definition for name in names if (definition := definition_of(name)) is not None}
    return tuple(found.values())


def callers_of(name: str, catalog: Catalog) -> tuple[PersistentQuery, ...]:
    """The queries that call any version of this function."""
    return tuple(q for q in catalog.queries.values() if any(f.name == name for f in functions_of(q.plan.root)))


class _Binder:
    def __init__(self, functions: Mapping[str, UserFunction], allowed: bool) -> None:
        self._functions = functions
        self._allowed = allowed

    def expression(self, expression: exp.Expression) -> exp.Expression:
        if not any(self._known(call) for call in expression.find_all(exp.Anonymous)):
            return expression
        copied = expression.copy()
        for call in copied.find_all(exp.Anonymous):
            if self._known(call):
                definition = self._functions[call.name.upper()]
                if not self._allowed:
                    raise functions_off(f"the function {definition.name} is written in Python", span_of(call))
                remember_functions([definition])
                call.meta["written"] = definition.name
                call.set("this", definition.id)
        return copied

    def _known(self, call: exp.Anonymous) -> bool:
        name = call.name.upper()
        if name in self._functions:
            return True
        near = None if name in FUNCTIONS else did_you_mean(name, self._functions)
        if near is not None and did_you_mean(name, FUNCTIONS) is None:
            raise UnknownFunction(
                f"Can't find any functions with the name '{call.name}'", span=span_of(call), hint=near
            )
        return False


def _names(step: Step) -> Iterator[str]:
    """The ids of all functions that a step calls, possibly with duplicates."""
    yield from step.function_names
    for expression in step.expressions:
        yield from (udf.removeprefix(PREFIX).split("$")[0] for udf in expression.udfs)
