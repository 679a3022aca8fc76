"""A disk that is full or broken: the append is refused, nothing acknowledged is lost, later appends work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.logcore import failpoints
from millstream.logcore.errors import LogFull, LogWriteFailed
from millstream.logcore.log import Log, open_log

from .log_records import rows, values_of

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
        assert values_of(log, "t") == [b"%03d" % i * 100 for i in range(int(done.stdout))]


@pytest.mark.parametrize("point", ["append.write", "append.before_sync"])
@pytest.mark.parametrize(("action", "error"), [("enospc", LogFull), ("eio", LogWriteFailed)])
def test_a_refused_write_or_sync_takes_only_its_own_records(
    log: Log, folder: Path, point: str, action: str, error: type[Exception]
) -> None:
    log.append("t", 0, rows(b"a"))
    failpoints.arm(f"{point}:1:{action}")
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
