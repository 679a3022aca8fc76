"""One file of a partition's log by itself: what is where, up to the byte, and what its index says."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.logcore.errors import CorruptLog
from millstream.logcore.records.batch import HEADER_SIZE, EncodedBatch
from millstream.logcore.storage.open_files import OpenFiles
from millstream.logcore.storage.segment import Segment, base_offsets, file_name
from millstream.logcore.storage.segment_index import INDEX_BYTES, NO_TIME, load_index

from .batches import BYTES, batch, bytes_of, marker, write_segment

KIB = 1024
MIB = 1024 * KIB
BASE = 50
PAGE = INDEX_BYTES  # a batch of this size gets an entry of its own


@pytest.fixture
def files() -> OpenFiles:
    return OpenFiles(8)


@pytest.fixture
def segment(tmp_path: Path, files: OpenFiles) -> Segment:
    """Empty, from offset 50 on."""
    write_segment(tmp_path, BASE)
    return Segment(tmp_path, BASE, files)


def opened(segment: Segment) -> Segment:
    """The same file as another process finds it."""
    return Segment(segment.path.parent, segment.base_offset, OpenFiles(8))


def disk_bytes(segment: Segment) -> int:
    return segment.path.stat().st_size


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """What would make a file longer fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ------------------------------------------------------------------ names


def test_segments_are_named_by_their_base_offset(tmp_path: Path) -> None:
    assert file_name(1234) == "00000000000000001234.log"
    for name in (file_name(70), file_name(8), "checkpoint.json", "00001x.log", "00000000000000000009.index"):
        (tmp_path / name).write_bytes(b"")
    assert base_offsets(tmp_path) == [8, 70]


# ------------------------------------------------------------------ appending


def test_batches_stand_one_after_the_other_from_position_0(segment: Segment) -> None:
    first, second, third = batch(50, 3), batch(53, size=61), batch(54, 2, size=70)
    segment.append([first, second], 0)
    assert segment.size == 161
    segment.append([third], 0)
    assert segment.size == 231 == disk_bytes(segment)
    assert segment.path.read_bytes() == bytes_of(first, second, third)
    assert list(segment.headers(0, 231)) == [(0, first.header), (100, second.header), (161, third.header)]
    assert list(segment.headers(100, 161)) == [(100, second.header)]
    assert list(segment.headers(231, 231)) == []


def test_a_segment_without_batches_is_empty(segment: Segment) -> None:
    assert (segment.size, segment.newest_ms) == (0, NO_TIME)
    assert segment.position_before(50) == segment.entry_of_time(0) == (0, 50)
    assert segment.index.end_offset == 50
    assert list(segment.headers(0, 0)) == []


def test_the_time_of_the_last_write_never_goes_back(segment: Segment) -> None:
    segment.append([batch(50)], later := segment.written_ms + 1000)
    assert segment.written_ms == later
    segment.append([batch(51)], later - 1)
    assert segment.written_ms == later


def test_an_opened_segment_was_written_when_its_file_was(segment: Segment) -> None:
    os.utime(segment.path, ns=(0, 1_234_567_999_999))
    assert opened(segment).written_ms == 1_234_567


def test_an_append_that_fails_changes_nothing_that_counts(segment: Segment) -> None:
    segment.append([batch(50)], 0)
    written_ms = segment.written_ms
    with files_of_at_most(150), pytest.raises(OSError, match="too large"):
        segment.append([batch(51)], written_ms + 1)
    assert (segment.size, segment.written_ms, disk_bytes(segment)) == (100, written_ms, 150)
    segment.take_back()
    assert disk_bytes(segment) == 100
    segment.append([batch(51, size=80)], 0)
    assert [position for position, _ in segment.headers(0, segment.size)] == [0, 100]
    assert segment.index.end_offset == 52


# ------------------------------------------------------------------ room ahead


def test_room_is_taken_ahead_of_writes(segment: Segment) -> None:
    """As much again as there is, 64 KiB at least, and nothing above the segment's size."""
    segment.allocated_max = 400_000
    segment.append([batch(50)], 0)
    assert (segment.size, disk_bytes(segment)) == (100, 100 + 64 * KIB)
    segment.append([batch(51, size=64 * KIB)], 0)
    assert (segment.size, disk_bytes(segment)) == (100 + 64 * KIB, 100 + 64 * KIB), "it just fits"
    segment.append([batch(52)], 0)
    assert disk_bytes(segment) == 2 * segment.size == 2 * (200 + 64 * KIB)
    segment.append([batch(53, size=200_000)], 0)
    assert disk_bytes(segment) == 400_000
    segment.append([batch(54, size=400_001 - segment.size)], 0)
    assert disk_bytes(segment) == segment.size == 400_001, "what is larger than a segment takes its own size"


def test_at_most_16_mib_are_taken_ahead(segment: Segment) -> None:
    segment.allocated_max = 64 * MIB
    segment.append([batch(50, size=16 * MIB + 1)], 0)
    assert disk_bytes(segment) == 32 * MIB + 1


def test_a_segment_of_just_its_full_size_takes_no_more(segment: Segment) -> None:
    segment.allocated_max = BYTES
    segment.append([batch(50)], 0)
    assert disk_bytes(segment) == BYTES


def test_no_room_is_taken_ahead_by_default(segment: Segment) -> None:
    segment.append([batch(50)], 0)
    assert disk_bytes(segment) == BYTES


def test_where_no_room_can_be_taken_ahead_the_write_goes_on_without(segment: Segment) -> None:
    segment.allocated_max = MIB
    with files_of_at_most(1000):
        segment.append([batch(50)], 0)
    assert (segment.size, disk_bytes(segment), segment.allocated_max) == (100, 100, 0)
    segment.append([batch(51)], 0)
    assert disk_bytes(segment) == 200, "it is not tried again"


def test_room_is_given_back(segment: Segment) -> None:
    segment.allocated_max = MIB
    segment.append([batch(50)], 0)
    segment.trim()
    assert disk_bytes(segment) == 100
    segment.append([batch(51)], 0)
    assert disk_bytes(segment) == 200 + 64 * KIB, "and taken again"
    segment.trim()
    assert segment.path.read_bytes() == bytes_of(batch(50), batch(51))


def test_after_an_append_that_failed_its_room_is_given_back(segment: Segment) -> None:
    segment.allocated_max = MIB
    segment.append([batch(50)], 0)
    segment.take_back()
    assert disk_bytes(segment) == 100
    segment.append([batch(51)], 0)
    assert disk_bytes(segment) == 200 + 64 * KIB


def test_without_room_to_give_back_the_file_stays_closed(tmp_path: Path, files: OpenFiles) -> None:
    write_segment(tmp_path, BASE, [batch(50)])
    Segment(tmp_path, BASE, files).trim()
    assert files.count == 0


def test_what_an_earlier_process_took_ahead_is_not_part_of_the_log(tmp_path: Path, files: OpenFiles) -> None:
    write_segment(tmp_path, BASE, [batch(50)], rest=bytes(500))
    segment = Segment(tmp_path, BASE, files)
    assert segment.size == 600
    segment.end_at(100)
    assert segment.size == 100
    segment.append([batch(51)], 0)
    assert (segment.size, disk_bytes(segment)) == (200, 600)
    segment.trim()
    assert disk_bytes(segment) == 200


# ------------------------------------------------------------------ truncating and removing


def test_what_is_truncated_is_forgotten(segment: Segment) -> None:
    segment.allocated_max = 2 * MIB
    segment.append([batch(50, size=256 * KIB, time=1), batch(51, time=9)], 0)
    segment.seal()
    assert segment.index_path.exists() and segment.newest_ms == 9
    segment.truncate(256 * KIB)
    assert not segment.index_path.exists()
    assert segment.size == disk_bytes(segment) == 256 * KIB
    assert (segment.newest_ms, segment.index.end_offset) == (1, 51)
    assert segment.index_path.exists(), "the new index is kept, too"
    segment.append([batch(51, 4, time=2)], 0)
    assert disk_bytes(segment) == 2 * segment.size, "no room was left of before"
    assert (segment.newest_ms, segment.index.end_offset) == (2, 55)


def test_a_removed_segment_leaves_no_file_and_no_descriptor(segment: Segment, files: OpenFiles, tmp_path: Path) -> None:
    segment.append([batch(50, size=256 * KIB)], 0)
    segment.seal()
    assert len(os.listdir(tmp_path)) == 2 and files.count == 1
    segment.remove()
    assert (os.listdir(tmp_path), files.count) == ([], 0)
    descriptors = [os.readlink(each.path) for each in os.scandir("/proc/self/fd") if each.is_symlink()]
    assert not [path for path in descriptors if path.startswith(str(tmp_path))]
    segment.remove()  # a crash may have come in between


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    files = OpenFiles(2)
    segments: list[Segment] = []
    for offset in range(3):
        write_segment(tmp_path, offset, [batch(offset)])
        segments.append(Segment(tmp_path, offset, files))
    assert files.count == 0, "a file is opened by the first who reads it"
    handles = [each.file for each in segments]
    assert files.count == 2
    assert segments[1].file is handles[1]
    assert segments[0].file is not handles[0], "it was closed for the third, and opened again"


def test_a_file_that_was_closed_for_another_one_counts_when_it_is_opened_again(tmp_path: Path) -> None:
    files = OpenFiles(1)
    segments: list[Segment] = []
    for offset in range(2):
        write_segment(tmp_path, offset, [batch(offset)])
        segments.append(Segment(tmp_path, offset, files))
    handles = [segments[number].file for number in (0, 1, 0)]
    assert handles[2] is not handles[0]
    assert segments[1].file is not handles[1], "it was closed for the first"
    assert files.count == 1


# ------------------------------------------------------------------ the index


def test_an_entry_comes_with_each_4_kib(segment: Segment) -> None:
    """Batches of three records: at 0, 2000, 4095 (one byte too early for an entry), 4195 and 8291."""
    sizes = [2000, 2095, 100, 4096, 100]
    segment.append([batch(50 + 3 * at, 3, size=size, time=10 + at) for at, size in enumerate(sizes)], 0)
    assert [segment.position_before(offset) for offset in (50, 56, 58, 59, 61, 62, 64, 99)] == [
        (0, 50), (0, 50), (0, 50), (4195, 59), (4195, 59), (8291, 62), (8291, 62), (8291, 62)
    ]  # fmt: skip
    assert segment.index.end_offset == 65


def test_a_batch_that_is_just_4_kib_behind_the_last_entry_gets_one(segment: Segment) -> None:
    segment.append([batch(50, size=PAGE), batch(51, size=PAGE - 1), batch(52)], 0)
    assert segment.position_before(51) == segment.position_before(52) == (PAGE, 51)


def test_the_first_record_of_a_time_is_found_at_equal_times_too(segment: Segment) -> None:
    segment.append([batch(50 + at, size=PAGE, time=time) for at, time in enumerate([10, 20, 20, 5, 30])], 0)
    found = {time: segment.entry_of_time(time) for time in (0, 10, 11, 20, 21, 30, 31)}
    assert found == {
        0: (0, 50),
        10: (0, 50),  # the first batch has it; nothing before it is as late
        11: (PAGE, 51),
        20: (PAGE, 51),
        21: (4 * PAGE, 54),
        30: (4 * PAGE, 54),
        31: (4 * PAGE, 54),
    }
    assert segment.newest_ms == 30


def test_the_time_of_a_marker_is_no_record_s_time(segment: Segment) -> None:
    segment.append([batch(50, producer=1, time=3), marker(51, 1, committed=True, time=99)], 0)
    assert segment.newest_ms == 3
    assert opened(segment).newest_ms == 3
    assert opened(segment).index.end_offset == 52


def test_an_opened_segment_has_the_same_index(segment: Segment) -> None:
    segment.append([batch(50 + 2 * at, 2, size=1000 + at, time=at % 5) for at in range(30)], 0)
    other = opened(segment)
    assert (other.size, other.newest_ms) == (segment.size, segment.newest_ms) == (30_435, 4)
    assert (other.index.covered, other.index.end_offset) == (30_435, 110)
    for offset in range(50, 111):
        assert other.position_before(offset) == segment.position_before(offset)
    for time in range(6):
        assert other.entry_of_time(time) == segment.entry_of_time(time)


def test_an_opened_segment_that_is_written_goes_on_with_its_index(segment: Segment) -> None:
    segment.append([batch(50, size=PAGE)], 0)
    for looked_before in (False, True):
        other = opened(segment)
        end = other.size
        assert not looked_before or other.index.covered == end
        other.append([batch(50 + end // PAGE, size=PAGE)], 0)
        assert other.position_before(99) == (end, 50 + end // PAGE)
        assert other.index.covered == other.size == end + PAGE


def test_an_index_that_is_behind_is_not_written_on_with_a_gap(segment: Segment) -> None:
    """One that nobody has asked for since bytes were added by somebody else."""
    segment.append([batch(50, size=PAGE)], 0)
    other = opened(segment)
    assert other.index.covered == PAGE
    with other.path.open("ab") as file:
        file.write(bytes_of(batch(51, size=PAGE)))
    other.end_at(2 * PAGE)
    other.append([batch(52, size=PAGE)], 0)
    assert [other.position_before(offset) for offset in (50, 51, 52)] == [(0, 50), (PAGE, 51), (2 * PAGE, 52)]


@pytest.mark.parametrize("size", [256 * KIB - 1, 256 * KIB], ids=["smaller", "large"])
def test_the_index_of_a_large_segment_is_kept_in_a_file_once_it_is_sealed(
    segment: Segment, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not synced: it can be built again."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("it was synced"))
    segment.append([batch(50, size=size - BYTES, time=5), batch(51, time=4)], 0)
    assert segment.index.covered == size
    assert not segment.index_path.exists(), "it is written to"
    segment.seal()
    assert segment.index_path.name == "00000000000000000050.index"
    assert segment.index_path.exists() == (size == 256 * KIB)


def test_a_sealed_segment_without_an_index_in_memory_gets_one_when_it_is_asked_for(segment: Segment) -> None:
    segment.append([batch(50, size=256 * KIB)], 0)
    other = opened(segment)
    other.seal()
    assert not other.index_path.exists()
    assert other.position_before(50) == (0, 50)
    assert other.index_path.exists()


def test_a_kept_index_is_read_and_not_written_again(segment: Segment) -> None:
    segment.append([batch(50, size=256 * KIB, time=5)], 0)
    segment.seal()
    os.utime(segment.index_path, (1, 1))
    assert segment.newest_ms == 5
    segment.seal()
    with segment.path.open("r+b") as file:
        file.write(bytes(256 * KIB))  # who has an index need not read it
    other = opened(segment)
    assert (other.newest_ms, other.index.end_offset) == (5, 51)
    other.seal()
    assert segment.index_path.stat().st_mtime == 1


def test_a_kept_index_of_a_part_of_the_segment_is_completed(segment: Segment) -> None:
    segment.append([batch(50, size=256 * KIB, time=5)], 0)
    segment.seal()
    with segment.path.open("ab") as file:
        file.write(bytes_of(batch(51, size=PAGE, time=9), batch(52)))
    other = opened(segment)
    assert [other.position_before(offset) for offset in (50, 51, 52)] == [
        (0, 50), (256 * KIB, 51), (256 * KIB + PAGE, 52)
    ]  # fmt: skip
    kept = load_index(other.index_path, 50, other.size)
    assert kept is not None and (kept.covered, kept.newest_ms) == (other.size, 9)


def test_a_damaged_index_is_built_again(segment: Segment) -> None:
    segment.append([batch(50, size=256 * KIB, time=5)], 0)
    segment.seal()
    kept = segment.index_path.read_bytes()
    segment.index_path.write_bytes(kept[:-1] + b"\xff")
    assert opened(segment).newest_ms == 5
    assert segment.index_path.read_bytes() == kept


def test_an_index_that_cannot_be_kept_is_still_there(segment: Segment) -> None:
    segment.append([batch(50, size=256 * KIB, time=5)], 0)
    with files_of_at_most(10):
        segment.seal()
        assert segment.newest_ms == 5
    assert not segment.index_path.exists()
    segment.seal()
    assert segment.index_path.exists(), "it is tried again"


def test_an_index_can_be_let_go_unless_it_is_written_on(segment: Segment) -> None:
    """What is let go is read again: here the file says something else meanwhile."""
    segment.append([batch(50, time=5)], 0)
    other = bytes_of(batch(50, time=6))
    segment.path.write_bytes(other)
    segment.let_go()
    assert segment.newest_ms == 5
    segment.seal()
    segment.let_go()
    assert segment.newest_ms == 6
    assert segment.path.read_bytes() == other
    segment.path.write_bytes(bytes_of(batch(50, time=7)))
    assert segment.newest_ms == 6, "it is kept until it is let go"


def test_a_segment_that_is_only_read_lets_its_index_go(segment: Segment) -> None:
    segment.append([batch(50, time=5)], 0)
    other = opened(segment)
    assert other.newest_ms == 5
    segment.path.write_bytes(bytes_of(batch(50, time=6)))
    other.let_go()
    assert other.newest_ms == 6


# ------------------------------------------------------------------ reading headers


def test_headers_are_read_across_the_pieces_that_are_read_at_once(segment: Segment) -> None:
    """Pieces of 1 MiB: a header that ends with one, that begins after it, and that lies across."""
    for last in (MIB - HEADER_SIZE, MIB - HEADER_SIZE + 1, MIB - 1, MIB, MIB + 1):
        segment.truncate(0)
        sizes = [last - 200, 200, 61, 300, 2 * MIB, 100]
        offsets = range(50, 50 + len(sizes))
        segment.append([batch(offset, size=size) for offset, size in zip(offsets, sizes, strict=True)], 0)
        found = [(position, header.base_offset) for position, header in segment.headers(0, segment.size)]
        assert found == [(sum(sizes[:at]), offset) for at, offset in enumerate(offsets)]


def test_headers_are_read_a_mebibyte_at_a_time(segment: Segment) -> None:
    """What was read of a piece is not read again: the second header of it is as it was."""
    segment.append([batch(50, size=MIB - HEADER_SIZE), batch(51, size=61), batch(52)], 0)
    headers = segment.headers(0, segment.size)
    next(headers)
    segment.path.write_bytes(bytes_of(batch(50, size=MIB - HEADER_SIZE), batch(71, size=61), batch(72)))
    assert [header.base_offset for _, header in headers] == [51, 72]


@pytest.mark.parametrize("left", [0, HEADER_SIZE - 1])
def test_a_file_that_ends_before_a_header_is_damaged(segment: Segment, left: int) -> None:
    segment.append([batch(50), batch(51)], 0)
    os.truncate(segment.path, 100 + left)
    headers = opened(segment).headers(100, 200)
    with pytest.raises(CorruptLog, match=r"00050\.log is damaged at position 100: the file ends inside a batch"):
        next(headers)


def test_a_header_may_be_read_of_a_file_that_ends_after_it(segment: Segment) -> None:
    segment.append([batch(50), batch(51)], 0)
    os.truncate(segment.path, 100 + HEADER_SIZE)
    assert [position for position, _ in opened(segment).headers(0, 200)] == [0, 100]


@pytest.mark.parametrize(
    ("rest", "end"),
    [(bytes(HEADER_SIZE), 161), (bytes_of(batch(51)), 199)],
    ids=["zeros", "a batch that is too long"],
)
def test_what_is_no_batch_is_an_error_where_it_begins(tmp_path: Path, files: OpenFiles, rest: bytes, end: int) -> None:
    write_segment(tmp_path, BASE, [batch(50)], rest)
    found: list[int] = []
    with pytest.raises(CorruptLog, match="position 100: no record batch begins here"):
        found += [position for position, _ in Segment(tmp_path, BASE, files).headers(0, end)]
    found += [position for position, _ in Segment(tmp_path, BASE, files).headers(0, 100)]
    assert found == [0]


# ------------------------------------------------------------------ the index of a damaged segment


def indexed(folder: Path, data: bytes) -> Segment:
    """A segment of these bytes, whose index covers all of them."""
    path = write_segment(folder, BASE, rest=data)
    segment = Segment(folder, int(path.stem), OpenFiles(8))
    assert segment.index.covered == len(data)
    return segment


def pages(*offsets: int) -> list[EncodedBatch]:
    return [batch(offset, size=PAGE, time=offset) for offset in offsets]


def test_an_index_leaves_out_a_batch_that_begins_with_zeros(tmp_path: Path) -> None:
    first, third = pages(50, 52)
    segment = indexed(tmp_path, bytes_of(first) + bytes(PAGE) + bytes_of(third))
    assert [segment.position_before(offset) for offset in (50, 51, 52)] == [(0, 50), (0, 50), (2 * PAGE, 52)]
    assert (segment.index.end_offset, segment.newest_ms) == (53, 52)


def test_an_index_ends_with_the_last_batch_before_zeros(tmp_path: Path) -> None:
    segment = indexed(tmp_path, bytes_of(*pages(50, 51)) + bytes(PAGE))
    assert segment.position_before(99) == (PAGE, 51)
    assert (segment.index.end_offset, segment.newest_ms) == (52, 51)


@pytest.mark.parametrize("wrong", [49, 50, 52, 1 << 20])
def test_a_batch_with_an_offset_that_does_not_follow_is_left_out(tmp_path: Path, wrong: int) -> None:
    """Its offset, which no checksum covers, may be what is damaged: then the next one follows the lost one."""
    segment = indexed(tmp_path, bytes_of(*pages(50, wrong, 52, 53)))
    assert [segment.position_before(offset) for offset in (50, 51, 52, 53)] == [
        (0, 50), (0, 50), (2 * PAGE, 52), (3 * PAGE, 53)
    ]  # fmt: skip
    assert segment.index.end_offset == 54


def test_a_batch_right_behind_the_damaged_byte_is_found(tmp_path: Path) -> None:
    """One byte too many between two batches."""
    first, second = pages(50, 52)
    segment = indexed(tmp_path, bytes_of(first) + b"\0" + bytes_of(second))
    assert segment.position_before(52) == (PAGE + 1, 52)


@pytest.mark.parametrize("wrong", [PAGE + 500, PAGE // 2], ids=["too long", "too short"])
def test_a_batch_whose_length_is_damaged_hides_no_batch_behind_it(tmp_path: Path, wrong: int) -> None:
    """The header looks right, so the next one is looked for in the wrong place."""
    first, second, third, fourth = pages(50, 51, 52, 53)
    data = bytearray(bytes_of(first, second, third, fourth))
    data[PAGE + 8 : PAGE + 12] = (wrong - 12).to_bytes(4, "big")
    segment = indexed(tmp_path, bytes(data))
    assert segment.position_before(52) == (2 * PAGE, 52)
    assert segment.position_before(53) == (3 * PAGE, 53)
    assert segment.index.end_offset == 54


def test_an_offset_below_the_damage_does_not_come_again_behind_it(tmp_path: Path) -> None:
    """At least one offset was among the zeros, and those of the batch before them are known."""
    first, repeated, following = pages(50, 51, 52)
    segment = indexed(tmp_path, bytes_of(first) + bytes(PAGE) + bytes_of(repeated, following))
    assert [segment.position_before(offset) for offset in (51, 52)] == [(0, 50), (3 * PAGE, 52)]


def test_an_offset_of_a_batch_whose_length_is_damaged_does_not_come_again_behind_it(tmp_path: Path) -> None:
    data = bytearray(bytes_of(*pages(50, 51, 51, 52)))
    data[PAGE + 8 : PAGE + 12] = (PAGE // 2).to_bytes(4, "big")
    segment = indexed(tmp_path, bytes(data))
    assert [segment.position_before(offset) for offset in (51, 52)] == [(PAGE, 51), (3 * PAGE, 52)]


def test_a_batch_inside_a_record_is_no_batch_of_the_segment(tmp_path: Path) -> None:
    """Not even where the last batch, which holds it, is damaged: its length is right, and nothing is behind it."""
    data = bytearray(bytes_of(*pages(50, 51)))
    data[PAGE + 500 : PAGE + 600] = bytes_of(batch(52))
    segment = indexed(tmp_path, bytes(data))
    assert (segment.position_before(52), segment.index.end_offset) == ((PAGE, 51), 52)


def test_a_batch_of_which_only_the_records_are_damaged_is_in_the_index(tmp_path: Path) -> None:
    """The checksum is the reader's business. What follows is found by the length as long as it is right."""
    first, second, third = pages(50, 51, 52)
    data = bytearray(bytes_of(first, second, third))
    data[PAGE + 90] ^= 1
    segment = indexed(tmp_path, bytes(data))
    assert [segment.position_before(offset) for offset in (51, 52)] == [(PAGE, 51), (2 * PAGE, 52)]
