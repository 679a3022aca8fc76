"""When the partitions of a log are opened, and what they find."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition, TransactionalProducer
from millstream.logcore.errors import LogClosed, UnusableDataDirectory
from millstream.logcore.failpoints import FailpointHit
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import read_header

from .log_records import partition_folder, rows, segment_files, values_of

NOW_S = 1_700_000_000.0  # as the first log had it: else its segment is old
pytestmark = pytest.mark.usefixtures("only_processes_die")


def killed(log: Log, folder: Path) -> Path:
    """What is in the folder now, as a kill would leave it. The log is closed."""
    after = folder.with_name(folder.name + "-killed")
    shutil.copytree(folder, after)
    log.close()
    return after


def killed_while_it_commits(producer: TransactionalProducer) -> None:
    """The node ends when it is decided for good, and nobody was told."""
    failpoints.arm("txn.after_prepare:1:raise")
    with pytest.raises(LogClosed):
        producer.commit()
    failpoints.arm("")


@pytest.mark.parametrize("name", ["lock", "node.json", "quorum/quorum-durable", "quorum/quorum-log", "replicas"])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    """As one of another user's, which root could open: so there is a folder in its place, or a file in a folder's."""
    folder = tmp_path / "log"
    open_log(folder).close()
    unfit = folder / name
    if unfit.is_dir():
        shutil.rmtree(unfit)
        unfit.touch()
    else:
        unfit.unlink()
        unfit.mkdir()
    with pytest.raises(UnusableDataDirectory) as refused:
        open_log(folder)
    assert str(refused.value.message).startswith(f"the data directory {folder} cannot be used: {unfit}: ")
    with pytest.raises(UnusableDataDirectory):  # again: the lock is not held
        open_log(folder)


def test_no_partition_is_opened_after_a_crash_before_it_is_used(log: Log, folder: Path) -> None:
    log.create_topic("many", 50)
    log.append("many", 7, rows(b"a"))
    with open_log(killed(log, folder)) as reopened:
        ids = [reopened.node.partition_id("many", number) for number in range(50)]
        assert not any(reopened.node.logs.log(id) for id in ids if id is not None)
        assert values_of(reopened, "many", 7) == [b"a"]
        assert [number for number in range(50) if reopened.served.partition_if_open("many", number)] == [7]


def test_what_a_crash_left_open_is_aborted_when_its_partition_is_opened(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"never"))
    producer.append("t", 1, rows(b"never"))
    folder = killed(log, folder)
    with open_log(folder) as reopened:
        reopened.append("t", 0, rows(b"0"))
        assert values_of(reopened, "t", 0) == [b"0"], "nobody can commit it: its producer was in the process that ended"
    with open_log(folder) as reopened:
        reopened.append("t", 0, rows(b"1"))
        assert values_of(reopened, "t", 0) == [b"0", b"1"]
        assert values_of(reopened, "t", 1) == []
        assert reopened.offsets("t", 1).last_stable_offset == reopened.offsets("t", 1).high_watermark


def test_a_commit_that_is_under_way_saves_nothing_of_an_older_transaction(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"never"))
    folder = killed(log, folder)
    with open_log(folder) as reopened:
        producer = reopened.transactional_producer("p")
        producer.begin()
        producer.append("t", 1, rows(b"committed"))
        killed_while_it_commits(producer)
    with open_log(folder) as again:
        eventually(lambda: values_of(again, "t", 1) == [b"committed"])
        assert values_of(again, "t", 0) == []
        assert again.offsets("t", 0).last_stable_offset == again.offsets("t", 0).high_watermark
        again.transactional_producer("p")
        assert values_of(again, "t", 1) == [b"committed"]


def test_a_prepared_commit_is_completed_before_its_offsets_are_told(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"committed"))
    producer.send_offsets("g", {TopicPartition("t", 1): 5})
    killed_while_it_commits(producer)
    with open_log(killed(log, folder)) as reopened:
        assert reopened.committed_offsets("g") == {TopicPartition("t", 1): 5}
        eventually(lambda: values_of(reopened, "t", 0) == [b"committed"])


def test_room_that_was_taken_ahead_is_used_on_after_a_kill(log: Log, folder: Path) -> None:
    log.append("t", 0, rows(b"a"))
    folder = killed(log, folder)
    (segment,) = segment_files(folder)
    size = segment.stat().st_size
    assert size > 10_000
    with open_log(folder, clock=lambda: NOW_S) as reopened:
        assert reopened.append("t", 0, rows(b"b")) == 1
        assert segment.stat().st_size == size
        assert reopened.problems() == []
    assert segment.stat().st_size < 1000
    assert not list(segment.parent.glob("*.dropped*"))
    with open_log(folder) as reopened:
        assert values_of(reopened, "t") == [b"a", b"b"]


def test_a_tail_that_is_no_torn_write_is_kept_aside_and_spoken_of(log: Log, folder: Path) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        log.append("t", 0, rows(value))
    folder = killed(log, folder)
    (segment,) = segment_files(folder)
    for name in ("durable", "checkpoint.json", "checkpoint-before.json"):  # so nobody knows that more was acknowledged
        (segment.parent / name).unlink(missing_ok=True)
    data = bytearray(segment.read_bytes())
    data[data.index(b"b", 60)] ^= 1
    segment.write_bytes(data)
    with open_log(folder) as reopened:
        assert values_of(reopened, "t") == [b"a"]
        (problem,) = reopened.problems()
    assert "at offset 1" in problem and "up to offset 3" in problem
    assert "dropped-from" in problem
    (aside,) = segment.parent.glob("*.dropped-from-*")
    assert aside.read_bytes().rstrip(b"\0").endswith(bytes(data).rstrip(b"\0")[-20:])


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_cleaned_segment_that_is_damaged_replaces_nothing(log: Log, folder: Path, damage: str) -> None:
    compacted = {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    log.create_topic("c", 1, compacted)
    values = [b"%d" % number * 20 for number in range(30)]
    for number, value in enumerate(values):
        log.append("c", 0, rows(value, key=b"%d" % (number % 20)))
    failpoints.arm("clean.swapping:1:raise")
    with pytest.raises(FailpointHit):
        log.keep_house()
    folder = killed(log, folder)
    (cleaned,) = partition_folder(folder, "c").glob("*.cleaned")
    data = bytearray(cleaned.read_bytes())
    data[-1] ^= 1
    cleaned.write_bytes(data if damage == "flip" else data[: read_header(data, 0).size])
    with open_log(folder) as reopened:
        assert values_of(reopened, "c") == values
        assert reopened.problems() == []
        failpoints.arm("")
        reopened.keep_house()
        assert len(values_of(reopened, "c")) < len(values)
    assert not list(partition_folder(folder, "c").glob("*.cleaned"))
    assert not (partition_folder(folder, "c") / "swap.json").exists()


def test_what_earlier_starts_have_decided_is_not_read_again_for_ever(tmp_path: Path) -> None:
    for _ in range(80):
        with open_log(tmp_path, sync="never") as log:
            if log.topic("t") is None:
                log.create_topic("t", 1)
            log.append("t", 0, rows(b"x"))
    assert (tmp_path / "quorum" / "quorum-log").stat().st_size < 100 * 200  # a start decides three records
    with open_log(tmp_path, sync="never") as log:
        assert len(values_of(log, "t")) == 80


def test_a_log_that_is_closed_before_housekeeping_begins_has_started_two_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"x"))
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert names == {"node 1", "millstream-log-retention"}
