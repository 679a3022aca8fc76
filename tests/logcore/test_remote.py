"""What every `LogClient` does, asked of the log in this process and of the same log over the network; and what only
the network can do: break.
"""

from __future__ import annotations

import multiprocessing
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millstream.logcore import failpoints
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
from millstream.logcore.errors import (
    CorruptLog,
    InvalidRecords,
    InvalidTopic,
    InvalidTransactionState,
    LogClosed,
    LogFull,
    LogUnavailable,
    LogWriteFailed,
    OffsetOutOfRange,
    ProducerFenced,
    TopicExists,
    UnknownTopic,
)
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from .log_records import columnar, records_of, rows, segment_files, values_of

WHERE = TopicPartition("t", 0)
SOURCE = TopicPartition("t", 1)


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0) as running:
        yield running


@pytest.fixture
def remote(server: LogServer) -> Iterator[RemoteLog]:
    with RemoteLog(server.address) as client:
        yield client


@pytest.fixture(params=["in process", "remote"])
def client(request: pytest.FixtureRequest, log: Log) -> LogClient:
    """The durable log with topic "t" of two partitions, by either way."""
    return log if request.param == "in process" else request.getfixturevalue("remote")


# Topics


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
    time.sleep(0.1)
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
    thread = threading.Thread(target=lambda: done.append(client.wait({WHERE: 2}, 10)))
    thread.start()
    for value in (b"a", b"b"):
        time.sleep(0.03)
        client.append("t", 0, rows(value))
    time.sleep(0.1)
    assert not done
    client.append("t", 0, rows(b"c"))
    thread.join()
    assert done == [True]


def test_a_full_disk_refuses_an_append_and_the_next_one_is_taken(client: LogClient) -> None:
    client.append("t", 0, rows(b"a"))
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull):
        client.append("t", 0, rows(b"refused"))
    failpoints.arm("")
    assert client.append("t", 0, rows(b"b")) == 1
    assert values_of(client, "t") == [b"a", b"b"]


def test_damaged_files_are_reported(client: LogClient, folder: Path) -> None:
    client.append("t", 0, rows(b"abcdefgh"))
    (file,) = segment_files(folder)
    content = bytearray(file.read_bytes())
    content[70] ^= 1  # inside the only record
    file.write_bytes(content)
    with pytest.raises(CorruptLog):
        client.fetch("t", 0, 0)


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
        assert client.committed_offsets("g") == ({SOURCE: 5} if round else {})
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
    with pytest.raises(InvalidTopic):
        producer.append("__consumer_offsets", 0, rows(b"x"))
    producer.append("t", 0, rows(b"kept"))
    producer.commit()
    assert values_of(client, "t") == [b"kept"]


def test_a_commit_that_the_disk_refuses_is_an_abort(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.send_offsets("g", {SOURCE: 1})
    failpoints.arm("append.before_sync:1:eio")
    with pytest.raises(LogWriteFailed):
        producer.commit()
    failpoints.arm("")
    producer.abort()
    assert values_of(client, "t") == []
    producer.begin()
    producer.append("t", 0, rows(b"b"))
    producer.commit()
    assert values_of(client, "t") == [b"b"]
    assert client.committed_offsets("g") == {}


def test_after_a_refused_append_the_transaction_can_be_aborted_and_the_next_one_works(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull):
        producer.append("t", 0, rows(b"b"))
    failpoints.arm("")
    producer.abort()
    producer.begin()
    producer.append("t", 0, rows(b"c"))
    producer.commit()
    assert values_of(client, "t") == [b"c"]


# Only over the network


def test_pickled_only_the_address_travels(remote: RemoteLog) -> None:
    remote.append("t", 0, rows(b"a"))
    other: RemoteLog = pickle.loads(pickle.dumps(remote))
    assert other.append("t", 0, rows(b"b")) == 1
    other.close()
    assert values_of(remote, "t") == [b"a", b"b"]


def _append_in_child(remote: RemoteLog) -> None:
    assert remote.append("t", 0, rows(b"child")) == 1
    assert values_of(remote, "t") == [b"parent", b"child"]


def test_a_forked_process_makes_connections_of_its_own(remote: RemoteLog) -> None:
    remote.append("t", 0, rows(b"parent"))
    child = multiprocessing.get_context("fork").Process(target=_append_in_child, args=(remote,))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert remote.append("t", 0, rows(b"parent again")) == 2


def test_an_address_where_nobody_listens_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(LogUnavailable, match=f"no log answers at 127.0.0.1:{port}: connection refused"):
        RemoteLog(f"127.0.0.1:{port}").topics()


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:", ":9092", "localhost:x", "localhost:70000"])
def test_what_is_no_address_is_refused_at_once(bootstrap: str) -> None:
    with pytest.raises(LogUnavailable, match="is not the address of a log"):
        RemoteLog(bootstrap)


def test_a_server_of_another_protocol_is_recognised() -> None:
    def answer_like_http(listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted:
                accepted.recv(1000)
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_like_http, args=(listener,), daemon=True).start()
        with pytest.raises(LogUnavailable, match="does not speak the Kafka protocol"):
            RemoteLog(f"127.0.0.1:{listener.getsockname()[1]}").topics()


def test_a_client_goes_on_when_the_server_is_back(log: Log, folder: Path) -> None:
    first = LogServer(log, port=0)
    first.start()
    remote = RemoteLog(first.address)
    producer = remote.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"lost"))
    remote.append("t", 1, rows(b"a"))
    first.stop()
    with pytest.raises(LogUnavailable):
        remote.append("t", 1, rows(b"unheard"))
    log.close()
    with open_log(folder) as reopened, LogServer(reopened, port=first.port):
        assert remote.append("t", 1, rows(b"b")) == 1
        with pytest.raises(ProducerFenced):
            producer.commit()
        assert values_of(remote, "t", 0) == []
        assert values_of(remote, "t", 1) == [b"a", b"b"]
        again = remote.transactional_producer("q")
        again.begin()
        again.append("t", 0, rows(b"kept"))
        again.commit()
        assert values_of(remote, "t", 0) == [b"kept"]
    remote.close()


class _LossyProxy:
    """Passes connections on; of every second answer it drops the connection in its place."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.lossy = False
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(accepted,), daemon=True).start()

    def _pass_on(self, accepted: socket.socket) -> None:
        """One request and one answer at a time, as `Channel` does."""
        with accepted, socket.create_connection(("127.0.0.1", self._port)) as server:
            answers = 0
            while request := _frame_of(accepted):
                server.sendall(request)
                answer = _frame_of(server)
                answers += 1
                if self.lossy and answers > 2:
                    self.lost += 1
                    return
                accepted.sendall(answer)

    def close(self) -> None:
        self._listener.close()


def _frame_of(peer: socket.socket) -> bytes:
    prefix = peer.recv(4, socket.MSG_WAITALL)
    return prefix + peer.recv(int.from_bytes(prefix, "big"), socket.MSG_WAITALL) if prefix else b""


def test_records_whose_answer_was_lost_are_stored_once(log: Log, server: LogServer) -> None:
    proxy = _LossyProxy(server.port)
    remote = RemoteLog(proxy.address)
    proxy.lossy = True
    for i in range(20):
        assert remote.append("t", 0, rows(b"%d" % i)) == i
    producer = remote.transactional_producer("q")
    for i in range(10):
        producer.begin()
        producer.append("t", 1, rows(b"%d" % i))
        producer.append("t", 1, columnar(i))
        producer.commit()
    assert proxy.lost > 10
    assert values_of(log, "t", 0) == [b"%d" % i for i in range(20)]
    assert values_of(log, "t", 1) == [value for i in range(10) for value in (b"%d" % i, i)]
    remote.close()
    proxy.close()
