"""A mirror in exact mode: the same records at the same offsets, once, and nobody else writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from two_logs import TwoLogs, ends_of, records_of, rows, two_logs, until_level, until_stopped

from millstream.logcore.client import ColumnarRecords, FetchedColumns, FetchedRows, TopicPartition
from millstream.logcore.errors import OffsetOutOfRange, ReadOnlyTopic
from millstream.logcore.log import open_log
from millstream.logcore.mirrors.mirrored_topics import release_topics
from millstream.logcore.records.thinning import fillers
from millstream.logcore.server import LogServer


@pytest.fixture
def logs(memory_folder: Path) -> Iterator[TwoLogs]:
    with two_logs(memory_folder) as opened:
        yield opened


@pytest.mark.parametrize("partitions", [1, 2, 6])
def test_a_copy_has_the_records_offsets_headers_and_tombstones_of_its_source(logs: TwoLogs, partitions: int) -> None:
    logs.there.create_topic("t", partitions)
    logs.there.create_topic("empty", partitions)
    for number in range(partitions):
        logs.there.append("t", number, rows(b"a", None, b"c" * 100, headers={"h": b"1", "n": None}))
        logs.there.append("t", number, rows(b"d", key=None))
    logs.copy()
    for number in range(partitions):
        assert records_of(logs.here, "t", number) == records_of(logs.there, "t", number)
        assert ends_of(logs.here, "t", number) == (0, 4)
        assert ends_of(logs.here, "empty", number) == (0, 0)
    assert logs.here.partition_count("t") == partitions


def test_what_was_aborted_is_not_copied_and_its_offsets_stay_taken(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    producer = logs.there.transactional_producer("p")
    for value, commits in ((b"1", True), (b"2", False), (b"3", True), (b"4", False)):
        producer.begin()
        producer.append("t", 0, rows(value, value))
        producer.commit() if commits else producer.abort()
    logs.copy()
    assert [record[2] for record in records_of(logs.here, "t")] == [b"1", b"1", b"3", b"3"]
    assert records_of(logs.here, "t") == records_of(logs.there, "t")
    assert ends_of(logs.here, "t") == ends_of(logs.there, "t")
    uncommitted = logs.here.fetch("t", 0, 0, isolation="read_uncommitted")
    assert sum(run.table.num_rows for run in uncommitted.runs if isinstance(run, FetchedRows)) == 4


def test_an_open_transaction_is_waited_for(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"0"))
    producer = logs.there.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"1"))
    with logs.mirror() as mirror:
        while ends_of(logs.here, "t")[1] < 1 if logs.here.topic("t") else True:
            mirror.step(0.05)
        for _ in range(5):
            mirror.step(0.05)
        assert ends_of(logs.here, "t") == (0, 1)
        producer.commit()
        until_level(mirror)
    assert records_of(logs.here, "t") == records_of(logs.there, "t")


def test_a_source_that_begins_later_begins_later_here(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 2)
    for number in range(2):
        logs.there.append("t", number, rows(b"a", b"b", b"c", b"d"))
    logs.there.delete_records("t", 0, 3)  # inside of a batch
    logs.there.delete_records("t", 1, 4)  # everything
    logs.copy()
    assert (ends_of(logs.here, "t", 0), ends_of(logs.here, "t", 1)) == ((3, 4), (4, 4))
    assert records_of(logs.here, "t", 0) == records_of(logs.there, "t", 0)


def test_retention_at_the_source_is_followed_also_where_it_overtakes_the_copier(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"a", b"b"))
    with logs.mirror() as mirror:
        until_level(mirror)
        logs.there.append("t", 0, rows(b"c", b"d"))
        logs.there.append("t", 0, rows(b"e"))
        logs.there.delete_records("t", 0, 4)
        until_level(mirror)
        for _ in range(100):  # an answer that was under way does not say yet where the log starts
            if ends_of(logs.here, "t") == (4, 5):
                break
            mirror.step(0.05)
    assert ends_of(logs.here, "t") == (4, 5)
    assert records_of(logs.here, "t") == records_of(logs.there, "t")


def test_compacted_topics_keep_their_offsets(logs: TwoLogs) -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1024"}
    logs.there.create_topic("t", 1, config)
    for number in range(60):
        logs.there.append("t", 0, rows(b"%d" % number * 30, key=b"k%d" % (number % 3)))
    logs.there.append("t", 0, rows(None, key=b"k0"))
    logs.there.keep_house()
    assert len(records_of(logs.there, "t")) < 40
    logs.copy()
    assert records_of(logs.here, "t") == records_of(logs.there, "t")
    assert ends_of(logs.here, "t") == (0, 61)


def test_columnar_batches_stay_columnar(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    batch = pa.record_batch({"n": [1, 2, 3]})
    logs.there.append("t", 0, ColumnarRecords(batch, 5))
    logs.there.append("t", 0, rows(b"x"))
    logs.copy()
    [columns, _] = logs.here.fetch("t", 0, 0).runs
    assert isinstance(columns, FetchedColumns)
    assert columns.batch == batch
    assert records_of(logs.here, "t") == records_of(logs.there, "t")


def test_a_copy_goes_on_where_it_ends(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"a"))
    assert logs.copy().records == 1
    logs.there.append("t", 0, rows(b"b"))
    assert logs.copy().records == 1
    assert records_of(logs.here, "t") == records_of(logs.there, "t")


def test_two_copiers_at_a_time_copy_everything_once(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 2)
    with logs.mirror() as one, logs.mirror() as other:
        for number in range(20):
            logs.there.append("t", number % 2, rows(b"%d" % number))
            one.step(0.02)
            other.step(0.02)
        until_level(one)
        until_level(other)
    for number in range(2):
        assert records_of(logs.here, "t", number) == records_of(logs.there, "t", number)


def test_new_topics_partitions_and_settings_follow(logs: TwoLogs) -> None:
    with logs.mirror("t*") as mirror:
        until_level(mirror)
        logs.there.create_topic("t1", 1, {"retention.ms": "1000000", "min.insync.replicas": "1"})
        logs.there.create_topic("other", 1)
        logs.there.append("t1", 0, rows(b"a"))
        until_level(mirror)
        logs.there.add_partitions("t1", 3)
        logs.there.alter_topic("t1", {"retention.ms": "2000000"})
        logs.there.append("t1", 2, rows(b"b"))
        until_level(mirror)
    assert logs.here.topic("other") is None
    assert records_of(logs.here, "t1", 2) == records_of(logs.there, "t1", 2)
    config = logs.here.topics()["t1"].config
    assert (config["retention.ms"], config["millstream.mirror"]) == ("2000000", "m")
    assert "min.insync.replicas" not in config


# Who may write


def test_only_the_mirror_writes_until_its_topics_are_released(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"a"))
    logs.copy()
    transactional = logs.here.transactional_producer("p")
    transactional.begin()
    with pytest.raises(ReadOnlyTopic, match='the mirror "m" writes it'):
        logs.here.append("t", 0, rows(b"mine"))
    with pytest.raises(ReadOnlyTopic, match='the mirror "m" writes it'):
        transactional.append("t", 0, rows(b"mine"))
    transactional.abort()
    with LogServer(logs.here, port=0) as server:
        refusal = _refusal(server.address, "t")
        assert "POLICY_VIOLATION" in refusal
        admin = AdminClient({"bootstrap.servers": server.address})
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            admin.delete_records([ConfluentPartition("t", 0, 1)])[ConfluentPartition("t", 0)].result()
    assert release_topics(logs.here, "m") == ["t"]
    logs.here.append("t", 0, rows(b"mine"))
    with pytest.raises(ReadOnlyTopic, match='not a copy that mirror "m" writes any more'):
        logs.here.append_copies("t", 0, list(fillers(2, 3, 0)), "m")


def _refusal(address: str, topic: str) -> str:
    found: list[str] = []
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: found.append(str(error)))
    producer.flush(10)
    return found[0]


def test_an_append_at_another_offset_is_refused(logs: TwoLogs) -> None:
    logs.here.create_topic("t", 1, {"millstream.mirror": "m"})
    logs.here.append_copies("t", 0, list(fillers(0, 5, 0)), "m")
    for first in (0, 4, 6):
        with pytest.raises(OffsetOutOfRange, match="the log ends at 5"):
            logs.here.append_copies("t", 0, list(fillers(first, first + 1, 0)), "m")
    with pytest.raises(ReadOnlyTopic, match='the mirror "m" writes it'):
        logs.here.append_copies("t", 0, list(fillers(5, 6, 0)), "another")
    assert ends_of(logs.here, "t") == (0, 5)


def test_clients_cannot_say_that_they_are_a_mirror(logs: TwoLogs) -> None:
    with LogServer(logs.here, port=0) as server:
        admin = AdminClient({"bootstrap.servers": server.address})
        created = admin.create_topics([NewTopic("t", 1, 1, config={"millstream.mirror": "mine"})])
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            created["t"].result()


# What does not fit


def test_a_topic_that_is_here_already_is_left_alone(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"theirs"))
    logs.here.create_topic("t", 1)
    logs.here.append("t", 0, rows(b"mine"))
    mirror = logs.copy()
    assert "a topic of this name here already" in mirror.board.refused["t"]
    assert [record[2] for record in records_of(logs.here, "t")] == [b"mine"]


def test_a_beginning_of_the_source_is_taken_over_and_another_topic_is_not(logs: TwoLogs) -> None:
    for topic in ("same", "other"):
        for log in (logs.there, logs.here):
            log.create_topic(topic, 1)
    logs.there.append("same", 0, rows(b"a", b"b"))
    logs.there.append("same", 0, rows(b"c"))
    logs.here.append("same", 0, rows(b"a", b"b"))
    logs.there.append("other", 0, rows(b"a", b"b"))
    logs.here.append("other", 0, rows(b"a", b"x"))
    with logs.mirror(adopts=True) as mirror:
        why = until_stopped(mirror, TopicPartition("other", 0))
        until_level(mirror)
    assert "the record at offset 1 is another one" in why
    assert records_of(logs.here, "same") == records_of(logs.there, "same")


def test_two_mirrors_do_not_write_one_topic(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.copy()
    with logs.mirror(name="second") as mirror:
        mirror.step(0.05)
        assert mirror.board.refused["t"] == 't: the mirror "m" writes the topic here'


def test_a_topic_that_was_made_anew_stops_and_the_others_go_on(logs: TwoLogs) -> None:
    for topic in ("t", "u"):
        logs.there.create_topic(topic, 1)
        logs.there.append(topic, 0, rows(b"a"))
    with logs.mirror() as mirror:
        until_level(mirror)
        logs.there.delete_topic("t")
        logs.there.create_topic("t", 1)
        for _ in range(3):  # batches that would fit behind the copy
            logs.there.append("t", 0, rows(b"new"))
        assert "made anew" in until_stopped(mirror, TopicPartition("t", 0))
        logs.there.append("u", 0, rows(b"b"))
        until_level(mirror)
    assert [record[2] for record in records_of(logs.here, "t")] == [b"a"]
    assert records_of(logs.here, "u") == records_of(logs.there, "u")


@pytest.mark.parametrize(("after", "why"), [((b"a",), "has lost records"), ((b"a", b"x", b"c"), "another one")])
def test_a_source_that_went_back_stops_the_partition(memory_folder: Path, after: tuple[bytes, ...], why: str) -> None:
    with two_logs(memory_folder / "1") as logs:
        logs.there.create_topic("t", 1)
        logs.there.append("t", 0, rows(b"a"))
        logs.there.append("t", 0, rows(b"b"))
        logs.copy()
        # The same cluster, of which an unclean leader has other records: to a client, another log at the address.
        with open_log(memory_folder / "unclean", sync="never") as unclean, LogServer(unclean, port=0) as server:
            unclean.create_topic("t", 1)
            for value in after:
                unclean.append("t", 0, rows(value))
            config = dict(logs.here.topics()["t"].config)
            del config["millstream.mirror.topic.id"]
            logs.here.alter_topic("t", config)
            with logs.mirror(address=server.address) as mirror:
                assert why in until_stopped(mirror, TopicPartition("t", 0))
        assert [record[2] for record in records_of(logs.here, "t")] == [b"a", b"b"]


# Groups


def test_committed_offsets_are_copied_but_not_beyond_the_end(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 2)
    logs.there.append("t", 0, rows(b"a", b"b", b"c"))
    where, hostile = TopicPartition("t", 0), TopicPartition("t", 1)
    logs.there.commit_offsets("g", {where: 2, hostile: 99})
    with logs.mirror() as mirror:
        until_level(mirror)
        mirror.look()
        assert logs.here.committed_offsets("g") == {where: 2, hostile: 0}
        logs.there.commit_offsets("g", {where: 1})  # somebody has set it back
        mirror.look()
        assert logs.here.committed_offsets("g")[where] == 1
        logs.here.commit_offsets("g", {where: 3})  # read here meanwhile
        mirror.look()
        assert logs.here.committed_offsets("g")[where] == 3
