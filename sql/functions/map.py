"""Functions about maps."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import Any

from .function import Function, scalar, variant
from .udf import by_row

map_function = partial(scalar, category="MAP")


@by_row
def as_map(keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
    return list(dict(zip_longest(keys, values[: len(keys)])).items())


_ENTRIES = 'list_transform(map_entries(:map), lambda "$e": {\'K\': "$e".key, \'V\': "$e".value})'

FUNCTIONS: tuple[Function, ...] = (
    map_function(
        "AS_MAP",
        signature="(keys ARRAY<STRING>, values ARRAY<T>) -> MAP<STRING, T>",
        doc="The map with these keys and values, in pairs; the last one of equal keys counts.",
        python=as_map,
        examples={"AS_MAP(ARRAY['a', 'b'], ARRAY[1, 2])": "MAP('a' := 1, 'b' := 2)", "AS_MAP(NULL, ARRAY[1])": "NULL"},
    ),
    map_function(
        "ENTRIES",
        signatures=[
            variant(
                f"(map MAP<STRING, {type_}>, sorted BOOLEAN) -> ARRAY<STRUCT<K STRING, V {type_}>>",
                sql=f"CASE WHEN :sorted THEN list_sort({_ENTRIES}) WHEN NOT :sorted THEN {_ENTRIES} END",
            )
            for type_ in ("INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "STRING")
        ],
        doc="The map's entries as structs of K and V, sorted by key where `sorted` is true.",
        examples={
            "ENTRIES(MAP('b' := 2, 'a' := 1), true)": "ARRAY[STRUCT(K := 'a', V := 1), STRUCT(K := 'b', V := 2)]",
            "ENTRIES(CAST(NULL AS MAP<STRING, INTEGER>), true)": "NULL",
        },
    ),
    map_function(
        "map_keys",
        signature="(map MAP<STRING, T>) -> ARRAY<STRING>",
        doc="The map's keys.",
        sql="map_keys(:map)",
        examples={"MAP_KEYS(MAP('a' := 1, 'b' := 2))": "ARRAY['a', 'b']", "MAP_KEYS(NULL)": "NULL"},
    ),
    map_function(
        "map_union",
        signature="(map1 MAP<STRING, T>, map2 MAP<STRING, T>) -> MAP<STRING, T>",
        doc="The entries of both maps; of a key in both, that of `map2`. A NULL counts as empty, unless both are.",
        sql="map_concat(:map1, :map2)",
        examples={
            "MAP_UNION(MAP('a' := 1, 'b' := 2), MAP('a' := 5))": "MAP('a' := 5, 'b' := 2)",
            "MAP_UNION(NULL, MAP('a' := 5))": "MAP('a' := 5)",
            "MAP_UNION(CAST(NULL AS MAP<STRING, INTEGER>), NULL)": "NULL",
        },
    ),
    map_function(
        "map_values",
        signature="(map MAP<STRING, T>) -> ARRAY<T>",
        doc="The map's values.",
        sql="map_values(:map)",
        examples={
            "MAP_VALUES(MAP('a' := 1, 'b' := 2))": "ARRAY[1, 2]",
            "MAP_VALUES(CAST(NULL AS MAP<STRING, INTEGER>))": "NULL",
        },
    ),
)
