"""Opening a partition by itself: files of exact bytes go in, and what counts of them comes out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.logcore.compaction.cleaning_state import CleaningState
from millstream.logcore.compaction.segment_swap import SWAP, cleaned_path
from millstream.logcore.errors import CorruptLog
from millstream.logcore.records.batch import HEADER_SIZE
from millstream.logcore.storage.checked_json import write_checked_json
from millstream.logcore.storage.damage import DamagedRange
from millstream.logcore.storage.durable_point import NOTHING_KNOWN, Extent
from millstream.logcore.storage.open_files import OpenFiles
from millstream.logcore.storage.recovery import (
    CHECKPOINT,
    Checkpoint,
    create_files,
    create_segment,
    read_checkpoint,
    write_checkpoint,
)
from millstream.logcore.storage.segment import file_name

from .batches import batch, bytes_of, marker, write_segment
from .partitions import NOW_MS, damage_at, extent, files_of, lost, note_checkpoint, recovered, state_after

# ------------------------------------------------------------------ files


def test_a_new_partition_has_one_empty_segment(tmp_path: Path) -> None:
    create_files(tmp_path / "new", durable=False)
    found = recovered(tmp_path / "new")
    assert os.listdir(tmp_path / "new") == [file_name(0)]
    assert (files_of(found), extent(found), lost(found)) == ([(0, 0)], (0, 0), [])
    assert not found.scanned and not found.checkpoint_exact and found.noted_segment == 0
    assert found.state.producers.complete and found.began_ms is None and found.cleaning == CleaningState()


@pytest.mark.parametrize("durable", [False, True])
def test_a_new_segment_is_synced_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    segment = create_segment(tmp_path, 12, OpenFiles(8), durable=durable)
    assert (segment.base_offset, segment.size) == (12, 0)
    create_files(tmp_path / "p", durable=durable)
    assert synced == ([file_name(12), tmp_path.name, file_name(0), "p"] if durable else [])


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    state = state_after(batch(0, 2, producer=4), batch(2, epoch=3), marker(3, 4, committed=False))
    cleaning = CleaningState(9)
    written = Checkpoint(1, 2, 300, True, state, cleaning, 55, (DamagedRange(5, 6, "gone"),))
    write_checkpoint(tmp_path, written, durable=False)
    read = read_checkpoint(tmp_path)
    assert read is not None
    assert (read.log_start_offset, read.segment, read.position, read.synced) == (1, 2, 300, True)
    assert (read.cleaning, read.began_ms, list(read.lost)) == (cleaning, 55, [DamagedRange(5, 6, "gone")])
    assert read.state.to_json() == state.to_json()
    (tmp_path / CHECKPOINT).write_bytes(b"00000000\n{}")
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path, "another.json") is None


def test_without_a_folder_there_is_no_partition(tmp_path: Path) -> None:
    with pytest.raises(CorruptLog, match="p is missing"):
        recovered(tmp_path / "p")


def test_without_segment_checkpoint_and_durable_end_nobody_knows_what_the_partition_was(tmp_path: Path) -> None:
    with pytest.raises(CorruptLog, match=f"{file_name(0)} is missing"):
        recovered(tmp_path)
    found = recovered(tmp_path, Extent(5, 2))
    assert (files_of(found), extent(found), lost(found)) == ([(5, 0)], (2, 5), [(2, 5)])
    assert (tmp_path / file_name(5)).exists()


def test_a_checkpoint_that_was_not_synced_is_not_enough(tmp_path: Path) -> None:
    note_checkpoint(tmp_path, state_after(batch(0, 5)), 0, 100, synced=False)
    with pytest.raises(CorruptLog, match=f"{file_name(0)} is missing"):
        recovered(tmp_path)


def test_a_swap_that_is_decided_is_finished_first(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    write_segment(tmp_path, 2, [batch(2), batch(3)])
    cleaned_path(tmp_path, 0).write_bytes(bytes_of(batch(0, 4)))
    write_checked_json(tmp_path / SWAP, {"replaced": [0, 2], "size": 100}, durable=False)
    write_segment(tmp_path, 4, [batch(4)])
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100), (4, 100)], (0, 5), [])
    assert sorted(os.listdir(tmp_path)) == [file_name(0), file_name(4)]


# ------------------------------------------------------------------ without a checkpoint


def test_all_segments_are_read(tmp_path: Path) -> None:
    first, second, third = batch(0, 3, producer=8), marker(3, 8, committed=False), batch(4, 2, epoch=1)
    write_segment(tmp_path, 0, [first, second])
    write_segment(tmp_path, 4, [third])
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 178), (4, 100)], (0, 6), [])
    assert found.scanned and not found.checkpoint_exact
    assert found.state.epochs.starts == ((0, 0), (1, 4))
    assert found.state.transactions.aborted.by_producer == {8: ((0, 3),)}
    assert list(found.state.producers.active()) == [(8, 0, 2, NOW_MS)]


def test_an_empty_last_segment_stays_where_the_log_ends_before_it(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0, 3)])
    write_segment(tmp_path, 3)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found)) == ([(0, 100), (3, 0)], (0, 3))


def test_an_empty_last_segment_goes_where_the_log_ends_elsewhere(tmp_path: Path) -> None:
    """The records before it were not durable; it was never used."""
    write_segment(tmp_path, 0, [batch(0, 3)])
    path = write_segment(tmp_path, 4)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100)], (0, 3), [])
    assert not path.exists()


def test_of_empty_segments_the_one_at_which_the_log_ends_stays(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0)])
    write_segment(tmp_path, 1)
    write_segment(tmp_path, 4)
    assert files_of(recovered(tmp_path)) == [(0, 100), (1, 0)]


def test_the_name_of_an_empty_segment_says_that_offsets_were_given_where_nothing_else_is_left(tmp_path: Path) -> None:
    """Else they would be given again, in a file that is named for a later one."""
    write_segment(tmp_path, 5)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(5, 0)], (0, 5), [(0, 5)])
    note_checkpoint(tmp_path, state_after(batch(0), batch(1)), 0, 200)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found)) == ([(5, 0)], (0, 5))
    assert lost(found) == [(0, 2), (0, 2), (2, 5)]


@pytest.mark.parametrize("first", [1, 5])
def test_what_comes_before_the_first_segment_is_lost(tmp_path: Path, first: int) -> None:
    path = write_segment(tmp_path, first, [batch(first)])
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(first, 100)], (0, first + 1), [(0, first)])
    assert found.damage[0].reason == f"no file has what comes before {path}"
    assert not found.state.producers.complete


def test_a_segment_that_is_missing_in_the_middle_is_lost(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0, 2)])
    write_segment(tmp_path, 7, [batch(7)])
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100), (7, 100)], (0, 8), [(2, 7)])
    assert found.damage[0].reason == f"{path} ends at offset 2, and {file_name(7)} follows"


def test_a_damaged_batch_before_the_last_segment_is_lost_and_what_follows_is_used(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0, 2), batch(2, 3), batch(5)])
    write_segment(tmp_path, 6, [batch(6)])
    damage_at(path, 190)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 300), (6, 100)], (0, 7), [(2, 5)])
    assert found.damage[0].reason == f"{path} is damaged at position 100"
    assert not found.state.producers.complete


def test_a_damaged_end_of_an_earlier_segment_is_lost(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0, 2), batch(2, 3)])
    write_segment(tmp_path, 5, [batch(5)])
    damage_at(path, 199)
    found = recovered(tmp_path)
    assert (files_of(found), lost(found)) == ([(0, 200), (5, 100)], [(2, 5)])


def test_one_byte_between_two_batches_hides_nothing(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0)], rest=b"\x01" + bytes_of(batch(2)))
    write_segment(tmp_path, 3, [batch(3)])
    found = recovered(tmp_path)
    assert (extent(found), lost(found)) == ((0, 4), [(1, 2)])


def test_a_segment_without_batches_between_others_is_no_loss_by_itself(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0, 2)])
    write_segment(tmp_path, 2)
    write_segment(tmp_path, 3)
    write_segment(tmp_path, 4, [batch(4)])
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100), (2, 0), (3, 0), (4, 100)], (0, 5), [(2, 4)])
    assert found.damage[0].reason.startswith(f"{tmp_path / file_name(3)} ends at offset 2, and {file_name(4)} ")


def test_an_open_transaction_is_lost_from_its_first_record_on(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1, 2, producer=8), batch(3), batch(4), batch(5)])
    write_segment(tmp_path, 6, [batch(6)])
    damage_at(path, 350)
    found = recovered(tmp_path)
    assert lost(found) == [(1, 5)], "its end may have been among what is lost"


# ------------------------------------------------------------------ how a log ends that nobody noted


def test_room_that_was_taken_ahead_stays_and_does_not_count(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1)], rest=bytes(900))
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200)], (0, 2), [])
    assert path.stat().st_size == 1100
    found.segments[0].append([batch(2)], 0)
    assert path.stat().st_size == 1100 and path.read_bytes()[:300] == bytes_of(batch(0), batch(1), batch(2))


@pytest.mark.parametrize("written", [8, HEADER_SIZE - 1, HEADER_SIZE, 98])
@pytest.mark.parametrize("zeros", [0, 400])
def test_a_torn_batch_is_cut_off(tmp_path: Path, written: int, zeros: int) -> None:
    """98 of 100 bytes: where the last one is zero anyway, 99 may be all that was written."""
    torn = bytes_of(batch(1))[:written]
    path = write_segment(tmp_path, 0, [batch(0)], rest=torn + bytes(zeros))
    found = recovered(tmp_path, durable=True)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100)], (0, 1), [])
    assert path.stat().st_size == 100 and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("durable", [False, True])
def test_where_a_tail_is_cut_off_that_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    write_segment(tmp_path, 0, [batch(0)], rest=bytes_of(batch(1))[:50])
    sizes: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    recovered(tmp_path, durable=durable)
    assert sizes == ([100] if durable else [])


def test_short_garbage_is_cut_off(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0)], rest=b"\xff" * (HEADER_SIZE - 1) + bytes(700))
    assert lost(recovered(tmp_path)) == []
    assert os.listdir(tmp_path) == [file_name(0)]


@pytest.mark.parametrize(
    "tail",
    [b"\xff" * HEADER_SIZE, bytes_of(batch(1))[:99], bytes_of(batch(1))[:99] + b"\x01"],
    ids=["garbage as long as a header", "all but one byte", "a damaged last byte"],
)
def test_a_tail_that_no_torn_write_leaves_is_kept_aside(tmp_path: Path, tail: bytes) -> None:
    path = write_segment(tmp_path, 0, [batch(0)], rest=tail)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100)], (0, 1), [(1, 1)])
    aside = tmp_path / f"{path.name}.dropped-from-100"
    assert aside.read_bytes() == tail
    told = f"{path} is damaged at position 100; {len(tail)} bytes from there on are in {aside.name}"
    assert found.damage[0].reason == told
    assert not found.checkpoint_exact


def test_whole_batches_in_a_tail_are_counted(tmp_path: Path) -> None:
    """The first one behind the damage follows the lost offset at least; the last one says up to where."""
    path = write_segment(tmp_path, 0, [batch(0), batch(1), batch(2, 4), batch(6, 2)])
    damage_at(path, 150)
    found = recovered(tmp_path)
    assert (extent(found), lost(found)) == ((0, 1), [(1, 1)])
    assert "; 300 bytes from there on (up to offset 7) are in " in found.damage[0].reason
    assert path.read_bytes() == bytes_of(batch(0))


@pytest.mark.parametrize(("next_offset", "upto"), [(1, ""), (2, " (up to offset 2)")])
def test_a_batch_in_a_tail_counts_if_an_offset_was_left_for_what_is_damaged(
    tmp_path: Path, next_offset: int, upto: str
) -> None:
    write_segment(tmp_path, 0, [batch(0)], rest=b"\x01" + bytes_of(batch(next_offset)))
    assert f"101 bytes from there on{upto} are in " in recovered(tmp_path).damage[0].reason


def test_a_batch_with_an_offset_that_does_not_follow_ends_the_log_and_says_no_offset(tmp_path: Path) -> None:
    """No checksum covers the offset, so it may be what is damaged."""
    path = write_segment(tmp_path, 0, [batch(0), batch(2)])
    found = recovered(tmp_path)
    assert (extent(found), lost(found)) == ((0, 1), [(1, 1)])
    assert "; 100 bytes from there on are in " in found.damage[0].reason
    assert path.read_bytes() == bytes_of(batch(0))


# ------------------------------------------------------------------ how far it was durable


def test_what_was_durable_is_lost_where_the_log_ends_before(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1)])
    found = recovered(tmp_path, Extent(5, 0))
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200), (5, 0)], (0, 5), [(2, 5)])
    assert found.damage[0].reason == f"{path} ends at offset 2, but the log went on to 5"
    found.segments[1].append([batch(5)], 0)
    again = recovered(tmp_path, Extent(6, 0))
    assert (files_of(again), extent(again), lost(again)) == ([(0, 200), (5, 100)], (0, 6), [(2, 5)])


def test_what_was_durable_and_no_more_is_no_loss(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    found = recovered(tmp_path, Extent(2, 0))
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200)], (0, 2), [])


def test_markers_that_were_seen_and_not_durable_are_no_loss(tmp_path: Path) -> None:
    """They are written again, at the same offsets."""
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    found = recovered(tmp_path, Extent(2, 0, 4))
    assert (extent(found), lost(found)) == ((0, 2), [])


@pytest.mark.parametrize(("known", "end"), [(Extent(3, 0, 6), 6), (Extent(6, 0, 3), 6), (Extent(3, 0, 0), 3)])
def test_with_what_is_lost_go_the_offsets_that_were_seen(tmp_path: Path, known: Extent, end: int) -> None:
    write_segment(tmp_path, 0, [batch(0)])
    found = recovered(tmp_path, known)
    assert (extent(found), lost(found), files_of(found)[-1]) == ((0, end), [(1, end)], (end, 0))


def test_a_damaged_batch_below_the_durable_end_is_lost_and_what_follows_is_used(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1), batch(2), batch(3)])
    damage_at(path, 150)
    found = recovered(tmp_path, Extent(4, 0))
    assert (files_of(found), extent(found), lost(found)) == ([(0, 400), (4, 0)], (0, 4), [(1, 2)])
    assert path.stat().st_size == 400, "nothing is cut off, and nothing is appended"


def test_a_damaged_batch_just_at_the_durable_end_is_the_log_s_end(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1), batch(2)])
    damage_at(path, 150)
    found = recovered(tmp_path, Extent(1, 0))
    assert (files_of(found), extent(found), lost(found)) == ([(0, 100)], (0, 1), [(1, 1)])


def test_seen_offsets_are_lost_with_a_damaged_batch_before_them(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1), batch(2)])
    damage_at(path, 150)
    found = recovered(tmp_path, Extent(3, 0, 5))
    assert (extent(found), lost(found), files_of(found)[-1]) == ((0, 5), [(1, 2), (3, 5)], (5, 0))


def test_a_damaged_end_below_the_durable_end_is_not_cut_off(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1)])
    damage_at(path, 150)
    found = recovered(tmp_path, Extent(2, 0))
    assert (files_of(found), lost(found)) == ([(0, 200), (2, 0)], [(1, 2)])
    assert sorted(os.listdir(tmp_path)) == [file_name(0), file_name(2)]


def test_a_damaged_end_behind_damage_is_not_cut_off(tmp_path: Path) -> None:
    """Damage below the durable end, then good batches past it, then more damage."""
    path = write_segment(tmp_path, 0, [batch(0), batch(1), batch(2), batch(3)])
    damage_at(path, 150)
    damage_at(path, 350)
    found = recovered(tmp_path, Extent(3, 0))
    assert (files_of(found), extent(found), lost(found)) == ([(0, 400), (3, 0)], (0, 3), [(1, 2)])
    assert sorted(os.listdir(tmp_path)) == [file_name(0), file_name(3)]


# ------------------------------------------------------------------ where the log begins


@pytest.mark.parametrize("known", [Extent(0, 2), NOTHING_KNOWN], ids=["durable", "mark"])
def test_a_log_begins_where_that_was_noted(tmp_path: Path, known: Extent) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(1), batch(2)])
    mark = tmp_path / "begins-at-00000000000000000002"
    if known is NOTHING_KNOWN:
        mark.touch()
    found = recovered(tmp_path, known)
    assert (extent(found), lost(found)) == ((2, 3), [])
    assert mark.exists() == (known is NOTHING_KNOWN)


def test_a_log_begins_where_its_first_segment_does_if_that_was_noted(tmp_path: Path) -> None:
    write_segment(tmp_path, 4, [batch(4)])
    found = recovered(tmp_path, Extent(5, 4))
    assert (extent(found), lost(found)) == ((4, 5), [])
    assert not found.state.producers.complete, "who wrote before is not known"


def test_the_furthest_start_counts(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(at) for at in range(5)])
    for mark in (1, 3):
        (tmp_path / f"begins-at-{mark:020d}").touch()
    assert extent(recovered(tmp_path, Extent(0, 2))) == (3, 5)
    assert [name for name in os.listdir(tmp_path) if "begins" in name] == ["begins-at-00000000000000000003"]
    assert extent(recovered(tmp_path, Extent(0, 4))) == (4, 5)
    assert [name for name in os.listdir(tmp_path) if "begins" in name] == [], "it is known better"


def test_a_log_that_ends_before_its_start_begins_at_its_end(tmp_path: Path) -> None:
    """What was deleted was not durable. The mark says so from now on."""
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    (tmp_path / "begins-at-00000000000000000009").touch()
    found = recovered(tmp_path)
    assert (extent(found), lost(found)) == ((2, 2), [])
    assert sorted(os.listdir(tmp_path)) == [file_name(0), "begins-at-00000000000000000002"]


def test_what_is_lost_before_the_start_is_nobody_s_loss(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1), batch(2)])
    write_segment(tmp_path, 3, [batch(3)])
    damage_at(path, 150)
    assert lost(recovered(tmp_path, Extent(0, 1))) == [(1, 2)]
    assert lost(recovered(tmp_path, Extent(0, 2))) == []


def test_aborted_transactions_before_the_start_are_forgotten(tmp_path: Path) -> None:
    batches = [batch(0, producer=8), marker(1, 8, committed=False), batch(2, producer=8), marker(3, 8, committed=False)]
    write_segment(tmp_path, 0, batches)
    for start, kept in ((1, ((0, 1), (2, 3))), (2, ((2, 3),))):
        found = recovered(tmp_path, Extent(4, start))
        assert found.state.transactions.aborted.by_producer == {8: kept}
    note_checkpoint(tmp_path, state_after(*batches), 0, 356, start=1)
    found = recovered(tmp_path, Extent(4, 2))
    assert found.state.transactions.aborted.by_producer == {8: ((2, 3),)}
    assert not found.checkpoint_exact, "it says another start"
