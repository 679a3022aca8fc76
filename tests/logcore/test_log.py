"""Topics, appends, fetches, waits and committed offsets of a log in this process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millstream.logcore.client import ROWS, FetchedRows, RowRecords, TopicPartition
from millstream.logcore.cluster.node_folder import topics_of_node
from millstream.logcore.errors import (
    InvalidTopic,
    LogClosed,
    LogLocked,
    UnsupportedDataDirectory,
)
from millstream.logcore.log import Log, open_log
from millstream.logcore.storage.checked_json import write_checked_json

from .log_records import columnar, records_of, rows, segment_files, values_of


def test_neighbouring_batches_come_as_one_table(log: Log) -> None:
    for value in (b"a", None, b"c"):
        log.append("t", 0, rows(value, key=None))
    (run,) = log.fetch("t", 0, 1).runs
    assert isinstance(run, FetchedRows)
    assert run.table.schema == ROWS
    assert run.table.to_pylist() == [
        {"offset": offset, "timestamp": 7, "key": None, "value": value, "headers": []}
        for offset, value in [(1, None), (2, b"c")]
    ]


def test_segments_roll_and_are_read_as_one_log(log: Log, folder: Path) -> None:
    log.create_topic("small", 1, {"segment.bytes": "2000"})
    for i in range(50):
        log.append("small", 0, rows(b"%03d" % i * 50) if i % 3 else columnar(i))
    files = segment_files(folder, "small")
    assert len(files) > 5
    assert all(file.stat().st_size <= 2000 for file in files)
    expected = [(i, b"%03d" % i * 50 if i % 3 else i) for i in range(50)]
    assert records_of(log, "small") == expected
    assert records_of(log, "small", 0, 31) == expected[31:]
    log.close()
    reopened = open_log(folder)
    assert records_of(reopened, "small", 0, 7) == expected[7:]
    assert reopened.append("small", 0, rows(b"x")) == 50
    reopened.close()


def test_many_rows_survive_a_restart(log: Log, folder: Path) -> None:
    count = 50_000
    table = pa.table(
        {
            "timestamp": pa.array(np.arange(count)),
            "key": pa.array([b"%d" % (i % 7) for i in range(count)]),
            "value": pa.array([b"%d" % i for i in range(count)]),
        }
    )
    log.append("t", 0, RowRecords(table))
    log.append("t", 0, RowRecords(table))
    log.close()
    with open_log(folder) as reopened:
        (run,) = reopened.fetch("t", 0, 99, max_bytes=1 << 30).runs
        assert isinstance(run, FetchedRows)
        found = run.table
        assert found["value"].to_pylist() == (table["value"].to_pylist() * 2)[99:]
        assert found["offset"].to_pylist() == list(range(99, 2 * count))


def test_topics_survive_a_restart(log: Log, folder: Path) -> None:
    log.create_topic("other", 3, {"segment.bytes": "4096"})
    log.delete_topic("t")
    log.close()
    with open_log(folder) as reopened:
        topic = reopened.topics()["other"]
        assert (topic.partition_count, topic.config) == (3, {"segment.bytes": "4096"})
        assert "t" not in reopened.topics()
        assert "t" not in topics_of_node(folder)
        reopened.create_topic("t", 1)
        assert values_of(reopened, "t") == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_names_that_kafka_refuses_are_refused(log: Log, name: str) -> None:
    with pytest.raises(InvalidTopic):
        log.create_topic(name, 1)


def test_the_longest_name_can_be_created_and_deleted(log: Log) -> None:
    log.create_topic("x" * 249, 1)
    log.delete_topic("x" * 249)
    assert "x" * 249 not in log.topics()


def test_only_one_process_opens_a_log(log: Log, folder: Path) -> None:
    script = f"from millstream.logcore.log import open_log; open_log({str(folder)!r})"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "LogLocked" in other.stderr
    assert "is already open in process" in other.stderr
    with pytest.raises(LogLocked, match="this process"):
        open_log(folder)


def test_a_closed_log_says_so(log: Log) -> None:
    log.close()
    log.close()
    for call in (lambda: log.append("t", 0, rows(b"a")), lambda: log.fetch("t", 0, 0), log.topics):
        with pytest.raises(LogClosed):
            call()


def test_a_directory_of_another_format_is_refused(log: Log, folder: Path) -> None:
    log.close()
    write_checked_json(folder / "meta.json", {"format": 99, "node_id": "n"}, durable=False)
    with pytest.raises(UnsupportedDataDirectory):
        open_log(folder)


def test_committed_offsets_survive_a_restart(log: Log, folder: Path) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    log.commit_offsets("g", {first: 3, second: 4})
    log.commit_offsets("g", {first: 5})
    log.commit_offsets("h", {first: 1})
    assert log.committed_offsets("nobody") == {}
    log.close()
    with open_log(folder) as reopened:
        assert reopened.committed_offsets("g") == {first: 5, second: 4}
        reopened.delete_topic("t")
        assert reopened.committed_offsets("h") == {}
    with open_log(folder) as again:
        assert again.committed_offsets("g") == {}


def test_importing_the_log_does_not_load_the_compiler() -> None:
    script = "import sys; import millstream.logcore.log; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_protocol_leaves_hypothesis_alone() -> None:
    script = "import millstream.logcore.remote, sys; assert 'hypothesis' not in sys.modules; import hypothesis"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_topics_are_those_of_now_and_only_what_changed_is_described_again(log: Log) -> None:
    log.create_topic("kept", 2, {"retention.ms": "5"})
    before = log.topics()
    log.create_topic("other", 1)
    assert log.topic("other") is not None, "also before all are described again"
    assert log.topics()["kept"] is before["kept"]
    log.alter_topic("kept", {"retention.ms": "6"})
    assert [log.topic("kept"), log.topics()["kept"]] == [replace(before["kept"], config={"retention.ms": "6"})] * 2
    log.add_partitions("kept", 3)
    assert [each.partition_count for each in (log.topic("kept"), log.topics()["kept"]) if each is not None] == [3, 3]
    other = log.topics()["other"]
    log.delete_topic("other")
    assert log.topic("other") is None
    assert "other" not in log.topics()
    log.create_topic("other", 1)
    assert log.topics()["other"] == other
    assert log.topics()["other"] is not other
