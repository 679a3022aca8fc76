"""Expressions and values as SQL text, for messages and generated statements."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any, Final

from sqlglot import exp

_BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||", exp.EQ: "=", exp.NEQ: "<>",
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "AND", exp.Or: "OR", exp.Like: "LIKE",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM", exp.Is: "IS", exp.Escape: "ESCAPE",
}  # fmt: skip


def print_expression(node: exp.Expression) -> str:
    """One line of SQL; every operator is in parentheses, so that precedence is clear.

    A column that replaces another expression has the user's text in `meta["written"]`.

    >>> from millstream.sql.parser import parse_expression
    >>> print_expression(parse_expression("a + b * 2"))
    '(A + (B * 2))'
    """
    operator = _BINARY.get(type(node))
    if operator is not None:
        return f"({print_expression(node.this)} {operator} {print_expression(node.expression)})"
    match node:
        case exp.Paren():
            return print_expression(node.this)
        case exp.Column() if "written" in node.meta:
            return node.meta["written"]
        case exp.Column():
            return f"{node.table}.{node.name}" if node.table else node.name
        case exp.Identifier() | exp.Var():
            return node.name
        case exp.Literal():
            return "'" + node.this.replace("'", "''") + "'" if node.is_string else node.this
        case exp.Boolean():
            return str(node.this).lower()
        case exp.Null():
            return "null"
        case exp.Star():
            return "*"
        case exp.Interval():
            return node.meta["written"]
        case exp.Neg():
            return f"-{print_expression(node.this)}"
        case exp.Not():
            return f"(NOT {print_expression(node.this)})"
        case exp.Between():
            parts = (print_expression(part) for part in (node.this, node.args["low"], node.args["high"]))
            return "({} BETWEEN {} AND {})".format(*parts)
        case exp.Subquery():
            return "(SELECT …)"
        case exp.Exists():
            return f"EXISTS {print_expression(node.this)}"
        case exp.In() if node.args.get("query"):
            return f"({print_expression(node.this)} IN {print_expression(node.args['query'])})"
        case exp.In():
            return f"({print_expression(node.this)} IN ({_list(node.expressions)}))"
        case exp.Dot():
            return f"{print_expression(node.this)}->{print_expression(node.expression)}"
        case exp.Bracket():
            return f"{print_expression(node.this)}[{_list(node.expressions)}]"
        case exp.Array():
            return f"ARRAY[{_list(node.expressions)}]"
        case exp.Map():
            pairs = zip(node.args["keys"].expressions, node.args["values"].expressions, strict=True)
            return f"MAP({', '.join(f'{print_expression(k)}:={print_expression(v)}' for k, v in pairs)})"
        case exp.Struct():
            fields = (f"{entry.this.name}:={print_expression(entry.expression)}" for entry in node.expressions)
            return f"STRUCT({', '.join(fields)})"
        case exp.Cast():
            return f"CAST({print_expression(node.this)} AS {node.meta['to']})"
        case exp.Case():
            return _case(node)
        case exp.Lambda():
            parameters = ", ".join(parameter.name for parameter in node.expressions)
            return f"({parameters}) => {print_expression(node.this)}"
        case exp.Anonymous():
            distinct = "DISTINCT " if node.args.get("distinct") else ""
            condition = node.args.get("filter")
            suffix = "" if condition is None else f" FILTER (WHERE {print_expression(condition)})"
            return f"{node.meta.get('written', node.name)}({distinct}{_list(node.expressions)}){suffix}"
        case exp.Window():
            return f"{print_expression(node.this)} OVER ({_window(node)})"
        case exp.AtTimeZone():
            return f"{print_expression(node.this)} AT TIME ZONE {print_expression(node.args['zone'])}"
        case _:
            raise AssertionError(f"the parser makes no {type(node).__name__}")


def _list(nodes: list[exp.Expression]) -> str:
    return ", ".join(map(print_expression, nodes))


def _case(node: exp.Case) -> str:
    operand = node.args.get("this")
    words = ["CASE"] if operand is None else ["CASE", print_expression(operand)]
    for branch in node.args["ifs"]:
        words += ["WHEN", print_expression(branch.this), "THEN", print_expression(branch.args["true"])]
    default = node.args.get("default")
    if default is not None:
        words += ["ELSE", print_expression(default)]
    return f"({' '.join(words)} END)"


def _window(node: exp.Window) -> str:
    parts: list[str] = []
    if partition := node.args.get("partition_by"):
        parts.append(f"PARTITION BY {_list(partition)}")
    if order := node.args.get("order"):
        parts.append(f"ORDER BY {', '.join(map(_sort_item, order.expressions))}")
    if spec := node.args.get("spec"):
        bounds = (_bound(spec.args[side], spec.args.get(f"{side}_side")) for side in ("start", "end"))
        parts.append("{} BETWEEN {} AND {}".format(spec.args["kind"], *bounds))
        if grace := spec.args.get("grace"):
            parts.append(f"GRACE PERIOD {grace.name} MILLISECONDS")
    return " ".join(parts)


def _sort_item(node: exp.Expression) -> str:
    direction = " DESC" if node.args.get("desc") else ""
    return print_expression(node.this) + direction + (" NULLS FIRST" if node.args.get("nulls_first") else "")


def _bound(distance: exp.Expression | str, side: str | None) -> str:
    written = distance if isinstance(distance, str) else print_expression(distance)
    return written if side is None else f"{written} {side}"


_NOT_FINITE: Final = {"nan": "(1E308 * 1E1 - 1E308 * 1E1)", "inf": "(1E308 * 1E1)", "-inf": "(-1E308 * 1E1)"}
"""No literal is such a number, and CAST makes none from a text. DuckDB, which answers the PostgreSQL port's questions
about the catalogs, computes the same."""


def literal(value: Any) -> str:
    """A value as a literal of our dialect, whatever it contains. Raises `ValueError` for a value without a literal.

    >>> literal("it's"), literal(-3), literal(0.5), literal([True, None])
    ("'it''s'", '(-3)', '0.5E0', 'ARRAY[TRUE, NULL]')
    >>> literal(2**63 - 1), literal(2**63)
    ('9223372036854775807', '9223372036854775808.')
    >>> literal(float("nan")), literal(float("-inf"))
    ('(1E308 * 1E1 - 1E308 * 1E1)', '(-1E308 * 1E1)')
    >>> literal({"a": 1})
    "MAP('a' := 1)"
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return _signed(str(value) if _fits_bigint(value) else f"{value}.")  # with a point it is a DECIMAL
        case float() if math.isfinite(value):
            text = repr(value)
            return _signed(text if "e" in text else f"{text}E0")
        case float():
            return _NOT_FINITE[str(value)]
        case decimal.Decimal() if value.is_finite():
            text = format(value, "f")
            return _signed(text if "." in text or _fits_bigint(int(text)) else f"{text}.")
        case str():
            return _text_literal(value)
        case bytes():
            return f"TO_BYTES('{value.hex()}', 'hex')"
        case datetime.datetime():
            utc = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"CAST('{utc.isoformat(timespec='milliseconds')}' AS TIMESTAMP)"
        case datetime.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case datetime.time():
            return f"CAST('{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}' AS TIME)"
        case list() | tuple():
            return f"ARRAY[{', '.join(map(literal, value))}]"
        case dict():
            return f"MAP({', '.join(f'{literal(key)} := {literal(item)}' for key, item in value.items())})"
        case _ if kind := _kind_of_time(value):  # item() of one in nanoseconds is a number
            return literal(value.astype(f"{kind}8[us]").item())
        case _ if hasattr(value, "item"):  # a scalar of numpy
            return literal(value.item())
        case _:
            raise ValueError(f"a {type(value).__name__} has no literal: {value!r}")


def _kind_of_time(value: Any) -> str | None:
    """`M` for numpy's datetime64, `m` for its timedelta64."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return kind if kind in ("M", "m") else None


def _fits_bigint(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _signed(number: str) -> str:
    """In parentheses if negative, because a second minus would begin a comment."""
    return f"({number})" if number.startswith("-") else number


def _text_literal(value: str) -> str:
    """A string literal. Data that contains `${name}` is split there, so that it is not read as a session variable."""
    if "\0" in value:
        raise ValueError("it holds a NUL")
    quoted = ["'" + part.replace("'", "''") + "'" for part in value.replace("${", "$\0{").split("\0")]
    return quoted[0] if len(quoted) == 1 else f"({' || '.join(quoted)})"
