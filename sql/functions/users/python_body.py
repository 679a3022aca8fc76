"""The text of a user's Python function: read, checked, compiled. Nothing here knows SQL.

A text is one of four things: a body with `return` (or `yield`), a single expression, a module that defines a function
of the name, or a module that defines a class (aggregates). What is wrong with it is a `BodyError` with a place in the
text as it was written.
"""

from __future__ import annotations

import ast
import builtins
import dis
import keyword
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, Literal

from millstream.errors import did_you_mean

FILE = "<function>"
_SHOWN_CHARACTERS = 2000  # of what an error says
METHODS = ("init", "add", "result")  # that an aggregate has to have

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class BodyError(Exception):
    """What is wrong with a text; `offset` and `length` say where in it, if anywhere."""

    def __init__(self, message: str, offset: int | None = None, length: int = 1, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.offset, self.length, self.hint = message, offset, length, hint


@dataclass(frozen=True, slots=True)
class Body:
    """The text of a function, and what calls it by which names."""

    name: str
    kind: Literal["scalar", "aggregate", "table"]
    parameters: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Parsed:
    """`entry`: what the module defines that is to be called. `margin`: columns cut off at the left of each line."""

    module: ast.Module
    entry: str
    margins: tuple[int, ...]
    text: str

    def offset(self, line: int, column: int) -> int:
        """The place in the text, from Python's line (from 1) and column (from 0, of the line without its margin)."""
        lines = self.text.split("\n")
        line = min(max(line, 1), len(lines))
        start = sum(len(each) + 1 for each in lines[: line - 1])
        return min(start + self.margins[line - 1] + max(column, 0), len(self.text))

    def offset_of(self, node: ast.stmt) -> int:
        return self.offset_in_bytes(node.lineno, node.col_offset)

    def offset_in_bytes(self, line: int, column: int) -> int:
        """The same from a column in UTF-8, as Python's trees have it."""
        text = self.text.split("\n")[line - 1][self.margins[line - 1] :]
        return self.offset(line, len(text.encode()[:column].decode(errors="ignore")))


@lru_cache(maxsize=512)
def load(body: Body) -> Callable[..., Any] | type:
    """The function, or an aggregate's class. Runs the module's own code, once. Raises `BodyError`."""
    parsed = _parsed(body)
    try:
        code = compile(parsed.module, FILE, "exec")
    except SyntaxError as error:
        raise _syntax_error(error, parsed) from None
    names: dict[str, Any] = {"__name__": f"millstream_function_{body.name.lower()}"}
    try:
        exec(code, names)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        line = line_of(error)
        at = None if line is None else parsed.offset(line, 0)
        raise BodyError(f"running the text failed: {described(error)}", at, _line_length(parsed, line)) from None
    _check_names(code, names, body, parsed)
    return names[parsed.entry]


def methods_of(body: Body) -> frozenset[str]:
    """The names of the methods of an aggregate's class, without running anything. Raises `BodyError`."""
    parsed = _parsed(body)
    found = next(n for n in parsed.module.body if isinstance(n, ast.ClassDef) and n.name == parsed.entry)
    return frozenset(node.name for node in found.body if isinstance(node, _Function))


def docstring_of(body: Body) -> str:
    """What the text says about itself, or an empty text."""
    try:
        parsed = _parsed(body)
    except BodyError:
        return ""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    entry = next(node for node in parsed.module.body if isinstance(node, kinds) and node.name == parsed.entry)
    return ast.get_docstring(entry) or ""


def line_of(error: BaseException) -> int | None:
    """The line of the function's text in which an error came up."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    return lines[-1] if lines else None


def described(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero`. An error's text may have any length and any characters, and asking for it
    may fail: this one can be stored."""
    try:
        text = str(error).encode(errors="backslashreplace").decode()
    except Exception as failed:
        text = f"its text cannot be read: {type(failed).__name__}"
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


# ------------------------------------------------------------------ reading


@lru_cache(maxsize=512)
def _parsed(body: Body) -> _Parsed:
    _check_parameters(body.parameters)
    lines = body.text.split("\n")
    margins = _margins(lines)
    cut = "\n".join(line[margin:] for line, margin in zip(lines, margins, strict=True))
    place = _Parsed(ast.Module([], []), "", margins, body.text)
    if not cut.strip():
        raise BodyError("the function's text is empty", hint="Write what it returns, as in: AS $$ return a + b $$")
    try:
        module = ast.parse(cut, FILE)
    except SyntaxError as error:
        raise _syntax_error(error, place) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BodyError(f"Python cannot read the text: {described(error)}") from None
    make = _class if body.kind == "aggregate" else _function
    return make(module, body, place)


def _margins(lines: Sequence[str]) -> tuple[int, ...]:
    """How many spaces stand at the left of each line for no reason. What follows AS $$ directly has its own."""
    first = len(lines[0]) - len(lines[0].lstrip(" \t"))
    rest = textwrap.dedent("\n".join(lines[1:])).split("\n")
    cut = [len(line) - len(short) if short else len(line) for line, short in zip(lines[1:], rest, strict=False)]
    return (first, *cut)


def _check_parameters(names: Sequence[str]) -> None:
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise BodyError(f'"{name}" cannot be the name of an argument in Python', hint="Choose another name.")


def _function(module: ast.Module, body: Body, place: _Parsed) -> _Parsed:
    defined = [node for node in module.body if isinstance(node, _Function)]
    entry = next((node for node in defined if node.name.lower() == body.name.lower()), None)
    if entry is not None and not _returns(module.body):
        return _defined(module, entry, body, place)
    statements: list[ast.stmt] = module.body
    if len(statements) == 1 and isinstance(statements[0], ast.Expr):
        only = statements[0]
        statements = list[ast.stmt]([ast.copy_location(ast.Return(only.value), only)])
    elif not _returns(statements):
        if len(defined) == 1:
            only = defined[0]
            message = f'the text defines the function "{only.name}", but this one is called {body.name}'
            raise BodyError(message, place.offset_of(only), hint=f'Name it "{body.name.lower()}".')
        raise BodyError("the text never returns anything", hint="End it with: return …")
    arguments = [ast.arg(name) for name in body.parameters]
    wrapped: Any = ast.FunctionDef(
        name="function",
        args=ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=statements,
        decorator_list=[],
    )
    made = ast.fix_missing_locations(ast.Module([wrapped], []))
    return _Parsed(made, "function", place.margins, place.text)


def _defined(module: ast.Module, entry: _Function, body: Body, place: _Parsed) -> _Parsed:
    """A function of the text's own, which has to take as many arguments as SQL gives it."""
    taken = entry.args
    most = None if taken.vararg else len(taken.posonlyargs) + len(taken.args)
    fewest = len(taken.posonlyargs) + len(taken.args) - len(taken.defaults)
    given = len(body.parameters)
    if given < fewest or (most is not None and given > most) or isinstance(entry, ast.AsyncFunctionDef):
        message = f'"{entry.name}" takes {fewest if given < fewest else most} arguments, but SQL names {given}'
        if isinstance(entry, ast.AsyncFunctionDef):
            message = f'"{entry.name}" is async, and nothing waits for it'
        raise BodyError(message, place.offset_of(entry), len(entry.name))
    return _Parsed(module, entry.name, place.margins, place.text)


def _class(module: ast.Module, body: Body, place: _Parsed) -> _Parsed:
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    named = [node for node in classes if node.name.lower() == body.name.lower()] or classes
    if len(named) != 1:
        raise BodyError(
            f"the text defines {len(named) or 'no'} class{'es' if len(named) > 1 else ''} for the aggregate",
            hint="It is a class with the methods init(self), add(self, state, …), result(self, state), and for more "
            "undo(self, state, …) and merge(self, a, b).",
        )
    found = named[0]
    methods = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    at = place.offset_of(found)
    for name in METHODS:
        if name not in methods:
            raise BodyError(f'the class "{found.name}" has no method {_SHAPES[name]}', at, len("class"))
    arguments = len(body.parameters)
    wanted = {"init": 1, "add": 2 + arguments, "undo": 2 + arguments, "merge": 3, "result": 2}
    for name, count in wanted.items():
        method = methods.get(name)
        if method is not None and method.args.vararg is None and len(method.args.args) != count:
            message = f'"{name}" takes {len(method.args.args)} arguments, but is called with {count}: {_SHAPES[name]}'
            raise BodyError(message, place.offset_of(method), len("def"))
    return _Parsed(module, found.name, place.margins, place.text)


_SHAPES = {
    "init": "init(self), which gives a group's first state",
    "add": "add(self, state, …), which gives the state with one more row",
    "undo": "undo(self, state, …), which gives the state without that row",
    "merge": "merge(self, a, b), which gives the state of both together",
    "result": "result(self, state), which gives the aggregate's value",
}


def _returns(statements: Sequence[ast.stmt]) -> bool:
    """Whether there is a `return` or `yield` that belongs to no function inside."""
    return any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in _own_nodes(statements))


def _own_nodes(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(list(ast.iter_child_nodes(node)))


# ------------------------------------------------------------------ checking


def _syntax_error(error: SyntaxError, place: _Parsed) -> BodyError:
    offset = None if error.lineno is None else place.offset(error.lineno, (error.offset or 1) - 1)
    one_line = error.end_lineno == error.lineno and error.end_offset and error.offset
    length = max(1, (error.end_offset or 0) - (error.offset or 0)) if one_line else 1
    return BodyError(f"the function's text is not valid Python: {error.msg}", offset, length)


def _check_names(code: CodeType, names: Mapping[str, Any], body: Body, place: _Parsed) -> None:
    """A global name that nobody defines would fail for every row."""
    made = {i.argval for each in _codes(code) for i in dis.get_instructions(each) if i.opname == "STORE_GLOBAL"}
    for each in _codes(code):
        for instruction in dis.get_instructions(each):
            name = instruction.argval
            if instruction.opname != "LOAD_GLOBAL" or name in names or name in made or hasattr(builtins, name):
                continue
            at = instruction.positions
            offset = None
            if at is not None and at.lineno is not None:
                offset = place.offset_in_bytes(at.lineno, at.col_offset or 0)
            known = [*body.parameters, *each.co_varnames, *(n for n in names if not n.startswith("__"))]
            hint = did_you_mean(name, known) or _import_hint(name)
            raise BodyError(f'the name "{name}" is not defined', offset, len(name), hint)


def _import_hint(name: str) -> str:
    return f"If it is a module, add: import {name}" if name.islower() else "Define it in the text of the function."


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _line_length(parsed: _Parsed, line: int | None) -> int:
    if line is None:
        return 1
    text = parsed.text.split("\n")[line - 1]
    return max(1, len(text) - parsed.margins[line - 1])
