"""Types an expression by ksqlDB's rules and renders it as DuckDB SQL.

One recursive function, one branch per node class of `sql/ast.py`. The rules are ksqlDB's where they differ from
SQL's: a comparison with NULL is false, integers divide as in Java, `+` joins texts, ROWTIME compares with ISO text.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal as PythonDecimal

from sqlglot import exp

from millstream.errors import InvalidStatement, StatementError, TypeMismatch, Unsupported

from ..sql import coercion
from ..sql.ast import span_of
from ..sql.functions.catalog import Function, LambdaArgument, find_function
from ..sql.iso_time import InvalidTime, epoch_ms
from ..sql.printing import print_expression
from ..sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)
from .call_words import check_clauses, check_needs_over, interval_unit
from .intervals import moved_by_interval
from .limits import count_step
from .scope import Scope
from .typed import Typed

_ARITHMETIC: dict[type[exp.Expression], coercion.Operator] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_DECIMAL_NAMES = {
    "+": "decimal_add", "-": "decimal_subtract", "*": "decimal_multiply", "/": "decimal_divide", "%": "decimal_modulo",
}  # fmt: skip
_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "EQUAL", exp.NEQ: "NOT_EQUAL", exp.LT: "LESS_THAN", exp.LTE: "LESS_THAN_OR_EQUAL",
    exp.GT: "GREATER_THAN", exp.GTE: "GREATER_THAN_OR_EQUAL",
    exp.NullSafeNEQ: "IS_DISTINCT_FROM", exp.NullSafeEQ: "IS_NOT_DISTINCT_FROM",
}  # fmt: skip
_SIGNS: dict[type[exp.Expression], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_WIDTHS = (INTEGER, BIGINT, DOUBLE)  # each fits into those after it
_TIMES = (DATE, TIME, TIMESTAMP)
_TIME_COLUMNS = ("ROWTIME", "WINDOWSTART", "WINDOWEND")


def compile_expression(node: exp.Expression, scope: Scope) -> Typed:
    """The typed DuckDB form of a parsed expression.

    Raises `UnknownColumn`, `UnknownFunction`, `TypeMismatch`, `InvalidStatement`, with the span of the part at fault.
    """
    count_step(node)
    match node:
        case exp.Paren():
            inner = compile_expression(node.this, scope)
            return Typed(exp.Paren(this=inner.tree), inner.type, inner.total)
        case exp.Column():
            return scope.resolve(node)
        case exp.Literal():
            return _literal(node)
        case exp.Boolean():
            return Typed(exp.Boolean(this=node.this), BOOLEAN, total=True)
        case exp.Null():
            return Typed(exp.Null(), NULL, total=True)
        case exp.Neg():
            return _negation(node, scope)
        case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
            return moved_by_interval(node, compile_expression(node.this, scope))
        case exp.Interval():
            hint = "Write ts + INTERVAL '10' SECOND or ts - INTERVAL '10' SECOND."
            raise InvalidStatement("an INTERVAL stands behind + or - only", span=span_of(node), hint=hint)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            return _arithmetic(node, scope)
        case exp.DPipe():
            return _concatenation(node, scope)
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return _comparison(node, scope)
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            return _comparison(node, scope)
        case exp.And() | exp.Or():
            return _connective(node, scope)
        case exp.Not():
            operand = _boolean(node.this, scope, "NOT")
            return Typed(exp.Not(this=exp.Paren(this=operand.tree)), BOOLEAN, operand.total)
        case exp.Is():
            operand = compile_expression(node.this, scope)
            return Typed(exp.Is(this=_grouped(operand.tree), expression=exp.Null()), BOOLEAN, operand.total)
        case exp.Between():
            return _between(node, scope)
        case exp.In() if not node.args.get("query"):
            return _in(node, scope)
        case exp.Like() | exp.Escape():
            return _like(node, scope)
        case exp.Case():
            return _case(node, scope)
        case exp.Cast():
            return _cast(node, scope)
        case exp.Dot():
            return _field(node, scope)
        case exp.Bracket():
            return _subscript(node, scope)
        case exp.Array():
            return _array(node, scope)
        case exp.Map():
            return _map(node, scope)
        case exp.Struct():
            return _struct(node, scope)
        case exp.Anonymous():
            return _call(node, scope)
        case exp.AtTimeZone():
            raise InvalidStatement("AT TIME ZONE is not supported; use CONVERT_TZ", span=span_of(node))
        case exp.Window():
            raise InvalidStatement(
                "OVER can only stand in SELECT and in QUALIFY",
                span=span_of(node),
                hint="Select it in a subquery, and filter outside: SELECT * FROM (SELECT …) q WHERE rn <= 3.",
            )
        case exp.Lambda():
            raise InvalidStatement("a lambda can only be the argument of a function", span=span_of(node))
        case exp.Star():
            raise InvalidStatement("* can only be selected or counted", span=span_of(node))
        case exp.Subquery() | exp.Exists() | exp.In():
            raise Unsupported(
                "a query can stand in FROM and be a condition of WHERE, but not stand here",
                span=span_of(node),
                hint="Conditions with AND between them may be x IN (SELECT …), x = (SELECT MAX(…) …) or EXISTS "
                "(SELECT …); for anything else join the query: FROM … JOIN (SELECT …) q ON ….",
            )
        case _:
            raise AssertionError(f"the parser makes no {type(node).__name__}")


def coerced(value: Typed, target: SqlType) -> Typed:
    """`value` as `target`, by implicit conversion."""
    if value.type == target:
        return value
    tree = coercion.cast_sql(value.tree, value.type, target, explicit=False)
    widens = value.type == NULL or (value.type in _WIDTHS and target in _WIDTHS[_WIDTHS.index(value.type) :])
    return Typed(tree, target, value.total and widens)


# ------------------------------------------------------------------ leaves


def _literal(node: exp.Literal) -> Typed:
    if node.is_string:
        return Typed(exp.Literal.string(node.this), STRING, total=True)
    text = node.this
    if any(mark in text for mark in "eE"):
        return Typed(_as(exp.Literal.number(text), DOUBLE), DOUBLE, total=True)
    if "." in text:
        digits = PythonDecimal(text).as_tuple()
        scale = -int(digits.exponent)
        precision = max(len(digits.digits), scale)
        if precision > 38:
            raise InvalidStatement(f"the number {text} has more than 38 digits", span=span_of(node))
        decimal = Decimal(precision, scale)
        return Typed(_as(exp.Literal.number(text), decimal), decimal, total=True)
    number = int(text)
    if number < 2**31:
        return Typed(exp.Literal.number(str(number)), INTEGER, total=True)
    if number < 2**63:
        return Typed(_as(exp.Literal.number(str(number)), BIGINT), BIGINT, total=True)
    raise InvalidStatement(f"Invalid numeric literal: {text}", span=span_of(node), hint="A BIGINT ends at 2^63 - 1.")


# ------------------------------------------------------------------ operators


def _negation(node: exp.Neg, scope: Scope) -> Typed:
    operand = compile_expression(node.this, scope)
    if not coercion.is_numeric(operand.type):
        raise TypeMismatch(f"cannot negate a {operand.type}", span=span_of(node))
    return Typed(exp.Neg(this=_grouped(operand.tree)), operand.type, isinstance(node.this, exp.Literal))


def _arithmetic(node: exp.Expression, scope: Scope) -> Typed:
    operator = _ARITHMETIC[type(node)]
    left, right = compile_expression(node.this, scope), compile_expression(node.expression, scope)
    if operator == "+" and left.type == STRING and right.type == STRING:
        return Typed(exp.DPipe(this=_grouped(left.tree), expression=_grouped(right.tree)), STRING, True)
    try:
        result = coercion.arithmetic_type(operator, left.type, right.type)
    except TypeMismatch as mismatch:
        message = f"Error processing expression: {print_expression(node)}. {mismatch.message}"
        raise TypeMismatch(message, span=span_of(node), hint=mismatch.hint) from mismatch
    if isinstance(result, Decimal):
        return _decimal_arithmetic(operator, left, right, result)
    a, b = _grouped(coerced(left, result).tree), _grouped(coerced(right, result).tree)
    if operator == "/" and result in (INTEGER, BIGINT):
        return Typed(exp.IntDiv(this=a, expression=b), result)
    return Typed(type(node)(this=a, expression=b), result)


def _decimal_arithmetic(operator: str, left: Typed, right: Typed, result: Decimal) -> Typed:
    tree, _ = coercion.decimal_operation(
        _DECIMAL_NAMES[operator], (left.tree, left.type), (right.tree, right.type), result
    )
    return Typed(tree, result)


def _concatenation(node: exp.DPipe, scope: Scope) -> Typed:
    left, right = compile_expression(node.this, scope), compile_expression(node.expression, scope)
    for side in (left, right):
        if side.type not in (STRING, NULL):
            raise TypeMismatch(f"|| joins STRINGs, not {side.type}", span=span_of(node), hint="Cast it AS STRING.")
    return Typed(exp.DPipe(this=_grouped(left.tree), expression=_grouped(right.tree)), STRING, True)


def _comparison(node: exp.Expression, scope: Scope) -> Typed:
    left, right = _comparable(node.this, node.expression, node, scope)
    total = left.total and right.total
    tree = type(node)(this=_grouped(left.tree), expression=_grouped(right.tree))
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return Typed(exp.Paren(this=tree), BOOLEAN, total)
    return Typed(_false_for_null(tree), BOOLEAN, total)


def _comparable(a: exp.Expression, b: exp.Expression, node: exp.Expression, scope: Scope) -> tuple[Typed, Typed]:
    """Both sides brought to one type; raises `TypeMismatch` where ksqlDB does not compare them."""
    left, right = compile_expression(a, scope), compile_expression(b, scope)
    where = "" if scope.clause == "SELECT" else f"Error in {scope.clause} expression: "
    if NULL in (left.type, right.type) and not isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        raise InvalidStatement(
            f"{where}Comparison with NULL not supported: {left.type} {_SIGNS.get(type(node), 'BETWEEN')} {right.type}\n"
            f"Use 'IS NULL' or 'IS NOT NULL' instead.\nStatement: {print_expression(node)}",
            span=span_of(node),
        )
    left, right = _magic_time(left, right), _magic_time(right, left)
    if left.type == right.type or NULL in (left.type, right.type):
        comparable = NULL in (left.type, right.type) or _allows(node, left.type)
    elif coercion.is_numeric(left.type) and coercion.is_numeric(right.type):
        comparable = True
    else:
        comparable = ({left.type, right.type} <= {STRING, *_TIMES} and (STRING in (left.type, right.type))) or (
            {left.type, right.type} == {DATE, TIMESTAMP}
        )
    if not comparable:
        operator = _COMPARISONS.get(type(node), "EQUAL")
        raise TypeMismatch(
            f"{where}Cannot compare {print_expression(a)} ({left.type}) to {print_expression(b)} ({right.type}) "
            f"with {operator}.\nStatement: {print_expression(node)}",
            span=span_of(node),
            hint=f"Make one like the other: CAST({print_expression(b)} AS {left.type}).",
        )
    if left.type == right.type or NULL in (left.type, right.type):
        return left, right
    if {left.type, right.type} == {DATE, TIMESTAMP}:
        common: SqlType = TIMESTAMP
    elif STRING in (left.type, right.type):
        common = right.type if left.type == STRING else left.type
    else:
        common = coercion.common_type((left.type, right.type))
    return coerced(left, common), coerced(right, common)


def _allows(node: exp.Expression, type_: SqlType) -> bool:
    ordered = isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between)
    return not ordered or not (type_ == BOOLEAN or isinstance(type_, Array | Map | Struct))


def _magic_time(side: Typed, other: Typed) -> Typed:
    """A text compared with ROWTIME, WINDOWSTART or WINDOWEND is a point in time."""
    return side if not _is_magic(side, other) else _epoch(side)


def _is_magic(side: Typed, other: Typed) -> bool:
    name = other.column
    return (
        name is not None
        and other.type == BIGINT
        and name.rsplit("_", 1)[-1] in _TIME_COLUMNS
        and isinstance(side.tree, exp.Literal)
        and side.type == STRING
    )


def _epoch(side: Typed) -> Typed:
    try:
        return Typed(exp.Literal.number(str(epoch_ms(side.tree.this))), BIGINT, total=True)
    except InvalidTime as invalid:
        raise InvalidStatement(str(invalid), hint="Write it as '2020-12-31T23:59:59.999'.") from invalid


def _connective(node: exp.Expression, scope: Scope) -> Typed:
    """A chain of ANDs or ORs; long ones (the parser makes them left-deep) are walked without recursion."""
    kind = type(node)
    operands: list[exp.Expression] = []
    while isinstance(node, kind):
        operands.append(node.expression)
        node = node.this
    operands.append(node)
    typed = [_boolean(operand, scope, kind.key.upper()) for operand in reversed(operands)]
    tree = exp.Paren(this=exp.and_(*(t.tree for t in typed)) if kind is exp.And else exp.or_(*(t.tree for t in typed)))
    return Typed(tree, BOOLEAN, all(t.total for t in typed))


def _boolean(node: exp.Expression, scope: Scope, operator: str) -> Typed:
    operand = compile_expression(node, scope)
    if operand.type not in (BOOLEAN, NULL):
        raise TypeMismatch(f"{operator} takes BOOLEANs, not {operand.type}", span=span_of(node))
    return operand


def _between(node: exp.Between, scope: Scope) -> Typed:
    value, low = _comparable(node.this, node.args["low"], node, scope)
    value2, high = _comparable(node.this, node.args["high"], node, scope)
    tree = exp.and_(
        exp.GTE(this=_grouped(value.tree), expression=_grouped(low.tree)),
        exp.LTE(this=_grouped(value2.tree), expression=_grouped(high.tree)),
    )
    total = value.total and low.total and value2.total and high.total
    return Typed(_false_for_null(tree), BOOLEAN, total)


def _in(node: exp.In, scope: Scope) -> Typed:
    """All items and the value are brought to one type; texts among numbers are read as numbers."""
    value = compile_expression(node.this, scope)
    options = [compile_expression(option, scope) for option in node.expressions]
    options = [_magic_time(option, value) for option in options]
    try:
        common = coercion.common_type([value.type, *(o.type for o in options)], [node.this, *node.expressions])
    except TypeMismatch as mismatch:
        raise TypeMismatch(f"Invalid Predicate: {mismatch.message}", span=mismatch.span or span_of(node)) from mismatch
    known = [option for option in options if option.type != NULL]
    if not known:
        return Typed(exp.false(), BOOLEAN, True)
    left = _grouped(coerced(value, common).tree)
    count_step(node, left, len(known))
    comparisons = [exp.EQ(this=left.copy(), expression=_grouped(coerced(option, common).tree)) for option in known]
    return Typed(_false_for_null(exp.or_(*comparisons)), BOOLEAN, all(t.total for t in (value, *options)))


def _like(node: exp.Expression, scope: Scope) -> Typed:
    escape = None
    if isinstance(node, exp.Escape):
        escape, node = node.expression, node.this
    value, pattern = compile_expression(node.this, scope), compile_expression(node.expression, scope)
    for side in (value, pattern):
        if side.type not in (STRING, NULL):
            raise TypeMismatch(f"LIKE takes STRINGs, not {side.type}", span=span_of(node))
    like: exp.Expression = exp.Like(this=_grouped(value.tree), expression=_grouped(pattern.tree))
    if escape is not None:
        if not (isinstance(escape, exp.Literal) and len(escape.this) == 1):
            raise InvalidStatement("ESCAPE takes a single character", span=span_of(escape))
        like = exp.Escape(this=like, expression=exp.Literal.string(escape.this))
    return Typed(_false_for_null(like), BOOLEAN, escape is None and value.total)


def _case(node: exp.Case, scope: Scope) -> Typed:
    operand = node.args.get("this")
    branches: list[tuple[Typed, Typed]] = []
    for branch in node.args["ifs"]:
        if operand is not None:
            count_step(node, operand)
        condition = branch.this if operand is None else exp.EQ(this=operand.copy(), expression=branch.this.copy())
        when = compile_expression(condition, scope)
        if when.type not in (BOOLEAN, NULL):
            raise TypeMismatch(f"WHEN takes a BOOLEAN, not {when.type}", span=span_of(branch.this))
        branches.append((when, compile_expression(branch.args["true"], scope)))
    default = node.args.get("default")
    otherwise = compile_expression(default, scope) if default is not None else Typed(exp.Null(), NULL, total=True)
    results = [then for _, then in branches] + [otherwise]
    type_ = coercion.common_type([result.type for result in results])
    if type_ == NULL:
        raise InvalidStatement(
            "Invalid Case expression. All case branches have NULL type", span=span_of(node), hint="Cast one to a type."
        )
    tree = exp.Case(
        ifs=[exp.If(this=when.tree, true=coerced(then, type_).tree) for when, then in branches],
        default=coerced(otherwise, type_).tree,
    )
    parts = [part for pair in branches for part in pair] + [otherwise]
    return Typed(tree, type_, all(part.total for part in parts))


def _cast(node: exp.Cast, scope: Scope) -> Typed:
    value = compile_expression(node.this, scope)
    target = scope.type(node.meta["to"], span_of(node))
    count_step(node, value.tree)
    try:
        return Typed(coercion.cast_sql(value.tree, value.type, target, explicit=True), target)
    except TypeMismatch as mismatch:
        part = {"SELECT": "Select", "WHERE": "Predicate", "HAVING": "Predicate"}.get(scope.clause, "Expression")
        raise TypeMismatch(f"Invalid {part}: {mismatch.message}", span=span_of(node)) from mismatch


# ------------------------------------------------------------------ nested values


def _field(node: exp.Dot, scope: Scope) -> Typed:
    value = compile_expression(node.this, scope)
    name = node.expression.name
    if not isinstance(value.type, Struct):
        raise TypeMismatch(
            f"Expected STRUCT type, got: {value.type}", span=span_of(node), hint="Only a STRUCT has fields (->)."
        )
    field = value.type.field(name)
    if field is None:
        names = ", ".join(f.name for f in value.type.fields)
        raise InvalidStatement(
            f"Could not find field '{name}' in {value.type}.", span=span_of(node), hint=f"It has {names}."
        )
    return Typed(
        _function("struct_extract", value.tree, exp.Literal.string(value.type.engine_name(name))),
        field.type,
        value.total,
    )


def _subscript(node: exp.Bracket, scope: Scope) -> Typed:
    value = compile_expression(node.this, scope)
    index = compile_expression(node.expressions[0], scope)
    if isinstance(value.type, Array):
        if index.type not in (INTEGER, BIGINT):
            raise TypeMismatch(f"an ARRAY's index is an INTEGER, not {index.type}", span=span_of(node))
        return Typed(_function("list_extract", value.tree, index.tree), value.type.element, value.total)
    if isinstance(value.type, Map):
        key = coerced(index, value.type.key) if coercion.can_coerce(index.type, value.type.key) else None
        if key is None:
            raise TypeMismatch(f"this MAP's key is {value.type.key}, not {index.type}", span=span_of(node))
        return Typed(_function("map_extract_value", value.tree, key.tree), value.type.value, value.total)
    raise TypeMismatch(f"[] takes an ARRAY or a MAP, not {value.type}", span=span_of(node))


def _array(node: exp.Array, scope: Scope) -> Typed:
    items = [compile_expression(item, scope) for item in node.expressions]
    if not items:
        raise InvalidStatement(
            "Array constructor cannot be empty. Please supply at least one element "
            "(see https://github.com/confluentinc/ksql/issues/4239).",
            span=span_of(node),
        )
    element = _element_type(items, node.expressions, "ARRAY", node)
    trees = [coerced(item, element).tree for item in items]
    return Typed(_function("list_value", *trees), Array(element), all(item.total for item in items))


def _element_type(
    items: Sequence[Typed], written: Sequence[exp.Expression], what: str, node: exp.Expression
) -> SqlType:
    if all(item.type == NULL for item in items):
        raise InvalidStatement(
            f"Cannot construct {what.lower()} with all NULL elements", span=span_of(node), hint="Cast one to a type."
        )
    try:
        return coercion.common_type([item.type for item in items], written)
    except StatementError as mismatch:
        raise TypeMismatch(f"Invalid {what} expression. {mismatch.message}", span=span_of(node)) from mismatch


def _map(node: exp.Map, scope: Scope) -> Typed:
    keys = [compile_expression(item, scope) for item in node.args["keys"].expressions]
    values = [compile_expression(item, scope) for item in node.args["values"].expressions]
    if not keys:
        raise InvalidStatement("Map constructor cannot be empty. Please supply at least one entry.", span=span_of(node))
    key = _element_type(keys, node.args["keys"].expressions, "map keys", node)
    value = _element_type(values, node.args["values"].expressions, "map values", node)
    tree = _function(
        "map",
        _function("list_value", *(_map_key(coerced(item, key)) for item in keys)),
        _function("list_value", *(coerced(item, value).tree for item in values)),
    )
    return Typed(tree, Map(key, value))


def _map_key(key: Typed) -> exp.Expression:
    """A text that is NULL is the key "null", as ksqlDB writes it; DuckDB's maps have no NULL among their keys."""
    if key.type != STRING or isinstance(key.tree, exp.Literal):
        return key.tree
    return exp.Coalesce(this=key.tree, expressions=[exp.Literal.string("null")])


def _struct(node: exp.Struct, scope: Scope) -> Typed:
    names = [entry.this.name for entry in node.expressions]
    if len(set(names)) < len(names):
        raise InvalidStatement("Duplicate field names found in STRUCT", span=span_of(node))
    values = [compile_expression(entry.expression, scope) for entry in node.expressions]
    type_ = Struct(tuple(Field(name, value.type) for name, value in zip(names, values, strict=True)))
    entries = [
        exp.PropertyEQ(this=exp.Identifier(this=name, quoted=True), expression=value.tree)
        for name, value in zip(type_.engine_names, values, strict=True)
    ]
    return Typed(exp.Struct(expressions=entries), type_, all(value.total for value in values))


# ------------------------------------------------------------------ functions


def _call(node: exp.Anonymous, scope: Scope) -> Typed:
    check_needs_over(node)
    function = find_function(node.name, span_of(node))
    check_clauses(node, function)
    if function.kind == "aggregate":
        raise InvalidStatement(f"the aggregate {node.name} cannot stand here", span=span_of(node))
    if function.kind == "table":
        raise InvalidStatement(
            f"the table function {node.name} can only stand in SELECT, at the top", span=span_of(node)
        )
    return compile_call(function, node, scope)


def compile_call(function: Function, node: exp.Anonymous, scope: Scope) -> Typed:
    """A scalar or table function with its arguments; of a table function, the array it unfolds."""
    written = [argument for argument in node.expressions if not isinstance(argument, exp.Star)]
    compiled: list[Typed | _LambdaBody] = []
    types: list[SqlType | LambdaArgument] = []
    for position, argument in enumerate(written):
        if isinstance(argument, exp.Lambda):
            body = _LambdaBody(argument, scope)
            compiled.append(body)
            types.append(LambdaArgument(body.names, lambda types, body=body: body.of(types).type))
        elif (unit := interval_unit(argument, function, position)) is not None:
            compiled.append(unit)
            types.append(INTERVAL_UNIT)
        else:
            typed = compile_expression(argument, scope)
            compiled.append(typed)
            types.append(typed.type)
    call = function.resolve(types, span_of(node))
    trees: list[exp.Expression] = []
    for position, typed in enumerate(compiled):
        count_step(node, None if isinstance(typed, _LambdaBody) else typed.tree)
        if isinstance(typed, _LambdaBody):
            trees.append(typed.rendered(call.lambda_types[position]))
        elif typed.type == INTERVAL_UNIT:
            trees.append(typed.tree)
        else:
            trees.append(coerced(typed, call.parameter_types[position]).tree)
    try:
        tree = call.render(trees)
    except StatementError as refused:  # what an argument says, not its type
        refused.span = refused.span or span_of(node)
        raise
    if any(tree == argument for argument in trees):
        tree = exp.Coalesce(this=tree, expressions=[])  # AS_VALUE(key) has the key's value, but is not the key
    return Typed(tree, call.return_type)


class _LambdaBody:
    """A lambda in a call. Its body is compiled once for the types of its arguments, however often they are tried:
    lambdas stand in lambdas, and what each level did twice, the innermost would do more often than anybody can wait."""

    def __init__(self, node: exp.Lambda, scope: Scope) -> None:
        self.names = tuple(parameter.name for parameter in node.expressions)
        if len(set(self.names)) < len(self.names):
            raise InvalidStatement("a lambda's arguments must have different names", span=span_of(node))
        self._node = node
        self._scope = scope
        self._compiled: dict[tuple[SqlType, ...], Typed] = {}

    def of(self, types: tuple[SqlType, ...]) -> Typed:
        """The body, where the arguments have these types."""
        if types not in self._compiled:
            self._compiled[types] = compile_expression(self._node.this, self._scope.with_lambda(self.names, types))
        return self._compiled[types]

    def rendered(self, types: Sequence[SqlType]) -> exp.Expression:
        inner = self._scope.with_lambda(self.names, tuple(types))
        parameters = [exp.to_identifier(inner.lambda_name(name)) for name in self.names]
        return exp.Lambda(this=self.of(tuple(types)).tree, expressions=parameters)


# ------------------------------------------------------------------ small helpers


def _function(name: str, *arguments: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _grouped(tree: exp.Expression) -> exp.Expression:
    """In parentheses where an operator around it could take it apart."""
    simple = isinstance(tree, exp.Column | exp.Literal | exp.Paren | exp.Anonymous | exp.Func | exp.Null | exp.Boolean)
    return tree if simple and not isinstance(tree, exp.Connector | exp.Case) else exp.Paren(this=tree)


def _false_for_null(tree: exp.Expr) -> exp.Expression:
    return exp.Coalesce(this=tree, expressions=[exp.false()])


def _as(tree: exp.Expression, type_: SqlType) -> exp.Expression:
    return exp.Cast(this=tree, to=exp.DataType.build(type_.duckdb, dialect="duckdb"))
