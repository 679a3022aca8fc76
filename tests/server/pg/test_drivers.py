"""Drivers of Python: psycopg, asyncpg, SQLAlchemy and pandas over psycopg."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import io
import threading
from typing import Any

import pytest
from waiting import eventually, once

from millstream.server.service import Service

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")

ADA = (
    "ada", "Ada", 3, 7, 1.5, True, decimal.Decimal("12.50"), b"\x00\xff", datetime.date(2020, 2, 3),
    datetime.time(10, 11, 12), datetime.datetime(2020, 1, 2, 3, 4, 5, 678000), ["a", 'b "c"', None], [1, 2], {"x": 1},
    {"A": 1, "B": "y"},
)  # fmt: skip


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_every_type_arrives_in_both_formats(dsn: str, binary: bool) -> None:
    with psycopg.connect(dsn) as connection, connection.cursor(binary=binary) as cursor:
        asked = "SELECT * FROM totals WHERE user_id = %s"
        assert cursor.execute(asked, ["ada"]).fetchall() == [ADA]
        assert cursor.execute(asked, ["nil"]).fetchall() == [("nil", *[None] * 14)]
        assert [column.name for column in cursor.description or ()][:2] == ["user_id", "userName"]


PARAMETERS: dict[str, list[Any]] = {
    "n = %s AND i = %s AND f < %s AND ok = %s": [3, 7, 2.5, True],
    "n > %s AND amount = %s": [-5, decimal.Decimal("12.5")],
    "d = %s AND t = %s": [datetime.date(2020, 2, 3), datetime.time(10, 11, 12)],
    "ts > %s AND ts < %s": [datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 3, tzinfo=datetime.UTC)],
    "`userName` = %s": ["Ada"],
    "b = %s": [b"\x00\xff"],
    "ARRAY_CONTAINS(nums, %s) AND ARRAY_LENGTH(nums) = %s": [2, 2],
    "n IN (%s, %s) AND n BETWEEN %s AND %s": [3, 4, 1, 5],
    "n = ANY(%s) AND i <> ALL(%s) AND user_id = SOME((%s))": [[3, None], [8, 9], ["ada", "it's {\"}"]],
    "n = ANY(%s::bigint[]) AND user_id = ANY(CAST(%s AS varchar[]))": [[3, 4], ["ada", "bo"]],
    "n::text = ANY(%s) AND NOT user_id = ANY(%s) AND n <> ALL(%s)": [["3"], ["bo"], [None]],
    "amount = ANY(%s) AND d = ANY(%s)": [[decimal.Decimal("12.5")], [datetime.date(2020, 2, 3)]],
    "n > 0 AND n <> ALL(%s::int[])": [[]],
    "%s = ANY(nums) AND %s <> ALL(nums) AND %s = ANY(tags)": [2, 3, "a"],
}


@pytest.mark.parametrize("sent", ["%s", "%b", "%t"], ids=["as it likes", "binary", "text"])
@pytest.mark.parametrize("condition", PARAMETERS)
def test_parameters_of_every_type_are_taken(dsn: str, condition: str, sent: str) -> None:
    with psycopg.connect(dsn) as connection:
        asked = f"SELECT user_id FROM totals WHERE {condition.replace('%s', sent)}"
        assert connection.execute(asked, PARAMETERS[condition]).fetchall() == [("ada",)]


LISTS: dict[str, list[str]] = {
    "n = ANY(ARRAY[1, 3])": ["ada"],
    "n = ANY ((ARRAY[1, n + 0])::bigint[])": ["ada"],
    "n = ANY('{1,3,NULL}')": ["ada"],
    "n = ANY('{1,3}'::int8[])": ["ada"],
    "n = ANY(ARRAY[]::int[])": [],
    "n = ANY('{}')": [],
    "n = ANY(NULL)": [],
    "user_id = ANY('{\"ada\",x}') AND user_id != ALL(ARRAY['nil'])": ["ada"],
    "user_id <> ALL(ARRAY['nil', 'bo']::text[])": ["ada"],
    "user_id = ANY (SELECT user_id FROM clicks)": ["ada"],
    "user_id <> ALL (SELECT user_id FROM clicks)": ["nil"],
    "'b \"c\"' = ANY(tags) OR 'x' = ANY(tags)": ["ada"],
    "3 <> ALL(nums)": ["ada"],
    "2 <> ALL(nums)": [],
    "1 + 1 = ANY(nums)": ["ada"],
    "i - 7 + 2 * 1 = ANY(nums)": ["ada"],
    "- -(2) = ANY(nums) AND -i <> ALL(nums)": ["ada"],
    "'b ' || '\"c\"' = ANY(tags)": ["ada"],
    "n - 1 = ANY(nums) AND 2.0 = ANY(nums) AND 2.5 <> ALL(nums) AND n <> ALL(nums)": ["ada"],  # n is a BIGINT
    "CAST(2 AS double precision) = ANY(nums)": ["ada"],
}


@pytest.mark.parametrize("condition", LISTS)
def test_any_and_all_look_for_a_value_in_an_array(dsn: str, condition: str) -> None:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(f"SELECT user_id FROM totals WHERE {condition}").fetchall()
        assert sorted(user for (user,) in rows) == LISTS[condition]


def test_a_text_that_is_no_array_has_no_items(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error, match="is no array"):
        connection.execute("SELECT user_id FROM totals WHERE n = ANY('1,2')")


DEEP_LISTS: dict[str, str] = {
    "parentheses": f"n = ANY({'(' * 5000}'{{1}}'{')' * 5000})",
    "casts": f"n = ANY({'CAST(' * 5000}'{{1}}'{' AS int[])' * 5000})",
    "items": f"n = ANY(ARRAY[{'(' * 5000}1{')' * 5000}])",
    "lists in lists": f"{'n = ANY(' * 5000}'{{1}}'{')' * 5000}",
    "searches on the right": f"{'n <> ALL(' * 40}nums{')' * 40}",
    "searches on the left": f"{'(' * 40}n{' = ANY(nums))' * 40}",
}


@pytest.mark.parametrize("condition", DEEP_LISTS.values(), ids=DEEP_LISTS)
def test_lists_in_lists_are_found_empty_or_refused_by_what_is_wrong(dsn: str, condition: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            answer = connection.execute(f"SELECT user_id FROM totals WHERE {condition}").fetchall()
        except psycopg.Error as refused:
            answer = refused.sqlstate
        assert answer in ([], "42601", "42804", "42883")


@pytest.mark.parametrize("sent", ["%b", "%t"], ids=["binary", "text"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_stored_found_and_given_back(dsn: str, number: float, sent: str) -> None:
    name = f"odd_{sent[1]}_{str(number).strip('-')}_{number < 0}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE STREAM {name} (k INT KEY, f DOUBLE) WITH (kafka_topic='{name}', value_format='JSON', partitions=1)"
        )
        connection.execute(f"INSERT INTO {name} VALUES (%s, {sent})", [1, number])
        asked = f"SELECT f FROM {name} WHERE f = {sent} AND f = ANY(%s)"
        for answer in (
            connection.execute(asked, [number, [number]]),
            connection.execute("SELECT %s::float8", [number]),
        ):
            assert [str(value) for (value,) in answer] == [str(number)]


HOSTILE_TEXTS = [
    "x' OR '1' = '1",
    "x'; DROP STREAM clicks; --",
    "$1",
    "%s",
    "\\'",
    "''",
    "a\nb",
    "${x}",
    "é\u202e\U0001f600",
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_parameter_is_data_whatever_it_says(dsn: str, text: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute("SELECT n FROM totals WHERE user_id = %s", [text]).fetchall() == []
        assert connection.execute("SELECT %s::text", [text]).fetchall() == [(text,)]
        assert connection.execute("SELECT COUNT(*) FROM totals").fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ("SELECT n FROM totals WHERE n = %s::bigint", "no number"),
        ("SELECT n FROM totals WHERE d = %s::date", "2020-13-45"),
        ("SELECT n FROM totals WHERE n = %s", "1 OR 1=1"),
    ],
)
def test_a_parameter_that_is_no_value_of_its_type_is_refused(dsn: str, asked: str, value: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute(asked, [value])
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_failed_transaction_takes_nothing_until_it_ends(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn) as error:
            connection.execute("SELECT nope FROM clicks")
        assert error.value.diag.statement_position == "8"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_cursor_over_a_push_query_gives_rows_as_they_come(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE STREAM coming (k STRING KEY, v INT) WITH (kafka_topic='coming', value_format='JSON', partitions=1)"
        )
        connection.execute("SET auto.offset.reset = 'earliest'")
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SELECT k, v FROM coming EMIT CHANGES")
        assert connection.execute("FETCH 5 FROM c WITH (timeout = '50ms')").fetchall() == []
        connection.execute("INSERT INTO coming VALUES ('a', 1), ('b', 2), ('c', 3)")
        assert connection.execute("FETCH 2 FROM c").fetchall() == [("a", 1), ("b", 2)]
        assert connection.execute("FETCH NEXT FROM c").fetchall() == [("c", 3)]
        connection.execute("COMMIT")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH 1 FROM c")


def test_a_push_query_over_a_table_marks_rows_that_are_gone(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE going (k STRING PRIMARY KEY, v INT) "
            "WITH (kafka_topic='going', value_format='JSON', partitions=1)"
        )
        connection.execute("SET auto.offset.reset = 'earliest'")
        connection.execute("INSERT INTO going VALUES ('a', 1)")
        connection.execute("DELETE FROM going WHERE k = 'a'")
        connection.execute("DECLARE g CURSOR FOR SELECT * FROM going EMIT CHANGES")
        assert connection.execute("FETCH 2 FROM g").fetchall() == [("a", 1, False), ("a", None, True)]
        connection.execute("CLOSE g")


def test_a_server_side_cursor_takes_rows_in_parts(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, connection.cursor(name="part") as cursor:
        cursor.execute("SELECT user_id FROM clicks")
        assert cursor.fetchmany(2) == [("ada",), ("bo",)]
        assert cursor.fetchall() == [("cy",)]


def test_what_is_cancelled_ends_and_the_session_goes_on(dsn: str) -> None:
    eventually(lambda: not _push_threads(), otherwise="a query of another test goes on")
    with psycopg.connect(dsn, autocommit=True) as connection:
        once(_push_threads, connection.cancel_safe)  # `cancel` holds the GIL, which the server needs
        with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            connection.execute("SELECT * FROM clicks EMIT CHANGES")
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute("SELECT * FROM clicks EMIT CHANGES")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute("SELECT count(*) FROM generate_series(1, 100000000000) a, generate_series(1, 1000) b")


def test_a_query_ends_when_its_client_goes(dsn: str, service: Service) -> None:
    connection = psycopg.connect(dsn, autocommit=True)
    connection.pgconn.send_query(b"SELECT * FROM clicks EMIT CHANGES")
    eventually(_push_threads)
    connection.pgconn.finish()
    eventually(lambda: not _push_threads())


@pytest.mark.parametrize("simple", [True, False])
def test_a_query_that_is_cancelled_while_it_begins_goes_on_for_nobody(
    dsn: str, service: Service, monkeypatch: pytest.MonkeyPatch, simple: bool
) -> None:
    query = service.engine.query
    with psycopg.connect(dsn, autocommit=True) as connection:

        def cancelled(*arguments: Any, **options: Any) -> Any:
            found = query(*arguments, **options)
            connection.cancel_safe()
            return found

        monkeypatch.setattr(service.engine, "query", cancelled)
        if simple:
            result = connection.pgconn.exec_(b"SELECT * FROM clicks EMIT CHANGES")
            assert b"user request" in result.error_message
        else:
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                connection.execute("SELECT * FROM clicks EMIT CHANGES")
        eventually(lambda: not _push_threads(), otherwise="its thread goes on")


def _push_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("millstream-transient", "millstream-SCALABLE"))]


def test_copy_gives_rows_in_text_and_in_binary(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY (SELECT user_id, size FROM clicks) TO STDOUT") as copy:
            assert list(copy.rows()) == [("ada", "1"), ("bo", "2"), ("cy", "3")]
        with cursor.copy("COPY (SELECT user_id, size FROM clicks) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types(["text", "int4"])
            assert list(copy.rows()) == [("ada", 1), ("bo", 2), ("cy", 3)]


def test_statements_in_a_pipeline_fail_up_to_their_sync(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn):
            _ask_together(connection, "SELECT nope FROM clicks", "SELECT size FROM clicks")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def _ask_together(connection: Any, *statements: str) -> None:
    """The error of one may arrive before the next one is sent, or after."""
    with connection.pipeline():
        for statement in statements:
            connection.execute(statement)


def test_asyncpg_reads_writes_and_copies(service: Service) -> None:
    async def ask() -> None:
        assert service.pg_address is not None
        connection = await asyncpg.connect(
            host="127.0.0.1", port=service.pg_address.port, user="ana", database="millstream"
        )
        (row,) = await connection.fetch(
            "SELECT user_id, `userName`, n, i, f, ok, amount, b, d, t, ts, tags FROM totals WHERE user_id = $1", "ada"
        )
        assert tuple(row) == ADA[:12]
        asked = "SELECT user_id FROM totals WHERE n >= $1 AND amount = $2 AND ts > $3 LIMIT $4"
        values = (1, decimal.Decimal("12.5"), datetime.datetime(2019, 1, 1), 3)
        assert await connection.fetchval(asked, *values) == "ada"
        async with connection.transaction():
            got = [tuple(each) async for each in connection.cursor("SELECT user_id, size FROM clicks", prefetch=2)]
        assert got == [("ada", 1), ("bo", 2), ("cy", 3)]
        out = io.BytesIO()
        await connection.copy_from_query("SELECT size FROM clicks", output=out, format="csv")
        assert out.getvalue() == b"1\n2\n3\n"
        assert await connection.fetchval("SELECT $1::int + 1", 4) == 5
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("SELECT * FROM nothing")
        assert (
            await connection.execute("INSERT INTO secret (id, v) VALUES ($1, $2), ($3, $4)", 1, 2, 3, 4) == "INSERT 0 2"
        )
        await connection.close()

    asyncio.run(asyncio.wait_for(ask(), 150))


def test_a_pool_of_asyncpg_gives_its_connections_back_and_copies_with_arguments(service: Service) -> None:
    """It sends `reset` when a connection comes back, and asks for its arguments as texts in SQL."""

    async def ask() -> None:
        assert service.pg_address is not None
        place = {"host": "127.0.0.1", "port": service.pg_address.port, "user": "ana", "database": "millstream"}
        async with asyncpg.create_pool(**place, min_size=1, max_size=1) as pool:
            assert [await pool.fetchval("SELECT 1"), await pool.fetchval("SELECT 2")] == [1, 2]
            async with pool.acquire() as connection:
                out = io.BytesIO()
                text = "SELECT size FROM clicks WHERE size > $1 AND user_id <> $2"
                await connection.copy_from_query(text, 1, "it's", output=out, format="csv")
                assert out.getvalue() == b"2\n3\n"
                asked = 'SELECT quote_nullable($1::"pg_catalog"."int8"::text), quote_nullable($2)'
                assert tuple(await connection.fetchrow(asked, 1, None)) == ("'1'", "NULL")

    asyncio.run(asyncio.wait_for(ask(), 150))


def test_asyncpg_reads_arrays_of_every_type(service: Service, dsn: str) -> None:
    """It asks pg_type for their elements, by a query whose own columns have to be of types that it knows: of oid[]."""
    columns = "a ARRAY<INT>, b ARRAY<DECIMAL(10, 2)>, c ARRAY<TIMESTAMP>, d ARRAY<BYTES>, e ARRAY<DOUBLE>"
    with psycopg.connect(dsn, autocommit=True) as connection:
        made = f"CREATE STREAM arrays (k INT KEY, {columns})"
        connection.execute(f"{made} WITH (kafka_topic='arrays', value_format='JSON', partitions=1)")
        connection.execute(
            "INSERT INTO arrays VALUES (1, ARRAY[1, NULL], ARRAY[1.25], ARRAY['2020-01-02T03:04:05'],"
            " ARRAY[TO_BYTES('00ff', 'hex')], ARRAY[1.5, NULL])"
        )
        asked = "SELECT array_agg(oid) AS oids, min(typelem) AS element FROM pg_type WHERE typname = '_int4'"
        described = connection.execute(asked).description or ()
        assert [column.type_code for column in described] == [1028, 26]

    async def ask() -> None:
        assert service.pg_address is not None
        connection = await asyncpg.connect(
            host="127.0.0.1", port=service.pg_address.port, user="ana", database="millstream"
        )
        found = await connection.fetch(
            "SELECT n FROM totals WHERE n = ANY($1) AND user_id <> ALL($2)", [3, None], ["b"]
        )
        assert [row["n"] for row in found] == [3]
        found = await connection.fetch("SELECT n FROM totals WHERE $1 = ANY(nums)", 2)
        assert [row["n"] for row in found] == [3]
        (row,) = await connection.fetch("SELECT a, b, c, d, e FROM arrays")
        assert tuple(row) == (
            [1, None], [decimal.Decimal("1.25")], [datetime.datetime(2020, 1, 2, 3, 4, 5)], [b"\x00\xff"], [1.5, None],
        )  # fmt: skip
        await connection.close()

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_sqlalchemy_reflects_and_asks(service: Service) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    assert service.pg_address is not None
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://ana@127.0.0.1:{service.pg_address.port}/millstream")
    inspector = sqlalchemy.inspect(engine)
    assert {"clicks", "totals"} <= set(inspector.get_table_names())
    types = {column["name"]: str(column["type"]) for column in inspector.get_columns("totals")}
    assert (types["amount"], types["tags"], types["ts"], types["m"]) == (
        "NUMERIC(10, 2)",
        "ARRAY",
        "TIMESTAMP",
        "JSON",
    )
    assert inspector.get_pk_constraint("totals")["constrained_columns"] == ["user_id"]
    assert inspector.get_pk_constraint("clicks")["constrained_columns"] == []
    assert inspector.get_foreign_keys("totals") == inspector.get_indexes("totals") == inspector.get_view_names() == []
    assert inspector.get_schema_names() == ["information_schema", "public"]
    assert inspector.get_table_comment("totals") == {"text": "TABLE on topic totals"}
    clicks = sqlalchemy.Table("clicks", sqlalchemy.MetaData(), autoload_with=engine)
    asked = sqlalchemy.select(clicks.c.user_id, sqlalchemy.func.sum(clicks.c.size).label("total"))
    asked = asked.where(clicks.c.size > 1).group_by(clicks.c.user_id).order_by(clicks.c.user_id)
    with engine.connect() as connection:
        assert connection.execute(asked).all() == [("bo", 2), ("cy", 3)]
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_sql("SELECT user_id, size FROM clicks WHERE size > 1", engine)
    assert frame.to_dict("list") == {"user_id": ["bo", "cy"], "size": [2, 3]}
    engine.dispose()
