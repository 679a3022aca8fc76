"""User-defined functions in Python: from CREATE FUNCTION to an entry of the catalog.

A function is identified by its definition: its name inside plans ends with a hash of the definition. So a stored plan
runs the text that it was planned with, regardless of later OR REPLACE or DROP, and engines in one process do not
interfere. No code of a text runs before a row needs it, or CREATE FUNCTION tests it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from sqlglot import exp

from millstream.errors import Span, StatementError

from ...settings.property_table import PYTHON_FUNCTIONS
from ...types import BOOLEAN, Array, SqlType
from ..aggregation.aggregate_fold import AggregateFunction
from ..aggregation.aggregates import USER_ENTRIES
from ..bounds import BoundExceeded
from ..function import BoundCall, Function, Render, Variant
from ..signature import Parameter, Signature
from ..udf import PythonFunction, Udf, remember
from . import python_body
from .python_body import Body, BodyError
from .user_aggregates import aggregate_entry
from .user_calls import load_in_time, table_or_scalar_columns

CATEGORY = "USER"


class PythonFunctionsOff(StatementError):
    """The server's configuration does not let users bring code."""

    code = "PYTHON_FUNCTIONS_OFF"


@dataclass(frozen=True, slots=True)
class UserParameter:
    """`name` as it was written: Python tells cases apart."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class UserFunction:
    """What CREATE FUNCTION said. `returns`: of a table function, the type of a row's value.

    `state`: the type in which an aggregate keeps a group's state; None keeps it as JSON. `called_on_null`: it wants to
    see NULL arguments; else they give NULL, and an aggregate leaves such rows out. `vectorized`: it takes Arrow columns
    and gives one.
    """

    name: str
    kind: Literal["scalar", "aggregate", "table"]
    parameters: tuple[UserParameter, ...]
    returns: SqlType
    body: str
    state: SqlType | None = None
    called_on_null: bool = False
    vectorized: bool = False

    @property
    def category(self) -> str:
        return CATEGORY

    @property
    def python(self) -> Body:
        return Body(self.name, self.kind, tuple(parameter.name for parameter in self.parameters), self.body)

    @property
    def id(self) -> str:
        """The name by which plans know exactly this text: USER_, its name, and a hash of all it says."""
        parameters = [[parameter.name, str(parameter.type)] for parameter in self.parameters]
        state = None if self.state is None else str(self.state)
        flags = [self.kind, str(self.returns), state, self.called_on_null, self.vectorized]
        said = json.dumps([self.name, parameters, flags, self.body])
        return f"USER_{self.name}_{hashlib.sha256(said.encode()).hexdigest()[:24]}".upper()

    @property
    def signature(self) -> str:
        """`(a BIGINT, b STRING) -> STRING`"""
        listed = ", ".join(f"{parameter.name} {parameter.type}" for parameter in self.parameters)
        return f"({listed}) -> {self.returns}"

    def check(self) -> None:
        """Compiles the text and runs its module, not the function. Raises `BodyError`."""
        try:
            load_in_time(self)
        except BoundExceeded as error:
            raise BodyError(f"running the text failed: {error.message}") from error

    def entry(self) -> Function | AggregateFunction:
        """The function for the planner; from now on it is found by its `id`."""
        remember_functions([self])
        return USER_ENTRIES[self.id]


def functions_off(what: str, span: Span | None) -> PythonFunctionsOff:
    return PythonFunctionsOff(
        f"{what}, and this server does not run users' code",
        span=span,
        hint=f"Who runs the server can allow it: set {PYTHON_FUNCTIONS} = true in its configuration, and start it "
        "again.",
    )


def remember_functions(definitions: Iterable[UserFunction]) -> None:
    """Makes these findable by their `id`, as a plan that names them needs it. Runs nothing of theirs."""
    for definition in definitions:
        if definition.id not in _definitions:
            _definitions[definition.id] = definition
            USER_ENTRIES[definition.id] = _entry(definition)


USER_FUNCTION: Final = re.compile(r"USER_\w+_[0-9A-F]{24}")
"""The `id` of a user function, in a text."""


def definition_of(name: str) -> UserFunction | None:
    """What is known under this `id`, in whatever case."""
    return _definitions.get(name.upper())


_definitions: dict[str, UserFunction] = {}


def _entry(definition: UserFunction) -> Function | AggregateFunction:
    doc = python_body.docstring_of(definition.python) or f"A function of a user's: {definition.signature}."
    if definition.kind == "aggregate":
        return aggregate_entry(definition, doc)
    columns = table_or_scalar_columns(definition)
    python = PythonFunction(definition.id.lower(), nulls=True, columns=lambda _parameters, _returns: columns)
    remember(python)
    parameters = tuple(Parameter(parameter.name, parameter.type) for parameter in definition.parameters)
    render = None if parameters else _without_arguments(python)
    variant = Variant(Signature(parameters, definition.returns), python=python, render=render)
    return Function(definition.name, definition.kind, doc, (variant,), {}, CATEGORY)


def _without_arguments(python: PythonFunction) -> Render:
    """DuckDB does not say for how many rows it calls a function without arguments; so it gets one."""

    def render(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
        returns = Array(call.return_type) if call.function.kind == "table" else call.return_type
        return Udf(python, (BOOLEAN,), returns).call([exp.true()])

    return render
