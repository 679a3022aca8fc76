"""`millstream.connect`: one interface to an engine in this process and to a server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import itertools
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import structlog
from running_server import service_in
from waiting import inside, once

import millstream
from millstream import connection
from millstream.errors import InvalidStatement, MillstreamError
from millstream.parameters import bind
from millstream.server.client_tables import ResultTables

CLICKS = (
    "CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=3);"
)
TOTALS = "CREATE TABLE totals AS SELECT user, COUNT(*) AS n, SUM(size) AS size FROM clicks GROUP BY user;"
EARLIEST = {"auto.offset.reset": "earliest"}


@pytest.fixture(params=["in process", "over HTTP"])
def ms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[millstream.Connection]:
    if request.param == "in process":
        with millstream.connect(properties=EARLIEST) as connection:
            yield connection
        return
    with service_in(tmp_path_factory.mktemp("data")) as service:
        with millstream.connect(f"http://{service.http_address}", EARLIEST) as connection:
            yield connection


def test_every_kind_of_data_frame_goes_in_and_comes_out(ms: millstream.Connection) -> None:
    import pandas
    import polars

    ms.sql(CLICKS)
    for frame in (
        {"user": ["a"], "size": [1]},
        [{"USER": "b", "SIZE": 2}],
        pa.table({"user": ["c"], "size": pa.array([3], pa.int8())}),
        pandas.DataFrame({"user": ["d"], "size": [4]}),
        polars.DataFrame({"user": ["e"], "size": [5]}),
    ):
        assert ms.insert("clicks", frame) == 1
    relation = ms.table("clicks").select("user", "size")
    expected = [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]
    assert sorted(relation.fetchall()) == expected
    assert sorted(relation.df().itertuples(index=False, name=None)) == expected
    assert sorted(relation.pl().rows()) == expected
    assert sorted(polars.DataFrame(relation).rows()) == expected


def test_values_of_every_type_come_back_as_they_went_in(ms: millstream.Connection) -> None:
    rows = pa.table(
        {
            "B": [True, None],
            "I": pa.array([1, None], pa.int32()),
            "L": pa.array([2**40, None]),
            "F": [0.1, None],
            "D": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
            "S": ["ä", None],
            "Y": pa.array([b"\x00\xff", None]),
            "DAY": pa.array([datetime.date(2020, 2, 29), None]),
            "T": pa.array([datetime.time(1, 2, 3), None], pa.time64("us")),
            "TS": pa.array([datetime.datetime(2020, 2, 29, 1), None], pa.timestamp("us")),
            "A": pa.array([[1, None], None], pa.list_(pa.int32())),
            "M": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "R": pa.array([{"X": 1, "Y": "z"}, None], pa.struct([("X", pa.int32()), ("Y", pa.string())])),
        }
    )
    ms.register("everything", rows)
    assert ms.table("everything").arrow().cast(rows.schema).equals(rows)


def test_rows_have_the_times_they_are_given(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    ms.insert("clicks", {"user": ["a"], "size": [1], "rowtime": [5]})
    ms.insert("clicks", {"user": ["b"], "size": [1], "ROWTIME": [datetime.datetime(1970, 1, 1, 0, 0, 1)]})
    assert sorted(ms.sql("SELECT user, ROWTIME FROM clicks;").fetchall()) == [("a", 5), ("b", 1000)]
    with pytest.raises(MillstreamError, match="ROWTIME must not be NULL or negative"):
        ms.insert("clicks", {"user": ["a"], "size": [1], "rowtime": [-1]})


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        ({"usr": ["a"]}, "Column name usr does not exist in stream CLICKS"),
        ({"user": ["a"], "size": ["x"]}, "Column SIZE is INTEGER"),
        ({"user": ["a"], "USER": ["a"]}, "two columns of the rows are USER"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_as_a_whole(
    ms: millstream.Connection, frame: dict[str, Any], complaint: str
) -> None:
    ms.sql(CLICKS)
    with pytest.raises(MillstreamError, match=complaint):
        ms.insert("clicks", frame)
    assert ms.table("clicks").fetchall() == []


def test_a_row_of_a_table_needs_its_key(ms: millstream.Connection) -> None:
    ms.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', format='JSON', partitions=1);")
    with pytest.raises(MillstreamError, match=r"primary key column\(s\) ID is required"):
        ms.insert("t", {"id": [1, None], "v": [1, 2]})


def test_data_frames_join_with_streams_by_name(ms: millstream.Connection) -> None:
    ms.sql(CLICKS.replace("partitions=3", "partitions=1"))
    ms.register("people", {"user": ["ada"], "city": ["London"]}, key="user", kind="TABLE")
    live = ms.sql("SELECT c.user, p.city, c.size FROM clicks c JOIN people p ON c.user = p.user EMIT CHANGES LIMIT 1;")
    ms.insert("clicks", {"user": ["ada"], "size": [7], "ROWTIME": [2_000_000_000_000]})  # not in the same millisecond
    assert live.fetchall() == [("ada", "London", 7)]
    assert ms.sql("SELECT n + 1 AS m FROM numbers;", numbers={"n": [1, 2]}).fetchall() == [(2,), (3,)]


def test_a_frame_replaces_a_frame_and_nothing_else(ms: millstream.Connection) -> None:
    ms.register("numbers", {"n": [1]})
    ms.register("numbers", {"n": [2, 3], "word": ["a", "b"]}, key="word")
    assert sorted(ms.table("numbers").select("n").fetchall()) == [(2,), (3,)]
    ms.sql(CLICKS)
    ms.insert("clicks", {"user": ["ada"], "size": [1]})
    with pytest.raises(InvalidStatement, match='there is a topic "clicks" already'):
        ms.register("clicks", {"n": [1]})
    assert ms.table("clicks").fetchall() == [("ada", 1)]
    with pytest.raises(InvalidStatement, match="no column wrod, the key"):
        ms.register("words", {"word": ["a"]}, key="wrod")


def test_a_live_query_gives_batches_until_it_is_closed(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    ms.sql(TOTALS)
    live = ms.sql("SELECT * FROM totals EMIT CHANGES;").live()
    ms.insert("clicks", {"user": ["ada", "ada"], "size": [1, 2]})
    seen: list[tuple[Any, ...]] = []
    for batch in live:
        assert batch.column_names == ["USER", "N", "SIZE", "@tombstone"]
        seen += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        if seen and seen[-1][1] == 2:
            live.close()
    assert seen[-1] == ("ada", 2, 3, False)


def test_closing_from_another_thread_ends_a_live_query(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    live = ms.sql("SELECT * FROM clicks EMIT CHANGES;").live()
    once(inside(ResultTables.__iter__), live.close)
    assert [batch.num_rows for batch in live if batch.num_rows] == []


def test_batches_come_to_async_code_too(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    ms.insert("clicks", {"user": ["ada", "bo"], "size": [1, 2]})

    async def first_two() -> list[int]:
        found: list[int] = []
        async for batch in ms.sql("SELECT size FROM clicks EMIT CHANGES LIMIT 2;"):
            found += batch["SIZE"].to_pylist()
        return found

    assert sorted(asyncio.run(first_two())) == [1, 2]


def test_what_wants_all_rows_refuses_a_query_without_an_end(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    live = ms.sql("SELECT * FROM clicks EMIT CHANGES;")
    with pytest.raises(InvalidStatement, match="goes on forever") as refused:
        live.df()
    assert refused.value.hint is not None and "LIMIT" in refused.value.hint
    assert repr(live) == "<live query: SELECT * FROM clicks EMIT CHANGES;>"


def test_execute_says_where_rows_are_given(ms: millstream.Connection) -> None:
    with pytest.raises(InvalidStatement, match="SELECT answers with rows") as raised:
        ms.execute("SHOW STREAMS; SELECT 1;")
    assert raised.value.hint is not None and "ms.sql(" in raised.value.hint


def test_relations_are_built_upon(ms: millstream.Connection) -> None:
    ms.register("numbers", {"n": list(range(10)), "word": ["a", "b"] * 5})
    relation = ms.table("numbers").filter("word = 'a'").select("n", "n * n AS square").order_by("n DESC").limit(2, 1)
    assert relation.fetchall() == [(6, 36), (4, 16)]
    assert relation.fetchone() == (6, 36)
    for built_too_late in (lambda: relation.filter("n > 1"), lambda: relation.limit(1)):
        with pytest.raises(InvalidStatement):
            built_too_late()


def test_what_is_shown_of_rows_and_answers(ms: millstream.Connection) -> None:
    assert repr(ms.sql(CLICKS)) == "status\nStream created"
    ms.insert("clicks", {"user": ["ada"] * 30, "size": [1] * 30})
    shown = repr(ms.table("clicks")).splitlines()
    assert shown[0].split() == ["USER", "SIZE"] and len(shown) == 22 and shown[-1] == "…"
    assert "<table" in (ms.table("clicks")._repr_html_() or "")
    described = ms.sql("DESCRIBE clicks;")
    assert isinstance(described, millstream.connection.Answer)
    assert [row["name"] for row in described.rows] == ["USER", "SIZE"]
    assert ms.sql("SHOW TABLES;").df().empty


def test_an_error_while_rows_come_reaches_the_reader(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    with pytest.raises(MillstreamError, match="NOPE"):
        ms.sql("SELECT nope FROM clicks;").fetchall()


def test_many_rows_go_in_as_few_requests_as_the_server_allows(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    count = 200_000
    assert ms.insert("clicks", {"user": [f"user {i % 100}" for i in range(count)], "size": list(range(count))}) == count
    assert ms.table("clicks").select("size").arrow().num_rows == count


@pytest.mark.parametrize(
    ("text", "parameters", "complaint"),
    [
        ("SELECT ?;", [], "more \\? than there are parameters"),
        ("SELECT 1;", [1], "1 of 1 parameters have no \\?"),
        ("SELECT :a;", {"b": 1}, "no value for the parameter :a"),
        ("SELECT ?;", {"b": 1}, "needs a list"),
        ("SELECT ?;", [Decimal("NaN")], "cannot be a parameter"),
        ("SELECT ?;", [object()], "cannot be a parameter"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(text: str, parameters: Any, complaint: str) -> None:
    with pytest.raises(InvalidStatement, match=complaint):
        bind(text, parameters)


def test_parameters_are_values_and_never_sql(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    evil = "'; DROP STREAM clicks; --"
    ms.sql("INSERT INTO clicks VALUES (:user, :size);", {"user": evil, "size": 1})
    assert ms.sql("SELECT user FROM clicks WHERE user = ?;", [evil]).fetchall() == [(evil,)]
    values = [
        1.5,
        Decimal("2.50"),
        b"\x01",
        datetime.date(2020, 1, 2),
        datetime.datetime(2020, 1, 2, 3),
        [1, 2],
        True,
    ]
    asked = ", ".join(f"? AS c{number}" for number, _ in zip(itertools.count(), values, strict=False))
    assert ms.sql(f"SELECT {asked} FROM clicks;", values).fetchall() == [tuple(values)]


def test_numbers_that_are_not_finite_are_parameters(ms: millstream.Connection) -> None:
    ms.sql("CREATE STREAM odd (id INT KEY, f DOUBLE) WITH (kafka_topic='odd', value_format='JSON', partitions=1);")
    odd = [float("nan"), float("inf"), float("-inf")]
    for number, value in enumerate(odd):
        ms.sql("INSERT INTO odd VALUES (?, ?);", [number, value])
    assert str(ms.sql("SELECT f FROM odd;").fetchall()) == str([(value,) for value in odd])
    assert ms.sql("SELECT id FROM odd WHERE f = ?;", [odd[2]]).fetchall() == [(2,)]


def test_no_parameter_becomes_a_comment_a_variable_or_another_number(ms: millstream.Connection) -> None:
    ms.execute("CREATE STREAM given (id INT KEY, n INT, name STRING)"
               " WITH (kafka_topic='given', value_format='JSON', partitions=1); DEFINE x = 'a variable';")  # fmt: skip
    ms.execute("INSERT INTO given (id, n, name) VALUES (?, ?, ?);", [1, -3, "${x}"])
    rows = ms.sql("SELECT n, name, 5 -? AS more FROM given;", [-3]).fetchall()
    assert [tuple(row) for row in rows] == [(-3, "${x}", 8)]


def test_a_folder_keeps_what_was_made(tmp_path: Any) -> None:
    with millstream.connect(tmp_path) as first:
        first.sql(CLICKS)
        first.insert("clicks", {"user": ["ada"], "size": [1]})
    with millstream.connect(tmp_path) as second:
        assert second.table("clicks").fetchall() == [("ada", 1)]


@pytest.fixture
def unconfigured() -> Iterator[None]:
    """structlog, as in a program that says nothing about it."""
    before, was_configured = structlog.get_config(), structlog.is_configured()
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)


@pytest.mark.usefixtures("unconfigured")
def test_warnings_go_to_the_standard_error_of_now() -> None:
    """Notebooks and tests put another file in its place, and close it."""
    closed, now = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(closed):
        connection._quiet_logs()
    closed.close()
    with contextlib.redirect_stderr(now):
        structlog.get_logger("millstream.server").warning("the disk is full")
    assert "the disk is full" in now.getvalue()


@pytest.mark.usefixtures("unconfigured")
def test_an_error_that_is_logged_shows_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = structlog.get_config()["processors"][-1]
    monkeypatch.setattr(renderer, "exception_formatter", structlog.dev.RichTracebackFormatter(show_locals=True))
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        connection._quiet_logs()
        try:
            password = "open sesame" + "!"
            raise ValueError(f"{len(password)} letters are too few")
        except ValueError:
            structlog.get_logger("millstream.server").warning("refused", exc_info=True)
    assert "ValueError: 12 letters are too few" in said.getvalue()
    assert "sesame!" not in said.getvalue()


def test_an_engine_in_process_says_nothing_on_standard_output() -> None:
    stream = "CREATE STREAM s (a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    statements = f"{stream} CREATE STREAM t AS SELECT * FROM s;"
    script = f"import millstream\nms = millstream.connect()\nms.sql({statements!r})\nms.close()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_ctrl_c_ends_a_pull_query_while_a_function_runs() -> None:
    """Wherever the main thread would be: in DuckDB, or in a function that DuckDB calls."""
    script = """
import os, signal, threading, time, millstream
ms = millstream.connect(properties={"auto.offset.reset": "earliest"})
ms.sql("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
ms.sql("CREATE FUNCTION slow(v INT) RETURNS INT LANGUAGE PYTHON AS $$ __import__('time').sleep(4) or v $$;")
ms.insert("s", {"v": [1]})
ms.sql("SELECT v, COUNT(*) AS n FROM s GROUP BY v;").fetchall()
for query in "SELECT slow(v) AS v FROM s LIMIT 1;", "SELECT slow(v) AS v, COUNT(*) AS n FROM s GROUP BY v;":
    began = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        ms.sql(query).fetchall()
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - began < 3, ms.sql("SELECT v FROM s;").fetchall())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False)
    assert ran.stdout == "interrupted True [(1,)]\n" * 2, ran.stderr
