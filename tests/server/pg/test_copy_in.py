"""COPY … FROM STDIN: rows that clients copy into streams and tables."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import io
import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from millstream.planner.catalog import Catalog
from millstream.server.engine.session import Session
from millstream.server.pg.pg_copy import CopyInAsked, copy_asked
from millstream.server.pg.pg_copy_in import CopyIn, copy_into
from millstream.server.pg.pg_statements import pg_statements
from millstream.server.pg.sqlstates import PgRefused
from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")

TARGET = """CREATE STREAM copied (k STRING KEY, n BIGINT, f DOUBLE, ok BOOLEAN, a DECIMAL(10, 2), d DATE, ts TIMESTAMP,
  tags ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<a INT, `b` STRING>)
  WITH (kafka_topic='copied', value_format='JSON', partitions=1);"""
READ_ONLY = """CREATE SOURCE STREAM read_only (k STRING KEY, n BIGINT)
  WITH (kafka_topic='copied', value_format='JSON', partitions=1);"""
ALL = (
    "a", 1, 1.5, True, decimal.Decimal("2.50"), datetime.date(2020, 1, 2),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 678000), ["x", None, 'y"'], {"p": 1}, {"A": 4, "b": "z"},
)  # fmt: skip


@pytest.fixture(scope="module")
def copied(service: Service) -> Catalog:
    service.engine.execute(TARGET, Session())
    return service.engine.catalog


def asked(catalog: Catalog, text: str) -> CopyIn:
    found = copy_asked(pg_statements(text)[0])
    assert isinstance(found, CopyInAsked)
    return copy_into(found, catalog.sources)


def rows_of(copy: CopyIn, *pieces: bytes) -> list[tuple[Any, ...]]:
    for piece in pieces:
        copy.feed(piece)
    copy.end()
    table = copy.taken(0)
    return [] if table is None else [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("format", ["text", "binary"])
def test_psycopg_copies_every_type(dsn: str, copied: Catalog, format: str) -> None:
    key = f"of {format}"
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        columns = "k, n, f, ok, a, d, ts, tags" if format == "binary" else "k, n, f, ok, a, d, ts, tags, m, s"
        with cursor.copy(f"COPY copied ({columns}) FROM STDIN (FORMAT {format})") as copy:
            if format == "binary":
                copy.set_types(["text", "int8", "float8", "bool", "numeric", "date", "timestamp", "text[]"])
                copy.write_row((key, *ALL[1:8]))
            else:
                copy.write_row((key, *ALL[1:8], '{"p":1}', '{"a":4,"b":"z"}'))
        assert cursor.rowcount == 1
        (row,) = connection.execute("SELECT * FROM copied WHERE k = %s", [key]).fetchall()
        assert row == (key, *ALL[1:8], *((None, None) if format == "binary" else ALL[8:]))


def test_a_copy_of_many_rows_arrives_whole(dsn: str, copied: Catalog) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY copied (k, n) FROM STDIN (FORMAT csv)") as copy:
            copy.write("".join(f"many,{number}\n" for number in range(25_000)))
        assert cursor.rowcount == 25_000
        assert connection.execute("SELECT COUNT(*), SUM(n) FROM copied WHERE k = 'many'").fetchall() == [
            (25_000, 25_000 * 24_999 // 2)
        ]


@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
def test_rows_that_do_not_fit_end_the_copy_and_the_session_goes_on(dsn: str, copied: Catalog, extended: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.Error, match="row 2: column n is BIGINT"):
            _copy_badly(connection, *([()] if extended else []))
        assert connection.execute("SELECT COUNT(*) FROM copied WHERE k = 'good'").fetchone() == (0,)


def _copy_badly(connection: Any, *parameters: Any) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY copied (k, n) FROM STDIN", *parameters) as copy:
        copy.write(b"good\t1\nbad\tone\n")


def test_a_client_may_give_up(dsn: str, copied: Catalog) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(RuntimeError, match="enough"):
            _copy_and_give_up(connection)
        assert connection.execute("SELECT COUNT(*) FROM copied WHERE k = 'given up'").fetchone() == (0,)


def _copy_and_give_up(connection: Any) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY copied (k, n) FROM STDIN") as copy:
        copy.write(b"given up\t1\n")
        raise RuntimeError("enough")


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(dsn: str, copied: Catalog) -> None:
    connection = psycopg.connect(dsn, autocommit=True)
    connection.pgconn.exec_(b"COPY copied (k, n) FROM STDIN")
    connection.pgconn.put_copy_data(b"left\t1\nhalf a row")
    connection.pgconn.finish()
    with psycopg.connect(dsn, autocommit=True) as other:
        assert other.execute("SELECT COUNT(*) FROM copied WHERE k = 'left'").fetchone() == (0,)


def test_asyncpg_copies_records_and_lines(service: Service, copied: Catalog) -> None:
    async def copy() -> int:
        assert service.pg_address is not None
        connection = await asyncpg.connect(
            host="127.0.0.1", port=service.pg_address.port, user="ana", database="millstream"
        )
        rows = [("async", 1), ("async", None), ("async", 3)]
        await connection.copy_records_to_table("copied", records=rows, columns=["k", "n"])
        lines = io.BytesIO(b"async,4\nasync,5\n")
        await connection.copy_to_table("copied", source=lines, columns=["k", "n"], format="csv")
        found = await connection.fetchval("SELECT SUM(n) FROM copied WHERE k = 'async'")
        await connection.close()
        return found

    assert asyncio.run(asyncio.wait_for(copy(), 150)) == 13


def test_psql_copies_a_file(psql: Callable[..., str], tmp_path: Any, copied: Catalog) -> None:
    (tmp_path / "rows.csv").write_text('k,n\n"from, a file",7\n')
    assert psql("-c", "\\copy copied (k, n) from 'rows.csv' with (format csv, header)") == "COPY 1\n"
    assert psql("-Atc", "SELECT n FROM copied WHERE k = 'from, a file'") == "7\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("COPY copied FROM PROGRAM 'id'", "runs no programs"),
        ("COPY copied FROM '/etc/passwd'", "reads no files"),
        ("COPY nothing FROM STDIN", 'relation "nothing" does not exist'),
        ("COPY copied (nope) FROM STDIN", 'column "nope"'),
        ("COPY (SELECT 1) FROM STDIN", "takes the name"),
    ],
)
def test_what_may_not_be_copied_is_refused(dsn: str, copied: Catalog, text: str, error: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.Error, match=error):
            connection.execute(text)
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
def test_what_is_no_message_among_copied_rows_ends_the_connection(
    service: Service, copied: Catalog, capfd: pytest.CaptureFixture[str], extended: bool
) -> None:
    text = b"COPY copied (k, n) FROM STDIN\0"
    asked = (
        framed(b"P", b"\0" + text + bytes(2)) + framed(b"B", bytes(8)) + framed(b"E", bytes(5)) + framed(b"S")
        if extended
        else framed(b"Q", text)
    )
    told = talked(service, asked, framed(b"d", b"x")[:1] + struct.pack("!i", 1 << 30))
    assert b"SFATAL\0" in told
    assert b"C08P01\0" in told
    assert b"SERROR\0" not in told
    assert "connection failed" not in "".join(capfd.readouterr())


def talked(service: Service, asked: bytes, copied: bytes) -> bytes:
    """All that the server says from when it takes rows on, to a client that sends no more."""
    assert service.pg_address is not None
    with socket.create_connection((service.pg_address.host, service.pg_address.port), timeout=60) as client:
        startup = struct.pack("!I", 196608) + b"user\0ana\0database\0millstream\0\0"
        client.sendall(struct.pack("!I", len(startup) + 4) + startup)
        _read_until(client, b"Z\0\0\0\5I")
        client.sendall(asked)
        _read_until(client, b"G\0\0\0")
        client.sendall(copied)
        told = b""
        while piece := client.recv(1 << 16):
            told += piece
        return told


def _read_until(client: socket.socket, wanted: bytes) -> None:
    told = b""
    while wanted not in told:
        piece = client.recv(1 << 16)
        assert piece, told
        told += piece


def framed(letter: bytes, body: bytes = b"") -> bytes:
    return letter + struct.pack("!i", len(body) + 4) + body


@pytest.mark.parametrize(
    ("text", "sqlstate", "error"),
    [
        ("COPY copied (k, n, k) FROM STDIN", "42701", 'column "k" specified more than once'),
        ("COPY read_only FROM STDIN", "42000", "it is read-only"),
    ],
)
def test_what_takes_no_rows_is_refused_before_they_come(
    service: Service, dsn: str, copied: Catalog, text: str, sqlstate: str, error: str
) -> None:
    if "READ_ONLY" not in service.engine.catalog.sources:
        service.engine.execute(READ_ONLY, Session())
    with psycopg.connect(dsn, autocommit=True) as connection:
        result = connection.pgconn.exec_(text.encode())
        assert result.status == psycopg.pq.ExecStatus.FATAL_ERROR, result.status
        assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == sqlstate.encode()
        assert error in result.error_message.decode()


CSV = b'k,n\r\nplain,1\r\n"two\nlines, ""quoted""",2\r\n,\r\n"",3\r\n'


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_read_wherever_pieces_end(copied: Catalog, seed: int) -> None:
    copy = asked(copied, "COPY copied (k, n) FROM STDIN (FORMAT csv, HEADER)")
    chance = random.Random(seed)
    pieces: list[bytes] = []
    rest = CSV
    while rest:
        size = chance.randint(1, 9)
        pieces.append(rest[:size])
        rest = rest[size:]
    assert rows_of(copy, *pieces) == [("plain", 1), ('two\nlines, "quoted"', 2), (None, None), ("", 3)]


def test_text_has_escapes_nulls_and_a_mark_of_the_end(copied: Catalog) -> None:
    copy = asked(copied, "COPY public.copied (k, n) FROM STDIN")
    assert rows_of(copy, b"a\\tb\\\\\t1\n\\N\t\\N\nlast\t2\n\\.\nignored") == [("a\tb\\", 1), (None, None), ("last", 2)]


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("text", b"a\n"), ("text", b"a\t1\t2\n"), ("text", b"\xff\t1\n"), ("csv", b'"open,1\n'), ("csv", b'a"b"c",1\n'),
        ("binary", b"no signature at all"), ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\3"),
        ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\2\xff\xff\xff\xf0"),
        ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\2\0\0\0\1"),
        ("binary", b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\2\0\0\0\1a\0\0\0\1b\xff\xff"),
    ],
)  # fmt: skip
def test_what_is_no_row_is_refused(copied: Catalog, format: str, data: bytes) -> None:
    with pytest.raises(PgRefused):
        rows_of(asked(copied, f"COPY copied (k, n) FROM STDIN (FORMAT {format})"), data)


def test_hostile_rows_are_rows_or_refused(copied: Catalog) -> None:
    good = {
        "text": b"a\t1\nb\\t\t2\n", "csv": CSV,
        "binary": b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\2\0\0\0\1a\0\0\0\x08" + bytes(8) + b"\xff\xff",
    }  # fmt: skip
    chance = random.Random(5)
    for _ in range(1500):
        format = chance.choice(list(good))
        data = bytearray(good[format])
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        copy = asked(copied, f"COPY copied (k, n) FROM STDIN (FORMAT {format})")
        try:
            rows_of(copy, bytes(data[: len(data) // 2]), bytes(data[len(data) // 2 :]))
        except PgRefused:
            pass
