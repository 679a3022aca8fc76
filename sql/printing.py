"""Expressions as text, the way messages and generated statements show them."""

from __future__ import annotations

from sqlglot import exp

_BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||", exp.EQ: "=", exp.NEQ: "<>",
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "AND", exp.Or: "OR", exp.Like: "LIKE",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM", exp.Is: "IS", exp.Escape: "ESCAPE",
}  # fmt: skip


def print_expression(node: exp.Expression) -> str:
    """One line of SQL; every operator stands in parentheses, so that precedence is plain.

    A column that stands for something else has in `meta["written"]` what the user wrote.

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
        case exp.Identifier():
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
        parts.append("ROWS BETWEEN {} AND {}".format(*bounds))
    return " ".join(parts)


def _sort_item(node: exp.Expression) -> str:
    direction = " DESC" if node.args.get("desc") else ""
    return print_expression(node.this) + direction + (" NULLS FIRST" if node.args.get("nulls_first") else "")


def _bound(distance: exp.Expression | str, side: str | None) -> str:
    written = distance if isinstance(distance, str) else print_expression(distance)
    return written if side is None else f"{written} {side}"
