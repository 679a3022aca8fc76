"""Converters of records: numbers keep their digits, and none becomes more bytes than it may."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from millstream.executor.connect.connector_errors import ConnectorFailed
from millstream.executor.connect.converters import converter_of
from millstream.executor.connect.sinks.lake_values import columns_of

JSON = converter_of({}, "value")


@pytest.mark.parametrize("text", ["1.0e5000000", "-1.0e5000000", "1.5e-5000000", "1.0e99999999999"])
def test_a_number_with_a_huge_exponent_stays_a_few_bytes(text: str) -> None:
    written = JSON.to_bytes(JSON.from_bytes(text.encode())) or b""
    assert len(written) < 30
    assert json.loads(written, parse_float=Decimal) == Decimal(text)


@pytest.mark.parametrize("text", ["0.1", "-12345678901234567890.123", "1.5e300", "2.50", "1.0e-320"])
def test_other_numbers_are_written_out(text: str) -> None:
    written = (JSON.to_bytes(JSON.from_bytes(text.encode())) or b"").decode()
    assert "e" not in written.lower() and Decimal(written) == Decimal(text)


@pytest.mark.parametrize("type_", [pa.int64(), pa.int8(), pa.decimal128(38, 2), pa.float64(), pa.timestamp("us")])
def test_a_number_with_a_huge_exponent_is_out_of_range_of_a_column(type_: pa.DataType) -> None:
    with pytest.raises(ConnectorFailed, match="the column n of type"):
        columns_of([{"n": Decimal("1.0e5000000")}], {"n": type_})
    assert columns_of([{"n": Decimal("1.0e5000000")}], {"n": pa.string()}).to_pylist() == [{"n": "1.0E+5000000"}]


@pytest.mark.parametrize("text", ["[0.5, NaN]", "[0.5, Infinity]", "[0.5, -Infinity]", "1.0e9999999999999999999999"])
def test_what_is_no_number_of_json_is_not_in_the_format(text: str) -> None:
    """Without a fraction somewhere in the text it never was."""
    with pytest.raises(ValueError, match=r"is not JSON|no decimal has"):
        JSON.from_bytes(text.encode())


LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    "number", [0, -1, 2**63, LARGEST, LARGEST + 1, -(2**63), -(2**63) - 1, 10**20, -(10**19), 10**38 - 1, 7 * 10**500]
)
@pytest.mark.parametrize("text", ["{}", ' {{"a": [{}, "x"]}}', "[{}, 0.5]"])
def test_a_whole_number_of_any_size_keeps_its_digits(text: str, number: int) -> None:
    given = text.format(number)
    written = JSON.to_bytes(JSON.from_bytes(given.encode())) or b""
    assert json.loads(written) == json.loads(given)


def test_a_whole_number_of_more_than_64_bits_is_exact_in_a_column_of_decimals() -> None:
    text = "12345678901234567890123456789012345678"
    row = JSON.from_bytes(b'{"n": %b}' % text.encode())
    assert columns_of([row], {"n": pa.decimal128(38, 0)}).to_pylist() == [{"n": Decimal(text)}]
    assert columns_of([row], {"n": pa.string()}).to_pylist() == [{"n": text}]
    with pytest.raises(ConnectorFailed, match="the column n of type"):
        columns_of([row], {"n": pa.int64()})


@pytest.mark.parametrize("value", [{"a": 1}, [b"a"], 5, 0.5, True])
def test_the_converter_of_bytes_refuses_what_is_neither_bytes_nor_a_text(value: object) -> None:
    """It passed them on, and the task ended with an error of Arrow's, whatever errors.tolerance said."""
    converter = converter_of({"value.converter": "bytes"}, "value")
    with pytest.raises(ConnectorFailed, match="the bytes converter cannot write a value of type"):
        converter.to_bytes(value)
    assert [converter.to_bytes(given) for given in ("\u00fc", b"a", None)] == [b"\xc3\xbc", b"a", None]


@pytest.mark.parametrize("name", ["integer", "long", "double"])
def test_a_number_that_its_converter_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ConnectorFailed, match=f"the {name} converter cannot write"):
        converter_of({"key.converter": name}, "key").to_bytes(10**400)


@pytest.mark.parametrize("text", ["18446744073709551615", "-9223372036854775808", "1234567890123456789", "0"])
def test_a_whole_number_of_64_bits_is_an_integer(text: str) -> None:
    value = JSON.from_bytes(text.encode())
    assert type(value) is int and value == int(text)


@pytest.mark.parametrize("text", ["12345678901234567e5", "-1E400", "[1,12345678901234567e-20]"])
def test_a_number_with_an_exponent_keeps_its_digits(text: str) -> None:
    assert JSON.from_bytes(text.encode()) == json.loads(text, parse_float=Decimal)
