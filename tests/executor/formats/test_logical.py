"""Single values, as the sandbox produces and consumes them."""

from __future__ import annotations

from decimal import Decimal as Number
from typing import Any

import pytest

from millstream.executor.formats import decode_logical, encode_logical
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, Array, Decimal, Field, Map, SqlType, Struct

JSON = FormatSpec("JSON")
BARE = FormatSpec("JSON", wrap_single=False)
KAFKA = FormatSpec("KAFKA")
DELIMITED = FormatSpec("DELIMITED")


@pytest.mark.parametrize(
    ("spec", "types", "value", "data"),
    [
        (JSON, [STRING], {"v0": Number("1.10"), "x": [None, True, "é"]}, '{"v0":1.10,"x":[null,true,"é"]}'.encode()),
        (JSON, [STRING], "text", b'"text"'),
        (DELIMITED, [STRING, STRING], "a,b", b"a,b"),
        (KAFKA, [INTEGER], 1, b"\0\0\0\1"),
        (KAFKA, [BIGINT], "1", b"\0\0\0\0\0\0\0\1"),
        (KAFKA, [BYTES], "ew==", b"ew=="),
        (KAFKA, [], 12, b"12"),
        (FormatSpec("NONE"), [], "ignored", b"ignored"),
        (JSON, [STRING], None, None),
    ],
)
def test_a_value_is_written_as_it_is(spec: FormatSpec, types: list[SqlType], value: Any, data: bytes | None) -> None:
    assert encode_logical(spec, [Column(f"V{i}", type_) for i, type_ in enumerate(types)], value) == data


@pytest.mark.parametrize(
    ("spec", "type_", "data", "value"),
    [
        (JSON, Decimal(4, 2), b'{"V":1.1}', {"V": Number("1.10")}),
        (JSON, DOUBLE, b'{"v":1}', {"v": 1.0}),
        (JSON, BYTES, b'{"V":"ew=="}', {"V": "ew=="}),
        (JSON, Array(DOUBLE), b'{"V":[1,null]}', {"V": [1.0, None]}),
        (JSON, Map(STRING, Decimal(3, 1)), b'{"V":{"a":1}}', {"V": {"a": Number("1.0")}}),
        (JSON, Struct((Field("F", DOUBLE),)), b'{"V":{"F":2,"G":2.5}}', {"V": {"F": 2.0, "G": 2.5}}),
        (JSON, STRING, b"null", None),
        (BARE, DOUBLE, b"2", 2.0),
        (DELIMITED, STRING, b"a,b", "a,b"),
        (KAFKA, INTEGER, b"\0\0\0\1", 1),
        (KAFKA, BYTES, b"\xff", b"\xff"),
        (KAFKA, STRING, b"a", "a"),
        (KAFKA, STRING, None, None),
    ],
)
def test_bytes_become_the_value_of_their_column(
    spec: FormatSpec, type_: SqlType, data: bytes | None, value: Any
) -> None:
    decoded = decode_logical(spec, [Column("V", type_)], data)
    assert repr(decoded) == repr(value)
