"""A disk that is full or broken: the append is refused, nothing acknowledged is lost, later appends work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition, TransactionalProducer
from millstream.logcore.errors import LogClosed, LogFull, LogWriteFailed
from millstream.logcore.log import Log, open_log

from .log_records import partition_folder, rows, segment_files, values_of
from .replication.full_disk import FullDisk

WRITE_UNTIL_FULL = """
import resource, sys
import pyarrow as pa
from millstream.logcore.client import RowRecords
from millstream.logcore.errors import LogFull
from millstream.logcore.log import open_log

log = open_log(sys.argv[1])
log.create_topic("t", 1)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, unlimited[1]))

def append(i):
    return log.append("t", 0, RowRecords(pa.table({"timestamp": [1], "key": [b"k"], "value": [b"%03d" % i * 100]})))

acknowledged = 0
try:
    while True:
        assert append(acknowledged) == acknowledged
        acknowledged += 1
except LogFull as error:
    assert "no room" in error.message
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
assert acknowledged > 10
assert append(acknowledged) == acknowledged
print(acknowledged + 1)
import os
os._exit(0)
"""


def test_a_full_disk_refuses_an_append_and_later_ones_work(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNTIL_FULL, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with open_log(folder) as log:
        assert values_of(log, "t") == [b"%03d" % i * 100 for i in range(int(done.stdout.split()[-1]))]


@pytest.mark.parametrize(("action", "error"), [("enospc", LogFull), ("eio", LogWriteFailed)])
def test_a_refused_write_takes_only_its_own_records(
    log: Log, folder: Path, action: str, error: type[Exception]
) -> None:
    log.append("t", 0, rows(b"a"))
    failpoints.arm(f"append.write:1:{action}")
    with pytest.raises(error):
        log.append("t", 0, rows(b"refused"))
    assert values_of(log, "t") == [b"a"]
    assert log.offsets("t", 0).log_end_offset == 1
    assert log.append("t", 0, rows(b"b")) == 1
    log.close()
    with open_log(folder) as reopened:
        assert values_of(reopened, "t") == [b"a", b"b"]


def test_a_refused_new_segment_refuses_the_append(log: Log, folder: Path) -> None:
    log.create_topic("s", 1, {"segment.bytes": "1024"})
    for i in range(8):
        log.append("s", 0, rows(b"%d" % i * 50))
    written = log.offsets("s", 0).log_end_offset
    failpoints.arm("segment.roll:1:eio")
    refused = 0
    while not refused:
        try:
            log.append("s", 0, rows(b"x" * 50))
            written += 1
        except LogWriteFailed:
            refused += 1
    assert log.append("s", 0, rows(b"y" * 50)) == written
    log.close()
    with open_log(folder) as reopened:
        assert len(values_of(reopened, "s")) == written + 1


def append_in(producer: TransactionalProducer) -> None:
    producer.begin()
    producer.append("t", 0, rows(b"a"))


def commit_of(producer: TransactionalProducer) -> None:
    append_in(producer)
    failpoints.arm("append.write:1:enospc")
    producer.commit()


@pytest.mark.parametrize(
    "act",
    [
        lambda log, producer: append_in(producer),
        lambda log, producer: commit_of(producer),
        lambda log, producer: log.transactional_producer("another"),
        lambda log, producer: log.commit_offsets("g", {TopicPartition("t", 0): 1}),
    ],
    ids=["append", "commit", "begin", "offsets"],
)
def test_a_full_disk_is_said_whatever_it_refuses(log: Log, act: Callable[[Log, TransactionalProducer], object]) -> None:
    """The write that is refused is the first one; who asks again finds room, and would not be told."""
    log.commit_offsets("g", {TopicPartition("t", 0): 0})
    producer = log.transactional_producer("p")
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull, match="no room to write") as refused:
        act(log, producer)
    assert refused.value.hint
    failpoints.arm("")
    producer = log.transactional_producer("p")
    append_in(producer)
    producer.commit()
    assert values_of(log, "t") == [b"a"]
    log.commit_offsets("g", {TopicPartition("t", 0): 1})


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def filled(folder: Path, disk: FullDisk, **settings: str) -> Log:
    """A log whose disk ran full when the topic `s` had some segments behind its last checkpoint."""
    log = open_log(folder)
    log.create_topic("s", 1, {"segment.bytes": "1024", **settings})
    for number in count():
        disk.full = number >= 40
        try:
            log.append("s", 0, rows(b"%0200d" % number))
        except LogFull:
            return log
    raise AssertionError("it never is full")


def after_a_crash(folder: Path, disk: FullDisk) -> Log:
    """Of another process, with what was there."""
    disk.full = False
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    return open_log(copy)


def test_retention_makes_room_on_a_full_disk(folder: Path, disk: FullDisk) -> None:
    log = filled(folder, disk, **{"retention.bytes": "3000"})
    segments = len(segment_files(folder, "s"))
    log.keep_house()
    start = log.offsets("s", 0).log_start_offset
    assert start > 20
    assert len(segment_files(folder, "s")) < segments / 2
    with after_a_crash(folder, disk) as again:
        assert again.offsets("s", 0).log_start_offset == start
        end = again.offsets("s", 0).log_end_offset
        assert end >= 40
        assert values_of(again, "s", 0, start) == [b"%0200d" % number for number in range(start, end)]
        assert again.append("s", 0, rows(b"more")) == end


def test_records_deleted_on_a_full_disk_do_not_come_back(folder: Path, disk: FullDisk) -> None:
    log = filled(folder, disk)
    assert log.delete_records("s", 0, 9) == 9
    assert log.delete_records("s", 0, 11) == 11
    with after_a_crash(folder, disk) as again:
        assert again.offsets("s", 0).log_start_offset == 11
        assert again.delete_records("s", 0, 12) == 12
    assert not list(folder.with_name("copy").rglob("begins-at-*")), "the checkpoint says it again"


@pytest.mark.parametrize("point", ["start.marked", "retention.removed"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_while_records_go_on_a_full_disk_loses_no_others(
    folder: Path, disk: FullDisk, point: str, nth: int
) -> None:
    log = filled(folder, disk)
    end = log.offsets("s", 0).log_end_offset
    failpoints.arm(f"{point}:{nth}:raise")
    asked = 0
    with suppress(LogClosed):
        for asked in (8, 12):
            log.delete_records("s", 0, asked)
        raise AssertionError(f"{point} was not reached {nth} times")
    with after_a_crash(folder, disk) as again:
        start = again.offsets("s", 0).log_start_offset
        assert start == asked
        assert values_of(again, "s", 0, start) == [b"%0200d" % number for number in range(start, end)]


def test_records_that_cannot_be_deleted_for_good_are_an_error(
    folder: Path, disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a crash would bring back was never deleted: the log ends."""
    log = filled(folder, disk)
    end = log.offsets("s", 0).log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", lambda path: disk.room())
        with pytest.raises(LogClosed, match="no room"):
            log.delete_records("s", 0, 9)
    with after_a_crash(folder, disk) as again:
        assert values_of(again, "s") == [b"%0200d" % number for number in range(end)]
        assert again.delete_records("s", 0, 9) == 9


def test_a_log_that_ends_before_its_mark_begins_there_from_then_on(folder: Path, disk: FullDisk) -> None:
    """A power cut may take what was never synced, and leave the mark."""
    log = open_log(folder, sync="never")
    log.create_topic("s", 1, {"segment.bytes": "100000"})
    for number in range(20):
        log.append("s", 0, rows(b"%0200d" % number))
    log.delete_records("s", 0, 2)
    disk.full = True
    assert log.delete_records("s", 0, 18) == 18
    disk.full = False
    first, second = folder.with_name("first"), folder.with_name("second")
    shutil.copytree(folder, first)
    (segment,) = partition_folder(first, "s").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size * 3 // 4)
    opened = open_log(first, sync="never")
    start = opened.offsets("s", 0).log_start_offset
    shutil.copytree(first, second)
    opened.close()
    with open_log(second, sync="never") as again:
        assert again.offsets("s", 0).log_start_offset == start > 2
