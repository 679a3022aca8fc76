"""What a log in the directory of this process can do besides what every log can."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import InvalidRecords, OutOfOrderSequence, ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode

from .log_records import rows, values_of

WHERE = TopicPartition("t", 0)


class Clock:
    """State: the time of day, in seconds. It begins with that of the files, whose age counts, too."""

    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def local(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    """A log with topic "t" of one partition."""
    with open_log(tmp_path, clock=clock) as log:
        log.create_topic("t", 1, {"retention.ms": "3600000", "segment.bytes": "1024"})
        yield log


def sent(*values: bytes, sequence: int, epoch: int = 0) -> bytes:
    (batch,) = encode(rows(*values), BatchProducer(77, epoch, sequence))
    return b"".join(batch.buffers)


def test_batches_of_others_are_stored_as_they_are_and_once(local: Log) -> None:
    assert local.append_batches("t", 0, sent(b"a", b"b", sequence=0)) == 0
    assert local.append_batches("t", 0, sent(b"c", sequence=2) + sent(b"d", sequence=3)) == 2
    assert local.append_batches("t", 0, sent(b"a", b"b", sequence=0)) == 0
    assert local.append_batches("t", 0, b"") == 4
    assert values_of(local, "t") == [b"a", b"b", b"c", b"d"]


def test_batches_that_do_not_follow_are_refused(local: Log) -> None:
    local.append_batches("t", 0, sent(b"a", sequence=0, epoch=1))
    with pytest.raises(OutOfOrderSequence):
        local.append_batches("t", 0, sent(b"c", sequence=2, epoch=1))
    with pytest.raises(ProducerFenced):
        local.append_batches("t", 0, sent(b"b", sequence=1, epoch=0))
    with pytest.raises(InvalidRecords):
        local.append_batches("t", 0, b"not a batch")
    assert values_of(local, "t") == [b"a"]


def test_listeners_hear_that_there_is_more_to_read_until_they_stop(local: Log) -> None:
    heard: queue.Queue[TopicPartition] = queue.Queue()
    stop = local.listen(heard.put)
    local.append("t", 0, rows(b"a"))
    assert heard.get(timeout=60) == TopicPartition("t", 0)
    stop()
    local.append("t", 0, rows(b"b"))
    assert heard.empty()


def test_what_is_kept_too_long_by_the_clock_of_the_log_goes_with_housekeeping(local: Log, clock: Clock) -> None:
    for number in range(20):
        local.append("t", 0, rows(b"%0200d" % number, timestamp=int(clock() * 1000)))
    local.keep_house()
    assert local.offsets("t", 0).log_start_offset == 0
    clock.now_s += 3601
    local.keep_house()
    assert local.offsets("t", 0).log_start_offset > 0
    assert local.problems() == []
