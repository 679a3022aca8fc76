"""`DataFrame.to_sql` and SQLAlchemy's CREATE TABLE: a stream, or a table where there is a primary key."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import pandas
import pytest
import sqlalchemy
from running_server import service_in
from sqlalchemy import exc, types

from millstream import dbapi

FRAME = pandas.DataFrame(
    {
        "ID": [1, 2, 3],
        "NAME": ["ada", None, "it's"],
        "HEIGHT": [1.7, float("nan"), 1.5],
        "OLD": [True, False, True],
        "BORN": pandas.to_datetime(["2020-01-01T00:00:00", "2020-01-02T03:04:05.678", None], format="ISO8601"),  # pyrefly: ignore[no-matching-overload]
    }
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlalchemy.Engine]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        made = sqlalchemy.create_engine(f"millstream://{service.http_address}")
        yield made
        made.dispose()


def rows(engine: sqlalchemy.Engine, text: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(text)]


def test_a_frame_becomes_a_stream_with_its_rows(engine: sqlalchemy.Engine) -> None:
    assert FRAME.to_sql("PEOPLE", engine, index=False) == 3
    assert rows(engine, "SELECT * FROM people;") == [
        (1, "ada", 1.7, True, datetime.datetime(2020, 1, 1)),
        (2, None, None, False, datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000)),
        (3, "it's", 1.5, True, None),
    ]
    assert sqlalchemy.inspect(engine).get_pk_constraint("PEOPLE")["constrained_columns"] == []


def test_if_exists_fails_appends_or_replaces(engine: sqlalchemy.Engine) -> None:
    frame = pandas.DataFrame({"N": [1, 2]})
    frame.to_sql("NUMBERS", engine, index=False)
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("NUMBERS", engine, index=False)
    frame.to_sql("NUMBERS", engine, index=False, if_exists="append", method="multi")
    assert rows(engine, "SELECT n FROM numbers;") == [(1,), (2,), (1,), (2,)]
    pandas.DataFrame({"M": ["a"]}).to_sql("NUMBERS", engine, index=False, if_exists="replace")
    assert rows(engine, "SELECT * FROM numbers;") == [("a",)]


def test_the_index_is_a_column(engine: sqlalchemy.Engine) -> None:
    frame = pandas.DataFrame({"N": [1, 2]}, index=pandas.Index(["x", "y"], name="KEY_TEXT"))
    frame.to_sql("INDEXED", engine)
    assert rows(engine, "SELECT key_text, n FROM indexed;") == [("x", 1), ("y", 2)]


def test_dtype_says_the_types_of_columns(engine: sqlalchemy.Engine) -> None:
    frame = pandas.DataFrame({"A": [decimal.Decimal("1.50")], "B": [b"\x00\xff"], "C": [7], "D": ["2020-01-02"]})
    kinds: Any = {"A": types.Numeric(6, 2), "B": types.LargeBinary(), "C": types.SmallInteger(), "D": types.String(9)}
    frame.to_sql("TYPED", engine, index=False, dtype=kinds)
    columns = {column["name"]: str(column["type"]) for column in sqlalchemy.inspect(engine).get_columns("TYPED")}
    assert columns == {"A": "DECIMAL(6, 2)", "B": "BLOB", "C": "INTEGER", "D": "VARCHAR"}
    assert rows(engine, "SELECT * FROM typed;") == [(decimal.Decimal("1.50"), b"\x00\xff", 7, "2020-01-02")]


@pytest.mark.parametrize(
    ("dtype", "message"),
    [(types.JSON(), "no column of type JSON is made here"), (types.Numeric(), "a DECIMAL needs its digits")],
)
def test_a_type_that_there_is_not_is_refused(engine: sqlalchemy.Engine, dtype: Any, message: str) -> None:
    with pytest.raises(exc.CompileError, match=message):
        pandas.DataFrame({"A": [1]}).to_sql("REFUSED", engine, index=False, dtype={"A": dtype})
    assert not sqlalchemy.inspect(engine).has_table("REFUSED")


def test_a_table_with_a_primary_key_is_a_table(engine: sqlalchemy.Engine) -> None:
    columns = [sqlalchemy.Column("ID", types.Integer, primary_key=True), sqlalchemy.Column("NAME", types.String)]
    table = sqlalchemy.Table(
        "KEYED", sqlalchemy.MetaData(), *columns, millstream_partitions=2, millstream_topic="keyed-topic"
    )
    table.create(engine)
    frame = pandas.DataFrame({"ID": [1, 2, 1], "NAME": ["a", "b", "c"]})
    frame.to_sql("KEYED", engine, index=False, if_exists="append")
    assert rows(engine, "SELECT * FROM keyed ORDER BY id;") == [(1, "c"), (2, "b")]
    assert sqlalchemy.inspect(engine).get_pk_constraint("KEYED")["constrained_columns"] == ["ID"]
    table.drop(engine)
    assert not sqlalchemy.inspect(engine).has_table("KEYED")


def test_many_rows_go_in_few_statements(engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    execute = dbapi.Cursor.execute

    def noted(self: dbapi.Cursor, operation: str, parameters: Any = None) -> dbapi.Cursor:
        sent.append(operation)
        return execute(self, operation, parameters)

    monkeypatch.setattr(dbapi.Cursor, "execute", noted)
    assert pandas.DataFrame({"N": range(1_500)}).to_sql("MANY", engine, index=False) == 1_500
    assert sum(text.startswith("INSERT") for text in sent) == 2
    assert len(rows(engine, "SELECT n FROM many;")) == 1_500
