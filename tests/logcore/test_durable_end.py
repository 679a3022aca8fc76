"""What was acknowledged before a kill is there after it, or is known to be lost: no offset is given a second time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import read_header
from millstream.logcore.storage.durable_point import POINT, DurablePoint

from .damage import read_all
from .log_records import partition_folder, rows, segment_files, values_of

pytestmark = pytest.mark.usefixtures("only_processes_die")
COUNT = 10


@pytest.fixture
def killed(log: Log, folder: Path) -> Path:
    """The folder of a log whose process was killed after ten acknowledged appends."""
    for number in range(COUNT):
        log.append("t", 0, rows(b"%d" % number))
    return killed_now(folder)


def killed_now(folder: Path) -> Path:
    return Path(shutil.copytree(folder, folder.with_name("killed")))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: flip(path, 200),
        lambda path: path.write_bytes(path.read_bytes()[:300]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        zero,
    ],
    ids=["flipped", "shortened", "emptied", "deleted", "zeroed"],
)
def test_a_log_never_goes_back_behind_what_was_acknowledged(killed: Path, harm: Callable[[Path], None]) -> None:
    harm(segment_files(killed)[0])
    for life in range(2):
        with open_log(killed) as log:
            assert log.append("t", 0, rows(b"new %d" % life)) == COUNT + life
            found, complaints = read_all(log, "t", 0)
            lost = COUNT + life + 1 - len(found)
            assert 1 <= lost == len(complaints), "each lost offset is an error"
            assert all(_says_what_is_lost(each) for each in complaints)
            assert all(found[n] == (b"%d" % n if n < COUNT else b"new %d" % (n - COUNT)) for n in found)
            assert any("has lost" in each or "lacks" in each for each in log.problems())


def _says_what_is_lost(complaint: str) -> bool:
    """What a checkpoint covers is read when somebody wants to have it, and not at the start."""
    name = 'partition 0 of topic "t"'
    return f"{name} has lost the records from offset" in complaint or f"{name} cannot be read from offset" in complaint


def test_what_lies_behind_a_damaged_batch_is_served(killed: Path) -> None:
    flip(segment_files(killed)[0], 200)
    with open_log(killed) as log:
        found, complaints = read_all(log, "t", 0)
        assert len(found) == COUNT - 1 and len(complaints) == 1


def test_a_torn_write_behind_the_acknowledged_end_is_no_loss(killed: Path) -> None:
    path = segment_files(killed)[0]
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data + data[:40])
    with open_log(killed) as log:
        assert not log.problems()
        assert log.append("t", 0, rows(b"new")) == COUNT


def test_without_the_file_the_log_ends_where_its_records_end(killed: Path) -> None:
    (partition_folder(killed) / POINT).unlink()
    with open_log(killed) as log:
        assert not log.problems()
        assert values_of(log, "t") == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("name", [POINT, "checkpoint.json"])
def test_deleted_records_do_not_come_back_with_a_lost_file(log: Log, folder: Path, name: str) -> None:
    for number in range(COUNT):
        log.append("t", 0, rows(b"%d" % number))
    log.delete_records("t", 0, 4)
    killed = killed_now(folder)
    (partition_folder(killed) / name).unlink()
    with open_log(killed) as reopened:
        assert reopened.offsets("t", 0).log_start_offset == 4
        assert not reopened.problems()


def test_records_of_a_transaction_whose_end_is_lost_count_as_lost(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("p")
    for end in (producer.abort, producer.commit):
        producer.begin()
        producer.append("t", 0, rows(b"in a transaction"))
        end()
    log.append("t", 0, rows(b"after"))
    killed = killed_now(folder)
    path = segment_files(killed)[0]
    flip(path, read_header(path.read_bytes()).size + 70)  # the marker of the first one
    with open_log(killed) as reopened:
        found, complaints = read_all(reopened, "t", 0)
        assert found == {2: b"in a transaction", 4: b"after"}
        assert len(complaints) == 2


def test_the_offset_of_a_marker_is_not_given_again_with_the_records_before_it(log: Log, folder: Path) -> None:
    producer = log.transactional_producer("p")
    producer.begin()
    producer.append("t", 0, rows(b"in a transaction"))
    producer.commit()
    assert log.offsets("t", 0).last_stable_offset == 2, "the marker is seen, and may not be durable"
    killed = killed_now(folder)
    segment_files(killed)[0].write_bytes(b"")
    with open_log(killed) as reopened:
        assert reopened.append("t", 0, rows(b"new")) >= 2


def test_a_missing_folder_is_an_error_of_its_partition_only(killed: Path) -> None:
    shutil.rmtree(partition_folder(killed))
    with open_log(killed) as log:
        with pytest.raises(CorruptLog, match=r'partition 0 of topic "t" cannot be opened: .*-0 is missing'):
            log.offsets("t", 0)
        assert log.append("t", 1, rows(b"fine")) == 0


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"0123"])
def test_a_damaged_secret_is_made_anew(log: Log, folder: Path, content: bytes) -> None:
    assert log.served.secret
    (folder / "secret").write_bytes(content)
    assert len(log.served.secret) == 64
    assert log.served.secret == log.served.secret


def test_a_note_that_is_torn_says_nothing(tmp_path: Path) -> None:
    point = DurablePoint(tmp_path)
    point.note(7, 3, 8)
    assert point.read() == (7, 3, 8)
    for content in (b"", b"\0" * 28, b"\0" * 12, b"\xff" * 29, (tmp_path / POINT).read_bytes()[:-1]):
        (tmp_path / POINT).write_bytes(content)
        assert point.read().end_offset == 0
