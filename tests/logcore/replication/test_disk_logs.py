"""The replicas' logs of a node: whose directory it is, what a start finds, what is remembered until it is known."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.client import Offsets
from millstream.logcore.errors import CorruptLog, LogLocked, LogWriteFailed, UnsupportedDataDirectory
from millstream.logcore.replication.disk.disk_logs import DiskLogs
from millstream.logcore.replication.replica.replica_core import SyncLog
from millstream.logcore.replication.replica.replica_messages import PartitionId
from millstream.logcore.storage.disk import LogFile
from millstream.logcore.storage.retention import drop_expired

from .replica_logs import append, entries, entry_of, open_disk_log

PARTITION = PartitionId("topic-id", 3)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "node"
    failpoints.arm("")


def open_logs(path: Path, node: int = 1, cluster: str = "c") -> DiskLogs:
    return DiskLogs(path, node, cluster)


def open_alone(path: Path) -> DiskLogs:
    """Of a node that has no others."""
    return DiskLogs(path, 1, "c", opens_late=True)


def stored(logs: DiskLogs, *epochs: int, partition: PartitionId = PARTITION) -> None:
    log = logs.open(partition)
    append(log, *epochs)
    logs.apply(SyncLog(partition, log.end_offset))
    logs.sync()


def segment_of(path: Path, partition: PartitionId = PARTITION) -> Path:
    return path / "replicas" / f"{partition.topic}-{partition.number}" / f"{0:020d}.log"


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


def kill(logs: DiskLogs) -> None:
    """Ends it as a killed process does: nothing is written any more."""
    logs._directory.close()


def test_the_disk_keeps_its_name_and_counts_the_starts(path: Path) -> None:
    first = open_logs(path)
    first.close()
    second = open_logs(path)
    assert (second.disk, second.incarnation) == (first.disk, first.incarnation + 1)
    assert open_logs(path.with_name("other")).disk != first.disk


def test_what_was_stored_is_there_at_the_next_start(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1, 1, 2)
    before = entries(logs.open(PARTITION))
    kill(logs)
    again = open_logs(path)
    assert list(again.stored()) == [PARTITION] and again.clean
    assert entries(again.open(PARTITION)) == before
    again.close()
    assert entries(open_logs(path).open(PARTITION)) == before


def test_a_removed_log_is_gone(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1)
    logs.apply(SyncLog(PARTITION, 1))
    logs.remove(PARTITION)
    logs.sync()  # was asked for before
    assert list(logs.stored()) == [] and logs.log(PARTITION) is None
    assert logs.open(PARTITION).end_offset == 0
    logs.close()
    assert list((path / "replicas").glob("*-delete")) == []


def test_settings_of_a_topic_hold_for_logs_that_are_open_and_that_will_be(path: Path) -> None:
    logs = open_logs(path)
    first = logs.open(PARTITION)
    logs.configure(PARTITION.topic, "clicks", {"segment.bytes": "2048"})
    second = logs.open(PARTITION._replace(number=4))
    assert (first.settings.segment_bytes, second.settings.segment_bytes) == (2048, 2048)
    assert first.name == 'partition 3 of topic "clicks"'
    logs.configure(PARTITION.topic, "clicks", {})
    assert first.settings.segment_bytes > 2048


# Whose directory it is


@pytest.mark.parametrize(("node", "cluster"), [(2, "c"), (1, "other")])
def test_the_directory_of_somebody_else_is_refused(path: Path, node: int, cluster: str) -> None:
    open_logs(path).close()
    with pytest.raises(UnsupportedDataDirectory, match=r'belongs to node 1 of cluster "c"') as refused:
        open_logs(path, node, cluster)
    assert refused.value.hint is not None
    open_logs(path).close()  # the lock was given back


def test_a_directory_of_version_0_1_is_refused(path: Path) -> None:
    path.mkdir()
    (path / "topics.json").touch()
    with pytest.raises(UnsupportedDataDirectory, match=r"holds a log of version 0\.1"):
        open_logs(path)


def test_the_directory_of_a_node_of_a_cluster_is_not_opened_alone(path: Path) -> None:
    open_logs(path).close()
    with pytest.raises(UnsupportedDataDirectory, match="belongs to a node of a cluster"):
        open_alone(path)
    open_logs(path).close()


def test_the_directory_of_a_node_that_was_alone_gets_others_once_it_is_a_cluster_of_one(path: Path) -> None:
    open_alone(path).close()
    with pytest.raises(UnsupportedDataDirectory, match="is that of a server on its own") as refused:
        DiskLogs(path, 1, "c", others=True)
    assert refused.value.hint is not None and "add-node" in refused.value.hint
    open_alone(path).close()
    DiskLogs(path, 1, "c").close()
    DiskLogs(path, 1, "c", others=True).close()


def test_a_directory_is_open_once(path: Path) -> None:
    logs = open_logs(path)
    with pytest.raises(LogLocked):
        open_logs(path)
    logs.close()
    open_logs(path).close()


def test_one_of_the_two_files_that_say_whose_it_is_may_be_damaged(path: Path) -> None:
    disk = open_logs(path).disk
    (path / "lock").unlink()
    flip(path / "node.json", 20)
    again = open_logs(path)
    assert (again.disk, again.incarnation) == (disk, 2)
    again.close()
    for name in ("node.json", "node.json.copy"):
        flip(path / name, 20)
    with pytest.raises(CorruptLog, match=r"node\.json is damaged"):
        open_logs(path)


def test_a_directory_that_has_lost_its_name_is_refused(path: Path) -> None:
    open_logs(path).close()
    for name in ("node.json", "node.json.copy"):
        (path / name).unlink()
    with pytest.raises(CorruptLog, match=r"node\.json is missing"):
        open_logs(path)


# Damage


def test_damage_of_what_was_durable_ends_the_log_and_is_said_until_it_is_known(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1)  # notes a checkpoint: what lies before it is not read at a start
    stored(logs, 1, 1)
    kept = entries(logs.open(PARTITION))[:1]
    size = logs.open(PARTITION).size_bytes // 3
    kill(logs)
    flip(segment_of(path), size + 80)
    for _ in range(2):  # nobody was told: the next start says it again
        damaged = open_logs(path)
        assert not damaged.clean
        assert entries(damaged.open(PARTITION)) == kept
        kill(damaged)
    assert list(segment_of(path).parent.glob("*.dropped"))
    damaged = open_logs(path)
    damaged.registered()
    stored(damaged, 2)
    kill(damaged)
    assert open_logs(path).clean


def test_damage_that_a_crash_may_leave_is_no_loss(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1, 1)
    append(logs.open(PARTITION), 1)
    size = logs.open(PARTITION).size_bytes
    kill(logs)
    flip(segment_of(path), size - 10)
    again = open_logs(path)
    assert again.clean and len(entries(again.open(PARTITION))) == 2


def test_damage_that_is_found_by_reading_is_a_loss_at_the_next_start(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1, 1, 1)
    logs.close()
    flip(segment_of(path), 80)
    logs = open_logs(path)
    assert logs.clean  # a start does not read what was checked before
    with pytest.raises(CorruptLog):
        logs.open(PARTITION).read(0, 3, 1000)
    kill(logs)
    again = open_logs(path)
    assert not again.clean and again.open(PARTITION).end_offset == 0


def test_a_checkpoint_that_is_damaged_loses_nothing_while_the_one_before_is_there(tmp_path: Path) -> None:
    log = open_disk_log(tmp_path / "log")
    for _ in range(4):
        append(log, *([1] * 6), size=200)
        log.sync_all()
    before = entries(log)
    flip(tmp_path / "log" / "checkpoint.json", 30)
    again = open_disk_log(tmp_path / "log")
    assert again.clean and entries(again) == before
    flip(tmp_path / "log" / "checkpoint-before.json", 30)
    lost = open_disk_log(tmp_path / "log")
    assert not lost.clean and entries(lost) == before  # nobody can say that this is all


# Failing disks


def test_after_a_failed_sync_a_log_takes_no_more(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1)
    log = logs.open(PARTITION)
    append(log, 1)
    failpoints.arm("replica.before_sync:1:eio")
    logs.apply(SyncLog(PARTITION, 2))
    with pytest.raises(LogWriteFailed):
        logs.sync()
    for again in (lambda: append(log, 1), log.sync_all, lambda: log.truncate(0)):
        with pytest.raises(LogWriteFailed):
            again()
    assert len(entries(log)) == 2  # nothing was dropped


def test_what_a_failed_sync_left_is_written_again_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system forgets what it could not write, and calls it clean: only a new write makes it dirty again."""
    logs = open_logs(path)
    stored(logs, 1)
    log = logs.open(PARTITION)
    safe_size = log.size_bytes
    append(log, 1)
    failpoints.arm("replica.before_sync:1:eio")
    logs.apply(SyncLog(PARTITION, 2))
    with pytest.raises(LogWriteFailed):
        logs.sync()
    kill(logs)
    written: list[tuple[int, int]] = []
    write = LogFile.write

    def noted(self: LogFile, buffers: list[bytes], position: int) -> int:
        end = write(self, buffers, position)
        written.append((position, end))
        return end

    monkeypatch.setattr(LogFile, "write", noted)
    again = open_logs(path)
    assert written == [(safe_size, again.open(PARTITION).size_bytes)]
    assert again.open(PARTITION).end_offset == 2


def test_a_full_disk_refuses_and_everything_stays_as_it_is(path: Path) -> None:
    logs = open_logs(path)
    stored(logs, 1, 1)
    log = logs.open(PARTITION)
    before = entries(log)
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogError, match="no room"):
        append(log, 1)
    assert entries(log) == before
    append(log, 1)
    logs.apply(SyncLog(PARTITION, 3))
    logs.sync()
    kill(logs)
    assert entries(open_logs(path).open(PARTITION))[:2] == before


def test_a_segment_that_cannot_begin_refuses_and_the_log_goes_on(tmp_path: Path) -> None:
    log = open_disk_log(tmp_path / "log")
    append(log, 1, 1, 1, size=200)
    failpoints.arm("segment.roll:1:enospc")
    with pytest.raises(LogError, match="no room"):
        append(log, 1, size=700)
    append(log, 1, size=700)
    assert len(entries(log)) == 4


# Readers


def test_readers_see_what_is_published_and_hear_of_it(path: Path) -> None:
    heard: list[PartitionId] = []
    logs = DiskLogs(path, 1, "c", on_advance=heard.append)
    stored(logs, 1, 1, 1)
    log = logs.open(PARTITION)
    assert log.offsets().high_watermark == 0 and not log.view(0, 1000, "read_uncommitted").files
    log.publish(2, 1)
    assert heard == [PARTITION]
    assert log.view(0, 1000, "read_uncommitted").limit_offset == 2
    assert log.view(0, 1000, "read_committed").limit_offset == 1
    assert log.offsets() == Offsets(0, 1, 2, 3)


def test_retention_deletes_what_is_published_and_no_more(tmp_path: Path) -> None:
    log = open_disk_log(tmp_path / "log", retention_bytes=1500)
    append(log, *([1] * 30), size=200)
    log.sync_all()
    assert not drop_expired(log, 0)
    log.publish(30, 20)
    assert drop_expired(log, 0)
    assert log.log_start_offset == 20
    assert log.size_bytes < 4000
    log.publish(30, 30)
    assert drop_expired(log, 0)
    assert 20 < log.log_start_offset < 30
    again = open_disk_log(tmp_path / "log")
    assert again.log_start_offset == log.log_start_offset and entries(again) == entries(log)


# A node that is alone


def test_logs_are_opened_when_they_are_asked_for_and_go_on_behind_what_is_lost(path: Path) -> None:
    whole = PartitionId("t", 7)
    logs = open_alone(path)
    stored(logs, 1)
    stored(logs, 1, 1)
    stored(logs, 1, partition=whole)
    kept = entries(logs.open(PARTITION))[:1]
    size = logs.open(PARTITION).size_bytes // 3
    kill(logs)
    flip(segment_of(path), size + 80)
    for end_offset in (3, 4):
        late = open_alone(path)
        assert late.clean and late.log(PARTITION) is None and set(late.stored()) == {PARTITION, whole}
        log = late.open(PARTITION)
        assert log.end_offset == end_offset, "no offset is given again"
        assert [entry_of(batch) for batch in log.read(0, end_offset, 1000)] == kept
        with pytest.raises(CorruptLog, match="has lost the records from offset 1 to 1"):
            log.read(1, end_offset, 1000)
        assert log.read(2, end_offset, 1000)[0].header.base_offset == 2
        assert len(entries(late.open(whole))) == 1
        assert ["lacks the records from offset 1 to 1" in problem for problem in late.problems()] == [True]
        stored(late, 2)
        kill(late)


def test_a_folder_that_is_gone_is_not_taken_for_a_log_that_never_began(path: Path) -> None:
    logs = open_alone(path)
    stored(logs, 1)
    never = PARTITION._replace(number=4)
    logs.open(never)
    kill(logs)
    for partition in (PARTITION, never):
        shutil.rmtree(segment_of(path, partition).parent)
    with (path / "replicas" / "begun").open("a") as torn:
        torn.write(f"{never.topic}-")
    for _ in range(2):
        shutil.rmtree(segment_of(path, never).parent, ignore_errors=True)
        logs = open_alone(path)
        assert logs.open(never).end_offset == 0
        with pytest.raises(CorruptLog, match=r"partition 3 of .* cannot be opened: .*topic-id-3 is missing"):
            logs.open(PARTITION)
        assert len(logs.problems()) == 1
        kill(logs)
    logs = open_alone(path)
    logs.remove(PARTITION)
    logs.close()
    assert (path / "replicas" / "begun").read_text() == f"{never.topic}-4\n"


def test_a_cluster_takes_no_log_with_a_hole_in_it(path: Path) -> None:
    late = open_alone(path)
    stored(late, 1)
    stored(late, 1, 1)
    size = late.open(PARTITION).size_bytes // 3
    kill(late)
    flip(segment_of(path), size + 80)
    late = open_alone(path)
    stored(late, 2)
    late.close()
    before = segment_of(path).read_bytes()
    logs = open_logs(path)
    assert not logs.clean and "lacks the records from offset 1 to 1" in logs.problems()[0]
    assert segment_of(path).read_bytes() == before
    kill(logs)


def test_housekeeping_has_what_rests_opened(path: Path) -> None:
    logs = open_alone(path)
    stored(logs, 1)
    logs.close()
    late = open_alone(path)
    late.wake = late.open
    late.keep_house()
    assert late.log(PARTITION) is not None
    late.close()
