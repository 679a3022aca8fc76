"""What a replica may rely on, whatever its log is stored on: real files, or the disk of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.logcore.records.batch import BatchProducer, place
from millstream.logcore.records.control import encode_marker
from millstream.logcore.replication.replica.replica_log import ReplicaLog
from millstream.logcore.storage.epoch_cache import EpochBoundary
from tests.simulation.disk import SimDisk
from tests.simulation.replica_log import SimReplicaLog

from .replica_logs import append, entries, entry_of, open_disk_log, placed

Reopen = Callable[[], ReplicaLog]


@pytest.fixture(params=["files", "simulator"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Opens the log, as after the end of a process that had made everything durable."""
    if request.param == "files":
        return lambda: open_disk_log(tmp_path / "log")
    disk = SimDisk()
    return lambda: SimReplicaLog(disk, "log")


@pytest.fixture
def log(reopen: Reopen) -> ReplicaLog:
    return reopen()


def make_durable(log: ReplicaLog) -> None:
    log.sync() if isinstance(log, SimReplicaLog) else log.sync_all()  # pyrefly: ignore[missing-attribute]


def test_a_new_log_is_empty(log: ReplicaLog) -> None:
    assert (log.log_start_offset, log.end_offset, log.epochs.last) == (0, 0, -1)
    assert list(log.read(0, 10, 1000)) == []


def test_batches_are_kept_as_they_are_at_the_offsets_that_they_say(log: ReplicaLog) -> None:
    batches = [placed(0, 1, rows=3), placed(3, 1), placed(4, 5, rows=2)]
    log.append(batches[:2])
    log.append(batches[2:])
    assert entries(log) == [entry_of(batch) for batch in batches]
    assert b"".join(log.read(3, 4, 1000)[0].buffers) == b"".join(batches[1].buffers)
    assert log.end_offset == 6


def test_reading_begins_with_the_batch_that_holds_the_offset_and_ends_below_the_limit(log: ReplicaLog) -> None:
    log.append([placed(0, 1, rows=3), placed(3, 1, rows=3), placed(6, 1, rows=3)])
    assert [batch.header.base_offset for batch in log.read(4, 9, 10_000)] == [3, 6]
    assert [batch.header.base_offset for batch in log.read(4, 8, 10_000)] == [3]
    assert list(log.read(4, 5, 10_000)) == []


def test_reading_gives_at_least_one_batch_and_else_no_more_than_is_wanted(log: ReplicaLog) -> None:
    append(log, 1, 1, 1)
    size = placed(0, 1).header.size
    assert len(log.read(0, 3, 1)) == 1
    assert len(log.read(0, 3, 2 * size)) == 2


def test_epochs_begin_where_their_first_batch_is(log: ReplicaLog) -> None:
    append(log, 1, 1, 3, 3, 7)
    assert log.epochs.starts == ((1, 0), (3, 2), (7, 4))
    assert log.epochs.end_of(5, log.end_offset, 0) == EpochBoundary(3, 4)


def test_many_segments_are_one_log(log: ReplicaLog, reopen: Reopen) -> None:
    append(log, *([1] * 40), size=150)
    before = entries(log)
    assert [offset for offset, _, _ in before] == list(range(40))
    make_durable(log)
    assert entries(reopen()) == before


@pytest.mark.parametrize("offset", [0, 1, 7, 20, 38, 39])
def test_what_is_cut_off_is_gone_and_what_comes_then_follows_what_is_left(
    log: ReplicaLog, reopen: Reopen, offset: int
) -> None:
    append(log, *([1] * 10), *([2] * 20), *([4] * 10), size=150)
    kept = [entry for entry in entries(log) if entry[0] < offset]
    make_durable(log)
    log.truncate(offset)
    assert (log.end_offset, entries(log)) == (offset, kept)
    assert all(start.offset < offset for start in log.epochs.starts)
    append(log, 5)
    after = entries(log)
    assert after[:-1] == kept
    make_durable(log)
    again = reopen()
    assert entries(again) == after
    assert again.epochs.starts == log.epochs.starts
    assert again.state.to_json() == log.state.to_json()


def test_a_cut_takes_back_what_producers_and_transactions_had_done(log: ReplicaLog) -> None:
    writer = BatchProducer(7, 0, 0, transactional=True)
    log.append([placed(0, 1, producer=writer)])
    make_durable(log)
    log.append([place(encode_marker(7, 0, committed=False, timestamp_ms=0), 1, 1)])
    assert log.state.transactions.open == []
    log.truncate(1)
    assert [open.first_offset for open in log.state.transactions.open] == [0]
    assert log.state.transactions.aborted.by_producer == {}
    log.truncate(0)
    assert log.state.transactions.open == [] and log.state.producers.epoch_of(7) == -1


def test_a_log_that_begins_anew_has_nothing_but_its_offset(log: ReplicaLog, reopen: Reopen) -> None:
    append(log, 1, 2, 2)
    log.restart_at(100)
    assert (log.log_start_offset, log.end_offset, log.epochs.last) == (100, 100, -1)
    append(log, 6, 6)
    assert [offset for offset, _, _ in entries(log)] == [100, 101]
    make_durable(log)
    again = reopen()
    assert (again.log_start_offset, again.end_offset) == (100, 102)


def test_an_empty_log_may_begin_anew_anywhere(log: ReplicaLog) -> None:
    log.restart_at(50)
    log.restart_at(20)
    append(log, 1)
    assert [offset for offset, _, _ in entries(log)] == [20]


@pytest.mark.parametrize("offset", [2, 3])
def test_a_log_of_which_all_is_deleted_may_begin_anew_where_it_ends_and_forgets_its_epochs(
    log: ReplicaLog, reopen: Reopen, offset: int
) -> None:
    append(log, 1, 1, size=400)
    log.publish(2, 2)
    log.move_start(2)
    make_durable(log)
    for _ in range(2):
        log.restart_at(offset)
        assert (log.log_start_offset, log.end_offset, log.epochs.last) == (offset, offset, -1)
    append(log, 5)
    make_durable(log)
    again = reopen()
    assert [at for at, _, _ in entries(again)] == [offset]
    assert again.epochs.starts == ((5, offset),)


def test_the_start_moves_to_what_is_stable_at_most_and_never_back(log: ReplicaLog, reopen: Reopen) -> None:
    append(log, 1, 1, 2, 2, 3, size=400)
    log.publish(4, 3)
    log.move_start(2)
    assert log.log_start_offset == 2
    log.move_start(1)
    assert log.log_start_offset == 2
    log.move_start(5)
    assert log.log_start_offset == 3
    assert log.epochs.starts == ((2, 3), (3, 4))
    make_durable(log)
    again = reopen()
    assert (again.log_start_offset, again.end_offset) == (3, 5)
    assert again.epochs.starts == log.epochs.starts
    assert [offset for offset, _, _ in entries(again)] == [3, 4]


def test_nothing_is_published_that_is_not_there(log: ReplicaLog) -> None:
    append(log, 1)
    with pytest.raises(AssertionError):
        log.publish(2, 2)


@pytest.mark.parametrize("size", [10, 400, 2_000])
@pytest.mark.parametrize("start", [1, 4, 5, 8, 11])
def test_a_log_that_starts_inside_a_batch_can_be_cut_off_there(
    log: ReplicaLog, reopen: Reopen, start: int, size: int
) -> None:
    for _ in range(4):
        log.append([placed(log.end_offset, 3, size, rows=3)])
    log.publish(12, 12)
    log.move_start(start)
    make_durable(log)
    log.truncate(start)
    assert (log.log_start_offset, log.end_offset, log.epochs.last) == (start, start, -1)
    make_durable(log)
    again = reopen()
    assert (again.log_start_offset, again.end_offset) == (start, start)
    append(again, 5)
    assert [at for at, _, _ in entries(again)] == [start]


def test_an_empty_log_may_begin_with_a_batch_around_its_start(log: ReplicaLog, reopen: Reopen) -> None:
    log.restart_at(50)
    log.restart_at(49)
    log.append([placed(49, 1, rows=3)])
    log.publish(52, 52)
    log.move_start(50)
    make_durable(log)
    again = reopen()
    assert (again.log_start_offset, again.end_offset) == (50, 52)
    assert [at for at, _, _ in entries(again)] == [49]
