"""CREATE FUNCTION and DROP FUNCTION: functions that users write in Python."""

from __future__ import annotations

import re

from millstream.errors import InvalidProperty, InvalidStatement, Span, SqlSyntaxError, UnknownFunction, did_you_mean

from ...planner.expressions.scope import resolve_type
from ...planner.expressions.user_functions import callers_of
from ...sql.ast import CreateFunction
from ...sql.ast import DropFunction as DropFunctionStatement
from ...sql.functions.catalog import FUNCTIONS
from ...sql.functions.users.python_body import BodyError
from ...sql.functions.users.user_functions import UserFunction, UserParameter, functions_off
from ...sql.settings.property import says_true
from ...sql.types import INTERVAL_UNIT, NULL
from ..catalog.commands import PutFunction, RemoveFunction
from ..engine.entities import CommandState, CurrentStatus, Entity, Warned
from ..engine.request import Request
from .create import command_id

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_VECTORIZED = "VECTORIZED"


def create_function(statement: CreateFunction, request: Request) -> list[Entity]:
    """CREATE [OR REPLACE] [AGGREGATE|TABLE] FUNCTION. The text is compiled and checked before anything is stored."""
    if not request.code_allowed:
        raise functions_off("CREATE FUNCTION brings Python code", statement.span)
    _check_name(statement)
    known = request.catalog.functions.get(statement.name)
    if known is not None and not statement.or_replace:
        message = f"Function '{known.name}' already exists: {known.name}{known.signature}"
        if statement.if_not_exists:
            return [Warned(statement_text=statement.text, message=message)]
        raise InvalidStatement(
            message, span=statement.span, hint="CREATE OR REPLACE FUNCTION … replaces it for new queries."
        )
    function = _declared(statement, request)
    _check_body(function, statement)
    users = [query.id for query in callers_of(function.name, request.catalog)] if known not in (None, function) else []
    kept = f"; {', '.join(users)} keep the version they were started with" if users else ""
    offset = request.store.submit(PutFunction(function=function, statement=statement.text))
    message = f"Function {function.name}{function.signature} was {'replaced' if known else 'created'}{kept}"
    return [_done(statement.text, function.name, "create", message, offset)]


def drop_function(statement: DropFunctionStatement, request: Request) -> list[Entity]:
    """DROP FUNCTION [IF EXISTS] name; refused while a query calls it."""
    name = statement.name
    if name not in request.catalog.functions:
        message = f"Function '{name}' does not exist"
        if statement.if_exists:
            return [_done(statement.text, name, "drop", message, -1)]
        hint = did_you_mean(name, request.catalog.functions)
        if name in FUNCTIONS:
            message, hint = f"{name} is built in and cannot be dropped", None
        raise UnknownFunction(message, span=statement.span, hint=hint)
    callers = sorted(query.id for query in callers_of(name, request.catalog))
    if callers:
        raise InvalidStatement(
            f"Cannot drop function {name}: the following queries call it: [{', '.join(callers)}].",
            span=statement.span,
            hint=f"Terminate them first, as in: TERMINATE {callers[0]};",
        )
    offset = request.store.submit(RemoveFunction(name=name, statement=statement.text))
    return [_done(statement.text, name, "drop", f"Dropped function '{name}'", offset)]


def _check_name(statement: CreateFunction) -> None:
    if not _NAME.fullmatch(statement.name):
        raise InvalidStatement(
            f"'{statement.name}' cannot be the name of a function",
            span=statement.span,
            hint="It consists of letters, digits and underscores, without quotes.",
        )
    if statement.name in FUNCTIONS:
        raise InvalidStatement(
            f"The built-in function {statement.name} already exists",
            span=statement.span,
            hint=f"Choose another name. DESCRIBE FUNCTION {statement.name}; describes it.",
        )


def _declared(statement: CreateFunction, request: Request) -> UserFunction:
    types = request.catalog.types
    parameters = tuple(UserParameter(p.name, resolve_type(p.type, types, p.span)) for p in statement.parameters)
    function = UserFunction(
        name=statement.name,
        kind=statement.kind,
        parameters=parameters,
        returns=resolve_type(statement.returns, types, statement.span),
        body=statement.body,
        state=None if statement.state is None else resolve_type(statement.state, types, statement.span),
        called_on_null=statement.called_on_null,
        vectorized=_vectorized(statement),
    )
    used = [function.returns, *(parameter.type for parameter in parameters)]
    if NULL in used or INTERVAL_UNIT in used:
        raise InvalidStatement(
            "arguments and results of a function need types that columns can have", span=statement.span
        )
    if not parameters and (function.vectorized or function.kind == "aggregate"):
        what = "an aggregate" if function.kind == "aggregate" else "a vectorized function"
        raise InvalidStatement(f"{what} has at least one argument", span=statement.span)
    return function


def _vectorized(statement: CreateFunction) -> bool:
    for name in statement.properties:
        if name != _VECTORIZED:
            raise InvalidProperty(
                f"a function has no property {name}",
                span=statement.span,
                hint=did_you_mean(name, [_VECTORIZED]) or f"There is {_VECTORIZED} = TRUE.",
            )
    value = statement.properties.get(_VECTORIZED, False)
    if str(value).lower() not in ("true", "false"):
        raise InvalidProperty(f"{_VECTORIZED} is TRUE or FALSE", span=statement.span)
    vectorized = says_true(value)
    if vectorized and statement.kind == "aggregate":
        raise InvalidProperty("an aggregate takes rows one by one, it cannot be VECTORIZED", span=statement.span)
    return vectorized


def _check_body(function: UserFunction, statement: CreateFunction) -> None:
    try:
        function.check()
    except BodyError as error:
        span = statement.span
        if error.offset is not None and statement.body_start is not None:
            start = statement.body_start + error.offset
            span = Span(start, start + error.length)
        raise SqlSyntaxError(error.message, span=span, hint=error.hint) from None


def _done(text: str, name: str, action: str, message: str, offset: int) -> CurrentStatus:
    return CurrentStatus(
        statement_text=text,
        command_id=command_id("function", name, action),
        command_status=CommandState("SUCCESS", message),
        command_sequence_number=offset,
    )
