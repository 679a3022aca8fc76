"""A disk that refuses the end of a transaction, or takes a part of it: later transactions are whole and seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import InvalidTransactionState, LogClosed, LogFull
from millstream.logcore.log import Log, open_log

from .log_records import rows, values_of

SOURCE = TopicPartition("t", 1)


@pytest.mark.parametrize("refused_writes", [1, 2, 3])
def test_a_transaction_whose_abort_the_disk_refused_is_aborted_later(log: Log, refused_writes: int) -> None:
    """Write 1 of taking the id is its new epoch, 2 and 3 are the abort markers, which are written again."""
    first = log.transactional_producer("q")
    first.begin()
    first.append("t", 0, rows(b"left open"))
    first.append("t", 1, rows(b"left open"))
    failpoints.arm(f"append.write:{refused_writes}:enospc")
    with pytest.raises(LogFull):  # who is given the id may rely on it that the abort is done
        log.transactional_producer("q")
    assert failpoints.hits("append.write") >= refused_writes
    failpoints.arm("")
    second = log.transactional_producer("q")
    second.begin()
    second.append("t", 0, rows(b"a"))
    second.append("t", 1, rows(b"b"))
    second.commit()
    assert (values_of(log, "t", 0), values_of(log, "t", 1)) == ([b"a"], [b"b"])
    for partition in range(2):
        offsets = log.offsets("t", partition)
        assert offsets.last_stable_offset == offsets.high_watermark


def test_a_refused_abort_can_be_repeated_and_nothing_begins_before_it(log: Log) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"left open"))
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull):
        producer.abort()
    failpoints.arm("")
    with pytest.raises(InvalidTransactionState):
        producer.begin()
    producer.abort()
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.commit()
    assert values_of(log, "t") == [b"a"]


def test_a_refused_commit_whose_abort_is_refused_too_is_aborted_later(log: Log) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"left open"))
    failpoints.arm("txn.before_prepare:1:enospc,append.write:1:enospc")
    with pytest.raises((LogError, OSError)):
        producer.commit()
    failpoints.arm("")
    successor = log.transactional_producer("q")
    successor.begin()
    successor.append("t", 0, rows(b"a"))
    successor.commit()
    assert values_of(log, "t") == [b"a"]


def test_a_transaction_of_which_the_disk_refused_a_part_can_be_aborted(log: Log) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"first"))
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull):
        producer.append("t", 0, rows(b"second"))
    failpoints.arm("")
    producer.abort()
    producer.begin()
    producer.append("t", 0, rows(b"again"))
    producer.commit()
    assert values_of(log, "t") == [b"again"]


def test_a_failed_sync_of_the_offsets_takes_none_that_were_committed(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.send_offsets("g", {SOURCE: 1})
    producer.commit()
    failpoints.arm("replica.before_sync:1:eio")
    with pytest.raises(LogClosed):
        log.commit_offsets("other", {SOURCE: 9})
    failpoints.arm("")
    log.close()
    with open_log(folder) as reopened:
        assert reopened.committed_offsets("g") == {SOURCE: 1}
        assert values_of(reopened, "t") == [b"a"]
