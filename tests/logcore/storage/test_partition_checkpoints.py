"""Opening a partition that has a checkpoint: what it covers is not read, and what lacks of that is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.logcore.compaction.cleaning_state import CleaningState
from millstream.logcore.storage.damage import DamagedRange
from millstream.logcore.storage.durable_point import Extent
from millstream.logcore.storage.segment import file_name

from .batches import BYTES, batch, bytes_of, marker, write_segment
from .partitions import NOW_MS, extent, files_of, lost, note_checkpoint, recovered, state_after


def test_what_a_checkpoint_covers_is_not_read(tmp_path: Path) -> None:
    """Its files may hold anything."""
    write_segment(tmp_path, 0, rest=b"\xff" * 200)
    write_segment(tmp_path, 2, rest=b"\xff" * 100)
    state = state_after(batch(0, producer=8), batch(1), batch(2))
    note_checkpoint(tmp_path, state, 2, 100, began_ms=77)
    found = recovered(tmp_path, durable=True)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200), (2, 100)], (0, 3), [])
    assert not found.scanned and found.checkpoint_exact
    assert (found.noted_segment, found.began_ms, found.cleaning) == (2, 77, CleaningState(7))
    assert list(found.state.producers.active()) == [(8, 0, 0, NOW_MS - 1)]


def test_what_follows_a_checkpoint_is_read(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [], rest=b"\xff" * 100 + bytes_of(batch(1, producer=8)))
    write_segment(tmp_path, 2, [batch(2, 3)])
    note_checkpoint(tmp_path, state_after(batch(0)), 0, 100, began_ms=77)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200), (2, 100)], (0, 5), [])
    assert found.scanned and not found.checkpoint_exact
    assert found.began_ms is None, "it says when another segment began"
    assert list(found.state.producers.active()) == [(8, 0, 0, NOW_MS)]


@pytest.mark.parametrize(
    ("synced", "durable", "exact"), [(True, True, True), (False, True, False), (False, False, True)]
)
def test_a_checkpoint_is_exact_if_it_was_synced_as_the_log_is(
    tmp_path: Path, synced: bool, durable: bool, exact: bool
) -> None:
    write_segment(tmp_path, 0, [batch(0)])
    note_checkpoint(tmp_path, state_after(batch(0)), 0, 100, synced=synced)
    assert recovered(tmp_path, durable=durable).checkpoint_exact == exact


def test_a_cut_tail_makes_a_checkpoint_inexact(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0)], rest=bytes_of(batch(1))[:80])
    note_checkpoint(tmp_path, state_after(batch(0)), 0, 100)
    found = recovered(tmp_path)
    assert (files_of(found), lost(found), found.checkpoint_exact) == ([(0, 100)], [], False)


def test_known_damage_stays_known_and_leaves_a_checkpoint_exact(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(3)])
    known = [DamagedRange(1, 3, "gone"), DamagedRange(0, 0, "a tail")]
    note_checkpoint(tmp_path, state_after(batch(0), batch(3)), 0, 200, known_lost=known)
    found = recovered(tmp_path)
    assert (found.damage, found.checkpoint_exact) == (known, True)
    assert extent(recovered(tmp_path, Extent(4, 0, 6))) == (0, 4), "known damage does not lose offsets again"


def test_damage_that_is_found_again_is_noted_once(tmp_path: Path) -> None:
    write_segment(tmp_path, 2, [batch(2)])
    state = state_after(batch(0, 2), batch(2))
    note_checkpoint(tmp_path, state, 2, 100)
    found = recovered(tmp_path)
    note_checkpoint(tmp_path, state, 2, 100, known_lost=found.damage)
    again = recovered(tmp_path)
    assert again.damage == found.damage and lost(again) == [(0, 2)]
    assert again.checkpoint_exact


def test_a_synced_checkpoint_that_covers_more_than_the_file_says_what_is_lost(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, [batch(0), batch(1, producer=8)])
    state = state_after(batch(0), batch(1, producer=8), batch(2), batch(3))
    note_checkpoint(tmp_path, state, 0, 400)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200), (4, 0)], (0, 4), [(2, 4)])
    assert found.damage[0].reason == f"{path} ends at position 200, but 400 bytes were written"
    assert found.state.producers.complete and not found.scanned, "the checkpoint knows each producer and transaction"
    assert not found.checkpoint_exact


def test_a_synced_checkpoint_of_a_file_that_is_gone_says_what_is_lost(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    note_checkpoint(tmp_path, state_after(batch(0), batch(1), batch(2)), 2, 100)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200), (3, 0)], (0, 3), [(2, 3)])
    assert found.damage[0].reason == f"{tmp_path / file_name(2)} is missing"


def test_a_later_segment_goes_on_behind_a_missing_one(tmp_path: Path) -> None:
    write_segment(tmp_path, 4, [batch(4)])
    note_checkpoint(tmp_path, state_after(batch(0), batch(1)), 0, 200)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found)) == ([(4, 100)], (0, 5))
    assert lost(found) == [(0, 2), (0, 2), (2, 4)], "for two reasons"


def test_an_empty_file_that_a_checkpoint_names_need_not_be_there(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    note_checkpoint(tmp_path, state_after(batch(0), batch(1)), 2, 0)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200), (2, 0)], (0, 2), [])


def test_without_any_file_the_log_goes_on_where_the_checkpoint_ends(tmp_path: Path) -> None:
    note_checkpoint(tmp_path, state_after(batch(0, 5)), 0, 100)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(5, 0)], (0, 5), [(0, 5)])


def test_a_checkpoint_that_was_not_synced_gives_way_to_a_shorter_file(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, [batch(0), batch(1)])
    note_checkpoint(tmp_path, state_after(batch(0), batch(1), batch(2)), 0, 300, synced=False)
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(0, 200)], (0, 2), [])
    assert (found.noted_segment, found.scanned) == (0, True)


@pytest.mark.parametrize(("start", "kept"), [(1, [0, 2, 4]), (2, [2, 4]), (3, [2, 4]), (4, [4]), (5, [4])])
def test_segments_before_the_start_are_removed(tmp_path: Path, start: int, kept: list[int]) -> None:
    """A crash came before they were."""
    batches = [batch(0, 2), batch(2, 2), batch(4, 2)]
    for each in batches:
        write_segment(tmp_path, each.header.base_offset, [each])
    note_checkpoint(tmp_path, state_after(*batches), 4, 100, start=start)
    found = recovered(tmp_path)
    assert [segment.base_offset for segment in found.segments] == kept
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith("log")) == list(map(file_name, kept))
    assert (extent(found), lost(found)) == ((start, 6), [])


def test_the_segment_of_a_checkpoint_stays_before_the_start_too(tmp_path: Path) -> None:
    """The start was moved past it later: what follows it is still read from there on."""
    write_segment(tmp_path, 0, [batch(0)])
    write_segment(tmp_path, 1, [batch(1), batch(2)])
    write_segment(tmp_path, 3, [batch(3), batch(4)])
    note_checkpoint(tmp_path, state_after(batch(0), batch(1)), 1, 100)
    (tmp_path / "begins-at-00000000000000000004").touch()
    found = recovered(tmp_path)
    assert (files_of(found), extent(found), lost(found)) == ([(1, 200), (3, 200)], (4, 5), [])


def test_what_no_file_has_of_a_checkpoint_is_lost(tmp_path: Path) -> None:
    write_segment(tmp_path, 2, [batch(2)])
    note_checkpoint(tmp_path, state_after(batch(0, 2), batch(2)), 2, 100)
    found = recovered(tmp_path)
    assert (extent(found), lost(found)) == ((0, 3), [(0, 2)])
    assert found.damage[0].reason == f"no file has what comes before {file_name(2)}"
    assert found.state.producers.complete and not found.checkpoint_exact


def test_what_no_file_has_ends_where_the_checkpoint_ends(tmp_path: Path) -> None:
    write_segment(tmp_path, 9, [batch(9)])
    note_checkpoint(tmp_path, state_after(batch(0, 2), batch(2)), 2, 100, start=1)
    found = recovered(tmp_path)
    assert (extent(found), lost(found)) == ((1, 10), [(1, 3), (2, 3), (3, 9)])


def test_the_files_of_a_test_hold_batches_of_100_bytes() -> None:
    assert len(bytes_of(batch(0))) == len(bytes_of(batch(5, 3, producer=1))) == BYTES
    assert len(bytes_of(marker(0, 1, committed=True))) == 78
