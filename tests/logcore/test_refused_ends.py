"""A disk that refuses the end of a transaction, or takes a part of it: later transactions are whole and seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import InvalidTransactionState, LogFull, LogWriteFailed
from millstream.logcore.log import Log, open_log
from millstream.logcore.storage.disk import LogFile

from .log_records import rows, values_of

SOURCE = TopicPartition("src", 0)
Refuse = Callable[[str], None]


@pytest.fixture
def refuse_syncs(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Says for which partition ("topic-0") the next sync fails."""
    sync, refused = LogFile.sync, list[str]()

    def refusing_sync(file: LogFile) -> None:
        name = Path(file.path).parent.name
        if name in refused:
            refused.remove(name)
            raise OSError(5, "Input/output error")
        sync(file)

    monkeypatch.setattr(LogFile, "sync", refusing_sync)
    return refused.append


@pytest.mark.parametrize("refused_writes", [1, 2, 3])
def test_a_transaction_whose_abort_the_disk_refused_is_aborted_later(log: Log, refused_writes: int) -> None:
    """Write 1 of taking the id is its new epoch, 2 and 3 are the abort markers."""
    first = log.transactional_producer("q")
    first.begin()
    first.append("t", 0, rows(b"left open"))
    first.append("t", 1, rows(b"left open"))
    failpoints.arm(f"append.write:{refused_writes}:enospc")
    with pytest.raises(LogFull):
        log.transactional_producer("q")
    failpoints.arm("")
    second = log.transactional_producer("q")
    second.begin()
    second.append("t", 0, rows(b"a"))
    second.append("t", 1, rows(b"b"))
    second.commit()
    assert (values_of(log, "t", 0), values_of(log, "t", 1)) == ([b"a"], [b"b"])
    for partition in range(2):
        offsets = log.offsets("t", partition)
        assert offsets.last_stable_offset == offsets.log_end_offset


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


def test_a_transaction_of_which_a_failed_sync_took_a_part_is_refused(log: Log, refuse_syncs: Refuse) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"first"))
    refuse_syncs("t-0")
    with pytest.raises(LogWriteFailed):
        log.append("t", 0, rows(b"somebody else's"))
    with pytest.raises(LogWriteFailed):
        producer.append("t", 0, rows(b"second"))
    producer.abort()
    producer.begin()
    producer.append("t", 0, rows(b"again"))
    producer.commit()
    assert values_of(log, "t") == [b"again"]


def test_a_failed_sync_of_the_offsets_takes_none_that_were_committed(
    log: Log, folder: Path, refuse_syncs: Refuse
) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.send_offsets("g", {SOURCE: 1})
    producer.commit()  # its offsets are written, and durable with the next commit
    refuse_syncs("__consumer_offsets-0")
    with pytest.raises(LogWriteFailed):
        log.commit_offsets("other", {SOURCE: 9})
    producer = log.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"b"))
    producer.commit()
    assert log.committed_offsets("g") == {SOURCE: 1}
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    with open_log(crashed) as reopened:
        assert reopened.committed_offsets("g") == {SOURCE: 1}
        assert values_of(reopened, "t") == [b"a", b"b"]
