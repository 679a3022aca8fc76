"""Decorators that make SQL functions of Python functions, for programs, notebooks and tests.

    import millstream

    @millstream.scalar
    def net(amount: float, rate: float) -> float:
        return amount * (1 - rate)

    ms = millstream.connect()
    millstream.register(ms, net)
    ms.sql("SELECT net(amount, 0.2) FROM orders;")

The function's source text is registered, as in CREATE FUNCTION. It is stored in the log, and runs after a restart and
in Spark's processes, without the rest of the program. Modules and plain constants that the function uses from its
surroundings are included.
"""

from __future__ import annotations

import ast
import datetime as dt
import decimal
import inspect
import itertools
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, overload

from millstream.errors import ServerError

Kind = Literal["scalar", "aggregate", "table"]

_CREATE = {"scalar": "FUNCTION", "aggregate": "AGGREGATE FUNCTION", "table": "TABLE FUNCTION"}
_TYPES: dict[Any, str] = {
    bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "STRING", bytes: "BYTES", dt.datetime: "TIMESTAMP",
    dt.date: "DATE", dt.time: "TIME", decimal.Decimal: "DECIMAL(38, 10)",
}  # fmt: skip
_CONSTANTS = (bool, int, float, str, bytes, type(None))


class NotAFunction(ServerError):
    """A Python function that cannot become a SQL function."""

    code = "NOT_A_FUNCTION"


class Executes(Protocol):
    """A `Connection`, a `Sandbox`, a client."""

    def execute(self, sql: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Declared:
    """A decorated function: it can still be called from Python, and `register` accepts it."""

    python: Callable[..., Any]
    sql: str
    """The statement that creates it: CREATE OR REPLACE FUNCTION …"""

    def __call__(self, *arguments: Any) -> Any:
        return self.python(*arguments)


Decorator = Callable[[Callable[..., Any]], Declared]


@overload
def scalar(function: Callable[..., Any], /) -> Declared: ...
@overload
def scalar(
    signature: str | None = None, /, *, name: str | None = None, vectorized: bool = False, called_on_null: bool = False
) -> Decorator: ...
def scalar(
    signature: Callable[..., Any] | str | None = None,
    /,
    *,
    name: str | None = None,
    vectorized: bool = False,
    called_on_null: bool = False,
) -> Declared | Decorator:
    """Declares a function of one row's values, or (`vectorized`) of Arrow columns.

    In: `signature`: its types, as in "(amount DOUBLE, at TIMESTAMP) -> STRING"; default: from the annotations.
    `called_on_null`: also call it with NULL arguments, for which the result is otherwise NULL. Raises `NotAFunction`.
    """
    return _decorator("scalar", signature, name, vectorized=vectorized, called_on_null=called_on_null)


@overload
def table_function(function: Callable[..., Any], /) -> Declared: ...
@overload
def table_function(
    signature: str | None = None, /, *, name: str | None = None, vectorized: bool = False, called_on_null: bool = False
) -> Decorator: ...
def table_function(
    signature: Callable[..., Any] | str | None = None,
    /,
    *,
    name: str | None = None,
    vectorized: bool = False,
    called_on_null: bool = False,
) -> Declared | Decorator:
    """Declares a function that returns a list of values, or yields them; each becomes a row. The result in the
    signature is the type of one value; the annotation is a list or an iterator."""
    return _decorator("table", signature, name, vectorized=vectorized, called_on_null=called_on_null)


@overload
def aggregate(function: type, /) -> Declared: ...
@overload
def aggregate(
    signature: str | None = None, /, *, name: str | None = None, state: str | None = None, called_on_null: bool = False
) -> Decorator: ...
def aggregate(
    signature: type | str | None = None,
    /,
    *,
    name: str | None = None,
    state: str | None = None,
    called_on_null: bool = False,
) -> Declared | Decorator:
    """Declares an aggregate from a class with the methods init(self), add(self, state, …), result(self, state), and
    optionally undo(self, state, …) for tables, merge(self, a, b) for sessions.

    In: `signature`: default: from the annotations of `add` and `result`. `state`: the SQL type of a state; without one,
    any value that JSON can represent.
    """
    return _decorator("aggregate", signature, name, state=state, called_on_null=called_on_null)


def register(target: Executes, *functions: Declared) -> None:
    """Creates or replaces the functions. In: a connection, a `Sandbox`, a client. Raises `MillstreamError`."""
    for function in functions:
        target.execute(function.sql)


# ------------------------------------------------------------------ from Python to SQL


def _decorator(
    kind: Kind,
    signature: Callable[..., Any] | str | None,
    name: str | None,
    *,
    vectorized: bool = False,
    called_on_null: bool = False,
    state: str | None = None,
) -> Declared | Decorator:
    def declare(function: Callable[..., Any]) -> Declared:
        written = _signature(function, kind) if given is None else given
        clauses = [f"CREATE OR REPLACE {_CREATE[kind]} {name or function.__name__}{written}"]
        if state is not None:
            clauses.append(f"STATE {state}")
        clauses.append("LANGUAGE PYTHON")
        if called_on_null:
            clauses.append("CALLED ON NULL INPUT")
        if vectorized:
            clauses.append("WITH (VECTORIZED = TRUE)")
        return Declared(function, f"{' '.join(clauses)} AS {_quoted(_source(function, name))};")

    if callable(signature):
        given = None
        return declare(signature)
    given = None if signature is None else _written(signature)
    return declare


def _written(signature: str) -> str:
    """`(a BIGINT) RETURNS STRING`"""
    head, arrow, returns = signature.rpartition("->")
    if not arrow or not head.strip().startswith("(") or not head.strip().endswith(")"):
        raise NotAFunction(
            f"{signature!r} is no signature", hint="Write it as in: (amount DOUBLE, at TIMESTAMP) -> STRING"
        )
    return f"{head.strip()} RETURNS {returns.strip()}"


def _signature(function: Callable[..., Any], kind: Kind) -> str:
    first, last = (
        (function, function) if kind != "aggregate" else (_method(function, "add"), _method(function, "result"))
    )
    skipped = 2 if kind == "aggregate" else 0  # self and the state
    hints = {**typing.get_type_hints(last), **{k: v for k, v in typing.get_type_hints(first).items() if k != "return"}}
    names = list(inspect.signature(first).parameters)[skipped:]
    returns = hints.get("return")
    if kind == "table":
        returns = _element(returns, function)
    parameters = ", ".join(f"{_name(name)} {_sql_type(hints.get(name), name, function)}" for name in names)
    return f"({parameters}) RETURNS {_sql_type(returns, 'the result', function)}"


def _name(name: str) -> str:
    """In backticks, because Python names may be reserved words of SQL."""
    return f"`{name}`"


def _method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    found = getattr(function, name, None)
    if found is None:
        raise NotAFunction(f"the class {function.__name__} has no method {name}")
    return found


def _element(hint: Any, function: Callable[..., Any]) -> Any:
    arguments = typing.get_args(hint)
    if not arguments:
        raise NotAFunction(
            f"the result of the table function {function.__name__} is not annotated as a list of something",
            hint="Annotate it as in: -> list[str], or give the decorator a signature.",
        )
    return arguments[0]


def _sql_type(hint: Any, what: str, function: Callable[..., Any]) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kept = [each for each in typing.get_args(hint) if each is not type(None)]
        hint = kept[0] if len(kept) == 1 else hint
    arguments = typing.get_args(hint)
    match typing.get_origin(hint):
        case origin if origin in (list, Iterable) and len(arguments) == 1:
            return f"ARRAY<{_sql_type(arguments[0], what, function)}>"
        case origin if origin is dict and len(arguments) == 2:
            key, value = (_sql_type(each, what, function) for each in arguments)
            return f"MAP<{key}, {value}>"
        case _:
            pass
    found = _TYPES.get(hint)
    if found is None:
        missing = "has no annotation" if hint is None else f"is annotated with {hint}, which is no type of SQL's"
        raise NotAFunction(
            f"{what} of {function.__name__} {missing}",
            hint='Give the decorator a signature, as in: @scalar("(amount DOUBLE) -> STRING")',
        )
    return found


# ------------------------------------------------------------------ the source text


def _source(function: Callable[..., Any], name: str | None) -> str:
    """The text of the function without its decorators, after the definitions that it needs from its surroundings."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise NotAFunction(
            f"the source of {function.__name__} cannot be found: {error}", hint="Write it with CREATE FUNCTION."
        ) from None
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    if name is not None and name.lower() != node.name.lower():
        lines[0] = lines[0].replace(node.name, name.lower(), 1)
    return "\n".join([*_surroundings(function, node), *lines])


def _surroundings(function: Callable[..., Any], node: ast.AST) -> list[str]:
    """Lines that define the global names used in the text."""
    module = sys.modules.get(function.__module__)
    around = dict(vars(module)) if module is not None else {}
    if inspect.isfunction(function):
        around |= inspect.getclosurevars(function).nonlocals
    used = sorted({each.id for each in ast.walk(node) if isinstance(each, ast.Name)})
    annotated = {each.id for part in _annotations(node) for each in ast.walk(part) if isinstance(each, ast.Name)}
    lines = ["from __future__ import annotations"]
    for name in used:
        if name not in around or around[name] is function:
            continue
        line = _definition(name, around[name])
        if line is not None:
            lines.append(line)
        elif name not in annotated:
            raise NotAFunction(
                f"{function.__name__} uses {name} from around it, and only its own text goes into the log",
                hint=f"Define {name} inside the function; modules and plain constants may stay outside.",
            )
    return lines


def _annotations(node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST | None] = []
    for each in ast.walk(node):
        if isinstance(each, ast.arg | ast.AnnAssign):
            found.append(each.annotation)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(each.returns)
    return [each for each in found if each is not None]


def _definition(name: str, value: Any) -> str | None:
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"
    if isinstance(value, _CONSTANTS) or (isinstance(value, tuple) and all(isinstance(v, _CONSTANTS) for v in value)):
        return f"{name} = {value!r}"
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if home is None or own is None or "." in own or home in ("__main__", "builtins"):
        return None
    if getattr(sys.modules.get(home), own, None) is not value or home.split(".")[0] not in sys.stdlib_module_names:
        return None
    return f"from {home} import {own} as {name}"


def _quoted(text: str) -> str:
    tags = itertools.chain(["$$"], (f"$python{number}$" for number in itertools.count()))
    tag = next(tag for tag in tags if tag not in text)
    return f"{tag}\n{text}\n{tag}"
