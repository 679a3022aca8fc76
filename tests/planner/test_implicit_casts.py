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

# Two that differ only in scale or in digits before the point, and 10 and 19 digits, which hold INTEGER and BIGINT.
TYPES: tuple[SqlType, ...] = (
    BOOLEAN, INTEGER, BIGINT,
    Decimal(4, 2), Decimal(4, 1), Decimal(5, 2), Decimal(9, 0), Decimal(10, 0), Decimal(19, 0), DOUBLE,
    STRING, BYTES, DATE, TIME, TIMESTAMP,
    Array(INTEGER), Array(BIGINT), Array(STRING), Array(TIMESTAMP),
    Map(STRING, INTEGER), Map(STRING, DOUBLE), Map(INTEGER, INTEGER), Map(BIGINT, INTEGER),
    Struct((Field("A", INTEGER),)), Struct((Field("A", BIGINT), Field("B", STRING))), Struct((Field("A", DATE),)),
)  # fmt: skip

# A row per source, a column per target, in the order of TYPES: = the same, y becomes it, l only as a literal.
#
# ksqlDB documents: numbers widen INTEGER → BIGINT → DECIMAL → DOUBLE; ARRAY, MAP and STRUCT by their parts; a literal
# besides from and to STRING. That a STRING becomes a time or BYTES anywhere is what its servers do. We differ where a
# conversion would lose something: a DECIMAL takes only numbers whose digits it has room for (ksqlDB tries each value,
# and fails the row), and a STRUCT becomes only one that has all its fields (ksqlDB's rule takes any two STRUCTs whose
# common fields fit).
TABLE = """
BOOLEAN                          = . . . . . . . . . l . . . . . . . . . . . . . . .
INTEGER                          . = y . . . . y y y l . . . . . . . . . . . . . . .
BIGINT                           . . = . . . . . y y l . . . . . . . . . . . . . . .
DECIMAL(4, 2)                    . . . = . y . . . y l . . . . . . . . . . . . . . .
DECIMAL(4, 1)                    . . . . = y . . . y l . . . . . . . . . . . . . . .
DECIMAL(5, 2)                    . . . . . = . . . y l . . . . . . . . . . . . . . .
DECIMAL(9, 0)                    . . . . . . = y y y l . . . . . . . . . . . . . . .
DECIMAL(10, 0)                   . . . . . . . = y y l . . . . . . . . . . . . . . .
DECIMAL(19, 0)                   . . . . . . . . = y l . . . . . . . . . . . . . . .
DOUBLE                           . . . . . . . . . = l . . . . . . . . . . . . . . .
STRING                           l l l l l l l l l l = y y y y . . . . . . . . . . .
BYTES                            . . . . . . . . . . . = . . . . . . . . . . . . . .
DATE                             . . . . . . . . . . l . = . . . . . . . . . . . . .
TIME                             . . . . . . . . . . l . . = . . . . . . . . . . . .
TIMESTAMP                        . . . . . . . . . . l . . . = . . . . . . . . . . .
ARRAY<INTEGER>                   . . . . . . . . . . . . . . . = y l . . . . . . . .
ARRAY<BIGINT>                    . . . . . . . . . . . . . . . . = l . . . . . . . .
ARRAY<STRING>                    . . . . . . . . . . . . . . . l l = y . . . . . . .
ARRAY<TIMESTAMP>                 . . . . . . . . . . . . . . . . . l = . . . . . . .
MAP<STRING, INTEGER>             . . . . . . . . . . . . . . . . . . . = y l l . . .
MAP<STRING, DOUBLE>              . . . . . . . . . . . . . . . . . . . . = . . . . .
MAP<INTEGER, INTEGER>            . . . . . . . . . . . . . . . . . . . l l = y . . .
MAP<BIGINT, INTEGER>             . . . . . . . . . . . . . . . . . . . l l . = . . .
STRUCT<`A` INTEGER>              . . . . . . . . . . . . . . . . . . . . . . . = y .
STRUCT<`A` BIGINT, `B` STRING>   . . . . . . . . . . . . . . . . . . . . . . . . = .
STRUCT<`A` DATE>                 . . . . . . . . . . . . . . . . . . . . . . . . . =
"""


def test_null_becomes_every_type() -> None:
    assert all(can_coerce(NULL, target) for target in TYPES)
    assert not any(can_coerce(source, NULL) for source in TYPES)


def test_each_type_becomes_the_types_of_the_table() -> None:
    assert [_row(source) for source in TYPES] == TABLE.strip().splitlines()


def _row(source: SqlType) -> str:
    return f"{source!s:<33}{' '.join(_mark(source, target) for target in TYPES)}"


def _mark(source: SqlType, target: SqlType) -> str:
    if source == target:
        return "="
    return "y" if can_coerce(source, target) else "l" if can_coerce(source, target, literal=True) else "."


SOURCES = """
CREATE STREAM clicks (id INT KEY, small INT, long BIGINT, many ARRAY<BIGINT>, number INT, day DATE, moment TIMESTAMP)
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
        "CREATE STREAM o AS SELECT id, small FROM clicks WHERE day IN ('2020-02-29', NULL) OR moment IN ('2020');",
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
        "CREATE STREAM o AS SELECT id, small FROM clicks WHERE day IN ('2020-02-29', 'monday');",
        "CREATE STREAM o AS SELECT id, small FROM clicks WHERE moment IN ('2020-13');",
    ],
)
def test_what_does_not_fit_is_refused(statement: str) -> None:
    with pytest.raises(StatementError, match=r"Incompatible schema|invalid input syntax"):
        list(Planner().plans(SOURCES + statement))
