"""The data source for Spark, as Spark's processes call it, without a JVM: what it reads, and what it says."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cheap_hashes import cheap_hash
from running_server import eventually, service_in

from millstream.errors import InvalidProperty, MillstreamError, UnknownColumn
from millstream.executor.errors import PositionLost, QueryFailed
from millstream.server.client import HttpClient, connect
from millstream.server.security.access import hash_token
from millstream.server.service import Service

pytest.importorskip("pyspark")

from pyspark.sql import datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StructType

from millstream.spark import MillstreamSource
from millstream.spark.offset_ranges import parts_between
from millstream.spark.pushed_filters import filtered, usable
from millstream.spark.topic_readers import BatchReader, FilteringBatchReader, TopicStreamReader

DDL = """
CREATE STREAM clicks (id STRING KEY, url STRING, size INT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=3);
CREATE TABLE per_id AS SELECT id, COUNT(*) AS n, SUM(size) AS total FROM clicks GROUP BY id HAVING COUNT(*) < 7;
CREATE TABLE per_minute AS SELECT id, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY id;
CREATE STREAM coded WITH (value_format='AVRO') AS SELECT id, size FROM clicks;
CREATE STREAM columnar WITH (value_format='ARROW', key_format='JSON') AS SELECT id, size FROM clicks;
CREATE STREAM small (v INT) WITH (kafka_topic='small', value_format='JSON', partitions=1);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        client = connect(f"http://{started.http_address}")
        client.execute(DDL)
        numbers = range(40)
        clicks = {
            "ROWTIME": [n * 10_000 for n in numbers],
            "ID": [f"k{n % 6}" for n in numbers],
            "URL": [f"/{n}" for n in numbers],
            "SIZE": pa.array(numbers, pa.int32()),
        }
        client.insert("CLICKS", pa.table(clicks))
        client.insert("SMALL", pa.table({"V": pa.array(range(10), pa.int32())}))
        eventually(lambda: rows_over_http(client, "SELECT SUM(n) AS n FROM per_minute;") == [(40,)], seconds=60)
        eventually(lambda: len(rows_over_http(client, "SELECT * FROM per_id;")) == 2, seconds=60)
        yield started


def rows_over_http(client: HttpClient, sql: str) -> list[tuple[Any, ...]]:
    client.properties["auto.offset.reset"] = "earliest"
    with client.query(sql) as rows:
        return sorted((row.values for row in rows), key=repr)


def source(service: Service, name: str | None, **options: str) -> MillstreamSource:
    given = {"url": f"http://{service.http_address}", **({} if name is None else {"path": name}), **options}
    return MillstreamSource(datasource.CaseInsensitiveDict(given))


def travelled(reader: BatchReader) -> BatchReader:
    """As tasks have it."""
    return pickle.loads(pickle.dumps(reader))


def batch_rows(reader: BatchReader) -> list[dict[str, Any]]:
    parts = reader.partitions()
    return [row for part in parts for batch in travelled(reader).read(part) for row in batch.to_pylist()]


def read(service: Service, name: str | None, **options: str) -> list[dict[str, Any]]:
    found = source(service, name, **options)
    return batch_rows(found.reader(found.schema()))


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def stream(service: Service, name: str, **options: str) -> TopicStreamReader:
    found = source(service, name, **options)
    return found.streamReader(found.schema())


def between(reader: TopicStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


# ------------------------------------------------------------------ rows


@pytest.mark.parametrize("name", ["clicks", "per_id", "per_minute", "coded", "columnar", "small", "`CLICKS`"])
def test_a_batch_has_the_rows_of_a_pull_query(service: Service, name: str) -> None:
    client = connect(f"http://{service.http_address}")
    assert values(read(service, name)) == rows_over_http(client, f"SELECT * FROM {name};") != []


def test_columns_and_conditions_are_those_of_select(service: Service) -> None:
    columns = "ROWOFFSET, UCASE(url) AS shout, ROWPARTITION, ROWTIME, size * 2 AS twice"
    rows = read(service, "clicks", columns=columns, where="id = 'k1' AND size < 14 OR size = 39")
    assert [(row["SHOUT"], row["ROWTIME"], row["TWICE"]) for row in sorted(rows, key=lambda row: row["ROWTIME"])] == [
        (f"/{n}", n * 10_000, n * 2) for n in (1, 7, 13, 39)
    ]
    assert rows[0].keys() == {"ROWOFFSET", "SHOUT", "ROWPARTITION", "ROWTIME", "TWICE"}


def test_only_columns_that_are_asked_for_are_decoded(service: Service) -> None:
    found = source(service, "clicks", columns="size", where="url <> '/3'")
    described: Any = found._rows()
    assert described.described.reading.source.columns == ("v0", "v1")


def test_the_changes_of_a_table_say_which_rows_are_deleted(service: Service) -> None:
    rows = read(service, "per_id", changes="true", columns="id, n")
    deleted = [row for row in rows if row["ROWDELETED"]]
    assert all(row["N"] is None for row in deleted)
    state: dict[str, int] = {}
    for row in rows:
        if row["ROWDELETED"]:
            state.pop(row["ID"], None)
        else:
            state[row["ID"]] = row["N"]
    assert state == {row["ID"]: row["N"] for row in read(service, "per_id")}


def test_a_schema_of_the_job_takes_some_of_the_columns(service: Service) -> None:
    reader = source(service, "clicks").reader(StructType().add("SIZE", IntegerType()))
    assert batch_rows(reader)[0].keys() == {"SIZE"}
    with pytest.raises(UnknownColumn, match="no column SIZES in clicks"):
        source(service, "clicks").reader(StructType().add("SIZES", IntegerType()))
    with pytest.raises(UnknownColumn, match="SIZE is a int, the schema of the job has bigint"):
        source(service, "clicks").reader(StructType().add("SIZE", LongType()))


def test_a_topic_is_read_without_a_stream(service: Service) -> None:
    rows = read(service, None, topic="clicks", kafka=str(service.kafka_address))
    assert len(rows) == 40
    assert {row["partition"] for row in rows} == {0, 1, 2}
    columnar = read(service, None, topic="COLUMNAR", kafka=str(service.kafka_address))
    assert len(columnar) == 40
    assert "_offset" in columnar[0]


def test_filters_of_spark_drop_rows_before_they_travel(service: Service) -> None:
    found = source(service, "clicks")
    reader = FilteringBatchReader(found.reader(found.schema()).parts)
    filters = [
        datasource.In(("ID",), ("k1", "k2")),
        datasource.GreaterThan(("SIZE",), 30),
        datasource.Not(datasource.EqualTo(("URL",), "/31")),
        datasource.StringStartsWith(("URL",), "/3"),
        datasource.IsNotNull(("NOWHERE",)),
    ]
    assert list(reader.pushFilters(filters)) == filters, "Spark checks them again"
    assert sorted(row["SIZE"] for row in batch_rows(reader)) == [32, 37, 38]


def test_filters_of_spark_never_drop_what_it_keeps() -> None:
    table = pa.table({"S": ["a", "b", None], "D": [1.0, float("nan"), None], "N": [1, 2, None]})
    kept = {
        datasource.EqualTo(("S",), "a"): ["a"],
        datasource.Not(datasource.EqualTo(("S",), "a")): ["b"],
        datasource.Not(datasource.In(("S",), ("a",))): ["a", "b", None],  # not understood
        datasource.IsNull(("S",)): [None],
        datasource.EqualTo(("D",), float("nan")): ["a", "b", None],  # equal for Spark, not for Arrow
        datasource.LessThan(("N",), 2**70): ["a", "b", None],
        datasource.EqualTo(("N",), True): ["a", "b", None],
        datasource.In(("S",), ("b", None)): ["b"],
        datasource.In(("S",), (None,)): ["a", "b", None],
    }
    for each, rows in kept.items():
        assert filtered(table, usable([each], table.schema))["S"].to_pylist() == rows, each


# ------------------------------------------------------------------ where a job reads


def test_a_batch_reads_from_a_place_to_a_place(service: Service) -> None:
    def sizes(**options: str) -> list[int]:
        return sorted(row["V"] for row in read(service, "small", **options))

    assert sizes(startingOffsets='{"0": 7}') == [7, 8, 9]
    assert sizes(startingOffsets='{"0": 2}', endingOffsets='{"0": 4}') == [2, 3]
    assert sizes(startingOffsets="latest") == sizes(startingOffsets='{"0": 10}') == []
    assert [row["SIZE"] for row in read(service, "clicks", startingTimestamp="380000")] != []
    later = read(service, "clicks", startingTimestamp="380000", endingTimestamp="390000")
    assert {row["SIZE"] for row in later} == {38} or not later


def test_long_partitions_are_cut_for_more_tasks(service: Service) -> None:
    found = source(service, "small", minPartitions="4")
    reader = found.reader(found.schema())
    assert len(reader.partitions()) == 4
    assert [row["V"] for row in batch_rows(reader)] == list(range(10))


def test_parts_cover_each_offset_once() -> None:
    for parts_min in range(12):
        parts = parts_between("t", {0: 5, 1: 0, 2: 9}, {0: 17, 1: 1, 2: 9}, parts_min)
        longest = max(part.end - part.start for part in parts)
        assert longest <= (-(-13 // parts_min) if parts_min else 12)
        covered = [(part.lane.partition, offset) for part in parts for offset in range(part.start, part.end)]
        assert covered == [(0, offset) for offset in range(5, 17)] + [(1, 0)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": '{"0": 11}'}, "offset 11 of partition 0 of the topic small is behind its end, 10"),
        ({"startingOffsets": '{"1": 0}'}, "the topic small has partition 0, offsets are given for [1]"),
        ({"startingOffsets": "newest"}, "startingOffsets is 'newest'"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "are both there"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"mode": "PERMISSIVE"}, "mode is 'PERMISSIVE'"),
        ({"colums": "*"}, "has no option colums"),
        ({"topic": "small"}, "needs a stream or a table, or else a topic"),
        ({"user": "ana"}, "user and password go together"),
    ],
)
def test_wrong_options_are_refused(service: Service, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidProperty) as refused:
        read(service, "small", **options)
    assert said in str(refused.value)
    assert refused.value.hint


def test_a_table_has_no_positions_and_is_no_stream(service: Service) -> None:
    with pytest.raises(InvalidProperty, match="its rows have no positions, and startingOffsets is given"):
        read(service, "per_id", startingOffsets="latest")
    with pytest.raises(InvalidProperty, match="per_id is a table: what can be followed is its changes"):
        stream(service, "per_id")
    with pytest.raises(InvalidProperty, match="a stream has no end"):
        stream(service, "small", endingOffsets="latest")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("smal", {}, "SMAL does not exist"),
        ("small", {"columns": "w"}, "'W' cannot be resolved"),
        ("small", {"columns": "COUNT(*)"}, "not possible where a stream or table is read from outside"),
        ("small", {"where": "v > 1 LIMIT 1"}, "not possible where a stream or table is read from outside"),
        ("small", {"changes": "true"}, "changes of a stream are not possible"),
        ("per_id", {"changes": "true", "where": "n > 1"}, "changes with a condition are not possible"),
    ],
)
def test_the_server_refuses_what_cannot_be_read(
    service: Service, name: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(MillstreamError) as refused:
        read(service, name, **options)
    assert said in str(refused.value)


def test_who_is_away_is_named(service: Service) -> None:
    with pytest.raises(MillstreamError, match=r"no server answers at http://127\.0\.0\.1:1"):
        read(service, "small", url="http://127.0.0.1:1")
    with pytest.raises(MillstreamError, match="the log cannot be reached") as refused:
        read(service, "small", kafka="127.0.0.1:1")
    assert 'option("kafka"' in str(refused.value.hint)


# ------------------------------------------------------------------ streams


def test_a_stream_goes_on_at_the_offsets_of_its_checkpoint(service: Service) -> None:
    reader = stream(service, "small")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (start["offsets"], end["offsets"]) == ({"0": 0}, {"0": 10})
    assert [row["V"] for row in between(reader, start, end)] == list(range(10))
    assert reader.latestOffset(end, ReadAllAvailable()) == end == reader.reportLatestOffset()
    assert between(reader, end, end) == []


def test_a_batch_of_a_stream_has_at_most_so_many_offsets(service: Service) -> None:
    reader = stream(service, "clicks", maxOffsetsPerTrigger="7")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    reader.prepareForTriggerAvailableNow()
    at, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        rows = between(reader, at, end)
        assert len(rows) <= 7  # less where offsets are those of transactions' ends
        seen += rows
        at = end
    assert sorted(row["SIZE"] for row in seen) == list(range(40))


def test_available_now_ends_at_what_was_there(service: Service) -> None:
    client = connect(f"http://{service.http_address}")
    client.execute("CREATE STREAM grows (v INT) WITH (kafka_topic='grows', value_format='JSON', partitions=1);")
    client.execute("INSERT INTO grows (v) VALUES (1);")
    reader = stream(service, "grows")
    reader.prepareForTriggerAvailableNow()
    client.execute("INSERT INTO grows (v) VALUES (2);")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["offsets"] == {"0": 1}
    assert reader.reportLatestOffset()["offsets"] == {"0": 2}


def test_records_that_retention_deleted_end_a_job_unless_it_says_otherwise(service: Service) -> None:
    client = connect(f"http://{service.http_address}")
    client.execute("CREATE STREAM short (v INT) WITH (kafka_topic='short', value_format='JSON', partitions=1);")
    for v in range(6):
        client.execute(f"INSERT INTO short (v) VALUES ({v});")
    reader, lax = stream(service, "short"), stream(service, "short", failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (planned,) = reader.partitions(start, end)
    service.engine.log.delete_records("short", 0, 4)
    with pytest.raises(PositionLost, match=r"begins at offset 4, the job reads from 0 on.*deleted the 4 before"):
        reader.partitions(start, end)
    with pytest.raises(PositionLost, match="lost records while the job read them"):
        list(reader.read(planned))
    assert [row["V"] for row in between(lax, start, end)] == [4, 5]
    assert [row["V"] for row in read(service, "short")] == [4, 5]
    with pytest.raises(PositionLost, match="begins at offset 4"):
        read(service, "short", startingOffsets='{"0": 3}')


def test_a_topic_that_was_created_again_is_another_one(service: Service) -> None:
    client = connect(f"http://{service.http_address}")
    ddl = "CREATE STREAM again (v INT) WITH (kafka_topic='again', value_format='JSON', partitions=1);"
    client.execute(f"{ddl} INSERT INTO again (v) VALUES (1);")
    reader = stream(service, "again")
    batch = source(service, "again")
    planned = batch.reader(batch.schema())
    start = reader.initialOffset()
    client.execute(f"DROP STREAM again DELETE TOPIC; {ddl} INSERT INTO again (v) VALUES (2);")
    with pytest.raises(PositionLost, match="topic again was deleted and created again"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(PositionLost, match="topic again was deleted and created again"):
        planned.partitions()
    with pytest.raises(PositionLost, match="the checkpoint is about the topic again"):
        stream(service, "again").latestOffset(start, ReadAllAvailable())


def test_a_record_that_cannot_be_read_is_left_out_or_ends_the_job(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(f"http://{service.http_address}")
    client.execute(
        "CREATE STREAM texts (t STRING) WITH (kafka_topic='mixed', value_format='KAFKA', partitions=1);"
        "INSERT INTO texts VALUES ('{\"v\": 1}'); INSERT INTO texts VALUES ('no');"
        "INSERT INTO texts VALUES ('{\"v\": 2}');"
        "CREATE STREAM numbers (v INT) WITH (kafka_topic='mixed', value_format='JSON');"
    )
    assert [row["V"] for row in read(service, "numbers")] == [1, 2]
    assert "records left out: 1, the first one at offset 1 of partition 0 of topic mixed" in caplog.text
    with pytest.raises(QueryFailed, match="the record at offset 1 of partition 0 of topic mixed"):
        read(service, "numbers", mode="failfast")


# ------------------------------------------------------------------ rights

ACCESS = {
    "users": {
        "ana": {"password": cheap_hash("p@ss:word/1"), "tokens": [hash_token("ana's token")], "roles": ["own"]},
        "bob": {"password": cheap_hash("b"), "roles": ["else"]},
        "root": {"password": cheap_hash("r"), "roles": ["admin"]},
    },
    "roles": {"own": {"read": ["own*"]}, "else": {"read": ["else*"]}, "admin": {"admin": True}},
}


def test_a_job_has_the_rights_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service_in(tmp_path, access=ACCESS) as service:
        address = str(service.http_address)
        root = connect(f"http://root:r@{address}")
        root.execute(
            "CREATE STREAM own (id STRING KEY, v INT) WITH (kafka_topic='own', value_format='AVRO', partitions=1);"
            "INSERT INTO own VALUES ('a', 1);"
        )
        ana = {"user": "ana", "password": "p@ss:word/1"}
        ways: list[dict[str, str]] = [
            ana,
            {"token": "ana's token"},
            {"url": f"http://ana:p%40ss%3Aword%2F1@{address}"},
        ]
        for way in ways:
            assert values(read(service, "own", **way)) == [("a", 1)], way
            found = source(service, "own", **way)
            said = repr(found.reader(found.schema()).parts)
            assert "bootstrap" not in said and not [secret for secret in ("word", "token") if secret in said], said
        monkeypatch.setenv("MILLSTREAM_TOKEN", "ana's token")
        assert values(read(service, "own")) == [("a", 1)]
        monkeypatch.delenv("MILLSTREAM_TOKEN")
        with pytest.raises(MillstreamError, match='bob has no right "read" on OWN'):
            read(service, "own", user="bob", password="b")
        with pytest.raises(MillstreamError, match="the name, the password or the token is wrong"):
            read(service, "own", user="ana", password="wrong")
        with pytest.raises(MillstreamError, match="requires authentication"):
            read(service, "own")
        with pytest.raises(MillstreamError, match="topic authorization failed"):
            read(service, None, topic="own", kafka=str(service.kafka_address), user="bob", password="b")
        root.execute("ALTER STREAM own ADD COLUMN w INT; INSERT INTO own (id, v, w) VALUES ('b', 2, 3);")
        assert values(read(service, "own", **ana)) == [("a", 1, None), ("b", 2, 3)]
