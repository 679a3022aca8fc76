"""The rows of a pull query's answer, however many times they are moved into the relation."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from databases import new_database

from millstream.executor.answers import pull_answer
from millstream.executor.answers.pull_answer import AnswerRelation

SHAPE = pa.schema(
    [
        ("k0", pa.string()), ("v0", pa.int64()), ("_seq", pa.int64()), ("_sub", pa.int32()), ("_part", pa.int32()),
        ("_ts", pa.int64()), ("_weight", pa.int8()), ("_null", pa.bool_()),
    ]
)  # fmt: skip


def changes(*rows: tuple[str, int, int]) -> pa.Table:
    """Rows of key, value and weight, in this order."""
    return pa.Table.from_pylist(
        [
            {"k0": key, "v0": value, "_seq": n, "_sub": 0, "_part": 0, "_ts": n, "_weight": weight, "_null": False}
            for n, (key, value, weight) in enumerate(rows)
        ],
        SHAPE,
    )


def answered(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int]]:
    return connection.execute("SELECT k0, v0 FROM answer ORDER BY _place").fetchall()


@pytest.fixture(params=[1, 2, 500_000])
def pending_max(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_answer, "_PENDING_ROWS_MAX", request.param)


@pytest.mark.usefixtures("pending_max")
def test_the_last_change_of_a_key_counts() -> None:
    connection = new_database()
    answer = AnswerRelation(connection, SHAPE, keyed=True)
    answer.add(changes(("a", 1, 1), ("b", 1, 1), ("c", 1, 1)))
    answer.add(changes(("b", 1, -1), ("b", 2, 1)))
    answer.add(changes(("a", 1, -1)))
    answer.settle()
    assert answered(connection) == [("c", 1), ("b", 2)]
    assert answer.row_count == 2
    answer.settle()  # nothing is new
    assert answered(connection) == [("c", 1), ("b", 2)]


@pytest.mark.usefixtures("pending_max")
def test_all_rows_of_a_stream_count_in_their_order() -> None:
    connection = new_database()
    answer = AnswerRelation(connection, SHAPE, keyed=False)
    for number in range(3):
        answer.add(changes(("b", number, 1), ("a", number, 1)))
    answer.settle()
    assert answered(connection) == [(key, number) for number in range(3) for key in "ba"]
    assert answer.row_count == 6


@pytest.mark.parametrize("keyed", [True, False])
def test_an_answer_without_rows_is_an_empty_relation(*, keyed: bool) -> None:
    connection = new_database()
    answer = AnswerRelation(connection, SHAPE, keyed=keyed)
    answer.add(changes())
    answer.settle()
    assert answered(connection) == []
    assert answer.row_count == 0
    answer.add(changes(("a", 1, 1)))
    answer.settle()
    assert answered(connection) == [("a", 1)]
