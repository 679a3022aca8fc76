"""A replica's log with all its threads at once: the machine, its storage, readers and housekeeping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.logcore.client import FetchedRows
from millstream.logcore.compaction.cleaning import compact
from millstream.logcore.errors import OffsetOutOfRange
from millstream.logcore.records.batch import place
from millstream.logcore.records.codec import encode
from millstream.logcore.replication.disk.disk_log import DiskLog
from millstream.logcore.storage.reader import read
from tests.logcore.log_records import rows

from .replica_logs import NOW_MS, open_disk_log

COUNT = 600


@pytest.mark.usefixtures("fast_disk")
def test_all_threads_at_once_get_what_is_theirs(memory_folder: Path) -> None:
    log = open_disk_log(memory_folder / "log", segment_bytes=4096)
    failures: list[BaseException] = []
    done = threading.Event()

    def always(act: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not done.is_set():
                    act()
            except BaseException as error:
                failures.append(error)

        return run

    others = [
        threading.Thread(target=always(act))
        for act in (log.sync_all, lambda: compact(log, NOW_MS), lambda: read_values(log), log.newest_ms)
    ]
    for thread in others:
        thread.start()
    try:
        machine(log)
    finally:
        done.set()
        for thread in others:
            thread.join()
    assert failures == []
    log.close()
    again = open_disk_log(memory_folder / "log", segment_bytes=4096)
    again.publish(COUNT, COUNT)
    assert again.clean and again.end_offset == COUNT
    assert set(read_values(again)) >= {b"%d" % (COUNT - 1), b"%d" % (COUNT - 2)}


def machine(log: DiskLog) -> None:
    """Appends, cuts off some of it again, lets others read it, deletes the oldest."""
    while log.end_offset < COUNT:
        offset = log.end_offset
        for at in range(offset, min(offset + 10, COUNT)):
            (batch,) = encode(rows(b"%d" % at, key=b"k%d" % (at % 7)))
            log.append([place(batch, at, 1)])
        assert log.read(offset, log.end_offset, 1000)
        if offset % 50 == 0 and offset + 10 < COUNT:
            log.truncate(offset + 5)
        log.publish(log.end_offset, log.end_offset)
        if offset % 200 == 0:
            log.move_start(offset - 100)


def read_values(log: DiskLog) -> list[bytes]:
    """Each tells its own offset: what is read elsewhere would be seen."""
    offset = log.offsets().log_start_offset
    found: list[bytes] = []
    while True:
        try:
            fetched = read(log.view(offset, 4096, "read_uncommitted"), offset, 4096)
        except OffsetOutOfRange:  # deleted meanwhile
            return found
        for run in fetched.runs:
            assert isinstance(run, FetchedRows)
            for at, value in zip(run.table["offset"].to_pylist(), run.table["value"].to_pylist(), strict=True):
                assert value == b"%d" % at
                found.append(value)
        if fetched.next_offset == offset:
            return found
        offset = fetched.next_offset
