"""RANDOM and UUID inside of an expression that may fail.

DuckDB refuses TRY around a call that differs from row to row, but takes one around the argument of a lambda. So such
calls are drawn outside, once for each row. Inside of a lambda each element needs a value of its own: it is the hash of
the drawn one and the element's position.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from ...sql.functions.template import fill
from ..specs import VOLATILE

_DUCKDB = DuckDB()
_DRAWN = "drawn"
_RANDOM = "(hash(:drawn, :places) >> 11) / 9007199254740992.0"  # 53 bits, as a DOUBLE has
_HEX = "md5(concat_ws(':', :drawn, :places))"
_UUID = "CAST(concat(substr(:hex, 1, 12), '4', substr(:hex, 14, 3), 'a', substr(:hex, 18)) AS UUID)"


def is_volatile(node: exp.Expr) -> bool:
    """Whether the call gives another value each time."""
    return isinstance(node, exp.Rand | exp.Uuid) or (isinstance(node, exp.Anonymous) and node.name.lower() in VOLATILE)


def draw_outside(tree: exp.Expression) -> dict[str, str]:
    """What differs from call to call, by the names that the tree has in its place now."""
    drawn: dict[str, str] = {}
    for node in [node for node in tree.walk() if is_volatile(node)]:
        name = f"{_DRAWN}{len(drawn)}"
        drawn[name] = node.sql(dialect=_DUCKDB)
        places = [_place_of(lambda_, depth) for depth, lambda_ in enumerate(_lambdas_around(node))]
        value: exp.Expression = exp.column(name, _DRAWN)
        node.replace(_of_element(node, value, places) if places else value)
    return drawn


def with_drawn(text: str, drawn: dict[str, str]) -> str:
    """The DuckDB text over a tree from `draw_outside`, given what is drawn."""
    given = ", ".join(f"'{name}': {call}" for name, call in drawn.items())
    return f"list_extract(list_transform([{{{given}}}], lambda {_DRAWN}: {text}), 1)"


def _lambdas_around(node: exp.Expr) -> list[exp.Lambda]:
    """From the outermost to the innermost."""
    around: list[exp.Lambda] = []
    parent = node.parent
    while parent is not None:
        if isinstance(parent, exp.Lambda):
            around.insert(0, parent)
        parent = parent.parent
    return around


def _place_of(lambda_: exp.Lambda, depth: int) -> exp.Expression:
    """The position of the lambda's element: DuckDB gives it as a further parameter."""
    name = f"${_DRAWN}{depth}"
    if lambda_.expressions[-1].name != name:
        lambda_.append("expressions", exp.to_identifier(name, quoted=True))
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _of_element(call: exp.Expr, drawn: exp.Expression, places: list[exp.Expression]) -> exp.Expression:
    place = exp.Anonymous(this="concat_ws", expressions=[exp.Literal.string(","), *places])
    values = {"drawn": drawn, "places": place}
    if "uuid" in call.sql(dialect=_DUCKDB).lower():
        return fill(_UUID, {"hex": fill(_HEX, values)})
    return fill(f"({_RANDOM})", values)
