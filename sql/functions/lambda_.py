"""Functions that take lambdas.

A lambda of a map's key and value becomes one of the map's entry, because DuckDB's lists of entries have lambdas and
its maps have not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sqlglot import exp

from ..types import SqlType
from .function import BoundCall, Function, scalar, variant
from .template import fill, names_in, replace_variables

lambda_function = partial(scalar, category="LAMBDA")


def _fresh(*bodies: exp.Expression) -> exp.Identifier:
    """A variable that none of the bodies names."""
    taken = set[str]().union(*(names_in(body) for body in bodies))
    return exp.to_identifier(next(f"$v{i}" for i in range(len(taken) + 1) if f"$v{i}" not in taken), quoted=True)


def _member(variable: exp.Identifier, name: str) -> exp.Expression:
    return exp.Dot(this=variable.copy(), expression=exp.to_identifier(name))


def _variables(lambda_: exp.Expression) -> list[str]:
    return [parameter.name for parameter in lambda_.expressions]


def _of_entry(lambda_: exp.Expression, entry: exp.Identifier) -> exp.Expression:
    """The body of a lambda of key and value, over the variable of an entry."""
    key, value = _variables(lambda_)
    return replace_variables(lambda_.this, {key: _member(entry, "key"), value: _member(entry, "value")})


def _filter_map(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    map_, condition = arguments
    entry = _fresh(condition)
    kept = exp.Lambda(this=_of_entry(condition, entry), expressions=[entry])
    return fill("map_from_entries(list_filter(map_entries(:map), :kept))", {"map": map_, "kept": kept})


def _transform_map(_call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    map_, key, value = arguments
    entry = _fresh(key, value)
    filling = {"key": _of_entry(key, entry), "value": _of_entry(value, entry)}
    transformed = exp.Lambda(this=fill("{'k': :key, 'v': :value}", filling), expressions=[entry])
    return fill("map_from_entries(list_transform(map_entries(:map), :t))", {"map": map_, "t": transformed})


def _reduce_array(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    list_, state, step = arguments
    state_type, item_type = call.lambda_types[2]
    _, item = _variables(step)
    if state_type == item_type:
        return _guarded(
            list_, state, fill("list_reduce(:list, :step, :state)", {"list": list_, "step": step, "state": state})
        )
    return _reduce(list_, state, step, state_type, item_type, {item: ()})


def _reduce_map(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    map_, state, step = arguments
    state_type, key_type, value_type = call.lambda_types[2]
    _, key, value = _variables(step)
    entries = fill("map_entries(:map)", {"map": map_})
    entry_type = f'STRUCT("key" {key_type.duckdb}, "value" {value_type.duckdb})'
    return _reduce(entries, state, step, state_type, entry_type, {key: ("key",), value: ("value",)})


def _reduce(
    list_: exp.Expression,
    state: exp.Expression,
    step: exp.Expression,
    state_type: SqlType,
    item_type: SqlType | str,
    paths: Mapping[str, tuple[str, ...]],
) -> exp.Expression:
    """Fold a list into a state of another type. DuckDB folds within one type, so each item carries a state along.

    `paths` says for each variable but the state's where it is in an item.
    """
    before = _fresh(step)
    after = exp.to_identifier(before.name + "b", quoted=True)
    values = {_variables(step)[0]: _member(before, "s")}
    for variable, path in paths.items():
        member = _member(after, "x")
        for name in path:
            member = exp.Dot(this=member, expression=exp.to_identifier(name))
        values[variable] = member
    s, x = state_type.duckdb, item_type if isinstance(item_type, str) else item_type.duckdb
    body = fill(f"{{'s': CAST(:body AS {s}), 'x': CAST(NULL AS {x})}}", {"body": replace_variables(step.this, values)})
    folded = fill(
        f"struct_extract(list_reduce(list_transform(:list, lambda \"$e\": {{'s': CAST(NULL AS {s}), 'x': \"$e\"}}), "
        f":step, {{'s': :state, 'x': CAST(NULL AS {x})}}), 's')",
        {"list": list_, "state": state, "step": exp.Lambda(this=body, expressions=[before, after])},
    )
    return _guarded(list_, state, folded)


def _guarded(list_: exp.Expression, state: exp.Expression, folded: exp.Expression) -> exp.Expression:
    text = "CASE WHEN :state IS NULL THEN NULL WHEN :list IS NULL THEN :state ELSE :folded END"
    return fill(text, {"list": list_, "state": state, "folded": folded})


FUNCTIONS: tuple[Function, ...] = (
    lambda_function(
        "filter",
        signatures=[
            variant(
                "(list ARRAY<T>, condition LAMBDA(T) -> BOOLEAN) -> ARRAY<T>", sql="list_filter(:list, :condition)"
            ),
            variant("(map MAP<K, V>, condition LAMBDA(K, V) -> BOOLEAN) -> MAP<K, V>", render=_filter_map),
        ],
        doc="The elements, or the entries, for which the lambda is true. Where it fails for one, as arithmetic with "
        "NULL does, the result is NULL.",
        examples={
            "FILTER(ARRAY[1, 2, 3], x => x > 1)": "ARRAY[2, 3]",
            "FILTER(MAP('a' := 1, 'b' := 2), (k, v) => v > 1 AND k = 'b')": "MAP('b' := 2)",
            "FILTER(CAST(NULL AS ARRAY<INTEGER>), x => x > 1)": "NULL",
            "FILTER(ARRAY[1, 3, NULL], x => x > 1)": "ARRAY[3]",
            "FILTER(ARRAY[1, 3, NULL], x => x + 1 > 1)": "NULL",
            "FILTER(ARRAY[4, NULL], x => x IS NOT NULL AND x / 2 > 1)": "ARRAY[4]",
        },
    ),
    lambda_function(
        "reduce",
        signatures=[
            variant("(list ARRAY<T>, state S, step LAMBDA(S, T) -> S) -> S", render=_reduce_array),
            variant("(map MAP<K, V>, state S, step LAMBDA(S, K, V) -> S) -> S", render=_reduce_map),
        ],
        doc="Start with `state` and let the lambda make the next one, of state and element, or state, key and value.",
        examples={
            "REDUCE(ARRAY[1, 2, 3], 10, (s, x) => s + x)": "16",
            "REDUCE(ARRAY[1, 2], '', (s, x) => CONCAT(s, CAST(x AS STRING)))": "'12'",
            "REDUCE(MAP('a' := 1, 'b' := 2), 0, (s, k, v) => s + v)": "3",
            "REDUCE(CAST(NULL AS ARRAY<INTEGER>), 1, (s, x) => s + x)": "1",
            "REDUCE(ARRAY[1], CAST(NULL AS INTEGER), (s, x) => s + x)": "NULL",
            "REDUCE(ARRAY[1, NULL, 3], 0, (s, x) => s + x)": "NULL",
            "REDUCE(ARRAY[1, NULL, 3], 0, (s, x) => s + COALESCE(x, 0))": "4",
        },
    ),
    lambda_function(
        "transform",
        signatures=[
            variant("(list ARRAY<T>, element LAMBDA(T) -> R) -> ARRAY<R>", sql="list_transform(:list, :element)"),
            variant(
                "(map MAP<K, V>, key LAMBDA(K, V) -> R, value LAMBDA(K, V) -> S) -> MAP<R, S>", render=_transform_map
            ),
        ],
        doc="Each element through the lambda; each entry through one for its key and one for its value. Where a lambda "
        "fails, as arithmetic with NULL does, the result is NULL.",
        examples={
            "TRANSFORM(ARRAY[1, 2], x => x * 10)": "ARRAY[10, 20]",
            "TRANSFORM(MAP('a' := 1), (k, v) => UCASE(k), (k, v) => v + 1)": "MAP('A' := 2)",
            "TRANSFORM(CAST(NULL AS ARRAY<INTEGER>), x => x)": "NULL",
            "TRANSFORM(ARRAY['a', NULL], x => UCASE(x))": "ARRAY['A', NULL]",
            "TRANSFORM(ARRAY[1, NULL], x => x + 1)": "NULL",
            "TRANSFORM(MAP('a' := ARRAY[1], 'b' := NULL), (k, v) => k, (k, v) => ARRAY_MIN(v) * 2)": "NULL",
        },
    ),
)
