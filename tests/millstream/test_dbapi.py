"""PEP 249 and what stands on it: SQLAlchemy and pandas."""

from __future__ import annotations

from collections.abc import Iterator

import pandas
import pytest
import sqlalchemy
from running_server import service_in
from sqlalchemy.exc import NoSuchTableError

from millstream import dbapi
from millstream.sqlalchemy_dialect import MillstreamDialect


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        url = f"http://{service.http_address}"
        with dbapi.connect(url) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "CREATE TABLE people (id INT PRIMARY KEY, name STRING, `height` DOUBLE, paid DECIMAL(6, 2)) "
                "WITH (kafka_topic='people', format='JSON', partitions=1);"
            )
            cursor.executemany(
                "INSERT INTO people VALUES (?, ?, ?, ?);", [(1, "ada", 1.7, None), (2, "bo", None, None)]
            )
        yield url


@pytest.fixture
def cursor(url: str) -> Iterator[dbapi.Cursor]:
    with dbapi.connect(url) as connection, connection.cursor() as opened:
        yield opened


def test_rows_are_fetched_one_by_one_in_pieces_and_all_at_once(cursor: dbapi.Cursor) -> None:
    cursor.execute("SELECT id, name FROM people ORDER BY id;")
    assert cursor.description == [
        ("ID", "INTEGER", None, None, None, None, None),
        ("NAME", "STRING", None, None, None, None, None),
    ]
    assert cursor.fetchone() == (1, "ada")
    assert cursor.fetchmany(5) == [(2, "bo")]
    assert cursor.fetchone() is None
    assert cursor.execute("SELECT name FROM people WHERE id = ?;", [2]).fetchall() == [("bo",)]
    assert list(cursor.execute("SELECT id FROM people ORDER BY id;")) == [(1,), (2,)]
    assert cursor.description is not None and cursor.description[0][1] == dbapi.NUMBER != dbapi.STRING


def test_a_live_query_is_read_row_by_row(cursor: dbapi.Cursor) -> None:
    cursor.execute("SET 'auto.offset.reset'='earliest';")
    cursor.execute("SELECT id FROM people EMIT CHANGES;")
    assert cursor.fetchmany(2) == [(1,), (2,)]


def test_statements_without_rows_have_a_status(cursor: dbapi.Cursor) -> None:
    cursor.execute("CREATE STREAM IF NOT EXISTS s (a INT) WITH (kafka_topic='s', format='JSON', partitions=1);")
    assert cursor.fetchall() == [("Stream created",)]
    cursor.execute("INSERT INTO s VALUES (1);")
    assert cursor.description is None
    with pytest.raises(dbapi.InterfaceError, match="no statement with rows"):
        cursor.fetchone()


def test_errors_are_those_of_the_standard(cursor: dbapi.Cursor) -> None:
    with pytest.raises(dbapi.ProgrammingError, match="NOPE"):
        cursor.execute("SELECT nope FROM people;")
    with pytest.raises(dbapi.OperationalError, match="no server answers"):
        dbapi.connect("http://127.0.0.1:1")
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        cursor.execute("SELECT 1;")


def test_a_cursor_of_a_closed_connection_is_closed(url: str) -> None:
    connection = dbapi.connect(url)
    cursor = connection.cursor()
    connection.close()
    with pytest.raises(dbapi.InterfaceError, match="the connection is closed"):
        cursor.execute("SHOW TABLES;")


@pytest.fixture
def engine(url: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(f"{url.replace('http', 'millstream')}")
    yield made
    made.dispose()


def test_sqlalchemy_sees_streams_and_tables(engine: sqlalchemy.Engine) -> None:
    assert isinstance(engine.dialect, MillstreamDialect)
    inspector = sqlalchemy.inspect(engine)
    assert "PEOPLE" in inspector.get_table_names()
    columns = {column["name"]: str(column["type"]) for column in inspector.get_columns("PEOPLE")}
    assert columns == {"ID": "INTEGER", "NAME": "VARCHAR", "height": "DOUBLE", "PAID": "DECIMAL(6, 2)"}
    assert inspector.get_pk_constraint("PEOPLE")["constrained_columns"] == ["ID"]
    with pytest.raises(NoSuchTableError):
        inspector.get_columns("NOPE")


def test_sqlalchemy_writes_and_reads_with_its_own_expressions(engine: sqlalchemy.Engine) -> None:
    people = sqlalchemy.Table("PEOPLE", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        connection.execute(people.insert().values(ID=3, NAME="cy", height=1.5, PAID=None))
        query = sqlalchemy.select(people.c.NAME, people.c.height).where(people.c.ID > 1).order_by(people.c.ID.desc())
        assert connection.execute(query.limit(1)).all() == [("cy", 1.5)]


def test_pandas_reads_a_query(engine: sqlalchemy.Engine) -> None:
    frame = pandas.read_sql("SELECT id, `height` FROM people WHERE id < 3;", engine)
    assert frame.columns.tolist() == ["ID", "height"]
    assert sorted(frame["ID"]) == [1, 2]


def test_nested_columns_of_reflected_tables_are_lists_and_dicts(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "CREATE TABLE nested (k STRING PRIMARY KEY, a ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<x INT>) "
                "WITH (kafka_topic='nested', value_format='JSON', partitions=1);"
            )
        )
        nested = sqlalchemy.Table("NESTED", sqlalchemy.MetaData(), autoload_with=engine)
        connection.execute(
            nested.insert(), [{"K": "a", "A": [1, None], "M": {"x": 1}}, {"K": "b", "A": None, "M": None}]
        )
        connection.execute(sqlalchemy.text("INSERT INTO nested (k, s) VALUES ('c', STRUCT(x := 1));"))
        found = connection.execute(sqlalchemy.select(nested).order_by(nested.c.K)).all()
    assert found == [("a", [1, None], {"x": 1}, None), ("b", None, None, None), ("c", None, None, {"X": 1})]
    assert list(pandas.read_sql_table("NESTED", engine)["A"]) == [[1, None], None, None]


def test_expressions_of_sqlalchemy_that_millstream_writes_otherwise(engine: sqlalchemy.Engine) -> None:
    people = sqlalchemy.Table("PEOPLE", sqlalchemy.MetaData(), autoload_with=engine)
    first = sqlalchemy.select(people.c.ID).where(people.c.ID < 3).order_by(people.c.ID)
    is_one = people.c.ID == 1
    with engine.connect() as connection:
        assert connection.execute(first.offset(1)).all() == [(2,)]
        assert connection.execute(first.limit(1).offset(1)).all() == [(2,)]
        assert connection.execute(first.where(is_one.is_(True))).all() == [(1,)]
        assert connection.execute(first.where(is_one.is_not(True))).all() == [(2,)]
        assert connection.execute(first.where(people.c.ID.is_not(None))).all() == [(1,), (2,)]
        assert connection.execute(sqlalchemy.select(people.c.ID / 2, people.c.ID // 2).where(is_one)).all() == [
            (0.5, 0)
        ]
