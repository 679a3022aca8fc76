"""The list of partitions that have begun, whatever a crash has left of it."""

from __future__ import annotations

from pathlib import Path

from millstream.logcore.replication.disk.begun_logs import BegunLogs
from millstream.logcore.replication.replica.replica_messages import PartitionId

FIRST, SECOND, THIRD = PartitionId("topic", 1), PartitionId("topic", 12), PartitionId("other", 0)


def test_a_torn_line_is_none_and_swallows_no_other(tmp_path: Path) -> None:
    known = BegunLogs(tmp_path, durable=True)
    known.note([FIRST])
    whole = (tmp_path / "begun").stat().st_size
    known.note([SECOND])
    content = (tmp_path / "begun").read_bytes()
    for size in range(whole, len(content)):
        (tmp_path / "begun").write_bytes(content[:size])
        found = BegunLogs(tmp_path, durable=True)
        assert FIRST in found and SECOND not in found
        found.note([THIRD])
        again = BegunLogs(tmp_path, durable=True)
        assert [each in again for each in (FIRST, SECOND, THIRD, PartitionId("topic", 1))] == [True, False, True, True]


def test_a_line_that_was_written_in_part_is_written_anew(tmp_path: Path) -> None:
    known = BegunLogs(tmp_path, durable=True)
    known.note([FIRST])
    with (tmp_path / "begun").open("ab") as file:
        file.write(b"topic-1")  # what a full disk has taken of a line
    known.note([SECOND])
    again = BegunLogs(tmp_path, durable=True)
    assert FIRST in again and SECOND in again
