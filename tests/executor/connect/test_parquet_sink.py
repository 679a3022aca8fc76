"""Topics in folders of Parquet files, on disk and in a store: each row is there once, whenever the task dies."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.dataset
import pytest
from s3_server import S3Server

from millstream.executor.connect.connector import ConnectRecord, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.declared_columns import DeclaredColumns
from millstream.executor.connect.sinks.parquet_sink import ParquetSink
from millstream.executor.connect.task_clock import VirtualClock
from millstream.logcore.client import TopicPartition
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.testing import ConnectorSandbox

POINTS = (
    "sink_after_read", "parquet_after_file", "lake_before_commit", "lake_after_commit", "parquet_before_move",
    "sink_after_write", "sink_after_commit",
)  # fmt: skip


@dataclass
class Place:
    """Where tables are: `store` is None for a folder."""

    folder: Path
    store: S3Server | None

    @property
    def config(self) -> dict[str, str]:
        if self.store is None:
            return {"location": f"{self.folder}/${{topic}}"}
        return {"location": f"s3://lake/{self.folder.name}/${{topic}}", **self.store.config}

    def sandbox(self, **more: str) -> ConnectorSandbox:
        given = {name.replace("_", "."): value for name, value in more.items()}
        return ConnectorSandbox(ParquetSink, {"topics": "orders", "rotate.interval.ms": "0", **self.config, **given})

    def sink(self, task: TaskInfo, **more: str) -> ParquetSink:
        given = {name.replace("_", "."): value for name, value in more.items()}
        return ParquetSink(read_settings(ParquetSink.settings, {**self.config, **given}), task)

    def files(self, topic: str = "orders") -> list[str]:
        """Of those that readers see."""
        return sorted(path.partition(f"/{topic}/")[2] for path in self._dataset(topic).files)

    def rows(self, topic: str = "orders") -> list[dict[str, Any]]:
        return sorted(self._dataset(topic).to_table().to_pylist(), key=lambda row: str(row.get("id")))

    def _dataset(self, topic: str) -> Any:
        if self.store is None:
            return pyarrow.dataset.dataset(f"{self.folder}/{topic}", format="parquet", partitioning="hive")
        return pyarrow.dataset.dataset(
            f"lake/{self.folder.name}/{topic}", format="parquet", partitioning="hive", filesystem=self.store.files()
        )

    def duckdb_rows(self, columns: str, topic: str = "orders") -> list[tuple[Any, ...]]:
        """Of a folder."""
        source = f"read_parquet('{self.folder}/{topic}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
        with duckdb.connect() as connection:
            return connection.execute(f"SELECT {columns} FROM {source} ORDER BY ALL").fetchall()


@pytest.fixture
def place(tmp_path: Path, folder_or_store: S3Server | None) -> Place:
    return Place(tmp_path, folder_or_store)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return Place(tmp_path, None)


def test_rows_are_in_files_that_readers_of_parquet_see(place: Place) -> None:
    with place.sandbox() as box:
        box.produce("orders", None, {"id": 1, "n": 1, "tags": ["a"], "who": {"name": "ada", "age": None}})
        box.produce("orders", None, {"id": 2, "n": 1.5, "tags": [], "who": {"name": "bob", "age": 3}})
        box.run()
    assert place.rows() == [
        {"id": 1, "n": 1.0, "tags": ["a"], "who": {"name": "ada", "age": None}},
        {"id": 2, "n": 1.5, "tags": [], "who": {"name": "bob", "age": 3}},
    ]
    assert len(place.files()) == 1


def deaths() -> list[Any]:
    """A store takes the same way as a folder, more slowly: it gets each point once, half of them the second time."""
    cases = itertools.product(("folder", "s3"), (1, 2), enumerate(POINTS))
    seldom = ((), pytest.mark.soak)
    return [pytest.param(on, nth, p, marks=seldom[on == "s3" and i % 2 != nth % 2]) for on, nth, (i, p) in cases]


@pytest.mark.parametrize(("folder_or_store", "nth", "point"), deaths(), indirect=["folder_or_store"])
def test_each_record_is_there_once_wherever_the_task_dies(place: Place, point: str, nth: int) -> None:
    with place.sandbox(partition_by="part") as box:
        for part in range(3):
            for n in range(6):
                box.produce("orders", n, {"id": 10 * part + n, "part": f"p{n % 2}"}, partitions=2)
            if part == 0:
                box.kill_at(point, nth)
            box.run()
        assert box.deaths == 1
    assert sorted(row["id"] for row in place.rows()) == [10 * part + n for part in range(3) for n in range(6)]


def _dies_at_random(place: Place, seed: int, deaths: int) -> None:
    chance, written = random.Random(seed), 0
    rotation = {"rotate.rows": "7", "rotate.interval.ms": "5000", "partition.by": "part"}
    with place.sandbox(**rotation) as box:
        while box.deaths < deaths:
            for _ in range(chance.randrange(12)):
                box.produce("orders", written, {"id": written, "part": f"p{written % 3}"}, partitions=2)
                written += 1
            box.kill_at(chance.choice(POINTS), chance.randrange(1, 4))
            box.run()
            box.clock.advance(chance.choice([0, 3000, 6000]))
            if chance.random() < 0.2:
                box.restart()
        for _ in range(2):
            box.clock.advance(5000)
            box.run()
    assert sorted(int(row["id"]) for row in place.rows()) == list(range(written))
    if place.store is None:
        assert [int(row[0]) for row in place.duckdb_rows("id")] == list(range(written))


def test_rows_are_there_once_after_deaths_at_random(place: Place) -> None:
    for seed in range(1 if place.store else 3):  # a store is slow, and takes the same way
        _dies_at_random(Place(place.folder / str(seed), place.store), seed, deaths=3)


@pytest.mark.soak
def test_rows_are_there_once_after_a_hundred_deaths(place: Place) -> None:
    _dies_at_random(place, 7, deaths=100)


def test_files_are_written_by_rows_bytes_and_time(folder: Place) -> None:
    for name, rotation, counts in [
        ("rows", {"rotate.rows": "4", "rotate.interval.ms": "60000"}, [0, 2, 2, 4]),
        ("bytes", {"rotate.bytes": "40", "rotate.interval.ms": "60000"}, [0, 1, 1, 2]),
        ("time", {"rotate.interval.ms": "60000"}, [0, 0, 0, 0]),
    ]:
        place = Place(folder.folder / name, None)
        with place.sandbox(**rotation) as box:
            for part, count in enumerate(counts):
                for n in range((3, 3, 1, 7)[part]):
                    box.produce("orders", None, {"id": 10 * part + n})
                box.run()
                assert len(list(place.folder.glob("orders/*.parquet"))) == count, (name, part)
            box.clock.advance(59_999)
            box.run()
            before = len(place.files())
            box.clock.advance(1)
            box.run()
            assert len(place.files()) == before + (name == "time")
            assert len(place.rows()) == 14


def test_what_waits_is_not_committed_and_comes_again(folder: Place) -> None:
    with folder.sandbox(rotate_interval_ms="60000") as box:
        for n in range(3):
            box.produce("orders", None, {"id": n})
        box.run()
        assert box.log.committed_offsets("connect-sandbox") == {}
        box.restart()
        box.produce("orders", None, {"id": 3})
        box.run()
        box.clock.advance(60_000)
        box.run()
        assert box.log.committed_offsets("connect-sandbox") == {TopicPartition("orders", 0): 4}
    assert [row["id"] for row in folder.rows()] == [0, 1, 2, 3]


def test_folders_have_the_names_that_hive_gives_them(place: Place) -> None:
    at = int(datetime(2026, 11, 26, 13, 5, tzinfo=UTC).timestamp() * 1000)
    rows = [
        {"id": 1, "country": "de", "n": 1, "at": at}, {"id": 2, "country": "a/b=c%d", "n": 2.5, "at": at},
        {"id": 3, "country": None, "n": 1, "at": None}, {"id": 4, "country": "é ü", "n": 1, "at": at + 86_400_000},
    ]  # fmt: skip
    with place.sandbox(partition_by="country,n,day(at)") as box:
        for row in rows:
            box.produce("orders", None, row)
        box.run()
    assert sorted(path.rpartition("/")[0] for path in place.files()) == [
        "country=__HIVE_DEFAULT_PARTITION__/n=1/at_day=__HIVE_DEFAULT_PARTITION__",
        "country=a%2Fb%3Dc%25d/n=2.5/at_day=2026-11-26",
        "country=de/n=1/at_day=2026-11-26",
        "country=é ü/n=1/at_day=2026-11-27",
    ]
    if place.store is None:
        assert place.duckdb_rows("id::INT, country") == [(1, "de"), (2, "a/b=c%d"), (3, None), (4, "é ü")]


def test_columns_of_partitions_match_in_any_case(folder: Place) -> None:
    with folder.sandbox(partition_by="country,day(AT)") as box:
        box.produce("orders", None, {"ID": 1, "COUNTRY": "de", "At": 0})
        box.run()
    assert [path.rpartition("/")[0] for path in folder.files()] == ["COUNTRY=de/At_day=1970-01-01"]


@pytest.mark.parametrize(
    ("partitions", "row", "message"),
    [
        ("id", {"id": 1}, "a file needs one"),
        ("other", {"id": 1}, "no column other"),
        ("list", {"id": 1, "list": [1]}, "cannot be the name of a folder"),
        ("day(text)", {"id": 1, "text": "soon"}, "is no time"),
    ],
)
def test_a_row_that_has_no_folder_ends_the_task(
    folder: Place, partitions: str, row: dict[str, Any], message: str
) -> None:
    with folder.sandbox(partition_by=partitions) as box:
        box.produce("orders", None, row)
        with pytest.raises(ConnectorFailed, match=message):
            box.run()


def test_a_new_column_is_in_the_files_from_then_on(place: Place) -> None:
    with place.sandbox(auto_evolve="true", rotate_interval_ms="60000") as box:
        box.produce("orders", None, {"id": 1, "who": {"name": "ada"}})
        box.run()
        box.produce("orders", None, {"id": 2, "who": {"name": "bob", "age": 3}, "more": [1]})
        box.run()
        box.clock.advance(60_000)
        box.run()
        box.restart()
        box.produce("orders", None, {"id": 3, "more": [2]})
        box.run()
        box.clock.advance(60_000)
        box.run()
    assert len(place.files()) == 3
    if place.store is None:
        assert place.duckdb_rows("id::INT, more") == [(1, None), (2, [1.0]), (3, [2.0])]


def test_a_type_never_changes(folder: Place) -> None:
    with folder.sandbox(auto_evolve="true") as box:
        box.produce("orders", None, {"id": 1})
        box.run()
        box.produce("orders", None, {"id": "one"})
        with pytest.raises(ConnectorFailed, match="column id of type double"):
            box.run()


def _record(n: int, partition: int = 0) -> ConnectRecord:
    return ConnectRecord("orders", None, {"id": n}, 0, (), partition, n, "orders")


def test_of_two_tasks_that_write_the_same_records_one_is_refused(place: Place) -> None:
    """A task that hangs and its successor: both have opened the table before either writes."""
    task, at = TaskInfo("out", identity="i", clock=VirtualClock()), TopicPartition("orders", 0)
    one, two = (place.sink(task, rotate_interval_ms="0") for _ in range(2))
    two.write([_record(n) for n in range(3)], {at: 3})
    assert one.open_table("orders") is not None
    more = [_record(n) for n in range(3, 9)]
    two.write(more[:3], {at: 6})
    with pytest.raises(SystemUnavailable, match="changed meanwhile"):
        one.write(more, {at: 9})
    two.write(more[3:], {at: 9})
    place.sink(task, rotate_interval_ms="0").write(more, {at: 9})
    assert [row["id"] for row in place.rows()] == list(range(9))


def test_a_task_that_hangs_leaves_the_files_of_its_successor_alone(place: Place) -> None:
    """It writes its file when the successor has named one of its own in a record, and not moved it yet."""
    task, at = TaskInfo("out", identity="i", clock=VirtualClock()), TopicPartition("orders", 0)
    hangs, successor = (place.sink(task, rotate_interval_ms="0") for _ in range(2))
    successor.write([_record(0)], {at: 1})
    assert hangs.open_table("orders") is not None
    arm("connect.lake_after_commit:1:raise")
    with pytest.raises(FailpointHit):
        successor.write([_record(n) for n in range(1, 6)], {at: 6})
    arm("")
    with pytest.raises(SystemUnavailable, match="changed meanwhile"):
        hangs.write([_record(n) for n in range(3)], {at: 3})
    place.sink(task, rotate_interval_ms="0").write([_record(6)], {at: 7})
    assert [row["id"] for row in place.rows()] == list(range(7))


def test_a_task_that_hangs_for_several_commits_is_refused(place: Place) -> None:
    task, at = TaskInfo("out", identity="i", clock=VirtualClock()), TopicPartition("orders", 0)
    one, two = (place.sink(task, rotate_interval_ms="0") for _ in range(2))
    two.write([_record(0)], {at: 1})
    assert one.open_table("orders") is not None
    for n in (1, 2, 3):
        two.write([_record(n)], {at: n + 1})
    with pytest.raises(SystemUnavailable, match="changed meanwhile"):
        one.write([_record(n) for n in range(4)], {at: 4})
    assert [row["id"] for row in place.rows()] == [0, 1, 2, 3]


def test_tasks_of_one_connector_share_a_table(place: Place) -> None:
    clock = VirtualClock()
    tasks = [place.sink(TaskInfo("out", n, identity="i", clock=clock), rotate_interval_ms="0") for n in range(2)]
    for n in range(6):
        tasks[n % 2].write([_record(n, n % 2)], {TopicPartition("orders", n % 2): n + 1})
    again = place.sink(TaskInfo("out", 0, identity="i", clock=clock), rotate_interval_ms="0")
    again.write([_record(5, 1)], {TopicPartition("orders", 1): 6})
    assert [row["id"] for row in place.rows()] == list(range(6))


def test_a_file_of_the_last_commit_that_was_deleted_is_named_with_what_to_do(folder: Place) -> None:
    with folder.sandbox() as box:
        box.produce("orders", None, {"id": 1})
        box.run()
        (file,) = folder.files()
        (folder.folder / "orders" / file).unlink()
        box.restart()
        box.produce("orders", None, {"id": 2})
        with pytest.raises(ConnectorFailed, match=f"the file {file} of the last commit is gone") as failed:
            box.run()
        (record,) = (folder.folder / "orders" / "_millstream").glob("*/0/*.json")
        assert record.relative_to(folder.folder / "orders").as_posix() in (failed.value.hint or "")
        record.write_bytes(orjson.dumps({**orjson.loads(record.read_bytes()), "files": []}))  # as the hint says
        box.run()
    assert folder.rows() == [{"id": 2.0}]


def test_declared_types_are_those_of_the_columns(folder: Place) -> None:
    types = {"id": pa.int64(), "price": pa.decimal128(10, 2), "at": pa.timestamp("ms"), "time": pa.time32("ms")}
    task = TaskInfo("out", identity="i", clock=VirtualClock(), declared=lambda topic: DeclaredColumns({}, types))
    row = {"id": 2**60, "price": "12.50", "at": 0, "time": 1000}
    folder.sink(task, rotate_interval_ms="0").write(
        [ConnectRecord("orders", None, row, 0, (), 0, 0, "orders")], {TopicPartition("orders", 0): 1}
    )
    assert folder.duckdb_rows('id, typeof(price), typeof("at"), "time"') == [
        (2**60, "DECIMAL(10,2)", "TIMESTAMP WITH TIME ZONE", 1000)
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"location": "lake"}, "absolute path or s3://"),
        ({"location": "s3://"}, "absolute path or s3://"),
        ({"rotate.rows": "0"}, "rotate.rows is too small"),
        ({"rotate.interval.ms": "-1"}, "rotate.interval.ms is too small"),
        ({"partition.by": "week(at)"}, "is no partition"),
        ({"partition.by": "a,a"}, "twice"),
        ({"aws.access.key.id": "A"}, "belong together"),
        ({"s3.endpoint": "127.0.0.1:9000"}, "http:// or https://"),
    ],
)
def test_settings_that_cannot_be(more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnector, match=message):
        read_settings(ParquetSink.settings, {"location": "/x", **more})


def test_a_bucket_that_is_not_there_ends_the_task(store: S3Server, tmp_path: Path) -> None:
    with Place(tmp_path, store).sandbox(location="s3://nowhere/x") as box:
        box.produce("orders", None, {"id": 1})
        with pytest.raises(ConnectorFailed, match="bucket or folder must exist") as caught:
            box.run()
    assert store.keys[1] not in str(caught.value)


def test_a_store_that_does_not_answer_is_waited_for(store: S3Server, tmp_path: Path) -> None:
    with Place(tmp_path, store).sandbox(s3_endpoint="http://127.0.0.1:9") as box:
        box.produce("orders", None, {"id": 1})
        with pytest.raises(SystemUnavailable, match="does not answer"):
            box.run()


def test_a_folder_that_cannot_be_used_ends_the_task(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("no folder")
    with Place(tmp_path, None).sandbox() as box:
        box.produce("orders", None, {"id": 1})
        with pytest.raises(ConnectorFailed, match="folder cannot be used"):
            box.run()


_COUNT_ON_SPARK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.option("mergeSchema", "true").parquet(sys.argv[1])
found = rows.selectExpr("count(*)", "count(distinct id)", "sum(id)", "count(more)", "min(part)", "max(part)").first()
print("FOUND", *found)
spark.stop()
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_reads_the_same_rows_after_deaths(folder: Place) -> None:
    """In a process of its own, so it need not run with the tests that share a Spark."""
    pytest.importorskip("pyspark")
    with folder.sandbox(partition_by="part", auto_evolve="true") as box:
        for n in range(40):
            box.produce("orders", n, {"id": n, "part": f"p {n % 3}", **({"more": n} if n >= 20 else {})}, partitions=2)
            if n % 10 == 9:
                box.kill_at(POINTS[n // 10 + 1], 1)
                box.run()
        assert box.deaths == 4
    asked = [sys.executable, "-c", _COUNT_ON_SPARK, f"{folder.folder}/orders"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=240, check=False)
    assert "FOUND 40 40 780.0 20 p 0 p 2" in said.stdout, said.stderr[-2000:]
