"""Structs whose fields differ in case only, structs in IN, and maps with a NULL key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(
            "CREATE STREAM s (id INT KEY, st STRUCT<a BIGINT, `a` BIGINT>, k STRING)"
            " WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        yield opened


def values(sandbox: Sandbox, topic: str) -> list[object]:
    sandbox.drain()
    return [record["value"] for record in sandbox.consume(topic)]


def test_fields_that_differ_in_case_only_keep_their_names_and_values(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM o AS SELECT id, st, st->a AS upper, st->`a` AS lower,"
        " STRUCT(X := st->a, `x` := st->`a`) AS made, CAST(st AS STRUCT<a STRING, `a` DOUBLE>) AS other FROM s;"
    )
    sandbox.produce("s", 1, {"ST": {"A": 1, "a": 2}})
    sandbox.drain()
    assert values(sandbox, "O") == [
        {"ST": {"A": 1, "a": 2}, "UPPER": 1, "LOWER": 2, "MADE": {"X": 1, "x": 2}, "OTHER": {"A": "1", "a": 2.0}}
    ]
    assert list(sandbox.query("SELECT st FROM o;"))[1] == {"row": {"columns": [{"A": 1, "a": 2}]}}


def test_in_reads_texts_inside_of_constructors_and_takes_structs_of_other_fields(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM t (v STRUCT<a BIGINT, b BIGINT>) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
        "CREATE STREAM o AS SELECT * FROM t WHERE v IN (STRUCT(a := '7', b := 2), STRUCT(a := 5), STRUCT(c := 1));"
    )
    for value in ({"A": 7, "B": 2}, {"A": 5}, {"A": 5, "B": 1}):
        sandbox.produce("t", None, {"V": value})
    assert values(sandbox, "O") == [{"V": {"A": 7, "B": 2}}, {"V": {"A": 5, "B": None}}]
    with pytest.raises(MillstreamError, match='invalid input syntax for type BIGINT: "x"'):
        sandbox.execute("CREATE STREAM p AS SELECT * FROM t WHERE v IN (STRUCT(a := 'x'));")
    with pytest.raises(
        MillstreamError, match="operator does not exist: STRUCT<`A` BIGINT, `B` BIGINT> = STRUCT<`A` BOOL"
    ):
        sandbox.execute("CREATE STREAM p AS SELECT * FROM t WHERE v IN (STRUCT(a := true));")


def test_a_map_with_a_null_key_has_the_key_null_as_text(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM o AS SELECT id, MAP(k := 1, 'x' := 2) AS m FROM s;")
    sandbox.produce("s", 1, {"K": None})
    assert values(sandbox, "O") == [{"M": {"null": 1, "x": 2}}]


def test_formats_that_cannot_hold_a_state_or_kafka_values_refuse_to_be_grouped(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM d (id INT KEY, v INT) WITH (kafka_topic='d', value_format='DELIMITED', partitions=1);"
        "CREATE STREAM f (id INT KEY, v INT) WITH (kafka_topic='f', value_format='KAFKA', partitions=1);"
    )
    sandbox.execute("CREATE TABLE fine AS SELECT id, SUM(v) AS n FROM d GROUP BY id;")
    with pytest.raises(MillstreamError, match="has an intermediate type that the value format can not handle"):
        sandbox.execute("CREATE TABLE o AS SELECT id, STDDEV_SAMP(v) AS n FROM d GROUP BY id;")
    with pytest.raises(MillstreamError, match=r"F are using the 'KAFKA' value format. .* GROUP BY"):
        sandbox.execute("CREATE TABLE o AS SELECT id, SUM(v) AS n FROM f GROUP BY id;")
