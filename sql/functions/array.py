"""Functions about arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlglot import exp

from ..coercion import cast_sql
from ..types import STRING, Array, SqlType
from .aggregation.aggregate_values import hashable
from .bounds import count_bytes
from .function import BoundCall, Function, scalar, variant
from .growth import ARRAY_CONCAT, JOIN_LIST, few_lists
from .template import fill
from .udf import Udf, by_row, by_typed_row

array_function = partial(scalar, category="ARRAY")


# ------------------------------------------------------------------ arrays as sets, in the order of the first


def _first_of_each(values: list[Any], key: Callable[[Any], Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(key(value), value)
    return found


def _element(types: tuple[SqlType, ...]) -> SqlType:
    (array, *_) = types
    return array.element if isinstance(array, Array) else STRING


@by_typed_row
def array_distinct(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[[list[Any]], list[Any]]:
    key = hashable(_element(parameters))
    return lambda values: list(_first_of_each(values, key).values())


@by_typed_row
def array_except(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[..., list[Any]]:
    key = hashable(_element(parameters))

    def difference(left: list[Any], right: list[Any]) -> list[Any]:
        unwanted = set(map(key, right))
        return [value for k, value in _first_of_each(left, key).items() if k not in unwanted]

    return difference


@by_typed_row
def array_intersect(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[..., list[Any]]:
    key = hashable(_element(parameters))

    def intersection(left: list[Any], right: list[Any]) -> list[Any]:
        wanted = set(map(key, right))
        return [value for k, value in _first_of_each(left, key).items() if k in wanted]

    return intersection


@by_typed_row
def array_union(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[..., list[Any]]:
    key = hashable(_element(parameters))
    return lambda left, right: list(_first_of_each(left + right, key).values())


# ------------------------------------------------------------------ joining, series


def _joined(call: BoundCall, arguments: list[exp.Expression]) -> exp.Expression:
    """The elements as texts, joined; NULL is the text null."""
    element_type = _element(call.parameter_types)
    text = cast_sql(exp.to_identifier("$e", quoted=True), element_type, STRING, explicit=True)
    delimiter = arguments[1] if len(arguments) > 1 else exp.Literal.string(",")
    filling = {"list": arguments[0], "text": text}
    texts = fill("list_transform(:list, lambda \"$e\": coalesce(:text, 'null'))", filling)
    if isinstance(delimiter, exp.Literal):
        return fill("array_to_string(:texts, :delimiter)", {"texts": texts, "delimiter": delimiter})
    return Udf(JOIN_LIST, (Array(STRING), STRING), STRING).call([texts, delimiter])  # DuckDB wants a constant


_SERIES_MAX = 10_000_000


@by_row
def generate_series(start: int, end: int, step: int | None = None) -> list[int]:
    step = (1 if end > start else -1) if step is None else step
    if (end - start) * step < 0 or step == 0:
        raise ValueError("the step leads away from the end")
    if abs(end - start) // abs(step) > _SERIES_MAX:
        raise ValueError("the series is too long")
    count_bytes(8 * (abs(end - start) // abs(step) + 1))
    return list(range(start, end + (1 if step > 0 else -1), step))


_CONTAINS = (
    'coalesce(CASE WHEN :value IS NULL THEN len(list_filter(:list, lambda "$e": "$e" IS NULL)) > 0 '
    "ELSE list_contains(:list, :value) END, FALSE)"
)
_SLICE = (
    "CASE WHEN coalesce(:start, 1) >= 1 AND coalesce(:stop, len(:list)) <= len(:list) "
    "AND coalesce(:start, 1) <= coalesce(:stop, len(:list)) + 1 "
    "THEN list_slice(:list, coalesce(:start, 1), coalesce(:stop, len(:list))) END"
)
_SORTED = (
    "CASE WHEN upper(:direction) IN ('ASC', 'ASCENDING') THEN list_sort(:list, 'ASC', 'NULLS LAST') "
    "WHEN upper(:direction) IN ('DESC', 'DESCENDING') THEN list_sort(:list, 'DESC', 'NULLS LAST') END"
)
_NULL_LIST = "CAST(NULL AS ARRAY<INTEGER>)"

FUNCTIONS: tuple[Function, ...] = (
    array_function(
        "array_concat",
        signature="(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
        doc="The two arrays concatenated; a NULL counts as empty, unless both are NULL.",
        render=few_lists,
        python=ARRAY_CONCAT,
        examples={
            "ARRAY_CONCAT(ARRAY[1, 2], ARRAY[2, NULL])": "ARRAY[1, 2, 2, NULL]",
            "ARRAY_CONCAT(NULL, ARRAY[1])": "ARRAY[1]",
            f"ARRAY_CONCAT({_NULL_LIST}, NULL)": "NULL",
        },
    ),
    array_function(
        "ARRAY_CONTAINS",
        signature="(list ARRAY<T>, value T) -> BOOLEAN",
        doc="Whether `value` is an element; false for a NULL array.",
        sql=_CONTAINS,
        examples={
            "ARRAY_CONTAINS(ARRAY[1, 2], 2)": "true",
            "ARRAY_CONTAINS(ARRAY[1, NULL], NULL)": "true",
            "ARRAY_CONTAINS(NULL, 2)": "false",
        },
    ),
    array_function(
        "array_distinct",
        signature="(list ARRAY<T>) -> ARRAY<T>",
        doc="The distinct elements, including NULL, in order of first occurrence.",
        python=array_distinct,
        examples={
            "ARRAY_DISTINCT(ARRAY[1, 1, NULL, 3, 1, NULL])": "ARRAY[1, NULL, 3]",
            "ARRAY_LENGTH(ARRAY_DISTINCT(ARRAY[SQRT(-1), LN(-1), 1e0]))": "2",
            f"ARRAY_DISTINCT({_NULL_LIST})": "NULL",
        },
    ),
    array_function(
        "array_except",
        signature="(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
        doc="The distinct elements of `left` that are not in `right`.",
        python=array_except,
        examples={"ARRAY_EXCEPT(ARRAY[1, 2, 3, 1], ARRAY[2, 3])": "ARRAY[1]", "ARRAY_EXCEPT(ARRAY[1], NULL)": "NULL"},
    ),
    array_function(
        "array_intersect",
        signature="(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
        doc="The distinct elements of `left` that are also in `right`.",
        python=array_intersect,
        examples={
            "ARRAY_INTERSECT(ARRAY[1, 2, 3, 1], ARRAY[2, 1])": "ARRAY[1, 2]",
            "ARRAY_INTERSECT(ARRAY[1], NULL)": "NULL",
        },
    ),
    array_function(
        "ARRAY_JOIN",
        signatures=[
            variant("(list ARRAY<T>) -> STRING", render=_joined),
            variant("(list ARRAY<T>, delimiter STRING) -> STRING", render=_joined),
        ],
        doc="The elements as one text, with the delimiter (a comma) between them.",
        examples={
            "ARRAY_JOIN(ARRAY[1, NULL, 3])": "'1,null,3'",
            "ARRAY_JOIN(ARRAY['a', 'b'], '; ')": "'a; b'",
            "ARRAY_JOIN(ARRAY['a', 'b'], CONCAT(';', ' '))": "'a; b'",
            "ARRAY_JOIN(ARRAY['a', 'b'], CAST(NULL AS STRING))": "'ab'",
            f"ARRAY_JOIN({_NULL_LIST})": "NULL",
        },
    ),
    array_function(
        "ARRAY_LENGTH",
        signature="(list ARRAY<T>) -> INTEGER",
        doc="The number of elements.",
        sql="CAST(len(:list) AS INTEGER)",
        examples={"ARRAY_LENGTH(ARRAY[1, NULL])": "2", f"ARRAY_LENGTH({_NULL_LIST})": "NULL"},
    ),
    array_function(
        "array_max",
        signature="(list ARRAY<T>) -> T",
        doc="The largest element, not counting NULLs.",
        sql="list_max(:list)",
        examples={"ARRAY_MAX(ARRAY[-1, 2, NULL, 0])": "2", f"ARRAY_MAX({_NULL_LIST})": "NULL"},
    ),
    array_function(
        "array_min",
        signature="(list ARRAY<T>) -> T",
        doc="The smallest element, not counting NULLs.",
        sql="list_min(:list)",
        examples={"ARRAY_MIN(ARRAY['Foo', 'Bar', NULL, 'baz'])": "'Bar'", f"ARRAY_MIN({_NULL_LIST})": "NULL"},
    ),
    array_function(
        "array_remove",
        signature="(list ARRAY<T>, unwanted T) -> ARRAY<T>",
        doc="The elements that are not equal to `unwanted`, which may be NULL.",
        sql='list_filter(:list, lambda "$e": "$e" IS DISTINCT FROM :unwanted)',
        examples={
            "ARRAY_REMOVE(ARRAY[1, 2, 3, 2, 1], 2)": "ARRAY[1, 3, 1]",
            "ARRAY_REMOVE(ARRAY['a', NULL], NULL)": "ARRAY['a']",
            f"ARRAY_REMOVE({_NULL_LIST}, 1)": "NULL",
        },
    ),
    array_function(
        "array_sort",
        signatures=[
            variant("(list ARRAY<T>) -> ARRAY<T>", sql="list_sort(:list, 'ASC', 'NULLS LAST')"),
            variant("(list ARRAY<T>, direction STRING) -> ARRAY<T>", sql=_SORTED),
        ],
        doc="The elements sorted, 'ASC' (the default) or 'DESC'; NULLs come last.",
        examples={
            "ARRAY_SORT(ARRAY[-1, 2, NULL, 0])": "ARRAY[-1, 0, 2, NULL]",
            "ARRAY_SORT(ARRAY[1, NULL, 2], 'desc')": "ARRAY[2, 1, NULL]",
            f"ARRAY_SORT({_NULL_LIST})": "NULL",
        },
    ),
    array_function(
        "array_union",
        signature="(left ARRAY<T>, right ARRAY<T>) -> ARRAY<T>",
        doc="The distinct elements of both arrays.",
        python=array_union,
        examples={"ARRAY_UNION(ARRAY[1, 2, 1], ARRAY[4, 1])": "ARRAY[1, 2, 4]", "ARRAY_UNION(ARRAY[1], NULL)": "NULL"},
    ),
    array_function(
        "GENERATE_SERIES",
        signatures=[
            "(start INTEGER, stop INTEGER) -> ARRAY<INTEGER>",
            "(start INTEGER, stop INTEGER, step INTEGER) -> ARRAY<INTEGER>",
            "(start BIGINT, stop BIGINT) -> ARRAY<BIGINT>",
            "(start BIGINT, stop BIGINT, step INTEGER) -> ARRAY<BIGINT>",
        ],
        doc="The numbers from `start` to `stop`, both included, in steps of `step` (1 or -1).",
        python=generate_series,
        examples={
            "GENERATE_SERIES(1, 5, 2)": "ARRAY[1, 3, 5]",
            "GENERATE_SERIES(2, 0)": "ARRAY[2, 1, 0]",
            "GENERATE_SERIES(1, 5, -1)": "NULL",
            "GENERATE_SERIES(CAST(NULL AS INTEGER), 5)": "NULL",
        },
    ),
    array_function(
        "slice",
        signature="(list ARRAY<T>, start INTEGER, stop INTEGER) -> ARRAY<T>",
        doc="The elements from `start` to `stop`, both counted from 1 and included; NULL if they do not exist.",
        sql=_SLICE,
        examples={
            "SLICE(ARRAY['a', 'b', 'c', 'd'], 2, 3)": "ARRAY['b', 'c']",
            "SLICE(ARRAY[1, 2], 1, 3)": "NULL",
            "SLICE(ARRAY[1, 2], NULL, NULL)": "ARRAY[1, 2]",
            f"SLICE({_NULL_LIST}, 1, 2)": "NULL",
        },
    ),
)
