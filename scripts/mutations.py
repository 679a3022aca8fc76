"""Small changes of a source that tests should notice: which there are, what they are called, and how they are made.

A `Mutation` is one change of one place: a boundary moved, a condition turned round, a statement left out. Its key
names function, statement and change, but no line, so it stays the same while other lines are edited. Left alone are
places where a change means nothing or is noticed at once: annotations, decorators, docstrings, texts, patterns,
`assert`, `raise`, log lines.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.JoinedStr, ast.pattern, ast.Import, ast.ImportFrom)
_FIELDS_LEFT_ALONE = {"annotation", "returns", "decorator_list", "type_params"}
_KEYWORDS_LEFT_ALONE = {"strict", "slots", "frozen", "hint", "daemon", "copy"}
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_KEY_STATEMENT_MAX = 90  # characters

COMPILING: Final = re.compile(r"\bnjit\b|\bcompiled\b|^(inlined_)?loop$|^@(inlined_)?loop$", re.MULTILINE)
"""In a decorator, or a source: numba compiles what it is for."""


@dataclass(frozen=True)
class Mutation:
    """One change of one source."""

    number: int  # its place among all mutations of the source
    operator: str  # the kind of change
    key: str  # the same while other lines of the source are edited
    line: int
    lines: frozenset[int]  # a test that runs none of them cannot notice the change


@dataclass(frozen=True)
class _Change:
    """`parent.field`, or its item at `index`, becomes `new`."""

    parent: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    operator: str
    scope: str
    statement: ast.stmt

    def make(self) -> None:
        if self.index is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.index] = self.new

    @property
    def text(self) -> str:
        old, new = _header(self.old), _header(self.new)
        change = f"without `{old}`" if isinstance(self.new, ast.Pass) else f"`{old}` → `{new}`"
        statement = _header(self.statement)
        within = "" if statement == old else f", in `{_cut(statement)}`"
        return f"{self.scope}: {change}{within}"

    @property
    def lines(self) -> frozenset[int]:
        return _lines(self.old) | _lines(self.statement)


def mutations(source: str) -> list[Mutation]:
    """All mutations of a source, in the order of its places."""
    seen: Counter[str] = Counter()
    found: list[Mutation] = []
    for number, change in enumerate(_changes(ast.parse(source), "module", None)):
        text = change.text
        seen[text] += 1
        key = text if seen[text] == 1 else f"{text} ({seen[text]})"
        found.append(Mutation(number, change.operator, key, min(_lines(change.old)), change.lines))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The source with one of its mutations; lines keep their numbers."""
    tree = ast.parse(source)
    changes = list(_changes(tree, "module", None))
    changes[number].make()
    return ast.fix_missing_locations(tree)


def noting(source: str, name: str) -> ast.Module:
    """The source, which calls the function `name` with the first line of each statement before it runs. Of compiled
    loops, which cannot call, all lines are noted where they are defined."""
    tree = ast.parse(source)
    _note(tree, name)
    return ast.fix_missing_locations(tree)


def _note(node: ast.AST, name: str) -> None:
    for child in ast.iter_child_nodes(node):
        if not _is_compiled(child):
            _note(child, name)
    for _, body in ast.iter_fields(node):
        if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
            body[:] = [each for statement in body for each in (*_notes(statement, name), statement)]


def _notes(statement: ast.stmt, name: str) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.ImportFrom) or _is_text_alone(statement):
        return
    end = statement.end_lineno if _is_compiled(statement) else None
    for line in range(statement.lineno, (end or statement.lineno) + 1):
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(line)], [])
        yield ast.fix_missing_locations(ast.copy_location(ast.Expr(call), statement))


def _is_text_alone(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_compiled(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        COMPILING.search(ast.unparse(each)) for each in node.decorator_list
    )


def _changes(node: ast.AST, scope: str, statement: ast.stmt | None) -> Iterator[_Change]:
    """The changes below a node; `statement` is the innermost one around it."""
    for field, index, child in _children(node):
        inner = child if isinstance(child, ast.stmt) else statement
        if inner is not None:
            for operator, new in _variants(child):
                ast.copy_location(new, child)
                yield _Change(node, field, index, child, new, operator, scope, inner)
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        below = child.name if named and scope == "module" else f"{scope}.{child.name}" if named else scope
        yield from _changes(child, below, inner)


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in _FIELDS_LEFT_ALONE:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST) and not _left_alone(child):
                yield field, index, child


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log")))):
            return True
        case ast.Call(func=ast.Name(id="cast" | "NewType" | "TypeVar" | "assert_never")):
            return True
        case ast.keyword(arg=name):
            return name in _KEYWORDS_LEFT_ALONE
        case _:
            return isinstance(node, _LEFT_ALONE)


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may stand in the place of a node, with the name of the operator."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            yield "comparison", _with(node, ops=[_COMPARISONS[type(operator)]()])
        case ast.BoolOp(op=operator):
            yield "and/or", _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", copy.copy(operand)
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC and not _is_text(node):
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(operator)]())
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield "min/max", _with(node, func=ast.copy_location(ast.Name(_CALLS[name], ast.Load()), node.func))
        case ast.If(body=[*_, last], orelse=[]) if isinstance(last, _LEAVES):
            yield "early leaving", _with(node, test=ast.copy_location(ast.Constant(False), node.test))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not _is_not(test):
            yield "condition", _with(node, test=ast.copy_location(ast.UnaryOp(ast.Not(), test), test))
        case ast.comprehension(ifs=[_, *_]):
            yield "filter", _with(node, ifs=[])
        case ast.Continue():
            yield "loop", ast.Break()
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Expr() | ast.AugAssign() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", ast.Pass()
        case _:
            return


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_not(test: ast.expr) -> bool:
    """Whether the condition begins with `not`, whose removal is a mutation of its own."""
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr | ast.Constant) and not _is_number(side) for side in (node.left, node.right)
    )


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _header(node: ast.AST) -> str:
    """The node as text; of a statement with a body, its first line."""
    return ast.unparse(node).strip().split("\n")[0]


def _cut(text: str) -> str:
    return text if len(text) <= _KEY_STATEMENT_MAX else text[: _KEY_STATEMENT_MAX - 1] + "…"


def _lines(node: ast.AST) -> frozenset[int]:
    """The lines of a node; of a statement with a body, those of its head."""
    match node:
        case ast.comprehension():
            return _lines(node.target) | _lines(node.iter)
        case ast.expr() | ast.stmt() | ast.keyword() | ast.arg():
            body: list[ast.stmt] = getattr(node, "body", []) if isinstance(node, ast.stmt) else []
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            return frozenset(range(node.lineno, max(last, node.lineno) + 1))
        case _:
            return frozenset()
