"""What opening a log makes of torn writes, flipped bits and missing files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore.client import FetchedRows
from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import read_header

from .log_records import columnar, partition_folder, records_of, rows, segment_files, values_of

RECORDS: list[tuple[int, bytes | int | None]] = [(0, b"a"), (1, b"b"), (2, 10), (3, 11), (4, b"c")]


@pytest.fixture
def small_log(log: Log, folder: Path, memory_folder: Path) -> Path:
    """The folder of a log that was not closed: nothing says up to where it was durable."""
    log.append("t", 0, rows(b"a", b"b"))
    log.append("t", 0, columnar(10, 11))
    log.append("t", 0, rows(b"c"))
    crashed = memory_folder / "crashed"
    shutil.copytree(folder, crashed)
    forget(crashed, "durable")
    (segment,) = segment_files(crashed)
    size = segment_files(folder)[0].stat().st_size
    log.close()
    segment.write_bytes(segment_files(folder)[0].read_bytes())
    assert segment.stat().st_size < size, "the open log has room ahead"
    return crashed


def forget(folder: Path, *names: str, topic: str = "t") -> None:
    """The checkpoints of the partition, and these files."""
    for name in ("checkpoint.json", "checkpoint-before.json", *names):
        (partition_folder(folder, topic) / name).unlink(missing_ok=True)


def batch_ends(data: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + read_header(data, ends[-1]).size)
    return ends


def records_below(data: bytes, size: int) -> list[tuple[int, bytes | int | None]]:
    """The records of the batches that are whole in the first `size` bytes."""
    offset = 0
    for start, end in zip(batch_ends(data), batch_ends(data)[1:], strict=False):
        if end <= size:
            offset = read_header(data, start).last_offset + 1
    return RECORDS[:offset]


@pytest.mark.parametrize("filler", [b"", b"\0" * 100], ids=["cut", "zeros"])
def test_a_log_that_is_cut_anywhere_keeps_its_whole_batches(small_log: Path, filler: bytes) -> None:
    (segment,) = segment_files(small_log)
    data = segment.read_bytes()
    near_an_end = {end + step for end in batch_ends(data) for step in (-1, 0, 1)}
    for size in sorted({*range(0, len(data), 11), *near_an_end} & {*range(len(data) + 1)}):
        segment.write_bytes(data[:size] + filler)
        while filler and size < len(data) and data[size] == 0:
            size += 1
        expected = records_below(data, size)
        with open_log(small_log, sync="never") as log:
            assert records_of(log, "t") == expected
            assert log.append("t", 0, rows(b"next")) == len(expected)
            assert values_of(log, "t", 0, len(expected)) == [b"next"]
        forget(small_log, "durable")


def test_a_flipped_bit_ends_the_log_before_its_batch_and_what_follows_is_kept_aside(small_log: Path) -> None:
    """Of a log of which nothing says how far it was durable."""
    (segment,) = segment_files(small_log)
    data = segment.read_bytes()
    ends = batch_ends(data)
    kept_aside = 0
    unchecked = {start + at for start in ends for at in range(12, 16)}
    for position in range(0, len(data), 3):
        if position in unchecked:  # the leader epoch is not under the checksum
            continue
        segment.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        start = max(end for end in ends if end <= position)
        with open_log(small_log, sync="never") as log:
            assert records_of(log, "t") == records_below(data, start)
        for aside in segment.parent.glob("*.dropped-from-*"):
            kept_aside += 1
            flipped = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
            assert aside.read_bytes()[: len(data) - start] == flipped[start:]
            aside.unlink()
        forget(small_log, "durable")
    assert kept_aside > 20


def test_bytes_that_are_missing_below_the_recovery_point_are_reported_and_everything_else_goes_on(
    log: Log, folder: Path
) -> None:
    for value in (b"a", b"b", b"c"):
        log.append("t", 0, rows(value))
    log.append("t", 1, rows(b"fine"))
    log.close()
    (segment,) = segment_files(folder)
    segment.write_bytes(data := segment.read_bytes()[:-1])
    for count in range(2):
        with open_log(folder) as reopened:
            assert reopened.append("t", 0, rows(b"next %d" % count)) == 3 + count
            assert values_of_part(reopened, 0) == [b"a", b"b"]
            with pytest.raises(CorruptLog, match=rf"offset 2 to 2: .*{segment.name} ends at position \d+"):
                reopened.fetch("t", 0, 2)
            assert values_of(reopened, "t", 0, 3)[0] == b"next 0"
            assert values_of(reopened, "t", 1) == [b"fine"]
            assert [problem for problem in reopened.problems() if "the records from offset 2 to 2" in problem]
    assert segment.read_bytes() == data, "what is damaged is not written to"
    with open_log(folder) as reopened:
        reopened.delete_topic("t")


def values_of_part(log: Log, offset: int) -> list[object]:
    """What one fetch gives."""
    runs = [run for run in log.fetch("t", 0, offset).runs if isinstance(run, FetchedRows)]
    return [value for run in runs for value in run.table["value"].to_pylist()]


def test_a_damaged_batch_below_the_recovery_point_is_found_when_it_is_read(log: Log, folder: Path) -> None:
    log.append("t", 0, rows(b"a"))
    log.append("t", 0, rows(b"b"))
    log.close()
    (segment,) = segment_files(folder)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2 - 2] ^= 1
    segment.write_bytes(data)
    with open_log(folder) as reopened:
        with pytest.raises(CorruptLog, match=r"position 0: the checksum"):
            reopened.fetch("t", 0, 0)
        assert values_of(reopened, "t", 0, 1) == [b"b"]


def test_damage_before_the_last_segment_is_never_taken_for_a_torn_write(log: Log, folder: Path) -> None:
    log.create_topic("s", 1, {"segment.bytes": "1024"})
    for i in range(30):
        log.append("s", 0, rows(b"%d" % i * 20))
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    forget(crashed, topic="s")
    damaged = segment_files(crashed, "s")[1]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    after = int(segment_files(crashed, "s")[2].stem)
    with open_log(crashed) as reopened:
        read = reopened.fetch("s", 0, 0).next_offset
        assert int(damaged.stem) <= read == after - 1
        with pytest.raises(CorruptLog, match=damaged.name):
            reopened.fetch("s", 0, read)
        assert len(values_of(reopened, "s", 0, after)) == 30 - after
        assert damaged.name in reopened.problems()[0] or segment_files(crashed, "s")[2].name in reopened.problems()[0]


def test_a_missing_segment_is_an_error(log: Log, folder: Path) -> None:
    log.append("t", 0, rows(b"a"))
    log.close()
    segment_files(folder)[0].unlink()
    with open_log(folder) as reopened:
        with pytest.raises(CorruptLog, match="is missing"):
            reopened.fetch("t", 0, 0)
        assert reopened.append("t", 0, rows(b"b")) == 1
        assert values_of(reopened, "t", 0, 1) == [b"b"]


def test_a_torn_checkpoint_is_no_loss(log: Log, folder: Path) -> None:
    log.append("t", 0, rows(b"a"))
    log.close()
    (partition_folder(folder) / "checkpoint.json").write_bytes(b"00000000\n{}")
    with open_log(folder) as reopened:
        assert values_of(reopened, "t") == [b"a"]


def test_half_created_and_half_deleted_topics_are_removed(log: Log, folder: Path) -> None:
    log.append("t", 0, rows(b"a"))
    log.close()
    half = [folder / "replicas" / name for name in ("millstream-1-999-0", "0123-delete")]
    for path in half:
        path.mkdir()
        (path / f"{0:020d}.log").write_bytes(b"")
    with open_log(folder) as reopened:
        eventually(lambda: not any(path.exists() for path in half))
        assert values_of(reopened, "t") == [b"a"]
