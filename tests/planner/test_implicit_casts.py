"""What a value becomes without CAST, where a statement asks for another type."""

from __future__ import annotations

import pytest
from planning import Planner

from millstream.errors import StatementError
from millstream.sql.coercion import can_coerce
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
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

TYPES: tuple[SqlType, ...] = (
    BOOLEAN, INTEGER, BIGINT, Decimal(4, 2), Decimal(12, 2), DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP,
    Array(INTEGER), Array(BIGINT), Map(STRING, INTEGER), Map(STRING, DOUBLE),
    Struct((Field("A", INTEGER),)), Struct((Field("A", BIGINT), Field("B", STRING))),
)  # fmt: skip

# A row per source, a column per target, in the order of TYPES: = the same, y becomes it, l only as a literal.
TABLE = """
BOOLEAN                          = . . . . . l . . . . . . . . . .
INTEGER                          . = y . y y l . . . . . . . . . .
BIGINT                           . . = . . y l . . . . . . . . . .
DECIMAL(4, 2)                    . . . = y y l . . . . . . . . . .
DECIMAL(12, 2)                   . . . . = y l . . . . . . . . . .
DOUBLE                           . . . . . = l . . . . . . . . . .
STRING                           l l l l l l = y y y y . . . . . .
BYTES                            . . . . . . . = . . . . . . . . .
DATE                             . . . . . . l . = . . . . . . . .
TIME                             . . . . . . l . . = . . . . . . .
TIMESTAMP                        . . . . . . l . . . = . . . . . .
ARRAY<INTEGER>                   . . . . . . . . . . . = y . . . .
ARRAY<BIGINT>                    . . . . . . . . . . . . = . . . .
MAP<STRING, INTEGER>             . . . . . . . . . . . . . = y . .
MAP<STRING, DOUBLE>              . . . . . . . . . . . . . . = . .
STRUCT<`A` INTEGER>              . . . . . . . . . . . . . . . = y
STRUCT<`A` BIGINT, `B` STRING>   . . . . . . . . . . . . . . . . =
"""


def test_each_type_becomes_the_types_of_the_table() -> None:
    assert [_row(source) for source in TYPES] == TABLE.strip().splitlines()


def _row(source: SqlType) -> str:
    return f"{source!s:<33}{' '.join(_mark(source, target) for target in TYPES)}"


def _mark(source: SqlType, target: SqlType) -> str:
    if source == target:
        return "="
    return "y" if can_coerce(source, target) else "l" if can_coerce(source, target, literal=True) else "."


SOURCES = """
CREATE STREAM clicks (id INT KEY, small INT, long BIGINT, many ARRAY<BIGINT>, number INT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
CREATE STREAM prices (id INT KEY, price DECIMAL(5, 2), cost DECIMAL(5, 2))
  WITH (kafka_topic='prices', value_format='JSON', partitions=1);
"""


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO prices SELECT id, 1 AS price, 2.5 AS cost FROM clicks;",
        "INSERT INTO prices SELECT id, -999.99 AS price, 0 AS cost FROM clicks;",
        "CREATE STREAM o AS SELECT id, small FROM clicks WHERE many IN (ARRAY[1], ARRAY['2', NULL], many);",
    ],
)
def test_what_is_written_fits_where_its_value_does(statement: str) -> None:
    list(Planner().plans(SOURCES + statement))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO prices SELECT id, 1000 AS price, 2.5 AS cost FROM clicks;",
        "INSERT INTO prices SELECT id, 1 AS price, 2.505 AS cost FROM clicks;",
        "INSERT INTO prices SELECT id, small AS price, 1 AS cost FROM clicks;",
        "CREATE STREAM o AS SELECT id, small FROM clicks WHERE many IN (ARRAY['two']);",
    ],
)
def test_what_does_not_fit_is_refused(statement: str) -> None:
    with pytest.raises(StatementError, match=r"Incompatible schema|invalid input syntax"):
        list(Planner().plans(SOURCES + statement))
