"""Backups of a log that works: what was acknowledged is in them, a transaction is whole or not there, and damage is
found before anything is restored."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore.backup.backups import (
    CopyProgress,
    backup_to_restore,
    list_backups,
    prune_backups,
    read_backup,
    restore_backup,
    verify_backup,
    write_backup,
)
from millstream.logcore.backup.capture import SnapshotFile
from millstream.logcore.backup.chunks import CHUNK_BYTES
from millstream.logcore.backup.snapshots import SnapshotOutdated, SnapshotRefused, Snapshots
from millstream.logcore.backup.store import BackupFailed, BackupStore, place_at
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log

from .log_records import crashed_copy, partition_folder, rows, segment_files, values_of

SOURCE = TopicPartition("src", 0)
SMALL = {"segment.bytes": "4096", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


class OneSnapshot:
    """A `NodeSnapshot` of a log in this process. State: how many chunks were read."""

    def __init__(self, snapshots: Snapshots, id: str) -> None:
        self._snapshots, self.id = snapshots, id
        self.read = 0

    def files(self) -> Sequence[SnapshotFile]:
        return self._snapshots.files(self.id)

    def hashes(self, path: str) -> Sequence[str]:
        return self._snapshots.hashes(self.id, path)

    def chunk(self, path: str, number: int) -> bytes:
        self.read += 1
        return self._snapshots.chunk(self.id, path, number)


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    where = tmp_path / "backups"
    return BackupStore(place_at(str(where) if request.param == "folder" else where.as_uri()))


@pytest.fixture
def snapshots(log: Log) -> Iterator[Snapshots]:
    found = Snapshots(log.node)
    yield found
    found.close()


def back_up(store: BackupStore, snapshots: Snapshots, progress: Callable[[CopyProgress], None] = lambda p: None) -> int:
    """Returns how many chunks were read of the log."""
    snapshot = OneSnapshot(snapshots, snapshots.take())
    write_backup(store, {1: snapshot}, time.time_ns() // 1_000_000, progress)
    snapshots.remove(snapshot.id)
    return snapshot.read


def restored(store: BackupStore, folder: Path) -> Log:
    restore_backup(store, read_backup(store), 1, folder)
    return open_log(folder)


def test_what_was_written_is_there_and_goes_on(
    log: Log, snapshots: Snapshots, store: BackupStore, tmp_path: Path
) -> None:
    log.append("t", 0, rows(b"1", b"2"))
    log.append("t", 1, rows(b"3"))
    log.commit_offsets("g", {TopicPartition("t", 0): 1})
    back_up(store, snapshots)
    log.append("t", 0, rows(b"later"))
    with restored(store, tmp_path / "new" / "log") as again:
        assert [values_of(again, "t", partition) for partition in (0, 1)] == [[b"1", b"2"], [b"3"]]
        assert again.committed_offsets("g") == {TopicPartition("t", 0): 1}
        again.append("t", 0, rows(b"4"))
        assert values_of(again, "t") == [b"1", b"2", b"4"]
    assert values_of(log, "t") == [b"1", b"2", b"later"]


@pytest.mark.parametrize("seed", range(4))
def test_backups_under_load_have_all_that_was_acknowledged_and_whole_transactions(
    log: Log, snapshots: Snapshots, tmp_path: Path, seed: int
) -> None:
    """Retention and compaction go on meanwhile, and so do writers with transactions and without."""
    chance = random.Random(seed)
    log.create_topic("src", 1)
    log.create_topic("kept", 1, SMALL)
    store = BackupStore(place_at(str(tmp_path / "backups")))
    over = threading.Event()
    committed, appended = itertools.count(1), itertools.count(1)
    done = {"committed": 0, "appended": 0}

    def commit() -> None:
        producer = log.transactional_producer("x")
        for number in committed:
            if over.is_set():
                return
            producer.begin()
            for partition in range(2):
                producer.append("t", partition, rows(b"%d" % number))
            producer.send_offsets("g", {SOURCE: number})
            if number % 5 == 4:
                producer.abort()
            else:
                producer.commit()
                done["committed"] = number

    def append() -> None:
        for number in appended:
            if over.is_set():
                return
            log.append("kept", 0, rows(b"%0200d" % number, key=b"%d" % (number % 50)))
            done["appended"] = number

    def keep_house() -> None:
        while not over.wait(0.02):
            log.node.logs.keep_house()

    with ThreadPoolExecutor(3) as pool:
        working = [pool.submit(work) for work in (commit, append, keep_house)]
        try:
            eventually(lambda: done["committed"] > 3 and done["appended"] > 100)
            for turn in range(3):
                time.sleep(chance.uniform(0, 0.05))
                before = dict(done)
                back_up(store, snapshots)
                with restored(store, tmp_path / f"new{turn}") as again:
                    check(again, before)
        finally:
            over.set()
        for each in working:
            each.result()


def check(log: Log, acknowledged: dict[str, int]) -> None:
    first, second = (values_of(log, "t", partition) for partition in (0, 1))
    assert first == second, "a transaction is in one partition and not in the other"
    numbers = [int(str(value, "ascii")) for value in first if isinstance(value, bytes)]
    last = numbers[-1]
    assert numbers == [number for number in range(1, last + 1) if number % 5 != 4]
    assert last >= acknowledged["committed"]
    assert log.committed_offsets("g")[SOURCE] == last
    newest = {int(value) % 50: int(value) for value in values_of(log, "kept") if isinstance(value, bytes)}
    end = log.offsets("kept", 0).log_end_offset
    assert end >= acknowledged["appended"]
    assert newest == {number % 50: number for number in range(end - 49, end + 1)}


def test_a_second_backup_reads_and_keeps_only_what_is_new(log: Log, snapshots: Snapshots, store: BackupStore) -> None:
    log.create_topic("big", 1, {"segment.bytes": str(64 * 1024 * 1024)})
    block = bytes(random.Random(1).randbytes(1024 * 1024))
    for _ in range(20):
        log.append("big", 0, rows(block))
    assert back_up(store, snapshots) >= 3
    assert back_up(store, snapshots) == 0
    log.append("big", 0, rows(b"one more"))
    told: list[CopyProgress] = []
    assert 1 <= back_up(store, snapshots, told.append) <= 3, "the last chunk, the small files of the partition"
    assert told[-1].done == told[-1].size
    assert told[-1].sent < CHUNK_BYTES
    first, *_, last = list_backups(store)[0]
    assert len(first.chunks & last.chunks) >= 2


def test_a_damaged_chunk_is_named_and_nothing_is_restored(log: Log, snapshots: Snapshots, tmp_path: Path) -> None:
    log.append("t", 0, rows(b"1" * 1000))
    store = BackupStore(place_at(str(tmp_path / "backups")))
    back_up(store, snapshots)
    backup = read_backup(store)
    assert list(verify_backup(store, backup)) == []
    file = next(file for file in backup.nodes[1] if file.path.endswith(".log") and file.size > 1000)
    path = tmp_path / "backups" / "chunks" / file.chunks[0][:2] / file.chunks[0]
    whole = path.read_bytes()
    for content in (whole[:-1], bytes([*whole[:20], whole[20] ^ 1, *whole[21:]]), b"", None):
        path.unlink() if content is None else path.write_bytes(content)
        (said,) = verify_backup(store, backup)
        assert file.path in said and file.chunks[0] in said
        with pytest.raises(BackupFailed, match=r"damaged|missing"):
            restore_backup(store, backup, 1, tmp_path / "new")
        assert not list(tmp_path.glob("new*"))


def test_a_damaged_list_of_files_is_refused(log: Log, snapshots: Snapshots, tmp_path: Path) -> None:
    store = BackupStore(place_at(str(tmp_path / "backups")))
    back_up(store, snapshots)
    (path,) = (tmp_path / "backups" / "backups").iterdir()
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"size":', b'"Size":'))
    with pytest.raises(BackupFailed, match="is damaged"):
        read_backup(store)
    back_up(store, snapshots)
    (good,), (damaged,) = list_backups(store)
    assert good.id != path.stem and path.stem in damaged.message


@pytest.mark.parametrize("outside", ["../x", "/tmp/x", "replicas/../../x"])
def test_a_backup_writes_nothing_outside_of_its_folder(store: BackupStore, tmp_path: Path, outside: str) -> None:
    file = {"path": outside, "size": 0, "token": "", "chunks": []}
    store.write("20260101T000000.000Z-0000", {"format": 1, "takenMs": 0, "nodes": {"1": [file]}})
    with pytest.raises(BackupFailed, match="outside"):
        read_backup(store)


def test_a_backup_of_a_later_version_is_refused(store: BackupStore) -> None:
    store.write("20260101T000000.000Z-0000", {"format": 2, "nodes": {}})
    with pytest.raises(BackupFailed, match="has format 2"):
        read_backup(store)


def test_nodes_are_not_restored_from_whatever_backup_is_the_newest_when_it_is_their_turn(store: BackupStore) -> None:
    content = {"format": 1, "takenMs": 0, "chunkBytes": CHUNK_BYTES, "nodes": {"1": [], "2": []}}
    store.write("20260101T000000.000Z-0000", content)
    assert backup_to_restore(store).id == "20260101T000000.000Z-0000"
    store.write("20260102T000000.000Z-0000", content)
    with pytest.raises(BackupFailed, match="of 2 nodes, and all of them are restored from the same one") as refused:
        backup_to_restore(store)
    assert "--backup 20260102T000000.000Z-0000" in str(refused.value.hint)
    assert backup_to_restore(store, "20260101T000000.000Z-0000").id == "20260101T000000.000Z-0000"
    store.write("20260103T000000.000Z-0000", {**content, "nodes": {"1": []}})
    assert backup_to_restore(store).id == "20260103T000000.000Z-0000"


def test_nothing_is_written_over(log: Log, snapshots: Snapshots, store: BackupStore, tmp_path: Path) -> None:
    back_up(store, snapshots)
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").write_text("mine")
    with pytest.raises(BackupFailed, match="is not empty"):
        restore_backup(store, read_backup(store), 1, there)
    assert [path.name for path in there.iterdir()] == ["file"]
    with pytest.raises(BackupFailed, match="has no node 2"):
        restore_backup(store, read_backup(store), 2, tmp_path / "other")
    with pytest.raises(BackupFailed, match="is a file, not a folder"):
        restore_backup(store, read_backup(store), 1, there / "file")
    (there / "file").unlink()
    restored(store, there).close()


def test_a_place_that_is_a_file_is_named(log: Log, snapshots: Snapshots, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackupFailed, match=f"cannot be written to {tmp_path}/file: File exists"):
        back_up(BackupStore(place_at(str(tmp_path / "file"))), snapshots)


def test_there_is_no_backup(store: BackupStore, tmp_path: Path) -> None:
    before = list(tmp_path.iterdir())
    for ask in (read_backup, list_backups, lambda store: prune_backups(store, keep=1)):
        with pytest.raises(BackupFailed, match=f"there is no backup in {store.place_name}"):
            ask(store)
    assert list(tmp_path.iterdir()) == before
    with pytest.raises(BackupFailed, match="no place for backups is given"):
        place_at("")
    with pytest.raises(BackupFailed, match="is no place for backups"):
        place_at("nothing://there")


def test_old_backups_go_with_what_only_they_have(
    log: Log, snapshots: Snapshots, store: BackupStore, tmp_path: Path
) -> None:
    for number in range(4):
        log.append("t", 0, rows(b"%d" % number))
        back_up(store, snapshots)
    before = [backup.id for backup in list_backups(store)[0]]
    gone, chunks = prune_backups(store, keep=2)
    assert gone == 2 and chunks >= 2
    assert [backup.id for backup in list_backups(store)[0]] == before[2:]
    assert [list(verify_backup(store, backup)) for backup in list_backups(store)[0]] == [[], []]
    assert prune_backups(store, keep=2) == (0, 0)
    with restored(store, tmp_path / "new") as again:
        assert values_of(again, "t") == [b"0", b"1", b"2", b"3"]


def test_two_backups_do_not_write_to_a_folder_at_once(log: Log, snapshots: Snapshots, tmp_path: Path) -> None:
    store, other = (BackupStore(place_at(str(tmp_path / "backups"))) for _ in range(2))
    with store.alone(), pytest.raises(BackupFailed, match="another backup"):
        back_up(other, snapshots)
    back_up(other, snapshots)


def test_a_backup_that_was_cut_off_is_not_there_and_the_next_one_uses_its_chunks(
    log: Log, snapshots: Snapshots, store: BackupStore
) -> None:
    log.append("t", 0, rows(bytes(random.Random(2).randbytes(CHUNK_BYTES // 2))))

    def cut(progress: CopyProgress) -> None:
        if progress.done == progress.size:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(store, snapshots, cut)
    snapshots.close()
    with pytest.raises(BackupFailed, match="there is no backup"):
        list_backups(store)
    assert back_up(store, snapshots) == 0


# Snapshots


def test_a_snapshot_stays_as_it_is(log: Log, snapshots: Snapshots) -> None:
    """Whatever becomes of the topic: it grows, is compacted, is deleted."""
    log.create_topic("kept", 1, SMALL)
    for number in range(60):
        log.append("kept", 0, rows(b"%0200d" % number, key=b"%d" % (number % 3)))
    id = snapshots.take()
    logs = [file.path for file in snapshots.files(id) if file.path.endswith(".log") and file.size]
    before = {path: snapshots.hashes(id, path) for path in logs}
    log.append("t", 0, rows(b"more"))
    log.node.logs.keep_house()
    log.delete_topic("kept")
    assert {path: snapshots.hashes(id, path) for path in logs} == before


def test_no_writer_is_acknowledged_while_a_node_is_held(log: Log, snapshots: Snapshots) -> None:
    log.append("t", 0, rows(b"1"))
    id = snapshots.take(hold_s=10)
    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(log.append, "t", 0, rows(b"2"))
        with pytest.raises(TimeoutError):
            appending.result(0.1)
        assert snapshots.release(id)
        appending.result(10)


def test_who_is_not_released_in_time_goes_on_and_says_so(log: Log, snapshots: Snapshots) -> None:
    id = snapshots.take(hold_s=0.05)
    log.append("t", 0, rows(b"1"))
    assert not snapshots.release(id)


def test_a_snapshot_of_which_a_replica_was_truncated_is_not_read(log: Log, snapshots: Snapshots, folder: Path) -> None:
    log.append("t", 0, rows(b"1", b"2"))
    id = snapshots.take()
    path = segment_files(folder)[0].relative_to(folder).as_posix()
    snapshots.hashes(id, path)
    log.node.logs._note_cut()
    with pytest.raises(SnapshotOutdated, match="truncated"):
        snapshots.hashes(id, path)


def test_snapshots_end(log: Log, folder: Path) -> None:
    snapshots = Snapshots(log.node, idle_s=0.2)
    ids = [snapshots.take() for _ in range(4)]
    with pytest.raises(SnapshotRefused, match="4 snapshots"):
        snapshots.take()
    snapshots.remove(ids[0])
    ids[0] = snapshots.take()
    eventually(lambda: not list((folder / "snapshots").iterdir()))
    for id in ids:
        with pytest.raises(SnapshotRefused, match="no snapshot"):
            snapshots.files(id)


def test_what_a_killed_process_left_of_snapshots_goes(log: Log, folder: Path) -> None:
    left = folder / "snapshots" / "left"
    left.mkdir(parents=True)
    (left / "file").write_text("")
    Snapshots(log.node)
    assert not left.exists()


def test_a_snapshot_has_no_file_or_chunk_of_that_name(log: Log, snapshots: Snapshots) -> None:
    log.append("t", 0, rows(b"1"))
    id = snapshots.take()
    for path in ("../node.json", "/etc/passwd", "", "lock"):
        with pytest.raises(SnapshotRefused, match="no file"):
            snapshots.chunk(id, path, 0)
    for number in (-1, 1):
        with pytest.raises(SnapshotRefused, match="no chunk"):
            snapshots.chunk(id, "node.json", number)
    assert json.loads(snapshots.chunk(id, "node.json", 0).partition(b"\n")[2])["node"] == 1


@pytest.mark.parametrize("opened", ["before", "between", "after"])
def test_a_partition_that_a_killed_process_left_is_as_it_was_whenever_it_is_opened(
    log: Log, folder: Path, store: BackupStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    """The process had allocated space ahead. What is written there after the snapshot, or between the look at the files
    and the hold, does not belong to it."""
    log.append("t", 0, rows(b"1", b"2"))
    log.append("t", 1, rows(b"3"))
    left = crashed_copy(log, folder, tmp_path / "left")
    with open_log(left, clock=lambda: 1_700_000_000.0) as again:
        snapshots, node = Snapshots(again.node), again.node
        assert node.logs.log_in(partition_folder(left, "t", 0).name) is None
        if opened == "before":
            again.append("t", 0, rows(b"early"))
        elif opened == "between":
            hold = node.hold
            monkeypatch.setattr(node, "hold", lambda look: again.append("t", 0, rows(b"early")) and hold(look))
        snapshot = OneSnapshot(snapshots, snapshots.take())
        again.append("t", 0, rows(b"late"))
        again.append("t", 1, rows(b"late"))
        write_backup(store, {1: snapshot}, 0, lambda _: None)
        snapshots.close()
    early = [] if opened == "after" else [b"early"]
    with restored(store, tmp_path / "new" / "log") as found:
        assert [values_of(found, "t", partition) for partition in (0, 1)] == [[b"1", b"2", *early], [b"3"]]


def test_segments_that_were_made_longer_ahead_of_writes_count_as_they_are_written(
    log: Log, snapshots: Snapshots, folder: Path
) -> None:
    log.append("t", 0, rows(b"1"))
    (segment,) = segment_files(folder)
    id = snapshots.take()
    name = segment.relative_to(folder).as_posix()
    (found,) = (file for file in snapshots.files(id) if file.path == name)
    assert 0 < found.size < segment.stat().st_size
