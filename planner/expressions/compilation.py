"""Types an expression by ksqlDB's rules and renders it as DuckDB SQL.

One recursive function has a branch per node class of `sql/ast.py` and compiles the operands. The operators are here or,
for comparisons and nested values, in separate modules. Where SQL and ksqlDB differ, ksqlDB's rules apply: a comparison
with NULL is false, integers divide as in Java, `+` joins texts, ROWTIME compares with ISO text.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal as PythonDecimal

from sqlglot import exp

from millstream.errors import InvalidStatement, StatementError, TypeMismatch, UnknownColumn, Unsupported

from ...sql import coercion
from ...sql.ast import span_of
from ...sql.functions.casts.failing_casts import NULL_IN_A_LAMBDA
from ...sql.functions.catalog import Function, LambdaArgument, find_function
from ...sql.functions.growth import PIPE_TEXTS, is_few
from ...sql.functions.udf import Udf
from ...sql.printing import print_expression
from ...sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    Decimal,
    SqlType,
    is_numeric,
)
from ..limits import count_step
from .call_words import check_clauses, check_needs_over, interval_unit
from .comparisons import between, comparison, is_in, like
from .connectives import joined
from .conversions import cast_to, coerced, computed, grouped
from .intervals import moved_by_interval
from .nested_values import array_of, field_of, map_of, struct_of, subscript
from .scope import Scope
from .typed import Typed

_ARITHMETIC: dict[type[exp.Expression], coercion.Operator] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_DECIMAL_NAMES = {
    "+": "decimal_add", "-": "decimal_subtract", "*": "decimal_multiply", "/": "decimal_divide", "%": "decimal_modulo",
}  # fmt: skip


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
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.NullSafeEQ() | exp.NullSafeNEQ():
            left, right = _compile_all((node.this, node.expression), scope)
            return comparison(node, left, right, scope)
        case exp.And() | exp.Or():
            return _connective(node, scope)
        case exp.Not():
            operand = _boolean(node.this, scope, "NOT")
            return Typed(exp.Not(this=exp.Paren(this=operand.tree)), BOOLEAN, operand.total)
        case exp.Is():
            operand = compile_expression(node.this, scope)
            return Typed(exp.Is(this=grouped(computed(operand)), expression=exp.Null()), BOOLEAN, operand.total)
        case exp.Between():
            value, low, high = _compile_all((node.this, node.args["low"], node.args["high"]), scope)
            return between(node, value, low, high, scope)
        case exp.In() if not node.args.get("query"):
            value, *options = _compile_all((node.this, *node.expressions), scope)
            return is_in(node, value, options)
        case exp.Like():
            return like(node, *_compile_all((node.this, node.expression), scope), escape=None)
        case exp.Escape():
            operands = _compile_all((node.this.this, node.this.expression), scope)
            return like(node.this, *operands, escape=node.expression)
        case exp.Case():
            return _case(node, scope)
        case exp.Cast():
            return _cast(node, scope)
        case exp.Dot():
            return field_of(node, _struct(node.this, scope))
        case exp.Bracket():
            return subscript(node, *_compile_all((node.this, node.expressions[0]), scope))
        case exp.Array():
            return array_of(node, _compile_all(node.expressions, scope))
        case exp.Map():
            keys, values = node.args["keys"].expressions, node.args["values"].expressions
            return map_of(node, _compile_all(keys, scope), _compile_all(values, scope))
        case exp.Struct():
            return struct_of(node, _compile_all([entry.expression for entry in node.expressions], scope))
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
                "a query can stand in FROM, SELECT and WHERE, but not stand here",
                span=span_of(node),
                hint="Put the statement without this condition into a subquery, and filter outside: SELECT * FROM "
                "(SELECT …) q WHERE q.x > (SELECT …); or join the query: FROM … JOIN (SELECT …) q ON ….",
            )
        case _:
            raise AssertionError(f"the parser makes no {type(node).__name__}")


def _compile_all(nodes: Sequence[exp.Expression], scope: Scope) -> list[Typed]:
    return [compile_expression(node, scope) for node in nodes]


# ------------------------------------------------------------------ leaves


def _literal(node: exp.Literal) -> Typed:
    if node.is_string:
        return Typed(_text(node), STRING, total=True)
    text = node.this
    if any(mark in text for mark in "eE"):
        return Typed(cast_to(exp.Literal.number(text), DOUBLE), DOUBLE, total=True)
    if "." in text:
        digits = PythonDecimal(text).as_tuple()
        scale = -int(digits.exponent)
        precision = max(len(digits.digits), scale)
        if precision > 38:
            raise InvalidStatement(f"the number {text} has more than 38 digits", span=span_of(node))
        decimal = Decimal(precision, scale)
        return Typed(cast_to(exp.Literal.number(text), decimal), decimal, total=True)
    return _integer(int(text), node)


def _text(node: exp.Literal) -> exp.Literal:
    """The text with its span, because a later conversion of the text may fail and needs a place for its error."""
    text = exp.Literal.string(node.this)
    text.meta["span"] = span_of(node)
    return text


def _integer(number: int, node: exp.Expression) -> Typed:
    """An integer literal, including its minus: the smallest value of a type has no positive counterpart."""
    digits = exp.Literal.number(str(abs(number)))
    tree = exp.Neg(this=digits) if number < 0 else digits
    if -(2**31) < number < 2**31:
        return Typed(tree, INTEGER, total=True)
    if number == -(2**31):
        return Typed(cast_to(tree, INTEGER), INTEGER, total=True)
    if -(2**63) <= number < 2**63:
        return Typed(cast_to(tree, BIGINT), BIGINT, total=True)
    raise InvalidStatement(f"Invalid numeric literal: {number}", span=span_of(node), hint="A BIGINT ends at 2^63 - 1.")


# ------------------------------------------------------------------ operators


def _negation(node: exp.Neg, scope: Scope) -> Typed:
    if isinstance(node.this, exp.Literal) and node.this.is_int and node.this.this != "0":
        return _integer(-int(node.this.this), node)
    operand = compile_expression(node.this, scope)
    if not is_numeric(operand.type):
        raise TypeMismatch(f"cannot negate a {operand.type}", span=span_of(node))
    tree: exp.Expression = exp.Neg(this=grouped(operand.tree))
    if tree.find(exp.Column) is None:  # DuckDB gives the opposite of the smallest constant of a type in a wider one
        tree = cast_to(tree, operand.type)
    return Typed(tree, operand.type, isinstance(node.this, exp.Literal))


def _arithmetic(node: exp.Expression, scope: Scope) -> Typed:
    operator = _ARITHMETIC[type(node)]
    left, right = compile_expression(node.this, scope), compile_expression(node.expression, scope)
    if operator == "+" and left.type == STRING and right.type == STRING:
        return _joined(left, right)
    try:
        result = coercion.arithmetic_type(operator, left.type, right.type)
    except TypeMismatch as mismatch:
        message = f"Error processing expression: {print_expression(node)}. {mismatch.message}"
        raise TypeMismatch(message, span=span_of(node), hint=mismatch.hint) from mismatch
    if isinstance(result, Decimal):
        return _of_values(_decimal_arithmetic(operator, left, right, result), scope)
    a, b = grouped(coerced(left, result).tree), grouped(coerced(right, result).tree)
    if operator in "/%":
        b = coercion.divisor(b, result, a)
    if operator == "/" and result in (INTEGER, BIGINT):
        return _of_values(Typed(exp.IntDiv(this=a, expression=b), result), scope)
    return _of_values(Typed(type(node)(this=a, expression=b), result), scope)


def _of_values(computed: Typed, scope: Scope) -> Typed:
    """As in ksqlDB, a lambda that computes with NULL fails, so the result of the whole call is NULL.

    An impossible CAST makes DuckDB fail, too, and the TRY around the expression turns the failure into NULL.
    """
    if not scope.lambdas:
        return computed
    failing = cast_to(exp.Literal.string(NULL_IN_A_LAMBDA), computed.type)
    return Typed(exp.Coalesce(this=computed.tree, expressions=[failing]), computed.type)


def _decimal_arithmetic(operator: str, left: Typed, right: Typed, result: Decimal) -> Typed:
    tree, _ = coercion.decimal_operation(
        _DECIMAL_NAMES[operator], (left.tree, left.type), (right.tree, right.type), result
    )
    return Typed(tree, result)


def _concatenation(node: exp.DPipe, scope: Scope) -> Typed:
    """In ksqlDB `a || b` is another spelling of CONCAT(a, b): it also joins BYTES, and skips NULLs.

    In a lambda the result with NULL is NULL: there a text that exceeded its size limit is NULL, too, as with `s || s`
    in REDUCE, and CONCAT would continue with an empty text.
    """
    sides = _compile_all((node.this, node.expression), scope)
    call = find_function("CONCAT", span_of(node)).resolve([side.type for side in sides], span_of(node))
    if scope.lambdas and call.return_type == STRING:
        return _joined(*sides)
    sides = [coerced(side, wanted) for side, wanted in zip(sides, call.parameter_types, strict=True)]
    return Typed(call.render([side.tree for side in sides]), call.return_type, all(side.total for side in sides))


def _joined(left: Typed, right: Typed) -> Typed:
    total = left.total and right.total
    tree = exp.DPipe(this=grouped(left.tree), expression=grouped(right.tree))
    if not is_few(tree, (left.tree, right.tree)):
        texts = [coerced(side, STRING).tree for side in (left, right)]
        return Typed(Udf(PIPE_TEXTS, (STRING, STRING), STRING).call(texts), STRING, total)
    return Typed(tree, STRING, total)


def _connective(node: exp.Expression, scope: Scope) -> Typed:
    """A chain of ANDs or ORs. It is walked without recursion, because the parser makes long chains left-deep."""
    kind = type(node)
    operands: list[exp.Expression] = []
    while isinstance(node, kind):
        operands.append(node.expression)
        node = node.this
    operands.append(node)
    typed = [_boolean(operand, scope, kind.key.upper()) for operand in reversed(operands)]
    tree = joined(kind, [t.tree for t in typed], [not t.total for t in typed])
    return Typed(tree, BOOLEAN, all(t.total for t in typed))


def _boolean(node: exp.Expression, scope: Scope, operator: str) -> Typed:
    operand = compile_expression(node, scope)
    if operand.type not in (BOOLEAN, NULL):
        raise TypeMismatch(f"{operator} takes BOOLEANs, not {operand.type}", span=span_of(node))
    return operand


def _case(node: exp.Case, scope: Scope) -> Typed:
    operand = node.args.get("this")
    branches: list[tuple[Typed, Typed]] = []
    for branch in node.args["ifs"]:
        if operand is not None:
            count_step(node, operand)
        condition = branch.this if operand is None else exp.EQ(this=operand.copy(), expression=branch.this.copy())
        when = compile_expression(condition, scope)
        if when.type not in (BOOLEAN, NULL):
            raise TypeMismatch(
                f"WHEN operand type should be boolean.\nType for '{print_expression(branch.this)}' is {when.type}",
                span=span_of(branch.this),
            )
        branches.append((when, compile_expression(branch.args["true"], scope)))
    default = node.args.get("default")
    otherwise = compile_expression(default, scope) if default is not None else Typed(exp.Null(), NULL, total=True)
    results = [then for _, then in branches] + [otherwise]
    type_ = _type_of_branches(node, results)
    if type_ == NULL:
        raise InvalidStatement(
            "Invalid Case expression. All case branches have NULL type", span=span_of(node), hint="Cast one to a type."
        )
    branches = [(when, coerced(then, type_)) for when, then in branches]
    otherwise = coerced(otherwise, type_)
    tree = exp.Case(ifs=[exp.If(this=when.tree, true=then.tree) for when, then in branches], default=otherwise.tree)
    parts = [part for pair in branches for part in pair] + [otherwise]
    return Typed(tree, type_, all(part.total for part in parts))


def _type_of_branches(node: exp.Case, results: Sequence[Typed]) -> SqlType:
    """In: `results`: of each THEN, in order, and of ELSE. Raises `TypeMismatch` if they have no common type."""
    *branches, default = results
    common: SqlType = NULL
    for branch, then in zip(node.args["ifs"], branches, strict=True):
        try:
            common = coercion.common_type([common, then.type])
        except TypeMismatch as mismatch:
            raise TypeMismatch(
                "Invalid Case expression. Type for all 'THEN' clauses should be the same.\n"
                f"THEN expression '{print_expression(branch.args['true'])}' has type: {then.type}.\n"
                f"Previous THEN expression(s) type: {common}.",
                span=span_of(branch.args["true"]),
                hint="CAST it.",
            ) from mismatch
    try:
        return coercion.common_type([common, default.type])
    except TypeMismatch as mismatch:
        raise TypeMismatch(
            "Invalid Case expression. Type for the default clause should be the same as for 'THEN' clauses.\n"
            f"THEN type: {common}.\nDEFAULT type: {default.type}.",
            span=span_of(node.args["default"]),
            hint="CAST it.",
        ) from mismatch


def _cast(node: exp.Cast, scope: Scope) -> Typed:
    value = compile_expression(node.this, scope)
    target = scope.type(node.meta["to"], span_of(node))
    count_step(node, value.tree)
    try:
        return Typed(coercion.cast_sql(value.tree, value.type, target, explicit=True), target)
    except TypeMismatch as mismatch:
        part = {"SELECT": "Select", "WHERE": "Predicate", "HAVING": "Predicate"}.get(scope.clause, "Expression")
        raise TypeMismatch(f"Invalid {part}: {mismatch.message}", span=span_of(node)) from mismatch


def _struct(node: exp.Expression, scope: Scope) -> Typed:
    """The operand before ->. Other SQL dialects write lambdas with ->, so the error gets a hint."""
    try:
        return compile_expression(node, scope)
    except UnknownColumn as unknown:
        if isinstance(node, exp.Column) and unknown.hint is None:
            unknown.hint = f"-> takes a field of a STRUCT. A lambda is written with =>, as in {node.name} => …."
        raise


# ------------------------------------------------------------------ functions


def _call(node: exp.Anonymous, scope: Scope) -> Typed:
    check_needs_over(node)
    function = find_function(node.name, span_of(node))
    check_clauses(node, function)
    if function.kind == "aggregate":
        raise InvalidStatement(f"the aggregate {node.name} cannot stand here", span=span_of(node))
    if function.kind == "table":
        raise InvalidStatement(
            f"the table function {node.name} can only stand in SELECT, at the top",
            span=span_of(node),
            hint=f"Take its rows from a subquery: FROM (SELECT {node.name}(…) AS x, … FROM …) q WHERE x = ….",
        )
    return compile_call(function, node, scope)


def compile_call(function: Function, node: exp.Anonymous, scope: Scope) -> Typed:
    """A call of a scalar or table function; for a table function, the array that it unnests."""
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
    except StatementError as refused:  # refused because of an argument's value, not its type
        refused.span = refused.span or span_of(node)
        raise
    if any(tree == argument for argument in trees):
        tree = exp.Coalesce(this=tree, expressions=[])  # AS_VALUE(key) has the key's value, but is not the key
    return Typed(tree, call.return_type, total=call.volatile and not trees)


class _LambdaBody:
    """A lambda in a call. Its body is compiled only once for the same argument types, although overload resolution may
    try them several times: lambdas can be nested, and compiling twice per level would be exponential in the depth."""

    def __init__(self, node: exp.Lambda, scope: Scope) -> None:
        self.names = tuple(parameter.name for parameter in node.expressions)
        scope.check_lambda(self.names, span_of(node))
        self._node = node
        self._scope = scope
        self._compiled: dict[tuple[SqlType, ...], Typed] = {}

    def of(self, types: tuple[SqlType, ...]) -> Typed:
        """The body for arguments of these types."""
        if types not in self._compiled:
            self._compiled[types] = compile_expression(self._node.this, self._scope.with_lambda(self.names, types))
        return self._compiled[types]

    def rendered(self, types: Sequence[SqlType]) -> exp.Expression:
        inner = self._scope.with_lambda(self.names, tuple(types))
        parameters = [exp.to_identifier(inner.lambda_name(name)) for name in self.names]
        return exp.Lambda(this=self.of(tuple(types)).tree, expressions=parameters)
