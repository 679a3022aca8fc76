"""INSERT INTO … VALUES refuses what its column cannot hold as it is written: it would be NULL, or lose digits."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from millstream.errors import InvalidStatement, MillstreamError, TypeMismatch
from millstream.testing import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(
            "CREATE STREAM s (i INT, b BIGINT, d DECIMAL(4,2), long DECIMAL(38,2), day DATE, clock TIME, "
            "moment TIMESTAMP, yes BOOLEAN, bin BYTES, f DOUBLE, "
            "who STRUCT<age INT, born DATE>, many ARRAY<DATE>, named MAP<STRING, DATE>) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        yield opened


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i", "2147483648"),
        ("i", "-2147483649"),
        ("i", "'3000000000'"),
        ("b", "'9223372036854775808'"),
        ("b", "1e19"),
        ("d", "100.5"),
        ("d", "-100"),
        ("d", "99.995"),
        ("d", "1e5"),
        ("d", "'12345'"),
        ("i", "1.5"),
        ("b", "'2.5'"),
        ("b", "1.5 + 1"),
        ("i", "UNIX_TIMESTAMP()"),
        ("d", "RANDOM()"),
        ("d", "1.555"),
        ("long", "'123456789012345678901234567890.999'"),
        ("long", "-123456789012345678901234567890.999"),
        ("long", "'1000000000000000000000000000000000000'"),
        ("day", "'monday'"),
        ("day", "'2020-01-01T10:00:00'"),
        ("day", "'2020-02-30'"),
        ("clock", "'25:00'"),
        ("moment", "'tomorrow'"),
        ("yes", "'maybe'"),
        ("i", "'NaN'"),
        ("f", "'NaN'"),
        ("f", "'-Infinity'"),
        ("d", "'sNaN'"),
        ("bin", "'!!'"),
        ("who", "STRUCT(age := 1.5)"),
        ("who", "STRUCT(born := 1)"),
        ("who", "STRUCT(born := 'long ago')"),
        ("many", "ARRAY['2020-01-01', 'x']"),
        ("named", "MAP('a' := 'x')"),
    ],
)
def test_what_is_no_value_of_the_columns_type_is_refused(sandbox: Sandbox, column: str, value: str) -> None:
    with pytest.raises(TypeMismatch, match="Expected type"):
        sandbox.execute(f"INSERT INTO s ({column}) VALUES ({value});")
    assert sandbox.consume("s") == []


@pytest.mark.parametrize(
    ("inserted", "message"),
    [
        ("s (nope) VALUES (1)", "Failed to insert values into 'S'. Column name `NOPE` does not exist."),
        ("k VALUES (1)", "Expected a value for each column. Expected Columns: [`A`, `B`]. Got [1]"),
        (
            "k (a, b) VALUES (1, 5)",
            "Failed to insert values into 'K'. Expected type STRING for field `B` but got INTEGER(5)",
        ),
        ("s (i) VALUES ('x')", "Expected type INTEGER for field `I` but got STRING(x)"),
        ("s (i) VALUES (1.50)", "Expected type INTEGER for field `I` but got DECIMAL(1.50)"),
        ("s (many) VALUES (ARRAY[1])", "Expected type ARRAY<DATE> for field `MANY` but got ARRAY(ARRAY[1])"),
        (
            "k (b) VALUES ('x')",
            "Failed to insert values into 'K'. Value for primary key column(s) A is required for tables",
        ),
    ],
)
def test_the_refusal_of_a_row_has_ksqldbs_words(sandbox: Sandbox, inserted: str, message: str) -> None:
    sandbox.execute(
        "CREATE TABLE IF NOT EXISTS k (a INT PRIMARY KEY, b STRING) "
        "WITH (kafka_topic='k', value_format='JSON', partitions=1);"
    )
    with pytest.raises(MillstreamError) as refused:
        sandbox.execute(f"INSERT INTO {inserted};")
    assert message in str(refused.value)


@pytest.mark.parametrize("value", ["1 / 0", "CAST('x' AS INT)", "2147483647 + 1"])
def test_a_value_that_cannot_be_computed_is_refused(sandbox: Sandbox, value: str) -> None:
    with pytest.raises(InvalidStatement, match="Failed to evaluate the value of column `I`"):
        sandbox.execute(f"INSERT INTO s (i) VALUES ({value});")
    assert sandbox.consume("s") == []


def test_what_is_written_as_a_value_of_the_type_goes_in() -> None:
    with Sandbox() as opened:
        opened.execute(
            "CREATE STREAM s (i INT, d DECIMAL(4,2), day DATE, moment TIMESTAMP, yes BOOLEAN, who STRUCT<age INT>) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        opened.execute("INSERT INTO s VALUES ('7', 1.550, '2020-02-29', '2020', 'y', STRUCT(age := 2.0, more := 1));")
        (record,) = opened.consume("s")
        assert record["value"] == {
            "I": 7,
            "D": Decimal("1.55"),
            "DAY": 18_321,
            "MOMENT": 1_577_836_800_000,
            "YES": True,
            "WHO": {"AGE": 2},
        }


def test_what_stands_in_lists_and_maps_is_fitted_as_it_is_alone() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM s (items ARRAY<STRUCT<sku STRING, price DECIMAL(4,2), day DATE>>, "
            "prices MAP<STRING, ARRAY<DECIMAL(4,2)>>) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        sandbox.execute(
            "INSERT INTO s VALUES ("
            "ARRAY[STRUCT(sku := 'a', price := 3, day := '2020-02-29'), STRUCT(sku := 'b', price := 1 + 1, x := 1)], "
            "MAP('a' := ARRAY[1, 2.5, NULL], 'b' := SLICE(ARRAY[1, 2, 3], 1, 2)));"
        )
        (record,) = sandbox.consume("s")
        assert record["value"] == {
            "ITEMS": [{"SKU": "a", "PRICE": 3, "DAY": 18_321}, {"SKU": "b", "PRICE": 2, "DAY": None}],
            "PRICES": {"a": [1, Decimal("2.5"), None], "b": [1, 2]},
        }
        for value, error in [("100", "Expected type"), ("1.555", "Expected type"), ("60 + 40", "Failed to evaluate")]:
            with pytest.raises(MillstreamError, match=error):
                sandbox.execute(f"INSERT INTO s (items) VALUES (ARRAY[STRUCT(price := {value})]);")
            with pytest.raises(MillstreamError, match=error):
                sandbox.execute(f"INSERT INTO s (prices) VALUES (MAP('a' := ARRAY[0, {value}]));")


def test_the_ends_of_the_range_go_in() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM s (i INT, b BIGINT, d DECIMAL(4,2)) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        sandbox.execute("INSERT INTO s VALUES (-2147483648, 9223372036854775807, 99.99), (2147483647, -9, -99.99);")
        values = [record["value"] for record in sandbox.consume("s")]
        assert [(v["I"], v["B"], float(v["D"])) for v in values] == [
            (-2147483648, 9223372036854775807, 99.99),
            (2147483647, -9, -99.99),
        ]


@pytest.mark.parametrize("sign", ["", "-"])
def test_all_digits_of_a_long_decimal_go_in_and_into_a_sum(sign: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "SET 'auto.offset.reset' = 'earliest'; CREATE STREAM s (k INT KEY, d DECIMAL(38,2)) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
            "CREATE TABLE total AS SELECT k, SUM(d) AS d FROM s GROUP BY k;"
        )
        longest = f"{sign}{'9' * 36}.99"
        sandbox.execute(f"INSERT INTO s VALUES (1, '{longest}'), (2, {sign}123456789012345678901234567890.90);")
        sandbox.drain()
        wanted = [Decimal(longest), Decimal(f"{sign}123456789012345678901234567890.90")]
        assert [record["value"]["D"] for record in sandbox.consume("s")] == wanted
        assert [record["value"]["D"] for record in sandbox.consume("TOTAL")] == wanted


def test_a_struct_for_an_avro_union_sets_one_of_its_types_or_none() -> None:
    union = {"name": "U", "type": ["null", "int", "string"], "default": None}
    wanted = {"name": "W", "type": ["int", "string"], "default": 0}
    with Sandbox() as sandbox:
        sandbox.create_topic("t")
        sandbox.register_schema("t", "value", "AVRO", {"type": "record", "name": "r", "fields": [union, wanted]}, 9)
        sandbox.execute("CREATE STREAM s WITH (kafka_topic='t', value_format='AVRO', value_schema_id=9);")
        sandbox.execute(
            "INSERT INTO s (u) VALUES (STRUCT(`int`:=1)); INSERT INTO s (u) VALUES (STRUCT(`string`:='x'));"
        )
        sandbox.execute("INSERT INTO s (u) VALUES (STRUCT(`int`:=CAST(NULL AS INT), `string`:=CAST(NULL AS STRING)));")
        assert [record["value"]["U"] for record in sandbox.consume("t")] == [
            {"int": 1, "string": None},
            {"int": None, "string": "x"},
            None,
        ]
        for column, values, message in [
            ("u", "1, `string`:='x'", "a union of the AVRO schema takes one value, and int, string have one each"),
            ("w", "CAST(NULL AS INT), `string`:=CAST(NULL AS STRING)", "the AVRO schema allows no null"),
        ]:
            with pytest.raises(InvalidStatement, match=message):
                sandbox.execute(f"INSERT INTO s ({column}) VALUES (STRUCT(`int`:={values}));")
