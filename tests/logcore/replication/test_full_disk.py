"""A replica on a full disk: what is durable is safe, what can go makes room, and people are told once."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from millstream.logcore import failpoints
from millstream.logcore.errors import LogFull
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.disk.disk_log import DiskLog
from millstream.logcore.replication.disk.disk_logs import DiskLogs
from millstream.logcore.replication.replica.replica_messages import PartitionId
from millstream.logcore.storage.housekeeping import Housekeeper, HousekeepingTarget
from millstream.logcore.storage.retention import drop_expired
from millstream.logcore.topic_settings import settings_of

from .full_disk import FullDisk
from .replica_logs import append, entries, open_disk_log, placed

CHECKPOINT = "checkpoint.json"
PARTITION = PartitionId("t-id", 0)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.fixture(autouse=True)
def _disarmed() -> Generator[None]:
    yield
    failpoints.arm("")


def filled(folder: Path, batches: int = 20, **settings: int) -> DiskLog:
    """A log of several segments with a checkpoint in the last one or the one before, all of it durable and stable."""
    log = open_disk_log(folder, **settings)
    for _ in range(batches):
        append(log, 1, size=300)
        log.sync_all()
    log.publish(log.end_offset, log.end_offset)
    return log


def synced_on_a_full_disk(log: DiskLog, disk: FullDisk, batches: int) -> None:
    for _ in range(batches):
        disk.full = False
        append(log, 1, size=300)
        disk.full = True
        log.sync_all()


def segments_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.log"))


def test_records_are_durable_though_there_was_no_room_for_a_checkpoint(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log")
    kept = (tmp_path / "log" / CHECKPOINT).read_bytes()
    synced_on_a_full_disk(log, disk, 5)
    assert log.usable and (tmp_path / "log" / CHECKPOINT).read_bytes() == kept
    again = open_disk_log(tmp_path / "log")
    assert again.clean and entries(again) == entries(log)


def test_a_new_log_is_durable_without_a_checkpoint_and_gets_one_when_there_is_room(
    tmp_path: Path, disk: FullDisk
) -> None:
    log = open_disk_log(tmp_path / "log")
    append(log, 1, 1)
    disk.full = True
    log.sync_all()
    assert not (tmp_path / "log" / CHECKPOINT).exists()
    again = open_disk_log(tmp_path / "log")
    assert again.clean and entries(again) == entries(log)
    disk.full = False
    log.sync_all()
    assert (tmp_path / "log" / CHECKPOINT).exists()


def test_another_failure_than_a_full_disk_still_ends_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    log.move_start(3)
    failpoints.arm("replica.before_checkpoint:1:eio")
    with pytest.raises(Exception, match="refused to write"):
        log.sync_all()
    assert not log.usable


def test_a_sync_of_records_that_fails_for_want_of_room_still_ends_the_log(tmp_path: Path) -> None:
    log = open_disk_log(tmp_path / "log")
    append(log, 1)
    failpoints.arm("replica.before_sync:1:enospc")
    with pytest.raises(LogFull):
        log.sync_all()
    assert not log.usable, "nobody knows what of it the disk has"


def test_a_log_that_begins_on_a_full_disk_takes_records_when_there_is_room(tmp_path: Path, disk: FullDisk) -> None:
    disk.full = True
    log = open_disk_log(tmp_path / "log")
    with pytest.raises(LogFull):
        append(log, 1)
    log.sync_all()
    disk.full = False
    append(log, 1)
    disk.full = True
    log.sync_all()
    again = open_disk_log(tmp_path / "log")
    assert again.clean and entries(again) == entries(log)


def test_a_log_is_cut_on_a_full_disk_where_a_checkpoint_is_old_enough(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log")
    append(log, *([2] * 5), size=300)
    disk.full = True
    log.truncate(21)
    for found in (log, open_disk_log(tmp_path / "log")):
        assert found.clean and found.end_offset == 21 and found.epochs.last == 2
    disk.full = False
    append(log, 3)
    log.sync_all()
    again = open_disk_log(tmp_path / "log")
    assert again.clean and entries(again) == entries(log)


# Target is made


def test_deleting_records_makes_room_on_a_full_disk(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log")
    before = segments_in(tmp_path / "log")
    disk.full = True
    assert log.drop_before(18) == 18
    assert len(segments_in(tmp_path / "log")) < len(before) - 3
    again = open_disk_log(tmp_path / "log")
    assert again.clean and (again.log_start_offset, again.end_offset) == (18, 20)
    assert entries(again) == entries(log)


def test_retention_goes_on_on_a_full_disk(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log", retention_bytes=2000)
    disk.full = True
    keeper = Housekeeper(
        lambda: [HousekeepingTarget(log.name, lambda: log)], lambda: 0, lambda: None, producer_expiry_ms=1
    )
    assert keeper.round().dropped == 1
    assert not keeper.problems and log.usable
    assert log.size_on_disk < 4000


def test_records_that_were_deleted_within_a_segment_stay_deleted(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log", 2, segment_bytes=100_000)
    disk.full = True
    assert log.drop_before(1) == 1
    assert open_disk_log(tmp_path / "log").log_start_offset == 1
    assert log.drop_before(2) == 2
    again = open_disk_log(tmp_path / "log")
    assert again.clean and again.log_start_offset == 2
    disk.full = False
    again.move_start(2)
    append(again, 3)
    again.publish(3, 3)
    assert again.drop_before(3) == 3
    assert sorted(path.name for path in (tmp_path / "log").glob("begins-at-*")) == []
    assert open_disk_log(tmp_path / "log").log_start_offset == 3


def test_what_producers_did_is_known_though_the_checkpoint_is_older_than_what_was_deleted(
    tmp_path: Path, disk: FullDisk
) -> None:
    log = open_disk_log(tmp_path / "log")
    log.append([placed(0, 1, 300, producer=BatchProducer(7, 0, 0))])
    log.sync_all()  # the only checkpoint names the first segment
    synced_on_a_full_disk(log, disk, 12)
    log.publish(log.end_offset, log.end_offset)
    disk.full = True
    assert log.drop_before(10) == 10
    again = open_disk_log(tmp_path / "log")
    assert again.clean and again.log_start_offset == 10
    assert again.next_sequence(7, 0) == log.next_sequence(7, 0) == 1


def test_when_room_was_made_the_checkpoint_is_written_at_once(
    tmp_path: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "log")
    disk.full = True
    monkeypatch.setattr(log, "_remove_before", lambda offset: not setattr(disk, "full", False))
    log.drop_before(18)
    monkeypatch.undo()
    assert not list((tmp_path / "log").glob("begins-at-*"))
    assert open_disk_log(tmp_path / "log").log_start_offset == 18


def test_a_beginning_that_was_marked_does_not_outlive_a_log_that_begins_anew(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log")
    disk.full = True
    log.drop_before(20)
    marks = {path.name for path in (tmp_path / "log").glob("begins-at-*")}
    assert marks
    disk.full = False
    log.restart_at(5)
    for name in marks:
        (tmp_path / "log" / name).touch()  # as a power cut may leave it
    again = open_disk_log(tmp_path / "log")
    assert again.clean and again.log_start_offset == again.end_offset == 5
    append(again, *([9] * 30))
    again.sync_all()
    third = open_disk_log(tmp_path / "log")
    assert (third.log_start_offset, third.end_offset) == (5, 35)


def test_retention_by_time_goes_on_though_there_is_no_room_for_a_new_segment(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log")
    log.configure(settings_of({"segment.bytes": "1024", "retention.ms": "1000"}))
    failpoints.arm("segment.roll:1:enospc")
    disk.full = True
    later_ms = time.time_ns() // 1_000_000 + 10_000
    log._now_ms = lambda: later_ms
    assert drop_expired(log, later_ms)
    assert len(segments_in(tmp_path / "log")) < 3


# What people are told


def test_of_a_full_disk_people_are_told_once_until_there_is_room(tmp_path: Path, disk: FullDisk) -> None:
    logs = DiskLogs(tmp_path / "node", 1, "c")
    here = [logs.open(PartitionId("t-id", number)) for number in range(3)]
    with capture_logs() as said:
        disk.full = True
        for log in (*here, *here):
            with pytest.raises(LogFull):
                append(log, 1)
        assert logs.room.without == 3 and "takes no records" in logs.problems()[0]
        disk.full = False
        for log in here:
            append(log, 1)
    (warning,) = (each for each in said if each["log_level"] == "warning")
    assert "followers" in warning["event"] and "Free disk space" in warning["hint"]
    assert warning["partition"] == here[0].name and "no room" in warning["error"]
    assert logs.room.without == 0 and logs.problems() == []
    logs.close()


def test_records_that_are_small_enough_do_not_tell_of_room_again_and_again(tmp_path: Path, disk: FullDisk) -> None:
    log = open_disk_log(tmp_path / "log", segment_bytes=100_000)
    with capture_logs() as said:
        for _ in range(3):
            disk.full = True
            with pytest.raises(LogFull):
                append(log, 1, size=90_000)
            disk.full = False
            append(log, 1, size=10)
        append(log, 1, size=90_000)
    assert sum(each["log_level"] == "warning" for each in said) == 1


def test_a_log_that_is_deleted_lacks_no_room_any_more(tmp_path: Path, disk: FullDisk) -> None:
    logs = DiskLogs(tmp_path / "node", 1, "c")
    log = logs.open(PARTITION)
    disk.full = True
    with pytest.raises(LogFull):
        append(log, 1)
    logs.remove(PARTITION)
    assert logs.room.without == 0 and not list((tmp_path / "node" / "replicas").glob("t-id-*"))
    logs.close()


def test_of_a_checkpoint_that_does_not_fit_people_are_told_once(tmp_path: Path, disk: FullDisk) -> None:
    log = filled(tmp_path / "log")
    with capture_logs() as said:
        disk.full = True
        log.drop_before(2)
        log.drop_before(3)
        log.sync_all()
        disk.full = False
        log.sync_all()
    assert sum(each["log_level"] == "warning" for each in said) == 1
    assert "checkpoint" in said[0]["event"] and "Free disk space" in said[0]["hint"]
