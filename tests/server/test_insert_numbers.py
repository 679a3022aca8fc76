"""INSERT INTO … VALUES refuses a number that its column cannot hold; it would be NULL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import TypeMismatch
from millstream.testing import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(
            "CREATE STREAM s (i INT, b BIGINT, d DECIMAL(4,2)) "
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
    ],
)
def test_a_number_out_of_range_is_refused(sandbox: Sandbox, column: str, value: str) -> None:
    with pytest.raises(TypeMismatch, match="Expected type"):
        sandbox.execute(f"INSERT INTO s ({column}) VALUES ({value});")
    assert sandbox.consume("s") == []


def test_the_ends_of_the_range_go_in() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM s (i INT, b BIGINT, d DECIMAL(4,2)) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        sandbox.execute("INSERT INTO s VALUES (-2147483648, 9223372036854775807, 99.994), (2147483647, -9, -99.99);")
        values = [record["value"] for record in sandbox.consume("s")]
        assert [(v["I"], v["B"], float(v["D"])) for v in values] == [
            (-2147483648, 9223372036854775807, 99.99),
            (2147483647, -9, -99.99),
        ]
