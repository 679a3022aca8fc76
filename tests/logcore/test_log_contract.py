"""What every `LogClient` does: the log of a node that is alone and that of a node with links to others, each in the
process of the node and over the network."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from waiting import eventually, inside

from millstream.logcore.client import (
    ROWS,
    FetchedColumns,
    FetchedRows,
    LogClient,
    Offsets,
    RowRecords,
    Topic,
    TopicPartition,
)
from millstream.logcore.cluster.node_log import NodeLog
from millstream.logcore.errors import (
    InvalidRecords,
    InvalidTopic,
    InvalidTransactionState,
    LogClosed,
    OffsetOutOfRange,
    ProducerFenced,
    TopicExists,
    UnknownTopic,
)
from millstream.logcore.log import Log
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

from .cluster.nodes import Cluster
from .log_records import columnar, records_of, rows, values_of

WHERE = TopicPartition("t", 0)
SOURCE = TopicPartition("t", 1)


@pytest.fixture(params=["in process", "remote", "node in process", "node remote"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogClient]:
    """A durable log with topic "t" of two partitions."""
    if request.param.startswith("node"):
        with Cluster(tmp_path, 1) as cluster:
            node = cluster.running[1]
            address = trusted_address(node.parts.serving.log, node.kafka.address)
            with RemoteLog(address) if request.param == "node remote" else NodeLog(node.parts) as log:
                log.create_topic("t", 2)
                yield log
        return
    single: Log = request.getfixturevalue("log")
    if request.param == "in process":
        yield single
        return
    with LogServer(single, port=0) as server, RemoteLog(server.address) as remote:
        yield remote


# Topics


def test_a_topic_that_is_made_anew_takes_records_from_those_who_wrote_before(client: LogClient) -> None:
    for _ in range(2):
        assert [client.append("t", 0, rows(value)) for value in (b"a", b"b")] == [0, 1]
        client.delete_topic("t")
        client.create_topic("t", 2)
    many = rows(*[b"%01000000d" % number for number in range(12)])
    assert client.append("t", 0, many) == 0
    client.delete_topic("t")
    client.create_topic("t", 2)
    assert client.append("t", 0, many) == 0
    assert values_of(client, "t") == [b"%01000000d" % number for number in range(12)]


def test_topics_are_created_listed_and_deleted(client: LogClient) -> None:
    client.create_topic("u", 3, {"segment.bytes": "4096"})
    assert client.topics()["u"] == Topic("u", 3, {"segment.bytes": "4096"})
    assert client.topics()["t"] == Topic("t", 2, {})
    client.delete_topic("u")
    assert "u" not in client.topics()


def test_mistakes_about_topics_have_their_errors(client: LogClient) -> None:
    with pytest.raises(TopicExists, match='topic "t" exists already'):
        client.create_topic("t", 1)
    for name, partition_count, config in [("u", 0, {}), ("a b", 1, {}), ("u", 1, {"segment.bytes": "many"})]:
        with pytest.raises(InvalidTopic):
            client.create_topic(name, partition_count, config)
    for call in (
        lambda: client.fetch("u", 0, 0),
        lambda: client.append("t", 2, rows(b"")),
        lambda: client.append("u", 0, rows()),
        lambda: client.offsets("u", 0),
        lambda: client.delete_topic("u"),
        lambda: client.wait({TopicPartition("u", 0): 0}, 0),
    ):
        with pytest.raises(UnknownTopic):
            call()
    client.commit_offsets("g", {WHERE: 0})  # a cluster makes the topic when somebody needs it
    for call in (
        lambda: client.append("__consumer_offsets", 0, rows(b"x")),
        lambda: client.delete_topic("__consumer_offsets"),
    ):
        with pytest.raises(InvalidTopic):
            call()


# Records


def test_records_come_back_as_they_were_appended(client: LogClient) -> None:
    table = pa.table(
        {
            "timestamp": pa.array([5, 3], pa.int64()),
            "key": pa.array([None, b"k"], pa.binary()),
            "value": pa.array([b"v", None], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], []], ROWS.field(4).type),
        }
    )
    assert client.append("t", 0, RowRecords(table)) == 0
    assert client.append("t", 0, rows(b"c")) == 2
    (run,) = client.fetch("t", 0, 0).runs
    assert isinstance(run, FetchedRows)
    assert run.table.schema == ROWS
    assert run.table.drop(["offset"]).slice(0, 2).to_pylist() == table.to_pylist()
    assert run.table["offset"].to_pylist() == [0, 1, 2]


def test_columnar_batches_use_an_offset_per_row_and_are_cut_at_the_asked_one(client: LogClient) -> None:
    client.append("t", 0, rows(b"a"))
    assert client.append("t", 0, columnar(1, 2, 3)) == 1
    assert client.append("t", 0, rows(b"b")) == 4
    fetched = client.fetch("t", 0, 2)
    columns, after = fetched.runs
    assert isinstance(columns, FetchedColumns) and isinstance(after, FetchedRows)
    assert (columns.batch["x"].to_pylist(), columns.base_offset, columns.timestamp_ms) == ([2, 3], 2, 9)
    assert (fetched.next_offset, fetched.last_stable_offset) == (5, 5)


def test_empty_records_append_nothing(client: LogClient) -> None:
    client.append("t", 0, rows(b"a"))
    assert client.append("t", 0, rows()) == 1
    assert client.append("t", 0, columnar()) == 1
    assert client.offsets("t", 0) == Offsets(0, 1, 1, 1)


def test_records_without_a_timestamp_are_refused_and_the_next_are_taken(client: LogClient) -> None:
    with pytest.raises(InvalidRecords):
        client.append("t", 0, RowRecords(pa.table({"key": [b"k"], "value": [b"v"]})))
    assert client.append("t", 0, rows(b"a")) == 0


def test_a_fetch_gives_at_least_one_batch_and_stops_near_its_limit(client: LogClient) -> None:
    for i in range(10):
        client.append("t", 0, rows(bytes([i]) * 1000))
    assert client.fetch("t", 0, 0, max_bytes=1).next_offset == 1
    assert client.fetch("t", 0, 0, max_bytes=3500).next_offset == 3
    assert len(values_of(client, "t")) == 10


def test_offsets_outside_the_log_are_refused(client: LogClient) -> None:
    client.append("t", 0, rows(b"a"))
    assert client.fetch("t", 0, 1).next_offset == 1
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            client.fetch("t", 0, offset)


def test_several_segments_are_read_as_one_log(client: LogClient) -> None:
    client.create_topic("small", 1, {"segment.bytes": "2000"})
    for i in range(50):
        client.append("small", 0, rows(b"%03d" % i * 50) if i % 3 else columnar(i))
    expected = [(i, b"%03d" % i * 50 if i % 3 else i) for i in range(50)]
    for offset in (0, 31, 49):
        assert records_of(client, "small", 0, offset) == expected[offset:]


def test_a_large_table_arrives_whole_and_in_order(client: LogClient) -> None:
    count = 200_000
    values = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
    table = pa.table({"timestamp": pa.array(np.arange(count)), "key": values, "value": values})
    assert client.append("t", 0, RowRecords(table)) == 0
    assert client.append("t", 0, RowRecords(table)) == count
    runs = client.fetch("t", 0, 99, max_bytes=1 << 30).runs
    found = pa.concat_tables(run.table for run in runs if isinstance(run, FetchedRows))
    assert found["offset"].equals(pa.chunked_array([np.arange(99, 2 * count)]))
    assert found["value"].combine_chunks() == pa.concat_arrays([values[99:], values])


def test_threads_append_in_order_each(client: LogClient) -> None:
    def write(writer: int) -> list[int]:
        return [client.append("t", 0, rows(b"%d-%d" % (writer, i))) for i in range(25)]

    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(write, range(8)))
    values = values_of(client, "t")
    assert sorted(offset for written in offsets for offset in written) == list(range(200))
    for writer, written in enumerate(offsets):
        assert [values[offset] for offset in written] == [b"%d-%d" % (writer, i) for i in range(25)]


def test_wait_wakes_up_at_once(client: LogClient) -> None:
    assert not client.wait({WHERE: 0}, 0.01)
    woken: list[float] = []

    def waiter() -> None:
        assert client.wait({WHERE: 0, TopicPartition("t", 1): 0}, 10)
        woken.append(time.monotonic())

    thread = threading.Thread(target=waiter)
    thread.start()
    eventually(inside(type(client).wait, thread))
    assert not woken
    client.append("t", 0, rows(b"a"))
    appended = time.monotonic()
    thread.join()
    assert woken[0] - appended < 0.5
    assert client.wait({WHERE: 0}, 0)
    for position in (1, 5):
        started = time.monotonic()
        assert not client.wait({WHERE: position}, 0.05)
        assert time.monotonic() - started >= 0.04


def test_wait_for_a_position_behind_the_end_lasts_until_the_log_is_there(client: LogClient) -> None:
    done: list[bool] = []
    over = threading.Event()

    def waiter() -> None:
        done.append(client.wait({WHERE: 2}, 10))
        over.set()

    thread = threading.Thread(target=waiter)
    thread.start()
    for value in (b"a", b"b"):
        eventually(inside(type(client).wait, thread))
        client.append("t", 0, rows(value))
    assert not over.wait(0.1)
    client.append("t", 0, rows(b"c"))
    thread.join()
    assert done == [True]


def test_a_closed_client_says_so(client: LogClient) -> None:
    client.close()
    client.close()
    for call in (lambda: client.append("t", 0, rows(b"a")), lambda: client.fetch("t", 0, 0), client.topics):
        with pytest.raises(LogClosed):
            call()


# Groups and transactions


def test_committed_offsets_are_kept_per_group(client: LogClient) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    client.commit_offsets("g", {first: 3, second: 4})
    client.commit_offsets("g", {first: 5})
    assert client.committed_offsets("g") == {first: 5, second: 4}
    assert client.committed_offsets("nobody") == {}


def test_a_transaction_is_seen_after_commit_and_not_before(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    for round in range(2):
        producer.begin()
        producer.append("t", 0, rows(b"a", b"b"))
        producer.append("t", 1, columnar(1, 2))
        producer.append("t", 0, rows())
        producer.append("t", 0, rows(b"c"))
        producer.send_offsets("g", {SOURCE: 5 + round})
        assert len(values_of(client, "t")) == 3 * round
        producer.commit()
    assert values_of(client, "t", 0) == [b"a", b"b", b"c"] * 2
    assert values_of(client, "t", 1) == [1, 2] * 2
    assert client.committed_offsets("g") == {SOURCE: 6}
    assert client.fetch("t", 0, 0).next_offset == 8  # behind the markers
    assert client.offsets("t", 0) == Offsets(0, 8, 8, 8)


def test_aborted_records_are_seen_by_read_uncommitted_only(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    for value, commits in [(b"a", True), (b"b", False), (b"c", True), (b"d", False)]:
        producer.begin()
        producer.append("t", 0, rows(value))
        producer.send_offsets("g", {SOURCE: ord(value)})
        if commits:
            producer.commit()
        else:
            producer.abort()
    assert records_of(client, "t") == [(0, b"a"), (4, b"c")]
    assert values_of(client, "t", isolation="read_uncommitted") == [b"a", b"b", b"c", b"d"]
    for offset in range(9):
        assert values_of(client, "t", 0, offset) == [b"a", b"c"][(offset > 0) + (offset > 4) :]
    assert client.committed_offsets("g") == {SOURCE: ord("c")}


def test_small_fetches_skip_aborted_records_too(client: LogClient) -> None:
    one, two = client.transactional_producer("one"), client.transactional_producer("two")
    one.begin()
    two.begin()
    for i in range(5):
        one.append("t", 0, rows(b"one%d" % i))
        two.append("t", 0, rows(b"two%d" % i))
    two.commit()
    assert values_of(client, "t") == []
    one.abort()
    offset, found = 0, []
    while offset < client.offsets("t", 0).last_stable_offset:
        fetched = client.fetch("t", 0, offset, max_bytes=1)
        assert fetched.next_offset > offset
        found += [value for run in fetched.runs if isinstance(run, FetchedRows) for value in run.table["value"]]
        offset = fetched.next_offset
    assert [value.as_py() for value in found] == [b"two%d" % i for i in range(5)]


def test_the_last_stable_offset_waits_for_undecided_transactions(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    client.append("t", 0, rows(b"before"))
    producer.begin()
    producer.append("t", 0, rows(b"open"))
    client.append("t", 0, rows(b"after"))
    assert client.offsets("t", 0) == Offsets(0, 1, 3, 3)
    assert not client.wait({WHERE: 1}, 0)
    assert values_of(client, "t", isolation="read_uncommitted") == [b"before", b"open", b"after"]
    assert values_of(client, "t") == [b"before"]
    producer.commit()
    assert client.wait({WHERE: 1}, 0)
    assert values_of(client, "t") == [b"before", b"open", b"after"]


def test_a_new_producer_fences_the_old_one_and_aborts_what_it_left_open(client: LogClient) -> None:
    old = client.transactional_producer("q")
    old.begin()
    old.append("t", 0, rows(b"zombie"))
    new = client.transactional_producer("q")
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    for call in (
        old.begin,
        lambda: old.append("t", 0, rows(b"x")),
        lambda: old.append("t", 1, rows(b"x")),
        lambda: old.send_offsets("g", {SOURCE: 1}),
        old.commit,
        old.abort,
        old.begin,
    ):
        with pytest.raises(ProducerFenced):
            call()
    new.begin()
    new.append("t", 0, rows(b"fresh"))
    new.commit()
    assert values_of(client, "t") == [b"fresh"]


def test_calls_that_do_not_fit_a_transaction_are_refused(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    for call in (producer.commit, lambda: producer.append("t", 0, rows(b"x"))):
        with pytest.raises(InvalidTransactionState):
            call()
    producer.abort()  # there is nothing to drop
    producer.begin()
    with pytest.raises(InvalidTransactionState):
        producer.begin()
    with pytest.raises(UnknownTopic):
        producer.append("nothing", 0, rows(b"x"))
    client.commit_offsets("g", {WHERE: 0})
    with pytest.raises(InvalidTopic):
        producer.append("__consumer_offsets", 0, rows(b"x"))
    producer.append("t", 0, rows(b"kept"))
    producer.commit()
    assert values_of(client, "t") == [b"kept"]


def test_a_producer_that_is_forgotten_is_fenced_and_what_it_has_open_is_aborted(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"never seen"))
    client.forget_producer("q")
    client.forget_producer("q")
    client.forget_producer("nobody has ever had it")
    with pytest.raises(ProducerFenced):
        producer.commit()
    after = client.transactional_producer("q")
    after.begin()
    after.append("t", 0, rows(b"a"))
    after.commit()
    assert values_of(client, "t") == [b"a"]


def test_offsets_of_a_partition_that_does_not_exist_are_refused_and_others_are_committed(client: LogClient) -> None:
    for missing in (TopicPartition("u", 0), TopicPartition("t", 2)):
        with pytest.raises(UnknownTopic):
            client.commit_offsets("g", {WHERE: 3, missing: 1})
        assert client.committed_offsets("g") == {WHERE: 3}
    producer = client.transactional_producer("q")
    producer.begin()
    with pytest.raises(UnknownTopic):
        producer.send_offsets("g", {TopicPartition("u", 0): 1})
    producer.abort()
    assert client.committed_offsets("g") == {WHERE: 3}
