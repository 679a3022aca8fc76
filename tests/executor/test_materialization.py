"""Topics as relations for pull queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hand_plans import INPUT, JSON, KAFKA, rows

from millstream.executor.answers import keyed_rows, relation
from millstream.executor.answers.keyed_rows import KeyedTable, TooManyKeys
from millstream.executor.answers.left_out import LeftOut
from millstream.executor.answers.materialization import Materialization
from millstream.executor.errors import PositionLost
from millstream.executor.sources.source_decoder import SourceDecoder
from millstream.executor.sources.source_reader import ReadBatch, SourceReader
from millstream.executor.state.connection import MEMORY, EngineSettings
from millstream.executor.state.databases import SharedDatabases
from millstream.logcore.client import LogClient
from millstream.logcore.errors import OffsetOutOfRange
from millstream.logcore.log import open_log
from millstream.planner.schema import Column, Schema
from millstream.planner.source_info import SourceInfo
from millstream.sql.functions.casts import cast_functions
from millstream.sql.functions.udf import Udf
from millstream.sql.types import DOUBLE, STRING, Array, Field, Struct


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    client.create_topic("input", 2)
    yield client
    client.close()


def source(kind: str) -> SourceInfo:
    return SourceInfo("INPUT", kind, "input", INPUT, KAFKA, JSON, partition_count=2)  # pyrefly: ignore[bad-argument-type]


def append(client: LogClient, key: str, number: int | None) -> None:
    client.append("input", 0, rows([(key, None if number is None else {"V": number, "W": "w"}, 5)]))


def test_a_table_is_its_latest_row_per_key(client: LogClient) -> None:
    table = Materialization(source("TABLE"), client)
    for key, number in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        append(client, key, number)
    table.catch_up()
    sql = "SELECT k0, v0, _ts FROM source ORDER BY k0"
    assert [tuple(row.values()) for row in table.query(sql).to_pylist()] == [("a", 3, 5), ("b", 2, 5), ("c", 4, 5)]
    append(client, "b", None)
    append(client, "c", 7)
    table.catch_up()
    assert [tuple(row.values()) for row in table.query(sql).to_pylist()] == [("a", 3, 5), ("c", 7, 5)]


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_a_zero_keeps_its_sign(kind: str, client: LogClient) -> None:
    struct = Struct((Field("D", DOUBLE),))
    columns = (Column("K", STRING, "KEY"), Column("D", DOUBLE), Column("A", Array(DOUBLE)), Column("S", struct))
    found = Materialization(replace(source(kind), schema=Schema(columns)), client)
    client.append("input", 0, rows([("a", {"D": -0.0, "A": [-0.0], "S": {"D": -0.0}}, 5)]))
    found.catch_up()
    (row,) = found.query("SELECT v0, v1, v2 FROM source").to_pylist()
    assert str(row) == "{'v0': -0.0, 'v1': [-0.0], 'v2': {'D': -0.0}}"


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_a_function_in_python_is_known_to_the_queries_of_this_source_only(kind: str, client: LogClient) -> None:
    shared, java_text = SharedDatabases(None), Udf(cast_functions.to_java_text, (DOUBLE,), STRING).name
    stays = shared.open(MEMORY, EngineSettings.of({}))
    found = Materialization(source(kind), client, open_database=shared.open)
    for key, number in (("a", 1), ("b", 2)):
        append(client, key, number)
    found.catch_up()
    for number in (3, 4):
        append(client, f"c{number}", number)
        found.catch_up()
        answer = found.query(f'SELECT "{java_text}"(v0::DOUBLE) AS text FROM source ORDER BY v0', [java_text])
        assert answer["text"].to_pylist() == [f"{float(value)}" for value in range(1, number + 1)]
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        stays.connection.execute(f'SELECT "{java_text}"(1.0)')
    with pytest.raises(duckdb.Error, match="lock"):
        found.query("SET threads = 1")
    found.close()
    left = f"SELECT count(*) FROM duckdb_functions() WHERE starts_with(function_name, '{java_text}')"
    assert stays.connection.execute(left).fetchall() == [(0,)]
    stays.close()
    assert not any(shared._instances.values())


def test_a_stream_is_all_its_rows(client: LogClient) -> None:
    stream = Materialization(source("STREAM"), client)
    for number in (1, 2, 2):
        append(client, "a", number)
    stream.catch_up()
    assert stream.query("SELECT count(*) AS n, max(_offset) AS o FROM source").to_pylist() == [{"n": 3, "o": 2}]
    assert stream.query("SELECT _ws, _rowpartition FROM source LIMIT 1").to_pylist() == [
        {"_ws": None, "_rowpartition": 0}
    ]


def test_what_is_not_committed_is_not_seen(client: LogClient) -> None:
    table = Materialization(source("TABLE"), client)
    producer = client.transactional_producer("someone")
    producer.begin()
    producer.append("input", 0, rows([("a", {"V": 1}, 5)]))
    table.catch_up()
    assert table.query("SELECT * FROM source").num_rows == 0
    producer.commit()
    table.catch_up()
    assert table.query("SELECT * FROM source").num_rows == 1
    table.close()


def test_generated_sql_cannot_reach_files(client: LogClient) -> None:
    table = Materialization(source("TABLE"), client)
    with pytest.raises(Exception, match=r"disabled|Permission|locked"):
        table.query("SELECT * FROM read_text('/etc/hostname')")


def fails_to_take_in(found: Materialization, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(found._relation._columns, "no_such_column", True)
        with pytest.raises(duckdb.Error):
            found.catch_up()


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_rows_that_could_not_be_taken_in_are_taken_in_later(
    client: LogClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    found = Materialization(source(kind), client)
    append(client, "a", 1)
    found.catch_up()
    append(client, "b", 2)
    fails_to_take_in(found, monkeypatch)
    append(client, "c", 3)
    found.catch_up()
    assert found.query("SELECT k0 FROM source ORDER BY k0").column(0).to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_rows_that_retention_has_dropped_are_gone_for_everybody(client: LogClient, kind: str) -> None:
    kept = Materialization(source(kind), client)
    for key, number in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        append(client, key, number)
    kept.catch_up()
    client.delete_records("input", 0, 2)
    kept.catch_up()
    made_anew = Materialization(source(kind), client)
    made_anew.catch_up()
    assert kept.rows() == made_anew.rows()
    assert kept.query("SELECT k0, v0 FROM source ORDER BY k0").to_pylist() == [
        {"k0": "a", "v0": 3},
        {"k0": "c", "v0": 4},
    ]


@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_what_retention_drops_before_it_is_read_is_passed_over(client: LogClient, kind: str) -> None:
    kept = Materialization(source(kind), client)
    for number, key in enumerate("abcdef"):
        append(client, key, number)
        if number == 1:
            kept.catch_up()
    client.delete_records("input", 0, 4)
    kept.catch_up()
    assert kept.query("SELECT k0 FROM source ORDER BY k0").column(0).to_pylist() == ["e", "f"]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_retention_may_overtake_a_reading(client: LogClient, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """What is dropped between the look at the ends and the fetch."""
    scanned, looked_up = Materialization(source("TABLE"), client), KeyedTable(source("TABLE"), client)
    for number, key in enumerate("abc"):
        append(client, key, number)
    read = SourceReader.read

    def drops_first(reader: SourceReader, *arguments: Any) -> ReadBatch | None:
        client.delete_records("input", 0, 3 - kept)
        return read(reader, *arguments)

    monkeypatch.setattr(SourceReader, "read", drops_first)
    scanned.catch_up()
    looked_up.catch_up(looked_up.bounds())
    keys = list("abc")[3 - kept :]
    assert scanned.query("SELECT k0 FROM source ORDER BY k0").column(0).to_pylist() == keys
    assert [key for key in "abc" if looked_up.find(key, ("v0",))] == keys


def test_a_position_that_no_start_explains_is_an_error(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = Materialization(source("STREAM"), client)
    append(client, "a", 1)

    def out_of_range(*_: object) -> None:
        raise OffsetOutOfRange("nothing is there")

    monkeypatch.setattr(SourceReader, "read", out_of_range)
    with pytest.raises(OffsetOutOfRange):
        scanned.catch_up()


def test_an_interrupt_after_rows_were_taken_in_does_not_take_them_in_again(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Materialization(source("STREAM"), client)

    def interrupted(_: LeftOut, errors: object) -> None:
        raise duckdb.InterruptException

    append(client, "a", 1)
    with monkeypatch.context() as patched:
        patched.setattr(LeftOut, "note", interrupted)
        with pytest.raises(duckdb.InterruptException):
            found.catch_up()
    append(client, "b", 2)
    fails_to_take_in(found, monkeypatch)
    found.catch_up()
    assert found.query("SELECT k0 FROM source ORDER BY k0").column(0).to_pylist() == ["a", "b"]


def test_rows_that_could_not_be_decoded_for_a_while_are_decoded_later(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned, looked_up = Materialization(source("STREAM"), client), KeyedTable(source("TABLE"), client)
    append(client, "a", 1)

    def short_of_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(SourceDecoder, "decode", short_of_memory)
        for catch_up in (scanned.catch_up, lambda: looked_up.catch_up(looked_up.bounds())):
            with pytest.raises(MemoryError):
                catch_up()
    append(client, "b", 2)
    scanned.catch_up()
    looked_up.catch_up(looked_up.bounds())
    assert scanned.query("SELECT k0 FROM source ORDER BY k0").column(0).to_pylist() == ["a", "b"]
    assert [looked_up.find(key, ("v0",)) for key in "ab"] == [(1,), (2,)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_topic_that_was_created_again_is_not_taken_for_the_one_that_was_read(client: LogClient, count: int) -> None:
    """However often it is tried: what was read and what is there now must not be mixed."""
    scanned, looked_up = Materialization(source("STREAM"), client), KeyedTable(source("TABLE"), client)
    for key in "ab":
        append(client, key, 1)
    scanned.catch_up()
    bounds = looked_up.bounds()
    looked_up.catch_up(bounds)
    client.delete_topic("input")
    client.create_topic("input", 2)
    for number in range(count):
        append(client, f"new {number}", number)
    for _ in range(3):
        if count > 2:  # else there is nothing that it would read, and who asks looks at its id before
            with pytest.raises(PositionLost):
                scanned.catch_up()
        with pytest.raises(PositionLost):
            looked_up.catch_up(looked_up.bounds())


def test_dropped_rows_are_left_out_though_that_failed_before(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = KeyedTable(source("TABLE"), client)
    for key in "ab":
        append(client, key, 1)
    table.catch_up(table.bounds())
    client.delete_records("input", 0, 1)

    def short_of_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(KeyedTable, "_leave_out_dead", short_of_memory)
        with pytest.raises(MemoryError):
            table.catch_up(table.bounds())
    assert not table.has_read(table.bounds())
    table.catch_up(table.bounds())
    assert (table.find("a", ("v0",)), table.find("b", ("v0",))) == (None, (1,))


@pytest.mark.parametrize("read_before", [0, 2, 4, 6])
def test_rows_that_retention_has_dropped_are_not_found_by_key(client: LogClient, read_before: int) -> None:
    table = KeyedTable(source("TABLE"), client)
    for number, key in enumerate("abcdea"):
        if number == read_before:
            table.catch_up(table.bounds())
        append(client, key, number)
    if read_before == 6:
        table.catch_up(table.bounds())
    client.delete_records("input", 0, 3)
    table.catch_up(table.bounds())
    found = {key: row[0] for key in "abcde" if (row := table.find(key, ("v0",)))}
    assert found == {"a": 5, "d": 3, "e": 4}
    append(client, "b", 6)
    table.catch_up(table.bounds())
    assert table.find("b", ("v0",)) == (6,)


def test_a_table_whose_rows_take_too_much_memory_is_not_kept(
    client: LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_rows, "BYTES_MAX", 20_000)
    table = KeyedTable(source("TABLE"), client)
    for number in range(200):  # what was replaced does not count
        append(client, "ab"[number % 2], number)
        table.catch_up(table.bounds())
    assert (table.find("a", ("v0",)), table.find("b", ("v0",))) == ((198,), (199,))

    def grow() -> None:
        for number in range(2_000):
            append(client, f"k{number}", number)
            table.catch_up(table.bounds())

    with pytest.raises(TooManyKeys, match="more than 10000 bytes"):
        grow()


def test_the_room_of_replaced_rows_is_used_again(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation, "DEAD_ROWS_MAX", 1_000)
    table = Materialization(source("TABLE"), client)
    for step in range(40):
        client.append("input", 0, rows([(f"k{key}", {"V": step, "W": "w"}, step) for key in range(100)]))
        table.catch_up()
    assert table.query("SELECT v0, count(*) AS n FROM source GROUP BY v0").to_pylist() == [{"v0": 39, "n": 100}]
    assert room(table) < 2_000


def test_the_room_of_dropped_rows_is_used_again(client: LogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation, "DEAD_ROWS_MAX", 1_000)
    stream = Materialization(source("STREAM"), client)
    for step in range(40):
        client.append("input", 0, rows([(f"k{key}", {"V": step, "W": "w"}, step) for key in range(100)]))
        client.delete_records("input", 0, 100 * step)
        stream.catch_up()
    assert stream.query("SELECT v0, count(*) AS n FROM source GROUP BY v0").to_pylist() == [{"v0": 39, "n": 100}]
    assert room(stream) < 2_000


def room(kept: Materialization) -> int:
    """Rows that DuckDB keeps, and looks at in each query; deleted ones count."""
    found = kept.query("SELECT sum(count) AS n FROM pragma_storage_info('source') WHERE column_path = '[0]'")
    return int(found["n"][0].as_py())
