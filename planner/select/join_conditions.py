"""ON: an equality between an expression over the left side of JOIN and one over the source on the right."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millstream.errors import InvalidStatement, Span

from ...sql import ast
from ...sql.ast import conjuncts, span_of, unwrapped
from ...sql.printing import print_expression
from ..expressions.compilation import compile_expression
from ..expressions.scope import Scope
from ..expressions.typed import Typed


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """`left`, `right`: the sides by their side of the join, in whatever order they are written; `*_written`: their text
    in messages."""

    left: Typed
    right: Typed
    left_written: str
    right_written: str
    flipped: bool
    left_alias: str
    span: Span | None
    node: exp.Expression

    @property
    def written(self) -> str:
        return self._equality(self.left_written, self.right_written)

    def check_types(self) -> None:
        """Raises `InvalidStatement` if the two sides have different types."""
        if self.left.type == self.right.type:
            return
        typed = self._equality(f"{self.left_written}{{{self.left.type}}}", f"{self.right_written}{{{self.right.type}}}")
        raise InvalidStatement(
            f"Invalid join condition: types don't match. Got {typed}.", span=self.span, hint="CAST one side."
        )

    def _equality(self, left: str, right: str) -> str:
        return f"{right} = {left}" if self.flipped else f"{left} = {right}"


def join_condition(join: ast.Join, left: Scope, right: Scope) -> JoinCondition:
    """The condition of `join`, whose sides have these scopes. Raises `InvalidStatement`, `UnknownColumn`."""
    both = Scope((*left.sources, *right.sources), left.types, "JOIN ON")
    whole = unwrapped(join.on)
    if isinstance(whole, exp.Or):
        raise InvalidStatement(
            "Invalid join condition: joins on multiple conditions are not yet supported. "
            f"Got {print_expression(join.on)}.",
            span=span_of(join.on),
            hint="Join on one equality, or several with AND between them.",
        )
    if not isinstance(whole, exp.EQ):
        compared = isinstance(whole, exp.Predicate) and isinstance(whole, exp.Binary)
        only = "Only equality join criteria is supported. " if compared else ""
        raise InvalidStatement(
            f"{only}Unsupported join expression: {print_expression(join.on)}.",
            span=span_of(join.on),
            hint="Join with one equality.",
        )
    nodes = (whole.this, whole.expression)
    sides = [compile_expression(node, both) for node in nodes]
    owners = [_owner(side, node, whole, both) for side, node in zip(sides, nodes, strict=True)]
    flipped = _flipped(owners, right.sources[0].alias, whole)
    written = [print_expression(both.qualified(node)) for node in nodes]
    if flipped:
        sides, written, owners = sides[::-1], written[::-1], owners[::-1]
    return JoinCondition(sides[0], sides[1], written[0], written[1], flipped, owners[0], span_of(whole), whole)


def split_conditions(join: ast.Join, left: Scope, right: Scope) -> tuple[list[JoinCondition], list[exp.Expression]]:
    """The equalities between the sides, and the other conditions of an ON with AND. Raises `InvalidStatement`."""
    both = Scope((*left.sources, *right.sources), left.types, "JOIN ON")
    equalities: list[JoinCondition] = []
    others: list[exp.Expression] = []
    for node in map(unwrapped, conjuncts(join.on)):
        found = _equality(node, both, left, right)
        if found is None:
            others.append(node)
        else:
            equalities.append(found)
    if not equalities:
        raise InvalidStatement(
            f"none of the conditions of this join is an equality between its sides: {print_expression(join.on)}",
            span=span_of(join.on),
            hint="A join needs one column of each side that are equal: ON a.x = b.y AND ….",
        )
    return equalities, others


def _equality(node: exp.Expression, both: Scope, left: Scope, right: Scope) -> JoinCondition | None:
    """The condition, if it is an equality with an expression over each side of the join."""
    if not isinstance(node, exp.EQ):
        return None
    nodes = (node.this, node.expression)
    sides = [compile_expression(each, both) for each in nodes]
    read = [_sides_read(side, left, right) for side in sides]
    if read not in ([{"left"}, {"right"}], [{"right"}, {"left"}]):
        return None
    written = [print_expression(both.qualified(each)) for each in nodes]
    flipped = read[0] == {"right"}
    if flipped:
        sides, written = sides[::-1], written[::-1]
    owner = next(s.alias for s in left.sources if sides[0].columns().intersection(c for c, _ in s.columns.values()))
    return JoinCondition(sides[0], sides[1], written[0], written[1], flipped, owner, span_of(node), node)


def _sides_read(side: Typed, left: Scope, right: Scope) -> set[str]:
    read = side.columns()
    return {
        name
        for name, scope in (("left", left), ("right", right))
        for source in scope.sources
        if read.intersection(column for column, _ in source.columns.values())
    }


def _owner(side: Typed, node: exp.Expression, whole: exp.Expression, scope: Scope) -> str:
    """The only source that this side of the equality reads. Raises `InvalidStatement` if it is not exactly one."""
    read = side.columns()
    found = [source.alias for source in scope.sources if read.intersection(name for name, _ in source.columns.values())]
    if len(found) != 1:
        raise InvalidStatement(
            f"Invalid comparison expression '{print_expression(node)}' in join '{print_expression(whole)}'. "
            "Each side of the join comparision must contain references from exactly one source.",
            span=span_of(node),
        )
    return found[0]


def check_sides(on: exp.Expression) -> None:
    """Raises `InvalidStatement` if both sides of the equality name the same source. It is called for all joins of a
    query before any of them is planned."""
    whole = unwrapped(on)
    if isinstance(whole, exp.EQ):
        left, right = (
            {column.table for column in side.find_all(exp.Column)} for side in (whole.this, whole.expression)
        )
        if left == right and len(left) == 1 and "" not in left:
            raise _same_source(left.pop(), whole)


def _same_source(alias: str, whole: exp.Expression) -> InvalidStatement:
    return InvalidStatement(
        "Each side of the join must reference exactly one source and not the same source. "
        f"Left side references `{alias}` and right references `{alias}`",
        span=span_of(whole),
    )


def _flipped(owners: list[str], joined: str, whole: exp.Expression) -> bool:
    """Whether the joined (right) source is on the left of the equality."""
    left, right = owners
    if left == right:
        raise _same_source(left, whole)
    if joined not in owners:
        raise InvalidStatement(
            f"A join criteria is expected to reference the source (`{joined}`) in the FROM clause, instead the right "
            f"source references `{right}` and the left source references `{left}`",
            span=span_of(whole),
        )
    return left == joined
