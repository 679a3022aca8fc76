"""How long a topic keeps its records, what compaction leaves, and what the log forgets."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from waiting import eventually

from millstream.errors import LogError
from millstream.logcore.client import ColumnarRecords, FetchedColumns, FetchedRows, RowRecords, TopicPartition
from millstream.logcore.compaction.cleaning import compact
from millstream.logcore.cores.expiry import ExpiryTimes
from millstream.logcore.errors import (
    CorruptLog,
    InvalidTopic,
    LogFull,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordsTooLarge,
)
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode
from millstream.logcore.records.column_keys import key_metadata
from millstream.logcore.replication.shards.transaction_shard import TransactionSettings
from millstream.logcore.storage.housekeeping import Housekeeper, HousekeepingTarget
from millstream.logcore.storage.partition_keeping import KeptPartition
from millstream.logcore.storage.timestamps import first_at_or_after, latest_timestamp
from millstream.logcore.storage.verification import dump
from millstream.logcore.storage.verification import records_of as records_in

from .log_records import columnar, partition_folder, records_of, rows, segment_files, values_of

HOUR_S = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(folder: Path, clock: Clock) -> Iterator[Log]:
    with open_log(folder, clock=clock, sync="never") as opened:
        yield opened


def forget_checkpoints(folder: Path) -> None:
    for checkpoint in partition_folder(folder).glob("checkpoint*.json"):
        checkpoint.unlink()


def keyed(key: bytes, value: bytes | None, timestamp: int = 5) -> RowRecords:
    return rows(value, key=key, timestamp=timestamp)


def test_a_segment_ends_when_it_is_full_or_old(log: Log, folder: Path, clock: Clock) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024", "segment.ms": "60000"})
    log.append("t", 0, rows(b"a"))
    log.append("t", 0, rows(b"b"))
    assert len(segment_files(folder)) == 1
    clock.now_s += 61
    log.append("t", 0, rows(b"c"))
    assert [int(path.stem) for path in segment_files(folder)] == [0, 2]
    log.append("t", 0, rows(b"d" * 1000))
    assert [int(path.stem) for path in segment_files(folder)] == [0, 2, 3]


def test_old_segments_go_with_the_active_one_once_nothing_in_it_is_young(log: Log, folder: Path, clock: Clock) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024", "retention.ms": "3600000"})
    now_ms = int(clock.now_s * 1000)
    for number in range(20):
        log.append("t", 0, rows(b"%0200d" % number, timestamp=now_ms))
    clock.now_s += HOUR_S / 2
    log.append("t", 0, rows(b"last", timestamp=now_ms))
    log.keep_house()
    assert log.offsets("t", 0).log_start_offset == 0
    clock.now_s += HOUR_S / 2 + 1
    log.keep_house()
    start = log.offsets("t", 0).log_start_offset
    assert 0 < start <= 20
    assert values_of(log, "t", 0, start)[-1] == b"last", "its segment was written half an hour ago"
    clock.now_s += HOUR_S
    log.keep_house()
    assert log.offsets("t", 0).log_start_offset == log.offsets("t", 0).log_end_offset == 21
    assert len(segment_files(folder)) == 1
    assert log.append("t", 0, rows(b"new")) == 21


def test_old_events_that_were_just_imported_stay(log: Log, clock: Clock) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024", "retention.ms": "3600000"})
    for number in range(20):
        log.append("t", 0, rows(b"%0200d" % number, timestamp=number))
    log.keep_house()
    assert len(values_of(log, "t")) == 20


def test_a_partition_keeps_about_as_many_bytes_as_it_may(log: Log, folder: Path) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024", "retention.bytes": "4096"})
    for number in range(100):
        log.append("t", 0, rows(b"%0200d" % number))
    log.keep_house()
    assert 4096 <= sum(path.stat().st_size for path in segment_files(folder)) < 4096 + 1024
    start = log.offsets("t", 0).log_start_offset
    assert values_of(log, "t", 0, start) == [b"%0200d" % number for number in range(start, 100)]


def test_retention_waits_for_an_open_transaction(log: Log) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024", "retention.bytes": "1"})
    producer = log.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"open"))
    for number in range(50):
        log.append("t", 0, rows(b"%0200d" % number))
    log.keep_house()
    assert log.offsets("t", 0).log_start_offset == 0
    producer.commit()
    log.keep_house()
    assert log.offsets("t", 0).log_start_offset > 40


def test_records_are_deleted_up_to_an_offset_and_stay_deleted(log: Log, folder: Path, clock: Clock) -> None:
    log.create_topic("t", 1)
    log.append("t", 0, rows(b"a", b"b", b"c"))
    assert log.delete_records("t", 0, 2) == 2
    assert log.delete_records("t", 0, 1) == 2, "it never goes back"
    with pytest.raises(OffsetOutOfRange):
        log.delete_records("t", 0, 4)
    with pytest.raises(OffsetOutOfRange):
        log.fetch("t", 0, 1)
    assert values_of(log, "t", 0, 2) == [b"c"]
    log.close()
    with open_log(folder, clock=clock) as reopened:
        assert reopened.offsets("t", 0).log_start_offset == 2


def test_compaction_keeps_the_latest_record_of_each_key_at_its_offset(log: Log, clock: Clock) -> None:
    log.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "delete.retention.ms": "1000"})
    for number in range(30):
        log.append("t", 0, keyed(b"k%d" % (number % 3), b"%0100d" % number))
    log.append("t", 0, keyed(b"k0", None))
    log.append("t", 0, rows(b"without a key", key=None))
    log.append("t", 0, keyed(b"k9", b"x" * 1000))
    log.append("t", 0, keyed(b"k9", b"x" * 1000))
    kept = log.keep_house()
    assert kept.compacted == 1
    assert [offset for offset, _ in records_of(log, "t")] == [28, 29, 30, 31, 32, 33]
    clock.now_s += 2
    log.keep_house()
    assert [offset for offset, _ in records_of(log, "t")] == [28, 29, 31, 32, 33], "the tombstone had its time"
    assert log.keep_house().compacted == 0


def filled_for_both(log: Log, clock: Clock) -> KeptPartition:
    """Ten segments that compaction is due for, and of which retention can take the oldest."""
    policy = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
    log.create_topic("t", 1, {"segment.bytes": "1024", "retention.ms": "3600000", **policy})
    for number in range(10):
        log.append("t", 0, keyed(b"k%d" % (number % 2), b"%0900d" % number))
    clock.now_s += 2 * HOUR_S
    return log.served.partition("t", 0)


@pytest.mark.parametrize("nth", range(1, 20))
def test_segments_may_be_deleted_while_they_are_compacted(log: Log, clock: Clock, nth: int) -> None:
    partition, now_ms = filled_for_both(log, clock), int(clock.now_s * 1000)
    pauses = itertools.count(1)

    def pause() -> None:
        if next(pauses) == nth:
            partition.drop_before(4)

    compact(partition, now_ms, pause=pause)
    start = log.offsets("t", 0).log_start_offset
    assert start == (4 if nth <= 18 else 0), "nine segments are sealed, and each is read twice"
    compact(partition, now_ms)
    assert records_of(log, "t", 0, start) == [(number, b"%0900d" % number) for number in (7, 8, 9)]


def test_damage_that_compaction_meets_is_said(log: Log, clock: Clock, folder: Path) -> None:
    partition = filled_for_both(log, clock)
    segment = segment_files(folder)[3]
    segment.write_bytes(segment.read_bytes()[:-10])
    with pytest.raises(CorruptLog):
        compact(partition, int(clock.now_s * 1000))


def test_compaction_leaves_out_what_was_aborted_and_keeps_what_is_undecided(log: Log, folder: Path) -> None:
    log.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"})
    producer = log.transactional_producer("p")
    for number in range(12):
        producer.begin()
        producer.append("t", 0, keyed(b"k%d" % (number % 2), b"%0100d" % number))
        (producer.abort if number % 3 == 2 else producer.commit)()
    producer.begin()
    producer.append("t", 0, keyed(b"k0", b"open"))
    for number in range(12):
        log.append("t", 0, keyed(b"other", b"%0100d" % number))
    log.keep_house()
    end = log.offsets("t", 0).log_end_offset
    values = dict(records_of(log, "t", isolation="read_uncommitted"))
    assert b"open" in values.values()
    assert b"%0100d" % 11 not in [value for offset, value in values.items() if offset < 24], "it was aborted"
    producer.commit()
    log.close()
    forget_checkpoints(folder)
    with open_log(folder, sync="never") as reopened:  # everything is read again, without the markers that are gone
        offsets = reopened.offsets("t", 0)
        assert offsets.last_stable_offset == offsets.log_end_offset == end + 1
        assert b"open" in values_of(reopened, "t")


def test_a_columnar_batch_of_which_only_its_producer_is_kept_is_read_past(log: Log, folder: Path) -> None:
    """Compaction empties the last batch of a producer, so that what it sends again is known."""
    log.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"})
    schema = pa.schema([("k", pa.string()), ("x", pa.int64())]).with_metadata(key_metadata(["k"]))

    def columns(x: int) -> ColumnarRecords:
        return ColumnarRecords(pa.record_batch({"k": ["a"], "x": [x]}, schema=schema), 5)

    log.append("t", 0, columns(1))
    other = log.transactional_producer("p")
    other.begin()
    for x in (2, 3, 4):
        other.append("t", 0, columns(x))
    other.append("t", 0, keyed(b"end", b"x" * 2000))
    other.commit()
    assert log.keep_house().compacted
    (first, *_) = [batch for path in segment_files(folder) for batch in dump(path)]
    assert first.header.columnar and not first.header.record_count and records_in(first) == []
    assert values_of(log, "t") == [4, b"x" * 2000]
    log.close()
    with open_log(folder, sync="never") as reopened:
        assert values_of(reopened, "t") == [4, b"x" * 2000]


def test_what_is_left_before_the_start_of_the_log_is_read_past_when_all_is_read_again(folder: Path) -> None:
    """Each opening begins a leader epoch, and epochs never go back; those before the log's start are forgotten."""
    with open_log(folder, sync="never") as log:
        config = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"}
        log.create_topic("t", 1, config)
        for _ in range(2):
            log.append("t", 0, keyed(b"k", b"x" * 100))
    with open_log(folder, sync="never") as log:
        for number in range(3):
            log.append("t", 0, keyed(b"k%d" % number, b"%d" % number))
        log.delete_records("t", 0, 3)
        log.append("t", 0, keyed(b"large", b"x" * 1000))
        assert log.keep_house().compacted
    forget_checkpoints(folder)
    with open_log(folder, sync="never") as log:
        assert values_of(log, "t", 0, 3) == [b"1", b"2", b"x" * 1000]


def test_a_batch_sent_again_is_known_though_compaction_took_its_records(log: Log, folder: Path, clock: Clock) -> None:
    log.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"})
    producer_id = log.transactional_producer("p").producer_id

    def send(sequence: int) -> int:
        records = keyed(b"k", b"%0300d" % sequence)
        (batch,) = encode(records, BatchProducer(producer_id, 0, sequence))
        return log.append_batches("t", 0, b"".join(bytes(buffer) for buffer in batch.buffers))

    assert [send(number) for number in range(4)] == [0, 1, 2, 3]
    log.append("t", 0, keyed(b"k", b"x" * 1000))
    log.append("t", 0, keyed(b"k", b"x" * 1000))
    log.keep_house()
    log.close()
    forget_checkpoints(folder)
    with open_log(folder, clock=clock, sync="never") as log:
        assert send(3) == 3
        with pytest.raises(OutOfOrderSequence):
            send(9)
        clock.now_s += 25 * HOUR_S
        log.keep_house()
        assert send(9) == 6, "nothing is known any more of a producer that was silent for a day"


def test_transactional_ids_that_nobody_uses_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks_often = partial(TransactionSettings, look_for_expired_ms=20)
    monkeypatch.setattr("millstream.logcore.cluster.cluster_node.TransactionSettings", looks_often)
    with open_log(folder, sync="never", expiry=ExpiryTimes(transactional_ids_ms=3000)) as log:
        log.create_topic("t", 1)
        held = log.transactional_producer("held")
        held.begin()
        held.append("t", 0, rows(b"a"))
        left = log.transactional_producer("left")
        eventually(lambda: [each.identity.transactional_id for each in log.served.transactions()] == ["held"])
        held.commit()
        assert values_of(log, "t") == [b"a"]
        with pytest.raises(LogError):
            left.begin()
        assert log.transactional_producer("left").producer_id > left.producer_id


def test_times_are_found_in_every_segment_and_after_a_restart(log: Log, folder: Path) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024"})
    for number in range(100):
        log.append("t", 0, rows(b"%0100d" % number, timestamp=number * 10))
    log.append("t", 0, columnar(1, 2, timestamp=5))

    def check(opened: Log) -> None:
        partition = opened.served.partition("t", 0)
        for wanted in (0, 1, 10, 495, 500, 990):
            found = first_at_or_after(partition, wanted)
            assert found is not None and found.offset == (wanted + 9) // 10
        assert first_at_or_after(partition, 991) is None
        latest = latest_timestamp(partition)
        assert latest is not None and (latest.offset, latest.timestamp_ms) == (99, 990)

    check(log)
    log.close()
    with open_log(folder, sync="never") as reopened:
        check(reopened)


def test_the_log_may_set_the_time_of_records(log: Log, clock: Clock) -> None:
    log.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
    log.append("t", 0, rows(b"a", b"b", timestamp=7))
    log.append("t", 0, columnar(1, timestamp=7))
    first, second = log.fetch("t", 0, 0).runs
    assert isinstance(first, FetchedRows) and isinstance(second, FetchedColumns)
    assert first.table["timestamp"].to_pylist() == [int(clock.now_s * 1000)] * 2
    assert second.timestamp_ms == int(clock.now_s * 1000)


def test_settings_are_checked_changed_and_kept(log: Log, folder: Path) -> None:
    for config, message in (
        ({"retention.ms": "soon"}, "retention.ms of topic"),
        ({"cleanup.policy": "compress"}, "cleanup.policy of topic"),
        ({"retention.hours": "1"}, 'property "retention.hours"'),
    ):
        with pytest.raises(InvalidTopic, match=message):
            log.create_topic("t", 1, config)
    log.create_topic("t", 1, {"max.message.bytes": "100"})
    with pytest.raises(InvalidTopic):
        log.alter_topic("t", {"segment.bytes": "1"})
    log.alter_topic("t", {"segment.bytes": "1024"}, only_check=True)
    (batch,) = encode(rows(b"x" * 100))
    with pytest.raises(RecordsTooLarge):
        log.served.partition("t", 0).check_size(batch.header)
    log.alter_topic("t", {"segment.bytes": "1024"})
    log.add_partitions("t", 3)
    with pytest.raises(InvalidTopic):
        log.add_partitions("t", 3)
    log.append("t", 2, rows(b"a" * 1000))
    log.append("t", 2, rows(b"b" * 1000))
    assert len(segment_files(folder, "t", 2)) == 2
    log.close()
    with open_log(folder, sync="never") as reopened:
        assert reopened.topics()["t"].config == {"segment.bytes": "1024"}
        assert values_of(reopened, "t", 2) == [b"a" * 1000, b"b" * 1000]


def open_files(log: Log) -> int:
    return log.node.logs._context.files.count


def test_few_files_are_open_however_many_partitions_there_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.logcore.storage.open_files._default_max", lambda: 8)
    with open_log(folder, sync="never") as log:
        log.create_topic("t", 50)
        for number in range(100):
            log.append("t", number % 50, rows(b"%d" % number))
        for number in range(50):
            assert values_of(log, "t", number) == [b"%d" % number, b"%d" % (number + 50)]
        assert open_files(log) <= 8
    with open_log(folder, sync="never") as log:
        assert open_files(log) <= 2, "partitions are opened when they are used"
        assert values_of(log, "t", 49) == [b"49", b"99"]


def test_lost_offsets_of_groups_are_an_error_and_topics_can_be_used(log: Log, folder: Path) -> None:
    log.create_topic("t", 1)
    log.append("t", 0, rows(b"a"))
    log.commit_offsets("g", {TopicPartition("t", 0): 1})
    log.close()
    (segment,) = segment_files(folder, "__consumer_offsets")
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    with open_log(folder, sync="never") as reopened:
        for call in (
            lambda: reopened.committed_offsets("g"),
            lambda: reopened.commit_offsets("g", {TopicPartition("t", 0): 1}),
        ):
            with pytest.raises(CorruptLog, match="consumer_offsets"):
                call()
        assert values_of(reopened, "t") == [b"a"]
        assert reopened.append("t", 0, rows(b"b")) == 1


def test_compressed_batches_stay_compressed_when_records_are_taken_out(log: Log) -> None:
    from millstream.logcore.records.batch import HEADER_SIZE, EncodedBatch, reseal
    from millstream.logcore.records.compression import compress

    log.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"})
    for kind in (1, 2, 3, 4):
        table = pa.table({"timestamp": [1, 1], "key": [b"same", b"%d" % kind], "value": [b"v" * 400, b"w"]})
        (plain,) = encode(RowRecords(table))
        content = bytearray(HEADER_SIZE) + compress(kind, memoryview(plain.buffers[0])[HEADER_SIZE:])
        header = plain.header._replace(attributes=kind, batch_length=len(content) - 12)
        batch: EncodedBatch = reseal([content], header)
        log.append_batches("t", 0, bytes(batch.buffers[0]))
    log.append("t", 0, keyed(b"same", b"x" * 2000))
    log.append("t", 0, keyed(b"end", b"x" * 2000))
    log.keep_house()
    assert records_of(log, "t")[:4] == [(1, b"w"), (3, b"w"), (5, b"w"), (7, b"w")]


def test_records_are_deleted_while_others_write(folder: Path) -> None:
    """A checkpoint is written of what is durable, and while a sync waits for its turn others append."""
    stop = threading.Event()
    with open_log(folder) as log:
        log.create_topic("busy", 1, {"segment.bytes": "4096"})

        def write() -> None:
            while not stop.is_set():
                log.append("busy", 0, rows(b"x" * 200))

        writers = [threading.Thread(target=write) for _ in range(6)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(100):
                start = log.offsets("busy", 0).log_start_offset
                eventually(lambda start=start: log.offsets("busy", 0).high_watermark > start + 5)
                log.delete_records("busy", 0, log.offsets("busy", 0).high_watermark - 5)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        assert log.offsets("busy", 0).log_start_offset >= 100


def test_housekeeping_goes_on_past_a_partition_that_cannot_be_opened_or_kept(log: Log, clock: Clock) -> None:
    log.create_topic("t", 1, {"segment.bytes": "1024", "retention.ms": "1000"})
    for _ in range(5):
        log.append("t", 0, rows(b"x" * 1000, timestamp=0))
    clock.now_s += HOUR_S

    def fails_to_open() -> KeptPartition:
        raise LogFull("no space left")

    def is_broken() -> KeptPartition:
        raise RuntimeError("a bug")

    targets = [
        HousekeepingTarget("full", fails_to_open),
        HousekeepingTarget("broken", is_broken),
        HousekeepingTarget("good", lambda: log.served.partition("t", 0)),
    ]
    keeper = Housekeeper(lambda: targets, lambda: int(clock.now_s * 1000), lambda: None, producer_expiry_ms=1)
    with pytest.raises(RuntimeError):
        keeper.round()
    assert len(log.served.partition("t", 0).segments()) == 1
    assert {name: problem.message for name, problem in keeper.problems.items()} == {
        "full": "no space left",
        "broken": "a bug",
    }


def test_compaction_begins_with_the_first_round_of_retention(log: Log, clock: Clock) -> None:
    log.create_topic("compacted", 1, {"segment.bytes": "1024", "cleanup.policy": "compact"})
    for number in range(6):
        log.append("compacted", 0, keyed(b"k", b"%0900d" % number))
    clock.now_s += HOUR_S
    targets = [HousekeepingTarget("compacted", lambda: log.served.partition("compacted", 0))]
    keeper = Housekeeper(
        lambda: targets, lambda: int(clock.now_s * 1000), lambda: None, producer_expiry_ms=1, interval_s=0.01
    )
    before = len(log.served.partition("compacted", 0).segments())
    keeper.start()
    try:
        eventually(lambda: len(log.served.partition("compacted", 0).segments()) < before)
    finally:
        keeper.stop()


def test_retention_does_not_wait_for_compaction(log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    compacting, go_on = threading.Event(), threading.Event()

    def takes_long(partition: KeptPartition, now_ms: int, *, pause: Callable[[], None]) -> None:
        compacting.set()
        assert go_on.wait(60)

    monkeypatch.setattr("millstream.logcore.storage.housekeeping.compact", takes_long)
    log.create_topic("compacted", 1, {"segment.bytes": "1024", "cleanup.policy": "compact"})
    log.create_topic("short", 1, {"segment.bytes": "1024", "retention.bytes": "1024"})
    for number in range(3):
        log.append("compacted", 0, keyed(b"k", b"%0900d" % number))
    targets = [
        HousekeepingTarget(name, lambda name=name: log.served.partition(name, 0)) for name in ("compacted", "short")
    ]
    keeper = Housekeeper(
        lambda: targets, lambda: int(clock.now_s * 1000), lambda: None, producer_expiry_ms=1, interval_s=0.01
    )
    keeper.start()
    try:
        assert compacting.wait(60)
        for number in range(10):
            log.append("short", 0, keyed(b"k", b"%0900d" % number))
        eventually(lambda: log.offsets("short", 0).log_start_offset > 0)
    finally:
        go_on.set()
        keeper.stop()
