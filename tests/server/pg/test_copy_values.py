"""COPY … FROM STDIN without a server: bytes in, columns out."""

from __future__ import annotations

import asyncio
import decimal
import time
from typing import Any, cast

import pytest

from millstream.planner.schema import Column, Schema
from millstream.planner.source_info import SourceInfo
from millstream.planner.specs import FormatSpec
from millstream.server.pg.pg_copy import CopyInAsked, copy_asked
from millstream.server.pg.pg_copy_in import CopyIn, copy_into
from millstream.server.pg.pg_session import PgContext, PgSession
from millstream.server.pg.pg_statements import pg_statements
from millstream.server.pg.sqlstates import PgRefused
from millstream.server.security.rights import Rights
from millstream.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, Array, Decimal, Field, Map, SqlType, Struct

EXACT = Struct((Field("A", Decimal(20, 2)), Field("B", BIGINT), Field("C", DOUBLE), Field("d", BYTES)))


def copying(options: str, **columns: SqlType) -> CopyIn:
    schema = Schema(tuple(Column(name, type_) for name, type_ in columns.items()))
    source = SourceInfo("T", "STREAM", "t", schema, FormatSpec("KAFKA"), FormatSpec("JSON"))
    asked = copy_asked(pg_statements(f"COPY t FROM STDIN {options}")[0])
    assert isinstance(asked, CopyInAsked)
    return copy_into(asked, {"T": source})


def rows_of(copy: CopyIn, data: bytes) -> list[tuple[Any, ...]]:
    copy.feed(data)
    copy.end()
    table = copy.taken(0)
    return [] if table is None else [tuple(row.values()) for row in table.to_pylist()]


def json_value(type_: SqlType, text: str) -> Any:
    ((value,),) = rows_of(copying("(FORMAT csv, QUOTE '~')", J=type_), f"~{text}~\n".encode())
    return value


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (EXACT, '{"A":123456789012345678.12}',
         {"A": decimal.Decimal("123456789012345678.12"), "B": None, "C": None, "d": None}),
        (EXACT, '{"a":"1.5","b":9007199254740993,"c":1,"d":"AP8="}',
         {"A": decimal.Decimal("1.50"), "B": 9007199254740993, "C": 1.0, "d": b"\0\xff"}),
        (EXACT, '{"B":4.0,"C":1e3}', {"A": None, "B": 4, "C": 1000.0, "d": None}),
        (Map(STRING, INTEGER), '{"a":null,"b":1}', [("a", None), ("b", 1)]),
        (Map(STRING, INTEGER), "{}", []),
        (Array(Map(STRING, Array(BIGINT))), '[{"x":[1,null]},null]', [[("x", [1, None])], None]),
        (EXACT, "null", None),
    ],
)  # fmt: skip
def test_json_is_what_its_column_declares(type_: SqlType, text: str, value: Any) -> None:
    assert json_value(type_, text) == value


@pytest.mark.parametrize(
    "text",
    ['{"B":18446744073709551615}', '{"B":1.5}', '{"B":1e999999999}', '{"C":1e999}', '{"C":NaN}', '{"A":1e30}',
     '{"A":{}}', '{"nope":1}', '{"a":1,"A":2}', "[1]", "7", "{", "[" * 100_000, '{"d":"?"}'],
)  # fmt: skip
def test_json_that_does_not_fit_names_its_row_and_column(text: str) -> None:
    with pytest.raises(PgRefused, match="row 1: column j is STRUCT<"):
        json_value(EXACT, text)


@pytest.mark.parametrize(
    ("type_", "text"),
    [(Decimal(6, 2), "12345.6"), (Decimal(6, 2), "1.234"), (Array(Decimal(6, 2)), "{1.5,12345.6}")],
)
def test_a_decimal_that_does_not_fit_is_named_with_its_row(type_: SqlType, text: str) -> None:
    with pytest.raises(PgRefused) as refused:
        rows_of(copying("", j=type_), b"\\N\n" + text.encode() + b"\n")
    assert str(refused.value).startswith(f"row 2: column j is {type_}: {text} does not fit")


@pytest.mark.parametrize("text", ['{"x":"\\ud800"}', '{"\\ud800":"x"}'])
def test_text_of_json_that_is_no_unicode_is_refused(text: str) -> None:
    with pytest.raises(PgRefused, match="column j is MAP<"):
        json_value(Map(STRING, STRING), text)


def test_maps_of_many_keys_take_time_for_their_entries_only() -> None:
    rows = b"".join(b'~{"k%d":%d}~\n' % (number, number) for number in range(5_000))
    began = time.process_time()
    found = rows_of(copying("(FORMAT csv, QUOTE '~')", J=Map(STRING, INTEGER)), rows)
    assert found[4_999] == ([("k4999", 4999)],)
    assert time.process_time() - began < 5


def test_large_rows_are_taken_before_they_are_many() -> None:
    copy = copying("(FORMAT csv)", J=STRING)
    taken = 0
    for _ in range(64):
        copy.feed(b"x" * (1 << 20) + b"\n")
        assert copy.held_bytes <= 9 << 20
        table = copy.taken(10_000)
        taken += 0 if table is None else table.num_rows
    assert 48 <= taken <= 64


def test_a_cell_of_csv_may_be_long() -> None:
    assert rows_of(copying("(FORMAT csv)", J=STRING), b"x" * 200_000 + b"\n") == [("x" * 200_000,)]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (rb"\x41\101\x4a\7", "AAJ\7"), (rb"\xg", "xg"), (rb"\1012", "A2"),
        (rb"\xc3\xa9 \303\251", "é é"),
        (b"a\\\nb", "a\nb"), (b"a\\\\", "a\\"), (rb"\q", "q"), (b"a\\\r", "a\r"),
    ],
)  # fmt: skip
def test_text_has_the_escapes_of_postgresql(data: bytes, value: str) -> None:
    for size in (1, len(data) + 1):  # pieces may end in an escape
        copy, whole = copying("", J=STRING), data + b"\n"
        for begin in range(0, len(whole), size):
            copy.feed(whole[begin : begin + size])
        copy.end()
        table = copy.taken(0)
        assert table is not None and table["J"].to_pylist() == [value]


def test_escapes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(PgRefused, match="row 1: column j is STRING: 'utf-8' codec"):
        rows_of(copying("", J=STRING), rb"\xff" + b"\n")


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (b'a"x"b,c', ("axb", "c")), (b'"a""b"x,', ('a"bx', None)), (b'a",",c', ("a,", "c")), (b'"",', ("", None)),
        (b',""', (None, "")), (b'x"",y', ("x", "y")),
    ],
)  # fmt: skip
def test_quotes_of_csv_may_stand_within_a_cell(line: bytes, cells: tuple[str | None, ...]) -> None:
    assert rows_of(copying("(FORMAT csv)", A=STRING, B=STRING), line + b"\n") == [cells]


@pytest.mark.parametrize(
    "options",
    [
        "(FORMAT csv, QUOTE ',')", "(FORMAT csv, NULL 'a,b')", "(FORMAT csv, NULL '\"')", "(DELIMITER 'a')",
        "(DELIMITER '.')", "(NULL E'a\\tb')", "(ENCODING 'LATIN1')", "(QUOTE '~')", "(FORMAT csv, NULL E'a\\nb')",
        "(FORMAT binary, DELIMITER ',')", "(FORMAT binary, HEADER)",
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_refused(options: str) -> None:
    with pytest.raises(PgRefused):
        copying(options, J=STRING)


@pytest.mark.parametrize("encoding", ["UTF8", "utf-8", "UNICODE"])
def test_utf8_may_be_asked_for(encoding: str) -> None:
    assert rows_of(copying(f"(ENCODING '{encoding}')", J=STRING), "é\n".encode()) == [("é",)]


def test_a_copy_that_waits_for_its_client_can_be_cancelled() -> None:
    async def wait() -> None:
        session = PgSession(cast(PgContext, None), Rights(), "ana", "millstream")
        with session.working():
            for _ in range(2):
                asyncio.get_running_loop().call_later(0.05, session.cancel)
            with pytest.raises(PgRefused, match="user request"):
                await session.received(lambda: asyncio.sleep(60))
        with session.working():
            assert await session.received(lambda: asyncio.sleep(0, "next")) == "next"

    asyncio.run(asyncio.wait_for(wait(), 30))
