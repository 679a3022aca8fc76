"""Records that are deleted, by request or by housekeeping: each replica forgets them, and they stay forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.logcore.compaction.cleaning import compact
from millstream.logcore.records.batch import BatchProducer, EncodedBatch, place
from millstream.logcore.records.codec import encode
from millstream.logcore.replication.disk.disk_log import DiskLog
from millstream.logcore.replication.disk.disk_recovery import RESCAN
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_messages import Deleted, DeleteRecords, Problem, Refused
from tests.logcore.log_records import rows

from .replica_logs import NOW_MS, append, entries, open_disk_log
from .trio import Trio


def led_by_1() -> Trio:
    trio = Trio()
    trio.change(leader=NodeId(1))
    trio.settle()
    for value in (b"a", b"b", b"c", b"d"):
        trio.produce(1, value)
        trio.settle()
    return trio


def test_deleted_records_are_gone_at_all_replicas_when_they_have_heard_of_it() -> None:
    trio = led_by_1()
    asked = trio.ask(1, DeleteRecords(2))
    assert asked not in trio.replies  # it is not durable yet
    trio.settle()
    trio.pass_time(1_000)
    assert trio.replies[asked] == Deleted(2)
    assert [trio.log(node).log_start_offset for node in (1, 2, 3)] == [2, 2, 2]
    assert trio.read(1).problem is Problem.OFFSET_OUT_OF_RANGE
    assert trio.read(1, 2) == [b"c", b"d"]


def test_deleted_records_stay_deleted_when_the_power_goes() -> None:
    trio = led_by_1()
    trio.ask(1, DeleteRecords(-1))
    trio.settle()
    trio.power_off(1)
    trio.start(1)
    assert trio.log(1).log_start_offset == 4


@pytest.mark.parametrize("offset", [1, 5, 9])
def test_a_replica_that_was_down_begins_with_the_batch_in_which_the_log_starts(offset: int) -> None:
    trio = Trio()
    trio.change(leader=NodeId(1))
    trio.settle()
    trio.cut(3)
    trio.change(1, 2, isr=(NodeId(1), NodeId(2)))
    for value in (b"a", b"b"):
        trio.produce(1, value, rows=5)
        trio.settle()
    trio.ask(1, DeleteRecords(offset))
    trio.settle()
    trio.heal()
    trio.pass_time(3_000)
    assert trio.panics == {}
    assert trio.log(3).log_start_offset == offset
    assert trio.values(3)[-1] == b"b"
    assert trio.values(3) == [b"a", b"b"][-len(trio.values(3)) :] and len(trio.values(3)) == (2 if offset < 5 else 1)
    trio.start(3)
    assert (trio.log(3).log_start_offset, trio.log(3).end_offset) == (offset, 10)


def test_a_replica_parts_with_all_it_has_where_its_log_starts_inside_a_batch() -> None:
    """Of an epoch of which the leader has nothing any more."""
    trio = Trio()
    trio.change(leader=NodeId(1))
    trio.produce(1, b"a", rows=5)
    trio.settle()
    trio.ask(1, DeleteRecords(2))
    trio.settle()
    trio.pass_time(1_000)
    trio.cut(1)
    trio.produce(1, b"only here", rows=5)
    trio.change(2, 3, leader=NodeId(2), isr=(NodeId(2), NodeId(3)))
    for value in (b"b", b"c"):
        trio.produce(2, value, rows=3)
        trio.settle()
    trio.ask(2, DeleteRecords(9))
    trio.settle()
    trio.heal()
    trio.tell(1)
    trio.pass_time(3_000)
    assert trio.panics == {}
    assert (trio.log(1).log_start_offset, trio.values(1)) == (9, [b"c"])


def test_a_deletion_that_was_done_before_is_answered_at_once() -> None:
    trio = led_by_1()
    trio.ask(1, DeleteRecords(3))
    trio.settle()
    assert trio.replies[trio.ask(1, DeleteRecords(1))] == Deleted(3)


@pytest.mark.parametrize("offset", [5, -2])
def test_records_that_are_not_committed_cannot_be_deleted(offset: int) -> None:
    trio = led_by_1()
    answer = trio.replies[trio.ask(1, DeleteRecords(offset))]
    assert isinstance(answer, Refused) and answer.problem is Problem.OFFSET_OUT_OF_RANGE


def test_records_of_an_open_transaction_stay() -> None:
    trio = led_by_1()
    trio.produce(1, b"open", producer=BatchProducer(7, 0, 0, transactional=True), verified=True)
    trio.settle()
    trio.produce(1, b"e")
    trio.settle()
    asked = trio.ask(1, DeleteRecords(6))
    trio.settle()
    assert trio.replies[asked] == Deleted(4)


def test_who_waits_for_a_deletion_is_told_when_another_leader_comes() -> None:
    trio = led_by_1()
    trio.no_syncs.add(1)
    asked = trio.ask(1, DeleteRecords(2))
    trio.change(leader=NodeId(2))
    assert trio.replies[asked].problem is Problem.NOT_LEADER


def test_a_follower_that_lacks_what_the_leader_has_deleted_begins_behind_it() -> None:
    trio = led_by_1()
    trio.cut(3)
    trio.change(1, 2, isr=(NodeId(1), NodeId(2)))
    for value in (b"e", b"f"):
        trio.produce(1, value)
        trio.settle()
    trio.ask(1, DeleteRecords(-1))
    trio.settle()
    trio.heal()
    trio.tell(3)
    trio.produce(1, b"g")
    trio.pass_time(3_000)
    assert trio.panics == {}
    assert trio.log(3).log_start_offset == 6 and trio.values(3) == [b"g"]


# Compaction, which each replica does by itself


def keyed(offset: int, epoch: int, key: bytes) -> EncodedBatch:
    (batch,) = encode(rows(b"%d" % offset, key=key))
    return place(batch, offset, epoch)


@pytest.fixture
def compacted(tmp_path: Path) -> DiskLog:
    """Of 30 records with three keys, in three leader epochs; the last segment is as it was."""
    log = open_disk_log(tmp_path / "log")
    for offset in range(30):
        log.append([keyed(offset, 1 + offset // 10, b"k%d" % (offset % 3))])
    log.sync_all()
    log.publish(30, 30)
    done = compact(log, NOW_MS)
    assert done is not None and done.bytes_after < done.bytes_before / 2
    return log


def read_from(log: DiskLog, offset: int) -> Sequence[EncodedBatch]:
    return log.read(offset, log.end_offset, 1 << 20)


def test_what_stands_for_removed_records_is_of_their_epoch(compacted: DiskLog) -> None:
    offset = 0
    for offset, epoch, _ in entries(compacted):
        assert epoch == 1 + offset // 10
    assert offset == 29
    (compacted.folder / RESCAN).touch()
    again = open_disk_log(compacted.folder)
    assert again.clean
    assert again.epochs.starts == compacted.epochs.starts == ((1, 0), (2, 10), (3, 20))


def test_a_replica_that_had_some_of_the_removed_records_gets_the_rest(compacted: DiskLog, tmp_path: Path) -> None:
    for offset in range(30):
        follower = open_disk_log(tmp_path / f"follower-{offset}")
        for earlier in range(offset):
            follower.append([keyed(earlier, 1 + earlier // 10, b"k%d" % (earlier % 3))])
        batches = read_from(compacted, offset)
        assert batches[0].header.base_offset == offset
        follower.append(batches)
        while follower.end_offset < 30:
            follower.append(read_from(compacted, follower.end_offset))
        assert follower.epochs.starts == compacted.epochs.starts


def test_a_compacted_log_is_cut_and_goes_on(compacted: DiskLog) -> None:
    compacted.truncate(28)
    append(compacted, 7, 7)
    compacted.sync_all()
    again = open_disk_log(compacted.folder)
    assert again.clean and entries(again) == entries(compacted)
    assert again.epochs.last == 7
