"""ARRAY, MAP and STRUCT: access to their parts, and constructors. The functions take compiled operands."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.errors import InvalidStatement, StatementError, TypeMismatch

from ...sql import coercion
from ...sql.ast import span_of
from ...sql.functions.casts.cast_trees import plain_cast
from ...sql.printing import print_expression
from ...sql.types import BIGINT, INTEGER, NULL, STRING, Array, Field, Map, SqlType, Struct
from .conversions import coerced, computed, function_call
from .typed import Typed


def field_of(node: exp.Dot, value: Typed) -> Typed:
    """`value->name`."""
    name = node.expression.name
    if not isinstance(value.type, Struct):
        hint = "Only a STRUCT has fields (->)."
        if isinstance(value.type, Map):
            hint += f" A value of a MAP is taken by its key: {print_expression(node.this)}['{name}']."
        raise TypeMismatch(f"Expected STRUCT type, got: {value.type}", span=span_of(node), hint=hint)
    field = value.type.field(name)
    if field is None:
        names = ", ".join(f.name for f in value.type.fields)
        raise InvalidStatement(
            f"Could not find field '{name}' in '{print_expression(node.this)}'.",
            span=span_of(node),
            hint=f"It is {value.type}, with the fields {names}.",
        )
    return Typed(
        function_call("struct_extract", computed(value), exp.Literal.string(value.type.engine_name(name))),
        field.type,
        value.total,
    )


def subscript(node: exp.Bracket, value: Typed, index: Typed) -> Typed:
    """`value[index]` of an ARRAY or a MAP."""
    if isinstance(value.type, Array):
        if index.type not in (INTEGER, BIGINT):
            raise TypeMismatch(f"an ARRAY's index is an INTEGER, not {index.type}", span=span_of(node))
        element = function_call("list_extract", value.tree, index.tree)
        return Typed(element, value.type.element, value.total and index.total)
    if isinstance(value.type, Map):
        key = coerced(index, value.type.key) if coercion.can_coerce(index.type, value.type.key) else None
        if key is None:
            raise TypeMismatch(f"this MAP's key is {value.type.key}, not {index.type}", span=span_of(node))
        found = function_call("map_extract_value", value.tree, key.tree)
        return Typed(found, value.type.value, value.total and key.total)
    written = print_expression(node)
    raise TypeMismatch(
        f"Subscript expression ({written}) do not apply to {value.type}.",
        span=span_of(node),
        hint="The dereference operator takes the field of a STRUCT: s->name."
        if isinstance(value.type, Struct)
        else "[] takes an element of an ARRAY or of a MAP.",
    )


def array_of(node: exp.Array, items: Sequence[Typed]) -> Typed:
    """`ARRAY[…]`: the items as their common type."""
    if not items:
        raise InvalidStatement(
            "Array constructor cannot be empty. Please supply at least one element "
            "(see https://github.com/confluentinc/ksql/issues/4239).",
            span=span_of(node),
        )
    element = _element_type(items, node.expressions, "ARRAY", "an array with all NULL elements", node)
    items = [coerced(item, element) for item in items]
    trees = [item.tree for item in items]
    return Typed(function_call("list_value", *trees), Array(element), all(item.total for item in items))


def map_of(node: exp.Map, keys: Sequence[Typed], values: Sequence[Typed]) -> Typed:
    """`MAP(key := value, …)`: keys and values as their common types."""
    if not keys:
        raise InvalidStatement(
            "Map constructor cannot be empty. Please supply at least one key value pair "
            "(see https://github.com/confluentinc/ksql/issues/4239).",
            span=span_of(node),
        )
    key = _element_type(keys, node.args["keys"].expressions, "map keys", "a map with all NULL keys", node)
    value = _element_type(values, node.args["values"].expressions, "map values", "a map with all NULL values", node)
    type_ = Map(key, value)
    key_trees = [_map_key(coerced(item, key)) for item in keys]
    value_trees = [coerced(item, value).tree for item in values]
    if _all_differ(key_trees):
        return Typed(_map(key_trees, value_trees), type_)
    entries = [plain_cast(_map([one], [other]), type_) for one, other in zip(key_trees, value_trees, strict=True)]
    return Typed(function_call("map_concat", *entries), type_)


def _map(keys: Sequence[exp.Expression], values: Sequence[exp.Expression]) -> exp.Expression:
    return function_call("map", function_call("list_value", *keys), function_call("list_value", *values))


def _all_differ(keys: Sequence[exp.Expression]) -> bool:
    """Whether no row can have a key twice. DuckDB refuses duplicate keys, but in ksqlDB the last value wins."""
    return len(keys) == 1 or (all(isinstance(key, exp.Literal) for key in keys) and len(set(keys)) == len(keys))


def struct_of(node: exp.Struct, values: Sequence[Typed]) -> Typed:
    """`STRUCT(name := value, …)`."""
    names = [entry.this.name for entry in node.expressions]
    fields = tuple(Field(name, value.type) for name, value in zip(names, values, strict=True))
    repeated = [field for field in fields if names.count(field.name) > 1]
    if repeated:
        first, second = [field for field in repeated if field.name == repeated[0].name][:2]
        raise InvalidStatement(
            f"Duplicate field names found in STRUCT: '`{first.name}` {first.type}' and '`{second.name}` {second.type}'",
            span=span_of(node),
        )
    type_ = Struct(fields)
    trees = [value.tree for value in values] or [exp.Null()]
    entries = [
        exp.PropertyEQ(this=exp.Identifier(this=name, quoted=True), expression=tree)
        for (name, _), tree in zip(type_.stored, trees, strict=True)
    ]
    return Typed(exp.Struct(expressions=entries), type_, all(value.total for value in values))


def _element_type(
    items: Sequence[Typed], written: Sequence[exp.Expression], what: str, untyped: str, node: exp.Expression
) -> SqlType:
    """The type of all `items`. `what` and `untyped` name the expression and its fault in errors."""
    if all(item.type == NULL for item in items):
        raise InvalidStatement(
            f"Cannot construct {untyped} (see https://github.com/confluentinc/ksql/issues/4239).",
            span=span_of(node),
            hint="Cast one NULL to a type, as in CAST(NULL AS STRING).",
        )
    try:
        return coercion.common_type([item.type for item in items], written)
    except StatementError as mismatch:
        raise TypeMismatch(f"Invalid {what} expression. {mismatch.message}", span=span_of(node)) from mismatch


def _map_key(key: Typed) -> exp.Expression:
    """A NULL text becomes the key "null", as in ksqlDB; DuckDB's maps allow no NULL keys."""
    if key.type != STRING or isinstance(key.tree, exp.Literal):
        return key.tree
    return exp.Coalesce(this=key.tree, expressions=[exp.Literal.string("null")])
