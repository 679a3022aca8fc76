"""The client of a cluster: it finds leaders and coordinators, waits a fail-over out, and writes nothing twice."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from waiting import eventually, inside

from millstream.logcore.client import FetchedRows, RowRecords, TopicPartition
from millstream.logcore.cluster.cluster_layout import ClusterLayout
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.errors import LogUnavailable, NotNow, ProducerFenced, TopicExists, UnknownTopic
from millstream.logcore.protocol.layout import LeaderOffsets
from millstream.logcore.remote import RemoteLog

from .nodes import Cluster

WHERE = TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


@pytest.fixture
def log(cluster: Cluster) -> Iterator[RemoteLog]:
    with RemoteLog(f"{cluster.running[1].kafka.log.secret}@{cluster.bootstrap}", patience_s=60.0) as client:
        yield client


def rows(*values: bytes) -> RowRecords:
    columns = {"timestamp": [0] * len(values), "key": [None] * len(values), "value": list(values)}
    schema = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
    return RowRecords(pa.table(columns, schema=schema))


def values_of(log: RemoteLog, where: TopicPartition) -> list[bytes]:
    found: list[bytes] = []
    position = 0
    while (fetched := log.fetch(*where, position)).next_offset > position:
        for run in fetched.runs:
            assert isinstance(run, FetchedRows)
            found += run.table["value"].to_pylist()
        position = fetched.next_offset
    return found


def test_topics_records_and_offsets_are_found_wherever_they_are(cluster: Cluster, log: RemoteLog) -> None:
    log.create_topic("t", 6, {"retention.ms": "-1"})
    assert log.topics()["t"].config["retention.ms"] == "-1"
    for partition in range(6):
        log.append("t", partition, rows(b"%d" % partition))
        assert values_of(log, TopicPartition("t", partition)) == [b"%d" % partition]
        assert log.offsets("t", partition).log_end_offset == 1
    assert log.wait({TopicPartition("t", partition): 0 for partition in range(6)}, 5.0)
    assert not log.wait({TopicPartition("t", partition): 1 for partition in range(6)}, 0.3)
    with pytest.raises(TopicExists):
        log.create_topic("t", 6)
    with pytest.raises(UnknownTopic):
        log.append("u", 0, rows(b"x"))
    with pytest.raises(UnknownTopic):
        log.append("t", 6, rows(b"x"))
    log.delete_topic("t")
    assert "t" not in log.topics()


def test_who_knows_one_node_finds_the_others(cluster: Cluster, log: RemoteLog) -> None:
    log.create_topic("t", 3)
    address = cluster.running[1].kafka.address
    with pickle.loads(pickle.dumps(RemoteLog(f"{cluster.running[1].kafka.log.secret}@{address}"))) as other:
        for partition in range(3):
            other.append("t", partition, rows(b"x"))
            assert values_of(other, TopicPartition("t", partition)) == [b"x"]


def test_a_wait_ends_when_any_leader_has_something(cluster: Cluster, log: RemoteLog) -> None:
    log.create_topic("t", 3)
    ends = {TopicPartition("t", partition): 0 for partition in range(3)}
    for turn in range(6):
        woken: list[bool] = []
        waiting = threading.Thread(target=lambda woken=woken: woken.append(log.wait(dict(ends), 20.0)))
        waiting.start()
        eventually(inside(RemoteLog.wait, waiting))
        log.append("t", turn % 3, rows(b"x"))
        waiting.join()
        assert woken == [True]
        ends[TopicPartition("t", turn % 3)] += 1


def test_appends_wait_for_the_next_leader_and_are_stored_once(cluster: Cluster, log: RemoteLog) -> None:
    log.create_topic("t", 1)
    sent: list[bytes] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            value = b"%d" % len(sent)
            log.append("t", 0, rows(value))
            sent.append(value)

    writing = threading.Thread(target=write)
    writing.start()
    for _ in range(2):
        before = len(sent)
        eventually(lambda before=before: len(sent) > before)
        number = cluster.leader_of("t")
        cluster.kill(number)
        before = len(sent)
        cluster.leader_of("t")
        eventually(lambda before=before: len(sent) >= before + 5)
        cluster.start(number)
    stop.set()
    writing.join()
    assert values_of(log, WHERE) == sent


def test_transactions_and_offsets_survive_the_nodes_that_decide_on_them(cluster: Cluster, log: RemoteLog) -> None:
    log.create_topic("t", 2)
    log.create_topic("src", 1)
    producer = log.transactional_producer("q")
    committed = 0
    for turn in range(12):
        if turn in (4, 8):
            cluster.kill(1 + turn // 4)
        producer.begin()
        producer.append("t", turn % 2, rows(b"%d" % turn))
        producer.send_offsets("g", {TopicPartition("src", 0): turn + 1})
        if turn % 4 == 3:
            producer.abort()
        else:
            producer.commit()
            committed = turn + 1
        if turn in (5, 9):
            cluster.start(1 + turn // 4)
    assert log.committed_offsets("g") == {TopicPartition("src", 0): committed}
    for partition in (0, 1):
        kept = [b"%d" % turn for turn in range(12) if turn % 4 != 3 and turn % 2 == partition]
        assert values_of(log, TopicPartition("t", partition)) == kept
    log.transactional_producer("q")
    with pytest.raises(ProducerFenced):
        producer.begin()


def test_offsets_that_are_not_decided_are_not_taken_for_none(cluster: Cluster, log: RemoteLog) -> None:
    """A query that took them for none began to read anew, and counted everything twice."""
    log.create_topic("src", 1)
    log.commit_offsets("g", {TopicPartition("src", 0): 1})
    producer = log.transactional_producer("q")
    producer.begin()
    producer.send_offsets("g", {TopicPartition("src", 0): 5})
    with pytest.raises(LogUnavailable, match="unstable offset commit"):
        log.committed_offsets("g")
    log.transactional_producer("q")  # aborts it
    assert log.committed_offsets("g") == {TopicPartition("src", 0): 1}


def test_a_new_leader_is_read_only_once_it_knows_what_was_committed_before_it(
    cluster: Cluster, log: RemoteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("t", 1)
    log.append("t", 0, rows(b"x"))
    offsets = ClusterLayout.offsets
    asked: list[TopicPartition] = []

    def late(layout: ClusterLayout, where: TopicPartition, leader_epoch: int = -1) -> LeaderOffsets:
        asked.append(where)
        if len(asked) < 4:
            raise NotNow(ErrorCode.offset_not_available, "not yet")
        return offsets(layout, where, leader_epoch)

    monkeypatch.setattr(ClusterLayout, "offsets", late)
    assert values_of(log, WHERE) == [b"x"]
    assert log.offsets("t", 0).log_end_offset == 1
    assert len(asked) == 4  # and never again while it leads


def test_a_cluster_without_a_majority_is_unavailable_after_the_patience(cluster: Cluster, log: RemoteLog) -> None:
    log.create_topic("t", 1)
    with RemoteLog(log.bootstrap, patience_s=1.0) as hasty:
        for number in (1, 2):
            cluster.kill(number)
        with pytest.raises(LogUnavailable):
            hasty.append("t", 0, rows(b"x"))
