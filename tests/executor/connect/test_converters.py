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
