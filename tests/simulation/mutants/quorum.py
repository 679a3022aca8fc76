"""Planted bugs of the metadata quorum and of its files."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

from crc32c import crc32c

from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_elections import Elections
from millstream.logcore.replication.raft.quorum_files import QuorumFiles
from millstream.logcore.replication.raft.quorum_messages import Entry, SaveSnapshot, SaveVote
from millstream.logcore.replication.raft.quorum_point import QuorumPoint
from millstream.logcore.replication.raft.quorum_replication import Replication
from millstream.logcore.replication.raft.quorum_state import QuorumState, Role

from .base import Mutant


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _no(*_: Any, **__: Any) -> bool:
    return False


def _vote_is_not_written(self: QuorumFiles, change: Any) -> None:
    if not isinstance(change, SaveVote):
        _APPLY(self, change)


def _truncates_always(self: Replication, previous: int, entries: tuple[Entry, ...]) -> bool:
    if entries and previous < self.log.last_index and not self._truncate(previous + 1):
        return False
    if entries:
        self._append(entries)
    return True


def _takes_back_anything(self: QuorumState, first_gone: int) -> bool:
    self.commit = min(self.commit, first_gone - 1)
    return True


def _own_end(self: Replication, *_: Any) -> int:
    return self.log.last_index


def _sync_never_fails(self: QuorumState, operation: int, failed: str | None) -> None:
    _PERSISTED(self, operation, None)


def _stands_without_asking(self: Elections) -> None:
    self._stand()


def _leads_at_once(self: Quorum) -> bool:
    return self.role is Role.LEADER


def _leads_in_silence(self: Replication) -> None:
    self.role, self.leader = Role.LEADER, self.id
    self._progress = {}
    self._replicate()


def _only_voters_stand(self: Elections) -> bool:
    return self.id in self.log.voters.voters


def _changes_voters_at_once(self: Quorum) -> bool:
    return self.role is Role.LEADER


def _replace_without_sync(self: QuorumFiles, name: str, content: bytes) -> None:
    temporary = self._folder.create(name + ".tmp")
    temporary.append(b"%08x\n" % crc32c(content) + content)
    self._folder.rename(name + ".tmp", name)


def _forgets_names(self: QuorumFiles) -> None:
    self._names_changed = False
    _SYNC(self)


def _only_synced_at_start(self: QuorumFiles, base_term: int, content: bytes) -> None:
    found = self._folder.get("quorum-log")
    assert found is not None
    kept = found.read()
    end = kept.rfind(content[: -len(_MARK)]) + len(content) - len(_MARK)
    found.truncate(end)
    found.sync()
    self._log = found
    head = end - len(content) + len(_MARK)
    self._positions = [position + head for position in self._positions]


def _no_marks(content: bytes, position: int) -> int:
    return 0


def _notes_nothing(self: QuorumPoint, index: int) -> None:
    return None


def _any_checksum(content: bytes, *_: Any) -> int:
    return 0


def _log_goes_first(self: QuorumFiles, change: SaveSnapshot) -> None:
    put_off: list[tuple[str, bytes]] = []
    with patch.object(QuorumFiles, "_replace", lambda self, name, content: put_off.append((name, content))):
        _SAVE_SNAPSHOT(self, change)
    for name, content in put_off:
        self._replace(name, content)


def _grants_twice(self: Elections, candidate: NodeId) -> bool:
    return True


def _shows_no_life(self: Replication, leader: NodeId, match: int) -> None:
    return None


def _shows_what_it_has(self: Replication, leader: NodeId, match: int) -> None:
    self._send(leader, self._append_answer(accepted=True, index=match))


def _shows_life_in_a_term_that_it_may_forget(self: Replication, leader: NodeId, match: int) -> None:
    self._send(leader, self._append_answer(accepted=True, index=min(match, self.durable_index)))


_MARK: Final = bytes(24)  # as long as the mark that is appended to what is kept
_APPLY: Final = QuorumFiles.apply
_SAVE_SNAPSHOT: Final = QuorumFiles._save_snapshot
_SYNC: Final = QuorumFiles.sync
_PERSISTED: Final = QuorumState.persisted

MUTANTS: Final = [
    Mutant(
        "silent_while_writing",
        "R4",
        "answers no leader before its disk is done",
        ((Replication, "_show_life", _shows_no_life),),
        "quorum",
        "test_a_leader_goes_on_leading_while_the_disks_of_all_take_longer_than_an_election",
    ),
    Mutant(
        "shows_more_than_is_durable",
        "R3, T-L8",
        "tells a leader at once of what its disk does not have yet",
        ((Replication, "_show_life", _shows_what_it_has),),
        "quorum",
        "test_nothing_is_committed_before_a_majority_has_written_it",
    ),
    Mutant(
        "shows_life_in_a_term_it_may_forget",
        "R3, T-L8",
        "answers a leader at once in a term that its disk does not have yet",
        ((Replication, "_show_life", _shows_life_in_a_term_that_it_may_forget),),
        "control",
        154319801992,
    ),
    Mutant("two_votes", "R1", "votes for whoever asks", ((Elections, "_vote_is_free", _grants_twice),), "quorum", 9),
    Mutant(
        "vote_not_written",
        "R1",
        "a vote is forgotten with the process",
        ((QuorumFiles, "apply", _vote_is_not_written),),
        "quorum",
        4,
    ),
    Mutant(
        "speaks_before_writing",
        "T-L8",
        "votes and acknowledges before the disk has it",
        ((QuorumState, "_is_durable", _yes),),
        "quorum",
        10,
    ),
    Mutant(
        "vote_for_shorter_log",
        "R2",
        "votes without a look at the log",
        ((Elections, "_is_as_new", _yes),),
        "quorum",
        5,
    ),
    Mutant(
        "commits_old_term",
        "R2",
        "commits an entry of an earlier term because a majority has it",
        ((Replication, "_may_commit", _yes),),
        "quorum",
        "an_old_entry_is_committed_by_a_new_one_only",
    ),
    Mutant(
        "leader_counts_unsynced",
        "T-L8",
        "a leader counts its own log before it is durable",
        ((Replication, "_own_match", _own_end),),
        "quorum",
        "a_leader_counts_only_what_its_disk_has",
    ),
    Mutant(
        "no_first_record",
        "R3",
        "a new leader writes no record of its own",
        ((Replication, "_lead", _leads_in_silence), (Quorum, "leads", property(_leads_at_once))),
        "quorum",
        0,
    ),
    Mutant(
        "no_pre_vote",
        "R4",
        "stands for election without asking first",
        ((Elections, "_ask_for_pre_votes", _stands_without_asking),),
        "quorum",
        "a_node_that_was_cut_off_deposes_nobody",
    ),
    Mutant(
        "pre_vote_against_a_leader",
        "R4",
        "grants a pre-vote though it hears a leader",
        ((Elections, "_hears_a_leader", lambda self: False),),
        "quorum",
        "a_node_that_does_not_hear_the_leader_deposes_nobody",
    ),
    Mutant(
        "no_check_quorum",
        "R4",
        "a leader that nobody answers goes on leading",
        ((Replication, "_is_heard", _yes),),
        "quorum",
        "a_leader_that_hears_nobody_gives_up",
    ),
    Mutant(
        "truncates_always",
        "R10",
        "a follower cuts its log at every message, old copies included",
        ((Replication, "_take", _truncates_always), (QuorumState, "_may_truncate", _takes_back_anything)),
        "quorum",
        0,
    ),
    Mutant(
        "acknowledges_everything",
        "R10",
        "a follower acknowledges what the leader did not compare",
        ((Replication, "_compared", _own_end),),
        "quorum",
        1137,
    ),
    Mutant(
        "voters_change_at_once",
        "R3, T-L25",
        "changes voters before a record of the own term is committed",
        ((Quorum, "_may_change_voters", _changes_voters_at_once),),
        "quorum",
        "voters_change_behind_a_record_of_the_own_term",
    ),
    Mutant(
        "exchanged_disk_counts",
        "R1",
        "believes a voter whose disk was exchanged for an empty one",
        ((Elections, "_counts", _yes),),
        "quorum",
        "an_exchanged_disk_does_not_count",
    ),
    Mutant(
        "begins_with_a_majority",
        "R1",
        "elects a first leader though a disk may have been exchanged",
        ((Elections, "_votes_needed", lambda self, voters: voters.majority()),),
        "quorum",
        "a_cluster_begins_with_all_its_voters",
    ),
    Mutant(
        "two_voters_at_once",
        "T-L25",
        "adds or removes any number of voters in one record",
        ((Quorum, "_too_many", _no),),
        "quorum",
        "one_voter_changes_at_a_time",
    ),
    Mutant(
        "leaving_voter_gives_up",
        "T-L25",
        "a voter that is to leave never stands, though only it knows so",
        ((Elections, "_may_stand", _only_voters_stand),),
        "quorum",
        "a_voter_that_is_to_leave_stands",
    ),
    Mutant(
        "rename_before_sync",
        "T-L13",
        "a file gets its name before its bytes are safe",
        ((QuorumFiles, "_replace", _replace_without_sync),),
        "quorum",
        "a_crash_at_any_operation_keeps_what_was_safe",
    ),
    Mutant(
        "names_not_synced",
        "T-L13",
        "a new name is never made safe",
        ((QuorumFiles, "sync", _forgets_names),),
        "quorum",
        "a_crash_at_any_operation_keeps_what_was_safe",
    ),
    Mutant(
        "log_before_snapshot",
        "T-L13",
        "the log is cut before the snapshot is safe",
        ((QuorumFiles, "_save_snapshot", _log_goes_first),),
        "quorum",
        "a_crash_at_any_operation_keeps_what_was_safe",
    ),
    Mutant(
        "failed_sync_ignored",
        "R17, T-L9",
        "goes on after a sync that failed",
        ((QuorumState, "persisted", _sync_never_fails),),
        "quorum",
        1,
    ),
    Mutant(
        "writes_behind_a_failure",
        "R17, T-L23",
        "writes behind an entry that did not fit onto the disk",
        ((QuorumFiles, "_note_failure", lambda self, error: None),),
        "quorum",
        "nothing_is_written_behind_what_failed",
    ),
    Mutant(
        "page_cache_believed",
        "R17, T-L9",
        "believes after a restart what the disk never got",
        ((QuorumFiles, "_make_safe", _only_synced_at_start),),
        "quorum",
        "what_a_failed_sync_left_is_not_believed",
    ),
    Mutant(
        "damage_cut_off",
        "R17, T-L15",
        "takes damage in the middle of the log for a torn end",
        (
            ("millstream.logcore.replication.raft.quorum_files", "marks_behind", _no_marks),
            (QuorumPoint, "note", _notes_nothing),
        ),
        "quorum",
        "damage_is_noticed_or_says_nothing",
    ),
    Mutant(
        "shortened_log_believed",
        "R17, T-L15",
        "takes a log that ends at a whole frame for all that there was",
        ((QuorumPoint, "note", _notes_nothing),),
        "quorum",
        "a_shortened_log_is_noticed",
    ),
    Mutant(
        "cut_is_missed",
        "R17",
        "does not start after another leader's entries have replaced more of its own",
        ((QuorumPoint, "lower", _notes_nothing),),
        "quorum",
        "a_log_that_a_snapshot_replaced_is_not_missed",
    ),
    Mutant(
        "no_checksums",
        "T-L15",
        "does not look at checksums",
        (("millstream.logcore.replication.raft.quorum_frames", "crc32c", _any_checksum),),
        "quorum",
        "damage_is_noticed_or_says_nothing",
    ),
    Mutant(
        "any_cluster",
        "R20",
        "listens to nodes of another cluster",
        ((Quorum, "_is_of_this_cluster", _yes),),
        "quorum",
        "another_cluster_is_not_heard",
    ),
]
