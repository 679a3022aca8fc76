"""Table functions: one row in, many rows out. They render an ARRAY, which the planner unfolds."""

from __future__ import annotations

from itertools import product
from typing import Any

from .bounds import count_bytes
from .function import Function, table_function
from .udf import by_row

_COLUMNS_MAX = 20


@by_row
def cube(columns: list[Any]) -> list[list[Any]]:
    """Every combination of keeping columns and leaving them out; what is NULL anyway is not left out again."""
    if len(columns) > _COLUMNS_MAX:
        raise ValueError(f"too many columns: {len(columns)}, the most is {_COLUMNS_MAX}")
    count_bytes(8 * len(columns) * 2 ** sum(column is not None for column in columns))
    return [list(row) for row in product(*([None] if column is None else [None, column] for column in columns))]


FUNCTIONS: tuple[Function, ...] = (
    table_function(
        "cube_explode",
        signature="(columns ARRAY<T>) -> ARRAY<T>",
        doc="One row for each combination of the columns, each of them kept or NULL.",
        python=cube,
        examples={
            "CUBE_EXPLODE(ARRAY[1, NULL])": "ARRAY[ARRAY[CAST(NULL AS INTEGER), NULL], ARRAY[1, NULL]]",
            "CUBE_EXPLODE(CAST(NULL AS ARRAY<INTEGER>))": "NULL",
        },
    ),
    table_function(
        "explode",
        signature="(list ARRAY<T>) -> T",
        doc="One row for each element; none where the array is NULL or empty.",
        sql=":list",
        examples={"EXPLODE(ARRAY[1, 2])": "ARRAY[1, 2]", "EXPLODE(CAST(NULL AS ARRAY<INTEGER>))": "NULL"},
    ),
)
